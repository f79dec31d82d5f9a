//! Headers, the filter over both directions, and translation.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proto::unreal::bits::{BitWriter, store};
use crate::proto::unreal::prefix::Layout;
use crate::proto::unreal::tests::vectors::{IDS, ORIGINAL, VERSIONED, cookie, magic, write_header};

const NOW: Gaps = Gaps { now_ns: 1000 * NS_PER_S, limit: 0 };

fn seq(number: u64) -> PacketSeq {
    PacketSeq::new(number)
}

/// A game packet with one word of history and no bunch.
fn packet(framing: &Framing, sequence: PacketSeq, acked: PacketSeq, history: &[u32]) -> Vec<u8> {
    let mut buf = [0xee; 64];
    let mut out = BitWriter::new(&mut buf);
    write_header(framing, IDS, (sequence, acked), history, &mut out);
    out.flag(false);
    let len = out.finish(2);
    buf[..len].to_vec()
}

fn read<'a>(framing: &Framing, datagram: &'a [u8]) -> Result<Header<'a>, DropReason> {
    framing.read(datagram).and_then(|(_, reader)| Header::read(reader))
}

proptest! {
    #[test]
    fn headers_come_back_behind_every_magic(
        bits in vec(any::<bool>(), 0..=32),
        (sequence, acked) in (any::<u64>(), any::<u64>()),
        history in vec(any::<u32>(), 1..=HISTORY_WORDS_MAX),
        is_original: bool,
    ) {
        let layout = if is_original { Layout::Original } else { Layout::Versioned };
        let magic = crate::proto::unreal::prefix::Magic::from_bits(&bits).expect("at most 32");
        let framing = Framing { magic, layout };
        let datagram = packet(&framing, seq(sequence), seq(acked), &history);
        let header = read(&framing, &datagram).expect("a header");
        prop_assert_eq!((header.sequence, header.acked), (seq(sequence), seq(acked)));
        prop_assert_eq!(header.history_packets(), 32 * history.len());
        let told = header.told();
        for age in 0..header.history_packets() {
            prop_assert_eq!(told.has_arrived(age), history[age / 32] >> (age % 32) & 1 == 1);
        }
        prop_assert!(!told.has_arrived(header.history_packets()));
        prop_assert_eq!(header.payload().remaining(), 1);
    }

    #[test]
    fn junk_is_read_without_harm(datagram in vec(any::<u8>(), 0..64), known in any::<u64>()) {
        for framing in [VERSIONED, ORIGINAL] {
            let Ok(header) = read(&framing, &datagram) else { continue };
            prop_assert!(datagram.len() >= packet_bytes_min(&framing));
            let news: Vec<_> = header.told().news_since(seq(known)).collect();
            prop_assert!(news.last().is_none_or(|&(newest, _)| newest == header.acked));
        }
    }
}

#[test]
fn the_shortest_packets_are_10_and_9_bytes() {
    assert_eq!(packet_bytes_min(&VERSIONED), 10);
    assert_eq!(packet_bytes_min(&ORIGINAL), 9);
    assert_eq!(packet_bytes_min(&Framing { magic: magic(&"1".repeat(32)), ..VERSIONED }), 14);
    assert_eq!(packet(&VERSIONED, seq(1), seq(2), &[0]).len(), 10);
}

#[test]
fn a_header_that_is_cut_off_or_ends_once_is_refused() {
    let datagram = packet(&VERSIONED, seq(1), seq(2), &[0, 0]);
    for len in 1..datagram.len() {
        let mut short = datagram[..len].to_vec();
        short[len - 1] |= 0xc0;
        assert_eq!(read(&VERSIONED, &short).err(), Some(DropReason::UnrealSize), "{len}");
        short[len - 1] = 0x80;
        assert_eq!(read(&VERSIONED, &short).err(), Some(DropReason::UnrealEnd), "{len}");
    }
}

#[test]
fn the_flag_of_later_engines_is_not_judged() {
    let mut datagram = packet(&VERSIONED, seq(1), seq(2), &[5, 6, 7]);
    store(&mut datagram, VERSIONED.prefix_bits() + 3, 1, 1);
    let header = read(&VERSIONED, &datagram).expect("a header");
    assert_eq!((header.sequence, header.history_packets()), (seq(1), 96));
}

