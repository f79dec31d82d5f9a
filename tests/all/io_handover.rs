//! Sockets that go from one driver to another by way of another process's message: nothing that
//! arrives meanwhile is lost, taken twice, or changes its place.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use ringgate_batch::{IoEvent, SocketId};
use ringgate_io::filter::{Filter, Rule};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{Driver, SocketDriver, SocketKind, Wait};
use ringgate_os::{clock, rights};

use crate::gateway_rig::until;
use crate::io_rig::{Rig, Seen, hear, on_both_drivers, outsider};

on_both_drivers!(
    a_driver_that_has_let_go_takes_nothing_and_can_go_on,
    a_link_keeps_what_its_peer_has_said,
    nothing_is_lost_when_sockets_change_hands_under_traffic,
    what_was_dropped_before_is_not_counted_again,
);

/// Sends descriptors through the kernel, as one process does to another, and closes ours.
fn pass(fds: Vec<OwnedFd>) -> Vec<OwnedFd> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("a pair");
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    rights::send(one.as_fd(), b"x", &borrowed).expect("sent");
    drop(fds);
    rights::receive(other.as_fd(), &mut [0; 8]).expect("received").1
}

/// Registers a driver's socket with the next one, by way of another process's message.
fn hand_on(rig: &Rig, id: SocketId, kind: SocketKind, next: &mut Rig) -> SocketId {
    let fd = rig.driver.fd(id).expect("it is registered");
    let copy = fd.try_clone_to_owned().expect("a descriptor");
    next.driver.register(pass(vec![copy]).remove(0), kind).expect("registers")
}

/// Has a driver let go, and adds what it still brings.
fn let_go(rig: &mut Rig, seen: &mut Seen) {
    rig.driver.let_go().expect("it lets go");
    let rx = rig.driver.rx();
    seen.events.extend_from_slice(&rx.events);
    for (meta, bytes) in rx.iter_mut() {
        seen.datagrams.push((*meta, bytes.to_vec()));
    }
}

fn numbers(seen: &Seen) -> Vec<u32> {
    let number = |bytes: &Vec<u8>| u32::from_le_bytes(bytes[..4].try_into().expect("four"));
    seen.datagrams.iter().map(|(_, bytes)| number(bytes)).collect()
}

fn nothing_is_lost_when_sockets_change_hands_under_traffic(rig: &mut Rig) {
    const HANDS: usize = 10;
    let (mut player, address) = rig.player("127.0.0.1:0");
    let is_over = Arc::new(AtomicBool::new(false));
    let taken = Arc::new(AtomicU32::new(0));
    let sender = {
        let (is_over, taken) = (Arc::clone(&is_over), Arc::clone(&taken));
        std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            let mut sent = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                // More than this the kernel might not keep for a reader who does not run.
                if sent - taken.load(Ordering::Relaxed) > 64 {
                    clock::sleep(Duration::from_micros(60));
                    continue;
                }
                for _ in 0..8 {
                    socket.send_to(&sent.to_le_bytes(), address).expect("sent");
                    sent += 1;
                }
                // Sometimes slow enough that sockets are armed.
                let pause = if sent.is_multiple_of(512) { 3000 } else { 60 };
                clock::sleep(Duration::from_micros(pause));
            }
            sent
        })
    };
    let mut seen = Seen::default();
    let mut owner = rig.alike();
    std::mem::swap(&mut owner.driver, &mut rig.driver);
    for hand in 0..HANDS {
        let wanted = seen.datagrams.len() + 300;
        until("more have come", || {
            owner.turn_once(Wait::AtMost(Duration::from_millis(20)), &mut seen);
            taken.store(seen.datagrams.len() as u32, Ordering::Relaxed);
            seen.datagrams.len() >= wanted
        });
        if hand % 2 == 1 {
            // Asleep, with a receive that waits, as far as that can be had.
            owner.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut seen);
        }
        let mut next = owner.alike();
        let_go(&mut owner, &mut seen);
        player = hand_on(&owner, player, SocketKind::Datagram, &mut next);
        // The one before is there for a while, as a process is.
        clock::sleep(Duration::from_millis(2));
        owner = next;
    }
    is_over.store(true, Ordering::Relaxed);
    let sent = sender.join().expect("it only sends");
    until("all have come", || {
        owner.turn_once(Wait::AtMost(Duration::from_millis(20)), &mut seen);
        seen.datagrams.len() >= sent as usize
    });
    assert_eq!(numbers(&seen), (0..sent).collect::<Vec<_>>(), "each once, in order");
}

fn a_driver_that_has_let_go_takes_nothing_and_can_go_on(rig: &mut Rig) {
    let (_, address) = rig.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    let mut seen = Seen::default();
    // Armed: it waits for a datagram that does not come.
    rig.settle();
    rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut seen);
    let_go(rig, &mut seen);
    for n in 0..20_u32 {
        client.send_to(&n.to_le_bytes(), address).expect("sent");
    }
    let_go(rig, &mut seen);
    assert!(seen.datagrams.is_empty(), "{:?}", seen.datagrams);
    let seen = rig.turn_until(|seen| seen.datagrams.len() >= 20);
    assert_eq!(numbers(&seen), (0..20).collect::<Vec<_>>());
    rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut Seen::default());
    rig.driver.bell().ring();
    let woken = rig.turn_until(|seen| !seen.events.is_empty());
    assert!(woken.events.contains(&IoEvent::Woken), "it hears again");
}

