//! What leaves a gate: packets for players, written into the outgoing batch and sealed in one go.

use arrayvec::ArrayVec;

use crate::front::netcode::seal::Seal;
use crate::front::netcode::state::NetcodeFront;
use crate::gate::Gate;
use crate::ids::LinkId;
use crate::links::state::Link;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_batch::{Room, SendFailure, TxBatch, TxTarget};
use ringgate_core::crypto::{Aead, Job};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::{PacketKind, encode_packet};
use ringgate_core::secret::Key;

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

    const fn decode(tag: u64) -> Self {
        match tag as u8 {
            0 => Self::Player,
            1 => Self::Probe,
            2 => Self::UdpPayload,
            3 => Self::Handshake,
            _ => Self::Bundle(LinkId((tag >> 8) as u16)),
        }
    }
}

impl Gate {
    /// Writes a packet for the player of a session; it is sealed at the end of the turn.
    pub(crate) fn emit(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        kind: PacketKind,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let now_ns = turn.now.mono_ns;
        let room = self.room(turn);
        let endpoint = self.netcode.sessions.address(index).endpoint;
        let session = self.netcode.sessions.at_mut(index);
        let sequence = session.next_sequence.take()?;
        session.last_send_ns = now_ns;
        let (header, len) = encode_packet(kind, sequence, body, room.slot);
        let target =
            TxTarget { socket: session.socket, peer: Some(endpoint), source: session.local };
        let slot = room.send(len, target, Tag::Player.encode());
        self.netcode.seals.push(Seal { slot, session: index, header, len: len as u16 });
        self.count_out(kind, len);
        Ok(())
    }

    /// Writes and seals a packet of the handshake, for which there is no session yet.
    pub(crate) fn emit_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        listener: u16,
        key: &Key,
        (kind, body): (PacketKind, &[u8]),
        target: TxTarget,
    ) {
        let room = self.room(turn);
        let sequence = self.netcode.global_sequence.take();
        let (header, len) = encode_packet(kind, sequence, body, room.slot);
        let aad = self.listeners[usize::from(listener)].aads.of(header.prefix);
        let sealed = &mut room.slot[header.body_start()..len];
        self.aead.seal(&mut [Job::new(key, header.nonce(), aad, sealed)]);
        room.send(len, target, Tag::Player.encode());
        self.count_out(kind, len);
    }

    /// Room for a datagram that leaves.
    #[inline]
    pub(crate) fn room<'t>(&mut self, turn: &'t mut Turn<'_>) -> Room<'t> {
        if turn.tx.small_left() == 0 {
            self.submit(turn);
        }
        turn.tx.room().expect("a batch that was flushed has room")
    }

    /// Seals and sends what there is, and empties the batch. May be called in the middle of a step,
    /// so it only notes what could not be sent: links that are gone are given up at the end of the
    /// stage ([`give_up_broken_links`](Self::give_up_broken_links)).
    pub(crate) fn submit(&mut self, turn: &mut Turn<'_>) {
        self.commit_bundles(turn.tx);
        self.seal(turn.tx);
        if !turn.tx.is_empty() {
            turn.out.flush(turn.tx);
            if turn.tx.has_failures() {
                self.note_failures(turn.tx);
                self.links.all.iter_mut().flatten().for_each(Link::end_flush);
            }
        }
    }

    /// Ends the turn: submits, and gives up the places of what was removed.
    pub(crate) fn finish(&mut self, turn: &mut Turn<'_>) {
        self.submit(turn);
        self.give_up_broken_links(turn.now);
        self.reclaim(turn.now.mono_ns);
        self.life.in_turn = false;
        self.life.turned_ns = turn.now.mono_ns;
    }

    /// Seals everything that waits, in batches.
    fn seal(&mut self, tx: &mut TxBatch) {
        let Self { netcode: NetcodeFront { seals, sessions, .. }, listeners, aead, .. } = self;
        let mut batch = ArrayVec::<Job<'_>, SEAL_BATCH>::new();
        let mut waiting = seals.iter().peekable();
        for (at, slot) in tx.small_slots_mut().enumerate() {
            let Some(seal) = waiting.next_if(|seal| seal.slot as usize == at) else { continue };
            let Address { listener, .. } = *sessions.address(seal.session);
            let key = &sessions.at(seal.session).seal_key;
            let aad = listeners[usize::from(listener)].aads.of(seal.header.prefix);
            let buf = &mut slot[seal.header.body_start()..usize::from(seal.len)];
            batch.push(Job::new(key, seal.header.nonce(), aad, buf));
            if batch.is_full() {
                seal_batch(aead, &mut batch);
            }
        }
        seal_batch(aead, &mut batch);
        debug_assert!(waiting.peek().is_none(), "every packet that waits lies in a slot");
        drop(batch);
        seals.clear();
    }

    fn note_failures(&mut self, tx: &TxBatch) {
        for (entry, bytes, why) in tx.failures() {
            match Tag::decode(entry.tag) {
                Tag::Player => self.counters.drops.bump(departure_reason(why)),
                Tag::Handshake => self.counters.link_datagrams_out -= 1,
                Tag::Probe => self.take_back_probe(entry.target.peer),
                Tag::UdpPayload => {
                    self.counters.link_datagrams_out -= 1;
                    self.undeliver(1, why);
                }
                Tag::Bundle(link) => self.note_refused_bundle(link, bytes, why),
            }
        }
    }

    fn count_out(&mut self, kind: PacketKind, len: usize) {
        self.counters.packets_out[kind as usize] += 1;
        self.counters.bytes_out += len as u64;
    }
}

fn seal_batch(aead: &mut Aead, batch: &mut ArrayVec<Job<'_>, SEAL_BATCH>) {
    if !batch.is_empty() {
        aead.seal(batch);
        batch.clear();
    }
}

fn departure_reason(why: SendFailure) -> DropReason {
    match why {
        SendFailure::Full => DropReason::SendBufferFull,
        SendFailure::Gone | SendFailure::Refused => DropReason::SendRefused,
    }
}

/// Packets sealed at once. The kernels gain nothing beyond 64 (docs/BENCHMARKS.md, crypto).
const SEAL_BATCH: usize = 64;
