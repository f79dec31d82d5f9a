//! What each kind of channel promises, and what a quiet connection costs.

use super::world::{Event, MS, Path, SECOND, World};
use crate::delivery::{Channel, End, Options, Refusal, Report, SendError};

/// Everything that happens at both ends within so long.
fn events(world: &mut World, within_ns: u64) -> Vec<(usize, Event)> {
    let mut events = Vec::new();
    let end_ns = world.now_ns + within_ns;
    world.run_until(end_ns, |at, event| events.push((at, event)));
    events
}

fn message(channel: Channel, bytes: &[u8]) -> (usize, Event) {
    (1, Event::Message(channel, bytes.to_vec()))
}

fn delivered(token: u64) -> (usize, Event) {
    (0, Event::Report(Report { token, is_delivered: true }))
}

#[test]
fn a_message_of_each_kind_arrives_and_is_reported() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let channels = [Channel::Reliable(0), Channel::Sequenced(7), Channel::Unreliable(255)];
    for (token, channel) in channels.into_iter().enumerate() {
        world.ends[0].send(channel, b"hello", Some(token as u64)).expect("room");
    }
    let mut found = events(&mut world, 900 * MS);
    found.sort_by_key(|(at, event)| (*at, format!("{event:?}")));
    let mut expected: Vec<_> = (0..3).map(delivered).collect();
    expected.extend(channels.map(|channel| message(channel, b"hello")));
    assert_eq!(found, expected);
    assert_eq!(world.sent[0].0, 1, "one packet holds them all");
}

#[test]
fn a_message_of_64_kib_arrives_whole_and_a_longer_one_is_refused() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let longest: Vec<u8> = (0..64 * 1024_u32).map(|n| (n / 7) as u8).collect();
    let end = &mut world.ends[0];
    assert_eq!(end.send(Channel::Reliable(9), &longest, Some(1)), Ok(()));
    let longer = [&longest[..], &[1]].concat();
    assert_eq!(end.send(Channel::Reliable(9), &longer, None), Err(SendError::TooLong));
    assert_eq!(end.send(Channel::Unreliable(9), &longest[..1159], None), Ok(()));
    assert_eq!(end.send(Channel::Unreliable(9), &longest[..1160], None), Err(SendError::TooLong));
    assert_eq!(end.send(Channel::Reliable(9), &[], None), Err(SendError::Empty));
    let found = events(&mut world, 2 * SECOND);
    assert!(found.contains(&message(Channel::Reliable(9), &longest)));
    assert!(found.contains(&delivered(1)));
}

#[test]
fn a_queue_that_is_full_says_so_until_messages_have_arrived() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let message = vec![1; 32 * 1024];
    let taken =
        (0..10).take_while(|_| world.ends[0].send(Channel::Reliable(0), &message, None).is_ok());
    assert_eq!(taken.count(), 8, "256 KiB");
    assert_eq!(world.ends[0].send(Channel::Reliable(5), &[1], None), Err(SendError::Full));
    assert!(world.settle(10 * SECOND, |_, _| ()));
    assert_eq!(world.ends[0].send(Channel::Reliable(5), &[1], None), Ok(()));
}

#[test]
fn a_message_that_a_queue_never_has_room_for_is_too_long() {
    let options = Options { reliable_bytes_max: 5000, ..Options::default() };
    let mut end = End::new(&options, 0);
    assert_eq!(end.message_bytes_max(Channel::Reliable(0)), 5000);
    assert_eq!(end.send(Channel::Reliable(0), &[1; 5001], None), Err(SendError::TooLong));
    assert_eq!(end.send(Channel::Reliable(0), &[1; 5000], None), Ok(()));
    assert_eq!(end.send(Channel::Reliable(0), &[1], None), Err(SendError::Full));
}

#[test]
fn an_acknowledgement_provokes_none_and_leaves_soon() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let start_ns = world.now_ns;
    world.ends[0].send(Channel::Unreliable(0), b"move", Some(1)).expect("room");
    let mut reported_ns = 0;
    world.run_until(start_ns + 900 * MS, |_, event| {
        if matches!(event, Event::Report(_)) {
            reported_ns = start_ns;
        }
    });
    assert_eq!((world.sent, reported_ns), ([(1, 14), (1, 8)], start_ns));
}

#[test]
fn a_quiet_connection_keeps_alive_at_its_pace() {
    let options = Options { keep_alive_ns: 200 * MS, ..Options::default() };
    let slow = Options { keep_alive_ns: 5 * SECOND, ..Options::default() };
    let path = Path::good(10 * MS);
    let mut world = World::new([options, slow], [path.clone(), path], 1);
    let end_ns = world.now_ns + 100 * SECOND;
    world.run_until(end_ns, |_, event| panic!("{event:?}"));
    assert_eq!((world.sent[0].0, world.sent[1].0), (500, 20));
    // What is known of packets is still told, and the history has not grown for it.
    assert!(world.sent[0].1 <= 500 * 8 && world.sent[1].1 <= 20 * 12, "{:?}", world.sent);
}

