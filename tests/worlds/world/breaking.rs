//! How a world breaks a rule.

use super::World;
use crate::breaks::Break;

impl World {
    /// A rule does not hold here.
    pub(crate) fn breaking(mut self, broken: Break) -> Self {
        self.broken = Some(broken);
        self.etcd.lock().keeps_leases = broken == Break::LeasesLast;
        for gateway in &mut self.gateways {
            gateway.forgets_questions = broken == Break::QuestionsForgotten;
            if broken == Break::BlocksSmall {
                gateway.file.listeners[0].limits.sessions_per_block = 1;
            }
        }
        for server in &mut self.servers {
            server.is_deaf_to_moves = broken == Break::MovedUnheard;
            if broken == Break::SlotsOverstated {
                server.slots = 1;
            }
        }
        self
    }

    pub(super) fn break_rules(&mut self) {
        let broken = self.broken;
        if broken == Some(Break::TokensForgotten) {
            self.etcd.lock().store.delete_below("/f/claim/token/");
        }
        if broken == Some(Break::QuestionsForgotten) && self.one_in(100) {
            let at = self.any(self.gateways.len());
            self.upgrade(at);
        }
    }
}
