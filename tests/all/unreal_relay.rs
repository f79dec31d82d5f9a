//! Players and a server with a relay between them that follows the gateway's rules and nothing
//! else: handshakes, the server's cookie handed on, game packets over a network that loses, repeats
//! and reorders, restarts from another port.
//!
//! The relay here has no tables worth the name; it shows that the rules are enough. The server
//! judges: it counts every packet that reaches it twice.

use ringgate_batch::Endpoint;
use ringgate_bots::unreal::StandIn;
use ringgate_bots::unreal::bunch::write_data;
use ringgate_bots::unreal::peer::Peer;
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::drops::{DropCounts, DropReason};
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::cookie::{Cookie, MacInput, Proof, Rotation, Timestamp};
use ringgate_core::proto::unreal::front::{
    Classified, FromServer, Identity, InSession, Served, Standing, classify, encode_within,
    from_server, in_session, proof_input,
};
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Receiver};
use ringgate_core::proto::unreal::notify::{Filter, Gaps, Header, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_core::secret::CookieSecret;

use crate::unreal_rig::Dice;

const S: u64 = 1_000_000_000;
const LISTENER: u32 = 7;
const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 0,
    network_version: 0x1234_5678,
    network_features: 1,
};

fn secret(byte: u8) -> CookieSecret {
    CookieSecret::from_bytes([byte; 64])
}

/// A session of the relay: the player's address, and the client that speaks to the server in the
/// player's name.
struct Session {
    player: Endpoint,
    standing: Standing,
    upstream: Client,
    filter: Filter,
}

/// The relay with the server behind it.
struct Relay {
    framing: Framing,
    rotation: Rotation,
    identity: Identity,
    session: Option<Session>,
    server: StandIn,
    dice: Dice,
    now_ns: u64,
    drops: DropCounts,
    bytes: [u64; 2],
}

impl Relay {
    /// How the relay appears to the server, whatever port the player has.
    const LOOPBACK: Endpoint = Endpoint::v4([127, 1, 0, 0], 4000);

    fn new(framing: Framing, seed: u64) -> Self {
        let now_ns = 100 * S;
        let profile = Profile { framing, client_id: 0, base: BASE };
        let mut relay = Self {
            framing,
            rotation: Rotation::new(now_ns, [secret(1), secret(2)], seed),
            identity: Identity::default(),
            session: None,
            server: StandIn::new(
                &profile,
                2,
                4,
                CookieMac::tag_once,
                [secret(3), secret(4)],
                now_ns,
            ),
            dice: Dice(seed),
            now_ns,
            drops: DropCounts::new(),
            bytes: [0; 2],
        };
        relay.probe();
        relay
    }

    /// Learns the server's identity, which costs the server nothing.
    fn probe(&mut self) {
        let mut probe =
            Client::new(&Profile { framing: self.framing, client_id: 0, base: BASE }, 0);
        let mut buf = [0; UNREAL_BYTES_MAX];
        let len = probe.poll_transmit(self.now_ns, &self.dice.tail(), &mut buf).expect("due");
        let answer = self.at_server(Self::LOOPBACK.with_port(1), &buf[..len]).expect("a challenge");
        let Ok(Classified::Handshake(challenge)) =
            classify(&answer, &self.framing, Receiver::Client)
        else {
            panic!("no challenge")
        };
        self.identity = Identity::of_challenge(&challenge);
        assert!(self.server.connections().is_empty());
    }

    fn at_server(&mut self, from: Endpoint, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let mut out = [0; UNREAL_BYTES_MAX];
        let tail = self.dice.tail();
        let len = self.server.handle_datagram(self.now_ns, from, datagram, &tail, &mut out)?;
        Ok(out[..len].to_vec())
    }

