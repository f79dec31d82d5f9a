//! Which frames are ours, kept in line with the addresses that this host has: a program is told
//! what is new and what has gone, and nothing else.
//!
//! What the kernel would not take for one of our sockets must not be ours either, and what is not
//! ours goes to those sockets: where in doubt, a frame is left to the kernel.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::netlink::Snapshot;
use crate::program::{Ours, Program};
use ringgate_batch::LocalIp;

/// What a program was told, and what it is told by.
#[derive(Debug)]
pub struct Book {
    program: Arc<Program>,
    interface: u32,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Where sockets are bound.
    bound: Vec<SocketAddr>,
    snapshot: Snapshot,
    told: HashSet<Ours>,
}

impl Book {
    /// For an interface on which a program runs, or will.
    pub fn new(program: Arc<Program>, interface: u32) -> Self {
        Self { program, interface, entries: Mutex::default() }
    }

    /// For a program that was told already: what is not right any more is taken back with the first
    /// change.
    pub fn adopt(program: Arc<Program>, interface: u32, snapshot: Snapshot) -> io::Result<Self> {
        let told = program.all()?.into_iter().collect();
        let entries = Mutex::new(Entries { told, snapshot, bound: Vec::new() });
        Ok(Self { program, interface, entries })
    }

    /// What it tells.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Frames for the sockets that are bound to these are ours from now on, and no others.
    pub fn serve(&self, bound: Vec<SocketAddr>) -> io::Result<()> {
        let mut entries = self.entries();
        entries.bound = bound;
        self.tell(&mut entries)
    }

    /// This is what the kernel knows now.
    pub fn renew(&self, snapshot: Snapshot) -> io::Result<()> {
        let mut entries = self.entries();
        entries.snapshot = snapshot;
        self.tell(&mut entries)
    }

    /// How many addresses there are that frames can be for, each with a port and a VLAN.
    pub fn len(&self) -> usize {
        self.entries().told.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has gone goes first, so that there is room.
    fn tell(&self, entries: &mut Entries) -> io::Result<()> {
        let wanted = wanted(&entries.bound, &entries.snapshot, self.interface);
        let gone: Vec<_> = entries.told.difference(&wanted).copied().collect();
        for ours in gone {
            self.program.remove(&ours)?;
            entries.told.remove(&ours);
        }
        for ours in wanted {
            if !entries.told.contains(&ours) {
                self.program.add(&ours)?;
                entries.told.insert(ours);
            }
        }
        Ok(())
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is ours, where sockets are bound to these addresses. An address on the interface, or on a
/// VLAN in it, is ours in that VLAN; one that is elsewhere on this host, and that a socket is bound
/// to by name, in all of them. A wildcard takes what the interface has.
fn wanted(bound: &[SocketAddr], snapshot: &Snapshot, interface: u32) -> HashSet<Ours> {
    let vlans: Vec<(u32, u16)> = snapshot
        .links
        .iter()
        .filter_map(|link| match link.vlan {
            _ if link.index == interface => Some((interface, 0)),
            Some((below, vlan)) if below == interface => Some((link.index, vlan)),
            _ => None,
        })
        .collect();
    let mut ours = HashSet::new();
    for address in &snapshot.addresses {
        let own: Vec<u16> =
            vlans.iter().filter(|(at, _)| *at == address.interface).map(|(_, it)| *it).collect();
        for socket in bound.iter().filter(|it| it.is_ipv4() == address.ip.is_ipv4()) {
            let is_any = socket.ip().is_unspecified();
            if !is_any && socket.ip() != address.ip {
                continue;
            }
            let all = || vlans.iter().map(|(_, vlan)| *vlan).collect();
            let vlans: Vec<u16> = if own.is_empty() && !is_any { all() } else { own.clone() };
            let (local, port) = (local_ip(address.ip), socket.port());
            ours.extend(vlans.into_iter().map(|vlan| Ours { vlan, local, port }));
        }
    }
    ours
}

fn local_ip(ip: IpAddr) -> LocalIp {
    match ip {
        IpAddr::V4(ip) => LocalIp::v4(ip.octets(), 0),
        IpAddr::V6(ip) => LocalIp::v6(ip.octets(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Address, Link};

    /// Interface 3 with VLAN 7 in it (4), interface 5 beside it, and loopback.
    fn snapshot() -> Snapshot {
        let link = |index, vlan| Link { index, vlan, ..Link::default() };
        let address = |interface, ip: &str| {
            let ip = ip.parse().expect("an address");
            Address { interface, ip }
        };
        Snapshot {
            links: vec![
                link(1, None),
                link(3, None),
                link(4, Some((3, 7))),
                link(5, None),
                link(6, Some((5, 8))),
            ],
            addresses: vec![
                address(1, "192.0.2.100"),
                address(3, "192.0.2.1"),
                address(3, "2001:db8::1"),
                address(4, "192.0.2.7"),
                address(5, "192.0.2.5"),
                address(6, "192.0.2.8"),
            ],
            ..Snapshot::default()
        }
    }

    fn found(bound: &[&str]) -> Vec<(u16, IpAddr, u16)> {
        let bound: Vec<_> = bound.iter().map(|it| it.parse().expect("an address")).collect();
        let ours = wanted(&bound, &snapshot(), 3);
        let mut found: Vec<_> = ours
            .into_iter()
            .map(|Ours { vlan, local, port }| {
                let ip = IpAddr::from(*local.ip_bytes()).to_canonical();
                (vlan, ip, port)
            })
            .collect();
        found.sort_unstable();
        found
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_wildcard_takes_what_the_interface_has_in_its_vlan() {
        assert_eq!(found(&["0.0.0.0:9"]), [(0, ip("192.0.2.1"), 9), (7, ip("192.0.2.7"), 9)]);
        assert_eq!(found(&["[::]:9"]), [(0, ip("2001:db8::1"), 9)]);
    }

    #[test]
    fn an_address_is_ours_where_it_is_and_everywhere_where_it_is_on_no_wire() {
        assert_eq!(found(&["192.0.2.7:9"]), [(7, ip("192.0.2.7"), 9)]);
        let everywhere = [(0, ip("192.0.2.100"), 9), (7, ip("192.0.2.100"), 9)];
        assert_eq!(found(&["192.0.2.100:9"]), everywhere);
        assert_eq!(found(&["192.0.2.200:9"]), [], "an address that has not come yet");
    }
}
