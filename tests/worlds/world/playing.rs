//! What the players of a world do, and what each may meet.

use ringgate_batch::Endpoint;
use ringgate_core::netcode::State;

use super::{CALM_AFTER_MS, World};
use crate::STEP_MS;
use crate::player::{Became, Doing, Play, Player};
use crate::service::Answer;

impl World {
    pub(super) fn take_answer(&mut self, answer: Answer) {
        let Answer { token, said } = answer;
        let number = token;
        let (client_id, backend) = &mut self.tokens[number as usize];
        let client_id = *client_id;
        let asked_ms = self.asked_ms[number as usize];
        match &said {
            Ok((_, told)) => {
                *backend = told["backend"].as_str().map(str::to_owned);
                self.judge.minted(number, client_id);
            }
            Err(why) => {
                self.judge.met.refused += 1;
                let may_be = FULL.contains(&why.trim_matches('"'));
                let is_banned =
                    why.contains("client_denied") && self.bans.may_hold(client_id, self.now_ms);
                let is_calm = self.is_calm(asked_ms);
                self.judge.require(may_be || is_banned || !is_calm, || {
                    format!("client {client_id} was refused a token: {why}")
                });
            }
        }
        let asks = |it: &Player| matches!(it.doing, Doing::Asking { token, .. } if token == number);
        let Some(at) = self.players.iter().position(asks) else { return };
        let Ok((bytes, _)) = said else {
            let until_ms = self.now_ms + 200 + self.random.within(0..3_000);
            self.players[at].doing = Doing::Away { until_ms };
            return;
        };
        self.begin(at, number, bytes, false);
    }

    pub(super) fn begin(&mut self, at: usize, token: u64, bytes: Vec<u8>, is_thief: bool) {
        let home = self.home();
        let mut play = Play::new(token, bytes, home, self.now_ms);
        let stays_ms = self.random.within(500..40_000);
        play.leaves_ms = self.now_ms + stays_ms;
        play.vanishes = self.random.chance(200);
        play.is_thief = is_thief;
        self.judge.met.thieves += u64::from(is_thief);
        self.homes.insert(home, at);
        self.players[at].doing = Doing::Playing(Box::new(play));
    }

    pub(super) fn home(&mut self) -> Endpoint {
        self.sent += 1;
        let [_, _, _, _, _, b, c, d] = self.sent.to_be_bytes();
        Endpoint::v4([10, b, c, d], 5000)
    }

    pub(super) fn act(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let mut sent = Vec::new();
        let became = match &mut self.players[at].doing {
            Doing::Away { until_ms } if now_ms >= *until_ms => return self.ask(at),
            Doing::Away { .. } => return,
            Doing::Asking { since_ms, .. } => {
                if now_ms > *since_ms + 15_000 {
                    self.players[at].doing = Doing::Away { until_ms: now_ms + 500 };
                }
                return;
            }
            Doing::Playing(play) => {
                let home = play.home;
                play.act(now_ms, &mut |to, bytes| sent.push((home, to, bytes.to_vec())))
            }
        };
        let silent = match &self.players[at].doing {
            Doing::Playing(play) => play.connected.map(|_| (play.token, play.heard_ms)),
            _ => None,
        };
        // Wherever it plays, it is answered.
        if let (Some((token, heard_ms)), Some(well_ms)) = (silent, self.well_since_ms) {
            let silent_ms = now_ms.saturating_sub(heard_ms.max(well_ms + CALM_AFTER_MS));
            self.judge.require(silent_ms < SILENT_MS_MAX, || {
                format!("the player of token {token} plays nowhere for {silent_ms} ms")
            });
        }
        for (from, to, bytes) in sent {
            self.send(from, to, bytes);
        }
        self.note(at, became);
    }

    pub(super) fn ask(&mut self, at: usize) {
        let (number, client_id) = (self.tokens.len() as u64, self.players[at].client_id);
        let service = self.any(self.services.len());
        let addresses = 1 + self.random.within(0..2);
        if !self.services[service].ask(number, client_id, addresses) {
            let until_ms = self.now_ms + 100 + self.random.within(0..500);
            self.players[at].doing = Doing::Away { until_ms };
            return;
        }
        self.tokens.push((client_id, None));
        self.asked_ms.push(self.now_ms);
        self.players[at].doing = Doing::Asking { token: number, since_ms: self.now_ms };
    }

    pub(super) fn send(&mut self, from: Endpoint, to: Endpoint, bytes: Vec<u8>) {
        self.sent += 1;
        let at_ms = self.now_ms + self.random.within(0..2 * STEP_MS);
        self.network.insert((at_ms, self.sent), (from, to, bytes));
    }

    pub(super) fn deliver(&mut self) {
        while let Some(first) = self.network.first_entry()
            && first.key().0 <= self.now_ms
        {
            let (from, to, mut bytes) = first.remove();
            if let Some(gateway) = self.gateways.iter_mut().find(|it| it.address == to) {
                gateway.hear_player(from, bytes);
                continue;
            }
            let Some(&at) = self.homes.get(&to) else { continue };
            let Doing::Playing(play) = &mut self.players[at].doing else { continue };
            let became = play.hear(from, &mut bytes, self.now_ms);
            self.note(at, became);
        }
    }

