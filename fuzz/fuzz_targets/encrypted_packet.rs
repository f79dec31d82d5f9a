//! Encrypted packets: any datagram at both receivers, any opened body, and what we seal ourselves.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::crypto::{Aead, Job, Verdict};
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, TAG_BYTES};
use ringgate_core::proto::netcode::packet::{
    AadTable, Header, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::server::{SessionPacket, pending_packet, session_packet};
use ringgate_core::secret::Key;

const PROTOCOL: u64 = 8_241_984_715_966_477_413;

fuzz_target!(|data: &[u8]| {
    read(data);
    if let Some((head, body)) = data.split_at_checked(10) {
        bodies(head[0], body);
        round_trip(head, &body[..body.len().min(1200)]);
    }
});

fn read(datagram: &[u8]) {
    // The gate reads a header of anything that it has a place for, also where a check has failed.
    let unchecked = Header::read(datagram);
    for receiver in [Receiver::Client, Receiver::Server] {
        let Ok(header) = Header::decode(datagram, receiver) else { continue };
        assert_eq!((Header::check(datagram, receiver), unchecked), (Ok(()), header));
        assert_eq!(PacketKind::of_prefix(header.prefix), Some(header.kind));
        assert!((2..=9).contains(&header.body_start()));
        assert!(header.body_start() + TAG_BYTES <= datagram.len());
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        // The fewest bytes that hold the sequence, or more.
        assert!(Header::new(header.kind, header.sequence).prefix <= header.prefix);
        assert_eq!(AadTable::new(PROTOCOL).of(header.prefix)[21], header.prefix);
    }
}

/// Opened bodies: authentic, but from a client that may be faulty.
fn bodies(prefix: u8, body: &[u8]) {
    let Some(kind) = PacketKind::of_prefix(prefix) else { return };
    if let Ok(packet) = session_packet(kind, body) {
        assert_eq!(kind.check_body(body.len()), Ok(()));
        assert!(kind.is_replay_protected());
        if let SessionPacket::Payload(payload) = packet {
            assert_eq!(payload, body);
        }
    }
    let mut copy = body.to_vec();
    if let Ok((sequence, token)) = pending_packet(kind, &mut copy) {
        assert_eq!(kind, PacketKind::Response);
        assert_eq!((&sequence.to_le_bytes()[..], &token[..]), body.split_at(8));
    }
}

fn round_trip(head: &[u8], body: &[u8]) {
    let Some(kind) = PacketKind::of_prefix(head[0]).filter(|kind| kind.is_replay_protected())
    else {
        return;
    };
    let shift = u32::from(head[1] % 64);
    let sequence = u64::from_le_bytes(head[2..].try_into().expect("8 bytes")) >> shift;
    let key = Key::from_bytes([head[1]; 32]);
    let aad = AadTable::new(PROTOCOL);
    let mut aead = Aead::detect();

    let mut out = [0xff; DATAGRAM_BYTES_MAX];
    let (written, len) = encode_packet(kind, sequence, body, &mut out);
    let packet = &mut out[..len];
    let sealed = &mut packet[written.body_start()..];
    aead.seal(&mut [Job::new(&key, written.nonce(), aad.of(written.prefix), sealed)]);

    // A flipped bit is noticed, wherever the header still says where to look.
    let mut forged = packet.to_vec();
    let bit = usize::from(head[9]) * forged.len() / 256;
    forged[bit] ^= 1 << (head[8] % 8);
    if let Ok(header) = Header::decode(&forged, Receiver::Server) {
        let sealed = &mut forged[header.body_start()..];
        let mut jobs = [Job::new(&key, header.nonce(), aad.of(header.prefix), sealed)];
        aead.open(&mut jobs);
        assert_eq!(jobs[0].verdict, Verdict::Forged);
    }

    for receiver in [Receiver::Client, Receiver::Server] {
        let header = Header::decode(packet, receiver).expect("a packet of our own");
        assert_eq!((header, header.sequence), (written, sequence));
    }
    let sealed = &mut packet[written.body_start()..];
    let mut jobs = [Job::new(&key, written.nonce(), aad.of(written.prefix), sealed)];
    aead.open(&mut jobs);
    assert_eq!(jobs[0].verdict, Verdict::Done);
    assert_eq!(packet[written.body_start()..len - TAG_BYTES], *body);
}
