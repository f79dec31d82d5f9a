//! The driver over the kernel's sockets: either interface of the kernel, and the batches that it
//! moves datagrams between.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::filter::Filter;
use super::mmsg::Mmsg;
use super::socket::{self, UdpOptions};
use super::uring::Uring;
use super::{Bell, DriverOptions, Interface, SocketKind, StartError};
use ringgate_batch::{Batches, Driver, Flush, IoStats, Port, RxBatch, SocketId, TxBatch, Wait};

/// Moves datagrams with whichever interface this kernel allows. Dispatches once per batch.
#[derive(Debug)]
pub struct AnyDriver {
    interface: Either,
    rx: RxBatch,
    tx: TxBatch,
}

/// Either interface.
#[derive(Debug)]
pub(super) enum Either {
    /// `recvmmsg` and `sendmmsg`, and why it is not io_uring where that was left to chance.
    Mmsg(Box<Mmsg>, Option<StartError>),
    /// io_uring.
    Uring(Box<Uring>),
}

/// What sends the outgoing batch of an [`AnyDriver`].
#[derive(Debug)]
pub struct Out<'a>(&'a mut Either);

/// Does the same with whichever interface it is.
macro_rules! either {
    ($self:expr, $interface:ident => $call:expr) => {
        match $self {
            Either::Mmsg($interface, _) => $call,
            Either::Uring($interface) => $call,
        }
    };
}

impl AnyDriver {
    /// Over an interface and the batch that it fills.
    pub(super) fn new(interface: Either, rx: RxBatch, options: &DriverOptions) -> Self {
        let tx = TxBatch::new(options.tx_datagrams.into(), options.tx_bundles.into());
        Self { interface, rx, tx }
    }

    /// Takes a socket over that was made elsewhere. It must be non-blocking.
    pub fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId> {
        either!(&mut self.interface, interface => interface.register(socket, kind))
    }

    /// What the kernel has dropped at these sockets by now is not counted here: the process that
    /// had them has.
    pub fn forget_drops(&mut self) {
        either!(&mut self.interface, interface => interface.forget_drops());
    }

    /// Every socket, in an order that depends on nothing but when each was registered and closed.
    pub fn sockets(&self) -> Vec<(SocketId, SocketKind)> {
        either!(&self.interface, interface => interface.sockets())
    }

    /// The descriptor of a socket, for options and peer credentials.
    pub fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>> {
        either!(&self.interface, interface => interface.fd(socket))
    }

    /// Something that rings this driver's bell from another thread.
    pub fn bell(&self) -> Bell {
        either!(&self.interface, interface => interface.bell())
    }

    /// Why it is not io_uring, where [`Choice::Auto`](super::Choice) had to do without it: for one
    /// line in the log.
    pub const fn why_not_uring(&self) -> Option<&StartError> {
        match &self.interface {
            Either::Mmsg(_, why) => why.as_ref(),
            Either::Uring(_) => None,
        }
    }

    /// Why a ring takes more than a driver's requests, where it does.
    pub const fn why_unrestricted(&self) -> Option<&io::Error> {
        match &self.interface {
            Either::Mmsg(..) => None,
            Either::Uring(interface) => interface.why_unrestricted(),
        }
    }
}

impl Driver for AnyDriver {
    type Out<'a> = Out<'a>;
    type OpenError = StartError;

    fn open(&mut self, port: &Port<'_>) -> Result<SocketId, StartError> {
        let (fd, kind) = match *port {
            Port::Players { address, filter, may_fragment } => {
                let options = player_options(filter, may_fragment);
                (socket::player(address, &options)?.fd, SocketKind::Datagram)
            }
            Port::UdpLink => (socket::udp_link(&UdpOptions::default())?.fd, SocketKind::Datagram),
            Port::Links { path } => {
                (socket::link_listener(path, LINK_MODE)?, SocketKind::LinkListener)
            }
            Port::Session { address } => {
                let opened = socket::connected(address, &SESSION_SOCKET)?;
                (opened.fd, SocketKind::ConnectedDatagram)
            }
        };
        self.register(fd, kind).map_err(|why| StartError::other("register a socket", why))
    }

    fn close(&mut self, socket: SocketId) {
        either!(&mut self.interface, interface => interface.deregister(socket));
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        either!(&mut self.interface, interface => interface.hold(socket, is_held));
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        either!(&mut self.interface, interface => interface.turn(&mut self.rx, wait))
    }

    fn let_go(&mut self) -> io::Result<()> {
        either!(&mut self.interface, interface => interface.let_go(&mut self.rx))
    }

    fn batches(&mut self) -> Batches<'_, Out<'_>> {
        Batches { rx: &mut self.rx, tx: &mut self.tx, out: Out(&mut self.interface) }
    }

    fn dropped_at(&self, socket: SocketId) -> u64 {
        let drops = self.fd(socket).and_then(|fd| socket::socket_drops(fd).ok());
        drops.map_or(0, u64::from)
    }

    fn stats(&self) -> IoStats {
        either!(&self.interface, interface => interface.stats())
    }

    fn name(&self) -> &'static str {
        either!(&self.interface, interface => interface.name())
    }
}

impl Flush for Out<'_> {
    fn flush(&mut self, tx: &mut TxBatch) {
        either!(&mut self.0, interface => interface.flush(tx));
    }
}

/// Like the socket of [`Port::Players`], made by itself: what an address is claimed with before a
/// driver takes it over.
pub const fn player_options(filter: Option<&Filter>, may_fragment: bool) -> UdpOptions<'_> {
    UdpOptions { reuse_port: true, filter, may_fragment, ..UdpOptions::DEFAULT }
}

/// Whoever reaches the directory may connect; who may say hello is decided by its credentials.
const LINK_MODE: u32 = 0o666;

/// One player's traffic needs no large buffers.
const SESSION_SOCKET: UdpOptions<'_> = UdpOptions {
    receive_buffer_bytes: 256 << 10,
    send_buffer_bytes: 256 << 10,
    kernel_time: false,
    ..UdpOptions::DEFAULT
};
