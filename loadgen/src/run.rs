//! One run from start to end: threads are started, their handovers joined, and everything ends up
//! in a [`Record`].

pub mod engine;
pub mod ladder;
mod pacer;
pub mod steady;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringgate_core::secret::Key;
use ringgate_os::clock::{self, Clock};
use ringgate_os::signals;

use crate::measure::gateway::Gateway;
use crate::measure::hlog::Log;
use crate::measure::kernel::Kernel;
use crate::measure::procfs::{self, Machine};
use crate::measure::silence::Silence;
use crate::measure::tally::{Count, Tally};
use crate::measure::watch::Watch;
use crate::players::arrivals::Arrivals;
use crate::players::scenario::{Phase, Scenario};
use crate::players::tokens::Tokens;
use crate::players::{Gauges, Protocol, SecondLoss, Setup};
use crate::report::check::{Closing, Hostile};
use crate::report::record::{Interruption, Interval, Record};
use crate::report::require::Allowance;
use crate::run::engine::{Handover, Options, Team};

/// What to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What happens.
    pub scenario: Scenario,
    /// What players speak.
    pub protocol: Protocol,
    /// The protocol id.
    pub protocol_id: u64,
    /// Whom they dial.
    pub server: SocketAddr,
    /// When payloads leave.
    pub arrivals: Arrivals,
    /// Threads.
    pub threads: u32,
    /// Threads' drivers and cores.
    pub options: Options,
    /// After how much silence of its own a player sends a keep-alive; netcode's clients do after
    /// 100 ms.
    pub keep_alive: Duration,
    /// Where to look at the gateway.
    pub gateway: Gateway,
    /// How many players may stay outside, or fall out, before that is a failure.
    pub allowed_outside: Allowance,
    /// How long the end of sessions is waited for whose goodbyes were lost: their tokens' timeout,
    /// and some.
    pub patience: Duration,
    /// Players who leave wait this long for what is on its way, and twice the slowest path of the
    /// impairments.
    pub linger: Duration,
    /// Where to write the histogram log.
    pub hlog: Option<PathBuf>,
}

/// What has happened so far, once per interval.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Since the run began.
    pub elapsed_s: f64,
    /// Where the players are.
    pub gauges: Gauges,
    /// The interval that has just ended.
    pub interval: &'a Tally,
    /// How long it was.
    pub interval_s: f64,
    /// Everything so far.
    pub total: &'a Tally,
    /// What is being run.
    pub scenario: &'a Scenario,
}

