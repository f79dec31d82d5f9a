//! Measuring, for all benches: contenders run in interleaved rounds, and the median round counts.
//!
//! On a shared machine speed drifts by more than most differences that matter. So no contender runs
//! alone: every round runs each of them once, in another order each time (a contender inherits the
//! caches of the one before), and what is compared was measured side by side.
//!
//! ```text
//! cargo bench --bench replay                     everything, printed as tables
//! cargo bench --bench replay -- million          the groups whose title contains the word
//! cargo bench --bench replay -- --record         everything, and kept in benches/record/
//! cargo bench --bench replay -- --rounds=5000    long enough for a profile
//! cargo test                                     one tiny round of everything: it runs
//! ```
//!
//! `cargo bench` passes `--bench` and `cargo test` does not: that is how a bench knows which of the
//! two it is.
#![allow(dead_code, reason = "each bench includes this file and uses the part it needs")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;

use ringgate_os::clock::{self, Clock};
use ringgate_os::utc;

/// One way of doing the work of a group.
pub(crate) trait Contender {
    /// Brings the state to where each round begins. Not timed.
    fn prepare(&mut self) {}

    /// Does all operations of a round. Timed. Returns something that depends on all the work, so
    /// that none is optimised away; contenders that do the same work return the same.
    fn run(&mut self) -> u64;

    /// Gives back what [`prepare`](Self::prepare) took, where all contenders together would need
    /// too much. Not timed.
    fn release(&mut self) {}
}

impl<F: FnMut() -> u64> Contender for F {
    fn run(&mut self) -> u64 {
        self()
    }
}

/// A bench program: its arguments, and what it has measured.
pub(crate) struct Bench {
    name: &'static str,
    tiny: bool,
    record: bool,
    rounds: Option<usize>,
    filters: Vec<String>,
    rows: Vec<Row>,
}

impl Bench {
    /// Reads the arguments that Cargo and the user passed.
    pub(crate) fn from_args(name: &'static str) -> Self {
        let (options, filters): (Vec<_>, Vec<_>) =
            std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
        let has = |option: &str| options.iter().any(|given| given == option);
        let (tiny, record) = (!has("--bench"), has("--record"));
        let rounds = options.iter().find_map(|given| given.strip_prefix("--rounds=")?.parse().ok());
        assert!(filters.is_empty() || !record, "only a full run is recorded");
        Self { name, tiny, record, rounds, filters, rows: Vec::new() }
    }

    /// The size of something: `full` when measuring, `tiny` under `cargo test`.
    pub(crate) fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }

    /// Whether the groups of this title are wanted: large inputs need not be built for others.
    pub(crate) fn wants(&self, title: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| title.contains(filter))
    }

    /// Begins a group of contenders that do the same work, `operations` times a round.
    pub(crate) fn group<'c>(&mut self, title: &str, operations: usize) -> Group<'_, 'c> {
        let rounds = self.rounds.unwrap_or_else(|| self.size(ROUNDS, 1));
        let (title, contenders) = (title.to_owned(), Vec::new());
        Group { title, operations, rounds, warmed: false, contenders, bench: self }
    }

    /// Writes the record, if one was asked for.
    pub(crate) fn finish(self) {
        if !self.record || self.tiny {
            return;
        }
        let (cpu, kernel) = (cpu_model(), kernel_release());
        let mut csv =
            "group,contender,operations,rounds,median_ns,fastest_ns,slowest_ns,cpu,kernel\n"
                .to_owned();
        for row in &self.rows {
            let [median, fastest, slowest] = row.ns.map(|ns| format!("{ns:.2}"));
            let Row { group, contender, operations, rounds, .. } = row;
            let numbers = format!("{operations},{rounds},{median},{fastest},{slowest}");
            writeln!(csv, "\"{group}\",\"{contender}\",{numbers},\"{cpu}\",{kernel}")
                .expect("a String takes everything");
        }
        // Programs of another package lie further down.
        let mut roots = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let root = roots.find(|root| root.join("benches/record").is_dir()).expect("it is there");
        let folder =
            format!("benches/record/{}-{}", &utc::date(clock::unix_seconds())[..10], cpu_id());
        let file = root.join(&folder).join(self.name).with_extension("csv");
        std::fs::create_dir_all(root.join(&folder)).expect("benches/ can be written to");
        std::fs::write(file, csv).expect("benches/record/ can be written to");
        println!("\nrecorded in {folder}/{}.csv", self.name);
    }
}

