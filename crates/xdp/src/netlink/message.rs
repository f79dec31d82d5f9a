//! Messages of rtnetlink: a fixed part, and attributes. Read like any other input: what is shorter
//! than it says is passed over.

use std::net::IpAddr;

use ringgate_os::netlink::{self, DONE, ERROR, attributes, word};

use crate::frame::Mac;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What makes it, such as `veth`; empty for a device.
    pub kind: String,
    /// Its address, where it is an Ethernet interface.
    pub mac: Option<Mac>,
    /// The longest packet.
    pub mtu: u32,
    /// Queues to receive that it was made with; how many are in use is not said.
    pub queues: u32,
    /// Whether it is up, with a cable.
    pub is_up: bool,
    /// The VLAN that it is, and the interface in which.
    pub vlan: Option<(u32, u16)>,
    /// It is part of a bridge, a bond or the like.
    pub is_part: bool,
    /// The program that runs for its frames, by the kernel's number.
    pub program: Option<u32>,
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// On which interface.
    pub interface: u32,
    /// The address.
    pub ip: IpAddr,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// In which table.
    pub table: u32,
    /// To where.
    pub to: IpAddr,
    /// How many bits of it count.
    pub bits: u8,
    /// Of two to the same place the lower is taken.
    pub priority: u32,
    /// How.
    pub way: Way,
}

/// How a route leads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The host itself.
    Ours,
    /// Out of an interface.
    Out(Out),
    /// Several at once, of which the kernel takes one for each flow.
    Several(Vec<Out>),
    /// In a way that only the kernel knows: in a tunnel, nowhere.
    Other,
}

/// Out of an interface, to the host itself or to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// The interface.
    pub interface: u32,
    /// The router.
    pub router: Option<IpAddr>,
}

/// A host on a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Behind which interface.
    pub interface: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its address on the wire, while it is known.
    pub mac: Option<Mac>,
    /// It was heard of for so long ago that the kernel would ask again.
    pub is_stale: bool,
}

/// Which table is asked when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table.
    pub table: u32,
    /// It depends on something else than where a packet goes.
    pub is_special: bool,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Link(Link),
    Address(Address),
    Route(Route),
    Neighbour(Neighbour),
    Rule(Rule),
    /// Nothing that concerns us.
    Nothing,
    /// That was all.
    End,
    Error(i32),
}

/// A request for everything of one kind, of every family.
pub(super) fn question(kind: u16, sequence: u32) -> Vec<u8> {
    netlink::question(kind, libc::NLM_F_DUMP, sequence, &[0; FAMILY_BYTES])
}

/// Reads a message.
pub(super) fn read(kind: u16, body: &[u8]) -> Said {
    let said = match kind {
        libc::RTM_NEWLINK => link(body).map(Said::Link),
        libc::RTM_NEWADDR => address(body).map(Said::Address),
        libc::RTM_NEWROUTE => route(body).map(Said::Route),
        libc::RTM_NEWNEIGH => neighbour(body).map(Said::Neighbour),
        libc::RTM_NEWRULE => rule(body).map(Said::Rule),
        DONE => Some(Said::End),
        ERROR => word(body, 0).map(|errno| Said::Error(errno.cast_signed().wrapping_neg())),
        _ => None,
    };
    said.unwrap_or(Said::Nothing)
}

fn link(body: &[u8]) -> Option<Link> {
    let flags = word(body, 8)?;
    let mut link = Link { index: word(body, 4)?, is_up: flags & UP == UP, ..Link::default() };
    let (mut below, mut vlan) = (None, None);
    for (kind, value) in attributes(body, 16) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().ok(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value, 0)?,
            IFLA_LINK => below = word(value, 0),
            IFLA_MASTER => link.is_part = true,
            IFLA_LINKINFO => (link.kind, vlan) = (kind_of(value), vlan_of(value)),
            IFLA_NUM_RX_QUEUES => link.queues = word(value, 0)?,
            IFLA_XDP => link.program = program_of(value),
            _ => {}
        }
    }
    link.vlan = below.zip(vlan);
    Some(link)
}

/// What makes an interface that is no device.
fn kind_of(info: &[u8]) -> String {
    let found = attributes(info, 0).find(|(kind, _)| *kind == INFO_KIND);
    found.map(|(_, value)| text(value)).unwrap_or_default()
}

/// The number of a VLAN with tags of the usual kind.
fn vlan_of(info: &[u8]) -> Option<u16> {
    let find = |at: &[u8], wanted| {
        attributes(at, 0).find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec())
    };
    if text(&find(info, INFO_KIND)?) != "vlan" {
        return None;
    }
    let data = find(info, INFO_DATA)?;
    let is_usual = find(&data, VLAN_PROTOCOL).is_none_or(|kind| kind == crate::frame::TAGGED);
    let id = find(&data, VLAN_ID).filter(|_| is_usual)?;
    Some(u16::from_ne_bytes(*id.first_chunk()?))
}

