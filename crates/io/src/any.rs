//! The driver over the kernel's sockets: either interface of the kernel, and the batches that it
//! moves datagrams between.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::StartError;
use super::bell::Bell;
use super::card::Card;
use super::filter::Filter;
use super::interface::{Interface, SocketKind};
use super::mmsg::Mmsg;
use super::options::DriverOptions;
use super::socket::{self, UdpOptions};
use super::uring::Uring;

use ringgate_batch::{Batches, Driver, Flush, IoStats, Port, RxBatch, SocketId, TxBatch, Wait};

/// A [`Driver`] over sockets of this host, each with a descriptor, and what may be beside them.
pub trait SocketDriver: Driver<OpenError = StartError> + Send + 'static {
    /// Takes a socket over that was made elsewhere. It must be non-blocking.
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId>;

    /// The descriptor of a socket, for options and peer credentials.
    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>>;

    /// Something that rings this driver's bell from another thread.
    fn bell(&self) -> Bell;

    /// Waits that end when something arrives end also when this is readable. It stays open for as
    /// long as the driver lives.
    fn watch(&mut self, beside: RawFd);

    /// What the kernel has dropped at these sockets by now is not counted here: the process that
    /// had them has.
    fn forget_drops(&mut self);

    /// The queue of a network interface beside the sockets.
    fn card(&self) -> Option<&Card>;

    /// Datagrams for the address of a registered socket may come and go in frames from now on: that
    /// is for a program to decide, and for routes. Does nothing where there is no card.
    fn serve_by_card(&mut self, socket: SocketId, address: SocketAddr, may_fragment: bool);

    /// Between two turns, nothing written since: the kernel knows everything about the card's
    /// queue. Returns the frames that another process may have.
    fn settle_card(&mut self) -> Vec<u32>;

    /// Goes on with the frames that another process had.
    fn resume_card(&mut self, frames: &[u32]) -> io::Result<()>;
}

