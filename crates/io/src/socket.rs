//! Making sockets, and asking what they are.
//!
//! Every option that the packet path relies on is set here, before the socket can receive anything,
//! and each failure says what was tried and what to do. What is only nice to have (large buffers,
//! kernel time) is asked for and reported as granted or not. A socket's later life is the driver's
//! business.
#![allow(unsafe_code, reason = "socket options that socket2 does not know")]

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use super::error::{StartError, Step};
use super::filter::{self, Filter};
use super::sockaddr::Family;
use super::spread;
use ringgate_batch::Credentials;
use ringgate_os::{process, segments};

/// What a UDP socket should be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the kernel's")]
pub struct UdpOptions<'a> {
    /// Shares the port with the sockets of other workers; the kernel spreads peers over them by
    /// address.
    pub reuse_port: bool,
    /// An IPv6 socket takes no IPv4 peers, so that both families can be bound to one port.
    pub v6_only: bool,
    /// Receive buffer to ask for. The default of most systems holds a burst of 256 small datagrams.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask for.
    pub send_buffer_bytes: usize,
    /// Has the kernel stamp each datagram with the time it arrived.
    pub kernel_time: bool,
    /// What may be queued at all; everything where there is none.
    pub filter: Option<&'a Filter>,
    /// Routers may take what is too long for a path apart. Without it, it is lost there.
    pub may_fragment: bool,
}

impl UdpOptions<'_> {
    /// What suits a socket of many peers.
    pub(super) const DEFAULT: Self = Self {
        reuse_port: false,
        v6_only: true,
        receive_buffer_bytes: 8 << 20,
        send_buffer_bytes: 8 << 20,
        kernel_time: true,
        filter: None,
        may_fragment: false,
    };
}

impl Default for UdpOptions<'_> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A UDP socket, and what became of the wishes.
#[derive(Debug)]
pub struct UdpSocket {
    /// Non-blocking, ready to be registered with a driver.
    pub fd: OwnedFd,
    /// The address it is bound to.
    pub local: SocketAddr,
    /// The receive buffer that was granted. Linux counts its own overhead in, so half of it holds
    /// data.
    pub receive_buffer_bytes: usize,
    /// The send buffer that was granted.
    pub send_buffer_bytes: usize,
}

/// A socket for players at `address`. Bound to a wildcard address it tells and takes local
/// addresses ([`RxMeta::local`](ringgate_batch::RxMeta),
/// [`TxTarget::source`](ringgate_batch::TxTarget)); bound to one address it does not need to.
///
/// Our own datagrams fit every path, so they leave in one piece, whatever the kernel has been told
/// about the path's MTU. A game's may be longer ([`UdpOptions::may_fragment`]).
pub fn player(address: SocketAddr, options: &UdpOptions<'_>) -> Result<UdpSocket, StartError> {
    let socket = udp(address, options)?;
    bind(&socket, address)?;
    finish(socket)
}

/// A socket for players that is bound already, because a process before this one had it. It gets
/// the options of a new one.
pub fn adopt_player(fd: OwnedFd, options: &UdpOptions<'_>) -> Result<UdpSocket, StartError> {
    let fail = |e| StartError::new("take a socket back", Step::Other, e);
    let local = local_address(borrow(&fd)).map_err(fail)?;
    let socket = Socket::from(fd);
    socket.set_nonblocking(true).map_err(fail)?;
    // It may be the table of the process before by which the kernel goes.
    spread::detach(socket.as_fd());
    change_filter(socket.as_fd(), None);
    configure(&socket, local, options)?;
    finish(socket)
}

/// What may be queued at a socket from now on, whatever that was before. Everything, where there is
/// no filter or it cannot be attached.
pub fn change_filter(socket: BorrowedFd<'_>, filter: Option<&Filter>) {
    let socket = socket2::SockRef::from(&socket);
    let attached = filter.map(|filter| socket.attach_filter(&filter::compile(filter)));
    if !matches!(attached, Some(Ok(()))) {
        // It has none where that fails.
        let _ = socket.detach_filter();
    }
}

/// The address of a UDP socket; `None` where it is something else.
pub fn udp_address(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    let socket = socket2::SockRef::from(&fd);
    let is_udp = socket.r#type().ok()? == Type::DGRAM
        && socket.protocol().ok()? == Some(socket2::Protocol::UDP);
    if is_udp { local_address(fd).ok() } else { None }
}

/// Lets other sockets of this user be bound to the same address from now on, if they ask for it:
/// the kernel spreads peers over all of them. A socket that was bound without it has the address to
/// itself until then.
pub fn share_port(socket: &UdpSocket) -> Result<(), StartError> {
    socket2::SockRef::from(&socket.fd)
        .set_reuse_port(true)
        .map_err(|e| StartError::other(format!("share the port of {}", socket.local), e))
}

