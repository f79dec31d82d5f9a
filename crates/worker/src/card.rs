//! Listeners that are served past the kernel's sockets: the network interface that all workers
//! share, and which of the fleet's addresses it looks for. Each worker serves the queue of its own
//! number.
//!
//! The interface is opened before there are threads, and the rights that this takes are given up
//! then. What remains are descriptors: addresses may come and go, queues cannot.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Plan, Start};
use crate::handover::{CardGiven, CardRow};
use ringgate_batch::SocketId;
use ringgate_gate::{Listener, ListenerId};
use ringgate_io::{
    self as io, AnyDriver, Card, CardBase, CardChoice, CardCounts, CardMode, CardNews,
    DriverOptions, GivenBase, GivenQueue, SocketDriver, StartError,
};
use ringgate_os::capabilities::{self, Capability};

/// Which listeners are served so, and how.
#[derive(Clone, Debug)]
pub struct CardPlan {
    /// By which interface.
    pub choice: CardChoice,
    /// Sockets do where it cannot be had.
    pub fallback: bool,
    /// Whether each listener is, by its number.
    pub listeners: Vec<bool>,
}

/// The interface of a fleet.
#[derive(Debug)]
pub struct FleetCard {
    base: CardBase,
    mode: &'static str,
    sums: &'static str,
    /// Whether each listener is served by it, by its number.
    listeners: Mutex<Vec<bool>>,
    /// Each worker's queue, for the process after this one.
    queues: Vec<GivenQueue>,
    /// Another process has opened it.
    is_given: bool,
}

/// One worker's part of it.
#[derive(Clone)]
pub(super) struct Seat {
    card: Arc<FleetCard>,
    queue: u32,
    /// What program and kernel had counted when this process got it.
    before: CardCounts,
}

/// What players' packets come by, where a listener asks for more than sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardShown<'a> {
    /// The interface.
    pub interface: &'a str,
    /// How frames come and go: `zero-copy`, `copy`, `generic`, or `not used`.
    pub mode: &'static str,
    /// Who writes checksums of what leaves: `card` or `software`.
    pub sums: &'static str,
    /// Whether the program is on the interface.
    pub is_attached: bool,
    /// Addresses that frames may be for, each with its port and VLAN.
    pub addresses: usize,
}

impl Start<'_> {
    /// Drivers without sockets, one for each worker.
    pub(super) fn drivers(&mut self) -> Result<Vec<AnyDriver>, StartError> {
        let opened = open_drivers(self.plan)?;
        Ok(self.note_drivers(opened))
    }

    /// Notes what they have to do without.
    fn note_drivers(
        &mut self,
        (drivers, card): (Vec<AnyDriver>, Option<FleetCard>),
    ) -> Vec<AnyDriver> {
        self.card = card;
        if let Some(driver) = drivers.first() {
            self.why_not_uring = driver.why_not_uring().map(ToString::to_string);
            self.why_unrestricted = driver.why_unrestricted().map(ToString::to_string);
        }
        drivers
    }

    /// The same, on another process's interface where that has given one.
    pub(super) fn adopt_drivers(
        &mut self,
        row: Option<&CardRow>,
        fds: Vec<OwnedFd>,
    ) -> Result<Vec<AnyDriver>, StartError> {
        let adopted = adopt_drivers(self.plan, row, fds)?;
        Ok(self.note_drivers(adopted))
    }

    /// Before there are threads: this one, and all that it will start, need the rights no more that
    /// the interface took, and large buffers of sockets beside it.
    pub(super) fn give_up_rights(&self) {
        if self.plan.card.is_some()
            && let Err(why) = capabilities::give_up(&START_RIGHTS)
        {
            tracing::warn!(
                "the rights that io = \"xdp\" takes at the start could not be given up: {why}"
            );
        }
    }
}

/// Those of all workers, with the interface where they have one.
type Drivers = (Vec<AnyDriver>, Option<FleetCard>);

/// The drivers of all workers, with the interface where one is asked for and can be had.
fn open_drivers(plan: &Plan) -> Result<Drivers, StartError> {
    match &plan.card {
        Some(wanted) => open_or_fall_back(plan, wanted, wanted.fallback),
        None => Ok((by_sockets(plan)?, None)),
    }
}

fn by_sockets(plan: &Plan) -> Result<Vec<AnyDriver>, StartError> {
    (0..plan.workers).map(|_| io::open(plan.io, &DriverOptions::default())).collect()
}

fn open_or_fall_back(
    plan: &Plan,
    wanted: &CardPlan,
    may_fall_back: bool,
) -> Result<Drivers, StartError> {
    match open_card(plan, wanted, &DriverOptions::default()) {
        Ok((drivers, card)) => Ok((drivers, Some(card))),
        Err(why) if may_fall_back => {
            tracing::warn!(
                event = "xdp_fallback",
                interface = wanted.choice.interface,
                "players are served by sockets, because io = \"xdp\" cannot be had: {why}"
            );
            Ok((by_sockets(plan)?, None))
        }
        Err(why) => Err(why),
    }
}

