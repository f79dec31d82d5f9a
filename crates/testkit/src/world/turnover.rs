//! How far the listeners of a simulated world have come that come and go.

use crate::random::Random;
use ringgate_gate::{IdVec, Listener, ListenerId, Setup};

/// What the gateway was told last, and how it goes on.
pub(super) struct Turnover {
    pub(super) setup: Setup,
    /// As they were at first.
    pub(super) listeners: IdVec<ListenerId, Listener>,
    pub(super) random: Random,
    /// Those that workers know from this step on, and have no sockets for yet.
    pub(super) opened: Vec<ListenerId>,
}

impl Turnover {
    pub(super) fn new(setup: &Setup, seed: u64) -> Self {
        let (setup, listeners) = (setup.clone(), setup.listeners.clone());
        Self { setup, listeners, random: Random::new(seed ^ 0x7475_726e), opened: Vec::new() }
    }
}
