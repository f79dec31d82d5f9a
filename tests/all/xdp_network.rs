//! What a network does to a gateway that serves in frames: odd packets, narrow wires, VLANs,
//! neighbours and routes that change, cables that are pulled, a program that somebody takes off.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp};
use ringgate_xdp::frame::{self, Leaving, Leg};
use ringgate_xdp::netlink::Asking;
use ringgate_xdp::program;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::control_rig::wait_for;
use crate::netns;
use crate::oncall::row;
use crate::xdp_rig::{
    Frames, GATEWAY, GATEWAY_V6, GATEWAYS_MAC, Host, NETCODE_PORT, PLAIN_PORT, PLAYERS_MAC,
};
use crate::xdp_wire::{RawWire, frame_of};

#[test]
fn fragments_options_and_extension_headers_reach_the_socket() {
    let name = "xdp_network::fragments_options_and_extension_headers_reach_the_socket";
    match netns::role() {
        Some((role, _)) if role == "fragments" => return be_fragmented(),
        Some((role, _)) if role == "options" => return be_optional(),
        Some(_) => return be_damaged(),
        None => {}
    }
    let Some(host) = Host::start() else { return };
    // Both ends of the wire: a datagram of 1253 bytes is one too long for it over IPv4.
    for namespace in [&host.pair.gateway, &host.pair.player] {
        Host::set(namespace, "link set wire0 mtu 1280");
    }
    let before = host.warm_up();
    play(&host, name, "fragments");
    let after = host
        .wait_for_frames("what fits to come in frames", |now| now.received >= before.received + 8);
    // Of ten that fit and four that do not, in either family.
    assert!(after.received - before.received < 28, "{before:?} {after:?}");

    host.warm_up();
    let before = host.frames();
    play(&host, name, "options");
    let after = host.frames();
    assert_eq!(after.received, before.received, "they came by the socket");

    play(&host, name, "damaged");
    host.wait_for_frames("the wrong checksums", |now| {
        now.wrong_checksums == 2 && now.taken == now.received + now.dropped
    });
}

/// Runs this test's player in the player's namespace, in a role.
fn play(host: &Host, test: &str, role: &str) {
    let ran = host.pair.role(&host.pair.player, test, role).output().expect("runs");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{role}: {}", String::from_utf8_lossy(&said));
}

/// Datagrams around the length that the wire takes: all are echoed.
fn be_fragmented() {
    for (ip, longest) in [("10.98.0.1", 1252), ("fd98::1", 1232)] {
        let player = Player::new(ip);
        for length in [1, 17, 18, 100, longest - 1, longest, longest + 1, longest + 2] {
            player.echo(length);
        }
    }
}

/// The same question with four bytes of IPv4 options, and with an IPv6 header for the destination.
fn be_optional() {
    let player = Player::silent("10.98.0.1");
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
    let raw = raw.expect("root");
    let question = b"with options";
    let udp = player.udp(question);
    // The kernel fills in lengths and the header's checksum.
    let mut packet = vec![0x46, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 98, 0, 2, 10, 98, 0, 1]);
    packet.extend([1, 1, 1, 0]);
    packet.extend(udp);
    player.hear_after(question, || {
        let to = SockAddr::from(SocketAddr::from(([10, 98, 0, 1], 0)));
        raw.send_to(&packet, &to).expect("sent");
    });

    let player = Player::silent("fd98::1");
    let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
    let raw = raw.expect("root");
    let udp = player.udp(question);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((8 + udp.len()) as u16).to_be_bytes());
    packet.extend([60, 64]);
    packet.extend(player.addresses());
    // A header of eight bytes that says nothing, before UDP.
    packet.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend(udp);
    player.hear_after(question, || {
        let to = SocketAddr::new("fd98::1".parse().expect("an address"), 0);
        raw.send_to(&packet, &SockAddr::from(to)).expect("sent");
    });
}