/// Moves datagrams with whichever interface this kernel allows. Dispatches once per batch.
#[derive(Debug)]
pub struct AnyDriver {
    interface: Either,
    rx: RxBatch,
    tx: TxBatch,
    /// Frames, past the kernel's sockets.
    card: Option<Box<Card>>,
    /// The most that one turn takes of those.
    frames_max: usize,
    /// Of what came and went in frames.
    counted: IoStats,
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
pub struct Out<'a> {
    interface: &'a mut Either,
    card: Option<&'a mut Card>,
    counted: &'a mut IoStats,
}

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
    pub(super) fn new(interface: Either, rx: RxBatch, tx: TxBatch) -> Self {
        let counted = IoStats::default();
        Self { interface, rx, tx, card: None, frames_max: 0, counted }
    }

    /// The same with a card, with which it shares the memory of both batches.
    pub(super) fn with_card(mut self, card: Card, options: &DriverOptions) -> Self {
        let fd = card.fd().as_raw_fd();
        either!(&mut self.interface, interface => interface.watch(fd));
        let frames_max = usize::from(options.small_slots);
        Self { card: Some(Box::new(card)), frames_max, ..self }
    }

    /// Takes what has come in frames into a batch that the interface has filled.
    fn take_frames(&mut self) {
        let Self { rx, card, frames_max, counted, .. } = self;
        if let Some(card) = card {
            let room = frames_max.saturating_sub(rx.len()).max(FRAMES_MIN);
            card.receive(rx, room, counted);
        }
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

impl SocketDriver for AnyDriver {
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId> {
        either!(&mut self.interface, interface => interface.register(socket, kind))
    }

    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>> {
        either!(&self.interface, interface => interface.fd(socket))
    }

    fn bell(&self) -> Bell {
        either!(&self.interface, interface => interface.bell())
    }

    fn watch(&mut self, beside: RawFd) {
        either!(&mut self.interface, interface => interface.watch(beside));
    }

    fn forget_drops(&mut self) {
        either!(&mut self.interface, interface => interface.forget_drops());
    }

    fn card(&self) -> Option<&Card> {
        self.card.as_deref()
    }

    fn serve_by_card(&mut self, socket: SocketId, address: SocketAddr, may_fragment: bool) {
        if let Some(card) = &mut self.card {
            card.serve(socket, address, may_fragment);
        }
    }

    fn settle_card(&mut self) -> Vec<u32> {
        self.rx.clear();
        self.card.as_mut().map_or_else(Vec::new, |card| card.settle())
    }

    fn resume_card(&mut self, frames: &[u32]) -> io::Result<()> {
        match &mut self.card {
            Some(card) => card.resume(frames, &mut self.tx),
            None => Ok(()),
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
        if let Some(card) = &mut self.card {
            card.forget(socket);
        }
        either!(&mut self.interface, interface => interface.deregister(socket));
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        either!(&mut self.interface, interface => interface.hold(socket, is_held));
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        let Self { interface, rx, card, .. } = self;
        let Some(card) = card else {
            return either!(interface, interface => interface.turn(rx, wait));
        };
        rx.clear();
        card.take_back();
        // What there is in frames is looked for before there is a wait for more.
        let first = if matches!(wait, Wait::AtMost(_)) { Wait::No } else { wait };
        either!(interface, interface => interface.turn(rx, first))?;
        if rx.is_of_links {
            return Ok(());
        }
        self.take_frames();
        if first == wait || !self.rx.is_empty() {
            return Ok(());
        }
        either!(&mut self.interface, interface => interface.turn(&mut self.rx, wait))?;
        self.take_frames();
        Ok(())
    }

    fn let_go(&mut self) -> io::Result<()> {
        if let Some(card) = &mut self.card {
            self.rx.clear();
            card.take_back();
        }
        either!(&mut self.interface, interface => interface.let_go(&mut self.rx))?;
        self.take_frames();
        Ok(())
    }

    fn batches(&mut self) -> Batches<'_, Out<'_>> {
        let Self { interface, rx, tx, card, counted, .. } = self;
        Batches { rx, tx, out: Out { interface, card: card.as_deref_mut(), counted } }
    }

    fn dropped_at(&self, socket: SocketId) -> u64 {
        let drops = self.fd(socket).and_then(|fd| socket::socket_drops(fd).ok());
        drops.map_or(0, u64::from)
    }

    fn stats(&self) -> IoStats {
        let stats = either!(&self.interface, interface => interface.stats());
        let Some(card) = &self.card else { return stats };
        IoStats {
            syscalls: stats.syscalls + card.syscalls(),
            rx_datagrams: stats.rx_datagrams + self.counted.rx_datagrams,
            rx_bytes: stats.rx_bytes + self.counted.rx_bytes,
            tx_datagrams: stats.tx_datagrams + self.counted.tx_datagrams,
            tx_bytes: stats.tx_bytes + self.counted.tx_bytes,
            ..stats
        }
    }

    fn name(&self) -> &'static str {
        either!(&self.interface, interface => interface.name())
    }
}

impl Flush for Out<'_> {
    fn flush(&mut self, tx: &mut TxBatch) {
        if let Some(card) = &mut self.card {
            card.send(tx, self.counted);
        }
        either!(&mut self.interface, interface => interface.flush(tx));
    }
}

/// Like the socket of [`Port::Players`], made by itself: what an address is claimed with before a
/// driver takes it over.
pub const fn player_options(filter: Option<&Filter>, may_fragment: bool) -> UdpOptions<'_> {
    UdpOptions { reuse_port: true, filter, may_fragment, ..UdpOptions::DEFAULT }
}

/// Frames that a turn takes in, however much has come by sockets.
const FRAMES_MIN: usize = 16;

/// Whoever reaches the directory may connect; who may say hello is decided by its credentials.
const LINK_MODE: u32 = 0o666;

/// One player's traffic needs no large buffers.
const SESSION_SOCKET: UdpOptions<'_> = UdpOptions {
    receive_buffer_bytes: 256 << 10,
    send_buffer_bytes: 256 << 10,
    kernel_time: false,
    ..UdpOptions::DEFAULT
};