impl Run {
    /// Runs to the end, telling `watch` once per interval.
    pub fn execute(&self, mut watch: impl FnMut(&Progress<'_>)) -> Result<Record, String> {
        self.execute_with(|progress, _| watch(progress))
    }

    /// As [`execute`](Self::execute); `watch` can also ask for a copy of the first thread's socket,
    /// to send through.
    pub fn execute_with(
        &self,
        mut watch: impl FnMut(&Progress<'_>, &dyn Fn() -> Option<OwnedFd>),
    ) -> Result<Record, String> {
        let seed = Key::generate().map_err(|why| format!("cannot draw random numbers: {why}"))?;
        let run =
            u32::from_le_bytes(seed.as_bytes().first_chunk().copied().unwrap_or_default()) | 1;
        let impair = Arc::new(self.scenario.impair.clone());
        let resent_ns = if matches!(self.protocol, Protocol::Messages(..)) { RESENT_NS } else { 0 };
        let linger_ns = self.linger.as_nanos() as u64 + resent_ns + 2 * impair.lag_ns_max();
        let parts = (0..self.threads).map(|thread| {
            let setup = Setup {
                run,
                thread,
                protocol: self.protocol.clone(),
                protocol_id: self.protocol_id,
                arrivals: self.arrivals,
                impair: Arc::clone(&impair),
                linger_ns,
                keep_alive_ns: self.keep_alive.as_nanos() as u64,
            };
            (setup, self.scenario.plan(thread, self.threads))
        });
        let slots = self.scenario.sessions_max().div_ceil(self.threads) as usize;
        let kernel_before = Kernel::look(self.gateway.pid);
        let watched = Watch::begin(self.gateway.clone())?;
        let log = self
            .hlog
            .as_ref()
            .map(|path| File::create(path).map_err(|why| format!("{}: {why}", path.display())));
        let log = log.transpose()?;
        let team = Team::start(&self.options, parts.collect(), slots + slots / 4 + 16)
            .map_err(|why| why.to_string())?;
        let started_unix_ns = clock::unix_ns() - team.clock.now_ns();
        let mut book = Book::new(self, log, started_unix_ns);
        let mut resident = 0;
        let players_socket = team.players_socket.as_ref().and_then(|fd| fd.try_clone().ok());
        let copy = || players_socket.as_ref().and_then(|fd| fd.try_clone().ok());
        let mut watch = |progress: &Progress<'_>| watch(progress, &copy);
        let mut end = End::new(self, watched);
        let mut closing = None;
        while !team.has_ended() {
            if let Some(handover) = team.next(LOOK_EVERY) {
                book.take(handover, &mut watch);
                resident =
                    procfs::resident_bytes(std::process::id()).unwrap_or_default().max(resident);
            }
            if end.is_newly_interrupted() {
                team.wind_up();
            }
            match team.last_words() {
                None => end.look_on(),
                Some(_) if closing.is_some() => {}
                Some(last_words) => {
                    if let Some(is_quiet) = end.is_over(last_words) {
                        let kernel = Kernel::look(end.watch.pid()).since(&kernel_before);
                        closing = Some((is_quiet, kernel));
                        team.release();
                    }
                }
            }
        }
        let (clock_run, driver) = (team.clock, team.driver);
        for handover in team.join().map_err(|why| why.to_string())? {
            book.take(handover, &mut watch);
        }
        let (is_quiet, kernel) = closing.unwrap_or_default();
        let mut record = book.finish();
        record.started_unix_s = started_unix_ns / 1_000_000_000;
        record.seconds = clock_run.now_ns() as f64 / 1e9;
        record.machine = Machine::here();
        record.threads = self.threads;
        record.driver = driver.into();
        record.own_resident_bytes = resident;
        record.interrupted = end.interrupted;
        if record.count(Count::Tokenless) > 0 {
            record.token_refusal = self.protocol.tokens().and_then(Tokens::refusal);
        }
        record.allowed_outside = self.allowed_outside;
        let seen = end.watch.end();
        record.gateway_cpu = seen.cpu;
        record.gateway_metrics = seen.metrics;
        record.restarts = seen.restarts;
        record.hand_overs_s = seen.hand_overs_s;
        let unbalanced_workers = seen.unbalanced_workers;
        let is_there = seen.is_there;
        record.closing = Closing { is_quiet, is_there, unbalanced_workers, kernel };
        record.close_books(&Hostile::default());
        Ok(record)
    }
}

/// Looks on, and waits for the moment at which nothing moves any more, so that books can be closed.
struct End<'a> {
    run: &'a Run,
    clock: Clock,
    watch: Watch,
    looked_ns: u64,
    interrupted: Option<Interruption>,
    /// When the players had gone, and when something was last seen to move.
    since_ns: Option<(u64, u64)>,
    seen: (u64, [u64; 4]),
}

impl<'a> End<'a> {
    fn new(run: &'a Run, watch: Watch) -> Self {
        let seen = (u64::MAX, [0; 4]);
        let clock = Clock::start();
        Self { run, clock, watch, looked_ns: 0, interrupted: None, since_ns: None, seen }
    }

    /// Whether a signal has come that nobody has acted upon.
    fn is_newly_interrupted(&mut self) -> bool {
        let Some(signal) = signals::kept().filter(|_| self.interrupted.is_none()) else {
            return false;
        };
        let name = signals::name(signal);
        // A closed stderr is no reason to stop.
        let _ = writeln!(
            io::stderr(),
            "ringgate-loadgen: {name}: saying goodbye, then come the results; once more ends it at once"
        );
        let after_s = self.elapsed_s();
        self.interrupted = Some(Interruption { signal: name.into(), number: signal, after_s });
        true
    }