#[test]
fn nothing_passes_that_is_older_than_the_first_packet() {
    let cookie = cookie(0x10);
    let (client, server) = (cookie.client_sequence().value(), cookie.server_sequence().value());
    let range = PacketSeq::MAX.value() + 1;
    for ahead in [0, 3] {
        let mut filter = Filter::starting_at(&cookie, 0);
        let mut pass = |sequence: u64, acked: u64| {
            let datagram = packet(&VERSIONED, seq(sequence), seq(acked), &[0]);
            filter.commit(Sender::Client, &read(&VERSIONED, &datagram).expect("a header"), NOW)
        };
        assert_eq!(pass(client + ahead, server + range - 1), Ok(()));
        for back in 1..=600 {
            let verdict = pass(client + range - back, server + range - 1);
            assert!(verdict.is_err(), "{back} before the first");
        }
        // Those between are only late.
        assert!((0..ahead).all(|n| pass(client + n, server + range - 1).is_ok()));
    }
}

/// A filter in the middle of a connection: 100 packets each way, all acknowledged but the last ten.
struct Middle {
    filter: Filter,
    gaps: Gaps,
    client: u64,
    server: u64,
}

impl Middle {
    fn new() -> Self {
        Self::starting_at(cookie(0x10))
    }

    fn starting_at(cookie: Cookie) -> Self {
        let (client, server) = (cookie.client_sequence().value(), cookie.server_sequence().value());
        let filter = Filter::starting_at(&cookie, NOW.now_ns);
        let mut middle = Self { filter, gaps: NOW, client, server };
        for n in 0..100 {
            let acked = n.max(10) - 10;
            assert_eq!(middle.pass(Sender::Server, server + n, client + acked - 1), Ok(()));
            assert_eq!(middle.pass(Sender::Client, client + n, server + acked - 1), Ok(()));
        }
        middle
    }

    fn pass(&mut self, from: Sender, sequence: u64, acked: u64) -> Result<(), DropReason> {
        let datagram = packet(&VERSIONED, seq(sequence), seq(acked), &[0]);
        let header = read(&VERSIONED, &datagram).expect("a header");
        let before = (self.filter.latest(Sender::Client), self.filter.latest(Sender::Server));
        let checked = self.filter.check(from, &header, self.gaps);
        let verdict = self.filter.commit(from, &header, self.gaps);
        assert_eq!(checked, verdict);
        let after = (self.filter.latest(Sender::Client), self.filter.latest(Sender::Server));
        assert!(verdict.is_ok() || before == after, "a refused packet moved the window");
        verdict
    }

    /// A packet of the client's, relative to its newest number and to its newest acknowledgement.
    fn client(&mut self, ahead: i64, acked_ahead: i64) -> Result<(), DropReason> {
        let sequence = (self.client + 99).wrapping_add_signed(ahead);
        let acked = (self.server + 88).wrapping_add_signed(acked_ahead);
        self.pass(Sender::Client, sequence, acked)
    }
}

#[test]
fn the_first_packets_acknowledge_what_was_before_them() {
    let cookie = cookie(0x10);
    let (client, server) = (cookie.client_sequence().value(), cookie.server_sequence().value());
    let filter = Filter::starting_at(&cookie, 0);
    let mut middle = Middle { filter, gaps: NOW, client, server };
    assert_eq!(middle.pass(Sender::Client, client, server), Err(DropReason::AckImplausible));
    assert_eq!(middle.pass(Sender::Client, client, server - 2), Err(DropReason::AckImplausible));
    assert_eq!(
        middle.pass(Sender::Client, client - 1, server - 1),
        Err(DropReason::ReplayDuplicate)
    );
    assert_eq!(middle.pass(Sender::Client, client, server - 1), Ok(()));
    assert_eq!(middle.pass(Sender::Server, server, client + 1), Err(DropReason::AckImplausible));
    assert_eq!(middle.pass(Sender::Server, server, client), Ok(()));
    assert_eq!(middle.pass(Sender::Client, client + 1, server), Ok(()));
}

