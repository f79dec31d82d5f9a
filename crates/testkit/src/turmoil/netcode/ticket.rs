//! Owners of tokens, and what they say of the delivery layer: honest as a rule, of any size.

use std::collections::HashSet;

use super::super::stage::Input;
use ringgate_batch::Endpoint;
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::netcode::ConnectToken;
use ringgate_core::proto::delivery::{
    FAREWELL_BYTES_MAX, FRAME_HEAD_BYTES_MAX, Frame, Part, PartSeq, write_header,
};
use ringgate_core::proto::netcode::challenge::CHALLENGE_BODY_BYTES;
use ringgate_core::proto::netcode::request::{REQUEST_BYTES, encode_request};
use ringgate_core::proto::notify::{Notify, PacketSeq};
use ringgate_gate::Now;

/// A token, and what must hold about it.
pub(super) struct Ticket {
    pub(super) token: ConnectToken,
    pub(super) client: u64,
    pub(super) challenge: Option<[u8; CHALLENGE_BODY_BYTES]>,
    /// The number of its owner's next packet.
    pub(super) sequence: u64,
    /// Where its first challenge went.
    pub(super) owner: Option<Endpoint>,
    /// When it can be forgotten at the earliest, by the monotonic clock; `None` before it was
    /// shown.
    pub(super) keep_until_ns: Option<u64>,
    /// It may have been forgotten: both clocks have passed its end at once.
    pub(super) is_forgotten: bool,
    pub(super) used: HashSet<u64>,
    /// The number of its owner's next packet of the delivery layer, and the newest of the gate's.
    pub(super) next_packet: u64,
    pub(super) newest_packet: PacketSeq,
}

impl Ticket {
    /// Until when it would be remembered if it were first used now.
    pub(super) fn until_ns(&self, now: Now) -> u64 {
        let left_s = self.token.expire_unix_s.saturating_sub(now.unix_s);
        now.mono_ns.saturating_add(left_s.saturating_mul(1_000_000_000))
    }

    /// Its owner asks to be let in.
    pub(super) fn show(&mut self, now: Now) -> Vec<u8> {
        let until_ns = self.until_ns(now);
        self.keep_until_ns.get_or_insert(until_ns);
        let mut request = [0; REQUEST_BYTES];
        encode_request(&self.token, &mut request);
        request.to_vec()
    }
}

/// Packets of the delivery layer, of an owner who is honest as a rule.
impl Ticket {
    pub(super) fn packet(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let number = match input.byte() {
            0..=239 => self.next_packet,
            240..=250 => self.next_packet.saturating_sub(3),
            _ => self.next_packet + input.below(600) as u64,
        };
        self.next_packet = self.next_packet.max(number + 1);
        let acked = match input.byte() {
            0..=99 => PacketSeq::MAX,
            100..=249 => self.newest_packet,
            _ => PacketSeq::new(input.below(256) as u64),
        };
        let number = PacketSeq::new(number);
        let mut packet = [0; PAYLOAD_BYTES_MAX];
        let end = Notify::starting_at(number, acked.wrapping_add(1));
        let mut len = write_header(&end, &mut packet);
        // What has arrived, as far as the owner wants the gate to know.
        packet[4] = input.byte();
        // The owner takes a farewell.
        if self.client.is_multiple_of(2) {
            len += Frame::Ping.write(&mut packet[len..]);
            len += Frame::Ping.write(&mut packet[len..]);
        }
        for _ in 0..input.below(4) {
            let channel = input.byte() % 3;
            // What is longer than a frame may be is written too, as far as the packet has room.
            let room = packet.len() - len;
            let bytes_max = room.saturating_sub(FRAME_HEAD_BYTES_MAX);
            let bytes = match input.byte() {
                0..=191 => 1 + input.below(200),
                _ => bytes_max.saturating_sub(input.below(48)),
            };
            let bytes = vec![mark_of(self.client); bytes.min(bytes_max)];
            if bytes.is_empty() {
                break;
            }
            let frame = match input.byte() {
                0..=23 => Frame::Ping,
                24..=31 => {
                    let text = &bytes[..bytes.len().min(FAREWELL_BYTES_MAX)];
                    Frame::Farewell { reason: 7, text }
                }
                32..=79 => Frame::Sequenced { channel, bytes: &bytes },
                80..=127 => Frame::Unreliable { channel, bytes: &bytes },
                marks => Frame::Reliable(Part {
                    channel,
                    sequence: PartSeq::new(input.below(6) as u64),
                    is_first: marks & 0b11 != 0b01,
                    is_last: marks & 0b1100 != 0b0100,
                    bytes: &bytes,
                }),
            };
            len += frame.write(&mut packet[len..]);
        }
        packet[..len].to_vec()
    }
}

/// What every byte of a client's messages is.
pub(super) const fn mark_of(client: u64) -> u8 {
    client as u8 + 1
}
