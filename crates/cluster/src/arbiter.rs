//! Who has a session, said by the one end that all gateways must reach to be of any use to it: the
//! agent in front of its game process, or the library in that process.
//!
//! It grants a session to one gateway at a time, over the one before and to a higher term only.
//! What any other gateway brings goes no further. The arbiter hands each packet of a player over
//! once, by whichever gateway it comes. And the arbiter alone ends sessions; what it does not know
//! has ended. An arbiter that begins anew knows none, and as its connections are new too, nothing
//! that was said to the arbiter before reaches it. A session whose token is good opens at it as it
//! did first. Where a gateway says that it has the session which has lost it to another one before,
//! the later term counts, whichever of them comes first.
//!
//! Only the opening of a session that has ended could bring it back, doubled and late. A session
//! opens while its token is good by the arbiter's clock, which goes back only where it is set;
//! until then the arbiter remembers that it has ended.
//!
//! A player who is known by an address alone would begin a session at each gateway that has not
//! heard of the first. So a gateway says whose a session is that it announces, and the arbiter
//! admits one of each player.

use std::collections::HashMap;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::replay::{Policy, Refusal, SIZE_BITS_MAX, Window};

use crate::number::{Incarnation, Tenure};
use crate::question::{Answer, Asked, Player, Question, Reply, SessionId, Wake};

/// The sessions of one agent, or of one game process that gateways reach directly.
///
/// The caller looks that a gateway asks and delivers with its own incarnation, and only about
/// sessions of backends that it may serve.
#[derive(Clone, Debug)]
pub struct Arbiter {
    standings: HashMap<SessionId, Standing>,
    sessions_max: usize,
    /// The session that each player had last. Invariant: each of them has a standing, but for those
    /// that time has passed since.
    players: HashMap<Player, SessionId>,
    /// Invariant: goes back only where the clock is [set](Self::set_clock).
    now_s: u64,
}

/// How it stands with a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It was, and is not any more.
    Ended {
        /// Until when it could be opened again, if that were forgotten.
        token_until_s: u64,
    },
    /// A gateway has it.
    Held {
        /// Which gateway, and in which term.
        holder: Tenure,
        /// Which packets of the player were handed over.
        handed: Window,
        /// When its token expires.
        token_until_s: u64,
        /// Since when its holder's connection is lost.
        lost_at_s: Option<u64>,
        /// Who has given it to the holder, and until when its last packets may still come.
        giver: Option<(Tenure, u64)>,
    },
}

/// What comes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For the gateway that has asked.
    pub answer: Answer,
    /// For the gateway that had the session until now: it may not know.
    pub fenced: Option<Answer>,
    /// What the game process sees of it.
    pub seen: Seen,
}

/// What a game process sees of a question to its arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The session is over.
    Ended,
    /// Nothing.
    Nothing,
    /// The session has begun.
    Opened,
}

/// Why a packet of a player is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The session has ended, and the gateway that brings the packet is told so.
    Ended,
    /// Another gateway has the session, and the gateway that brings the packet is told which.
    Fenced(Tenure),
    /// It was handed over before, or is too old to tell.
    Replayed(Refusal),
    /// The packet comes from a tenure that was never granted. No gateway of ours does that.
    Unclaimed,
}

impl Arbiter {
    /// One that knows no session, and has room for so many, those included that have ended and
    /// whose tokens are good.
    pub fn new(sessions_max: usize) -> Self {
        let (standings, players) = (HashMap::new(), HashMap::new());
        Self { standings, sessions_max, players, now_s: 0 }
    }

    /// Answers a gateway that announces a session, and says whose it is where its player has one at
    /// a time.
    pub fn announce(&mut self, question: &Question, player: Option<Player>) -> Verdict {
        let &Question { session, tenure, wake, .. } = question;
        let second = player.as_ref().and_then(|player| self.second(player, session));
        if let Some(reply) = second {
            let answer = Answer { session, tenure, wake, reply };
            return Verdict { answer, fenced: None, seen: Seen::Nothing };
        }
        let verdict = self.answer(question);
        if matches!(verdict.answer.reply, Reply::Granted { .. }) {
            self.players.extend(player.map(|player| (player, session)));
        }
        verdict
    }

