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
        let why = match others_at(before, &spoken, (backend, &setup.backends[backend]), front)? {
            Others::Of(number, other) => {
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
            Others::Speak(front) => {
                let word = front.word();
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
    found.is_some_and(|(id, _)| others_at(before, spoken, (id, backend), front).is_some())
}

/// Players of another protocol at a game server.
enum Others<'a> {
    /// Players of a listener that leads there.
    Of(ListenerId, &'a Listener),
    /// Players who speak this, of whatever listener.
    Speak(Front),
}

/// Players of another protocol than `front` who may be at a game server. If it was there `before`,
/// it had this number.
fn others_at<'a>(
    before: &'a Setup,
    spoken: impl Fn(BackendId) -> Option<Front>,
    (id, backend): (BackendId, &Backend),
    front: Front,
) -> Option<Others<'a>> {
    let was_there = before.backends.get(id).is_some_and(|there| there.is_same(backend));
    let leads_there = |it: &Listener| was_there && it.backends.contains(&id);
    let is_another = |it: &Listener| Front::of(&it.protocol) != front;
    let mut listeners = before.listeners.pairs();
    let of = listeners.find(|(_, it)| is_another(it) && leads_there(it));
    let of = of.map(|(number, it)| Others::Of(number, it));
    of.or_else(|| spoken(id).filter(|it| *it != front).map(Others::Speak))
}
