//! Choosing a driver, once, at start.

use std::sync::Arc;

use super::StartError;
use super::any::{AnyDriver, Either};
#[cfg(feature = "xdp")]
use super::card::{Card, CardBase, CardOptions, GivenQueue, Opened};
use super::mmsg::Mmsg;
use super::options::{Choice, DriverOptions};
use super::uring::Uring;
use ringgate_batch::{Arena, RxBatch, TxBatch};

/// Opens a driver.
pub fn open(choice: Choice, options: &DriverOptions) -> Result<AnyDriver, StartError> {
    let (interface, rx) = interface(choice, options, None)?;
    let tx = TxBatch::new(options.tx_datagrams.into(), options.tx_bundles.into());
    Ok(AnyDriver::new(interface, rx, tx))
}

#[cfg(feature = "xdp")]
impl CardBase {
    /// Opens a driver that serves one of its queues beside its sockets, or goes on with what
    /// another process has given of that.
    pub fn driver(
        &self,
        choice: Choice,
        options: &DriverOptions,
        queue: u32,
        given: Option<GivenQueue>,
    ) -> Result<AnyDriver, StartError> {
        let card = self.options(queue);
        match given {
            None => open_with_card(choice, options, &card),
            Some(given) => open_with_given_card(choice, options, &card, given),
        }
    }
}

/// Opens a driver that serves a queue of a network interface beside its sockets.
#[cfg(feature = "xdp")]
pub fn open_with_card(
    choice: Choice,
    options: &DriverOptions,
    card: &CardOptions,
) -> Result<AnyDriver, StartError> {
    let fail = |why| StartError::card("open an AF_XDP queue", why);
    let Opened { card, arena, tx } = Card::open(card, options).map_err(fail)?;
    let (interface, rx) = interface(choice, options, Some(arena))?;
    Ok(AnyDriver::new(interface, rx, tx).with_card(card, options))
}

/// The same with a queue that another process has opened. It receives and sends nothing before
/// [`SocketDriver::resume_card`](super::SocketDriver::resume_card).
#[cfg(feature = "xdp")]
pub fn open_with_given_card(
    choice: Choice,
    options: &DriverOptions,
    card: &CardOptions,
    given: GivenQueue,
) -> Result<AnyDriver, StartError> {
    let fail = |why| StartError::card("go on with an AF_XDP queue", why);
    let Opened { card, arena, tx } = Card::adopt(card, options, given).map_err(fail)?;
    let (interface, rx) = interface(choice, options, Some(arena))?;
    Ok(AnyDriver::new(interface, rx, tx).with_card(card, options))
}

/// Opens an interface and the batch that it fills, and no other.
fn interface(
    choice: Choice,
    options: &DriverOptions,
    arena: Option<Arc<Arena>>,
) -> Result<(Either, RxBatch), StartError> {
    let why_not = match choice {
        Choice::Mmsg => None,
        Choice::Auto | Choice::Uring => match Uring::open(options, arena.clone()) {
            Ok((interface, rx)) => return Ok((Either::Uring(Box::new(interface)), rx)),
            Err(why) if choice == Choice::Uring => return Err(why),
            Err(why) => Some(why),
        },
    };
    let (interface, rx) = Mmsg::open(options, arena)?;
    Ok((Either::Mmsg(Box::new(interface), why_not), rx))
}
