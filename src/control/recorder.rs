//! Every interval: takes the workers' histograms, shows them, and writes them to the file if there is one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::hlog::HistogramLog;
use super::latency::Collector;
use super::runtime::Runtime;
use super::view::View;
use crate::config::Histograms;
use crate::os::clock;

/// The task that does it.
pub(super) struct Recorder {
    view: Arc<View>,
    collector: Collector,
    log: Option<HistogramLog>,
    every: Duration,
    /// When the file was begun, in nanoseconds of the fleet's clock.
    epoch_ns: u64,
    /// When the present interval began.
    since_ns: u64,
    is_log_failing: bool,
}

impl Recorder {
    /// Begins the file. Without one, latencies are shown at the admin address only.
    pub(super) fn start(
        runtime: &Runtime,
        view: &Arc<View>,
        config: Option<&Histograms>,
    ) -> Result<Self, String> {
        let now_ns = view.now_ns();
        let log = config.map(|Histograms { dir, .. }| {
            HistogramLog::create(runtime, dir, Duration::from_nanos(clock::unix_ns()))
                .map_err(|why| format!("cannot write histograms to {}: {why}", dir.display()))
        });
        Ok(Self {
            view: Arc::clone(view),
            collector: Collector::new(view.published()),
            log: log.transpose()?,
            every: config.map_or(SHOW_EVERY, |config| config.interval),
            epoch_ns: now_ns,
            since_ns: now_ns,
            is_log_failing: false,
        })
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
            self.collector.collect().await;
            self.conclude(until_ns).await;
        }
    }

    /// Records what is left when the workers have stopped.
    pub(super) async fn finish(&mut self) {
        let until_ns = self.view.now_ns();
        self.collector.collect_last();
        self.conclude(until_ns).await;
    }

    async fn conclude(&mut self, until_ns: u64) {
        self.view.live().latencies = Arc::new(self.collector.shown().clone());
        let start = Duration::from_nanos(self.since_ns - self.epoch_ns);
        let length = Duration::from_nanos(until_ns - self.since_ns);
        self.since_ns = until_ns;
        let Some(log) = &mut self.log else { return };
        let outcome = log.append(self.collector.stages(), start, length).await;
        match outcome {
            Ok(()) => self.is_log_failing = false,
            Err(why) => {
                self.view.live().log_failures += 1;
                // A full disk is full for a while; once is enough.
                if !std::mem::replace(&mut self.is_log_failing, true) {
                    tracing::error!("cannot write to {}: {why}", log.path().display());
                }
            }
        }
    }
}

/// How often latencies are taken to be shown, where no file says otherwise.
const SHOW_EVERY: Duration = Duration::from_secs(10);