    /// A player's datagram; what goes back is at most as long where the player is not known.
    fn handle(&mut self, from: Endpoint, datagram: &[u8]) -> Option<Vec<u8>> {
        self.bytes[0] += datagram.len() as u64;
        match self.decide(from, datagram) {
            Ok(answer) => {
                let is_known = self.session.as_ref().is_some_and(|s| s.player == from);
                assert!(is_known || answer.len() <= datagram.len());
                self.bytes[1] += answer.len() as u64;
                Some(answer).filter(|answer| !answer.is_empty())
            }
            Err(why) => {
                self.drops.bump(why);
                None
            }
        }
    }

    fn decide(&mut self, from: Endpoint, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let framing = self.framing;
        let is_known = self.session.as_ref().is_some_and(|session| session.player == from);
        match classify(datagram, &framing, Receiver::Server)? {
            Classified::Game(_, reader) if is_known => self.relay(&Header::read(reader)?, datagram),
            Classified::Game(ids, reader) => {
                Header::read(reader)?;
                let request = self.identity.restart_request(ids, &(3..=4))?;
                self.write(&request, datagram.len()).ok_or(DropReason::RestartRateLimited)
            }
            Classified::Handshake(packet) => {
                Served { versions: 3..=4, network_versions: None }.check(&framing, &packet.base)?;
                let body = self.answer(from, is_known, &packet)?;
                let answer = self.identity.answer(&packet, body);
                Ok(self.write(&answer, datagram.len()).expect("no answer is longer"))
            }
        }
    }

    fn answer(
        &mut self,
        from: Endpoint,
        is_known: bool,
        packet: &Handshake,
    ) -> Result<Body, DropReason> {
        let standing = self.session.as_ref().filter(|_| is_known).map(|session| session.standing);
        match in_session(packet, standing.as_ref())? {
            InSession::Acknowledge => Ok(Body::Ack(self.upstream_cookie())),
            InSession::AcknowledgeProven(proof) => {
                self.verify(from, packet.ids.client(), &proof)?;
                Ok(Body::Ack(self.upstream_cookie()))
            }
            InSession::Stale(_) => Err(DropReason::ResponseReplayed),
            InSession::Challenge => Ok(Body::Challenge(self.challenge(from, packet.ids.client()))),
            InSession::Replace(proof) => {
                self.verify(from, packet.ids.client(), &proof)?;
                self.open(from, packet, &proof);
                Ok(Body::Ack(self.upstream_cookie()))
            }
            InSession::Restart(proof, original) => {
                self.verify(from, packet.ids.client(), &proof)?;
                let session = self.session.as_mut().filter(|session| {
                    session.upstream.cookie().is_some_and(|cookie| *cookie == original)
                });
                session.ok_or(DropReason::CookieUnknown)?.player = from;
                Ok(Body::Ack(original))
            }
        }
    }

    fn macs(&self) -> [CookieMac; 2] {
        self.rotation.secrets().each_ref().map(CookieMac::new)
    }

    fn challenge(&self, from: Endpoint, client_id: u8) -> Proof {
        let secret_id = self.rotation.epoch().active();
        let timestamp = Timestamp::from_ns(self.now_ns);
        let input = MacInput::new(timestamp, from, client_id, LISTENER);
        let cookie = Cookie(self.macs()[secret_id.index()].tag(input.as_bytes()));
        Proof { secret_id, timestamp, cookie }
    }

    fn verify(&self, from: Endpoint, client_id: u8, proof: &Proof) -> Result<(), DropReason> {
        let epoch = self.rotation.epoch();
        let input = proof_input(&epoch, proof, self.now_ns, from, client_id, LISTENER)?;
        let mac = &self.macs()[proof.secret_id.index()];
        let is_ours = mac.verify(input.as_bytes(), &proof.cookie.0);
        if is_ours { Ok(()) } else { Err(DropReason::CookieForged) }
    }

