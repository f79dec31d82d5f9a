//! The gateway over a whole run: how its counters have grown, and whether it was one gateway, with
//! one game server, all the time.
//!
//! Counters of a gateway that was restarted begin anew, so a difference across the restart would be
//! negative, or look as if payloads had come from nowhere. What each start was seen to count is
//! added up; what it counted after it was last seen is lost with it, and no book can be closed over
//! that.

use serde::{Deserialize, Serialize};

use crate::measure::gateway::{Admin, Gateway, Glimpse, Metrics, growth};
use crate::measure::procfs::{self, ThreadCpu};

/// A process was started anew during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// Who: `the gateway`, or `game server` and its backend's name.
    pub who: String,
    /// When it was noticed, in seconds of the run.
    pub noticed_s: f64,
    /// How that is known.
    pub how: String,
}

impl Restart {
    /// The sentence for tables and pages.
    pub fn sentence(&self) -> String {
        format!("{} was restarted, noticed after {:.1} s: {}", self.who, self.noticed_s, self.how)
    }
}

/// The gateway's name among those who can be restarted.
pub const THE_GATEWAY: &str = "the gateway";

/// What was seen of a gateway over a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How its metrics have grown, over all starts of it that were seen.
    pub metrics: Metrics,
    /// CPU of its threads.
    pub cpu: Vec<ThreadCpu>,
    /// Who was restarted.
    pub restarts: Vec<Restart>,
    /// When the gateway was seen to be another process's, in seconds of the run.
    pub hand_overs_s: Vec<f64>,
    /// It showed its counters at the end, or nobody had asked for them.
    pub is_there: bool,
    /// Workers whose books do not balance, when it was last seen.
    pub unbalanced_workers: u64,
}

/// Looks at a gateway again and again.
#[derive(Debug)]
pub struct Watch {
    gateway: Gateway,
    /// The first and the last glimpse of the present start.
    first: Glimpse,
    last: Glimpse,
    /// What earlier starts have counted and used.
    banked: Metrics,
    banked_cpu: Vec<ThreadCpu>,
    restarts: Vec<Restart>,
    hand_overs_s: Vec<f64>,
    is_there: bool,
}

impl Watch {
    /// Begins with a look; why that is not possible, where an admin address is given and does not
    /// answer.
    pub fn begin(gateway: Gateway) -> Result<Self, String> {
        let first = gateway.try_look().map_err(|why| format!("the gateway's counters at {why}"))?;
        Ok(Self {
            gateway,
            last: first.clone(),
            first,
            banked: Metrics::new(),
            banked_cpu: Vec::new(),
            restarts: Vec::new(),
            hand_overs_s: Vec::new(),
            is_there: true,
        })
    }

    /// The gateway's process, as far as it is known.
    pub const fn pid(&self) -> Option<u32> {
        self.gateway.pid
    }

    /// Sessions that were there before us.
    pub fn sessions_before(&self) -> u64 {
        self.first.sessions()
    }

    /// Looks, at a moment of the run. `None` where nothing could be seen.
    pub fn look(&mut self, at_s: f64) -> Option<&Glimpse> {
        let glimpse = self.gateway.look();
        self.note(glimpse, at_s)
    }

    fn note(&mut self, glimpse: Glimpse, at_s: f64) -> Option<&Glimpse> {
        let is_gone = self.first.started.is_some() && glimpse.started != self.first.started;
        self.is_there = glimpse.is_seen || (self.gateway.admin.is_none() && !is_gone);
        if !self.is_there {
            return None;
        }
        if let Some(how) = self.how_it_differs(&glimpse) {
            self.begin_anew(glimpse, Restart { who: THE_GATEWAY.into(), noticed_s: at_s, how });
            return Some(&self.last);
        }
        for (labels, count) in &glimpse.arrivals {
            // A process that comes for the first time was not restarted.
            if self.last.arrivals.get(labels).is_some_and(|before| (1..*count).contains(before)) {
                self.note_game_server(labels, at_s);
            }
        }
        if self.is_handed_over(&glimpse) {
            return Some(self.follow(glimpse, at_s));
        }
        self.last = glimpse;
        Some(&self.last)
    }

