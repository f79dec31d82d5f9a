//! What goes wrong in a world, and how it is well again.

use super::World;
use crate::STEP_MS;
use crate::etcd::MEMBERS;
use crate::server::Server;

impl World {
    pub(super) fn one_in(&mut self, steps: u64) -> bool {
        self.random.within(0..steps) == 0
    }

    pub(super) fn any(&mut self, count: usize) -> usize {
        self.random.within(0..count as u64) as usize
    }

    pub(super) fn soon(&mut self, ms: u64) -> u64 {
        let wait_ms = self.random.within(0..ms);
        // Often at once, and seldom late.
        self.now_ms + if self.random.chance(500) { wait_ms / 20 } else { wait_ms }
    }

    pub(super) fn disturb(&mut self) {
        if self.weather.processes {
            self.disturb_processes();
        }
        if self.weather.etcd {
            self.disturb_etcd();
        }
        if self.weather.histories {
            self.disturb_histories();
        }
        if self.one_in(400) {
            self.confirm();
        }
        self.ban_or_lift();
        self.have_somebody_move();
    }

    /// Game processes and operators have players go over to others.
    pub(super) fn have_somebody_move(&mut self) {
        if self.one_in(40) {
            self.move_somebody();
        }
        if self.one_in(100) {
            self.order_fleet();
        }
        if self.one_in(50) {
            self.ask_again();
        }
    }

    pub(super) fn disturb_processes(&mut self) {
        let (gateways, services, servers) =
            (self.gateways.len(), self.services.len(), self.servers.len());
        if self.one_in(2500) {
            let (at, back_ms) = (self.any(gateways), self.soon(20_000));
            self.kill_gateway(at, back_ms);
        }
        if self.one_in(3000) {
            let (at, back_ms) = (self.any(gateways), self.soon(20_000));
            self.gateways[at].leave(self.now_ms);
            self.gateways[at].back_ms = back_ms;
            self.faults.left += 1;
        }
        if self.one_in(1000) {
            let at = self.any(gateways);
            self.upgrade(at);
        }
        if self.one_in(2500) {
            let (at, until_ms) = (self.any(gateways), self.soon(20_000));
            self.gateways[at].frozen_until_ms = until_ms;
            self.faults.frozen += 1;
        }
        if self.one_in(2000) {
            let (at, back_ms) = (self.any(services), self.soon(20_000));
            self.services[at].kill();
            self.services[at].back_ms = back_ms;
            self.faults.killed += 1;
        }
        if self.one_in(3000) {
            let (at, back_ms) = (self.any(services), self.soon(20_000));
            self.services[at].stop();
            self.services[at].back_ms = back_ms;
            self.faults.left += 1;
        }
        if self.one_in(3000) {
            let (at, until_ms) = (self.any(services), self.soon(20_000));
            self.services[at].frozen_until_ms = until_ms;
            self.faults.frozen += 1;
        }
        if self.one_in(1000) {
            let (at, until_ms) = (self.any(servers), self.soon(10_000));
            let gateway = self.servers[at].gateway;
            self.servers[at].die(&mut self.gateways[gateway], until_ms);
            self.faults.killed += 1;
        }
        if !self.udp.is_empty() && self.one_in(3000) {
            let (at, until_ms) = (self.any(self.udp.len()), self.soon(10_000));
            self.udp[at].die(until_ms);
            self.faults.killed += 1;
        }
    }

    pub(super) fn kill_gateway(&mut self, at: usize, back_ms: u64) {
        self.gateways[at].kill();
        self.gateways[at].back_ms = back_ms;
        self.gateways[at].frozen_until_ms = 0;
        self.servers.iter_mut().filter(|it| it.gateway == at).for_each(Server::lose_gateway);
        self.faults.killed += 1;
    }

    pub(super) fn upgrade(&mut self, at: usize) {
        let Self { gateways, etcd, random, now_ms, servers, .. } = self;
        if *now_ms < gateways[at].frozen_until_ms || !gateways[at].upgrade(etcd, *now_ms, random) {
            return;
        }
        for server in servers.iter_mut().filter(|it| it.gateway == at) {
            server.meet_successor(*now_ms, random);
        }
        self.faults.upgraded += 1;
    }

    pub(super) fn disturb_etcd(&mut self) {
        let processes = self.gateways.len() + self.services.len();
        let member = self.any(MEMBERS);
        if self.one_in(1200) {
            let is_down = self.random.chance(600);
            self.etcd.lock().kill(member, is_down);
            self.faults.etcd += 1;
        }
        if self.one_in(1500) {
            self.etcd.lock().isolate(member, true);
            self.faults.etcd += 1;
        }
        if self.one_in(1000) {
            let (process, members) = (self.any(processes), 1 + self.random.within(0..7) as u8);
            self.etcd.lock().cut(process, members);
            self.faults.etcd += 1;
        }
        if self.one_in(2000) {
            let delay_ms_max = 1 + self.random.within(0..3_000);
            let lost_per_mille = self.random.within(0..300) as u32;
            let mut etcd = self.etcd.lock();
            (etcd.delay_ms_max, etcd.lost_per_mille) = (delay_ms_max, lost_per_mille);
            drop(etcd);
            self.faults.etcd += 1;
        }
        if self.one_in(4000) {
            (0..MEMBERS).for_each(|member| self.etcd.lock().kill(member, true));
            self.faults.etcd += 1;
        }
        if self.one_in(700) {
            self.etcd.lock().heal();
        }
        if self.one_in(300) {
            self.etcd.lock().store.compact();
        }
    }