/// One datagram of each family whose checksum is wrong. Nobody answers.
fn be_damaged() {
    for ip in ["10.98.0.1", "fd98::1"] {
        let player = Player::new(ip);
        let domain = if player.is_v4() { Domain::IPV4 } else { Domain::IPV6 };
        let raw = Socket::new(domain, Type::RAW, Some(Protocol::UDP)).expect("root");
        let mut udp = player.udp(b"damaged");
        udp[6] ^= 0x55;
        let to = SocketAddr::new(ip.parse().expect("an address"), 0);
        raw.send_to(&udp, &SockAddr::from(to)).expect("sent");
    }
}

/// A player of the plain listener with a socket.
struct Player {
    socket: UdpSocket,
}

impl Player {
    /// One that was answered.
    fn new(ip: &str) -> Self {
        let player = Self::silent(ip);
        player.echo(10);
        player
    }

    fn silent(ip: &str) -> Self {
        let ip: IpAddr = ip.parse().expect("an address");
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).expect("our namespace");
        socket.connect((ip, PLAIN_PORT)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        Self { socket }
    }

    fn is_v4(&self) -> bool {
        self.socket.peer_addr().expect("connected").is_ipv4()
    }

    /// Sends a datagram until it comes back: the first is lost where a neighbour is not known yet.
    fn echo(&self, length: usize) {
        let datagram: Vec<_> = (0..length).map(|at| (at * 31 + length) as u8).collect();
        self.hear_after(&datagram, || {
            let _ = self.socket.send(&datagram);
        });
    }

    fn hear_after(&self, wanted: &[u8], mut send: impl FnMut()) {
        wait_for(&format!("{} bytes to come back", wanted.len()), || {
            send();
            let mut buffer = [0; 2048];
            while let Ok(len) = self.socket.recv(&mut buffer) {
                if buffer[..len] == *wanted {
                    return Some(());
                }
            }
            None
        });
    }

    /// Source and destination, as they stand in a header.
    fn addresses(&self) -> Vec<u8> {
        let ends = [self.socket.local_addr(), self.socket.peer_addr()];
        ends.into_iter().flat_map(|end| bytes_of(end.expect("connected").ip())).collect()
    }

    /// A datagram with its header and its checksum.
    fn udp(&self, payload: &[u8]) -> Vec<u8> {
        let (local, peer) = (self.socket.local_addr(), self.socket.peer_addr());
        let len = (8 + payload.len()) as u16;
        let mut udp = Vec::new();
        for port in [local.expect("bound").port(), peer.expect("connected").port(), len, 0] {
            udp.extend(port.to_be_bytes());
        }
        udp.extend(payload);
        let pseudo = [&self.addresses()[..], &len.to_be_bytes(), &[0, 17]].concat();
        let sum = !folded(&[&pseudo[..], &udp].concat());
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        udp
    }
}

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// RFC 1071.
fn folded(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|it| u32::from(it[0]) << 8 | it.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn players_in_a_vlan_are_served_in_frames() {
    let Some(host) = Host::start() else { return };
    let (gateway, player) = (host.pair.gateway.clone(), host.pair.player.clone());
    if !Host::may_set(&gateway, "link add link wire0 name wire0.7 type vlan id 7") {
        eprintln!("SKIPPED: this kernel has no VLANs");
        return;
    }
    Host::set(&gateway, "link del wire0.7");
    for (name, last) in [(&gateway, 1), (&player, 2)] {
        Host::set(name, "link add link wire0 name wire0.7 type vlan id 7");
        Host::set(name, &format!("addr add 10.98.7.{last}/24 dev wire0.7"));
        Host::set(name, "link set wire0.7 up");
    }
    wait_for("the program to know the address", || {
        (host.shown()["addresses"].as_u64()? > 6).then_some(())
    });
    // With the tag beside the frame, as an interface with offload has it, the kernel serves them.
    host.plays_plain("10.98.7.1");
    let before = host.frames();
    let done = std::process::Command::new("ip")
        .args(["netns", "exec", &player, "ethtool", "-K", "wire0", "tx-vlan-hw-insert", "off"])
        .output();
    if !done.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: no `ethtool` that could put tags into frames");
        return;
    }
    // Answers leave in frames with the tag once the neighbour there is known.
    wait_for("frames both ways", || {
        host.plays_plain("10.98.7.1");
        let now = host.frames();
        (now.received > before.received && now.sent > before.sent).then_some(())
    });
}

