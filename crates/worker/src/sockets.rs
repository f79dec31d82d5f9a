//! The sockets of one worker, made before it runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Kept, Plan};
use ringgate_batch::filter::Filter;
use ringgate_batch::{Driver, Port, SocketId};
use ringgate_gate::handover::SocketUse;
use ringgate_gate::{BindId, Gate, ListenerId};
use ringgate_io::socket::{self, UdpSocket};
use ringgate_io::{SocketDriver, SocketKind, StartError};

/// A worker's sockets for players, by listener and by the position of their address.
pub(super) type PlayerSockets = Vec<Vec<SocketId>>;

/// What the sockets of a listener refuse in the kernel.
pub(super) fn filter_of(plan: &Plan, listener: ListenerId) -> Option<Filter> {
    plan.filter[listener.index()].then(|| plan.setup.listeners[listener].protocol.filter())
}

/// Hands the sockets over that were opened when the addresses were claimed.
pub(super) fn register_players(
    claimed: Vec<Vec<UdpSocket>>,
    driver: &mut impl SocketDriver,
) -> Result<PlayerSockets, StartError> {
    let mut players = Vec::with_capacity(claimed.len());
    for sockets in claimed {
        let ids = sockets.into_iter().map(|it| register(it, driver));
        players.push(ids.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(players)
}

fn register(socket: UdpSocket, driver: &mut impl SocketDriver) -> Result<SocketId, StartError> {
    let registered = driver.register(socket.fd, SocketKind::Datagram);
    registered.map_err(|why| StartError::other("register a socket", why))
}

/// A socket of a listener that was kept, if there is one left.
pub(super) fn take_kept(
    plan: &Plan,
    listener: ListenerId,
    address: SocketAddr,
    kept: &mut Kept,
) -> Result<Option<UdpSocket>, StartError> {
    let Some(fd) = kept.take(address) else { return Ok(None) };
    let filter = filter_of(plan, listener);
    let may_fragment = plan.setup.listeners[listener].may_fragment();
    let options = ringgate_io::player_options(filter.as_ref(), may_fragment);
    socket::adopt_player(fd, &options).map(Some)
}

/// Opens further sockets at the addresses of all listeners, those first that were kept.
pub(super) fn open_players(
    plan: &Plan,
    addresses: &[Vec<SocketAddr>],
    kept: &mut Kept,
    driver: &mut impl SocketDriver,
) -> Result<PlayerSockets, StartError> {
    let mut players = Vec::with_capacity(addresses.len());
    for (at, binds) in addresses.iter().enumerate() {
        let filter = filter_of(plan, ListenerId::at(at));
        let may_fragment = plan.setup.listeners[ListenerId::at(at)].may_fragment();
        let port = |address| Port::Players { address, filter: filter.as_ref(), may_fragment };
        let open = |address: &SocketAddr| match take_kept(plan, ListenerId::at(at), *address, kept)?
        {
            Some(socket) => register(socket, driver),
            None => driver.open(&port(*address)),
        };
        players.push(binds.iter().map(open).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(players)
}

/// How many datagrams the smallest receive buffer of these sockets holds, however long they are.
pub(super) fn room(driver: &impl SocketDriver, players: &[SocketId]) -> u32 {
    /// What the kernel books for a datagram of up to 1,225 bytes, its own memory included.
    const BOOKED_BYTES: usize = 2304;
    let sizes = players.iter().filter_map(|player| driver.fd(*player));
    let sizes = sizes.filter_map(|fd| socket2::SockRef::from(&fd).recv_buffer_size().ok());
    sizes.min().map_or(u32::MAX, |bytes| (bytes / BOOKED_BYTES) as u32)
}

/// Tells the gate which socket is whose, and opens the one for udp backends where there are any.
pub(super) fn bind_players<D: Driver>(
    plan: &Plan,
    players: &PlayerSockets,
    driver: &mut D,
    gate: &mut Gate,
) -> Result<(), D::OpenError> {
    for (listener, sockets) in players.iter().enumerate() {
        for (bind, socket) in sockets.iter().enumerate() {
            gate.bind_player_socket(*socket, ListenerId::at(listener), BindId::at(bind));
        }
    }
    if plan.has_udp(&plan.setup) {
        gate.bind_udp_link(driver.open(&Port::UdpLink)?);
    }
    Ok(())
}

/// Opens the socket that game processes connect to.
pub(super) fn open_links<D: Driver>(
    plan: &Plan,
    worker: u16,
    driver: &mut D,
    gate: &mut Gate,
    paths: &mut Vec<PathBuf>,
) -> Result<(), D::OpenError> {
    let Some(run_dir) = &plan.run_dir else { return Ok(()) };
    let path = link_path(run_dir, worker);
    gate.bind_link_listener(driver.open(&Port::Links { path: &path })?);
    paths.push(path);
    Ok(())
}

/// What a socket is, for the process that gets it.
pub(super) const fn number_of(is: SocketUse) -> u8 {
    match is {
        SocketUse::Player(..) => 0,
        SocketUse::UdpLink => 1,
        SocketUse::LinkListener => 2,
        SocketUse::Link => 3,
        SocketUse::Session => 4,
    }
}

/// The same as a driver has to know it; `None` where a later release has more kinds.
pub(super) const fn kind_of(number: u8) -> Option<SocketKind> {
    match number {
        0 | 1 => Some(SocketKind::Datagram),
        2 => Some(SocketKind::LinkListener),
        3 => Some(SocketKind::Link),
        4 => Some(SocketKind::ConnectedDatagram),
        _ => None,
    }
}

/// Where a worker listens for game processes.
pub(super) fn link_path(run_dir: &Path, worker: u16) -> PathBuf {
    run_dir.join(format!("worker-{worker}.sock"))
}
