//! The stand-in against the engine's client, without a gateway between them.

use super::*;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::client::{Client, Event};
use ringgate_core::proto::unreal::handshake::HANDSHAKE_BYTES_MAX;
use ringgate_core::proto::unreal::prefix::{Ids, Layout, Magic};

const S: u64 = NS_PER_S;

const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 2,
    network_version: 0x1234_5678,
    network_features: 1,
};
const VERSIONED: Framing = Framing { magic: Magic::NONE, layout: Layout::Versioned };
const ORIGINAL: Framing = Framing { magic: Magic::NONE, layout: Layout::Original };

/// The shortest tail.
fn tail() -> Tail {
    let mut random = [0x55; 17];
    random[0] = 0;
    Tail::draw(&random)
}

/// Good enough to depend on every byte.
fn toy_mac(secret: &[u8; COOKIE_SECRET_BYTES], message: &[u8]) -> [u8; COOKIE_BYTES] {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    let mut next = |byte: &u8| {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        (state >> 29) as u8
    };
    secret.iter().chain(message).for_each(|byte| {
        next(byte);
    });
    std::array::from_fn(|index| next(&(index as u8)))
}

fn secret(byte: u8) -> CookieSecret {
    CookieSecret::from_bytes([byte; COOKIE_SECRET_BYTES])
}

struct Play {
    server: StandIn,
    client: Client,
    peer: Option<Peer>,
    home: Endpoint,
    framing: Framing,
    now_ns: u64,
}

impl Play {
    fn new(framing: Framing) -> Self {
        let profile = Profile { framing, client_id: 3, base: BASE };
        let now_ns = 50 * S;
        Self {
            server: StandIn::new(&profile, 2, 1, toy_mac, [secret(1), secret(2)], now_ns),
            client: Client::new(&profile, now_ns),
            peer: None,
            home: Endpoint::v4([192, 0, 2, 7], 5000),
            framing,
            now_ns,
        }
    }

    fn connected(framing: Framing) -> Self {
        let mut play = Self::new(framing);
        assert_eq!(play.exchange(), Some(Ok(Event::Challenged)));
        let Some(Ok(Event::Connected(cookie))) = play.exchange() else { panic!("not connected") };
        play.peer = Some(Peer::new(Sender::Client, &cookie));
        play
    }

    fn deliver(&mut self, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let mut out = [0; UNREAL_BYTES_MAX];
        let len =
            self.server.handle_datagram(self.now_ns, self.home, datagram, &tail(), &mut out)?;
        Ok(out[..len].to_vec())
    }

    /// What the client sends, and what it makes of the answer.
    fn exchange(&mut self) -> Option<Result<Event, DropReason>> {
        let mut buf = [0; HANDSHAKE_BYTES_MAX];
        let len = self.client.poll_transmit(self.now_ns, &tail(), &mut buf)?;
        let answer = match self.deliver(&buf[..len]) {
            Ok(answer) => answer,
            Err(why) => return Some(Err(why)),
        };
        Some(self.client.handle_datagram(self.now_ns, &answer))
    }

    fn game_packet(&mut self, bunches: &[bool]) -> Vec<u8> {
        let mut payload = [0; 16];
        let mut out = ringgate_core::proto::unreal::bits::BitWriter::new(&mut payload);
        out.flag(false);
        for &bit in bunches {
            out.flag(bit);
        }
        let len = out.position();
        let payload = BitReader::new(&payload).take(len).expect("written");
        let mut buf = [0; 64];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buf).expect("room");
        buf[..len].to_vec()
    }
}