fn a_link_keeps_what_its_peer_has_said(rig: &mut Rig) {
    let (here, there) = socket::link_pair().expect("a pair");
    let link = rig.driver.register(here, SocketKind::Link).expect("registers");
    let there = Socket::from(there);
    there.send(b"first").expect("sent");
    assert_eq!(rig.receive(1)[0].1, b"first");
    rig.driver.hold(link, true);
    rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut Seen::default());
    there.send(b"second").expect("sent");
    let mut seen = Seen::default();
    let_go(rig, &mut seen);
    there.send(b"third").expect("sent");
    let mut next = rig.alike();
    hand_on(rig, link, SocketKind::Link, &mut next);
    let wanted = 2 - seen.datagrams.len();
    let rest = next.turn_until(|seen| seen.datagrams.len() >= wanted);
    let said = seen.datagrams.into_iter().chain(rest.datagrams).map(|(_, bytes)| bytes);
    assert_eq!(said.collect::<Vec<_>>(), [b"second".to_vec(), b"third".to_vec()]);
    drop(there);
    let end = next.turn_until(|seen| !seen.events.is_empty());
    assert!(matches!(end.events[..], [IoEvent::Closed { .. }]), "{:?}", end.events);
}

fn what_was_dropped_before_is_not_counted_again(rig: &mut Rig) {
    let filter = Filter::new().allow(Rule::new(0..=255, 1..=8));
    let address = "127.0.0.1:0".parse().expect("literal");
    let options = UdpOptions { filter: Some(&filter), ..UdpOptions::default() };
    let made = socket::player(address, &options).expect("bound");
    let client = outsider("127.0.0.1:0");
    // What is queued says how many there were when it came.
    for bytes in [100, 7, 100] {
        client.send_to(&vec![0; bytes], made.local).expect("sent");
    }
    let fds = pass(vec![made.fd]);
    let fd = fds.into_iter().next().expect("one");
    rig.driver.register(fd, SocketKind::Datagram).expect("registers");
    client.send_to(&[0; 100], made.local).expect("refused by the filter");
    client.send_to(&[0; 8], made.local).expect("sent");
    let heard: Vec<_> = rig.receive(2).into_iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!((heard, rig.driver.stats().kernel_drops), (vec![7, 8], 1));
}

#[test]
fn a_passed_socket_keeps_its_queue_its_options_and_its_place() {
    let address = "127.0.0.1:0".parse().expect("literal");
    let options = UdpOptions { reuse_port: true, ..UdpOptions::default() };
    let first = socket::player(address, &options).expect("bound");
    let second = socket::player(first.local, &options).expect("they share it");
    let (local, granted) = (first.local, first.receive_buffer_bytes);
    let sockets = [UdpSocket::from(first.fd), UdpSocket::from(second.fd)];
    let clients: Vec<_> = (0..32).map(|_| outsider("127.0.0.1:0")).collect();
    let homes: Vec<_> = clients.iter().map(|client| home(client, local, &sockets)).collect();
    assert!(homes.contains(&0) && homes.contains(&1), "32 ports fall on both");
    // What is queued before goes along, too.
    for client in &clients {
        client.send_to(b"queued", local).expect("sent");
    }
    let fds = pass(sockets.map(OwnedFd::from).into());
    let sockets: Vec<_> = fds.into_iter().map(UdpSocket::from).collect();
    let queued: usize = sockets.iter().map(|socket| drain(socket).len()).sum();
    assert_eq!(queued, clients.len());
    for socket in &sockets {
        let option = socket2::SockRef::from(socket);
        assert_eq!(option.recv_buffer_size().expect("told"), granted);
        assert!(option.reuse_port().expect("told"));
    }
    let sockets = [&sockets[0], &sockets[1]];
    let now: Vec<_> = clients.iter().map(|client| home(client, local, &sockets)).collect();
    assert_eq!(now, homes, "every peer falls where it fell before");
}

/// Which of the sockets a client's datagrams come to.
fn home(
    client: &UdpSocket,
    local: SocketAddr,
    sockets: &[impl std::borrow::Borrow<UdpSocket>],
) -> usize {
    client.send_to(b"where", local).expect("sent");
    let at = sockets.iter().position(|socket| !drain(socket.borrow()).is_empty());
    at.expect("loopback delivers at once")
}

/// Everything that is queued.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 64];
    let receive = || socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec());
    std::iter::from_fn(receive).collect()
}

#[test]
fn what_the_kernel_kept_is_answered_by_the_next_owner() {
    let mut first = Rig::mmsg();
    let (player, address) = first.player("127.0.0.1:0");
    let client = outsider("127.0.0.1:0");
    first.settle();
    client.send_to(b"are you there", address).expect("sent");
    let mut next = first.alike();
    let_go(&mut first, &mut Seen::default());
    hand_on(&first, player, SocketKind::Datagram, &mut next);
    drop(first);
    let (meta, bytes) = next.receive(1).remove(0);
    next.queue(crate::io_rig::answer(&meta), &bytes);
    assert_eq!(next.flush(), []);
    assert_eq!(hear(&client), (b"are you there".to_vec(), address));
}
