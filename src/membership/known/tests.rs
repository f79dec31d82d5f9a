//! What is read from etcd, as anybody may have written it.

use bytes::Bytes;
use ringgate_core::secret::Key;
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::mirror::{Change, Entry, Truth};
use ringgate_fleet::seal::FleetKey;

use super::*;
use crate::membership::kept;

const NOW_S: u64 = 1_800_000_000;

fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_bytes([9; 32]))
}

fn settings() -> Settings {
    let name = |text| Name::new(text).expect("a name");
    Settings {
        keyspace: Keyspace::new("/f").expect("a prefix"),
        name: name("gate-1"),
        region: name("eu"),
        host: name("here"),
        instance: "one".to_owned(),
        lease_s: 10,
        files: None,
        run_dir: "/run/ringgate".into(),
        rules: crate::membership::Rules::default(),
        answers: true,
    }
}

fn reading() -> Reading {
    Reading::new(&settings(), Some(fleet_key()), &Truth::default())
}

fn change(key: &str, value: Option<Bytes>) -> Change {
    Change { key: Bytes::copy_from_slice(key.as_bytes()), value, revision: None }
}

fn put(reading: &mut Reading, key: &str, value: &str) {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    reading.change(&change(key, value), 7);
}

fn delete(reading: &mut Reading, key: &str) {
    reading.change(&change(key, None), 7);
}

fn backend(host: &str, state: &str) -> String {
    format!(
        r#"{{"v":1,"instance":"i","host":"{host}","group":"arena","reach":{{"udp":"127.0.0.1:7000"}},"slots":8,"used":0,"state":"{state}"}}"#
    )
}

#[test]
fn backends_of_this_host_come_change_and_go() {
    let mut reading = reading();
    put(&mut reading, "/f/truth/backend/a", &backend("here", "ready"));
    put(&mut reading, "/f/truth/backend/b", &backend("elsewhere", "ready"));
    let known = reading.known(NOW_S);
    assert_eq!(known.backends.len(), 1);
    assert_eq!((&*known.backends[0].name, known.backends[0].slots), ("a", 8));
    for (state, intake) in [
        ("starting", Intake::NobodyYet),
        ("ready", Intake::Anybody),
        ("allocated", Intake::Sent),
        ("draining", Intake::Nobody),
    ] {
        put(&mut reading, "/f/truth/backend/a", &backend("here", state));
        assert_eq!(reading.known(NOW_S).backends[0].intake, intake);
    }
    delete(&mut reading, "/f/truth/backend/a");
    assert_eq!(reading.known(NOW_S), Known { backends: Vec::new(), ..known });
}

