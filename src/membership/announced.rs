//! Game processes that register themselves: each says what it is over a connection to the announce
//! socket in `run_dir`, and stands in etcd under this gateway's lease as long as that connection
//! lives. They are reached through this gateway alone, so what ends with one ends with the other.
//!
//! [`Book`] says who is there and what is to stand in etcd; it touches nothing. What a predecessor
//! has handed over stays for a moment without its process, which has to connect again.

mod door;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringgate_fleet::keyspace::Name;
use ringgate_fleet::lease::Standing as Held;
use ringgate_fleet::values::{self, Reach, Stored};
use ringgate_link::announce::{Announced, Standing, State};

pub use door::Door;
pub(super) use door::serve;

/// Who has announced itself.
pub(super) struct Book {
    host: Name,
    run_dir: PathBuf,
    max: usize,
    /// Backends of the config file.
    file: Vec<String>,
    rows: BTreeMap<String, Row>,
    /// What was refused, by connection: it is let in once its name or a place is free.
    refused: BTreeMap<u64, Announced>,
    /// How often something was refused.
    refusals: [u64; Refusal::ALL.len()],
    /// It stands otherwise with some of those who were refused.
    has_news: bool,
    /// Names whose keys are to go.
    gone: Vec<String>,
}

/// Why a process is not registered, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    /// Another process has the name at this gateway.
    NameTaken,
    /// A backend of the config file has it.
    NameInConfig,
    /// There are as many as there may be.
    TooMany,
    /// Its user may not.
    Unauthorised,
    /// It has said something that is no announcement.
    Invalid,
    /// It has connected, and said nothing.
    Silent,
}

impl Refusal {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 6] = [
        Self::NameTaken,
        Self::NameInConfig,
        Self::TooMany,
        Self::Unauthorised,
        Self::Invalid,
        Self::Silent,
    ];

    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NameTaken => "name_taken",
            Self::NameInConfig => "name_in_config",
            Self::TooMany => "too_many",
            Self::Unauthorised => "unauthorised",
            Self::Invalid => "invalid",
            Self::Silent => "silent",
        }
    }

    /// What the process is told.
    const fn standing(self) -> Standing {
        match self {
            Self::NameTaken => Standing::NameTaken,
            Self::NameInConfig => Standing::NameInConfig,
            Self::TooMany => Standing::TooMany,
            Self::Unauthorised => Standing::Unauthorised,
            Self::Invalid | Self::Silent => Standing::Invalid,
        }
    }
}

/// A game process.
struct Row {
    what: Announced,
    /// Its connection; `None` for one that a predecessor has handed over, until when it may come.
    by: Result<u64, u64>,
    /// As it was said to the registration last, and when.
    written: Option<(values::Backend, u64)>,
    standing: Standing,
}

/// What the registration is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// This shall stand at a backend's key.
    Set(Name, values::Backend),
    /// Nothing shall.
    Remove(Name),
}

impl Book {
    /// None yet, at a gateway that takes so many.
    pub(super) const fn new(host: Name, run_dir: PathBuf, max: usize, file: Vec<String>) -> Self {
        Self {
            host,
            run_dir,
            max,
            file,
            rows: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: [0; Refusal::ALL.len()],
            has_news: false,
            gone: Vec::new(),
        }
    }

    /// The config was read again. A name that is a backend's there now is no process's any more.
    pub(super) fn set_file(&mut self, file: Vec<String>) {
        self.file = file;
        for name in self.file.clone() {
            if let Some(Row { what, by, .. }) = self.rows.remove(&name) {
                self.gone.push(name);
                if let Ok(connection) = by {
                    self.refuse(Refusal::NameInConfig);
                    self.refused.insert(connection, what);
                    self.has_news = true;
                }
            }
        }
    }

    /// A process says what it is. `Waiting` where the fleet decides; what is refused is remembered.
    pub(super) fn announce(
        &mut self,
        connection: u64,
        what: Announced,
    ) -> Result<Standing, Refusal> {
        self.refused.remove(&connection);
        if let Some(why) = self.refusal(connection, &what.name) {
            self.refuse(why);
            self.refused.insert(connection, what);
            return Err(why);
        }
        Ok(self.enter(connection, what))
    }

    /// Lets those in who were refused and in whose way nothing is any more: who has come first is
    /// first. Returns whether that is news for anybody.
    pub(super) fn admit_refused(&mut self) -> bool {
        for connection in self.refused.keys().copied().collect::<Vec<_>>() {
            let name = &self.refused[&connection].name;
            if self.refusal(connection, name).is_none()
                && let Some(what) = self.refused.remove(&connection)
            {
                self.enter(connection, what);
                self.has_news = true;
            }
        }
        std::mem::take(&mut self.has_news)
    }

    /// Something was refused.
    pub(super) fn refuse(&mut self, why: Refusal) {
        self.refusals[why as usize] += 1;
    }

    /// How often that has happened, for each reason.
    pub(super) const fn refusals(&self) -> [u64; Refusal::ALL.len()] {
        self.refusals
    }

    fn refusal(&self, connection: u64, name: &str) -> Option<Refusal> {
        if self.file.iter().any(|it| it == name) {
            return Some(Refusal::NameInConfig);
        }
        let own = self.rows.values().filter(|row| row.by == Ok(connection)).count();
        match self.rows.get(name) {
            Some(row) if row.by.is_ok_and(|by| by != connection) => Some(Refusal::NameTaken),
            None if self.rows.len() - own >= self.max => Some(Refusal::TooMany),
            _ => None,
        }
    }

