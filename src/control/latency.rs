//! Latencies by stage, over all workers: what the last interval held, and sums since the start.
//!
//! Workers hand their histograms over when they pass by, a few times a second. So an interval is
//! collected in two steps: ask all, and take what has come until all have answered. A worker that
//! is late (it is stuck, or the machine is) has what it recorded counted in the next interval;
//! nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use ringgate_worker::handover::Latency;
use ringgate_worker::{Published, Recorder, Stage, Stages};

/// What is shown of the latencies.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// Of the last interval.
    pub(super) interval: [Interval; STAGES],
    /// Since the start.
    pub(super) sums: [Sums; STAGES],
}

/// One stage in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Interval {
    pub(super) count: u64,
    /// By the position in [`QUANTILES`]; 0 where nothing was recorded.
    pub(super) quantiles_ns: [u64; QUANTILES.len()],
    pub(super) max_ns: u64,
}

/// One stage since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// How many were not longer than the bound at the same position in [`BOUNDS_NS`], and longer
    /// than the one before; the last were longer than all.
    pub(super) buckets: [u64; BOUNDS_NS.len() + 1],
    pub(super) total_ns: u64,
}

/// The quantiles of an interval that are shown.
pub(super) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Bounds of the running sums: from less than any stage takes to what no player would forgive.
pub(super) const BOUNDS_NS: [u64; 22] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// How many stages there are.
pub(super) const STAGES: usize = Stage::ALL.len();

/// Takes the workers' histograms.
pub(super) struct Collector {
    workers: Vec<Worker>,
    /// Of the interval that is being collected.
    stages: Stages,
    shown: Latencies,
}

struct Worker {
    published: Arc<Published>,
    /// Empty histograms for the next exchange, so that their memory goes round.
    spare: Option<Box<Recorder>>,
    has_answered: bool,
}

impl Collector {
    pub(super) fn new(published: &[Arc<Published>]) -> Self {
        let worker = |published: &Arc<Published>| Worker {
            published: Arc::clone(published),
            spare: None,
            has_answered: false,
        };
        Self {
            workers: published.iter().map(worker).collect(),
            stages: Stages::new(),
            shown: Latencies::default(),
        }
    }

    /// Collects what all workers have recorded since the last time.
    pub(super) async fn collect(&mut self) {
        self.stages.reset();
        for worker in &mut self.workers {
            worker.ask(&mut self.stages);
        }
        for _ in 0..TRIES {
            if self.workers.iter().all(|worker| worker.has_answered) {
                break;
            }
            tokio::time::sleep(TRY_EVERY).await;
            self.take();
        }
        self.digest();
    }

    /// Collects what workers that have ended left behind.
    pub(super) fn collect_last(&mut self) {
        self.stages.reset();
        self.take();
        self.digest();
    }

    /// What was collected last.
    pub(super) fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Goes on where the process before this one has stopped.
    pub(super) fn go_on(&mut self, given: &[Latency]) {
        self.shown.go_on(given);
    }

    /// What there is to show.
    pub(super) fn shown(&self) -> &Latencies {
        &self.shown
    }

    fn take(&mut self) {
        for worker in &mut self.workers {
            worker.take(None, &mut self.stages);
        }
    }

    fn digest(&mut self) {
        for stage in Stage::ALL {
            self.shown.interval[stage as usize] = interval(&self.stages, stage);
            self.shown.sums[stage as usize].add(&self.stages, stage);
        }
    }
}

impl Latencies {
    /// For the process after this one.
    pub(super) fn given(&self) -> Vec<Latency> {
        let of = |stage: Stage| {
            let (interval, sums) = (&self.interval[stage as usize], &self.sums[stage as usize]);
            Latency {
                stage: stage.name().to_owned(),
                interval: (interval.count, interval.max_ns, interval.quantiles_ns.to_vec()),
                sums: (sums.total_ns, sums.buckets.to_vec()),
            }
        };
        Stage::ALL.map(of).into_iter().collect()
    }

