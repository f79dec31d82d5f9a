//! Registration against the real server: leases that end, names that are taken, successors.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringgate_core::secret::{KEY_BYTES, Key};
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::txn::Put;
use ringgate_fleet::keyspace::{Keyspace, Place};
use ringgate_fleet::lease::run::{Command, run};
use ringgate_fleet::lease::{Registration, Standing, Words};
use ringgate_fleet::seal::FleetKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::proxy::{Mood, Proxy};
use super::rig::{Etcd, is_installed, options, until};

const KEY: &str = "/f/truth/gateway/g";
/// So long that a busy machine ends no lease.
const TTL_S: i64 = 12;
/// Of a lease that is to end by itself.
const SHORT_TTL_S: i64 = 2;

struct Registered {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<Registration>,
    seen: Arc<Mutex<(Option<Standing>, u64)>>,
}

impl Registered {
    fn start(client: Client, value: &str) -> Self {
        Self::with(client, Registration::new(TTL_S, 1), value)
    }

    fn with(client: Client, mut registration: Registration, value: &str) -> Self {
        registration.set(KEY.into(), Bytes::copy_from_slice(value.as_bytes()));
        let (commands, told) = mpsc::channel(4);
        let seen = Arc::new(Mutex::new((None, 0)));
        let shown = Arc::clone(&seen);
        let task = tokio::spawn(run(registration, client, told, move |_, registration| {
            let standing = registration.standing(KEY.as_bytes());
            *shown.lock().expect("nobody panics with it") = (standing, registration.lost());
        }));
        Self { commands, task, seen }
    }

    fn standing(&self) -> Option<Standing> {
        self.seen.lock().expect("nobody panics with it").0
    }

    fn lost(&self) -> u64 {
        self.seen.lock().expect("nobody panics with it").1
    }

    async fn is_written(&self) {
        until("it is registered", async || self.standing() == Some(Standing::Written)).await;
    }
}

/// Waits until a lease has been given its time again.
async fn is_kept_alive(etcd: &Etcd, lease: i64) {
    let mut least_s = i64::MAX;
    until("the lease has more time than it had", async || {
        let said = etcd.ctl(&["lease", "timetolive", "--write-out", "json", &format!("{lease:x}")]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let left_s = said["ttl"].as_i64().expect("a number");
        let has_more = left_s > least_s;
        least_s = left_s.min(least_s);
        has_more
    })
    .await;
}

async fn value(client: &Client) -> Option<(Bytes, i64)> {
    let ranged = client.range(&Range::one(KEY)).await.ok()?;
    ranged.kvs.first().map(|kv| (kv.value.clone(), kv.lease))
}

#[tokio::test]
async fn a_registration_lasts_follows_its_value_and_ends_when_told_to() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let registered = Registered::start(etcd.client(), "one");
    registered.is_written().await;
    let (_, lease) = value(&client).await.unwrap();
    assert_ne!(lease, 0);
    let set = Command::Set(KEY.into(), "two".into());
    registered.commands.send(set).await.unwrap();
    until("the value follows", async || value(&client).await == Some(("two".into(), lease))).await;
    is_kept_alive(&etcd, lease).await;
    assert_eq!(value(&client).await, Some(("two".into(), lease)));
    // Somebody deletes it, and somebody else sees that.
    etcd.ctl(&["del", KEY]);
    registered.commands.send(Command::Doubt(KEY.into())).await.unwrap();
    until("it is back", async || value(&client).await == Some(("two".into(), lease))).await;
    registered.commands.send(Command::Stop).await.unwrap();
    assert!(registered.task.await.unwrap().has_stopped());
    assert_eq!(value(&client).await, None);
}

#[tokio::test]
async fn a_lease_that_ends_while_its_process_lives_is_replaced() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let (client, proxy) = (etcd.client(), Proxy::start(etcd.members[0].port).await);
    let mut options = options("http", &[proxy.port]);
    options.request_timeout = Duration::from_millis(500);
    options.connect_timeout = Duration::from_millis(500);
    let registration = Registration::new(SHORT_TTL_S, 1);
    let registered = Registered::with(Client::new(options).unwrap(), registration, "one");
    registered.is_written().await;
    let lost = registered.lost();
    proxy.set(Mood::Swallows);
    until("the lease has ended", async || value(&client).await.is_none()).await;
    proxy.set(Mood::Open);
    until("it is registered anew", async || value(&client).await.is_some()).await;
    until("it knows", async || registered.lost() > lost).await;
    registered.is_written().await;
}

