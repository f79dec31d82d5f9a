//! UDP through both drivers, over loopback.

use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, TxTarget};
use ringgate_core::limits::RX_DATAGRAM_BYTES;
use ringgate_io::filter::{Filter, Rule};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{Driver, DriverOptions, SocketDriver, SocketKind, Wait};
use ringgate_os::clock;

use crate::io_rig::{Rig, Seen, answer, hear, on_both_drivers, outsider, to};
use crate::own::{own_address, take_again};

on_both_drivers!(
    a_bad_entry_fails_alone,
    a_burst_larger_than_the_slots_arrives_whole,
    a_dead_server_is_reported,
    a_dead_server_on_a_connected_socket_is_reported,
    a_full_socket_counts_what_it_drops,
    a_filter_refuses_before_the_queue_and_is_counted,
    a_long_datagram_is_cut_and_flagged,
    a_wildcard_socket_answers_from_the_address_that_was_asked,
    an_empty_datagram_does_not_stop_the_others,
    datagrams_are_echoed_over_ipv4,
    datagrams_are_echoed_over_ipv6,
    a_dual_stack_socket_serves_both_families,
    kernel_times_are_near_our_own,
    many_players_can_live_behind_one_socket,
    segments_arrive_as_datagrams_in_order,
    several_sockets_are_served_in_one_turn,
    the_bell_wakes_and_is_never_lost,
    nothing_but_the_bell_ends_a_wait_for_more,
    a_wait_for_more_brings_all_that_came_meanwhile,
    sockets_can_go_while_the_driver_sleeps_on_them,
);

fn echo(rig: &mut Rig, address: &str) {
    let (_, server) = rig.player(address);
    let client = outsider(address);
    for len in [1, 100, 1200] {
        client.send_to(&vec![len as u8; len], server).expect("sent");
        let (meta, bytes) = rig.receive(1).remove(0);
        assert_eq!(meta.peer, Endpoint::from(client.local_addr().expect("bound")));
        assert!(meta.local.is_unspecified() && !meta.truncated);
        rig.queue(answer(&meta), &bytes);
        assert_eq!(rig.flush(), []);
        assert_eq!(hear(&client), (vec![len as u8; len], server));
    }
    let stats = rig.driver.stats();
    assert_eq!((stats.rx_datagrams, stats.tx_datagrams), (3, 3));
    assert_eq!((stats.rx_bytes, stats.tx_bytes), (1301, 1301));
}

fn datagrams_are_echoed_over_ipv4(rig: &mut Rig) {
    echo(rig, "127.0.0.1:0");
}

fn datagrams_are_echoed_over_ipv6(rig: &mut Rig) {
    echo(rig, "[::1]:0");
}

