//! Opening and sealing traffic, with every kernel of ours that the machine can run and whatever
//! else the program brings along.
//!
//! Packets have 22 bytes of associated data, as netcode's have, and a key and nonce of their own;
//! they lie in the second-level cache. *game mix* is 70 % of 40 to 120 bytes, 25 % of 120 to 400, 5
//! % of 1200.
//!
//! Every contender does each round twice, and the second counts. A CPU remembers which instructions
//! a program has used: branches it has not seen for a while are mispredicted, and dense
//! multiplications in 512-bit registers after some milliseconds without them run slowly. In a
//! contest that would be decided by who had the turn before. The libraries get the same.
//!
//! A gateway, though, does something else most of the time, and pays for how fast that runs, too.
//! *32 of 100 bytes every 50 us* has turns of 32 packets and a fixed amount of scalar work; what a
//! contender takes beyond the work alone is what its packets really cost, by what they do to the
//! CPU's clock as well.
//!
//! *forged tokens* are netcode's private tokens (1008 bytes of text) with a wrong tag: what a flood
//! of connection requests costs, with the derivation of the subkey.

use std::cell::RefCell;
use std::hint::black_box;

use arrayvec::ArrayVec;
use ringgate_core::crypto::{Aead, Job, Kernel, Key, Nonce, Verdict};

use super::support::{Bench, Contender, Random};

