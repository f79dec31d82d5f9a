//! All reliable channels on their way out: who is next, and how much may be under way at once.
//!
//! The other end holds parts until they can be handed over, and no more than
//! [`RECEIVE_BYTES_MAX`]. So before a message's first part leaves, it claims what the other end may
//! have to hold of it, and keeps that until all of it has arrived: every message that has begun can
//! be finished. Messages that are cut claim from a stock of their own, so that small ones never
//! wait for them; who waits there for much is not overtaken by those who need less.

use std::collections::VecDeque;

use super::buffers::cost_of_part;
use super::channels::{Channels, Numbers};
use super::flight::{Flight, Item};
use super::incoming::RECEIVE_BYTES_MAX;
use super::parts::{Claim, OutChannel, queued_bytes};
use super::types::Report;
use crate::proto::delivery::{Frame, MESSAGE_BYTES_MAX, PartSeq};
use crate::proto::notify::PacketSeq;

/// Reliable channels on their way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    channels: Channels<OutChannel>,
    /// Channels with a part that could be sent now.
    ready: Numbers,
    /// The channel that is next.
    turn: u8,
    /// What all messages count for that have not arrived.
    queued_bytes: usize,
    /// What messages claim that have begun: those that are cut, and others.
    claimed_large: usize,
    claimed_small: usize,
    /// The channel whose large message begins next, if it waits for that.
    next_large: Option<u8>,
    /// Parts that have to be sent again.
    lost: usize,
    /// For parts that do not lie in one piece.
    copy: Vec<u8>,
    /// What queues of all channels take, in use or kept for the next messages.
    channel_bytes: usize,
    /// From how much on that is looked through for what nothing lies in.
    heap_bytes_max: usize,
}

/// A packet that is being filled with frames.
pub(super) struct Filling<'a> {
    pub(super) number: PacketSeq,
    pub(super) frames: &'a mut [u8],
    /// How much of `frames` is written.
    pub(super) len: usize,
    /// The longest part.
    pub(super) part_bytes_max: usize,
    /// How many parts are in it that have left before.
    pub(super) repeated: u64,
}

impl Filling<'_> {
    pub(super) const fn room(&self) -> usize {
        self.frames.len() - self.len
    }

    pub(super) fn write(&mut self, frame: &Frame<'_>) {
        self.len += frame.write(&mut self.frames[self.len..]);
    }
}

impl Outgoing {
    pub(super) const fn new() -> Self {
        Self {
            channels: Channels::new(),
            ready: Numbers::NONE,
            turn: 0,
            queued_bytes: 0,
            claimed_large: 0,
            claimed_small: 0,
            next_large: None,
            lost: 0,
            copy: Vec::new(),
            channel_bytes: 0,
            heap_bytes_max: HEAP_BYTES_MAX,
        }
    }

    /// What all messages count for that have not arrived.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Queues a message of which parts are at most `len_max` long.
    pub(super) fn push(&mut self, channel: u8, message: &[u8], len_max: usize, token: Option<u64>) {
        self.queued_bytes += queued_bytes(message.len());
        let out = self.channels.open(channel);
        let before = out.heap_bytes();
        out.push(message, len_max, token);
        self.ready.set(channel, out.is_ready());
        self.channel_bytes = self.channel_bytes + out.heap_bytes() - before;
        if self.channel_bytes > self.heap_bytes_max {
            self.shrink();
        }
    }

    /// Gives back what nothing lies in. Where most of it is in use, it is looked at again when
    /// there is twice as much.
    #[cold]
    fn shrink(&mut self) {
        self.channels.iter_mut().for_each(OutChannel::trim);
        self.count_channels();
        self.heap_bytes_max = HEAP_BYTES_MAX.max(2 * self.channel_bytes);
    }

    fn count_channels(&mut self) {
        self.channel_bytes = self.channels.iter_mut().map(|out| out.heap_bytes()).sum();
    }

    /// Whether there is anything to send now.
    pub(super) fn is_ready(&self) -> bool {
        self.lost > 0 || self.ready.iter().any(|channel| self.may_go_on(channel))
    }

    /// Writes what fits into a packet, a part of each channel in turn. Who finds no room is the
    /// first in the next packet.
    pub(super) fn fill(&mut self, packet: &mut Filling<'_>, flight: &mut Flight) {
        let mut without_room = None;
        let mut first_in_vain = None;
        let mut next = self.turn;
        while let Some(channel) = self.ready.from(next) {
            next = channel.wrapping_add(1);
            if first_in_vain == Some(channel) {
                break;
            }
            if self.write_part(channel, packet, flight) {
                first_in_vain = None;
            } else {
                first_in_vain = first_in_vain.or(Some(channel));
                without_room = without_room.or(Some(channel));
            }
        }
        self.turn = without_room.unwrap_or(next);
    }

    /// What became of a part in that packet.
    pub(super) fn handle_report(
        &mut self,
        (channel, sequence): (u8, u16),
        packet: PacketSeq,
        arrived: bool,
        reports: &mut VecDeque<Report>,
    ) {
        let sequence = PartSeq::new(sequence.into());
        let Some(out) = self.channels.find(channel) else { return };
        let before = out.lost();
        if arrived {
            out.handle_arrived(sequence);
            while let Some(done) = out.done() {
                self.queued_bytes -= done.bytes;
                *claimed(&mut self.claimed_large, &mut self.claimed_small, done.claim) -=
                    done.claim.bytes as usize;
                let report = |token| Report { token, is_delivered: true };
                reports.extend(done.token.map(report));
            }
        } else {
            out.handle_lost(sequence, packet);
        }
        self.lost = self.lost + out.lost() - before;
        self.ready.set(channel, out.is_ready());
    }