    pub(super) fn disturb_histories(&mut self) {
        if self.one_in(800) {
            self.etcd.lock().back_up();
        }
        if self.one_in(2500) {
            let is_same = self.random.chance(500);
            if self.etcd.lock().roll_back(is_same) {
                self.bans.forget();
                self.judge.rewritten();
                self.faults.histories += 1;
            }
        }
        if self.one_in(6000) {
            self.lose_etcd();
        }
    }

    /// Somebody starts etcd without its data, and makes another key for the listener.
    pub(super) fn lose_etcd(&mut self) {
        self.etcd.lock().empty();
        self.bans.forget();
        self.judge.rewritten();
        self.faults.histories += 1;
        self.put_key();
    }

    /// Etcd forgets whose tokens are, and gateways are upgraded before they have said it again. How
    /// many there were, and how many etcd knows of after a second.
    pub(crate) fn upgrade_behind_forgotten_tokens(mut self) -> Result<[usize; 2], String> {
        self.put_key();
        self.pass(20_000)?;
        let claims = |it: &Self| it.etcd.lock().store.below(TOKENS).count();
        let before = claims(&self);
        self.etcd.lock().store.delete_below(TOKENS);
        (0..self.gateways.len()).for_each(|at| self.upgrade(at));
        assert_eq!(self.faults.upgraded as usize, self.gateways.len(), "they could be upgraded");
        self.pass(1_000)?;
        Ok([before, claims(&self)])
    }

    /// A gateway is upgraded, most backends are deleted, and it is upgraded again. Of how many of
    /// its own it was registered all the time, whether it awaits its fleet in the end, and what it
    /// holds back before the second time and long after.
    pub(crate) fn upgrade_twice(mut self) -> Result<([usize; 2], bool, [bool; 2]), String> {
        self.put_key();
        for at in 0..MANY {
            let value = format!(
                r#"{{"v":1,"instance":"i","host":"far-{at}","group":"far","reach":{{"udp":"127.0.0.1:7000"}},"slots":8,"used":0,"state":"ready"}}"#
            );
            let (place, now_ms) = (format!("{FAR}{at}"), self.now_ms);
            self.etcd.lock().store.put_for(&place, value.as_bytes(), now_ms, 3_600_000);
        }
        self.pass(20_000)?;
        let count = |it: &Self| it.etcd.lock().store.below(BACKENDS).count();
        let before = count(&self);
        self.upgrade_at_once(0)?;
        let mut fewest = before;
        for _ in 0..300 {
            self.pass(STEP_MS)?;
            fewest = fewest.min(count(&self));
        }
        self.pass(20_000)?;
        let awaits = self.gateways[0].awaits_fleet();
        self.etcd.lock().store.delete_below(FAR);
        self.pass(1_000)?;
        let doubts = self.gateways[0].doubt() != 0;
        self.upgrade_at_once(0)?;
        self.pass(60_000)?;
        Ok(([before, fewest], awaits, [doubts, self.gateways[0].doubt() != 0]))
    }

    pub(super) fn upgrade_at_once(&mut self, at: usize) -> Result<(), String> {
        let before = self.faults.upgraded;
        self.upgrade(at);
        while self.faults.upgraded == before {
            self.step()?;
            self.upgrade(at);
        }
        Ok(())
    }

    /// An operator looks, and believes what is held back.
    pub(super) fn confirm(&mut self) {
        for gateway in &self.gateways {
            let doubt = gateway.doubt();
            if doubt != 0 {
                gateway.confirm(doubt);
                self.faults.confirmed += 1;
            }
        }
        for service in &self.services {
            (1..20).for_each(|doubt| service.confirm(doubt));
        }
    }

    /// The weather clears.
    pub(super) fn heal(&mut self) {
        self.lift_all();
        self.well_since_ms = Some(self.now_ms);
        self.etcd.lock().heal();
        for gateway in &mut self.gateways {
            gateway.frozen_until_ms = 0;
            gateway.back_ms = gateway.back_ms.min(self.now_ms + 1000);
        }
        for service in &mut self.services {
            service.frozen_until_ms = 0;
            service.back_ms = service.back_ms.min(self.now_ms + 1000);
        }
        for server in &mut self.servers {
            server.dead_until_ms = server.dead_until_ms.min(self.now_ms + 1000);
        }
        for server in &mut self.udp {
            server.dead_until_ms = server.dead_until_ms.min(self.now_ms + 1000);
        }
    }

    pub(super) fn repair(&mut self) {
        // Bans that were lifted while much else was missed are held until somebody has looked.
        if (self.weather.etcd || self.weather.histories) && self.one_in(150) {
            self.confirm();
        }
    }
}

/// Below this etcd has whose tokens are.
const TOKENS: &str = "/f/claim/token/";
/// Below this, which backends there are, and below that, those of hosts that no gateway has.
const BACKENDS: &str = "/f/truth/backend/";
const FAR: &str = "/f/truth/backend/far-";
const MANY: usize = 20;