#[test]
fn every_packet_passes_once() {
    let mut middle = Middle::new();
    for back in 0..100 {
        assert_eq!(middle.client(-back, 0), Err(DropReason::ReplayDuplicate), "{back}");
    }
    assert_eq!(middle.client(3, 0), Ok(()));
    assert_eq!(middle.client(3, 0), Err(DropReason::ReplayDuplicate));
    assert_eq!(middle.client(1, 0), Ok(()));
    assert_eq!(middle.client(1, 0), Err(DropReason::ReplayDuplicate));
    assert_eq!(middle.client(-600, 0), Err(DropReason::ReplayTooOld));
}

#[test]
fn a_forged_packet_has_to_guess_number_and_acknowledgement() {
    // Of all numbers and acknowledgements, how many would pass? Each is tried against the same
    // state.
    let middle = Middle::new();
    let filter = &middle.filter;
    let passes = |ahead: u64, acked_ahead: i64| {
        let sequence = seq(middle.client + 99 + ahead);
        let acked = seq((middle.server + 88).wrapping_add_signed(acked_ahead));
        let datagram = packet(&VERSIONED, sequence, acked, &[0]);
        let header = read(&VERSIONED, &datagram).expect("a header");
        filter.check(Sender::Client, &header, middle.gaps).is_ok()
    };
    // All behind the newest have been seen, or are from before the first packet.
    assert!((1..=0x3fff).filter(|&ahead| passes(ahead, 0)).eq(1..=1024));
    let acks: Vec<_> = (-0x2000..0x2000).filter(|&acked| passes(1, acked)).collect();
    assert!(acks.iter().copied().eq(0..=11), "{acks:?}");
}

#[test]
fn an_older_packet_acknowledges_no_more_than_the_newest() {
    let mut middle = Middle::new();
    assert_eq!(middle.client(4, 2), Ok(()));
    assert_eq!(middle.client(3, 3), Err(DropReason::AckImplausible));
    assert_eq!(middle.client(3, 2 - 513), Err(DropReason::AckImplausible));
    assert_eq!(middle.client(3, 2), Ok(()));
    assert_eq!(middle.client(2, 2 - 512), Ok(()));
    // It has not taken anything back.
    assert_eq!(middle.client(5, 1), Err(DropReason::AckImplausible));
    assert_eq!(middle.client(5, 2), Ok(()));
}

impl Middle {
    /// Nothing comes for so long.
    fn wait(&mut self, ns: u64) {
        self.gaps.now_ns += ns;
    }
}

const UNCONFIRMED: Result<(), DropReason> = Err(DropReason::GapUnconfirmed);

#[test]
fn a_jump_is_limited_and_does_not_move_the_window() {
    let mut middle = Middle::new();
    for _ in 0..3 {
        // However often, and however much the packets agree: their sender is heard all the time.
        assert_eq!(middle.client(1025, 0), UNCONFIRMED);
        assert_eq!(middle.client(1026, 0), UNCONFIRMED);
        assert_eq!(middle.client(0x1fff, 0), UNCONFIRMED);
        assert_eq!(middle.client(0x2000, 0), Err(DropReason::ReplayTooOld));
        middle.wait(QUIET_NS - 1);
        assert_eq!(middle.client(1025, 0), UNCONFIRMED);
        assert_eq!(middle.client(1026, 0), UNCONFIRMED);
        assert_eq!(middle.client(1, 0), Ok(()));
        middle.client += 1;
    }
    assert_eq!(middle.client(1024, 0), Ok(()));
}

