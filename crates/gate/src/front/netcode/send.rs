//! Packets for players: written here, sealed when the outgoing batch is sent.

use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::ids::ListenerId;
use crate::output::Tag;
use crate::sealing::About;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::TxTarget;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::{
    AadTable, Header, KeepAlive, PacketKind, encode_packet,
};
use ringgate_core::secret::Key;

impl NetcodeFront {
    /// Writes a packet for the player of a session.
    pub(crate) fn emit(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        kind: PacketKind,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let now_ns = turn.now.mono_ns;
        let address = self.sessions.address(index);
        let (listener, peer) = (address.listener, Some(address.endpoint));
        let aads = &self.listeners[listener].aads;
        let session = self.sessions.at_mut(index);
        let sequence = session.next_sequence.take()?;
        session.last_send_ns = now_ns;
        let room = turn.room();
        let (header, len) = encode_packet(kind, sequence, body, room.slot);
        let (socket, source) = session.talks_to();
        let target = TxTarget { socket, peer, source };
        let slot = room.send(len, target, Tag::Player.encode());
        turn.common.sealing.push(&session.seal_key, about(slot, header, len, aads));
        turn.count_out(listener, kind as usize, len);
        Ok(())
    }

    /// Writes a packet of the handshake, for which there is no session yet.
    pub(crate) fn emit_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        listener: ListenerId,
        key: &Key,
        (kind, body): (PacketKind, &[u8]),
        target: TxTarget,
    ) {
        let sequence = self.global_sequence.take();
        let room = turn.room();
        let (header, len) = encode_packet(kind, sequence, body, room.slot);
        let slot = room.send(len, target, Tag::Player.encode());
        let aads = &self.listeners[listener].aads;
        turn.common.sealing.push(key, about(slot, header, len, aads));
        // There is no session at whose end the key would be forgotten.
        turn.common.sealing.expire();
        turn.count_out(listener, kind as usize, len);
    }

    /// A keep-alive: what tells the player that it is connected, and as whom.
    pub(crate) fn emit_keep_alive(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let session = self.sessions.at(index);
        let slots = turn.common.setup.backends[session.backend].slots;
        let body = KeepAlive { slot: session.slot.0, slots }.encode();
        // It fails where the session has used up its sequence, after 2^63 packets. Then it falls
        // silent, and its player gives up; no payload was lost here, so none is counted.
        let _ = self.emit(turn, index, PacketKind::KeepAlive, &body);
    }
}

fn about(slot: u32, header: Header, len: usize, aads: &AadTable) -> About {
    About {
        slot,
        nonce: header.nonce(),
        aad: *aads.of(header.prefix),
        start: header.body_start() as u16,
        end: len as u16,
    }
}