/// The number of the program on an interface, where there is one.
fn program_of(xdp: &[u8]) -> Option<u32> {
    let (_, value) = attributes(xdp, 0).find(|(kind, _)| *kind == XDP_PROGRAM)?;
    word(value, 0)
}

fn address(body: &[u8]) -> Option<Address> {
    let mut ip = None;
    for (kind, value) in attributes(body, 8) {
        // On a wire between two hosts the other kind is the other's.
        match kind {
            IFA_LOCAL => ip = ip_of(value),
            IFA_ADDRESS if ip.is_none() => ip = ip_of(value),
            _ => {}
        }
    }
    Some(Address { interface: word(body, 4)?, ip: ip? })
}

fn route(body: &[u8]) -> Option<Route> {
    let [family, bits, source_bits, service, table, _, _, kind, ..] = *body.first_chunk::<12>()?;
    let flags = word(body, 8)?;
    let mut to = match i32::from(family) {
        libc::AF_INET => IpAddr::from([0; 4]),
        libc::AF_INET6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    // What was looked up before, and is no route.
    if flags & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let (mut interface, mut router, mut several) = (None, None, None);
    let mut is_odd = source_bits != 0 || service != 0;
    let (mut table, mut priority) = (u32::from(table), 0);
    for (kind, value) in attributes(body, 12) {
        match kind {
            libc::RTA_DST => to = ip_of(value)?,
            libc::RTA_OIF => interface = word(value, 0),
            libc::RTA_GATEWAY => router = Some(ip_of(value)?),
            libc::RTA_PRIORITY => priority = word(value, 0)?,
            libc::RTA_TABLE => table = word(value, 0)?,
            libc::RTA_METRICS => is_odd |= has_own_mtu(value),
            libc::RTA_MULTIPATH => match next_hosts(value) {
                Some(outs) => several = Some(outs),
                None => is_odd = true,
            },
            // A way in something else.
            RTA_VIA | RTA_ENCAP_TYPE | RTA_ENCAP => is_odd = true,
            _ => {}
        }
    }
    let way = match (kind, several, interface) {
        (libc::RTN_LOCAL, ..) => Way::Ours,
        (libc::RTN_UNICAST, Some(outs), _) if !is_odd => Way::Several(outs),
        (libc::RTN_UNICAST, None, Some(interface)) if !is_odd => {
            Way::Out(Out { interface, router })
        }
        _ => Way::Other,
    };
    Some(Route { table, to, bits, priority, way })
}

/// The next hosts of a route with several, as far as they are up. `None` where one is reached in
/// something else, so that it takes the kernel.
fn next_hosts(mut value: &[u8]) -> Option<Vec<Out>> {
    let mut outs = Vec::new();
    while let Some(&[l0, l1, flags, _, i0, i1, i2, i3]) = value.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let whole = value.get(..len).filter(|whole| whole.len() >= NEXT_HOST_BYTES)?;
        let mut router = None;
        for (kind, value) in attributes(whole, NEXT_HOST_BYTES) {
            match kind {
                libc::RTA_GATEWAY => router = Some(ip_of(value)?),
                RTA_VIA | RTA_ENCAP_TYPE | RTA_ENCAP => return None,
                _ => {}
            }
        }
        if flags & NOT_UP == 0 {
            outs.push(Out { interface: u32::from_ne_bytes([i0, i1, i2, i3]), router });
        }
        value = value.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(outs)
}

/// Whether a route's packets may not be as long as its interface's.
fn has_own_mtu(metrics: &[u8]) -> bool {
    attributes(metrics, 0).any(|(kind, _)| kind == RTAX_MTU)
}

fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let state = u16::from_ne_bytes(*body.get(8..)?.first_chunk()?);
    let (mut ip, mut mac) = (None, None);
    for (kind, value) in attributes(body, 12) {
        match kind {
            NDA_DST => ip = ip_of(value),
            NDA_LLADDR => mac = value.try_into().ok(),
            _ => {}
        }
    }
    let is_known = state & (REACHABLE | PERMANENT | NO_QUESTION | STALE | DELAY | PROBE) != 0;
    Some(Neighbour {
        interface: word(body, 4)?,
        ip: ip?,
        mac: mac.filter(|_| is_known),
        is_stale: state & (STALE | DELAY | PROBE) != 0,
    })
}

