//! Two ends of the delivery layer over a network that the input drives: it loses, repeats,
//! reorders and waits, and in some runs it changes bytes and lengths. Without that, every message
//! on a reliable channel comes once, in order and as it was, every report is true, and a farewell
//! comes to whoever takes one; with it, nothing panics or grows. In some runs packets that have
//! overtaken others wait for them.
#![no_main]

use std::collections::{HashSet, VecDeque};

use libfuzzer_sys::fuzz_target;
use ringgate_core::delivery::{
    Channel, End, Fault, Options, RECEIVE_BYTES_MAX, REORDER_NS, Refusal, Report, SendError,
};
use ringgate_core::proto::notify::PacketSeq;

const MS: u64 = 1_000_000;

/// What a packet may be made to have, on both sides of each limit.
const SIZES: [usize; 8] = [0, 1, 5, 199, 1200, 1201, 1473, 9000];

struct World {
    ends: [End; 2],
    sides: [Side; 2],
    now_ns: u64,
    is_honest: bool,
    /// The second end does.
    takes_farewell: bool,
    /// The first end has said one.
    has_said: bool,
}

/// What one end has sent.
#[derive(Default)]
struct Side {
    under_way: VecDeque<Vec<u8>>,
    /// Reliable messages that have not arrived, by channel: token and length.
    expected: [VecDeque<(u64, usize)>; 4],
    arrived: HashSet<u64>,
    reported: HashSet<u64>,
    sent: u64,
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, low, high], steps)) = data.split_first_chunk() else { return };
    let first = |end: u16| PacketSeq::new(u64::from(u16::from_le_bytes([low, high]) ^ end << 5));
    let options = |own: u16| Options {
        first_sent: first(own),
        first_received: first(1 - own),
        packet_bytes: if choice & 1 == 0 { 1200 } else { 200 },
        keep_alive_ns: (1 + u64::from(choice >> 4)) * 100 * MS,
        takes_farewell: own == 1 && choice & 4 != 0,
        reorder_ns: if choice & 8 == 0 { 0 } else { REORDER_NS },
        ..Options::default()
    };
    let mut world = World {
        ends: [0, 1].map(|own| End::new(&options(own), 0)),
        sides: Default::default(),
        now_ns: 0,
        is_honest: choice & 2 == 0,
        takes_farewell: choice & 4 != 0,
        has_said: false,
    };
    for step in steps.chunks_exact(2) {
        world.step(step[0], step[1]);
    }
    let closed = world.ends.iter().any(|end| end.fault().is_some());
    if world.is_honest && !closed {
        world.settle();
    }
});

impl World {
    fn step(&mut self, what: u8, how: u8) {
        let from = usize::from(what & 1);
        match what >> 1 & 7 {
            0 | 1 => self.send(from, how),
            2 => {
                self.now_ns += u64::from(how) * MS;
                // A caller may have no room for messages now.
                if from == 1 && how & 1 == 1 {
                    self.ends.iter_mut().for_each(|end| end.hold_longer(self.now_ns));
                }
                (0..2).for_each(|to| self.let_go(to));
            }
            3 => self.arrive(from, usize::from(how), true),
            4 => drop(self.sides[from].under_way.pop_front()),
            5 => self.change(from, how),
            6 if how >= 0xf0 && from == 0 => {
                self.ends[0].say_farewell(how, &[7; 200]);
                self.has_said = true;
            }
            _ => (0..=how & 7).for_each(|_| self.arrive(from, 0, false)),
        }
        self.transmit(from);
        self.transmit(1 - from);
    }

    fn send(&mut self, from: usize, how: u8) {
        let number = how >> 2 & 3;
        let channel = match how & 3 {
            0 => Channel::Sequenced(number),
            1 => Channel::Unreliable(number),
            _ => Channel::Reliable(number),
        };
        let most = self.ends[from].message_bytes_max(channel);
        let len = (1 << (how >> 4)) + usize::from(how);
        let side = &mut self.sides[from];
        let token = side.sent;
        let message = content(token, len.clamp(8, most));
        match self.ends[from].send(channel, &message, Some(token)) {
            Ok(()) => {
                side.sent += 1;
                if let Channel::Reliable(number) = channel {
                    side.expected[usize::from(number)].push_back((token, message.len()));
                }
            }
            Err(why) => assert!(matches!(why, SendError::Full | SendError::Closed)),
        }
    }