/// Whether the sockets of one address take datagrams of the other. IPv6 sockets take no IPv4 ones.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = |ip: IpAddr| ip.is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip() == other.ip() || is_any(one.ip()) || is_any(other.ip()))
}

/// Whether a TCP address could be listened at now. Only binds, and lets go again.
pub fn can_listen(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), None)?;
    // As listeners do: connections that have ended are not in the way.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))
}

/// A socket for game servers on this host that speak plain UDP. It can send from any loopback
/// address, so that each player can have one of its own; bound to the device `lo`, it hears nobody
/// else. Errors of dead servers are reported as [`IoEvent::Unreachable`](ringgate_batch::IoEvent).
pub fn udp_link(options: &UdpOptions<'_>) -> Result<UdpSocket, StartError> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let socket = udp(address, options)?;
    socket
        .bind_device(Some(b"lo"))
        .map_err(|e| StartError::new("bind a UDP link to device lo", Step::BindDevice, e))?;
    report_errors(&socket, Family::V4)?;
    bind(&socket, address)?;
    finish(socket)
}

/// A UDP socket with one peer, for game servers on other hosts. Errors are reported as for
/// [`udp_link`].
pub fn connected(peer: SocketAddr, options: &UdpOptions<'_>) -> Result<UdpSocket, StartError> {
    let any = match peer {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let socket = udp(any, &UdpOptions { reuse_port: false, ..*options })?;
    report_errors(&socket, family_of(peer))?;
    socket
        .connect(&SockAddr::from(peer))
        .map_err(|e| StartError::new(format!("connect UDP to {peer}"), Step::Connect, e))?;
    finish(socket)
}

/// A listening socket for links at `path`, with exactly this file mode. A socket file that a dead
/// process has left is removed; one that somebody listens on is not. The file is the caller's to
/// remove at the end.
pub fn link_listener(path: &Path, mode: u32) -> Result<OwnedFd, StartError> {
    let socket = seqpacket().map_err(|e| listening_failed(path, e))?;
    listen(socket, Type::SEQPACKET, path, mode).map(OwnedFd::from)
}

/// The listening socket for operators at `path`, for its owner only. As [`link_listener`]
/// otherwise.
pub fn control_listener(path: &Path) -> Result<UnixListener, StartError> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::UNIX, kind, None).map_err(|e| listening_failed(path, e))?;
    listen(socket, Type::STREAM, path, CONTROL_MODE).map(UnixListener::from)
}

/// Binds a Unix socket and listens.
///
/// The folder may belong to a user with fewer rights than we have now, who can put anything in the
/// socket's place at any time. So the file has its mode from the moment `bind` creates it, and no
/// later call goes by its path.
fn listen(socket: Socket, kind: Type, path: &Path, mode: u32) -> Result<Socket, StartError> {
    let fail = |e| listening_failed(path, e);
    let address = SockAddr::unix(path).map_err(fail)?;
    if let Some(pid) = remove_stale(path, kind).map_err(fail)? {
        let operation = format!("listen on {}, where process {pid} listens", path.display());
        let taken = io::Error::from_raw_os_error(libc::EADDRINUSE);
        return Err(StartError::new(operation, Step::Link, taken));
    }
    // The file is created with the socket's own mode, less the umask (`unix_bind_bsd` in
    // `net/unix/af_unix.c`). SAFETY: takes no pointer.
    let result = unsafe { libc::fchmod(socket.as_raw_fd(), mode) };
    check(result).map_err(fail)?;
    process::with_umask(0, || socket.bind(&address)).and_then(|bound| bound).map_err(fail)?;
    socket.listen(LISTEN_BACKLOG).map_err(fail)?;
    Ok(socket)
}

fn listening_failed(path: &Path, why: io::Error) -> StartError {
    StartError::new(format!("listen on {}", path.display()), Step::Link, why)
}

/// Connects to a listening link socket.
pub fn link(path: &Path) -> Result<OwnedFd, StartError> {
    let fail = |e| StartError::new(format!("connect to {}", path.display()), Step::Link, e);
    let address = SockAddr::unix(path).map_err(fail)?;
    let socket = seqpacket().map_err(fail)?;
    socket.connect(&address).map_err(fail)?;
    Ok(socket.into())
}

/// Two links that are connected to each other.
pub fn link_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = Type::SEQPACKET.nonblocking().cloexec();
    let (one, other) = Socket::pair(Domain::UNIX, kind, None)?;
    Ok((one.into(), other.into()))
}

