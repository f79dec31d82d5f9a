//! An Unreal player's end of the wire: the engine's handshake, the packet header, and payloads as
//! bunches of the control channel.
//!
//! It keeps what an engine keeps, so that gateway and server see honest numbers: packets that come
//! late are not acknowledged. But it is there to measure, so payloads in late packets count
//! like all others.
//!
//! A server that no longer knows the player's address asks for a restart, which the player follows
//! as an engine does: not within ten seconds of its last handshake packet. Payloads that are due
//! meanwhile are lost, as a game's would be.

use ringgate_batch::Endpoint;
use ringgate_bots::unreal::bunch::{self, first_reliable_bunch};
use ringgate_bots::unreal::peer::Peer;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::bunch::{Bunch, behind_packet_info};
use ringgate_core::proto::unreal::client::{self, Client, Profile};
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::Framing;

use crate::rng::Rng;

/// Longest payload: what an engine puts into one bunch.
pub const UNREAL_PAYLOAD_BYTES_MAX: usize = bunch::DATA_BYTES_MAX;

/// Whom Unreal players dial, and what they say about themselves.
#[derive(Clone, Copy, Debug)]
pub struct Unreal {
    /// The gateway, or a server.
    pub server: Endpoint,
    /// How packets begin, versions and build. The client id is each player's own.
    pub profile: Profile,
    /// After how much silence a player gives up.
    pub timeout_ns: u64,
}

/// One player's end.
#[derive(Debug)]
pub(super) struct UnrealPlayer {
    server: Endpoint,
    framing: Framing,
    client: Client,
    /// Invariant: there from the first acknowledgement on.
    peer: Option<Box<Peer>>,
    rng: Rng,
    heard_ns: u64,
    timeout_ns: u64,
    /// What it still has to do at the end.
    farewell: Farewell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    NotYet,
    /// So many times more.
    Owed(u8),
    Said,
}

/// What came of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// In.
    Connected,
    /// Not welcome.
    Refused,
    /// Some other step of the handshake; something may be due now.
    Handshake,
    /// Back in, from another port.
    Restarted,
    /// A packet without a payload.
    Nothing,
    /// A payload of this length, in the buffer.
    Payload(usize),
    /// A bunch that nobody has sent.
    Garbage,
}

impl UnrealPlayer {
    pub(super) fn new(setup: &Unreal, client_id: u8, seed: u64, now_ns: u64) -> Self {
        Self {
            server: setup.server,
            framing: setup.profile.framing,
            client: Client::new(&Profile { client_id, ..setup.profile }, now_ns),
            peer: None,
            rng: Rng::new(seed),
            heard_ns: now_ns,
            timeout_ns: setup.timeout_ns,
            farewell: Farewell::NotYet,
        }
    }

    pub(super) const fn server(&self) -> Endpoint {
        self.server
    }

