//! A run: messages from one end to the other over a network, in virtual time.

use std::time::Instant;

use crate::network::Network;

/// Two ends of something. End 0 sends messages to end 1.
pub trait Peer {
    /// Queues a message. Whether there was room.
    fn send(&mut self, is_reliable: bool, message: &[u8]) -> bool;

    /// Does what an end has to by now; packets that leave are added to `out`.
    fn turn(&mut self, end: usize, now_ns: u64, out: &mut Vec<Vec<u8>>);

    /// Takes a packet in.
    fn receive(&mut self, end: usize, now_ns: u64, packet: &[u8]);

    /// A message that has arrived at end 1.
    fn take_message(&mut self) -> Option<Vec<u8>>;

    /// When an end has something to do, if nothing arrives before.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }
}

#[derive(Clone, Copy)]
pub enum Shape {
    /// Of that length, so many a second; 0 for as many as there is room for.
    Reliable { bytes: usize, hz: u64 },
    /// The same.
    Unreliable { bytes: usize, hz: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// Sixty times a second.
    Frames,
    /// Whenever something arrives or is due.
    WhenDue,
}

#[derive(Clone)]
pub struct Run {
    pub settings: String,
    /// Bytes a second of the narrowest place; 0 where there is none.
    pub rate: u64,
    pub shape: Shape,
    pub drive: Drive,
    pub seconds: u64,
}

/// What has come of it.
#[derive(Clone, Copy)]
pub struct Outcome {
    /// Megabytes of messages a second.
    pub goodput: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub lost_percent: f64,
    /// Of both ends.
    pub cpu_us: f64,
    pub packets: f64,
}

impl Run {
    /// Repeats it: what is measured is what the quietest repetition took.
    pub fn of<P: Peer>(&self, peer: impl Fn() -> P) -> Outcome {
        let outcomes = (0..REPETITIONS).map(|_| Playing::new(self, peer()).play());
        outcomes.min_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us)).expect("there are some")
    }
}

struct Playing<'a, P> {
    run: &'a Run,
    peer: P,
    network: Network,
    now_ns: u64,
    /// When the next message is due.
    next_ns: u64,
    sent: u64,
    latencies_ns: Vec<u64>,
    bytes: u64,
    cpu_ns: u64,
    out: Vec<Vec<u8>>,
}

impl<'a, P: Peer> Playing<'a, P> {
    fn new(run: &'a Run, peer: P) -> Self {
        Self {
            network: Network::new(&run.settings, run.rate),
            run,
            peer,
            now_ns: START_NS,
            next_ns: START_NS + WARM_UP_NS,
            sent: 0,
            latencies_ns: Vec::new(),
            bytes: 0,
            cpu_ns: 0,
            out: Vec::new(),
        }
    }

    fn play(mut self) -> Outcome {
        let end_ns = self.end_ns();
        let mut frames_ns = [self.now_ns, self.now_ns + APART_NS];
        while self.now_ns < end_ns + REST_NS {
            let is_due = frames_ns
                .map(|frame_ns| self.run.drive == Drive::WhenDue || self.now_ns >= frame_ns);
            if is_due[0] && self.now_ns < end_ns {
                self.send_due();
            }
            self.turn(is_due);
            for (frame_ns, is_due) in frames_ns.iter_mut().zip(is_due) {
                *frame_ns += if is_due { FRAME_NS } else { 0 };
            }
            let due_ns = match self.run.drive {
                Drive::Frames => frames_ns[0].min(frames_ns[1]),
                Drive::WhenDue => {
                    let next_ns = if self.now_ns < end_ns { self.wants_ns() } else { u64::MAX };
                    let due_ns = self.network.due_ns().min(self.peer.due_ns()).min(next_ns);
                    due_ns.min(end_ns + REST_NS)
                }
            };
            self.now_ns = due_ns.max(self.now_ns + RESOLUTION_NS);
        }
        self.outcome()
    }

