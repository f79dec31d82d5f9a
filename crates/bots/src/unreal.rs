//! A stand-in for an engine's server: takes players in as the engine does, keeps honest sequences
//! and acknowledgements, and echoes their bunches. For tests, and for `ringgate echo`.
//!
//! It checks gateways, so it shares no rule with the core's
//! [`front`](ringgate_core::proto::unreal::front), and none but the cookie's size with its
//! [`cookie`](ringgate_core::proto::unreal::cookie): it makes cookies over the text of the address,
//! as the engine does, has its own secrets and its own clock of seconds, and finds duplicates with
//! a bit for each number that there is. The MAC is the caller's, because nothing here computes one;
//! which one it is does not matter to others.
//!
//! What it cannot tell is what a game would say: bunches go back as they came, which only for
//! unreliable ones of a channel that is open on both sides, such as the control channel, is what a
//! player expects. A player that closes the control channel is gone, and so is one that is silent
//! for long enough ([`StandIn::close_idle`]).
//!
//! All memory is taken when it is made, except for connections: each takes about 3 KiB when it is
//! opened.

pub mod bunch;
mod connections;
pub mod peer;

use std::io::Write;

pub use self::connections::Connection;
use self::connections::Connections;
use self::peer::Peer;

use ringgate_core::drops::DropReason;
use ringgate_core::endpoint::Endpoint;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::bunch::{Bunch, behind_packet_info};
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::cookie::{COOKIE_BYTES, Cookie, Proof, SecretId, Timestamp};
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Kind, Receiver, Tail};
use ringgate_core::proto::unreal::notify::{HISTORY_PACKETS_MAX, Header, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Prefix};
use ringgate_core::secret::{COOKIE_SECRET_BYTES, CookieSecret};

const NS_PER_S: u64 = 1_000_000_000;

/// The MAC that cookies are made with.
pub type Mac = fn(&[u8; COOKIE_SECRET_BYTES], &[u8]) -> [u8; COOKIE_BYTES];

/// What a stand-in did, and what it found wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Challenges sent.
    pub challenges: u64,
    /// Connections opened.
    pub connections: u64,
    /// Connections that moved to another address.
    pub restarts: u64,
    /// Acknowledgements sent, repeated ones included.
    pub acks: u64,
    /// Requests to restart sent.
    pub restart_requests: u64,
    /// Clients told that their version is not spoken here.
    pub upgrades: u64,
    /// Connections that their players closed.
    pub goodbyes: u64,
    /// Connections closed because nothing was heard for too long.
    pub idle: u64,
    /// Game packets taken.
    pub packets: u64,
    /// Game packets with a number that had arrived before: what a gateway has to prevent.
    pub duplicates: u64,
    /// Game packets that came behind a newer one.
    pub late: u64,
    /// Game packets whose acknowledgement cannot be true.
    pub implausible: u64,
    /// Bunches sent back.
    pub echoes: u64,
    /// Bunches that could not be sent back: too many packets were in flight.
    pub stifled: u64,
}

/// A server.
#[derive(Debug)]
pub struct StandIn {
    framing: Framing,
    session: u8,
    base: Base,
    mac: Mac,
    secrets: [CookieSecret; 2],
    active: usize,
    rotated_s: f64,
    connections: Connections,
    /// The connection to look at first for a keep-alive, so that those who come late in the list
    /// get theirs too.
    keep_alive_next: usize,
    /// What happened so far.
    pub tally: Tally,
}

impl StandIn {
    /// A server for that many players. The profile says how packets begin and which versions and
    /// build it has; its client id is of no meaning.
    pub fn new(
        profile: &Profile,
        session: u8,
        connections_max: usize,
        mac: Mac,
        secrets: [CookieSecret; 2],
        now_ns: u64,
    ) -> Self {
        Self {
            framing: profile.framing,
            session: profile.framing.layout.ids(session, 0).session(),
            base: profile.base,
            mac,
            secrets,
            active: 0,
            rotated_s: seconds(now_ns),
            connections: Connections::with_capacity(connections_max),
            keep_alive_next: 0,
            tally: Tally::default(),
        }
    }