fn open_card(
    plan: &Plan,
    wanted: &CardPlan,
    options: &DriverOptions,
) -> Result<(Vec<AnyDriver>, FleetCard), StartError> {
    let base = CardBase::open(&wanted.choice, plan.workers)?;
    let queues = 0..u32::from(plan.workers);
    let drivers = queues.map(|queue| base.driver(plan.io, options, queue, None));
    let drivers = drivers.collect::<Result<Vec<_>, _>>()?;
    let card = fleet_card(base, wanted, &drivers, false)?;
    Ok((drivers, card))
}

fn fleet_card(
    base: CardBase,
    wanted: &CardPlan,
    drivers: &[impl SocketDriver],
    is_given: bool,
) -> Result<FleetCard, StartError> {
    let cards = || drivers.iter().filter_map(SocketDriver::card);
    let mode = base.mode_name(cards().next());
    let are_left = cards().all(Card::leaves_sums);
    let sums = if are_left { "card" } else { "software" };
    let listeners = Mutex::new(wanted.listeners.clone());
    let queues = cards().map(Card::given).collect::<std::io::Result<_>>();
    let fail = |why| StartError::card("keep AF_XDP queues for the next process", why);
    let queues = queues.map_err(fail)?;
    Ok(FleetCard { base, mode, sums, listeners, queues, is_given })
}

/// The drivers of all workers of a process that goes on with another one's interface, where that
/// has given it and it is what the plan asks for.
fn adopt_drivers(
    plan: &Plan,
    row: Option<&CardRow>,
    fds: Vec<OwnedFd>,
) -> Result<Drivers, StartError> {
    let (Some(wanted), Some(row)) = (&plan.card, row) else { return open_drivers(plan) };
    let is_same = choice_of(row).as_ref() == Some(&wanted.choice);
    let is_whole = row.bases.len() == usize::from(plan.workers)
        && fds.len() == FIRST_FDS + 2 * row.bases.len();
    if !(is_same && is_whole) {
        return open_drivers(plan);
    }
    // Players have gone on by sockets since the interface has gone, and do so where the one that
    // has come in its place cannot be had.
    adopt_card(plan, wanted, row, fds)?.map_or_else(|| open_or_fall_back(plan, wanted, true), Ok)
}

/// `None` where the interface has gone.
fn adopt_card(
    plan: &Plan,
    wanted: &CardPlan,
    row: &CardRow,
    fds: Vec<OwnedFd>,
) -> Result<Option<Drivers>, StartError> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().expect("they were counted");
    let (attached, tables) = (next(), [next(), next(), next()]);
    let &CardRow { queues, is_generic, sizes, takes_notes, mac, .. } = row;
    let base = GivenBase { attached, tables, queues, is_generic, sizes, mac };
    let fail = |why| {
        let what = format!("go on with interface {}", wanted.choice.interface);
        StartError::card(what, why)
    };
    let base = match CardBase::adopt(&wanted.choice, base) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        adopted => adopted.map_err(fail)?,
    };
    let mut drivers = Vec::new();
    for (queue, at) in (0..).zip(&row.bases) {
        let given = GivenQueue { socket: next(), memory: next(), base: *at, takes_notes };
        drivers.push(base.driver(plan.io, &DriverOptions::default(), queue, Some(given))?);
    }
    let card = fleet_card(base, wanted, &drivers, true)?;
    Ok(Some((drivers, Some(card))))
}

/// What an interface was asked for.
fn choice_of(row: &CardRow) -> Option<CardChoice> {
    let mode = CardMode::named(&row.wanted_mode)?;
    Some(CardChoice { interface: row.interface.clone(), queues: row.wanted_queues, mode })
}

/// What a start may take, and gives up once it has what it took them for.
pub const START_RIGHTS: [Capability; 3] =
    [Capability::NetAdmin, Capability::NetRaw, Capability::Bpf];

/// What holds the program, and its tables.
const FIRST_FDS: usize = 4;

impl FleetCard {
    /// Frames for the listeners' sockets go to the workers from now on, or from the first
    /// [`change`](Self::change) on: up to that the process that has given it says which. What
    /// changes is followed. Each driver serves the queue of its place.
    pub(super) fn begin(
        &mut self,
        addresses: &[Vec<SocketAddr>],
        drivers: &[&impl SocketDriver],
        serves_now: bool,
    ) -> Result<(), StartError> {
        let interface = self.base.choice().interface.clone();
        let fail = |why| StartError::card(format!("serve by interface {interface}"), why);
        if !self.is_given {
            for (queue, driver) in (0..).zip(drivers) {
                self.base.give_queue(queue, *driver).map_err(fail)?;
            }
        }
        if serves_now {
            self.serve(addresses).map_err(fail)?;
        }
        let name = interface.clone();
        self.base.watch(move |news| tell(&name, news)).map_err(fail)
    }

