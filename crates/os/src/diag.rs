//! The kernel's own table of sockets, through `NETLINK_SOCK_DIAG`: which are bound to a port, and
//! which one a datagram would reach. Needs no privilege, and sees the network namespace that it is
//! asked in.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::Socket;

use crate::netlink::{self, DONE, ERROR, Message, Messages, word};

/// What speaks at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// All UDP sockets.
    Udp,
    /// TCP sockets that listen.
    TcpListening,
}

/// A socket that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its own address.
    pub address: SocketAddr,
    /// An IPv6 socket that takes no IPv4 peers; true of IPv4 sockets.
    pub one_family: bool,
    /// Who made it.
    pub uid: u32,
    /// Names it in `/proc/PID/fd`.
    pub inode: u32,
}

impl Bound {
    /// Whether both this socket and one at `address`, which takes peers of its own family only,
    /// would want a datagram.
    pub fn overlaps(&self, address: SocketAddr) -> bool {
        let is_met = |one: IpAddr, other: IpAddr| {
            one == other || one.is_unspecified() || other.is_unspecified()
        };
        let both = match (self.address.ip(), address.ip()) {
            (IpAddr::V6(mine), IpAddr::V4(other)) => {
                !self.one_family
                    && (mine.is_unspecified()
                        || mine
                            .to_ipv4_mapped()
                            .is_some_and(|mine| is_met(mine.into(), other.into())))
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
            (mine, other) => is_met(mine, other),
        };
        both && self.address.port() == address.port()
    }
}

/// A connection to the table.
#[derive(Debug)]
pub struct SocketTable {
    socket: Socket,
    buffer: Vec<u8>,
}

impl SocketTable {
    /// Connects. Fails where the kernel was built without it.
    pub fn open() -> io::Result<Self> {
        let socket = netlink::open(SOCK_DIAG)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES] })
    }

    /// All sockets that are bound to a port, in this network namespace.
    pub fn bound(&mut self, transport: Transport, port: u16) -> io::Result<Vec<Bound>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let question = Question { family, transport, own: port, own_ip: None, peer: None };
            self.ask(&question.bytes(true), |bound| found.push(bound))?;
        }
        found.retain(|bound| bound.address.port() == port);
        Ok(found)
    }

    /// The UDP socket that a datagram from `peer` to `own` would reach on this host: a wildcard's,
    /// a dual-stack socket's or one at this very address.
    pub fn receiver(&mut self, own: SocketAddr, peer: SocketAddr) -> io::Result<Option<Bound>> {
        let family = if own.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let (transport, own_ip) = (Transport::Udp, Some(own.ip()));
        let question = Question { family, transport, own: own.port(), own_ip, peer: Some(peer) };
        let mut found = None;
        match self.ask(&question.bytes(false), |bound| found = Some(bound)) {
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            result => result.map(|()| found),
        }
    }

    fn ask(&mut self, question: &[u8], mut take: impl FnMut(Bound)) -> io::Result<()> {
        // What is left of an earlier answer that was given up is discarded.
        let wanted = word(question, 8);
        self.socket.send(question)?;
        let mut socket = &self.socket;
        loop {
            let len = socket.read(&mut self.buffer)?;
            for Message { kind, flags, sequence, body } in Messages(&self.buffer[..len]) {
                if Some(sequence) != wanted {
                    continue;
                }
                match (kind, word(body, 0).unwrap_or(0) as i32) {
                    (DONE, _) | (ERROR, 0) => return Ok(()),
                    (ERROR, errno) => return Err(io::Error::from_raw_os_error(-errno)),
                    _ => {
                        bound(body).into_iter().for_each(&mut take);
                        if i32::from(flags) & libc::NLM_F_MULTI == 0 {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

/// A request for sockets.
struct Question {
    family: i32,
    transport: Transport,
    own: u16,
    own_ip: Option<IpAddr>,
    peer: Option<SocketAddr>,
}

impl Question {
    /// `nlmsghdr` and `inet_diag_req_v2`. For one socket the kernel takes both ends swapped:
    /// "source" is the peer.
    fn bytes(&self, all: bool) -> Vec<u8> {
        let (protocol, states) = match self.transport {
            Transport::Udp => (libc::IPPROTO_UDP, u32::MAX),
            Transport::TcpListening => (libc::IPPROTO_TCP, 1 << TCP_LISTEN),
        };
        let flags = if all { libc::NLM_F_DUMP } else { 0 };
        let peer = self.peer.map_or(0, |peer| peer.port());
        let ends = if all { [self.own, peer] } else { [peer, self.own] };
        let peer_ip = self.peer.map(|peer| peer.ip());
        let mut bytes = vec![self.family as u8, protocol as u8, 0, 0];
        bytes.extend(states.to_ne_bytes());
        bytes.extend(ends.iter().flat_map(|port| port.to_be_bytes()));
        for ip in if all { [None, None] } else { [peer_ip, self.own_ip] } {
            bytes.extend(match ip {
                Some(IpAddr::V4(ip)) => widened(ip),
                Some(IpAddr::V6(ip)) => ip.octets(),
                None => [0; 16],
            });
        }
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend([0xff; 8]);
        netlink::question(SOCK_DIAG_BY_FAMILY, flags, self.own.into(), &bytes)
    }
}

/// The kernel keeps an IPv4 address in the first of four words.
fn widened(ip: Ipv4Addr) -> [u8; 16] {
    let mut words = [0; 16];
    words[..4].copy_from_slice(&ip.octets());
    words
}

/// Reads an `inet_diag_msg`.
fn bound(body: &[u8]) -> Option<Bound> {
    let fixed = body.get(..MSG_BYTES)?;
    let port = u16::from_be_bytes([fixed[4], fixed[5]]);
    let words: [u8; 16] = fixed.get(8..24)?.try_into().ok()?;
    let is_v6 = i32::from(fixed[0]) == libc::AF_INET6;
    let ip = if is_v6 {
        IpAddr::V6(Ipv6Addr::from(words))
    } else {
        IpAddr::V4(Ipv4Addr::new(words[0], words[1], words[2], words[3]))
    };
    let says_v6_only =
        |(kind, value): (u16, &[u8])| kind == INET_DIAG_SKV6ONLY && value.first() > Some(&0);
    let one_family = !is_v6 || netlink::attributes(body, MSG_BYTES).any(says_v6_only);
    let (uid, inode) = (word(fixed, 64)?, word(fixed, 68)?);
    Some(Bound { address: SocketAddr::new(ip, port), one_family, uid, inode })
}

// Of `linux/sock_diag.h`, `linux/inet_diag.h` and `net/tcp_states.h`.
const SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_SKV6ONLY: u16 = 11;
const TCP_LISTEN: u32 = 10;
const MSG_BYTES: usize = 72;

/// The kernel answers in the call that asks; this is for a kernel that does not answer at all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The kernel fills what it is given, up to 32 KiB.
const BUFFER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;
    use socket2::{Domain, Type};

    /// Programs that other tests start have copies of our descriptors until they run, so a socket
    /// that was closed here may live a moment longer.
    fn wait_until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            crate::clock::sleep(Duration::from_millis(1));
        }
    }

    fn inode(socket: &impl AsRawFd) -> u32 {
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let name = std::fs::read_link(link).expect("open").into_os_string();
        let name = name.into_string().expect("text");
        name.trim_start_matches("socket:[").trim_end_matches(']').parse().expect("a number")
    }

    fn v6_socket(one_family: bool, address: &str) -> Option<Socket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).ok()?;
        socket.set_only_v6(one_family).ok()?;
        let address: SocketAddr = address.parse().expect("literal");
        socket.bind(&address.into()).ok()?;
        Some(socket)
    }

    #[test]
    fn who_is_bound_is_found_by_port_and_by_what_would_reach_it() {
        let mut table = SocketTable::open().expect("this kernel has it");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let address = socket.local_addr().expect("bound");
        let found = table.bound(Transport::Udp, address.port()).expect("an answer");
        let uid = crate::process::effective_uid();
        let wanted = Bound { address, one_family: true, uid, inode: inode(&socket) };
        assert!(found.contains(&wanted), "{found:?}");
        let peer = "127.1.0.5:9".parse().expect("literal");
        assert_eq!(table.receiver(address, peer).expect("an answer"), Some(wanted));
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert_eq!(table.receiver(elsewhere, peer).expect("an answer"), None);
        drop(socket);
        wait_until(|| table.receiver(address, peer).expect("an answer").is_none());

        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let found = table.bound(Transport::TcpListening, port).expect("an answer");
        assert_eq!(found.iter().map(|it| it.inode).collect::<Vec<_>>(), [inode(&listener)]);
    }

    #[test]
    fn wildcards_and_both_families_count() {
        let mut table = SocketTable::open().expect("this kernel has it");
        let Some(dual) = v6_socket(false, "[::]:0") else {
            eprintln!("SKIPPED: this host has no IPv6");
            return;
        };
        let port = dual.local_addr().ok().and_then(|it| it.as_socket()).expect("bound").port();
        let found = table.bound(Transport::Udp, port).expect("an answer");
        let mine = found.iter().find(|it| it.inode == inode(&dual)).expect("it is there");
        assert!(!mine.one_family && mine.overlaps(SocketAddr::from(([10, 0, 0, 1], port))));
        let v4 = SocketAddr::from(([127, 0, 0, 1], port));
        let peer = "127.1.0.5:9".parse().expect("literal");
        let reached = table.receiver(v4, peer).expect("an answer");
        assert_eq!(reached.map(|it| it.inode), Some(inode(&dual)));
        drop(dual);
        let mut only = None;
        wait_until(|| {
            only = v6_socket(true, &format!("[::]:{port}"));
            only.is_some()
        });
        let only = only.expect("waited for");
        assert_eq!(table.receiver(v4, peer).expect("an answer"), None);
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        let peer = "[::1]:9".parse().expect("literal");
        let reached = table.receiver(v6, peer).expect("an answer").expect("bound");
        assert!(reached.one_family && reached.inode == inode(&only));
    }

    #[test]
    fn overlaps_are_those_of_the_kernel() {
        let bound = |text: &str, one_family| Bound {
            address: text.parse().expect("literal"),
            one_family,
            uid: 0,
            inode: 1,
        };
        for (mine, one_family, other, expected) in [
            ("0.0.0.0:7", true, "10.0.0.1:7", true),
            ("10.0.0.1:7", true, "0.0.0.0:7", true),
            ("10.0.0.1:7", true, "10.0.0.2:7", false),
            ("10.0.0.1:7", true, "10.0.0.1:8", false),
            ("[::]:7", false, "10.0.0.1:7", true),
            ("[::]:7", true, "10.0.0.1:7", false),
            ("[::ffff:10.0.0.1]:7", false, "10.0.0.1:7", true),
            ("[::ffff:10.0.0.1]:7", false, "10.0.0.2:7", false),
            ("[::]:7", false, "[::1]:7", true),
            ("0.0.0.0:7", true, "[::]:7", false),
        ] {
            let other = other.parse().expect("literal");
            assert_eq!(bound(mine, one_family).overlaps(other), expected, "{mine} {other}");
        }
    }
}
