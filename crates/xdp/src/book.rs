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
    /// Where sockets are bound whose datagrams may come in frames.
    in_frames: Vec<SocketAddr>,
    /// Where all others are.
    others: Vec<SocketAddr>,
    snapshot: Snapshot,
    /// `None` where another process tells the program, up to when this one serves.
    told: Option<HashSet<Ours>>,
    /// What the program could not be told.
    failed: HashSet<Ours>,
}

impl Book {
    /// For an interface on which a program runs, or will.
    pub fn new(program: Arc<Program>, interface: u32) -> Self {
        let entries = Entries { told: Some(HashSet::new()), ..Entries::default() };
        Self { program, interface, entries: Mutex::new(entries) }
    }

    /// For a program that another process tells until this one [serves](Self::serve): what is not
    /// right any more is taken back then.
    pub fn adopt(program: Arc<Program>, interface: u32, snapshot: Snapshot) -> Self {
        let entries = Entries { snapshot, ..Entries::default() };
        Self { program, interface, entries: Mutex::new(entries) }
    }

    /// What it tells.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Frames for sockets that are bound to `in_frames` are ours from now on, and no others. Those
    /// bound to `others` are the host's as well.
    pub fn serve(&self, in_frames: Vec<SocketAddr>, others: Vec<SocketAddr>) -> io::Result<()> {
        let mut entries = self.entries();
        (entries.in_frames, entries.others) = (in_frames, others);
        if entries.told.is_none() {
            entries.told = Some(self.program.all()?.into_iter().collect());
        }
        self.tell(&mut entries)
    }

    /// This is what the kernel knows now.
    pub fn renew(&self, snapshot: Snapshot) -> io::Result<()> {
        let mut entries = self.entries();
        entries.snapshot = snapshot;
        self.tell(&mut entries)
    }

    /// How many addresses there are that frames can be for, each with a port and a VLAN.
    pub fn addresses(&self) -> usize {
        self.entries().told.as_ref().map_or(0, HashSet::len)
    }

