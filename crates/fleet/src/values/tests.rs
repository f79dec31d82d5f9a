//! Values are read as they were written, and everything else is refused.

use super::agent::DELIVERY;
use super::question::PIECE_BYTES;
use super::*;
use crate::epochs::Validity;
use ringgate_core::netcode::destination::Join;

fn backend() -> Backend {
    Backend {
        instance: "a1".into(),
        host: "host-1".into(),
        group: "main".into(),
        reach: Reach::Udp("127.0.0.1:7777".parse().unwrap()),
        slots: 64,
        used: 3,
        state: State::Ready,
        gateways: Vec::new(),
        joined: None,
        labels: Labels::from([("map".into(), "de_dust2".into())]),
    }
}

fn gateway() -> Gateway {
    let listener = Listener {
        name: "main".into(),
        protocol: "netcode".into(),
        addresses: vec!["192.0.2.1:40000".parse().unwrap()],
        epochs: vec![3, 4],
        keys: Vec::new(),
        group: String::new(),
        protocol_id: 7,
        token_bytes: 0,
        tags: false,
        messages: false,
    };
    Gateway {
        instance: "i".into(),
        region: "eu".into(),
        host: "h".into(),
        version: "0.1.0".into(),
        listeners: vec![listener],
        agents: Vec::new(),
        cluster: None,
        capacity: 1000,
        sessions: 1,
        draining: false,
        started: 1,
        written: 2,
        doubt: 0,
        held: Vec::new(),
        run_dir: String::new(),
        heard: None,
        denied: Some(8),
        shut: Vec::new(),
        answers: false,
    }
}

fn question() -> Question {
    let (by, query) = ("anna".to_owned(), "client_id=7&limit=100".to_owned());
    Question { at: 1_800_000_000, by, what: What::Sessions, query }
}

fn entrances() -> Vec<Entrance> {
    let entrance =
        |name: &str, at: &str| Entrance { name: name.into(), at: at.into(), grace_ms: 5000 };
    vec![entrance("*", "gate-1.example:7200"), entrance("host-7", "[2001:db8::1]:7300")]
}

fn comes_back<T: Stored + PartialEq + std::fmt::Debug>(value: &T) {
    assert_eq!(T::decode(&value.encode().unwrap()).as_ref(), Ok(value));
}

#[test]
fn values_are_read_as_they_were_written() {
    comes_back(&backend());
    comes_back(&Backend { reach: Reach::Bundle("/run/game.sock".into()), ..backend() });
    let gateways = vec!["gate-1".to_owned(), "gate-2".to_owned()];
    let reach = Reach::Agent("host-7".into());
    comes_back(&Backend { reach, gateways: gateways.clone(), ..backend() });
    for count in [0, 1, 256] {
        let all: Vec<_> = (u64::MAX - count..u64::MAX).map(Join).collect();
        comes_back(&Backend { joined: Some(Joined::new(&all)), ..backend() });
    }
    let (instance, host) = ("i".to_owned(), "h".to_owned());
    let (region, version) = ("eu".to_owned(), "0.1.0".to_owned());
    comes_back(&Agent {
        instance,
        host,
        region,
        version,
        gateways,
        started: 1,
        written: 2,
        doubt: 0,
        held: Vec::new(),
        arbitrates: vec!["netcode".into(), DELIVERY.into()],
    });
    comes_back(&gateway());
    comes_back(&Gateway { agents: entrances(), answers: true, ..gateway() });
    let (instance, host) = ("i".to_owned(), "h".to_owned());
    comes_back(&Service {
        instance,
        host,
        version: "0.1.0".into(),
        started: 1,
        written: 2,
        beside: Some(vec!["t-2".into()]),
        doubt: 3,
        held: vec!["keys".into()],
    });
    let (service, backend) = ("t.1".to_owned(), "b".to_owned());
    comes_back(&NameClaim { uid: 1000 });
    comes_back(&PromiseClaim { service, backend, until: 7, shared: true });
    comes_back(&Block { slots: 8, promised: vec![(1_800_000_000, 3)], closed: true });
    comes_back(&Guard { by: "t-1".into() });
    comes_back(&Ban { until: 7, reason: "aimbot".into(), by: String::new() });
    comes_back(&TokenClaim { gateway: "g".into(), instance: "i".into() });
    let (gateway, instance) = ("g".into(), "i".into());
    comes_back(&PlayerClaim { gateway, instance, session: 7, since: 1, term: Some(2) });
    comes_back(&Ousted { session: 7, gateway: "g".into() });
    comes_back(&question());
    let text = "{\"sessions\":[]}\n".to_owned();
    comes_back(&Piece { gateway: "g".into(), status: 200, last: true, text });
    comes_back(&SealedText { sealed: "AAAA".into() });
    let validity = Validity { from: 1, mint_until: 2, accept_until: 3 };
    comes_back(&ListenerKey { validity, sealed: "AAAA".into() });
}

