//! The mirror through everything that happens to a single etcd.

use std::time::Duration;

use ringgate_core::secret::{KEY_BYTES, Key};
use ringgate_fleet::copy;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::txn::Put;
use ringgate_fleet::mirror::{Doubt, Reads, Truth};
use ringgate_fleet::seal::FleetKey;

use super::proxy::{Mood, Proxy};
use super::rig::{Etcd, is_installed, options, until};
use super::watcher::{PREFIX, Watcher};

fn put(etcd: &Etcd, key: &str, value: &str) {
    etcd.ctl(&["put", &format!("{PREFIX}{key}"), value]);
}

fn compact(etcd: &Etcd) {
    let status = etcd.ctl(&["endpoint", "status", "-w", "json"]);
    let (_, after) = status.split_once("\"revision\":").expect("it has a revision");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    etcd.ctl(&["compact", &digits]);
}

#[tokio::test]
async fn a_server_that_is_killed_and_restarted_is_watched_on() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    (0..20).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    assert_eq!(watcher.len(), 20);
    put(&etcd, "backend/b0", "draining");
    watcher.holds("backend/b0", "draining").await;

    etcd.members[0].kill();
    until("the loss is seen", async || !watcher.status().is_current).await;
    assert_eq!(watcher.len(), 20, "what is known stays");
    etcd.members[0].start();
    etcd.answers(&etcd.client()).await;
    put(&etcd, "backend/b1", "draining");
    watcher.holds("backend/b1", "draining").await;
    watcher.is_current().await;
    assert_eq!(watcher.status().lists, 1, "it was resumed");
}

#[tokio::test]
async fn a_compaction_while_nobody_watched_is_survived() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let proxy = Proxy::start(etcd.members[0].port).await;
    (0..9).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let client = Client::new(options("http", &[proxy.port])).unwrap();
    let watcher = Watcher::start(client);
    watcher.is_current().await;
    proxy.set(Mood::Swallows);
    until("the silence is noticed", async || !watcher.status().is_current).await;
    put(&etcd, "backend/b0", "draining");
    etcd.ctl(&["del", &format!("{PREFIX}backend/b1")]);
    compact(&etcd);
    proxy.set(Mood::Open);
    watcher.holds("backend/b0", "draining").await;
    until("the delete is seen", async || watcher.value("backend/b1").is_none()).await;
    watcher.is_current().await;
}

#[tokio::test]
async fn a_network_that_swallows_everything_is_left_for_another_way() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let (one, other) =
        (Proxy::start(etcd.members[0].port).await, Proxy::start(etcd.members[0].port).await);
    let mut options = options("http", &[one.port, other.port]);
    options.request_timeout = Duration::from_millis(500);
    options.connect_timeout = Duration::from_millis(500);
    put(&etcd, "gateway/g", "1");
    let watcher = Watcher::start(Client::new(options).unwrap());
    watcher.is_current().await;
    for (round, (bad, good)) in [(&one, &other), (&other, &one)].into_iter().enumerate() {
        bad.set(Mood::Swallows);
        good.set(Mood::Open);
        let value = format!("round {round}");
        put(&etcd, "gateway/g", &value);
        watcher.holds("gateway/g", &value).await;
    }
    assert_eq!(watcher.status().lists, 1);
}

#[tokio::test]
async fn a_slow_network_is_slow_and_nothing_else() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let proxy = Proxy::start(etcd.members[0].port).await;
    proxy.set(Mood::Slow(Duration::from_millis(100)));
    let watcher = Watcher::start(Client::new(options("http", &[proxy.port])).unwrap());
    watcher.is_current().await;
    (0..12).for_each(|index| put(&etcd, &format!("ban/client/{index}"), "x"));
    watcher.holds("ban/client/11", "x").await;
    assert_eq!((watcher.status().lists, watcher.status().watches), (1, 1));
}

#[tokio::test]
async fn an_etcd_that_begins_from_nothing_is_held_back_until_it_is_confirmed() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    (0..10).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    etcd.members[0].kill();
    etcd.members[0].wipe();
    etcd.members[0].start();
    let (number, doubt) = watcher.doubts().await;
    // Its name and address are the old ones, and so is the id that etcd makes of them.
    assert!(matches!(doubt, Doubt::RevisionWentBack { .. } | Doubt::ClusterChanged { .. }));
    put(&etcd, "backend/new", "ready");
    assert_eq!(watcher.len(), 10, "{doubt}");
    watcher.confirm(number).await;
    watcher.holds("backend/new", "ready").await;
    until("the old ones are gone", async || watcher.len() == 1).await;
}

#[tokio::test]
async fn an_etcd_that_was_restored_from_a_backup_is_held_back() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    (0..3).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let backup = etcd.folder.path("backup");
    etcd.ctl(&["snapshot", "save", &backup.to_string_lossy()]);
    (3..6).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    etcd.members[0].kill();
    etcd.members[0].wipe();
    etcd.members[0].restore(&backup);
    etcd.members[0].start();
    let (number, doubt) = watcher.doubts().await;
    assert_eq!(watcher.len(), 6, "{doubt}");
    watcher.confirm(number).await;
    until("the backup is believed", async || watcher.len() == 3).await;
}