#[test]
fn a_client_gets_in_and_hears_itself() {
    for framing in [VERSIONED, ORIGINAL] {
        let mut play = Play::connected(framing);
        let bunch = [true, false, true, true, false];
        let datagram = play.game_packet(&bunch);
        let answer = play.deliver(&datagram).expect("an echo");
        let (_, reader) = framing.read(&answer).expect("a packet");
        let header = Header::read(reader).expect("a header");
        let mut echoed = header.payload();
        assert_eq!(echoed.flag(), Some(false));
        assert!(bunch.into_iter().eq(std::iter::from_fn(|| echoed.flag())));
        let peer = play.peer.as_mut().expect("connected");
        let mut news = Vec::new();
        peer.handle_header(&header, true, |_, arrived| news.push(arrived)).expect("in order");
        assert_eq!(news, [true]);
        let expected = Tally {
            challenges: 1,
            connections: 1,
            acks: 1,
            packets: 1,
            echoes: 1,
            ..Tally::default()
        };
        assert_eq!(play.server.tally, expected);
    }
}

#[test]
fn an_empty_packet_is_not_echoed_and_keep_alives_are_paced() {
    let mut play = Play::connected(VERSIONED);
    let datagram = play.game_packet(&[]);
    assert_eq!(play.deliver(&datagram), Ok(vec![]));
    let mut out = [0; 64];
    play.now_ns += S / 5 - 1;
    assert_eq!(play.server.poll_keep_alive(play.now_ns, &mut out), None);
    play.now_ns += 1;
    let (to, len) = play.server.poll_keep_alive(play.now_ns, &mut out).expect("due");
    assert_eq!((to, len), (play.home, 10));
    assert_eq!(play.server.poll_keep_alive(play.now_ns, &mut out), None);
    let game = play.client.handle_datagram(play.now_ns, &out[..len]);
    assert_eq!(game, Ok(Event::Game));
}

#[test]
fn duplicates_late_and_impossible_packets_are_told_apart() {
    let mut play = Play::connected(VERSIONED);
    let packets: Vec<_> = (0..4).map(|_| play.game_packet(&[true])).collect();
    assert!(play.deliver(&packets[1]).is_ok());
    assert_eq!(play.deliver(&packets[1]), Err(DropReason::ReplayDuplicate));
    assert_eq!(play.deliver(&packets[0]), Err(DropReason::ReplayTooOld));
    assert_eq!(play.deliver(&packets[0]), Err(DropReason::ReplayDuplicate));
    let mut lie = packets[3].clone();
    let at = VERSIONED.prefix_bits() + 4;
    let acked = ringgate_core::proto::unreal::bits::load(&lie, at, 14);
    ringgate_core::proto::unreal::bits::store(&mut lie, at, 14, acked + 100);
    assert_eq!(play.deliver(&lie), Err(DropReason::AckImplausible));
    let tally = play.server.tally;
    assert_eq!((tally.packets, tally.duplicates, tally.late, tally.implausible), (1, 2, 1, 1));
}

#[test]
fn numbers_are_seen_once_through_many_wraps() {
    let mut play = Play::connected(VERSIONED);
    let mut previous = Vec::new();
    for _ in 0..40_000 {
        let datagram = play.game_packet(&[true]);
        let answer = play.deliver(&datagram).expect("an echo");
        let (_, reader) = VERSIONED.read(&answer).expect("a packet");
        let header = Header::read(reader).expect("a header");
        let peer = play.peer.as_mut().expect("connected");
        peer.handle_header(&header, true, |_, arrived| assert!(arrived)).expect("in order");
        if !previous.is_empty() {
            assert_eq!(play.deliver(&previous), Err(DropReason::ReplayDuplicate));
        }
        previous = datagram;
    }
    assert_eq!((play.server.tally.packets, play.server.tally.duplicates), (40_000, 39_999));
}

