//! The figures that every output shows: the closing table, the page, the JSON document and what
//! conditions are held against take them from here, so that no two of them can differ.

use serde::{Deserialize, Serialize};

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
