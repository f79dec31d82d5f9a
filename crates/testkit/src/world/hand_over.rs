//! The gateway is handed over to another process now and then: written ahead for a while, then all
//! workers come to rest, and others go on. Some hand-overs fail, and the old ones go on after all.

use std::sync::Arc;

use super::state::World;
use crate::hand_over::UnderWay;
use crate::rehearsal::{Rehearsal, Succession};
use ringgate_gate::Gate;
use ringgate_gate::handover::Refused;

impl World {
    /// Begins a hand-over, goes on with one, or ends it.
    pub(super) fn hand_over_now_and_then(&mut self) {
        if !self.hand_over.is_planned {
            return;
        }
        let Some(mut under_way) = self.hand_over.under_way.take() else {
            // As a control thread does, it opens a listener's sockets before it hands over.
            let may_begin = self.turnover.opened.is_empty();
            if may_begin && self.hand_over.random.chance(BEGINS_PER_MILLE) {
                let rehearsal = Rehearsal::new(self.workers.len(), WINDOW_BYTES);
                let steps_left = self.hand_over.random.within(0..30);
                self.hand_over.under_way = Some(UnderWay { rehearsal, steps_left });
            }
            return;
        };
        if under_way.steps_left > 0 {
            under_way.steps_left -= 1;
            let places = self.hand_over.random.within(0..8) as u32;
            let written = under_way.rehearsal.ahead(&self.gates(), places);
            if is_reloaded(&written) {
                return;
            }
            self.outside.judge.require(written.is_ok(), || format!("{written:?}"));
            self.hand_over.under_way = Some(under_way);
            return;
        }
        self.bring_mail_to_rest();
        self.end_hand_over(under_way.rehearsal);
    }

    fn gates(&self) -> Vec<&Gate> {
        self.workers.iter().map(|worker| worker.host.gate()).collect()
    }

    /// No mail is handed over, so workers turn until there is none.
    fn bring_mail_to_rest(&mut self) {
        while let Some(at) = self.workers.iter().position(|worker| worker.host.mail_count() > 0) {
            self.run_worker(at);
        }
    }

    fn end_hand_over(&mut self, rehearsal: Rehearsal) {
        let (gates, now) = (self.gates(), self.gate_now());
        let before: usize = gates.iter().map(|gate| gate.session_count()).sum();
        let setup = Arc::new(gates[0].setup().clone());
        let Succession { gates, claims, arrived } = match rehearsal.finish(&gates, &setup, now) {
            Ok(succession) => succession,
            Err(why) if is_reloaded(&Err::<(), _>(why.clone())) => return,
            Err(why) => return self.outside.judge.require(false, || why),
        };
        self.outside.judge.require(arrived.sessions == before && arrived.not_carried == 0, || {
            format!("{before} sessions were handed over: {arrived:?}")
        });
        if self.hand_over.random.chance(FAILS_PER_MILLE) {
            // The successor is gone before its first turn.
            for worker in &mut self.workers {
                worker.host.gate_mut().resume_after_failed_hand_over();
            }
            return;
        }
        for (worker, gate) in self.workers.iter_mut().zip(gates) {
            *worker.host.gate_mut() = gate;
        }
        self.claims = claims;
        self.hand_over.count += 1;
    }
}

/// Whether a reload has come in between, so that the hand-over has to be begun anew.
fn is_reloaded<T>(written: &Result<T, String>) -> bool {
    let why = written.as_ref().err();
    why.is_some_and(|why| *why == Refused::Reloaded.to_string())
}

/// About once in a quarter of a second.
const BEGINS_PER_MILLE: u32 = 20;

const FAILS_PER_MILLE: u32 = 300;

/// So small that every hand-over has several parts.
const WINDOW_BYTES: usize = 4096;
