//! `[listener.limits]`: what one source may take.

use crate::declare::{Declared, declare};
use crate::schema::{Kind, Table};
use crate::section::Section;

declare! {
    /// What one source may take of a listener. 0 is no limit. A block is an IPv4 /24 or an IPv6
    /// /48, an address an IPv4 address or an IPv6 /64. Where a protocol has no such field it is 0.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Connection requests of a block that are looked at, a second. On Unreal listeners:
        /// initials and responses.
        requests_per_block: u32 = integer(0, MAX), default: 2000, Reload, only ["netcode", "unreal"];
        /// Unfinished handshakes of a block, at a time.
        handshakes_per_block: u32 = integer(0, MAX), default: 2000, Reload, only ["netcode", "unreal"];
        /// Sessions of a block that follow their player to another port, a second; twice as many
        /// may come at once.
        port_switches_per_block: u32 = integer(0, MAX), default: 500, Reload, only ["netcode", "unreal"];
        /// Players of a block who are asked to restart their handshake because their port has
        /// changed, a second. Used on Unreal listeners.
        restarts_per_block: u32 = integer(0, MAX), default: 200, Reload, only ["netcode", "unreal"];
        /// Sessions that the sources of a block may begin, a second.
        starts_per_block: u32 = integer(0, MAX), default: 500, Reload, only ["plain"];
        /// Sessions that may begin at all, a second.
        starts: u32 = integer(0, MAX), default: 10000, Reload, only ["plain"];
        /// Sessions of an address, at a time. Without it: 32 on Unreal and plain listeners, where
        /// anybody may come, and 0 on netcode listeners.
        sessions_per_address: u32 = custom(Kind::Integer { min: 0, max: MAX }, of_household), optional: 32, Reload;
        /// Sessions of an IPv6 /56, at a time, which is what many households are given: 256
        /// addresses. Without it: 32 on Unreal and plain listeners, and 0 on netcode listeners.
        sessions_per_site: u32 = custom(Kind::Integer { min: 0, max: MAX }, of_household), optional: 32, Reload;
        /// Sessions of a block, at a time.
        sessions_per_block: u32 = integer(0, MAX), default: 0, Reload;
    }
}

pub(crate) const LIMITS: Table = Table {
    examples: &[],
    ..Table::new(
        "listener.limits",
        "What one source may take of this listener. 0 is no limit, and loopback is a source like any other. A block is an IPv4 \
         /24 or an IPv6 /48, an address an IPv4 address or an IPv6 /64, a site an IPv6 /56. Rates and unfinished handshakes \
         are counted by each worker for itself, sessions over all workers.",
        &[Limits::FIELDS],
    )
};

/// What counters and rates hold with room to spare.
const MAX: u64 = 1_000_000;

/// A household or a LAN party, with one IPv6 /64 or all of a /56.
fn of_household(section: &mut Section<'_, '_>, name: &str) -> Option<u32> {
    // Every netcode player needs a token of its own; elsewhere anybody who can answer takes a place
    // in the game.
    let absent = if section.is_of("unreal") || section.is_of("plain") { 32 } else { 0 };
    section.integer_or(name, absent)
}

/// Without a readable protocol nothing comes of it, but its mistakes are noted.
pub(super) fn read(listener: &mut Section<'_, '_>, name: &str) -> Option<Limits> {
    Limits::read(listener.table(name)?)
}