fn rule(body: &[u8]) -> Option<Rule> {
    let [family, to_bits, from_bits, service, table, _, _, action, ..] =
        *body.first_chunk::<12>()?;
    // Others are not asked where IP packets go.
    if ![libc::AF_INET, libc::AF_INET6].contains(&i32::from(family)) {
        return None;
    }
    let flags = word(body, 8)?;
    let mut table = u32::from(table);
    let mut is_special =
        to_bits != 0 || from_bits != 0 || service != 0 || action != TO_TABLE || flags != 0;
    for (kind, value) in attributes(body, 12) {
        match kind {
            FRA_TABLE => table = word(value, 0)?,
            FRA_PRIORITY | FRA_PROTOCOL => {}
            FRA_SUPPRESS_BITS => is_special |= word(value, 0) != Some(u32::MAX),
            _ => is_special = true,
        }
    }
    Some(Rule { table, is_special })
}

pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn ip_of(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

pub(super) const LINKS: u16 = libc::RTM_GETLINK;
pub(super) const RULES: u16 = libc::RTM_GETRULE;

/// Everything that is asked for.
pub(super) const QUESTIONS: [u16; 5] =
    [LINKS, libc::RTM_GETADDR, libc::RTM_GETROUTE, libc::RTM_GETNEIGH, RULES];

/// What is told when it changes: links, neighbours, and of both families addresses, routes, rules.
pub(super) const GROUPS: [i32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// `NLM_F_DUMP_INTR`: something has changed meanwhile.
pub(super) const INTERRUPTED: u16 = 0x10;

const FAMILY_BYTES: usize = 4;

/// Up, and running.
const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const XDP_PROGRAM: u16 = 4;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// `struct rtnexthop`, and its flags dead, without a cable, unresolved.
const NEXT_HOST_BYTES: usize = 8;
const NOT_UP: u8 = 1 | 16 | 32;

const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// States of a neighbour.
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NO_QUESTION: u16 = 0x40;
const PERMANENT: u16 = 0x80;

const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_BITS: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;

/// `FR_ACT_TO_TBL`
const TO_TABLE: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [4 + value.len() as u16, kind].map(u16::to_ne_bytes).concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// One next host: its flags, its interface, and what else is said.
    fn next_host(flags: u8, interface: u32, rest: &[u8]) -> Vec<u8> {
        let len = (NEXT_HOST_BYTES + rest.len()) as u16;
        let [l0, l1] = len.to_ne_bytes();
        [&[l0, l1, flags, 0][..], &interface.to_ne_bytes(), rest].concat()
    }

    /// 203.0.113.0/24, by what the attributes say.
    fn route_by(attributes: &[u8]) -> Option<Route> {
        let head = [libc::AF_INET as u8, 24, 0, 0, 254, 0, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
        let to = attribute(libc::RTA_DST, &[203, 0, 113, 0]);
        route(&[&head[..], &to, attributes].concat())
    }

    fn gateway(last: u8) -> Vec<u8> {
        attribute(libc::RTA_GATEWAY, &[192, 0, 2, last])
    }

    #[test]
    fn next_hosts_are_those_that_are_up() {
        let out = |interface, last: u8| {
            let router = Some(IpAddr::from([192, 0, 2, last]));
            Out { interface, router }
        };
        let hosts = [
            next_host(0, 7, &gateway(1)),
            next_host(1, 7, &gateway(2)),
            next_host(16, 8, &gateway(3)),
            next_host(4, 8, &gateway(4)),
            next_host(0, 9, &[]),
        ];
        let way = route_by(&attribute(libc::RTA_MULTIPATH, &hosts.concat())).expect("a route").way;
        let bare = Out { interface: 9, router: None };
        assert_eq!(way, Way::Several(vec![out(7, 1), out(8, 4), bare]));
        let alone = [attribute(libc::RTA_OIF, &7_u32.to_ne_bytes()), gateway(1)].concat();
        assert_eq!(route_by(&alone).expect("a route").way, Way::Out(out(7, 1)));
    }

    #[test]
    fn a_next_host_in_a_tunnel_or_cut_off_leaves_the_route_to_the_kernel() {
        let tunnel = next_host(0, 7, &[gateway(1), attribute(RTA_ENCAP_TYPE, &[1, 0])].concat());
        let cut = next_host(0, 7, &gateway(1))[..12].to_vec();
        for odd in [tunnel, cut, vec![4, 0, 0, 0, 7, 0, 0, 0]] {
            let route = route_by(&attribute(libc::RTA_MULTIPATH, &odd)).expect("a route");
            assert_eq!(route.way, Way::Other, "{odd:?}");
        }
    }
}