/// Makes ciphers that are compared with ours, each with the keys of the packets already expanded.
pub(crate) type Peers<'p> = &'p dyn Fn(&Traffic) -> Vec<(&'static str, Box<dyn Cipher>)>;

/// A cipher that takes one packet at a time, which it knows by its index.
pub(crate) trait Cipher {
    /// Whether the packet was authentic.
    fn open(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool;

    /// Whether all went well.
    fn seal(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool;
}

/// Runs the whole contest as the bench `name`.
pub(crate) fn run(name: &'static str, peers: Peers<'_>) {
    if std::env::args().any(|argument| argument == "--count") {
        return count();
    }
    let mut bench = Bench::from_args(name);
    for operation in [Operation::Open, Operation::Seal] {
        for size in [8, 32, 64, 100, 200, 300, 600, 1200] {
            compare(&mut bench, peers, operation, &format!("{size} bytes"), BATCHES, |_| size);
        }
        compare(&mut bench, peers, operation, "game mix", BATCHES, game_mix);
        for size in FEW_SIZES {
            let title = format!("{size} bytes, few at a time");
            compare(&mut bench, peers, operation, &title, FEW, |_| size);
        }
    }
    take_turns(&mut bench, peers);
    refuse_tokens(&mut bench);
    bench.finish();
}

/// Does each kind of work once, in [`counted`], and names it: for a simulator that counts
/// instructions (`benches/instructions.sh`).
fn count() {
    for (kernel, aead) in &aeads() {
        for operation in [Operation::Open, Operation::Seal] {
            for size in [8, 100, 1200] {
                for batch in [1, 8, 32] {
                    let traffic = RefCell::new(Traffic::new(BATCH_MAX, |_| size));
                    let mut ours =
                        Ours { aead, batch, traffic: &traffic, operation, other_work: 0 };
                    // The first call binds symbols and detects what the CPU has.
                    ours.run();
                    ours.prepare();
                    let done = counted(&mut ours);
                    println!("{kernel},{},{size},{batch},{done}", operation.name());
                }
            }
        }
    }
}

#[inline(never)]
fn counted(ours: &mut Ours<'_>) -> u64 {
    black_box(ours.run())
}

fn game_mix(random: &mut Random) -> usize {
    let within = |random: &mut Random, from: u64, to: u64| from + random.below(to - from);
    let len = match random.below(100) {
        0..70 => within(random, 40, 121),
        70..95 => within(random, 120, 401),
        _ => 1200,
    };
    len as usize
}

fn compare(
    bench: &mut Bench,
    peers: Peers<'_>,
    operation: Operation,
    sizes: &str,
    batches: &[usize],
    text_len: impl Fn(&mut Random) -> usize,
) {
    let title = format!("{}, {sizes}", operation.name());
    if !bench.wants(&title) {
        return;
    }
    let traffic = RefCell::new(Traffic::new(bench.size(PACKETS, BATCH_MAX), text_len));
    let packets = traffic.borrow().packets.len();
    let aeads = aeads();
    let mut group = bench.group(&title, packets);
    group.rounds(ROUNDS).warmed();
    for (name, cipher) in peers(&traffic.borrow()) {
        group.add(name, Peer { cipher, traffic: &traffic, operation, other_work: 0 });
    }
    for (kernel, aead) in &aeads {
        let batches = if *kernel == Kernel::Portable { &batches[..1] } else { batches };
        for &batch in batches {
            group.add(
                format!("{kernel} x{batch}"),
                Ours { aead, batch, traffic: &traffic, operation, other_work: 0 },
            );
        }
    }
    group.run_agreeing();
}

/// Opens packets as a worker does, whose turns are mostly other work.
fn take_turns(bench: &mut Bench, peers: Peers<'_>) {
    let title = format!("open, {TURN_PACKETS} of 100 bytes every 50 us");
    if !bench.wants(&title) {
        return;
    }
    let traffic = RefCell::new(Traffic::new(bench.size(PACKETS, BATCH_MAX), |_| 100));
    let packets = traffic.borrow().packets.len();
    let (aeads, operation, other_work) = (aeads(), Operation::Open, OTHER_WORK);
    let mut group = bench.group(&title, packets);
    group.rounds(ROUNDS).warmed();
    group.add("the other work alone", || {
        (0..packets / TURN_PACKETS).for_each(|_| do_other_work(other_work));
        packets as u64
    });
    for (name, cipher) in peers(&traffic.borrow()) {
        group.add(name, Peer { cipher, traffic: &traffic, operation, other_work });
    }
    for (kernel, aead) in aeads.iter().filter(|(kernel, _)| *kernel != Kernel::Portable) {
        let batch = TURN_PACKETS;
        let ours = Ours { aead, batch, traffic: &traffic, operation, other_work };
        group.add(format!("{kernel} x{batch}"), ours);
    }
    group.run_agreeing();
}

/// What stands for the rest of a turn: steps that depend on each other, on ordinary integers.
fn do_other_work(steps: u32) {
    let mut random = Random::new();
    (0..steps).for_each(|_| {
        black_box(random.next());
    });
}

/// Tokens that do not open, in batches of what a turn may find.
fn refuse_tokens(bench: &mut Bench) {
    let title = "refuse, forged tokens";
    if !bench.wants(title) {
        return;
    }
    let traffic = RefCell::new(Traffic::new(bench.size(PACKETS, BATCH_MAX), |_| TOKEN_TEXT_BYTES));
    let packets = traffic.borrow().packets.len();
    let aeads = aeads();
    let mut group = bench.group(title, packets);
    for (kernel, aead) in aeads.iter().rev() {
        for batch in [1, 8, 32] {
            group.add(format!("{kernel} x{batch}"), Refusal { aead, batch, traffic: &traffic });
        }
    }
    group.rounds(ROUNDS).run_agreeing();
}

/// Every kernel that the machine can run. All batch sizes share its memory, so that none has the
/// luckier address.
fn aeads() -> Vec<(Kernel, RefCell<Aead>)> {
    let aead = |kernel| Some((kernel, RefCell::new(Aead::with_kernel(kernel).ok()?)));
    Kernel::ALL.into_iter().filter_map(aead).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Open,
    Seal,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Seal => "seal",
        }
    }
}

/// Sealed packets, all contenders' own in turn.
pub(crate) struct Traffic {
    packets: Vec<Packet>,
    bytes: Vec<u8>,
    sealed: Vec<u8>,
}

struct Packet {
    key: Key,
    nonce: Nonce,
    /// Where text and tag lie.
    start: usize,
    end: usize,
}

impl Traffic {
    /// The key of every packet.
    #[allow(dead_code, reason = "our own kernels need none of them beforehand")]
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.packets.iter().map(|packet| packet.key.as_bytes())
    }

    fn new(count: usize, text_len: impl Fn(&mut Random) -> usize) -> Self {
        let mut random = Random::new();
        let mut packets = Vec::with_capacity(count);
        let mut bytes_len = 0;
        for _ in 0..count {
            let start = bytes_len;
            let end = start + text_len(&mut random) + TAG_BYTES;
            let key = Key::from_bytes(std::array::from_fn(|_| random.next() as u8));
            let nonce = std::array::from_fn(|_| random.next() as u8);
            packets.push(Packet { key, nonce, start, end });
            bytes_len = end.next_multiple_of(64);
        }
        let bytes = (0..bytes_len).map(|_| random.next() as u8).collect();
        let mut traffic = Self { packets, bytes, sealed: Vec::new() };
        let mut portable = Aead::with_kernel(Kernel::Portable).expect("needs nothing");
        traffic.for_each_batch(BATCH_MAX, |jobs| portable.seal(jobs));
        traffic.sealed.clone_from(&traffic.bytes);
        traffic
    }

    fn restore(&mut self) {
        self.bytes.copy_from_slice(&self.sealed);
        // A large copy may leave its lines anywhere. Packets that have just arrived are near.
        black_box(self.bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
    }

    fn for_each_batch(&mut self, batch: usize, mut work: impl FnMut(&mut [Job<'_>])) {
        let mut jobs = ArrayVec::<_, BATCH_MAX>::new();
        let (mut rest, mut at) = (self.bytes.as_mut_slice(), 0);
        for packet in &self.packets {
            let (front, after) = rest.split_at_mut(packet.end - at);
            jobs.push(Job::new(&packet.key, packet.nonce, AAD, &mut front[packet.start - at..]));
            (rest, at) = (after, packet.end);
            if jobs.len() == batch {
                work(&mut jobs);
                jobs.clear();
            }
        }
    }
}

/// Our cipher, in batches of one size.
struct Ours<'t> {
    aead: &'t RefCell<Aead>,
    batch: usize,
    traffic: &'t RefCell<Traffic>,
    operation: Operation,
    /// Steps after each batch.
    other_work: u32,
}

impl Contender for Ours<'_> {
    fn prepare(&mut self) {
        self.traffic.borrow_mut().restore();
    }

    fn run(&mut self) -> u64 {
        let mut done = 0;
        let mut aead = self.aead.borrow_mut();
        self.traffic.borrow_mut().for_each_batch(self.batch, |jobs| {
            match self.operation {
                Operation::Open => aead.open(jobs),
                Operation::Seal => aead.seal(jobs),
            }
            done += jobs.iter().filter(|job| job.verdict == Verdict::Done).count() as u64;
            do_other_work(self.other_work);
        });
        done
    }
}

/// Derives the subkey of every token and refuses it.
struct Refusal<'t> {
    aead: &'t RefCell<Aead>,
    batch: usize,
    traffic: &'t RefCell<Traffic>,
}

