//! The page has nothing from elsewhere, and what it is told is made once for many.

use ringgate_core::secret::Key;
use ringgate_fleet::keyspace::{Keyspace, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Labels, State, Stored};

use super::*;

#[test]
fn the_page_needs_nothing_from_elsewhere_and_has_all_that_its_script_names() {
    ringgate_report::page::check(&PAGE, &[]);
}

#[test]
fn however_many_look_it_is_told_once_a_second() {
    let (glance, at) = (Glance::default(), |ms| Now { unix_s: 0, ms });
    assert_eq!(glance.at(at(5), || "one".into()), "one");
    assert_eq!(glance.at(at(1004), || panic!("it is fresh")), "one");
    assert_eq!(glance.at(at(1005), || "two".into()), "two");
}

#[test]
fn an_agent_is_told_with_what_stands_behind_it_and_who_has_let_it_in() {
    let keyspace = Keyspace::new("/f").expect("a prefix");
    let mut known = KnownFleet::new(
        keyspace.clone(),
        FleetKey::new(Key::from_hex(&"09".repeat(32)).expect("hex")),
    );
    let name = |text| Name::new(text).expect("a name");
    let agent = Agent {
        instance: "i".into(),
        host: "there".into(),
        region: "eu".into(),
        version: "1".into(),
        gateways: vec!["gate-1".into(), "gate-2".into()],
        started: 1,
        written: 2,
        doubt: 0,
        held: Vec::new(),
        arbitrates: Vec::new(),
    };
    let backend = |reach: Reach, gateways: &[&str]| Backend {
        instance: "i".into(),
        host: "there".into(),
        group: "arena".into(),
        reach,
        slots: 4,
        used: 1,
        state: State::Ready,
        gateways: gateways.iter().map(|&it| it.to_owned()).collect(),
        joined: None,
        labels: Labels::new(),
    };
    let behind = || Reach::Agent("host-7".into());
    let mut learn = |place: &Place, value: bytes::Bytes| {
        known.learn(&keyspace.key(place), Some(&value));
    };
    learn(&Place::Agent(name("host-7")), agent.encode().expect("sound"));
    let mut put = |at, backend: Backend| {
        learn(&Place::Backend(name(at)), backend.encode().expect("sound"));
    };
    put("two", backend(behind(), &["gate-1"]));
    put("one", backend(behind(), &[]));
    put("near", backend(Reach::Bundle("/run/ringgate".into()), &[]));
    let told = serde_json::to_value(agents(&known)).expect("names and numbers");
    let expected = serde_json::json!([{
        "name": "host-7", "region": "eu", "host": "there", "version": "1", "written": 2,
        "gateways": [["gate-1", true], ["gate-2", false]],
        "backends": ["one", "two"], "used": 2, "slots": 8,
    }]);
    assert_eq!(told, expected);
    known.learn(&keyspace.key(&Place::Agent(name("host-7"))), None);
    assert!(agents(&known).is_empty());
}
