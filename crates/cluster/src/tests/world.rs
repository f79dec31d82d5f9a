//! Gateways, arbiters, players and what is under way between them. Whatever may happen next is an
//! [`Event`]; a search takes all of them, a world from a seed takes one after the other.
//!
//! A gateway's thread may stop at any moment and go on at any other, which is the same as messages
//! that take long. Only what it notices itself, that it has slept, is an event.

mod calm;
mod doings;
mod network;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use super::breaks::Break;
use super::judge::{Judge, Wrong};
use crate::arbiter::{Arbiter, Standing};
use crate::number::{Incarnation, Tenure};
use crate::question::{Answer, Asked, Question, Reply, SessionId, Wake};
use crate::tests::member::{KeyName, Member};
use crate::tests::stake::Stake;

/// What a world is made of, and how much of each thing may happen in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) gateways: usize,
    pub(crate) arbiters: usize,
    pub(crate) sessions: usize,
    /// Sessions of one token share a key.
    pub(crate) keys: usize,
    /// How much each player says to its game: packets that everybody has recorded, and that arrive
    /// where and as often as anybody likes.
    pub(crate) said: u64,
    /// Of how many keys a gateway remembers the terms one by one.
    pub(crate) keys_max: usize,
    pub(crate) limits: Limits,
    pub(crate) broken: Option<Break>,
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    pub(crate) claims: u16,
    pub(crate) deaths: u16,
    pub(crate) ends: u16,
    pub(crate) expiries: u16,
    /// A way between a gateway and an arbiter is lost, and is back.
    pub(crate) losses: u16,
    /// A gateway begins anew under its name.
    pub(crate) restarts: u16,
    pub(crate) sleeps: u16,
    /// A game says something to its player.
    pub(crate) told: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) scope: Scope,
    left: Limits,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) arbiters: Vec<Arbiter>,
    opened: Vec<bool>,
    /// Who has heard that it has a session. What it has brought to the arbiter since, and whom it
    /// has appointed to stand by, may arrive at any time, or never.
    owners: BTreeSet<(usize, Tenure)>,
    /// What else is under way. Nothing is taken out here but by whoever loses it.
    pub(crate) under_way: BTreeSet<Message>,
    next_incarnation: u16,
    now_s: u64,
    pub(crate) judge: Judge,
}

/// The process of that name, if it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gateway {
    pub(crate) member: Option<Member>,
    pub(crate) stakes: Vec<Option<Held>>,
    now_ns: u64,
}

/// A stake, and what only the judge knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) stake: Stake,
    /// The session was another's when this gateway last woke.
    is_stale: bool,
    /// It has sealed a keep-alive as that one in that wake.
    sealed_in: Option<(Option<Tenure>, Wake)>,
}

/// What is under way, besides what whoever has had a session may have said at any time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Answer {
        session: usize,
        tenure: Tenure,
        wake: Wake,
        said: Said,
    },
    /// A game's payload for its player, to whoever holds the session.
    Game {
        session: usize,
        to: Tenure,
    },
    Question {
        session: usize,
        question: Question,
    },
}

/// A [`Reply`] that has an order. What a grant says of handed packets is for the gateway's window,
/// which these worlds leave out: the arbiter's has to do alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Said {
    Ended,
    Fenced(Tenure),
    Full,
    Granted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody hears from one who has, or had, the session that it is to stand by.
    Appoint {
        gateway: usize,
        session: usize,
        holder: Tenure,
    },
    /// What somebody brings of its player who has, or had, the session.
    Bring {
        session: usize,
        by: Tenure,
        number: u64,
    },
    /// A standby, or an owner that needs another term, claims.
    Claim {
        gateway: usize,
        session: usize,
    },
    Deliver(Message),
    Die {
        gateway: usize,
    },
    /// A gateway wants a session to end.
    End {
        gateway: usize,
        session: usize,
    },
    /// Tokens expire.
    Expire,
    /// The game process ends a session.
    Kick {
        session: usize,
    },
    /// A gateway hears that its way to an arbiter was interrupted; so does the arbiter.
    LoseWay {
        gateway: usize,
    },
    Open {
        gateway: usize,
        session: usize,
    },
    Restart {
        gateway: usize,
    },
    Sleep {
        gateway: usize,
    },
    Tell {
        session: usize,
    },
}

