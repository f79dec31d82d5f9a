//! Sessions on their way to the next process, whatever a front keeps of them.
//!
//! A session is written with its place and its address, perhaps several times while it changes. A
//! later copy takes the place of the one before; what follows from a session (it counts, others
//! find it by it) is noted when it comes, and taken back when it is replaced or gone.

use crate::common::Common;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::handover::arriving::NO_TOKEN;
use crate::ids::ListenerId;
use crate::sessions::Kept;
use crate::shared::claims::Claim;
use crate::shared::claims::history::TokenName;
use crate::store::entry::Entry;
use crate::store::table::handed::{read_free, write_none};
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// What a front has to say of its sessions when they go to the next process.
pub(crate) trait Carried: Rules<Session: Carry> {
    const FRONT: Front;
    /// Whether players have tokens, whose names go along.
    const HAS_TOKENS: bool = false;

    /// What follows a session in its record.
    type Beside: Carry;

    fn beside(&self, index: Entry<Self::Session>) -> Self::Beside;

    /// Notes what follows from a session that has come, for as long as it stays what it is.
    fn note_come(
        &mut self,
        _common: &mut Common,
        _index: Entry<Self::Session>,
        _beside: Self::Beside,
    ) -> Result<(), Broken> {
        Ok(())
    }

    /// Takes [`note_come`](Self::note_come) back: the session is over, or about to be another.
    fn note_gone(&mut self, _common: &mut Common, _index: Entry<Self::Session>) {}

    /// A session has come to a place that had none.
    fn move_in(&mut self, _common: &Common, _index: Entry<Self::Session>) {}

    /// It leaves the place, and may come again at another.
    fn move_out(&mut self, _common: &Common, _index: Entry<Self::Session>) {}

    /// A session has what it claims.
    fn note_claimed(&self, _common: &Common, _index: Entry<Self::Session>, _claim: &Claim) {}

