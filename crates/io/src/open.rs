//! Choosing a driver, once, at start.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{Bell, Driver, IoStats, MmsgDriver, SocketKind, StartError, UringDriver, Wait};
use ringgate_batch::{RxBatch, SocketId, TxBatch};

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where it works, else `recvmmsg`.
    #[default]
    Auto,
    /// `recvmmsg` and `sendmmsg`.
    Mmsg,
    /// io_uring, or an error that says why not.
    Uring,
}

/// How large a driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Receive slots for datagrams, a power of two: the most that one turn takes in. They are used
    /// in rotation, so all of them should stay in the cache beside everything else that a turn
    /// touches. What is more waits in the sockets.
    pub small_slots: u16,
    /// Receive slots for bundles, a power of two.
    pub large_slots: u16,
    /// Sockets that are registered with an io_uring, which saves the kernel a look-up per request
    /// (1 %). Further sockets do without. Takes no more than `RLIMIT_NOFILE`.
    pub registered_sockets: u16,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { small_slots: 64, large_slots: 16, registered_sockets: 1024 }
    }
}

/// Either driver. Dispatches once per batch.
#[derive(Debug)]
pub enum AnyDriver {
    /// `recvmmsg` and `sendmmsg`, and why it is not io_uring where that was left to chance.
    Mmsg(Box<MmsgDriver>, Option<StartError>),
    /// io_uring.
    Uring(Box<UringDriver>),
}

/// Opens a driver and the batch that it fills, and no other.
pub fn open(choice: Choice, options: &DriverOptions) -> Result<(AnyDriver, RxBatch), StartError> {
    let why_not = match choice {
        Choice::Mmsg => None,
        Choice::Auto | Choice::Uring => match UringDriver::open(options) {
            Ok((driver, rx)) => return Ok((AnyDriver::Uring(Box::new(driver)), rx)),
            Err(why) if choice == Choice::Uring => return Err(why),
            Err(why) => Some(why),
        },
    };
    let (driver, rx) = MmsgDriver::open(options)?;
    Ok((AnyDriver::Mmsg(Box::new(driver), why_not), rx))
}

impl AnyDriver {
    /// Why the driver is not io_uring, where [`Choice::Auto`] had to do without it: for one line in
    /// the log.
    pub const fn why_not_uring(&self) -> Option<&StartError> {
        match self {
            Self::Mmsg(_, why) => why.as_ref(),
            Self::Uring(_) => None,
        }
    }
}

impl AnyDriver {
    /// Why a ring takes more than a driver's requests, where it does.
    pub const fn why_unrestricted(&self) -> Option<&io::Error> {
        match self {
            Self::Mmsg(..) => None,
            Self::Uring(driver) => driver.why_unrestricted(),
        }
    }
}

/// Does the same with whichever driver it is.
macro_rules! either {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Self::Mmsg($driver, _) => $call,
            Self::Uring($driver) => $call,
        }
    };
}

impl Driver for AnyDriver {
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId> {
        either!(self, driver => driver.register(socket, kind))
    }

    fn deregister(&mut self, socket: SocketId) {
        either!(self, driver => driver.deregister(socket));
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        either!(self, driver => driver.hold(socket, is_held));
    }

    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>> {
        either!(self, driver => driver.fd(socket))
    }

    fn flush(&mut self, tx: &mut TxBatch) {
        either!(self, driver => driver.flush(tx));
    }

    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()> {
        either!(self, driver => driver.turn(rx, wait))
    }

    fn bell(&self) -> Bell {
        either!(self, driver => driver.bell())
    }

    fn stats(&self) -> IoStats {
        either!(self, driver => driver.stats())
    }

    fn name(&self) -> &'static str {
        either!(self, driver => driver.name())
    }
}
