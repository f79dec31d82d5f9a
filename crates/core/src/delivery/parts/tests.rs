//! A channel that cuts, repeats and lets go, without packets.

use super::*;

fn packet(number: u64) -> PacketSeq {
    PacketSeq::new(number)
}

fn bytes_of(channel: &OutChannel, index: usize) -> Vec<u8> {
    channel.part(index, &mut Vec::new()).bytes.to_vec()
}

#[test]
fn a_message_is_cut_and_let_go_when_all_of_it_has_arrived() {
    let mut channel = OutChannel::resting(7, PartSeq::new(0));
    let message: Vec<u8> = (0..3400_u32).map(|n| n as u8).collect();
    channel.push(&message, 1000, Some(1));
    channel.push(b"next", 1000, Some(2));
    assert_eq!(channel.cut(packet(0), 1004, 1000), None, "it would need 1005");
    assert_eq!(channel.cut(packet(0), 1005, 1000), Some(0));
    assert_eq!(channel.next_claim(), None, "that is for the first part");
    assert_eq!(channel.cut(packet(1), 1200, 1000), Some(1));
    assert_eq!(channel.cut(packet(2), 1200, 1000), Some(2));
    assert_eq!(channel.cut(packet(3), 1200, 1000), Some(3));
    assert_eq!(channel.cut(packet(3), 600, 1000), Some(4));
    assert_eq!((channel.cut(packet(4), 1200, 1000), channel.is_ready()), (None, false));
    let marks = |index| {
        let mut copy = Vec::new();
        let part = channel.part(index, &mut copy);
        (part.sequence.value(), part.is_first, part.is_last)
    };
    let expected = [(0, true, false), (1, false, false), (3, false, true), (4, true, true)];
    assert_eq!([0, 1, 3, 4].map(marks), expected);
    let all: Vec<u8> = (0..4).flat_map(|index| bytes_of(&channel, index)).collect();
    assert_eq!(all, message);

    for sequence in [4, 0, 2, 3] {
        channel.handle_arrived(PartSeq::new(sequence));
        assert!(channel.done().is_none(), "part 1 is missing");
    }
    channel.handle_lost(PartSeq::new(1), packet(1));
    assert!(channel.is_ready());
    assert_eq!((channel.repeat(packet(5), 900), channel.repeat(packet(5), 1200)), (None, Some(0)));
    assert_eq!(bytes_of(&channel, 0), message[1000..2000]);
    channel.handle_lost(PartSeq::new(1), packet(1));
    assert_eq!(channel.lost(), 0, "it was sent again since");
    channel.handle_arrived(PartSeq::new(1));
    let done = channel.done().expect("all of it");
    assert_eq!((done.bytes, done.token), (3400, Some(1)));
    let bytes = (3 * cost_of_part(1000) + cost_of_part(400)) as u32;
    assert_eq!(done.claim, Claim { bytes, is_large: true });
    assert_eq!(channel.done().map(|done| done.bytes), Some(128));
    assert!(channel.done().is_none() && !channel.is_ready());
}

#[test]
fn numbers_wrap_and_bytes_go_round() {
    let mut channel = OutChannel::resting(0, PartSeq::new(0));
    for round in 0..3000_u64 {
        let message = vec![round as u8; 300 + (round % 700) as usize];
        channel.push(&message, 1159, None);
        let index = channel.cut(packet(round), 1200, 1159).expect("room");
        assert_eq!(bytes_of(&channel, index), message);
        if round >= 50 {
            channel.handle_arrived(PartSeq::new(round - 50));
            assert!(channel.done().is_some());
        }
    }
    assert_eq!(channel.parts.len(), 50);
    channel.handle_arrived(PartSeq::new(2949));
    assert!(channel.done().is_none(), "an old part belongs to no message");
}

#[test]
fn no_more_parts_leave_than_a_window_holds() {
    let mut channel = OutChannel::resting(0, PartSeq::new(0));
    (0..600).for_each(|_| channel.push(b"x", 1159, None));
    let sent = (0..600).filter_map(|_| channel.cut(packet(0), 100, 1159)).count();
    assert_eq!((sent, channel.is_ready()), (WINDOW_PARTS, false));
    channel.handle_arrived(PartSeq::new(1));
    assert!(channel.done().is_none() && !channel.is_ready());
    assert_eq!(channel.give_up(PartSeq::new(0)), Some(1));
    assert_eq!((channel.give_up(PartSeq::new(0)), channel.is_ready()), (None, true));
    channel.handle_arrived(PartSeq::new(0));
    assert_eq!((channel.lost(), std::iter::from_fn(|| channel.done()).count()), (0, 2));
    assert!(channel.is_ready());
}

#[test]
fn a_message_claims_what_its_parts_cost() {
    for len_max in [159, 256, 257, 512, 513, 1159] {
        for len in [1, len_max, len_max + 1, 5000, 65536] {
            let mut channel = OutChannel::resting(0, PartSeq::new(0));
            channel.push(&vec![7; len], len_max, None);
            let claim = channel.next_claim().expect("a message");
            let mut cost = 0;
            while let Some(index) = channel.cut(packet(0), 1200, len_max) {
                cost += cost_of_part(channel.part(index, &mut Vec::new()).bytes.len());
                channel.handle_arrived(channel.base);
                let _ = channel.done();
            }
            assert_eq!((claim.bytes as usize, claim.is_large), (cost, len > len_max));
        }
    }
}

#[test]
fn a_lost_part_that_a_fast_channel_would_wait_for_leaves_in_two_packets() {
    let sent = |count: u64| {
        let mut channel = OutChannel::resting(0, PartSeq::new(0));
        (0..=count).for_each(|_| channel.push(&[1; 10], 1000, None));
        for number in 0..count {
            assert!(channel.cut(packet(number), 1200, 1000).is_some());
        }
        channel.handle_lost(PartSeq::new(0), packet(0));
        channel
    };
    let mut fast = sent(200);
    assert_eq!(fast.repeat(packet(200), 1200), Some(0));
    assert_eq!((fast.lost(), fast.is_ready()), (0, true));
    assert_eq!(fast.double(packet(200), 1200), None, "both would be lost together");
    assert_eq!((fast.double(packet(201), 5), fast.double(packet(201), 1200)), (None, Some(0)));
    assert_eq!(fast.double(packet(202), 1200), None);
    fast.handle_lost(PartSeq::new(0), packet(200));
    assert_eq!(fast.lost(), 0, "the other one is under way");
    fast.handle_lost(PartSeq::new(0), packet(201));
    assert_eq!(fast.lost(), 1);
    // What is lost or arrives before it has left for the second time is not sent twice.
    assert_eq!(fast.repeat(packet(203), 1200), Some(0));
    fast.handle_lost(PartSeq::new(0), packet(203));
    assert_eq!((fast.lost(), fast.double(packet(204), 1200)), (1, None));
    assert_eq!(fast.repeat(packet(204), 1200), Some(0));
    fast.handle_arrived(PartSeq::new(0));
    assert_eq!((fast.lost(), fast.double(packet(205), 1200)), (0, None));
    let mut slow = sent(90);
    assert_eq!(slow.repeat(packet(90), 1200), Some(0));
    assert_eq!(slow.double(packet(91), 1200), None);
}
