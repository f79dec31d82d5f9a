//! What a quiet player sends: on a clock that the test turns, without cipher and sockets.

use ringgate_client::{Channel, Options, Reason, Report, SendError, Session, SessionEvent, State};
use ringgate_core::delivery::{self, End};
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, TAG_BYTES};
use ringgate_core::netcode;
use ringgate_core::proto::netcode::packet::{KeepAlive, PacketKind, encode_packet};

use super::far_end::token;

const SECOND: u64 = 1_000_000_000;

/// A player and its server.
struct Pair {
    player: Session,
    server: End,
    /// Whether the server knows that the player is in, and speaks.
    speaks: bool,
    now_ns: u64,
    sequence: u64,
    /// Bytes of messages that have come at the server.
    came: usize,
}

impl Pair {
    /// A player who is in, and whose token has that timeout.
    fn connected(timeout_seconds: i32) -> Self {
        let address = "127.0.0.1:4000".parse().expect("an address");
        let token = token(1, &[address], timeout_seconds);
        let player = Session::new(&token, &Options::default(), netcode::Options::default(), 0);
        let server = End::new(&delivery::Options::default(), 0);
        let mut pair = Self { player, server, speaks: false, now_ns: 0, sequence: 0, came: 0 };
        pair.run_until(0);
        pair.receive(PacketKind::Challenge, &[7; 308]);
        pair.receive(PacketKind::KeepAlive, &KeepAlive { slot: 0, slots: 4 }.encode());
        assert_eq!(pair.player.state(), State::Connected);
        pair
    }

    /// The player receives a packet, as if its tag had verified.
    fn receive(&mut self, kind: PacketKind, body: &[u8]) {
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        let (_, len) = encode_packet(kind, self.sequence, body, &mut datagram);
        self.sequence += 1;
        let from = self.player.machine().server();
        let work = self.player.handle_datagram(from, &datagram[..len]).expect("worth opening");
        self.player.handle_opened(self.now_ns, &work, body, |_, _| ()).expect("it is taken");
    }

    /// How many datagrams the player sends now.
    fn flush(&mut self) -> u64 {
        let mut out = [0; DATAGRAM_BYTES_MAX];
        let mut sent = 0;
        while let Some(transmit) = self.player.poll_transmit(self.now_ns, &mut out) {
            sent += 1;
            if PacketKind::of_prefix(out[0]) == Some(PacketKind::Payload) {
                let sealed = &out[transmit.sealed()];
                let packet = &sealed[..sealed.len() - TAG_BYTES];
                let came = &mut self.came;
                let on_message = |_, message: &[u8]| *came += message.len();
                self.server.handle_packet(self.now_ns, packet, on_message).expect("honest");
            }
        }
        sent
    }

    /// Lets time pass; how many datagrams the player sends.
    fn run_until(&mut self, end_ns: u64) -> u64 {
        let mut sent = 0;
        loop {
            let mut out = [0; DATAGRAM_BYTES_MAX];
            self.player.handle_timeout(self.now_ns);
            sent += self.flush();
            while self.speaks
                && self.player.state() == State::Connected
                && let Some(len) = self.server.poll_transmit(self.now_ns, &mut out)
            {
                self.receive(PacketKind::Payload, &out[..len]);
            }
            let speaks = self.speaks && self.player.state() == State::Connected;
            let server_ns = self.server.poll_timeout().filter(|_| speaks);
            let next_ns = self.player.poll_timeout().into_iter().chain(server_ns).min();
            let next_ns = next_ns.unwrap_or(u64::MAX).max(self.now_ns);
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return sent;
            }
            self.now_ns = next_ns;
        }
    }
}

