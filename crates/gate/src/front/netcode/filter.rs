//! What a netcode listener's socket filter lets pass: lengths and prefixes follow from the packet's
//! kind and the number of its sequence bytes; a request also has to name the version and the
//! protocol id. Everything that passes is checked again.

use ringgate_batch::filter::{Filter, Rule};
use ringgate_core::limits::TAG_BYTES;
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;

/// The filter of a listener with this protocol id.
pub fn filter(protocol_id: u64) -> Filter {
    // The order of their frequency.
    let kinds =
        [PacketKind::Payload, PacketKind::KeepAlive, PacketKind::Disconnect, PacketKind::Response];
    let filter = kinds
        .into_iter()
        .flat_map(|kind| (1..=8_u8).map(move |sequence_bytes| packet(kind, sequence_bytes)))
        .fold(Filter::new(), Filter::allow);
    filter.allow(request(protocol_id))
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

    const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn every_packet_that_a_server_can_use_passes_and_no_other_prefix_does() {
        let filter = filter(PROTOCOL_ID);
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
    fn a_request_has_to_name_version_and_protocol() {
        let filter = filter(PROTOCOL_ID);
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
