//! Two ends of a connection, over networks that lose.

use proptest::prelude::*;

use super::*;
use ringgate_core::proto::unreal::cookie::COOKIE_BYTES;
use ringgate_core::proto::unreal::notify::HISTORY_PACKETS_MAX;
use ringgate_core::proto::unreal::prefix::{Layout, Magic};

const IDS: Ids = Ids::new(1, 5);
const VERSIONED: Framing = Framing { magic: Magic::NONE, layout: Layout::Versioned };

/// A cookie that counts up from `first`.
fn cookie(first: u8) -> Cookie {
    Cookie(std::array::from_fn::<_, COOKIE_BYTES, _>(|index| first + index as u8))
}

fn no_bunches() -> BitReader<'static> {
    BitReader::new(&[0]).take(1).expect("a bit")
}

fn pair(cookie: &Cookie) -> (Peer, Peer) {
    (Peer::new(Sender::Client, cookie), Peer::new(Sender::Server, cookie))
}

fn write(peer: &mut Peer) -> Option<Vec<u8>> {
    let mut buf = [0; 64];
    let len = peer.write(&VERSIONED, IDS, no_bunches(), &mut buf)?;
    Some(buf[..len].to_vec())
}

/// What the packet told its receiver, or why it was not taken.
fn take(peer: &mut Peer, datagram: &[u8]) -> Result<Vec<(u64, bool)>, DropReason> {
    let (_, reader) = VERSIONED.read(datagram).expect("a packet");
    let mut news = Vec::new();
    let header = Header::read(reader).expect("a header");
    peer.handle_header(&header, true, |sequence, arrived| news.push((sequence.value(), arrived)))?;
    Ok(news)
}

fn words(datagram: &[u8]) -> usize {
    let (_, mut reader) = VERSIONED.read(datagram).expect("a packet");
    reader.read(3).expect("a header") as usize + 1
}

#[test]
fn the_first_packets_are_those_of_the_cookie() {
    let (mut client, mut server) = pair(&cookie(0x10));
    // This packet is one of the known answers.
    let first = write(&mut client).expect("room");
    assert_eq!(first, [0x15, 0x3c, 0x44, 0x12, 0x13, 0, 0, 0, 0x80, 0x01]);
    assert_eq!(take(&mut server, &first), Ok(vec![]));
    let answer = write(&mut server).expect("room");
    assert_eq!(take(&mut client, &answer), Ok(vec![(4882, true)]));
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn the_history_grows_with_what_is_not_known_to_be_heard() {
    for unheard in 1..=HISTORY_PACKETS_MAX {
        let (mut client, mut server) = pair(&cookie(0x10));
        for _ in 0..unheard {
            let datagram = write(&mut client).expect("room");
            assert_eq!(take(&mut server, &datagram), Ok(vec![]));
        }
        let answer = write(&mut server).expect("room");
        assert_eq!(words(&answer), unheard.div_ceil(32), "{unheard}");
        let news = take(&mut client, &answer).expect("taken");
        assert_eq!(news.len(), unheard);
        assert!(news.iter().all(|&(_, arrived)| arrived));
        // As soon as the answer is known to have been heard, one word is enough.
        let datagram = write(&mut client).expect("room");
        assert_eq!(take(&mut server, &datagram).map(|news| news.len()), Ok(1));
        assert_eq!(words(&write(&mut server).expect("room")), 1);
    }
}

#[test]
fn no_more_packets_leave_than_a_history_can_answer_for() {
    let (mut client, mut server) = pair(&cookie(0x10));
    let last = (0..HISTORY_PACKETS_MAX).map(|_| write(&mut client).expect("room")).last();
    assert_eq!((client.in_flight(), write(&mut client)), (HISTORY_PACKETS_MAX, None));
    // Only the last one arrived: a single bit in the oldest place of the newest word.
    take(&mut server, &last.expect("256 packets")).expect("taken");
    let answer = write(&mut server).expect("room");
    assert_eq!(words(&answer), HISTORY_WORDS_MAX);
    let news = take(&mut client, &answer).expect("taken");
    assert_eq!(news.len(), HISTORY_PACKETS_MAX);
    assert_eq!(news.iter().filter(|(_, arrived)| *arrived).count(), 1);
    assert!(news.last().is_some_and(|(_, arrived)| *arrived));
}

#[test]
fn what_is_not_newer_or_cannot_be_true_is_dropped_whole() {
    let (mut client, mut server) = pair(&cookie(0x10));
    let [a, b] = [0, 1].map(|_| write(&mut client).expect("room"));
    assert_eq!(take(&mut server, &b), Ok(vec![]));
    assert_eq!(take(&mut server, &a), Err(DropReason::ReplayTooOld));
    assert_eq!(take(&mut server, &b), Err(DropReason::ReplayTooOld));
    // A client that acknowledges what the server has not sent.
    let (mut liar, mut ahead) = pair(&cookie(0x10));
    let forward = write(&mut ahead).expect("room");
    take(&mut liar, &forward).expect("taken");
    let lie = [0, 1, 2].map(|_| write(&mut liar).expect("room"));
    assert_eq!(take(&mut server, &lie[2]), Err(DropReason::AckImplausible));
}

#[test]
fn a_packet_of_no_use_is_reported_as_lost() {
    let (mut client, mut server) = pair(&cookie(0x10));
    let datagram = write(&mut client).expect("room");
    let (_, reader) = VERSIONED.read(&datagram).expect("a packet");
    let header = Header::read(reader).expect("a header");
    server.handle_header(&header, false, |_, _| ()).expect("taken");
    let answer = write(&mut server).expect("room");
    assert_eq!(take(&mut client, &answer), Ok(vec![(4882, false)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every packet is spoken of once, in order, and truthfully, through several wraps and whatever
    /// is lost.
    #[test]
    fn both_ends_learn_the_truth(seed in any::<[u8; 20]>(), losses in proptest::collection::vec(any::<u8>(), 1..64)) {
        let (mut a, mut b) = pair(&Cookie(seed));
        let first = a.next();
        let mut arrived_of_a = Vec::new();
        let mut told_to_a = Vec::new();
        for round in 0..20_000_usize {
            let loss = losses[round % losses.len()].wrapping_add((round / losses.len()) as u8);
            let datagram = write(&mut a);
            if let Some(datagram) = datagram {
                let arrives = loss % 4 != 0;
                arrived_of_a.push(arrives);
                if arrives {
                    take(&mut b, &datagram).expect("in order");
                }
            }
            if loss % 3 != 0 && let Some(datagram) = write(&mut b) && loss % 7 != 0 {
                told_to_a.extend(take(&mut a, &datagram).expect("in order"));
            }
        }
        prop_assert!(told_to_a.len() > 10_000);
        for (index, &(sequence, arrived)) in told_to_a.iter().enumerate() {
            prop_assert_eq!(sequence, first.wrapping_add(index as u64).value());
            prop_assert_eq!(arrived, arrived_of_a[index], "packet {}", index);
        }
    }
}
