//! Whom the fleet's bans mean, judged from outside: by what stands in etcd, and how long each
//! gateway could hear of it. Shares no code with what it judges.

use std::collections::{BTreeMap, BTreeSet};

/// The bans that stand, and which gateways must know them.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// Since when a client's ban stands.
    since_ms: BTreeMap<u64, u64>,
    /// When a client's ban was last seen.
    seen_ms: BTreeMap<u64, u64>,
    /// Gateways that have known a ban for so long that even a start has to know it.
    kept: BTreeSet<(usize, u64)>,
    /// Since when each gateway hears an etcd, and one with which nothing is wrong.
    hears_ms: BTreeMap<usize, u64>,
    whole_ms: BTreeMap<usize, u64>,
}

impl Bans {
    /// These clients are banned, by what stands in etcd and has not ended.
    pub(crate) fn stand(&mut self, clients: &BTreeSet<u64>, now_ms: u64) {
        self.since_ms.retain(|client, _| clients.contains(client));
        self.kept.retain(|(_, client)| clients.contains(client));
        for client in clients {
            self.since_ms.entry(*client).or_insert(now_ms);
            self.seen_ms.insert(*client, now_ms);
        }
    }

    /// Etcd has another history: nobody has to have heard anything of it yet.
    pub(crate) fn forget(&mut self) {
        (self.hears_ms, self.whole_ms) = Default::default();
        self.kept.clear();
        self.since_ms.clear();
    }

    /// Whether a gateway hears etcd, and whether nothing at all is wrong with that.
    pub(crate) fn see(&mut self, gateway: usize, (hears, is_whole): (bool, bool), now_ms: u64) {
        for (all, holds) in [(&mut self.hears_ms, hears), (&mut self.whole_ms, is_whole)] {
            if holds {
                all.entry(gateway).or_insert(now_ms);
            } else {
                all.remove(&gateway);
            }
        }
        for client in self.since_ms.keys() {
            let kept_ms = self.known_ms(gateway, *client).map(|it| it + KEPT_MS);
            if kept_ms.is_some_and(|it| now_ms >= it) {
                self.kept.insert((gateway, *client));
            }
        }
    }

    /// From when on a gateway that hears etcd has to know of a ban.
    fn known_ms(&self, gateway: usize, client: u64) -> Option<u64> {
        let since_ms = *self.since_ms.get(&client)?;
        let hears_ms = *self.hears_ms.get(&gateway)?;
        let at_worst_ms = since_ms.max(hears_ms) + FOUND_MS;
        let whole_ms = self.whole_ms.get(&gateway).map(|it| since_ms.max(it + FOUND_MS) + TOLD_MS);
        Some(whole_ms.map_or(at_worst_ms, |it| it.min(at_worst_ms)))
    }

    /// Why a client's game may not hear it by way of this gateway, if it may not.
    pub(crate) fn why_not(&self, gateway: usize, client: u64, now_ms: u64) -> Option<&'static str> {
        if self.kept.contains(&(gateway, client)) {
            return Some("it has known so for long");
        }
        let known_ms = self.known_ms(gateway, client)?;
        (now_ms > known_ms).then_some("it has to know so by now")
    }

    /// Whether a client is banned, or was so lately that not everybody knows better.
    pub(crate) fn may_hold(&self, client: u64, now_ms: u64) -> bool {
        self.seen_ms.get(&client).is_some_and(|it| now_ms <= it + FOUND_MS)
    }
}

/// How long until a gateway has heard of a ban where etcd and the way to it are well.
const TOLD_MS: u64 = 1_000;
/// The same where members are dead, slow or cut off that it has to leave first.
const FOUND_MS: u64 = 15_000;
/// What is known is written for the next start some seconds later.
const KEPT_MS: u64 = 6_000;
