//! Bursts over two services, rotations, an etcd that goes away, and a service that is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ringgate_core::netcode;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::txn::{Delete, Put};
use ringgate_fleet::keyspace::Place;
use ringgate_tokens::service::Options;
use tokio::task::JoinSet;

use crate::http::{ask, post};
use crate::office::{Fleet, Office, PROTOCOL_ID, keyspace, listener_key, name, token_of};
use crate::rig::{Etcd, is_installed, until};

/// Asks for so many tokens at once, in turn at each of these services; how many each backend got,
/// and why others got none.
async fn burst(
    services: &[SocketAddr],
    count: u32,
) -> (BTreeMap<String, u32>, BTreeMap<String, u32>) {
    let mut asking = JoinSet::new();
    let (mut placed, mut refused) = (BTreeMap::new(), BTreeMap::new());
    let mut note = |answer: crate::http::Answer| match answer.status {
        200 => {
            let backend = answer.json()["backend"].as_str().expect("a name").to_owned();
            *placed.entry(backend).or_default() += 1;
        }
        _ => *refused.entry(answer.error()).or_default() += 1,
    };
    for client in 0..count {
        let to = services[client as usize % services.len()];
        let body = format!("{{\"client_id\": {client}}}");
        asking.spawn(async move { post(to, "/v1/tokens", &body).await });
        if asking.len() >= 64 {
            note(asking.join_next().await.expect("there are some").expect("it does not panic"));
        }
    }
    while let Some(answer) = asking.join_next().await {
        note(answer.expect("it does not panic"));
    }
    (placed, refused)
}

#[tokio::test]
async fn two_services_fill_a_fleet_in_one_burst_and_overfill_no_server() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(3, 7, 20).await;
    let (one, two) = (fleet.service("one").await, fleet.service("two").await);
    for office in [&one, &two] {
        let metrics = || ask(office.address(), "GET", "/metrics", "", "");
        until("both know each other", async || {
            metrics().await.body.contains("\nringgate_tokens_services 2\n")
        })
        .await;
    }
    let (placed, refused) = burst(&[one.address(), two.address()], 600).await;
    let all: u32 = placed.values().sum();
    assert!(placed.values().all(|count| *count <= 20), "{placed:?}");
    assert_eq!(all + refused.values().sum::<u32>(), 600);
    // What one service has leased and not used yet is lost to the other for some seconds only.
    assert!(all > 380, "{all} of 420 placed, refused {refused:?}");
    let words: BTreeSet<_> = refused.keys().map(String::as_str).collect();
    assert!(words.is_subset(&["no_slot", "busy"].into()), "{refused:?}");
    one.stop().await;
    two.stop().await;
    // A service that ends leaves what it has promised in etcd, for as long as the tokens live.
    let blocks =
        fleet.etcd.ctl(&["get", "--prefix", "/ringgate/test/claim/slots/", "--print-value-only"]);
    let slots = blocks
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["slots"].as_u64());
    assert_eq!(slots.sum::<u64>(), u64::from(all));
}

#[tokio::test]
async fn a_client_has_one_promise_at_all_services_that_reach_etcd() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 3, 1000).await;
    let claims = || {
        let found =
            fleet.etcd.ctl(&["get", "--prefix", "/ringgate/test/claim/promise/", "-w=json"]);
        let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
        found["count"].as_u64().unwrap_or(0)
    };
    let ask_at = async |office: &Office, client: u32, backend: &str| {
        let backend = if backend.is_empty() {
            String::new()
        } else {
            format!(", \"backend\": \"{backend}\"")
        };
        let body = format!("{{\"client_id\": {client}{backend}}}");
        let answer = post(office.address(), "/v1/tokens", &body).await;
        match answer.status {
            200 => answer.json()["backend"].as_str().expect("a name").to_owned(),
            _ => answer.error(),
        }
    };
    let one = fleet.service("one").await;
    assert_eq!(ask_at(&one, 1, "b0-1").await, "b0-1");
    assert_eq!(claims(), 0, "it is alone");
    // The next one is ready when the first has told it what it has promised.
    let two = fleet.service("two").await;
    assert_eq!(ask_at(&two, 1, "b0-2").await, "promised_elsewhere");
    assert_eq!(ask_at(&two, 1, "").await, "b0-1");
    // Both at the same moment.
    for client in 2..20 {
        let both = tokio::join!(ask_at(&one, client, "b0-0"), ask_at(&two, client, "b0-1"));
        let refused = "promised_elsewhere".to_owned();
        let is_one = both.0 == refused || both.1 == refused;
        assert!(is_one && both.0 != both.1, "{client}: {both:?}");
    }
    assert_eq!(claims(), 19);
    one.stop().await;
    assert_eq!(ask_at(&two, 1, "b0-2").await, "promised_elsewhere");
    two.stop().await;
    let one = fleet.service("one").await;
    assert_eq!(ask_at(&one, 1, "b0-2").await, "promised_elsewhere");
    assert_eq!(ask_at(&one, 1, "").await, "b0-1");
}

