//! The turn without a kernel: what a gate costs for each packet, at a thousand sessions and at a million.
//!
//! A round is 64 turns over 64 datagrams each, made beforehand, from players in random order: so at a million sessions nearly
//! every packet meets a session that no cache knows. Datagrams are copied in, as a kernel would do; that is shown by itself,
//! to be subtracted. What leaves is counted and dropped.
//!
//! ```text
//! cargo bench --bench turn                  everything; the million takes 1.5 GiB for both ends
//! cargo bench --bench turn -- uplink        one group
//! ```

#[path = "support.rs"]
mod support;

use std::cell::RefCell;
use std::sync::Mutex;

use ringgate::buf::{Endpoint, RxBatch, SocketId};
use ringgate::crypto::Aead;
use ringgate::limits::{BUNDLE_BYTES_MAX, DATAGRAM_BYTES_MAX};
use ringgate::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate::sim::Crowd;

use support::{Bench, Contender, Random};

fn main() {
    if let Some(core) = core_affinity::get_core_ids().unwrap_or_default().first() {
        core_affinity::set_for_current(*core);
    }
    let mut bench = Bench::from_args("turn");
    let sizes =
        [(1_000, 100), (100_000, 200), (1_000_000, 300)].map(|(full, tiny)| bench.size(full, tiny));
    let wants = |bench: &Bench| TITLES.iter().any(|title| bench.wants(title));
    if wants(&bench) {
        let crowds = sizes.map(|players| RefCell::new(Crowd::new(players, Aead::detect())));
        compare_sizes(&mut bench, &crowds);
        for crowd in &crowds {
            keep_alive(&mut bench, crowd);
            let books = crowd.borrow().gate().counters().check_conservation();
            assert_eq!(books, Ok(()));
        }
    }
    if bench.wants(TWO_WORKERS) {
        compare_workers(&mut bench);
    }
    bench.finish();
}

const UPLINK: &str = "uplink, 100 bytes";
const DOWNLINK: &str = "downlink, 100 bytes, 64 in a bundle";
const FORGED: &str = "forged packets of players";
const REPLAYED: &str = "replayed packets of players";
const STRANGERS: &str = "junk from unknown sources";
const KEEP_ALIVE: &str = "a period of keep-alives, per session";
const TWO_WORKERS: &str = "uplink, one worker and two";
const TITLES: [&str; 6] = [UPLINK, DOWNLINK, FORGED, REPLAYED, STRANGERS, KEEP_ALIVE];

fn compare_sizes(bench: &mut Bench, crowds: &[RefCell<Crowd>]) {
    let turns = bench.size(TURNS, 2);
    for (title, load) in [
        (UPLINK, Load::Payloads),
        (FORGED, Load::Forged),
        (REPLAYED, Load::Replayed),
        (STRANGERS, Load::Strangers),
    ] {
        let mut group = bench.group(title, turns * BATCH);
        group.rounds(ROUNDS);
        group.add("copying in alone", Copying::new(turns));
        for crowd in crowds {
            let name = format!("{} sessions", crowd.borrow().len());
            group.add(name, Uplink { crowd, load, datagrams: Datagrams::new(turns) });
        }
        group.run_agreeing();
    }
    let mut group = bench.group(DOWNLINK, turns * BATCH);
    group.rounds(ROUNDS);
    for crowd in crowds {
        let name = format!("{} sessions", crowd.borrow().len());
        group.add(name, Downlink { crowd, random: Random::new(), bundles: Vec::new(), turns });
    }
    group.run_agreeing();
}

/// Time passes, nobody plays: every session is due once in a tenth of a second.
fn keep_alive(bench: &mut Bench, crowd: &RefCell<Crowd>) {
    let sessions = crowd.borrow().len();
    // A round long enough to be measured.
    let periods = bench.size((100_000 / sessions).max(1), 1);
    let mut group = bench.group(KEEP_ALIVE, sessions * periods);
    group.add(format!("{sessions} sessions"), || {
        let mut crowd = crowd.borrow_mut();
        let mut sent = 0;
        for _ in 0..periods * STEPS_PER_PERIOD {
            crowd.pass(SEND_INTERVAL_NS / STEPS_PER_PERIOD as u64);
            sent += crowd.turn();
        }
        sent
    });
    group.run();
}

/// Two gates that share what workers share: if they wrote to a line of memory in common, they would disturb each other more
/// than two gates do that share nothing.
fn compare_workers(bench: &mut Bench) {
    let turns = bench.size(8 * TURNS, 2);
    let players = bench.size(1_000, 100);
    let with_load = |crowd| Mutex::new((crowd, Datagrams::new(turns)));
    let fellows: Vec<_> =
        Crowd::workers(2, players, Aead::detect).into_iter().map(with_load).collect();
    let strangers: Vec<_> =
        (0..2).map(|_| with_load(Crowd::new(players, Aead::detect()))).collect();
    let mut group = bench.group(TWO_WORKERS, turns * BATCH);
    group.rounds(ROUNDS);
    group.add("one gate, one thread", Threads { crowds: &fellows[..1] });
    group.add("two gates that share claims, each", Threads { crowds: &fellows });
    group.add("two gates that share nothing, each", Threads { crowds: &strangers });
    group.run();
}

/// What arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Forged,
    Payloads,
    Replayed,
    Strangers,
}

