//! Two gateways that share an address: a datagram goes to its session, at whichever it arrives.

mod agent;
mod deaths;
mod delivery;
mod moves;
mod netcode;
mod overs;
mod plain;
mod sleeps;
mod takeover;
mod unanswered;
mod unreal;
mod world;

use std::sync::Arc;

use super::rig::{Fleet, Rig};
use crate::ids::{MemberId, WorkerId};
use crate::mail::{ForwardedDatagram, Mail};
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::shared::whereabouts::{PARTS, Whereabouts};
use ringgate_batch::Endpoint;

/// What each knows the other by.
const OTHER: [MemberId; 2] = [MemberId(5), MemberId(63)];

/// The gateways, and the trunk between them.
struct Pair {
    fleets: [Fleet; 2],
    /// Of the processes that the trunk is between.
    met: [Option<Arc<Whereabouts>>; 2],
}

impl Pair {
    fn new(mut setup: Setup, workers: u16) -> Self {
        setup.cluster = Some("fra".into());
        let mut pair = Self::of(Fleet::several(&setup, workers).map(|fleet| fleet.rigs));
        pair.tell();
        pair
    }

    /// Of these workers of each.
    fn of(workers: [Vec<Rig>; 2]) -> Self {
        Self { fleets: workers.map(|rigs| Fleet { rigs }), met: [None, None] }
    }

    /// Keeps their processes: where a test is about what a process remembers for a moment.
    fn stay(&self) -> [Arc<Claims>; 2] {
        [0, 1].map(|at| Arc::clone(self.fleets[at].rigs[0].host.gate().claims()))
    }

    /// The first worker of one of them.
    fn rig(&mut self, at: usize) -> &mut Rig {
        &mut self.fleets[at].rigs[0]
    }

    fn whereabouts(&self, at: usize) -> Arc<Whereabouts> {
        let claims = &self.fleets[at].rigs[0].host.gate().common.claims;
        Arc::clone(claims.whereabouts().expect("a cluster"))
    }

    /// A datagram arrives at one of them, and all goes on that follows from it.
    fn arrive(&mut self, at: usize, from: Endpoint, bytes: &[u8]) {
        self.rig(at).deliver(from, bytes);
        self.carry();
    }

    /// Lets everything go on until nothing is under way.
    fn carry(&mut self) {
        loop {
            self.fleets.iter_mut().for_each(Fleet::deliver_mail);
            self.tell();
            let carried = self.carry_one_way(0) + self.carry_one_way(1);
            if carried == 0 {
                break;
            }
        }
    }

    fn take_departures(&mut self, from: usize) -> Vec<ForwardedDatagram> {
        let rigs = self.fleets[from].rigs.iter_mut();
        let all: Vec<_> = rigs.flat_map(|rig| rig.host.take_for_members()).collect();
        assert!(all.iter().all(|(to, _)| *to == OTHER[from]));
        all.into_iter().map(|(_, datagram)| datagram).collect()
    }

    fn carry_one_way(&mut self, from: usize) -> usize {
        let departures = self.take_departures(from);
        for datagram in &departures {
            land(&mut self.fleets[1 - from].rigs, OTHER[1 - from], datagram);
        }
        departures.len()
    }

    /// Each tells the other who has come and gone.
    fn tell(&mut self) {
        for at in [0, 1] {
            let whereabouts = self.whereabouts(at);
            if self.met[at].as_ref().is_none_or(|met| !Arc::ptr_eq(met, &whereabouts)) {
                self.meet(at, whereabouts);
            }
        }
        let [one, other] = [0, 1].map(|at| self.whereabouts(at));
        for (of, to, member) in [(&one, &other, OTHER[1]), (&other, &one, OTHER[0])] {
            let now_ns = self.fleets[0].rigs[0].now.mono_ns;
            of.take_changes(usize::MAX, |address, news| {
                if news.is_here() {
                    assert!(to.learn(&address, member, now_ns).is_ok());
                } else {
                    to.unlearn(&address, member);
                }
            });
        }
    }

    /// A process has come, perhaps in the place of another one.
    fn meet(&mut self, at: usize, new: Arc<Whereabouts>) {
        let (other, now_ns) = (self.whereabouts(1 - at), self.rig(at).now.mono_ns);
        other.forget(OTHER[1 - at]);
        new.forget(OTHER[at]);
        for (of, to, member) in [(&new, &other, OTHER[1 - at]), (&other, &new, OTHER[at])] {
            let all = (0..PARTS).flat_map(|part| of.own_part(part));
            all.for_each(|address| assert!(to.learn(&address, member, now_ns).is_ok()));
        }
        self.met[at] = Some(new);
    }

    /// Each tells the other what it has accepted in a quarter of a second.
    fn say_accepted(&mut self) {
        for at in [0, 1] {
            let (to, now_ns) = (self.whereabouts(1 - at), self.rig(at).now.mono_ns);
            self.whereabouts(at).take_accepted(|address, count, members| {
                assert!(members.iter().eq([OTHER[at]]));
                to.learn_accepted(&address, OTHER[1 - at], 4 * count, now_ns);
            });
        }
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            for rig in self.fleets.iter_mut().flat_map(|fleet| &mut fleet.rigs) {
                rig.jump(10);
                rig.turn();
            }
            self.carry();
            if (self.rig(0).now.mono_ns / 10_000_000).is_multiple_of(25) {
                self.say_accepted();
            }
        }
    }

    fn forwarded(&self, from: usize) -> u64 {
        self.fleets[from].rigs.iter().map(|rig| rig.counters().members_out).sum()
    }

    fn sessions(&self) -> [usize; 2] {
        [0, 1].map(|at| self.fleets[at].rigs.iter().map(Rig::sessions).sum())
    }
}

/// A worker that has nothing but what it was told.
const SECOND: WorkerId = WorkerId(1);

/// A datagram comes over the trunk from a member, and the workers that may have its player take it.
fn land(rigs: &mut [Rig], from: MemberId, datagram: &ForwardedDatagram) {
    let (address, workers) = (*datagram.address(), rigs.len() as u16);
    let takers = rigs[0].host.gate().claims().takers(&address, datagram.is_lost(), workers);
    for worker in takers.iter() {
        let datagram = ForwardedDatagram::of_member(
            (from, worker),
            address,
            (datagram.bind(), datagram.local()),
            datagram.is_lost(),
            datagram.bytes(),
        );
        let rig = &mut rigs[worker.index()];
        rig.mail(Mail::Datagram(datagram.expect("it was received")));
        rig.turn();
    }
}