fn a_dual_stack_socket_serves_both_families(rig: &mut Rig) {
    let options = UdpOptions { v6_only: false, ..UdpOptions::default() };
    let socket = socket::player("[::]:0".parse().expect("literal"), &options).expect("bound");
    let port = socket.local.port();
    rig.driver.register(socket.fd, SocketKind::Datagram).expect("registers");
    for ours in ["127.0.0.3", "::1"] {
        let server = SocketAddr::new(ours.parse().expect("literal"), port);
        let client = outsider(if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" });
        client.send_to(b"hello", server).expect("sent");
        let (meta, _) = rig.receive(1).remove(0);
        assert_eq!((meta.local.ip(), meta.peer.is_v4()), (server.ip(), server.is_ipv4()));
        rig.queue(answer(&meta), b"answer");
        assert_eq!(rig.flush(), []);
        assert_eq!(hear(&client), (b"answer".to_vec(), server));
    }
}

fn a_wildcard_socket_answers_from_the_address_that_was_asked(rig: &mut Rig) {
    let (_, v4) = rig.player("0.0.0.0:0");
    let (_, v6) = rig.player("[::]:0");
    for (ours, port, from) in [
        ("127.0.0.2", v4.port(), "127.0.0.1:0"),
        ("127.9.8.7", v4.port(), "127.0.0.1:0"),
        ("::1", v6.port(), "[::1]:0"),
    ] {
        let server = SocketAddr::new(ours.parse().expect("literal"), port);
        let client = outsider(from);
        client.send_to(b"who are you", server).expect("sent");
        let (meta, bytes) = rig.receive(1).remove(0);
        assert_eq!(meta.local.ip(), server.ip());
        rig.queue(answer(&meta), &bytes);
        assert_eq!(rig.flush(), []);
        assert_eq!(hear(&client), (b"who are you".to_vec(), server));
    }
}

fn many_players_can_live_behind_one_socket(rig: &mut Rig) {
    let link = socket::udp_link(&UdpOptions::default()).expect("a link to local servers");
    let id = rig.driver.register(link.fd, SocketKind::Datagram).expect("registers");
    let server = outsider("127.0.0.1:0");
    let address = Endpoint::from(server.local_addr().expect("bound"));
    let players: Vec<_> = (1..=100).map(|n| LocalIp::v4([127, 1, n, 7], 0)).collect();
    for (n, source) in (0..).zip(&players) {
        rig.queue(TxTarget { socket: id, peer: Some(address), source: *source }, &[n]);
    }
    assert_eq!(rig.flush(), []);
    for _ in &players {
        let (bytes, from) = hear(&server);
        assert_eq!(from.ip(), players[usize::from(bytes[0])].ip());
        server.send_to(&bytes, from).expect("sent");
    }
    for (meta, bytes) in rig.receive(players.len()) {
        assert_eq!(meta.local, players[usize::from(bytes[0])]);
        assert_eq!(meta.peer, address);
    }
}

fn kernel_times_are_near_our_own(rig: &mut Rig) {
    let (_, server) = rig.player("127.0.0.1:0");
    let before = clock::unix_ns();
    outsider("127.0.0.1:0").send_to(b"now", server).expect("sent");
    let (meta, _) = rig.receive(1).remove(0);
    assert!(before <= meta.kernel_ns && meta.kernel_ns <= clock::unix_ns(), "{meta:?}");
}

fn a_long_datagram_is_cut_and_flagged(rig: &mut Rig) {
    let (_, server) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    for len in [RX_DATAGRAM_BYTES, RX_DATAGRAM_BYTES + 1, 9000] {
        client.send_to(&vec![7; len], server).expect("sent");
    }
    let seen = rig.receive(3);
    let cut: Vec<_> = seen.iter().map(|(meta, bytes)| (meta.truncated, bytes.len())).collect();
    assert_eq!(
        cut,
        [(false, RX_DATAGRAM_BYTES), (true, RX_DATAGRAM_BYTES), (true, RX_DATAGRAM_BYTES)]
    );
    assert!(seen.iter().all(|(_, bytes)| bytes.iter().all(|b| *b == 7)));
}

fn an_empty_datagram_does_not_stop_the_others(rig: &mut Rig) {
    let (_, server) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    for bytes in [&b"1"[..], b"", b"", b"2"] {
        client.send_to(bytes, server).expect("sent");
    }
    let lens: Vec<_> = rig.receive(4).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [1, 0, 0, 1]);
}

fn a_burst_larger_than_the_slots_arrives_whole(rig: &mut Rig) {
    // Some three times the slots, and no more than the receive buffer of an unprivileged process
    // holds.
    const BURST: u32 = 200;
    assert!(BURST > 2 * u32::from(DriverOptions::default().small_slots));
    let (_, server) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    // The first burst meets a socket that has just been registered, the others one that is armed.
    for round in 0..5_u32 {
        let expected: Vec<_> = (round * BURST..(round + 1) * BURST).collect();
        for number in &expected {
            client.send_to(&number.to_le_bytes(), server).expect("sent");
        }
        let numbers: Vec<_> = rig
            .receive(BURST as usize)
            .iter()
            .map(|(_, bytes)| u32::from_le_bytes(bytes[..].try_into().expect("four bytes")))
            .collect();
        assert_eq!(numbers, expected);
        rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut Seen::default());
    }
    let stats = rig.driver.stats();
    assert_eq!((stats.kernel_drops, stats.cq_overflows), (0, 0));
    assert!(stats.rx_no_buffers > 0, "the slots did run out");
}

