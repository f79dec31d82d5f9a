//! Every interval: takes the workers' histograms, shows them, and writes them to the file if there
//! is one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::hlog::HistogramLog;
use super::latency::Collector;
use super::runtime::{Files, Runtime};
use super::view::View;
use crate::config::Histograms;
use ringgate_os::clock;
use ringgate_worker::handover::Latency;

/// The task that does it.
pub(super) struct Recorder {
    view: Arc<View>,
    collector: Collector,
    /// How and by which rules files are written, where they are.
    wanted: Option<(Files, Histograms)>,
    /// The present file. The first interval begins the first: a process that dies before it has one
    /// leaves none, and whoever the daemon has become makes it.
    log: Option<HistogramLog>,
    every: Duration,
    /// What the file's intervals count from, in nanoseconds of the fleet's clock.
    epoch_ns: u64,
    /// When the present interval began.
    since_ns: u64,
    /// Intervals in a row that could not be written, or had no file of their own.
    missing: u64,
}

impl Recorder {
    /// Without files, latencies are shown at the admin address only.
    pub(super) fn start(runtime: &Runtime, view: &Arc<View>, config: Option<&Histograms>) -> Self {
        let now_ns = view.now_ns();
        Self {
            view: Arc::clone(view),
            collector: Collector::new(view.published()),
            wanted: config.map(|rules| (runtime.files(), rules.clone())),
            log: None,
            every: config.map_or(SHOW_EVERY, |config| config.interval),
            epoch_ns: now_ns,
            since_ns: now_ns,
            missing: 0,
        }
    }

    /// Goes on with what the process before this one has shown.
    pub(super) fn go_on(&mut self, latencies: &[Latency]) {
        let setup = Arc::clone(&self.view.live().setup);
        self.collector.go_on(latencies, &setup);
        self.view.live().latencies = Arc::new(self.collector.shown().clone());
    }

    /// Where the files are.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.wanted.as_ref().map(|(_, rules)| &*rules.dir)
    }

    /// Records interval after interval until it is told that the daemon ends.
    pub(super) async fn run(&mut self, mut ends: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ends.wait_for(|it| *it) => return,
                _ = ticks.tick() => {}
            }
            let until_ns = self.view.now_ns();
            let setup = Arc::clone(&self.view.live().setup);
            self.collector.collect(&setup).await;
            self.conclude_in_time(until_ns, async { drop(ends.wait_for(|it| *it).await) }).await;
        }
    }

    /// Records what is left when the workers have stopped.
    pub(super) async fn finish(&mut self) {
        let until_ns = self.view.now_ns();
        let setup = Arc::clone(&self.view.live().setup);
        self.collector.collect_last(&setup);
        self.conclude_in_time(until_ns, std::future::ready(())).await;
    }

    /// A disk that has not answered some time after the end keeps nobody: nothing more goes there.
    async fn conclude_in_time(&mut self, until_ns: u64, ends: impl Future<Output = ()>) {
        let is_late = async {
            ends.await;
            tokio::time::sleep(LAST_WRITE).await;
        };
        tokio::select! {
            () = self.conclude(until_ns) => return,
            () = is_late => {}
        }
        self.log = None;
        if let Some((_, rules)) = self.wanted.take() {
            let dir = rules.dir.display();
            tracing::error!(
                "histograms.dir: {dir} does not answer: the last intervals are missing"
            );
        }
    }

    async fn conclude(&mut self, until_ns: u64) {
        self.view.live().latencies = Arc::new(self.collector.shown().clone());
        // Seldom looked at, another program's overflows could be taken for ours.
        let published = self.view.published().iter();
        let reports: Vec<_> = published.map(|worker| worker.report()).collect();
        self.view.split_drops(&reports);
        let (since_ns, length_ns) = (self.since_ns, until_ns - self.since_ns);
        self.since_ns = until_ns;
        let outcome = self.write(since_ns, Duration::from_nanos(length_ns)).await;
        let Some((_, rules)) = &self.wanted else { return };
        let dir = rules.dir.display();
        match outcome {
            Ok(()) if self.missing > 0 => {
                tracing::info!(
                    "{dir} is written to again; {} intervals may be missing",
                    self.missing
                );
                self.missing = 0;
            }
            Ok(()) => {}
            Err(why) => {
                self.view.live().log_failures += 1;
                self.missing += 1;
                // A full disk is full for a while; once is enough.
                if self.missing == 1 {
                    tracing::error!(
                        "histograms.dir: cannot write to {dir}: {why}; intervals may be missing from now on"
                    );
                }
            }
        }
    }

    /// Writes the interval that was collected, to a new file if it is time for one.
    async fn write(&mut self, since_ns: u64, length: Duration) -> io::Result<()> {
        let Some((files, rules)) = &self.wanted else { return Ok(()) };
        let age = Duration::from_nanos(since_ns - self.epoch_ns);
        let mut begun = Ok(());
        if self.log.as_ref().is_none_or(|log| log.is_done(age)) {
            let ago_ns = self.view.now_ns() - since_ns;
            let unix = Duration::from_nanos(clock::unix_ns().saturating_sub(ago_ns));
            begun = HistogramLog::create(*files, rules, unix).await.map(|log| {
                tracing::info!("histograms are written to {} from now on", log.path().display());
                (self.log, self.epoch_ns) = (Some(log), since_ns);
            });
        }
        // Where the next file cannot be made, the present one goes on.
        if let Some(log) = &mut self.log {
            let start = Duration::from_nanos(since_ns - self.epoch_ns);
            log.append(self.collector.stages(), start, length).await?;
        }
        begun
    }
}

/// How long the end waits for a disk.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// How often latencies are taken to be shown, where no file says otherwise.
const SHOW_EVERY: Duration = Duration::from_secs(10);
