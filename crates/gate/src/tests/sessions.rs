//! A session's life: what moves its window, what keeps it alive, how it ends.

use super::clients::{Scribe, forged};
use super::games::{Game, Heard};
use super::rig::{Rig, home, netcode_rules, plain_setup};
use crate::counters::Ended;
use crate::mail::Mail;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::{KeepAlive, PacketKind};
use ringgate_core::proto::replay::Policy;
use ringgate_link::bundle::CloseReason;

fn playing() -> (Rig, Game, Scribe) {
    playing_with(|_| {})
}

fn playing_with(
    change: impl FnOnce(&mut ringgate_core::netcode::TokenSpec),
) -> (Rig, Game, Scribe) {
    playing_in(plain_setup(), change)
}

fn playing_in(
    setup: Setup,
    change: impl FnOnce(&mut ringgate_core::netcode::TokenSpec),
) -> (Rig, Game, Scribe) {
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token_with(1, change));
    scribe.connect(&mut rig, home(1));
    (rig, game, scribe)
}

#[test]
fn a_forged_packet_moves_no_window() {
    let (mut rig, game, scribe) = playing();
    rig.deliver(home(1), &scribe.payload(2, b"first"));
    for sequence in [3, 300, 1 << 40, u64::MAX] {
        rig.deliver(home(1), &forged(scribe.payload(sequence, b"forged")));
    }
    rig.deliver(home(1), &scribe.payload(3, b"second"));
    assert_eq!(game.payloads(&mut rig), [&b"first"[..], b"second"]);
    assert_eq!(rig.drops(DropReason::PacketForged), 4);
}

#[test]
fn a_forged_gap_ends_no_session_and_an_authentic_one_does() {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).replay = Policy::new(256, 100).expect("a power of two");
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.payload(2, b"x"));
    let session = game.guests(&mut rig)[0].session;
    rig.deliver(home(1), &forged(scribe.payload(1 << 50, b"x")));
    assert_eq!(rig.sessions(), 1);
    rig.take_for(home(1));
    rig.deliver(home(1), &scribe.payload(103, b"x"));
    assert_eq!(rig.counters().sessions_closed[Ended::SequenceGap as usize], 1);
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::SequenceGap)]);
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Disconnect; 10]);
}

#[test]
fn until_a_player_is_heard_each_payload_follows_a_keep_alive() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::KeepAlive], "the welcome");
    for _ in 0..2 {
        game.say(&mut rig, |w| w.payload(session, b"x"));
        assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::KeepAlive, PacketKind::Payload]);
    }
    rig.deliver(home(1), &scribe.keep_alive(2));
    game.say(&mut rig, |w| w.payload(session, b"x"));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Payload]);
}

#[test]
fn a_keep_alive_says_slot_and_slots_ten_times_a_second_where_nothing_else_is_said() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.take_for(home(1));
    let mut sequence = 2;
    let mut live = |rig: &mut Rig, ms: u64, speak: bool| {
        for _ in 0..ms / 50 {
            rig.pass(50);
            rig.deliver(home(1), &scribe.keep_alive(sequence));
            sequence += 1;
            if speak {
                game.say(rig, |w| w.payload(session, b"x"));
            }
        }
    };
    live(&mut rig, 1000, false);
    let sent = rig.take_for(home(1));
    assert!((9..=10).contains(&sent.len()), "{}", sent.len());
    for packet in sent {
        let (kind, body) = scribe.open(&packet).expect("ours");
        assert_eq!(kind, PacketKind::KeepAlive);
        assert_eq!(KeepAlive::decode(&body), Ok(KeepAlive { slot: 0, slots: 4 }));
    }
    live(&mut rig, 1000, true);
    let kinds = scribe.kinds(&mut rig, home(1));
    assert!(kinds.iter().all(|kind| *kind == PacketKind::Payload), "any packet counts");
}