/// Over IPv6 and with a wildcard address: the socket then tells all that it ever tells beside a
/// datagram.
fn a_full_socket_counts_what_it_drops(rig: &mut Rig) {
    let options = UdpOptions { receive_buffer_bytes: 4096, ..UdpOptions::default() };
    let socket = socket::player("[::]:0".parse().expect("literal"), &options).expect("bound");
    let server = SocketAddr::new("::1".parse().expect("literal"), socket.local.port());
    let id = rig.driver.register(socket.fd, SocketKind::Datagram).expect("registers");
    let client = outsider("[::1]:0");
    for _ in 0..500 {
        client.send_to(&[1; 1000], server).expect("sent");
    }
    rig.settle();
    client.send_to(b"tells", server).expect("sent");
    let seen = rig.turn_until(|seen| seen.datagrams.iter().any(|(_, bytes)| bytes == b"tells"));
    let meta = seen.datagrams[seen.datagrams.len() - 1].0;
    assert!(meta.local.ip() == server.ip() && meta.kernel_ns > 0, "{meta:?}");
    let stats = rig.driver.stats();
    assert!(stats.kernel_drops > 0);
    assert_eq!(stats.rx_datagrams + stats.kernel_drops, 501);
    let fd = rig.driver.fd(id).expect("registered");
    assert_eq!(u64::from(socket::socket_drops(fd).expect("the kernel tells")), stats.kernel_drops);
}

fn a_filter_refuses_before_the_queue_and_is_counted(rig: &mut Rig) {
    let filter = Filter::new()
        .allow(Rule::new(7..=9, 2..=100))
        .allow(Rule::new(0..=0, 30..=30).with(1, b"HELLO 1.02").with(11, &[5]));
    let mut greeting = [0; 30];
    greeting[1..12].copy_from_slice(b"HELLO 1.02\x05");
    let mut foreign = greeting;
    foreign[11] = 6;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let before = rig.driver.stats();
        let options = UdpOptions { filter: Some(&filter), ..UdpOptions::default() };
        let socket = socket::player(address.parse().expect("literal"), &options).expect("bound");
        let server = socket.local;
        let id = rig.driver.register(socket.fd, SocketKind::Datagram).expect("registers");
        let client = outsider(address);
        let junk: [&[u8]; 6] = [&[], &[7], &[7; 101], &[10; 50], &greeting[..29], &foreign];
        for (good, bad) in [&[7; 2][..], &[9; 100], &greeting].iter().zip(junk.chunks(2)) {
            for bytes in bad {
                client.send_to(bytes, server).expect("sent");
            }
            client.send_to(good, server).expect("sent");
        }
        let seen = rig.receive(3);
        assert!(seen.iter().all(|(_, bytes)| filter.accepts(bytes)));
        rig.settle();
        let fd = rig.driver.fd(id).expect("registered");
        assert_eq!(socket::socket_drops(fd).expect("the kernel tells"), junk.len() as u32);
        let after = rig.driver.stats();
        assert_eq!(after.rx_datagrams - before.rx_datagrams, 3);
        assert_eq!(after.kernel_drops - before.kernel_drops, junk.len() as u64);
    }
}

fn several_sockets_are_served_in_one_turn(rig: &mut Rig) {
    let servers: Vec<_> = (0..4).map(|_| rig.player("127.0.0.1:0")).collect();
    let client = outsider("127.0.0.1:0");
    for round in 0..50_u8 {
        for (_, server) in &servers {
            client.send_to(&[round], server).expect("sent");
        }
    }
    let seen = rig.receive(200);
    for (id, _) in servers {
        let rounds: Vec<_> =
            seen.iter().filter(|(meta, _)| meta.socket == id).map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(rounds, (0..50).collect::<Vec<_>>());
    }
}

