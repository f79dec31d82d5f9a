//! Sessions that another gateway of the cluster could go on with: what each is called there, and
//! whether the arbiter of its backend has been told.
//!
//! Apart from the sessions, because only a link that arbitrates asks, and a gateway without a
//! cluster has none.

use std::collections::{HashMap, VecDeque};

use crate::counters::Ending;
use crate::front::cluster::doubts::Doubt;
use crate::front::cluster::overs::Overs;
use crate::front::cluster::takeovers::Takeovers;
use crate::ids::{BackendId, MemberId};
use crate::now::Now;
use crate::shared::claims::history::TokenMac;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::store::unarmed::Unarmed;
use ringgate_cluster::{Moves, SessionId, Tenure, Term};
use ringgate_link::bundle::{self, SessionId as LinkSession};

/// A session as its cluster knows it.
#[derive(Clone, Debug)]
pub(crate) struct Clustered {
    /// Of all its cluster, for all time. It has another one at another backend.
    pub(crate) id: SessionId,
    /// The right by which this process has it.
    pub(crate) tenure: Tenure,
    pub(crate) token: TokenMac,
    pub(crate) token_until_s: u64,
    /// Until when its arbiter may open it; none before one was told of it under this name.
    pub(crate) opens_until_s: Option<u64>,
    /// The ticket of its last opening, until it is known whether that went no further.
    pub(crate) ticket: Option<u64>,
    /// When it began, at whichever gateway, in seconds since 1970.
    pub(crate) since_s: u64,
    /// How often its record was kept.
    pub(crate) revision: u32,
    /// The backend whose arbiter has been told of it, and in which epoch of the link to it.
    pub(crate) told: Option<(BackendId, u32)>,
    /// What its agent delivers in it, whatever its listener does by now.
    pub(crate) delivered: Delivered,
    /// An arbiter has had no room for it: it ends with this gateway.
    pub(crate) is_alone: bool,
    /// It ends so as soon as it is sure that it is this gateway's.
    pub(crate) ending: Option<Ending>,
    /// Another gateway is to go on with it. The arbiter hears when nothing more comes from here.
    pub(crate) is_given: bool,
    /// By which members its player's packets come.
    pub(crate) moves: Moves<MemberId>,
    /// The newest packet that a member has forwarded.
    pub(crate) forwarded_up_to: Option<u64>,
}

/// What an agent delivers in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// No messages.
    Nothing,
    /// Messages, of which none was said: no agent was told of the session.
    Fresh,
    /// Messages, of which more may have been said than is known here.
    Begun,
}

/// All of them, of a front.
pub(crate) struct Clusters<S> {
    by_place: Vec<Option<Box<Clustered>>>,
    /// What each of these has as `told`: a payload asks for nothing else of its session.
    told: Vec<Option<(BackendId, u32)>>,
    by_id: HashMap<SessionId, Entry<S>>,
    /// Of sessions that come from another process, and leave a place to come again at another.
    pub(crate) moving: HashMap<Place, Box<Clustered>>,
    /// Places of sessions that have come from another process, whose records are still to be kept.
    pub(crate) unkept: Unarmed,
    /// Places of sessions that an arbiter which is there again is still to be told of.
    pub(crate) unannounced: Unarmed,
    pub(crate) overs: Overs,
    pub(crate) doubt: Doubt,
    pub(crate) takeovers: Takeovers,
    /// Given to another gateway, which has them by that right, and left here then.
    pub(crate) leaving: VecDeque<(u64, SessionId, Tenure)>,
}

impl Clustered {
    /// Of a session that begins here by such a right. It has no name yet.
    pub(crate) fn begin(
        tenure: Tenure,
        (token, token_until_s): (TokenMac, u64),
        now: Now,
    ) -> Option<Self> {
        let since_s = now.unix_s;
        let token = (token, token_until_s, since_s);
        let begun = Self::of(SessionId([0; 16]), tenure, token, now.mono_ns);
        // No arbiter has heard its name: nothing has ended under it, whoever's clock is ahead.
        (tenure.term != Term::NONE).then_some(Self { opens_until_s: None, ..begun })
    }

    /// Of a session that is called so, begins here or goes on here.
    pub(crate) fn of(
        id: SessionId,
        tenure: Tenure,
        (token, token_until_s, since_s): (TokenMac, u64, u64),
        now_ns: u64,
    ) -> Self {
        Self {
            id,
            tenure,
            token,
            token_until_s,
            opens_until_s: Some(token_until_s),
            ticket: None,
            since_s,
            revision: 0,
            told: None,
            delivered: Delivered::Nothing,
            is_alone: false,
            ending: None,
            is_given: false,
            moves: Moves::new(now_ns),
            forwarded_up_to: None,
        }
    }
}