    /// A game server comes once for each worker.
    fn note_game_server(&mut self, labels: &str, noticed_s: f64) {
        let backend = labels.split_once("backend=\"").map_or(labels, |(_, name)| name);
        let who = format!("game server {}", backend.trim_end_matches('"'));
        let is_known = |known: &Restart| known.who == who && noticed_s - known.noticed_s < SAME_S;
        if !self.restarts.iter().any(is_known) {
            let how = "it came to the gateway anew".into();
            self.restarts.push(Restart { who, noticed_s, how });
        }
    }

    fn how_it_differs(&self, glimpse: &Glimpse) -> Option<String> {
        let incarnations = (&self.last.incarnation, &glimpse.incarnation);
        if let (Some(before), Some(now)) = incarnations {
            let how = format!("it was {before} and is {now}, its counters began anew");
            return (before != now).then_some(how);
        }
        let mut pairs = self.last.movement().into_iter().zip(glimpse.movement());
        let went_back = glimpse.is_seen && pairs.any(|(before, now)| now < before);
        went_back.then(|| "its counters went back".into())
    }

    /// Whether its counters have gone on though the process that was watched is no more.
    fn is_handed_over(&self, glimpse: &Glimpse) -> bool {
        glimpse.is_seen && self.last.started.is_some() && glimpse.started != self.last.started
    }

    /// Another process is the gateway: counters go on, CPU time begins anew.
    fn follow(&mut self, glimpse: Glimpse, at_s: f64) -> &Glimpse {
        self.hand_overs_s.push(at_s);
        self.banked_cpu.extend(procfs::used(&self.first.threads, &self.last.threads));
        self.gateway.pid = self.gateway.admin.as_ref().and_then(Admin::pid);
        let started = self.gateway.pid.and_then(procfs::started);
        (self.first.threads, self.first.started) = (Vec::new(), started);
        let threads = self.gateway.pid.map(procfs::threads).unwrap_or_default();
        self.last = Glimpse { started, threads, ..glimpse };
        &self.last
    }

    fn begin_anew(&mut self, glimpse: Glimpse, restart: Restart) {
        self.bank();
        self.restarts.push(restart);
        if let Some(admin) = &self.gateway.admin {
            self.gateway.pid = admin.pid();
        }
        let nothing = Glimpse { started: glimpse.started, ..Glimpse::default() };
        let started = self.gateway.pid.and_then(procfs::started);
        (self.first, self.last) = (Glimpse { started, ..nothing }, Glimpse { started, ..glimpse });
    }

    fn bank(&mut self) {
        for (name, value) in growth(&self.first.metrics, &self.last.metrics) {
            *self.banked.entry(name).or_default() += value;
        }
        self.banked_cpu.extend(procfs::used(&self.first.threads, &self.last.threads));
    }

    /// What was seen in all.
    pub fn end(mut self) -> Seen {
        self.bank();
        Seen {
            metrics: self.banked,
            cpu: self.banked_cpu,
            restarts: self.restarts,
            hand_overs_s: self.hand_overs_s,
            is_there: self.is_there,
            unbalanced_workers: self.last.unbalanced_workers,
        }
    }
}