    /// Why a session is not its player's: the player has another one.
    pub fn second(&self, player: &Player, session: SessionId) -> Option<Reply> {
        let first = *self.players.get(player).filter(|first| **first != session)?;
        let holder = self.standing(first)?.holder()?;
        Some(Reply::Second { first, holder })
    }

    /// Answers a gateway.
    pub fn answer(&mut self, question: &Question) -> Verdict {
        let &Question { session, tenure, wake, asked } = question;
        let mut verdict = Verdict {
            answer: Answer { session, tenure, wake, reply: Reply::Ended },
            fenced: None,
            seen: Seen::Nothing,
        };
        if let Asked::Open { token_until_s } = asked
            && token_until_s > self.now_s
            && !self.standings.contains_key(&session)
        {
            if self.standings.len() >= self.sessions_max {
                verdict.answer.reply = Reply::Full;
                return verdict;
            }
            self.standings.insert(session, Standing::new(tenure, token_until_s));
            verdict.seen = Seen::Opened;
        }
        let Some(standing) = self.standings.get_mut(&session) else { return verdict };
        let before = standing.holder();
        verdict.answer.reply = standing.answer(tenure, asked, self.now_s);
        if before.is_some() && standing.holder().is_none() {
            verdict.seen = Seen::Ended;
        }
        verdict.fenced = before
            .zip(standing.holder())
            .filter(|(before, now)| before != now)
            .map(|(tenure, holder)| told(session, tenure, Reply::Fenced { holder }));
        verdict
    }

    /// Whether a packet of a player is handed over, which a gateway has opened and brings.
    pub fn hand_over(
        &mut self,
        session: SessionId,
        by: Tenure,
        number: u64,
    ) -> Result<(), Refused> {
        self.heard(session, by)?.commit(number, &WINDOW).map_err(Refused::Replayed)
    }

    /// The same of a packet that has no number: what comes twice is handed over twice.
    pub fn hand_over_unnumbered(&mut self, session: SessionId, by: Tenure) -> Result<(), Refused> {
        self.heard(session, by).map(drop)
    }

    /// What was handed over of a session, of which a gateway may bring more.
    fn heard(&mut self, session: SessionId, by: Tenure) -> Result<&mut Window, Refused> {
        match self.standings.get_mut(&session) {
            Some(Standing::Held { holder, handed, giver, .. }) => {
                if is_heard(by, *holder, *giver) {
                    Ok(handed)
                } else if by.term > holder.term {
                    Err(Refused::Unclaimed)
                } else {
                    Err(Refused::Fenced(*holder))
                }
            }
            Some(Standing::Ended { .. }) | None => Err(Refused::Ended),
        }
    }

    /// Whether packets are handed over that a gateway brings: it has the session, or has just given
    /// it away.
    pub fn hears(&self, session: SessionId, by: Tenure) -> bool {
        matches!(
            self.standings.get(&session),
            Some(Standing::Held { holder, giver, .. }) if is_heard(by, *holder, *giver)
        )
    }

    /// Whether a gateway that has just given a session away is still heard.
    pub fn has_giver(&self, session: SessionId) -> bool {
        matches!(self.standings.get(&session), Some(Standing::Held { giver: Some(_), .. }))
    }

    /// Ends a session because the game process wants it. Returns what its owner has to hear.
    pub fn end(&mut self, session: SessionId) -> Option<Answer> {
        let standing = self.standings.get_mut(&session)?;
        let tenure = standing.holder()?;
        standing.end();
        Some(told(session, tenure, Reply::Ended))
    }

    /// The same where the owner may not be there to hear it, and may announce the session when it
    /// comes back: its end is remembered for a while, though its token has expired.
    pub fn end_unheard(&mut self, session: SessionId) -> Option<Answer> {
        let told = self.end(session)?;
        if let Some(Standing::Ended { token_until_s }) = self.standings.get_mut(&session) {
            *token_until_s = (*token_until_s).max(self.now_s + REMEMBERED_S);
        }
        Some(told)
    }

