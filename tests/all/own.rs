//! An address of this host's loopback that the processes of this test program have for themselves,
//! and ports there that no two tests are given. Tests of several packages share this file.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The address. Each program that runs at the same time has another: the kernel lets one of them
/// take [`CLAIM`] there, and it is held until the program ends.
pub(crate) fn own_ip() -> Ipv4Addr {
    static CLAIMED: OnceLock<(Ipv4Addr, UdpSocket)> = OnceLock::new();
    CLAIMED.get_or_init(|| claimed(std::process::id())).0
}

/// The first that no other process has claimed. Numbers of processes are below 2^22, so the first
/// one is hardly ever taken.
fn claimed(first: u32) -> (Ipv4Addr, UdpSocket) {
    let number = |step: u32| first.wrapping_add(step) & 0x003f_ffff;
    let ip = |step| Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() | number(step));
    let claim = |ip| Some((ip, UdpSocket::bind((ip, CLAIM)).ok()?));
    (0..1 << 16).map(ip).find_map(claim).expect("one is free")
}

/// A port at the address of this program, for UDP and TCP, that no other test of it is given. The
/// kernel gives ports to sockets that ask for any from 32,768 on, so this one lies below, and stays
/// free for the test however often what has it is killed and started.
pub(crate) fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(CLAIM + 1);
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(port < 32_768, "a program has so many tests");
    port
}

/// Such a port with the address.
pub(crate) fn own_address() -> SocketAddr {
    SocketAddr::from((own_ip(), own_port()))
}

/// A port for UDP at every address, which only tests of wildcards need: no other program of tests
/// has one there, and own ports lie above.
pub(crate) fn own_wildcard_port() -> u16 {
    let candidates = CLAIM - WILDCARDS..CLAIM;
    let claim = |port: &u16| {
        // What holds it for this program is TCP, and not in the way.
        let claimed = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).ok()?;
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).ok()?;
        // Where there is no IPv6, nobody has it there.
        let taken = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, *port)).err();
        if taken.is_some_and(|why| why.kind() == ErrorKind::AddrInUse) {
            return None;
        }
        std::mem::forget(claimed);
        Some(*port)
    };
    candidates.into_iter().find_map(|port| claim(&port)).expect("one is free")
}

/// Takes an address that the test itself has just given up. A program that a parallel test starts
/// holds every descriptor of this process until it runs, and one that was killed while it used
/// io_uring leaves sockets behind; so it may be held for a moment more.
pub(crate) fn take_again<T, E>(mut bind: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..TRIES {
        if let Ok(taken) = bind() {
            return taken;
        }
        std::thread::park_timeout(AGAIN_AFTER);
    }
    panic!("the address is not free again");
}

const CLAIM: u16 = 16_384;
const WILDCARDS: u16 = 1_000;

const TRIES: u32 = 6000;
const AGAIN_AFTER: Duration = Duration::from_millis(10);