    /// When the last message is queued.
    const fn end_ns(&self) -> u64 {
        START_NS + WARM_UP_NS + self.run.seconds * SECOND
    }

    /// When the next message is to be queued. What is sent without a pause is looked at in frames.
    fn wants_ns(&self) -> u64 {
        match self.run.shape {
            Shape::Reliable { hz: 0, .. } | Shape::Unreliable { hz: 0, .. } => {
                self.now_ns + 1_000_000
            }
            _ => self.next_ns,
        }
    }

    fn send_due(&mut self) {
        let (is_reliable, bytes, hz) = match self.run.shape {
            Shape::Reliable { bytes, hz } => (true, bytes, hz),
            Shape::Unreliable { bytes, hz } => (false, bytes, hz),
        };
        let mut message = vec![7; bytes];
        while self.next_ns <= self.now_ns {
            let due_ns = if hz == 0 { self.now_ns } else { self.next_ns };
            message[..8].copy_from_slice(&due_ns.to_le_bytes());
            let start = Instant::now();
            let is_taken = self.peer.send(is_reliable, &message);
            self.cpu_ns += start.elapsed().as_nanos() as u64;
            if !is_taken {
                return;
            }
            self.sent += 1;
            if hz > 0 {
                self.next_ns += SECOND / hz;
            }
        }
    }

    /// What ends do whose turn it is: take in what has arrived, then send what is due.
    fn turn(&mut self, is_due: [bool; 2]) {
        let ends = (0..2).filter(|end| is_due[*end]);
        for end in ends.clone() {
            while let Some(packet) = self.network.take(end, self.now_ns) {
                let start = Instant::now();
                self.peer.receive(end, self.now_ns, &packet);
                self.cpu_ns += start.elapsed().as_nanos() as u64;
            }
        }
        let start = Instant::now();
        while let Some(message) = self.peer.take_message() {
            let sent_ns = u64::from_le_bytes(message[..8].try_into().expect("a time"));
            self.latencies_ns.push(self.now_ns - sent_ns);
            if self.now_ns < self.end_ns() {
                self.bytes += message.len() as u64;
            }
        }
        for end in ends {
            let first = self.out.len();
            self.peer.turn(end, self.now_ns, &mut self.out);
            // What each end sends is noted at its end of the list.
            self.out[first..].iter_mut().for_each(|packet| packet.push(end as u8));
        }
        self.cpu_ns += start.elapsed().as_nanos() as u64;
        for mut packet in std::mem::take(&mut self.out) {
            let from = packet.pop().expect("it was noted");
            self.network.put(self.now_ns, usize::from(from), packet);
        }
    }

    fn outcome(mut self) -> Outcome {
        self.latencies_ns.sort_unstable();
        let arrived = self.latencies_ns.len();
        let at = |percent: usize| {
            let index = arrived.saturating_sub(1) * percent / 100;
            self.latencies_ns.get(index).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
        };
        Outcome {
            goodput: self.bytes as f64 / 1e6 / self.run.seconds as f64,
            p50_ms: at(50),
            p99_ms: at(99),
            lost_percent: 100.0 * (self.sent - arrived as u64) as f64 / self.sent as f64,
            cpu_us: self.cpu_ns as f64 / 1e3 / arrived as f64,
            packets: self.network.packets as f64 / arrived as f64,
        }
    }
}

const SECOND: u64 = 1_000_000_000;

const START_NS: u64 = SECOND;

/// For handshakes of those that have some.
const WARM_UP_NS: u64 = SECOND;

/// What was sent last has so long to arrive.
const REST_NS: u64 = 5 * SECOND;

const FRAME_NS: u64 = SECOND / 60;

/// Two programs do not draw their frames at the same moment: by so much end 1 is later.
const APART_NS: u64 = 7_000_000;

/// Nothing is looked at more often.
const RESOLUTION_NS: u64 = 10_000;

const REPETITIONS: u32 = 3;
