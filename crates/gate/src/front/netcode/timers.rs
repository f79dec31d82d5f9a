//! What happens because time passes: keep-alives, timeouts, backends given up, handshakes
//! forgotten.

use crate::common::Common;
use crate::counters::{Ended, Ending};
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::timers::look_after_cluster;
use crate::front::netcode::listener::ListenerRules;
use crate::front::netcode::session::{OPENING_LINES, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::ids::ListenerId;
use crate::info::SessionInfo;
use crate::links::loopback::{is_shared_socket_backend, loopback_of};
use crate::links::players::PlayerOf;
use crate::sessions::Sessions;
use crate::setup::{LinkKind, Listener, Setup};
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_cluster::{PacketNumber, Tenure, Term};
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::timing::{DISCONNECT_COUNT, SEND_INTERVAL_NS};

impl Rules for NetcodeFront {
    type Session = Session;

    const HAS_IDS: bool = true;

    fn sessions(&self) -> &Sessions<Session> {
        &self.sessions
    }

    fn sessions_mut(&mut self) -> &mut Sessions<Session> {
        &mut self.sessions
    }

    fn info(&self, common: &Common, index: Entry<Session>) -> Option<SessionInfo> {
        let session = self.sessions.get(index)?;
        let address = self.sessions.address(index);
        let is_shared = match &common.setup.backends[session.backend].link {
            LinkKind::Udp { address } => is_shared_socket_backend(address),
            LinkKind::Bundle { .. } => false,
        };
        Some(SessionInfo {
            id: self.sessions.id(index).as_u64(),
            client_id: session.client_id,
            listener: address.listener,
            address: address.endpoint,
            backend: session.backend,
            slot: session.slot,
            link_address: if is_shared { loopback_of(index) } else { None },
            heard_ns: session.last_receive_ns,
            timeout_ns: session.timeout_ns(),
        })
    }

    /// In a session or in a handshake.
    fn client_at(&self, address: &Address) -> Option<u64> {
        self.player_at(address)
    }

    fn counts(&self) -> (usize, usize) {
        (self.sessions.len(), self.pending.len())
    }

    fn reclaim(&mut self, now_ns: u64) {
        self.sessions.reclaim(now_ns);
        self.pending.reclaim(now_ns);
    }

    fn adopt(&mut self, setup: &Setup, _now_ns: u64) {
        for listener in setup.listeners.iter().skip(self.listeners.len()) {
            self.listeners.push(ListenerRules::new(listener));
        }
        for (rules, listener) in self.listeners.iter_mut().zip(&setup.listeners) {
            rules.adopt(listener);
        }
    }

    fn begin_listener(&mut self, number: ListenerId, listener: &Listener, _now_ns: u64) {
        self.listeners[number] = ListenerRules::new(listener);
    }

    /// Forgets its unfinished handshakes.
    fn close_listener(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        for at in self.pending.entries() {
            if self.pending.is_live(at) && self.pending.address(at).listener == listener {
                self.forget_pending(turn, at);
            }
        }
    }

    fn due_ns(&self, common: &Common) -> u64 {
        let socket_ns = self.session_sockets.due_ns().unwrap_or(u64::MAX);
        let sweep_ns = if self.pending.len() > 0 { self.sweep.due_ns() } else { u64::MAX };
        let alarm_ns = self.connections.alarms.next_due().unwrap_or(u64::MAX);
        let move_ns = common.moves.due_ns();
        let unkept_ns = self.sessions.clusters.due_ns();
        let other_ns = socket_ns.min(sweep_ns).min(alarm_ns).min(move_ns).min(unkept_ns);
        self.sessions.due_ns().min(other_ns)
    }

    fn handle_other_timers(&mut self, turn: &mut Turn<'_>) {
        self.sweep_pending(turn);
        look_after_cluster(self, turn);
        self.handle_session_sockets(turn);
        self.look_after_moves(turn);
        self.look_after_connections(turn);
    }

    fn fetch_session(&self, index: Entry<Session>) {
        self.sessions.prefetch(index, OPENING_LINES);
        self.fetch_player(index);
    }

    /// A player who may be in one place of the fleet only goes on here.
    fn note_carried(&self, common: &Common, entry: Entry<Session>) {
        let listener = self.sessions.address(entry).listener;
        let rules = common.setup.listeners[listener].netcode();
        let group = rules.and_then(|rules| rules.unique_in.as_ref());
        if let Some((players, group)) = common.setup.fleet_players.as_ref().zip(group) {
            let clustered = self.sessions.clusters.get(entry);
            let begun = clustered.map_or((0, 0), |it| (it.since_s, it.tenure.term.get()));
            let player = (group, self.sessions.at(entry).client_id);
            players.goes_on(player, self.sessions.id(entry), begun);
        }
    }

    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.sessions.is_live(index) || self.look_after_unsure(turn, index) {
            return;
        }
        let session = self.sessions.at(index);
        let backend = session.backend;
        if session.is_timed_out(turn.now.mono_ns) {
            return self.end(turn, index, Ended::TimedOut);
        }
        if has_used_up(turn.common, session) {
            return self.end(turn, index, Ended::NumbersUsedUp);
        }
        let is_delivered = self.connections.has(index);
        let needs_backend = !is_delivered || !self.is_lingering(index);
        if needs_backend
            && (turn.common.is_lost(backend, turn.now)
                || is_delivered && self.has_lost_its_link(turn, index)
                || self.has_lost_its_agent(turn.common, index))
        {
            return self.end(turn, index, Ended::BackendGone);
        }
        if session.keep_alive_at_ns(self.keep_alive_ns(turn.common, index)) <= turn.now.mono_ns {
            if is_delivered && session.is_confirmed() {
                // Its connection has a heartbeat.
                self.connections.touch(index);
            } else {
                self.keep_alive(turn, index);
            }
        }
        if needs_backend {
            self.announce(turn, index);
        }
        self.arm(turn, index);
    }

    fn deadline_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        self.sessions.at(index).deadline_ns(self.keep_alive_ns(common, index))
    }

    fn end_when_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        self.end_once_sure(turn, index, ending);
    }

    /// Tells the player where that makes sense, tells the backend, gives everything back.
    fn end_like(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        // The player who leaves knows, and one who has fallen silent is not told either, as in the
        // reference.
        let Ending { why, reason } = ending;
        let is_silent = matches!(why, Ended::ByPlayer | Ended::Fenced | Ended::TimedOut);
        if !is_silent && !self.is_unsure(index) {
            for _ in 0..DISCONNECT_COUNT {
                let _ = self.emit(turn, index, PacketKind::Disconnect, &[]);
            }
        }
        if self.connections.has(index) {
            self.close_connection(turn, index);
        }
        let session = self.sessions.at(index);
        let player = PlayerOf { backend: session.backend, session: self.sessions.id(index) };
        // The game process goes on with it.
        if why != Ended::Fenced {
            turn.report_closed(player, session.announced, reason);
        }
        self.drop_session(turn, index, why);
    }
}

