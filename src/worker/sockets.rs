//! The sockets of one worker, made before it runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Plan, filter};
use ringgate_batch::SocketId;
use ringgate_gate::{Gate, LinkKind, Protocol};
use ringgate_io::filter::Filter;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{AnyDriver, SocketKind, StartError};

/// A worker's sockets for players, by listener and by the position of their address.
pub(super) type PlayerSockets = Vec<Vec<SocketId>>;

/// What the sockets of a listener, by its number, refuse in the kernel.
pub(super) fn filter_of(plan: &Plan, listener: usize) -> Option<Filter> {
    plan.filter[listener].then(|| match &plan.setup.listeners[listener].protocol {
        Protocol::Netcode(rules) => filter::netcode(rules.protocol_id),
        Protocol::Unreal(rules) => filter::unreal(&rules.framing),
    })
}

/// What every socket for players is like.
pub(super) fn player_options(filter: Option<&Filter>) -> UdpOptions<'_> {
    UdpOptions { reuse_port: true, filter, ..UdpOptions::default() }
}

/// Hands the sockets over that were opened when the addresses were claimed.
pub(super) fn register_players(
    claimed: Vec<Vec<socket::UdpSocket>>,
    driver: &mut AnyDriver,
) -> Result<PlayerSockets, StartError> {
    let mut players = Vec::with_capacity(claimed.len());
    for sockets in claimed {
        let ids = sockets.into_iter().map(|it| register(driver, it.fd, SocketKind::Datagram));
        players.push(ids.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(players)
}

/// Opens further sockets at the addresses of all listeners.
pub(super) fn open_players(
    plan: &Plan,
    addresses: &[Vec<SocketAddr>],
    driver: &mut AnyDriver,
) -> Result<PlayerSockets, StartError> {
    let mut players = Vec::with_capacity(addresses.len());
    for (at, binds) in addresses.iter().enumerate() {
        let filter = filter_of(plan, at);
        let options = player_options(filter.as_ref());
        let mut sockets = Vec::with_capacity(binds.len());
        for address in binds {
            let opened = socket::player(*address, &options)?;
            sockets.push(register(driver, opened.fd, SocketKind::Datagram)?);
        }
        players.push(sockets);
    }
    Ok(players)
}

/// Tells the gate which socket is whose, and opens the one for udp backends where there are any.
pub(super) fn bind_players(
    plan: &Plan,
    players: &PlayerSockets,
    driver: &mut AnyDriver,
    gate: &mut Gate,
) -> Result<(), StartError> {
    for (listener, sockets) in players.iter().enumerate() {
        for (bind, socket) in sockets.iter().enumerate() {
            gate.bind_player_socket(*socket, listener as u16, bind as u16);
        }
    }
    if plan.setup.backends.iter().any(|backend| matches!(backend.link, LinkKind::Udp { .. })) {
        let opened = socket::udp_link(&UdpOptions::default())?;
        gate.bind_udp_link(register(driver, opened.fd, SocketKind::Datagram)?);
    }
    Ok(())
}

/// Opens the socket that game processes connect to.
pub(super) fn open_links(
    plan: &Plan,
    worker: u16,
    driver: &mut AnyDriver,
    gate: &mut Gate,
    paths: &mut Vec<PathBuf>,
) -> Result<(), StartError> {
    let Some(run_dir) = &plan.run_dir else { return Ok(()) };
    let path = link_path(run_dir, worker);
    let fd = socket::link_listener(&path, LINK_MODE)?;
    paths.push(path);
    let id = register(driver, fd, SocketKind::LinkListener)?;
    gate.bind_link_listener(id);
    Ok(())
}

/// Where a worker listens for game processes.
pub(super) fn link_path(run_dir: &Path, worker: u16) -> PathBuf {
    run_dir.join(format!("worker-{worker}.sock"))
}

fn register(
    driver: &mut AnyDriver,
    fd: std::os::fd::OwnedFd,
    kind: SocketKind,
) -> Result<SocketId, StartError> {
    driver.register(fd, kind).map_err(|why| StartError::other("register a socket", why))
}

/// Whoever reaches the directory may connect; who may say hello is decided by its credentials.
const LINK_MODE: u32 = 0o666;