impl Clustered {
    /// Whether messages are delivered in it, of which none was said before it was known that it
    /// ends with this gateway.
    pub(crate) fn begins_alone(&self) -> bool {
        self.is_alone && self.delivered == Delivered::Fresh
    }

    /// Whether its agent delivers messages in it.
    pub(crate) fn is_delivered(&self) -> bool {
        self.delivered != Delivered::Nothing
    }

    /// An agent was told of it.
    pub(crate) fn note_announced(&mut self) {
        if self.delivered == Delivered::Fresh {
            self.delivered = Delivered::Begun;
        }
    }

    /// It is opened with this ticket. Where it has gone alone since, the opening before went no
    /// further.
    pub(crate) fn opens_with(&mut self, ticket: Option<u64>) -> Option<u64> {
        if self.is_alone {
            return ticket.or_else(|| self.ticket.take());
        }
        self.ticket = ticket;
        ticket
    }

    /// What an arbiter is told of it, whose link calls the session so.
    pub(crate) fn told_as(&self, session: LinkSession, timeout_ms: u32) -> bundle::Clustered {
        let &Self { id, tenure, .. } = self;
        let token_until_s = self.opens_until_s.unwrap_or(self.token_until_s);
        let (id, tenure, delivery) = (id.0, tenure.number(), None);
        bundle::Clustered { session, id, tenure, token_until_s, timeout_ms, delivery }
    }
}

impl<S> Clusters<S> {
    pub(crate) fn new() -> Self {
        Self {
            by_place: Vec::new(),
            told: Vec::new(),
            by_id: HashMap::new(),
            moving: HashMap::new(),
            unkept: Unarmed::NONE,
            unannounced: Unarmed::NONE,
            overs: Overs::new(),
            doubt: Doubt::NONE,
            takeovers: Takeovers::new(),
            leaving: VecDeque::new(),
        }
    }

    /// Whether no session was a cluster's so far.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    pub(crate) fn get(&self, session: Entry<S>) -> Option<&Clustered> {
        self.by_place.get(session.index())?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, session: Entry<S>) -> Option<&mut Clustered> {
        self.by_place.get_mut(session.index())?.as_deref_mut()
    }

    /// Whether an arbiter has been told of a session as it stands.
    #[inline]
    pub(crate) fn is_told(&self, session: Entry<S>, backend: BackendId, epoch: u32) -> bool {
        self.told.get(session.index()) == Some(&Some((backend, epoch)))
    }

    /// The arbiter of that backend is told of a session, in that epoch of the link to it.
    pub(crate) fn tell(&mut self, session: Entry<S>, told: (BackendId, u32)) {
        if let Some(it) = self.get_mut(session) {
            if it.told.is_some() {
                it.note_announced();
            }
            it.told = Some(told);
            self.told[session.index()] = Some(told);
        }
    }

    /// The session that its cluster calls so.
    pub(crate) fn find(&self, id: SessionId) -> Option<Entry<S>> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn put(&mut self, session: Entry<S>, it: Clustered) {
        let at = session.index();
        if self.by_place.len() <= at {
            self.by_place.resize(at + 1, None);
            self.told.resize(at + 1, None);
        }
        self.forget(session);
        self.by_id.insert(it.id, session);
        self.told[at] = it.told;
        self.by_place[at] = Some(Box::new(it));
    }

    /// The session is over, or only this gateway's from now on.
    pub(crate) fn forget(&mut self, session: Entry<S>) -> Option<Box<Clustered>> {
        let it = self.by_place.get_mut(session.index())?.take()?;
        self.told[session.index()] = None;
        self.by_id.remove(&it.id);
        Some(it)
    }

    /// All that there are.
    pub(crate) fn all(&self) -> Vec<Entry<S>> {
        self.by_id.values().copied().collect()
    }

    /// How many places may have some.
    pub(crate) fn places(&self) -> u32 {
        self.by_place.len() as u32
    }

    /// Whether the next process has to ask whose they are: also where some are left in a moment.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let Doubt { is_inherited, backends, .. } = &self.doubt;
        *is_inherited || !backends.is_empty() || !self.leaving.is_empty()
    }

    pub(crate) fn due_ns(&self) -> u64 {
        let beat_ns = if self.is_empty() { u64::MAX } else { self.doubt.due_ns() };
        let places_ns = self.unkept.due_ns().min(self.unannounced.due_ns());
        let leaving_ns = self.leaving.front().map_or(u64::MAX, |(due_ns, ..)| *due_ns);
        let asked_ns = self.takeovers.due_ns.min(self.overs.due_ns);
        places_ns.min(asked_ns).min(beat_ns).min(leaving_ns)
    }
}
