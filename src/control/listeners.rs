//! Listeners that come and go while others play on: their sockets, and the time that those have
//! left who play where there is to be nothing.
//!
//! A reload opens what is new before anything is told to a worker, so all of it happens or nothing.
//! What has gone *drains*: nobody is taken in, and whoever is there stays until `drain_timeout` is
//! over. A listener without sessions is closed in another setup, with which workers give its
//! sockets up; its number is free when all of them have taken that in. Where the next process takes
//! over meanwhile, it goes on draining there, up to the same moment.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::draining::survey;
use super::plan::{Links, card_choice};
use super::reload::{Known, Next, made_with};
use super::{Busy, ControlLoop};
use crate::config::{self, Config};
use ringgate_gate::{Ended, Front, ListenerId, Setup, Wanted as Sessions};
use ringgate_worker::handover::{LeavingRow, MadeWith};
use ringgate_worker::{Fleet, NotOpened, Opened, Wanted};

/// What is known of listeners beside what workers were told.
pub(super) struct Listeners {
    /// Whose tables were made at the start.
    fronts: Vec<Front>,
    /// Which sockets toward game processes were made then.
    links: Links,
    /// Those that drain.
    leaving: HashMap<ListenerId, Leaving>,
    /// The revision of the setup that closed each of those that have.
    closed: HashMap<ListenerId, u64>,
}

/// A listener that drains.
struct Leaving {
    /// What the last config that had it says of its sockets.
    made_with: MadeWith,
    /// The setup with which it takes nobody in.
    revision: u64,
    until_ns: u64,
    /// When its sessions were last told to end.
    told_ns: Option<u64>,
}

impl Listeners {
    /// Those of a gateway that starts.
    pub(super) fn of(setup: &Setup, links: Links) -> Self {
        let mut fronts = vec![Front::Netcode];
        fronts.extend(setup.listeners.iter().map(|listener| Front::of(&listener.protocol)));
        Self { fronts, links, leaving: HashMap::new(), closed: HashMap::new() }
    }

    /// A successor has tables for what the process before had tables for.
    pub(super) fn inherit(&mut self, fronts: &[String]) {
        self.fronts.extend(fronts.iter().filter_map(|word| Front::of_word(word)));
    }

    /// What there are tables for.
    pub(super) fn fronts(&self) -> impl Iterator<Item = Front> {
        Front::ALL.iter().copied().filter(|front| self.fronts.contains(front))
    }

    /// Which sockets toward game processes there are.
    pub(super) const fn links(&self) -> Links {
        self.links
    }
}

