//! Players of any game over UDP: datagrams pass as they are, and a source address is a session.
//!
//! Nothing is proven here. So a session is *half open* until its source has sent again after an
//! answer: until then it holds no slot, its place may go to whoever comes later, and its source is
//! sent little more than it has sent. A spoofer sends twice as well as a player does. So the source
//! of an open session is sent what it earns by what is heard of it, for as long as the session
//! lasts, unless the game has an echo that proves it.

pub(crate) mod addresses;
pub(crate) mod clustering;
pub(crate) mod credit;
pub(crate) mod datagrams;
pub(crate) mod echo;
pub(crate) mod ending;
pub(crate) mod filter;
pub(crate) mod guards;
pub(crate) mod handed;
pub(crate) mod kinds;
pub(crate) mod links;
pub(crate) mod opening;
pub(crate) mod proof;
pub(crate) mod relay;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod takeover;
pub(crate) mod unproven;