#[tokio::test]
async fn of_two_processes_with_one_name_the_first_has_it_while_it_lives() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let first = Registered::start(etcd.client(), "first");
    first.is_written().await;
    let second = Registered::start(etcd.client(), "second");
    until("it is told", async || matches!(second.standing(), Some(Standing::Taken { .. }))).await;
    assert_eq!(value(&client).await.unwrap().0, "first");
    // The first dies without a word, and its lease ends.
    first.task.abort();
    let (_, lease) = value(&client).await.unwrap();
    etcd.ctl(&["lease", "revoke", &format!("{lease:x}")]);
    second.is_written().await;
    assert_eq!(value(&client).await.unwrap().0, "second");
}

#[tokio::test]
async fn a_successor_adopts_the_lease_and_nobody_sees_the_change() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let first = Registered::start(etcd.client(), "one");
    first.is_written().await;
    let before = client.range(&Range::one(KEY)).await.unwrap();
    drop(first.commands);
    let handed = first.task.await.unwrap().handed();
    assert_eq!(handed.keys, [KEY]);
    let adopted = Registration::adopt(TTL_S, 2, handed);
    let second = Registered::with(etcd.client(), adopted, "two");
    second.is_written().await;
    let after = client.range(&Range::one(KEY)).await.unwrap();
    let (before, after) = (&before.kvs[0], &after.kvs[0]);
    assert_eq!((after.lease, after.create_revision), (before.lease, before.create_revision));
    assert_eq!((&after.value[..], after.version), (&b"two"[..], before.version + 1));
    is_kept_alive(&etcd, after.lease).await;
    assert_eq!(value(&client).await.unwrap().1, after.lease, "the successor keeps it alive");
}

#[tokio::test]
async fn a_registration_comes_back_after_etcd_has_lost_everything() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    let client = etcd.client();
    let registered = Registered::start(etcd.client(), "one");
    registered.is_written().await;
    etcd.members[0].kill();
    etcd.members[0].wipe();
    etcd.members[0].start();
    until("it is registered anew", async || value(&client).await.is_some()).await;
    assert!(registered.lost() <= 1);
}

#[tokio::test]
async fn an_etcd_without_space_is_said_to_be_that_and_one_that_ends_says_so_first() {
    if !is_installed() {
        return;
    }
    let more = |_: &_| vec!["--quota-backend-bytes".to_owned(), "1000000".to_owned()];
    let etcd = Etcd::launch(1, "http", more);
    etcd.answers(&etcd.client()).await;
    let client = etcd.client();
    let key = FleetKey::new(Key::from_bytes([9; KEY_BYTES]));
    let keyspace = Keyspace::new("/f").unwrap();
    let mut registration = Registration::new(TTL_S, 1);
    registration.vouch_with(Words::new(keyspace.clone(), key.clone(), 1_000));
    let registered = Registered::with(etcd.client(), registration, r#"{"v":1}"#);
    registered.is_written().await;
    let (value, lease) = value(&client).await.unwrap();
    assert!(key.vouched(KEY.as_bytes(), &value).is_some_and(|counter| counter >= 1_000));
    // A process that ends lets go of the commands behind that one.
    let Registered { commands, task, .. } = registered;
    commands.send(Command::Stop).await.unwrap();
    drop(commands);
    assert!(task.await.unwrap().has_stopped());
    assert_eq!(self::value(&client).await, None, "the key does not stay until the lease ends");
    let gone = keyspace.key(&Place::Gone(lease));
    let ranged = client.range(&Range::one(gone.clone())).await.unwrap();
    assert!(key.vouched(&gone, &ranged.kvs[0].value).is_some(), "it has taken its leave");

    let fill = Put { key: "/fill".into(), value: vec![b'x'; 300_000].into(), lease: 0 };
    until("etcd is full", async || client.put(&fill).await.is_err_and(|why| why.lacks_space()))
        .await;
    let mut registration = Registration::new(TTL_S, 1);
    registration.set(KEY.into(), "one".into());
    let (_commands, told) = mpsc::channel(4);
    let lacks = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&lacks);
    let task = tokio::spawn(run(registration, etcd.client(), told, move |_, registration| {
        *seen.lock().expect("nobody panics with it") = registration.lacks_space();
    }));
    until("it is said", async || *lacks.lock().expect("nobody panics with it")).await;
    task.abort();
}