impl ControlLoop {
    /// What a reload asks of the listeners that there are.
    pub(super) fn with_known<T>(&self, fleet: &Fleet, then: impl FnOnce(&Known<'_>) -> T) -> T {
        let Listeners { fronts, links, leaving, closed } = &self.listeners;
        let made_with = |it: ListenerId| leaving.get(&it).map(|leaving| &leaving.made_with);
        let is_vacant = |it: ListenerId| {
            closed.get(&it).is_some_and(|revision| self.view.has_adopted(*revision))
        };
        let holder_of = |address: SocketAddr| fleet.holder_of(address);
        then(&Known {
            fronts,
            made_with: &made_with,
            is_vacant: &is_vacant,
            spoken: &|backend| self.view.spoken(backend),
            links: *links,
            holder_of: &holder_of,
        })
    }

    /// Opens the sockets of the listeners that a reload adds.
    pub(super) fn open_added(
        &self,
        fleet: &Fleet,
        next: &Next,
        config: &Config,
    ) -> Result<Vec<(ListenerId, Opened)>, Vec<String>> {
        let mut opened: Vec<Opened> = Vec::new();
        for &(number, at) in &next.added {
            let config::Listener { name, bind, filter, xdp, .. } = &config.listeners[at];
            let listener = &next.setup.listeners[number];
            let choice = xdp.as_ref().map(|xdp| (card_choice(xdp), xdp.fallback));
            let card = choice.as_ref().map(|(choice, fallback)| (choice, *fallback));
            let wanted = Wanted { listener, binds: bind, filter: *filter, card };
            let open = fleet.open(&wanted, &opened);
            opened.push(open.map_err(|why| vec![self.why_closed(name, why)])?);
        }
        Ok(next.added.iter().map(|(number, _)| *number).zip(opened).collect())
    }

    /// Why a listener could not be opened. What may be done at the start may be too late now.
    fn why_closed(&self, name: &str, why: NotOpened) -> String {
        let why = match &self.config.gateway.user {
            Some(user) if why.is_forbidden() => why.advised(format!(
                "the daemon has given up the right to ports below 1024 when it became user {user}: take another port, lower \
                 sysctl net.ipv4.ip_unprivileged_port_start, or restart it"
            )),
            _ => why,
        };
        format!("listener {name}: {why}")
    }

    /// A reload has been carried out. `before` is the config until now.
    pub(super) fn note_movements(&mut self, fleet: &Fleet, next: &Next, before: &Config) {
        let now_ns = self.view.now_ns();
        let timeout = self.config.gateway.drain_timeout;
        let until_ns = now_ns + timeout.as_nanos() as u64;
        for &number in &next.removed {
            let revision = self.setup.revision;
            let listener = &self.setup.listeners[number].name;
            let known = before.listeners.iter().find(|known| known.name == *listener);
            let made_with = made_with(known.expect("it was in the config up to now"));
            let leaving = Leaving { made_with, revision, until_ns, told_ns: None };
            self.listeners.leaving.insert(number, leaving);
            let (sessions, left_ms) = (self.view.sessions(number), timeout.as_millis() as u64);
            tracing::info!(
                event = "listener_drain",
                listener,
                sessions,
                left_ms,
                "listener {listener} takes no new players: a reload has removed it"
            );
        }
        for number in &next.returned {
            self.listeners.leaving.remove(number);
            let listener = &self.setup.listeners[*number].name;
            tracing::info!(
                event = "listener_back",
                listener,
                "listener {listener} takes players again"
            );
        }
        let addresses = fleet.addresses();
        for (number, _) in &next.added {
            self.listeners.closed.remove(number);
            let listener = &self.setup.listeners[*number].name;
            for address in &addresses[number.index()] {
                tracing::info!(
                    event = "listener_added",
                    listener,
                    %address,
                    "listener {listener} on {address}"
                );
            }
        }
        self.show_listeners(fleet);
    }

    /// Goes on with those that the process before this one could not wait for.
    pub(super) fn go_on_draining(&mut self, fleet: &Fleet, inherited: &[(ListenerId, LeavingRow)]) {
        let revision = self.setup.revision;
        let leaving = inherited.iter().map(|(number, row)| {
            let made_with = row.made_with.clone();
            (*number, Leaving { made_with, revision, until_ns: row.until_ns, told_ns: None })
        });
        self.listeners.leaving.extend(leaving);
        self.show_listeners(fleet);
    }

    /// Those that drain, for the next process.
    pub(super) fn leaving_rows(&self, fleet: &Fleet) -> Vec<LeavingRow> {
        let by_card = |number| fleet.card().is_some_and(|card| card.serves(number));
        let row = |(number, leaving): (&ListenerId, &Leaving)| LeavingRow {
            number: number.0,
            until_ns: leaving.until_ns,
            by_card: by_card(*number),
            made_with: leaving.made_with.clone(),
        };
        let mut rows: Vec<_> = self.listeners.leaving.iter().map(row).collect();
        rows.sort_unstable_by_key(|row| row.number);
        rows
    }

    /// Closes the listeners that have drained, and ends the sessions of those whose time is over.
    pub(super) fn close_drained(&mut self, fleet: &Fleet) {
        if self.listeners.leaving.is_empty() {
            return;
        }
        let now_ns = self.view.now_ns();
        let mut drained = Vec::new();
        for (&number, leaving) in &mut self.listeners.leaving {
            // From then on no worker takes anybody in.
            let is_empty =
                self.view.sessions(number) == 0 && self.view.has_adopted(leaving.revision);
            if is_empty || now_ns >= leaving.until_ns + PATIENCE_NS {
                drained.push(number);
            } else if now_ns >= leaving.until_ns
                && leaving.told_ns.is_none_or(|told_ns| now_ns >= told_ns + TELL_EVERY_NS)
            {
                leaving.told_ns = Some(now_ns);
                let wanted = Sessions { listener: Some(number), ..Sessions::default() };
                survey(fleet, wanted, Some(Ended::ByOperator), 0);
            }
        }
        // A successor that prepares was told of them, and closes them itself.
        if !drained.is_empty() && self.busy == Busy::No {
            self.close(fleet, &drained);
        }
    }

    fn close(&mut self, fleet: &Fleet, drained: &[ListenerId]) {
        let mut setup = Setup::clone(&self.setup);
        let addresses = fleet.addresses();
        for number in drained {
            self.give_up_sockets(&addresses[number.index()]);
            let listener = &mut setup.listeners[*number];
            let closed = listener.closed();
            let name = std::mem::replace(listener, closed).name;
            let leaving = self.listeners.leaving.remove(number);
            let was_told = leaving.is_some_and(|leaving| leaving.told_ns.is_some());
            let reason = if was_told { "deadline" } else { "empty" };
            tracing::info!(
                event = "listener_removed",
                listener = name,
                reason,
                "listener {name} has gone, and its addresses are free"
            );
        }
        self.revise(fleet, setup);
        let revision = self.setup.revision;
        self.listeners.closed.extend(drained.iter().map(|number| (*number, revision)));
        self.show_listeners(fleet);
    }

    /// Lets the pages know where listeners are, and how long some of them have left.
    fn show_listeners(&self, fleet: &Fleet) {
        let left = self.listeners.leaving.iter();
        let mut live = self.view.live();
        live.addresses = Arc::new(fleet.addresses());
        live.leaving = left.map(|(number, leaving)| (*number, leaving.until_ns)).collect();
    }
}

/// Sessions that were told to end are gone in a few turns; players who are being let in take
/// longer.
const PATIENCE_NS: u64 = 5_000_000_000;

/// How often those are told to leave whose time is over.
pub(super) const TELL_EVERY_NS: u64 = 1_000_000_000;
