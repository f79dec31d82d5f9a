//! Streams of the first version of the format, as they were written once: they are read for ever.
//!
//! `WRITE_HAND_OVER_FIXTURE=1` writes what is missing. What is there is not written again: a
//! release may have written it.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::clients::{Player, Scribe};
use super::super::delivery;
use super::super::games::Game;
use super::super::plain::{arrived, numbered, plain_rig, play_with, unet};
use super::super::rig::{Rig, home, plain_setup, udp_backend};
use super::super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_setup};
use super::rehearse;
use crate::handover::Format;
use crate::rehearsal::{Succession, succeed};
use crate::setup::{Credit, Setup};
use ringgate_core::drops::DropReason;

/// One gate's streams, with the gate that has written them and one that is to read them.
struct Fixture {
    /// What both files' names begin with.
    name: &'static str,
    writer: fn() -> Rig,
    reader: fn() -> Rig,
}

/// Netcode over a bundle link: a player, an unfinished handshake, a place that rests and a link.
const BUNDLE: Fixture = Fixture {
    name: "",
    writer: || {
        let mut rig = Rig::new(plain_setup());
        let _game = Game::join(&mut rig, "arena");
        let mut player = Player::connected(&mut rig, home(1), 1);
        Player::connected(&mut rig, home(2), 2).leave(&mut rig);
        let asks = Scribe::new(&rig.token(3));
        rig.deliver(home(3), &asks.request());
        player.send(&mut rig, b"x");
        rig
    },
    reader: || Rig::new(plain_setup()),
};

fn udp_setup() -> Setup {
    let backend = udp_backend("arena", "127.0.0.1:7000", 4);
    Setup { backends: vec![backend].into(), ..plain_setup() }
}

/// Netcode over the udp link: a player, and a loopback address that rests.
const UDP: Fixture = Fixture {
    name: "udp-",
    writer: || {
        let mut rig = Rig::new(udp_setup());
        let mut player = Player::connected(&mut rig, home(1), 1);
        player.send(&mut rig, b"x");
        Player::connected(&mut rig, home(2), 2).leave(&mut rig);
        rig
    },
    reader: || Rig::new(udp_setup()),
};

/// A player who has come, moved and come back by a restart, and one whose handshake is half done.
const UNREAL: Fixture = Fixture {
    name: "unreal-",
    writer: || {
        let mut arena = Arena::new(unreal_setup(1), 1);
        let mut player = UnrealPlayer::new(&arena, 1);
        player.connect(&mut arena);
        assert!(player.plays(&mut arena));
        player.change_port(&mut arena, 0);
        player.restart(&mut arena);
        assert!(player.plays(&mut arena));
        let mut other = UnrealPlayer::new(&arena, 2);
        other.step(&mut arena);
        arena.fleet.rigs.remove(0)
    },
    reader: || Arena::new(unreal_setup(1), 1).fleet.rigs.remove(0),
};

/// A player with a window, one who is half open, and an address after a gap.
const PLAIN: Fixture = Fixture {
    name: "plain-",
    writer: || {
        let mut rig = plain_rig(|rules| rules.sequence = Some(unet(false)));
        play_with(&mut rig, home(1), [&numbered(353), &numbered(354)]);
        rig.deliver(home(2), &numbered(7));
        play_with(&mut rig, home(3), [&numbered(1), &numbered(2)]);
        rig.provokes(DropReason::SequenceGap, |rig| rig.deliver(home(3), &numbered(700)));
        arrived(&mut rig);
        rig
    },
    reader: || plain_rig(|rules| rules.sequence = Some(unet(false))),
};

/// A player whose messages are delivered here, with some under way in both directions.
const MESSAGES: Fixture =
    Fixture { name: "messages-", writer: delivery::busy_rig, reader: delivery::idle_rig };

/// The same with short messages, from which fuzzers begin.
const SHORT_MESSAGES: Fixture = Fixture {
    name: "messages-short-",
    writer: delivery::busy_rig_in_short,
    reader: delivery::idle_rig,
};

const ALL: [Fixture; 6] = [BUNDLE, UDP, UNREAL, PLAIN, MESSAGES, SHORT_MESSAGES];