    /// Ends a session because a gateway that has had it says that it is over for good: its player
    /// has left, or somebody has ended it there. That gateway may have lost the session to another
    /// one before it could say so. Returns what the session's owner has to hear.
    pub fn bury(&mut self, session: SessionId, by: Tenure) -> Option<Answer> {
        let holder = self.standings.get(&session)?.holder()?;
        // Nobody has had a later one.
        if by.term <= holder.term { self.end_unheard(session) } else { None }
    }

    /// How it stands with a session. What the game process says goes to the session's holder.
    pub fn standing(&self, session: SessionId) -> Option<&Standing> {
        self.standings.get(&session)
    }

    /// Whether it knows of no session, ended ones included.
    pub fn is_empty(&self) -> bool {
        self.standings.is_empty()
    }

    /// Writes all of it, for a process that goes on with it.
    pub fn write(&self, out: &mut Writer<'_>) {
        let Self { standings, sessions_max: _, players: _, now_s } = self;
        now_s.write(out);
        (standings.len() as u32).write(out);
        for (session, standing) in standings {
            session.write(out);
            standing.write(out);
        }
    }

    /// What another process had.
    pub fn read(from: &mut Reader<'_>, sessions_max: usize) -> Result<Self, Broken> {
        let now_s = Carry::read(from)?;
        let standings = Vec::<(SessionId, Standing)>::read(from)?.into_iter().collect();
        Ok(Self { standings, now_s, ..Self::new(sessions_max) })
    }

    /// Writes whose sessions are: nothing where none has a player, for a release that reads none.
    pub fn write_players(&self, out: &mut Writer<'_>) {
        if self.players.is_empty() {
            return;
        }
        (self.players.len() as u32).write(out);
        for (player, session) in &self.players {
            player.write(out);
            session.write(out);
        }
    }

    /// What another process knew of that.
    pub fn read_players(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.players = Vec::<(Player, SessionId)>::read(from)?.into_iter().collect();
        Ok(())
    }

    /// The connection of a gateway is lost: its sessions wait for another gateway to take them, or
    /// for that gateway to confirm them.
    pub fn handle_lost(&mut self, gateway: Incarnation) {
        for standing in self.standings.values_mut() {
            if standing.holder().is_some_and(|holder| holder.incarnation == gateway) {
                standing.lose(self.now_s);
            }
        }
    }

    /// The connection of a session's gateway is lost.
    pub fn lose(&mut self, session: SessionId) {
        if let Some(standing) = self.standings.get_mut(&session) {
            standing.lose(self.now_s);
        }
    }

    /// What time it is, as far as it was told.
    pub const fn now_s(&self) -> u64 {
        self.now_s
    }

    /// The caller's clock was set, forward or back: that much did not pass. Who is waited for has
    /// as much time left as before, and what has ended is remembered for as long.
    pub fn set_clock(&mut self, by_s: i64) {
        let set = |at_s: &mut u64| *at_s = at_s.saturating_add_signed(by_s);
        set(&mut self.now_s);
        for standing in self.standings.values_mut() {
            match standing {
                Standing::Ended { token_until_s } => set(token_until_s),
                Standing::Held { token_until_s, lost_at_s, giver, .. } => {
                    let giver_until_s = giver.as_mut().map(|(_, until_s)| until_s);
                    let own = [Some(token_until_s), lost_at_s.as_mut(), giver_until_s];
                    own.into_iter().flatten().for_each(set);
                }
            }
        }
    }

    /// Lets time pass: says which sessions have ended because they were lost for so long and no
    /// gateway has taken them, and forgets those that have ended and whose tokens have expired.
    pub fn pass_time(
        &mut self,
        now_s: u64,
        takeover_grace_s: impl Fn(SessionId) -> u64,
        mut ended: impl FnMut(SessionId),
    ) {
        self.now_s = self.now_s.max(now_s);
        for (session, standing) in &mut self.standings {
            let Standing::Held { lost_at_s, giver, .. } = standing else { continue };
            giver.take_if(|(_, until_s)| *until_s < self.now_s);
            if let Some(lost_at_s) = lost_at_s
                && *lost_at_s + takeover_grace_s(*session) <= self.now_s
            {
                standing.end();
                ended(*session);
            }
        }
        let now_s = self.now_s;
        self.standings.retain(|_, standing| match standing {
            Standing::Ended { token_until_s } => *token_until_s > now_s,
            Standing::Held { .. } => true,
        });
        let standings = &self.standings;
        self.players.retain(|_, session| standings.contains_key(session));
    }
}