    /// Takes the player's place toward the server.
    fn open(&mut self, player: Endpoint, packet: &Handshake, proof: &Proof) {
        let base = Base { sent_count: 0, ..packet.base };
        let base = if self.framing.layout == Layout::Original { BASE } else { base };
        let profile = Profile { framing: self.framing, client_id: packet.ids.client(), base };
        let mut upstream = Client::new(&profile, self.now_ns);
        let mut buf = [0; UNREAL_BYTES_MAX];
        let filter = loop {
            let tail = self.dice.tail();
            let len = upstream.poll_transmit(self.now_ns, &tail, &mut buf).expect("due");
            let answer = self.at_server(Self::LOOPBACK, &buf[..len]).expect("an answer");
            if let Event::Connected(cookie) =
                upstream.handle_datagram(self.now_ns, &answer).expect("taken")
            {
                break Filter::starting_at(&cookie, self.now_ns);
            }
        };
        assert_eq!(upstream.ids(), packet.ids.with_session(self.identity.session));
        let standing = Standing {
            ids: packet.ids,
            accepted: proof.cookie,
            proven_ns: proof.timestamp.to_ns().expect("verified"),
            heard_ns: self.now_ns,
            over_ns: None,
        };
        self.session = Some(Session { player, standing, upstream, filter });
    }

    fn upstream_cookie(&self) -> Cookie {
        *self.session.as_ref().and_then(|session| session.upstream.cookie()).expect("open")
    }

    fn relay(&mut self, header: &Header<'_>, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let session = self.session.as_mut().expect("known");
        session.filter.commit(Sender::Client, header, Gaps { now_ns: self.now_ns, limit: 0 })?;
        session.standing.heard_ns = self.now_ns;
        let answer = self.at_server(Self::LOOPBACK, datagram)?;
        self.hand_on(answer)
    }

    /// A server's datagram, if it may go on to the player.
    fn hand_on(&mut self, datagram: Vec<u8>) -> Result<Vec<u8>, DropReason> {
        if datagram.is_empty() {
            return Ok(datagram);
        }
        match classify(&datagram, &self.framing, Receiver::Client)? {
            Classified::Game(_, reader) => {
                let session = self.session.as_mut().expect("known");
                let gaps = Gaps { now_ns: self.now_ns, limit: 0 };
                session.filter.commit(Sender::Server, &Header::read(reader)?, gaps)?;
                Ok(datagram)
            }
            Classified::Handshake(packet) => match from_server(&packet)? {
                FromServer::Ignore => Ok(Vec::new()),
                FromServer::Lost => {
                    self.session = None;
                    Ok(Vec::new())
                }
            },
        }
    }

    fn write(&mut self, answer: &Handshake, bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = [0; UNREAL_BYTES_MAX];
        let tail = self.dice.tail();
        let len = encode_within(answer, &self.framing, tail, bytes_max, &mut out)?;
        Some(out[..len].to_vec())
    }
}

struct Player {
    client: Client,
    peer: Option<Peer>,
    home: Endpoint,
    framing: Framing,
    echoes: u64,
}

impl Player {
    fn new(framing: Framing, client_id: u8, now_ns: u64) -> Self {
        let profile = Profile { framing, client_id, base: BASE };
        let home = Endpoint::v4([192, 0, 2, 1], 5000);
        Self { client: Client::new(&profile, now_ns), peer: None, home, framing, echoes: 0 }
    }

    /// What the handshake has to say now.
    fn handshake(&mut self, relay: &mut Relay) -> Option<Vec<u8>> {
        let mut buf = [0; UNREAL_BYTES_MAX];
        let tail = relay.dice.tail();
        let len = self.client.poll_transmit(relay.now_ns, &tail, &mut buf)?;
        Some(buf[..len].to_vec())
    }

    fn connect(&mut self, relay: &mut Relay) {
        for expected in ["challenged", "connected"] {
            let request = self.handshake(relay).expect(expected);
            let answer = relay.handle(self.home, &request).expect(expected);
            self.handle(relay.now_ns, &answer).expect(expected);
        }
    }