#[test]
fn a_quiet_player_sends_once_a_second_when_it_has_heard_its_gateway() {
    // A token's timeout, and how many packets a minute it takes.
    for (timeout_seconds, expected) in [(10, 60), (-1, 60), (2, 120)] {
        let mut pair = Pair::connected(timeout_seconds);
        // The gateway may not know yet: ten a second, as netcode has them.
        let sent = pair.run_until(SECOND);
        assert!((9..=12).contains(&sent), "{timeout_seconds}: {sent}");
        pair.speaks = true;
        pair.run_until(3 * SECOND);
        let sent = pair.run_until(63 * SECOND);
        assert!((expected - 2..=expected + 2).contains(&sent), "{timeout_seconds}: {sent}");
        assert_eq!(pair.player.state(), State::Connected);
    }
}

#[test]
fn a_player_whose_server_acknowledges_nothing_is_not_over_for_that() {
    let mut pair = Pair::connected(-1);
    pair.run_until(60 * SECOND);
    assert_eq!(pair.player.state(), State::Connected);
}

#[test]
fn a_player_who_sends_for_a_while_and_reads_nothing_calls_nobody_silent() {
    let mut pair = Pair::connected(10);
    pair.speaks = true;
    pair.run_until(SECOND);
    pair.player.send(Channel::Reliable(0), b"here", None).expect("there is room");
    for tenths in 10..500 {
        pair.now_ns = tenths * SECOND / 10;
        let sent = pair.flush();
        assert!(sent < 20 && pair.player.state() == State::Connected, "{tenths}: {sent}");
    }
    // What came meanwhile is read before anybody asks for how long nothing came.
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let len = pair.server.poll_transmit(pair.now_ns, &mut out).expect("an acknowledgement");
    pair.receive(PacketKind::Payload, &out[..len]);
    pair.run_until(60 * SECOND);
    assert_eq!((pair.player.state(), pair.came), (State::Connected, 4));
    assert!(pair.player.has_delivered_all());
    // The server says nothing any more, and the player has asked for an answer.
    pair.speaks = false;
    pair.run_until(71 * SECOND);
    assert_eq!(pair.player.state(), State::ConnectionTimedOut);
}

#[test]
fn what_a_server_says_last_is_there_when_it_is_over() {
    let mut pair = Pair::connected(10);
    pair.speaks = true;
    pair.run_until(SECOND / 10);
    assert_eq!(pair.player.farewell(), None);
    pair.server.send(Channel::Reliable(0), b"last words", None).expect("there is room");
    pair.server.say_farewell(129, b"be nice");
    pair.run_until(SECOND / 2);
    assert!(pair.server.has_said_all() && pair.server.has_told_farewell());
    assert_eq!(pair.player.farewell(), None, "not before the end");
    pair.receive(PacketKind::Disconnect, &[]);
    let farewell = pair.player.farewell().expect("it was said");
    assert_eq!((farewell.reason, &*farewell.text), (129, &b"be nice"[..]));
}

#[test]
fn a_player_leaves_when_all_has_arrived_or_its_time_is_up() {
    let mut pair = Pair::connected(10);
    pair.speaks = true;
    pair.run_until(SECOND / 10);
    pair.player.send(Channel::Reliable(0), &vec![7; 50_000], None).expect("there is room");
    pair.player.disconnect_at(20 * SECOND);
    let late = pair.player.send(Channel::Reliable(0), b"late", None);
    assert_eq!((late, pair.player.state()), (Err(SendError::Closed), State::Connected));
    pair.run_until(2 * SECOND);
    assert_eq!((pair.player.state(), pair.came), (State::Disconnected, 50_000));

    let mut pair = Pair::connected(10);
    pair.player.send(Channel::Reliable(0), b"x", Some(1)).expect("there is room");
    pair.player.disconnect_at(SECOND);
    pair.run_until(SECOND - 1);
    assert_eq!(pair.player.state(), State::Connected);
    pair.run_until(SECOND);
    assert_eq!(pair.player.state(), State::Disconnected);
    let lost = SessionEvent::Reported(Report { token: 1, is_delivered: false });
    let events: Vec<_> = std::iter::from_fn(|| pair.player.poll_event()).collect();
    assert_eq!(events[1..], [lost, SessionEvent::Closed(Reason::Left)]);
}
