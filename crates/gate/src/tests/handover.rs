//! Gates that are handed over to the next process: whoever plays, plays on.
//!
//! With `REHEARSE_HAND_OVER=1` in the environment every test of this crate has its gate handed over
//! after each turn, so that all of them hold the state that is carried against what they test. A
//! larger number is for less time: after each so many turns. In a test of very many turns, later
//! ones are rehearsed more seldom.

mod ahead;
mod copied;
mod fixture;
mod fronts;
mod hostile;
mod leaving;
pub(super) mod mapping;
mod room;

use std::sync::{Arc, LazyLock};

use super::clients::{Player, Scribe};
use super::games::{Game, Heard};
use super::rig::{OUR_USER, Rig, bundle_backend, home, listener, netcode_rules, plain_setup};
use crate::gate::Gate;
use crate::now::Now;
use crate::rehearsal::{Rehearsal, Succession, succeed};
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;
use ringgate_link::bundle::Hello;

/// Whether a test is to hand its gate over now, after so many turns.
pub(super) fn is_rehearsed(turns: u64) -> bool {
    static EVERY: LazyLock<Option<u64>> = LazyLock::new(|| {
        let every = std::env::var("REHEARSE_HAND_OVER").ok()?;
        Some(every.parse().expect("a number of turns"))
    });
    EVERY.is_some_and(|every| {
        let is_early = turns < OFTEN * every;
        turns.is_multiple_of(if is_early { every } else { SELDOM * every })
    })
}

/// How many hand-overs come as often as was asked for.
const OFTEN: u64 = 200;

/// How much more seldom those after them come.
const SELDOM: u64 = 20;

/// What becomes of gates that are handed over. A second hand-over has to write what the first one
/// has written: so nothing is lost, and nothing is made up.
pub(super) fn succession(gates: &[&Gate], setup: &Arc<Setup>, now: Now) -> Succession {
    let is_same_setup = Arc::ptr_eq(&gates[0].common.setup, setup);
    let (streams, first) = rehearse(gates, setup, now);
    if is_same_setup {
        let heirs: Vec<_> = first.gates.iter().collect();
        let (again, _) = rehearse(&heirs, setup, now);
        for (one, other) in streams.iter().zip(&again) {
            assert!(sorted(one) == sorted(other), "{}", difference(one, other));
        }
    }
    first
}

pub(super) fn rehearse(
    gates: &[&Gate],
    setup: &Arc<Setup>,
    now: Now,
) -> (Vec<Vec<u8>>, Succession) {
    let mut rehearsal = Rehearsal::new(gates.len(), WINDOW_BYTES);
    rehearsal.write_rest(gates).expect("it is quiet");
    let streams: Vec<_> = rehearsal.streams().map(<[u8]>::to_vec).collect();
    let parts: Vec<_> = streams[1..].iter().map(Vec::as_slice).collect();
    let succession = succeed(&streams[0], &parts, gates, setup, now).expect("it can be read");
    assert_eq!(succession.arrived.not_carried, 0);
    (streams, succession)
}

/// The records of a stream: tables are walked in an order that may differ.
fn sorted(stream: &[u8]) -> Vec<&[u8]> {
    let mut rest = &stream[12..];
    let mut records = Vec::new();
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let len = 8 + u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        records.push(&rest[..len]);
        rest = &rest[len..];
    }
    records.sort_unstable();
    records
}

/// Of the first records that are not the same: their kinds, how long they are and where they part.
fn difference(one: &[u8], other: &[u8]) -> String {
    let (one, other) = (sorted(one), sorted(other));
    let counts = format!("{} and {} records", one.len(), other.len());
    let Some((one, other)) = one.iter().zip(&other).find(|(one, other)| one != other) else {
        return counts;
    };
    let at = one.iter().zip(*other).take_while(|(one, other)| one == other).count();
    let about = |record: &[u8]| {
        let kind = u16::from_le_bytes([record[0], record[1]]);
        let there = &record[at..record.len().min(at + 8)];
        format!("kind {kind} with {} bytes, {there:?} at {at}", record.len())
    };
    format!("{counts}, the first that differ: {} and {}", about(one), about(other))
}

