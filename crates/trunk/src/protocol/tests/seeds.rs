//! Where the fuzz targets of trunks begin: every section, frame and record that there is, and ends
//! as a process has left them.
//!
//! `WRITE_FUZZ_SEEDS=1` writes them.

use std::path::Path;

use ringgate_core::carry::{Carry, Maps, Reader, Writer as Memory};
use ringgate_core::crypto::{Aead, Key};
use ringgate_link::bundle::{
    CloseReason, Frames, Hello, OpenedPlain, SessionId, Welcome as ToGame, Writer,
};

use crate::protocol::beat::Beat;
use crate::protocol::control::{Outbox, Reason, Welcome};
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Lane, NoteTold, Role, Secrets};
use crate::protocol::relay::Relay;
use crate::protocol::sections::kind;

/// As in the targets.
const TRUNK: u32 = 7;
const LANE: u8 = 1;
const LINK: u16 = 5;

fn session() -> SessionId {
    SessionId::new(usize::from(LANE), 9)
}

fn bundle(write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = vec![0; 2000];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer), "it has room");
    writer.bytes().to_vec()
}

/// As a library said it when the seeds were written: a process of that time is still understood.
const fn hello(pid: u32, name: &str) -> Hello<'_> {
    Hello { version_max: 4, ..Hello::new(pid, name) }
}

fn section(kind: u8, body: &[u8]) -> Vec<u8> {
    let bytes = (4 + body.len()) as u16;
    [&bytes.to_le_bytes()[..], &[kind, 0], body].concat()
}

/// Bodies of datagrams, for a peer that has the keys.
fn sections() -> Vec<u8> {
    let payload = bundle(|writer| writer.payload(session(), b"hello"));
    let of_link = |record: &[u8]| [&LINK.to_le_bytes()[..], record].concat();
    let piece = |offset: usize, bytes: &[u8]| {
        let fields = [LINK, 3, offset as u16, payload.len() as u16].map(u16::to_le_bytes);
        section(kind::PIECE, &[fields.as_flattened(), bytes].concat())
    };
    let (first, second) = payload.split_at(payload.len() / 2);
    let filling = vec![0; 9];
    let bodies = [
        [section(kind::RECORDS, &of_link(&payload)), section(200, b"later"), filling].concat(),
        [piece(0, first), section(kind::QUESTION, &[6; 8])].concat(),
        [piece(first.len(), second), section(kind::ANSWER, &[7; 8])].concat(),
        [section(kind::BEAT, &Beat::default().to_bytes()), section(kind::PROBED, &[0xb0, 4])]
            .concat(),
    ];
    let framed = bodies.iter().flat_map(|sections| {
        let body = [&[0; 4][..], sections].concat();
        [vec![(body.len() - 1) as u8], body].concat()
    });
    [0].into_iter().chain(framed).collect()
}

/// What was sealed, what waits, and half a record: an end that another process goes on with.
fn lane() -> Lane {
    let key = |[lane, way]: [u8; 2]| Ok::<_, ()>(Key::from_bytes([lane | way << 4; 32]));
    let secrets = || Secrets::export(LANE, key).expect("it cannot fail");
    let new = |role| Lane::new(role, (TRUNK, LANE), secrets(), Rekey::default(), 0);
    let (mut gateway, mut agent, mut aead) = (new(Role::Gateway), new(Role::Agent), Aead::detect());
    let record = bundle(|writer| writer.payload(session(), &[7; 100]));
    let frame = || Frames::new(&record).next().expect("one").expect("own");
    // Its announcement is not there yet, so it waits.
    gateway.note_told();
    gateway.push(LINK, frame()).expect("there is room");
    gateway.seal(0, &mut aead);
    for datagram in gateway.pending() {
        let mut datagram = datagram.to_vec();
        agent.receive(0, &mut aead, &mut [&mut datagram[..]], |_, _| ());
    }
    assert_eq!(agent.stats().waiting, 1);
    agent.push(LINK, frame()).expect("there is room");
    agent.poll(0);
    agent.seal(0, &mut aead);
    agent
}

