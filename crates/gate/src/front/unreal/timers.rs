//! How long sessions last, and what else happens because time passes: repeats, silence, servers
//! that never answered, fresh secrets.

use crate::common::Common;
use crate::counters::{Ended, Ending};
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::timers::look_after_cluster;
use crate::front::rules::Rules;
use crate::front::unreal::datagrams::rules_of;
use crate::front::unreal::loopback::loopback_of;
use crate::front::unreal::opening::OPENING_NS;
use crate::front::unreal::probed::Face;
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::ids::ListenerId;
use crate::info::SessionInfo;
use crate::mail::Request;
use crate::now::Now;
use crate::sessions::Sessions;
use crate::setup::{Listener, Setup};
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_core::secret::CookieSecret;

impl Rules for UnrealFront {
    type Session = Session;

    fn sessions(&self) -> &Sessions<Session> {
        &self.sessions
    }

    fn sessions_mut(&mut self) -> &mut Sessions<Session> {
        &mut self.sessions
    }

    fn info(&self, common: &Common, index: Entry<Session>) -> Option<SessionInfo> {
        let session = self.sessions.get(index).filter(|session| !session.is_opening())?;
        let address = self.last_address(index);
        let rules = rules_of(common, address.listener).ok()?;
        let (claim, timeout_ns) = (&session.claim, rules.idle_timeout_ns);
        // An agent knows those of its players alone.
        let is_here = common.links.backends[claim.backend].address.is_some();
        let link_address = loopback_of(index).filter(|_| is_here);
        let names = (self.sessions.id(index).as_u64(), link_address);
        Some(SessionInfo::of_claim(claim, names, address.endpoint, session.heard_ns, timeout_ns))
    }

    fn counts(&self) -> (usize, usize) {
        (self.sessions.len() - self.opening_count, self.opening_count)
    }

    fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        self.learn_servers(setup, now_ns);
    }

    fn begin_listener(&mut self, number: ListenerId, listener: &Listener, _now_ns: u64) {
        self.faces[number] = Face::of(number, listener);
    }

    fn due_ns(&self, common: &Common) -> u64 {
        if !self.is_served() {
            return u64::MAX;
        }
        let asked_again_ns = self.asked_for_secrets_ns.map_or(0, |at_ns| at_ns + ASK_NS);
        let secrets_ns = common.claims.cookies().due_ns().max(asked_again_ns);
        let sessions_ns = self.sessions.due_ns().min(self.sessions.clusters.due_ns());
        self.next_probe_ns.min(secrets_ns).min(sessions_ns)
    }

    fn handle_other_timers(&mut self, turn: &mut Turn<'_>) {
        if self.is_served() {
            look_after_cluster(self, turn);
            self.ask_for_secrets(turn);
            self.probe_servers(turn);
        }
    }

    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if self.sessions.get(index).is_none() || self.look_after_unsure(turn, index) {
            return;
        }
        match &self.sessions.at(index).stage {
            Stage::Opening(opening) if turn.now.mono_ns >= opening.since_ns + OPENING_NS => {
                self.end(turn, index, Ended::BackendGone);
            }
            Stage::Opening(_) => self.ask_server(turn, index),
            Stage::Open { .. } => self.end_or_arm(turn, index),
        }
    }

    fn end_when_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        self.end_once_sure(turn, index, ending);
    }

    fn deadline_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        let session = self.sessions.at(index);
        if let Stage::Opening(opening) = &session.stage {
            return opening.client.poll_timeout().unwrap_or(0);
        }
        let rules = rules_of(common, self.sessions.address(index).listener);
        let silent_ns = session.heard_ns + rules.map_or(0, |rules| rules.idle_timeout_ns);
        self.over_since_ns(session).map_or(silent_ns, |since_ns| {
            // What is over may end sooner, never later.
            silent_ns.min(session.heard_ns.max(since_ns) + LINGER_NS)
        })
    }

    /// Neither its player nor its server is told: they speak only to each other. An agent is.
    fn end_like(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        let claim = self.release(turn, index, ending);
        turn.common.claims.leave(&claim);
    }
}

impl UnrealFront {
    /// Takes fresh secrets for cookies, as asked for by [`Request::CookieSecrets`].
    pub(crate) fn renew_cookies(&mut self, common: &Common, now: Now, secrets: [CookieSecret; 2]) {
        let draw = self.random.next();
        common.claims.cookies().renew(now.mono_ns, secrets, draw, common.setup.claim_limits());
    }

    const fn is_served(&self) -> bool {
        self.has_servers
    }

    /// The worker that notices first that the secrets are old asks for fresh ones. Where several
    /// do, those that come first are used.
    fn ask_for_secrets(&mut self, turn: &mut Turn<'_>) {
        let asked = self.asked_for_secrets_ns;
        let has_asked = asked.is_some_and(|at_ns| turn.now.mono_ns < at_ns + ASK_NS);
        if turn.common.claims.cookies().is_due(turn.now.mono_ns) && !has_asked {
            self.asked_for_secrets_ns = Some(turn.now.mono_ns);
            turn.common.requests.push_back(Request::CookieSecrets);
        }
    }

    /// Since when an open session is over, as it seems: its connection was closed, its server has
    /// travelled, or that has died and another one is in its place. None of this is certain enough
    /// to end a session whose player still speaks.
    pub(crate) fn over_since_ns(&self, session: &Session) -> Option<u64> {
        if session.is_opening() {
            return None;
        }
        let backend = session.claim.backend;
        session.closed_ns().or_else(|| self.outdated_since_ns(backend, session))
    }
}

/// Silence after which a session ends that seems to be over. Engines send something every 0.2 s.
const LINGER_NS: u64 = 3_000_000_000;

/// Secrets that were asked for and have not come are asked for again.
const ASK_NS: u64 = 1_000_000_000;
