//! Where a frame has to go so that a packet reaches an address: routes and neighbours, as the
//! kernel knows them, in a table that is made anew and exchanged as a whole whenever it changes.
//!
//! Nothing is broadcast and nobody is asked. What the table does not know, or what only the kernel
//! can do (tunnels, rules that look at more than an address), is left to the kernel, by way of an
//! ordinary socket; the kernel then asks for a neighbour who is unknown, and the next table has the
//! answer.
//!
//! Where a route names several next hosts, an answer goes to the one that the player's frames come
//! from. Nobody else's word counts for where a frame goes: a MAC is the kernel's, for a next host
//! of the route, or it is none. A host on the wire that sends frames in another's name would have
//! the answers otherwise.

mod watch;

use std::collections::HashMap;
use std::net::IpAddr;

pub use self::watch::{Prepared, Routes, Watch};
use crate::frame::{Leg, Mac};
use crate::netlink::{Neighbour, Out, Route, Snapshot, Way};

/// What to do with a packet for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The address is this host's own.
    Ours,
    /// Only the kernel can tell.
    Kernel,
    /// To one of several next hosts: to which says where frames [come from](Table::hop_back), or
    /// the kernel.
    Several,
    /// Out of our interface.
    Out {
        /// To whom on the wire.
        leg: Leg,
        /// The longest packet.
        mtu: u32,
        /// The kernel has not heard of the next host for a while. It asks again when it has a
        /// packet for it, so it has to be given one now and then.
        is_stale: bool,
    },
}

/// Routes and neighbours at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// A rule looks at more than an address, so no table can tell.
    is_beyond_us: bool,
    own: Prefixes<()>,
    ways: Prefixes<(u32, Way)>,
    wires: HashMap<u32, Wire>,
    neighbours: HashMap<(u32, IpAddr), (Mac, bool)>,
}

/// Our interface, or a VLAN in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wire {
    mac: Mac,
    vlan: u16,
    mtu: u32,
}

impl Table {
    /// The table for an interface and the VLANs in it.
    pub fn of(snapshot: &Snapshot, interface: u32) -> Self {
        let mut table = Self {
            is_beyond_us: snapshot
                .rules
                .iter()
                .any(|rule| rule.is_special || ![LOCAL, MAIN, DEFAULT].contains(&rule.table)),
            wires: wires(snapshot, interface),
            ..Self::default()
        };
        for Route { table: number, to, bits, priority, way } in &snapshot.routes {
            match (*number, way) {
                (LOCAL, Way::Ours) => table.own.add(*to, *bits, (), |(), ()| false),
                (MAIN | LOCAL, way) => {
                    let is_better = |old: &(u32, Way), new: &(u32, Way)| new.0 < old.0;
                    table.ways.add(*to, *bits, (*priority, way.clone()), is_better);
                }
                _ => {}
            }
        }
        for Neighbour { interface, ip, mac, is_stale } in &snapshot.neighbours {
            if let Some(mac) = mac.filter(|_| table.wires.contains_key(interface)) {
                table.neighbours.insert((*interface, *ip), (mac, *is_stale));
            }
        }
        table
    }

    /// What to do with a packet for this address.
    pub fn hop(&self, to: IpAddr) -> Hop {
        if self.own.find(to).is_some() {
            return Hop::Ours;
        }
        match self.way(to) {
            Some(Way::Out(out)) => self.out(to, out).unwrap_or(Hop::Kernel),
            Some(Way::Several(_)) => Hop::Several,
            _ => Hop::Kernel,
        }
    }

    /// The same for an address whose frames come from this MAC in this VLAN: `None` where that is
    /// none of the next hosts on the way there.
    pub fn hop_back(&self, to: IpAddr, (mac, vlan): (Mac, u16)) -> Option<Hop> {
        let Some(Way::Several(outs)) = self.way(to) else { return None };
        outs.iter().filter_map(|out| self.out(to, out)).find(|hop| match hop {
            Hop::Out { leg, .. } => (leg.to, leg.vlan) == (mac, vlan),
            _ => false,
        })
    }

    fn way(&self, to: IpAddr) -> Option<&Way> {
        let found = self.ways.find(to).filter(|_| !self.is_beyond_us);
        found.map(|(_, way)| way)
    }

    /// Out of our interface, where the next host is known.
    fn out(&self, to: IpAddr, out: &Out) -> Option<Hop> {
        let next = out.router.unwrap_or(to);
        let wire = self.wires.get(&out.interface)?;
        let &(to, is_stale) = self.neighbours.get(&(out.interface, next))?;
        let leg = Leg { to, from: wire.mac, vlan: wire.vlan };
        Some(Hop::Out { leg, mtu: wire.mtu, is_stale })
    }
}

/// Our interface and the VLANs in it, as far as they are up.
fn wires(snapshot: &Snapshot, interface: u32) -> HashMap<u32, Wire> {
    let is_up = |index| snapshot.links.iter().any(|link| link.index == index && link.is_up);
    let of_ours = snapshot.links.iter().filter_map(|link| {
        let vlan = match link.vlan {
            _ if link.index == interface => 0,
            Some((below, vlan)) if below == interface => vlan,
            _ => return None,
        };
        let mac = link.mac.filter(|_| link.is_up)?;
        Some((link.index, Wire { mac, vlan, mtu: link.mtu }))
    });
    if is_up(interface) { of_ours.collect() } else { HashMap::new() }
}

/// Values by prefixes of addresses: the longest that fits counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Prefixes<V> {
    /// By family; in each the longest prefixes first.
    families: [Vec<OfLength<V>>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfLength<V> {
    bits: u8,
    values: HashMap<u128, V>,
}

impl<V> Default for Prefixes<V> {
    fn default() -> Self {
        Self { families: [Vec::new(), Vec::new()] }
    }
}

impl<V> Prefixes<V> {
    /// Adds a prefix, or takes it in place of what was there where it is better.
    fn add(&mut self, to: IpAddr, bits: u8, value: V, is_better: impl Fn(&V, &V) -> bool) {
        let (family, number) = split(to);
        let lengths = &mut self.families[family];
        let place = lengths.partition_point(|it| it.bits > bits);
        if lengths.get(place).is_none_or(|it| it.bits != bits) {
            lengths.insert(place, OfLength { bits, values: HashMap::new() });
        }
        let key = masked(number, bits);
        let values = &mut lengths[place].values;
        if values.get(&key).is_none_or(|old| is_better(old, &value)) {
            values.insert(key, value);
        }
    }

    fn find(&self, ip: IpAddr) -> Option<&V> {
        let (family, number) = split(ip);
        let mut lengths = self.families[family].iter();
        lengths.find_map(|it| it.values.get(&masked(number, it.bits)))
    }
}

/// The family, and the address as a number that begins with its first bit.
fn split(ip: IpAddr) -> (usize, u128) {
    match ip {
        IpAddr::V4(ip) => (0, u128::from(ip.to_bits()) << 96),
        IpAddr::V6(ip) => (1, ip.to_bits()),
    }
}

/// The first bits of a number.
fn masked(number: u128, bits: u8) -> u128 {
    number & u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0)
}

/// Tables of the kernel's, by number.
const DEFAULT: u32 = 253;
const MAIN: u32 = 254;
const LOCAL: u32 = 255;

#[cfg(test)]
mod tests;
