//! The header of game packets, read and rewritten where it lies: the packet's number, which packets
//! of the other side have arrived, and nothing of what follows.
//!
//! ```text
//! prefix | words - 1 (3) | flag (1) | acked (14) | sequence (14) | words x 32 of history | payload
//! ```
//!
//! Bit `i` of word `w` of the history is about packet `acked - (32 w + i)`: 1 where it arrived.
//! There are 1 to 8 words, enough for everything that the sender does not know its peer to have
//! heard of; what is older than the history is lost. The flag is zero up to UE 5.7; it is never
//! judged, because a later engine seems to use it.
//!
//! [`Filter`] is the part that a relay needs: it passes each packet once, and only packets whose
//! acknowledgement can be true. Numbers are never changed: both ends see their own.

use super::PacketSeq;
use super::bits::BitReader;
use super::cookie::Cookie;
use super::prefix::Framing;
use super::timing::NS_PER_S;
use crate::drops::DropReason;
use crate::limits::UNREAL_GAP_MAX;
use crate::proto::notify;
use crate::proto::replay::{Policy, Window, WrappedWindow};

pub use crate::proto::notify::{HISTORY_PACKETS_MAX, HISTORY_WORDS_MAX};

/// The header of one game packet.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The packet's number.
    pub sequence: PacketSeq,
    /// The newest packet of the other side that has arrived.
    pub acked: PacketSeq,
    /// Invariant: as long as the history.
    history: BitReader<'a>,
    /// Invariant: not empty.
    payload: BitReader<'a>,
}

impl<'a> Header<'a> {
    /// Reads what follows the prefix of a game packet.
    #[inline]
    pub fn read(reader: BitReader<'a>) -> Result<Self, DropReason> {
        let inner = reader.without_terminator().ok_or(DropReason::UnrealEnd)?;
        Self::take(inner).ok_or(DropReason::UnrealSize)
    }

    #[inline]
    fn take(mut reader: BitReader<'a>) -> Option<Self> {
        let fields = reader.read(FIELDS_BITS)?;
        let words = (fields & COUNT_MASK) as usize + 1;
        let history = reader.take(words * WORD_BITS)?;
        Some(Self {
            sequence: PacketSeq::new(fields >> SEQUENCE_AT),
            acked: PacketSeq::new(fields >> ACKED_AT),
            history,
            payload: (reader.remaining() > 0).then_some(reader)?,
        })
    }

    /// How many packets the history covers, the acknowledged one included.
    #[inline]
    #[cfg(test)]
    pub(crate) const fn history_packets(&self) -> usize {
        self.history.remaining()
    }

    /// What it says of packets, in the form that [`Notify`](notify::Notify) takes.
    pub fn told(&self) -> notify::Header {
        let mut bits = self.history;
        let mut word = || bits.read(WORD_BITS).unwrap_or(0) as u32;
        let history = std::array::from_fn(|_| word());
        notify::Header { sequence: self.sequence, acked: self.acked, history }
    }

    /// The game's bits: packet info and bunches, without the termination bits. At least one.
    #[inline]
    pub const fn payload(&self) -> BitReader<'a> {
        self.payload
    }
}

/// The shortest game packet: one word of history, no packet info, no bunch, two termination bits.
#[inline]
pub const fn packet_bytes_min(framing: &Framing) -> usize {
    (framing.prefix_bits() + REST_BITS_MIN + 1).div_ceil(8)
}

/// Who sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The player.
    Client,
    /// The game server.
    Server,
}

/// Passes every packet of a connection once, in both directions.
///
/// A packet that is newer than all before it must acknowledge at least what they did, and nothing
/// that has not been sent to its sender; an older one must acknowledge no more than the newest
/// does, and not much less. Both follow from what honest engines do. Somebody who can forge the
/// source address, but sees no packet, has to guess a number within 1024 of 16384 and an
/// acknowledgement among the packets in flight. All of it is checked before anything changes.
///
/// An engine takes any number less than half the range ahead, so it survives that thousands of
/// packets are lost, and the filter must too. But a forged packet that jumps so far would shut its
/// sender out for minutes. So a jump over more than [`LEAP_MAX`] passes only if nothing has passed
/// for [`QUIET_NS`], in which an engine that gets through sends several packets, and only when a
/// second packet lands close behind the first. What is refused leaves no other trace than that
/// first landing, which is void as soon as anything passes.
#[derive(Clone, Debug)]
pub struct Filter {
    client: Direction,
    server: Direction,
}