#[test]
fn a_client_that_moves_is_asked_to_restart_and_goes_on() {
    let mut play = Play::connected(VERSIONED);
    let cookie = play.server.connections()[0].cookie;
    play.now_ns += 11 * S;
    assert!(!play.server.handle_timeout(play.now_ns, secret(3), 0));
    play.home = play.home.with_port(6000);
    let datagram = play.game_packet(&[true]);
    let request = play.deliver(&datagram).expect("a request");
    assert_eq!(request.len(), 19);
    let event = play.client.handle_datagram(play.now_ns, &request);
    assert_eq!(event, Ok(Event::Restarting));
    assert_eq!(play.exchange(), Some(Ok(Event::Challenged)));
    assert_eq!(play.exchange(), Some(Ok(Event::Reconnected)));
    assert_eq!(play.server.connections()[0].address, play.home);
    assert_eq!(play.client.cookie(), Some(&cookie));
    let datagram = play.game_packet(&[true]);
    assert!(play.deliver(&datagram).is_ok());
    assert_eq!((play.server.tally.restarts, play.server.tally.packets), (1, 1));
}

#[test]
fn cookies_are_for_one_address_one_time_and_one_secret() {
    let challenged = || {
        let mut play = Play::new(VERSIONED);
        assert_eq!(play.exchange(), Some(Ok(Event::Challenged)));
        play
    };
    let mut moved = challenged();
    moved.home = moved.home.with_port(5001);
    assert_eq!(moved.exchange(), Some(Err(DropReason::CookieForged)));

    let mut late = challenged();
    late.now_ns += 14 * S;
    let mut buf = [0; HANDSHAKE_BYTES_MAX];
    let len = late.client.poll_transmit(late.now_ns, &tail(), &mut buf).expect("due");
    late.now_ns += 26 * S;
    assert_eq!(late.deliver(&buf[..len]), Err(DropReason::CookieExpired));

    let mut rotated = challenged();
    rotated.now_ns += 15 * S;
    assert!(!rotated.server.handle_timeout(rotated.now_ns, secret(3), 0));
    assert!(rotated.server.handle_timeout(rotated.now_ns + 1, secret(3), 0));
    assert!(matches!(rotated.exchange(), Some(Ok(Event::Connected(_)))));

    let mut twice = challenged();
    for byte in [3, 4] {
        twice.now_ns += 15 * S + 1;
        assert!(twice.server.handle_timeout(twice.now_ns, secret(byte), 0));
    }
    let len = twice.client.poll_transmit(twice.now_ns - 16 * S, &tail(), &mut buf).expect("due");
    assert_eq!(twice.deliver(&buf[..len]), Err(DropReason::CookieSecret));
}

#[test]
fn a_full_server_and_one_that_travelled_say_nothing() {
    let mut play = Play::connected(VERSIONED);
    let home = play.home;
    let profile = Profile { framing: VERSIONED, client_id: 4, base: BASE };
    let first = std::mem::replace(&mut play.client, Client::new(&profile, play.now_ns));
    play.home = home.with_port(1);
    assert_eq!(play.exchange(), Some(Ok(Event::Challenged)));
    assert_eq!(play.exchange(), Some(Err(DropReason::RequestBackendFull)));
    // Whoever is in is sent the acknowledgement again, which a client that has just begun does not
    // take.
    play.home = home;
    play.client = Client::new(&Profile { client_id: 3, ..profile }, play.now_ns);
    assert_eq!(play.exchange(), Some(Err(DropReason::UnrealIds)));
    assert_eq!(play.server.tally.acks, 2);

    play.client = first;
    let datagram = play.game_packet(&[true]);
    play.server.travel();
    assert_eq!(play.deliver(&datagram), Err(DropReason::UnrealIds));
    assert!(play.server.connections().is_empty());
}

fn cookie_of(server: &StandIn, address: Endpoint) -> Cookie {
    server.connections()[server.connections.at_address(address).expect("here")].cookie
}