#[test]
fn a_long_gap_is_survived_when_two_packets_say_so() {
    for ahead in [1025, 4000, 0x1ffe] {
        for behind in [1, 30, 256].into_iter().filter(|behind| ahead + behind <= 0x1fff) {
            let mut middle = Middle::new();
            middle.wait(QUIET_NS);
            assert_eq!(middle.client(ahead, 5), UNCONFIRMED);
            assert_eq!(middle.client(ahead, 5), UNCONFIRMED, "the same packet confirms nothing");
            assert_eq!(middle.client(ahead + behind, 5), Ok(()), "{ahead} {behind}");
            assert_eq!(middle.client(ahead + behind, 5), Err(DropReason::ReplayDuplicate));
            assert_eq!(middle.client(ahead + behind + 1, 6), Ok(()));
            // What was refused is only late now, and passes once like all that is.
            assert_eq!(middle.client(ahead, 5).is_ok(), behind < 512);
            assert_eq!(middle.client(1, 0), Err(DropReason::ReplayTooOld));
        }
    }
}

#[test]
fn the_server_survives_a_gap_too() {
    let mut middle = Middle::new();
    middle.wait(QUIET_NS);
    let (server, client) = (middle.server + 99, middle.client + 88);
    assert_eq!(middle.pass(Sender::Server, server + 5000, client), UNCONFIRMED);
    assert_eq!(middle.pass(Sender::Server, server + 5001, client), Ok(()));
}

#[test]
fn packets_that_do_not_agree_confirm_nothing() {
    let mut middle = Middle::new();
    middle.wait(QUIET_NS);
    assert_eq!(middle.client(3000, 5), UNCONFIRMED);
    for (ahead, acked_ahead) in [(2999, 5), (5000, 5), (5257, 5), (5000, 5), (5001, 4)] {
        assert_eq!(middle.client(ahead, acked_ahead), UNCONFIRMED, "{ahead} {acked_ahead}");
    }
    // An acknowledgement that cannot be true is not even looked at.
    assert_eq!(middle.client(5002, -1), Err(DropReason::AckImplausible));
    assert_eq!(middle.client(5002, 12), Err(DropReason::AckImplausible));
    assert_eq!(middle.client(5002, 4), Ok(()));
}

#[test]
fn a_landing_is_void_when_anything_has_passed() {
    let mut middle = Middle::new();
    middle.wait(QUIET_NS);
    assert_eq!(middle.client(3000, 0), UNCONFIRMED);
    assert_eq!(middle.client(1, 0), Ok(()));
    assert_eq!(middle.client(3001, 0), UNCONFIRMED);
    assert_eq!(middle.client(3002, 0), UNCONFIRMED, "the sender was heard just now");
    // A late packet is a sign of life as well.
    assert_eq!(middle.client(5, 0), Ok(()));
    middle.wait(QUIET_NS);
    assert_eq!(middle.client(4000, 0), UNCONFIRMED);
    assert_eq!(middle.client(4, 0), Ok(()));
    assert_eq!(middle.client(4001, 0), UNCONFIRMED);
    assert_eq!(middle.client(4002, 0), UNCONFIRMED);
}

#[test]
fn a_gap_over_the_limit_is_the_end_when_two_packets_say_so() {
    for (limit, gap) in [(64, 65), (64, 3000), (1024, 1025), (3000, 3001)] {
        let mut middle = Middle::new();
        middle.gaps.limit = limit;
        assert_eq!(middle.client(gap, 0), UNCONFIRMED, "{limit}");
        assert_eq!(middle.client(gap + 1, 0), UNCONFIRMED, "nobody ends what is alive");
        middle.wait(QUIET_NS);
        assert_eq!(middle.client(gap, 0), UNCONFIRMED);
        assert_eq!(middle.client(gap + 1, 0), Err(DropReason::SequenceGap), "{limit}");
    }
    let mut middle = Middle::new();
    middle.gaps.limit = 64;
    assert_eq!(middle.client(64, 0), Ok(()));
    middle.gaps.limit = 3000;
    middle.wait(QUIET_NS);
    assert_eq!(middle.client(64 + 2999, 0), UNCONFIRMED);
    assert_eq!(middle.client(64 + 3000, 0), Ok(()));
}

#[test]
fn numbers_wrap_in_the_middle_of_a_connection() {
    // Server first at 16383, client first at 16380.
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&[0xff, 0x3f, 0xfc, 0x3f]);
    let mut middle = Middle::starting_at(Cookie(bytes));
    assert_eq!(middle.client(-99, 0), Err(DropReason::ReplayDuplicate));
    assert_eq!(middle.client(1, 11), Ok(()));
    assert_eq!(middle.filter.latest(Sender::Client), seq(16380 + 100));
}

