//! Where packets have to go, remembered: the table of routes is asked once for each address and
//! table.
//!
//! Addresses are chosen by strangers, so what is remembered has a fixed size, and one address takes
//! the place of another.

use std::sync::Arc;

use ringgate_batch::Endpoint;
use ringgate_xdp::frame::Mac;
use ringgate_xdp::routes::{Hop, Routes, Table};

/// What is remembered of the table of now.
#[derive(Debug)]
pub(super) struct Hops {
    routes: Arc<Routes>,
    table: Arc<Table>,
    number: u64,
    known: Box<[Known]>,
    flushes: u32,
    /// The card did not send with this table.
    distrusted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// The table; 0 for none.
    number: u64,
    ip: [u8; 16],
    hop: Hop,
    /// Which of several next hosts its frames come from, if it was asked for.
    by: Option<(Mac, u16)>,
}

impl Hops {
    pub(super) fn new(routes: Arc<Routes>) -> Self {
        let (number, table) = (routes.number(), routes.table());
        let none = Known { number: 0, ip: [0; 16], hop: Hop::Kernel, by: None };
        let known = vec![none; KNOWN].into_boxed_slice();
        Self { routes, table, number, known, flushes: 0, distrusted: 0 }
    }

    /// Takes the table of now.
    #[inline]
    pub(super) fn renew(&mut self) {
        let number = self.routes.number();
        if number != self.number {
            self.number = number;
            self.table = self.routes.table();
        }
    }

    /// The same, before a flush.
    pub(super) fn begin_flush(&mut self) {
        self.flushes = self.flushes.wrapping_add(1);
        self.renew();
    }

    /// The card does not send: the kernel has to, until something changes.
    pub(super) const fn distrust(&mut self) {
        self.distrusted = self.number;
    }

    /// A frame has come from this address, by this MAC in this VLAN. Where the route leaves a
    /// choice of next hosts, and that is one of them, answers go there; otherwise it changes
    /// nothing, whoever says so.
    #[inline]
    pub(super) fn came(&mut self, peer: &Endpoint, by: (Mac, u16)) -> Hop {
        let hop = self.known(peer);
        let place = hash(peer.ip_key()) % KNOWN;
        let known = &mut self.known[place];
        let may_choose = hop == Hop::Several || known.by.is_some();
        let is_news = may_choose && known.by != Some(by) && known.ip == *peer.ip_bytes();
        if is_news && let Some(back) = self.table.hop_back(peer.ip(), by) {
            (known.hop, known.by) = (back, Some(by));
        }
        hop
    }

    /// Where a packet for this address has to go. One flush in many leaves hosts that the kernel
    /// has not heard of for a while to the kernel, all of their packets, so that it asks them and
    /// their order stays.
    #[inline]
    pub(super) fn to(&mut self, peer: &Endpoint) -> Hop {
        let hop = self.known(peer);
        let Hop::Out { is_stale, .. } = hop else {
            return if hop == Hop::Several { Hop::Kernel } else { hop };
        };
        let is_kernels_turn = is_stale && self.flushes.is_multiple_of(KERNELS_TURN);
        if is_kernels_turn || self.distrusted == self.number { Hop::Kernel } else { hop }
    }

    fn known(&mut self, peer: &Endpoint) -> Hop {
        // Which link it means is said by more than an address.
        if peer.scope() != 0 || peer.ip_bytes()[..2] == LINK_LOCAL {
            return Hop::Kernel;
        }
        let place = hash(peer.ip_key()) % KNOWN;
        let known = &mut self.known[place];
        if known.number != self.number || known.ip != *peer.ip_bytes() {
            let mut hop = self.table.hop(peer.ip());
            let mut by = known.by.filter(|_| known.ip == *peer.ip_bytes() && hop == Hop::Several);
            // The frames have come that way before the table was another.
            match by.and_then(|by| self.table.hop_back(peer.ip(), by)) {
                Some(back) => hop = back,
                None => by = None,
            }
            *known = Known { number: self.number, ip: *peer.ip_bytes(), hop, by };
        }
        known.hop
    }
}

const fn hash(key: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (key.wrapping_mul(ODD) >> 40) as usize
}

/// Addresses that are remembered.
const KNOWN: usize = 4096;

/// How many flushes go by the table before one goes by the kernel.
const KERNELS_TURN: u32 = 64;

