//! What must hold in a fleet, judged from outside: by what game processes were told, what players
//! have met, and what stands in etcd. Shares no code with what it judges.

use std::collections::BTreeMap;

use ringgate_core::netcode::State;
use ringgate_link::bundle::SessionId;

use crate::server::Server;

/// Knows what has happened.
#[derive(Default)]
pub(crate) struct Judge {
    now_ms: u64,
    pub(crate) violation: Option<String>,
    tokens: BTreeMap<u64, Token>,
    gateways: Vec<Seen>,
    /// When etcd's history was last another one.
    rewritten_ms: Option<u64>,
    /// Since when a client plays at these two places.
    twice: BTreeMap<u64, u64>,
    /// What players have met.
    pub(crate) met: Met,
}

/// A token and what it has opened.
#[derive(Debug, Default)]
struct Token {
    client_id: u64,
    /// The session that it has opened last: gateway, start of the gateway, session.
    session: Option<(usize, u64, SessionId)>,
    has_said: bool,
    /// By which gateway something was heard that was said under it.
    heard_by: Option<HeardBy>,
}

/// Where a token was used.
#[derive(Clone, Copy, Debug)]
struct HeardBy {
    gateway: usize,
    /// Which start of it.
    start: usize,
    since_ms: u64,
}

/// How a gateway is.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Which start of it.
    start: usize,
    /// Since when it serves and hears an etcd, since when it believes it besides, and since when
    /// nothing at all is wrong with that etcd.
    hears_ms: Option<u64>,
    well_ms: Option<u64>,
    whole_ms: Option<u64>,
}

/// Counts, so that worlds in which nothing happens are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) tokens: u64,
    pub(crate) refused: u64,
    pub(crate) connected: u64,
    pub(crate) denied: u64,
    pub(crate) lost: u64,
    /// Who has come with a token that is another's.
    pub(crate) thieves: u64,
    pub(crate) moved: u64,
    /// Moves that the fleet was asked for, that were answered, and that were refused; offers
    /// because of them, and players whom they have moved.
    pub(crate) ordered: u64,
    pub(crate) answered: u64,
    pub(crate) not_ordered: u64,
    pub(crate) offered: u64,
    pub(crate) ordered_moved: u64,
}

impl Judge {
    pub(crate) fn new(gateways: usize) -> Self {
        Self { gateways: vec![Seen::default(); gateways], ..Self::default() }
    }