impl Fixture {
    fn path(&self, which: &str) -> PathBuf {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        root.join("../../tests/fixtures/hand_over_1").join(format!("{}{which}", self.name))
    }

    fn write(&self) {
        let rig = (self.writer)();
        let setup = Arc::clone(&rig.host.gate().common.setup);
        let (streams, _) = rehearse(&[rig.host.gate()], &setup, rig.now);
        for (which, stream) in ["shared", "worker"].iter().zip(streams) {
            let path = self.path(which);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, stream).expect("written");
        }
    }

    /// Two seconds after the reader has begun, which is when its clock has passed the writer's.
    fn read(&self) -> (Rig, Succession) {
        if !self.path("worker").exists() && std::env::var_os("WRITE_HAND_OVER_FIXTURE").is_some() {
            self.write();
        }
        let [shared, worker] = ["shared", "worker"].map(|which| {
            let path = self.path(which);
            std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
        });
        let (format, _) = Format::read(&shared).expect("it is one");
        assert_eq!(format.workers, 1);
        let mut rig = (self.reader)();
        rig.pass(LATER_MS);
        let setup = Arc::clone(&rig.host.gate().common.setup);
        let gates = [rig.host.gate()];
        let read = succeed(&shared, &[&worker], &gates, &setup, rig.now);
        let read = read.unwrap_or_else(|why| panic!("{}worker: {why}", self.name));
        assert_eq!(read.arrived.not_carried, 0);
        (rig, read)
    }
}

/// More than any writer takes.
const LATER_MS: u64 = 20_000;

#[test]
fn a_player_a_handshake_and_a_link_of_the_first_version_are_read() {
    let (_, read) = BUNDLE.read();
    assert_eq!(read.arrived.sessions, 1);
    assert_eq!(read.claims.tokens_remembered(), 3);
    let session = read.gates[0].sessions().next().expect("one");
    assert_eq!((session.client_id, session.address), (1, home(1)));
    let (_, read) = UDP.read();
    assert_eq!((read.arrived.sessions, read.claims.tokens_remembered()), (1, 2));
    let session = read.gates[0].sessions().next().expect("one");
    assert!(session.link_address.is_some(), "{session:?}");
}

#[test]
fn unreal_and_plain_players_of_the_first_version_are_read() {
    let (_, read) = UNREAL.read();
    let counters = read.gates[0].counters();
    assert_eq!((read.arrived.sessions, counters.port_switches), (1, 1));
    let (_, read) = PLAIN.read();
    assert_eq!(read.arrived.sessions, 1);
    let session = read.gates[0].sessions().next().expect("one");
    assert_eq!(session.address, home(1));
    // What it has earned was not counted by then: it goes on with what is kept of that.
    let plain = &read.gates[0].fronts.plain;
    let earned = plain.sessions.entries().filter_map(|entry| plain.sessions.get(entry));
    let earned: Vec<_> = earned.filter(|it| it.is_open()).map(|it| it.credit).collect();
    assert_eq!(earned, [Credit::default().burst]);
}

#[test]
fn messages_under_way_of_the_first_version_are_read() {
    let (_, read) = MESSAGES.read();
    assert_eq!(read.arrived.sessions, 1);
    let connections = &read.gates[0].fronts.netcode.connections;
    let connection = connections.entries().next().and_then(|entry| connections.get(entry));
    let connection = connection.expect("the player's");
    let waiting_bytes = connection.end.waiting_bytes();
    assert!(waiting_bytes > 64 * 1024, "{waiting_bytes}");
    let traffic = read.gates[0].delivery_traffic().next().expect("a listener");
    assert_eq!(traffic.messages_out, 8);
}

#[test]
fn what_was_read_of_the_first_version_is_written_again() {
    for fixture in ALL {
        let (mut rig, mut read) = fixture.read();
        let gate = read.gates.pop().expect("one worker");
        let setup = Arc::clone(&gate.common.setup);
        *rig.host.gate_mut() = gate;
        let (_, again) = rehearse(&[rig.host.gate()], &setup, rig.now);
        assert_eq!(again.arrived.sessions, read.arrived.sessions, "{}", fixture.name);
    }
}
