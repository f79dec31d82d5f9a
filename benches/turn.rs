//! The turn without a kernel: what a gate costs for each packet, at a thousand sessions and at a
//! million.
//!
//! A round is 64 turns over 64 datagrams each, made beforehand, from players in random order: so at
//! a million sessions nearly every packet meets a session that no cache knows. Datagrams are copied
//! in, as a kernel would do; that is shown by itself, to be subtracted. What leaves is counted and
//! dropped.
//!
//! ```text
//! cargo bench --bench turn                  everything; the million takes 600 MiB
//! cargo bench --bench turn -- uplink        the groups whose title contains the word
//! cargo bench --bench turn -- --sessions=1000 --rounds=2000 uplink      for a profile
//! benches/turn-instructions.sh              instructions per packet, under callgrind
//! ```

#[path = "support.rs"]
mod support;

use std::cell::RefCell;
use std::sync::Mutex;

use core_affinity::CoreId;
use ringgate_batch::{Endpoint, RxBatch, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_core::limits::{BUNDLE_BYTES_MAX, DATAGRAM_BYTES_MAX};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_os::memory::prefer_huge_pages;
use ringgate_testkit::ConnectedPlayers;

use support::{Bench, Contender, Random};

fn main() {
    // Asked before the first is chosen: afterwards there is only that one to be seen.
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = cores.first() {
        core_affinity::set_for_current(*core);
    }
    if std::env::args().any(|given| given == "--count") {
        return count();
    }
    let mut bench = Bench::from_args("turn");
    let asked = std::env::args().find_map(|given| given.strip_prefix("--sessions=")?.parse().ok());
    let sizes: Vec<usize> = match asked {
        Some(sessions) => vec![sessions],
        None => SIZES.iter().map(|(full, tiny)| bench.size(*full, *tiny)).collect(),
    };
    let wants = |bench: &Bench| TITLES.iter().any(|title| bench.wants(title));
    if wants(&bench) {
        let groups: Vec<_> =
            sizes.into_iter().map(|players| RefCell::new(connected(players))).collect();
        compare_sizes(&mut bench, &groups);
        for connected in &groups {
            keep_alive(&mut bench, connected);
            idle(&mut bench, connected);
            let books = connected.borrow().gate().counters().check_conservation();
            assert_eq!(books, Ok(()));
        }
    }
    if bench.wants(EMPTY) {
        compare_hosts(&mut bench);
    }
    if bench.wants(CARRIER) {
        compare_junk(&mut bench);
    }
    if bench.wants(TWO_WORKERS) {
        compare_workers(&mut bench, &cores);
    }
    bench.finish();
}

const UPLINK: &str = "uplink, 100 bytes";
const DOWNLINK: &str = "downlink, 100 bytes, 64 in a bundle";
const FORGED: &str = "forged packets of players";
const REPLAYED: &str = "replayed packets of players";
const STRANGERS: &str = "junk from unknown sources";
const KEEP_ALIVE: &str = "a period of keep-alives, per session";
const CARRIER: &str = "300,000 junk datagrams a second, 2,000 silent sessions at one address";
const TWO_WORKERS: &str = "uplink, one worker and two";
const IDLE: &str = "a second with nothing due, per session";
const EMPTY: &str = "a turn in which nothing has arrived";
const TITLES: [&str; 7] = [UPLINK, DOWNLINK, FORGED, REPLAYED, STRANGERS, KEEP_ALIVE, IDLE];

/// As a worker has it: its large tables on huge pages, if there are any.
fn connected(players: usize) -> ConnectedPlayers {
    ConnectedPlayers::prepared(players, Aead::detect(), |gate| {
        gate.large_tables().for_each(|table| drop(prefer_huge_pages(&table)));
    })
}

fn compare_sizes(bench: &mut Bench, groups: &[RefCell<ConnectedPlayers>]) {
    let turns = bench.size(TURNS, 2);
    for (title, load) in [
        (UPLINK, Load::Payloads),
        (FORGED, Load::Forged),
        (REPLAYED, Load::Replayed),
        (STRANGERS, Load::Strangers),
    ] {
        let mut group = bench.group(title, turns * BATCH);
        group.rounds(ROUNDS);
        for connected in groups {
            let name = format!("{} sessions", connected.borrow().len());
            if load == Load::Payloads {
                group.add(format!("{name}, copying in alone"), Copying::new(connected, turns));
            }
            group.add(name, Uplink { connected, load, datagrams: Datagrams::new(turns) });
        }
        group.run_agreeing();
    }
    let mut group = bench.group(DOWNLINK, turns * BATCH);
    group.rounds(ROUNDS);
    for connected in groups {
        let name = format!("{} sessions", connected.borrow().len());
        group.add(name, Downlink { connected, random: Random::new(), bundles: Vec::new(), turns });
    }
    group.run_agreeing();
}

/// Time passes, nobody plays: every session is due once in a tenth of a second.
fn keep_alive(bench: &mut Bench, connected: &RefCell<ConnectedPlayers>) {
    let sessions = connected.borrow().len();
    // A round long enough to be measured.
    let periods = bench.size((100_000 / sessions).max(1), 1);
    let mut group = bench.group(KEEP_ALIVE, sessions * periods);
    group.add(format!("{sessions} sessions"), || {
        let mut connected = connected.borrow_mut();
        let mut sent = 0;
        for _ in 0..periods * STEPS_PER_PERIOD {
            connected.pass(SEND_INTERVAL_NS / STEPS_PER_PERIOD as u64);
            sent += connected.turn();
        }
        sent
    });
    group.run();
}

/// Time passes and nothing is due, for hours: what timers cost by themselves. Asked when they are
/// due next in every turn, as a worker does.
fn idle(bench: &mut Bench, connected: &RefCell<ConnectedPlayers>) {
    let sessions = connected.borrow().len();
    let seconds = bench.size((100_000 / sessions).clamp(4, 100), 1);
    if bench.wants(IDLE) {
        let mut connected = connected.borrow_mut();
        connected.keep_alive_every(u64::MAX / 2);
        // Everybody's next look lies behind the wheel's horizon now.
        for _ in 0..60 * STEPS_PER_PERIOD {
            pass_idle(&mut connected);
        }
    }
    let mut group = bench.group(IDLE, sessions * seconds);
    group.add(format!("{sessions} sessions"), || {
        let mut connected = connected.borrow_mut();
        let turns = seconds * (NS_PER_S / SEND_INTERVAL_NS) as usize * STEPS_PER_PERIOD;
        (0..turns).map(|_| pass_idle(&mut connected)).sum()
    });
    group.run();
}

fn pass_idle(connected: &mut ConnectedPlayers) -> u64 {
    connected.pass(SEND_INTERVAL_NS / STEPS_PER_PERIOD as u64);
    let sent = connected.turn();
    assert_eq!(sent, 0, "nothing is due");
    connected.gate().poll_timeout().unwrap_or(0)
}

/// What a turn costs however little there is to do, and whether that grows with what runs on the
/// host.
fn compare_hosts(bench: &mut Bench) {
    let turns = bench.size(10_000, 2);
    let mut group = bench.group(EMPTY, turns);
    for games in [1, 500] {
        let mut connected =
            ConnectedPlayers::with_idle_games(FEW, games - 1, Aead::detect(), |_| ());
        group.add(format!("{games} game processes"), move || {
            (0..turns)
                .map(|_| connected.turn() + connected.gate().poll_timeout().unwrap_or(0))
                .sum()
        });
    }
    group.run_agreeing();
}

/// Two gates that share what workers share: if they wrote to a line of memory in common, they would
/// disturb each other more than two gates do that share nothing. What junk costs that comes from
/// one address of many players whose ports have just changed, next to junk from anywhere: at its
/// worst, when it is numbered as the next packets of these players are, and when it is not. Time
/// passes as it does at that rate.
fn compare_junk(bench: &mut Bench) {
    let players = bench.size(2_000, 100);
    let turns = bench.size(TURNS, 2);
    let mut connected = ConnectedPlayers::behind_one_address(players, Aead::detect());
    connected.keep_alive_every(u64::MAX / 2);
    connected.pass(NS_PER_S / 2);
    connected.turn();
    let connected = RefCell::new(connected);
    // What may be spent at once is spent before: what follows is what lasts.
    let mut likely =
        Junk { connected: &connected, source: Junks::Likely, datagrams: Datagrams::new(turns) };
    for _ in 0..bench.size(20, 1) {
        likely.prepare();
        likely.run();
    }
    let mut group = bench.group(CARRIER, turns * BATCH);
    group.rounds(ROUNDS);
    for (name, source) in [
        ("from anywhere", Junks::Anywhere),
        ("from the address, with any number", Junks::Unlikely),
        ("from the address, with likely numbers", Junks::Likely),
    ] {
        group.add(name, Junk { connected: &connected, source, datagrams: Datagrams::new(turns) });
    }
    group.run_agreeing();
}

/// Where junk comes from, and how it is numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Junks {
    Anywhere,
    Likely,
    Unlikely,
}