/// A game server that comes to one worker after the other within so many seconds has come once.
const SAME_S: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::gateway::parse;

    /// With a game server's arrivals at each of two workers.
    fn glimpse(incarnation: Option<&str>, datagrams: u64, arrivals: [u64; 2]) -> Glimpse {
        let arrivals = ["0", "1"].into_iter().zip(arrivals);
        let arrivals = arrivals
            .map(|(worker, count)| (format!("worker=\"{worker}\",backend=\"game\""), count));
        Glimpse {
            is_seen: true,
            incarnation: incarnation.map(Into::into),
            metrics: parse(&format!("ringgate_datagrams_in_total {datagrams}\n")),
            arrivals: arrivals.collect(),
            ..Glimpse::default()
        }
    }

    fn watch(first: Glimpse) -> Watch {
        let admin = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        Watch {
            gateway: Gateway { pid: None, admin: Some(Admin::Tcp(admin)) },
            last: first.clone(),
            first,
            banked: Metrics::new(),
            banked_cpu: Vec::new(),
            restarts: Vec::new(),
            hand_overs_s: Vec::new(),
            is_there: true,
        }
    }

    fn datagrams(seen: &Seen) -> u64 {
        seen.metrics["ringgate_datagrams_in_total"] as u64
    }

    #[test]
    fn one_gateway_has_grown_by_the_difference() {
        let mut watch = watch(glimpse(Some("a"), 100, [1, 1]));
        watch.note(glimpse(Some("a"), 150, [1, 1]), 1.0);
        watch.note(glimpse(Some("a"), 350, [1, 1]), 2.0);
        let seen = watch.end();
        assert_eq!((datagrams(&seen), seen.restarts.len(), seen.is_there), (250, 0, true));
    }

    #[test]
    fn a_restart_is_seen_by_its_name_even_where_the_new_counters_are_higher() {
        let mut watch = watch(glimpse(Some("a"), 100, [1, 1]));
        watch.note(glimpse(Some("a"), 150, [1, 1]), 1.0);
        watch.note(glimpse(Some("b"), 500, [1, 1]), 2.5);
        let seen = watch.end();
        assert_eq!(datagrams(&seen), 50 + 500, "each start for itself, from 0");
        assert_eq!(seen.restarts.len(), 1, "its game servers have come with it");
        let sentence = seen.restarts[0].sentence();
        assert!(
            sentence.starts_with("the gateway was restarted, noticed after 2.5 s"),
            "{sentence}"
        );
    }

    #[test]
    fn a_gateway_that_is_another_process_by_now_has_counted_on() {
        let mut watch = watch(Glimpse { started: Some(5), ..glimpse(Some("a"), 100, [1, 1]) });
        watch.note(Glimpse { started: Some(5), ..glimpse(Some("a"), 150, [1, 1]) }, 1.0);
        watch.note(glimpse(Some("a"), 350, [1, 1]), 2.0);
        let seen = watch.end();
        assert_eq!((datagrams(&seen), seen.restarts.len(), seen.is_there), (250, 0, true));
        assert_eq!(seen.hand_overs_s, [2.0]);
    }

    #[test]
    fn a_gateway_without_a_name_is_known_by_counters_that_went_back() {
        let mut watch = watch(glimpse(None, 100, [0, 0]));
        watch.note(glimpse(None, 180, [0, 0]), 1.0);
        watch.note(glimpse(None, 30, [0, 0]), 2.0);
        let seen = watch.end();
        assert_eq!((datagrams(&seen), seen.restarts.len()), (80 + 30, 1));
    }

    #[test]
    fn a_gateway_that_cannot_be_seen_is_no_restart_and_not_there() {
        let mut watch = watch(glimpse(Some("a"), 100, [1, 1]));
        watch.note(glimpse(Some("a"), 150, [1, 1]), 1.0);
        assert!(watch.note(Glimpse::default(), 2.0).is_none());
        let seen = watch.end();
        assert_eq!((datagrams(&seen), seen.restarts.len(), seen.is_there), (50, 0, false));
    }

    #[test]
    fn a_game_server_that_comes_anew_is_named_once_however_many_workers_it_comes_to() {
        let mut watch = watch(glimpse(Some("a"), 100, [0, 1]));
        watch.note(glimpse(Some("a"), 150, [1, 1]), 1.0);
        assert_eq!(watch.restarts.len(), 0, "it has come to the first worker for the first time");
        watch.note(glimpse(Some("a"), 150, [1, 2]), 2.0);
        watch.note(glimpse(Some("a"), 150, [2, 2]), 3.0);
        watch.note(glimpse(Some("a"), 150, [2, 2]), 30.0);
        watch.note(glimpse(Some("a"), 150, [3, 3]), 31.0);
        let names: Vec<_> = watch.end().restarts.into_iter().map(|it| it.who).collect();
        assert_eq!(names, ["game server game", "game server game"]);
    }
}
