//! Two protocols before one game server: refused while players of both could be there.
//!
//! A config may not say so, but a reload can: a listener that is removed drains, with its players
//! on its servers, and another one is added before the same server. Players of both would have the
//! same loopback addresses there: neither could the server tell them apart, nor could the gateway
//! tell which player an answer is for.

use crate::front::Front;
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Backend, Listener, Phase, Setup};

/// Why listeners cannot serve as `setup` says while the players of `before` are there, if they
/// cannot: a sentence. `spoken` says what the players of a backend of `setup` speak, if it has any:
/// they may be those of a listener that names it no more.
pub fn clash(
    setup: &Setup,
    before: &Setup,
    spoken: impl Fn(BackendId) -> Option<Front>,
) -> Option<String> {
    let serving = setup.listeners.iter().filter(|listener| listener.phase == Phase::Serving);
    let mut pairs = serving.flat_map(|it| it.backends.iter().map(move |backend| (it, *backend)));
    pairs.find_map(|(listener, backend)| {
        let front = Front::of(&listener.protocol);
        let is_another = |(_, other): &(ListenerId, &Listener)| {
            Front::of(&other.protocol) != front && has(before, other, setup, backend)
        };
        let why = match before.listeners.pairs().find(is_another) {
            Some((number, other)) => {
                let (name, word) = (&other.name, Front::of(&other.protocol).word());
                let now = setup.listeners.get(number);
                let goes_on = now.is_some_and(|it| it.phase == Phase::Serving && it.name == *name);
                let then = if goes_on {
                    "take it out there first, and try again when they have left it"
                } else {
                    "try again when that one has gone"
                };
                format!("is behind listener {name}, whose players speak {word}; {then}")
            }
            None => {
                let word = spoken(backend).filter(|spoken| *spoken != front)?.word();
                format!("has players who speak {word}; try again when they have left it")
            }
        };
        let (name, backend) = (&listener.name, &setup.backends[backend].name);
        Some(format!("listener {name}: backend {backend} {why}"))
    })
}

/// Whether this game server cannot be had by players who speak this yet, because there may be
/// others at it, by the same rule: its listeners are those of `before`.
pub fn clashes(
    before: &Setup,
    spoken: impl Fn(BackendId) -> Option<Front>,
    backend: &Backend,
    front: Front,
) -> bool {
    let found = before.backends.pairs().find(|(_, known)| known.is_same(backend));
    found.is_some_and(|(id, _)| {
        let is_another = |it: &Listener| Front::of(&it.protocol) != front;
        before.listeners.iter().any(|it| is_another(it) && it.backends.contains(&id))
            || spoken(id).is_some_and(|spoken| spoken != front)
    })
}

/// Whether a listener sends players to the process that is this backend now.
fn has(before: &Setup, listener: &Listener, now: &Setup, backend: BackendId) -> bool {
    let there = before.backends.get(backend);
    listener.backends.contains(&backend)
        && there.is_some_and(|there| there.is_same(&now.backends[backend]))
}