struct Junk<'c> {
    connected: &'c RefCell<ConnectedPlayers>,
    source: Junks,
    datagrams: Datagrams,
}

impl Contender for Junk<'_> {
    fn prepare(&mut self) {
        let mut connected = self.connected.borrow_mut();
        let Self { source, datagrams, .. } = self;
        datagrams.bytes.clear();
        datagrams.heads.clear();
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..datagrams.count {
            let player = datagrams.random.below(connected.len() as u64) as usize;
            let far = if *source == Junks::Unlikely { 1 << 40 } else { 0 };
            let ahead = far + datagrams.random.below(8);
            let len = connected.write_junk(player, ahead, &[7; 100], &mut packet);
            let port = 10_000 + datagrams.random.below(50_000) as u16;
            let from = match source {
                Junks::Anywhere => {
                    Endpoint::v4((datagrams.random.next() as u32).to_be_bytes(), port)
                }
                Junks::Likely | Junks::Unlikely => connected.home_of(player).with_port(port),
            };
            datagrams.bytes.extend_from_slice(&packet[..len]);
            datagrams.heads.push((from, len));
        }
        connected.turn();
    }

    fn run(&mut self) -> u64 {
        let mut connected = self.connected.borrow_mut();
        let before = connected.gate().counters().drops.total();
        let mut rest = &self.datagrams.bytes[..];
        for batch in self.datagrams.heads.chunks(BATCH) {
            for &(from, len) in batch {
                let (datagram, behind) = rest.split_at(len);
                rest = behind;
                assert!(connected.receive(from, datagram), "a batch fits a turn");
            }
            connected.pass(BATCH as u64 * NS_PER_S / JUNK_PER_S);
            connected.turn();
        }
        connected.gate().counters().drops.total() - before
    }
}

