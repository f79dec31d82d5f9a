//! An unmodified game server of the world: players are addresses to it, and all gateways of its
//! host reach it. An orchestrator registers it in etcd, and puts back what is gone there.

use std::collections::HashMap;

use ringgate_batch::{Endpoint, LocalIp};

use crate::etcd::Etcd;

/// A server, alive or not.
pub(crate) struct UdpServer {
    pub(crate) name: String,
    pub(crate) host: usize,
    pub(crate) address: Endpoint,
    pub(crate) slots: u32,
    /// By gateway and address: which token its player plays with, and when it was heard.
    guests: HashMap<(usize, LocalIp), (u64, u64)>,
    pub(crate) dead_until_ms: u64,
}

impl UdpServer {
    pub(crate) fn new(number: usize, host: usize, slots: u32) -> Self {
        Self {
            name: format!("udp-{number}"),
            host,
            address: Endpoint::v4([127, 0, 0, 1], 7000 + number as u16),
            slots,
            guests: HashMap::new(),
            dead_until_ms: 0,
        }
    }

    pub(crate) fn die(&mut self, until_ms: u64) {
        self.dead_until_ms = until_ms;
        self.guests.clear();
    }

    /// A player says something. Returns its token, and the token of whoever was at that address
    /// just before.
    pub(crate) fn hear(&mut self, from: (usize, LocalIp), bytes: &[u8], now_ms: u64) -> (u64, u64) {
        let token = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.guests.retain(|_, (_, heard_ms)| now_ms < *heard_ms + SILENCE_MS);
        let before = self.guests.insert(from, (token, now_ms)).map_or(token, |it| it.0);
        (token, before)
    }

    /// The tokens of players who have said something just now: each does so twice a second.
    pub(crate) fn there(&self, now_ms: u64) -> impl Iterator<Item = u64> {
        let talk = self.guests.values().filter(move |(_, heard_ms)| now_ms < heard_ms + 700);
        talk.map(|(token, _)| *token)
    }

    /// Has it stand in etcd.
    pub(crate) fn register(&self, etcd: &Etcd) {
        let value = serde_json::json!({
            "v": 1, "instance": "i", "host": format!("host-{}", self.host), "group": "arena",
            "slots": self.slots, "used": self.guests.len(), "state": "ready",
            "reach": { "udp": format!("127.0.0.1:{}", self.address.port()) },
        });
        let (key, value) = (format!("/f/truth/backend/{}", self.name), value.to_string());
        let mut etcd = etcd.lock();
        let stands = etcd.store.below(&key).any(|(_, it)| it.value == value.as_bytes());
        if !stands {
            etcd.store.put(&key, value.as_bytes());
        }
    }
}

/// Game servers take a player who is silent for so long for gone.
const SILENCE_MS: u64 = 12_000;
