//! What gateways, games and time do.

use super::{GRACE_S, Held, Message, TOKEN_UNTIL_S, World, answer, granted, id};
use crate::arbiter::Standing;
use crate::number::{Incarnation, Tenure};
use crate::question::{Reply, SessionId, Wake};
use crate::tests::breaks::Break;
use crate::tests::judge::Wrong;
use crate::tests::member::Member;
use crate::tests::stake::Stake;

impl World {
    /// What a gateway does whenever it can: it asks what it has to, and seals a keep-alive as soon
    /// as it may.
    pub(super) fn let_speak(&mut self, gateway: usize) -> Result<(), Wrong> {
        for session in 0..self.scope.sessions {
            let key = self.key(session);
            let it = &mut self.gateways[gateway];
            let (Some(member), Some(held)) = (&it.member, &mut it.stakes[session]) else {
                continue;
            };
            let wake = member.wake();
            if let Some(holder) = held.stake.delivers_as() {
                self.owners.insert((session, holder));
            }
            if let Some(question) = held.stake.question(wake) {
                self.under_way.insert(Message::Question { session, question });
            }
            let sealed_in = Some((held.stake.holder(), wake));
            if held.sealed_in != sealed_in
                && let Ok(number) = held.stake.take_number(wake)
            {
                held.sealed_in = sealed_in;
                let (by, is_stale) = (number.tenure(), held.is_stale);
                let number = self.on_the_wire(number);
                self.judge.see_sealed(session, key, by, number, is_stale)?;
            }
        }
        Ok(())
    }

    pub(super) fn open(&mut self, gateway: usize, session: usize) {
        let key = self.key(session);
        let member = self.gateways[gateway].member.as_mut().expect("it lives");
        let stake = Stake::open(id(session), key, TOKEN_UNTIL_S, member).expect("terms are left");
        self.gateways[gateway].stakes[session] = Some(Held::new(stake));
        self.opened[session] = true;
    }

    pub(super) fn appoint(&mut self, gateway: usize, session: usize, holder: Tenure) {
        let key = self.key(session);
        self.gateways[gateway].stakes[session]
            .get_or_insert_with(|| Held::new(Stake::stand_by(id(session), key, holder)))
            .stake
            .hear_of(holder);
    }

    pub(super) fn claim(&mut self, gateway: usize, session: usize) {
        let broken = self.scope.broken;
        let it = &mut self.gateways[gateway];
        let member = it.member.as_mut().expect("it lives");
        let held = it.stakes[session].as_mut().expect("it is there");
        let before = member.clone();
        if broken == Some(Break::TermsOfOtherSessionsForgotten) {
            *member = Member::new(member.incarnation(), 1);
        }
        held.stake.claim(member).expect("terms are left");
        if broken == Some(Break::TermsMadeWhenGranted) {
            *member = before;
        }
        if broken == Some(Break::TakerDoesNotWait) {
            let question = held.stake.question(member.wake()).expect("it has to ask");
            held.stake.handle_answer(&answer(session, question.tenure, question.wake, granted()));
        }
    }

    pub(super) fn want_end(&mut self, gateway: usize, session: usize) -> Result<(), Wrong> {
        let held = self.gateways[gateway].stakes[session].as_mut().expect("it is there");
        held.stake.end();
        if self.scope.broken == Some(Break::OwnerEndsAlone) {
            let holder = held.stake.holder().expect("it has it");
            held.stake.handle_answer(&answer(session, holder, Wake(0), Reply::Ended));
            self.judge.see_taken_for_ended(session)?;
        }
        Ok(())
    }

    pub(super) fn kick(&mut self, session: usize) {
        let answer = self.arbiter(session).end(id(session)).expect("somebody holds it");
        self.judge.see_ended(session);
        self.say(session, &answer);
    }

    pub(super) fn die(&mut self, gateway: usize) {
        self.gateways[gateway].member = None;
        self.gateways[gateway].stakes.fill(None);
    }

    pub(super) fn restart(&mut self, gateway: usize) {
        let mut incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        if self.scope.broken == Some(Break::IncarnationKept) {
            incarnation = gateway as u16 + 1;
        }
        let member = Member::new(Incarnation(incarnation), self.scope.keys_max);
        self.gateways[gateway].member = Some(member);
    }

    /// A gateway wakes, and notices.
    pub(super) fn sleep(&mut self, gateway: usize) {
        let holders: Vec<_> = (0..self.scope.sessions)
            .map(|session| self.standing(session).and_then(Standing::holder))
            .collect();
        let is_broken = self.scope.broken == Some(Break::SleepUnnoticed);
        let it = &mut self.gateways[gateway];
        it.now_ns += 1_000_000_000;
        let member = it.member.as_mut().expect("it lives");
        member.begin_turn(it.now_ns - 1_000_000_000);
        if !is_broken {
            member.begin_turn(it.now_ns);
        }
        for (held, holder) in it.stakes.iter_mut().zip(holders) {
            let Some(held) = held else { continue };
            held.is_stale |= held.stake.delivers_as().is_some_and(|own| Some(own) != holder);
            if is_broken {
                held.sealed_in = None;
            }
        }
    }

    pub(super) fn lose_way(&mut self, gateway: usize) {
        let member = self.gateways[gateway].member.as_mut().expect("it lives");
        member.doubt();
        let incarnation = member.incarnation();
        self.arbiters.iter_mut().for_each(|arbiter| arbiter.handle_lost(incarnation));
    }

    pub(crate) fn pass_time(&mut self, by_s: u64) {
        self.now_s += by_s;
        let judge = &mut self.judge;
        for arbiter in &mut self.arbiters {
            // Clocks are set back now and then.
            for now_s in [self.now_s, 0] {
                arbiter.pass_time(
                    now_s,
                    |_| GRACE_S,
                    |SessionId(id)| judge.see_ended(id[0].into()),
                );
            }
        }
    }
}
