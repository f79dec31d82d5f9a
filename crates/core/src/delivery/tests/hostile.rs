//! Peers that lie: each ends the connection with a reason of its own, and none makes it grow.

use super::handed::handed_over;
use super::random::Random;
use super::world::{MS, SECOND};
use crate::delivery::buffers::cost_of_part;
use crate::delivery::{Channel, End, Fault, Options, RECEIVE_BYTES_MAX, Refusal};
use crate::drops::DropReason;
use crate::proto::delivery::{Frame, HEADER_BYTES_MAX, Part, PartSeq, write_header};
use crate::proto::notify::{Notify, PacketSeq};

/// A peer that writes what it wants.
struct Liar {
    notify: Notify,
    now_ns: u64,
    end: End,
}

impl Liar {
    fn new() -> Self {
        let zero = PacketSeq::new(0);
        let now_ns = 1000 * SECOND;
        let end = End::new(&Options::default(), now_ns);
        Self { notify: Notify::starting_at(zero, zero), now_ns, end }
    }

    /// An honest header, and whatever behind it.
    fn say(&mut self, frames: &[u8]) -> Result<(), Refusal> {
        let mut packet = [0; 1300];
        let len = write_header(&self.notify, &mut packet[..HEADER_BYTES_MAX]);
        packet[len..len + frames.len()].copy_from_slice(frames);
        self.notify.handle_sent();
        let taken = self.end.handle_packet(self.now_ns, &packet[..len + frames.len()], |_, _| ());
        if matches!(taken, Err(Refusal::Fault(_))) {
            // It is the caller's until that has said so, and may be handed over meanwhile.
            handed_over(&self.end, &Options::default());
        }
        self.hear();
        taken
    }

    fn part(&mut self, part: &Part<'_>) -> Result<(), Refusal> {
        let frame = Frame::Reliable(*part);
        let mut bytes = vec![0; frame.wire_bytes()];
        frame.write(&mut bytes);
        self.say(&bytes)
    }

    /// Acknowledges what the end has sent.
    fn hear(&mut self) {
        let mut out = [0; 1200];
        while let Some(len) = self.end.poll_transmit(self.now_ns, &mut out) {
            let (header, _) = crate::proto::delivery::read_header(&out[..len]).expect("honest");
            self.notify.handle_header(&header, true, |_, _| ()).expect("honest");
        }
    }
}

fn fault(fault: Fault) -> Result<(), Refusal> {
    Err(Refusal::Fault(fault))
}

/// A packet each 25 s, which is often enough not to be given up: the last ones half an hour late.
#[test]
fn who_acknowledges_late_and_one_by_one_keeps_nobody_from_being_handed_over() {
    let mut liar = Liar::new();
    let mut packets = Vec::new();
    for _ in 0..70 {
        liar.end.send(Channel::Reliable(0), &[7; 10], None).expect("room");
        let mut out = [0; 1200];
        let len = liar.end.poll_transmit(liar.now_ns, &mut out).expect("a packet of its own");
        packets.push(out[..len].to_vec());
    }
    for packet in packets {
        liar.now_ns += 25 * SECOND;
        let (header, _) = crate::proto::delivery::read_header(&packet).expect("honest");
        liar.notify.handle_header(&header, true, |_, _| ()).expect("honest");
        let mut answer = [0; HEADER_BYTES_MAX];
        let len = write_header(&liar.notify, &mut answer);
        liar.notify.handle_sent();
        let taken = liar.end.handle_packet(liar.now_ns, &answer[..len], |_, _| ());
        assert_eq!((taken, liar.end.fault()), (Ok(()), None));
        liar.end = handed_over(&liar.end, &Options::default());
    }
    assert!(liar.now_ns > 1000 * SECOND + (1 << 40), "later than an estimate may be");
}