/// A network behind two routers of which one is nobody: the kernel would send half of all players'
/// answers there, by their addresses. Frames that come say by which of them players are reached.
#[test]
fn of_two_routers_the_one_that_players_come_by_gets_the_answers() {
    let Some(host) = Host::start() else { return };
    let (gateway, player) = (host.pair.gateway.clone(), host.pair.player.clone());
    host.warm_up();
    Host::set(&gateway, "neigh replace 10.98.0.3 lladdr 02:00:00:00:00:33 dev wire0 nud permanent");
    let ways = "nexthop via 10.98.0.2 dev wire0 nexthop via 10.98.0.3 dev wire0";
    Host::set(&gateway, &format!("route add 10.99.0.0/24 {ways}"));
    for last in 1..=8 {
        Host::set(&player, &format!("addr add 10.99.0.{last}/32 dev lo"));
        Host::set(&player, &format!("route replace 10.98.0.1/32 dev wire0 src 10.99.0.{last}"));
        let before = host.frames();
        wait_for("answers in frames by the right router", || {
            let _ = host.probe_for("200ms", &["--plain", "--server", "10.98.0.1:7001"]);
            (host.frames().sent > before.sent).then_some(())
        });
        host.plays_plain(GATEWAY);
    }
}

/// Frames of every length that a wire takes: right ones, cut ones, and ones with a byte or two
/// changed. Each is a datagram, the kernel's business or dropped by name, and players play on.
#[test]
fn hostile_frames_of_every_length_are_accounted_for() {
    let name = "xdp_network::hostile_frames_of_every_length_are_accounted_for";
    if netns::role().is_some() {
        return be_hostile();
    }
    let Some(host) = Host::start() else { return };
    let before = host.warm_up();
    play(&host, name, "hostile");
    let now = host.wait_for_frames("every frame to be accounted for", |now| {
        now.taken > before.taken + 2000 && now.taken == now.received + now.dropped
    });
    assert!(now.dropped > before.dropped && now.wrong_checksums > 0, "{now:?}");
    let page = host.daemon.ask("/metrics");
    assert_eq!(page.value("ringgate_conserved{worker=\"0\"}"), Some(1));
    host.plays_plain(GATEWAY);
    host.plays_netcode(GATEWAY_V6);
}

/// Three frames of each length, to each of two listeners over each family in turn.
fn be_hostile() {
    let mut wire = RawWire::open();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |below: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice as usize % below
    };
    let ends = [("10.98.0.2", "10.98.0.1"), ("fd98::2", "fd98::1")];
    for length in 15..=1514 {
        let (own, gateway) = ends[length % 2];
        let port = [PLAIN_PORT, NETCODE_PORT][length / 2 % 2];
        let at = |ip: &str| Endpoint::from(SocketAddr::new(ip.parse().expect("an address"), port));
        let leaving = Leaving {
            leg: Leg { to: GATEWAYS_MAC, from: PLAYERS_MAC, vlan: 0 },
            local: LocalIp::v6(*at(own).ip_bytes(), 0),
            port: 5000,
            peer: at(gateway),
            fragments: None,
            sum_is_left: false,
        };
        let headers = 14 + frame::inner_headers(length % 2 == 0);
        let right = frame_of(&leaving, &vec![7; length.saturating_sub(headers)]);
        let cut = frame_of(&leaving, &[7; 1400]);
        let mut changed = right.clone();
        for _ in 0..=roll(2) {
            // Behind the MACs, mostly in the headers.
            let within = if roll(4) == 0 { changed.len() - 12 } else { 60 };
            let from = 12 + roll(within);
            let at = from.min(changed.len() - 1);
            changed[at] = roll(256) as u8;
        }
        for frame in [&right[..], &cut[..length.min(cut.len())], &changed] {
            wire.send(frame);
        }
    }
}

