//! What the network says about a path, true or forged, and what one player's path does to the
//! others: in two network namespaces, with both drivers.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ringgate_batch::{LocalIp, SocketId, TxTarget};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{Choice, Driver, SocketDriver, SocketKind, Wait};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::control_rig::wait_for;
use crate::gateway_rig::on_both_drivers;
use crate::io_rig::{Rig, Seen, answer};
use crate::netns::{self, Pair, Serving};

on_both_drivers!(
    forged_news_of_a_smaller_path_change_nothing,
    one_players_path_costs_the_others_no_segments,
    what_may_be_taken_apart_crosses_a_narrow_wire,
);

const PLAYER_PORT: u16 = 7000;
/// A socket as plain listeners have it.
const PLAIN_PORT: u16 = 7001;
const BACKEND: SocketAddr = SocketAddr::new(IpAddr::V4(PLAYER), 9000);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const PLAYER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 1);
const PLAYER_V6: Ipv6Addr = Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 2);

fn forged_news_of_a_smaller_path_change_nothing(io: Choice) {
    play("forged_news_of_a_smaller_path_change_nothing", io, be_forger);
}

fn one_players_path_costs_the_others_no_segments(io: Choice) {
    play("one_players_path_costs_the_others_no_segments", io, be_two_players);
}

fn what_may_be_taken_apart_crosses_a_narrow_wire(io: Choice) {
    play("what_may_be_taken_apart_crosses_a_narrow_wire", io, be_narrow);
}

/// Runs a test's two halves in the two namespaces, or the half that this process is.
fn play(name: &str, io: Choice, player: fn(&str)) {
    match netns::role() {
        Some((role, gateway)) if role == "player" => player(&gateway),
        Some(_) => serve(io),
        None => {
            let Some(pair) = Pair::new() else { return };
            let driver = if io == Choice::Uring { "uring" } else { "mmsg" };
            let test = format!("io_path::{driver}::{name}");
            let gateway = Serving::start(pair.role(&pair.gateway, &test, "gateway"));
            let ran = pair.role(&pair.player, &test, "player").output().expect("runs");
            let said = [ran.stdout, ran.stderr].concat();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
            drop(gateway);
        }
    }
}

/// Answers `player LENGTH…` with datagrams of these lengths, `backend LENGTH…` with such to the
/// backend, `gso` with how many sends had segments.
fn serve(io: Choice) {
    let mut rig = if io == Choice::Uring { Rig::uring().expect("checked") } else { Rig::mmsg() };
    rig.player(&format!("0.0.0.0:{PLAYER_PORT}"));
    rig.player(&format!("[{GATEWAY_V6}]:{PLAYER_PORT}"));
    let plain = UdpOptions { may_fragment: true, ..UdpOptions::default() };
    let plain = socket::player(SocketAddr::from(([0; 4], PLAIN_PORT)), &plain).expect("it is free");
    rig.driver.register(plain.fd, SocketKind::Datagram).expect("registers");
    let toward = TxTarget { socket: link(&mut rig), peer: None, source: LocalIp::UNSPECIFIED };
    netns::say_that_it_serves();
    loop {
        let mut seen = Seen::default();
        rig.turn_once(Wait::AtMost(Duration::from_millis(20)), &mut seen);
        for (meta, bytes) in seen.datagrams {
            let text = String::from_utf8(bytes).expect("our own words");
            let (word, lengths) = text.split_once(' ').unwrap_or((&text, ""));
            match word {
                "player" => queue_all(&mut rig, answer(&meta), lengths),
                "backend" => queue_all(&mut rig, toward, lengths),
                _ => {
                    let sends = rig.driver.stats().tx_gso_sends.to_string();
                    rig.queue(answer(&meta), sends.as_bytes());
                }
            }
            let _ = rig.flush();
        }
    }
}

/// A socket with one peer, as udp backends on other hosts have it.
fn link(rig: &mut Rig) -> SocketId {
    let opened = socket::connected(BACKEND, &UdpOptions::default()).expect("a route");
    rig.driver.register(opened.fd, SocketKind::ConnectedDatagram).expect("registers")
}

fn queue_all(rig: &mut Rig, target: TxTarget, lengths: &str) {
    for length in lengths.split(' ') {
        let length = length.parse().expect("a length");
        rig.queue(target, &vec![7; length]);
    }
}

/// A player who forges news of its path, as anybody could.
fn be_forger(gateway: &str) {
    let player =
        ask_socket(SocketAddr::from((PLAYER, 0)), SocketAddr::from((GATEWAY, PLAYER_PORT)));
    let backend = UdpSocket::bind(BACKEND).expect("our namespace");
    backend.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let sniffer = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).expect("root");
    sniffer.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(ask(&player, "player 1200"), [1200]);
    player.send(b"backend 1200").expect("sent");
    let link_port = hear(&backend, 1200).port();

    let own_port = player.local_addr().expect("bound").port();
    forge_v4((PLAYER_PORT, own_port));
    forge_v4((LINK_STRANGER, 9));
    forge_v4((link_port, BACKEND.port()));
    wait_for_mtu(gateway, &format!("route get {PLAYER}"), 552);
    while sniffed(&sniffer).is_some_and(|packet| packet.len() < 1228) {}
    assert_eq!(ask(&player, "player 1200"), [1200]);
    assert_eq!(ask(&player, "player 1200 1200 1200 900"), [1200, 1200, 1200, 900]);
    for _ in 0..3 {
        player.send(b"backend 1200").expect("sent");
        hear(&backend, 1200);
    }
    let packet = sniffed(&sniffer).expect("raw sockets see what comes");
    assert_eq!(packet[6] & 0x40, 0x40, "don't fragment is set");

    let server = SocketAddr::from((GATEWAY_V6, PLAYER_PORT));
    let player = ask_socket(SocketAddr::from((PLAYER_V6, 0)), server);
    assert_eq!(ask(&player, "player 1400"), [1400]);
    forge_v6((PLAYER_PORT, player.local_addr().expect("bound").port()));
    wait_for_mtu(gateway, &format!("-6 route get {PLAYER_V6}"), 1280);
    assert_eq!(ask(&player, "player 1400"), [1400]);
    assert_eq!(ask(&player, "player 1400 1400 1300"), [1400, 1400, 1300]);
    let counted = netns::said(gateway, "cat /proc/net/snmp6");
    let fragments = counted.lines().find_map(|line| line.strip_prefix("Ip6FragCreates"));
    assert_eq!(fragments.map(str::trim), Some("0"), "and left in one piece");
}

