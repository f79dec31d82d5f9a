//! The end of a world: nobody dies any more, everything arrives, and what goes on is served.

use super::{GRACE_S, World, id};
use crate::arbiter::Standing;
use crate::tests::judge::Wrong;
use crate::tests::member::Member;
use crate::tests::stake::Stake;

impl World {
    /// Lets everything arrive and nobody die any more. Standbys of those who are gone claim, and
    /// each session that goes on is served by one who is sure of it, or is nobody's and ends.
    pub(crate) fn calm_down(&mut self) -> Result<(), Wrong> {
        for _ in 0..4 {
            for (gateway, session) in self.stakes() {
                let holder = self.standing(session).and_then(Standing::holder);
                let is_served = holder.is_some_and(|holder| self.is_at(session, holder));
                if !is_served && self.stake(gateway, session).is_some_and(Stake::stands_by) {
                    self.claim(gateway, session);
                }
                self.let_speak(gateway)?;
                for message in std::mem::take(&mut self.under_way) {
                    self.deliver(&message)?;
                    self.let_speak(gateway)?;
                }
            }
        }
        for session in 0..self.scope.sessions {
            self.look_after(session)?;
        }
        Ok(())
    }

    /// Every stake there is, by gateway and session.
    fn stakes(&self) -> Vec<(usize, usize)> {
        let pairs = (0..self.gateways.len())
            .flat_map(|gateway| (0..self.scope.sessions).map(move |session| (gateway, session)));
        pairs.filter(|(gateway, session)| self.stake(*gateway, *session).is_some()).collect()
    }

    fn look_after(&mut self, session: usize) -> Result<(), Wrong> {
        let Some(holder) = self.standing(session).and_then(Standing::holder) else {
            return Ok(());
        };
        let Some(gateway) = self.living(holder.incarnation) else {
            let is_anybody_left = self.stakes().iter().any(|(_, it)| *it == session);
            self.arbiter(session).handle_lost(holder.incarnation);
            self.pass_time(GRACE_S);
            let has_ended = self.judge.has_ended(session);
            return if has_ended && !is_anybody_left { Ok(()) } else { Err(Wrong::Lost) };
        };
        let wake = self.gateways[gateway].member.as_ref().map(Member::wake);
        let stake = self.stake(gateway, session).ok_or(Wrong::Lost)?;
        let is_sure = wake.is_some_and(|wake| stake.question(wake).is_none());
        if stake.delivers_as() != Some(holder) || !is_sure {
            return Err(Wrong::Lost);
        }
        let fresh = self.scope.said;
        self.arbiter(session).hand_over(id(session), holder, fresh).map_err(|_| Wrong::Lost)?;
        self.judge.see_handed(session, holder, fresh)
    }
}
