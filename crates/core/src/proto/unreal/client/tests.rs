//! The client on a clock that moves when a test says so.

use super::*;
use crate::proto::unreal::cookie::Timestamp;
use crate::proto::unreal::handshake::HANDSHAKE_BYTES_MAX;
use crate::proto::unreal::tests::vectors::{BASE, ORIGINAL, VERSIONED, cookie, proof, tail};

const S: u64 = NS_PER_S;

/// A client, and the server's part played by hand.
struct Play {
    client: Client,
    framing: Framing,
    now_ns: u64,
    session: u8,
}

impl Play {
    fn new(framing: Framing) -> Self {
        let now_ns = 1000 * S;
        let client = Client::new(&Profile { framing, client_id: 5, base: BASE }, now_ns);
        Self { client, framing, now_ns, session: framing.layout.ids(2, 5).session() }
    }

    fn connected(framing: Framing) -> Self {
        let mut play = Self::new(framing);
        assert_eq!(play.sent(), Some(Body::Initial { is_restart: false }));
        assert_eq!(play.server(Body::Challenge(proof())), Ok(Event::Challenged));
        assert_eq!(play.sent(), Some(Body::Response(proof())));
        assert_eq!(play.server(Body::Ack(cookie(1))), Ok(Event::Connected(cookie(1))));
        play
    }

    /// What the client sends now.
    fn sent(&mut self) -> Option<Body> {
        let mut buf = [0; HANDSHAKE_BYTES_MAX];
        let len = self.client.poll_transmit(self.now_ns, &tail(), &mut buf)?;
        let (prefix, reader) = self.framing.read(&buf[..len]).expect("a packet");
        let packet = Handshake::decode(&self.framing, prefix, reader, Receiver::Server);
        let packet = packet.expect("a packet for servers");
        assert_eq!(packet.ids.client(), self.client.ids().client());
        Some(packet.body)
    }

    fn server(&mut self, body: Body) -> Result<Event, DropReason> {
        self.server_as(Ids::new(self.session, self.client.ids().client()), body)
    }

    fn server_as(&mut self, ids: Ids, body: Body) -> Result<Event, DropReason> {
        let mut buf = [0; HANDSHAKE_BYTES_MAX];
        let len = Handshake { ids, base: BASE, body }.encode(&self.framing, &tail(), &mut buf);
        self.client.handle_datagram(self.now_ns, &buf[..len])
    }

    fn game(&mut self, ids: Ids) -> Result<Event, DropReason> {
        let mut buf = [0; 16];
        let mut out = crate::proto::unreal::bits::BitWriter::new(&mut buf);
        self.framing.write(Prefix { ids, is_handshake: false }, &mut out);
        let len = out.finish(2);
        self.client.handle_datagram(self.now_ns, &buf[..len])
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
    }
}

#[test]
fn a_client_gets_in_and_falls_silent() {
    for framing in [VERSIONED, ORIGINAL] {
        let mut play = Play::connected(framing);
        assert_eq!(play.client.state(), State::Connected);
        assert_eq!(play.client.cookie(), Some(&cookie(1)));
        assert_eq!(play.client.ids().session(), play.session);
        play.wait(100 * S);
        assert_eq!((play.sent(), play.client.poll_timeout()), (None, None));
        let ids = play.client.ids();
        assert_eq!(play.game(ids), Ok(Event::Game));
    }
}

#[test]
fn what_is_not_answered_is_repeated_each_second() {
    let mut play = Play::new(VERSIONED);
    for _ in 0..3 {
        assert_eq!(play.sent(), Some(Body::Initial { is_restart: false }));
        assert_eq!((play.sent(), play.client.poll_timeout()), (None, Some(play.now_ns + S)));
        play.wait(S - 1);
        assert_eq!(play.sent(), None);
        play.wait(1);
    }
    play.server(Body::Challenge(proof())).expect("a challenge");
    for _ in 0..3 {
        assert_eq!(play.sent(), Some(Body::Response(proof())));
        play.wait(S);
    }
}

