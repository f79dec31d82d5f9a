//! What operators of a world ban, and how long.

use std::collections::BTreeSet;

use ringgate_fleet::values::Stored as _;
use ringgate_fleet::values::ban::Ban;

use super::World;
use crate::STEP_MS;
use crate::etcd::MEMBERS;
use crate::process::UNIX_START_S;
use crate::service::fleet_key;

impl World {
    /// Operators ban players, for a while or until they lift it, and lift what they have said.
    pub(super) fn ban_or_lift(&mut self) {
        if self.is_closing || !self.etcd.lock().takes_writes() {
            return;
        }
        if self.one_in(900) {
            let at = self.any(self.players.len());
            let lasts_s = self.random.chance(700).then(|| 2 + self.random.within(0..30));
            self.ban(self.players[at].client_id, lasts_s);
        }
        if self.one_in(900) {
            let banned: Vec<_> = self.banned().into_iter().collect();
            if !banned.is_empty() {
                let at = self.any(banned.len());
                self.etcd.lock().store.delete(&place(banned[at]));
            }
        }
    }

    /// A client is banned, or a ban is lifted, and so long afterwards etcd goes away and a gateway
    /// is upgraded. Whether the process before took the client for banned, and whether the next
    /// does.
    pub(crate) fn upgrade_behind_a_ban(
        mut self,
        is_lifted: bool,
        after_ms: u64,
    ) -> Result<[bool; 2], String> {
        self.put_key();
        self.pass(10_000)?;
        let client = self.players[0].client_id;
        self.ban(client, None);
        if is_lifted {
            self.pass(5_000)?;
            self.lift_all();
        }
        self.pass(after_ms)?;
        (0..MEMBERS).for_each(|member| self.etcd.lock().kill(member, true));
        let before = self.gateways[0].denies(client);
        self.upgrade(0);
        assert_eq!(self.faults.upgraded, 1, "it could be upgraded");
        self.pass(200)?;
        Ok([before, self.gateways[0].denies(client)])
    }

    /// A client is banned that plays at a gateway, and so long afterwards that is upgraded. Whether
    /// the client plays on.
    pub(crate) fn upgrade_right_behind_a_ban(mut self, after_ms: u64) -> Result<bool, String> {
        self.put_key();
        let playing = |it: &Self| {
            let mut its = it.servers.iter().filter(|it| it.gateway == 0);
            its.find_map(|it| it.sessions.values().next()).map(|guest| guest.client_id)
        };
        while playing(&self).is_none() {
            self.step()?;
        }
        let client = playing(&self).expect("it was there");
        self.ban(client, None);
        self.pass(after_ms)?;
        self.upgrade_at_once(0)?;
        self.pass(900)?;
        let mut its = self.servers.iter().filter(|it| it.gateway == 0);
        Ok(its.any(|it| it.sessions.values().any(|guest| guest.client_id == client)))
    }

    pub(super) fn pass(&mut self, ms: u64) -> Result<(), String> {
        (0..ms / STEP_MS).try_for_each(|_| self.step())
    }

    fn ban(&mut self, client: u64, lasts_s: Option<u64>) {
        let (place, now_s) = (place(client), UNIX_START_S + self.now_ms / 1000);
        let until = lasts_s.map_or(u64::MAX, |it| now_s + it);
        let ban = Ban { until, reason: "it was rude".to_owned(), by: String::new() };
        let value = ban.encode().expect("it can be read again");
        let counter = UNIX_START_S * 1000 + self.now_ms;
        let value = fleet_key().vouch(place.as_bytes(), &value, counter).expect("random numbers");
        let mut etcd = self.etcd.lock();
        match lasts_s {
            Some(lasts_s) => etcd.store.put_for(&place, &value, self.now_ms, lasts_s * 1000),
            None => etcd.store.put(&place, &value),
        }
        drop(etcd);
        self.faults.banned += 1;
    }

    /// All bans are lifted.
    pub(super) fn lift_all(&mut self) {
        for client in self.banned() {
            self.etcd.lock().store.delete(&place(client));
        }
    }

    /// Whose bans stand in etcd, and have not ended by anybody's clock.
    fn banned(&self) -> BTreeSet<u64> {
        let etcd = self.etcd.lock();
        let stands = etcd.store.below(BANS).filter_map(|(key, entry)| {
            let ban: serde_json::Value = serde_json::from_slice(&entry.value).expect("JSON");
            let until_s = ban["until"].as_u64().expect("a moment");
            let holds = until_s > UNIX_START_S + self.now_ms / 1000 + CLOCKS_S;
            holds.then(|| key.strip_prefix(BANS)?.parse().ok()).flatten()
        });
        stands.collect()
    }

    /// Notes who is banned, and which gateways hear of it.
    pub(super) fn look_at_bans(&mut self) {
        let (banned, now_ms) = (self.banned(), self.now_ms);
        self.bans.stand(&banned, now_ms);
        for (at, gateway) in self.gateways.iter().enumerate() {
            let runs = gateway.is_alive() && now_ms >= gateway.frozen_until_ms;
            let etcd = self.etcd.lock();
            let is_fast = etcd.delay_ms_max <= 10 && etcd.lost_per_mille == 0;
            let hears = runs && gateway.doubt() == 0 && is_fast && etcd.is_there_for(at);
            let is_whole = hears && etcd.is_whole_for(at);
            drop(etcd);
            self.bans.see(at, (hears, is_whole), now_ms);
        }
    }

    /// A game has heard a client by way of a gateway.
    pub(super) fn heard(&mut self, token: u64, gateway: usize) {
        let start = self.gateways[gateway].port();
        self.judge.heard(token, gateway, start);
        let client = self.tokens[token as usize].0;
        let why_not = self.bans.why_not(gateway, client, self.now_ms);
        self.judge.require(why_not.is_none(), || {
            let why_not = why_not.unwrap_or_default();
            format!("client {client} is banned and plays at gateway {gateway}: {why_not}")
        });
    }
}

fn place(client: u64) -> String {
    format!("{BANS}{client}")
}

const BANS: &str = "/f/truth/ban/client/";
/// Wall clocks are ahead of the world's by less.
const CLOCKS_S: u64 = 2;
