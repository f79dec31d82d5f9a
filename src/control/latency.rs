//! Latencies by stage, over all workers: what the last interval held, and sums since the start.
//!
//! Workers hand their histograms over when they pass by, a few times a second. So an interval is
//! collected in two steps: ask all, and take what has come until all have answered. A worker that
//! is late (it is stuck, or the machine is) has what it recorded counted in the next interval;
//! nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use ringgate_gate::{Party, Phase, Setup};
use ringgate_worker::handover::Latency;
use ringgate_worker::{Published, Recorder, Stage, Stages};

/// What is shown of the latencies.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// Of the last interval.
    pub(super) interval: [Interval; STAGES],
    /// Since the start.
    pub(super) sums: [Sums; STAGES],
    /// The same of listeners, by what they are called.
    pub(super) listeners: Vec<(Party, String, [Sums; STAGES])>,
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

/// What is called `listener` on pages: each of the first listeners that serve, and all others
/// together, where there are more.
pub(super) fn parties(setup: &Setup) -> Vec<(Party, String)> {
    let mut all = Vec::new();
    for (number, listener) in setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving) {
        match Party::of(number) {
            Party::OTHERS if all.iter().any(|(party, _)| *party == Party::OTHERS) => {}
            Party::OTHERS => all.push((Party::OTHERS, OTHERS.to_owned())),
            party => all.push((party, listener.name.clone())),
        }
    }
    all
}

