//! Choosing a driver, once, at start.

use std::sync::Arc;

use super::StartError;
use super::any::{AnyDriver, Either};
use super::card::{Card, CardOptions, GivenQueue, Opened};
use super::mmsg::Mmsg;
use super::uring::Uring;
use ringgate_batch::{Arena, RxBatch, TxBatch};

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
    /// Datagrams that leave in one flush: by default twice as many as one system call takes, few
    /// enough that a core's first caches still hold what was written when it is sealed and sent.
    pub tx_datagrams: u16,
    /// Bundles that leave in one flush, one for each backend with traffic in the turn; more
    /// backends than this flush twice.
    pub tx_bundles: u16,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            small_slots: 64,
            large_slots: 16,
            registered_sockets: 1024,
            tx_datagrams: 128,
            tx_bundles: 64,
        }
    }
}

/// Opens a driver.
pub fn open(choice: Choice, options: &DriverOptions) -> Result<AnyDriver, StartError> {
    let (interface, rx) = interface(choice, options, None)?;
    let tx = TxBatch::new(options.tx_datagrams.into(), options.tx_bundles.into());
    Ok(AnyDriver::new(interface, rx, tx))
}

/// Opens a driver that serves a queue of a network interface beside its sockets.
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
/// [`AnyDriver::resume_card`].
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
