//! What a listener's socket filter lets pass, in the driver's words.
//!
//! netcode: lengths and prefixes follow from the packet's kind and the number of its sequence
//! bytes; a request also has to name the version and the protocol id. Unreal: nothing is shorter
//! than a game packet, and everything begins with the game's magic bits, of which a filter sees
//! whole bytes. Everything that passes is checked again by the gate.

use ringgate_batch::filter::{Filter, Rule};
use ringgate_core::limits::{TAG_BYTES, UNREAL_BYTES_MAX};
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;
use ringgate_core::proto::unreal::bits::BitWriter;
use ringgate_core::proto::unreal::notify::packet_bytes_min;
use ringgate_core::proto::unreal::prefix::{Framing, Ids, MAGIC_BITS_MAX, Prefix};

/// The filter of a listener with this protocol id.
pub fn netcode(protocol_id: u64) -> Filter {
    // The order of their frequency.
    let kinds =
        [PacketKind::Payload, PacketKind::KeepAlive, PacketKind::Disconnect, PacketKind::Response];
    let filter = kinds
        .into_iter()
        .flat_map(|kind| (1..=8_u8).map(move |sequence_bytes| packet(kind, sequence_bytes)))
        .fold(Filter::new(), Filter::allow);
    filter.allow(request(protocol_id))
}

/// The filter of a listener whose game's packets begin like this.
pub fn unreal(framing: &Framing) -> Filter {
    let mut start = [0; MAGIC_BITS_MAX / 8 + 1];
    let prefix = Prefix { ids: Ids::default(), is_handshake: false };
    framing.write(prefix, &mut BitWriter::new(&mut start));
    let bytes = packet_bytes_min(framing) as u16..=UNREAL_BYTES_MAX as u16;
    let rule = match &start[..framing.magic.len() / 8] {
        [] => Rule::new(0..=u8::MAX, bytes),
        [first, rest @ ..] => Rule::new(*first..=*first, bytes).with(1, rest),
    };
    Filter::new().allow(rule)
}

fn packet(kind: PacketKind, sequence_bytes: u8) -> Rule {
    let prefix = sequence_bytes << 4 | kind as u8;
    let frame = 1 + usize::from(sequence_bytes) + TAG_BYTES;
    let body = kind.body_bytes();
    let (shortest, longest) = (frame + body.start, frame + body.end - 1);
    Rule::new(prefix..=prefix, shortest as u16..=longest as u16)
}

fn request(protocol_id: u64) -> Rule {
    let bytes = REQUEST_BYTES as u16;
    Rule::new(0..=0, bytes..=bytes)
        .with(1, VERSION_INFO)
        .with(1 + VERSION_INFO.len() as u16, &protocol_id.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::limits::DATAGRAM_BYTES_MAX;
    use ringgate_core::proto::netcode::packet::{Header, Receiver};
    use ringgate_core::proto::netcode::request::Request;
    use ringgate_core::proto::unreal::prefix::{Layout, Magic};

    const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn every_packet_that_a_server_can_use_passes_and_no_other_prefix_does() {
        let filter = netcode(PROTOCOL_ID);
        for prefix in 0..=u8::MAX {
            for len in 0..DATAGRAM_BYTES_MAX + 40 {
                let mut datagram = vec![0x5a; len];
                if let Some(first) = datagram.first_mut() {
                    *first = prefix;
                }
                let is_usable = prefix != 0
                    && Header::decode(&datagram, Receiver::Server).is_ok_and(|header| {
                        let body = len - header.body_start() - TAG_BYTES;
                        header.kind.check_body(body).is_ok()
                    });
                assert_eq!(filter.accepts(&datagram), is_usable, "prefix {prefix:#x}, {len} bytes");
            }
        }
    }

    #[test]
    fn an_unreal_listener_refuses_what_is_too_short_and_other_games_magic() {
        for len in [0, 3, 8, 11, 16, 31, 32] {
            let bits: Vec<bool> = (0..len).map(|bit| bit % 3 == 0).collect();
            for layout in Layout::ALL {
                let magic = Magic::from_bits(&bits).expect("at most 32");
                let framing = Framing { magic, layout };
                let filter = unreal(&framing);
                let mut packet = [0x5a; 60];
                let prefix = Prefix { ids: Ids::new(1, 5), is_handshake: false };
                framing.write(prefix, &mut BitWriter::new(&mut packet));
                let shortest = packet_bytes_min(&framing);
                for bytes in 0..packet.len() {
                    let passes = filter.accepts(&packet[..bytes]);
                    assert_eq!(passes, bytes >= shortest, "{framing:?}, {bytes} bytes");
                }
                for bit in 0..len / 8 * 8 {
                    packet[bit / 8] ^= 1 << (bit % 8);
                    assert!(!filter.accepts(&packet), "{framing:?}, bit {bit}");
                    packet[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    #[test]
    fn a_request_has_to_name_version_and_protocol() {
        let filter = netcode(PROTOCOL_ID);
        let mut request = vec![0; REQUEST_BYTES];
        request[1..14].copy_from_slice(VERSION_INFO);
        request[14..22].copy_from_slice(&PROTOCOL_ID.to_le_bytes());
        request[22..30].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Request::inspect(&request, PROTOCOL_ID, 0).is_ok());
        assert!(filter.accepts(&request));
        for at in 0..22 {
            let mut other = request.clone();
            other[at] ^= 0x80;
            assert!(!filter.accepts(&other), "byte {at}");
        }
        assert!(!filter.accepts(&request[..REQUEST_BYTES - 1]));
    }
}