    /// A player is in, or out.
    pub(super) fn note(&mut self, at: usize, became: Became) {
        let now_ms = self.now_ms;
        let Doing::Playing(play) = &mut self.players[at].doing else { return };
        match became {
            Became::Nothing => return,
            Became::Connected => {
                self.judge.met.connected += 1;
                let client_id = self.tokens[play.token as usize].0;
                self.came_ms.insert(client_id, now_ms);
                return;
            }
            Became::Over(_) => {}
        }
        let (token, since_ms, home) = (play.token, play.since_ms, play.home);
        let (connected, is_thief) = (play.connected, play.is_thief);
        // One that goes without a word is there until its gateway gives it up.
        let known_ms = if play.vanishes { now_ms + TIMEOUT_MS } else { now_ms };
        let bytes = std::mem::take(&mut play.bytes);
        self.homes.remove(&home);
        if connected.is_some() {
            let known = self.known_ms.entry(self.tokens[token as usize].0).or_default();
            *known = known_ms.max(*known);
        }
        if let Became::Over(Some(state)) = became {
            match connected {
                Some((_, gateway)) => {
                    let excuse = self.excuse(token, since_ms, gateway);
                    self.judge.lost(token, state, excuse);
                }
                None => {
                    self.judge.met.denied += 1;
                    self.require_a_reason(at, (token, since_ms), state);
                }
            }
        }
        let until_ms = now_ms + 100 + self.random.within(0..6_000);
        let until_ms = if self.is_closing { u64::MAX } else { until_ms };
        self.players[at].doing = Doing::Away { until_ms };
        // Somebody has recorded the token.
        if !is_thief && !self.is_closing && self.random.chance(150) {
            self.begin(at, token, bytes, true);
        }
    }

    /// Whether everything has been well for so long that nothing is left of what was.
    pub(super) fn is_calm(&self, since_ms: u64) -> bool {
        self.well_since_ms.is_some_and(|well_ms| since_ms >= well_ms + CALM_AFTER_MS)
    }

    /// A player was not let in. Where all is well, that is because its server is full, with those
    /// who are on the way to it, or the same client plays already.
    pub(super) fn require_a_reason(
        &mut self,
        at: usize,
        (token, since_ms): (u64, u64),
        state: State,
    ) {
        let (client_id, backend) = &self.tokens[token as usize];
        let Doing::Playing(play) = &self.players[at].doing else { return };
        let plays = |other: &Player| {
            other.client_id == *client_id && matches!(other.doing, Doing::Playing(_))
        };
        // Another of the client may have gone in this very moment.
        let has_played = self.known_ms.get(client_id).is_some_and(|until| *until >= since_ms);
        let others = self.players.iter().filter(|it| plays(it)).count() + usize::from(has_played);
        // Of an unmodified server nobody outside knows how many it has.
        let server = self.servers.iter().position(|it| backend.as_deref() == Some(&*it.name));
        let is_banned = self.bans.may_hold(*client_id, self.now_ms);
        if play.is_thief || is_banned || others > 1 || !self.is_calm(since_ms) {
            return;
        }
        if let Some(server) = server {
            let what = format!("token {token} for {backend:?} is refused: {state:?}");
            self.refused.push((self.now_ms + TOLD_MS, server, what));
        }
    }

    /// Whoever was refused for a server was so because that was full.
    pub(super) fn look_at_refused(&mut self) {
        let Self { servers, servers_full_ms, refused, judge, now_ms, .. } = self;
        for (server, full_ms) in servers.iter().zip(servers_full_ms.iter_mut()) {
            if server.sessions.len() + server.offers.len() >= server.slots as usize {
                *full_ms = *now_ms;
            }
        }
        for (due_ms, server, what) in refused.extract_if(.., |it| it.0 <= *now_ms) {
            judge.require(servers_full_ms[server] + 2 * TOLD_MS >= due_ms, || what);
        }
    }

    /// Why a player may have lost its connection.
    pub(super) fn excuse(&self, token: u64, since_ms: u64, by: Endpoint) -> Option<&'static str> {
        let (client_id, backend) = &self.tokens[token as usize];
        let backend = backend.as_ref()?;
        let gateway = self.gateways.iter().position(|it| it.address == by)?;
        let server = self.servers.iter().position(|it| it.name == *backend);
        let udp = self.udp.iter().position(|it| it.name == *backend);
        let away_ms = server.map(|at| self.servers_away_ms[at]);
        let away_ms = away_ms.or_else(|| udp.map(|at| self.udp_away_ms[at]))?;
        if self.gateways_away_ms[gateway] + 12_000 >= since_ms {
            return Some("its gateway was away");
        }
        if away_ms + 12_000 >= since_ms {
            return Some("its server was away");
        }
        if self.bans.may_hold(*client_id, self.now_ms) {
            return Some("it is banned");
        }
        let came_again = self.came_ms.get(client_id).is_some_and(|it| *it > since_ms);
        came_again.then_some("it has logged in elsewhere")
    }
}

/// Why a token may be refused at any time.
const FULL: &[&str] = &["no_slot", "promised_elsewhere", "backend_full", "busy"];
/// A player says something twice a second, and game processes send it back.
const SILENT_MS_MAX: u64 = 3_000;
/// A server has heard by then of whoever is there.
const TOLD_MS: u64 = 100;
/// As tokens have it (`Service`).
const TIMEOUT_MS: u64 = 10_000;
