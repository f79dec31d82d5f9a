//! What an end of the delivery layer takes: nothing more once it has warmed up, whatever gets lost,
//! and little while it is quiet.

use ringgate_core::delivery::{Channel, End, Options, RECEIVE_BYTES_MAX};
use ringgate_core::proto::delivery::{
    Frame, HEADER_BYTES_MAX, Part, PartSeq, read_header, write_header,
};
use ringgate_core::proto::notify::{Notify, PacketSeq};

use super::{LIVE_BYTES, allocations_in};

const MS: u64 = 1_000_000;

/// Two ends, one above the other: what one sends arrives at once, but for every seventh packet.
struct Pair {
    ends: [End; 2],
    now_ns: u64,
    sent: u64,
    arrived: u64,
}

impl Pair {
    fn new() -> Self {
        let ends = [0, 1].map(|_| End::new(&Options::default(), 0));
        Self { ends, now_ns: 0, sent: 0, arrived: 0 }
    }

    /// A snapshot, something to say, and something large, and 33 ms in which they arrive.
    fn tick(&mut self, large: &[u8]) {
        let tick = self.now_ns / MS;
        for end in &mut self.ends {
            for (channel, message) in [
                (Channel::Sequenced(0), &large[..600]),
                (Channel::Unreliable(9), &large[..50]),
                (Channel::Reliable(1), &large[..200]),
                (Channel::Reliable(0), large),
            ] {
                let _ = end.send(channel, message, Some(tick));
            }
        }
        for _ in 0..33 {
            self.now_ns += MS;
            while self.pass(0) | self.pass(1) {}
        }
    }

    /// Passes one packet on, if there is one.
    fn pass(&mut self, from: usize) -> bool {
        let mut packet = [0; 1200];
        let Some(len) = self.ends[from].poll_transmit(self.now_ns, &mut packet) else {
            return false;
        };
        self.sent += 1;
        if !self.sent.is_multiple_of(7) {
            let arrived = &mut self.arrived;
            let taken = self.ends[1 - from].handle_packet(self.now_ns, &packet[..len], |_, _| {
                *arrived += 1;
            });
            assert_eq!(taken, Ok(()));
        }
        while self.ends[from].poll_report().is_some() {}
        true
    }
}

#[test]
fn two_ends_at_work_allocate_nothing_once_they_have_warmed_up() {
    let large = vec![7; 20_000];
    let mut pair = Pair::new();
    (0..1000).for_each(|_| pair.tick(&large));
    let before = pair.arrived;
    assert_eq!(allocations_in(|| (0..1000).for_each(|_| pair.tick(&large))), 0);
    assert!(pair.arrived - before > 7000, "{}", pair.arrived - before);
}

#[test]
fn an_end_that_has_become_quiet_takes_less_than_4_kib() {
    let large = vec![7; 20_000];
    let before = LIVE_BYTES.get();
    let mut pair = Box::new(Pair::new());
    (0..100).for_each(|_| pair.tick(&large));
    (0..3000).for_each(|_| {
        pair.now_ns += MS;
        while pair.pass(0) | pair.pass(1) {}
    });
    pair.ends.iter_mut().for_each(End::trim);
    let bytes = LIVE_BYTES.get() - before;
    assert!(bytes < 2 * 4096, "{bytes} bytes for two ends");
}

/// A player who sends what an honest one might, to have as much kept as can be: on each channel a
/// window of parts of every size, the first of them last, and a ping now and then.
#[test]
fn a_hostile_player_makes_an_end_take_less_than_a_mebibyte() {
    let before = LIVE_BYTES.get();
    let (mut end, mut now_ns) = (Box::new(End::new(&Options::default(), 0)), 0);
    let mut player = Notify::starting_at(PacketSeq::new(0), PacketSeq::new(0));
    let mut next = [0_u64; 256];
    let mut most = 0;
    for size in [1, 100, 200, 500, 1150] {
        for channel in 0..=255 {
            let first = &mut next[usize::from(channel)];
            let count = (RECEIVE_BYTES_MAX / (1200 + 48)).min(503) as u64;
            for n in (1..count).chain([0]) {
                let (sequence, bytes) = (PartSeq::new(*first + n), &[7; 1150][..size]);
                let part = Part { channel, sequence, is_first: true, is_last: true, bytes };
                now_ns += MS;
                say(&mut end, &mut player, now_ns, &Frame::Reliable(part));
                hear(&mut end, &mut player, now_ns, true);
                most = most.max(LIVE_BYTES.get() - before);
            }
            *first += count;
            now_ns += 4000 * MS;
            say(&mut end, &mut player, now_ns, &Frame::Ping);
            hear(&mut end, &mut player, now_ns, true);
        }
    }
    assert!(most < 1024 * 1024, "{most} bytes");
}

/// Messages of a byte on every channel, as many as are taken, for a player who says once in ten
/// seconds that what leaves then has come, and of everything else that it is lost.
#[test]
fn a_player_who_starves_makes_what_waits_for_it_take_less_than_a_mebibyte() {
    let before = LIVE_BYTES.get();
    let (mut end, mut now_ns) = (Box::new(End::new(&Options::default(), 0)), 0);
    let mut player = Notify::starting_at(PacketSeq::new(0), PacketSeq::new(0));
    let (mut most, mut sent) = (0, 0_usize);
    for tick in 1..=4000 {
        while end.send(Channel::Reliable(sent as u8), &[7], None).is_ok() {
            sent += 1;
        }
        now_ns += 10 * MS;
        say(&mut end, &mut player, now_ns, &Frame::Ping);
        hear(&mut end, &mut player, now_ns, tick % 1000 == 0);
        most = most.max(LIVE_BYTES.get() - before);
    }
    assert_eq!(end.fault(), None);
    assert!(sent > 2000 && most < 1024 * 1024, "{most} bytes for {sent} messages");
}

/// One frame behind an honest header.
fn say(end: &mut End, player: &mut Notify, now_ns: u64, frame: &Frame<'_>) {
    let mut packet = [0; 1200];
    let mut len = write_header(player, &mut packet[..HEADER_BYTES_MAX]);
    len += frame.write(&mut packet[len..]);
    player.handle_sent();
    assert_eq!(end.handle_packet(now_ns, &packet[..len], |_, _| ()), Ok(()));
}

/// What the end has to say is heard, and counts as arrived or as lost.
fn hear(end: &mut End, player: &mut Notify, now_ns: u64, arrived: bool) {
    let mut packet = [0; 1200];
    while let Some(len) = end.poll_transmit(now_ns, &mut packet) {
        let (header, _) = read_header(&packet[..len]).expect("an honest end");
        player.handle_header(&header, arrived, |_, _| ()).expect("an honest end");
    }
}