#[test]
fn what_is_no_packet_ends_the_connection() {
    for bytes in [&[][..], &[0; 7], &[0x08, 0, 0, 0, 0, 0, 0, 0], &[0; 1201]] {
        let mut end = End::new(&Options::default(), 0);
        assert_eq!(end.handle_packet(0, bytes, |_, _| ()), fault(Fault::Malformed));
        assert_eq!(end.fault(), Some(Fault::Malformed));
        assert_eq!(end.handle_packet(0, &[], |_, _| ()), fault(Fault::Malformed));
        assert_eq!((end.poll_transmit(0, &mut [0; 1200]), end.poll_timeout()), (None, None));
    }
    assert_eq!(Liar::new().say(&[0x20]), fault(Fault::Malformed));
}

#[test]
fn numbers_that_nobody_has_sent_end_the_connection() {
    let packet = |sequence: u32, acked: u32| {
        let fields = sequence << 18 | (acked & 0x3fff) << 4;
        [fields.to_le_bytes(), [0; 4]].concat()
    };
    let after = |packet: &[u8]| {
        let mut end = End::new(&Options::default(), 0);
        end.handle_packet(0, packet, |_, _| ())
    };
    let before = u32::MAX;
    assert_eq!(after(&packet(0, before)), Ok(()));
    assert_eq!(after(&packet(255, before)), Ok(()));
    assert_eq!(after(&packet(256, before)), fault(Fault::Sequence));
    assert_eq!(after(&packet(0, 0)), fault(Fault::Acknowledgement));
    assert_eq!(after(&packet(0, before - 1)), fault(Fault::Acknowledgement));
    let late = Err(Refusal::Dropped(DropReason::ReplayTooOld));
    assert_eq!(after(&packet(16383, before)), late);
    assert_eq!(after(&packet(10_000, 77)), late, "what is late is not looked at");
}

#[test]
fn endless_fragments_end_the_connection() {
    let mut liar = Liar::new();
    let bytes = [7; 1000];
    let refused = (0..1000_u64).find_map(|n| {
        let part = Part {
            channel: 0,
            sequence: PartSeq::new(n),
            is_first: n == 0,
            is_last: false,
            bytes: &bytes,
        };
        liar.part(&part).err()
    });
    assert_eq!(refused, Some(Refusal::Fault(Fault::MessageLength)));
    assert!(liar.end.heap_bytes() < 2 * RECEIVE_BYTES_MAX);
}

/// Behind the part with which a message is too long another one waits.
#[test]
fn a_message_of_parts_that_have_waited_is_no_longer_than_others() {
    let mut liar = Liar::new();
    let refused = [0, 58, 59].into_iter().chain(1..=57).find_map(|n| {
        let (is_first, sequence) = (n == 0, PartSeq::new(n));
        let bytes = &[7; 1140];
        liar.part(&Part { channel: 0, sequence, is_first, is_last: false, bytes }).err()
    });
    assert_eq!(refused, Some(Refusal::Fault(Fault::MessageLength)));
}

#[test]
fn a_flood_of_channels_ends_the_connection() {
    let mut liar = Liar::new();
    let refused = (0..256 * 200_u64).find_map(|n| {
        let part = Part {
            channel: n as u8,
            sequence: PartSeq::new(1 + n / 256),
            is_first: true,
            is_last: false,
            bytes: &[7],
        };
        liar.part(&part).err()
    });
    assert_eq!(refused, Some(Refusal::Fault(Fault::Memory)));
    assert!(liar.end.heap_bytes() < 2 * RECEIVE_BYTES_MAX, "{}", liar.end.heap_bytes());
}

