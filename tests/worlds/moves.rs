//! What the fleet's moves may do, judged from outside: by what was asked and answered, and by what
//! game processes were told. Shares no code with what it judges.

use std::collections::{BTreeMap, BTreeSet};

use ringgate_link::bundle::SessionId;

/// A session: its gateway, the start of the gateway, and its number there.
pub(crate) type SessionAt = (usize, u64, SessionId);

/// Moves that were asked of the fleet.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    asked: Vec<AskedMove>,
    /// When a game process was first told of a session.
    began_ms: BTreeMap<SessionAt, u64>,
    /// Offers by notes, by session and server.
    offers: BTreeMap<(SessionAt, String), Offers>,
    /// Sessions that one game process has lost by a move and no other has: since when, and whose
    /// token.
    between: BTreeMap<SessionAt, (u64, u64)>,
}

/// What a server was offered of a session.
#[derive(Debug, Default)]
struct Offers {
    client_id: u64,
    count: usize,
    /// When the player has gone over last, or has left on the way.
    over_ms: Option<u64>,
}

/// A move that was asked of the fleet.
#[derive(Clone, Debug)]
pub(crate) struct AskedMove {
    pub(crate) client_id: u64,
    pub(crate) to: String,
    pub(crate) service: usize,
    pub(crate) time_ms: u64,
    pub(crate) confirms: bool,
    pub(crate) asked_ms: u64,
    /// When it was answered, and by which gateways.
    pub(crate) answered: Option<(u64, BTreeSet<String>)>,
}

impl Moves {
    /// Returns its number.
    pub(crate) fn ask(&mut self, it: AskedMove) -> usize {
        self.asked.push(it);
        self.asked.len() - 1
    }

    pub(crate) fn asked(&self, number: usize) -> &AskedMove {
        &self.asked[number]
    }

    pub(crate) fn answer(&mut self, number: usize, now_ms: u64, gateways: BTreeSet<String>) {
        self.asked[number].answered = Some((now_ms, gateways));
    }

    /// Whether a token service is waited for.
    pub(crate) fn is_waited_for(&self, service: usize, now_ms: u64) -> bool {
        let is_open = |it: &AskedMove| it.answered.is_none() && now_ms < it.asked_ms + ASKED_MS_MAX;
        self.asked.iter().any(|it| it.service == service && is_open(it))
    }

    /// A game process is offered a player by a note. Why it may not be, if so.
    pub(crate) fn offered(
        &mut self,
        (at, gateway): (SessionAt, &str),
        (client_id, server): (u64, &str),
        now_ms: u64,
    ) -> Option<String> {
        let began_ms = *self.began_ms.entry(at).or_insert(now_ms);
        let may_mean = |it: &&AskedMove| {
            let is_its = it.client_id == client_id && it.to == server;
            let takes_ms = TRIES as u64 * (it.time_ms + LOOK_MS);
            let is_young = now_ms <= it.asked_ms + BELIEVED_MS + takes_ms;
            // Who has answered has looked for sessions before.
            let is_meant = match &it.answered {
                Some((ms, gateways)) if gateways.contains(gateway) => began_ms <= *ms,
                _ => true,
            };
            is_its && is_young && is_meant
        };
        let notes = self.asked.iter().filter(may_mean).count();
        let offers = self.offers.entry((at, server.to_owned())).or_default();
        offers.client_id = client_id;
        offers.count += 1;
        let count = offers.count;
        if notes == 0 {
            return Some(format!(
                "nobody has asked for client {client_id} to be moved to {server}"
            ));
        }
        (count > TRIES * notes).then(|| format!("{notes} notes have made {count} offers"))
    }

    /// A game process is told of a session.
    pub(crate) fn opened(&mut self, at: SessionAt, server: &str, now_ms: u64) {
        self.began_ms.entry(at).or_insert(now_ms);
        self.left_on_the_way(at, server, now_ms);
    }

    /// The player of a session is nowhere any more whom a game process was offered.
    pub(crate) fn left_on_the_way(&mut self, at: SessionAt, server: &str, now_ms: u64) {
        self.between.remove(&at);
        if let Some(offers) = self.offers.get_mut(&(at, server.to_owned())) {
            offers.over_ms = Some(now_ms);
        }
    }

    /// How many sessions of a client a gateway has had go over to a server since then.
    pub(crate) fn count(&self, gateway: usize, it: &AskedMove) -> usize {
        let is_it = |((at, server), offers): &(&(SessionAt, String), &Offers)| {
            let is_its = at.0 == gateway && offers.client_id == it.client_id && *server == it.to;
            is_its && offers.over_ms.is_some_and(|ms| ms >= it.asked_ms)
        };
        self.offers.iter().filter(is_it).count()
    }

    /// A game process has lost a player by a move.
    pub(crate) fn left(&mut self, at: SessionAt, token: u64, now_ms: u64) {
        self.between.insert(at, (now_ms, token));
    }

    /// Nothing of a gateway, or of a session, has to come any more.
    pub(crate) fn forget(&mut self, is_it: impl Fn(&SessionAt, u64) -> bool) {
        self.between.retain(|at, (_, token)| !is_it(at, *token));
    }

    /// A player who has been nowhere for longer than it may.
    pub(crate) fn nowhere(&self, now_ms: u64) -> Option<(SessionAt, u64)> {
        let mut between = self.between.iter();
        let is_long =
            |(_, (since_ms, _)): &(&SessionAt, &(u64, u64))| now_ms > since_ms + BETWEEN_MS_MAX;
        between.find(is_long).map(|(at, (_, token))| (*at, *token))
    }
}

/// How long a note can be believed, whoever puts it back, with clocks that are apart.
const BELIEVED_MS: u64 = 63_000;
/// How often a gateway offers a player.
const TRIES: usize = 3;
/// Beyond the time that game processes have, each time.
const LOOK_MS: u64 = 1_500;
/// A token service that is alive answers until then.
const ASKED_MS_MAX: u64 = 25_000;
/// How long a player may be with neither of two game processes: one of them confirms within a
/// second, or is waited for no longer.
const BETWEEN_MS_MAX: u64 = 2_000;
