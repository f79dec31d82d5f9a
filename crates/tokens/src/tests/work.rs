//! What a service does beside answers, where nothing is asked of etcd.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringgate_fleet::clocks::Clocks;
use ringgate_fleet::epochs::{Epoch, Validity};
use ringgate_fleet::etcd;
use ringgate_fleet::keyspace::Place;

use super::fleet::{NOW, RULES, fleet_key, keyspace, name};
use crate::fleet::{lose_lease, make_key, tidy};
use crate::service::{Options, Shared, open};

/// A minute after its start.
#[derive(Debug)]
struct Later;

impl Clocks for Later {
    fn now_ns(&self) -> u64 {
        60_000_000_000
    }

    fn unix_ns(&self) -> u64 {
        NOW.unix_s * 1_000_000_000
    }
}

/// A service without a lease, over an etcd that is not there.
fn service() -> (Arc<Shared>, etcd::Client) {
    let etcd =
        etcd::Options::new(vec![etcd::Endpoint::parse("http://127.0.0.1:1").expect("literal")]);
    let client = etcd::Client::new(etcd.clone()).expect("sound options");
    let options = Options {
        etcd,
        keyspace: keyspace(),
        key: fleet_key(),
        name: name("t"),
        host: name("h"),
        version: "0".into(),
        bind: Vec::new(),
        tls: None,
        threads: 1,
        rules: RULES,
        callers: Vec::new(),
        memory_bytes: 0,
        drain: Duration::ZERO,
        rotate_every: None,
        disk: None,
    };
    (open(options, Arc::new(Later), 1).0, client)
}

#[tokio::test(start_paused = true)]
async fn many_blocks_that_cannot_be_given_back_keep_nothing_else_from_its_turn() {
    let (shared, client) = service();
    for at in 0..64 {
        shared.desk().book_mut().open(&name(&format!("b{at}")), NOW.unix_s).written = 1;
    }
    let tidying = tidy(Arc::clone(&shared), client);
    // Where it never waits, this does not come to an end.
    assert!(tokio::time::timeout(Duration::from_secs(3), tidying).await.is_err());
}

#[tokio::test]
async fn a_lease_is_lost_by_what_was_asked_under_it_and_the_next_is_asked_for_at_once() {
    let (shared, _) = service();
    shared.lease.store(7, Ordering::Relaxed);
    shared.desk().set_mirror(true, true);
    shared.desk().set_leased(u64::MAX);
    lose_lease(&shared, 6);
    assert!(shared.lease.load(Ordering::Relaxed) == 7 && !shared.desk().is_away(shared.now()));
    lose_lease(&shared, 7);
    assert_eq!(shared.lease.load(Ordering::Relaxed), 0);
    shared.lost.notified().await;
}

#[tokio::test]
async fn a_key_is_not_made_where_something_stands_that_cannot_be_read() {
    let (shared, client) = service();
    let place = keyspace().key(&Place::Key(name("main"), 8));
    shared.desk().learn(&place, Some(b"by hand"));
    let validity = Validity { from: 0, mint_until: 1, accept_until: 2 };
    let made = make_key(&shared, &client, &name("main"), Epoch { number: 8, validity }).await;
    let why = made.expect_err("it would not be made").to_string();
    assert!(why.contains("/key/main/8 cannot be read"), "{why}");
}
