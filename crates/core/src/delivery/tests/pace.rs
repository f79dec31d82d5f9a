//! How much gets through, and what it does to the network: losses, narrow places, outages.

use super::world::{Event, MS, Path, SECOND, World};
use crate::delivery::{Channel, Fault, Options};

/// What a transfer has come to.
#[derive(Debug)]
struct Outcome {
    /// Bytes of messages a second, in percent of what the narrow place lets through.
    used_percent: u64,
    /// How long packets wait in front of the narrow place: the median, and the most.
    queued_ms: (u64, u64),
    /// Packets in percent that found no room there.
    overflow_percent: u64,
}

/// Messages of 20 KiB without a pause for so many seconds, of which the first two do not count.
fn transfer(path: &Path, seconds: u64) -> Outcome {
    let back = Path { rate: 0, ..path.clone() };
    let mut world = World::of(path, 7);
    world.paths[1] = back;
    let message = vec![1; 20 * 1024];
    let mut arrived_bytes = 0;
    let mut queued_ns = Vec::new();
    let (start_ns, mut before) = (world.now_ns, (0, 0));
    for step in 0..seconds * 100 {
        while world.ends[0].send(Channel::Reliable(0), &message, None).is_ok() {}
        let end_ns = start_ns + (step + 1) * 10 * MS;
        world.run_until(end_ns, |_, event| {
            if let Event::Message(_, message) = event {
                arrived_bytes += message.len() as u64;
            }
        });
        queued_ns.push(world.queued_ns(0));
        if step == 200 {
            (arrived_bytes, before) = (0, (world.overflowed, world.sent[0].0));
            queued_ns.clear();
        }
    }
    queued_ns.sort_unstable();
    let sent = world.sent[0].0 - before.1;
    let outcome = Outcome {
        used_percent: arrived_bytes * 100 / (path.rate * (seconds - 2)),
        queued_ms: (queued_ns[queued_ns.len() / 2] / MS, queued_ns[queued_ns.len() - 1] / MS),
        overflow_percent: (world.overflowed - before.0) * 100 / sent.max(1),
    };
    eprintln!("{path:?}: {outcome:?}");
    outcome
}

/// 4 Mbit/s, 50 ms there and back, and a queue of 100 ms.
fn narrow() -> Path {
    Path { rate: 500_000, queue_bytes: 50_000, ..Path::good(25 * MS) }
}

#[test]
fn random_losses_cost_what_they_take_and_little_more() {
    for (loss_percent, least) in [(0, 80), (2, 75), (5, 70), (10, 65), (20, 50), (30, 40)] {
        let outcome = transfer(&Path { loss_percent, ..narrow() }, 12);
        assert!(outcome.used_percent >= least, "{loss_percent} %: {outcome:?}");
        assert!(outcome.overflow_percent <= 5, "{loss_percent} %: {outcome:?}");
    }
}

#[test]
fn a_deep_queue_is_not_filled() {
    let outcome = transfer(&Path { queue_bytes: 1_000_000, ..narrow() }, 12);
    assert!(outcome.used_percent >= 80, "{outcome:?}");
    assert!(outcome.queued_ms.0 <= 80 && outcome.queued_ms.1 <= 300, "{outcome:?}");
}

#[test]
fn a_queue_of_few_packets_is_not_run_over() {
    let outcome = transfer(&Path { queue_bytes: 12_000, ..narrow() }, 12);
    assert!(outcome.used_percent >= 60, "{outcome:?}");
    assert!(outcome.overflow_percent <= 25, "{outcome:?}");
}

#[test]
fn a_slow_link_carries_what_it_can() {
    let modem = Path { rate: 16_000, queue_bytes: 8_000, ..Path::good(50 * MS) };
    let outcome = transfer(&modem, 30);
    assert!(outcome.used_percent >= 50, "{outcome:?}");
    assert!(outcome.overflow_percent <= 30, "{outcome:?}");
}

#[test]
fn an_outage_is_asked_about_once_a_second_and_survived() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let message = vec![1; 20_000];
    for _ in 0..10 {
        world.ends[0].send(Channel::Reliable(0), &message, None).expect("room");
    }
    world.paths.iter_mut().for_each(|path| path.loss_percent = 100);
    let sent_before = world.sent[0].0;
    let end_ns = world.now_ns + 25 * SECOND;
    world.run_until(end_ns, |_, event| panic!("{event:?}"));
    let sent = world.sent[0].0 - sent_before;
    assert!((20..60).contains(&sent), "{sent} packets in an outage of 25 s");
    world.paths.iter_mut().for_each(|path| path.loss_percent = 0);
    let mut arrived = 0;
    let is_message = |event: &Event| matches!(event, Event::Message(..));
    assert!(world.settle(3 * SECOND, |_, event| arrived += u32::from(is_message(&event))));
    assert_eq!(arrived, 10);
}

#[test]
fn half_a_minute_without_an_answer_is_the_end() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    world.paths[1].loss_percent = 100;
    world.ends[0].send(Channel::Reliable(0), b"is anybody there", Some(1)).expect("room");
    let end_ns = world.now_ns + 29 * SECOND;
    world.run_until(end_ns, |_, _| ());
    assert_eq!(world.ends[0].fault(), None);
    world.run_until(end_ns + 2 * SECOND, |_, _| ());
    assert_eq!(world.ends[0].fault(), Some(Fault::Silence));
    assert_eq!((world.ends[0].poll_timeout(), world.ends[1].fault()), (None, None));
}

