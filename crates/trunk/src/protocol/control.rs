//! What goes by a trunk's stream: frames with the same header as a bundle's records.
//!
//! [`Outbox`] gathers what is to be sent and [`Inbox`] takes apart what has come, each with a
//! bound: a side that does not read is given up, because nothing that must arrive may be dropped.

mod frame;
mod inbox;
mod outbox;
#[cfg(test)]
mod tests;

pub use frame::{
    ALPN, BEAT_NS, Control, Malformed, PEER_ALPN, Reason, VERSION_MAX, VERSION_MIN, Welcome,
};
pub use inbox::Inbox;
pub(in crate::protocol) use outbox::take_off;
pub use outbox::{Outbox, OverFull};