const STREAM_BYTES: usize = 8 << 20;

/// Little, because it is zeroed for each of very many hand-overs.
const WINDOW_BYTES: usize = 1 << 16;

fn playing() -> (Rig, Game, Scribe) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    (rig, game, scribe)
}

#[test]
fn a_player_plays_on_and_its_game_hears_of_nothing() {
    let (mut rig, game, scribe) = playing();
    rig.deliver(home(1), &scribe.payload(2, b"before"));
    let session = game.guests(&mut rig)[0].session;
    rig.hand_over();
    assert_eq!(rig.sessions(), 1);
    rig.deliver(home(1), &scribe.payload(3, b"after"));
    assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"after".to_vec())]);
    rig.take_for(home(1));
    game.say(&mut rig, |writer| writer.payload(session, b"answer"));
    let answer = rig.take_for(home(1)).pop().expect("an answer");
    assert_eq!(scribe.open(&answer).expect("sealed for the player").1, b"answer");
    rig.provokes(DropReason::ReplayDuplicate, |rig| {
        rig.deliver(home(1), &scribe.payload(2, b"before"));
    });
}

/// The numbers that were used are used, and late ones come as far behind as before: a window keeps
/// the size that it has.
#[test]
fn a_player_plays_on_where_the_file_has_another_replay_window() {
    for size_bits in [64, 1024] {
        let (mut rig, game, scribe) = playing();
        rig.deliver(home(1), &scribe.payload(300, b"before"));
        let mut setup = plain_setup();
        setup.incarnation = rig.host.gate().setup().incarnation;
        netcode_rules(&mut setup).replay = Policy::new(size_bits, 0).expect("a power of two");
        let (_, succession) = rehearse(&[rig.host.gate()], &Arc::new(setup), rig.now);
        let [gate] = succession.gates.try_into().ok().expect("one worker");
        *rig.host.gate_mut() = gate;
        game.hear(&mut rig);
        rig.provokes(DropReason::ReplayDuplicate, |rig| {
            rig.deliver(home(1), &scribe.payload(300, b"before"));
        });
        rig.provokes(DropReason::ReplayTooOld, |rig| {
            rig.deliver(home(1), &scribe.payload(300 - 256, b"too late"));
        });
        rig.deliver(home(1), &scribe.payload(300 - 255, b"late"));
        rig.deliver(home(1), &scribe.payload(301, b"after"));
        assert_eq!(game.payloads(&mut rig), [&b"late"[..], b"after"], "{size_bits}");
    }
}

#[test]
fn game_processes_are_told_once_and_those_of_the_first_release_hear_nothing() {
    let backends = ["arena", "old"].map(|name| bundle_backend(name, 4));
    let mut rig = Rig::new(Setup::new(vec![listener("eu", &[0])], backends.to_vec(), 1));
    let game = Game::join(&mut rig, "arena");
    let first_release = Game::connect(&mut rig, OUR_USER);
    let hello = Hello { version_min: 1, version_max: 0, pid: 0, name: "old" };
    first_release.say(&mut rig, |writer| writer.hello(&hello));
    for process in [&game, &first_release] {
        process.hear(&mut rig);
    }
    for generation in [2, 3] {
        rig.hand_over();
        rig.host.gate_mut().tell_taken_over(generation);
        rig.turn();
        rig.turn();
        assert_eq!(game.hear(&mut rig), [Heard::TakenOver(generation)]);
        assert!(first_release.hear(&mut rig).is_empty(), "it would not know the record");
    }
}

#[test]
fn a_handshake_that_is_not_finished_goes_on() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let token = rig.token(1);
    let mut player = Player::new(&rig, home(1), &token);
    for _ in 0..40 {
        rig.hand_over();
        player.exchange(&mut rig);
        rig.pass(10);
    }
    assert_eq!(rig.sessions(), 1);
    player.send(&mut rig, b"hello");
}