    fn handle(&mut self, now_ns: u64, datagram: &[u8]) -> Result<Event, DropReason> {
        let event = self.client.handle_datagram(now_ns, datagram)?;
        match event {
            Event::Connected(cookie) => self.peer = Some(Peer::new(Sender::Client, &cookie)),
            Event::Game => {
                let (_, reader) = self.framing.read(datagram)?;
                let peer = self.peer.as_mut().expect("connected");
                peer.handle_header(&Header::read(reader)?, true, |_, _| ())?;
                self.echoes += 1;
            }
            _ => {}
        }
        Ok(event)
    }

    /// A packet with some bits in place of bunches; `None` where too many are in flight.
    fn game(&mut self, bits: u64) -> Option<Vec<u8>> {
        let mut payload = [0; 32];
        let mut out = BitWriter::new(&mut payload);
        let has_info = false;
        out.flag(has_info);
        write_data(&bits.to_le_bytes(), &mut out);
        let written = out.position();
        let payload = BitReader::new(&payload).take(written).expect("written");
        let mut buf = [0; 128];
        let ids = self.client.ids();
        let len =
            self.peer.as_mut().expect("connected").write(&self.framing, ids, payload, &mut buf)?;
        Some(buf[..len].to_vec())
    }
}

fn framings() -> [Framing; 4] {
    let magic = |bits: &[bool]| Magic::from_bits(bits).expect("at most 32");
    [
        Framing::default(),
        Framing { layout: Layout::Original, ..Framing::default() },
        Framing { magic: magic(&[true, false, true, true]), ..Framing::default() },
        Framing { magic: magic(&[true; 32]), layout: Layout::Versioned },
    ]
}

#[test]
fn player_and_server_begin_with_the_same_cookie() {
    for framing in framings() {
        let mut relay = Relay::new(framing, 1);
        let mut player = Player::new(framing, 5, relay.now_ns);
        player.connect(&mut relay);
        let connection = &relay.server.connections()[0];
        assert_eq!(player.client.cookie(), Some(&connection.cookie));
        assert_ne!(relay.session.as_ref().map(|s| s.standing.accepted), Some(connection.cookie));
        let datagram = player.game(7).expect("room");
        let echo = relay.handle(player.home, &datagram).expect("an echo");
        assert_eq!(player.handle(relay.now_ns, &echo), Ok(Event::Game));
    }
}

#[test]
fn the_server_sees_every_packet_at_most_once() {
    for (seed, framing) in framings().into_iter().enumerate() {
        let mut relay = Relay::new(framing, seed as u64);
        let mut player = Player::new(framing, 5, relay.now_ns);
        player.connect(&mut relay);
        let mut dice = Dice(seed as u64 + 99);
        // What is on the way to the relay, and what an attacker has kept of it.
        let (mut wire, mut kept) = (Vec::new(), Vec::new());
        let (mut sent, mut passed) = (0, 0);
        for round in 0..40_000_u64 {
            relay.now_ns += S / 100;
            if let Some(datagram) = player.game(round) {
                sent += 1;
                for _ in 0..=dice.roll(4) / 3 {
                    wire.push(datagram.clone());
                }
                kept.push(datagram);
            }
            if kept.len() > 400 {
                kept.swap_remove(dice.roll(400) as usize);
            }
            if dice.roll(8) == 0 {
                wire.push(kept[dice.roll(kept.len() as u64) as usize].clone());
            }
            while wire.len() > dice.roll(6) as usize {
                let datagram = wire.swap_remove(dice.roll(wire.len() as u64) as usize);
                if dice.roll(10) == 0 {
                    continue;
                }
                let Some(echo) = relay.handle(player.home, &datagram) else { continue };
                passed += 1;
                if dice.roll(10) != 0 {
                    player.handle(relay.now_ns, &echo).expect("in order");
                }
            }
        }
        let tally = relay.server.tally;
        assert_eq!((tally.duplicates, tally.implausible), (0, 0));
        assert_eq!(tally.packets, passed);
        // Numbers have wrapped twice, and there was plenty to be caught.
        assert!(sent > 2 * 16_384);
        assert!(tally.packets > 20_000 && player.echoes > 10_000, "{tally:?}");
        assert!(relay.drops.of(DropReason::ReplayDuplicate) > 1_000);
        let explained =
            [DropReason::ReplayDuplicate, DropReason::ReplayTooOld, DropReason::AckImplausible];
        let sum: u64 = explained.iter().map(|&reason| relay.drops.of(reason)).sum();
        assert_eq!(relay.drops.total(), sum, "{:?}", relay.drops);
    }
}

