//! Which listeners of a config that was read again stay, come and go.
//!
//! A listener is known by its name and by where it is bound. One at other addresses is another one:
//! it has sockets and a number of its own, and the one before *drains*: it keeps its number, its
//! sockets and its players until they have left or their time is over. It comes back as it was if
//! the config has it again before that. Its addresses are nobody else's meanwhile, because the
//! kernel would send its players' datagrams to both.

use std::net::SocketAddr;

use super::fields::{differing, of_listeners};
use super::{find, needs_restart};
use crate::config::{self, Config};
use crate::control::plan::{self, Links};
use ringgate_core::limits::LISTENERS_MAX;
use ringgate_gate::{BackendId, Front, ListenerId, Phase, Setup};
use ringgate_worker::handover::MadeWith;

/// What the control thread knows of listeners beside what workers were told.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Whose tables were made at the start.
    pub fronts: &'a [Front],
    /// What the sockets of a listener which drains were made with.
    pub made_with: &'a dyn Fn(ListenerId) -> Option<&'a MadeWith>,
    /// Whether every worker has closed a listener.
    pub is_vacant: &'a dyn Fn(ListenerId) -> bool,
    /// What the players of a backend speak, if it has any.
    pub spoken: &'a dyn Fn(BackendId) -> Option<Front>,
    /// Which sockets toward game processes were made at the start.
    pub links: Links,
    /// Whose sockets take what is sent to an address.
    pub holder_of: &'a dyn Fn(SocketAddr) -> Option<ListenerId>,
}

/// What becomes of a listener that the config has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Stays(ListenerId),
    /// It drained, and takes players again.
    Returns(ListenerId),
    /// It needs sockets. The number is that of one that has closed, or the next.
    Opens(ListenerId),
}

impl Fate {
    pub(super) const fn number(self) -> ListenerId {
        match self {
            Self::Stays(number) | Self::Returns(number) | Self::Opens(number) => number,
        }
    }
}

/// What becomes of each listener of the new config, in its order.
pub(super) fn fates(
    old: &Config,
    setup: &Setup,
    new: &Config,
    known: &Known<'_>,
    refusals: &mut Vec<String>,
) -> Vec<Fate> {
    let mut numbers = vacant(setup, known).into_iter();
    let mut fates = Vec::with_capacity(new.listeners.len());
    for listener in &new.listeners {
        let fate = match stays(old, setup, (new, listener), refusals) {
            Some(number) => Some(Fate::Stays(number)),
            None => returns(setup, listener, known).map(Fate::Returns),
        };
        let fate = fate.or_else(|| {
            refuse_opening(setup, listener, known, refusals);
            numbers.next().map(Fate::Opens)
        });
        match fate {
            Some(fate) => fates.push(fate),
            None => refusals.push(format!(
                "listener {}: {LISTENERS_MAX} listeners are there or have just gone; try again when those have drained",
                listener.name
            )),
        }
    }
    fates
}

/// The listener that serves under this name, where it is bound as the config says. Refuses what
/// its sockets and sessions were made with, if that is to be different.
fn stays(
    old: &Config,
    setup: &Setup,
    (new, after): (&Config, &config::Listener),
    refusals: &mut Vec<String>,
) -> Option<ListenerId> {
    let before = find(old, &after.name).filter(|before| before.bind == after.bind)?;
    let fields = of_listeners((old, before), (new, after));
    let prefix = format!("listener {}: ", after.name);
    refusals.extend(differing(fields, false).map(needs_restart(&prefix)));
    named(setup, &after.name, Phase::Serving).next()
}

/// The listener of this name that drains, where nothing is different that its sockets and sessions
/// were made with.
fn returns(setup: &Setup, after: &config::Listener, known: &Known<'_>) -> Option<ListenerId> {
    let rules = plan::listener_of_a_start(after);
    named(setup, &after.name, Phase::Draining).find(|number| {
        let before = &setup.listeners[*number];
        (known.made_with)(*number) == Some(&made_with(after)) && before.is_made_as(&rules)
    })
}

/// What the sockets of a listener are made with.
pub(in crate::control) fn made_with(listener: &config::Listener) -> MadeWith {
    let config::Listener { bind, filter, xdp, .. } = listener;
    let card = xdp.as_ref().map(|xdp| format!("{xdp:?}"));
    MadeWith { binds: bind.clone(), filter: *filter, card }
}

fn named<'s>(
    setup: &'s Setup,
    name: &'s str,
    phase: Phase,
) -> impl Iterator<Item = ListenerId> + 's {
    let is_it =
        move |listener: &ringgate_gate::Listener| listener.name == name && listener.phase == phase;
    setup.listeners.pairs().filter_map(move |(number, it)| is_it(it).then_some(number))
}

/// Numbers for listeners that are new.
fn vacant(setup: &Setup, known: &Known<'_>) -> Vec<ListenerId> {
    let closed = setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Closed);
    let closed = closed.map(|(number, _)| number).filter(|number| (known.is_vacant)(*number));
    closed.chain((setup.listeners.len()..LISTENERS_MAX).map(ListenerId::at)).collect()
}

/// Refuses a new listener for which there are no tables, or whose address is another's.
fn refuse_opening(
    setup: &Setup,
    listener: &config::Listener,
    known: &Known<'_>,
    refusals: &mut Vec<String>,
) {
    let name = &listener.name;
    let front = listener.protocol.front();
    if !known.fronts.contains(&front) {
        refusals.push(format!(
            "listener {name}: no listener spoke {} at the start, so there are no tables for its players; that needs a restart",
            front.word()
        ));
    }
    for bind in &listener.bind {
        refuse_taken(setup, &format!("listener {name}"), *bind, known, refusals);
    }
}

/// Refuses an address where players of a listener come.
pub(super) fn refuse_taken(
    setup: &Setup,
    whose: &str,
    bind: SocketAddr,
    known: &Known<'_>,
    refusals: &mut Vec<String>,
) {
    let Some(holder) = (known.holder_of)(bind) else { return };
    let holder = &setup.listeners[holder];
    let what = match holder.phase {
        Phase::Draining => "which drains; try again when it has gone",
        Phase::Serving | Phase::Closed => {
            "whose players would be diverted; remove that one first, and add this one when it has drained"
        }
    };
    refusals.push(format!("{whose}: {bind} belongs to listener {}, {what}", holder.name));
}
