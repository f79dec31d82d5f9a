//! What must hold of a gateway, looked at from outside.

use std::collections::{HashMap, HashSet};

use super::state::{Outside, S, World};
use crate::plan::GameLink;
use crate::player::Whereabouts;
use ringgate_gate::{BackendId, Gate, ListenerId, SessionInfo};

impl World {
    /// Looks at every session, and at how much is remembered.
    pub(super) fn look_at_sessions(&mut self) {
        let gates = self.workers.iter().map(|worker| worker.host.gate());
        // Those of the Unreal listener, which is behind the others, are looked at with its servers.
        let is_netcode = |it: &SessionInfo| it.listener.index() < self.plan.listeners;
        let sessions = gates.clone().flat_map(Gate::sessions).filter(is_netcode);
        let sessions: Vec<SessionInfo> = sessions.collect();
        let pending: u64 = gates.map(|gate| gate.counters().pending).sum();
        let tokens = self.claims.tokens_remembered();
        self.outside.judge.require(tokens <= TOKENS_MAX, || format!("{tokens} tokens remembered"));
        let pending_max = PENDING_MAX * self.workers.len() as u64;
        self.outside.judge.require(pending <= pending_max, || format!("{pending} handshakes"));
        self.look_at_claims(&sessions);
        self.look_at_silence(&sessions);
    }

    /// One session for each client id and listener, one player in each slot, no listener or backend
    /// over its bound.
    fn look_at_claims(&mut self, sessions: &[SessionInfo]) {
        let Self { plan, outside: Outside { judge, .. }, claims, .. } = self;
        let (mut clients, mut slots) = (HashSet::new(), HashSet::new());
        let mut listeners: HashMap<ListenerId, u32> = HashMap::new();
        for session in sessions {
            let is_only = clients.insert((session.listener, session.client_id));
            judge.require(is_only, || format!("a second session: {session:?}"));
            let is_alone = slots.insert((session.backend, session.slot));
            judge.require(is_alone, || format!("a second player in a slot: {session:?}"));
            let slots_max = plan.games[session.backend.index()].slots;
            judge.require(session.slot.0 < slots_max, || format!("no such slot: {session:?}"));
            *listeners.entry(session.listener).or_default() += 1;
        }
        for (listener, count) in listeners {
            judge.require(count <= plan.sessions_max, || {
                format!("{count} sessions at {listener:?}")
            });
            let claimed = claims.sessions(listener);
            judge.require(count == claimed, || format!("{count} sessions, {claimed} claimed"));
        }
    }

    /// Nobody outlives its timeout: neither by the gateway's own clock, nor by what its player has
    /// done.
    fn look_at_silence(&mut self, sessions: &[SessionInfo]) {
        let now_ns = self.gate_now().mono_ns;
        let slack_ns = self.plan.step_ns + WHEEL_TICK_NS;
        let timeout_ns = self.plan.timeout_s as u64 * S;
        let delay_ns = self.plan.path.slowest_ns();
        for session in sessions {
            let heard_ns = session.heard_ns;
            self.outside.judge.require(heard_ns + timeout_ns + slack_ns > now_ns, || {
                format!("outlives its timeout: {session:?} at {now_ns}")
            });
            if self.plan.attacks > 0 && !self.plan.is_fair() {
                // An attacker who records a packet that was lost can deliver it late, as the
                // network itself might.
                continue;
            }
            let player = &self.players[(session.client_id - 1000) as usize];
            let silent_ns = self.now_ns - player.spoke_ns;
            let forgiven_ns = timeout_ns + 2 * delay_ns + slack_ns + LOOK_SLACK_NS;
            self.outside.judge.require(silent_ns < forgiven_ns, || {
                format!("kept alive by somebody else for {silent_ns} ns: {session:?}")
            });
        }
    }

    /// In a fair world all who are here have got in, and everything that was said has been heard.
    pub(super) fn require_that_all_arrived(&mut self) {
        let here: HashSet<u64> = self
            .players
            .iter()
            .filter_map(|player| match &player.whereabouts {
                Whereabouts::Here(life) => Some(life.number),
                Whereabouts::Away(_) => None,
            })
            .collect();
        let Self { outside: Outside { judge, .. }, players, .. } = self;
        for player in players.iter() {
            if let Whereabouts::Here(life) = &player.whereabouts {
                let is_in = life.connected_ns.is_some();
                judge.require(is_in, || format!("life {} has not got in", life.number));
            }
        }
        let mut lost = Vec::new();
        for (number, life) in (1..).zip(judge.lives()) {
            if life.up.heard() != life.up.said {
                lost.push(format!(
                    "{} of {} notes from life {number}",
                    life.up.heard(),
                    life.up.said
                ));
            }
            // Who has left cannot hear what was under way to it.
            if here.contains(&number) && !life.moved && life.down.heard() != life.down.said {
                let (heard, said) = (life.down.heard(), life.down.said);
                lost.push(format!("{heard} of {said} notes for life {number}"));
            }
        }
        judge.require(lost.is_empty(), || format!("only {} arrived", lost.join(", ")));
    }

    /// When everybody has gone, so have their sessions, their claims and what game processes know
    /// of them.
    pub(super) fn require_that_nothing_is_left(&mut self) {
        let Self { outside: Outside { judge, games, .. }, workers, claims, plan, .. } = self;
        for (at, worker) in workers.iter().enumerate() {
            let gate = worker.host.gate();
            let (sessions, pending) = (gate.session_count(), gate.counters().pending);
            judge.require(sessions == 0, || format!("{sessions} sessions left at worker {at}"));
            judge.require(pending == 0, || format!("{pending} handshakes left at worker {at}"));
        }
        for listener in 0..plan.listeners {
            let claimed = claims.sessions(ListenerId::at(listener));
            judge.require(claimed == 0, || format!("{claimed} claims left at {listener}"));
        }
        for (at, game) in plan.games.iter().enumerate() {
            let players = claims.players(BackendId::at(at));
            judge.require(players == 0, || format!("{players} slots taken at game {at}"));
            let guests = games[at].guest_count();
            let knows_nobody = guests == 0 || game.link != GameLink::Bundle;
            judge.require(knows_nobody, || format!("game {at} waits for {guests}"));
        }
        let counters: Vec<_> = workers.iter().map(|worker| worker.host.gate().counters()).collect();
        let sent: u64 = counters.iter().map(|counters| counters.forwarded_out).sum();
        let received: u64 = counters.iter().map(|counters| counters.forwarded_in).sum();
        judge.require(sent == received, || format!("{sent} forwarded, {received} received"));
    }
}

/// What a gateway of these sizes may remember.
const TOKENS_MAX: usize = 32_768;
const PENDING_MAX: u64 = 2048;

/// A timer is late by this much at most.
const WHEEL_TICK_NS: u64 = 4_000_000;

/// A player's last word may be heard a little after it was said.
const LOOK_SLACK_NS: u64 = 100_000_000;