    /// Tells it where all listeners are, and which of them it serves.
    fn serve(&self, addresses: &[Vec<SocketAddr>]) -> std::io::Result<()> {
        let listeners = self.listeners();
        let bound = |is_mine: bool| {
            let these = addresses.iter().zip(&*listeners).filter(|(_, it)| **it == is_mine);
            these.flat_map(|(addresses, _)| addresses.iter().copied()).collect()
        };
        self.base.serve(bound(true), bound(false))
    }

    /// Listeners have come or gone: these are the addresses of all that there are, and whether each
    /// of those that have come is served by it.
    pub(super) fn change(&self, addresses: &[Vec<SocketAddr>], come: &[(ListenerId, bool)]) {
        {
            let mut listeners = self.listeners();
            listeners.resize(addresses.len(), false);
            for (listener, by_card) in come {
                listeners[listener.index()] = *by_card;
            }
        }
        if let Err(why) = self.serve(addresses) {
            tell(&self.base.choice().interface, CardNews::Untold(why));
        }
    }

    /// The next listeners are served by it, or not.
    pub(super) fn serve_more(&self, more: impl Iterator<Item = bool>) {
        self.listeners().extend(more);
    }

    /// Whether a listener's frames may come by it.
    pub fn serves(&self, listener: ListenerId) -> bool {
        self.listeners().get(listener.index()).is_some_and(|it| *it)
    }

    /// What the process after this one needs to go on with it, and in which order.
    pub fn given(&self) -> std::io::Result<(CardRow, Vec<OwnedFd>)> {
        let GivenBase { attached, tables, queues, is_generic, sizes, mac } = self.base.given()?;
        let CardChoice { interface, queues: wanted_queues, mode } = self.base.choice();
        let row = CardRow {
            interface: interface.clone(),
            wanted_queues: *wanted_queues,
            wanted_mode: mode.name().to_owned(),
            queues,
            is_generic,
            sizes,
            mac,
            bases: self.queues.iter().map(|queue| queue.base).collect(),
            takes_notes: self.queues.iter().all(|queue| queue.takes_notes),
        };
        let mut fds: Vec<_> = [attached].into_iter().chain(tables).collect();
        for GivenQueue { socket, memory, .. } in &self.queues {
            fds.extend([socket.try_clone()?, memory.try_clone()?]);
        }
        Ok((row, fds))
    }

    /// What was asked for.
    pub(super) const fn choice(&self) -> &CardChoice {
        self.base.choice()
    }

    /// For pages.
    pub fn shown(&self) -> CardShown<'_> {
        CardShown {
            interface: &self.base.choice().interface,
            mode: self.mode,
            sums: self.sums,
            is_attached: self.base.is_attached(),
            addresses: self.base.addresses(),
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<bool>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    pub(super) fn new(card: Arc<FleetCard>, queue: u32) -> Self {
        Self { card, queue, before: CardCounts::default() }
    }

    /// What another process has had up to now: its frames are this driver's, its counts were its
    /// own.
    pub(super) fn go_on(
        &mut self,
        driver: &mut impl SocketDriver,
        given: &CardGiven,
    ) -> Result<(), String> {
        if !self.card.is_given {
            return Ok(());
        }
        self.before = CardCounts::of_given(&given.counted).without_driver();
        driver.resume_card(&given.frames).map_err(|why| format!("cannot go on with frames: {why}"))
    }

    /// What this process has counted.
    pub(super) fn since(&self, absolute: &CardCounts) -> CardCounts {
        absolute.since(&self.before)
    }

    /// What program, kernel and driver say of the frames of this worker's queue.
    pub(super) fn absolute(&self, driver: &impl SocketDriver) -> CardCounts {
        self.card.base.counts(self.queue, driver.card())
    }
}

impl Seat {
    /// Has a driver take frames for a listener's socket, if the listener is served so.
    pub(super) fn serve(
        &self,
        driver: &mut impl SocketDriver,
        (listener, rules): (ListenerId, &Listener),
        socket: (SocketId, SocketAddr),
    ) {
        if self.card.serves(listener) {
            serve_by_card(driver, rules, [socket].into_iter());
        }
    }
}

/// Has a driver take frames for a listener's sockets, in the order of their addresses.
pub(super) fn serve_by_card(
    driver: &mut impl SocketDriver,
    rules: &Listener,
    sockets: impl Iterator<Item = (SocketId, SocketAddr)>,
) {
    for (socket, address) in sockets {
        driver.serve_by_card(socket, address, rules.may_fragment());
    }
}

/// What an operator should know. Players notice nothing of it.
fn tell(interface: &str, news: CardNews) {
    match news {
        CardNews::ProgramGone => tracing::warn!(
            event = "xdp_program_gone",
            interface,
            "somebody has taken the gateway's program off interface {interface}, or has given that another address: players are \
             served by sockets until that is undone, or until a restart"
        ),
        CardNews::ProgramBack => tracing::info!(
            event = "xdp_program_back",
            interface,
            "the gateway's program takes frames of interface {interface} again"
        ),
        CardNews::Untold(why) => tracing::warn!(
            event = "xdp_addresses",
            interface,
            %why,
            "addresses have changed, and the program on {interface} could not be told: players there are served by sockets: {why}"
        ),
    }
}