impl NetcodeFront {
    /// A player who does not know yet that it is connected hears it when its socket is there.
    fn keep_alive(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.sessions.at(index).is_confirmed() && self.lacks_socket(turn, index) {
            self.sessions.at_mut(index).last_send_ns = turn.now.mono_ns;
        } else {
            self.emit_keep_alive(turn, index);
        }
    }

    /// Has a session looked at again when it needs to be.
    pub(crate) fn arm(&mut self, turn: &Turn<'_>, index: Entry<Session>) {
        let deadline_ns = self.deadline_ns(turn.common, index);
        self.sessions.arm(index, deadline_ns);
    }

    pub(crate) fn keep_alive_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        let listener = self.sessions.address(index).listener;
        let rules = common.setup.listeners[listener].netcode();
        let every_ns = rules.map_or(SEND_INTERVAL_NS, |rules| rules.keep_alive_ns);
        // An agent says so first, where it delivers.
        let waits = self.is_delivered_by_agent(index);
        if waits { every_ns + every_ns / 4 } else { every_ns }
    }

    /// Looks at a few unfinished handshakes, so that those that were never answered give their
    /// memory back.
    fn sweep_pending(&mut self, turn: &mut Turn<'_>) {
        let places = if self.pending.len() == 0 { 0 } else { self.pending.places() };
        for _ in 0..self.sweep.take_due(places, turn.now.mono_ns) {
            self.sweep.at = (self.sweep.at + 1) % places;
            let at = Entry::numbered(self.sweep.at);
            if self.pending.get(at).is_some_and(|pending| pending.expire_ns < turn.now.mono_ns) {
                self.forget_pending(turn, at);
            }
        }
    }
}

/// Whether a session has come near the end of its tenure's numbers. It is looked at far more often
/// than it can send those that are left.
fn has_used_up(common: &Common, session: &Session) -> bool {
    let process = common.claims.standbys().and_then(|standbys| standbys.incarnation());
    let Some(process) = process else { return false };
    // Where there was no term for it, it has none.
    let Some(next) = PacketNumber::new(session.next_sequence.peek()) else { return true };
    let Tenure { term, incarnation } = next.tenure();
    let left = PacketNumber::COUNTS - next.count();
    term != Term::NONE && incarnation == process && left < NUMBERS_LEFT
}

const NUMBERS_LEFT: u64 = 1 << 30;