#[test]
fn a_player_moves_to_another_port_and_the_server_does_not_notice() {
    for framing in framings() {
        let mut relay = Relay::new(framing, 3);
        let mut player = Player::new(framing, 5, relay.now_ns);
        player.connect(&mut relay);
        player.home = player.home.with_port(6000);
        let datagram = player.game(1).expect("room");
        let request = relay.handle(player.home, &datagram).expect("a request");
        let refused = player.handle(relay.now_ns, &request);
        assert_eq!(refused, Err(DropReason::RestartRateLimited), "the client waits 10 s");
        relay.now_ns += 12 * S;
        assert_eq!(player.handle(relay.now_ns, &request), Ok(Event::Restarting));
        for expected in [Event::Challenged, Event::Reconnected] {
            let packet = player.handshake(&mut relay).expect("due");
            let answer = relay.handle(player.home, &packet).expect("an answer");
            assert_eq!(player.handle(relay.now_ns, &answer), Ok(expected));
        }
        let datagram = player.game(2).expect("room");
        let echo = relay.handle(player.home, &datagram).expect("an echo");
        assert_eq!(player.handle(relay.now_ns, &echo), Ok(Event::Game));
        let tally = relay.server.tally;
        assert_eq!((tally.connections, tally.restarts, tally.restart_requests), (1, 0, 0));
    }
}

#[test]
fn a_captured_restart_response_is_worth_nothing_elsewhere() {
    let framing = Framing::default();
    let mut relay = Relay::new(framing, 4);
    let mut player = Player::new(framing, 5, relay.now_ns);
    player.connect(&mut relay);
    let original = *player.client.cookie().expect("connected");
    let thief = Endpoint::v4([198, 51, 100, 1], 1);
    let proof = relay.challenge(player.home, 5);
    let body = Body::RestartResponse { proof, original };
    let packet = Handshake { ids: player.client.ids(), base: BASE, body };
    let mut buf = [0; UNREAL_BYTES_MAX];
    let len = packet.encode(&framing, &relay.dice.tail(), &mut buf);
    assert_eq!(relay.handle(thief, &buf[..len]), None);
    assert_eq!(relay.drops.of(DropReason::CookieForged), 1);
    assert_eq!(relay.session.as_ref().map(|session| session.player), Some(player.home));
}

#[test]
fn any_flipped_bit_of_a_response_is_refused() {
    let framing = Framing::default();
    let mut relay = Relay::new(framing, 5);
    let mut player = Player::new(framing, 5, relay.now_ns);
    let request = player.handshake(&mut relay).expect("due");
    let challenge = relay.handle(player.home, &request).expect("a challenge");
    player.handle(relay.now_ns, &challenge).expect("a challenge");
    let response = player.handshake(&mut relay).expect("due");
    // Client id, secret, timestamp, cookie.
    for bit in (2..5).chain(87..312) {
        let mut forged = response.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(relay.handle(player.home, &forged), None, "bit {bit}");
    }
    for other in [player.home.with_port(5001), Endpoint::v4([192, 0, 2, 3], 5000)] {
        assert_eq!(relay.handle(other, &response), None);
    }
    let refused = [DropReason::CookieForged, DropReason::CookieExpired, DropReason::CookieSecret];
    let sum: u64 = refused.iter().map(|&reason| relay.drops.of(reason)).sum();
    assert_eq!((sum, relay.drops.total()), (230, 230));
    assert!(relay.session.is_none() && relay.handle(player.home, &response).is_some());
}