    fn transmit(&mut self, from: usize) {
        let mut out = [0; 1200];
        while let Some(len) = self.ends[from].poll_transmit(self.now_ns, &mut out) {
            self.sides[from].under_way.push_back(out[..len].to_vec());
        }
        let due_ns = self.ends[from].poll_timeout();
        assert!(due_ns.is_none_or(|due_ns| due_ns > self.now_ns));
        while let Some(Report { token, is_delivered }) = self.ends[from].poll_report() {
            let side = &mut self.sides[from];
            assert!(token < side.sent && side.reported.insert(token));
            assert!(!self.is_honest || is_delivered == side.arrived.contains(&token));
        }
        assert!(self.ends[from].heap_bytes() < 4 * RECEIVE_BYTES_MAX);
    }

    fn arrive(&mut self, from: usize, place: usize, stays: bool) {
        let Self { ends, sides, now_ns, is_honest, .. } = self;
        let side = &mut sides[from];
        let place = place.min(side.under_way.len().saturating_sub(1));
        let packet =
            if stays { side.under_way.get(place).cloned() } else { side.under_way.remove(place) };
        let Some(packet) = packet else { return };
        let taken = ends[1 - from].handle_packet(*now_ns, &packet, |channel, message| {
            if *is_honest {
                side.handle_message(channel, message);
            }
        });
        self.judge(taken);
    }

    /// What has waited long enough at an end for packets before it is taken there.
    fn let_go(&mut self, to: usize) {
        let Self { ends, sides, now_ns, is_honest, .. } = self;
        if ends[to].has_held(*now_ns) {
            let taken = ends[to].handle_held(*now_ns, |channel, message| {
                if *is_honest {
                    sides[1 - to].handle_message(channel, message);
                }
            });
            self.judge(taken);
        }
    }

    fn judge(&self, taken: Result<(), Refusal>) {
        if let Err(Refusal::Fault(fault)) = taken {
            assert!(!self.is_honest || fault == Fault::Silence, "{fault:?}");
        }
    }

    fn change(&mut self, from: usize, how: u8) {
        if self.is_honest {
            return;
        }
        let Some(packet) = self.sides[from].under_way.front_mut() else { return };
        if how >= 0xe0 {
            packet.resize(SIZES[usize::from(how) % SIZES.len()], 7);
        } else if !packet.is_empty() {
            let place = usize::from(how >> 3) % packet.len();
            packet[place] ^= 1 << (how & 7);
        }
    }

    /// Everything that is still to come arrives, however much time it takes.
    fn settle(&mut self) {
        let is_done =
            |sides: &[Side; 2]| sides.iter().all(|side| side.reported.len() as u64 == side.sent);
        let has_said = self.has_said;
        for _ in 0..100_000 {
            for from in [0, 1] {
                self.transmit(from);
                while !self.sides[from].under_way.is_empty() {
                    self.arrive(from, 0, false);
                }
            }
            if self.ends.iter().any(|end| end.fault().is_some()) {
                return;
            }
            if is_done(&self.sides) && (!has_said || self.ends[0].has_said_all()) {
                let is_heard = self.ends[1].farewell().is_some();
                assert_eq!(self.ends[0].has_told_farewell(), has_said && self.takes_farewell);
                assert_eq!(is_heard, has_said && self.takes_farewell);
                return;
            }
            let next_ns = self.ends.iter().filter_map(End::poll_timeout).min();
            self.now_ns = next_ns.map_or(self.now_ns, |at_ns| at_ns.max(self.now_ns));
            (0..2).for_each(|to| self.let_go(to));
        }
        panic!("it stalls: {:?}", self.ends.each_ref().map(End::quality));
    }
}

impl Side {
    fn handle_message(&mut self, channel: Channel, message: &[u8]) {
        let token = u64::from_le_bytes(message[..8].try_into().expect("eight bytes"));
        assert!(message == content(token, message.len()) && self.arrived.insert(token));
        if let Channel::Reliable(number) = channel {
            let next = self.expected[usize::from(number)].pop_front();
            assert_eq!(next, Some((token, message.len())));
        }
    }
}

fn content(token: u64, len: usize) -> Vec<u8> {
    let fill = (0..).map(|n: u32| (n as u8).wrapping_mul(7) ^ token as u8);
    token.to_le_bytes().into_iter().chain(fill).take(len).collect()
}