    /// The players.
    pub fn connections(&self) -> &[Connection] {
        self.connections.as_slice()
    }

    /// Travels to another level as an engine does: everybody is gone, and the session has the next
    /// number.
    pub fn travel(&mut self) {
        self.connections.clear();
        self.session = self.framing.layout.ids(self.session + 1, 0).session();
    }

    /// Replaces the older secret if it is time; says whether it was. To be called at every tick
    /// with random numbers, as the engine does, which draws the length of the period anew each
    /// time.
    pub fn handle_timeout(&mut self, now_ns: u64, fresh: CookieSecret, draw: u8) -> bool {
        let period_s = SECRET_PERIOD_S + SECRET_VARIANCE_S * f64::from(draw) / 255.0;
        if seconds(now_ns) - self.rotated_s <= period_s {
            return false;
        }
        self.active = 1 - self.active;
        self.secrets[self.active] = fresh;
        self.rotated_s = seconds(now_ns);
        true
    }

    /// Takes a datagram and writes what goes back to its sender; 0 bytes where nothing does.
    ///
    /// # Panics
    /// Where the buffer is shorter than a datagram may be.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        from: Endpoint,
        datagram: &[u8],
        tail: &Tail,
        out: &mut [u8],
    ) -> Result<usize, DropReason> {
        let (prefix, reader) = self.framing.read(datagram)?;
        let known = self.connections.at_address(from);
        if !prefix.is_handshake {
            return match known {
                Some(index) => self.handle_game(now_ns, index, prefix, reader, out),
                None => self.ask_to_restart(prefix, reader, tail, out),
            };
        }
        let packet = Handshake::decode(&self.framing, prefix, reader, Receiver::Server)?;
        let is_same_client =
            |index: &usize| self.connections()[*index].ids.client() == packet.ids.client();
        if let Some(index) = known.filter(is_same_client) {
            // The acknowledgement must have been lost.
            let cookie = self.connections()[index].cookie;
            return Ok(self.acknowledge(&packet, cookie, tail, out));
        }
        let answer = match packet.body {
            Body::Initial { .. } if self.is_too_old(&packet.base) => {
                let version = self.base.version.min(packet.base.version);
                // Version 1 has no packet that says so.
                if Kind::VersionUpgrade.body_end(&self.framing, version).is_none() {
                    return Err(DropReason::UnrealVersion);
                }
                self.tally.upgrades += 1;
                return Ok(self.answer(&packet, Body::VersionUpgrade, tail, out));
            }
            Body::Initial { .. } => self.challenge(now_ns, from),
            Body::Response(proof) => {
                self.verify(now_ns, from, &proof)?;
                let cookie = self.open(now_ns, from, &packet, proof.cookie)?;
                return Ok(self.acknowledge(&packet, cookie, tail, out));
            }
            Body::RestartResponse { proof, original } => {
                self.verify(now_ns, from, &proof)?;
                let cookie = self.move_connection(now_ns, from, original)?;
                return Ok(self.acknowledge(&packet, cookie, tail, out));
            }
            _ => return Err(DropReason::PacketUnexpected),
        };
        self.tally.challenges += 1;
        Ok(self.answer(&packet, Body::Challenge(answer), tail, out))
    }

    /// Writes an empty packet for the next player who has been sent nothing for a fifth of a
    /// second, and says to whom.
    ///
    /// # Panics
    /// As [`handle_datagram`](Self::handle_datagram).
    pub fn poll_keep_alive(&mut self, now_ns: u64, out: &mut [u8]) -> Option<(Endpoint, usize)> {
        let is_due = |player: &Connection| {
            now_ns.saturating_sub(player.sent_ns) >= KEEP_ALIVE_NS
                && player.peer.in_flight() < HISTORY_PACKETS_MAX
        };
        let players = self.connections.as_slice();
        let (from, count) = (self.keep_alive_next, players.len());
        let mut order = (from..count).chain(0..from.min(count));
        let index = order.find(|&index| is_due(&players[index]))?;
        self.keep_alive_next = index + 1;
        let player = self.connections.get_mut(index);
        player.sent_ns = now_ns;
        let len = player.peer.write(&self.framing, player.ids, no_bunches(), out)?;
        Some((player.address, len))
    }

    /// Closes the connections of those who have not been heard for so long. To be called now and
    /// then: it looks at everyone.
    pub fn close_idle(&mut self, now_ns: u64, timeout_ns: u64) {
        for index in (0..self.connections().len()).rev() {
            if now_ns.saturating_sub(self.connections()[index].heard_ns) > timeout_ns {
                self.connections.remove(index);
                self.tally.idle += 1;
            }
        }
    }

    /// Whether a client speaks no version that is spoken here. Those of the original layout do not
    /// say.
    fn is_too_old(&self, client: &Base) -> bool {
        self.framing.layout.has_versions() && client.version < self.base.version_min
    }

    fn challenge(&self, now_ns: u64, from: Endpoint) -> Proof {
        let timestamp = Timestamp::from_seconds(seconds(now_ns));
        let cookie = self.cookie(self.active, timestamp, from);
        Proof { secret_id: SecretId::from_bit(self.active == 1), timestamp, cookie }
    }

    fn verify(&self, now_ns: u64, from: Endpoint, proof: &Proof) -> Result<(), DropReason> {
        let made_s = proof.timestamp.seconds();
        let age_s = seconds(now_ns) - made_s;
        if !(0.0..COOKIE_LIFETIME_S).contains(&age_s) {
            return Err(DropReason::CookieExpired);
        }
        let secret = proof.secret_id.index();
        let in_use =
            if secret == self.active { made_s >= self.rotated_s } else { made_s <= self.rotated_s };
        if !in_use {
            return Err(DropReason::CookieSecret);
        }
        let is_ours = self.cookie(secret, proof.timestamp, from) == proof.cookie;
        if is_ours { Ok(()) } else { Err(DropReason::CookieForged) }
    }

    /// The MAC over the timestamp and the address as a string of the engine's: length, characters,
    /// NUL.
    fn cookie(&self, secret: usize, timestamp: Timestamp, from: Endpoint) -> Cookie {
        let mut message = [0; COOKIE_MESSAGE_BYTES];
        message[..8].copy_from_slice(&timestamp.to_wire().to_le_bytes());
        let mut text = &mut message[12..];
        let room = text.len();
        write!(text, "{}:{}\0", from.ip(), from.port()).expect("every address is that short");
        let len = room - text.len();
        message[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        Cookie((self.mac)(self.secrets[secret].as_bytes(), &message[..12 + len]))
    }

    fn open(
        &mut self,
        now_ns: u64,
        from: Endpoint,
        packet: &Handshake,
        cookie: Cookie,
    ) -> Result<Cookie, DropReason> {
        self.vacate(from);
        if self.connections.is_full() {
            return Err(DropReason::RequestBackendFull);
        }
        self.tally.connections += 1;
        self.connections.insert(Connection {
            address: from,
            ids: packet.ids.with_session(self.session),
            cookie,
            base: packet.base,
            peer: Peer::new(Sender::Server, &cookie),
            seen: Box::default(),
            sent_ns: now_ns,
            heard_ns: now_ns,
        });
        Ok(cookie)
    }

    /// Forgets the player at that address.
    fn vacate(&mut self, address: Endpoint) {
        if let Some(index) = self.connections.at_address(address) {
            self.connections.remove(index);
        }
    }

    fn move_connection(
        &mut self,
        now_ns: u64,
        to: Endpoint,
        original: Cookie,
    ) -> Result<Cookie, DropReason> {
        self.connections.with_cookie(&original).ok_or(DropReason::CookieUnknown)?;
        // The player who was there before is not there any more.
        self.vacate(to);
        let index = self.connections.with_cookie(&original).ok_or(DropReason::CookieUnknown)?;
        self.connections.readdress(index, to);
        self.connections.get_mut(index).heard_ns = now_ns;
        self.tally.restarts += 1;
        Ok(original)
    }

    fn acknowledge(
        &mut self,
        packet: &Handshake,
        cookie: Cookie,
        tail: &Tail,
        out: &mut [u8],
    ) -> usize {
        self.tally.acks += 1;
        self.answer(packet, Body::Ack(cookie), tail, out)
    }

    fn answer(&self, packet: &Handshake, body: Body, tail: &Tail, out: &mut [u8]) -> usize {
        let base = Base {
            version: self.base.version.min(packet.base.version),
            sent_count: packet.base.sent_count,
            ..self.base
        };
        let ids = packet.ids.with_session(self.session);
        Handshake { ids, base, body }.encode(&self.framing, tail, out)
    }

    fn ask_to_restart(
        &mut self,
        prefix: Prefix,
        reader: BitReader<'_>,
        tail: &Tail,
        out: &mut [u8],
    ) -> Result<usize, DropReason> {
        Header::read(reader)?;
        if prefix.ids.session() != self.session {
            return Err(DropReason::UnrealIds);
        }
        self.tally.restart_requests += 1;
        let base = Base { version: self.base.version_min, ..self.base };
        let request = Handshake { ids: prefix.ids, base, body: Body::RestartRequest };
        Ok(request.encode(&self.framing, tail, out))
    }

    fn handle_game(
        &mut self,
        now_ns: u64,
        index: usize,
        prefix: Prefix,
        reader: BitReader<'_>,
        out: &mut [u8],
    ) -> Result<usize, DropReason> {
        let player = self.connections.get_mut(index);
        if prefix.ids != player.ids {
            return Err(DropReason::UnrealIds);
        }
        let header = Header::read(reader)?;
        let bunches = behind_packet_info(header.payload()).ok_or(DropReason::UnrealSize)?;
        if player.seen.contains(header.sequence) {
            self.tally.duplicates += 1;
            return Err(DropReason::ReplayDuplicate);
        }
        let before = player.peer.latest();
        if let Err(why) = player.peer.handle_header(&header, true, |_, _| ()) {
            match why {
                DropReason::AckImplausible => self.tally.implausible += 1,
                _ => {
                    player.seen.insert(header.sequence);
                    self.tally.late += 1;
                }
            }
            return Err(why);
        }
        player.seen.advance(before, header.sequence);
        player.heard_ns = now_ns;
        self.tally.packets += 1;
        if bunches.remaining() == 0 {
            return Ok(0);
        }
        if matches!(Bunch::read(bunches), Some(Bunch::Close)) {
            self.connections.remove(index);
            self.tally.goodbyes += 1;
            return Ok(0);
        }
        let (payload, len) = echo(bunches);
        let payload = BitReader::new(&payload).take(len).ok_or(DropReason::UnrealSize)?;
        let Some(len) = player.peer.write(&self.framing, player.ids, payload, out) else {
            self.tally.stifled += 1;
            return Ok(0);
        };
        player.sent_ns = now_ns;
        self.tally.echoes += 1;
        Ok(len)
    }
}

