//! What is checked at the end of a run, and the state of things then.

use serde::{Deserialize, Serialize};

use crate::measure::kernel::KernelDrops;

/// Something that should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it is about.
    pub name: String,
    /// Whether it does.
    pub holds: bool,
    /// The figures.
    pub text: String,
    /// Whether it is about books: then there is no excuse.
    #[serde(default)]
    pub is_book: bool,
    /// Whether the run proves nothing, or not enough, without it.
    #[serde(default)]
    pub is_proof: bool,
}

/// The state of things when the last player had gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Nothing moved any more, on either side.
    pub is_quiet: bool,
    /// The gateway showed its counters, or nobody had asked for them.
    #[serde(default = "yes")]
    pub is_there: bool,
    /// Workers of the gateway that report that their own books do not balance.
    pub unbalanced_workers: u64,
    /// What the kernel has dropped.
    pub kernel: KernelDrops,
}

/// What attackers beside the players have sent and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hostile {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams that came back.
    pub answers: u64,
    /// Payloads of sessions of their own among what was sent, each once.
    pub payloads: u64,
    /// And among what came back.
    pub payload_answers: u64,
}

/// What records of earlier versions do not say was so.
const fn yes() -> bool {
    true
}