impl Standing {
    const fn new(holder: Tenure, token_until_s: u64) -> Self {
        Self::Held { holder, handed: Window::new(), token_until_s, lost_at_s: None, giver: None }
    }

    /// The tenure that has the session.
    pub const fn holder(&self) -> Option<Tenure> {
        match self {
            Self::Ended { .. } => None,
            Self::Held { holder, .. } => Some(*holder),
        }
    }

    fn answer(&mut self, tenure: Tenure, asked: Asked, now_s: u64) -> Reply {
        let Self::Held { holder, handed, lost_at_s, giver, .. } = self else { return Reply::Ended };
        let may_take = match asked {
            // Who says that it has a later term was granted that by an arbiter before this one,
            // which has begun anew and has believed a gateway that did not know.
            Asked::Claim { over } if over == tenure => true,
            Asked::Open { .. } => true,
            Asked::Claim { over } | Asked::Take { over } => over == *holder,
            Asked::End => false,
        };
        // A term that has been had is over, for each gateway: the player takes no number below.
        if may_take && tenure.term > holder.term {
            let gives = matches!(asked, Asked::Take { .. });
            *giver = gives.then_some((*holder, now_s + LATE_S));
            *holder = tenure;
        }
        if *holder != tenure {
            return Reply::Fenced { holder: *holder };
        }
        *lost_at_s = None;
        if asked == Asked::End {
            self.end();
            return Reply::Ended;
        }
        Reply::Granted { handed: handed.clone() }
    }

    fn lose(&mut self, now_s: u64) {
        if let Self::Held { lost_at_s, .. } = self {
            lost_at_s.get_or_insert(now_s);
        }
    }

    const fn end(&mut self) {
        if let Self::Held { token_until_s, .. } = self {
            *self = Self::Ended { token_until_s: *token_until_s };
        }
    }
}

impl Carry for Standing {
    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Self::Ended { token_until_s } => {
                0_u8.write(out);
                token_until_s.write(out);
            }
            Self::Held { holder, handed, token_until_s, lost_at_s, giver } => {
                let kind = if giver.is_some() { 2_u8 } else { 1 };
                kind.write(out);
                holder.write(out);
                handed.write(out);
                token_until_s.write(out);
                lost_at_s.write(out);
                if let Some(giver) = giver {
                    giver.write(out);
                }
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Ok(Self::Ended { token_until_s: Carry::read(from)? }),
            kind @ (1 | 2) => Ok(Self::Held {
                holder: Carry::read(from)?,
                handed: Carry::read(from)?,
                token_until_s: Carry::read(from)?,
                lost_at_s: Carry::read(from)?,
                giver: if kind == 2 { Some(Carry::read(from)?) } else { None },
            }),
            _ => Err(Broken::Invalid("standing")),
        }
    }
}

fn is_heard(by: Tenure, holder: Tenure, giver: Option<(Tenure, u64)>) -> bool {
    by == holder || giver.is_some_and(|(giver, _)| by == giver)
}

/// What a gateway hears that has not asked.
const fn told(session: SessionId, tenure: Tenure, reply: Reply) -> Answer {
    Answer { session, tenure, wake: Wake(0), reply }
}

/// As wide as any listener's own window may be: what that takes is not refused here.
const WINDOW: Policy = Policy::new(SIZE_BITS_MAX, 0).expect("it is a size");

/// How long an end is remembered that a session's owner may not have heard.
const REMEMBERED_S: u64 = 600;

/// How long a packet may take from a gateway that gives its session away, by a clock of seconds.
const LATE_S: u64 = 1;

#[cfg(test)]
mod tests;