/// The bunches behind a packet info that is not there, and how many bits that is.
fn echo(bunches: BitReader<'_>) -> ([u8; ringgate_core::limits::UNREAL_BYTES_MAX + 1], usize) {
    let mut bytes = [0; ringgate_core::limits::UNREAL_BYTES_MAX + 1];
    let mut out = ringgate_core::proto::unreal::bits::BitWriter::new(&mut bytes);
    out.flag(false);
    out.copy(bunches);
    let len = out.position();
    (bytes, len)
}

/// A packet without packet info and without bunches.
fn no_bunches() -> BitReader<'static> {
    BitReader::new(&[0]).take(1).expect("a byte has a bit")
}

fn seconds(now_ns: u64) -> f64 {
    now_ns as f64 / NS_PER_S as f64
}

const SECRET_PERIOD_S: f64 = 15.0;
const SECRET_VARIANCE_S: f64 = 5.0;
const COOKIE_LIFETIME_S: f64 = 2.0 * (SECRET_PERIOD_S + SECRET_VARIANCE_S);
const KEEP_ALIVE_NS: u64 = NS_PER_S / 5;

/// Timestamp, length, and the longest address that is not a mapped one: 39 characters, a colon, a
/// port, NUL.
const COOKIE_MESSAGE_BYTES: usize = 8 + 4 + 39 + 1 + 5 + 1;

#[cfg(test)]
mod tests;