#[test]
fn a_value_is_text_that_others_can_write() {
    let text = r#"{"v":1,"instance":"a1","host":"host-1","group":"main",
        "reach":{"udp":"127.0.0.1:7777"},"slots":64,"used":3,"state":"ready",
        "labels":{"map":"de_dust2"},"a field of another program":[1]}"#;
    assert_eq!(Backend::decode(text.as_bytes()), Ok(backend()));
}

#[test]
fn joins_that_cannot_be_are_refused_by_name() {
    let of = |joined: &str| {
        let text = format!(
            r#"{{"v":1,"instance":"a1","host":"host-1","group":"main",
            "reach":{{"udp":"127.0.0.1:7"}},"slots":64,"used":3,"state":"ready","joined":{joined}}}"#
        );
        Backend::decode(text.as_bytes()).map(|it| it.joined.map(|it| it.all().to_vec()))
    };
    assert_eq!(of("null"), Ok(None));
    assert_eq!(of("\"\""), Ok(Some(Vec::new())));
    assert_eq!(of("\"00000000000000fF\""), Ok(Some(vec![Join(255)])));
    let text = |digits: &str| format!("\"{digits}\"");
    assert!(of(&text(&"0".repeat(16 * 256))).is_ok());
    let wrong = ["0".repeat(15), "0".repeat(16 * 257), format!("+{}", "0".repeat(15))];
    for wrong in wrong.iter().map(|it| text(it)).chain([text("é00000000000000"), "7".to_owned()]) {
        let Err(Refused::Malformed(why)) = of(&wrong) else { panic!("{wrong}") };
        assert!(why.contains("joins: at most 256 times 16 hexadecimal digits"), "{why}");
    }
}

#[test]
fn a_question_asks_for_nothing_else_than_it_may() {
    for query in ["a b", "a\n", "é", "client_id=7#x", &"x".repeat(TEXT_BYTES_MAX + 1)] {
        assert!(Question { query: query.to_owned(), ..question() }.encode().is_err(), "{query}");
    }
    assert!(Question { by: "a\u{1b}[2J".to_owned(), ..question() }.encode().is_err());
    let upgrade = br#"{"v":1,"at":1,"by":"anna","what":"upgrade","query":""}"#;
    assert!(matches!(Question::decode(upgrade), Err(Refused::Malformed(_))));
    let long =
        Piece { gateway: "g".into(), status: 200, last: true, text: "\"".repeat(PIECE_BYTES) };
    let place = b"/f/claim/answer/9a/1f/00000000";
    let fleet = crate::seal::FleetKey::new(ringgate_core::secret::Key::from_bytes([1; 32]));
    let sealed = fleet.seal_text(place, &long.encode().unwrap()).unwrap();
    assert!(SealedText::decode(&sealed.encode().unwrap()).is_ok(), "the longest part fits");
}

#[test]
fn an_agent_connects_where_it_is_named_or_where_all_do() {
    let with = |agents| Gateway { agents, ..gateway() };
    assert_eq!(with(entrances()).entrance("host-7"), Some("[2001:db8::1]:7300"));
    assert_eq!(with(entrances()).entrance("host-8"), Some("gate-1.example:7200"));
    assert_eq!(with(entrances().split_off(1)).entrance("host-8"), None);
    assert_eq!(gateway().entrance("host-7"), None);
}

