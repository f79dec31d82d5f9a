//! One end of a connection between an engine's client and server: [`Notify`] behind Unreal's
//! prefix. For test players and test servers; a gateway only passes these packets on.

use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::notify::Notify;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::notify::{HISTORY_WORDS_MAX, Header, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Prefix};

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

/// The header of a game packet, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// The packet's number.
    pub sequence: PacketSeq,
    /// The newest packet that has arrived.
    pub acked: PacketSeq,
    /// The history, newest word first. Invariant: 1 to 8 words.
    pub history: &'a [u32],
}

impl Fields<'_> {
    /// Begins a game packet: prefix and header. The game's bits follow, and two termination bits.
    ///
    /// # Panics
    /// Where the buffer is too short, or where the history does not have 1 to 8 words.
    pub fn write(&self, framing: &Framing, ids: Ids, out: &mut BitWriter<'_>) {
        let words = self.history.len();
        assert!((1..=HISTORY_WORDS_MAX).contains(&words), "a history has 1 to 8 words");
        framing.write(Prefix { ids, is_handshake: false }, out);
        out.write((words - 1) as u64, 3);
        // Zero up to UE 5.7.
        out.flag(false);
        out.write(self.acked.value(), 14);
        out.write(self.sequence.value(), 14);
        for &word in self.history {
            out.write(word.into(), 32);
        }
    }
}

/// A game packet ends twice: for the connection, and for the layer below it.
const TERMINATORS: usize = 2;

#[cfg(test)]
mod tests;