    fn elapsed_s(&self) -> f64 {
        self.clock.now_ns() as f64 / 1e9
    }

    /// Once a second while players play: who is restarted has to be told from who has counted on.
    fn look_on(&mut self) {
        let now_ns = self.clock.now_ns();
        if now_ns - self.looked_ns >= WATCH_EVERY_NS {
            self.looked_ns = now_ns;
            self.watch.look(self.elapsed_s());
        }
    }

    /// Looks at both sides. `Some` when all is quiet, or patience is at its end; whether it is
    /// quiet.
    fn is_over(&mut self, last_words: u64) -> Option<bool> {
        let (sessions_before, elapsed_s) = (self.watch.sessions_before(), self.elapsed_s());
        let glimpse = self.watch.look(elapsed_s).map(|it| (it.movement(), it.sessions()));
        let now_ns = self.clock.now_ns();
        let patience = match &self.interrupted {
            Some(_) => self.run.patience.min(INTERRUPTED_PATIENCE),
            None => self.run.patience,
        };
        let (gone_ns, moved_ns) = self.since_ns.get_or_insert((now_ns, now_ns));
        let seen = (last_words, glimpse.map(|(movement, _)| movement).unwrap_or_default());
        if seen != self.seen {
            *moved_ns = now_ns;
        }
        self.seen = seen;
        let is_still = now_ns - *moved_ns >= STILL_NS;
        // Plain players have no goodbye: their sessions stay until they are given up.
        let has_goodbyes = !matches!(self.run.protocol, Protocol::Plain(_));
        let is_left = |sessions| !has_goodbyes || sessions <= sessions_before;
        let is_quiet = is_still && glimpse.is_some_and(|(_, sessions)| is_left(sessions));
        let is_over = now_ns - *gone_ns >= patience.as_nanos() as u64;
        (is_quiet || is_over).then_some(is_quiet)
    }
}

/// Joins what threads hand over, interval by interval.
struct Book<'a> {
    run: &'a Run,
    interval_s: f64,
    log: Option<Log<BufWriter<File>>>,
    /// Intervals that some thread still owes.
    open: BTreeMap<u64, (u32, Tally, Gauges)>,
    /// Threads that owe nothing any more, and from which interval on.
    ended: Vec<u64>,
    total: Tally,
    record: Record,
    losses: Vec<SecondLoss>,
    /// Pushes of each interval: due, and come.
    pushes: Vec<(u64, u64)>,
}

impl<'a> Book<'a> {
    fn new(run: &'a Run, log: Option<File>, started_unix_ns: u64) -> Self {
        let silence = |phase: &Phase| Silence { phase: phase.name.clone(), ..Silence::default() };
        let record = Record {
            name: run.scenario.name.clone(),
            silences: run.scenario.phases.iter().map(silence).collect(),
            scenario: run.scenario.clone(),
            arrivals: run.arrivals,
            ..Record::default()
        };
        let mut this = Self {
            run,
            interval_s: run.options.interval.as_secs_f64(),
            log: None,
            open: BTreeMap::new(),
            ended: Vec::new(),
            total: Tally::new(),
            record,
            losses: Vec::new(),
            pushes: Vec::new(),
        };
        let begin = |file| Log::begin(BufWriter::new(file), started_unix_ns, &run.scenario.name);
        this.log = log.and_then(|file| this.logged(begin(file)));
        this
    }

    /// On a full disk the log loses what it has no room for, and nothing else is lost.
    fn logged<T>(&mut self, written: io::Result<T>) -> Option<T> {
        let why = |why| format!("cannot write the histogram log: {why}");
        let failed = written.as_ref().err().map(why);
        self.record.unwritten = self.record.unwritten.take().or(failed);
        written.ok()
    }

