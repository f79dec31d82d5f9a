//! Listeners that close while others play on, and numbers that become another listener's.
//!
//! The control thread closes a listener when no worker has a session of it any more, so there is
//! little to do here: unfinished handshakes and half-open sessions go, then the sockets. Should
//! there be sessions all the same, they end too, because their sockets do.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::face::{Fronts, ask};
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::ids::ListenerId;
use crate::listeners::ListenerState;
use crate::party::Party;
use crate::setup::{Listener, Phase, Setup};
use crate::store::table::Address;
use crate::turn::Turn;

impl Fronts {
    /// Closes what a setup, which is about to be taken in, says is closed, and forgets what was
    /// known of numbers that mean another listener from now on.
    pub(crate) fn turn_over(&mut self, turn: &mut Turn<'_>, setup: &Setup) {
        for listener in turn.common.listeners.ids() {
            let before = turn.common.setup.listeners[listener].phase;
            let after = &setup.listeners[listener];
            match (before, after.phase) {
                (Phase::Serving | Phase::Draining, Phase::Closed) => self.close(turn, listener),
                (Phase::Closed, Phase::Serving | Phase::Draining) => {
                    self.begin_anew(turn, listener, after);
                }
                _ => {}
            }
        }
    }

    fn close(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        if turn.common.claims.sessions(listener) > 0 {
            self.end_listener(turn, listener);
        }
        ask!(every self, .close_listener(turn, listener));
        turn.common.close_listener(listener);
    }

    /// Ends every session of a listener.
    fn end_listener(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        let of_it = |address: &Address| address.listener == listener;
        ask!(every self, .end_all(turn, Ended::ByOperator, of_it));
    }

    fn begin_anew(&mut self, turn: &mut Turn<'_>, number: ListenerId, listener: &Listener) {
        let state = &mut turn.common.listeners[number];
        let before = std::mem::replace(state, ListenerState::new(listener));
        if Party::of(number) == Party::OTHERS {
            // What several are counted together never falls.
            state.drops = before.drops;
        }
        turn.common.captures.forget_homes(number);
        ask!(every self, .begin_listener(number, listener, turn.now.mono_ns));
    }
}

impl Common {
    /// Gives up a listener's sockets, and what is known of its players at other workers.
    fn close_listener(&mut self, listener: ListenerId) {
        let sockets = std::mem::take(&mut self.listeners[listener].sockets);
        for socket in &sockets {
            self.close_socket(*socket);
        }
        self.neighbours.steered.retain(|(of, _), _| *of != listener);
    }
}
