//! The figures of a run, worked out from its counters.

use super::record::Record;
use super::require::What;
use super::summary::{Pace, Payloads, Players, Summary, Way, Ways};
use crate::measure::tally::{Count, Stage};

impl Record {
    /// The figures that every output shows.
    pub fn summary(&self) -> Summary {
        Summary {
            players: Players::of(self),
            payloads: Payloads::of(self),
            pace: Pace::of(self),
            pause: self.pause,
            ways: Ways::of(self),
        }
    }

    /// What conditions are held against; `None` where nothing was measured.
    pub fn measured(&self, what: What) -> Option<f64> {
        let Summary { players, payloads, pause, .. } = self.summary();
        let round_trip = |percentile| Some(self.stage(Stage::RoundTrip)?.at(percentile) as f64);
        match what {
            What::Percentile(percentile) => round_trip(percentile),
            What::Max => round_trip(100.0),
            What::Loss => (payloads.arrived > 0).then_some(payloads.loss),
            What::Late => {
                let due = self.count(Count::PayloadsDue);
                (payloads.arrived > 0).then(|| payloads.late as f64 / due as f64)
            }
            What::Failed => (players.came > 0).then_some(players.outside as f64),
            What::Missing => (payloads.arrived > 0).then_some(payloads.missing as f64),
            What::Pause => (pause.ns > 0).then_some(pause.ns as f64),
        }
    }
}

impl Players {
    fn of(record: &Record) -> Self {
        let c = |count| record.count(count);
        let (tokenless, placeless) = (c(Count::Tokenless), c(Count::Placeless));
        let (refused, lost) = (c(Count::ConnectFailed), c(Count::SessionsLost));
        let unfinished = c(Count::Unfinished);
        let kept_out = if record.interrupted.is_some() { 0 } else { unfinished };
        Self {
            came: c(Count::Joins) + tokenless + placeless,
            connected: c(Count::Connected),
            elsewhere: c(Count::ConnectedElsewhere),
            refused,
            unfinished,
            tokenless,
            placeless,
            lost,
            left: c(Count::Left),
            outside: refused + kept_out + tokenless + placeless + lost,
        }
    }
}

impl Payloads {
    fn of(record: &Record) -> Self {
        let counters = record.tally_counters();
        let (due, arrived) = (counters.due(), counters.arrived());
        Self {
            due,
            arrived,
            lost: due - arrived,
            loss: counters.loss_share(),
            missing: counters.missing(),
            late: counters.of(Count::PayloadsLate),
            unsent: counters.of(Count::PayloadsUnsent),
            stifled: counters.of(Count::PayloadsStifled),
        }
    }
}

impl Pace {
    fn of(record: &Record) -> Self {
        let late = record.stage(Stage::SendLate);
        let at = |percentile| late.map_or(0, |late| late.at(percentile));
        let limit_ns = record.arrivals.is_exact().then_some(Self::LIMIT_NS);
        Self {
            arrivals: record.arrivals,
            late_p50_ns: at(50.0),
            late_p99_ns: at(99.0),
            late_p999_ns: at(99.9),
            limit_ns,
            is_kept: limit_ns.is_none_or(|limit_ns| at(99.0) <= limit_ns),
        }
    }
}