/// Contenders that are measured against each other.
pub(crate) struct Group<'b, 'c> {
    bench: &'b mut Bench,
    title: String,
    operations: usize,
    rounds: usize,
    warmed: bool,
    contenders: Vec<(String, Box<dyn Contender + 'c>)>,
}

impl<'c> Group<'_, 'c> {
    /// Runs this many rounds. For work that the rest of the machine disturbs easily: short rounds,
    /// and many of them.
    pub(crate) fn rounds(&mut self, rounds: usize) -> &mut Self {
        self.rounds = self.bench.rounds.unwrap_or_else(|| self.bench.size(rounds, 1));
        self
    }

    /// Lets every contender do each round twice, of which the second counts: what the others have
    /// left behind in the CPU is then no part of what is measured.
    pub(crate) fn warmed(&mut self) -> &mut Self {
        self.warmed = true;
        self
    }

    /// Adds a contender. The first one is what the others are compared with.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        contender: impl Contender + 'c,
    ) -> &mut Self {
        self.contenders.push((name.into(), Box::new(contender)));
        self
    }

    /// Measures, and prints the table.
    pub(crate) fn run(&mut self) {
        let _ = self.results();
    }

    /// Measures, prints the table, and panics unless all contenders have returned the same.
    pub(crate) fn run_agreeing(&mut self) {
        let results = self.results();
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "the contenders of \"{}\" disagree: {results:?}",
            self.title
        );
    }

    /// Runs all rounds; returns what each contender returned in the last one.
    fn results(&mut self) -> Vec<u64> {
        if !self.bench.wants(&self.title) {
            return Vec::new();
        }
        let rounds = self.rounds;
        let count = self.contenders.len();
        let mut times_ns = vec![Vec::with_capacity(rounds); count];
        let mut results = vec![0; count];
        let mut order: Vec<_> = (0..count).collect();
        let mut random = Random::new();
        let clock = Clock::start();
        for _ in 0..rounds {
            random.shuffle(&mut order);
            for &index in &order {
                let contender = &mut self.contenders[index].1;
                if self.warmed {
                    contender.prepare();
                    black_box(contender.run());
                    contender.release();
                }
                contender.prepare();
                let start_ns = clock.now_ns();
                results[index] = black_box(contender.run());
                let elapsed_ns = clock.now_ns() - start_ns;
                contender.release();
                times_ns[index].push(elapsed_ns as f64 / self.operations as f64);
            }
        }
        self.report(times_ns);
        results
    }

    fn report(&mut self, times_ns: Vec<Vec<f64>>) {
        if self.bench.tiny {
            println!("{}: {}: ran", self.bench.name, self.title);
            return;
        }
        let rounds = self.rounds;
        println!("\n{}, ns each (median of {rounds} rounds; fastest, slowest)", self.title);
        let mut first_median = None;
        for ((contender, _), mut times) in self.contenders.iter().zip(times_ns) {
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            let (fastest, slowest) = (times[0], times[times.len() - 1]);
            let ratio = median / *first_median.get_or_insert(median);
            println!("  {contender:<36} {median:>9.2}  ({fastest:.2}, {slowest:.2})  x{ratio:.2}");
            self.bench.rows.push(Row {
                group: self.title.clone(),
                contender: contender.clone(),
                operations: self.operations,
                rounds,
                ns: [median, fastest, slowest],
            });
        }
    }
}

/// One line of the record. Times are per operation: median, fastest, slowest round.
struct Row {
    group: String,
    contender: String,
    operations: usize,
    rounds: usize,
    ns: [f64; 3],
}

/// A small generator with a fixed seed: every run measures the same work.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

fn cpu_model() -> String {
    cpu_line("model name").unwrap_or_else(|| "unknown".to_owned())
}

/// What a marketing name may not tell apart, such as `intel-6-143`: vendor, family, model.
fn cpu_id() -> String {
    let vendor = match cpu_line("vendor_id").as_deref() {
        Some("GenuineIntel") => "intel",
        Some("AuthenticAMD") => "amd",
        _ => return std::env::consts::ARCH.to_owned(),
    };
    let number = |name| cpu_line(name).unwrap_or_default();
    format!("{vendor}-{}-{}", number("cpu family"), number("model"))
}

fn cpu_line(name: &str) -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Odd, so that the median is a round that happened. Enough that one or two disturbed rounds do not
/// move it.
const ROUNDS: usize = 11;
