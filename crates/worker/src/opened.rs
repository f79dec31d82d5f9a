//! Listeners that are opened while the fleet runs: all sockets of all workers, or none and a
//! reason.
//!
//! Sockets are made in the control thread, so that a reload knows at once whether it can be done,
//! and so that all of a listener's sockets are there before a worker reads the first: the kernel
//! spreads players by how many there are. Each worker is then given its own, which it registers
//! between two turns, once it has taken in the setup that has the listener.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::FleetCard;
use super::ports::{Taken, open_alone};
use ringgate_core::limits::WORKERS_MAX;
use ringgate_gate::{Listener, ListenerId};
use ringgate_io::socket::{self, UdpOptions, UdpSocket, overlap};
use ringgate_io::{CardChoice, StartError};
use ringgate_os::clock::{self, Clock};
use ringgate_os::owners::Holder;

/// A listener that is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What it is told.
    pub listener: &'a Listener,
    /// Where it is bound.
    pub binds: &'a [SocketAddr],
    /// Whether its sockets refuse in the kernel what cannot be its.
    pub filter: bool,
    /// By which interface it is to be served, and whether sockets do instead.
    pub card: Option<(&'a CardChoice, bool)>,
}

/// The sockets of a listener that no worker has been given yet. Dropped, they close.
#[derive(Debug)]
pub struct Opened {
    /// Where they are bound, with the ports that the kernel has chosen.
    pub(super) addresses: Vec<SocketAddr>,
    /// By worker, and by the position of their address.
    pub(super) sockets: Vec<Vec<UdpSocket>>,
    /// Whether its frames may come by the fleet's interface.
    pub(super) by_card: bool,
}

/// Why a listener cannot be opened, as a sentence.
#[derive(Debug)]
pub struct NotOpened(StartError);

impl NotOpened {
    /// Whether this process has no right to it, or none any more.
    pub fn is_forbidden(&self) -> bool {
        self.0.io_error().kind() == std::io::ErrorKind::PermissionDenied
    }

    /// The same with better advice.
    #[must_use]
    pub fn advised(self, advice: String) -> Self {
        Self(self.0.advised(advice))
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A listener's sockets, for one worker.
pub(super) struct NewSockets {
    pub(super) listener: ListenerId,
    /// The setup that has it.
    pub(super) revision: u64,
    pub(super) sockets: Vec<UdpSocket>,
    /// Whether its frames may come by the fleet's interface.
    pub(super) by_card: bool,
}

impl Opened {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The sockets of each address.
    pub fn by_address(&self) -> impl Iterator<Item = (SocketAddr, Vec<BorrowedFd<'_>>)> {
        let of = |at: usize| self.sockets.iter().filter_map(move |it| it.get(at));
        let addresses = self.addresses.iter().enumerate();
        addresses.map(move |(at, address)| (*address, of(at).map(|it| it.fd.as_fd()).collect()))
    }
}

/// Opens the sockets of a listener for so many workers. Those of `beside` are opened with it, and
/// one of them may be a wildcard that holds one of these addresses too.
pub(super) fn open(
    wanted: &Wanted<'_>,
    workers: usize,
    beside: &[SocketAddr],
    card: Option<&FleetCard>,
) -> Result<Opened, NotOpened> {
    let by_card = is_by_card(wanted, card).map_err(NotOpened)?;
    let opened = open_all(wanted, workers, beside).map_err(NotOpened)?;
    Ok(Opened { by_card, ..opened })
}

/// Whether a listener's frames come by the fleet's interface, which was opened at the start.
fn is_by_card(wanted: &Wanted<'_>, card: Option<&FleetCard>) -> Result<bool, StartError> {
    let Some((choice, may_fall_back)) = wanted.card else { return Ok(false) };
    if card.is_some_and(|card| card.choice() == choice) {
        return Ok(true);
    }
    if may_fall_back {
        return Ok(false);
    }
    let what = format!("serve it by interface {}", choice.interface);
    let why = std::io::Error::other("that interface was not opened at the start");
    let advice = "interfaces are opened while the daemon may do so; that needs a restart";
    Err(StartError::card(what, why).advised(advice.to_owned()))
}

fn open_all(
    wanted: &Wanted<'_>,
    workers: usize,
    beside: &[SocketAddr],
) -> Result<Opened, StartError> {
    debug_assert!(workers <= WORKERS_MAX, "a plan has no more");
    let filter = wanted.filter.then(|| wanted.listener.protocol.filter());
    let options = ringgate_io::player_options(filter.as_ref(), wanted.listener.may_fragment());
    let mut opened = Opened { addresses: Vec::new(), sockets: Vec::new(), by_card: false };
    opened.sockets.resize_with(workers, Vec::new);
    for bind in wanted.binds {
        let known = opened.addresses.iter().chain(beside);
        let is_shared = known.into_iter().any(|other| overlap(*other, *bind));
        let first = open_first(*bind, is_shared, &options)?;
        let local = first.local;
        opened.addresses.push(local);
        opened.sockets[0].push(first);
        for sockets in opened.sockets.iter_mut().skip(1) {
            sockets.push(socket::player(local, &options)?);
        }
    }
    Ok(opened)
}

/// The first socket of an address, which nobody else may have. What a listener of ours has closed a
/// moment ago may still be there, while the kernel takes its requests apart: that is waited for.
fn open_first(
    address: SocketAddr,
    is_shared: bool,
    options: &UdpOptions<'_>,
) -> Result<UdpSocket, StartError> {
    let clock = Clock::start();
    loop {
        let open =
            |alone: bool| socket::player(address, &UdpOptions { reuse_port: !alone, ..*options });
        let Taken { why, holder, .. } = match open_alone(address, is_shared, open) {
            Ok(socket) => return Ok(socket),
            Err(taken) => *taken,
        };
        // What the service manager has kept of it goes in a moment, too.
        let is_kept = |holder: &Holder| matches!(holder, Holder::Process(it) if it.pid == INIT);
        let is_anothers = matches!(&holder, Some(it @ Holder::Process(_)) if !is_kept(it));
        let may_go = why.is_in_use() && !is_anothers;
        if !may_go || clock.now_ns() >= PATIENCE.as_nanos() as u64 {
            return Err(match holder {
                Some(holder) => why.advised(format!("{holder}; choose another address")),
                None => why,
            });
        }
        clock::sleep(TRY_AGAIN_AFTER);
    }
}

/// The control thread does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);

const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Where systemd is the service manager, it has this number.
const INIT: u32 = 1;
