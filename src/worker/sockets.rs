//! The sockets of one worker, made before it runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Plan, filter};
use crate::buf::SocketId;
use crate::gate::{Gate, LinkKind, Protocol};
use crate::io::socket::{self, UdpOptions};
use crate::io::{AnyDriver, Driver, SocketKind, StartError};

/// A worker's sockets for players, by listener and by the position of their address.
pub(super) type PlayerSockets = Vec<Vec<SocketId>>;

/// Opens the sockets of all listeners. The first worker turns port 0 into the port that the others use too.
pub(super) fn open_players(
    plan: &Plan,
    addresses: &mut [Vec<SocketAddr>],
    driver: &mut AnyDriver,
) -> Result<PlayerSockets, StartError> {
    let mut players = Vec::with_capacity(addresses.len());
    for (at, binds) in addresses.iter_mut().enumerate() {
        let filter = plan.filter[at].then(|| match &plan.setup.listeners[at].protocol {
            Protocol::Netcode(rules) => filter::netcode(rules.protocol_id),
            Protocol::Unreal(rules) => filter::unreal(&rules.framing),
        });
        let options =
            UdpOptions { reuse_port: true, filter: filter.as_ref(), ..UdpOptions::default() };
        let mut sockets = Vec::with_capacity(binds.len());
        for address in binds {
            let opened = socket::player(*address, &options)?;
            *address = opened.local;
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
    let path = run_dir.join(format!("worker-{worker}.sock"));
    let fd = socket::link_listener(&path, LINK_MODE)?;
    paths.push(path);
    let id = register(driver, fd, SocketKind::LinkListener)?;
    gate.bind_link_listener(id);
    Ok(())
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