/// Parts of every size, so many that as much waits as may, on one channel after the other: what
/// each needed is not kept beside what the next one needs.
#[test]
fn memory_for_one_size_and_channel_is_given_back_for_the_next() {
    let (mut liar, mut most) = (Liar::new(), 0);
    let mut next = [0_u64; 256];
    for size in [1, 64, 100, 200, 500, 600, 1150] {
        for channel in 0..=255 {
            let count = (RECEIVE_BYTES_MAX / (cost_of_part(size) + 1)).min(503) as u64;
            let first = &mut next[usize::from(channel)];
            // The first comes last.
            for n in (1..count).chain([0]) {
                let sequence = PartSeq::new(*first + n);
                let bytes = &[7; 1150][..size];
                let part = Part { channel, sequence, is_first: true, is_last: true, bytes };
                liar.part(&part).expect("it is what an honest end might say");
                most = most.max(liar.end.heap_bytes());
            }
            *first += count;
            // And it is there every four seconds.
            liar.now_ns += 4 * SECOND;
            liar.say(&[0]).expect("a ping");
        }
    }
    assert!(most < RECEIVE_BYTES_MAX + 256 * 1024, "{most}");
}

#[test]
fn a_peer_that_never_acknowledges_gets_no_more_than_a_history_and_half_a_minute() {
    let options = Options::default();
    let mut end = End::new(&options, 0);
    let (mut now_ns, mut packets) = (0, 0);
    while end.fault().is_none() && now_ns < 60 * SECOND {
        for channel in [Channel::Reliable(0), Channel::Unreliable(0), Channel::Sequenced(3)] {
            let _ = end.send(channel, &[7; 1000], Some(now_ns));
        }
        while end.poll_report().is_some() {}
        while end.poll_transmit(now_ns, &mut [0; 1200]).is_some() {
            packets += 1;
        }
        now_ns += 10 * MS;
    }
    assert_eq!(end.fault(), Some(Fault::Silence));
    assert!((30 * SECOND..31 * SECOND).contains(&now_ns) && packets <= 256, "{packets} {now_ns}");
    let queues = options.reliable_bytes_max + options.unreliable_bytes_max;
    assert!(end.heap_bytes() < 3 * queues, "{}", end.heap_bytes());
}

#[test]
fn a_peer_that_says_that_all_is_lost_gets_a_little_for_half_a_minute() {
    let mut end = End::new(&Options::default(), 0);
    let zero = PacketSeq::new(0);
    let mut peer = Notify::starting_at(zero, zero);
    let (mut now_ns, mut bytes) = (0, 0);
    while end.fault().is_none() && now_ns < 60 * SECOND {
        let _ = end.send(Channel::Reliable(0), &[7; 1000], None);
        let mut out = [0; 1200];
        while let Some(len) = end.poll_transmit(now_ns, &mut out) {
            bytes += len;
            let (header, _) = crate::proto::delivery::read_header(&out[..len]).expect("honest");
            peer.handle_header(&header, false, |_, _| ()).expect("honest");
        }
        let mut packet = [0; HEADER_BYTES_MAX];
        let len = write_header(&peer, &mut packet);
        if peer.has_room() {
            peer.handle_sent();
            let taken = end.handle_packet(now_ns, &packet[..len], |_, _| ());
            assert!(taken.is_ok() || end.fault() == Some(Fault::Silence), "{taken:?}");
        }
        now_ns += MS;
    }
    assert_eq!(end.fault(), Some(Fault::Silence));
    assert!(bytes < 30 * 1_000_000, "{bytes} bytes");
}

/// Whatever comes, an end neither panics nor grows, and its memory is what it says.
#[test]
fn junk_behind_honest_headers_does_no_harm() {
    let mut random = Random::new(11);
    for _ in 0..300 {
        let mut liar = Liar::new();
        for _ in 0..100 {
            let frames: Vec<_> = (0..random.within(0..40)).map(|_| junk(&mut random)).collect();
            if liar.say(&frames).is_err() {
                break;
            }
            liar.now_ns += random.within(0..50 * MS);
        }
        assert!(liar.end.heap_bytes() < 2 * RECEIVE_BYTES_MAX);
    }
}

/// Bytes that are often the head of a frame.
fn junk(random: &mut Random) -> u8 {
    [0, 1, 0x0d, 0x05, 0x15, 2, 3, random.word() as u8][random.within(0..8) as usize]
}
