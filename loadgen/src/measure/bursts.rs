//! CPU per burst: a figure for each of many bursts, and their median, so that a neighbour who takes
//! the core away for some milliseconds spoils some bursts and not the result.

use std::sync::{Mutex, PoisonError};

use super::procfs::{self, cpu_s};

/// Reads a process's CPU time between bursts of payloads, each of which has been answered when the
/// next begins.
#[derive(Debug)]
pub struct Bursts {
    pid: u32,
    from_ns: u64,
    to_ns: u64,
    moments: Mutex<Vec<Moment>>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    cpu_s: f64,
    echoed: u64,
}

impl Bursts {
    /// Watches from one moment to another, in seconds of the run.
    pub fn new(pid: u32, from_s: f64, to_s: f64) -> Self {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        Self { pid, from_ns: ns(from_s), to_ns: ns(to_s), moments: Mutex::default() }
    }

    /// To be told before each burst; `echoed` is how many payloads have come back, those of the
    /// last burst left out.
    pub fn note(&self, now_ns: u64, echoed: u64) {
        if (self.from_ns..self.to_ns).contains(&now_ns) {
            let moment = Moment { cpu_s: cpu_s(&procfs::threads(self.pid)), echoed };
            self.moments.lock().unwrap_or_else(PoisonError::into_inner).push(moment);
        }
    }

    /// Microseconds of CPU per round trip, the median of all bursts; `None` where there was nothing
    /// to see.
    pub fn cpu_us_per_trip(&self) -> Option<f64> {
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        let mut costs: Vec<f64> = moments.windows(3).filter_map(Self::cost).collect();
        costs.sort_by(f64::total_cmp);
        costs.get(costs.len() / 2).copied()
    }

    /// What the burst between the first two moments cost; its echoes are read between the last two.
    fn cost(moments: &[Moment]) -> Option<f64> {
        let [first, second, third] = moments else { return None };
        let trips = third.echoed.saturating_sub(second.echoed);
        let is_alive = second.cpu_s >= first.cpu_s;
        (trips > 0 && is_alive).then(|| (second.cpu_s - first.cpu_s) * 1e6 / trips as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_divided_by_its_own_echoes_and_a_spoiled_one_changes_nothing() {
        let bursts = Bursts::new(std::process::id(), 1.0, 2.0);
        bursts.note(999_999_999, 0);
        bursts.note(2_000_000_000, 0);
        assert_eq!(bursts.cpu_us_per_trip(), None, "both are outside");
        let moments = [(0.0, 0), (10e-6, 5), (20e-6, 15), (30e-6, 25), (930e-6, 35), (940e-6, 45)];
        let moments = moments.map(|(cpu_s, echoed)| Moment { cpu_s, echoed });
        assert_eq!(Bursts::cost(&moments[..3]).map(f64::round), Some(1.0));
        *bursts.moments.lock().expect("nobody panics") = moments.to_vec();
        assert_eq!(bursts.cpu_us_per_trip().map(|us| (us * 1e6).round()), Some(1e6));
    }

    #[test]
    fn a_process_s_time_is_read_within_the_window() {
        let bursts = Bursts::new(std::process::id(), 0.0, 1.0);
        // To look takes time too. Threads of other tests end meanwhile, and take their time along.
        let last = || bursts.moments.lock().expect("nobody panics").last().map(|it| it.cpu_s);
        let mut moments = (0..100_000).inspect(|moment| bursts.note(*moment, *moment));
        assert!(moments.any(|_| last() > Some(0.0)), "this process has had no time");
        assert!(moments.any(|_| bursts.cpu_us_per_trip().is_some()));
    }
}