/// What the gaps in a direction are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// The time of the packet.
    pub now_ns: u64,
    /// The furthest jump that the connection survives; 0 where only the range limits it.
    pub limit: u16,
}

/// What one side has sent.
#[derive(Clone, Debug)]
struct Direction {
    window: WrappedWindow<14>,
    /// The newest acknowledgement that this side has sent.
    acked: PacketSeq,
    /// When a packet of this side last passed.
    passed_ns: u64,
    landing: Landing,
}

/// A packet that was refused because it jumps too far.
#[derive(Clone, Copy, Debug)]
struct Landing {
    sequence: PacketSeq,
    acked: PacketSeq,
    /// What [`Direction::passed_ns`] was: the landing stands as long as that has not changed.
    passed_ns: u64,
}

impl Direction {
    const fn starting_at(own: PacketSeq, peer: PacketSeq, now_ns: u64) -> Self {
        let acked = peer.wrapping_sub(1);
        Self {
            // Numbers before the first are nobody's: left open, they would be the easiest ones to
            // forge.
            window: WrappedWindow::closed_before(own),
            acked,
            passed_ns: now_ns,
            landing: Landing { sequence: own, acked, passed_ns: u64::MAX },
        }
    }

    #[inline]
    fn check(
        &self,
        sequence: PacketSeq,
        acked: PacketSeq,
        peer: &Self,
        gaps: Gaps,
    ) -> Result<(), DropReason> {
        let progress = acked.distance_from(self.acked);
        let ahead = sequence.distance_from(self.window.latest());
        if ahead <= 0 {
            self.window.check(sequence, &Policy::UNREAL)?;
            let plausible = -i64::from(Policy::UNREAL.size_bits())..=0;
            return if plausible.contains(&progress) {
                Ok(())
            } else {
                Err(DropReason::AckImplausible)
            };
        }
        if !(0..=peer.window.latest().distance_from(self.acked)).contains(&progress) {
            return Err(DropReason::AckImplausible);
        }
        if ahead <= gaps.leap_max() {
            Ok(())
        } else {
            self.check_leap(sequence, acked, ahead, gaps)
        }
    }

    #[cold]
    fn check_leap(
        &self,
        sequence: PacketSeq,
        acked: PacketSeq,
        ahead: i64,
        gaps: Gaps,
    ) -> Result<(), DropReason> {
        let behind_landing = sequence.distance_from(self.landing.sequence);
        let is_confirmed = self.landing.passed_ns == self.passed_ns
            && (1..=HISTORY_PACKETS_MAX as i64).contains(&behind_landing)
            && acked.distance_from(self.landing.acked) >= 0;
        match is_confirmed {
            false => Err(DropReason::GapUnconfirmed),
            true if gaps.limit > 0 && ahead > i64::from(gaps.limit) => Err(DropReason::SequenceGap),
            true => Ok(()),
        }
    }

    /// Remembers where a packet that jumps too far has landed, unless the side is heard all the
    /// time.
    #[cold]
    const fn note_landing(&mut self, sequence: PacketSeq, acked: PacketSeq, now_ns: u64) {
        if now_ns.saturating_sub(self.passed_ns) >= QUIET_NS {
            self.landing = Landing { sequence, acked, passed_ns: self.passed_ns };
        }
    }
}

impl Gaps {
    /// How far a packet may jump by itself.
    #[inline]
    const fn leap_max(self) -> i64 {
        match self.limit {
            1..LEAP_MAX => self.limit as i64,
            _ => LEAP_MAX as i64,
        }
    }
}

impl Filter {
    /// The filter of a connection whose sides have taken their first numbers from this cookie.
    pub const fn starting_at(cookie: &Cookie, now_ns: u64) -> Self {
        let (client, server) = (cookie.client_sequence(), cookie.server_sequence());
        Self {
            client: Direction::starting_at(client, server, now_ns),
            server: Direction::starting_at(server, client, now_ns),
        }
    }

