//! What happens because time passes: repeats, silence, servers that never answered, fresh secrets.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::unreal::datagrams::rules_of;
use crate::front::unreal::opening::OPENING_NS;
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::mail::Request;
use crate::now::Now;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::secret::CookieSecret;

impl UnrealFront {
    /// Takes fresh secrets for cookies, as asked for by [`Request::CookieSecrets`].
    pub(crate) fn renew_cookies(&mut self, common: &Common, now: Now, secrets: [CookieSecret; 2]) {
        let draw = self.random.next();
        common.claims.cookies().renew(now.mono_ns, secrets, draw, common.setup.claim_limits());
    }

    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        if !self.is_served() {
            return;
        }
        self.ask_for_secrets(turn);
        while let Some(index) = self.wheel.pop_due(turn.now.mono_ns) {
            self.wake(turn, index);
        }
        self.arm_some(turn.common, turn.now.mono_ns);
        self.probe_servers(turn);
    }

    /// Arms the next few of those who have come from another process.
    pub(crate) fn arm_some(&mut self, common: &Common, now_ns: u64) {
        for index in self.unarmed.take_some().map(Entry::numbered) {
            let Some(session) = self.sessions.get(index) else { continue };
            let due_ns = match &session.stage {
                Stage::Opening(opening) => opening.client.poll_timeout(),
                Stage::Open { .. } => self.deadline_ns(common, index).ok(),
            };
            self.wheel.arm_among_many(index, due_ns.unwrap_or(now_ns));
        }
    }

    /// When the Unreal side wants to be called again.
    pub(crate) fn due_ns(&self, common: &Common) -> Option<u64> {
        if !self.is_served() {
            return None;
        }
        let asked_again_ns = self.asked_for_secrets_ns.map_or(0, |at_ns| at_ns + ASK_NS);
        let secrets_ns = common.claims.cookies().due_ns().max(asked_again_ns);
        let rest_ns = self.next_probe_ns.min(secrets_ns).min(self.unarmed.due_ns());
        Some(self.wheel.next_due().map_or(rest_ns, |wake_ns| wake_ns.min(rest_ns)))
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

    /// Looks after one session and arms it again.
    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let Some(session) = self.sessions.get(index) else { return };
        let backend = session.claim.backend;
        if let Stage::Opening(opening) = &session.stage {
            if turn.now.mono_ns >= opening.since_ns + OPENING_NS {
                return self.end_session(turn, index, Ended::BackendGone);
            }
            return self.ask_server(turn, index);
        }
        let Ok(deadline_ns) = self.deadline_ns(turn.common, index) else { return };
        if turn.now.mono_ns >= deadline_ns {
            return self.end_session(turn, index, Ended::TimedOut);
        }
        if turn.common.links.backends[backend]
            .is_lost(&turn.common.setup.backends[backend], turn.now.mono_ns)
        {
            return self.end_session(turn, index, Ended::BackendGone);
        }
        self.wheel.arm(index, deadline_ns);
    }

    /// When an open session ends, if its player stays silent.
    pub(crate) fn deadline_ns(
        &self,
        common: &Common,
        index: Entry<Session>,
    ) -> Result<u64, DropReason> {
        let session = self.sessions.at(index);
        let rules = rules_of(common, self.sessions.address(index).listener)?;
        let silent_ns = session.heard_ns + rules.idle_timeout_ns;
        Ok(self.over_since_ns(session).map_or(silent_ns, |since_ns| {
            // What is over may end sooner, never later.
            silent_ns.min(session.heard_ns.max(since_ns) + LINGER_NS)
        }))
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

    /// Ends every session.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        self.end_all(turn, Ended::Shutdown, |_| true);
    }

    /// Ends every session at such an address.
    pub(crate) fn end_all(
        &mut self,
        turn: &mut Turn<'_>,
        why: Ended,
        is_meant: impl Fn(&Address) -> bool,
    ) {
        for index in self.sessions.entries() {
            if self.sessions.is_live(index) && is_meant(self.sessions.address(index)) {
                self.end_session(turn, index, why);
            }
        }
    }
}

/// Silence after which a session ends that seems to be over. Engines send something every 0.2 s.
const LINGER_NS: u64 = 3_000_000_000;

/// Secrets that were asked for and have not come are asked for again.
const ASK_NS: u64 = 1_000_000_000;
