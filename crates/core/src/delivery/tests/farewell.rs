//! What is said last: behind everything that was sent, over networks that lose and reorder, to ends
//! that take it and to those of earlier releases.

use super::handed::{take_farewells, written_farewells};
use super::world::{Event, MS, Path, SECOND, World};
use crate::delivery::{Channel, End, Fault, Options, Refusal, SendError};
use crate::proto::delivery::{FAREWELL_BYTES_MAX, Frame, read_header, write_header};
use crate::proto::notify::{Notify, PacketSeq};

/// A gateway's end, and a player's that takes farewells or is of an earlier release.
fn world(path: &Path, takes_farewell: bool, seed: u64) -> World {
    let player = Options { takes_farewell, ..Options::default() };
    World::new([Options::default(), player], [path.clone(), path.clone()], seed)
}

fn bad_path() -> Path {
    Path { loss_percent: 25, duplicate_percent: 10, delay_ns: 10 * MS..90 * MS, ..Path::good(0) }
}

/// Lets time pass until the first end has said all. How many messages have come, if it has.
fn until_said(world: &mut World, within_ns: u64) -> Option<usize> {
    let (mut came, end_ns) = (0, world.now_ns + within_ns);
    while !world.ends[0].has_said_all() {
        if world.now_ns >= end_ns {
            return None;
        }
        world.run_until(world.now_ns + 5 * MS, |at, event| {
            came += usize::from(at == 1 && matches!(event, Event::Message(..)));
        });
    }
    Some(came)
}

#[test]
fn all_that_was_sent_before_a_farewell_arrives_and_so_does_it() {
    for seed in 0..20 {
        let mut world = world(&bad_path(), true, seed);
        for n in 0..60_u8 {
            let message = vec![n; 1 + 40 * usize::from(n)];
            world.ends[0].send(Channel::Reliable(n % 3), &message, None).expect("there is room");
        }
        world.ends[0].say_farewell(129, b"go away");
        assert_eq!(world.ends[0].undelivered().0, 60);
        let hand_over_ns = world.now_ns + 60 * MS;
        let mut came = 0;
        world.run_until(hand_over_ns, |at, event| {
            came += usize::from(at == 1 && matches!(event, Event::Message(..)));
        });
        if seed % 2 == 0 {
            world.hand_over(0);
        }
        let late = until_said(&mut world, 30 * SECOND);
        assert_eq!(late.map(|late| came + late), Some(60), "seed {seed}");
        assert!(world.ends[0].has_told_farewell(), "seed {seed}");
        assert_eq!(world.ends[1].farewell(), Some((129, &b"go away"[..])));
        assert_eq!(world.ends[0].undelivered(), (0, 0));
    }
}

#[test]
fn nothing_more_is_taken_behind_a_farewell_and_the_first_one_counts() {
    let mut world = world(&Path::good(10 * MS), true, 1);
    world.ends[0].say_farewell(128, b"");
    world.ends[0].say_farewell(129, b"too late");
    let sent = world.ends[0].send(Channel::Unreliable(0), b"x", None);
    assert_eq!(sent, Err(SendError::Closed));
    assert_eq!(until_said(&mut world, SECOND), Some(0));
    assert_eq!(world.ends[1].farewell(), Some((128, &b""[..])));
    assert!(world.ends[1].send(Channel::Reliable(0), b"answer", None).is_ok(), "the other may");
}

#[test]
fn a_text_is_as_long_as_it_may_be_and_as_packets_are() {
    for (packet_bytes, expected) in [(1200, FAREWELL_BYTES_MAX), (200, 159)] {
        let mut world = world(&Path::good(MS), true, 1);
        world.ends[0] = End::new(&Options { packet_bytes, ..Options::default() }, world.now_ns);
        world.ends[0].say_farewell(1, &[b'x'; 300]);
        until_said(&mut world, SECOND).expect("it arrives");
        let heard = world.ends[1].farewell().map(|(_, text)| text.len());
        assert_eq!(heard, Some(expected));
    }
}