    /// Sends the oldest parts again that are under way, as much as one packet holds, although
    /// nothing is known about them.
    pub(super) fn give_up_oldest(&mut self, flight: &Flight, packet_bytes: usize) {
        let mut bytes = 0;
        for item in flight.items() {
            let Item::Part { channel, sequence } = item else { continue };
            let Some(out) = self.channels.find(channel) else { continue };
            let Some(len) = out.give_up(PartSeq::new(sequence.into())) else { continue };
            self.lost += 1;
            self.ready.set(channel, true);
            bytes += len;
            if bytes >= packet_bytes {
                return;
            }
        }
    }

    /// How many messages have not arrived, and their bytes.
    pub(super) fn undelivered(&self) -> (usize, usize) {
        let all = self.channels.iter().map(OutChannel::undelivered);
        all.fold((0, 0), |sum, of_one| (sum.0 + of_one.0, sum.1 + of_one.1))
    }

    /// Drops everything, and says so of messages with a token.
    pub(super) fn give_up(&mut self, reports: &mut VecDeque<Report>) {
        for out in self.channels.iter_mut() {
            let lost = |token| Report { token, is_delivered: false };
            reports.extend(out.tokens().map(lost));
        }
        *self = Self::new();
    }

    /// Tokens of messages that have not arrived.
    pub(super) fn tokens_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.channels.iter_mut().flat_map(OutChannel::tokens_mut)
    }

    pub(super) fn trim(&mut self) {
        self.copy = Vec::new();
        self.channels.trim();
        self.shrink();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.copy.capacity() + self.channels.heap_bytes(OutChannel::heap_bytes)
    }

    fn write_part(&mut self, channel: u8, packet: &mut Filling<'_>, flight: &mut Flight) -> bool {
        let Some(out) = self.channels.find(channel) else { return false };
        let (number, room) = (packet.number, packet.room());
        let lost = out.lost();
        let (index, is_repeated) = if lost > 0 {
            // What has to be sent again goes first, even if it has to wait for the next packet.
            (out.repeat(number, room), true)
        } else if let Some(index) = out.double(number, room) {
            (Some(index), true)
        } else {
            (self.cut(channel, packet), false)
        };
        let Some(index) = index else { return false };
        let Some(out) = self.channels.find(channel) else { return false };
        self.lost = self.lost + out.lost() - lost;
        packet.repeated += u64::from(is_repeated);
        self.ready.set(channel, out.is_ready());
        let part = out.part(index, &mut self.copy);
        packet.write(&Frame::Reliable(part));
        flight.carry(Item::part(channel, part.sequence));
        true
    }

    fn cut(&mut self, channel: u8, packet: &Filling<'_>) -> Option<usize> {
        let claim = self.channels.get(channel)?.next_claim();
        if let Some(claim) = claim.filter(|claim| !self.may_begin(channel, *claim)) {
            if claim.is_large {
                self.next_large = self.next_large.or(Some(channel));
            }
            return None;
        }
        let out = self.channels.find(channel)?;
        let before = out.heap_bytes();
        let index = out.cut(packet.number, packet.room(), packet.part_bytes_max)?;
        self.channel_bytes = self.channel_bytes + out.heap_bytes() - before;
        if let Some(claim) = claim {
            *claimed(&mut self.claimed_large, &mut self.claimed_small, claim) +=
                claim.bytes as usize;
            if claim.is_large {
                self.next_large = None;
            }
        }
        Some(index)
    }

    /// Whether the other end has room for the next new part of a channel.
    fn may_go_on(&self, channel: u8) -> bool {
        let Some(out) = self.channels.get(channel) else { return false };
        out.next_claim().is_none_or(|claim| self.may_begin(channel, claim))
    }

    fn may_begin(&self, channel: u8, claim: Claim) -> bool {
        let bytes = claim.bytes as usize;
        if claim.is_large {
            let is_next = self.next_large.is_none_or(|next| next == channel);
            is_next && self.claimed_large + bytes <= LARGE_BYTES_MAX
        } else {
            self.claimed_small + bytes <= SMALL_BYTES_MAX
        }
    }
}

/// The stock that a message claims from.
const fn claimed<'a>(large: &'a mut usize, small: &'a mut usize, claim: Claim) -> &'a mut usize {
    if claim.is_large { large } else { small }
}

/// What queues take before it is looked for what nothing lies in: twice what waits by default, as
/// they double when they grow.
const HEAP_BYTES_MAX: usize = 512 * 1024;

/// What messages that are cut may claim: enough for the longest one, and for as much as can be in
/// flight.
const LARGE_BYTES_MAX: usize = 640 * 1024;

/// What other messages may claim.
const SMALL_BYTES_MAX: usize = RECEIVE_BYTES_MAX - LARGE_BYTES_MAX;

/// The longest message costs most where a part is a byte longer than the second largest buffer.
const PART_BYTES_WORST: usize = 513;

const _: () = assert!(
    MESSAGE_BYTES_MAX.div_ceil(PART_BYTES_WORST) * cost_of_part(PART_BYTES_WORST)
        <= LARGE_BYTES_MAX
);

mod handed;
