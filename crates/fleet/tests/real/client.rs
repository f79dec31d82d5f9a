//! Each kind of request, against the real server.

use std::time::Duration;

use ringgate_core::secret::{KEY_BYTES, Key};
use ringgate_fleet::asking::{Asking, sealed};
use ringgate_fleet::decisions::Decisions;
use ringgate_fleet::etcd::kv::{KeyValue, Range, key_after};
use ringgate_fleet::etcd::txn::{Delete, Put, Txn};
use ringgate_fleet::etcd::{Client, Code, Error};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Gateway, Piece, Question, What};

use super::proxy::{Mood, Proxy};
use super::rig::{Etcd, is_installed, options, until};
use crate::own::{own_ip, own_port};

fn put(key: &str, value: &str, lease: i64) -> Put {
    Put { key: key.to_owned().into(), value: value.to_owned().into(), lease }
}

#[tokio::test]
async fn keys_are_written_read_in_pages_and_removed() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    for index in 0..5 {
        client.put(&put(&format!("/k/{index}"), "v", 0)).await.unwrap();
    }
    let first = client.range(&Range { limit: 3, ..Range::prefix(b"/k/") }).await.unwrap();
    assert!(first.more && first.kvs.len() == 3 && first.count == 5);
    assert_eq!(first.kvs[1].version, 1);
    client.delete(&Delete { key: "/k/4".into(), ..Delete::default() }).await.unwrap();
    let rest = Range {
        key: key_after(&first.kvs[2].key),
        revision: first.header.revision,
        ..Range::prefix(b"/k/")
    };
    assert_eq!(client.range(&rest).await.unwrap().kvs.len(), 2, "as it was at that revision");
    let count = Range { count_only: true, ..Range::prefix(b"/k/") };
    let counted = client.range(&count).await.unwrap();
    assert!(counted.count == 4 && counted.kvs.is_empty());
    etcd.ctl(&["compact", &counted.header.revision.to_string()]);
    assert!(client.range(&rest).await.unwrap_err().is_compacted());
}

#[tokio::test]
async fn of_two_claims_one_is_decided_for() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let lease = client.grant(60).await.unwrap();
    let first = client.txn(&Txn::claim(put("/c", "one", lease.id))).await.unwrap();
    let second = client.txn(&Txn::claim(put("/c", "two", 0))).await.unwrap();
    assert!(first.held && !second.held);
    assert_eq!((&second.found[0].value[..], second.found[0].lease), (&b"one"[..], lease.id));
    assert!(client.keep_alive(lease.id).await.unwrap().ttl_s > 50);
    client.revoke(lease.id).await.unwrap();
    client.revoke(lease.id).await.expect("what is gone is gone");
    assert!(client.keep_alive(lease.id).await.unwrap().ttl_s <= 0);
    assert!(client.range(&Range::one("/c")).await.unwrap().kvs.is_empty());
    let orphan = client.txn(&Txn::claim(put("/c", "x", lease.id))).await;
    assert!(orphan.unwrap_err().is_lease_gone());
}