#[tokio::test]
async fn half_of_the_backends_deleted_at_once_stay_until_it_is_confirmed() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    (0..20).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    etcd.ctl(&["del", "--prefix", &format!("{PREFIX}backend/b1")]);
    let (number, doubt) = watcher.doubts().await;
    assert_eq!(doubt.to_string(), "of 20 backends 9 are left");
    assert_eq!(watcher.len(), 20);
    watcher.confirm(number).await;
    until("it is believed", async || watcher.len() == 9).await;
}

#[tokio::test]
async fn a_gateway_that_starts_while_etcd_is_away_knows_what_it_knew() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    (0..4).for_each(|index| put(&etcd, &format!("backend/b{index}"), "ready"));
    let path = etcd.folder.path("copy");
    let first = Watcher::start(etcd.client());
    first.is_current().await;
    copy::replace(&path, &copy::encode(&PREFIX.into(), &first.truth(), 1)).unwrap();
    drop(first);
    etcd.members[0].kill();

    let known = copy::load(&copy::StateFile::Disk(path)).unwrap().expect("it was saved").truth;
    let second = Watcher::with(etcd.client(), known);
    until("it has tried", async || second.status().last_error.is_some()).await;
    assert_eq!(second.len(), 4);
    etcd.members[0].start();
    etcd.answers(&etcd.client()).await;
    put(&etcd, "backend/b0", "draining");
    second.holds("backend/b0", "draining").await;
    assert_eq!(second.status().lists, 0, "the copy was good enough to go on from");
}

/// Backends of a host under a lease that can be revoked.
async fn host(client: &Client, name: &str, state: &str) -> i64 {
    let lease = client.grant(600).await.expect("etcd is there").id;
    for index in 0..4 {
        let key = format!("{PREFIX}backend/{name}-{index}").into();
        let value = format!(r#"{{"v":1,"host":"{name}","state":"{state}"}}"#).into();
        client.put(&Put { key, value, lease }).await.expect("etcd is there");
    }
    lease
}

#[tokio::test]
async fn the_death_of_one_of_two_hosts_and_a_drain_of_half_are_news() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let (first, _other) =
        (host(&client, "one", "ready").await, host(&client, "two", "ready").await);
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    client.revoke(first).await.unwrap();
    until("the dead host is gone", async || watcher.len() == 4).await;
    let more = [host(&client, "three", "ready").await, host(&client, "four", "ready").await];
    until("others are there", async || watcher.len() == 12).await;
    for (lease, name) in more.into_iter().zip(["three", "four"]) {
        (0..4).for_each(|index| {
            let key = format!("{PREFIX}backend/{name}-{index}");
            let value = format!(r#"{{"v":1,"host":"{name}","state":"draining"}}"#);
            etcd.ctl(&["put", &key, &value, &format!("--lease={lease:x}")]);
        });
    }
    for lease in more {
        client.revoke(lease).await.unwrap();
    }
    until("they have drained, and are gone", async || watcher.len() == 4).await;
    assert_eq!(watcher.status().doubt, None);
}

#[tokio::test]
async fn while_backends_are_missed_and_in_an_emptied_etcd_the_fleets_word_holds() {
    if !is_installed() {
        return;
    }
    let fleet = FleetKey::new(Key::from_bytes([9; KEY_BYTES]));
    let mut etcd = Etcd::start().await;
    let client = etcd.client();
    for name in ["one", "two", "three", "four"] {
        host(&client, name, "ready").await;
    }
    let reads = Reads::new(Some(fleet.clone()));
    let watcher = Watcher::reading(etcd.client(), Truth::default(), reads);
    watcher.is_current().await;
    // Nobody says why, and not one host's alone.
    for name in ["one", "two", "three"] {
        etcd.ctl(&["del", "--prefix", &format!("{PREFIX}backend/{name}")]);
    }
    watcher.doubts().await;
    assert_eq!(watcher.len(), 16);
    put(&etcd, "ban/client/1", r#"{"v":1,"until":9}"#);
    watcher.holds("ban/client/1", r#"{"v":1,"until":9}"#).await;
    assert!(watcher.status().doubt.is_some());

    etcd.members[0].kill();
    etcd.members[0].wipe();
    etcd.members[0].start();
    until("another history is seen", async || watcher.status().is_rewritten()).await;
    let at = format!("{PREFIX}ban/client/2");
    let word = fleet.vouch(at.as_bytes(), br#"{"v":1,"until":9}"#, 7).unwrap();
    put(&etcd, "ban/client/3", r#"{"v":1,"until":9}"#);
    client.put(&Put { key: at.into(), value: word, lease: 0 }).await.unwrap();
    until("the ban holds", async || watcher.value("ban/client/2").is_some()).await;
    assert!(watcher.value("ban/client/3").is_none() && watcher.value("ban/client/1").is_some());
    assert_eq!(watcher.len(), 18, "nothing is lost");
}