fn segments_arrive_as_datagrams_in_order(rig: &mut Rig) {
    let (id, _) = rig.player("127.0.0.1:0");
    let (one, two) = (outsider("127.0.0.1:0"), outsider("127.0.0.1:0"));
    let address = |socket: &std::net::UdpSocket| socket.local_addr().expect("bound");
    let mut expected = (Vec::new(), Vec::new());
    for n in 0..150_u8 {
        // Lengths come in runs, with a shorter and a longer one between them.
        let long = vec![n; if n % 50 == 20 { 90 } else { 100 + usize::from(n / 100) }];
        rig.queue(to(id, address(&one)), &long);
        expected.0.push(long);
        if n % 3 == 0 {
            rig.queue(to(id, address(&two)), &[n]);
            expected.1.push(vec![n]);
        }
    }
    assert_eq!(rig.flush(), []);
    for (socket, expected) in [(&one, expected.0), (&two, expected.1)] {
        let heard: Vec<_> = expected.iter().map(|_| hear(socket).0).collect();
        assert_eq!(heard, expected);
    }
    let stats = rig.driver.stats();
    assert_eq!(stats.tx_datagrams, 200);
    assert!(stats.tx_gso_sends > 0, "the loopback device can segment");
}

fn a_bad_entry_fails_alone(rig: &mut Rig) {
    let (id, _) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    let good = to(id, client.local_addr().expect("bound"));
    let no_such_source = TxTarget { source: LocalIp::v4([192, 0, 2, 1], 0), ..good };
    let other_family = to(id, "[::1]:9".parse().expect("literal"));
    let port_zero = to(id, "127.0.0.1:0".parse().expect("literal"));
    let nobody = TxTarget { socket: ringgate_batch::SocketId(77), ..good };
    // The good ones, and the two without a source, leave as segments of one message each.
    let targets =
        [good, no_such_source, good, other_family, port_zero, good, nobody, good, no_such_source];
    for target in targets {
        rig.queue(target, b"x");
    }
    let mut failures = rig.flush();
    failures.sort_by_key(|(index, _)| *index);
    let refused = SendFailure::Refused;
    let gone = SendFailure::Gone;
    assert_eq!(failures, [(1, refused), (3, refused), (4, refused), (6, gone), (8, refused)]);
    for _ in 0..4 {
        assert_eq!(hear(&client).0, b"x");
    }
    let stats = rig.driver.stats();
    assert_eq!((stats.tx_failures, stats.tx_datagrams, stats.tx_gso_sends), (5, 4, 1));
}

/// An address that nobody listens at, and that nobody is likely to get while the test runs.
fn vacant() -> SocketAddr {
    own_address()
}

fn a_dead_server_is_reported(rig: &mut Rig) {
    let link = socket::udp_link(&UdpOptions::default()).expect("a link to local servers");
    let id = rig.driver.register(link.fd, SocketKind::Datagram).expect("registers");
    let (dead, alive) = (vacant(), outsider("127.0.0.1:0"));
    let alive_at = alive.local_addr().expect("bound");
    for n in 0..20 {
        rig.queue(to(id, if n % 2 == 0 { dead } else { alive_at }), &[n]);
    }
    assert_eq!(rig.flush(), [], "an error of one server is not held against the other's datagrams");
    let event = IoEvent::Unreachable { socket: id, peer: Endpoint::from(dead) };
    let seen = rig.turn_until(|seen| seen.events.contains(&event));
    assert!(seen.events.iter().all(|e| *e == event), "{:?}", seen.events);
    for n in 0..10 {
        assert_eq!(hear(&alive).0, [2 * n + 1]);
    }
    // One whose error arrives while the driver is asleep.
    rig.settle();
    rig.queue(to(id, dead), b"again");
    rig.flush();
    rig.turn_until(|seen| seen.events.contains(&event));
}

fn a_dead_server_on_a_connected_socket_is_reported(rig: &mut Rig) {
    let dead = vacant();
    let socket = socket::connected(dead, &UdpOptions::default()).expect("connected");
    let id = rig.driver.register(socket.fd, SocketKind::ConnectedDatagram).expect("registers");
    let target = TxTarget { socket: id, peer: None, source: LocalIp::UNSPECIFIED };
    rig.queue(target, b"hello?");
    assert_eq!(rig.flush(), []);
    let event = IoEvent::Unreachable { socket: id, peer: Endpoint::from(dead) };
    rig.turn_until(|seen| seen.events.contains(&event));

    let server = std::net::UdpSocket::bind(dead).expect("still vacant");
    rig.queue(target, b"hello");
    assert_eq!(rig.flush(), []);
    let (bytes, from) = hear(&server);
    server.send_to(&bytes, from).expect("sent");
    let (meta, bytes) = rig.receive(1).remove(0);
    assert_eq!((meta.socket, &bytes[..]), (id, &b"hello"[..]));
}

