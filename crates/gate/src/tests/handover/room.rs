//! Listeners that a reload has taken away, or left with less, since the predecessor began: its
//! tables are larger than a successor with the same file would make them.

use super::super::plain::{SERVERS, arrived, plain_setup_with, play};
use super::super::rig::{Rig, endpoint, home, listener};
use super::super::unreal::rig::unreal_setup;
use super::rehearse;
use crate::front::plain::state::PlainFront;
use crate::front::room::Room;
use crate::front::rules::Answers;
use crate::handover::Format;
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::rehearsal::Succession;
use crate::setup::Setup;
use ringgate_batch::Endpoint;
use std::sync::Arc;

const FIRST: ListenerId = ListenerId(0);

fn adopt(rig: &mut Rig, setup: &Setup) {
    rig.mail(Mail::Setup(setup.clone().into()));
    rig.turn();
}

/// Hands a gate over to one with this setup, and that on to another one.
fn hand_over_twice(rig: &Rig, setup: Setup) -> Succession {
    let setup = Arc::new(setup);
    let (_, first) = rehearse(&[rig.host.gate()], &setup, rig.now);
    let heirs: Vec<_> = first.gates.iter().collect();
    let (_, second) = rehearse(&heirs, &setup, rig.now);
    assert_eq!(first.arrived.sessions, second.arrived.sessions);
    second
}

fn room(succession: &Succession) -> Room {
    succession.gates[0].fronts.room()
}

/// The same setup, whose first listener has gone, as a process is told that begins with the file
/// as it is now.
fn without_first(setup: &Setup) -> Setup {
    let mut left = setup.clone();
    left.listeners = setup.listeners.iter().skip(1).cloned().collect::<Vec<_>>().into();
    left
}

fn closed(setup: &Setup) -> Setup {
    let mut closed = setup.clone();
    closed.listeners[FIRST] = closed.listeners[FIRST].closed();
    closed
}

#[test]
fn a_plain_listener_that_has_gone_leaves_places_and_addresses() {
    let mut setup = plain_setup_with(8, |_| {});
    setup.listeners.push(listener("eu", &[0]));
    let mut rig = Rig::new(setup.clone());
    for n in 1..6 {
        rig.deliver(home(n), b"hello");
    }
    play(&mut rig, home(9), b"hello");
    adopt(&mut rig, &closed(&setup));
    let plain = &rig.host.gate().fronts.plain;
    assert_eq!((plain.sessions.len(), plain.sessions.free_count()), (0, 6));
    let there = rig.host.gate().fronts.room();
    let succession = hand_over_twice(&rig, without_first(&setup));
    assert_eq!(room(&succession), there, "as much as the first one had");
    let plain = &succession.gates[0].fronts.plain;
    assert_eq!((plain.sessions.len(), plain.sessions.free_count()), (0, 6));
}

#[test]
fn an_unreal_listener_that_has_gone_leaves_places() {
    let mut setup = unreal_setup(1);
    setup.listeners.push(listener("eu", &[0]));
    let mut rig = Rig::new(setup.clone());
    adopt(&mut rig, &closed(&setup));
    rig.take_for_servers();
    rig.pass(10_000);
    assert_eq!(rig.take_for_servers().len(), 0, "its servers may be another game's by now");
    assert!(!Room::of(&without_first(&setup)).has_unreal);
    let succession = hand_over_twice(&rig, without_first(&setup));
    assert!(room(&succession).has_unreal, "its places may still rest");
}

#[test]
fn plain_players_beyond_a_smaller_table_play_on() {
    const MANY: u32 = 30_000;
    let half_open = |max: u32| plain_setup_with(8, |rules| rules.half_open_max = max);
    let mut rig = Rig::new(half_open(MANY));
    for n in 0..MANY {
        let [_, high, middle, low] = n.to_be_bytes();
        rig.push(Endpoint::v4([11, high, middle, low], 9), b"hello");
        if n % 32 == 31 {
            rig.turn();
            rig.take_for_servers();
        }
    }
    rig.turn();
    rig.take_for_servers();
    let (local, server) = play(&mut rig, home(1), b"hello");
    let plain = &rig.host.gate().fronts.plain;
    let entry = plain.at_loopback(&local).expect("it has that address");
    let place = plain.sessions.place(entry);
    let mut setup = half_open(16);
    setup.listeners[FIRST].sessions_max = 1;
    setup.worker_sessions_max = 1;
    assert!(place.index as usize >= PlainFront::places(&setup, Room::of(&setup)));
    let setup = Arc::new(reserved(&rig, setup));
    adopt(&mut rig, &setup);
    let (_, first) = rehearse(&[rig.host.gate()], &setup, rig.now);
    let [gate] = first.gates.try_into().ok().expect("one worker");
    *rig.host.gate_mut() = gate;
    let plain = &rig.host.gate().fronts.plain;
    assert_eq!(plain.sessions.place(entry), place);
    rig.deliver(home(1), b"again");
    assert_eq!(arrived(&mut rig), [(local, server, b"again".to_vec())]);
    rig.answer_udp(endpoint(SERVERS[server]), local, b"answer");
    assert_eq!(rig.take_for(home(1)), [b"answer"]);
}

/// As a successor has it, whose file allows fewer sessions.
fn reserved(rig: &Rig, mut setup: Setup) -> Setup {
    let before = rig.host.gate().setup();
    let theirs = Format::of(before, 1, [7; 16]);
    theirs.reserve(&mut setup);
    assert_eq!(setup.worker_sessions_max, before.worker_sessions_max);
    assert!(setup.worker_pending_max >= before.worker_pending_max);
    setup
}

#[test]
fn a_room_that_no_configuration_allows_is_refused() {
    let most = Room { has_unreal: true, plain_unproven: 256 * 65_536 + 1 };
    assert_eq!(most.checked(), Ok(most));
    assert!(Room { plain_unproven: most.plain_unproven + 1, ..most }.checked().is_err());
    let plain = plain_setup_with(8, |_| {});
    assert_eq!(Room::of(&plain).and(most), most);
}