/// A filter that goes on with what this one has let pass of the client's, at a server's packet.
fn going_on(client: u64, handed: &[u64], server: (u64, u64)) -> Option<Middle> {
    let mut window = Window::closed_before((1 << 14) + client);
    for number in handed {
        window.commit((1 << 14) + client + number, &Policy::UNREAL).expect("once");
    }
    let datagram = packet(&VERSIONED, seq(server.0), seq(server.1), &[0]);
    let header = read(&VERSIONED, &datagram).expect("a header");
    let filter = Filter::going_on(&window, &header, NOW.now_ns)?;
    Some(Middle { filter, gaps: NOW, client, server: server.0 })
}

#[test]
fn a_filter_goes_on_with_the_numbers_that_another_has_let_pass() {
    for (client, server) in [(1000, 5000), (0x3ffd, 0x3ffe), (0x3fff, 3)] {
        let mut middle = going_on(client, &[0, 1, 3], (server, client + 3)).expect("it has some");
        assert_eq!(middle.filter.latest(Sender::Client), seq(client + 3));
        assert_eq!(middle.filter.newest(), (1 << 14) + client + 3);
        // The packet that it began with is still to pass, once.
        assert_eq!(middle.pass(Sender::Server, server, client + 3), Ok(()));
        let again = middle.pass(Sender::Server, server, client + 3);
        assert_eq!(again, Err(DropReason::ReplayDuplicate));
        for number in [0, 1, 3] {
            let again = middle.pass(Sender::Client, client + number, server - 1);
            assert_eq!(again, Err(DropReason::ReplayDuplicate), "{number}");
        }
        // Nobody has heard what was not said, or forgets what it had heard for long.
        let unheard = middle.pass(Sender::Client, client + 4, server + 1);
        assert_eq!(unheard, Err(DropReason::AckImplausible));
        let forgotten = middle.pass(Sender::Client, client + 4, server + (1 << 14) - 257);
        assert_eq!(forgotten, Err(DropReason::AckImplausible));
        assert_eq!(middle.pass(Sender::Client, client + 4, server + (1 << 14) - 5), Ok(()));
        assert_eq!(
            middle.pass(Sender::Client, client + 2, server + (1 << 14) - 6),
            Ok(()),
            "it was late"
        );
        assert_eq!(middle.filter.full(seq(client + 4)), Some((1 << 14) + client + 4));
        assert_eq!(middle.pass(Sender::Server, server + 1, client + 4), Ok(()));
        assert_eq!(middle.pass(Sender::Client, client + 5, server + 1), Ok(()));
    }
}

#[test]
fn what_the_server_has_heard_has_passed() {
    let mut middle = going_on(1000, &[0], (5000, 1004)).expect("it has some");
    for number in 1000..=1004 {
        let again = middle.pass(Sender::Client, number, 4999);
        assert_eq!(again, Err(DropReason::ReplayDuplicate), "{number}");
    }
    assert_eq!(middle.pass(Sender::Client, 1005, 4999), Ok(()));
}

#[test]
fn a_filter_goes_on_with_what_the_server_has_heard_where_no_numbers_are_known() {
    let datagram = packet(&VERSIONED, seq(5), seq(9), &[0]);
    let header = read(&VERSIONED, &datagram).expect("a header");
    let filter = Filter::going_on(&Window::new(), &header, NOW.now_ns).expect("it begins there");
    let mut middle = Middle { filter, gaps: NOW, client: 9, server: 5 };
    assert_eq!(middle.pass(Sender::Client, 9, 4), Err(DropReason::ReplayDuplicate));
    assert_eq!(middle.pass(Sender::Client, 10, 4), Ok(()));
    for last in [u64::MAX - 20, u64::MAX - 1, u64::MAX] {
        let _ = Filter::going_on(&Window::closed_before(last), &header, 0);
    }
}