const JUNK_PER_S: u64 = 300_000;

fn compare_workers(bench: &mut Bench, cores: &[CoreId]) {
    let turns = bench.size(8 * TURNS, 2);
    let players = bench.size(1_000, 100);
    let with_load = |connected| Mutex::new((connected, Datagrams::new(turns)));
    let fellows: Vec<_> =
        ConnectedPlayers::workers(2, players, Aead::detect).into_iter().map(with_load).collect();
    let strangers: Vec<_> = (0..2).map(|_| with_load(connected(players))).collect();
    let mut group = bench.group(TWO_WORKERS, turns * BATCH);
    group.rounds(ROUNDS);
    group.add("one gate, one thread", Threads { cores, groups: &fellows[..1] });
    group.add("two gates that share claims, each", Threads { cores, groups: &fellows });
    group.add("two gates that share nothing, each", Threads { cores, groups: &strangers });
    group.run();
}

/// Runs every kind of work once, so that callgrind can count it: one dump for each line that is
/// printed.
fn count() {
    let connected = RefCell::new(connected(FEW));
    let turns = 4;
    println!("work,packets");
    for (name, load) in [
        ("uplink", Load::Payloads),
        ("forged", Load::Forged),
        ("replayed", Load::Replayed),
        ("strangers", Load::Strangers),
    ] {
        count_one(name, Uplink { connected: &connected, load, datagrams: Datagrams::new(turns) });
    }
    let (random, bundles) = (Random::new(), Vec::new());
    count_one("downlink", Downlink { connected: &connected, random, bundles, turns });
}

fn count_one(name: &str, mut contender: impl Contender) {
    // The first time is not like the others.
    for is_warm in [false, true] {
        contender.prepare();
        let packets = if is_warm { counted(&mut || contender.run()) } else { contender.run() };
        if is_warm {
            println!("{name},{packets}");
        }
    }
}

#[inline(never)]
fn counted(work: &mut dyn FnMut() -> u64) -> u64 {
    work()
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

    fn fill(&mut self, connected: &mut ConnectedPlayers, load: Load) {
        self.bytes.clear();
        self.heads.clear();
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..self.count {
            let player = self.random.below(connected.len() as u64) as usize;
            let len = connected.write_payload(player, &[7; 100], &mut packet);
            let mut from = ConnectedPlayers::home(player);
            match load {
                Load::Forged => packet[len - 1] ^= 1,
                Load::Payloads => {}
                // Delivered here, untimed; what is timed is the copy.
                Load::Replayed => {
                    while !connected.receive(from, &packet[..len]) {
                        connected.turn();
                    }
                }
                Load::Strangers => {
                    from = Endpoint::v4((self.random.next() as u32).to_be_bytes(), 4000);
                }
            }
            self.bytes.extend_from_slice(&packet[..len]);
            self.heads.push((from, len));
        }
        connected.turn();
    }

    fn play(&self, connected: &mut ConnectedPlayers) -> u64 {
        let mut rest = &self.bytes[..];
        for batch in self.heads.chunks(BATCH) {
            for &(from, len) in batch {
                let (datagram, behind) = rest.split_at(len);
                rest = behind;
                assert!(connected.receive(from, datagram), "a batch fits a turn");
            }
            connected.turn();
        }
        self.heads.len() as u64
    }
}

