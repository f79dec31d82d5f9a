//! What another process may say of an agent in its fleet, however much of it is wrong.

use std::os::fd::AsFd;
use std::path::Path;

use ringgate_fleet::values::State;
use ringgate_io::socket;
use serde_json::{Value, json};

use super::*;
use crate::config::hosted::StateOf;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn settings() -> Settings {
    Settings { taken: vec!["arena-1".to_owned()], ..Settings::example() }
}

fn hosted() -> Vec<(String, u32, Hosted)> {
    let state = StateOf::File(State::Ready);
    let hosted = Hosted { group: name("arena"), labels: Vec::new(), state, health: None };
    vec![("arena-1".to_owned(), 8, hosted)]
}

/// Eight of arena-1 wait at a gateway.
fn players() -> rolls::Handed {
    let kept = rolls::Kept {
        backend: "arena-1".to_owned(),
        gateway: "gate-1.example:7200".to_owned(),
        players: 8,
        left_ms: 3000,
        grace_ms: Some(5000),
    };
    let known = vec!["arena-1".to_owned()];
    rolls::Handed { kept: vec![kept], known, start_left_ms: Some(70), refused: 1, unheard: 2 }
}

/// One game process has come, over connection 3.
fn record() -> Record {
    let begins = Beginning::afresh(&settings(), hosted());
    let mut book = book(&settings());
    let what = ringgate_link::announce::Announcement::new("arena", 4);
    let record = what.encode("arena-9", 7).expect("it can be said");
    let announced = ringgate_link::announce::Announced::decode(&record).expect("our own");
    book.announce(3, announced).expect("nothing is in its way");
    Record {
        started_s: 1000,
        registration: Handed {
            lease: 77,
            former: vec![66],
            keys: vec!["/f/truth/agent/host-7".into(), "/f/truth/backend/arena-9".into()],
            said: 0,
        },
        leases_lost: 2,
        copies: [3, 4],
        remembers: true,
        chosen: [("gate-1".to_owned(), "gate-1.example:7200".to_owned())].into(),
        wanted: Some(vec!["gate-1.example:7200".to_owned()]),
        watched: begins.watched.iter().map(Watched::hand_over).collect(),
        book: book.hand_over(),
        players: Some(HandedPlayers::of(players())),
        has_door: true,
        seated: vec![(3, Some(1))],
    }
}

/// A door and a connection, as game processes come to one.
fn sockets() -> Vec<OwnedFd> {
    static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = format!("ringgate-handed-{}-{number}.sock", std::process::id());
    let path = std::env::temp_dir().join(file);
    let door = socket::link_listener(&path, 0o600).expect("a folder of our own");
    let _ = std::fs::remove_file(&path);
    let (one, _) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("descriptors");
    vec![door, one.into()]
}

fn copy() -> Vec<u8> {
    copy::encode(&settings().keyspace.gateways(), &Truth::default(), 5)
}

fn inherit(heirloom: Heirloom) -> Result<(Beginning, Option<Door>), &'static str> {
    Beginning::inherit(&settings(), hosted(), heirloom)
}

fn refused(heirloom: Heirloom) -> &'static str {
    inherit(heirloom).err().expect("it cannot be")
}

#[test]
fn what_was_handed_over_is_there() {
    let (begins, door) = inherit(Heirloom::new(&record(), &copy(), sockets())).expect("sound");
    assert!(begins.is_heir);
    assert_eq!((begins.started_s, begins.leases_lost, begins.copies), (1000, 2, [3, 4]));
    assert!(begins.remembers, "what is missed of it is held back");
    assert_eq!((begins.registration.lease, &begins.registration.former[..]), (77, &[66][..]));
    assert_eq!(begins.registration.keys.len(), 2);
    let at = Gateway::parse("gate-1.example:7200").expect("sound");
    assert_eq!(begins.chosen.get("gate-1"), Some(&at));
    assert_eq!(begins.wanted, Some(vec![at]));
    assert_eq!(begins.players, Some(players()));
    assert_eq!(begins.book.names().collect::<Vec<_>>(), ["arena-9"]);
    let seated = door.expect("it has one").seated;
    assert_eq!((seated[0].number, seated[0].said), (3, Some(Standing::Registered)));
}