    fn take(&mut self, handover: Handover, watch: &mut impl FnMut(&Progress<'_>)) {
        let entry = self.open.entry(handover.interval);
        let (count, tally, gauges) = entry.or_insert_with(|| (0, Tally::new(), Gauges::default()));
        *count += 1;
        tally.merge(&handover.tally);
        gauges.connecting += handover.gauges.connecting;
        gauges.playing += handover.gauges.playing;
        gauges.leaving += handover.gauges.leaving;
        if let Some(last) = handover.last {
            self.ended.push(handover.interval);
            self.record.own_cpu.push(last.cpu);
            self.record.pause = self.record.pause.max(last.pause);
            for (all, silence) in self.record.silences.iter_mut().zip(&last.silences) {
                all.merge(silence);
            }
            let length = self.losses.len().max(last.seconds.len());
            self.losses.resize(length, SecondLoss::default());
            for (sum, second) in self.losses.iter_mut().zip(last.seconds) {
                sum.due += second.due;
                sum.echoed += second.echoed;
            }
        }
        while let Some((&interval, (count, ..))) = self.open.first_key_value() {
            let ended = self.ended.iter().filter(|last| **last < interval).count();
            if (*count as usize) + ended < self.run.threads as usize {
                return;
            }
            let (_, tally, gauges) = self.open.remove(&interval).unwrap_or_default();
            self.close(interval, &tally, gauges, watch);
        }
    }

    fn close(
        &mut self,
        interval: u64,
        tally: &Tally,
        gauges: Gauges,
        watch: &mut impl FnMut(&Progress<'_>),
    ) {
        let start_s = interval as f64 * self.interval_s;
        self.total.merge(tally);
        let pushes = [Count::PushesDue, Count::PushedDown].map(|count| tally.counters.of(count));
        self.pushes.push(pushes.into());
        self.record.intervals.push(Interval::of(start_s, self.interval_s, gauges.playing, tally));
        if let Some(log) = &mut self.log {
            let times = (Duration::from_secs_f64(start_s), self.run.options.interval);
            let written = log.write(times.0, times.1, tally);
            self.logged(written);
        }
        watch(&Progress {
            elapsed_s: start_s + self.interval_s,
            gauges,
            interval: tally,
            interval_s: self.interval_s,
            total: &self.total,
            scenario: &self.run.scenario,
        });
    }

    fn finish(mut self) -> Record {
        if let Some(log) = self.log.take() {
            self.logged(log.finish());
        }
        self.record.set_tally(&self.total);
        self.spread_losses();
        self.record
    }

    /// Gives each interval what was lost of its payloads, so that the intervals add up to the
    /// whole.
    ///
    /// What a game server says that it has heard belongs to the newest payload's second, though
    /// earlier ones may be among it: what is too much for a second is the earlier seconds'. The
    /// same goes for what it said itself, interval by interval.
    fn spread_losses(&mut self) {
        let intervals = &mut self.record.intervals;
        let mut early = 0;
        for (second, loss) in self.losses.iter().enumerate().rev() {
            let lost = missing_here(loss.due.into(), loss.echoed.into(), &mut early);
            let has_begun = |interval: &&mut Interval| interval.start_s <= second as f64;
            if let Some(interval) = intervals.iter_mut().rev().find(has_begun) {
                interval.lost += lost;
            }
        }
        let mut early = 0;
        for (interval, (due, came)) in intervals.iter_mut().zip(&self.pushes).rev() {
            interval.lost += missing_here(*due, *came, &mut early);
        }
    }
}

/// What is missing of what was due here, when what came too much later on is some of it.
fn missing_here(due: u64, came: u64, early: &mut u64) -> u64 {
    let came = came + *early;
    *early = came.saturating_sub(due);
    due.saturating_sub(came)
}

/// Players who leave wait so much longer for messages that have to be sent again, on their way or
/// on their echoes'.
const RESENT_NS: u64 = 2_000_000_000;

/// Between two looks at the gateway, which publishes its counters twenty times a second.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// How often a gateway is looked at while players play: as often as figures are shown.
const WATCH_EVERY_NS: u64 = 1_000_000_000;

/// How long the closing wait of an interrupted run may take: goodbyes are acted upon at once, and
/// a user who interrupts does not want to wait.
const INTERRUPTED_PATIENCE: Duration = Duration::from_secs(3);

/// So long without any movement is quiet: several of the gateway's reports, and longer than any
/// keep-alive's pace but a slow one, which sessions that are gone do not have.
const STILL_NS: u64 = 400_000_000;
