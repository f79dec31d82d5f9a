//! A turn from its beginning to its end: mail, events, datagrams, what waits, timers.

use crate::gate::Gate;
use crate::mail::{Mail, Request};
use crate::roles::Role;
use crate::turn::{Now, Turn};
use ringgate_batch::{IoEvent, RxBatch, SocketId};
use ringgate_link::bundle::SessionId;

impl Gate {
    /// One turn over everything that has arrived. What leaves has been handed to the driver
    /// when this returns.
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        let now = turn.now;
        self.begin(turn);
        for &event in &rx.events {
            self.handle_event(now, event);
        }
        self.classify(now, rx);
        self.open(rx);
        self.step(turn, rx);
        self.give_up_broken_links(now);
        self.serve_backlogs(turn);
        self.give_up_broken_links(now);
        for &event in &rx.events {
            self.handle_closed(now, event);
        }
        self.handle_timers(turn);
        self.give_up_broken_links(now);
        self.finish(turn);
    }

    /// Takes a message in. To be called before [`turn`](Self::turn), which sends what follows from
    /// it.
    pub(crate) fn handle_mail(&mut self, turn: &mut Turn<'_>, mail: Mail) {
        let now = turn.now;
        self.begin(turn);
        match mail {
            Mail::Datagram(datagram) => self.handle_forwarded(turn, datagram),
            Mail::Drain { left_ms } => self.drain(turn, left_ms),
            Mail::Listening(news) => self.note_listening(now, news),
            Mail::Setup(setup) => {
                self.forget_replaced(now, &setup);
                self.adopt(setup, now.mono_ns);
                self.close_disallowed_links(turn);
            }
            Mail::Steer(steering) => self.steer(steering),
            Mail::Stop => self.stop(turn),
            Mail::Unsteer(steering) => self.unsteer(now, &steering),
        }
        self.give_up_broken_links(now);
    }

    fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        self.handle_front_timers(turn);
        self.probe_backends(turn);
        self.close_unidentified_links(turn);
    }

    /// Takes no new players in and tells the backends.
    pub(crate) fn drain(&mut self, turn: &mut Turn<'_>, left_ms: u32) {
        self.life.draining_until_ns = Some(turn.now.mono_ns + u64::from(left_ms) * NS_PER_MS);
        for link in self.links.all.ids() {
            self.tell_draining(turn, link);
        }
    }

    /// Ends every session.
    fn stop(&mut self, turn: &mut Turn<'_>) {
        self.life.draining_until_ns.get_or_insert(turn.now.mono_ns);
        self.stop_fronts(turn);
        self.drop_backlogs();
        self.say_goodbye(turn);
        self.life.stopped = true;
    }

    /// Starts a turn, if the turn's mail has not done so.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.life.in_turn, true) {
            self.stamps.clear();
            self.renew_allowances();
            self.flush_deferred(turn);
        }
    }

    fn handle_event(&mut self, now: Now, event: IoEvent) {
        match event {
            // What the process has still said comes first; its link is given up afterwards.
            IoEvent::Closed { socket } => {
                if let Role::Link(link) = self.roles.of(socket) {
                    self.mark_hung_up(link);
                }
            }
            IoEvent::Unreachable { socket, peer } => self.lose_udp_backend(now, socket, &peer),
            // The body has called `handle_link_accepted`; a bell only ends the wait.
            IoEvent::Accepted { .. } | IoEvent::Woken => {}
        }
    }

    /// Gives up a socket that has ended, after everything that had arrived on it.
    fn handle_closed(&mut self, now: Now, event: IoEvent) {
        let IoEvent::Closed { socket } = event else { return };
        match self.roles.of(socket) {
            // What it has said before is heard to the end.
            Role::Link(link) if self.links.get_mut(link).is_some_and(|link| link.is_held) => {}
            Role::Link(link) => self.lose_link(now, link),
            Role::SessionLink(place) => {
                self.close_socket(socket);
                if let Some(index) = self.netcode.sessions.live(place) {
                    let session = self.netcode.sessions.at_mut(index);
                    session.uplink = None;
                    session.announced = 0;
                }
            }
            Role::LinkListener | Role::Player { .. } | Role::UdpLink | Role::Vacant => {}
        }
    }

    /// Forgets a socket and has the worker close it.
    pub(crate) fn close_socket(&mut self, socket: SocketId) {
        self.roles.assign(socket, Role::Vacant);
        self.requests.push_back(Request::CloseSocket(socket));
    }

    pub(crate) fn session_id(&self, index: u32) -> SessionId {
        let place = self.netcode.sessions.place(index);
        let generation = u64::from(place.generation);
        SessionId::new(usize::from(self.worker.index), generation << 32 | u64::from(index))
    }

    /// The live session that a link means.
    #[inline]
    pub(crate) fn session_index(&self, session: SessionId) -> Option<u32> {
        let index = session.as_u64() as u32;
        (self.netcode.sessions.is_live(index) && self.session_id(index) == session).then_some(index)
    }
}

const NS_PER_MS: u64 = 1_000_000;
