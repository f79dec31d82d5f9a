//! Players of Unreal games: what a worker remembers of them, and where each of their datagrams
//! goes.
//!
//! A datagram is looked at once, in **step**, because nothing in it is decrypted: [`classify`] says
//! what it is, and from there it is a stateless answer ([`stateless`]), a packet of a session to be
//! passed on ([`relay`]), or the end of a handshake. Only a response whose cookie verifies makes a
//! session: the gateway takes the player's place toward the game server, runs the handshake there
//! as a client ([`opening`]), and hands the server's own cookie to the player. From then on both
//! ends count from the same seeds, and the relay changes nothing but the five bits of the ids.
//!
//! Invariant: no session without a cookie that verified for its address and is in the set of used
//! ones. Invariant: to an address without a session never more bytes go than came from it. Nearly
//! every answer is no longer than the packet that it answers; a request to restart may also be paid
//! for by several small ones ([`credit`]).
//!
//! Left out: telling a game server that a player is gone. Only a packet inside the game's own
//! channels could, and those may be encrypted; the server notices the silence, as it does for a
//! player whose line is cut.

mod credit;
mod guard;
mod moves;
mod opening;
mod probe;
mod recent;
mod relay;
mod session;
mod stateless;
mod timers;

pub use probe::ServerInfo;
pub(crate) use probe::is_own_address;
pub(crate) use session::Session;

use crate::front::netcode::players::Origin;
use crate::output::Tag;
use crate::setup::{Setup, Unreal};
use crate::store::hash::HashKey;
use crate::store::table::{Resting, Table};
use crate::store::wheel::{TICK_NS, Wheel};
use crate::turn::Turn;
use crate::{Gate, Random, SessionInfo};
use ringgate_batch::{LINE_BYTES, LocalIp, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::{Classified, classify, encode_within};
use ringgate_core::proto::unreal::handshake::{Handshake, Kind, Receiver, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::prefix::Framing;

use crate::counters::UNREAL_GAME;
use crate::shared::cookies::Keyring;
use credit::Credits;
use probe::{Face, Probed};

/// The players of one worker's Unreal listeners, and what it knows of the servers behind them.
pub(crate) struct Front {
    /// Invariant: hashes with the same key as the gate's other tables, so that a datagram's source
    /// is hashed once.
    pub(crate) sessions: Table<Session>,
    wheel: Wheel<TICK_NS>,
    /// How many sessions wait for their server.
    opening_count: u64,
    keyring: Option<Keyring>,
    /// When we last asked for fresh secrets.
    asked_for_secrets_ns: Option<u64>,
    /// By a listener's number: what players are told about the server behind it.
    faces: Vec<Face>,
    /// By a backend's number: what is known of a server of an Unreal game.
    probed: Vec<Option<Probed>>,
    /// Some backend is one.
    has_servers: bool,
    /// When the next of them is asked.
    next_probe_ns: u64,
    /// What small packets of strangers have brought in.
    credits: Credits,
    /// Keys the hashes of datagrams.
    hash: HashKey,
    random: Random,
    /// Numbers sessions, because players have no ids here.
    serial: u64,
}

impl Front {
    pub(crate) fn new(setup: &Setup, key: HashKey, random: u64, now_ns: u64) -> Self {
        let sessions_max = Self::sessions_max(setup);
        let resting = Resting { ns: PLACE_REST_NS, spare: setup.spare_places(sessions_max) };
        Self {
            sessions: Table::new(sessions_max, resting, (random >> 32) as u32, key),
            wheel: Wheel::new(sessions_max + resting.spare, now_ns),
            opening_count: 0,
            keyring: None,
            asked_for_secrets_ns: None,
            faces: Vec::new(),
            probed: Vec::new(),
            has_servers: false,
            next_probe_ns: now_ns,
            credits: Credits::new(sessions_max > 0, key),
            hash: key,
            random: Random(random),
            serial: 0,
        }
    }

    /// Room for sessions, where any listener speaks Unreal.
    pub(crate) fn sessions_max(setup: &Setup) -> usize {
        let is_served = setup.listeners.iter().any(|listener| listener.unreal().is_some());
        if is_served { setup.worker_sessions_max } else { 0 }
    }

    /// Unfinished handshakes.
    pub(crate) const fn opening_count(&self) -> u64 {
        self.opening_count
    }

    /// Has a session fetched that a packet is about.
    #[inline]
    pub(crate) fn fetch(&self, index: u32) {
        self.sessions.prefetch(index, 0..size_of::<Session>().div_ceil(LINE_BYTES));
    }

    fn tail(&mut self) -> Tail {
        let mut bytes = [0; TAIL_BYTES_MAX + 1];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next().to_le_bytes()[..chunk.len()]);
        }
        Tail::draw(&bytes)
    }

    /// The session whose player has that loopback address, if it is one of that backend's.
    pub(crate) fn session_of_loopback(&self, local: &LocalIp, backend: usize) -> Option<u32> {
        index_of_loopback(local).filter(|index| {
            let session = self.sessions.get(*index);
            session.is_some_and(|session| usize::from(session.claim.backend) == backend)
        })
    }

    /// The backend of the session that has a loopback address.
    pub(crate) fn backend_of_loopback(&self, local: &LocalIp) -> Option<usize> {
        let session = self.sessions.get(index_of_loopback(local)?)?;
        Some(session.claim.backend.into())
    }
}

