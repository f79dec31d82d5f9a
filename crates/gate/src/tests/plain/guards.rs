//! The sequence guard of a plain listener.

use super::super::rig::{Rig, endpoint, home};
use super::{SERVERS, arrived, numbered, plain_rig, plain_setup_with, play_with, rules_of, unet};
use crate::counters::Ended;
use crate::mail::Mail;
use ringgate_batch::LocalIp;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;
use std::sync::Arc;

fn guarded(both: bool) -> (Rig, (LocalIp, usize)) {
    let mut rig = plain_rig(|rules| rules.sequence = Some(unet(both)));
    let player = play_with(&mut rig, home(1), [&numbered(353), &numbered(354)]);
    (rig, player)
}

#[test]
fn each_number_passes_once_and_only_within_the_window() {
    let (mut rig, _) = guarded(false);
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(354)));
    rig.deliver(home(1), &numbered(352));
    rig.deliver(home(1), &numbered(358));
    assert_eq!(arrived(&mut rig).len(), 2);
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(352)));
    rig.deliver(home(1), &numbered(358 + 512));
    rig.provokes(DropReason::ReplayTooOld, |rig| rig.deliver(home(1), &numbered(358)));
}

#[test]
fn a_gap_ends_the_session_and_bars_its_source_for_a_while() {
    let (mut rig, (local, server)) = guarded(false);
    rig.provokes(DropReason::SequenceGap, |rig| rig.deliver(home(1), &numbered(354 + 513)));
    assert_eq!(rig.counters().sessions_closed[Ended::SequenceGap as usize], 1);
    assert_eq!((rig.counters().sessions, rig.counters().pending), (0, 0));
    rig.pass(1900);
    rig.provokes(DropReason::AfterGap, |rig| rig.deliver(home(1), &numbered(1)));
    rig.answer_udp(endpoint(SERVERS[server]), local, b"late");
    assert_eq!(rig.drops(DropReason::SessionUnknown), 1);
    rig.pass(100);
    rig.deliver(home(1), &numbered(1));
    let (again, ..) = arrived(&mut rig).remove(0);
    assert_ne!(again, local, "a new session");
    assert_eq!(rig.counters().pending, 1);
}

#[test]
fn who_is_half_open_is_guarded_too() {
    let mut rig = plain_rig(|rules| rules.sequence = Some(unet(false)));
    rig.deliver(home(1), &numbered(9));
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(9)));
    rig.provokes(DropReason::SequenceGap, |rig| rig.deliver(home(1), &numbered(9 + 513)));
    assert_eq!(rig.counters().pending, 0);
    rig.provokes(DropReason::AfterGap, |rig| rig.deliver(home(1), &numbered(10)));
}

#[test]
fn a_servers_copies_are_told_where_both_sides_are_guarded() {
    for both in [true, false] {
        let (mut rig, (local, server)) = if both {
            let mut rig = plain_rig(|rules| {
                rules.sequence = Some(unet(true));
                rules.answer_times = 0;
            });
            rig.deliver(home(1), &numbered(0));
            let (local, server, _) = arrived(&mut rig).remove(0);
            (rig, (local, server))
        } else {
            guarded(false)
        };
        let from = endpoint(SERVERS[server]);
        for number in [7, 7, 60_000, 6, 6, 5000] {
            rig.answer_udp(from, local, &numbered(number));
        }
        let passed: Vec<_> = rig.take_for(home(1)).iter().map(|it| it[4]).collect();
        let all = [7, 7, 60_000_u16 as u8, 6, 6, 5000_u16 as u8];
        let once = [7, 6, 5000_u16 as u8];
        assert_eq!(passed, if both { &once[..] } else { &all[..] });
        assert_eq!(rig.drops(DropReason::ServerDuplicate), if both { 3 } else { 0 });
    }
}

#[test]
fn a_reload_of_the_guard_begins_anew_and_ends_nothing() {
    let mut setup = plain_setup_with(8, |rules| rules.sequence = Some(unet(false)));
    let mut rig = Rig::new(setup.clone());
    play_with(&mut rig, home(1), [&numbered(1), &numbered(2)]);
    let policy = Policy::new(64, 0).expect("a size");
    rules_of(&mut setup).sequence = Some(crate::setup::Sequence { policy, ..unet(false) });
    rig.mail(Mail::Setup(Arc::new(setup)));
    rig.turn();
    rig.deliver(home(1), &numbered(2000));
    rig.deliver(home(1), &numbered(20_000));
    assert_eq!(arrived(&mut rig).len(), 2);
    rig.provokes(DropReason::ReplayTooOld, |rig| rig.deliver(home(1), &numbered(2000)));
    assert_eq!(rig.sessions(), 1);
}
