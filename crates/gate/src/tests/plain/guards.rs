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

/// Guarded by numbers that may jump.
fn unlimited() -> (Rig, (LocalIp, usize)) {
    let policy = Policy::new(256, 0).expect("a size");
    let mut rig = plain_rig(|rules| {
        rules.sequence = Some(crate::setup::Sequence { policy, ..unet(false) });
    });
    let player = play_with(&mut rig, home(1), [&numbered(353), &numbered(354)]);
    (rig, player)
}

#[test]
fn numbers_that_are_made_up_silence_no_player() {
    let (mut rig, _) = unlimited();
    let far = DropReason::GapUnconfirmed;
    for number in 355..655 {
        rig.pass(33);
        // Far ahead alone, in a row, and as a copy; and two that a loss might have brought.
        let ahead = number + 32_000;
        for made_up in [ahead, ahead + 1, ahead + 1] {
            rig.provokes(far, |rig| rig.deliver(home(1), &numbered(made_up)));
        }
        if number == 400 {
            (1..=2).for_each(|it| rig.deliver(home(1), &numbered(number - 1 + it * 128)));
        }
        arrived(&mut rig);
        rig.deliver(home(1), &numbered(number));
        let passed = arrived(&mut rig).len();
        // A made-up one has used it up.
        assert_eq!(passed, usize::from(number != 527), "{number}");
    }
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(654)));
}

#[test]
fn a_player_goes_on_after_a_long_loss_and_old_numbers_stay_refused() {
    let (mut rig, _) = unlimited();
    let far = DropReason::GapUnconfirmed;
    rig.pass(1900);
    rig.provokes(far, |rig| rig.deliver(home(1), &numbered(20_000)));
    rig.provokes(far, |rig| rig.deliver(home(1), &numbered(20_001)));
    rig.pass(200);
    rig.provokes(far, |rig| rig.deliver(home(1), &numbered(20_002)));
    rig.deliver(home(1), &numbered(355));
    rig.pass(2100);
    rig.provokes(far, |rig| rig.deliver(home(1), &numbered(20_003)));
    arrived(&mut rig);
    rig.deliver(home(1), &numbered(20_004));
    assert_eq!(arrived(&mut rig).len(), 1);
    rig.deliver(home(1), &numbered(20_003));
    assert_eq!(arrived(&mut rig).len(), 1, "it was refused, and may come late");
    for old in [353, 354, 355] {
        rig.provokes(DropReason::ReplayTooOld, |rig| rig.deliver(home(1), &numbered(old)));
    }
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(20_004)));
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
    let mut reload = |rig: &mut Rig, bits, gap_limit| {
        let policy = Policy::new(bits, gap_limit).expect("a size");
        rules_of(&mut setup).sequence = Some(crate::setup::Sequence { policy, ..unet(false) });
        rig.mail(Mail::Setup(Arc::new(setup.clone())));
        rig.turn();
    };
    reload(&mut rig, 512, 100);
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(2)));
    reload(&mut rig, 64, 0);
    rig.deliver(home(1), &numbered(2000));
    rig.deliver(home(1), &numbered(2032));
    rig.deliver(home(1), &numbered(2064));
    assert_eq!(arrived(&mut rig).len(), 3);
    rig.provokes(DropReason::ReplayTooOld, |rig| rig.deliver(home(1), &numbered(2000)));
    assert_eq!(rig.sessions(), 1);
}
