//! What leaves a gate: datagrams written into the outgoing batch, sealed and sent in one go.

use crate::common::Common;
use crate::ids::{LinkId, ListenerId};
use crate::links::state::{Link, Load};
use crate::turn::Turn;
use ringgate_batch::{Room, SendFailure, TxBatch, TxTarget};
use ringgate_core::drops::DropReason;

/// What an entry of the outgoing batch is, to recognise it when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A packet for a player.
    Player,
    /// A packet of the handshake with an Unreal game's server.
    Handshake,
    /// A look at whether a udp backend is back.
    Probe,
    /// The bundle of a link.
    Bundle(LinkId),
    /// A payload on the udp link.
    UdpPayload,
}

impl Tag {
    pub(crate) const fn encode(self) -> u64 {
        match self {
            Self::Player => 0,
            Self::Probe => 1,
            Self::UdpPayload => 2,
            Self::Handshake => 3,
            Self::Bundle(link) => 4 | (link.0 as u64) << 8,
        }
    }

    pub(crate) const fn decode(tag: u64) -> Self {
        match tag as u8 {
            0 => Self::Player,
            1 => Self::Probe,
            2 => Self::UdpPayload,
            3 => Self::Handshake,
            _ => Self::Bundle(LinkId((tag >> 8) as u16)),
        }
    }
}

impl Turn<'_> {
    /// Room for a datagram that leaves.
    #[inline]
    pub(crate) fn room(&mut self) -> Room<'_> {
        if self.tx.small_left() == 0 {
            self.submit();
        }
        self.tx.room().expect("a batch that was flushed has room")
    }

    /// Sends bytes to a game process as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8], target: TxTarget, tag: Tag) {
        self.room().send_copy(bytes, target, tag.encode());
        self.common.counters.link_datagrams_out += 1;
    }

    /// Counts a packet that was written for a player.
    pub(crate) fn count_out(&mut self, listener: ListenerId, kind: usize, len: usize) {
        let len = len as u64;
        self.common.counters.packets_out[kind] += 1;
        self.common.counters.bytes_out += len;
        let traffic = &mut self.common.listeners[listener].traffic;
        traffic.packets_out += 1;
        traffic.bytes_out += len;
    }

    /// Seals and sends what there is, and empties the batch. May be called in the middle of a step,
    /// so it only notes what could not be sent: links that nobody reads are given up at the end of
    /// the stage ([`Common::give_up_broken_links`]).
    pub(crate) fn submit(&mut self) {
        self.commit_bundles();
        let is_watched = !self.common.captures.is_empty();
        if is_watched {
            self.common.keep_unsealed(self.tx);
        }
        self.common.sealing.seal(self.tx, &mut self.common.aead);
        if !self.tx.is_empty() {
            self.out.flush(self.tx);
            if is_watched {
                self.common.show_sent(self.now.mono_ns, self.tx);
            }
            if self.tx.has_failures() {
                self.common.note_failures(self.tx);
                self.common.links.all.iter_mut().flatten().for_each(Link::end_flush);
            }
        }
    }
}

impl Common {
    fn note_failures(&mut self, tx: &TxBatch) {
        for (entry, bytes, why) in tx.failures() {
            match Tag::decode(entry.tag) {
                Tag::Player => self.counters.drops.bump(departure_reason(why)),
                Tag::Handshake => self.counters.link_datagrams_out -= 1,
                Tag::Probe => self.take_back_probe(entry.target.peer),
                Tag::UdpPayload => {
                    self.counters.link_datagrams_out -= 1;
                    self.undeliver(Load::PAYLOAD, why);
                }
                Tag::Bundle(link) => self.note_refused_bundle(link, bytes, why),
            }
        }
    }
}

/// Why a packet did not leave that could not be sent.
pub(crate) const fn departure_reason(why: SendFailure) -> DropReason {
    match why {
        SendFailure::Full => DropReason::SendBufferFull,
        SendFailure::Gone | SendFailure::Refused => DropReason::SendRefused,
    }
}
