//! A worker that has slept asks the arbiters which sessions of its cluster are still its own,
//! before it says or delivers anything for one of them.
//!
//! Members take a gateway for gone that they have not heard for 200 ms, and one of them may go on
//! with a session meanwhile. What the arbiter has said of that may lie in the link behind what the
//! game process has said. So one question to each arbiter is enough: its answer comes behind all
//! that it has to say of the sessions.
//!
//! Until then no game process can name such a session, and its player's payloads go no further, by
//! name. Where a game process or an operator wants it to end, that waits for the answer: a player
//! of this gateway is told goodbye, and one of another gateway by that one, which hears from the
//! arbiter that the session is over. What cannot wait ends it without a word to the player: a newer
//! login, a forbidden gap, a link that is gone for good, the gateway's own end.

use crate::counters::{Ended, Ending};
use crate::front::cluster::rules::Clustering;
use crate::front::cluster::takeovers::{ASK_EVERY_NS, arbiter_of};
use crate::ids::BackendId;
use crate::links::players::PlayerOf;
use crate::links::state::Load;
use crate::sessions::Kept;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_link::bundle::MoveRefusal;

/// Sessions that may be another gateway's by now.
pub(crate) trait Doubting: Clustering {
    /// Before anything else in a turn.
    #[inline]
    fn notice_sleep(&mut self, turn: &mut Turn<'_>) {
        if self.clusters().is_empty() {
            return;
        }
        let slept_ns = turn.now.mono_ns.saturating_sub(turn.common.life.turned_ns);
        if slept_ns > SLEEP_NS || self.clusters().doubt.is_inherited {
            self.begin_to_doubt(turn);
        }
    }

    #[cold]
    fn begin_to_doubt(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now.mono_ns;
        let doubt = &mut self.clusters_mut().doubt;
        doubt.is_inherited = false;
        if doubt.since_ns == now_ns {
            return;
        }
        doubt.since_ns = now_ns;
        for index in self.clusters().all() {
            let told = self.clusters().get(index).and_then(|it| it.told);
            let Some((backend, _)) = told else { continue };
            self.set_unsure(index, true);
            let backends = &mut self.clusters_mut().doubt.backends;
            if !backends.contains(&backend) {
                backends.push(backend);
            }
        }
        self.ask_whose(turn);
    }

    fn ask_whose(&mut self, turn: &mut Turn<'_>) {
        let doubt = &mut self.clusters_mut().doubt;
        doubt.asked_ns = turn.now.mono_ns;
        for backend in &doubt.backends {
            if let Some(link) = arbiter_of(turn.common, *backend) {
                let number = doubt.since_ns;
                turn.append(link, Load::NONE, |writer| writer.woke(number));
            }
        }
    }

    /// Has the worker take a turn now and then, and asks again for what is not answered.
    fn look_after_doubt(&mut self, turn: &mut Turn<'_>) {
        let (now_ns, has_sessions) = (turn.now.mono_ns, !self.clusters().is_empty());
        let doubt = &mut self.clusters_mut().doubt;
        if now_ns >= doubt.beat_ns && has_sessions {
            doubt.beat_ns = now_ns + BEAT_NS;
        }
        if !doubt.backends.is_empty() && now_ns >= doubt.asked_ns + ASK_EVERY_NS {
            self.ask_whose(turn);
        }
    }

    /// An arbiter has said all that there was to say: what is still here is this gateway's.
    fn hear_sure(&mut self, turn: &mut Turn<'_>, backend: BackendId, number: u64) {
        let doubt = &self.clusters().doubt;
        if number != doubt.since_ns || !doubt.backends.contains(&backend) {
            return;
        }
        let all = self.clusters().all().into_iter();
        // Its player may wait for another backend, to which it has gone over.
        let told = |it| self.clusters().get(it).and_then(|it| it.told).map(|(told, _)| told);
        let of_it: Vec<_> =
            all.filter(|it| self.is_unsure(*it) && told(*it) == Some(backend)).collect();
        // The arbiter knows nothing of one that it was not told of on this link: it is asked again.
        let epoch = turn.common.links.backends[backend].epoch;
        let is_new = |index: &Entry<Self::Session>| {
            self.backend_of(*index) == backend && *self.announced(*index) != epoch
        };
        let new: Vec<_> = of_it.iter().copied().filter(is_new).collect();
        if !new.is_empty() {
            for index in new {
                self.announce_again(turn, index);
            }
            return;
        }
        self.clusters_mut().doubt.backends.retain(|it| *it != backend);
        for index in of_it {
            self.be_sure(turn, index);
        }
    }