#[test]
fn one_way_that_fails_for_a_while_leaves_none_stuck() {
    for deaf in [0, 1] {
        let mut world = World::of(&Path::good(10 * MS), 1);
        world.paths[1 - deaf].loss_percent = 100;
        let end_ns = world.now_ns + 20 * SECOND;
        while world.now_ns < end_ns {
            for end in &mut world.ends {
                let _ = end.send(Channel::Reliable(0), &[1; 500], None);
                let _ = end.send(Channel::Unreliable(0), &[1; 500], None);
            }
            let next_ns = world.now_ns + 33 * MS;
            world.run_until(next_ns, |_, _| ());
        }
        assert!(world.ends.iter().all(|end| end.fault().is_none()));
        world.paths[1 - deaf].loss_percent = 0;
        assert!(world.settle(10 * SECOND, |_, _| ()), "{deaf}");
    }
}

/// How long messages of that length take, 30 a second, both ways in use: the median, the 99th
/// percentile and the longest, in milliseconds. The network takes 25 ms and loses every twentieth.
fn latencies_ms(channel: Channel, len: usize) -> [u64; 3] {
    let path = Path { loss_percent: 5, ..Path::good(25 * MS) };
    let mut world = World::of(&path, 5);
    let mut latencies_ms = Vec::new();
    for _ in 0..1500 {
        let mut message = vec![0; len];
        message[..8].copy_from_slice(&world.now_ns.to_le_bytes());
        world.ends[0].send(channel, &message, None).expect("room");
        world.ends[1].send(Channel::Unreliable(0), &[1; 60], None).expect("room");
        for _ in 0..33 {
            let end_ns = world.now_ns + MS;
            world.run_until(end_ns, |at, event| {
                if let (1, Event::Message(_, message)) = (at, event) {
                    let sent_ns = u64::from_le_bytes(message[..8].try_into().expect("a stamp"));
                    latencies_ms.push(end_ns.saturating_sub(sent_ns) / MS);
                }
            });
        }
    }
    latencies_ms.sort_unstable();
    let at = |percent: usize| latencies_ms[(latencies_ms.len() - 1) * percent / 100];
    [at(50), at(99), at(100)]
}

#[test]
fn a_lost_message_is_late_by_little_more_than_a_round_trip() {
    for (len, bounds) in [(200, [26, 130, 250]), (20_000, [80, 200, 350])] {
        let found = latencies_ms(Channel::Reliable(0), len);
        eprintln!("{len} bytes: {found:?}");
        let is_within = found.iter().zip(bounds).all(|(found, bound)| *found <= bound);
        assert!(is_within, "{len} bytes: {found:?} of {bounds:?}");
    }
}

/// Bytes of messages that arrive at each end in five seconds over so much each way, when there is
/// always more: from the first end, or from both.
fn filled(ms: u64, loss_percent: u64, both: bool) -> [u64; 2] {
    let options = Options { reliable_bytes_max: 1024 * 1024, ..Options::default() };
    let path = Path { loss_percent, ..Path::good(ms * MS) };
    let mut world = World::new([options; 2], [path.clone(), path], 3);
    let (message, mut bytes) = (vec![1; 20 * 1024], [0; 2]);
    for _ in 0..500 {
        for end in &mut world.ends[..=usize::from(both)] {
            while end.send(Channel::Reliable(0), &message, None).is_ok() {}
        }
        let end_ns = world.now_ns + 10 * MS;
        world.run_until(end_ns, |at, event| {
            if let Event::Message(_, message) = event {
                bytes[at] += message.len() as u64;
            }
        });
    }
    bytes
}

#[test]
fn losses_do_not_stop_a_channel_that_fills_a_history() {
    let [none, some, many] = [0, 5, 10].map(|loss| filled(25, loss, false)[1]);
    eprintln!("{none} {some} {many}");
    // 242 packets in each round trip, without the start.
    assert!(none > 4 * 5_200_000, "{none}");
    assert!(some * 100 > none * 86, "{some} of {none}");
    assert!(many * 100 > none * 76, "{many} of {none}");
}

#[test]
fn both_ends_fill_a_history_at_once_and_neither_waits_for_the_other() {
    let alone = filled(50, 0, false)[1];
    assert!(alone > 4 * 2_600_000, "{alone}");
    for loss_percent in [0, 5] {
        let alone = filled(50, loss_percent, false)[1];
        for bytes in filled(50, loss_percent, true) {
            assert!(bytes * 100 > alone * 93, "{loss_percent} %: {bytes} of {alone}");
        }
    }
}

/// Few numbers are left to ask with, and they last until the network is back.
#[test]
fn an_outage_with_a_full_history_is_survived() {
    for outage_s in [3, 12, 28] {
        let mut world = World::of(&Path::good(50 * MS), 1);
        let message = vec![1; 60_000];
        let mut arrived = 0;
        let mut count = |event| arrived += u32::from(matches!(event, Event::Message(..)));
        let mut sent = 0;
        let lively_ns = world.now_ns + 2 * SECOND;
        while world.now_ns < lively_ns {
            while world.ends[0].send(Channel::Reliable(0), &message, None).is_ok() {
                sent += 1;
            }
            let end_ns = world.now_ns + 5 * MS;
            world.run_until(end_ns, |_, event| count(event));
        }
        world.paths.iter_mut().for_each(|path| path.loss_percent = 100);
        let end_ns = world.now_ns + outage_s * SECOND;
        world.run_until(end_ns, |_, event| count(event));
        assert_eq!(world.ends[0].fault(), None);
        world.paths.iter_mut().for_each(|path| path.loss_percent = 0);
        assert!(world.settle(5 * SECOND, |_, event| count(event)), "{outage_s} s");
        assert_eq!(arrived, sent);
    }
}