    /// When there is something to do, if nothing arrives before.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        match self.farewell {
            Farewell::Owed(_) => Some(0),
            Farewell::Said => None,
            Farewell::NotYet => {
                let silence_ns = self.heard_ns.saturating_add(self.timeout_ns);
                Some(self.client.poll_timeout().unwrap_or(u64::MAX).min(silence_ns))
            }
        }
    }

    /// Whether nothing was heard for too long.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.farewell == Farewell::NotYet && now_ns >= self.heard_ns.saturating_add(self.timeout_ns)
    }

    /// Ends the connection, saying so to a server that took the player in.
    pub(super) const fn leave(&mut self) {
        let is_in = self.peer.is_some();
        self.farewell = if is_in { Farewell::Owed(GOODBYES) } else { Farewell::Said };
    }

    /// Whether it only has to say goodbye.
    pub(super) const fn is_leaving(&self) -> bool {
        !matches!(self.farewell, Farewell::NotYet)
    }

    /// Ends the connection without a word.
    pub(super) const fn give_up(&mut self) {
        self.farewell = Farewell::Said;
    }

    /// Writes what the handshake or the farewell asks for, and returns its length.
    pub(super) fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        match self.farewell {
            Farewell::Owed(times) => {
                self.farewell = if times > 1 { Farewell::Owed(times - 1) } else { Farewell::Said };
                self.write_close(out)
            }
            Farewell::Said => None,
            Farewell::NotYet => {
                let tail = self.draw_tail();
                self.client.poll_transmit(now_ns, &tail, out)
            }
        }
    }

    /// Writes a packet with a payload. `None` where as many packets are in flight as can be
    /// acknowledged at all.
    pub(super) fn write_payload(&mut self, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        self.write(out, |bunches| bunch::write_data(payload, bunches))
    }

    /// Writes a packet that only acknowledges.
    pub(super) fn write_keep_alive(&mut self, out: &mut [u8]) -> Option<usize> {
        self.write(out, |_| ())
    }

    /// Takes a datagram in. A payload is copied into the buffer.
    pub(super) fn handle_datagram(
        &mut self,
        now_ns: u64,
        datagram: &[u8],
        payload: &mut [u8],
    ) -> Result<Heard, DropReason> {
        let event = self.client.handle_datagram(now_ns, datagram)?;
        self.heard_ns = now_ns;
        match event {
            client::Event::Connected(cookie) => {
                self.peer = Some(Box::new(Peer::new(Sender::Client, &cookie)));
                Ok(Heard::Connected)
            }
            client::Event::Game => self.handle_game(datagram, payload),
            client::Event::Reconnected => Ok(Heard::Restarted),
            client::Event::Challenged | client::Event::Restarting => Ok(Heard::Handshake),
            client::Event::WrongVersion => Ok(Heard::Refused),
        }
    }

    /// Whether a datagram from the server carries bunches.
    pub(super) fn has_payload(&self, datagram: &[u8]) -> bool {
        let header = || {
            let (prefix, reader) = self.framing.read(datagram).ok()?;
            (!prefix.is_handshake).then(|| Header::read(reader).ok()).flatten()
        };
        let bunches = header().and_then(|header| behind_packet_info(header.payload()));
        bunches.is_some_and(|bunches| bunches.remaining() > 0)
    }

    fn handle_game(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<Heard, DropReason> {
        let (_, reader) = self.framing.read(datagram)?;
        let header = Header::read(reader)?;
        let Some(peer) = &mut self.peer else { return Err(DropReason::PacketUnexpected) };
        let news = peer.handle_header(&header, true, |_, _| ());
        let Some(bunches) = behind_packet_info(header.payload()) else { return Ok(Heard::Garbage) };
        match news {
            Ok(()) if bunches.remaining() == 0 => Ok(Heard::Nothing),
            Ok(()) => Ok(copy(bunches, payload)),
            Err(DropReason::ReplayTooOld) if bunches.remaining() > 0 => Ok(copy(bunches, payload)),
            Err(why) => Err(why),
        }
    }

    fn write(&mut self, out: &mut [u8], bunches: impl FnOnce(&mut BitWriter<'_>)) -> Option<usize> {
        let ids = self.client.ids();
        self.peer.as_mut()?.write_bunches(&self.framing, ids, bunches, out)
    }

    fn write_close(&mut self, out: &mut [u8]) -> Option<usize> {
        let sequence = first_reliable_bunch(self.client.cookie()?.client_sequence());
        self.write(out, |bunches| bunch::write_close(sequence, bunches))
    }

    fn draw_tail(&mut self) -> Tail {
        let mut bytes = [0; TAIL_BYTES_MAX + 1];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.rng.word().to_le_bytes()[..chunk.len()]);
        }
        Tail::draw(&bytes)
    }
}

fn copy(bunches: BitReader<'_>, out: &mut [u8]) -> Heard {
    let Some(Bunch::Data(mut data)) = Bunch::read(bunches) else { return Heard::Garbage };
    let len = data.remaining() / 8;
    if len > out.len() || !data.remaining().is_multiple_of(8) {
        return Heard::Garbage;
    }
    for chunk in out[..len].chunks_mut(8) {
        let Some(word) = data.read(8 * chunk.len()) else { return Heard::Garbage };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    Heard::Payload(len)
}

/// The closing of a channel is reliable: an engine repeats it until it is acknowledged. A server
/// that is gone for the player acknowledges nothing, so it is said often enough for bad networks
/// instead.
const GOODBYES: u8 = 3;

#[cfg(test)]
mod tests;