#[tokio::test]
async fn many_claims_go_together_and_each_is_decided_by_itself() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    for key in ["/c/007", "/c/150"] {
        client.put(&put(key, "other", 0)).await.unwrap();
    }
    let lease = client.grant(60).await.unwrap().id;
    let claim = |index| (index, Txn::claim(put(&format!("/c/{index:03}"), "own", lease)));
    let mut claims = Decisions::new(client.clone());
    claims.ask((0..250).map(claim));
    let (mut answers, mut lost) = (0, Vec::new());
    while let Some((asked, answer)) = claims.answered().await {
        let decided = answer.unwrap();
        answers += 1;
        let both = asked.into_iter().zip(&decided.each).filter(|(_, it)| !it.held);
        lost.extend(both.map(|(index, it)| (index, it.found[0].value.clone())));
    }
    lost.sort_unstable();
    assert_eq!(lost, [(7, "other".into()), (150, "other".into())]);
    assert_eq!(answers, 3, "etcd takes 128 steps");
    let all = client.range(&Range::prefix(b"/c/")).await.unwrap().kvs;
    assert_eq!(all.iter().filter(|kv| kv.lease == lease && &kv.value[..] == b"own").count(), 248);
    let too_many = Txn::each((0..129).map(|index| claim(index).1));
    let refused = client.txn(&too_many).await.unwrap_err();
    assert!(refused.to_string().contains("too many operations"), "{refused}");

    // Who claims again finds its own, and what others have changed is not removed.
    let decided = client.txn(&Txn::each([claim(7).1, claim(8).1])).await.unwrap();
    let found = decided.each.iter().map(|it| &it.found[0].value[..]);
    assert_eq!(found.collect::<Vec<_>>(), [&b"other"[..], b"own"]);
    assert!(decided.held && !decided.have_all_held());
    client.put(&put("/c/001", "newer", 0)).await.unwrap();
    let remove = |kv: &KeyValue| Txn::remove(kv.key.clone(), kv.mod_revision);
    let removed = client.txn(&Txn::each(all[..3].iter().map(remove))).await.unwrap();
    assert_eq!(removed.each.iter().map(|it| it.held).collect::<Vec<_>>(), [true, false, true]);

    // Under a lease that is gone none is done.
    client.revoke(lease).await.unwrap();
    let gone = client.txn(&Txn::each([claim(1).1, claim(2).1])).await;
    assert!(gone.unwrap_err().is_lease_gone());
    let left = client.range(&Range::prefix(b"/c/")).await.unwrap().kvs;
    assert_eq!(left.len(), 3, "others' keys");
    let also = Put { key: "/c/002".into(), value: "x".into(), lease: 0 };
    let half = client.txn(&Txn::each([Txn::claim(also), claim(3).1])).await;
    assert!(half.unwrap_err().is_lease_gone());
    assert!(client.range(&Range::one("/c/002")).await.unwrap().kvs.is_empty());
}

#[tokio::test]
async fn claims_whose_answer_is_lost_are_found_by_who_has_made_them() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let proxy = Proxy::start(etcd.members[0].port).await;
    let mut options = options("http", &[proxy.port]);
    options.request_timeout = Duration::from_millis(300);
    let far = Client::new(options).unwrap();
    until("it is connected", async || far.range(&Range::one("/")).await.is_ok()).await;
    proxy.set(Mood::SwallowsAnswers);
    let claim = |index| (index, Txn::claim(put(&format!("/c/{index}"), "own", 0)));
    let mut claims = Decisions::new(far);
    let near = etcd.client();
    let all = Range::prefix(b"/c/");
    // Until etcd has come to it before the request was given up.
    while near.range(&all).await.unwrap().kvs.len() < 3 {
        claims.ask((0..3).map(claim));
        let (asked, answer) = claims.answered().await.expect("it is on its way");
        assert!(asked == [0, 1, 2] && answer.is_err(), "nobody knows: {answer:?}");
    }
    let mut again = Decisions::new(near);
    again.ask((2..4).map(claim));
    let (_, answer) = again.answered().await.expect("it is on its way");
    let decided = answer.unwrap().each;
    assert_eq!(decided.iter().map(|it| it.held).collect::<Vec<_>>(), [false, true]);
    assert_eq!(&decided[0].found[0].value[..], b"own");
}

#[tokio::test]
async fn a_watch_tells_what_happens_and_that_it_lives() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let before = client.put(&put("/w/a", "1", 0)).await.unwrap();
    client.put(&put("/w/a", "2", 0)).await.unwrap();
    let mut watch = client.watch(b"/w/", b"/w0", before.revision).await.unwrap();
    assert!(watch.next_answer().await.unwrap().created);
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(watch.next_answer().await.unwrap().events);
    }
    assert_eq!((&events[0].kv.value[..], &events[1].kv.value[..]), (&b"1"[..], &b"2"[..]));
    assert!(watch.ask_progress());
    let progress = watch.next_answer().await.unwrap();
    assert!(progress.events.is_empty() && !progress.canceled);
    client.delete(&Delete { key: "/w/a".into(), ..Delete::default() }).await.unwrap();
    let gone = watch.next_answer().await.unwrap();
    assert!(gone.events[0].is_delete);

    etcd.ctl(&["compact", &gone.header.revision.to_string()]);
    let mut late = client.watch(b"/w/", b"/w0", before.revision).await.unwrap();
    let mut told = late.next_answer().await.unwrap();
    while !told.canceled {
        told = late.next_answer().await.unwrap();
    }
    assert_eq!(told.compact_revision, gone.header.revision);
}

