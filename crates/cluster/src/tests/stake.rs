//! What one gateway has of one session: it stands by, asks for it, owns it, or is done with it.
//!
//! ```text
//!   open ─▶ Opens ──granted─▶ Owns ──end─▶ Ends ──ended─▶ Leaves      a last word to the player
//!                      granted ▲ │ claim (numbers or a hand-over are at an end)      ▲
//!   stand_by ─▶ StandsBy ─claim─▶ Claims                 ended, for any that owns ────┘
//!                  ▲    fenced     │
//!                  └───────────────┘                     fenced, for any that owns ─▶ Over
//! ```
//!
//! A gateway that asks for a session delivers nothing and seals nothing before the answer. An owner
//! that has slept seals nothing before it is confirmed. What it delivers meanwhile does no harm,
//! because the arbiter refuses it. And no owner ends a session by itself, for whatever reason: the
//! arbiter ends it, and refuses that to all gateways but the owner. So a gateway that wakes after a
//! minute cannot take a player for silent who plays elsewhere.

use super::member::{KeyName, Member};
use super::numbers::Numbers;
use crate::number::{PacketNumber, Tenure, Term};
use crate::question::{Answer, Asked, Question, Reply, SessionId, Wake};
use ringgate_core::proto::replay::Window;

/// A gateway's part in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stake {
    session: SessionId,
    key: KeyName,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Has asked for it over a gateway that does not answer, or over its own tenure.
    Claims { tenure: Tenure, over: Tenure },
    /// Has asked to end it.
    Ends { numbers: Numbers },
    /// It has ended: the player may be told.
    Leaves { numbers: Numbers },
    /// Has asked to open it.
    Opens { tenure: Tenure, token_until_s: u64 },
    /// Is done with it.
    Over(Why),
    /// Has it. Invariant: nothing is sealed but in the wake in which that was last granted.
    Owns { numbers: Numbers, sure_in: Wake },
    /// Knows of a gateway that has it, and could go on with it.
    StandsBy { holder: Tenure },
}

/// Why a gateway is done with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The arbiter has no room for it.
    ArbiterFull,
    /// It has ended for everybody.
    Ended,
    /// Another gateway has it: what still comes here is forwarded.
    Fenced(Tenure),
    /// No further term is left for a next owner, so the session ends.
    TermsUsedUp,
}

/// No term is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TermsUsedUp;

/// What an answer has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It still has the session.
    Confirmed,
    /// It has the session now: a keep-alive goes to the player at once.
    Granted(Window),
    /// Another gateway has it. If that gateway is silent, this one may [claim](Stake::claim) again.
    HeldBy(Tenure),
    /// Nothing.
    Nothing,
    /// It is done with it.
    Over(Why),
}

/// Why a packet has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// The tenure's are given away: a further one has to be [claimed](Stake::claim).
    Exhausted,
    /// This gateway does not have the session, or has slept and is not confirmed.
    NotSure,
}

impl Stake {
    /// Opens a session for a player who has proven its token.
    pub(crate) fn open(
        session: SessionId,
        key: KeyName,
        token_until_s: u64,
        member: &mut Member,
    ) -> Result<Self, TermsUsedUp> {
        let tenure = member.make_term(key, Term::NONE).ok_or(TermsUsedUp)?;
        Ok(Self { session, key, state: State::Opens { tenure, token_until_s } })
    }

    /// Stands by for a session of which its owner has given us the record.
    pub(crate) const fn stand_by(session: SessionId, key: KeyName, holder: Tenure) -> Self {
        Self { session, key, state: State::StandsBy { holder } }
    }

    /// Another member says which tenure has the session: the later tenure counts.
    pub(crate) fn hear_of(&mut self, later: Tenure) {
        if let State::StandsBy { holder } = &mut self.state {
            *holder = later.max(*holder);
        }
    }

    /// Asks to own the session, over the gateway that is known to have it: another one that does
    /// not answer, or this one, where it needs further numbers or goes on after a hand-over that
    /// came to nothing. Where no term is left, an owner ends the session.
    pub(crate) fn claim(&mut self, member: &mut Member) -> Result<(), TermsUsedUp> {
        let over = match &self.state {
            State::StandsBy { holder } => *holder,
            State::Owns { numbers, .. } => numbers.tenure(),
            _ => return Ok(()),
        };
        let tenure = member.make_term(self.key, over.term);
        match tenure {
            Some(tenure) => self.state = State::Claims { tenure, over },
            None if self.stands_by() => self.state = State::Over(Why::TermsUsedUp),
            None => self.end(),
        }
        tenure.map(drop).ok_or(TermsUsedUp)
    }

    /// Asks to end the session: the player has left or is silent, or an operator wants it.
    pub(crate) fn end(&mut self) {
        if let State::Owns { numbers, .. } = &self.state {
            self.state = State::Ends { numbers: numbers.clone() };
        }
    }

