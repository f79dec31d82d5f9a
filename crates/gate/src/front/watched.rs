//! Datagrams while somebody watches: handed to the fronts one by one, so that what is decided about
//! each is known, and shown to who watches with what has become of it.
//!
//! Nothing here runs while nobody does.

use crate::arrivals::{Origin, PlayerRun};
use crate::capture::Seen;
use crate::captures::AtHand;
use crate::common::Common;
use crate::front::face::{Fronts, ask};
use crate::front::protocol::Front;
use crate::front::rules::{Datagrams, Rules};
use crate::mail::ForwardedDatagram;
use crate::output::{Tag, departure_reason};
use crate::roles::Role;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_batch::{RxBatch, TxBatch, TxEntry};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::TAG_BYTES;
use ringgate_core::proto::netcode::packet::{Header, PacketKind, Receiver};

impl Fronts {
    /// First look at a run.
    #[cold]
    pub(crate) fn classify_watched(
        &mut self,
        turn: &mut Turn<'_>,
        PlayerRun { listener, range }: PlayerRun,
        rx: &RxBatch,
    ) {
        let front = turn.common.front(listener);
        for at in range {
            let address = Address { listener, endpoint: rx.metas()[at].peer };
            let client_id = self.client_at(turn.common, &address);
            turn.common.captures.take_up(address, client_id);
            ask!(self, front, .classify(turn, PlayerRun { listener, range: at..at + 1 }, rx));
            let Some(at_hand) = turn.common.captures.put_down() else { continue };
            let is_open = at_hand.dropped.is_none() && front == Front::Netcode;
            turn.common.captures.keep(at, &at_hand, is_open.then(|| rx.bytes(at)));
            if at_hand.dropped.is_some() {
                turn.common.show_received(turn.now.mono_ns, &at_hand, at, rx, None);
            }
        }
    }

    /// Third look at a run.
    #[cold]
    pub(crate) fn step_watched(
        &mut self,
        turn: &mut Turn<'_>,
        PlayerRun { listener, range }: PlayerRun,
        rx: &mut RxBatch,
    ) {
        let front = turn.common.front(listener);
        for at in range {
            let look = turn.common.captures.look(at);
            let Some(client_id) = look.filter(|look| !look.is_settled).map(|look| look.client_id)
            else {
                continue;
            };
            let address = Address { listener, endpoint: rx.metas()[at].peer };
            turn.common.captures.take_up(address, client_id);
            ask!(self, front, .step(turn, PlayerRun { listener, range: at..at + 1 }, rx));
            let Some(mut at_hand) = turn.common.captures.put_down() else { continue };
            if at_hand.is_deferred {
                continue;
            }
            at_hand.client_id = at_hand.client_id.or_else(|| self.client_at(turn.common, &address));
            let clear = ask!(self, front, .payload_at(at, rx));
            turn.common.show_received(turn.now.mono_ns, &at_hand, at, rx, clear);
        }
    }

    /// A datagram that another worker received.
    #[cold]
    pub(crate) fn handle_forwarded_watched(
        &mut self,
        turn: &mut Turn<'_>,
        datagram: &mut ForwardedDatagram,
    ) {
        let sealed = datagram.clone();
        let address = sealed.address;
        let client_id = self.client_at(turn.common, &address);
        turn.common.captures.take_up(address, client_id);
        self.take_forwarded(turn, datagram);
        let Some(mut at_hand) = turn.common.captures.put_down() else { return };
        if at_hand.is_deferred {
            return;
        }
        at_hand.client_id = at_hand.client_id.or_else(|| self.client_at(turn.common, &address));
        let is_open =
            at_hand.dropped.is_none() && turn.common.front(address.listener) == Front::Netcode;
        let clear = if is_open { payload_in(sealed.bytes(), datagram.bytes()) } else { None };
        turn.common.show_forwarded(turn.now.mono_ns, &at_hand, &sealed, clear);
    }

    /// The player at an address.
    fn client_at(&self, common: &Common, address: &Address) -> Option<u64> {
        ask!(self, common.front(address.listener), .client_at(address))
    }
}

impl Common {
    /// A datagram of the batch, and what has become of it.
    fn show_received(
        &mut self,
        turn_ns: u64,
        at_hand: &AtHand,
        at: usize,
        rx: &RxBatch,
        clear: Option<&[u8]>,
    ) {
        let Role::Player { bind, .. } = self.sources[at].role else { return };
        let seen = Seen::received(at_hand, bind, &rx.metas()[at], turn_ns);
        self.captures.show_kept(self.worker.id, &seen, at, (rx.bytes(at), clear));
    }

