//! What workers and the control thread say to a gate, and what it asks of its worker.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::capture::Capture;
use crate::elsewhere::Elsewhere;
use crate::ids::{BackendId, BindId, ListenerId, MemberId, WorkerId};
use crate::moves::MoveOrder;
use crate::setup::Setup;
use crate::store::table::Address;
use crate::survey::Survey;
use crate::trace::Trace;
use ringgate_batch::{Endpoint, LocalIp, SocketId};
use ringgate_cluster::wire::HOPS_MAX;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_link::bundle::SessionId;

/// A message to a gate, from another worker's gate or from the control thread.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a datagram travels inline so that forwarding allocates nothing"
)]
pub enum Mail {
    /// Copy datagrams for an operator.
    Capture(Arc<Capture>),
    /// A datagram that belongs to a session of the receiver, or may.
    Datagram(ForwardedDatagram),
    /// Stop taking players in; those who are here stay, for at most this long.
    Drain {
        /// Told to the backends.
        left_ms: u32,
    },
    /// Whether a process listens where a udp backend should.
    Listening(Listening),
    /// Players are to play at other backends, as far as they are the receiver's.
    Move(Arc<[Arc<MoveOrder>]>),
    /// The owner of a session gives it to this gateway.
    Offered(Offered),
    /// Players have logged in elsewhere: these sessions of theirs end, as far as they are the
    /// receiver's.
    Oust(Arc<[SessionId]>),
    /// New keys, routes, backends and limits. Listeners and backends keep their numbers.
    Setup(Arc<Setup>),
    /// Datagrams from this address belong to that worker now.
    Steer(Steering),
    /// End every session, telling each player.
    Stop,
    /// A player wants to log in whose client id has this session.
    Rival(Rivalry),
    /// Look through all sessions.
    Survey(Arc<Survey>),
    /// Tell what is decided about these packets.
    Trace(Arc<Trace>),
    /// Take players in again. The backends are told.
    Undrain,
    /// Datagrams from this address belong to no session any more.
    Unsteer(Steering),
}

/// A session that is in the way of another login of its client id.
#[derive(Clone, Copy, Debug)]
pub struct Rivalry {
    pub(crate) session: SessionId,
    /// Where the other login has proved to be, and where it would play: the session ends if it is
    /// silent and the login has room then. Without, it is only noted whether it is silent.
    pub(crate) proven: Option<(Endpoint, BackendId)>,
}

/// A session that this gateway is to go on with, whether its player's datagrams come in here or
/// not.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Where its player is.
    pub address: Address,
    /// Which of the listener's addresses the player talks to.
    pub bind: BindId,
    /// Which of the host's addresses that is, where the listener's stands for several.
    pub local: LocalIp,
}

/// Which worker an address belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    pub(crate) address: Address,
    pub(crate) worker: WorkerId,
    /// The sequence that the address's session had come to, where it is over.
    pub(crate) departed_at: Option<u64>,
}

/// A datagram on its way between two workers, or two gateways. One that has come from another
/// gateway does not go to another one again.
#[derive(Clone, Debug)]
pub struct ForwardedDatagram {
    pub(crate) address: Address,
    /// Which of the listener's sockets it came in through.
    pub(crate) bind: BindId,
    pub(crate) local: LocalIp,
    pub(crate) kernel_ns: u64,
    /// It comes from an unknown port, and may belong to a session of that address.
    pub(crate) is_lost: bool,
    /// Whom it is for.
    pub(crate) to: Elsewhere,
    /// Who received it.
    pub(crate) by: Elsewhere,
    /// How often members have forwarded it, the time to come included.
    pub(crate) hops: u8,
    pub(crate) len: u16,
    pub(crate) bytes: [u8; UNREAL_BYTES_MAX],
}

/// How a datagram has come to the worker that looks at it.
#[derive(Clone, Copy)]
pub(crate) struct Mailed {
    /// Who received it.
    pub(crate) by: Elsewhere,
    /// It comes from an unknown port, and may belong to a session of that address.
    pub(crate) is_lost: bool,
}

impl ForwardedDatagram {
    /// What a member has received, for one of this gateway's workers. `None` where it is longer
    /// than any datagram of a player.
    pub fn of_member(
        (by, to): (MemberId, WorkerId),
        address: Address,
        (bind, local): (BindId, LocalIp),
        is_lost: bool,
        bytes: &[u8],
    ) -> Option<Self> {
        let mut datagram = Self {
            address,
            bind,
            local,
            kernel_ns: 0,
            is_lost,
            to: Elsewhere::Worker(to),
            by: Elsewhere::Member(by),
            hops: HOPS_MAX,
            len: bytes.len() as u16,
            bytes: [0; UNREAL_BYTES_MAX],
        };
        datagram.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(datagram)
    }

    /// Memory that any can be copied into.
    pub fn blank() -> Self {
        let address = Address { listener: ListenerId(0), endpoint: Endpoint::v4([0; 4], 0) };
        let (local, first) = (LocalIp::UNSPECIFIED, Elsewhere::Worker(WorkerId(0)));
        Self {
            address,
            bind: BindId(0),
            local,
            kernel_ns: 0,
            is_lost: false,
            to: first,
            by: first,
            hops: 0,
            len: 0,
            bytes: [0; UNREAL_BYTES_MAX],
        }
    }

    /// Becomes a copy of another one, without the memory that the other does not use.
    pub fn copy_from(&mut self, other: &Self) {
        let Self { address, bind, local, kernel_ns, is_lost, to, by, hops, len, bytes } = self;
        (*address, *bind, *local) = (other.address, other.bind, other.local);
        (*kernel_ns, *is_lost, *to, *by) = (other.kernel_ns, other.is_lost, other.to, other.by);
        (*hops, *len) = (other.hops, other.len);
        bytes[..other.bytes().len()].copy_from_slice(other.bytes());
    }

    /// It was forwarded so often: less than may be, so it may go on.
    #[must_use]
    pub const fn forwarded(mut self, hops: u8) -> Self {
        self.hops = hops;
        self
    }

    /// How often members have forwarded it, the time to come included.
    pub const fn hops(&self) -> u8 {
        self.hops
    }

    /// Where it comes from, and at which listener.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Which of the listener's addresses it was sent to.
    pub const fn bind(&self) -> BindId {
        self.bind
    }

    /// Which of the host's addresses that is, where the listener's stands for several.
    pub const fn local(&self) -> LocalIp {
        self.local
    }

    /// It comes from an unknown port, and may belong to a session of that address.
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// As it was received.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

/// What a gate cannot do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Draw two secrets from the operating system's generator, for
    /// [`Gate::renew_cookies`](crate::Gate::renew_cookies).
    CookieSecrets,
    /// Close a socket: a link whose peer broke the format or was not allowed, or a session's own.
    CloseSocket(SocketId),
    /// Read a link's socket no more, or again.
    HoldLink {
        /// The socket.
        socket: SocketId,
        /// What it brings stays in the kernel.
        is_held: bool,
    },
    /// Make a connected UDP socket toward a backend that is not on loopback, and report it with
    /// [`Gate::bind_session_socket`](crate::Gate::bind_session_socket).
    OpenSessionSocket {
        /// The session.
        session: SessionId,
        /// Where its player plays.
        backend: BackendId,
    },
}

/// Whether a process listens where a udp backend should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The backend.
    pub backend: BackendId,
    /// The address that was looked at: by the time a gate hears of it, the number may be another
    /// backend's.
    pub address: SocketAddr,
    /// Whether a process does.
    pub is_there: bool,
}