#[test]
fn somebody_too_old_is_told_so_and_somebody_silent_is_forgotten_alone() {
    let mut play = Play::new(VERSIONED);
    play.client = Client::new(
        &Profile { framing: VERSIONED, client_id: 3, base: Base { version: 2, ..BASE } },
        0,
    );
    assert_eq!(play.exchange(), Some(Ok(Event::WrongVersion)));
    assert_eq!((play.server.tally.upgrades, play.server.tally.challenges), (1, 0));

    let mut play = Play::connected(VERSIONED);
    play.now_ns += 4 * S;
    let datagram = play.game_packet(&[true]);
    assert!(play.deliver(&datagram).is_ok());
    play.server.close_idle(play.now_ns + 5 * S, 5 * S);
    assert_eq!(play.server.connections().len(), 1);

    let mut close = [0; 16];
    let mut out = ringgate_core::proto::unreal::bits::BitWriter::new(&mut close);
    bunch::write_close(7, &mut out);
    let len = out.position();
    let mut reader = BitReader::new(&close).take(len).expect("written");
    let bits: Vec<_> = std::iter::from_fn(|| reader.flag()).collect();
    let datagram = play.game_packet(&bits);
    assert_eq!(play.deliver(&datagram), Ok(vec![]));
    assert_eq!((play.server.connections().len(), play.server.tally.goodbyes), (0, 1));
}

#[test]
fn many_players_come_and_move_and_each_keeps_its_place() {
    let profile = Profile { framing: VERSIONED, client_id: 1, base: BASE };
    let mut server = StandIn::new(&profile, 0, 50, toy_mac, [secret(1), secret(2)], S);
    let home = |n: u8| Endpoint::v4([10, 0, 0, n], 5000);
    let mut out = [0; UNREAL_BYTES_MAX];
    let mut send = |server: &mut StandIn, from, body| {
        let packet = Handshake { ids: Ids::new(0, 1), base: BASE, body };
        let mut buf = [0; HANDSHAKE_BYTES_MAX];
        let len = packet.encode(&VERSIONED, &tail(), &mut buf);
        server.handle_datagram(S, from, &buf[..len], &tail(), &mut out).expect("taken")
    };
    for n in 0..50 {
        let proof = server.challenge(S, home(n));
        send(&mut server, home(n), Body::Response(proof));
    }
    // Every other one moves.
    for n in (0..50).step_by(2) {
        let to = home(n).with_port(1);
        let original = cookie_of(&server, home(n));
        let proof = server.challenge(S, to);
        send(&mut server, to, Body::RestartResponse { proof, original });
    }
    let original = cookie_of(&server, home(1));
    // A known address that proves another connection's cookie is only told its own again.
    let proof = server.challenge(S, home(3));
    send(&mut server, home(3), Body::RestartResponse { proof, original });
    assert_eq!((server.connections().len(), server.tally.restarts), (50, 25));
    server.connections.assert_consistent();
    let mut told = Vec::new();
    while let Some((to, _)) = server.poll_keep_alive(2 * S, &mut out) {
        told.push(to);
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 50);
    server.close_idle(3 * S, 2 * S);
    assert_eq!((server.connections().len(), server.tally.idle), (50, 0));
    server.close_idle(3 * S + 1, 2 * S);
    assert_eq!((server.connections().len(), server.tally.idle), (0, 50));
    server.connections.assert_consistent();
}

#[test]
fn a_client_that_claims_any_version_is_answered_or_refused() {
    for (layout, version) in Layout::ALL.into_iter().flat_map(|it| (0..7).map(move |v| (it, v))) {
        let framing = Framing { layout, ..Framing::default() };
        let mut play = Play::new(framing);
        let base = Base { version_min: 0, version, ..BASE };
        let body = Body::Initial { is_restart: false };
        let packet = Handshake { ids: layout.ids(0, 3), base, body };
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let len = packet.encode(&framing, &tail(), &mut out);
        let answer = play.deliver(&out[..len]);
        let is_told = answer.as_ref().is_ok_and(|answer| !answer.is_empty());
        assert!(is_told || answer == Err(DropReason::UnrealVersion), "{layout:?} {version}");
    }
}
