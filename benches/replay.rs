//! Replay windows: our ring against a bitset that shifts and against the netcode reference's slots,
//! with one hot window and with a million of them.
//!
//! Packets come 90 % in order, 5 % after a loss of up to three, 5 % late or twice. All contenders
//! judge all packets alike, and the bench fails if they do not.
//!
//! With a million windows each lies in a record with 320 more bytes, as a window lies in its
//! session: what counts there is how many cache lines of a record a packet touches. The netcode
//! reference's records take 2.4 GB.
//!
//! Three orders of work over a million windows: *free* lets the CPU overlap the cache misses of
//! several packets as it likes; *one by one* makes each packet wait for the one before, as it must
//! where the work of a whole packet (decryption) stands between two windows; *batches* checks a
//! batch, and commits what has passed afterwards, as a turn does.

#[path = "support.rs"]
mod support;

use std::hint::black_box;

use ringgate_core::proto::replay::{Policy, Window};
use support::{Bench, Contender, Random};

fn main() {
    let mut bench = Bench::from_args("replay");
    let sessions = bench.size(1 << 20, 64);
    one_hot_window(&mut bench);
    for (title, order) in [
        ("a million windows, free", Order::Free),
        ("a million windows, one by one", Order::OneByOne),
        ("a million windows, batches of 64", Order::Batch),
    ] {
        if bench.wants(title) {
            many_windows(&mut bench, title, order, sessions);
        }
    }
    bench.finish();
}

fn one_hot_window(bench: &mut Bench) {
    let traffic = Traffic::over(1, bench.size(200_000, 500));
    compare(bench, "one hot window, check and commit", Order::Free, &traffic);
}

fn many_windows(bench: &mut Bench, title: &str, order: Order, sessions: usize) {
    let traffic = Traffic::over(sessions, bench.size(2_000_000, 2_000));
    compare(bench, title, order, &traffic);
}

fn compare(bench: &mut Bench, title: &str, order: Order, traffic: &Traffic) {
    let mut group = bench.group(title, traffic.packets.len());
    group
        .add("ring 256", Run::<Ring<256>>::new(traffic, order))
        .add("ring 512", Run::<Ring<512>>::new(traffic, order))
        .add("ring 1024", Run::<Ring<1024>>::new(traffic, order))
        .add("shifting bitset 256", Run::<Shifting<4>>::new(traffic, order))
        .add("shifting bitset 512", Run::<Shifting<8>>::new(traffic, order))
        .add("shifting bitset 1024", Run::<Shifting<16>>::new(traffic, order))
        .add("u64 slots 256", Run::<Slots>::new(traffic, order));
    if matches!(order, Order::Batch) {
        group.add("ring 256, read pass first", Run::<ReadFirst>::new(traffic, order));
    }
    group.run_agreeing();
}

/// How the packets' windows are visited.
#[derive(Clone, Copy)]
enum Order {
    Free,
    OneByOne,
    Batch,
}

/// Which session each packet belongs to, and its sequence.
struct Traffic {
    sessions: usize,
    packets: Vec<(u32, u64)>,
}

impl Traffic {
    fn over(sessions: usize, packets: usize) -> Self {
        let mut random = Random::new();
        let mut latest = vec![0_u64; sessions];
        let mut packet = || {
            let session = random.below(sessions as u64) as usize;
            let sequence = match random.below(100) {
                0..90 => latest[session] + 1,
                90..95 => latest[session] + 2 + random.below(3),
                _ => latest[session].saturating_sub(random.below(100)),
            };
            latest[session] = latest[session].max(sequence);
            (session as u32, sequence)
        };
        Self { sessions, packets: (0..packets).map(|_| packet()).collect() }
    }
}

/// A replay window as the bench sees it.
trait Replay: Clone {
    fn new() -> Self;
    fn check(&self, sequence: u64) -> bool;
    fn commit(&mut self, sequence: u64) -> bool;
    /// Reads from the memory that a check and a commit need, and returns something of it.
    fn touch(&self, sequence: u64) -> u64;

    /// Checks a batch; reports in order.
    fn check_all(probes: &[(&Self, u64)], mut report: impl FnMut(usize, bool)) {
        for (index, (window, sequence)) in probes.iter().enumerate() {
            report(index, window.check(*sequence));
        }
    }
}

/// What a window lies in.
#[derive(Clone)]
#[repr(C)]
struct Session<W> {
    window: W,
    rest: [u64; 40],
}

/// All sessions with windows of one kind, driven through the traffic.
struct Run<'t, W> {
    traffic: &'t Traffic,
    order: Order,
    sessions: Vec<Session<W>>,
}

impl<'t, W: Replay> Run<'t, W> {
    fn new(traffic: &'t Traffic, order: Order) -> Self {
        Self { traffic, order, sessions: Vec::new() }
    }

    fn free(&mut self) -> u64 {
        let mut accepted = 0;
        for &(session, sequence) in &self.traffic.packets {
            let window = &mut self.sessions[session as usize].window;
            accepted += u64::from(window.check(sequence) && window.commit(sequence));
        }
        accepted
    }

    fn one_by_one(&mut self) -> u64 {
        let mut accepted = 0;
        // Always zero, but only once the window before has arrived from memory.
        let (zero, mut wait) = (black_box(0), 0);
        for &(session, sequence) in &self.traffic.packets {
            let window = &mut self.sessions[session as usize + wait].window;
            accepted += u64::from(window.check(sequence) && window.commit(sequence));
            wait = window.touch(sequence) as usize & zero;
        }
        accepted
    }