#[test]
fn a_player_who_leaves_is_told_nothing() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.take_for(home(1));
    rig.deliver(home(1), &scribe.disconnect(2));
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::PlayerLeft)]);
    assert!(rig.take_for(home(1)).is_empty());
    assert_eq!(rig.counters().sessions_closed[Ended::ByPlayer as usize], 1);
    // The other nine goodbyes are no junk.
    (3..12).for_each(|sequence| rig.deliver(home(1), &scribe.disconnect(sequence)));
    let reasons = [DropReason::SessionEnded, DropReason::UnknownSource];
    assert_eq!(reasons.map(|reason| rig.drops(reason)), [9, 0]);
    rig.jump(31_000);
    rig.provokes(DropReason::UnknownSource, |rig| rig.deliver(home(1), &scribe.disconnect(12)));
}

#[test]
fn a_game_process_that_closes_a_session_has_the_player_told_ten_times() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.take_for(home(1));
    game.say(&mut rig, |w| w.close(session, CloseReason::Kicked));
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::Kicked)]);
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Disconnect; 10]);
    assert_eq!(rig.counters().sessions_closed[Ended::ByBackend as usize], 1);
    game.say(&mut rig, |w| w.close(session, CloseReason::Kicked));
    assert!(game.hear(&mut rig).is_empty(), "it is over already");
}

/// Keep-alives that a player who is heard ten times a second gets in four seconds.
fn keep_alives_in_4_s(every_ms: u64, timeout_seconds: i32, heard: bool) -> usize {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).keep_alive_ns = every_ms * 1_000_000;
    let (mut rig, _game, scribe) = playing_in(setup, |spec| spec.timeout_seconds = timeout_seconds);
    rig.take_for(home(1));
    for sequence in 2..42 {
        if heard {
            rig.deliver(home(1), &scribe.keep_alive(sequence));
        }
        rig.pass(100);
    }
    scribe.kinds(&mut rig, home(1)).len()
}

#[test]
fn keep_alives_follow_the_listener_s_pace_once_the_player_is_heard() {
    assert!((7..=8).contains(&keep_alives_in_4_s(500, 60, true)));
    assert_eq!(keep_alives_in_4_s(10_000, 60, true), 0);
    assert_eq!(keep_alives_in_4_s(3000, -1, true), 1, "no timeout, no bound");
    // A token whose timeout is short is served in time all the same.
    assert!((3..=4).contains(&keep_alives_in_4_s(10_000, 4, true)));
    // A player who may not know yet that it is connected is told at netcode's pace, then after
    // twice the time each.
    assert!((5..=7).contains(&keep_alives_in_4_s(10_000, 60, false)));
    assert!((38..=40).contains(&keep_alives_in_4_s(100, 60, false)), "as often as all others");
}

/// For how long a session lives after its player was last heard.
fn silence_survived_ms(timeout_seconds: i32) -> Option<u64> {
    let (mut rig, game, scribe) = playing_with(|spec| spec.timeout_seconds = timeout_seconds);
    let session = game.guests(&mut rig)[0].session;
    rig.pass(500);
    rig.deliver(home(1), &scribe.keep_alive(2));
    rig.take_for(home(1));
    for ms in (0..60_000).step_by(10) {
        if rig.sessions() == 0 {
            assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::TimedOut)]);
            let kinds = scribe.kinds(&mut rig, home(1));
            assert!(kinds.iter().all(|kind| *kind == PacketKind::KeepAlive), "silence for silence");
            return Some(ms);
        }
        rig.pass(10);
    }
    None
}

#[test]
fn silence_ends_a_session_after_the_tokens_timeout() {
    for seconds in [1, 2, 5] {
        let survived_ms = silence_survived_ms(seconds).expect("not for ever");
        let timeout_ms = seconds as u64 * 1000;
        assert!((timeout_ms..=timeout_ms + 10).contains(&survived_ms), "{survived_ms}");
    }
}

#[test]
fn no_silence_ends_a_session_without_a_timeout() {
    assert_eq!(silence_survived_ms(-1), None);
    assert_eq!(silence_survived_ms(0), None);
}