    /// What has gone goes first, so that there is room. All of it is tried; what has failed is
    /// tried again with the next change, and is an error when it was none before.
    fn tell(&self, entries: &mut Entries) -> io::Result<()> {
        let wanted = wanted(entries, self.interface);
        let Entries { told: Some(told), failed, .. } = entries else { return Ok(()) };
        let (mut outcome, mut failing) = (Ok(()), HashSet::new());
        let mut has_worked = |ours: Ours, done: io::Result<()>| {
            let is_done = done.is_ok();
            if !is_done {
                failing.insert(ours);
                if !failed.contains(&ours) && outcome.is_ok() {
                    outcome = done;
                }
            }
            is_done
        };
        told.retain(|it| wanted.contains(it) || !has_worked(*it, self.program.remove(it)));
        for ours in wanted {
            if !told.contains(&ours) && has_worked(ours, self.program.add(&ours)) {
                told.insert(ours);
            }
        }
        *failed = failing;
        outcome
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is ours, where sockets are bound to such addresses. An address on the interface, or on a
/// VLAN in it, is ours in that VLAN; one that is elsewhere on this host, and that a socket is bound
/// to by name, in all of them. A wildcard takes what the interface has, but for addresses to which
/// another socket is bound by name: the kernel gives datagrams to that one.
fn wanted(entries: &Entries, interface: u32) -> HashSet<Ours> {
    let Entries { in_frames, others, snapshot, .. } = entries;
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
    // One of the link only is the kernel's: answers from there need their interface.
    let is_of_link = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    for address in snapshot.addresses.iter().filter(|it| !is_of_link(it.ip)) {
        let own: Vec<u16> =
            vlans.iter().filter(|(at, _)| *at == address.interface).map(|(_, it)| *it).collect();
        let is_here = |it: &SocketAddr, port| it.ip() == address.ip && it.port() == port;
        let same_family = |it: &&SocketAddr| it.is_ipv4() == address.ip.is_ipv4();
        for socket in in_frames.iter().filter(same_family) {
            let is_any = socket.ip().is_unspecified();
            let is_anothers = || others.iter().any(|it| is_here(it, socket.port()));
            if if is_any { is_anothers() } else { socket.ip() != address.ip } {
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
    use crate::program::OURS_MAX;

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
                address(3, "fe80::1"),
                address(4, "192.0.2.7"),
                address(5, "192.0.2.5"),
                address(6, "192.0.2.8"),
            ],
            ..Snapshot::default()
        }
    }

    fn loaded() -> Option<Program> {
        let program = Program::load([2, 0, 0, 0, 0, 1], 1);
        if let Err(why) = &program {
            let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|value| value == "1");
            assert!(!is_required, "REQUIRE_XDP=1, but: {why}");
            eprintln!("SKIPPED: {why}");
        }
        program.ok()
    }

    /// The VLANs and ports that a program was told, in order.
    fn told(book: &Book) -> Vec<(u16, u16)> {
        let all = book.program().all().expect("it can be asked");
        let mut all: Vec<_> = all.iter().map(|it| (it.vlan, it.port)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn of_two_processes_the_one_that_serves_tells_the_program_and_each_bears_the_other() {
        let Some(program) = loaded() else { return };
        let given = program.given().expect("descriptors are left");
        let first = Book::new(Arc::new(program), 3);
        let at = |ports: &[u16]| ports.iter().map(|port| ([0; 4], *port).into()).collect();
        first.renew(snapshot()).expect("nothing to tell");
        first.serve(at(&[8, 9]), vec![]).expect("room");
        let program = Program::adopt(given, 1).expect("as it was given");
        let second = Book::adopt(Arc::new(program), 3, snapshot());
        // It follows what changes, and does not know yet what it will serve.
        second.renew(snapshot()).expect("nothing to tell");
        assert_eq!(told(&first), [(0, 8), (0, 9), (7, 8), (7, 9)]);
        second.serve(at(&[9, 10]), vec![]).expect("room");
        assert_eq!(told(&first), [(0, 9), (0, 10), (7, 9), (7, 10)]);
        // An address goes, and both take it out.
        let mut fewer = snapshot();
        fewer.addresses.retain(|it| it.interface != 4);
        second.renew(fewer.clone()).expect("it was there");
        first.renew(fewer).expect("it is not there, which is what is wanted");
        first.serve(at(&[11]), vec![]).expect("of these, 8 was taken out already");
        assert_eq!(told(&first), [(0, 10), (0, 11)]);
    }

    fn found(in_frames: &[&str]) -> Vec<(u16, IpAddr, u16)> {
        found_beside(in_frames, &[])
    }

    fn found_beside(in_frames: &[&str], others: &[&str]) -> Vec<(u16, IpAddr, u16)> {
        let all = |them: &[&str]| them.iter().map(|it| it.parse().expect("an address")).collect();
        let (in_frames, others) = (all(in_frames), all(others));
        let entries = Entries { in_frames, others, snapshot: snapshot(), ..Entries::default() };
        let ours = wanted(&entries, 3);
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
        assert_eq!(found(&["[::]:9"]), [(0, ip("2001:db8::1"), 9)], "not what is of the link only");
    }

    #[test]
    fn a_wildcard_leaves_an_address_to_the_socket_that_is_bound_to_it() {
        let others = ["192.0.2.1:9", "192.0.2.7:8", "0.0.0.0:9"];
        assert_eq!(found_beside(&["0.0.0.0:9"], &others), [(7, ip("192.0.2.7"), 9)]);
        assert_eq!(found_beside(&["192.0.2.1:8"], &["0.0.0.0:8"]), [(0, ip("192.0.2.1"), 8)]);
    }

    #[test]
    fn what_a_program_cannot_be_told_is_an_error_once() {
        let Some(program) = loaded() else { return };
        let book = Book::new(Arc::new(program), 3);
        book.renew(snapshot()).expect("nothing to tell");
        // Two addresses, each with more ports than the program has room for.
        let too_many = 1..=u16::try_from(OURS_MAX).expect("not so many");
        let too_many = too_many.map(|port| ([0; 4], port).into()).collect();
        book.serve(too_many, vec![]).expect_err("no room");
        book.renew(snapshot()).expect("nothing else has failed");
        assert_eq!(book.addresses(), OURS_MAX as usize);
        book.serve(vec![([0; 4], 8).into()], vec![]).expect("room again");
        assert_eq!(told(&book), [(0, 8), (7, 8)]);
    }

    #[test]
    fn an_address_is_ours_where_it_is_and_everywhere_where_it_is_on_no_wire() {
        assert_eq!(found(&["192.0.2.7:9"]), [(7, ip("192.0.2.7"), 9)]);
        let everywhere = [(0, ip("192.0.2.100"), 9), (7, ip("192.0.2.100"), 9)];
        assert_eq!(found(&["192.0.2.100:9"]), everywhere);
        assert_eq!(found(&["192.0.2.200:9"]), [], "an address that has not come yet");
    }
}