    /// What has to be asked, again and again until it is answered.
    pub(crate) fn question(&self, wake: Wake) -> Option<Question> {
        let (tenure, asked) = match &self.state {
            State::Claims { tenure, over } => (*tenure, Asked::Claim { over: *over }),
            State::Ends { numbers } => (numbers.tenure(), Asked::End),
            State::Opens { tenure, token_until_s } => {
                (*tenure, Asked::Open { token_until_s: *token_until_s })
            }
            State::Owns { numbers, sure_in } if *sure_in != wake => {
                (numbers.tenure(), Asked::Claim { over: numbers.tenure() })
            }
            State::Leaves { .. } | State::Over(_) | State::Owns { .. } | State::StandsBy { .. } => {
                return None;
            }
        };
        Some(Question { session: self.session, tenure, wake, asked })
    }

    /// Takes in what the arbiter says, asked or not, in time or late.
    pub(crate) fn handle_answer(&mut self, answer: &Answer) -> Heard {
        match &answer.reply {
            Reply::Ended => self.handle_ended(),
            Reply::Fenced { holder } => self.handle_fenced(answer.tenure, *holder),
            Reply::Full => self.handle_full(answer.tenure),
            Reply::Granted { handed } => self.handle_granted(answer, handed),
            Reply::Second { .. } => Heard::Nothing,
        }
    }

    fn handle_ended(&mut self) -> Heard {
        self.state = match &self.state {
            State::Ends { numbers } | State::Owns { numbers, .. } => {
                State::Leaves { numbers: numbers.clone() }
            }
            State::Leaves { .. } | State::Over(_) => return Heard::Nothing,
            State::Claims { .. } | State::Opens { .. } | State::StandsBy { .. } => {
                State::Over(Why::Ended)
            }
        };
        Heard::Over(Why::Ended)
    }

    fn handle_fenced(&mut self, asked: Tenure, holder: Tenure) -> Heard {
        match &self.state {
            State::Claims { tenure, .. } if *tenure == asked => {
                self.state = State::StandsBy { holder };
                Heard::HeldBy(holder)
            }
            State::Ends { numbers } | State::Owns { numbers, .. } if holder > numbers.tenure() => {
                self.state = State::Over(Why::Fenced(holder));
                Heard::Over(Why::Fenced(holder))
            }
            State::Opens { tenure, .. } if *tenure == asked => {
                self.state = State::Over(Why::Fenced(holder));
                Heard::Over(Why::Fenced(holder))
            }
            _ => Heard::Nothing,
        }
    }

    fn handle_full(&mut self, asked: Tenure) -> Heard {
        match &self.state {
            State::Opens { tenure, .. } if *tenure == asked => {
                self.state = State::Over(Why::ArbiterFull);
                Heard::Over(Why::ArbiterFull)
            }
            _ => Heard::Nothing,
        }
    }

    fn handle_granted(&mut self, answer: &Answer, handed: &Window) -> Heard {
        match &mut self.state {
            State::Claims { tenure, .. } | State::Opens { tenure, .. }
                if *tenure == answer.tenure =>
            {
                let numbers = Numbers::new(*tenure);
                self.state = State::Owns { numbers, sure_in: answer.wake };
                Heard::Granted(handed.clone())
            }
            // Late answers are to questions of an earlier wake.
            State::Owns { numbers, sure_in }
                if numbers.tenure() == answer.tenure && answer.wake > *sure_in =>
            {
                *sure_in = answer.wake;
                Heard::Confirmed
            }
            _ => Heard::Nothing,
        }
    }

    /// As whom payloads of the player go to the arbiter, if they may.
    pub(crate) const fn delivers_as(&self) -> Option<Tenure> {
        match &self.state {
            State::Owns { numbers, .. } => Some(numbers.tenure()),
            _ => None,
        }
    }

    /// The number of the next packet for the player.
    pub(crate) fn take_number(&mut self, wake: Wake) -> Result<PacketNumber, NoNumber> {
        match &mut self.state {
            State::Owns { numbers, sure_in } if *sure_in == wake => Some(numbers),
            State::Leaves { numbers } => Some(numbers),
            _ => None,
        }
        .ok_or(NoNumber::NotSure)?
        .take()
        .ok_or(NoNumber::Exhausted)
    }

    /// The tenure that has the session as far as is known here: this gateway's where it owns it.
    pub(crate) const fn holder(&self) -> Option<Tenure> {
        match &self.state {
            State::Ends { numbers } | State::Owns { numbers, .. } => Some(numbers.tenure()),
            State::StandsBy { holder } | State::Over(Why::Fenced(holder)) => Some(*holder),
            State::Claims { .. } | State::Leaves { .. } | State::Opens { .. } | State::Over(_) => {
                None
            }
        }
    }

    /// Whether an answer is awaited that decides whose the session is.
    pub(crate) const fn is_asking(&self) -> bool {
        matches!(&self.state, State::Claims { .. } | State::Opens { .. })
    }

    /// Whether it could go on with the session if its owner were gone.
    pub(crate) const fn stands_by(&self) -> bool {
        matches!(&self.state, State::StandsBy { .. })
    }

    /// Why it is done with the session, if it is.
    pub(crate) const fn over(&self) -> Option<Why> {
        match &self.state {
            State::Leaves { .. } => Some(Why::Ended),
            State::Over(why) => Some(*why),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
