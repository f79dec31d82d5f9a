//! Listeners that come and go in a simulated world, while the other ones are played on.

use super::state::{Role, World};
use super::turnover::Turnover;
use ringgate_gate::{BindId, Listener, ListenerId, Mail, Phase};
use std::sync::Arc;

impl World {
    /// A listener of netcode players goes one step further in its life, now and then.
    pub(super) fn turn_listeners(&mut self) {
        for listener in std::mem::take(&mut self.turnover.opened) {
            self.open_sockets(listener);
        }
        let is_over = self.now_ns >= self.plan.lasts_ns;
        let Turnover { setup, listeners, random, opened } = &mut self.turnover;
        if !self.plan.turnover || is_over || !random.chance(8) {
            return;
        }
        let number = ListenerId::at(random.within(0..self.plan.listeners as u64) as usize);
        let listener = &mut setup.listeners[number];
        *listener = match listener.phase {
            Phase::Serving => Listener { phase: Phase::Draining, ..listener.clone() },
            Phase::Draining if random.chance(300) => listeners[number].clone(),
            Phase::Draining => listener.closed(),
            Phase::Closed => {
                opened.push(number);
                listeners[number].clone()
            }
        };
        setup.revision += 1;
        let setup = Arc::new(setup.clone());
        for worker in &mut self.workers {
            worker.host.post(Mail::Setup(Arc::clone(&setup)));
        }
    }

    fn open_sockets(&mut self, listener: ListenerId) {
        for (at, worker) in self.workers.iter_mut().enumerate() {
            for bind in [0, 1].map(BindId) {
                let socket = worker.open_socket();
                worker.host.gate_mut().bind_player_socket(socket, listener, bind);
                self.outside.roles.insert((at, socket), Role::Player { listener, bind });
                self.outside.player_sockets.insert((at, listener, bind), socket);
            }
        }
    }
}
