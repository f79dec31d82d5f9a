//! Who is sent where, and why somebody is not.

use ringgate_core::netcode::{self, ConnectToken};
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::keyspace::Place;
use ringgate_fleet::mirror::Change;
use ringgate_fleet::values::{Backend, Gateway, Listener, Reach, State, Stored};

use super::fleet::{
    NOW, Office, PROTOCOL_ID, Store, anywhere, backend, gateway, host, listener_key, name, with_key,
};
use crate::book::Now;
use crate::choose::Speaks;
use crate::counters::{Counters, Standing};
use crate::desk::Request;
use crate::mint;
use crate::refusal::Refusal;
use crate::wanted::{Unsealed, WantedToken, Where};

fn fleet() -> Store {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..4, 10);
    store
}

fn token_of(text: &str) -> ConnectToken {
    use base64::Engine;
    let answer: serde_json::Value = serde_json::from_str(text).unwrap();
    let token = answer["token"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(token).unwrap();
    ConnectToken::decode(&bytes).unwrap()
}

#[test]
fn a_token_names_the_backend_the_gateway_and_the_key_of_its_epoch() {
    let mut store = fleet();
    let mut office = Office::open("t", &mut store);
    let wanted = WantedToken::parse(br#"{"client_id": 42, "user_data": "aGk="}"#).unwrap();
    let placed = office.ask(&mut store, &wanted.place, 1, NOW).unwrap();
    let text = mint::token(&wanted, (&placed, 0), (NOW.unix_s, 30)).unwrap();
    let token = token_of(&text);
    assert_eq!(
        (token.protocol_id, token.addresses.to_string()),
        (PROTOCOL_ID, "192.0.2.1:40000".into())
    );
    assert_eq!(token.expire_unix_s, NOW.unix_s + 30);
    let private = netcode::open_private(&token, &listener_key(1)).unwrap();
    assert_eq!(private.client_id, 42);
    let backend = placed.chosen.backend.as_str();
    assert_eq!(&private.user_data[..backend.len()], backend.as_bytes());
    assert_eq!(private.user_data[backend.len()..32], vec![0; 32 - backend.len()]);
    assert_eq!(&private.user_data[32..35], b"hi\0");
    assert!(text.contains(&format!("\"backend\":\"{backend}\"")), "{text}");
}

#[test]
fn nobody_is_sent_to_what_takes_nobody() {
    for change in [
        |store: &mut Store| {
            let draining = super::fleet::backend("one", 10);
            for at in 0..4 {
                let state = [State::Draining, State::Starting, State::Allocated][at % 3];
                let place = Place::Backend(name(&format!("b{at}")));
                store.put(&place, &ringgate_fleet::values::Backend { state, ..draining.clone() });
            }
            Refusal::NoBackend
        },
        |store: &mut Store| {
            let mut told = gateway("one", "192.0.2.1:40000");
            told.draining = true;
            store.put(&Place::Gateway(name("g-one")), &told);
            Refusal::NoGateway
        },
        |store: &mut Store| {
            let mut told = gateway("one", "192.0.2.1:40000");
            told.sessions = told.capacity;
            store.put(&Place::Gateway(name("g-one")), &told);
            Refusal::NoGateway
        },
        |store: &mut Store| {
            store.put(&Place::Gateway(name("g-one")), &gateway("another", "192.0.2.1:40000"));
            Refusal::NoGateway
        },
        |store: &mut Store| {
            let mut told = gateway("one", "192.0.2.1:40000");
            told.listeners[0].epochs.clear();
            store.put(&Place::Gateway(name("g-one")), &told);
            Refusal::NoGateway
        },
        |store: &mut Store| {
            (0..4).for_each(|at| store.tell(&name(&format!("b{at}")), 10));
            Refusal::NoSlot
        },
        |store: &mut Store| {
            store.remove(&Place::Key(name("main"), 1));
            Refusal::NoKey
        },
    ] {
        let mut store = fleet();
        let why = change(&mut store);
        let mut office = Office::open("t", &mut store);
        assert_eq!(office.ask(&mut store, &anywhere(), 1, NOW).unwrap_err(), why);
    }
}

#[test]
fn a_backend_is_chosen_by_name_group_labels_and_region() {
    let mut store = fleet();
    let mut special = backend("two", 10);
    special.labels.insert("map".into(), "dust".into());
    special.state = State::Ready;
    store.put(&Place::Backend(name("special")), &special);
    let mut far = gateway("two", "[2001:db8::1]:5");
    far.region = "us".into();
    store.put(&Place::Gateway(name("g-two")), &far);
    let mut office = Office::open("t", &mut store);
    let mut chosen = |place: Where| {
        let placed = office.ask(&mut store, &place, 1, NOW)?;
        Ok::<_, Refusal>(placed.chosen.backend.to_string())
    };
    let labels = |map: &str| [("map".to_owned(), map.to_owned())].into();
    assert_eq!(chosen(Where { labels: labels("dust"), ..anywhere() }).as_deref(), Ok("special"));
    assert_eq!(chosen(Where { labels: labels("ice"), ..anywhere() }), Err(Refusal::NoBackend));
    assert_eq!(chosen(Where { regions: vec![name("us")], ..anywhere() }).as_deref(), Ok("special"));
    let regions = vec![name("asia"), name("us")];
    assert_eq!(chosen(Where { regions, ..anywhere() }).as_deref(), Ok("special"));
    let regions = vec![name("asia")];
    assert_eq!(chosen(Where { regions, ..anywhere() }), Err(Refusal::NoGateway));
    let family = Some(crate::wanted::Family::Ipv6);
    assert_eq!(chosen(Where { family, ..anywhere() }).as_deref(), Ok("special"));
    assert_eq!(chosen(Where { backend: Some(name("b2")), ..anywhere() }).as_deref(), Ok("b2"));
    let unknown = Where { backend: Some(name("b9")), ..anywhere() };
    assert_eq!(chosen(unknown), Err(Refusal::BackendUnknown));
    let other = Where { group: Some(name("other")), ..anywhere() };
    assert_eq!(chosen(other), Err(Refusal::NoBackend));
}

#[test]
fn a_backend_behind_an_agent_is_reached_by_the_gateways_that_its_agent_is_connected_to() {
    let mut store = Store::default();
    with_key(&mut store);
    // The host of an agent has a gateway too, and that one does not lead there.
    store.put(&Place::Gateway(name("g-here")), &gateway("two", "192.0.2.1:40000"));
    store.put(&Place::Gateway(name("g-far")), &gateway("one", "192.0.2.9:40000"));
    let behind = |gateways: &[&str]| ringgate_fleet::values::Backend {
        reach: Reach::Agent("host-7".into()),
        gateways: gateways.iter().map(|&it| it.to_owned()).collect(),
        ..backend("two", 10)
    };
    let place = Place::Backend(name("b0"));
    store.put(&place, &behind(&[]));
    let mut office = Office::open("t", &mut store);
    let ask = |office: &mut Office, store: &mut Store| {
        office.mirror(store);
        let placed = office.ask(store, &Where { addresses: 2, ..anywhere() }, 1, NOW)?;
        let mut gateways: Vec<_> =
            placed.chosen.gateways.iter().map(|it| it.0.to_string()).collect();
        gateways.sort_unstable();
        Ok::<_, Refusal>(gateways)
    };
    assert_eq!(ask(&mut office, &mut store), Err(Refusal::NoGateway));
    store.put(&place, &behind(&["g-far", "g-gone"]));
    assert_eq!(ask(&mut office, &mut store), Ok(vec!["g-far".to_owned()]));
    store.put(&place, &behind(&["g-far", "g-here"]));
    let both = ["g-far", "g-here"].map(str::to_owned).to_vec();
    assert_eq!(ask(&mut office, &mut store), Ok(both));
}

#[test]
fn an_allocated_backend_takes_those_who_are_sent_by_its_name() {
    let mut store = fleet();
    let allocated =
        ringgate_fleet::values::Backend { state: State::Allocated, ..backend("one", 1) };
    store.put(&Place::Backend(name("match-7")), &allocated);
    let mut office = Office::open("t", &mut store);
    let place = Where { backend: Some(name("match-7")), ..anywhere() };
    assert!(office.ask(&mut store, &place, 1, NOW).is_ok());
    assert_eq!(office.ask(&mut store, &place, 1, NOW).unwrap_err(), Refusal::BackendFull);
}

#[test]
fn a_backend_on_a_bundle_link_is_reached_through_the_gateway_that_it_connects_to() {
    let mut store = fleet();
    let at = |run_dir: &str, address: &str| Gateway {
        run_dir: run_dir.into(),
        ..gateway("two", address)
    };
    store.put(&Place::Gateway(name("g-left")), &at("/run/left", "192.0.2.1:1"));
    store.put(&Place::Gateway(name("g-right")), &at("/run/right", "192.0.2.2:1"));
    let process =
        |run_dir: &str| Backend { reach: Reach::Bundle(run_dir.into()), ..backend("two", 100) };
    store.put(&Place::Backend(name("left")), &process("/run/left"));
    store.put(&Place::Backend(name("neither")), &process("/run/other"));
    let mut office = Office::open("t", &mut store);
    let to = |backend: &str| Where { backend: Some(name(backend)), addresses: 2, ..anywhere() };
    for _ in 0..20 {
        let placed = office.ask(&mut store, &to("left"), 1, NOW).unwrap();
        let gateways: Vec<_> = placed.chosen.gateways.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(gateways, ["g-left"]);
    }
    let why = office.ask(&mut store, &to("neither"), 1, NOW).unwrap_err();
    assert_eq!(why, Refusal::NoGateway);
    // One of an earlier release does not tell.
    store.put(&Place::Gateway(name("g-old")), &at("", "192.0.2.3:1"));
    let mut office = Office::open("t", &mut store);
    assert!(office.ask(&mut store, &to("neither"), 1, NOW).is_ok());
}

#[test]
fn failover_names_another_gateway_and_only_where_the_operator_wants_it() {
    let mut store = fleet();
    store.put(&Place::Gateway(name("g-more")), &gateway("one", "192.0.2.99:40000"));
    let mut office = Office::open("t", &mut store);
    let placed = office.ask(&mut store, &Where { addresses: 2, ..anywhere() }, 1, NOW).unwrap();
    let mut gateways: Vec<_> = placed.chosen.gateways.iter().map(|it| it.0.as_str()).collect();
    gateways.sort_unstable();
    assert_eq!(gateways, ["g-more", "g-one"]);
    let three = Where { addresses: 3, ..anywhere() };
    let why = office.ask(&mut store, &three, 1, NOW).unwrap_err();
    assert_eq!(why, Refusal::TooManyAddresses);
}

/// There is a second key, which the first gateway has confirmed.
fn second_key(store: &mut Store) -> Gateway {
    let from = NOW.unix_s - 5;
    store.put_key(2, Validity { from, mint_until: from + 10_000, accept_until: from + 20_000 });
    let mut confirmed = gateway("one", "192.0.2.1:40000");
    confirmed.listeners[0].epochs = vec![1, 2];
    store.put(&Place::Gateway(name("g-one")), &confirmed);
    confirmed
}

#[test]
fn tokens_are_made_with_the_epoch_that_every_gateway_has_confirmed() {
    let mut store = fleet();
    host(&mut store, "two", 20..21, 10);
    let mut confirmed = second_key(&mut store);
    let mut office = Office::open("t", &mut store);
    let epoch = |office: &mut Office, store: &mut Store, now| {
        office.ask(store, &anywhere(), 1, now).unwrap().key.unwrap().0
    };
    assert_eq!(epoch(&mut office, &mut store, NOW), 1, "one gateway has not confirmed it");
    confirmed.host = "two".into();
    store.put(&Place::Gateway(name("g-two")), &confirmed);
    office.mirror(&store);
    assert_eq!(epoch(&mut office, &mut store, NOW), 2);
}

#[test]
fn a_gateway_that_drains_takes_in_no_key_and_is_not_waited_for() {
    let mut store = fleet();
    second_key(&mut store);
    let mut office = Office::open("t", &mut store);
    let mut key_beside = |draining| {
        let drained = Gateway { draining, ..gateway("two", "192.0.2.9:40000") };
        store.put(&Place::Gateway(name("g-two")), &drained);
        office.mirror(&store);
        office.ask(&mut store, &anywhere(), 1, NOW).unwrap().key.unwrap().0
    };
    assert_eq!([true, false].map(&mut key_beside), [2, 1]);
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_takes_no_key_with_it() {
    let mut store = fleet();
    let mut office = Office::open("t", &mut store);
    let ahead = Now { unix_s: NOW.unix_s + 365 * 86_400, ..NOW };
    assert_eq!(office.ask(&mut store, &anywhere(), 1, ahead).unwrap_err(), Refusal::NoKey);
    assert_eq!(office.ask(&mut store, &anywhere(), 1, NOW).unwrap().key.unwrap().0, 1);
}

#[test]
fn no_token_outlives_its_key_or_the_operators_bound() {
    let mut store = Store::default();
    let until = NOW.unix_s + 20;
    store.put_key(1, Validity { from: 1, mint_until: until, accept_until: until });
    host(&mut store, "one", 0..4, 10);
    let mut office = Office::open("t", &mut store);
    let place = anywhere();
    let mut ask = |expire_s| {
        let speaks = Speaks::Netcode(None);
        let request = Request {
            place: &place,
            speaks,
            count: 1,
            clients: &[],
            expire_s: Some(expire_s),
            elsewhere: &[],
        };
        office.ask_for(&mut store, &request, NOW).map(|it| it.expire_s)
    };
    assert_eq!(ask(20), Ok(20));
    assert_eq!(ask(21), Err(Refusal::ExpireTooLong));
    assert_eq!(ask(301), Err(Refusal::ExpireTooLong));
}

#[test]
fn a_wrong_protocol_id_is_refused_and_a_missing_one_is_known() {
    let mut store = fleet();
    let mut office = Office::open("t", &mut store);
    let place = anywhere();
    let mut ask = |id| {
        let request = Request {
            place: &place,
            speaks: Speaks::Netcode(id),
            count: 1,
            clients: &[],
            expire_s: None,
            elsewhere: &[],
        };
        office.ask_for(&mut store, &request, NOW).map(|it| it.chosen.protocol_id)
    };
    assert_eq!(ask(None), Ok(PROTOCOL_ID));
    assert_eq!(ask(Some(PROTOCOL_ID)), Ok(PROTOCOL_ID));
    assert_eq!(ask(Some(8)), Err(Refusal::ProtocolIdWrong));
}

#[test]
fn a_plain_listener_s_routing_token_comes_with_the_place() {
    let mut store = fleet();
    let mut told = gateway("one", "192.0.2.1:40000");
    told.listeners.push(Listener {
        name: "plain".into(),
        protocol: "plain".into(),
        group: "main".into(),
        token_bytes: 16,
        tags: false,
        messages: false,
        epochs: Vec::new(),
        ..told.listeners[0].clone()
    });
    store.put(&Place::Gateway(name("g-one")), &told);
    let mut office = Office::open("t", &mut store);
    let place = anywhere();
    for (protocol, why) in [
        (Some(Unsealed::Plain), None),
        (None, None),
        (Some(Unsealed::Unreal), Some(Refusal::NoGateway)),
    ] {
        let speaks = Speaks::Unsealed(protocol);
        let request = Request {
            place: &place,
            speaks,
            count: 1,
            clients: &[],
            expire_s: None,
            elsewhere: &[],
        };
        let found = office.ask_for(&mut store, &request, NOW);
        assert_eq!(found.as_ref().err().copied(), why);
        if let Ok(placed) = found {
            let answer: serde_json::Value = serde_json::from_str(&mint::place(&placed)).unwrap();
            assert_eq!(answer["routing_token_hex"].as_str().unwrap().len(), 32);
            assert_eq!(answer["backend"], placed.chosen.backend.as_str());
        }
    }
}

#[test]
fn denied_clients_are_known_until_their_time_is_over() {
    let mut store = fleet();
    store.ban(42, NOW.unix_s + 1);
    let office = Office::open("t", &mut store);
    assert!(office.desk.known().is_denied(42, NOW.unix_s));
    assert!(!office.desk.known().is_denied(42, NOW.unix_s + 1));
    assert!(!office.desk.known().is_denied(43, NOW.unix_s));
}

#[test]
fn what_cannot_be_read_is_as_good_as_gone() {
    let mut store = fleet();
    let mut office = Office::open("t", &mut store);
    let keyspace = super::fleet::keyspace();
    for at in 0..4 {
        let key = keyspace.key(&Place::Backend(name(&format!("b{at}"))));
        office.desk.learn(&key, Some(b"{}"));
    }
    assert_eq!(office.ask(&mut store, &anywhere(), 1, NOW).unwrap_err(), Refusal::GroupUnclear);
    assert_eq!(office.desk.known().counts()[3], 4);
    office.mirror(&store);
    assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    assert_eq!(office.desk.known().counts()[3], 0);
}

#[test]
fn while_etcd_is_away_tokens_are_made_by_what_was_known_and_no_server_is_overfilled() {
    let mut store = fleet();
    let mut office = Office::open("t", &mut store);
    office.desk.set_mirror(true, false);
    office.desk.set_leased(0);
    for _ in 0..40 {
        assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    }
    assert_eq!(office.ask(&mut store, &anywhere(), 1, NOW).unwrap_err(), Refusal::NoSlot);
}

/// A fleet of one gateway, which has heard of backends up to a revision, and one backend.
fn heard(heard: i64, change: impl FnOnce(&mut Gateway)) -> Store {
    let mut store = Store::default();
    with_key(&mut store);
    put_gateway(&mut store, heard, change);
    store
}

fn put_gateway(store: &mut Store, heard: i64, change: impl FnOnce(&mut Gateway)) {
    let mut gateway = Gateway { heard: Some(heard), ..gateway("one", "192.0.2.1:40000") };
    change(&mut gateway);
    store.put(&Place::Gateway(name("g")), &gateway);
}

/// The backend `b0` becomes so in this revision, as a watch tells.
fn hear(office: &mut Office, store: &mut Store, revision: i64, now: Now, value: &Backend) {
    store.put(&Place::Backend(name("b0")), value);
    let key = super::fleet::keyspace().key(&Place::Backend(name("b0")));
    let value = Some(value.encode().unwrap());
    office.desk.hear(&Change { key, value, revision: Some(revision) }, now);
}

#[test]
fn nobody_is_sent_through_a_gateway_that_has_not_heard_of_the_backend() {
    let mut store = heard(10, |_| {});
    let mut office = Office::open("t", &mut store);
    let of = |state, used| Backend { state, used, ..backend("one", 100) };
    let mut named = anywhere();
    named.backend = Some(name("b0"));
    let asks = |office: &mut Office, store: &mut Store, now| {
        let both = [&anywhere(), &named].map(|place| office.ask(store, place, 1, now).err());
        assert!(both[0] == both[1], "{both:?}");
        both[0]
    };
    let none = Some(Refusal::NoGateway);
    hear(&mut office, &mut store, 11, NOW, &of(State::Ready, 0));
    assert_eq!(asks(&mut office, &mut store, NOW), none);
    put_gateway(&mut store, 11, |_| {});
    office.mirror(&store);
    assert_eq!(asks(&mut office, &mut store, NOW), None);

    // Players who come are no news for gateways, and neither is a matchmaker who takes it.
    hear(&mut office, &mut store, 12, NOW, &of(State::Ready, 1));
    assert_eq!(asks(&mut office, &mut store, NOW), None);
    hear(&mut office, &mut store, 13, NOW, &of(State::Allocated, 1));
    assert!(office.ask(&mut store, &named, 1, NOW).is_ok());
    // That it was starting is, and that another one has come by its name.
    hear(&mut office, &mut store, 14, NOW, &of(State::Starting, 1));
    hear(&mut office, &mut store, 15, NOW, &of(State::Ready, 1));
    assert_eq!(asks(&mut office, &mut store, NOW), none);
    put_gateway(&mut store, 15, |_| {});
    office.mirror(&store);
    assert_eq!(asks(&mut office, &mut store, NOW), None);
    let elsewhere = Reach::Udp("127.0.0.1:7778".parse().unwrap());
    let moved = Backend { reach: elsewhere, ..of(State::Ready, 1) };
    hear(&mut office, &mut store, 16, NOW, &moved);
    assert_eq!(asks(&mut office, &mut store, NOW), none);

    // A gateway that never says it has no other word for it, unless it holds news back.
    let later = Now { ms: NOW.ms + 10_000, ..NOW };
    put_gateway(&mut store, 15, |it| it.doubt = 3);
    office.mirror(&store);
    assert_eq!(asks(&mut office, &mut store, later), none);
    put_gateway(&mut store, 15, |_| {});
    office.mirror(&store);
    assert_eq!(asks(&mut office, &mut store, later), None);

    // What it has heard of another history is nothing of this one.
    put_gateway(&mut store, 1_000, |it| (it.doubt, it.held) = (3, vec!["all".to_owned()]));
    office.mirror(&store);
    assert_eq!(asks(&mut office, &mut store, later), none);
}

#[test]
fn what_a_service_finds_when_it_starts_was_heard_by_gateways_before_and_old_ones_say_nothing() {
    let mut store = heard(10, |_| {});
    store.put(&Place::Backend(name("b0")), &backend("one", 100));
    let mut office = Office::open("t", &mut store);
    assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    let mut store = heard(0, |it| it.heard = None);
    let mut office = Office::open("t", &mut store);
    hear(&mut office, &mut store, 11, NOW, &backend("one", 100));
    assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
}

#[test]
fn nobody_is_sent_through_a_gateway_that_is_not_linked_to_the_backend() {
    let mut store = heard(10, |it| it.shut = vec!["b0".into()]);
    store.put(&Place::Backend(name("b0")), &backend("one", 100));
    let mut office = Office::open("t", &mut store);
    let refused = office.ask(&mut store, &anywhere(), 1, NOW).unwrap_err();
    assert_eq!(refused, Refusal::NoGateway);
    // Another one is, or this one in a moment.
    let mut other = gateway("one", "192.0.2.9:40000");
    other.shut = vec!["b7".into()];
    store.put(&Place::Gateway(name("other")), &other);
    office.mirror(&store);
    for _ in 0..20 {
        let placed = office.ask(&mut store, &anywhere(), 1, NOW).unwrap();
        assert_eq!(placed.chosen.gateways[0].0, name("other"));
    }
}

#[test]
fn no_slot_is_promised_where_no_token_can_be_made() {
    let mut store = heard(10, |it| it.listeners[0].protocol_id = 0);
    store.put(&Place::Backend(name("b0")), &backend("one", 100));
    let mut office = Office::open("t", &mut store);
    let refused = office.ask(&mut store, &anywhere(), 1, NOW).unwrap_err();
    assert_eq!(refused, Refusal::ProtocolIdWrong);
    assert!(office.desk.book().held(&name("b0")).is_none());
}

#[test]
fn when_each_key_comes_to_its_end_stands_in_the_metrics() {
    let mut store = fleet();
    let office = Office::open("t", &mut store);
    let page = Counters::default().page(&office.desk, &Standing::default());
    let from_s = NOW.unix_s - 10;
    for (end, time_s) in [("from", from_s), ("until", from_s + 10_000)] {
        let key = format!("ringgate_tokens_key_minted_{end}_timestamp_seconds");
        let line = format!("\n{key}{{listener=\"main\",epoch=\"1\"}} {time_s}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
}
