//! The figures that every output shows: the closing table, the page, the JSON document and what
//! conditions are held against take them from here, so that no two of them can differ.

use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::tally::Count;

/// A run in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Who came, and what became of them.
    pub players: Players,
    /// What was to travel, and what of it did.
    pub payloads: Payloads,
    /// The same for each direction, where that can be told.
    pub ways: Option<Ways>,
}

/// Players, each counted in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Players {
    /// Who were to connect, those included who could not even dial.
    pub came: u64,
    /// Who were let in.
    pub connected: u64,
    /// Who were denied, or not answered in time.
    pub refused: u64,
    /// Who were still asking when they were sent away.
    pub unfinished: u64,
    /// Who had no connect token.
    pub tokenless: u64,
    /// Who had no address.
    pub placeless: u64,
    /// Who were in and lost their session.
    pub lost: u64,
    /// Who were in, or asking, and left as the plan says.
    pub left: u64,
    /// Who stayed outside or fell out. Whoever was still asking when the run was interrupted is not
    /// among them.
    pub outside: u64,
}

/// Payloads of both directions where the game server speaks of its own accord, else of players.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Payloads {
    /// That were to travel.
    pub due: u64,
    /// That are known to have arrived: echoes and pushes that came, and what the game server says
    /// it has heard.
    pub arrived: u64,
    /// All others.
    pub lost: u64,
    /// Their share.
    pub loss: f64,
    /// Those among the lost for which the generator knows no reason of its own.
    pub missing: u64,
    /// That left more than a millisecond late.
    pub late: u64,
    /// That the kernel did not take.
    pub unsent: u64,
}

/// What went, and what came, in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// Whether ends are the players and the game server; else they are the players and the gateway.
    pub to_game_server: bool,
    /// From players.
    pub up: Way,
    /// To players.
    pub down: Way,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// What was sent.
    pub sent: u64,
    /// What came.
    pub came: u64,
}

impl Summary {
    /// A run's.
    pub fn of(record: &Record) -> Self {
        Self {
            players: Players::of(record),
            payloads: Payloads::of(record),
            ways: Ways::of(record),
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
        }
    }
}

impl Ways {
    /// A gateway's counters tell of directions only where it was one gateway.
    fn of(record: &Record) -> Option<Self> {
        let c = |count| record.count(count);
        if c(Count::PushesDue) > 0 {
            return Some(Self {
                to_game_server: true,
                up: Way { sent: c(Count::PayloadsDue), came: c(Count::Heard) },
                down: Way { sent: c(Count::PushesDue), came: c(Count::PushedDown) },
            });
        }
        if !record.is_one_gateway() {
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
    use crate::record::Interruption;

    fn record(counts: &[(Count, u64)]) -> Record {
        let counters = counts.iter().map(|(c, n)| (c.name().to_owned(), *n)).collect();
        Record { counters, ..Record::default() }
    }

    #[test]
    fn whoever_stays_outside_for_whatever_reason_is_outside() {
        let counts = [
            (Count::Joins, 20),
            (Count::Connected, 14),
            (Count::ConnectFailed, 4),
            (Count::Unfinished, 2),
            (Count::Tokenless, 5),
            (Count::Placeless, 3),
            (Count::SessionsLost, 1),
        ];
        let mut record = record(&counts);
        let players = record.summary().players;
        assert_eq!((players.came, players.outside), (28, 15));
        record.interrupted = Some(Interruption::default());
        assert_eq!(record.summary().players.outside, 13, "who was sent away was not kept out");
    }

    #[test]
    fn more_can_never_arrive_than_was_due() {
        let counts = [(Count::PayloadsDue, 100), (Count::Echoed, 98), (Count::Stale, 7)];
        let payloads = record(&counts).summary().payloads;
        assert_eq!((payloads.due, payloads.arrived, payloads.lost), (100, 100, 0));
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
        let who = crate::watch::THE_GATEWAY.to_owned();
        record.restarts.push(crate::watch::Restart { who, ..Default::default() });
        assert_eq!(record.summary().ways, None);
    }
}