    fn batches(&mut self) -> u64 {
        let mut accepted = 0;
        for batch in self.traffic.packets.chunks(BATCH_LEN) {
            let mut passed = [false; BATCH_LEN];
            let mut probes = [(&self.sessions[0].window, 0); BATCH_LEN];
            for (probe, &(session, sequence)) in probes.iter_mut().zip(batch) {
                *probe = (&self.sessions[session as usize].window, sequence);
            }
            W::check_all(&probes[..batch.len()], |index, verdict| passed[index] = verdict);
            for (&(session, sequence), passed) in batch.iter().zip(passed) {
                accepted +=
                    u64::from(passed && self.sessions[session as usize].window.commit(sequence));
            }
        }
        accepted
    }
}

impl<W: Replay> Contender for Run<'_, W> {
    fn prepare(&mut self) {
        let session = Session { window: W::new(), rest: [1; 40] };
        self.sessions = vec![session; self.traffic.sessions];
    }

    fn release(&mut self) {
        self.sessions = Vec::new();
    }

    fn run(&mut self) -> u64 {
        match self.order {
            Order::Free => self.free(),
            Order::OneByOne => self.one_by_one(),
            Order::Batch => self.batches(),
        }
    }
}

/// Ours.
#[derive(Clone)]
struct Ring<const SIZE_BITS: u32>(Window);

impl<const SIZE_BITS: u32> Ring<SIZE_BITS> {
    const POLICY: Policy = Policy::new(SIZE_BITS, 0).expect("a power of two");
}

impl<const SIZE_BITS: u32> Replay for Ring<SIZE_BITS> {
    fn new() -> Self {
        Self(Window::new())
    }

    fn check(&self, sequence: u64) -> bool {
        self.0.check(sequence, &Self::POLICY).is_ok()
    }

    fn commit(&mut self, sequence: u64) -> bool {
        self.0.commit(sequence, &Self::POLICY).is_ok()
    }

    fn touch(&self, _sequence: u64) -> u64 {
        self.0.latest(&Self::POLICY).unwrap_or(0)
    }
}

/// Ours, but with a pass that only reads before the checks.
#[derive(Clone)]
struct ReadFirst(Ring<256>);

impl Replay for ReadFirst {
    fn new() -> Self {
        Self(Ring::new())
    }

    fn check(&self, sequence: u64) -> bool {
        self.0.check(sequence)
    }

    fn commit(&mut self, sequence: u64) -> bool {
        self.0.commit(sequence)
    }

    fn touch(&self, sequence: u64) -> u64 {
        self.0.touch(sequence)
    }

    fn check_all(probes: &[(&Self, u64)], mut report: impl FnMut(usize, bool)) {
        black_box(probes.iter().fold(0, |sum, (window, sequence)| sum ^ window.touch(*sequence)));
        for (index, (window, sequence)) in probes.iter().enumerate() {
            report(index, window.check(*sequence));
        }
    }
}

/// The textbook form, which UNet's `std::bitset` is: bit 0 is the latest, and everything moves when
/// it advances.
#[derive(Clone)]
#[repr(align(64))]
struct Shifting<const WORDS: usize> {
    latest: u64,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Shifting<WORDS> {
    fn shift(&mut self, steps: u64) {
        let (whole, part) = ((steps / 64) as usize, steps % 64);
        for index in (0..WORDS).rev() {
            let word = |back: usize| index.checked_sub(back).map_or(0, |from| self.words[from]);
            let (high, low) = (word(whole), word(whole + 1));
            self.words[index] = if part == 0 { high } else { high << part | low >> (64 - part) };
        }
    }
}

impl<const WORDS: usize> Replay for Shifting<WORDS> {
    fn new() -> Self {
        Self { latest: 0, words: [0; WORDS] }
    }

    fn check(&self, sequence: u64) -> bool {
        if sequence > self.latest {
            return true;
        }
        let back = self.latest - sequence;
        back < 64 * WORDS as u64 && self.words[(back / 64) as usize] >> (back % 64) & 1 == 0
    }

    fn commit(&mut self, sequence: u64) -> bool {
        if !self.check(sequence) {
            return false;
        }
        if sequence > self.latest {
            self.shift((sequence - self.latest).min(64 * WORDS as u64));
            self.latest = sequence;
        }
        let back = self.latest - sequence;
        self.words[(back / 64) as usize] |= 1 << (back % 64);
        true
    }

    fn touch(&self, _sequence: u64) -> u64 {
        // Advancing moves every word, so every line is needed.
        self.words.iter().step_by(8).fold(self.latest, |sum, word| sum ^ word)
    }
}

/// The netcode reference's form: the last sequence of each residue, 2 KiB a window.
#[derive(Clone)]
#[repr(align(64))]
struct Slots {
    latest: u64,
    slots: [u64; 256],
}

impl Slots {
    const EMPTY: u64 = u64::MAX;
}

impl Replay for Slots {
    fn new() -> Self {
        Self { latest: 0, slots: [Self::EMPTY; 256] }
    }

    fn check(&self, sequence: u64) -> bool {
        if self.latest >= 256 && sequence <= self.latest - 256 {
            return false;
        }
        let slot = self.slots[(sequence % 256) as usize];
        slot == Self::EMPTY || slot < sequence
    }

    fn commit(&mut self, sequence: u64) -> bool {
        if !self.check(sequence) {
            return false;
        }
        self.latest = self.latest.max(sequence);
        self.slots[(sequence % 256) as usize] = sequence;
        true
    }

    fn touch(&self, sequence: u64) -> u64 {
        self.latest ^ self.slots[(sequence % 256) as usize]
    }
}

/// As many datagrams as one turn takes in under load.
const BATCH_LEN: usize = 64;