#[tokio::test]
async fn a_large_list_comes_whole() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let client = etcd.client();
    let value = "x".repeat(30_000);
    for index in 0..100 {
        client.put(&put(&format!("/l/{index:03}"), &value, 0)).await.unwrap();
    }
    let all = client.range(&Range::prefix(b"/l/")).await.unwrap();
    assert_eq!(all.kvs.iter().map(|kv| kv.value.len()).sum::<usize>(), 3_000_000);
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_is_passed_over() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let ports = [own_port(), own_port(), etcd.members[0].port];
    let client = Client::new(options("http", &ports)).unwrap();
    assert!(client.range(&Range::one("/")).await.is_ok());
    assert!(client.member().await.ends_with(&ports[2].to_string()));
    let nowhere = Client::new(options("http", &ports[..2])).unwrap();
    assert!(matches!(nowhere.range(&Range::one("/")).await, Err(Error::Transport(_))));
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_given_up_and_its_member_left() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start().await;
    let port = etcd.members[0].port;
    let proxies = [Proxy::start(port).await, Proxy::start(port).await];
    let mut options = options("http", &[proxies[0].port, proxies[1].port]);
    options.request_timeout = Duration::from_millis(300);
    let client = Client::new(options).unwrap();
    until("it is connected", async || client.range(&Range::one("/")).await.is_ok()).await;
    // A slow host may have given up the first of them by now.
    let member = client.member().await;
    let is_asked = |proxy: &&Proxy| member.ends_with(&format!(":{}", proxy.port));
    proxies.iter().find(is_asked).expect("one is").set(Mood::Swallows);
    assert_eq!(client.range(&Range::one("/")).await, Err(Error::Timeout));
    until("the other is asked", async || client.range(&Range::one("/")).await.is_ok()).await;
}

#[tokio::test]
async fn what_is_no_etcd_is_refused() {
    let listener = tokio::net::TcpListener::bind((own_ip(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, b"SSH-2.0-x\r\n").await;
        }
    });
    let client = Client::new(options("http", &[port])).unwrap();
    let why = client.range(&Range::one("/")).await.unwrap_err();
    assert!(why.blames_member(), "{why}");
    let missing = Client::new(ringgate_fleet::etcd::Options::new(Vec::new()));
    assert!(matches!(missing.unwrap_err(), Error::Config(_)));
    assert_eq!(Code::UNAVAILABLE.0, 14);
}

#[tokio::test]
async fn answers_are_heard_that_come_while_etcd_is_away_for_a_moment() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    let client = etcd.client();
    let (keyspace, key) =
        (Keyspace::new("/f").unwrap(), FleetKey::new(Key::from_bytes([9; KEY_BYTES])));
    let gateway = |name: &str| {
        let told = serde_json::json!({
            "v": 1, "instance": format!("of-{name}"), "region": "eu", "host": "h", "version": "0",
            "listeners": [], "capacity": 1, "sessions": 0, "draining": false, "started": 1,
            "written": 1, "doubt": 0, "answers": true,
        });
        (Name::new(name).unwrap(), serde_json::from_value::<Gateway>(told).unwrap())
    };
    let gateways = ["g1", "g2"].map(gateway).into();
    let question = Question { at: 1, by: "me".into(), what: What::Kick, query: "player=1".into() };
    let fleet = (keyspace.clone(), key.clone());
    let mut asking = Asking::begin(etcd.client(), fleet, &question, &gateways).await.unwrap();
    let asked = client.range(&Range::prefix(b"/f/claim/ask/")).await.unwrap().kvs;
    let Some(Place::Question(_, id)) = keyspace.place(&asked[0].key) else { panic!("{asked:?}") };
    let answer = async |name: &str| {
        let instance = Name::new(&format!("of-{name}")).unwrap();
        let at = keyspace.key(&Place::Answer(id.clone(), instance, 0));
        let piece = Piece { gateway: name.into(), status: 200, last: true, text: "{}".into() };
        let value = sealed(&key, &at, &piece).unwrap();
        client.put(&Put { key: at, value, lease: asked[0].lease }).await.is_ok()
    };
    assert!(answer("g1").await);
    etcd.members[0].kill();
    assert_eq!(asking.hear().await, Ok(Vec::new()));
    etcd.members[0].start();
    let mut heard = Vec::new();
    until("both are heard", async || {
        heard.extend(asking.hear().await.unwrap().into_iter().map(|it| it.gateway));
        if heard == ["g1"] {
            answer("g2").await;
        }
        asking.is_over()
    })
    .await;
    assert_eq!(heard, ["g1", "g2"]);
    // Who has answered is heard, whatever becomes of the keys.
    etcd.members[0].kill();
    asking.end().await;
}