struct Uplink<'c> {
    connected: &'c RefCell<ConnectedPlayers>,
    load: Load,
    datagrams: Datagrams,
}

impl Contender for Uplink<'_> {
    fn prepare(&mut self) {
        self.datagrams.fill(&mut self.connected.borrow_mut(), self.load);
    }

    fn run(&mut self) -> u64 {
        let mut connected = self.connected.borrow_mut();
        let before = settled(&connected, self.load);
        self.datagrams.play(&mut connected);
        settled(&connected, self.load) - before
    }
}

/// What must have grown by one for each datagram.
fn settled(connected: &ConnectedPlayers, load: Load) -> u64 {
    let counters = connected.gate().counters();
    match load {
        Load::Payloads => counters.payloads_to_links,
        Load::Forged | Load::Replayed | Load::Strangers => counters.drops.total(),
    }
}

/// What a round costs that is not the gate: the same datagrams, copied in and forgotten.
struct Copying<'c> {
    connected: &'c RefCell<ConnectedPlayers>,
    datagrams: Datagrams,
    batch: RxBatch,
}

impl<'c> Copying<'c> {
    fn new(connected: &'c RefCell<ConnectedPlayers>, turns: usize) -> Self {
        let batch = RxBatch::in_memory(BATCH * DATAGRAM_BYTES_MAX, BATCH);
        Self { connected, datagrams: Datagrams::new(turns), batch }
    }
}

impl Contender for Copying<'_> {
    fn prepare(&mut self) {
        self.datagrams.fill(&mut self.connected.borrow_mut(), Load::Payloads);
    }

    fn run(&mut self) -> u64 {
        let mut rest = &self.datagrams.bytes[..];
        for &(from, len) in &self.datagrams.heads {
            let (datagram, behind) = rest.split_at(len);
            rest = behind;
            let copied = self.batch.push_copy(SocketId(0), from, datagram);
            assert!(copied.is_some(), "a batch fits");
            if self.batch.len() == BATCH {
                self.batch.clear();
            }
        }
        self.datagrams.heads.len() as u64
    }
}

struct Downlink<'c> {
    connected: &'c RefCell<ConnectedPlayers>,
    random: Random,
    bundles: Vec<Vec<u8>>,
    turns: usize,
}

impl Contender for Downlink<'_> {
    fn prepare(&mut self) {
        let connected = self.connected.borrow();
        self.bundles.clear();
        for _ in 0..self.turns {
            let mut bundle = vec![0; BUNDLE_BYTES_MAX];
            let players: Vec<_> =
                (0..BATCH).map(|_| self.random.below(connected.len() as u64) as usize).collect();
            let len = connected.write_bundle(players.into_iter(), &[9; 100], &mut bundle);
            bundle.truncate(len);
            self.bundles.push(bundle);
        }
    }

    fn run(&mut self) -> u64 {
        let mut connected = self.connected.borrow_mut();
        let mut sent = 0;
        for bundle in &self.bundles {
            assert!(connected.receive_bundle(bundle), "a bundle fits a turn");
            sent += connected.turn();
        }
        sent
    }
}

struct Threads<'c> {
    cores: &'c [CoreId],
    groups: &'c [Mutex<(ConnectedPlayers, Datagrams)>],
}

impl Contender for Threads<'_> {
    fn prepare(&mut self) {
        for connected in self.groups {
            let (connected, datagrams) = &mut *connected.lock().expect("nobody panics");
            datagrams.fill(connected, Load::Payloads);
        }
    }

    fn run(&mut self) -> u64 {
        std::thread::scope(|scope| {
            for (connected, core) in self.groups.iter().zip(self.cores.iter().cycle()) {
                scope.spawn(move || {
                    core_affinity::set_for_current(*core);
                    let (connected, datagrams) = &mut *connected.lock().expect("nobody panics");
                    datagrams.play(connected)
                });
            }
        });
        0
    }
}

/// Sessions: when measuring, and under `cargo test`.
const SIZES: [(usize, usize); 3] = [(1_000, 100), (100_000, 200), (1_000_000, 300)];

/// Sessions where their number does not matter.
const FEW: usize = 100;

const NS_PER_S: u64 = 1_000_000_000;

const BATCH: usize = 64;
const TURNS: usize = 64;
const ROUNDS: usize = 41;

/// Keep-alives come at the wheel's pace: a turn for every bucket.
const STEPS_PER_PERIOD: usize = 25;