/// Accepts one waiting connection, `None` when there is none.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let result =
        socket2::SockRef::from(&listener).accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    match result {
        Ok((socket, _)) => {
            segments::ask_for_buffers(socket.as_fd(), LINK_BUFFER_BYTES, LINK_BUFFER_BYTES);
            Ok(Some(socket.into()))
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

/// Who is at the other end of a link, as the kernel saw it when the link was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl From<PeerCredentials> for Credentials {
    fn from(PeerCredentials { pid, uid, gid }: PeerCredentials) -> Self {
        Self { uid, gid, pid: pid.unsigned_abs() }
    }
}

/// Asks for the credentials of a link's peer.
pub fn peer_credentials(link: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let unknown = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let (ucred, _) = option(link, libc::SOL_SOCKET, libc::SO_PEERCRED, unknown)?;
    Ok(PeerCredentials { pid: ucred.pid, uid: ucred.uid, gid: ucred.gid })
}

/// How many datagrams the kernel has dropped at this socket since it was made: because its receive
/// buffer was full, and because its filter refused them (both count into the same number;
/// docs/BENCHMARKS.md, the wire). Wraps at 2^32.
pub fn socket_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    /// `SK_MEMINFO_DROPS` and `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
    const DROPS: usize = 8;
    const COUNT: usize = 9;
    let (info, len) = option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, [0_u32; COUNT])?;
    if len < COUNT * size_of::<u32>() {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(info[DROPS])
}

/// How many more datagrams a socket has dropped at one look than at an earlier one. A smaller count
/// is one that the kernel has noted before.
pub const fn drops_since(earlier: u32, now: u32) -> u32 {
    let more = now.wrapping_sub(earlier);
    if more > u32::MAX / 2 { 0 } else { more }
}

/// The address a UDP socket is bound to.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let address = socket2::SockRef::from(&socket).local_addr()?;
    address.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

/// The family of a UDP socket; Unix sockets pass for IPv4, since nobody names their peers.
pub(super) fn family(socket: BorrowedFd<'_>) -> io::Result<Family> {
    let domain = socket2::SockRef::from(&socket).domain()?;
    Ok(if domain == Domain::IPV6 { Family::V6 } else { Family::V4 })
}

fn udp(address: SocketAddr, options: &UdpOptions<'_>) -> Result<Socket, StartError> {
    let family = family_of(address);
    let fail = |what: &str, e| StartError::new(format!("{what} for UDP {address}"), Step::Other, e);
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking().cloexec(), None)
            .map_err(|e| fail("make a socket", e))?;
    if options.reuse_port {
        socket.set_reuse_port(true).map_err(|e| fail("share the port", e))?;
    }
    if family == Family::V6 {
        socket.set_only_v6(options.v6_only).map_err(|e| fail("set IPV6_V6ONLY", e))?;
    }
    configure(&socket, address, options)?;
    Ok(socket)
}

