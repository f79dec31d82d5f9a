//! One end of a connection between an engine's client and server: [`Notify`] behind Unreal's
//! prefix. For test players and test servers; a gateway only passes these packets on.

use super::PacketSeq;
use super::bits::{BitReader, BitWriter};
use super::cookie::Cookie;
use super::notify::{Fields, Header, Sender};
use super::prefix::{Framing, Ids};
use crate::drops::DropReason;
use crate::limits::UNREAL_BYTES_MAX;
use crate::proto::notify::Notify;

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    notify: Notify,
}

impl Peer {
    /// That end of a connection whose handshake ended with this cookie.
    pub const fn new(side: Sender, cookie: &Cookie) -> Self {
        let (client, server) = (cookie.client_sequence(), cookie.server_sequence());
        let (own, other) = match side {
            Sender::Client => (client, server),
            Sender::Server => (server, client),
        };
        Self { notify: Notify::starting_at(own, other) }
    }

    /// The number of the next packet that leaves.
    pub const fn next(&self) -> PacketSeq {
        self.notify.next()
    }

    /// The newest packet that arrived.
    pub const fn latest(&self) -> PacketSeq {
        self.notify.latest()
    }

    /// How many packets have left that nothing is known about.
    pub const fn in_flight(&self) -> usize {
        self.notify.in_flight()
    }

    /// Writes a packet with these bits behind the header, and returns its length. `None` where as
    /// many packets are in flight as a history can answer for.
    ///
    /// # Panics
    /// Where the buffer is too short.
    pub fn write(
        &mut self,
        framing: &Framing,
        ids: Ids,
        payload: BitReader<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        if !self.notify.has_room() {
            return None;
        }
        let mut out = BitWriter::new(out);
        let (sequence, acked) = (self.next(), self.latest());
        let history = self.notify.history();
        Fields { sequence, acked, history }.write(framing, ids, &mut out);
        out.copy(payload);
        self.notify.handle_sent();
        Some(out.finish(TERMINATORS))
    }

    /// Writes a packet without packet info whose bunches `bunches` writes; otherwise as
    /// [`write`](Self::write).
    pub fn write_bunches(
        &mut self,
        framing: &Framing,
        ids: Ids,
        bunches: impl FnOnce(&mut BitWriter<'_>),
        out: &mut [u8],
    ) -> Option<usize> {
        let mut bytes = [0; UNREAL_BYTES_MAX];
        let mut writer = BitWriter::new(&mut bytes);
        let has_packet_info = false;
        writer.flag(has_packet_info);
        bunches(&mut writer);
        let bits = writer.position();
        let payload = BitReader::new(&bytes).take(bits)?;
        self.write(framing, ids, payload, out)
    }

    /// Takes a packet in and tells `on_news` what became of each of our packets that it is the
    /// first to speak of.
    ///
    /// `is_delivered` says whether its content could be used; otherwise it is reported as lost to
    /// its sender.
    pub fn handle_header(
        &mut self,
        header: &Header<'_>,
        is_delivered: bool,
        on_news: impl FnMut(PacketSeq, bool),
    ) -> Result<(), DropReason> {
        self.notify.handle_header(&header.told(), is_delivered, on_news)
    }
}

/// A game packet ends twice: for the connection, and for the layer below it.
const TERMINATORS: usize = 2;

#[cfg(test)]
mod tests;