    /// A session is this gateway's. It ends now where its game process
    /// or an operator has wanted that meanwhile.
    fn be_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        let is_unheard = turn.common.moves.is_unheard(self.sessions().id(index));
        self.set_unsure(index, is_unheard);
        if let Some(ending) = self.ending_of(index) {
            self.end_like(turn, index, ending);
        }
    }

    /// A session ends so when it is sure that it is this gateway's. Who has wanted it first is
    /// whose reason is told.
    fn keep_ending(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, it: Ending) {
        let session = self.sessions().id(index);
        turn.end_offer(session, MoveRefusal::SessionOver);
        if let Some(clustered) = self.clusters_mut().get_mut(index) {
            clustered.ending.get_or_insert(it);
        }
    }

    /// A game process or an operator has a session end: now, or once it is sure whose that is.
    fn end_once_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, ending: Ending) {
        if self.is_unsure(index) {
            self.keep_ending(turn, index, ending);
        } else {
            self.end_like(turn, index, ending);
        }
    }

    /// How a session is to end.
    fn ending_of(&self, index: Entry<Self::Session>) -> Option<Ending> {
        self.clusters().get(index)?.ending
    }

    /// Whether it is asked whose a session is.
    fn is_unsure(&self, index: Entry<Self::Session>) -> bool {
        let doubt = &self.clusters().doubt;
        let is_in_doubt = |it: (BackendId, u32)| doubt.backends.contains(&it.0);
        !doubt.backends.is_empty()
            && self.sessions().at(index).at_backend() == BackendId::NOBODYS
            && self.clusters().get(index).and_then(|it| it.told).is_some_and(is_in_doubt)
    }

    /// Whether another gateway may have a session, or has it and the last words are awaited here,
    /// or is offered it now: it goes to no other game process from here.
    fn may_be_anothers(&self, now_ns: u64, index: Entry<Self::Session>) -> bool {
        let Some(it) = self.clusters().get(index) else { return false };
        let mut leaving = self.clusters().leaving.iter();
        self.is_unsure(index)
            || it.is_given && it.moves.has_just_begun(now_ns)
            || leaving.any(|(_, leaving, _)| *leaving == it.id)
    }

    /// A session that a game process may end, though it may do nothing else with it just now.
    fn unsure_for_backend(&self, player: PlayerOf) -> Option<Entry<Self::Session>> {
        let index = self.sessions().named(player.session)?;
        let is_its = self.backend_of(index) == player.backend;
        (is_its && self.is_unsure(index)).then_some(index)
    }

    /// Looks after a session of which it is asked whose it is, or that was to end then. Whether
    /// that is all.
    fn look_after_unsure(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) -> bool {
        if self.is_unsure(index) {
            self.wait_for_owner(turn, index);
            return true;
        }
        let ending = self.ending_of(index);
        if let Some(ending) = ending {
            self.end_like(turn, index, ending);
        }
        ending.is_some()
    }

    /// Time passes for a session while it is asked whose it is.
    fn wait_for_owner(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        if turn.common.is_lost(self.backend_of(index), turn.now) {
            let ending = self.ending_of(index).unwrap_or_else(|| Ended::BackendGone.into());
            return self.end_like(turn, index, ending);
        }
        self.sessions_mut().arm(index, turn.now.mono_ns + BEAT_NS);
    }
}

impl<F: Clustering> Doubting for F {}

/// How long nobody has to have heard a gateway that is taken for gone, less what a turn may take.
const SLEEP_NS: u64 = 150_000_000;

const BEAT_NS: u64 = 50_000_000;
