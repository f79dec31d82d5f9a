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
    log: Option<HistogramLog>,
    /// The file that is to be begun as soon as that can be done.
    wanted: Option<(Files, Histograms)>,
    every: Duration,
    /// When the file was begun, in nanoseconds of the fleet's clock.
    epoch_ns: u64,
    /// When the present interval began.
    since_ns: u64,
    /// Intervals in a row that could not be written.
    missing: u64,
}

impl Recorder {
    /// Begins the file. Without one, latencies are shown at the admin address only; a folder that
    /// cannot be written to is no reason not to serve, and is tried again.
    pub(super) fn start(runtime: &Runtime, view: &Arc<View>, config: Option<&Histograms>) -> Self {
        let now_ns = view.now_ns();
        let mut recorder = Self {
            view: Arc::clone(view),
            collector: Collector::new(view.published()),
            log: None,
            wanted: config.map(|rules| (runtime.files(), rules.clone())),
            every: config.map_or(SHOW_EVERY, |config| config.interval),
            epoch_ns: now_ns,
            since_ns: now_ns,
            missing: 0,
        };
        let begun = runtime.block_on(recorder.begin());
        recorder.since_ns = recorder.epoch_ns;
        if let (Err(why), Some(rules)) = (begun, config) {
            let dir = rules.dir.display();
            tracing::warn!(
                "histograms.dir: cannot write to {dir}: {why}; latencies are at the admin address only until that can be done"
            );
            recorder.missing = 1;
        }
        recorder
    }

    /// Begins the file, where one is wanted and there is none. Intervals count from now on.
    async fn begin(&mut self) -> io::Result<()> {
        let Some((files, rules)) = &self.wanted else { return Ok(()) };
        let (now_ns, unix) = (self.view.now_ns(), Duration::from_nanos(clock::unix_ns()));
        self.log = Some(HistogramLog::create(*files, rules, unix).await?);
        self.wanted = None;
        self.epoch_ns = now_ns;
        Ok(())
    }

    /// Goes on with what the process before this one has shown.
    pub(super) fn go_on(&mut self, latencies: &[Latency]) {
        let setup = Arc::clone(&self.view.live().setup);
        self.collector.go_on(latencies, &setup);
        self.view.live().latencies = Arc::new(self.collector.shown().clone());
    }

    /// Where the file is.
    pub(super) fn path(&self) -> Option<&Path> {
        self.log.as_ref().map(HistogramLog::path)
    }

    /// Records interval after interval until it is told that the daemon ends.
    pub(super) async fn run(&mut self, mut ends: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ends.changed() => return,
                _ = ticks.tick() => {}
            }
            let until_ns = self.view.now_ns();
            let setup = Arc::clone(&self.view.live().setup);
            self.collector.collect(&setup).await;
            self.conclude(until_ns).await;
        }
    }

    /// Records what is left when the workers have stopped.
    pub(super) async fn finish(&mut self) {
        let until_ns = self.view.now_ns();
        let setup = Arc::clone(&self.view.live().setup);
        self.collector.collect_last(&setup);
        self.conclude(until_ns).await;
    }

    async fn conclude(&mut self, until_ns: u64) {
        self.view.live().latencies = Arc::new(self.collector.shown().clone());
        // Seldom looked at, another program's overflows could be taken for ours.
        let published = self.view.published().iter();
        let reports: Vec<_> = published.map(|worker| worker.report()).collect();
        self.view.split_drops(&reports);
        let (since_ns, length_ns) = (self.since_ns, until_ns - self.since_ns);
        self.since_ns = until_ns;
        let outcome = match self.begin().await {
            Ok(()) => self.write(since_ns, Duration::from_nanos(length_ns)).await,
            why => why,
        };
        let name = match (&self.log, &self.wanted) {
            (Some(log), _) => log.path(),
            (None, Some((_, rules))) => &rules.dir,
            (None, None) => return,
        };
        let name = name.display();
        match outcome {
            Ok(()) if self.missing > 0 => {
                tracing::info!(
                    "{name} is written to again; {} intervals are missing",
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
                        "cannot write to {name}: {why}; intervals are missing from now on"
                    );
                }
            }
        }
    }

    /// Writes the interval that was collected, to a new file if it is time for one.
    async fn write(&mut self, since_ns: u64, length: Duration) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.is_done(Duration::from_nanos(since_ns.saturating_sub(self.epoch_ns))) {
            let ago_ns = self.view.now_ns() - since_ns;
            log.renew(Duration::from_nanos(clock::unix_ns().saturating_sub(ago_ns))).await?;
            self.epoch_ns = since_ns;
            tracing::info!("histograms are written to {} from now on", log.path().display());
        }
        // One that has begun a moment ago has the interval before that moment, too.
        let start = Duration::from_nanos(since_ns.saturating_sub(self.epoch_ns));
        log.append(self.collector.stages(), start, length).await
    }
}

/// How often latencies are taken to be shown, where no file says otherwise.
const SHOW_EVERY: Duration = Duration::from_secs(10);
