//! What a gateway says of itself in etcd, and how often: what others decide by at once, how many
//! sessions it has now and then. A write for each player would be too much for any etcd.

use std::net::SocketAddr;
use std::path::Path;

use ringgate_fleet::member::{self, Doubted};
use ringgate_fleet::values::gateway::{ANY, Cluster, Entrance, Gateway, Listener, SHUT_MAX};
use ringgate_fleet::values::{LIST_MAX, TEXT_BYTES_MAX};

use super::Settings;

/// What the control thread knows of this gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Those that serve.
    pub listeners: Vec<Listener>,
    /// Where agents connect.
    pub entrances: Vec<Entrance>,
    /// The cluster that it is in, where it is in one.
    pub cluster: Option<Cluster>,
    /// Sessions that there may be.
    pub capacity: u32,
    /// Sessions that there are.
    pub sessions: u32,
    /// Whether nobody is taken in any more.
    pub is_draining: bool,
    /// When the gateway started, in seconds since 1970.
    pub started_unix_s: u64,
    /// The revision up to which every worker knows of backends.
    pub heard: i64,
    /// The revision up to which every worker denies whom the fleet denies.
    pub denied: i64,
    /// Backends that nobody new is led to, whatever they say themselves.
    pub shut: Vec<String>,
}

impl member::Facts for Facts {
    fn is_news(&self, written: &Self, age_ms: u64) -> bool {
        let same = Self { sessions: written.sessions, denied: written.denied, ..self.clone() };
        if same != *written {
            return true;
        }
        if self.denied != written.denied && age_ms >= DENIED_EVERY_MS {
            return true;
        }
        let differ = self.sessions.abs_diff(written.sessions);
        let is_much = differ > 0 && differ >= (self.capacity / HYSTERESIS).max(1);
        (differ > 0 && age_ms >= SESSIONS_EVERY_MS) || (is_much && age_ms >= SESSIONS_MUCH_EVERY_MS)
    }
}

/// The value that says it.
pub(super) fn value(settings: &Settings, facts: &Facts, doubted: &Doubted, now_s: u64) -> Gateway {
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    version.truncate(TEXT_BYTES_MAX);
    let listener = |it: &Listener| {
        let mut listener = it.clone();
        listener.addresses.retain(may_be_dialled);
        listener.addresses.truncate(LIST_MAX);
        listener.epochs.truncate(LIST_MAX);
        listener.keys.truncate(LIST_MAX);
        listener
    };
    Gateway {
        instance: settings.instance.clone(),
        region: settings.region.as_str().to_owned(),
        host: settings.host.as_str().to_owned(),
        version,
        listeners: facts.listeners.iter().take(LIST_MAX).map(listener).collect(),
        agents: entrances(facts),
        cluster: facts.cluster.clone(),
        capacity: facts.capacity,
        sessions: facts.sessions,
        draining: facts.is_draining,
        started: facts.started_unix_s,
        written: now_s,
        doubt: doubted.number,
        held: doubted.held.clone(),
        run_dir: told(&settings.run_dir),
        heard: Some(facts.heard),
        denied: Some(facts.denied),
        shut: facts.shut.iter().take(SHUT_MAX).cloned().collect(),
        answers: settings.answers,
    }
}

/// As many as there may be in etcd. Agents whose own is left out come by the one for all.
fn entrances(facts: &Facts) -> Vec<Entrance> {
    let (any, named): (Vec<_>, Vec<_>) = facts.entrances.iter().partition(|it| it.name == ANY);
    any.into_iter().chain(named).take(LIST_MAX).cloned().collect()
}

/// A folder as it stands in etcd; nothing where it cannot.
fn told(folder: &Path) -> String {
    let text = folder.to_str().filter(|it| !it.chars().any(char::is_control));
    text.filter(|it| it.len() <= TEXT_BYTES_MAX).unwrap_or_default().to_owned()
}

fn may_be_dialled(address: &SocketAddr) -> bool {
    address.port() != 0 && !address.ip().is_unspecified()
}

/// Fewer sessions more or less than this part of the capacity can wait.
const HYSTERESIS: u32 = 100;
const SESSIONS_MUCH_EVERY_MS: u64 = 1_000;
/// Every gateway tells of every ban: a thousand bans one after the other are told together.
const DENIED_EVERY_MS: u64 = 1_000;
const SESSIONS_EVERY_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entrance_for_all_agents_is_told_before_those_of_single_ones() {
        let entrance = |name: String| Entrance { name, at: "gate-1:7400".to_owned(), grace_ms: 0 };
        let names = (0..LIST_MAX).map(|at| format!("host-{at}")).chain([ANY.to_owned()]);
        let facts = Facts { entrances: names.map(entrance).collect(), ..Facts::default() };
        let told = entrances(&facts);
        assert_eq!((told.len(), &*told[0].name, &*told[1].name), (LIST_MAX, ANY, "host-0"));
    }

    #[test]
    fn what_decides_is_written_at_once_and_what_counts_now_and_then() {
        let facts = Facts { capacity: 1000, sessions: 5, ..Facts::default() };
        let is_due = |now: Facts, age_ms| member::Facts::is_news(&now, &facts, age_ms);
        let with = |sessions| Facts { sessions, ..facts.clone() };
        assert!(!is_due(facts.clone(), 60_000), "the clock in it is not the gateway's matter");
        assert!(!is_due(with(6), 9_999) && is_due(with(6), 10_000));
        assert!(!is_due(with(15), 999) && is_due(with(15), 1_000));
        assert!(is_due(Facts { is_draining: true, ..facts.clone() }, 1));
        assert!(is_due(Facts { heard: 9, ..facts.clone() }, 1));
        let denied = || Facts { denied: 9, ..facts.clone() };
        assert!(!is_due(denied(), 999) && is_due(denied(), 1_000));
        assert!(is_due(Facts { shut: vec!["arena".to_owned()], ..facts.clone() }, 1));
    }
}