fn the_bell_wakes_and_is_never_lost(rig: &mut Rig) {
    let (_, server) = rig.player("127.0.0.1:0");
    let woken = |seen: &Seen| seen.events.contains(&IoEvent::Woken);
    let bell = rig.driver.bell();
    // While awake, twice: one event.
    bell.ring();
    bell.ring();
    assert_eq!(rig.turn_until(woken).events, [IoEvent::Woken]);
    rig.settle();
    // While asleep: far longer than a test may take, were it not for the bell.
    let ringer = bell.clone();
    let other = std::thread::spawn(move || {
        clock::sleep(Duration::from_millis(20));
        ringer.ring();
    });
    let mut seen = Seen::default();
    while !woken(&seen) {
        rig.turn_once(Wait::AtMost(Duration::from_hours(1)), &mut seen);
    }
    other.join().expect("rang");
    // Among datagrams.
    for _ in 0..100 {
        bell.ring();
        outsider("127.0.0.1:0").send_to(b"x", server).expect("sent");
        rig.turn_until(|seen| woken(seen) && !seen.datagrams.is_empty());
    }
}

/// Neither a socket that is drained nor one that is armed wakes the driver; the bell does, and then
/// all that has come is there at once.
fn nothing_but_the_bell_ends_a_wait_for_more(rig: &mut Rig) {
    let (_, armed) = rig.player("127.0.0.1:0");
    for _ in 0..20 {
        rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut Seen::default());
    }
    let (_, drained) = rig.player("127.0.0.1:0");
    rig.turn_once(Wait::No, &mut Seen::default());
    let bell = rig.driver.bell();
    for _ in 0..20 {
        let ringer = bell.clone();
        let other = std::thread::spawn(move || {
            let client = outsider("127.0.0.1:0");
            for server in [armed, drained, armed, drained] {
                client.send_to(b"x", server).expect("sent");
                std::thread::yield_now();
            }
            ringer.ring();
        });
        let mut seen = Seen::default();
        rig.turn_once(Wait::Gather(Duration::from_hours(1)), &mut seen);
        other.join().expect("rang");
        assert_eq!((seen.datagrams.len(), &seen.events[..]), (4, &[IoEvent::Woken][..]));
        rig.settle();
    }
}

fn a_wait_for_more_brings_all_that_came_meanwhile(rig: &mut Rig) {
    let (_, server) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    rig.turn_once(Wait::No, &mut Seen::default());
    let before = rig.driver.stats();
    for count in 1..20 {
        for _ in 0..count {
            client.send_to(b"x", server).expect("sent");
        }
        let mut seen = Seen::default();
        rig.turn_once(Wait::Gather(Duration::from_micros(50)), &mut seen);
        assert_eq!(seen.datagrams.len(), count);
    }
    // With nothing there it ends all the same.
    rig.turn_once(Wait::Gather(Duration::from_micros(50)), &mut Seen::default());
    let after = rig.driver.stats();
    assert_eq!((after.rx_arms, after.waits), (before.rx_arms, before.waits), "nothing was armed");
}

fn sockets_can_go_while_the_driver_sleeps_on_them(rig: &mut Rig) {
    let (first, at) = rig.player(&own_address().to_string());
    let client = outsider("127.0.0.1:0");
    for _ in 0..20 {
        rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut Seen::default());
    }
    rig.driver.close(first);
    assert!(rig.driver.fd(first).is_none());
    // A new socket at its port is another socket.
    let socket = take_again(|| socket::player(at, &UdpOptions::default()));
    let second = rig.driver.register(socket.fd, SocketKind::Datagram).expect("registers");
    assert_ne!(first, second);
    client.send_to(b"hello", at).expect("sent");
    assert_eq!(rig.receive(1)[0].0.socket, second);
    rig.queue(to(first, client.local_addr().expect("bound")), b"from the grave");
    assert_eq!(rig.flush(), [(0, SendFailure::Gone)]);
}
