//! Two looks at a gateway, and what has changed between them.

use super::super::Failure;
use super::super::admin::Admin;
use super::super::admin::page::{Status, Worker};
use ringgate_os::clock::Clock;

/// The gateway at one moment.
pub(super) struct Look {
    pub(super) status: Status,
    pub(super) at_ns: u64,
}

impl Look {
    pub(super) fn take(admin: &Admin, clock: Clock) -> Result<Self, Failure> {
        let status = Status::ask(admin)?;
        Ok(Self { status, at_ns: clock.now_ns() })
    }
}

/// Two looks, one after the other.
pub(super) struct Change<'a> {
    pub(super) before: &'a Look,
    pub(super) now: &'a Look,
}

impl Change<'_> {
    /// What a counter of the whole gateway has grown by in a second.
    pub(super) fn rate(&self, counter: fn(&Status) -> u64) -> u64 {
        self.per_second(counter(&self.before.status), counter(&self.now.status))
    }

    /// The same for one worker.
    pub(super) fn worker_rate(&self, index: usize, counter: fn(&Worker) -> u64) -> u64 {
        let of = |look: &Look| look.status.workers.get(index).map_or(0, counter);
        self.per_second(of(self.before), of(self.now))
    }

    /// A gateway that was restarted in between counts from zero again: that is no rate.
    pub(super) fn per_second(&self, before: u64, now: u64) -> u64 {
        let ns = self.now.at_ns.saturating_sub(self.before.at_ns).max(1);
        (now.saturating_sub(before) as f64 * 1e9 / ns as f64).round() as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a gateway with one of everything says.
    pub(in super::super) fn status(sessions: u64) -> Status {
        let page = serde_json::json!({
            "version": "1", "state": "serving", "uptime_s": 5,
            "config": { "file": "gate.toml", "read_unix_s": 0 },
            "workers": [{
                "index": 0, "driver": "mmsg", "cipher": "avx2", "turns": 10 * sessions,
                "sessions": sessions, "pending": 0, "datagrams_in": 100 * sessions,
                "packets_out": 0, "drops": 0, "socket_drops": 0,
            }],
            "listeners": [{ "name": "eu", "addresses": [], "sessions": 0, "sessions_max": 1 }],
            "backends": [{
                "name": "arena", "link": "udp", "workers_up": 0, "players": 0, "slots": 4,
                "retired": false,
            }],
            "totals": {
                "sessions": sessions, "handshakes_pending": 0, "sessions_opened": 0,
                "datagrams_in": 100 * sessions, "bytes_in": 0, "packets_out": 0, "bytes_out": 0,
                "drops": 0, "socket_drops": 0,
            },
            "drops": {}, "stages": [], "conservation": { "holds": true },
        });
        Status::read(&page.to_string()).expect("every field that is shown")
    }

    #[test]
    fn rates_are_per_second_and_a_restart_is_none() {
        let look =
            |sessions, at_s: u64| Look { status: status(sessions), at_ns: at_s * 1_000_000_000 };
        let (one, two, restarted) = (look(1, 0), look(5, 2), look(0, 3));
        let rate = |before, now| Change { before, now }.rate(|it| it.totals.datagrams_in);
        assert_eq!((rate(&one, &two), rate(&two, &restarted)), (200, 0));
    }
}
