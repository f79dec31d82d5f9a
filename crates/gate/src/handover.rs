//! A gate on its way to the next process: everything that it knows, as records in memory that the
//! caller gives, and a gate made of them on the other side.
//!
//! The *predecessor* writes, the *successor* reads. Both run on one host since the same boot, so
//! moments of the monotonic clock mean the same to both. What is large is written *ahead*, while
//! the predecessor still serves: a few places of a table between two turns. After the barrier, when
//! no worker takes turns any more, the *rest* follows: what has changed since, found by comparing
//! a hash of each record with that of the one before, so that no packet pays for a mark and nothing
//! has to be kept that was written; and everything that is small. Both go through a window of
//! memory in parts, so however much it is, it is never there a third time.
//!
//! ```text
//! shared stream    format, keys ┊ used tokens ┊ changed tokens, cookies             end
//! worker's stream  keys         ┊ sessions    ┊ changed sessions, handshakes, free
//!                               ┊             ┊ places, links, counters, …           end
//!                    begin        ahead         rest
//! ```
//!
//! Places, generations and session ids stay what they are, so game processes notice nothing.
//! Numbers of listeners, backends and sockets may be others in the successor: they are mapped while
//! they are read. Who cannot be carried, because the successor has no such listener or backend, is
//! ended and counted. A stream that is not exactly what it should be is refused as a whole.

pub(crate) mod arriving;
pub(crate) mod behind;
mod common;
mod export;
mod fingerprint;
mod format;
mod import;
mod leaving;
mod parts;
mod places;
mod record;
mod shared;
mod sockets;

pub use export::{Ahead, Export};
pub use format::{Format, Kept};
pub use import::{Arrived, Import};
pub use leaving::Leaving;
pub use parts::Rest;
pub use record::{Refused, Sink};
pub use ringgate_core::carry::Maps;
pub use shared::{SharedExport, SharedImport};
pub use sockets::SocketUse;