    pub(crate) fn at(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    pub(crate) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(format!("after {:.3} s: {}", self.now_ms as f64 / 1e3, what()));
        }
    }

    /// A token was made for a client.
    pub(crate) fn minted(&mut self, number: u64, client_id: u64) {
        self.met.tokens += 1;
        self.tokens.insert(number, Token { client_id, ..Token::default() });
    }

    /// A game process was told of a player.
    pub(crate) fn opened(
        &mut self,
        server: &Server,
        (client_id, number): (u64, u64),
        session: (usize, u64, SessionId),
    ) {
        let Some(token) = self.tokens.get_mut(&number) else {
            return self.require(false, || format!("token {number} was never made"));
        };
        let (is_its, before) = (token.client_id == client_id, token.session.replace(session));
        let is_used_twice = token.has_said && before.is_some_and(|it| it != session);
        self.require(is_its, || format!("token {number} is another client's than {client_id}"));
        self.require(!is_used_twice, || {
            format!("token {number} has opened {session:?} at {} after {before:?}", server.name)
        });
        let there = server.sessions.len() + server.offers.len();
        self.look_at_slots(&server.name, there, server.slots);
    }

    /// A game process has heard something that was sent under a token.
    pub(crate) fn heard(&mut self, number: u64, gateway: usize, start: usize) {
        let now = HeardBy { gateway, start, since_ms: self.now_ms };
        let is_forgotten = |by: &HeardBy| self.may_have_forgotten(by);
        let before = self.tokens.get(&number).and_then(|it| it.heard_by);
        let before = before.filter(|by| by.gateway == gateway || !is_forgotten(by));
        let Some(token) = self.tokens.get_mut(&number) else {
            return self.require(false, || format!("token {number} was never made"));
        };
        token.has_said = true;
        let by = before.unwrap_or(now);
        token.heard_by = Some(by);
        self.require(by.gateway == gateway, || {
            format!("token {number} was used at gateway {} and at {gateway}", by.gateway)
        });
    }

    /// A server is offered a player, with whom so many play there or are offered to it.
    pub(crate) fn offered(&mut self, server: &Server, taken: usize) {
        let Server { name, slots, .. } = server;
        self.require(taken <= *slots as usize, || {
            format!("{name} is offered one player more than its {slots} slots")
        });
    }

    /// Etcd has another history.
    pub(crate) fn rewritten(&mut self) {
        self.rewritten_ms = Some(self.now_ms);
    }

    /// Whether etcd's history is another one since a token was used, and its gateway could not
    /// claim it again.
    fn may_have_forgotten(&self, by: &HeardBy) -> bool {
        let Some(rewritten_ms) = self.rewritten_ms else { return false };
        let seen = self.gateways[by.gateway];
        let has_had = |since_ms: Option<u64>, takes_ms| {
            since_ms.is_some_and(|it| self.now_ms >= it.max(rewritten_ms) + takes_ms)
        };
        let could_claim = seen.start == by.start
            && (has_had(seen.whole_ms, CLAIMED_MS) || has_had(seen.hears_ms, FOUND_MS));
        rewritten_ms + HANDSHAKE_MS > by.since_ms && !could_claim
    }

    /// So many play at a server that has so many slots.
    pub(crate) fn look_at_slots(&mut self, server: &str, there: usize, slots: u32) {
        self.require(there <= slots as usize, || {
            format!("{server} has {there} players and {slots} slots")
        });
    }

    /// Whether this start of a gateway hears etcd, and whether nothing at all is wrong with that.
    pub(crate) fn see_gateway(&mut self, at: usize, start: usize, (hears, is_whole): (bool, bool)) {
        let seen = &mut self.gateways[at];
        let is_same = std::mem::replace(&mut seen.start, start) == start;
        for (since_ms, holds) in [(&mut seen.hears_ms, hears), (&mut seen.whole_ms, is_whole)] {
            let before_ms = since_ms.filter(|_| is_same);
            *since_ms = holds.then(|| before_ms.unwrap_or(self.now_ms));
        }
    }

    /// Whether a gateway holds something back of what etcd says.
    pub(crate) fn see_doubt(&mut self, at: usize, doubts: bool) {
        let seen = &mut self.gateways[at];
        let is_well = seen.hears_ms.is_some() && !doubts;
        seen.well_ms = is_well.then(|| seen.well_ms.unwrap_or(self.now_ms));
    }

    /// Nobody who goes over from one server to another is at both.
    pub(crate) fn look_at_places(&mut self, servers: &[Server]) {
        let mut at: BTreeMap<(usize, SessionId), &str> = BTreeMap::new();
        for server in servers {
            for session in server.sessions.keys() {
                let before = at.insert((server.gateway, *session), &server.name);
                self.require(before.is_none(), || {
                    format!("{session:?} is at {before:?} and at {}", server.name)
                });
            }
        }
    }

    /// Each client is in one place, where everything has been well for a while.
    pub(crate) fn look_at_clients(&mut self, servers: &[Server]) {
        let mut places: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        for server in servers {
            for guest in server.sessions.values() {
                let since_ms = guest.since_ms;
                places.entry(guest.client_id).or_default().push((server.gateway, since_ms));
            }
        }
        places.retain(|_, at| at.len() > 1);
        self.twice.retain(|client, _| places.contains_key(client));
        for (client, at) in places {
            let since_ms = *self.twice.entry(client).or_insert(self.now_ms);
            let well = at.iter().map(|(gateway, _)| self.gateways[*gateway].well_ms);
            let well = well.map(|it| it.unwrap_or(self.now_ms)).max().unwrap_or(self.now_ms);
            let lasts_ms = self.now_ms - since_ms.max(well);
            self.require(lasts_ms < TWICE_MS_MAX, || {
                format!("client {client} has played at {at:?} for {lasts_ms} ms")
            });
        }
    }

    /// A player's connection is over without its will.
    pub(crate) fn lost(&mut self, token: u64, state: State, excuse: Option<&str>) {
        self.met.lost += 1;
        self.require(excuse.is_some(), || format!("the player of token {token} was {state:?}"));
    }
}

/// How long a client may be in two places: news are told four times a second, a registration that
/// was lost comes back first, and a member of etcd that is dead is left after some seconds.
const TWICE_MS_MAX: u64 = 15_000;
/// How long until a gateway has claimed its tokens again in another history, where nothing is wrong
/// with etcd, and where it has to leave members that are dead or cut off.
const CLAIMED_MS: u64 = 5_000;
const FOUND_MS: u64 = 15_000;
/// A token is claimed so long before anything is heard under it, at the most.
const HANDSHAKE_MS: u64 = 10_000;