impl Contender for Refusal<'_> {
    fn run(&mut self) -> u64 {
        let mut refused = 0;
        let mut aead = self.aead.borrow_mut();
        self.traffic.borrow_mut().for_each_batch(self.batch, |jobs| {
            let keys: ArrayVec<_, BATCH_MAX> = jobs.iter().map(|job| (job.key, &[7; 24])).collect();
            let mut derived = ArrayVec::<_, BATCH_MAX>::new();
            aead.derive(&keys, |key, nonce| derived.push((key, nonce)));
            let mut tokens: ArrayVec<_, BATCH_MAX> = jobs
                .iter_mut()
                .zip(&derived)
                .map(|(job, (key, nonce))| Job::new(key, *nonce, job.aad, &mut *job.buf))
                .collect();
            aead.open(&mut tokens);
            refused += tokens.iter().filter(|job| job.verdict == Verdict::Forged).count() as u64;
        });
        refused
    }
}

/// Another cipher, packet by packet.
struct Peer<'t> {
    cipher: Box<dyn Cipher>,
    traffic: &'t RefCell<Traffic>,
    operation: Operation,
    /// Steps after as many packets as a turn has.
    other_work: u32,
}

impl Contender for Peer<'_> {
    fn prepare(&mut self) {
        self.traffic.borrow_mut().restore();
    }

    fn run(&mut self) -> u64 {
        let traffic = &mut *self.traffic.borrow_mut();
        let mut done = 0;
        for (index, packet) in traffic.packets.iter().enumerate() {
            let bytes = &mut traffic.bytes[packet.start..packet.end];
            done += u64::from(match self.operation {
                Operation::Open => self.cipher.open(index, &packet.nonce, bytes),
                Operation::Seal => self.cipher.seal(index, &packet.nonce, bytes),
            });
            if (index + 1) % TURN_PACKETS == 0 {
                do_other_work(self.other_work);
            }
        }
        done
    }
}

/// As long as netcode's associated data: version, protocol id, prefix.
pub(crate) const AAD: &[u8] = b"NETCODE 1.02\0abcdefgh\x15";

pub(crate) const TAG_BYTES: usize = 16;

/// A private token without its tag.
const TOKEN_TEXT_BYTES: usize = 1008;

/// With what they are restored from, the largest of these packets take 1.3 MB: everything stays in
/// a second-level cache of 2 MB. Twice as many do not, and then what is measured is which
/// contender's lines happened to be evicted.
const PACKETS: usize = 512;

const BATCH_MAX: usize = 64;

const BATCHES: &[usize] = &[1, 2, 4, 8, 16, 32, 64];

/// What a worker finds that is not busy, in every size that a kernel might treat in its own way:
/// block ends of `ChaCha20`, one byte more, and what lies between.
const FEW: &[usize] = &[1, 2, 4];
const FEW_SIZES: [usize; 27] = [
    16, 40, 64, 65, 80, 100, 128, 129, 150, 192, 193, 200, 230, 256, 257, 300, 350, 400, 448, 449,
    512, 600, 700, 800, 960, 1080, 1200,
];

/// Packets of a turn among other work, and the steps of that: 50 µs.
const TURN_PACKETS: usize = 32;
const OTHER_WORK: u32 = 35_000;

/// A round takes 20 to 400 µs, and disturbances longer: many short rounds find the quiet ones.
const ROUNDS: usize = 301;