#[tokio::test]
async fn a_rotation_changes_the_epoch_when_every_gateway_has_confirmed_it() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(2, 2, 100).await;
    let office = fleet.service("one").await;
    let body = format!("{{\"client_id\": 42, \"protocol_id\": {PROTOCOL_ID}}}");
    let epoch = async || {
        let answer = post(office.address(), "/v1/tokens", &body).await.json();
        let token = token_of(&answer);
        let epoch = answer["epoch"].as_u64().expect("an epoch") as u32;
        netcode::open_private(&token, &listener_key(epoch))
            .expect("sealed with the key that it names");
        epoch
    };
    assert_eq!(epoch().await, 1);
    fleet.put_key(2).await;
    fleet.put_gateway(0, &[1, 2]).await;
    // What was asked for behind the news of another backend has seen all that was told before it.
    fleet.put_backend("news", 0, 1, 0).await;
    until("the news is there", async || {
        let body = r#"{"client_id": 1, "backend": "news"}"#;
        post(office.address(), "/v1/tokens", body).await.status != 404
    })
    .await;
    assert_eq!(epoch().await, 1, "one gateway has not confirmed it");
    fleet.put_gateway(1, &[1, 2]).await;
    until("tokens are minted with the next key", async || epoch().await == 2).await;
}

#[tokio::test]
async fn keys_are_rotated_by_one_of_all_services_before_their_time_is_over() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 10).await;
    let often = |called| Options {
        // The first key has half of that left.
        rotate_every: Some(Duration::from_secs(20_000)),
        ..fleet.options(called)
    };
    let offices = [Office::start(often("one")), Office::start(often("two"))];
    let versions = || {
        let keys = "/ringgate/test/truth/key/main/";
        let found = fleet.etcd.ctl(&["get", "--prefix", "--write-out", "json", keys]);
        let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
        let versions = found["kvs"].as_array().expect("a list").iter();
        versions.map(|kv| kv["version"].as_i64().expect("a number")).collect::<Vec<_>>()
    };
    until("the next key", async || versions().len() > 1).await;
    fleet.put_gateway(0, &[1, 2]).await;
    until("tokens are made with what is confirmed", async || {
        let answer = post(offices[0].address(), "/v1/tokens", r#"{"client_id": 42}"#).await.json();
        answer["epoch"] == 2
    })
    .await;
    assert_eq!(versions(), [1, 1], "one of them has made it, once");
}

#[tokio::test]
async fn while_etcd_is_away_tokens_are_made_by_what_is_known() {
    if !is_installed() {
        return;
    }
    let mut fleet = Fleet::start(1, 2, 50).await;
    let office = fleet.service("one").await;
    fleet.etcd.members[0].kill();
    let address = office.address();
    until("it knows that etcd is away", async || office.says(address, AWAY).await).await;
    let (placed, refused) = burst(&[address], 120).await;
    assert_eq!(placed.values().sum::<u32>(), 100, "{refused:?}");
    assert_eq!(refused, BTreeMap::from([("no_slot".to_owned(), 20)]));
    fleet.etcd.members[0].start();
    until("it knows that etcd is back", async || office.says(address, "ok\n").await).await;
}

