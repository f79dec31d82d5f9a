//! Ports that nobody has just now, and that nobody is given meanwhile.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use crate::gateway_rig::until;

/// A port that is free for UDP and TCP at every address. The kernel gives ports to sockets that ask
/// for any, those of parallel tests among them, from 32,768 on; so this one lies below.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: &u16| {
        let any = (Ipv4Addr::UNSPECIFIED, *port);
        UdpSocket::bind(any).is_ok() && TcpListener::bind(any).is_ok()
    };
    let random = || 16_384 + (getrandom::u32().expect("random bytes") % 16_000) as u16;
    (0..1000).map(|_| random()).find(is_free).expect("one of so many is free")
}

/// Takes a port that the test itself has just given up. A program that a parallel test starts holds
/// every descriptor of this process until it runs, so the port may be held for a moment more.
pub(crate) fn take_again<T, E>(mut bind: impl FnMut() -> Result<T, E>) -> T {
    let mut taken = None;
    until("the port is free again", || {
        taken = bind().ok();
        taken.is_some()
    });
    taken.expect("waited for")
}
