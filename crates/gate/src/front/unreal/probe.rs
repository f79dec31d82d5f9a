//! Whether a game server answers, and what it says about itself: learned from its challenge to an
//! initial connect, which leaves no trace there.
//!
//! Every worker asks for itself, from 127.0.0.1, which is no player's address, or by a session of
//! its own that an agent gives an address. A server that has not answered for some seconds gets no
//! new players; those it has stay, because a server that loads a level does not answer for a while.
//! That a server is gone altogether is known from the kernel only, or from the end of the link that
//! its agent has for it.
//!
//! A server understands only what is laid out as its own packets are, and how it was built is
//! learned here too: it is asked in one [`ProbeForm`] after the other until it answers. The
//! questions of the two bases have tails of such lengths that a server of the other base finds them
//! too long or too short; their counter, which servers repeat, says which of them was answered; and
//! an answer whose time is not possible is refused. Where a wrong answer passes all the same, the
//! next ones do not, and the server is asked in all ways again.

use crate::common::Common;
use crate::front::protocol::Front;
use crate::front::unreal::loopback::OWN_ADDRESS;
use crate::front::unreal::probed::{ANSWER_NS_MAX, ASK_AGAIN_NS, ProbeForm, Probed, REPEAT_NS};
use crate::front::unreal::state::UnrealFront;
use crate::ids::BackendId;
use crate::output::Tag;
use crate::turn::Turn;
use ringgate_batch::TxTarget;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::Identity;
use ringgate_core::proto::unreal::handshake::{Base, HANDSHAKE_BYTES_MAX};

impl Common {
    /// Whether an Unreal listener sends players to a backend, or some of theirs are there.
    fn serves_unreal(&self, backend: BackendId) -> bool {
        let state = &self.links.backends[backend];
        state.is_routed && state.front == Front::Unreal
            || Front::of_players(&self.claims, backend) == Some(Front::Unreal)
    }
}

impl UnrealFront {
    /// Asks the servers whose turn it is, and gives up on those that have been silent for long.
    pub(crate) fn probe_servers(&mut self, turn: &mut Turn<'_>) {
        if turn.now.mono_ns < self.next_probe_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        let mut has_changed = false;
        for backend in self.probed.ids() {
            let is_retired = turn.common.setup.backends[backend].retired;
            if !turn.common.serves_unreal(backend) {
                // What listens there may be another game's server by now.
                self.forget_probed(turn, backend);
            }
            self.look_at_link(turn, backend);
            let Some(probed) = self.probed[backend].as_mut().filter(|_| !is_retired) else {
                continue;
            };
            if probed.is_answering && turn.now.mono_ns >= probed.answered_ns + ANSWER_NS_MAX {
                probed.is_answering = false;
                has_changed = true;
            }
            if turn.now.mono_ns >= probed.due_ns {
                // Unless it answers.
                probed.due_ns = turn.now.mono_ns + REPEAT_NS;
                for way in probed.next_ways() {
                    self.send_question(turn, backend, way);
                }
            }
            let look_ns = self.probed[backend].as_ref().map(Probed::look_ns);
            next_ns = look_ns.map_or(next_ns, |look_ns| next_ns.min(look_ns));
            if turn.common.links.backends[backend].address.is_none() {
                // Nobody says when its link ends.
                next_ns = next_ns.min(turn.now.mono_ns + REPEAT_NS);
            }
        }
        self.next_probe_ns = next_ns;
        if has_changed {
            let setup = std::sync::Arc::clone(&turn.common.setup);
            self.show_faces(&setup);
        }
    }

    fn send_question(&mut self, turn: &mut Turn<'_>, backend: BackendId, way: usize) {
        let tail = self.tail();
        let Some(probed) = self.probed[backend].as_ref() else { return };
        let ProbeForm { framing, tail_bytes, .. } = probed.ways[way];
        let tail = tail_bytes.map_or(tail, |len| tail.with_len(len));
        let mut question = [0; HANDSHAKE_BYTES_MAX];
        let len = probed.question(way).encode(&framing, &tail, &mut question);
        let question = &question[..len];
        let peer = turn.common.links.backends[backend].address;
        match (peer, turn.common.links.udp) {
            (None, _) => turn.ask_over_link(backend, question),
            (Some(_), Some(socket)) => {
                let target = TxTarget { socket, peer, source: OWN_ADDRESS };
                turn.send_raw(question, target, Tag::Handshake);
            }
            (Some(_), None) => {}
        }
    }

    /// What a game server has sent to our own address.
    pub(crate) fn handle_probe_answer(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        bytes: &[u8],
    ) {
        if let Err(why) = self.step_probe_answer(turn, backend, bytes) {
            turn.common.count_from_nobody(why);
        }
    }

    fn step_probe_answer(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let invalid = DropReason::ServerPacketInvalid;
        let probed = self.probed[backend].as_mut().ok_or(invalid)?;
        let (way, packet) = probed.read_answer(bytes).ok_or(invalid)?;
        if probed.is_answering && way > probed.way {
            // It was asked in several ways, and has answered in a better one already.
            return Ok(());
        }
        let base = Base { sent_count: 0, ..packet.base };
        let identity = Some(Identity { base, ..Identity::of_challenge(&packet) });
        let has_changed = !probed.is_answering || probed.identity != identity || probed.way != way;
        probed.way = way;
        probed.ways_tried = 1;
        probed.is_answering = true;
        if std::mem::take(&mut probed.is_refused) {
            probed.returned_ns = turn.now.mono_ns;
        }
        probed.answered_ns = turn.now.mono_ns;
        probed.identity = identity;
        probed.due_ns = turn.now.mono_ns + ASK_AGAIN_NS;
        if has_changed {
            let setup = std::sync::Arc::clone(&turn.common.setup);
            self.show_faces(&setup);
        }
        Ok(())
    }

    /// The kernel says that no process listens where a game server should, or the link that its
    /// agent had for it has ended.
    pub(crate) fn note_refused(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        let Some(probed) = self.probed[backend].as_mut() else { return };
        probed.is_refused = true;
        if std::mem::take(&mut probed.is_answering) {
            probed.due_ns = turn.now.mono_ns + REPEAT_NS;
            self.next_probe_ns = self.next_probe_ns.min(probed.due_ns);
            let setup = std::sync::Arc::clone(&turn.common.setup);
            self.show_faces(&setup);
        }
    }
}
