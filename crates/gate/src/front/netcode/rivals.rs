//! Another login of a client id that has a session: a player whose client has crashed comes back
//! with a new token, and its session, in which nothing is said any more, is in its way.
//!
//! A session that is silent for long enough is replaced, once the other login has proved its
//! address and if there is room for it then; one that talks stays. What counts is what the session
//! has taken in: packets that have opened, with numbers that were not used. So neither forged nor
//! repeated packets make a session look alive, and nothing that anybody sends makes one look
//! silent. The worker that has the session decides; another one asks it, and the client, which
//! repeats what it sends ten times a second, hears the outcome.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::ids::{BackendId, ListenerId, WorkerId};
use crate::mail::{Mail, Rivalry};
use crate::now::Now;
use crate::shared::claims::Seated;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;

impl NetcodeFront {
    /// Whether a session may have to go for a login that has not proved its address yet.
    pub(crate) fn may_yield(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        seated: &Seated,
    ) -> bool {
        if replace_after_ns(turn.common, origin.address.listener) == 0 {
            return true;
        }
        match self.sessions.named(seated.session) {
            Some(index) => self.is_silent(turn.common, turn.now, index),
            None => {
                self.ask_rival(turn, origin, Rivalry { session: seated.session, proven: None });
                seated.is_silent
            }
        }
    }

    /// Ends a session that is silent, for a login that has proved its address and has room then.
    /// Another worker's goes a moment later.
    pub(crate) fn yields(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        seated: &Seated,
        backend: BackendId,
    ) -> Result<(), DropReason> {
        let proven = (origin.address.endpoint, backend);
        match self.sessions.named(seated.session) {
            Some(index) => {
                if !self.is_silent(turn.common, turn.now, index) {
                    return Err(DropReason::ResponseClientConnected);
                }
                self.give_way(turn, index, proven)
            }
            None => {
                let rivalry = Rivalry { session: seated.session, proven: Some(proven) };
                self.ask_rival(turn, origin, rivalry);
                Err(DropReason::ResponseClientConnected)
            }
        }
    }

    /// Another worker has such a login.
    pub(crate) fn meet_rival(&mut self, turn: &mut Turn<'_>, rivalry: Rivalry) {
        let Rivalry { session, proven } = rivalry;
        let Some(index) = self.sessions.named(session) else { return };
        let is_silent = self.is_silent(turn.common, turn.now, index);
        if let Some(proven) = proven.filter(|_| is_silent) {
            // Whoever has no room now may have some when it asks again.
            let _ = self.give_way(turn, index, proven);
            return;
        }
        let listener = self.sessions.address(index).listener;
        let client_id = self.sessions.at(index).client_id;
        turn.common.claims.seat(listener, client_id, (session, is_silent));
    }

    /// Ends a session, unless whom it is in the way of could not come in all the same.
    fn give_way(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (source, backend): (Endpoint, BackendId),
    ) -> Result<(), DropReason> {
        let claim = self.sessions.at(index).claim(self.sessions.address(index));
        let limits = turn.common.limits(claim.listener);
        turn.common.claims.has_room_instead_of(&claim, backend, &source, limits)?;
        self.end(turn, index, Ended::NewerLogin);
        Ok(())
    }

    /// Asks the worker that has the session, as far as this source may have others asked.
    fn ask_rival(&mut self, turn: &mut Turn<'_>, origin: &Origin, rivalry: Rivalry) {
        let worker = rivalry.session.worker();
        if worker == turn.common.worker.id.index() || worker >= turn.common.worker.count.into() {
            // It has just gone.
            return;
        }
        let block = origin.address.block();
        if self.port_switches.forwards.take(&block, 1, turn.now.mono_ns) {
            let worker = WorkerId(worker as u16);
            turn.common.neighbours.mail_out.push((worker, Mail::Rival(rivalry)));
        }
    }

    /// Whether a login of the same client may come from where a session is: its client came back
    /// with the port that it had.
    pub(crate) fn is_in_own_way(
        &self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        client_id: u64,
    ) -> bool {
        let is_own = self.sessions.at(index).client_id == client_id;
        is_own && self.is_silent(turn.common, turn.now, index)
    }

    pub(crate) fn is_silent(&self, common: &Common, now: Now, index: Entry<Session>) -> bool {
        let after_ns = replace_after_ns(common, self.sessions.address(index).listener);
        let heard_ns = self.sessions.at(index).last_receive_ns;
        now.mono_ns.saturating_sub(heard_ns) >= after_ns
    }
}

fn replace_after_ns(common: &Common, listener: ListenerId) -> u64 {
    let rules = common.setup.listeners[listener].netcode();
    rules.map_or(u64::MAX, |rules| rules.replace_after_ns)
}