    /// What does not look as it does here begins anew.
    fn go_on(&mut self, given: &[Latency]) {
        for stage in Stage::ALL {
            let Some(latency) = given.iter().find(|it| it.stage == stage.name()) else { continue };
            let Latency {
                interval: (count, max_ns, quantiles_ns), sums: (total_ns, buckets), ..
            } = latency;
            if let Ok(quantiles_ns) = quantiles_ns.as_slice().try_into() {
                let (count, max_ns) = (*count, *max_ns);
                self.interval[stage as usize] = Interval { count, quantiles_ns, max_ns };
            }
            if let Ok(buckets) = buckets.as_slice().try_into() {
                self.sums[stage as usize] = Sums { buckets, total_ns: *total_ns };
            }
        }
    }
}

impl Worker {
    fn ask(&mut self, sum: &mut Stages) {
        self.has_answered = false;
        let empty = self.spare.take().unwrap_or_default();
        self.take(Some(empty), sum);
        // What has come so far was left by an earlier, late answer.
        self.has_answered = false;
    }

    fn take(&mut self, empty: Option<Box<Recorder>>, sum: &mut Stages) {
        if let Some(mut full) = self.published.exchange(empty) {
            sum.add(&full);
            full.reset();
            self.spare = Some(full);
            self.has_answered = true;
        }
    }
}

impl Sums {
    /// How many were recorded.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add(&mut self, stages: &Stages, stage: Stage) {
        for recorded in stages.of(stage).iter_recorded() {
            let ns = recorded.value_iterated_to();
            let count = recorded.count_since_last_iteration();
            let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
            self.buckets[bucket] += count;
            self.total_ns += ns * count;
        }
    }
}

fn interval(stages: &Stages, stage: Stage) -> Interval {
    let histogram = stages.of(stage);
    Interval {
        count: histogram.len(),
        quantiles_ns: QUANTILES.map(|quantile| histogram.value_at_quantile(quantile)),
        max_ns: histogram.max(),
    }
}

/// Workers pass by every 50 ms; one that has not after twenty times as long is stuck.
const TRIES: u32 = 100;
const TRY_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_sort_by_bound_and_miss_nothing() {
        let mut recorder = Recorder::new();
        for ns in [1, 1_000, 1_001, 3_000, 50_000_000_000] {
            recorder.record(Stage::Turn, ns);
        }
        let mut stages = Stages::new();
        stages.add(&recorder);
        let mut sums = Sums::default();
        sums.add(&stages, Stage::Turn);
        assert!(BOUNDS_NS.is_sorted());
        assert_eq!(sums.buckets[..3], [2, 1, 1]);
        assert_eq!(sums.buckets[BOUNDS_NS.len()], 1);
        assert_eq!(sums.count(), 5);
        // Three significant digits.
        assert!(sums.total_ns.abs_diff(50_000_005_002) < 50_000_000);
    }

    #[test]
    fn sums_go_on_in_the_next_process_and_what_it_does_not_know_begins_anew() {
        let mut before = Latencies::default();
        before.sums[Stage::Turn as usize].buckets[3] = 7;
        before.sums[Stage::Turn as usize].total_ns = 9;
        before.interval[Stage::Queue as usize].max_ns = 5;
        let mut given = before.given();
        let mut next = Latencies::default();
        next.go_on(&given);
        assert_eq!((next.interval, next.sums), (before.interval, before.sums));
        for latency in &mut given {
            latency.sums.1.push(1);
            latency.interval.2.pop();
        }
        let mut next = Latencies::default();
        next.go_on(&given);
        assert_eq!((next.interval, next.sums), Default::default());
    }

    #[test]
    fn an_interval_shows_its_quantiles() {
        let mut recorder = Recorder::new();
        (1..=1000).for_each(|us| recorder.record(Stage::Queue, us * 1000));
        let mut stages = Stages::new();
        stages.add(&recorder);
        let shown = interval(&stages, Stage::Queue);
        assert_eq!(shown.count, 1000);
        assert!(shown.quantiles_ns[0].abs_diff(500_000) < 1000);
        assert!(shown.max_ns.abs_diff(1_000_000) < 1000);
        assert_eq!(interval(&stages, Stage::Turn), Interval::default());
    }
}