#[test]
fn a_later_version_is_refused_as_such() {
    assert_eq!(Backend::decode(br#"{"v":2,"everything":"else"}"#), Err(Refused::Newer(2)));
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(Backend::decode(b"").is_err());
    assert!(Backend::decode(b"{}").is_err());
    assert!(Backend::decode(&vec![b'['; VALUE_BYTES_MAX]).is_err());
    assert_eq!(Backend::decode(&vec![b' '; VALUE_BYTES_MAX + 1]), Err(Refused::TooLarge));
    assert!(Backend { host: "a/b".into(), ..backend() }.encode().is_err());
    assert!(Backend { group: String::new(), ..backend() }.encode().is_err());
    assert!(Backend { reach: Reach::Bundle("x".into()), ..backend() }.encode().is_err());
    let many = (0..=LIST_MAX).map(|i| (format!("l{i}"), String::new())).collect();
    assert!(Backend { labels: many, ..backend() }.encode().is_err());
    assert!(Backend { reach: Reach::Agent("*".into()), ..backend() }.encode().is_err());
    let many = vec!["g".to_owned(); LIST_MAX + 1];
    assert!(Backend { gateways: many, ..backend() }.encode().is_err());
    for (name, at) in [("host 7", "a:1"), ("*", "a:1\u{1b}")] {
        let agents = vec![Entrance { name: name.into(), at: at.into(), grace_ms: 0 }];
        assert!(Gateway { agents, ..gateway() }.encode().is_err());
    }
    let mut undialled = gateway();
    undialled.listeners[0].addresses = vec!["0.0.0.0:1".parse().unwrap()];
    assert!(undialled.encode().is_err());
    assert!(Ban { until: 1, reason: "\u{1b}[2J".into(), by: String::new() }.encode().is_err());
    let validity = Validity { from: 2, mint_until: 2, accept_until: 3 };
    assert!(ListenerKey { validity, sealed: String::new() }.encode().is_err());
}

fn listener_of_a_cluster() -> Listener {
    Listener {
        name: "eu".to_owned(),
        protocol: "netcode".to_owned(),
        addresses: vec![([198, 51, 100, 9], 40_000).into()],
        epochs: vec![1, 2],
        keys: Vec::new(),
        group: "arena".to_owned(),
        protocol_id: 7,
        token_bytes: 0,
        tags: true,
        messages: false,
    }
}

#[test]
fn only_what_differs_at_a_common_address_does_not_fit() {
    let said = |other: Listener| gateway::misfits(&[listener_of_a_cluster()], &[other]).join("; ");
    let elsewhere = vec![([198, 51, 100, 9], 40_001).into()];
    let none =
        Listener { addresses: elsewhere, protocol: "plain".to_owned(), ..listener_of_a_cluster() };
    assert_eq!((said(none), said(listener_of_a_cluster())), (String::new(), String::new()));
    assert_eq!(
        said(Listener { epochs: vec![2, 3], ..listener_of_a_cluster() }),
        "",
        "one in common"
    );
    let at = "198.51.100.9:40000";
    for (other, expected) in [
        (
            Listener { protocol: "plain".to_owned(), ..listener_of_a_cluster() },
            format!("{at} is netcode here and plain there"),
        ),
        (
            Listener { protocol_id: 8, ..listener_of_a_cluster() },
            format!("{at} has protocol_id 7 here and 8 there"),
        ),
        (
            Listener { epochs: vec![3], ..listener_of_a_cluster() },
            format!("{at} has no key in common here and there"),
        ),
        (
            Listener { group: "other".to_owned(), ..listener_of_a_cluster() },
            format!("{at} leads to group arena here and other there"),
        ),
    ] {
        assert_eq!(said(other), expected);
    }
}

#[test]
fn keys_of_files_are_the_same_at_all_gateways_of_a_cluster() {
    let with = |keys: &[&str]| {
        let keys = keys.iter().map(|it| (*it).to_owned()).collect();
        [Listener { epochs: Vec::new(), keys, ..listener_of_a_cluster() }]
    };
    let own = with(&["a1", "b2"]);
    for (other, expected) in [
        (&["a1", "b2"][..], ""),
        (&["b2", "a1"], ""),
        (&["b2"], "2 keys here and 1 there, 1 of them in common"),
        (&["c3"], "no key in common here and there"),
        // One of an earlier release does not tell.
        (&[], ""),
    ] {
        let said = gateway::misfits(&own, &with(other)).join("; ");
        assert_eq!(said.strip_prefix("198.51.100.9:40000 has ").unwrap_or(&said), expected);
    }
    let fleets = gateway::misfits(&own, &[listener_of_a_cluster()]);
    assert_eq!(fleets, ["198.51.100.9:40000 has no key in common here and there"]);
}
