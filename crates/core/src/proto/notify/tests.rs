//! Two ends over networks that lose and reorder, held against a model that knows every packet's
//! fate.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn seq(number: u64) -> PacketSeq {
    PacketSeq::new(number)
}

fn header_with(sequence: u64, acked: u64, words: &[u32]) -> Header {
    let mut history = [0; HISTORY_WORDS_MAX];
    history[..words.len()].copy_from_slice(words);
    Header { sequence: seq(sequence), acked: seq(acked), history }
}

/// Sends a packet: what its header says.
fn send(end: &mut Notify) -> Option<Header> {
    if !end.has_room() {
        return None;
    }
    let words = end.history();
    let header = header_with(end.next().value(), end.latest().value(), words);
    end.handle_sent();
    Some(header)
}

/// What a packet told its receiver, or why it was not taken.
fn take(end: &mut Notify, header: &Header) -> Result<Vec<(u64, bool)>, DropReason> {
    let mut news = Vec::new();
    end.handle_header(header, true, |sequence, arrived| news.push((sequence.value(), arrived)))?;
    Ok(news)
}

#[test]
fn news_come_oldest_first_and_what_the_history_does_not_cover_is_lost() {
    let header = header_with(0, 2, &[0b0101]);
    let news: Vec<_> = header.news_since(seq(16383)).map(|(s, ok)| (s.value(), ok)).collect();
    assert_eq!(news, [(0, true), (1, false), (2, true)]);
    let long: Vec<_> = header.news_since(seq(2).wrapping_sub(40)).collect();
    assert_eq!(long.len(), 40);
    assert_eq!(long.iter().filter(|(_, arrived)| *arrived).count(), 2);
    assert_eq!(header.news_since(seq(2)).count() + header.news_since(seq(3)).count(), 0);
    assert!(!header.has_arrived(HISTORY_PACKETS_MAX));
}

#[test]
fn what_is_sent_is_what_the_other_end_has_not_heard_and_no_more() {
    for unheard in 1..=HISTORY_PACKETS_MAX {
        let (mut a, mut b) =
            (Notify::starting_at(seq(5), seq(9)), Notify::starting_at(seq(9), seq(5)));
        for _ in 0..unheard {
            let packet = send(&mut a).expect("room");
            assert_eq!(take(&mut b, &packet), Ok(vec![]));
        }
        assert_eq!((a.has_room(), a.in_flight()), (unheard < HISTORY_PACKETS_MAX, unheard));
        assert_eq!(b.history().len(), unheard.div_ceil(WORD_BITS));
        let answer = send(&mut b).expect("room");
        assert_eq!(take(&mut a, &answer).map(|news| news.len()), Ok(unheard));
        let packet = send(&mut a).expect("room");
        assert_eq!(take(&mut b, &packet).map(|news| news.len()), Ok(1));
        assert_eq!(b.history().len(), 1, "the answer was heard");
    }
}

#[test]
fn what_is_late_or_cannot_be_true_changes_nothing() {
    let (mut a, mut b) =
        (Notify::starting_at(seq(16382), seq(0)), Notify::starting_at(seq(0), seq(16382)));
    let sent: Vec<_> = (0..4).map(|_| send(&mut a).expect("room")).collect();
    assert_eq!(take(&mut b, &sent[2]), Ok(vec![]));
    let before = b.clone();
    for late in &sent[..3] {
        assert_eq!(take(&mut b, late), Err(DropReason::ReplayTooOld));
    }
    for acked in [0, 1, 16382, 8191] {
        let lie = Header { acked: seq(acked), ..sent[3] };
        assert_eq!(take(&mut b, &lie), Err(DropReason::AckImplausible), "{acked}");
    }
    assert_eq!((b.latest(), b.history()), (before.latest(), before.history()));
    assert_eq!(take(&mut b, &sent[3]), Ok(vec![]));
    let answer = send(&mut b).expect("room");
    let news = [(16382, false), (16383, false), (0, true), (1, true)];
    assert_eq!(take(&mut a, &answer), Ok(news.to_vec()));
}