    /// Writes everything but sessions and what has records of its own.
    fn hand_over_rules(&self, out: &mut Writer<'_>);

    /// Goes on with it.
    fn take_rules(&mut self, common: &Common, from: &mut Reader<'_>) -> Result<(), Broken>;

    /// Writes what is remembered of a listener.
    fn hand_over_listener(&self, _listener: ListenerId, _out: &mut Writer<'_>) {}

    /// Goes on with it.
    fn take_listener(&mut self, _common: &Common, _from: &mut Reader<'_>) -> Result<(), Broken> {
        Err(Broken::Invalid("listener"))
    }

    /// Everything has come: what else follows from that. Nothing here goes through all sessions of
    /// a large gateway: players wait.
    fn settle_rules(&mut self, _common: &mut Common, _now_ns: u64) -> Result<(), Broken> {
        Ok(())
    }

    /// Writes a session, all but the name of its token: that never changes, and is
    /// [added](Self::add_token) where the session is written down.
    fn hand_over_session(&self, index: Entry<Self::Session>, out: &mut Writer<'_>) {
        let sessions = self.sessions();
        sessions.place(index).write(out);
        if Self::HAS_TOKENS {
            NO_TOKEN.write(out);
        }
        sessions.address(index).write(out);
        sessions.at(index).write(out);
        self.beside(index).write(out);
    }

    /// Fills the token's name in where a session was written.
    fn add_token(&self, common: &Common, index: Entry<Self::Session>, body: &mut [u8]) {
        if Self::HAS_TOKENS {
            let claim = self.sessions().at(index).held(self.sessions().address(index));
            let token = claim.and_then(|claim| common.claims.token_of(&claim));
            token.unwrap_or(NO_TOKEN).write(&mut Writer::new(&mut body[TOKEN_AT..]));
        }
    }

    /// Takes a session in, in the place of whatever was there. One that cannot be carried is noted.
    fn take_session(&mut self, common: &mut Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        match self.take_session_at(common, place, from) {
            Ok(()) => {
                self.sessions_mut().arriving.lost.remove(&place.index);
                from.end()
            }
            Err(Broken::Foreign) => {
                self.lose(common, place);
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    fn take_session_at(
        &mut self,
        common: &mut Common,
        place: Place,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let token = if Self::HAS_TOKENS { TokenName::read(from)? } else { NO_TOKEN };
        let address = Address::read(from)?;
        if common.front(address.listener) != Self::FRONT {
            return Err(Broken::Foreign);
        }
        let session = Self::Session::read(from)?;
        let beside = Self::Beside::read(from)?;
        if session.steered_by().is_some_and(|worker| worker.0 >= common.worker.count) {
            return Err(Broken::Invalid("worker"));
        }
        let (backend, held) = (session.at_backend(), session.held(&address));
        if let Some(index) = self.sessions().same_at(place, &address)
            && self.sessions().at(index).held(&address) == held
        {
            self.note_gone(common, index);
            *self.sessions_mut().at_mut(index) = session;
            return self.note_come(common, index, beside);
        }
        for index in self.sessions().in_the_way(place, &address) {
            self.put_away(common, index);
        }
        let index = self.sessions_mut().put(place, address, session)?;
        common.go_on_speaking(backend, Self::FRONT);
        if held.is_some_and(|claim| !self.claim_again(common, index, &claim, token)) {
            self.sessions_mut().arriving.unclaimed.insert(index.number(), token);
        }
        self.move_in(common, index);
        self.note_come(common, index, beside)
    }

    /// Claims what a session had. Whether it could.
    fn claim_again(
        &self,
        common: &Common,
        index: Entry<Self::Session>,
        claim: &Claim,
        token: TokenName,
    ) -> bool {
        let is_had = common.claims.resume(claim, token);
        if is_had {
            self.note_claimed(common, index, claim);
        }
        is_had
    }

    /// Takes a session out that was copied and is not there any more.
    fn put_away(&mut self, common: &mut Common, index: Entry<Self::Session>) {
        self.note_gone(common, index);
        let is_unclaimed = self.sessions_mut().arriving.unclaimed.remove(&index.number()).is_some();
        let claim = self.sessions().at(index).held(self.sessions().address(index));
        if let Some(claim) = claim.filter(|_| !is_unclaimed) {
            common.claims.release(&claim);
        }
        self.move_out(common, index);
        self.sessions_mut().take_out(index);
    }

    /// A session cannot be carried, nor can an earlier copy of what is at its place.
    fn lose(&mut self, common: &mut Common, place: Place) {
        if let Some(index) = self.sessions().live_at(place.index) {
            self.put_away(common, index);
        }
        self.sessions_mut().arriving.lost.insert(place.index, place);
    }

    /// Claims what sessions could not have when they came, because a session of another worker had
    /// it that was over by then. One that cannot have it all the same is not carried.
    fn settle_claims(&mut self, common: &mut Common) {
        for (number, token) in std::mem::take(&mut self.sessions_mut().arriving.unclaimed) {
            let index = Entry::numbered(number);
            let claim = self.sessions().at(index).held(self.sessions().address(index));
            if claim.is_some_and(|claim| !self.claim_again(common, index, &claim, token)) {
                // It holds no claim that could be given back.
                self.sessions_mut().arriving.unclaimed.insert(number, token);
                self.lose(common, self.sessions().place(index));
            }
        }
    }

    fn hand_over_rest(&self, out: &mut Writer<'_>) {
        write_none(out);
        self.hand_over_rules(out);
    }

    fn take_rest(&mut self, common: &mut Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.take_free(common, from)?;
        self.take_rules(common, from)
    }

    /// Takes places that are free now, whoever was copied there.
    fn take_free(&mut self, common: &mut Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        read_free(from, |place, since_ns| {
            if let Some(index) = self.sessions().live_at(place.index) {
                self.put_away(common, index);
            }
            self.sessions_mut().free(place, since_ns)
        })
    }

    /// Everything has come: deadlines, and what else follows.
    fn settle_in(&mut self, common: &mut Common, now_ns: u64) -> Result<(), Broken> {
        self.sessions_mut().start_at(now_ns);
        self.arm_some(common);
        self.settle_rules(common, now_ns)
    }
}

/// Where the token's name lies in a session's record: behind the place, which is two numbers.
const TOKEN_AT: usize = 2 * size_of::<u32>();
