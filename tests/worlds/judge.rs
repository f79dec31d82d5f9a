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
    /// Since when everything that a client's places have to agree by was well, by gateway.
    well_since_ms: Vec<Option<u64>>,
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
    heard_by: Option<usize>,
}

/// Counts, so that worlds in which nothing happens are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) tokens: u64,
    pub(crate) refused: u64,
    pub(crate) connected: u64,
    pub(crate) denied: u64,
    pub(crate) lost: u64,
    pub(crate) replaced: u64,
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
        Self { well_since_ms: vec![None; gateways], ..Self::default() }
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
    pub(crate) fn heard(&mut self, number: u64, gateway: usize) {
        let Some(token) = self.tokens.get_mut(&number) else {
            return self.require(false, || format!("token {number} was never made"));
        };
        token.has_said = true;
        let by = *token.heard_by.get_or_insert(gateway);
        self.require(by == gateway, || {
            format!("token {number} was used at gateway {by} and at {gateway}")
        });
    }

    /// So many play at a server that has so many slots, or are offered to it.
    pub(crate) fn look_at_slots(&mut self, server: &str, there: usize, slots: u32) {
        self.require(there <= slots as usize, || {
            format!("{server} has {there} players and {slots} slots")
        });
    }

    /// Whether a gateway is well, and reaches an etcd that is.
    pub(crate) fn see_gateway(&mut self, gateway: usize, is_well: bool) {
        let since_ms = self.well_since_ms[gateway].unwrap_or(self.now_ms);
        self.well_since_ms[gateway] = is_well.then_some(since_ms);
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
            let well = at.iter().map(|(gateway, _)| self.well_since_ms[*gateway]);
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