    /// The filter of a connection that goes on with what another one has let pass of the client's
    /// packets, by their numbers in full, and with this packet of the server's, which is still to
    /// pass. What the server has said is taken as it is; the client can have heard of no more than
    /// that, and has not missed more than an engine keeps in flight.
    ///
    /// Where the other one has not gone by numbers, what the server has acknowledged has passed. So
    /// what was on its way to the server may pass once more, which an engine passes over.
    pub fn going_on(client: &Window, server: &Header<'_>, now_ns: u64) -> Option<Self> {
        let unread = || WrappedWindow::closed_before(server.acked.wrapping_add(1));
        let mut window = WrappedWindow::going_on(client.clone()).unwrap_or_else(unread);
        if server.acked.is_newer_than(window.latest()) {
            // The other one has let it pass, and that was not known yet.
            let acked = window.full(server.acked)?;
            window = WrappedWindow::going_on(Window::closed_before(acked.saturating_add(1)))?;
        }
        let begun = Direction::starting_at(window.latest(), server.sequence, now_ns);
        let acked = server.sequence.wrapping_sub(HISTORY_PACKETS_MAX as u64);
        Some(Self {
            client: Direction { window, acked, ..begun },
            server: Direction {
                acked: server.acked,
                ..Direction::starting_at(server.sequence, server.acked, now_ns)
            },
        })
    }

    /// The newest packet of the client's that has passed, in full.
    pub const fn newest(&self) -> u64 {
        self.client.window.newest()
    }

    /// A packet of the client's that has passed just now, in full.
    pub fn full(&self, sequence: PacketSeq) -> Option<u64> {
        self.client.window.full(sequence)
    }

    /// Whether [`commit`](Self::commit) would pass the packet now.
    #[inline]
    pub fn check(&self, from: Sender, header: &Header<'_>, gaps: Gaps) -> Result<(), DropReason> {
        let (own, peer) = match from {
            Sender::Client => (&self.client, &self.server),
            Sender::Server => (&self.server, &self.client),
        };
        own.check(header.sequence, header.acked, peer, gaps)
    }

    /// Passes a packet, or says why not. [`DropReason::SequenceGap`] is the end of the connection:
    /// more packets were lost than it may lose, and two packets say so.
    #[inline]
    pub fn commit(
        &mut self,
        from: Sender,
        header: &Header<'_>,
        gaps: Gaps,
    ) -> Result<(), DropReason> {
        let verdict = self.check(from, header, gaps);
        let own = match from {
            Sender::Client => &mut self.client,
            Sender::Server => &mut self.server,
        };
        if let Err(why) = verdict {
            if why == DropReason::GapUnconfirmed {
                own.note_landing(header.sequence, header.acked, gaps.now_ns);
            }
            return Err(why);
        }
        if header.sequence.is_newer_than(own.window.latest()) {
            own.acked = header.acked;
        }
        own.window.commit(header.sequence, &Policy::UNREAL)?;
        own.passed_ns = gaps.now_ns;
        Ok(())
    }

    /// The newest packet that has passed from that side.
    #[inline]
    pub const fn latest(&self, from: Sender) -> PacketSeq {
        match from {
            Sender::Client => self.client.window.latest(),
            Sender::Server => self.server.window.latest(),
        }
    }
}

crate::carried!(Filter { client, server });
crate::carried!(Direction { window, acked, passed_ns as time, landing });
crate::carried!(Landing { sequence, acked, passed_ns });

/// The furthest jump that one packet makes by itself. An engine keeps at most 256 packets in
/// flight.
pub const LEAP_MAX: u16 = 1024;

/// After how much silence of a side a jump over more than [`LEAP_MAX`] is looked at. Engines send
/// something every 0.2 s.
pub const QUIET_NS: u64 = NS_PER_S;

const WORD_BITS: usize = 32;
const SEQUENCE_BITS: usize = 14;
const FIELDS_BITS: usize = 32;
const COUNT_MASK: u64 = 7;
const ACKED_AT: usize = 4;
const SEQUENCE_AT: usize = ACKED_AT + SEQUENCE_BITS;

/// What follows the prefix of the shortest packet: the fields, a word of history, the bit that says
/// whether packet info follows, and the inner termination bit.
const REST_BITS_MIN: usize = FIELDS_BITS + WORD_BITS + 1 + 1;

const _: () = assert!(SEQUENCE_AT + SEQUENCE_BITS == FIELDS_BITS);
const _: () = assert!(UNREAL_GAP_MAX as usize == (1 << (SEQUENCE_BITS - 1)) - 1);

#[cfg(test)]
mod tests;