#[test]
fn each_packet_has_its_number() {
    let mut play = Play::new(VERSIONED);
    let mut buf = [0; HANDSHAKE_BYTES_MAX];
    for expected in (1..=u8::MAX).chain([0, 1]) {
        let len = play.client.poll_transmit(play.now_ns, &tail(), &mut buf).expect("due");
        let (prefix, reader) = VERSIONED.read(&buf[..len]).expect("a packet");
        let packet = Handshake::decode(&VERSIONED, prefix, reader, Receiver::Server);
        assert_eq!(packet.map(|packet| packet.base.sent_count), Ok(expected));
        play.wait(S);
    }
}

#[test]
fn a_challenge_is_answered_for_15_seconds() {
    let mut play = Play::new(VERSIONED);
    play.sent();
    play.server(Body::Challenge(proof())).expect("a challenge");
    play.wait(15 * S);
    assert_eq!(play.sent(), Some(Body::Response(proof())));
    play.wait(S);
    assert_eq!(play.sent(), Some(Body::Initial { is_restart: false }));
    assert_eq!(play.client.state(), State::SendingInitial);
    assert_eq!(play.server(Body::Challenge(proof())), Ok(Event::Challenged));
}

#[test]
fn every_challenge_is_answered_until_one_is_acknowledged() {
    for framing in [VERSIONED, ORIGINAL] {
        let mut play = Play::new(framing);
        play.sent();
        play.server(Body::Challenge(proof())).expect("a challenge");
        assert_eq!(play.sent(), Some(Body::Response(proof())));
        let second = Proof { cookie: cookie(9), ..proof() };
        for challenge in [second, second, proof()] {
            play.wait(50_000_000);
            assert_eq!(play.server(Body::Challenge(challenge)), Ok(Event::Challenged));
            assert_eq!(play.sent(), Some(Body::Response(challenge)));
            assert_eq!(play.sent(), None);
        }
        play.wait(S);
        assert_eq!(play.sent(), Some(Body::Response(proof())), "the last one is repeated");
        // Whichever is acknowledged, the acknowledgement's cookie counts.
        assert_eq!(play.server(Body::Ack(cookie(9))), Ok(Event::Connected(cookie(9))));
        assert_eq!(play.server(Body::Challenge(second)), Err(DropReason::PacketUnexpected));
    }
}

#[test]
fn packets_that_make_no_sense_are_refused() {
    let unexpected = Err(DropReason::PacketUnexpected);
    let mut play = Play::new(VERSIONED);
    assert_eq!(play.server(Body::RestartRequest), Err(DropReason::UnrealIds));
    play.session = 0;
    assert_eq!(play.server(Body::RestartRequest), unexpected);
    assert_eq!(play.server(Body::Ack(cookie(1))), unexpected);
    assert_eq!(play.game(Ids::new(0, 5)), unexpected);
    for seconds in [0.0, -1.0, f64::NAN] {
        let proof = Proof { timestamp: Timestamp::from_seconds(seconds), ..proof() };
        assert_eq!(play.server(Body::Challenge(proof)), unexpected);
    }
    play.server(Body::Challenge(proof())).expect("a challenge");
    play.server(Body::Ack(cookie(1))).expect("an acknowledgement");
    assert_eq!(play.server(Body::Challenge(proof())), unexpected);
    assert_eq!(play.server(Body::Ack(cookie(2))), unexpected);
    assert_eq!(play.server(Body::VersionUpgrade), unexpected);
    assert_eq!(play.client.cookie(), Some(&cookie(1)));
}

