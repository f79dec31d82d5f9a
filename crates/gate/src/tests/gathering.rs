//! A busy worker waits on purpose (`batch_delay`), and what ends or forbids that.

use std::sync::Arc;
use std::time::Duration;

use super::clients::{Player, Scribe};
use super::games::Game;
use super::rig::{Rig, home, plain_setup};
use crate::mail::Mail;
use crate::pace::BatchDelay;
use crate::setup::Setup;
use ringgate_batch::Wait;
use ringgate_link::bundle::Writer;

fn busy_setup(batch_delay: BatchDelay) -> Setup {
    Setup { batch_delay, ..plain_setup() }
}

/// 60,000 datagrams a second, whatever they are.
fn be_busy(rig: &mut Rig, ms: u64) {
    for _ in 0..10 * ms {
        rig.now.mono_ns += 100_000;
        turn_with(rig, 6);
    }
}

fn turn_with(rig: &mut Rig, datagrams: u16) {
    (0..datagrams).for_each(|from| rig.push(home(100 + from), &[0x35; 40]));
    rig.turn();
}

fn gathers(rig: &Rig) -> bool {
    matches!(rig.host.wait(), Wait::Gather(_) | Wait::GatherAnswers(_))
}

#[test]
fn a_busy_worker_waits_for_more_and_a_quiet_one_for_anything() {
    let mut rig = Rig::new(busy_setup(BatchDelay::AUTO));
    assert!(!gathers(&rig));
    be_busy(&mut rig, 20);
    let (Wait::Gather(time) | Wait::GatherAnswers(time)) = rig.host.wait() else {
        panic!("{:?}", rig.host.wait())
    };
    assert!(time <= Duration::from_micros(60) && time >= Duration::from_micros(40), "{time:?}");
    turn_with(&mut rig, 31);
    assert!(gathers(&rig));
    turn_with(&mut rig, 32);
    assert_eq!(rig.host.wait(), Wait::No, "there may be more");
    turn_with(&mut rig, 1);
    assert!(gathers(&rig));
    rig.now.mono_ns += 60_000;
    rig.turn();
    assert!(gathers(&rig), "once is chance");
    rig.now.mono_ns += 60_000;
    rig.turn();
    assert!(!gathers(&rig), "nobody has said anything in two looks");
    turn_with(&mut rig, 1);
    assert!(gathers(&rig), "they are there again");
    rig.pass(50);
    assert!(!gathers(&rig));
    assert_eq!(rig.host.gathers().delay_ns, 0);
}

#[test]
fn what_was_gathered_wakes_the_game_process_once_and_its_answer_is_one_turn() {
    let mut rig = Rig::new(busy_setup(BatchDelay::AUTO));
    let game = Game::join(&mut rig, "arena");
    let players: Vec<_> =
        (1..=4).map(|id| (home(id), Scribe::new(&rig.token(id.into())))).collect();
    for (home, player) in &players {
        player.connect(&mut rig, *home);
        rig.deliver(*home, &player.keep_alive(2));
    }
    let guests = game.guests(&mut rig);
    for sequence in 3..20 {
        for (home, player) in &players {
            rig.push(*home, &player.payload(sequence, b"up"));
        }
        let before = rig.counters().link_datagrams_out;
        rig.turn();
        assert_eq!(rig.counters().link_datagrams_out - before, 1);
        assert_eq!(game.payloads(&mut rig).len(), 4);
        let answer = |w: &mut Writer<'_>| guests.iter().all(|it| w.payload(it.session, b"down"));
        let turns = rig.counters().payloads_down;
        game.say(&mut rig, answer);
        assert_eq!(rig.counters().payloads_down - turns, 4);
    }
}

#[test]
fn a_link_that_answers_does_not_have_players_wait_longer() {
    let mut rig = Rig::new(busy_setup(BatchDelay::AUTO));
    be_busy(&mut rig, 20);
    let wait = rig.host.wait();
    let Wait::GatherAnswers(time) = wait else { panic!("{wait:?}") };
    rig.now.mono_ns += 20_000;
    rig.host.look_at_links();
    rig.turn();
    let rest = time.saturating_sub(Duration::from_micros(20));
    assert_eq!(rig.host.wait(), Wait::Gather(rest), "once in a delay");
    rig.now.mono_ns += rest.as_nanos() as u64;
    turn_with(&mut rig, 3);
    assert!(matches!(rig.host.wait(), Wait::GatherAnswers(_)));
    rig.now.mono_ns += time.as_nanos() as u64 - 5000;
    rig.host.look_at_links();
    rig.turn();
    assert_eq!(rig.host.wait(), Wait::No, "so little is not worth a sleep");
}

#[test]
fn mail_is_not_waited_with() {
    let mut rig = Rig::new(busy_setup(BatchDelay::AUTO));
    be_busy(&mut rig, 20);
    assert!(gathers(&rig));
    rig.mail(Mail::Drain { left_ms: 10 });
    assert_eq!(rig.host.wait(), Wait::No);
    rig.turn();
    assert!(gathers(&rig));
}

#[test]
fn timers_are_as_exact_as_without_waiting() {
    let mut rig = Rig::new(busy_setup(BatchDelay::AtMost(Duration::from_millis(1))));
    let _game = Game::join(&mut rig, "arena");
    let token = rig.token(7);
    Player::new(&rig, home(1), &token).connect(&mut rig);
    be_busy(&mut rig, 20);
    let mut shortened = 0;
    for _ in 0..2000 {
        let due_ns = rig.host.gate().poll_timeout().expect("a player's keep-alives");
        match rig.host.wait() {
            Wait::Gather(time) | Wait::GatherAnswers(time) => {
                let until_ns = rig.now.mono_ns + time.as_nanos() as u64;
                assert!(until_ns <= due_ns, "{until_ns} is later than {due_ns}");
                shortened += u32::from(until_ns == due_ns);
                rig.now.mono_ns = until_ns;
            }
            // What is due is done at once, or so soon that a sleep is not worth it.
            Wait::No => rig.now.mono_ns += 2000,
            Wait::AtMost(_) => panic!("it is busy"),
        }
        turn_with(&mut rig, 24);
    }
    assert!(shortened > 3, "{shortened}");
}

#[test]
fn another_delay_holds_from_the_turn_on_that_brings_it() {
    let mut rig = Rig::new(busy_setup(BatchDelay::OFF));
    be_busy(&mut rig, 20);
    assert!(!gathers(&rig), "it is off");
    rig.mail(Mail::Setup(Arc::new(busy_setup(BatchDelay::AtMost(Duration::from_micros(70))))));
    be_busy(&mut rig, 20);
    assert_eq!(rig.host.wait(), Wait::Gather(Duration::from_micros(70)));
    rig.mail(Mail::Setup(Arc::new(busy_setup(BatchDelay::OFF))));
    turn_with(&mut rig, 6);
    assert!(!gathers(&rig), "and is off again");
}
