//! What attackers of netcode listeners send.
//!
//! They know what is on the wire: the protocol id, how packets begin, and packets that were sent
//! before. Where an attack is about valid tokens they have tokens of their own, but no other keys.

use std::io;

use ringgate_core::netcode::ConnectToken;
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::{REQUEST_BYTES, encode_request};
use ringgate_os::clock;

use super::kind::{ADDRESSES, FIRST_ADDRESS, Kind, Options, Recording, random_address};
use crate::players::Protocol;
use crate::rng::Rng;

/// Writes the datagram with this number. Returns the address it comes from, and its length.
pub(super) fn write(
    options: &Options,
    recording: &Recording,
    count: u32,
    rng: &mut Rng,
    slot: &mut [u8],
) -> (u32, usize) {
    match options.kind {
        Kind::Junk => {
            let len = rng.between(1, 1400) as usize;
            rng.fill(&mut slot[..len]);
            (random_address(rng.word()), len)
        }
        Kind::ForgedRequest => {
            rng.fill(&mut slot[..REQUEST_BYTES]);
            slot[0] = 0;
            slot[1..14].copy_from_slice(VERSION_INFO);
            slot[14..22].copy_from_slice(&options.protocol_id.to_le_bytes());
            slot[22..30].copy_from_slice(&(clock::unix_seconds() + 60).to_le_bytes());
            (random_address(rng.word()), REQUEST_BYTES)
        }
        Kind::ReplayedToken | Kind::SlowHandshake => {
            let bytes = &recording.packets[count as usize % recording.packets.len()];
            slot[..bytes.len()].copy_from_slice(bytes);
            (FIRST_ADDRESS + 1 + count % ADDRESSES, bytes.len())
        }
        Kind::ReplayedCapture => {
            let bytes = &recording.packets[count as usize % recording.packets.len()];
            slot[..bytes.len()].copy_from_slice(bytes);
            let len = bytes.len();
            let address =
                if rng.below(2) == 0 { recording.from } else { random_address(rng.word()) };
            (address, len)
        }
        Kind::ForgedPayload | Kind::ForgedDisconnect => {
            let (kind, len) = match options.kind {
                Kind::ForgedDisconnect => (PacketKind::Disconnect, 1 + 4 + 16),
                _ => (PacketKind::Payload, 1 + 4 + 100 + 16),
            };
            rng.fill(&mut slot[..len]);
            slot[0] = 4 << 4 | kind as u8;
            // A plausible sequence: not too far from what a session has reached after some
            // seconds.
            slot[1..5].copy_from_slice(&(rng.below(2000) as u32).to_le_bytes());
            (options.victim(rng), len)
        }
        _ => unreachable!("no other attack is one on netcode listeners"),
    }
}

/// A token of the attacker's own.
pub(super) fn token(protocol: &Protocol, client: u64) -> io::Result<ConnectToken> {
    let Protocol::Netcode(tokens) = protocol else {
        return Err(io::Error::other("this attack is one on netcode listeners"));
    };
    tokens.wait(ATTACKER_IDS + client).map_err(io::Error::other)
}

/// A valid request.
pub(super) fn request(protocol: &Protocol, client: u64) -> io::Result<Vec<u8>> {
    let token = token(protocol, client)?;
    let mut request = [0; REQUEST_BYTES];
    encode_request(&token, &mut request);
    Ok(request.to_vec())
}

/// What the prefix says, which anybody can read.
pub(super) fn is_payload(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & 15 == PacketKind::Payload as u8)
}

/// Attackers' client ids begin here; players' are below.
const ATTACKER_IDS: u64 = 1 << 63;