#[test]
fn a_quiet_connection_takes_less_than_4_kib() {
    let bytes = |end: &End| size_of_val(end) + end.heap_bytes();
    let path = Path { loss_percent: 10, ..Path::good(10 * MS) };
    let mut world = World::of(&path, 1);
    assert!(bytes(&world.ends[0]) < 2048, "{}", bytes(&world.ends[0]));
    for n in 0..=255 {
        for end in &mut world.ends {
            for channel in [Channel::Reliable(n), Channel::Sequenced(n), Channel::Unreliable(n)] {
                end.send(channel, &[7; 1000], None).expect("room");
            }
            let len = if n % 64 == 0 { 60_000 } else { 1 };
            end.send(Channel::Reliable(n), &vec![7; len], Some(1)).expect("room");
        }
        assert!(world.settle(5 * SECOND, |_, _| ()));
    }
    let is_large = |end: &End| bytes(end) > 64 * 1024;
    assert!(world.ends.iter().all(is_large), "what it has used is kept for the next time");
    let end_ns = world.now_ns + 12 * SECOND;
    world.run_until(end_ns, |_, _| ());
    for end in &world.ends {
        assert!(bytes(end) < 4096, "{}", bytes(end));
    }
    // Every channel goes on where it was, also in another process.
    world.hand_over(0);
    let mut arrived = Vec::new();
    for n in 0..=255 {
        world.ends[0].send(Channel::Reliable(n), &[n; 2000], None).expect("room");
        assert!(world.settle(5 * SECOND, |_, event| match event {
            Event::Message(Channel::Reliable(channel), message) => {
                arrived.push((channel, message));
            }
            event => panic!("{event:?}"),
        }));
    }
    assert!(arrived.into_iter().eq((0..=255).map(|n| (n, vec![n; 2000]))));
}

#[test]
fn a_connection_that_says_something_now_and_then_keeps_its_memory() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    world.ends[0].send(Channel::Reliable(0), &vec![7; 60_000], None).expect("room");
    for _ in 0..10 {
        world.ends[0].send(Channel::Sequenced(0), &[1; 20], None).expect("room");
        let end_ns = world.now_ns + 5 * SECOND;
        world.run_until(end_ns, |_, _| ());
    }
    assert!(world.ends.iter().all(|end| end.heap_bytes() > 60_000), "both have more to do soon");
}

#[test]
fn memory_for_bulk_on_one_channel_is_given_back_for_the_next() {
    let (mut world, message) = (World::of(&Path::good(5 * MS), 1), vec![7; 60_000]);
    for channel in 0..12 {
        for _ in 0..4 {
            world.ends[0].send(Channel::Reliable(channel), &message, None).expect("room");
        }
        assert!(world.settle(10 * SECOND, |_, _| ()));
        let bytes = world.ends[0].heap_bytes();
        assert!(bytes < 1024 * 1024, "{bytes} after channel {channel}");
    }
}

#[test]
fn snapshots_and_bulk_share_packets_fairly() {
    let mut world = World::of(&Path::good(25 * MS), 1);
    let (mut snapshots, mut bulk) = (0, 0);
    let message = vec![1; 20_000];
    for _ in 0..90 {
        let _ = world.ends[0].send(Channel::Reliable(0), &message, None);
        world.ends[0].send(Channel::Sequenced(0), &[2; 600], None).expect("room");
        let end_ns = world.now_ns + 33 * MS;
        world.run_until(end_ns, |_, event| match event {
            Event::Message(Channel::Sequenced(_), _) => snapshots += 1,
            Event::Message(..) => bulk += 1,
            Event::Report(_) => {}
        });
    }
    assert!(snapshots >= 85 && bulk >= 80, "{snapshots} snapshots, {bulk} messages");
}

#[test]
fn what_the_network_does_is_measured() {
    let lossy = Path { loss_percent: 10, ..Path::good(40 * MS) };
    let mut world = World::new([Options::default(); 2], [lossy, Path::good(20 * MS)], 3);
    assert_eq!(world.ends[0].quality().round_trip_ns, 0);
    for _ in 0..300 {
        world.ends[0].send(Channel::Unreliable(0), &[1; 100], None).expect("room");
        let end_ns = world.now_ns + 20 * MS;
        world.run_until(end_ns, |_, _| ());
    }
    let quality = world.ends[0].quality();
    assert!((60 * MS..70 * MS).contains(&quality.round_trip_ns), "{quality:?}");
    assert!((30..250).contains(&quality.loss_per_mille), "{quality:?}");
}

#[test]
fn an_end_that_is_closed_reports_every_message_once_and_says_nothing_more() {
    let mut world = World::of(&Path::good(10 * MS), 1);
    let large = vec![1; 60_000];
    let end = &mut world.ends[0];
    end.send(Channel::Reliable(0), b"arrives", Some(0)).expect("room");
    end.send(Channel::Unreliable(0), b"arrives", Some(1)).expect("room");
    let before = events(&mut world, 100 * MS);
    assert_eq!(before.iter().filter(|event| **event == delivered(0)).count(), 1);
    let end = &mut world.ends[0];
    for (token, channel) in [(2, Channel::Reliable(0)), (3, Channel::Reliable(200))] {
        end.send(channel, &large, Some(token)).expect("room");
    }
    end.send(Channel::Reliable(0), b"nobody asks", None).expect("room");
    end.send(Channel::Unreliable(0), b"leaves", Some(4)).expect("room");
    end.send(Channel::Sequenced(0), b"is replaced", Some(5)).expect("room");
    assert!(end.poll_transmit(world.now_ns, &mut [0; 1200]).is_some());
    end.send(Channel::Unreliable(0), b"waits", Some(6)).expect("room");
    end.send(Channel::Sequenced(0), b"waits", Some(7)).expect("room");
    end.close();
    end.close();
    let mut lost: Vec<_> = std::iter::from_fn(|| end.poll_report()).collect();
    lost.sort_by_key(|report| report.token);
    let all: Vec<_> = (2..8).map(|token| Report { token, is_delivered: false }).collect();
    assert_eq!(lost, all);
    assert_eq!(end.send(Channel::Reliable(0), b"late", None), Err(SendError::Closed));
    assert_eq!((end.poll_timeout(), end.poll_transmit(u64::MAX, &mut [0; 1200])), (None, None));
    let taken = end.handle_packet(world.now_ns, &[0; 8], |_, _| panic!("a message"));
    assert_eq!(taken, Err(Refusal::Closed));
}