fn relay() -> Relay {
    let mut relay = Relay::new(2, 3, 4, vec!["a".to_owned()]);
    let game = relay.connect().expect("there is room");
    let hello = bundle(|writer| writer.hello(&hello(1, "a")));
    relay.handle_bundle(game, &hello, &mut |_| ());
    relay.handle_lane(LANE, &mut |_| ());
    relay
}

fn left(write: impl Fn(&mut Memory<'_>)) -> Vec<u8> {
    let mut measure = Memory::new(&mut []);
    write(&mut measure);
    let mut bytes = vec![0; measure.len()];
    write(&mut Memory::new(&mut bytes));
    [vec![0], bytes].concat()
}

struct Nobody;

impl NoteTold for Nobody {
    fn note_told(&mut self) {}
}

fn tell(outbox: &mut Outbox, write: impl Fn(&mut Writer<'_>) -> bool) {
    let record = bundle(write);
    for frame in Frames::new(&record) {
        let told = outbox.record((&mut Nobody, LANE), LINK, frame.expect("own"));
        told.expect("there is room");
    }
}

/// All that an agent may say on a stream, in its order.
fn from_agent() -> Vec<u8> {
    let mut outbox = Outbox::default();
    outbox.hello((1, 9), "host-7").expect("there is room");
    tell(&mut outbox, |writer| {
        writer.hello(&hello(4711, "arena"))
            && writer.intake(false)
            && writer.close(session(), CloseReason::Kicked)
            && writer.ask_quality(session())
    });
    outbox.beat().expect("there is room");
    outbox.ended((&mut Nobody, LANE), LINK).expect("there is room");
    outbox.goodbye(Reason::ShuttingDown).expect("there is room");
    [&[0x0f][..], outbox.bytes()].concat()
}

/// All that a gateway may say.
fn from_gateway() -> Vec<u8> {
    let mut outbox = Outbox::default();
    let welcome = Welcome { version: 1, lanes: 2, trunk: TRUNK, incarnation: 99 };
    outbox.welcome(&welcome).expect("there is room");
    let address = "192.0.2.7:9".parse().expect("literal");
    let opened =
        OpenedPlain { session: session(), slot: Some(1), slots_max: 4, address, listener: "any" };
    tell(&mut outbox, |writer| {
        writer.welcome(&ToGame { version: 4, worker: 1, workers: 2, incarnation: 99 })
            && writer.opened_plain(&opened)
            && writer.report(session(), 5, true)
            && writer.room(session(), true, 9)
            && writer.draining(900)
            && writer.undrained()
            && writer.taken_over(2)
            && writer.closed(session(), CloseReason::PlayerLeft)
    });
    outbox.beat().expect("there is room");
    outbox.ended((&mut Nobody, LANE), LINK).expect("there is room");
    // Of a later version.
    let later = section(200, b"later");
    let mut bye = Outbox::default();
    bye.goodbye(Reason::CertificateUnknown).expect("there is room");
    [&[0x0e][..], outbox.bytes(), &later, bye.bytes()].concat()
}

#[test]
fn the_fuzzers_seeds_are_what_was_written_once() {
    let (lane, relay) = (lane(), relay());
    let lane = left(|out| lane.write(out));
    let read = |bytes: &[u8]| {
        let maps = Maps::default();
        let mut from = Reader::new(&bytes[1..], &maps);
        Lane::read(&mut from).map(|lane| (lane.stats().waiting, from.end().is_ok()))
    };
    assert_eq!(read(&lane), Ok((1, true)));
    let seeds = [
        ("trunk_lanes/sections", sections()),
        ("trunk_lanes/left_lane", lane),
        ("trunk_lanes/left_relay", left(|out| relay.write(out))),
        ("trunk_stream/from_agent", from_agent()),
        ("trunk_stream/from_gateway", from_gateway()),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, seed) in seeds {
        let path = folder.join(name);
        if std::env::var_os("WRITE_FUZZ_SEEDS").is_some() {
            std::fs::write(&path, &seed).expect("written");
        }
        assert!(seed.len() <= 64 << 10, "{name} has {} bytes", seed.len());
        assert_eq!(std::fs::read(&path).expect("it is there"), seed, "{name}");
    }
}