    /// One that another worker has received.
    pub(crate) fn show_forwarded(
        &mut self,
        turn_ns: u64,
        at_hand: &AtHand,
        datagram: &ForwardedDatagram,
        clear: Option<&[u8]>,
    ) {
        let seen = Seen {
            address: at_hand.address,
            bind: datagram.bind,
            local: datagram.local,
            is_outbound: false,
            received_by: Some(datagram.by),
            client_id: at_hand.client_id,
            dropped: at_hand.dropped,
            kernel_ns: datagram.kernel_ns,
            turn_ns,
            is_cut: false,
        };
        self.captures.show(self.worker.id, &seen, datagram.bytes(), clear);
    }

    /// One that nobody has room for whom it is for.
    pub(crate) fn show_refused(&mut self, datagram: &ForwardedDatagram, why: DropReason) {
        if self.captures.is_empty() {
            return;
        }
        let at_hand = AtHand {
            address: datagram.address,
            client_id: None,
            dropped: Some(why),
            is_deferred: false,
        };
        let turn_ns = self.life.turned_ns;
        self.show_forwarded(turn_ns, &at_hand, datagram, None);
    }

    /// The datagram at hand is one that came by mail and has waited for a trial of its sessions'
    /// keys. Returns what it was, if somebody watches.
    pub(crate) fn take_up_mover(&mut self, origin: &Origin, packet: &[u8]) -> Option<Vec<u8>> {
        if self.captures.is_empty() {
            return None;
        }
        self.captures.take_up(origin.address, None);
        Some(packet.to_vec())
    }

    /// It has had its trial.
    #[cold]
    pub(crate) fn show_mover(&mut self, turn_ns: u64, origin: &Origin, packet: &[u8]) {
        let Some(at_hand) = self.captures.put_down().filter(|at_hand| !at_hand.is_deferred) else {
            return;
        };
        let seen = Seen {
            address: origin.address,
            bind: origin.bind,
            local: origin.local,
            is_outbound: false,
            received_by: origin.forwarded_by,
            client_id: at_hand.client_id,
            dropped: at_hand.dropped,
            kernel_ns: origin.kernel_ns,
            turn_ns,
            is_cut: false,
        };
        self.captures.show(self.worker.id, &seen, packet, None);
    }

    /// Keeps the payloads that are about to be sealed, where somebody wants them in clear.
    #[cold]
    pub(crate) fn keep_unsealed(&mut self, tx: &mut TxBatch) {
        let Self { captures, sealing, .. } = self;
        if !captures.wants_clear() {
            return;
        }
        sealing.each_waiting(tx, |about, slot| {
            if PacketKind::of_prefix(slot[0]) == Some(PacketKind::Payload) {
                let payload = usize::from(about.start)..usize::from(about.end) - TAG_BYTES;
                captures.keep_unsealed(about.slot, &slot[payload]);
            }
        });
    }

    /// What a flush was to send to players, and what of it could not be sent.
    #[cold]
    pub(crate) fn show_sent(&mut self, turn_ns: u64, tx: &TxBatch) {
        let mut unsent = std::mem::take(&mut self.captures.unsent);
        unsent.clear();
        for (entry, _, why) in tx.failures() {
            unsent.push(entry.offset());
            self.show_entry(turn_ns, tx, entry, Some(departure_reason(why)));
        }
        unsent.sort_unstable();
        for entry in tx.sent() {
            if unsent.binary_search(&entry.offset()).is_err() {
                self.show_entry(turn_ns, tx, entry, None);
            }
        }
        self.captures.unsent = unsent;
        self.captures.forget_unsealed();
    }

    fn show_entry(
        &mut self,
        turn_ns: u64,
        tx: &TxBatch,
        entry: &TxEntry,
        dropped: Option<DropReason>,
    ) {
        let (Tag::Player, Some(endpoint)) = (Tag::decode(entry.tag), entry.target.peer) else {
            return;
        };
        let Role::Player { listener, bind } = self.roles.of(entry.target.socket) else { return };
        let seen = Seen {
            address: Address { listener, endpoint },
            bind,
            local: entry.target.source,
            is_outbound: true,
            received_by: None,
            client_id: None,
            dropped,
            kernel_ns: 0,
            turn_ns,
            is_cut: false,
        };
        // What players are sent lies in small slots.
        let Some(slot) = entry.small_slot() else { return };
        let slot = slot as u32;
        self.captures.show_sent(self.worker.id, &seen, slot, tx.bytes(entry));
    }
}

/// The payload of a packet that was opened in place, which was sealed like that before.
fn payload_in<'a>(sealed: &[u8], opened: &'a [u8]) -> Option<&'a [u8]> {
    let header = Header::decode(sealed, Receiver::Server);
    let header = header.ok().filter(|header| header.kind == PacketKind::Payload)?;
    opened.get(header.body_start()..opened.len() - TAG_BYTES)
}