#[test]
fn foreign_ids_are_refused_but_for_the_first_session_number() {
    let foreign = Err(DropReason::UnrealIds);
    let mut play = Play::new(VERSIONED);
    assert_eq!(play.server_as(Ids::new(2, 4), Body::Challenge(proof())), foreign);
    assert_eq!(play.server_as(Ids::new(3, 5), Body::Challenge(proof())), Ok(Event::Challenged));
    assert_eq!(play.server_as(Ids::new(2, 5), Body::Ack(cookie(1))), foreign);
    assert_eq!(play.server_as(Ids::new(3, 4), Body::Ack(cookie(1))), foreign);
    assert_eq!(play.client.ids(), Ids::new(3, 5));
    play.server_as(Ids::new(3, 5), Body::Ack(cookie(1))).expect("an acknowledgement");
    assert_eq!(play.game(Ids::new(2, 5)), foreign);
    assert_eq!(play.game(Ids::new(3, 6)), foreign);
    assert_eq!(play.game(Ids::new(3, 5)), Ok(Event::Game));
}

#[test]
fn a_wrong_version_ends_it() {
    let mut play = Play::new(VERSIONED);
    assert_eq!(play.server(Body::VersionUpgrade), Ok(Event::WrongVersion));
    play.wait(60 * S);
    assert_eq!((play.client.state(), play.sent()), (State::WrongVersion, None));
    assert_eq!(play.server(Body::Challenge(proof())), Err(DropReason::PacketUnexpected));
}

#[test]
fn a_restart_hands_in_the_cookie_and_goes_on() {
    for framing in [VERSIONED, ORIGINAL] {
        let mut play = Play::connected(framing);
        play.wait(10 * S + 1);
        assert_eq!(play.server(Body::RestartRequest), Ok(Event::Restarting));
        assert_eq!(play.sent(), Some(Body::Initial { is_restart: true }));
        // Not again while it lasts, and the game may go on meanwhile.
        assert_eq!(play.server(Body::RestartRequest), Err(DropReason::PacketUnexpected));
        let ids = play.client.ids();
        assert_eq!(play.game(ids), Ok(Event::Game));
        play.server(Body::Challenge(proof())).expect("a challenge");
        let answer = Body::RestartResponse { proof: proof(), original: cookie(1) };
        assert_eq!(play.sent(), Some(answer));
        assert_eq!(play.server(Body::Ack(cookie(1))), Ok(Event::Reconnected));
        assert_eq!(
            (play.client.state(), play.client.cookie()),
            (State::Connected, Some(&cookie(1)))
        );
    }
}

#[test]
fn a_restart_is_refused_by_another_session() {
    let mut play = Play::connected(VERSIONED);
    play.wait(11 * S);
    play.session = 3;
    assert_eq!(play.server(Body::RestartRequest), Err(DropReason::UnrealIds));
    play.session = 2;
    play.server(Body::RestartRequest).expect("a restart");
    play.session = 3;
    assert_eq!(play.server(Body::Challenge(proof())), Err(DropReason::UnrealIds));
}

#[test]
fn restarts_are_followed_under_three_conditions() {
    let limited = Err(DropReason::RestartRateLimited);
    let mut play = Play::connected(VERSIONED);
    let ids = play.client.ids();
    // Ten seconds have to pass since the last handshake packet.
    play.wait(10 * S);
    play.game(ids).expect("a game packet");
    assert_eq!(play.server(Body::RestartRequest), limited);
    // Now the request is not the first, the previous one is fresh, and the game is alive.
    play.wait(S / 2);
    play.game(ids).expect("a game packet");
    assert_eq!(play.server(Body::RestartRequest), limited);
    // A second later the game has been silent, but not for long enough; then it has.
    play.wait(S);
    assert_eq!(play.server(Body::RestartRequest), limited);
    play.wait(1);
    assert_eq!(play.server(Body::RestartRequest), Ok(Event::Restarting));
}

#[test]
fn a_request_long_after_the_previous_one_is_followed() {
    let mut play = Play::connected(VERSIONED);
    let ids = play.client.ids();
    play.wait(9 * S);
    assert_eq!(play.server(Body::RestartRequest), Err(DropReason::RestartRateLimited));
    play.wait(1_100_000_001);
    play.game(ids).expect("a game packet");
    assert_eq!(play.server(Body::RestartRequest), Ok(Event::Restarting));
}