/// One more who waits.
fn keep(record: &mut Record, name: &str, at: &str) {
    let row = (name.to_owned(), at.to_owned(), 1, 1, None);
    record.players.as_mut().expect("it has them").kept.push(row);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let wrong = |spoil: fn(&mut Record)| {
        let mut record = record();
        spoil(&mut record);
        refused(Heirloom::new(&record, &copy(), sockets()))
    };
    assert_eq!(wrong(|it| it.registration.keys.push("/f/truth/gateway/gate-1".into())), "key");
    assert_eq!(wrong(|it| it.registration.keys.push("/f/truth/agent/host-8".into())), "key");
    assert_eq!(wrong(|it| it.registration.keys.push("/other/truth/backend/b".into())), "key");
    assert_eq!(wrong(|it| it.registration.former = vec![1; 17]), "leases");
    assert_eq!(wrong(|it| drop(it.chosen.insert("a b".into(), "x:1".into()))), "gateway");
    assert_eq!(wrong(|it| it.wanted = Some(vec!["nowhere".into()])), "gateway");
    assert_eq!(wrong(|it| keep(it, "a b", "x:1")), "players");
    assert_eq!(wrong(|it| keep(it, "arena-1", "nowhere")), "gateway");
    assert_eq!(wrong(|it| it.seated.push((4, None))), "connection");
    assert_eq!(wrong(|it| it.seated.clear()), "connection");
    assert_eq!(wrong(|it| it.seated[0].0 = 4), "connection");
    assert_eq!(wrong(|it| it.has_door = false), "connection");

    let with = |bytes: Vec<u8>, sockets: Vec<OwnedFd>| refused(Heirloom { bytes, sockets });
    let sound = Heirloom::new(&record(), &copy(), Vec::new()).bytes;
    assert_eq!(with(sound.clone(), Vec::new()), "door");
    let [door, connection] = <[OwnedFd; 2]>::try_from(sockets()).expect("two");
    assert_eq!(with(sound.clone(), vec![connection, door]), "door");
    let file = std::fs::File::open(Path::new("/dev/null")).expect("it is everywhere");
    let mut mixed = sockets();
    mixed[1] = file.as_fd().try_clone_to_owned().expect("a descriptor");
    assert_eq!(with(sound.clone(), mixed), "connection");
    assert_eq!(refused(Heirloom::new(&record(), b"ringgate", sockets())), "copy");
    let other = copy::encode(&"/other/".into(), &Truth::default(), 5);
    assert_eq!(refused(Heirloom::new(&record(), &other, sockets())), "copy");
}

#[test]
fn no_byte_of_it_does_harm() {
    let sound = Heirloom::new(&record(), &copy(), Vec::new()).bytes;
    // Without the copy, which need not be there, it is whole as well.
    let whole = sound.len() - copy().len();
    for len in (0..sound.len()).filter(|len| *len != whole) {
        assert!(inherit(Heirloom { bytes: sound[..len].to_vec(), sockets: sockets() }).is_err());
    }
    for at in 0..sound.len() {
        for with in [0, 0xff, b'9', b'"', b'['] {
            let mut bytes = sound.clone();
            bytes[at] = with;
            // Another number or name may be as good; what matters is that it comes back.
            let _ = inherit(Heirloom { bytes, sockets: sockets() });
        }
    }
}

/// A later release may say more, and an earlier one has said less of what may be left out.
#[test]
fn fields_that_are_not_known_are_left_alone() {
    let mut told: Value = serde_json::to_value(record()).expect("no maps");
    told["later"] = json!({ "anything": [1, 2] });
    told.as_object_mut().expect("fields").remove("players");
    let record = serde_json::to_vec(&told).expect("JSON");
    let bytes = [&(record.len() as u64).to_le_bytes()[..], &record].concat();
    let (begins, _) = inherit(Heirloom { bytes, sockets: sockets() }).expect("sound");
    assert_eq!(begins.registration.lease, 77, "and without a copy the file has to do");
    assert_eq!(begins.players, Some(rolls::Handed::default()), "who waits is not known");
}
