//! The figures that every output shows: the closing table, the page, the JSON document and what
//! conditions are held against take them from here, so that no two of them can differ.

use serde::{Deserialize, Serialize};

use crate::measure::pause::Pause;
use crate::players::arrivals::Arrivals;
use crate::text::time;

/// A run in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Who came, and what became of them.
    pub players: Players,
    /// What was to travel, and what of it did.
    pub payloads: Payloads,
    /// When payloads left, and how exactly.
    #[serde(default)]
    pub pace: Pace,
    /// The longest time in which nothing came.
    #[serde(default)]
    pub pause: Pause,
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
    /// Who of them were let in by another gateway than the first that their token names.
    #[serde(default)]
    pub elsewhere: u64,
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
    /// Who stayed outside or fell out. Players who were still asking when the run was interrupted
    /// are not among them.
    pub outside: u64,
}

/// Payloads of both directions where the game server pushes, else of players.
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
    /// That the protocol did not let a player send.
    #[serde(default)]
    pub stifled: u64,
}

/// How well the generator kept its own schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// When payloads were to leave.
    pub arrivals: Arrivals,
    /// How late they left: median, 99th and 99.9th percentile.
    pub late_p50_ns: u64,
    /// See `late_p50_ns`.
    pub late_p99_ns: u64,
    /// See `late_p50_ns`.
    pub late_p999_ns: u64,
    /// How late the 99th percentile may be where payloads leave one by one.
    pub limit_ns: Option<u64>,
    /// Whether it was not later.
    pub is_kept: bool,
}

impl Pace {
    /// Beyond this, payloads that were to leave one by one have left in bunches often enough to
    /// change what a gateway does with them.
    pub const LIMIT_NS: u64 = 100_000;

    /// The sentence for tables and pages.
    pub fn sentence(&self) -> String {
        let name = self.arrivals.name();
        let Some(limit_ns) = self.limit_ns else {
            return format!("{name}: what is due within {} left together", time(Arrivals::TICK_NS));
        };
        let late = format!(
            "half of the payloads left within {} of their moment, 99 % within {}, 99.9 % within {}",
            time(self.late_p50_ns),
            time(self.late_p99_ns),
            time(self.late_p999_ns)
        );
        if self.is_kept {
            return format!("{name}: {late}");
        }
        format!(
            "{name}, BUT THE GENERATOR WAS LATE: {late}; beyond {} for 99 % they are no separate arrivals",
            time(limit_ns)
        )
    }
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