impl Ways {
    /// A gateway's counters tell of directions only where it was one gateway; of messages they tell
    /// packets.
    fn of(record: &Record) -> Option<Self> {
        let c = |count| record.count(count);
        if c(Count::PushesDue) > 0 {
            return Some(Self {
                to_game_server: true,
                up: Way { sent: c(Count::PayloadsDue), came: c(Count::Heard) },
                down: Way { sent: c(Count::PushesDue), came: c(Count::PushedDown) },
            });
        }
        if !record.is_one_gateway() || c(Count::MessagesTaken) > 0 {
            return None;
        }
        let metric = |name: &str| record.gateway_metrics.get(name).map(|value| *value as u64);
        let back = [Count::Echoed, Count::Stale, Count::Duplicates].map(c);
        Some(Self {
            to_game_server: false,
            up: Way { sent: c(Count::PayloadsSent), came: metric("ringgate_payloads_up_total")? },
            down: Way { sent: metric("ringgate_payloads_down_total")?, came: back.iter().sum() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Interruption;

    fn record(counts: &[(Count, u64)]) -> Record {
        let counters = counts.iter().map(|(c, n)| (c.name().to_owned(), *n)).collect();
        Record { counters, ..Record::default() }
    }

    #[test]
    fn whoever_stays_outside_for_whatever_reason_is_outside() {
        let counts = [
            (Count::Joins, 20),
            (Count::Connected, 14),
            (Count::ConnectedElsewhere, 3),
            (Count::ConnectFailed, 4),
            (Count::Unfinished, 2),
            (Count::Tokenless, 5),
            (Count::Placeless, 3),
            (Count::SessionsLost, 1),
        ];
        let mut record = record(&counts);
        let players = record.summary().players;
        assert_eq!((players.came, players.outside, players.elsewhere), (28, 15, 3));
        record.interrupted = Some(Interruption::default());
        assert_eq!(record.summary().players.outside, 13, "who was sent away was not kept out");
    }

    #[test]
    fn a_pacer_that_is_late_says_so_and_ticks_promise_nothing() {
        use crate::measure::tally::Tally;
        use crate::players::arrivals::Arrivals;
        let pace = |arrivals, late_ns| {
            let mut tally = Tally::new();
            (0..98).for_each(|_| tally.record(Stage::SendLate, 700));
            (0..2).for_each(|_| tally.record(Stage::SendLate, late_ns));
            let mut record = Record { arrivals, ..Record::default() };
            record.set_tally(&tally);
            record.summary().pace
        };
        let kept = pace(Arrivals::Poisson, 90_000);
        assert!(kept.is_kept && kept.late_p50_ns <= 701 && kept.late_p99_ns >= 90_000);
        assert!(kept.sentence().starts_with("poisson: half"), "{}", kept.sentence());
        let late = pace(Arrivals::Spread, 110_000);
        assert!(!late.is_kept && late.sentence().contains("LATE"), "{}", late.sentence());
        let ticks = pace(Arrivals::Ticks, 110_000);
        assert!(ticks.is_kept && ticks.limit_ns.is_none());
        assert!(ticks.sentence().starts_with("ticks: "), "{}", ticks.sentence());
    }

    #[test]
    fn more_can_never_arrive_than_was_due() {
        let counts = [(Count::PayloadsDue, 100), (Count::Echoed, 98), (Count::Stale, 7)];
        let payloads = record(&counts).summary().payloads;
        assert_eq!((payloads.due, payloads.arrived, payloads.lost), (100, 100, 0));
    }

    #[test]
    fn what_comes_late_is_in_the_interval_in_which_it_comes() {
        use crate::measure::tally::Tally;
        use crate::report::record::Interval;
        let arrived = |due, echoed| {
            let mut tally = Tally::new();
            tally.counters.add(Count::PayloadsDue, due);
            tally.counters.add(Count::Echoed, echoed);
            Interval::of(0.0, 1.0, 1, &tally).arrived
        };
        assert_eq!([arrived(1000, 0), arrived(1000, 2000), arrived(0, 7)], [0, 2000, 7]);
    }

    #[test]
    fn a_gateway_that_was_restarted_says_nothing_of_directions() {
        let mut record = record(&[(Count::PayloadsSent, 100), (Count::Echoed, 80)]);
        record.closing.is_there = true;
        for name in ["ringgate_payloads_up_total", "ringgate_payloads_down_total"] {
            record.gateway_metrics.insert(name.into(), 90.0);
        }
        let ways = record.summary().ways.expect("both are known");
        assert_eq!((ways.up.came, ways.down.came), (90, 80));
        record.counters.insert(Count::MessagesTaken.name().into(), 1);
        assert_eq!(record.summary().ways, None, "messages are no packets");
        record.counters.remove(Count::MessagesTaken.name());
        let who = crate::measure::watch::THE_GATEWAY.to_owned();
        record.restarts.push(crate::measure::watch::Restart { who, ..Default::default() });
        assert_eq!(record.summary().ways, None);
    }
}
