//! Where each datagram of an Unreal listener goes, and how handshake packets leave.

use crate::arrivals::{Origin, PlayerRun};
use crate::common::Common;
use crate::front::rules::Datagrams;
use crate::front::unreal::kinds::kind_index;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::ids::ListenerId;
use crate::mail::Mailed;
use crate::output::Tag;
use crate::setup::Unreal;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{RxBatch, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::{Classified, classify, encode_within};
use ringgate_core::proto::unreal::handshake::{Body, Handshake, Kind, Receiver};
use ringgate_core::proto::unreal::prefix::Framing;

impl Datagrams for UnrealFront {
    fn step(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &mut RxBatch) {
        self.step_each(turn, run, rx, Self::step_datagram);
    }

    fn step_mailed(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        Mailed { by, is_lost }: Mailed,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let known = self.session_of(origin);
        let classified = classify(bytes, &framing, Receiver::Server)?;
        if by.member().is_some() && !is_lost {
            if known.is_none() && self.step_elsewhere(turn, origin, &classified, bytes)? {
                return Ok(());
            }
            return self.step_classified(turn, known, origin, classified, bytes);
        }
        match (classified, known) {
            (Classified::Game(ids, reader), Some(index)) => {
                self.relay_up(turn, index, origin, (ids, reader), bytes)
            }
            (Classified::Handshake(packet), _) if known.is_some() || is_lost => {
                let is_restart = matches!(packet.body, Body::RestartResponse { .. });
                if known.is_none() && !is_restart {
                    return Err(DropReason::UnknownSource);
                }
                if is_lost && let (Some(index), Some(worker)) = (known, by.worker()) {
                    // Its mailbox was full when it was told.
                    self.sessions.at_mut(index).steered_by = Some(worker);
                    turn.common.steer_here(worker, origin.address);
                }
                let outcome = self.step_handshake(turn, known, origin, &packet, bytes);
                if self.session_of(origin).is_none() {
                    // It was steered here when it was handed over, and has not moved.
                    turn.common.unsteer_by(by, origin.address, None);
                }
                outcome
            }
            _ => {
                // The session is over and the other worker has not heard yet.
                turn.common.unsteer_by(by, origin.address, None);
                Err(DropReason::UnknownSource)
            }
        }
    }
}

impl UnrealFront {
    /// A datagram that a listener has received itself.
    pub(crate) fn step_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let classified = classify(bytes, &framing, Receiver::Server)?;
        let known = self.session_of(origin);
        if known.is_none_or(|index| self.sessions.at(index).is_opening()) {
            turn.common.check_denied(&origin.address.endpoint)?;
        }
        if known.is_none() && !turn.common.neighbours.steered.is_empty() {
            let key = (origin.address.listener, origin.address.endpoint);
            if let Some(&worker) = turn.common.neighbours.steered.get(&key) {
                turn.common.forward(origin, worker, false, bytes);
                return Ok(());
            }
        }
        if known.is_none() && self.step_elsewhere(turn, origin, &classified, bytes)? {
            return Ok(());
        }
        self.step_classified(turn, known, origin, classified, bytes)
    }

    /// One that is looked at here, whether its address has a session or none.
    fn step_classified(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        classified: Classified<'_>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        match classified {
            Classified::Game(ids, reader) => match known {
                Some(index) => self.relay_up(turn, index, origin, (ids, reader), bytes),
                None => self.ask_to_restart(turn, origin, (ids, reader), bytes.len()),
            },
            Classified::Handshake(packet) => {
                self.step_handshake(turn, known, origin, &packet, bytes)
            }
        }
    }

    /// The session of the address that a datagram is from.
    pub(crate) fn session_of(&self, origin: &Origin) -> Option<Entry<Session>> {
        self.sessions.find(origin.hash, &origin.address)
    }

    /// How the packets between a listener and its players are laid out now.
    pub(crate) fn framing(&self, listener: ListenerId) -> Result<Framing, DropReason> {
        let face = self.faces.get(listener);
        face.map(|face| face.framing).ok_or(DropReason::UnknownSource)
    }

    /// Answers a handshake packet with at most `bytes_max` bytes.
    pub(crate) fn answer(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        answer: &Handshake,
        bytes_max: usize,
    ) -> Result<(), DropReason> {
        self.send_handshake(turn, origin.address.listener, answer, bytes_max, origin.target())
    }

    /// Writes a handshake packet for a player.
    pub(crate) fn send_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        listener: ListenerId,
        packet: &Handshake,
        bytes_max: usize,
        target: TxTarget,
    ) -> Result<(), DropReason> {
        let framing = self.framing(listener)?;
        let room = turn.room();
        let tail = self.tail();
        let len = encode_within(packet, &framing, tail, bytes_max, room.slot)
            .ok_or(DropReason::RestartRateLimited)?;
        room.send(len, target, Tag::Player.encode());
        turn.count_out(listener, kind_index(packet.body.kind()), len);
        Ok(())
    }
}

/// The rules of a listener.
pub(crate) fn rules_of(common: &Common, listener: ListenerId) -> Result<&Unreal, DropReason> {
    common.setup.listeners[listener].unreal().ok_or(DropReason::UnknownSource)
}

/// A handshake packet did what it came for.
pub(crate) fn count_handled(turn: &mut Turn<'_>, kind: Kind) {
    turn.common.counters.handled[kind_index(kind)] += 1;
}