    fn enter(&mut self, connection: u64, what: Announced) -> Standing {
        // A process has one name.
        let other = |(name, row): (&String, &Row)| {
            (row.by == Ok(connection) && *name != what.name).then(|| name.clone())
        };
        if let Some(other) = self.rows.iter().find_map(other) {
            self.remove(&other);
        }
        self.gone.retain(|name| *name != what.name);
        let before = self.rows.remove(&what.name);
        let (written, standing) =
            before.map_or((None, Standing::Waiting), |row| (row.written, row.standing));
        let name = what.name.clone();
        self.rows.insert(name, Row { what, by: Ok(connection), written, standing });
        standing
    }

    /// How many connections there may be: some are of processes that are refused.
    pub(super) const fn room(&self) -> usize {
        self.max.saturating_add(REFUSED_MAX)
    }

    /// A connection has ended, and its process with it.
    pub(super) fn leave(&mut self, connection: u64) {
        self.refused.remove(&connection);
        let of = |(name, row): (&String, &Row)| (row.by == Ok(connection)).then(|| name.clone());
        if let Some(name) = self.rows.iter().find_map(of) {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &str) {
        if self.rows.remove(name).is_some() {
            self.gone.push(name.to_owned());
        }
    }

    /// What goes to a successor: their records.
    pub(super) fn handed(&self) -> Vec<Vec<u8>> {
        let record = |row: &Row| row.what.what.encode(&row.what.name, row.what.instance);
        self.rows.values().filter_map(record).collect()
    }

    /// Goes on with them, until `until_ms` without their processes.
    pub(super) fn inherit(&mut self, records: &[Vec<u8>], until_ms: u64) {
        for what in records.iter().filter_map(|record| Announced::decode(record)) {
            let (name, by) = (what.name.clone(), Err(until_ms));
            let row = Row { what, by, written: None, standing: Standing::Waiting };
            self.rows.insert(name, row);
        }
    }

    /// Who is there.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    /// What the registration is to be told now. `players` are those that the gateway has counted.
    pub(super) fn wishes(&mut self, now_ms: u64, players: &BTreeMap<String, u32>) -> Vec<Wish> {
        let late = |(name, row): (&String, &Row)| {
            row.by.is_err_and(|until_ms| now_ms >= until_ms).then(|| name.clone())
        };
        for name in self.rows.iter().filter_map(late).collect::<Vec<_>>() {
            self.remove(&name);
        }
        let mut wishes: Vec<_> =
            self.gone.iter().filter_map(|name| Some(Wish::Remove(Name::new(name)?))).collect();
        for (name, row) in &self.rows {
            let counted = players.get(name).copied().unwrap_or(0);
            let value = row.value(&self.host, &self.run_dir, counted);
            if row.is_due(&value, now_ms)
                && let Some(name) = Name::new(name)
            {
                wishes.push(Wish::Set(name, value));
            }
        }
        wishes
    }

    /// That was told.
    pub(super) fn told(&mut self, wish: &Wish, now_ms: u64) {
        match wish {
            Wish::Set(name, value) => {
                if let Some(row) = self.rows.get_mut(name.as_str()) {
                    row.written = Some((value.clone(), now_ms));
                }
            }
            Wish::Remove(name) => self.gone.retain(|gone| gone != name.as_str()),
        }
    }

    /// How the registration stands with each. Returns whether that is news for anybody.
    pub(super) fn see(&mut self, held: impl Fn(&str) -> Option<Held>) -> bool {
        let mut is_news = false;
        for (name, row) in &mut self.rows {
            let standing = match held(name) {
                Some(Held::Written) => Standing::Registered,
                Some(Held::Taken { .. }) => Standing::NameTaken,
                // On its way from one value to the next it stands there.
                Some(Held::Outdated) => row.standing,
                _ => Standing::Waiting,
            };
            is_news |= std::mem::replace(&mut row.standing, standing) != standing;
        }
        is_news
    }

    /// How it stands with the process of a connection; `None` where it has not said what it is.
    pub(super) fn standing(&self, connection: u64) -> Option<Standing> {
        if let Some(what) = self.refused.get(&connection) {
            return self.refusal(connection, &what.name).map(Refusal::standing);
        }
        self.rows.values().find(|row| row.by == Ok(connection)).map(|row| row.standing)
    }
}

impl Row {
    fn value(&self, host: &Name, run_dir: &std::path::Path, counted: u32) -> values::Backend {
        let Announced { instance, what, .. } = &self.what;
        values::Backend {
            instance: format!("{instance:016x}"),
            host: host.to_string(),
            group: what.group.clone(),
            reach: Reach::Bundle(run_dir.to_string_lossy().into_owned()),
            slots: what.slots,
            used: what.players.unwrap_or(counted),
            state: match what.state {
                State::Starting => values::State::Starting,
                State::Ready => values::State::Ready,
                State::Allocated => values::State::Allocated,
                State::Draining => values::State::Draining,
            },
            labels: what.labels.iter().cloned().collect(),
        }
    }

    /// Whether this is another value than the last, and not too soon after it where only the number
    /// of players has changed.
    fn is_due(&self, value: &values::Backend, now_ms: u64) -> bool {
        let Some((written, at_ms)) = &self.written else { return true };
        if value == written {
            return false;
        }
        let is_load = values::Backend { used: written.used, ..value.clone() } == *written;
        !is_load || now_ms >= at_ms + LOAD_EVERY_MS
    }
}

/// The bytes that stand at a backend's key.
pub(super) fn encoded(value: &values::Backend) -> Option<bytes::Bytes> {
    value.encode().ok()
}

const REFUSED_MAX: usize = 16;

/// Players come and go by the moment.
const LOAD_EVERY_MS: u64 = 1_000;

#[cfg(test)]
mod tests;