/// Two players, one of them behind a wire that takes no long packets.
fn be_two_players(_gateway: &str) {
    let server = |host| SocketAddr::from((host, PLAYER_PORT));
    let narrow =
        ask_socket(SocketAddr::from(([10, 98, 1, 2], 0)), server(Ipv4Addr::new(10, 98, 1, 1)));
    let wide = ask_socket(SocketAddr::from((PLAYER, 0)), server(GATEWAY));
    let gso_sends = || -> u64 {
        wide.send(b"gso").expect("sent");
        let mut buffer = [0; 20];
        let len = wide.recv(&mut buffer).expect("an answer");
        String::from_utf8_lossy(&buffer[..len]).parse().expect("a number")
    };
    assert_eq!(ask(&wide, "player 1200 1200"), [1200, 1200]);
    assert_eq!(gso_sends(), 1);
    narrow.send(b"player 700 700 100").expect("sent");
    let mut buffer = [0; 2048];
    assert_eq!(narrow.recv(&mut buffer).expect("what fits comes"), 100);
    assert_eq!(ask(&wide, "player 1200 1200"), [1200, 1200]);
    assert_eq!(gso_sends(), 2, "as before");
}

/// A player behind a wire that takes no long packets, whose game sends long ones nevertheless.
fn be_narrow(_gateway: &str) {
    let server = SocketAddr::from(([10, 98, 1, 1], PLAIN_PORT));
    let player = ask_socket(SocketAddr::from(([10, 98, 1, 2], 0)), server);
    assert_eq!(ask(&player, "player 1472"), [1472]);
    assert_eq!(ask(&player, "player 1472 1472 700 100"), [1472, 1472, 700, 100]);
}

fn ask_socket(own: SocketAddr, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(own).expect("our namespace");
    socket.connect(server).expect("a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Has the gateway send, and returns the lengths of as many datagrams as were asked for.
fn ask(socket: &UdpSocket, words: &str) -> Vec<usize> {
    socket.send(words.as_bytes()).expect("sent");
    let count = words.split(' ').count() - 1;
    let mut buffer = [0; 2048];
    (0..count).map_while(|_| socket.recv(&mut buffer).ok()).collect()
}

fn hear(socket: &UdpSocket, wanted: usize) -> SocketAddr {
    let mut buffer = [0; 2048];
    let (len, from) = socket.recv_from(&mut buffer).expect("a datagram");
    assert_eq!(len, wanted);
    from
}

/// The next IPv4 packet that has come in.
fn sniffed(socket: &Socket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let mut reader: &Socket = socket;
    let len = reader.read(&mut buffer).ok()?;
    buffer.truncate(len);
    Some(buffer)
}

/// "Fragmentation needed, and don't fragment set: the next link takes 552 bytes."
fn forge_v4((gateway_port, player_port): (u16, u16)) {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(552_u16.to_be_bytes());
    message.extend([0x45, 0, 4, 0xcc, 0, 1, 0x40, 0, 64, 17, 0, 0]);
    message.extend(GATEWAY.octets());
    message.extend(PLAYER.octets());
    message.extend(udp_header(gateway_port, player_port));
    let sum = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    message[2..4].copy_from_slice(&folded(sum).to_be_bytes());
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("root");
    socket.send_to(&message, &SockAddr::from(SocketAddr::from((GATEWAY, 0)))).expect("sent");
}

/// "Packet too big: the next link takes 1280 bytes", less than which IPv6 does not know. The kernel
/// sums it.
fn forge_v6((gateway_port, player_port): (u16, u16)) {
    let mut message = vec![2, 0, 0, 0];
    message.extend(1280_u32.to_be_bytes());
    message.extend([0x60, 0, 0, 0, 4, 0xcc, 17, 64]);
    message.extend(GATEWAY_V6.octets());
    message.extend(PLAYER_V6.octets());
    message.extend(udp_header(gateway_port, player_port));
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).expect("root");
    socket.send_to(&message, &SockAddr::from(SocketAddr::from((GATEWAY_V6, 0)))).expect("sent");
}

fn udp_header(source: u16, destination: u16) -> Vec<u8> {
    [source, destination, 1208, 0].iter().flat_map(|half| half.to_be_bytes()).collect()
}

/// The checksum of RFC 1071.
fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Until the gateway's kernel has believed what it was told, so that the test tests something.
fn wait_for_mtu(gateway: &str, question: &str, mtu: u32) {
    wait_for("the kernel to believe it", || {
        let answer = netns::said(gateway, &format!("ip {question}"));
        answer.contains(&format!("mtu {mtu}")).then_some(())
    });
}

/// No socket of the gateway has this port.
const LINK_STRANGER: u16 = 4444;

const PATIENCE: Duration = Duration::from_secs(30);
