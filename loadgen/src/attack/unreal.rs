//! What attackers of Unreal listeners send.
//!
//! They know what anybody can learn who sends one initial connect from an address of their own: how
//! packets begin, the server's session number, its build, its clock, and a cookie that is valid for
//! that address for forty seconds.

use std::io;

use ringgate_bots::unreal::peer::Fields;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::BitWriter;
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::cookie::{Cookie, Proof, SecretId};
use ringgate_core::proto::unreal::front::{Classified, classify};
use ringgate_core::proto::unreal::handshake::{Body, Handshake, Receiver, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Prefix};

use crate::rng::Rng;

/// A kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnrealPacket {
    /// Begins as the game's packets do; the rest is random.
    Junk,
    /// Asks to be let in, as anybody may.
    Initial,
    /// Answers a challenge of this server's that nobody was sent: the time is right, the cookie a
    /// guess.
    ForgedResponse,
    /// The answer to a challenge that was really sent.
    Response,
    /// Proves the attacker's own address, and claims a connection by a guessed cookie.
    ForgedRestart,
    /// Looks like a packet of a player's game.
    Game,
}

/// Makes packets from what it has learned of a listener.
#[derive(Debug)]
pub(super) struct UnrealForger {
    profile: Profile,
    challenge: Handshake,
    proof: Proof,
    /// A valid response, from the address that it was learned at.
    response: Vec<u8>,
}

impl UnrealForger {
    /// Learns by asking. `ask` sends a datagram from an address of the attacker's and returns the
    /// answer.
    pub(super) fn learn(
        profile: Profile,
        rng: &mut Rng,
        mut ask: impl FnMut(&[u8]) -> io::Result<Vec<u8>>,
    ) -> io::Result<Self> {
        let strange =
            || io::Error::other("the gateway's answer to an initial connect is no challenge");
        let mut client = Client::new(&Profile { client_id: CLIENT_ID, ..profile }, 0);
        let mut out = [0; 128];
        let len = client.poll_transmit(0, &tail(rng), &mut out).ok_or_else(strange)?;
        let answer = ask(&out[..len])?;
        let Ok(Classified::Handshake(challenge)) =
            classify(&answer, &profile.framing, Receiver::Client)
        else {
            return Err(strange());
        };
        let Body::Challenge(proof) = challenge.body else { return Err(strange()) };
        if client.handle_datagram(0, &answer) != Ok(Event::Challenged) {
            return Err(strange());
        }
        let len = client.poll_transmit(0, &tail(rng), &mut out).ok_or_else(strange)?;
        Ok(Self { profile, challenge, proof, response: out[..len].to_vec() })
    }

    /// Writes a datagram and returns its length.
    pub(super) fn write(&self, packet: UnrealPacket, rng: &mut Rng, out: &mut [u8]) -> usize {
        let proof = match packet {
            UnrealPacket::Junk => return self.write_junk(rng, out),
            UnrealPacket::Game => return self.write_game(rng, out),
            UnrealPacket::Response => {
                out[..self.response.len()].copy_from_slice(&self.response);
                return self.response.len();
            }
            UnrealPacket::Initial | UnrealPacket::ForgedRestart => self.proof,
            UnrealPacket::ForgedResponse => Proof {
                secret_id: SecretId::from_bit(rng.below(2) == 1),
                cookie: guess(rng),
                ..self.proof
            },
        };
        let body = match packet {
            UnrealPacket::Initial => Body::Initial { is_restart: false },
            UnrealPacket::ForgedRestart => Body::RestartResponse { proof, original: guess(rng) },
            _ => Body::Response(proof),
        };
        let client =
            if packet == UnrealPacket::ForgedRestart { CLIENT_ID } else { rng.word() as u8 };
        let ids = self.framing().layout.ids(self.challenge.ids.session(), client);
        Handshake { ids, base: self.profile.base, body }.encode(self.framing(), &tail(rng), out)
    }

    const fn framing(&self) -> &Framing {
        &self.profile.framing
    }