/// What arrives in a round, one behind the other.
struct Datagrams {
    random: Random,
    bytes: Vec<u8>,
    heads: Vec<(Endpoint, usize)>,
    count: usize,
}

impl Datagrams {
    fn new(turns: usize) -> Self {
        let (bytes, heads) = (Vec::new(), Vec::new());
        Self { random: Random::new(), bytes, heads, count: turns * BATCH }
    }

    fn fill(&mut self, crowd: &mut Crowd, load: Load) {
        self.bytes.clear();
        self.heads.clear();
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..self.count {
            let player = self.random.below(crowd.len() as u64) as usize;
            let len = crowd.write_payload(player, &[7; 100], &mut packet);
            let mut from = Crowd::home(player);
            match load {
                Load::Forged => packet[len - 1] ^= 1,
                Load::Payloads => {}
                // Delivered here, untimed; what is timed is the copy.
                Load::Replayed => {
                    while !crowd.receive(from, &packet[..len]) {
                        crowd.turn();
                    }
                }
                Load::Strangers => {
                    from = Endpoint::v4((self.random.next() as u32).to_be_bytes(), 4000);
                }
            }
            self.bytes.extend_from_slice(&packet[..len]);
            self.heads.push((from, len));
        }
        crowd.turn();
    }

    fn play(&self, crowd: &mut Crowd) -> u64 {
        let mut rest = &self.bytes[..];
        for batch in self.heads.chunks(BATCH) {
            for &(from, len) in batch {
                let (datagram, behind) = rest.split_at(len);
                rest = behind;
                assert!(crowd.receive(from, datagram), "a batch fits a turn");
            }
            crowd.turn();
        }
        self.heads.len() as u64
    }
}

struct Uplink<'c> {
    crowd: &'c RefCell<Crowd>,
    load: Load,
    datagrams: Datagrams,
}

impl Contender for Uplink<'_> {
    fn prepare(&mut self) {
        self.datagrams.fill(&mut self.crowd.borrow_mut(), self.load);
    }

    fn run(&mut self) -> u64 {
        let mut crowd = self.crowd.borrow_mut();
        let before = settled(&crowd, self.load);
        self.datagrams.play(&mut crowd);
        settled(&crowd, self.load) - before
    }
}

/// What must have grown by one for each datagram.
fn settled(crowd: &Crowd, load: Load) -> u64 {
    let counters = crowd.gate().counters();
    match load {
        Load::Payloads => counters.payloads_to_links,
        Load::Forged | Load::Replayed | Load::Strangers => counters.drops.total(),
    }
}

/// What the rest of the round costs that is not the gate.
struct Copying {
    batch: RxBatch,
    datagrams: usize,
}

impl Copying {
    fn new(turns: usize) -> Self {
        Self {
            batch: RxBatch::in_memory(BATCH * DATAGRAM_BYTES_MAX, BATCH),
            datagrams: turns * BATCH,
        }
    }
}

impl Contender for Copying {
    fn run(&mut self) -> u64 {
        let packet = [7; 119];
        for at in 0..self.datagrams {
            let copied =
                self.batch.push_copy(SocketId(0), Crowd::home(at), std::hint::black_box(&packet));
            assert!(copied.is_some(), "a batch fits");
            if self.batch.len() == BATCH {
                self.batch.clear();
            }
        }
        self.datagrams as u64
    }
}

struct Downlink<'c> {
    crowd: &'c RefCell<Crowd>,
    random: Random,
    bundles: Vec<Vec<u8>>,
    turns: usize,
}

impl Contender for Downlink<'_> {
    fn prepare(&mut self) {
        let crowd = self.crowd.borrow();
        self.bundles.clear();
        for _ in 0..self.turns {
            let mut bundle = vec![0; BUNDLE_BYTES_MAX];
            let players: Vec<_> =
                (0..BATCH).map(|_| self.random.below(crowd.len() as u64) as usize).collect();
            let len = crowd.write_bundle(players.into_iter(), &[9; 100], &mut bundle);
            bundle.truncate(len);
            self.bundles.push(bundle);
        }
    }

    fn run(&mut self) -> u64 {
        let mut crowd = self.crowd.borrow_mut();
        let mut sent = 0;
        for bundle in &self.bundles {
            assert!(crowd.receive_bundle(bundle), "a bundle fits a turn");
            sent += crowd.turn();
        }
        sent
    }
}

struct Threads<'c> {
    crowds: &'c [Mutex<(Crowd, Datagrams)>],
}

impl Contender for Threads<'_> {
    fn prepare(&mut self) {
        for crowd in self.crowds {
            let (crowd, datagrams) = &mut *crowd.lock().expect("nobody panics");
            datagrams.fill(crowd, Load::Payloads);
        }
    }

    fn run(&mut self) -> u64 {
        std::thread::scope(|scope| {
            for (core, crowd) in self.crowds.iter().enumerate() {
                scope.spawn(move || {
                    let cores = core_affinity::get_core_ids().unwrap_or_default();
                    cores.get(core).map(|core| core_affinity::set_for_current(*core));
                    let (crowd, datagrams) = &mut *crowd.lock().expect("nobody panics");
                    datagrams.play(crowd)
                });
            }
        });
        0
    }
}

const BATCH: usize = 64;
const TURNS: usize = 64;
const ROUNDS: usize = 41;

/// Keep-alives come at the wheel's pace: a turn for every bucket.
const STEPS_PER_PERIOD: usize = 25;
