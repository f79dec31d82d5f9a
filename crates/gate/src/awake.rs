//! How many workers are awake: those that newcomers come to.
//!
//! Each worker that has players wakes up as often as one alone would, and finds its share. So while
//! there is little to do, few workers take newcomers, and the others are rid of their players as
//! those leave; nobody changes the worker. This is the decision alone: how busy each worker is goes
//! in, whom newcomers come to comes out. Who has which bucket of sources stands in
//! [`Spread`](ringgate_batch::spread::Spread).
//!
//! ```text
//!   full      a worker that is busy for over half of its core, until it is for less than 40 %
//!   wake      when all that are awake are full: at once, one more for each look
//!   narrow    when fewer would be busy for less than 30 % each with all that there is: not before
//!             it has been so for a while, and not further than the most of that while
//!   takes     an awake worker that is not full; where all are, each
//! ```

/// What decides how many workers are awake. The first ones are.
#[derive(Clone, Debug)]
pub struct Awake {
    workers: Vec<State>,
    /// How many are.
    count: usize,
    /// Since when fewer would do, and the most that were needed since.
    quiet: Option<(u64, usize)>,
}

/// What is known of a worker.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Which part of its core it was busy for of late.
    busy: f64,
    is_full: bool,
}

impl Awake {
    /// Of so many workers, of which so many are awake. At a start all are: nobody knows yet how
    /// much there is to do.
    pub fn new(workers: u16, awake: usize) -> Self {
        let all = usize::from(workers.max(1));
        let count = awake.clamp(1, all);
        Self { workers: vec![State::default(); all], count, quiet: None }
    }

    /// Takes in which part of its core each worker was busy for since the last look. Returns
    /// whether newcomers come to others from now on. Where nobody `may_sleep`, all stay awake.
    pub fn look(&mut self, now_ns: u64, busy: &[f64], may_sleep: bool) -> bool {
        let before = (self.count, self.takers());
        for (worker, busy) in self.workers.iter_mut().zip(busy) {
            worker.busy += (busy - worker.busy) * NEWS;
            let limit = if worker.is_full { FULL_UNTIL } else { FULL_FROM };
            worker.is_full = worker.busy > limit;
        }
        if self.count < self.workers.len() && self.takes_all() {
            self.count += 1;
        }
        if may_sleep {
            self.narrow(now_ns);
        }
        before != (self.count, self.takers())
    }

    fn narrow(&mut self, now_ns: u64) {
        let total = self.workers.iter().map(|it| it.busy).sum::<f64>();
        let needed = ((total / NARROW_TO).ceil() as usize).clamp(1, self.workers.len());
        if needed >= self.count {
            self.quiet = None;
            return;
        }
        let (since_ns, most) = self.quiet.unwrap_or((now_ns, needed));
        let most = most.max(needed);
        let is_over = now_ns.saturating_sub(since_ns) >= QUIET_NS;
        self.quiet = (!is_over).then_some((since_ns, most));
        if is_over {
            self.count = most;
        }
    }

    /// How many are awake.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// How many workers do what there is to do, as if each did as much as the busiest: those who
    /// came before another one was woken are with one.
    pub fn among(&self) -> u16 {
        let busy = self.workers.iter().map(|it| it.busy);
        let most = busy.clone().fold(0.0, f64::max);
        if most > 0.0 { (busy.sum::<f64>() / most).round().max(1.0) as u16 } else { 1 }
    }

    /// The workers that newcomers come to.
    pub fn takers(&self) -> Vec<u16> {
        let takes_all = self.takes_all();
        let awake = (0..).zip(&self.workers[..self.count]);
        awake.filter(|(_, it)| takes_all || !it.is_full).map(|(worker, _)| worker).collect()
    }

    /// Whether all that are awake are full.
    fn takes_all(&self) -> bool {
        self.workers[..self.count].iter().all(|it| it.is_full)
    }
}

/// How much a look weighs against those before it.
const NEWS: f64 = 0.5;

const FULL_FROM: f64 = 0.5;
const FULL_UNTIL: f64 = 0.4;

/// Of a core. Two that were at half of this do not wake each other again as one.
const NARROW_TO: f64 = 0.3;

/// A lobby that fills up again must not find one worker.
const QUIET_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests;
