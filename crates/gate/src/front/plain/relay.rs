//! Datagrams of sessions, in both directions: passed on as they are.

use crate::counters::{Ended, Ending};
use crate::front::cluster::doubt::Doubting;
use crate::front::plain::kinds::PLAIN;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, rules_of};
use crate::front::rules::Answers;
use crate::links::loopback::loopback_of;
use crate::links::players::PlayerOf;
use crate::output::Tag;
use crate::setup::Sequence;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{LocalIp, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PLAIN_BYTES_MAX;
use ringgate_link::bundle::CloseReason;

impl Answers for PlainFront {
    fn at_loopback(&self, local: &LocalIp) -> Option<Entry<Session>> {
        self.addresses.owner(local).map(Entry::numbered)
    }

    fn close_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason) {
        let index = self.session_for_backend(player).or_else(|| self.unsure_for_backend(player));
        if let Some(index) = index {
            self.end_once_sure(turn, index, Ending { why: Ended::ByBackend, reason });
        }
    }

    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, bytes: &[u8]) {
        turn.common.counters.payloads_from_links += 1;
        let backend = self.sessions.at(index).backend;
        if let Err(why) = self.check_answer(turn, index, bytes) {
            return turn.common.drop_payload(backend, why);
        }
        let address = self.sessions.address(index);
        let target = self.sessions.at(index).target(address.endpoint);
        turn.room().send_copy(bytes, target, Tag::Player.encode());
        turn.count_out(address.listener, PLAIN, bytes.len());
        turn.common.note_down(address.listener, backend, bytes.len());
    }
}

impl PlainFront {
    /// Hands a datagram's payload to its game server.
    pub(crate) fn relay_up(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (number, payload): (Option<u32>, &[u8]),
        kernel_ns: u64,
    ) {
        let backend = self.sessions.at(index).backend;
        turn.common.counters.handled[PLAIN] += 1;
        turn.common.counters.payloads_up += 1;
        match self.deliver(turn, index, (number, payload)) {
            Ok(()) => turn.common.note_up(backend, payload.len(), kernel_ns),
            Err(why) => {
                let address = self.sessions.address(index);
                turn.common.drop_uplink(address, None, (backend, why));
            }
        }
    }

    fn deliver(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (number, payload): (Option<u32>, &[u8]),
    ) -> Result<(), DropReason> {
        let session = self.sessions.at(index);
        let backend = &turn.common.links.backends[session.backend];
        if backend.address.is_none() {
            return self.deliver_bundled(turn, index, (number, payload));
        }
        if !backend.is_up() {
            return Err(DropReason::LinkDown);
        }
        let peer = backend.address;
        let socket = turn.common.links.udp.ok_or(DropReason::LinkDown)?;
        let source = session.loopback.and_then(loopback_of).ok_or(DropReason::LinkDown)?;
        turn.send_raw(payload, TxTarget { socket, peer, source }, Tag::UdpPayload);
        Ok(())
    }

    fn check_answer(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        if bytes.is_empty() || bytes.len() > PLAIN_BYTES_MAX {
            return Err(DropReason::PayloadLength);
        }
        let rules = rules_of(turn.common, self.sessions.address(index).listener)?;
        if let Some(sequence) = rules.sequence.filter(|sequence| sequence.both) {
            self.guard_answer(turn, &sequence, index, bytes)?;
        }
        let session = self.sessions.at_mut(index);
        match session.stage {
            Stage::Open { is_proven: true } | Stage::Barred => return Ok(()),
            Stage::Open { is_proven: false } => {
                session.draw(&rules.credit, bytes.len(), turn.now.mono_ns)?;
            }
            Stage::HalfOpen { .. } => {
                if turn.now.mono_ns >= session.heard_ns + rules.half_open_ns {
                    return Err(DropReason::SessionUnknown);
                }
                session.spend(bytes.len(), DropReason::AnswerLimited)?;
                let before =
                    std::mem::replace(&mut session.stage, Stage::HalfOpen { is_answered: true });
                if before == (Stage::HalfOpen { is_answered: false }) {
                    self.sessions.announce(index);
                }
            }
        }
        self.note_sent(rules.echo, index, bytes);
        Ok(())
    }

    /// Lets each of a server's numbers pass once. It may jump: what is lost on this host's loopback
    /// was lost by the host, and is no reason to end a session.
    fn guard_answer(
        &mut self,
        turn: &Turn<'_>,
        sequence: &Sequence,
        index: Entry<Session>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let number = sequence.field.read(bytes).ok_or(DropReason::ServerPacketInvalid)?;
        let policy = sequence.policy.unlimited();
        let changes = self.listeners[self.sessions.address(index).listener].sequence_changes;
        let session = self.sessions.at_mut(index);
        // A server that was started again numbers as it likes.
        let arrivals = turn.common.links.backends[session.backend].arrivals as u32;
        let guarded = Some((changes, arrivals));
        if session.server_guarded == guarded {
            let passed = self.guards[1].of(index).pass(number, sequence.field.width, &policy);
            return passed.map_err(|_| DropReason::ServerDuplicate);
        }
        session.server_guarded = guarded;
        self.guards[1].start(index, number, &policy);
        Ok(())
    }
}