#[test]
fn neighbours_routes_and_cables_that_change_lose_nobody() {
    let Some(host) = Host::start() else { return };
    let (gateway, player) = (host.pair.gateway.clone(), host.pair.player.clone());
    host.warm_up();

    // Another card at the player's end.
    Host::set(&player, "link set wire0 address 02:00:00:00:00:21");
    host.warm_up();

    // A player behind two ways to it: by our interface, and by the other wire.
    Host::set(&player, "addr add 10.99.0.2/32 dev lo");
    Host::set(&player, "route replace 10.98.0.1/32 dev wire0 src 10.99.0.2");
    Host::set(&gateway, "route add 10.99.0.2/32 via 10.98.0.2 dev wire0");
    let grows = |what: &str, of: fn(&Frames) -> u64| {
        let before = host.frames();
        wait_for(what, || {
            host.plays_plain(GATEWAY);
            (of(&host.frames()) > of(&before) + 3).then_some(())
        });
    };
    grows("answers in frames by a router", |frames| frames.sent);
    Host::set(&gateway, "route replace 10.99.0.2/32 via 10.98.1.2 dev wire1");
    for namespace in [&gateway, &player] {
        for name in ["all", "wire0", "wire1"] {
            // The question comes by one wire and the answer by the other.
            let set = format!("sysctl -q -w net.ipv4.conf.{name}.rp_filter=0");
            let _ = netns::said(namespace, &set);
        }
    }
    grows("answers by the other wire", |frames| frames.by_socket);
    Host::set(&gateway, "route replace 10.99.0.2/32 via 10.98.0.2 dev wire0");
    grows("answers in frames again", |frames| frames.sent);
    Host::set(&player, "route del 10.98.0.1/32 dev wire0");

    // A cable that is pulled and put back.
    Host::set(&gateway, "link set wire0 down");
    let _ = host.probe_for("100ms", &["--plain", "--server", "10.98.0.1:7001"]);
    Host::set(&gateway, "link set wire0 up");
    host.warm_up();
    // An IPv6 address goes with its interface.
    Host::set(&gateway, "addr replace fd98::1/64 dev wire0 nodad");
    host.plays_plain(GATEWAY_V6);
    let frames = host.wait_for_frames("every frame to be accounted for", |frames| {
        frames.taken == frames.received + frames.dropped
    });
    assert_eq!(frames.dropped, 0, "{frames:?}");
}

#[test]
fn a_program_that_somebody_takes_off_leaves_players_at_the_sockets() {
    let name = "xdp_network::a_program_that_somebody_takes_off_leaves_players_at_the_sockets";
    if netns::role().is_some() {
        let link = Asking::open().and_then(|mut it| it.link("wire0")).expect("there is a wire");
        return program::take_off(link.program.expect("it is there")).expect("root may");
    }
    let Some(host) = Host::start() else { return };
    host.warm_up();
    let ran = host.pair.role(&host.pair.gateway, name, "somebody").output().expect("runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    wait_for("the page to say so", || (host.shown()["attached"] == false).then_some(()));
    row("xdp-gone").asked_at(&host.daemon, &[]);
    let before = host.frames();
    host.plays_plain(GATEWAY);
    host.plays_netcode(GATEWAY_V6);
    assert_eq!(host.frames().received, before.received, "they come by the sockets");
    assert!(host.daemon.log().contains("xdp_program_gone"), "{}", host.daemon.log());
}
