//! What any of our processes is, whatever its role: gateway, agent or token service.
//!
//! A role says what is answered; what is the same in each role is here, once.

pub mod client;
pub mod confine;
pub mod doors;
pub mod handover;
pub mod levels;
pub mod logging;
pub mod pages;
pub mod privileges;
pub mod reloads;
pub mod role;
pub mod signals;
pub mod systemd;