#[test]
fn a_packet_of_no_use_is_reported_as_lost() {
    let (mut a, mut b) = (Notify::starting_at(seq(1), seq(1)), Notify::starting_at(seq(1), seq(1)));
    let packet = send(&mut a).expect("room");
    b.handle_header(&packet, false, |_, _| ()).expect("taken");
    let answer = send(&mut b).expect("room");
    assert_eq!(take(&mut a, &answer), Ok(vec![(1, false)]));
}

/// How many packets later than it was sent one may arrive.
const LATEST_PACKETS: usize = 0x1000;

/// One direction as the model sees it: every packet that was sent, whether it was taken, and what
/// its sender has been told.
#[derive(Default)]
struct Direction {
    taken: Vec<bool>,
    told: Vec<bool>,
    under_way: Vec<(usize, Header)>,
}

impl Direction {
    fn send(&mut self, end: &mut Notify) {
        if let Some(header) = send(end) {
            self.under_way.push((self.taken.len(), header));
            self.taken.push(false);
            // One that is half of all numbers late has the number of one that is still to come.
            let latest = self.taken.len();
            self.under_way.retain(|(index, _)| latest - index < LATEST_PACKETS);
        }
    }

    /// One of the packets under way arrives, or none, or it stays under way as well.
    fn arrive(&mut self, end: &mut Notify, pick: u8) -> Vec<(u64, bool)> {
        if self.under_way.is_empty() {
            return Vec::new();
        }
        let place = usize::from(pick >> 3) % self.under_way.len();
        let (index, header) = match pick & 7 {
            0 | 1 => {
                self.under_way.remove(place);
                return Vec::new();
            }
            2 => self.under_way[place],
            3 => self.under_way.remove(place),
            _ => self.under_way.remove(0),
        };
        match take(end, &header) {
            Ok(news) => {
                assert!(!self.taken[index], "a packet is taken once");
                self.taken[index] = true;
                news
            }
            Err(why) => {
                assert_eq!(why, DropReason::ReplayTooOld, "honest ends are believed");
                Vec::new()
            }
        }
    }

    fn hear(&mut self, first: u64, news: Vec<(u64, bool)>) {
        for (sequence, arrived) in news {
            assert_eq!(sequence, seq(first + self.told.len() as u64).value(), "in order, once");
            assert_eq!(arrived, self.taken[self.told.len()], "packet {sequence}");
            self.told.push(arrived);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_ends_learn_the_truth_through_every_wrap(
        (first_a, first_b) in (0_u64..0x4000, 0_u64..0x4000),
        moves in vec(any::<[u8; 4]>(), 1..300),
    ) {
        let mut a = Notify::starting_at(seq(first_a), seq(first_b));
        let mut b = Notify::starting_at(seq(first_b), seq(first_a));
        let (mut to_b, mut to_a) = (Direction::default(), Direction::default());
        for round in 0..20_000_usize {
            let [send_a, send_b, at_b, at_a] = moves[round % moves.len()];
            if send_a & 3 != 0 {
                to_b.send(&mut a);
            }
            if send_b & 3 != 0 {
                to_a.send(&mut b);
            }
            let of_b = to_b.arrive(&mut b, at_b.wrapping_add((round / moves.len()) as u8));
            to_a.hear(first_b, of_b);
            let of_a = to_a.arrive(&mut a, at_a);
            to_b.hear(first_a, of_a);
        }
        prop_assert_eq!(to_b.taken.len() - to_b.told.len(), a.in_flight());
        prop_assert_eq!(to_a.taken.len() - to_a.told.len(), b.in_flight());
    }

    #[test]
    fn a_history_moves_as_bits_do(steps in vec(1_usize..300, 1..40)) {
        let mut end = Notify::starting_at(seq(1), seq(1));
        let mut expected = vec![false; HISTORY_PACKETS_MAX];
        for (index, &steps) in steps.iter().enumerate() {
            let arrived = index % 3 != 0;
            expected.splice(0..0, (0..steps).map(|step| step == 0 && arrived));
            expected.truncate(HISTORY_PACKETS_MAX);
            end.record(steps, arrived);
            let header = Header { sequence: seq(0), acked: seq(0), history: end.history };
            let found: Vec<_> = (0..HISTORY_PACKETS_MAX).map(|age| header.has_arrived(age)).collect();
            prop_assert_eq!(&found, &expected);
        }
    }
}
