//! Two protocols before one game server: refused while players of both could be there.
//!
//! A config may not say so, but a reload can: a listener that is removed drains, with its players
//! on its servers, and another one is added before the same server. Players of both would have the
//! same loopback addresses there: neither could the server tell them apart, nor could the gateway
//! tell which player an answer is for.

use crate::front::Front;
use crate::ids::BackendId;
use crate::setup::{Listener, Phase, Setup};

/// Why listeners cannot serve as `setup` says while the players of `before` are there, if they
/// cannot: a sentence.
pub fn clash(setup: &Setup, before: &Setup) -> Option<String> {
    let serving = setup.listeners.iter().filter(|listener| listener.phase == Phase::Serving);
    let mut pairs = serving.flat_map(|it| it.backends.iter().map(move |backend| (it, *backend)));
    pairs.find_map(|(listener, backend)| {
        let is_another = |other: &&Listener| {
            let fronts = [*other, listener].map(|it| Front::of(&it.protocol));
            fronts[0] != fronts[1] && has(before, other, setup, backend)
        };
        let other = before.listeners.iter().find(is_another)?;
        let (name, spoken) = (&other.name, Front::of(&other.protocol).word());
        Some(format!(
            "listener {}: backend {} is behind listener {name}, whose players speak {spoken}; try again when that one has gone",
            listener.name, setup.backends[backend].name
        ))
    })
}

/// Whether a listener sends players to the process that is this backend now.
fn has(before: &Setup, listener: &Listener, now: &Setup, backend: BackendId) -> bool {
    let there = before.backends.get(backend);
    listener.backends.contains(&backend)
        && there.is_some_and(|there| there.is_same(&now.backends[backend]))
}