const TOKEN_UNTIL_S: u64 = 100;
const GRACE_S: u64 = 30;

impl World {
    pub(crate) fn new(scope: Scope) -> Self {
        let gateway = |index: usize| Gateway {
            member: Some(Member::new(Incarnation(index as u16 + 1), scope.keys_max)),
            stakes: vec![None; scope.sessions],
            now_ns: 0,
        };
        Self {
            scope,
            left: scope.limits,
            gateways: (0..scope.gateways).map(gateway).collect(),
            arbiters: vec![Arbiter::new(scope.sessions); scope.arbiters],
            opened: vec![false; scope.sessions],
            owners: BTreeSet::new(),
            under_way: BTreeSet::new(),
            next_incarnation: scope.gateways as u16 + 1,
            now_s: 0,
            judge: Judge::new(scope.sessions),
        }
    }

    /// A number for all that decides what may happen, and what must not.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.left.hash(&mut hasher);
        self.gateways.hash(&mut hasher);
        for session in 0..self.scope.sessions {
            self.standing(session).hash(&mut hasher);
        }
        self.opened.hash(&mut hasher);
        self.owners.hash(&mut hasher);
        self.under_way.hash(&mut hasher);
        self.now_s.hash(&mut hasher);
        self.judge.hash(&mut hasher);
        hasher.finish()
    }

    /// Whatever may happen next.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.events_of_gateways(&mut events);
        for session in 0..self.scope.sessions {
            if self.standing(session).and_then(Standing::holder).is_some() {
                if self.left.told > 0 {
                    events.push(Event::Tell { session });
                }
                if self.left.ends > 0 {
                    events.push(Event::Kick { session });
                }
            }
        }
        if self.left.expiries > 0 {
            events.push(Event::Expire);
        }
        for &(session, holder) in &self.owners {
            let numbers = 0..self.scope.said;
            events.extend(numbers.map(|number| Event::Bring { session, by: holder, number }));
            let hears = |it: &Gateway| {
                it.member.as_ref().is_some_and(|it| it.incarnation() != holder.incarnation)
                    && it.stakes[session].as_ref().is_none_or(|held| held.stake.stands_by())
            };
            let gateways = (0..self.gateways.len()).filter(|it| hears(&self.gateways[*it]));
            events.extend(gateways.map(|gateway| Event::Appoint { gateway, session, holder }));
        }
        events.extend(self.under_way.iter().cloned().map(Event::Deliver));
        events
    }

    fn events_of_gateways(&self, events: &mut Vec<Event>) {
        for (gateway, it) in self.gateways.iter().enumerate() {
            if it.member.is_none() {
                if self.left.restarts > 0 {
                    events.push(Event::Restart { gateway });
                }
                continue;
            }
            if self.left.deaths > 0 {
                events.push(Event::Die { gateway });
            }
            if self.left.sleeps > 0 {
                events.push(Event::Sleep { gateway });
            }
            if self.left.losses > 0 {
                events.push(Event::LoseWay { gateway });
            }
            for session in 0..self.scope.sessions {
                self.events_of_stake(gateway, session, events);
            }
        }
    }

    fn events_of_stake(&self, gateway: usize, session: usize, events: &mut Vec<Event>) {
        // Of three, the one whose incarnation has a lower and a higher one beside it.
        if !self.opened[session] && (session > 0 || gateway == self.scope.gateways / 2) {
            events.push(Event::Open { gateway, session });
        }
        let Some(stake) = self.stake(gateway, session) else { return };
        let owns = stake.delivers_as().is_some();
        if self.left.claims > 0 && (owns || stake.stands_by()) {
            events.push(Event::Claim { gateway, session });
        }
        if owns && self.left.ends > 0 {
            events.push(Event::End { gateway, session });
        }
    }

    /// Lets something happen.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<(), Wrong> {
        match event {
            Event::Appoint { gateway, session, holder } => {
                self.appoint(*gateway, *session, *holder);
            }
            Event::Bring { session, by, number } => self.deliver_payload(*session, *by, *number)?,
            Event::Claim { gateway, session } => {
                self.left.claims -= 1;
                self.claim(*gateway, *session);
            }
            Event::Deliver(message) => self.deliver(message)?,
            Event::Die { gateway } => {
                self.left.deaths -= 1;
                self.die(*gateway);
            }
            Event::End { gateway, session } => {
                self.left.ends -= 1;
                self.want_end(*gateway, *session)?;
            }
            Event::Expire => {
                self.left.expiries -= 1;
                self.pass_time(TOKEN_UNTIL_S);
            }
            Event::Kick { session } => {
                self.left.ends -= 1;
                self.kick(*session);
            }
            Event::LoseWay { gateway } => {
                self.left.losses -= 1;
                self.lose_way(*gateway);
            }
            Event::Open { gateway, session } => self.open(*gateway, *session),
            Event::Restart { gateway } => {
                self.left.restarts -= 1;
                self.restart(*gateway);
            }
            Event::Sleep { gateway } => {
                self.left.sleeps -= 1;
                self.sleep(*gateway);
            }
            Event::Tell { session } => {
                self.left.told -= 1;
                let to = self.standing(*session).and_then(Standing::holder);
                let to = to.expect("somebody holds it");
                self.under_way.insert(Message::Game { session: *session, to });
            }
        }
        (0..self.gateways.len()).try_for_each(|gateway| self.let_speak(gateway))?;
        // Arbiters look after what they remember.
        self.pass_time(0);
        self.drop_idle();
        Ok(())
    }

    /// Drops what can have no effect any more, so that worlds that differ in nothing else are one.
    /// A gateway that is not at a tenure never comes back to it, and the arbiter's holder only
    /// grows.
    fn drop_idle(&mut self) {
        let under_way = std::mem::take(&mut self.under_way);
        let has_effect = |message: &Message| match message {
            Message::Answer { said: Said::Ended, .. } => true,
            Message::Answer { session, tenure, .. } | Message::Game { session, to: tenure } => {
                self.is_at(*session, *tenure)
            }
            Message::Question { session, question } => {
                let holder = self.standing(*session).and_then(Standing::holder);
                let is_open = matches!(question.asked, Asked::Open { .. });
                is_open
                    || holder.is_none_or(|it| it <= question.tenure)
                    || self.is_at(*session, question.tenure)
            }
        };
        self.under_way = under_way.into_iter().filter(has_effect).collect();
    }

    /// Whether a gateway has a session as this tenure, or asks for it.
    fn is_at(&self, session: usize, tenure: Tenure) -> bool {
        let Some(gateway) = self.living(tenure.incarnation) else { return false };
        let Some(stake) = self.stake(gateway, session) else { return false };
        let asks_as = stake.question(Wake(u32::MAX)).map(|question| question.tenure);
        asks_as.or_else(|| stake.delivers_as()) == Some(tenure)
    }

    pub(crate) fn stake(&self, gateway: usize, session: usize) -> Option<&Stake> {
        self.gateways[gateway].stakes[session].as_ref().map(|held| &held.stake)
    }

    pub(crate) fn standing(&self, session: usize) -> Option<&Standing> {
        self.arbiters[session % self.arbiters.len()].standing(id(session))
    }

    pub(crate) fn living(&self, incarnation: Incarnation) -> Option<usize> {
        let is_it =
            |it: &Gateway| it.member.as_ref().is_some_and(|it| it.incarnation() == incarnation);
        self.gateways.iter().position(is_it)
    }

    fn arbiter(&mut self, session: usize) -> &mut Arbiter {
        let index = session % self.arbiters.len();
        &mut self.arbiters[index]
    }

    fn key(&self, session: usize) -> KeyName {
        KeyName((session % self.scope.keys) as u64)
    }
}

impl Held {
    const fn new(stake: Stake) -> Self {
        Self { stake, is_stale: false, sealed_in: None }
    }
}

fn id(session: usize) -> SessionId {
    let mut id = [0; 16];
    id[0] = session as u8;
    SessionId(id)
}

fn answer(session: usize, tenure: Tenure, wake: Wake, reply: Reply) -> Answer {
    Answer { session: id(session), tenure, wake, reply }
}

fn granted() -> Reply {
    Reply::Granted { handed: ringgate_core::proto::replay::Window::new() }
}
