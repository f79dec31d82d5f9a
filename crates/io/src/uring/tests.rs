//! What only this driver does; what both do is in `tests/all/io_*.rs`.

use std::net::UdpSocket;

use io_uring::opcode;

use super::ring::FLAGS;
use super::*;
use crate::socket::{self, UdpOptions};
use own::own_address;
use ringgate_os::clock::{self, Clock};

#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../../../tests/all/own.rs"]
mod own;

/// Tests of the ring itself need one. The skip is loud, and a failure where a ring is required.
fn ring_is_missing() -> bool {
    let missing = Uring::prove().err();
    if let Some(why) = &missing {
        let required = std::env::var_os("REQUIRE_URING").is_some_and(|value| value == "1");
        assert!(!required, "REQUIRE_URING=1, but io_uring does not work: {why}");
        eprintln!("SKIPPED: io_uring does not work here: {why}");
    }
    missing.is_some()
}

/// A registered socket, at an address that no other test is given.
fn player(driver: &mut Uring) -> (SocketId, std::net::SocketAddr) {
    let socket = socket::player(own_address(), &UdpOptions::default()).expect("it is ours");
    (driver.register(socket.fd, SocketKind::Datagram).expect("registers"), socket.local)
}

/// Only a test that fails takes so long.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Turns until `count` datagrams have arrived; returns the last byte of each with its socket.
fn receive(driver: &mut Uring, rx: &mut RxBatch, count: usize) -> Vec<(SocketId, u8)> {
    let (mut seen, clock) = (Vec::new(), Clock::start());
    while clock.now_ns() < PATIENCE_NS {
        driver.turn(rx, Wait::AtMost(Duration::from_millis(20))).expect("the driver lives");
        seen.extend(rx.iter_mut().map(|(meta, bytes)| (meta.socket, bytes[bytes.len() - 1])));
        if seen.len() >= count {
            break;
        }
    }
    assert_eq!(seen.len(), count);
    seen
}

#[test]
fn rings_of_older_kernels_do_the_same() {
    if ring_is_missing() {
        return;
    }
    let mut worked = 0;
    for flags in FLAGS {
        let Ok(ring) = Ring::open_with(flags, SUBMISSIONS, COMPLETIONS_MIN) else { continue };
        let (mut driver, mut rx) =
            Uring::over(ring, Slots::new(DriverOptions::default()), DriverOptions::default())
                .expect("set up");
        let (id, address) = player(&mut driver);
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        // Asleep, and then awake.
        let late = client.try_clone().expect("a second handle");
        let sender = std::thread::spawn(move || {
            clock::sleep(Duration::from_millis(10));
            late.send_to(&[1], address).expect("sent");
        });
        assert_eq!(receive(&mut driver, &mut rx, 1), [(id, 1)]);
        sender.join().expect("sent");
        for n in 2..200 {
            client.send_to(&[n], address).expect("sent");
        }
        let numbers: Vec<_> = (2..200).map(|n| (id, n)).collect();
        assert_eq!(receive(&mut driver, &mut rx, 198), numbers);
        worked += 1;
    }
    assert!(worked > 0);
}

#[test]
fn a_driver_moves_to_the_thread_of_its_first_turn() {
    if ring_is_missing() {
        return;
    }
    let (mut driver, mut rx) = Uring::open(&DriverOptions::default(), None).expect("opens");
    let (_, address) = player(&mut driver);
    UdpSocket::bind("127.0.0.1:0").expect("loopback").send_to(&[7], address).expect("sent");
    let (driver, rx) = std::thread::spawn(move || {
        receive(&mut driver, &mut rx, 1);
        driver.turn(&mut rx, Wait::AtMost(Duration::from_millis(1))).expect("armed now");
        (driver, rx)
    })
    .join()
    .expect("received there");
    // Gone on a thread that is not its own, with a receive pending: the slots stay, for the
    // kernel's sake.
    let slots = driver.slots.clone();
    drop((driver, rx));
    UdpSocket::bind("127.0.0.1:0").expect("loopback").send_to(&[7], address).expect("sent");
    drop(slots);
}

#[test]
fn sockets_beyond_the_registered_ones_work_too() {
    if ring_is_missing() {
        return;
    }
    let options = DriverOptions { registered_sockets: 2, ..DriverOptions::default() };
    let (mut driver, mut rx) = Uring::open(&options, None).expect("opens");
    let sockets: Vec<_> = (0..6).map(|_| player(&mut driver)).collect();
    let handles = sockets.iter().map(|(id, _)| driver.table.get(*id).expect("there").state.handle);
    assert_eq!(handles.filter(|handle| matches!(handle, Handle::Fixed(_))).count(), 2);
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    for round in 0..3 {
        for (_, address) in &sockets {
            client.send_to(&[round], address).expect("sent");
        }
        let mut seen = receive(&mut driver, &mut rx, sockets.len());
        seen.sort();
        assert_eq!(seen, sockets.iter().map(|(id, _)| (*id, round)).collect::<Vec<_>>());
        driver.turn(&mut rx, Wait::AtMost(Duration::from_millis(1))).expect("armed");
    }
    for (id, address) in sockets {
        driver.deregister(id);
        UdpSocket::bind(address).expect("the port is free at once");
    }
}