impl Gate {
    /// The open sessions of Unreal games, one by one: for inspection, not for every turn.
    pub fn unreal_sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        let Front { sessions, .. } = &self.unreal;
        (0..sessions.places()).filter_map(|index| {
            let session = sessions.get(index).filter(|session| !session.is_opening())?;
            let address = sessions.address(index);
            let rules = self.unreal_rules(address.listener).ok()?;
            Some(SessionInfo {
                client_id: session.claim.client_id,
                listener: address.listener,
                address: address.endpoint,
                backend: session.claim.backend,
                slot: session.claim.slot,
                heard_ns: session.heard_ns,
                timeout_ns: rules.idle_timeout_ns,
            })
        })
    }

    /// Whether a listener speaks Unreal.
    #[inline]
    pub(crate) fn is_unreal(&self, listener: u16) -> bool {
        self.listeners[usize::from(listener)].is_unreal
    }

    /// A datagram that a listener has received itself.
    pub(crate) fn step_unreal(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let classified = classify(bytes, &framing, Receiver::Server)?;
        let known = self.unreal_session(origin);
        if known.is_none() && !self.steered.is_empty() {
            let key = (origin.address.listener, origin.address.endpoint);
            if let Some(&worker) = self.steered.get(&key) {
                self.forward(origin, worker, false, bytes);
                return Ok(());
            }
        }
        match classified {
            Classified::Game(ids, reader) => match known {
                Some(index) => self.relay_up(turn, index, origin, (ids, reader), bytes),
                None => self.ask_to_restart(turn, origin, (ids, reader), bytes.len()),
            },
            Classified::Handshake(packet) => {
                self.step_unreal_handshake(turn, known, origin, &packet, bytes)
            }
        }
    }

    /// The session of whoever a datagram is from.
    fn unreal_session(&self, origin: &Origin) -> Option<u32> {
        self.unreal.sessions.find(origin.hash, &origin.address)
    }

    fn unreal_rules(&self, listener: u16) -> Result<&Unreal, DropReason> {
        self.setup.listeners[usize::from(listener)].unreal().ok_or(DropReason::UnknownSource)
    }

    /// How the packets between a listener and its players are laid out now.
    fn framing(&self, listener: u16) -> Result<Framing, DropReason> {
        let face = self.unreal.faces.get(usize::from(listener));
        face.map(|face| face.framing).ok_or(DropReason::UnknownSource)
    }

    /// Answers a handshake packet with at most `bytes_max` bytes.
    fn answer_unreal(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        answer: &Handshake,
        bytes_max: usize,
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let target = TxTarget {
            socket: origin.socket,
            peer: Some(origin.address.endpoint),
            source: origin.local,
        };
        self.send_handshake(turn, &framing, answer, bytes_max, (target, Tag::Player))?;
        Ok(())
    }

    /// Writes a handshake packet for whomever; returns its length.
    fn send_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        framing: &Framing,
        packet: &Handshake,
        bytes_max: usize,
        (target, tag): (TxTarget, Tag),
    ) -> Result<(), DropReason> {
        self.make_room(turn);
        let tail = self.unreal.tail();
        let slot = turn.tx.slot().expect("room was made");
        let len = encode_within(packet, framing, tail, bytes_max, slot)
            .ok_or(DropReason::RestartRateLimited)?;
        turn.tx.commit(len, target, tag.encode());
        if tag == Tag::Player {
            self.count_unreal_out(kind_index(packet.body.kind()), len);
        } else {
            self.counters.link_datagrams_out += 1;
        }
        Ok(())
    }

    fn count_unreal_out(&mut self, kind: usize, len: usize) {
        self.counters.packets_out[kind] += 1;
        self.counters.bytes_out += len as u64;
    }

    /// What an Unreal packet did what it came for is counted as.
    fn count_unreal_handled(&mut self, kind: Kind) {
        self.counters.handled[kind_index(kind)] += 1;
    }
}

/// The counter of a type of handshake packets.
const fn kind_index(kind: Kind) -> usize {
    UNREAL_GAME + 1 + kind as usize
}

/// The loopback address that the player at `index` has toward game servers: counted down from the
/// top, so that it is none that a netcode player has, whose are counted up; they would meet at 16.7
/// million players of one worker.
fn loopback_of(index: u32) -> Option<LocalIp> {
    let host = LOOPBACK_LAST.checked_sub(index).filter(|host| *host >= LOOPBACK_FIRST)?;
    let [_, x, y, z] = host.to_be_bytes();
    Some(LocalIp::v4([127, x, y, z], 0))
}

/// The index of the player who has this loopback address.
fn index_of_loopback(local: &LocalIp) -> Option<u32> {
    let std::net::IpAddr::V4(v4) = local.ip() else { return None };
    let [127, x, y, z] = v4.octets() else { return None };
    LOOPBACK_LAST.checked_sub(u32::from_be_bytes([0, x, y, z]))
}

const LOOPBACK_FIRST: u32 = 1 << 16;
/// 127.255.255.255 is the loopback network's broadcast address.
const LOOPBACK_LAST: u32 = 0x00ff_fffe;

/// How long a loopback address is not given to another player. An engine keeps a connection that
/// has fallen silent for a minute or more, and answers whoever comes from the same address as if it
/// were the same player.
const PLACE_REST_NS: u64 = 120_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_map_both_ways_and_none_is_a_netcode_players() {
        for index in [0, 1, 255, 65_536, 8_000_000] {
            let local = loopback_of(index).expect("in range");
            assert!(local.ip().is_loopback());
            assert_eq!(index_of_loopback(&local), Some(index));
            assert_ne!(crate::links::state::index_of_loopback(&local), Some(index));
        }
        assert_eq!(loopback_of(0), Some(LocalIp::v4([127, 255, 255, 254], 0)));
        assert_eq!(loopback_of(LOOPBACK_LAST - LOOPBACK_FIRST + 1), None);
        assert_eq!(index_of_loopback(&LocalIp::v4([10, 1, 0, 1], 0)), None);
    }
}
