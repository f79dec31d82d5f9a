//! What stands in the place of a card in a build without the feature `xdp`. None can be opened, so
//! its types have no value, and what is asked of one is asked by nobody.

mod choice;
mod drops;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub use self::choice::{CardChoice, CardMode, CardNews, GivenBase, GivenQueue};
pub use self::drops::{CardCounts, CardDrop};
use super::any::{AnyDriver, SocketDriver};
use super::error::StartError;
use super::options::{Choice, DriverOptions};
use ringgate_batch::{IoStats, RxBatch, SocketId, TxBatch};

/// A queue, and what is in the batches of it.
#[derive(Debug)]
pub enum Card {}

/// An interface with our program on it.
#[derive(Debug)]
pub enum CardBase {}

impl CardBase {
    /// Says that this build has none.
    pub fn open(choice: &CardChoice, _: u16) -> Result<Self, StartError> {
        let why = io::Error::other("this ringgate was built without the feature xdp");
        Err(StartError::card(format!("serve by interface {}", choice.interface), why))
    }

    /// The same.
    pub fn adopt(_: &CardChoice, _: GivenBase) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What could be asked of a value, if there were one.
macro_rules! never {
    ($of:ty: $($name:ident($($given:ty),*) -> $answer:ty,)*) => {
        impl $of {
            $(
                /// Nobody can ask.
                pub const fn $name(&self, $(_: $given),*) -> $answer {
                    match *self {}
                }
            )*
        }
    };
}

never! { Card:
    fd() -> BorrowedFd<'_>,
    forget(SocketId) -> (),
    given() -> io::Result<GivenQueue>,
    leaves_sums() -> bool,
    receive(&mut RxBatch, usize, &mut IoStats) -> (),
    resume(&[u32], &mut TxBatch) -> io::Result<()>,
    send(&mut TxBatch, &mut IoStats) -> (),
    serve(SocketId, SocketAddr, bool) -> (),
    settle() -> Vec<u32>,
    syscalls() -> u64,
    take_back() -> (),
}

never! { CardBase:
    addresses() -> usize,
    choice() -> &CardChoice,
    counts(u32, Option<&Card>) -> CardCounts,
    driver(Choice, &DriverOptions, u32, Option<GivenQueue>) -> Result<AnyDriver, StartError>,
    give_queue(u32, &impl SocketDriver) -> io::Result<()>,
    given() -> io::Result<GivenBase>,
    is_attached() -> bool,
    mode_name(Option<&Card>) -> &'static str,
    serve(Vec<SocketAddr>, Vec<SocketAddr>) -> io::Result<()>,
    watch(impl FnMut(CardNews) + Send + 'static) -> io::Result<()>,
}