/// Sets what can be set at any time.
fn configure(
    socket: &Socket,
    address: SocketAddr,
    options: &UdpOptions<'_>,
) -> Result<(), StartError> {
    let family = family_of(address);
    let fail = |what: &str, e| StartError::new(format!("{what} for UDP {address}"), Step::Other, e);
    if address.ip().is_unspecified() {
        tell_local_address(socket, family).map_err(|e| fail("ask for local addresses", e))?;
    }
    segments::choose_fragments(socket.as_fd(), family == Family::V6, options.may_fragment)
        .map_err(|e| fail("set path MTU discovery", e))?;
    set_flag(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
        .map_err(|e| fail("ask for drop counts", e))?;
    if options.kernel_time {
        set_flag(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
            .map_err(|e| fail("ask for arrival times", e))?;
    }
    if let Some(filter) = options.filter {
        let attached = socket.attach_filter(&filter::compile(filter));
        attached.map_err(|e| StartError::new("attach a socket filter", Step::Filter, e))?;
    }
    let (receive, send) = (options.receive_buffer_bytes, options.send_buffer_bytes);
    segments::ask_for_buffers(socket.as_fd(), receive as i32, send as i32);
    Ok(())
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), StartError> {
    socket
        .bind(&SockAddr::from(address))
        .map_err(|e| StartError::new(format!("bind UDP {address}"), Step::Bind, e))
}

fn finish(socket: Socket) -> Result<UdpSocket, StartError> {
    let fail = |e| StartError::new("read back a UDP socket's settings", Step::Other, e);
    let receive_buffer_bytes = socket.recv_buffer_size().map_err(fail)?;
    let send_buffer_bytes = socket.send_buffer_size().map_err(fail)?;
    let fd = OwnedFd::from(socket);
    let local = local_address(borrow(&fd)).map_err(fail)?;
    Ok(UdpSocket { fd, local, receive_buffer_bytes, send_buffer_bytes })
}

fn tell_local_address(socket: &Socket, family: Family) -> io::Result<()> {
    match family {
        Family::V4 => set_flag(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        // Tells mapped addresses of IPv4 peers too.
        Family::V6 => set_flag(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

fn report_errors(socket: &Socket, family: Family) -> Result<(), StartError> {
    let result = match family {
        Family::V4 => set_flag(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        Family::V6 => set_flag(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    };
    result.map_err(|e| StartError::new("ask for errors of a UDP link", Step::Other, e))
}

fn seqpacket() -> io::Result<Socket> {
    let kind = Type::SEQPACKET.nonblocking().cloexec();
    let socket = Socket::new(Domain::UNIX, kind, None)?;
    segments::ask_for_buffers(socket.as_fd(), LINK_BUFFER_BYTES, LINK_BUFFER_BYTES);
    Ok(socket)
}

/// Removes the file of a socket of this kind that nobody listens on, or names the process that
/// does. Anything else stays, and makes `bind` fail. What is removed is the name in the folder,
/// whatever it is by then: that much the folder's owner could do as well.
fn remove_stale(path: &Path, kind: Type) -> io::Result<Option<i32>> {
    match knock(path, kind)? {
        Some(Ok(socket)) => peer_credentials(borrow(&socket.into())).map(|peer| Some(peer.pid)),
        Some(Err(e)) => match e.raw_os_error() {
            Some(libc::ECONNREFUSED) => fs::remove_file(path).map(|()| None),
            // A socket of another kind.
            Some(libc::EPROTOTYPE) => Ok(None),
            // Whoever listens has no room for one more who knocks.
            Some(libc::EAGAIN) => Err(io::Error::from_raw_os_error(libc::EADDRINUSE)),
            _ => Err(e),
        },
        None => Ok(None),
    }
}

/// Who listens for links at a path, as the kernel saw it when that began. Removes and makes
/// nothing.
pub fn listening_at(path: &Path) -> Option<PeerCredentials> {
    let link = knock(path, Type::SEQPACKET).ok()??.ok()?;
    peer_credentials(borrow(&link.into())).ok()
}

/// Connects to the socket of this kind at a path, if what is there is a socket.
///
/// What is looked at is held, so that what is connected to is the same file, and no link is
/// followed to a socket elsewhere.
fn knock(path: &Path, kind: Type) -> io::Result<Option<io::Result<Socket>>> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let held = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        held => held?,
    };
    if !held.metadata()?.file_type().is_socket() {
        return Ok(None);
    }
    let address = SockAddr::unix(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
    let socket = Socket::new(Domain::UNIX, kind.nonblocking().cloexec(), None)?;
    Ok(Some(socket.connect(&address).map(|()| socket)))
}

const fn family_of(address: SocketAddr) -> Family {
    match address.ip() {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    fd.as_fd()
}

pub(super) fn set_flag(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
    ringgate_os::option::set(socket.as_fd(), level, name, value)
}

/// Reads an option into a plain value. Returns also how many bytes the kernel wrote.
fn option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    initial: T,
) -> io::Result<(T, usize)> {
    let mut value = MaybeUninit::new(initial);
    let mut len = size_of::<T>() as u32;
    // SAFETY: `value` has room for `len` bytes and outlives the call; the kernel writes no more
    // than `len`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    check(result)?;
    // SAFETY: initialised before the call; the callers' types (integers, `ucred`) are valid for any
    // bytes the kernel writes.
    Ok((unsafe { value.assume_init() }, len as usize))
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Room for about 60 full bundles each way before a link counts as full.
const LINK_BUFFER_BYTES: i32 = 1 << 20;

/// So many who connect may wait at a listening socket of ours.
pub const LISTEN_BACKLOG: i32 = 128;

/// For its owner; root comes in anyway.
const CONTROL_MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_overlap_where_one_holds_the_other() {
        let overlap = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse().expect("an address"));
            assert_eq!(super::overlap(one, other), super::overlap(other, one));
            super::overlap(one, other)
        };
        assert!(overlap("192.0.2.1:7", "192.0.2.1:7") && overlap("0.0.0.0:7", "192.0.2.1:7"));
        assert!(overlap("[::]:7", "[2001:db8::1]:7"));
        assert!(!overlap("192.0.2.1:7", "192.0.2.2:7") && !overlap("192.0.2.1:7", "192.0.2.1:8"));
        assert!(!overlap("[::]:7", "0.0.0.0:7"));
        assert!(!overlap("0.0.0.0:0", "0.0.0.0:0"), "the kernel chooses two ports");
    }
}