#[test]
fn what_proves_nothing_keeps_no_session_alive() {
    let (mut rig, _game, scribe) = playing();
    let response = scribe.packet(PacketKind::Response, 1, &[0; 308]);
    let keep_alive = scribe.keep_alive(2);
    rig.deliver(home(1), &keep_alive);
    for _ in 0..60 {
        rig.pass(100);
        for packet in [&response, &keep_alive, &scribe.request(), &forged(scribe.keep_alive(9))] {
            rig.deliver(home(1), packet);
        }
    }
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 1);
}

#[test]
fn a_jump_of_the_clock_times_out_who_was_not_heard_and_harms_nothing_else() {
    let (mut rig, _game, _) = playing();
    rig.jump(3_600_000);
    rig.turn();
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 1);
    // Tokens go by the other clock, which may jump back.
    rig.now.unix_s -= 10_000;
    Scribe::new(&rig.token(2)).connect(&mut rig, home(2));
    assert_eq!(rig.sessions(), 1);
    rig.pass(1000);
}

#[test]
fn stopping_tells_every_player_and_every_game_process() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.take_for(home(1));
    rig.mail(Mail::Stop);
    rig.turn();
    assert!(rig.host.gate().is_stopped());
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Disconnect; 10]);
    let heard = game.hear(&mut rig);
    assert_eq!(heard[0], Heard::Closed(session, CloseReason::Shutdown));
    assert!(matches!(heard[1], Heard::Goodbye(_)), "{heard:?}");
    assert_eq!(rig.counters().sessions_closed[Ended::Shutdown as usize], 1);
    let late = Scribe::new(&rig.token(2));
    rig.provokes(DropReason::Draining, |rig| rig.deliver(home(2), &late.request()));
}

#[test]
fn stragglers_of_a_session_are_told_from_junk_however_it_ended() {
    type End = fn(&mut Rig, &Game, &Scribe);
    let ends: [End; 4] = [
        |rig, _, scribe| {
            // All ten goodbyes in one turn.
            (3..12).for_each(|sequence| rig.push(home(1), &scribe.disconnect(sequence)));
            rig.turn();
        },
        |rig, game, _| {
            let session = game.guests(rig)[0].session;
            game.say(rig, |w| w.close(session, CloseReason::Kicked));
        },
        |rig, _, _| rig.pass(10_000),
        |rig, _, scribe| rig.deliver(home(1), &scribe.payload(1 << 20, b"x")),
    ];
    for (at, end) in ends.into_iter().enumerate() {
        let mut setup = plain_setup();
        netcode_rules(&mut setup).replay = Policy::new(256, 1000).expect("a power of two");
        let (mut rig, game, scribe) = playing_in(setup, |_| {});
        rig.deliver(home(1), &scribe.payload(2, b"x"));
        end(&mut rig, &game, &scribe);
        assert_eq!(rig.sessions(), 0);
        assert_eq!(rig.drops(DropReason::SessionEnded), if at == 0 { 8 } else { 0 });
        let next = if at == 3 { (1 << 20) + 1 } else { 30 };
        rig.provokes(DropReason::SessionEnded, |rig| {
            rig.deliver(home(1), &scribe.payload(next, b"x"));
        });
        // From elsewhere, or numbered otherwise, it is none.
        for (from, sequence) in [(home(2), next), (home(1), 1 << 30)] {
            rig.provokes(DropReason::UnknownSource, |rig| {
                rig.deliver(from, &scribe.payload(sequence, b"x"));
            });
        }
    }
}

#[test]
fn who_moves_to_a_port_that_a_neighbour_has_left_is_followed() {
    let (mut rig, game, scribe) = playing();
    rig.deliver(home(1), &scribe.payload(2, b"x"));
    let neighbour = Scribe::new(&rig.token(2));
    let (before, after) = (home(1).with_port(6000), home(1));
    neighbour.connect(&mut rig, before);
    rig.deliver(before, &neighbour.payload(9_000, b"x"));
    rig.deliver(home(1), &scribe.disconnect(3));
    game.hear(&mut rig);
    rig.deliver(after, &neighbour.payload(9_001, b"moved"));
    assert_eq!(
        (rig.counters().port_switches, game.payloads(&mut rig)),
        (1, vec![b"moved".to_vec()])
    );
}
