//! Frames from a wire: whatever is taken for a datagram lies in its frame, and is the same datagram
//! after its headers were written anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_xdp::frame::{self, Arrived, HEADERS_MAX, Leaving, Leg};

fuzz_target!(|bytes: &[u8]| {
    let Ok(arrived) = frame::parse(bytes) else { return };
    let datagram = &bytes[arrived.payload.clone()];
    let Arrived { from, vlan, peer, local, port, .. } = arrived.clone();
    let theirs = LocalIp::v6(*peer.ip_bytes(), 0);
    let own = Endpoint::v6(*local.ip_bytes(), 0, port);
    let leg = Leg { to: *bytes.first_chunk().expect("a header"), from, vlan };
    // A frame whose checksum is left to a card is taken as well.
    for sum_is_left in [false, true] {
        let port = peer.port();
        let leaving =
            Leaving { leg, local: theirs, port, peer: own, fragments: None, sum_is_left };
        let mut room = [0; HEADERS_MAX];
        let len = frame::write_headers(&mut room, &leaving, datagram);
        let again = [&room[HEADERS_MAX - len..], datagram].concat();
        let parsed = frame::parse(&again).expect("a frame of our own");
        assert_eq!(&again[parsed.payload.clone()], datagram);
        let payload = arrived.payload.clone();
        assert_eq!(Arrived { payload, ..parsed }, arrived);
    }
});
