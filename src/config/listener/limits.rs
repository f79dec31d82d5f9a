//! `[listener.limits]`: what one source may take.

use crate::config::Limits;
use crate::config::section::Section;
use ringgate_gate::Front;

/// Without a readable protocol nothing comes of it, but its mistakes are noted.
pub(super) fn read(listener: &mut Section<'_, '_>, protocol: Option<Front>) -> Option<Limits> {
    let per_address = match protocol {
        // Anybody who can answer takes a place in the game.
        Some(Front::Unreal | Front::Plain) => SESSIONS_PER_ADDRESS,
        // Every player needs a token of its own.
        Some(Front::Netcode) | None => 0,
    };
    let has_handshakes = protocol != Some(Front::Plain);
    let has_starts = protocol.is_none_or(|protocol| protocol == Front::Plain);
    let mut section = listener.table("limits")?;
    let requests_per_block = one_of(has_handshakes, "requests_per_block", &mut section);
    let handshakes_per_block = one_of(has_handshakes, "handshakes_per_block", &mut section);
    let port_switches_per_block = one_of(has_handshakes, "port_switches_per_block", &mut section);
    let restarts_per_block = one_of(has_handshakes, "restarts_per_block", &mut section);
    let starts_per_block = one_of(has_starts, "starts_per_block", &mut section);
    let starts = one_of(has_starts, "starts", &mut section);
    let sessions_per_address = count(section.integer_or("sessions_per_address", per_address));
    let sessions_per_site = count(section.integer_or("sessions_per_site", per_address));
    let sessions_per_block = count(section.integer("sessions_per_block"));
    section.finish();
    Some(Limits {
        requests_per_block: requests_per_block?,
        handshakes_per_block: handshakes_per_block?,
        port_switches_per_block: port_switches_per_block?,
        restarts_per_block: restarts_per_block?,
        starts_per_block: starts_per_block?,
        starts: starts?,
        sessions_per_address: sessions_per_address?,
        sessions_per_site: sessions_per_site?,
        sessions_per_block: sessions_per_block?,
    })
}

/// A limit that not all protocols have.
fn one_of(is_there: bool, name: &str, section: &mut Section<'_, '_>) -> Option<u32> {
    if is_there { count(section.integer(name)) } else { Some(0) }
}

fn count(number: Option<u64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// A household or a LAN party, with one IPv6 /64 or all of a /56.
const SESSIONS_PER_ADDRESS: u64 = 32;