#[test]
fn an_end_of_an_earlier_release_gets_all_messages_and_no_farewell() {
    for seed in 0..5 {
        let mut world = world(&bad_path(), false, seed);
        for n in 0..30 {
            world.ends[0].send(Channel::Reliable(0), &[n; 900], None).expect("there is room");
        }
        world.ends[0].say_farewell(129, b"go away");
        // It would break the connection, which the world does not let pass.
        assert_eq!(until_said(&mut world, 30 * SECOND), Some(30));
        assert!(!world.ends[0].has_told_farewell() && world.ends[1].farewell().is_none());
    }
}

#[test]
fn an_end_of_an_earlier_release_takes_the_mark_for_pings() {
    let mut player = End::new(&Options { takes_farewell: true, ..Options::default() }, 0);
    player.send(Channel::Reliable(0), b"hello", None).expect("there is room");
    let mut packet = [0; 1200];
    let len = player.poll_transmit(0, &mut packet).expect("it is sent at once");
    let (_, mut frames) = read_header(&packet[..len]).expect("an honest end");
    assert!(matches!(Frame::read(&mut frames), Some(Frame::Reliable(_))));
    assert_eq!(Frame::read(&mut frames), Some(Frame::Ping));
    assert_eq!(Frame::read(&mut frames), Some(Frame::Ping));
    assert!(frames.is_empty());
}

#[test]
fn a_mark_is_said_until_it_is_known_and_not_longer() {
    let mut world = world(&Path::good(10 * MS), true, 1);
    world.run_until(world.now_ns + 5 * SECOND, |_, _| ());
    // The mark, and a heartbeat each second; on the other side an acknowledgement and those.
    assert!(world.sent[1].0 <= 7, "{:?}", world.sent);
    assert_eq!(world.ends[1].heap_bytes(), world.ends[0].heap_bytes());
}

#[test]
fn a_farewell_to_an_end_that_takes_none_breaks_the_connection() {
    for takes_farewell in [false, true] {
        let mut end = End::new(&Options { takes_farewell, ..Options::default() }, 0);
        let zero = PacketSeq::new(0);
        let mut packet = [0; 1200];
        let mut len = write_header(&Notify::starting_at(zero, zero), &mut packet);
        len += Frame::Farewell { reason: 1, text: b"x" }.write(&mut packet[len..]);
        let taken = end.handle_packet(0, &packet[..len], |_, _| ());
        let refused = Err(Refusal::Fault(Fault::Malformed));
        assert_eq!(taken, if takes_farewell { Ok(()) } else { refused });
    }
    // One that is too long, cut off, or has a bit more, is none.
    let frame = |bytes: &[u8]| Frame::read(&mut &bytes[..]).is_some();
    let text = |len: u8| [&[0x20, 1, len][..], &[7; 201]].concat();
    assert!(frame(&text(200)) && !frame(&text(201)));
    assert!(!frame(&text(200)[..202]) && !frame(&[0x20]) && !frame(&[0x24, 1, 0]));
}

#[test]
fn nothing_that_another_process_writes_makes_a_farewell_longer() {
    let end = End::new(&Options::default(), 0);
    let mut fresh = End::new(&Options::default(), 0);
    let mut bytes = written_farewells(&end);
    assert_eq!(take_farewells(&mut fresh, &bytes), Ok(()));
    bytes.push(0);
    assert!(take_farewells(&mut fresh, &bytes).is_err());
    let mut end = End::new(&Options::default(), 0);
    end.say_farewell(1, &[7; 200]);
    let mut bytes = written_farewells(&end);
    assert_eq!(take_farewells(&mut fresh, &bytes), Ok(()));
    let len_at = bytes.len() - 204;
    assert_eq!(bytes[len_at..len_at + 4], 200_u32.to_le_bytes());
    bytes[len_at] = 201;
    bytes.push(7);
    assert!(take_farewells(&mut fresh, &bytes).is_err());
}