#[test]
fn cookies_outlive_one_rotation_and_not_two() {
    let framing = Framing::default();
    for (rotations, is_taken) in [(0, true), (1, true), (2, false)] {
        let mut relay = Relay::new(framing, 6);
        let mut player = Player::new(framing, 5, relay.now_ns);
        let request = player.handshake(&mut relay).expect("due");
        let challenge = relay.handle(player.home, &request).expect("a challenge");
        player.handle(relay.now_ns, &challenge).expect("a challenge");
        let response = player.handshake(&mut relay).expect("due");
        for n in 0..rotations {
            relay.now_ns = relay.rotation.poll_timeout();
            assert!(relay.rotation.handle_timeout(relay.now_ns, secret(10 + n), 0));
        }
        assert_eq!(relay.handle(player.home, &response).is_some(), is_taken, "{rotations}");
    }
}

#[test]
fn a_flood_of_initials_gets_no_more_than_it_sent_and_leaves_nothing() {
    let framing = Framing::default();
    let mut relay = Relay::new(framing, 7);
    let mut player = Player::new(framing, 5, relay.now_ns);
    let initial = player.handshake(&mut relay).expect("due");
    for n in 0..100_000_u32 {
        let from = Endpoint::v4((n.wrapping_mul(2_654_435_761)).to_le_bytes(), n as u16);
        assert!(relay.handle(from, &initial).is_some());
    }
    let [received, sent] = relay.bytes;
    assert!(sent <= received && relay.session.is_none() && relay.server.connections().is_empty());
}

#[test]
fn a_server_that_has_forgotten_ends_the_session() {
    let framing = Framing::default();
    let mut relay = Relay::new(framing, 8);
    let mut player = Player::new(framing, 5, relay.now_ns);
    player.connect(&mut relay);
    let profile = Profile { framing, client_id: 0, base: BASE };
    relay.server =
        StandIn::new(&profile, 2, 4, CookieMac::tag_once, [secret(8), secret(9)], relay.now_ns);
    let datagram = player.game(1).expect("room");
    assert_eq!(relay.handle(player.home, &datagram), None);
    assert!(relay.session.is_none());
}

#[test]
fn a_lost_acknowledgement_is_repeated_and_a_new_connection_takes_over() {
    let framing = Framing::default();
    let mut relay = Relay::new(framing, 9);
    let mut player = Player::new(framing, 5, relay.now_ns);
    let request = player.handshake(&mut relay).expect("due");
    let challenge = relay.handle(player.home, &request).expect("a challenge");
    player.handle(relay.now_ns, &challenge).expect("a challenge");
    let response = player.handshake(&mut relay).expect("due");
    let _lost = relay.handle(player.home, &response).expect("an acknowledgement");
    let repeated = relay.handle(player.home, &response).expect("an acknowledgement");
    assert!(matches!(player.handle(relay.now_ns, &repeated), Ok(Event::Connected(_))));
    assert_eq!(relay.server.tally.connections, 1);

    // An initial connect alone changes nothing. (The server's cookie is one of its address and
    // time.)
    relay.now_ns += S;
    let mut again = Player::new(framing, 6, relay.now_ns);
    let request = again.handshake(&mut relay).expect("due");
    let challenge = relay.handle(again.home, &request).expect("a challenge");
    let datagram = player.game(1).expect("room");
    assert!(relay.handle(player.home, &datagram).is_some());
    again.handle(relay.now_ns, &challenge).expect("a challenge");
    let response = again.handshake(&mut relay).expect("due");
    let ack = relay.handle(again.home, &response).expect("an acknowledgement");
    assert!(matches!(again.handle(relay.now_ns, &ack), Ok(Event::Connected(_))));
    assert_ne!(again.client.cookie(), player.client.cookie());
    let datagram = again.game(1).expect("room");
    assert!(relay.handle(again.home, &datagram).is_some());
}