#[test]
fn backends_behind_agents_are_those_of_agents_that_connect_here() {
    let mut reading = reading();
    let agent = |gateways: &str| {
        format!(
            r#"{{"v":1,"instance":"i","host":"there","region":"eu","version":"1","gateways":{gateways},"started":1,"written":1}}"#
        )
    };
    let behind =
        backend("there", "ready").replace(r#""udp":"127.0.0.1:7000""#, r#""agent":"host-7""#);
    put(&mut reading, "/f/truth/backend/a", &behind);
    assert!(reading.known(NOW_S).backends.is_empty(), "its agent is not there");
    put(&mut reading, "/f/truth/agent/host-7", &agent(r#"["gate-9"]"#));
    assert!(reading.known(NOW_S).backends.is_empty(), "its agent connects elsewhere");
    put(&mut reading, "/f/truth/agent/host-7", &agent(r#"["gate-9","gate-1"]"#));
    let known = reading.known(NOW_S);
    assert_eq!((known.agents, known.backends.len()), (vec!["host-7".to_owned()], 1));
    assert_eq!(known.backends[0].reach, Reach::Agent("host-7".to_owned()));
    put(&mut reading, "/f/truth/agent/a-later", &agent(r#"["gate-1"]"#));
    put(&mut reading, "/f/truth/agent/host-7", &agent(r#"["gate-1"]"#));
    assert_eq!(
        reading.known(NOW_S).agents,
        ["host-7", "a-later"],
        "in the order that they came in"
    );
    delete(&mut reading, "/f/truth/agent/host-7");
    assert!(reading.known(NOW_S).backends.is_empty());
}

#[test]
fn what_cannot_be_read_takes_nothing_else_along() {
    let mut reading = reading();
    put(&mut reading, "/f/truth/backend/a", &backend("here", "ready"));
    for (key, value) in [
        ("/f/truth/backend/b", "{"),
        ("/f/truth/backend/c", r#"{"v":2}"#),
        ("/f/truth/ban/client/07", "{}"),
        ("/f/truth/ban/prefix/10.0.0.1-8", r#"{"v":1,"until":2000000000}"#),
        (
            "/f/truth/key/main/1",
            r#"{"v":1,"from":1,"mint_until":2,"accept_until":3,"sealed":"AA"}"#,
        ),
        ("/f/truth/nothing", "x"),
        ("/f/truth/gateway/g", "null"),
    ] {
        put(&mut reading, key, value);
    }
    let known = reading.known(NOW_S);
    assert_eq!((known.backends.len(), known.unreadable, known.keys.len()), (1, 7, 0));
    assert!(known.bans.is_empty());
    delete(&mut reading, "/f/truth/nothing");
    put(&mut reading, "/f/truth/backend/b", &backend("here", "ready"));
    assert_eq!(reading.known(NOW_S).unreadable, 5);
}

#[test]
fn keys_are_the_newest_first_until_they_are_over() {
    let mut reading = reading();
    for epoch in 1..=3_u32 {
        let at = format!("/f/truth/key/main/{epoch}");
        let from = NOW_S - 10 + u64::from(epoch);
        let validity = Validity { from, mint_until: from + 50, accept_until: from + 60 };
        let key = Key::from_bytes([epoch as u8; 32]);
        let sealed = fleet_key().seal(at.as_bytes(), validity, &key).expect("random numbers");
        let value = String::from_utf8(sealed.encode().expect("sound").to_vec()).expect("JSON");
        put(&mut reading, &at, &value);
    }
    let numbers = |reading: &mut Reading, now_s| {
        let known = reading.known(now_s);
        let keys = known.keys.get("main").map_or(&[][..], Vec::as_slice);
        keys.iter().map(|(number, _)| *number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&mut reading, NOW_S), [3, 2, 1]);
    let first_over = NOW_S - 10 + 1 + 60;
    assert_eq!(reading.next_s, first_over);
    assert_eq!(numbers(&mut reading, first_over), [3, 2]);
    assert!(numbers(&mut reading, NOW_S + 100).is_empty());
}

#[test]
fn bans_end_by_themselves() {
    let mut reading = reading();
    let ban = |until: u64| format!(r#"{{"v":1,"until":{until}}}"#);
    put(&mut reading, "/f/truth/ban/client/7", &ban(NOW_S + 5));
    put(&mut reading, "/f/truth/ban/prefix/192.0.2.0-24", &ban(NOW_S + 9));
    put(&mut reading, "/f/truth/ban/client/8", &ban(NOW_S));
    let known = reading.known(NOW_S);
    assert_eq!(known.bans.len(), 2);
    assert!(known.bans.to_denied().holds_client(7) && !known.bans.to_denied().holds_client(8));
    assert_eq!(reading.next_s, NOW_S + 5);
    // What cannot be read lifts none.
    put(&mut reading, "/f/truth/ban/client/7", r#"{"v":2}"#);
    let known = reading.known(NOW_S);
    assert!(known.bans.to_denied().holds_client(7) && known.unreadable == 1);
    assert_eq!(reading.known(NOW_S + 5).bans.len(), 1);
    delete(&mut reading, "/f/truth/ban/prefix/192.0.2.0-24");
    assert!(reading.known(NOW_S + 5).bans.is_empty());
}

#[test]
fn a_clock_that_was_ahead_takes_no_ban_and_no_key_with_it() {
    let at = "/f/truth/key/main/1";
    let validity = Validity { from: NOW_S - 9, mint_until: NOW_S + 50, accept_until: NOW_S + 60 };
    let sealed = fleet_key().seal(at.as_bytes(), validity, &Key::from_bytes([1; 32]));
    let sealed = sealed.expect("random numbers").encode().expect("sound");
    let key = String::from_utf8(sealed.to_vec()).expect("JSON");
    let ban = ("/f/truth/ban/client/7", format!(r#"{{"v":1,"until":{}}}"#, NOW_S + 5));
    let mut heard = reading();
    let mut truth = Truth::default();
    for (place, value) in [(at, &key), (ban.0, &ban.1)] {
        put(&mut heard, place, value);
        let value = Bytes::copy_from_slice(value.as_bytes());
        let entry = Entry { value, mod_revision: 1, version: 1, lease: 0 };
        truth.entries.insert(Bytes::from_static(place.as_bytes()), entry);
    }
    let copied = Reading::new(&settings(), Some(fleet_key()), &truth);
    for mut reading in [heard, copied] {
        let ahead_s = NOW_S + 365 * 86_400;
        let ahead = reading.known(ahead_s);
        assert!(ahead.bans.is_empty() && ahead.keys.is_empty() && !reading.is_over(ahead_s));
        assert!(reading.is_over(NOW_S));
        let known = reading.known(NOW_S);
        assert!(known.bans.to_denied().holds_client(7) && !reading.is_over(NOW_S));
        assert_eq!(known.keys["main"].len(), 1);
        // Gone is gone, whichever way the clock is set.
        delete(&mut reading, at);
        delete(&mut reading, ban.0);
        reading.known(ahead_s);
        let known = reading.known(NOW_S);
        assert!(known.bans.is_empty() && known.keys.is_empty());
    }
}

#[test]
fn our_own_registration_is_looked_at_when_another_process_has_written_there() {
    let mut reading = reading();
    let own = |instance: &str| {
        format!(
            r#"{{"v":1,"instance":"{instance}","region":"eu","host":"here","version":"1","listeners":[],"capacity":1,"sessions":0,"draining":false,"started":1,"written":1}}"#
        )
    };
    put(&mut reading, "/f/truth/gateway/gate-1", &own("one"));
    assert!(!reading.take_own_doubt());
    put(&mut reading, "/f/truth/gateway/gate-1", &own("two"));
    assert!(reading.take_own_doubt() && !reading.take_own_doubt());
    // That it is gone any member of a fleet sees by itself.
    delete(&mut reading, "/f/truth/gateway/gate-1");
    assert_eq!(reading.known(NOW_S).gateways, 0);
}

#[test]
fn a_key_that_was_known_is_accepted_until_its_own_end_whatever_stands_there() {
    let mut reading = reading();
    let at = "/f/truth/key/main/1";
    let validity = Validity { from: NOW_S - 9, mint_until: NOW_S + 50, accept_until: NOW_S + 60 };
    let sealed = |byte: u8| {
        let key = Key::from_bytes([byte; 32]);
        let sealed = fleet_key().seal(at.as_bytes(), validity, &key).expect("random numbers");
        String::from_utf8(sealed.encode().expect("sound").to_vec()).expect("JSON")
    };
    let keys = |reading: &mut Reading, now_s| {
        let known = reading.known(now_s).keys;
        let keys = known.get("main").map_or(&[][..], Vec::as_slice);
        keys.iter().map(|(_, key)| key.as_bytes()[0]).collect::<Vec<_>>()
    };
    put(&mut reading, at, &sealed(1));
    assert_eq!(keys(&mut reading, NOW_S), [1]);
    // A backup from before it was believed: token services that hold that back mint with it.
    delete(&mut reading, at);
    assert_eq!(keys(&mut reading, NOW_S), [1]);
    // Somebody rotates there, under the same number.
    put(&mut reading, at, &sealed(2));
    put(&mut reading, at, "{");
    assert_eq!(keys(&mut reading, NOW_S), [2, 1]);
    assert_eq!(reading.next_s, NOW_S + 60);
    assert!(keys(&mut reading, NOW_S + 60).is_empty());
}

#[test]
fn a_key_that_was_known_is_accepted_by_the_next_process_and_no_other_is() {
    let dir = std::env::temp_dir().join(format!("ringgate-recall-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary folders can be made");
    let path = dir.join(kept::KEYS_FILE);
    let file = StateFile::Disk(path.clone());
    let at = "/f/truth/key/main/1";
    let sealed = |byte: u8, accept_until: u64| {
        let validity = Validity { from: NOW_S - 9, mint_until: NOW_S, accept_until };
        let key = Key::from_bytes([byte; 32]);
        let sealed = fleet_key().seal(at.as_bytes(), validity, &key).expect("random numbers");
        String::from_utf8(sealed.encode().expect("sound").to_vec()).expect("JSON")
    };
    let keys = |reading: &mut Reading, now_s| {
        let known = reading.known(now_s).keys;
        let keys = known.get("main").map_or(&[][..], Vec::as_slice);
        keys.iter().map(|(_, key)| key.as_bytes()[0]).collect::<Vec<_>>()
    };
    let mut first = reading();
    put(&mut first, at, &sealed(1, NOW_S + 60));
    put(&mut first, at, &sealed(2, NOW_S + 30));
    delete(&mut first, at);
    let stood = first.take_keys().expect("they are news");
    assert!(first.take_keys().is_none(), "once");
    let text = kept::text(&stood).expect("it is not too large");
    std::fs::write(&path, text).expect("our own folder");

    let mut next = reading();
    next.recall(&file);
    assert_eq!(keys(&mut next, NOW_S), [2, 1]);
    assert_eq!(keys(&mut next, NOW_S + 30), [1], "to its own end");
    assert_eq!(next.take_keys().map(|stood| stood.len()), Some(1));
    // What stands in etcd now is the later word about the same key.
    let mut next = reading();
    put(&mut next, at, &sealed(1, NOW_S + 5));
    next.recall(&file);
    assert_eq!(keys(&mut next, NOW_S), [1, 2]);
    assert_eq!(keys(&mut next, NOW_S + 5), [2]);

    // Each line stands for itself, and opens at its own place only.
    let (place, value) = &stood[0];
    let [place, value] = [place, value].map(|it| str::from_utf8(it).expect("text"));
    let other = value.replacen("sealed\":\"", "sealed\":\"AAAA", 1);
    let text = format!(
        "{place} {value}\n/f/truth/key/main/2 {value}\n/f/truth/ban/client/7 {value}\n{place} {other}\n{}",
        &format!("{place} {value}")[..60]
    );
    std::fs::write(&path, text).expect("our own file");
    let mut next = reading();
    next.recall(&file);
    assert_eq!(keys(&mut next, NOW_S), [2]);
    let refused: Vec<_> = next.refused_keys().counts().collect();
    assert_eq!(refused, [("malformed", 2), ("not_ours", 2), ("unreadable", 0)]);
    let mut stranger =
        Reading::new(&settings(), Some(FleetKey::new(Key::from_bytes([8; 32]))), &Truth::default());
    stranger.recall(&file);
    assert!(stranger.known(NOW_S).keys.is_empty());
    std::fs::remove_dir_all(&dir).expect("our own folder");
}
