//! What arrives, and what comes of it.

use super::{Message, Said, World, answer, granted, id};
use crate::arbiter::{Refused, Seen, Standing};
use crate::number::{PacketNumber, Tenure, Term};
use crate::question::{Answer, Asked, Question, Reply, Wake};
use crate::tests::breaks::Break;
use crate::tests::judge::Wrong;
use crate::tests::stake::{Heard, Why};

impl World {
    pub(super) fn deliver(&mut self, message: &Message) -> Result<(), Wrong> {
        match *message {
            Message::Answer { session, tenure, wake, said } => {
                self.deliver_answer(session, tenure, wake, said)
            }
            Message::Game { session, to } => self.deliver_game(session, to),
            Message::Question { session, question } => self.deliver_question(session, question),
        }
    }

    fn deliver_question(&mut self, session: usize, mut question: Question) -> Result<(), Wrong> {
        let is_known = self.standing(session).is_some();
        let later = Asked::Open { token_until_s: self.now_s + 1 };
        match (self.scope.broken, &mut question.asked) {
            (Some(Break::OpensAtAnyTime), asked @ Asked::Open { .. })
            | (Some(Break::UnknownIsNew), asked @ Asked::Claim { .. })
                if !is_known =>
            {
                *asked = later;
            }
            _ => {}
        }
        let holder = self.standing(session).and_then(Standing::holder);
        let by = question.tenure;
        if self.scope.broken == Some(Break::AnybodyEnds) && question.asked == Asked::End {
            question.tenure = holder.unwrap_or(by);
        }
        let verdict = self.arbiter(session).answer(&question);
        match verdict.seen {
            Seen::Ended => self.judge.see_ended_by(session, by)?,
            Seen::Nothing => {}
            Seen::Opened => self.judge.see_opened(session)?,
        }
        match verdict.answer.reply {
            Reply::Granted { .. } => self.judge.see_granted(session, question.tenure)?,
            Reply::Ended => self.judge.see_ended(session),
            Reply::Fenced { .. } | Reply::Full | Reply::Second { .. } => {}
        }
        self.say(session, &verdict.answer);
        if let Some(fenced) = &verdict.fenced {
            self.say(session, fenced);
        }
        Ok(())
    }

    pub(super) fn deliver_payload(
        &mut self,
        session: usize,
        by: Tenure,
        number: u64,
    ) -> Result<(), Wrong> {
        let (mut as_whom, mut as_number) = (by, number);
        match self.scope.broken {
            Some(Break::LaterTermsDoNotFence) => {
                as_whom = self.standing(session).and_then(Standing::holder).unwrap_or(by);
            }
            Some(Break::WindowOfEachOwner) => as_number += u64::from(by.incarnation.0) << 8,
            _ => {}
        }
        match self.arbiter(session).hand_over(id(session), as_whom, as_number) {
            Ok(()) => self.judge.see_handed(session, by, number)?,
            Err(Refused::Fenced(holder)) => {
                let reply = Reply::Fenced { holder };
                self.say(session, &answer(session, by, Wake(0), reply));
            }
            Err(Refused::Ended) => {
                self.judge.see_ended(session);
                self.say(session, &answer(session, by, Wake(0), Reply::Ended));
            }
            Err(Refused::Replayed(_) | Refused::Unclaimed) => {}
        }
        Ok(())
    }

    fn deliver_answer(
        &mut self,
        session: usize,
        tenure: Tenure,
        mut wake: Wake,
        said: Said,
    ) -> Result<(), Wrong> {
        let broken = self.scope.broken;
        let Some(gateway) = self.living(tenure.incarnation) else { return Ok(()) };
        let key = self.key(session);
        let it = &mut self.gateways[gateway];
        let (Some(member), Some(held)) = (&mut it.member, &mut it.stakes[session]) else {
            return Ok(());
        };
        if broken == Some(Break::LateGrantsCount) {
            wake = member.wake();
        }
        let reply = match said {
            Said::Ended => Reply::Ended,
            Said::Fenced(holder) => Reply::Fenced { holder },
            Said::Full => Reply::Full,
            Said::Granted => granted(),
        };
        match held.stake.handle_answer(&answer(session, tenure, wake, reply)) {
            Heard::Granted(_) => {
                held.is_stale = false;
                while broken == Some(Break::TermsMadeWhenGranted)
                    && member.make_term(key, Term::NONE).is_some_and(|it| it.term < tenure.term)
                {
                }
            }
            Heard::Over(Why::Ended) => self.judge.see_taken_for_ended(session)?,
            // What still comes here is forwarded for a while; then nothing is left of the session.
            Heard::Over(_) => it.stakes[session] = None,
            // The judge asks what was so when this gateway woke; the arbiter says what is since.
            Heard::Confirmed | Heard::HeldBy(_) | Heard::Nothing => {}
        }
        Ok(())
    }

    fn deliver_game(&mut self, session: usize, to: Tenure) -> Result<(), Wrong> {
        // What may be lost is not doubled: lanes have a window.
        self.under_way.remove(&Message::Game { session, to });
        let Some(gateway) = self.living(to.incarnation) else { return Ok(()) };
        let key = self.key(session);
        let it = &mut self.gateways[gateway];
        let (Some(member), Some(held)) = (&it.member, &mut it.stakes[session]) else {
            return Ok(());
        };
        let Ok(number) = held.stake.take_number(member.wake()) else { return Ok(()) };
        let (by, is_stale) = (number.tenure(), held.is_stale);
        let number = self.on_the_wire(number);
        self.judge.see_sealed(session, key, by, number, is_stale)
    }

    /// The number that a player gets to see.
    pub(super) fn on_the_wire(&self, number: PacketNumber) -> u64 {
        let number = number.get();
        if self.scope.broken != Some(Break::MembersBeforeTerms) {
            return number;
        }
        let (term, member) = (number >> 49, number >> 33 & 0xffff);
        member << 47 | term << 33 | number & ((1 << 33) - 1)
    }

    pub(super) fn say(&mut self, session: usize, answer: &Answer) {
        let &Answer { mut tenure, mut wake, ref reply, .. } = answer;
        let said = match reply {
            Reply::Ended => {
                // Nobody asks to whom of that process it was said.
                (tenure.term, wake) = (Term::NONE, Wake(0));
                Said::Ended
            }
            Reply::Fenced { holder } => Said::Fenced(*holder),
            Reply::Full => Said::Full,
            Reply::Granted { .. } => Said::Granted,
            Reply::Second { .. } => unreachable!("nobody says whose a session is"),
        };
        self.under_way.insert(Message::Answer { session, tenure, wake, said });
    }
}