    fn write_junk(&self, rng: &mut Rng, out: &mut [u8]) -> usize {
        let len = rng.between(8, 1400) as usize;
        rng.fill(&mut out[..len]);
        let ids = self.framing().layout.ids(rng.word() as u8, rng.word() as u8);
        let prefix = Prefix { ids, is_handshake: rng.below(2) == 1 };
        let mut head = [0; 8];
        let mut writer = BitWriter::new(&mut head);
        self.framing().write(prefix, &mut writer);
        let whole_bytes = writer.position() / 8;
        let rest = writer.position() % 8;
        out[..whole_bytes].copy_from_slice(&head[..whole_bytes]);
        let kept = out[whole_bytes] >> rest << rest;
        out[whole_bytes] = kept | head[whole_bytes];
        len
    }

    /// Numbers are guessed; ids are not hard to.
    fn write_game(&self, rng: &mut Rng, out: &mut [u8]) -> usize {
        let session = self.challenge.ids.session();
        let ids = self.framing().layout.ids(session, rng.word() as u8);
        let mut writer = BitWriter::new(out);
        let fields = Fields {
            sequence: PacketSeq::new(rng.word()),
            acked: PacketSeq::new(rng.word()),
            history: &[u32::MAX],
        };
        fields.write(self.framing(), ids, &mut writer);
        // No packet info. Those without content are shorter than any answer.
        writer.write(0, 1);
        for _ in 0..rng.between(0, 12) {
            writer.write(rng.word(), 64);
        }
        writer.finish(2)
    }
}

fn guess(rng: &mut Rng) -> Cookie {
    let mut cookie = Cookie::ZERO;
    rng.fill(&mut cookie.0);
    cookie
}

fn tail(rng: &mut Rng) -> Tail {
    let mut bytes = [0; TAIL_BYTES_MAX + 1];
    rng.fill(&mut bytes);
    Tail::draw(&bytes)
}

/// The attacker's own connection number.
const CLIENT_ID: u8 = 6;

#[cfg(test)]
mod tests {
    use ringgate_batch::Endpoint;
    use ringgate_bots::unreal::StandIn;
    use ringgate_core::crypto::cookie::CookieMac;
    use ringgate_core::drops::DropReason;
    use ringgate_core::proto::unreal::handshake::Base;
    use ringgate_core::proto::unreal::prefix::Magic;
    use ringgate_core::secret::CookieSecret;

    use super::*;

    #[test]
    fn a_server_takes_each_weapon_for_what_it_is() {
        let base = Base { version_min: 3, version: 4, ..Base::default() };
        let magic = Magic::from_text("10110").expect("binary");
        let framing = Framing { magic, ..Framing::default() };
        let profile = Profile { framing, client_id: 0, base };
        let secrets = [1, 2].map(|byte| CookieSecret::from_bytes([byte; 64]));
        let mut server = StandIn::new(&profile, 3, 10, CookieMac::tag_once, secrets, 1_000_000_000);
        let home = Endpoint::v4([127, 1, 0, 0], 9);
        let mut rng = Rng::new(5);
        let mut serve = |from, bytes: &[u8]| {
            let mut out = [0; 1500];
            let tail = tail(&mut Rng::new(1));
            server
                .handle_datagram(2_000_000_000, from, bytes, &tail, &mut out)
                .map(|len| out[..len].to_vec())
        };
        let forger = UnrealForger::learn(profile, &mut rng, |bytes| {
            serve(home, bytes).map_err(|why| io::Error::other(why.name()))
        });
        let forger = forger.expect("challenged");
        let mut out = [0; 1500];
        let mut strike = |packet, from| {
            let len = forger.write(packet, &mut rng, &mut out);
            serve(from, &out[..len])
        };
        for n in 0..100 {
            let other = Endpoint::v4([127, 1, 1, n], 9);
            assert!(strike(UnrealPacket::Initial, other).is_ok_and(|answer| answer.len() >= 48));
            assert_eq!(strike(UnrealPacket::ForgedRestart, home), Err(DropReason::CookieUnknown));
            assert_eq!(strike(UnrealPacket::Response, other), Err(DropReason::CookieForged));
            let forged = strike(UnrealPacket::ForgedResponse, other);
            let wrong = [DropReason::CookieForged, DropReason::CookieSecret];
            assert!(forged.as_ref().is_err_and(|why| wrong.contains(why)), "{forged:?}");
            assert!(strike(UnrealPacket::Game, other).is_ok_and(|answer| answer.len() <= 28));
            assert_ne!(strike(UnrealPacket::Junk, other), Err(DropReason::UnrealMagic));
        }
        assert!(strike(UnrealPacket::Response, home).is_ok_and(|ack| !ack.is_empty()));
    }
}
