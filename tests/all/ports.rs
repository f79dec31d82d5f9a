//! Ports that nobody has just now, and that nobody is given meanwhile. Tests of several packages
//! share this file.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A port that is free for UDP and TCP at every address, and that no other test of this program is
/// given. The kernel gives ports to sockets that ask for any, those of parallel tests among them,
/// from 32,768 on; so this one lies below.
pub(crate) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one("ports") >> 1));
    let is_free = |port: &u16| {
        let any = (Ipv4Addr::UNSPECIFIED, *port);
        UdpSocket::bind(any).is_ok() && TcpListener::bind(any).is_ok()
    };
    let next = || 16_384 + (NEXT.fetch_add(1, Ordering::Relaxed) % 16_000) as u16;
    (0..1000).map(|_| next()).find(is_free).expect("one of so many is free")
}

/// Takes a port that the test itself has just given up. A program that a parallel test starts holds
/// every descriptor of this process until it runs, and one that was killed while it used io_uring
/// leaves sockets behind; so the port may be held for a moment more.
pub(crate) fn take_again<T, E>(mut bind: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..TRIES {
        if let Ok(taken) = bind() {
            return taken;
        }
        std::thread::park_timeout(AGAIN_AFTER);
    }
    panic!("the port is not free again");
}

const TRIES: u32 = 6000;
const AGAIN_AFTER: Duration = Duration::from_millis(10);
