//! Game packets: headers read in place, a filter that is sent anything, ids that are exchanged, and
//! an end of a connection that believes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_bots::unreal::peer::Peer;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::notify::{
    Filter, Gaps, Header, LEAP_MAX, QUIET_NS, Sender, packet_bytes_min,
};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Layout, Magic};

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<21>() else { return };
    let [choice, cookie @ ..] = *head;
    let (framing, cookie) = (framing(choice), Cookie(cookie));
    let mut filter = Filter::starting_at(&cookie, 0);
    let mut peers = [Sender::Client, Sender::Server].map(|side| Peer::new(side, &cookie));
    let mut input = rest;
    let mut gaps = Gaps { now_ns: 0, limit: u16::from(choice >> 4) * 500 };
    // Each step is a length, who sends, and a datagram.
    while let Some((&[len, who], after)) = input.split_first_chunk() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(len)));
        input = after;
        // Time stands still, or passes fast enough for every jump.
        gaps.now_ns += u64::from(who >> 1 & 1) * QUIET_NS;
        let (from, peer) = match who & 1 {
            0 => (Sender::Client, &mut peers[1]),
            _ => (Sender::Server, &mut peers[0]),
        };
        rewrite(&framing, datagram, who);
        step(&framing, datagram, from, gaps, &mut filter, peer);
    }
});

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

fn step(
    framing: &Framing,
    datagram: &[u8],
    from: Sender,
    gaps: Gaps,
    filter: &mut Filter,
    peer: &mut Peer,
) {
    let Ok((_, reader)) = framing.read(datagram) else { return };
    let Ok(header) = Header::read(reader) else { return };
    assert!(datagram.len() >= packet_bytes_min(framing));
    assert!(header.payload().remaining() > 0);
    let before = filter.latest(from);
    let checked = filter.check(from, &header, gaps);
    assert_eq!(filter.commit(from, &header, gaps), checked);
    match checked {
        Ok(()) => {
            assert!(filter.check(from, &header, gaps).is_err(), "a packet passes once");
            let leap = filter.latest(from).distance_from(before);
            assert!(gaps.limit == 0 || leap <= i64::from(gaps.limit));
            assert!(leap <= i64::from(LEAP_MAX) || gaps.now_ns >= QUIET_NS);
        }
        Err(_) => assert_eq!(filter.latest(from), before),
    }
    let mut news = 0;
    let in_flight = peer.in_flight();
    let taken = peer.handle_header(&header, true, |_, _| news += 1);
    assert!(taken.is_ok() || news == 0);
    assert_eq!(peer.in_flight(), in_flight - news);
    let mut out = [0; 64];
    let payload = BitReader::new(&[0]).take(1).expect("a bit");
    if let Some(len) = peer.write(framing, Ids::default(), payload, &mut out) {
        let (_, reader) = framing.read(&out[..len]).expect("written");
        let written = Header::read(reader).expect("written");
        assert_eq!(written.acked, peer.latest());
    }
}

fn rewrite(framing: &Framing, datagram: &[u8], who: u8) {
    let mut copy = datagram.to_vec();
    if let Ok((prefix, _)) = framing.read(datagram) {
        framing.rewrite_ids(&mut copy, Ids::new(who, who >> 2));
        framing.rewrite_ids(&mut copy, prefix.ids);
        assert_eq!(copy, datagram);
    } else {
        framing.rewrite_ids(&mut copy, Ids::default());
    }
}
