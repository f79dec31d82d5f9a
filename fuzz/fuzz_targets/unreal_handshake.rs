//! Handshake packets from strangers, in every layout, read by both sides; and clients and servers
//! that are sent anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::endpoint::Endpoint;
use ringgate_core::proto::unreal::bits::terminator;
use ringgate_core::proto::unreal::client::{Client, Profile};
use ringgate_core::proto::unreal::front::{Classified, Identity, classify, encode_within};
use ringgate_core::proto::unreal::handshake::{
    Base, Body, HANDSHAKE_BYTES_MAX, Handshake, Receiver, Tail,
};
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_bots::unreal::StandIn;
use ringgate_core::secret::CookieSecret;

const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 0,
    network_version: 0x1234_5678,
    network_features: 1,
};

fuzz_target!(|data: &[u8]| {
    let Some((&first, datagram)) = data.split_first() else { return };
    let framing = framing(first);
    for receiver in [Receiver::Client, Receiver::Server] {
        if let Ok(Classified::Handshake(packet)) = classify(datagram, &framing, receiver) {
            round_trip(&framing, datagram, receiver, &packet);
            answer(&framing, datagram, &packet);
        }
    }
    // Slower than all the rest, so only where the input asks for it.
    if first & 0x40 != 0 {
        play(&framing, datagram);
    }
});

/// The layout and one of six lengths of magic, from a byte.
fn framing(choice: u8) -> Framing {
    // The first two as in the seeds; the rest by the upper bits.
    let layout = match (choice & 1, choice >> 4 & 3) {
        (1, _) => Layout::Original,
        (_, 1) => Layout::VersionedShort,
        (_, 2) => Layout::Early,
        (_, 3) => Layout::EarlyShort,
        _ => Layout::Versioned,
    };
    let len = [0, 0, 0, 1, 4, 8, 31, 32][usize::from(choice >> 1 & 7)];
    Framing { magic: Magic::from_bits(&[true; 32][..len]).expect("at most 32"), layout }
}

fn tail() -> Tail {
    Tail::draw(&[0x5a; 17])
}

/// What was read is written again with the same bits, but for those that a reader passes over.
fn round_trip(framing: &Framing, datagram: &[u8], receiver: Receiver, packet: &Handshake) {
    let kind = packet.body.kind();
    let end = terminator(datagram).expect("a packet was read");
    let version = packet.base.version;
    let body_end = kind.body_end(framing, version).expect("a packet was read");
    assert!(datagram.len() <= HANDSHAKE_BYTES_MAX && end >= body_end && kind.is_for(receiver));
    let mut buf = [0xee; HANDSHAKE_BYTES_MAX];
    let len = packet.encode(framing, &tail(), &mut buf);
    assert_eq!(kind.packet_bytes(framing, version, tail().bytes().len()), Some(len));
    let read = classify(&buf[..len], framing, receiver);
    let Ok(Classified::Handshake(again)) = read else { panic!("{read:?}") };
    assert_eq!(again, *packet);
}

/// No answer is longer than what it answers.
fn answer(framing: &Framing, datagram: &[u8], request: &Handshake) {
    let identity = Identity { session: framing.layout.ids(2, 0).session(), base: BASE };
    let body = match request.body {
        Body::Response(proof) => Body::Ack(proof.cookie),
        Body::RestartResponse { original, .. } => Body::Ack(original),
        _ => Body::RestartRequest,
    };
    let mut buf = [0; HANDSHAKE_BYTES_MAX];
    let answer = identity.answer(request, body);
    if let Some(len) = encode_within(&answer, framing, tail(), datagram.len(), &mut buf) {
        assert!(len <= datagram.len());
        assert!(classify(&buf[..len], framing, Receiver::Client).is_ok());
    }
}

/// Both ends take anything, and a client goes on asking until it is in.
fn play(framing: &Framing, datagram: &[u8]) {
    let profile = Profile { framing: *framing, client_id: 5, base: BASE };
    let home = Endpoint::v4([192, 0, 2, 1], 7777);
    let secrets = [[1; 64], [2; 64]].map(CookieSecret::from_bytes);
    let mac = |_: &[u8; 64], message: &[u8]| {
        let sum = message.iter().fold(7_u8, |sum, byte| sum.wrapping_mul(31) ^ byte);
        [sum; 20]
    };
    let mut server = StandIn::new(&profile, 1, 1, mac, secrets, 1);
    let mut client = Client::new(&profile, 1);
    let mut out = [0; 2048];
    let mut back = [0; 2048];
    for now_s in 1..4_u64 {
        let now_ns = now_s * 1_000_000_000;
        let _refused = client.handle_datagram(now_ns, datagram);
        let _refused = server.handle_datagram(now_ns, home, datagram, &tail(), &mut back);
        if let Some(len) = client.poll_transmit(now_ns, &tail(), &mut out)
            && let Ok(len) = server.handle_datagram(now_ns, home, &out[..len], &tail(), &mut back)
        {
            let _refused = client.handle_datagram(now_ns, &back[..len]);
        }
    }
}