const LINK_LOCAL: [u8; 2] = [0xfe, 0x80];

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_xdp::frame::Leg;
    use ringgate_xdp::netlink::{Link, Neighbour, Out, Route, Snapshot, Way};

    /// A host whose network (10.0.0.0/8) is behind interface 7, with one neighbour there.
    fn table(mac: u8, is_stale: bool) -> Table {
        let ip = |last| std::net::IpAddr::from([10, 0, 0, last]);
        let way = Way::Out(Out { interface: 7, router: None });
        let link = Link { index: 7, mac: Some([1; 6]), mtu: 1500, is_up: true, ..Link::default() };
        let neighbour = Neighbour { interface: 7, ip: ip(2), mac: Some([mac; 6]), is_stale };
        let snapshot = Snapshot {
            links: vec![link],
            routes: vec![Route { table: 254, to: ip(0), bits: 8, priority: 0, way }],
            neighbours: vec![neighbour],
            ..Snapshot::default()
        };
        Table::of(&snapshot, 7)
    }

    /// The same host with a network behind two routers, and a neighbour that is none.
    fn two_ways(macs: [u8; 2]) -> Table {
        let ip = |last| std::net::IpAddr::from([10, 0, 0, last]);
        let link = Link { index: 7, mac: Some([1; 6]), mtu: 1500, is_up: true, ..Link::default() };
        let outs = [2, 3].map(|last| Out { interface: 7, router: Some(ip(last)) });
        let [one, other] = macs;
        let neighbours = [(2, one), (3, other), (4, 44)].map(|(last, mac)| Neighbour {
            interface: 7,
            ip: ip(last),
            mac: Some([mac; 6]),
            is_stale: false,
        });
        let way = Way::Several(outs.into());
        let to = std::net::IpAddr::from([192, 0, 2, 0]);
        let snapshot = Snapshot {
            links: vec![link],
            routes: vec![Route { table: 254, to, bits: 24, priority: 0, way }],
            neighbours: neighbours.into(),
            ..Snapshot::default()
        };
        Table::of(&snapshot, 7)
    }

    #[test]
    fn answers_go_to_the_router_that_frames_come_from_and_to_no_stranger() {
        let routes = Arc::new(Routes::new(two_ways([22, 33])));
        let mut hops = Hops::new(Arc::clone(&routes));
        let [player, other] = [7, 8].map(|last| Endpoint::v4([192, 0, 2, last], 5));
        assert_eq!(hops.to(&player), Hop::Kernel, "nothing has come");
        for stranger in [[44; 6], [99; 6]] {
            hops.came(&player, (stranger, 0));
            assert_eq!(hops.to(&player), Hop::Kernel, "no next host of the route");
        }
        hops.came(&player, ([33; 6], 0));
        assert_eq!((mac_of(hops.to(&player)), hops.to(&other)), (Some(33), Hop::Kernel));
        for stranger in [([44; 6], 0), ([99; 6], 0), ([22; 6], 7)] {
            hops.came(&player, stranger);
            assert_eq!(mac_of(hops.to(&player)), Some(33), "{stranger:?}");
        }
        hops.came(&player, ([22; 6], 0));
        assert_eq!(mac_of(hops.to(&player)), Some(22), "the network has changed its mind");
        // A new table in which the router is still one, and one in which it is not.
        for (macs, wanted) in [([22, 34], Some(22)), ([23, 34], None)] {
            routes.exchange(two_ways(macs));
            hops.begin_flush();
            assert_eq!(mac_of(hops.to(&player)), wanted, "{macs:?}");
        }
    }

    fn mac_of(hop: Hop) -> Option<u8> {
        let Hop::Out { leg: Leg { to, .. }, .. } = hop else { return None };
        Some(to[0])
    }

    #[test]
    fn a_new_table_counts_from_the_next_flush_on() {
        let routes = Arc::new(Routes::new(table(2, false)));
        let mut hops = Hops::new(Arc::clone(&routes));
        let peer = Endpoint::v4([10, 0, 0, 2], 5);
        assert_eq!(mac_of(hops.to(&peer)), Some(2));
        routes.exchange(table(3, false));
        assert_eq!(mac_of(hops.to(&peer)), Some(2), "not in the middle of one");
        hops.begin_flush();
        assert_eq!(mac_of(hops.to(&peer)), Some(3));
        assert_eq!(hops.to(&Endpoint::v4([10, 0, 0, 3], 5)), Hop::Kernel);
    }

    #[test]
    fn stale_neighbours_are_the_kernels_now_and_then() {
        let mut hops = Hops::new(Arc::new(Routes::new(table(2, true))));
        let peer = Endpoint::v4([10, 0, 0, 2], 5);
        let mut by_kernel = 0;
        for _ in 0..4 * KERNELS_TURN {
            hops.begin_flush();
            by_kernel += u32::from(hops.to(&peer) == Hop::Kernel);
            assert_eq!(hops.to(&peer), hops.to(&peer), "all of a flush go one way");
        }
        assert_eq!(by_kernel, 4);
    }

    #[test]
    fn a_card_that_does_not_send_is_asked_again_when_something_changes() {
        let routes = Arc::new(Routes::new(table(2, false)));
        let mut hops = Hops::new(Arc::clone(&routes));
        let peer = Endpoint::v4([10, 0, 0, 2], 5);
        hops.distrust();
        assert_eq!(hops.to(&peer), Hop::Kernel);
        routes.exchange(table(2, false));
        hops.begin_flush();
        assert_eq!(mac_of(hops.to(&peer)), Some(2));
    }

    #[test]
    fn any_number_of_addresses_is_asked_for() {
        let mut hops = Hops::new(Arc::new(Routes::new(table(2, false))));
        for round in 0..2 {
            for number in 0..3 * KNOWN as u32 {
                let [_, _, c, d] = number.to_be_bytes();
                let expected = (c, d) == (0, 2);
                let peer = Endpoint::v4([10, 0, c, d], 5);
                assert_eq!(mac_of(hops.to(&peer)).is_some(), expected, "{round}: {peer:?}");
            }
        }
    }
}