#[tokio::test]
async fn while_etcd_has_no_space_tokens_are_made_by_what_is_known() {
    if !is_installed() {
        return;
    }
    let more = |_: &_| vec!["--quota-backend-bytes".to_owned(), "1000000".to_owned()];
    let etcd = Etcd::launch(1, "http", more);
    etcd.answers(&etcd.client()).await;
    let fleet = Fleet::on(etcd, 1, 2, 50).await;
    fleet.put_backend("gone", 0, 1, 0).await;
    let office = fleet.service("one").await;
    let address = office.address();
    let fill = Put { key: "/fill".into(), value: vec![b'x'; 300_000].into(), lease: 0 };
    let put = async || fleet.client.put(&fill).await;
    until("etcd is full", async || put().await.is_err_and(|why| why.lacks_space())).await;
    // The backend at which it is tried whether etcd takes decisions again is not there any more.
    assert_ne!(
        post(address, "/v1/tokens", r#"{"backend": "gone", "client_id": 0}"#).await.status,
        200
    );
    let key = keyspace().key(&Place::Backend(name("gone")));
    fleet.client.delete(&Delete { key, ..Delete::default() }).await.expect("it frees space");
    let tried = async || {
        let page = ask(address, "GET", "/metrics", "", "").await.body;
        let decisions = page.lines().filter(|it| it.starts_with("ringgate_tokens_slot_decisions"));
        decisions.filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let is_away = async || office.says(address, AWAY).await;
    until("it counts as away", is_away).await;
    let before = tried().await;
    until("it was tried again", async || tried().await > before + 1).await;
    assert!(is_away().await, "nothing was written");
    let (placed, refused) = burst(&[address], 120).await;
    assert_eq!(placed.values().sum::<u32>(), 100, "{refused:?}");
    // There is space again, and slots are leased.
    let revision = fleet.client.range(&Range::one("/fill")).await.expect("it answers");
    fleet.etcd.ctl(&["compact", &revision.header.revision.to_string()]);
    fleet.etcd.ctl(&["defrag"]);
    fleet.etcd.ctl(&["alarm", "disarm"]);
    until("it is there again", async || office.says(address, "ok\n").await).await;
}

#[tokio::test]
async fn a_request_that_comes_again_gets_the_same_token() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 3).await;
    let office = fleet.service("one").await;
    let head = "Authorization: Bearer matchmaker-secret\r\nIdempotency-Key: k1\r\n";
    let body = r#"{"client_id": "42"}"#;
    let first = ask(office.address(), "POST", "/v1/tokens", head, body).await;
    let again = ask(office.address(), "POST", "/v1/tokens", head, body).await;
    assert_eq!((first.status, &first.body), (200, &again.body));
    let other = ask(office.address(), "POST", "/v1/tokens", head, r#"{"client_id": 43}"#).await;
    assert_eq!((other.status, other.error().as_str()), (422, "idempotency_mismatch"));
    // Only one slot was promised for the two.
    let together =
        r#"{"tokens": [{"client_id": 1, "expire": 5}, {"client_id": 2}], "together": true}"#;
    let both = post(office.address(), "/v1/tokens/batch", together).await.json();
    let lives_s = [0, 1].map(|at| {
        let token = token_of(&both["tokens"][at]);
        token.expire_unix_s - token.create_unix_s
    });
    assert_eq!(lives_s, [5, 300], "each as long as it asks for");
    let full = post(office.address(), "/v1/tokens", r#"{"client_id": 43}"#).await;
    assert_eq!((full.status, full.error().as_str()), (503, "no_slot"));
    // A client that has a promise needs no other slot.
    assert_eq!(post(office.address(), "/v1/tokens", body).await.status, 200);
    let batch = r#"{"tokens": [{"client_id": 44}, {"client_id": 45, "backend": "b9"}]}"#;
    let batch = post(office.address(), "/v1/tokens/batch", batch).await.json();
    assert_eq!(batch["tokens"][0]["error"], "no_slot");
    assert_eq!(batch["tokens"][1]["error"], "backend_unknown");
}

#[tokio::test]
async fn a_service_that_ends_leaves_its_promises_behind_and_its_next_start_takes_them_over() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 1000).await;
    let values = |of: &str| {
        let place = format!("/ringgate/test/claim/{of}/");
        let found = fleet.etcd.ctl(&["get", "--prefix", &place, "--print-value-only"]);
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
        found.lines().filter_map(read).collect::<Vec<_>>()
    };
    let blocks = || {
        let all = values("slots").into_iter();
        all.filter(|it| it["slots"].is_u64()).collect::<Vec<_>>()
    };
    let office = fleet.service("one").await;
    assert_eq!(burst(&[office.address()], 970).await.0.values().sum::<u32>(), 970);
    office.stop().await;
    assert_eq!(values("promise").len(), 970, "others find all of them");
    let left = blocks();
    let [block] = &left[..] else { panic!("{left:?}") };
    assert_eq!((&block["slots"], &block["closed"]), (&970.into(), &true.into()));
    let ends = block["promised"].as_array().expect("a list");
    assert_eq!(ends.iter().filter_map(|it| it[1].as_u64()).sum::<u64>(), 970);
    let office = fleet.service("one").await;
    let (placed, refused) = burst(&[office.address()], 100).await;
    assert_eq!((placed.get("b0-0"), refused.get("no_slot")), (Some(&30), Some(&70)), "{refused:?}");
    let left = blocks();
    assert!(left.len() == 1 && left[0]["slots"] == 1000, "{left:?}");
}