#[test]
fn completions_that_overflow_are_counted_and_come_late() {
    if ring_is_missing() {
        return;
    }
    let mut ring = Ring::open(16, 16).expect("a small ring");
    ring.enable().expect("our thread");
    let nop = opcode::Nop::new().build();
    let mut queued = 0;
    for _ in 0..64 {
        // SAFETY: a nop points to nothing.
        let mut has_room = unsafe { ring.push(std::slice::from_ref(&nop)) };
        if !has_room {
            let _ = ring.enter(None).expect("submits");
            // SAFETY: as above.
            has_room = unsafe { ring.push(std::slice::from_ref(&nop)) };
        }
        queued += u32::from(has_room);
    }
    let _ = ring.enter(None).expect("submits");
    assert!(ring.has_overflowed());
    let mut seen = 0;
    while seen < queued {
        let before = seen;
        while ring.completion().is_some() {
            seen += 1;
        }
        assert!(seen > before && (seen == queued || ring.has_work()), "the kernel keeps them");
        let _ = ring.enter(None).expect("fetches");
    }
    assert_eq!(seen, queued);
    assert!(!ring.has_overflowed() && !ring.has_lost_completions());
}

#[test]
fn a_drivers_ring_takes_nothing_but_its_requests() {
    if ring_is_missing() {
        return;
    }
    let (mut driver, mut rx) = Uring::open(&DriverOptions::default(), None).expect("opens");
    assert!(driver.why_unrestricted().is_none(), "{:?}", driver.why_unrestricted());
    let (_, address) = player(&mut driver);
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    client.send_to(&[1], address).expect("sent");
    receive(&mut driver, &mut rx, 1);
    let poll = opcode::PollAdd::new(Fd(0), libc::POLLIN as u32).build();
    let foreign = [
        opcode::Nop::new().build(),
        opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
        poll.flags(io_uring::squeue::Flags::IO_DRAIN),
    ];
    for request in foreign {
        // SAFETY: none of them points to anything.
        assert!(unsafe { driver.ring.push(&[request.user_data(FOREIGN)]) });
        let _ = driver.ring.enter(None).expect("submits");
        let results = std::iter::from_fn(|| driver.ring.completion());
        let results: Vec<_> = results.filter(|it| it.user_data() == FOREIGN).collect();
        assert_eq!(results.iter().map(cqueue::Entry::result).collect::<Vec<_>>(), [-libc::EACCES]);
    }
    let bell = driver.bell.fd().as_raw_fd();
    let refused = driver.ring.submitter().register_eventfd(bell).expect_err("not one of ours");
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
}

/// A tag that no request of a driver has.
const FOREIGN: u64 = 77 << 32;

#[test]
fn a_busy_socket_gets_more_receives_and_an_idle_one_none() {
    let mut receiving = Receiving::new(Handle::Raw(0));
    let mut turn = |count| {
        receiving.count = count;
        let stays = receiving.judge(2);
        (receiving.receives, stays)
    };
    assert_eq!(
        [turn(20), turn(33), turn(64), turn(66)].map(|(receives, _)| receives),
        [1, 2, 2, 2]
    );
    assert_eq!([turn(33), turn(31), turn(32)].map(|(receives, _)| receives), [2, 1, 2]);
    assert_eq!([turn(0), turn(0), turn(1)].map(|(_, stays)| stays), [true, true, true]);
    assert_eq!([turn(0), turn(0), turn(0)].map(|(_, stays)| stays), [true, true, false]);
}

#[test]
fn a_ring_lets_go_of_everything_and_of_nothing() {
    if ring_is_missing() {
        return;
    }
    let (mut driver, mut rx) = Uring::open(&DriverOptions::default(), None).expect("opens");
    let (_, address) = player(&mut driver);
    driver.turn(&mut rx, Wait::AtMost(Duration::from_millis(1))).expect("armed now");
    assert!(driver.is_asking());
    for _ in 0..3 {
        driver.let_go(&mut rx).expect("it lets go");
        assert!(!driver.is_asking() && rx.is_empty());
    }
    UdpSocket::bind("127.0.0.1:0").expect("loopback").send_to(&[7], address).expect("sent");
    driver.let_go(&mut rx).expect("it lets go");
    assert!(rx.is_empty(), "it stays in the socket");
    assert_eq!(receive(&mut driver, &mut rx, 1).len(), 1);
}

#[test]
fn a_turns_receive_that_ends_late_does_not_end_the_wait_for_more() {
    if ring_is_missing() {
        return;
    }
    let (mut driver, mut rx) = Uring::open(&DriverOptions::default(), None).expect("opens");
    let (id, address) = player(&mut driver);
    driver.turn(&mut rx, Wait::AtMost(Duration::from_millis(1))).expect("armed now");
    let arms = driver.stats().rx_arms;
    driver.receive_ended(id, Asked::ByTurn, -libc::EAGAIN, &mut rx);
    driver.receive_ended(id, Asked::ByTurn, -libc::ENOBUFS, &mut rx);
    assert_eq!((driver.stats().rx_arms, driver.drained.len()), (arms, 0));
    UdpSocket::bind("127.0.0.1:0").expect("loopback").send_to(&[7], address).expect("sent");
    assert_eq!(receive(&mut driver, &mut rx, 1), [(id, 7)]);
}
