//! What a table says of addresses.

use super::*;
use crate::netlink::{Link, Rule};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const ROUTER: Mac = [2, 0, 0, 0, 0, 2];
const PLAYER: Mac = [2, 0, 0, 0, 0, 3];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn route(to: &str, bits: u8, way: Way) -> Route {
    Route { table: MAIN, to: ip(to), bits, priority: 0, way }
}

fn out(interface: u32, router: Option<&str>) -> Way {
    Way::Out(Out { interface, router: router.map(ip) })
}

fn neighbour(interface: u32, at: &str, mac: Mac) -> Neighbour {
    Neighbour { interface, ip: ip(at), mac: Some(mac), is_stale: false }
}

fn link(index: u32) -> Link {
    Link { index, mac: Some(OURS), mtu: 1500, is_up: true, ..Link::default() }
}

/// A host with one interface (7), a VLAN (8) in it, and another interface (9).
fn host() -> Snapshot {
    let own = Route { table: LOCAL, ..route("192.0.2.1", 32, Way::Ours) };
    Snapshot {
        links: vec![link(7), Link { vlan: Some((7, 12)), ..link(8) }, link(9)],
        addresses: Vec::new(),
        routes: vec![
            own,
            route("0.0.0.0", 0, out(7, Some("192.0.2.254"))),
            route("192.0.2.0", 24, out(7, None)),
            route("10.0.0.0", 8, out(8, None)),
            route("10.9.0.0", 16, out(9, None)),
            route("2001:db8::", 32, out(7, None)),
        ],
        neighbours: vec![
            neighbour(7, "192.0.2.254", ROUTER),
            neighbour(7, "192.0.2.3", PLAYER),
            neighbour(8, "10.1.1.1", PLAYER),
            neighbour(9, "10.9.1.1", PLAYER),
            neighbour(7, "2001:db8::3", PLAYER),
        ],
        rules: [LOCAL, MAIN, DEFAULT].map(|table| Rule { table, is_special: false }).into(),
    }
}

fn hop(snapshot: &Snapshot, to: &str) -> Hop {
    Table::of(snapshot, 7).hop(ip(to))
}

fn via(to: Mac, vlan: u16) -> Hop {
    Hop::Out { leg: Leg { to, from: OURS, vlan }, mtu: 1500, is_stale: false }
}

#[test]
fn the_longest_prefix_counts() {
    let host = host();
    assert_eq!(hop(&host, "192.0.2.3"), via(PLAYER, 0));
    assert_eq!(hop(&host, "198.51.100.1"), via(ROUTER, 0));
    assert_eq!(hop(&host, "10.1.1.1"), via(PLAYER, 12));
    assert_eq!(hop(&host, "2001:db8::3"), via(PLAYER, 0));
    assert_eq!(hop(&host, "192.0.2.1"), Hop::Ours);
}

#[test]
fn what_is_not_known_is_the_kernels() {
    let mut host = host();
    assert_eq!(hop(&host, "192.0.2.4"), Hop::Kernel, "nobody has asked for it");
    assert_eq!(hop(&host, "10.9.1.1"), Hop::Kernel, "out of another interface");
    assert_eq!(hop(&host, "2001:db9::1"), Hop::Kernel, "no route");
    host.neighbours[0].mac = None;
    assert_eq!(hop(&host, "198.51.100.1"), Hop::Kernel, "a router that does not answer");
    host.routes[1].way = Way::Other;
    assert_eq!(hop(&host, "198.51.100.1"), Hop::Kernel, "in a tunnel");
}

#[test]
fn of_several_next_hosts_the_one_that_frames_come_from_is_taken() {
    let mut host = host();
    let routers = ["192.0.2.254", "192.0.2.3", "192.0.2.4"];
    let of = |router: &&str| Out { interface: 7, router: Some(ip(router)) };
    let elsewhere = Out { interface: 9, router: Some(ip("10.9.1.1")) };
    let several = routers.iter().map(of).chain([elsewhere]).collect();
    host.routes[1].way = Way::Several(several);
    host.neighbours.push(neighbour(7, "192.0.2.9", [2; 6]));
    assert_eq!(hop(&host, "198.51.100.1"), Hop::Several);
    let back = |mac, vlan| Table::of(&host, 7).hop_back(ip("198.51.100.1"), (mac, vlan));
    assert_eq!(back(ROUTER, 0), Some(via(ROUTER, 0)));
    assert_eq!(back(PLAYER, 0), Some(via(PLAYER, 0)));
    assert_eq!(back(ROUTER, 12), None, "in another VLAN");
    assert_eq!(back([2; 6], 0), None, "a neighbour that the route does not name");
    assert_eq!(back([3; 6], 0), None, "a stranger");
    // Where the route leaves no choice, nothing that comes changes anything.
    let table = Table::of(&host, 7);
    assert_eq!(table.hop_back(ip("192.0.2.3"), (ROUTER, 0)), None);
    assert_eq!(table.hop(ip("192.0.2.3")), via(PLAYER, 0));
}

#[test]
fn a_cable_that_is_pulled_leaves_nothing() {
    let mut host = host();
    host.links[0].is_up = false;
    assert_eq!(hop(&host, "192.0.2.3"), Hop::Kernel);
    assert_eq!(hop(&host, "10.1.1.1"), Hop::Kernel, "the VLAN is in it");
}

#[test]
fn of_two_routes_the_one_of_lower_priority_is_taken() {
    let mut host = host();
    let better = Route { priority: 5, ..route("203.0.113.0", 24, out(7, Some("192.0.2.3"))) };
    let worse = Route { priority: 9, ..route("203.0.113.0", 24, out(7, Some("192.0.2.254"))) };
    for order in [[better.clone(), worse.clone()], [worse, better]] {
        host.routes.truncate(6);
        host.routes.extend(order);
        assert_eq!(hop(&host, "203.0.113.1"), via(PLAYER, 0));
    }
}

#[test]
fn rules_of_other_kinds_leave_everything_to_the_kernel() {
    for rule in [Rule { table: MAIN, is_special: true }, Rule { table: 100, is_special: false }] {
        let mut host = host();
        host.rules.push(rule);
        assert_eq!(hop(&host, "192.0.2.3"), Hop::Kernel);
        assert_eq!(hop(&host, "192.0.2.1"), Hop::Ours);
        assert!(Table::of(&host, 7).is_beyond_us);
    }
}

#[test]
fn a_stale_neighbour_is_used_and_told_apart() {
    let mut host = host();
    host.neighbours[1].is_stale = true;
    let Hop::Out { leg, is_stale, .. } = hop(&host, "192.0.2.3") else { panic!("it is known") };
    assert_eq!((leg.to, is_stale), (PLAYER, true));
}

#[test]
fn every_length_of_prefix_is_masked_right() {
    assert_eq!(masked(u128::MAX, 0), 0);
    assert_eq!(masked(u128::MAX, 1), 1 << 127);
    assert_eq!(masked(u128::MAX, 32), 0xffff_ffff << 96);
    assert_eq!(masked(u128::MAX, 128), u128::MAX);
}