/// No listener can be called so.
const OTHERS: &str = "(others)";

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
    pub(super) async fn collect(&mut self, setup: &Setup) {
        self.begin(setup);
        for worker in &mut self.workers {
            worker.ask((&mut self.stages, &mut self.shown));
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
    pub(super) fn collect_last(&mut self, setup: &Setup) {
        self.begin(setup);
        self.take();
        self.digest();
    }

    /// What was collected last.
    pub(super) fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Goes on where the process before this one has stopped.
    pub(super) fn go_on(&mut self, given: &[Latency], setup: &Setup) {
        self.shown.go_on(given, setup);
    }

    /// What there is to show.
    pub(super) fn shown(&self) -> &Latencies {
        &self.shown
    }

    /// A listener that has another's number by now begins with nothing.
    fn begin(&mut self, setup: &Setup) {
        self.stages.reset();
        let known = |(party, name): (Party, String)| {
            let sums = self.shown.of_listener(party, &name);
            (party, name, sums)
        };
        self.shown.listeners = parties(setup).into_iter().map(known).collect();
    }

    fn take(&mut self) {
        for worker in &mut self.workers {
            worker.take(None, (&mut self.stages, &mut self.shown));
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
    /// What is known of a listener, or of several, since the start.
    pub(super) fn of_listener(&self, party: Party, name: &str) -> [Sums; STAGES] {
        let known = self.listeners.iter().find(|it| (it.0, it.1.as_str()) == (party, name));
        known.map(|it| it.2).unwrap_or_default()
    }

    /// For the process after this one.
    pub(super) fn given(&self) -> Vec<Latency> {
        let of = |stage: Stage| {
            let (interval, sums) = (&self.interval[stage as usize], &self.sums[stage as usize]);
            Latency {
                stage: stage.name().to_owned(),
                listener: None,
                interval: (interval.count, interval.max_ns, interval.quantiles_ns.to_vec()),
                sums: (sums.total_ns, sums.buckets.to_vec()),
            }
        };
        let of_listener = |(_, name, sums): &(Party, String, [Sums; STAGES])| {
            let (name, sums) = (name.clone(), *sums);
            Stage::ALL.map(move |stage| Latency {
                stage: stage.name().to_owned(),
                listener: Some(name.clone()),
                interval: Default::default(),
                sums: (sums[stage as usize].total_ns, sums[stage as usize].buckets.to_vec()),
            })
        };
        let of_listeners = self.listeners.iter().flat_map(of_listener);
        Stage::ALL.map(of).into_iter().chain(of_listeners).collect()
    }

    /// What does not look as it does here begins anew.
    fn go_on(&mut self, given: &[Latency], setup: &Setup) {
        for (party, name) in parties(setup) {
            let of = |stage: Stage| {
                let is_it =
                    |it: &&Latency| it.stage == stage.name() && it.listener.as_ref() == Some(&name);
                let sums = given.iter().find(is_it).map(|it| &it.sums);
                let buckets = sums.and_then(|(_, buckets)| buckets.as_slice().try_into().ok());
                let total_ns = sums.map(|(total_ns, _)| *total_ns).unwrap_or_default();
                buckets.map_or_else(Sums::default, |buckets| Sums { buckets, total_ns })
            };
            let sums = Stage::ALL.map(of);
            self.listeners.push((party, name, sums));
        }
        for stage in Stage::ALL {
            let is_it = |it: &&Latency| it.stage == stage.name() && it.listener.is_none();
            let Some(latency) = given.iter().find(is_it) else { continue };
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
    fn ask(&mut self, sum: (&mut Stages, &mut Latencies)) {
        self.has_answered = false;
        let empty = self.spare.take().unwrap_or_default();
        self.take(Some(empty), sum);
        // What has come so far was left by an earlier, late answer.
        self.has_answered = false;
    }

    fn take(&mut self, empty: Option<Box<Recorder>>, (sum, shown): (&mut Stages, &mut Latencies)) {
        if let Some(mut full) = self.published.exchange(empty) {
            sum.add(&full);
            for (party, _, sums) in &mut shown.listeners {
                for stage in Stage::ALL {
                    full.of(*party, stage).for_each(|it| sums[stage as usize].count_many(it));
                }
            }
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
            self.count_many((recorded.value_iterated_to(), recorded.count_since_last_iteration()));
        }
    }

    fn count_many(&mut self, (ns, count): (u64, u64)) {
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.buckets[bucket] += count;
        self.total_ns += ns * count;
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
    use super::super::tests::{backend, listener};
    use super::*;
    use ringgate_gate::{Listener, ListenerId};

    /// Both serve.
    fn two_listeners() -> Setup {
        let named = |name: &str| Listener { name: name.to_owned(), ..listener() };
        Setup::new(vec![named("eu"), named("us")], vec![backend(true), backend(false)], 1)
    }

    #[test]
    fn sums_sort_by_bound_and_miss_nothing() {
        let mut recorder = Recorder::new();
        for ns in [1, 1_000, 1_001, 3_000, 50_000_000_000] {
            recorder.record((Party::NONE, Stage::Turn), std::iter::once((ns, 1)));
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
        let setup = two_listeners();
        let mut of_eu = [Sums::default(); STAGES];
        of_eu[Stage::Uplink as usize].buckets[2] = 5;
        before.listeners = vec![(Party::of(ListenerId(3)), "eu".to_owned(), of_eu)];
        let mut given = before.given();
        let mut next = Latencies::default();
        next.go_on(&given, &setup);
        assert_eq!((next.interval, next.sums), (before.interval, before.sums));
        // Its number may be another there; what the listener before had is not another's.
        let of = |number, name| next.of_listener(Party::of(ListenerId(number)), name);
        assert_eq!((of(0, "eu"), of(1, "us")), (of_eu, Default::default()));
        for latency in &mut given {
            latency.sums.1.push(1);
            latency.interval.2.pop();
        }
        let mut next = Latencies::default();
        next.go_on(&given, &setup);
        assert_eq!((next.interval, next.sums), Default::default());
    }

    #[test]
    fn an_interval_shows_its_quantiles() {
        let mut recorder = Recorder::new();
        recorder.record((Party::NONE, Stage::Queue), (1..=1000).map(|us| (us * 1000, 1)));
        let mut stages = Stages::new();
        stages.add(&recorder);
        let shown = interval(&stages, Stage::Queue);
        assert_eq!(shown.count, 1000);
        assert!(shown.quantiles_ns[0].abs_diff(500_000) < 1000);
        assert!(shown.max_ns.abs_diff(1_000_000) < 1000);
        assert_eq!(interval(&stages, Stage::Turn), Interval::default());
    }
}
