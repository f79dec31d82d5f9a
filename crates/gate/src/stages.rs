//! A turn from its beginning to its end: mail, events, datagrams, what waits, timers.

use std::sync::Arc;

use crate::front::cluster::doubt::Doubting;
use crate::front::face::Fronts;
use crate::mail::Mail;
use crate::now::NS_PER_MS;
use crate::roles::Role;
use crate::setup::Setup;
use crate::survey::Running;
use crate::turn::Turn;
use ringgate_batch::{IoEvent, RxBatch};

impl Fronts {
    /// One turn over everything that has arrived. What leaves has been handed to the driver
    /// when this returns.
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        turn.begin();
        self.notice_sleep(turn);
        for &event in &rx.events {
            self.handle_event(turn, event);
        }
        self.classify(turn, rx);
        self.open(turn, rx);
        self.step(turn, rx);
        turn.common.give_up_broken_links(turn.now);
        turn.serve_backlogs(self);
        turn.common.give_up_broken_links(turn.now);
        for &event in &rx.events {
            self.handle_closed(turn, event);
        }
        self.handle_timers(turn);
        self.serve_surveys(turn);
        turn.probe_backends();
        turn.close_unidentified_links();
        turn.common.give_up_broken_links(turn.now);
        self.finish(turn);
    }

    /// Takes a message in. To be called before [`turn`](Self::turn), which sends what follows from
    /// it.
    pub(crate) fn handle_mail(&mut self, turn: &mut Turn<'_>, mail: Mail) {
        turn.begin();
        self.notice_sleep(turn);
        match mail {
            Mail::Capture(capture) => turn.common.captures.join(turn.common.worker.id, capture),
            Mail::Datagram(datagram) => self.handle_forwarded(turn, datagram),
            Mail::Offered(offered) => self.handle_offered(turn, offered),
            Mail::Drain { left_ms } => turn.drain(left_ms),
            Mail::Listening(news) => {
                if turn.common.note_listening(turn.now, news) {
                    self.lose_server(turn, news.backend);
                }
            }
            Mail::Move(orders) => self.obey_moves(turn, &orders),
            Mail::Oust(sessions) => self.netcode.oust(turn, &sessions),
            Mail::Rival(rivalry) => self.netcode.meet_rival(turn, rivalry),
            Mail::Setup(setup) => {
                self.forget_replaced(turn, &setup);
                self.turn_over(turn, &setup);
                self.adopt(&setup, turn.now.mono_ns);
                let before = Arc::clone(&turn.common.setup);
                turn.common.adopt(setup, turn.now.mono_ns);
                turn.close_disallowed_links();
                turn.tell_other_waits(&before);
            }
            Mail::Steer(steering) => turn.common.steer(steering),
            Mail::Stop => {
                turn.common.life.draining_until_ns.get_or_insert(turn.now.mono_ns);
                self.stop(turn);
                turn.stop();
            }
            Mail::Survey(survey) => turn.common.surveys.push(Running::new(survey)),
            Mail::Trace(trace) => turn.common.taps.watch(trace, turn.now.mono_ns),
            Mail::Undrain => turn.undrain(),
            Mail::Unsteer(steering) => self.unsteer(turn, &steering),
        }
        turn.common.give_up_broken_links(turn.now);
    }

    /// Forgets what is known of backends whose number is another's from now on. They have no
    /// players: a number is given away only then.
    fn forget_replaced(&mut self, turn: &mut Turn<'_>, setup: &Setup) {
        for backend in turn.common.links.backends.ids() {
            if setup.backends[backend].is_same(&turn.common.setup.backends[backend]) {
                continue;
            }
            turn.common.forget_replaced(turn.now, backend, &setup.backends[backend]);
            self.forget_server(backend);
        }
    }

    /// Before anything else in a turn.
    fn notice_sleep(&mut self, turn: &mut Turn<'_>) {
        self.netcode.notice_sleep(turn);
        self.plain.notice_sleep(turn);
        self.unreal.notice_sleep(turn);
    }

    fn handle_event(&mut self, turn: &mut Turn<'_>, event: IoEvent) {
        match event {
            // What the process has sent before is read first; its link is given up afterwards.
            IoEvent::Closed { socket } => {
                if let Role::Link(link) = turn.common.roles.of(socket) {
                    turn.common.mark_ended(link);
                }
            }
            IoEvent::Unreachable { socket, peer } => self.lose_udp_backend(turn, socket, &peer),
            // The body has called `handle_link_accepted`; a bell only ends the wait.
            IoEvent::Accepted { .. } | IoEvent::Woken => {}
        }
    }

    /// Gives up a socket that has ended, after everything that had arrived on it.
    fn handle_closed(&mut self, turn: &mut Turn<'_>, event: IoEvent) {
        let IoEvent::Closed { socket } = event else { return };
        let common = &mut *turn.common;
        match common.roles.of(socket) {
            // What the process has sent before is still being read.
            Role::Link(link) if common.links.get_mut(link).is_some_and(|link| link.is_held) => {}
            Role::Link(link) => common.lose_link(turn.now, link),
            Role::SessionLink(place) => {
                common.close_socket(socket);
                self.netcode.lose_session_socket(place);
            }
            Role::LinkListener | Role::Player { .. } | Role::UdpLink | Role::Vacant => {}
        }
    }

    /// Ends the turn: submits, and gives up the places of what was removed.
    fn finish(&mut self, turn: &mut Turn<'_>) {
        turn.submit();
        turn.common.give_up_broken_links(turn.now);
        turn.common.sealing.wipe_expired();
        self.reclaim(turn);
        turn.common.life.in_turn = false;
        turn.common.life.turned_ns = turn.now.mono_ns;
    }
}

impl Turn<'_> {
    /// Starts a turn, if the turn's mail has not done so.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.common.life.in_turn, true) {
            self.common.stamps.clear();
            self.common.captures.begin(self.common.worker.id, self.now.mono_ns);
            self.common.renew_allowances();
            self.common.taps.begin(self.now.mono_ns);
            self.flush_deferred();
            if let Some(generation) = self.common.life.taken_over.take() {
                self.tell_taken_over(generation);
            }
        }
    }

    /// Takes no new players in and tells the backends.
    fn drain(&mut self, left_ms: u32) {
        let until_ns = self.now.mono_ns + u64::from(left_ms) * NS_PER_MS;
        self.common.life.draining_until_ns = Some(until_ns);
        self.common.moves.doubt();
        for link in self.common.links.all.ids() {
            self.tell_draining(link);
        }
    }

    /// Takes players in again and tells the backends.
    fn undrain(&mut self) {
        if self.common.life.draining_until_ns.take().is_some() {
            self.tell_undrained();
        }
    }

    /// Says goodbye to the game processes: the gateway is about to go.
    fn stop(&mut self) {
        self.common.drop_backlogs();
        self.say_goodbye();
        self.common.life.stopped = true;
    }
}
