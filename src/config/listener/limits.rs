//! `[listener.limits]`: what one source may take, with the same fields for every protocol.

use crate::config::Limits;
use crate::config::section::Section;
use ringgate_gate::Front;

/// Without a readable protocol nothing comes of it, but its mistakes are noted.
pub(super) fn read(listener: &mut Section<'_, '_>, protocol: Option<Front>) -> Option<Limits> {
    let per_address = match protocol {
        // Anybody who can answer a challenge takes a place in the game.
        Some(Front::Unreal) => UNREAL_SESSIONS_PER_ADDRESS,
        // Every player needs a token of its own.
        Some(Front::Netcode | Front::Plain) | None => 0,
    };
    let mut section = listener.table("limits")?;
    let requests_per_block = count(section.integer("requests_per_block"));
    let handshakes_per_block = count(section.integer("handshakes_per_block"));
    let port_switches_per_block = count(section.integer("port_switches_per_block"));
    let restarts_per_block = count(section.integer("restarts_per_block"));
    let sessions_per_address = count(section.integer_or("sessions_per_address", per_address));
    let sessions_per_block = count(section.integer("sessions_per_block"));
    section.finish();
    Some(Limits {
        requests_per_block: requests_per_block?,
        handshakes_per_block: handshakes_per_block?,
        port_switches_per_block: port_switches_per_block?,
        restarts_per_block: restarts_per_block?,
        sessions_per_address: sessions_per_address?,
        sessions_per_block: sessions_per_block?,
    })
}

fn count(number: Option<u64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// A household or a LAN party.
const UNREAL_SESSIONS_PER_ADDRESS: u64 = 32;