#[tokio::test]
async fn a_service_is_replaced_while_callers_ask() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 4, 100_000).await;
    let mut old = fleet.service("one").await;
    let address = old.address();
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut asking = JoinSet::new();
    for client in 0..8 {
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        asking.spawn(async move {
            let mut unanswered = 0;
            while !stop.load(Ordering::Relaxed) {
                let is_answered = persistent(address, client, &answered, &stop).await;
                unanswered += u32::from(is_answered.is_none());
            }
            unanswered
        });
    }
    let more = async |count| {
        let before = answered.load(Ordering::Relaxed);
        until("callers are served", async || answered.load(Ordering::Relaxed) > before + count)
            .await;
    };
    more(100).await;
    for successor in ["two", "three", "four"] {
        let mut options = fleet.options(successor);
        options.bind = vec![address];
        let new = Office::start(options);
        new.is_ready().await;
        more(100).await;
        std::mem::replace(&mut old, new).stop().await;
        more(200).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut unanswered = 0;
    while let Some(ended) = asking.join_next().await {
        unanswered += ended.expect("it does not panic");
    }
    assert_eq!(unanswered, 0, "of {}", answered.load(Ordering::Relaxed));
}

const AWAY: &str = "ok; etcd is away: serving by what is known\n";

/// Asks on one connection again and again until it is closed between two requests, as servers may.
/// `None` if a request was not answered that was the first of its connection, or was begun to be
/// answered.
async fn persistent(
    address: SocketAddr,
    client: u32,
    answered: &AtomicU32,
    stop: &AtomicBool,
) -> Option<()> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let mut stream = BufReader::new(stream);
    let body = format!("{{\"client_id\": {client}}}");
    let length = body.len();
    let request = format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: tokens\r\nAuthorization: Bearer matchmaker-secret\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let mut is_first = true;
    while !stop.load(Ordering::Relaxed) {
        if stream.write_all(request.as_bytes()).await.is_err() && !is_first {
            return Some(());
        }
        let (mut head, mut closes) = (String::new(), false);
        while !head.ends_with("\r\n\r\n") {
            match stream.read_line(&mut head).await {
                Ok(0) | Err(_) if head.is_empty() && !is_first => return Some(()),
                Ok(0) | Err(_) => return None,
                Ok(_) => closes |= head.to_ascii_lowercase().contains("\nconnection: close"),
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        // Whoever is told to ask another asks another.
        let is_served = head.starts_with("HTTP/1.1 200");
        answered.fetch_add(u32::from(is_served), Ordering::Relaxed);
        is_first = false;
        if closes {
            return Some(());
        }
    }
    Some(())
}
