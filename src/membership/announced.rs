//! Game processes that register themselves: each says what it is over a connection to the announce
//! socket in `run_dir`, and stands in etcd under the lease of the gateway, or the agent, that it is
//! connected to, as long as that connection lives. They are reached through that one alone, so what
//! ends with one ends with the other. An agent speaks for the game processes of its file in the
//! same way.
//!
//! [`Book`] says who is there and what is to stand in etcd; it touches nothing. What a predecessor
//! has handed over stays for a moment without its process, which has to connect again.

mod door;
mod handed;
mod registry;
mod rights;

use std::collections::{BTreeMap, BTreeSet};

use ringgate_fleet::joins::Joins;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::lease::run::Command;
use ringgate_fleet::lease::{Registration, Standing as Held};
use ringgate_fleet::values::joined::Join;
use ringgate_fleet::values::{self, Reach, Stored};
use ringgate_gate::Credentials;
use ringgate_link::announce::{Announced, Standing, State};

pub use door::Door;
pub(crate) use door::Seated;
pub(crate) use handed::Handed;
pub(crate) use registry::Registry;
pub(crate) use rights::Refusal;
use rights::Rights;
pub use rights::{OwnedName, Rules};

/// Who has announced itself.
pub(crate) struct Book {
    host: Name,
    reach: Reach,
    rights: Rights,
    /// Backends of the config file.
    file: Vec<String>,
    rows: BTreeMap<String, Row>,
    /// What was refused, by connection: it is let in once its name or a place is free.
    refused: BTreeMap<u64, Announced>,
    /// How often something was refused.
    refusals: [u64; Refusal::ALL.len()],
    /// It stands otherwise with some of those who were refused.
    has_news: bool,
    /// Names whose keys are to go, and what is to stand there last.
    gone: BTreeMap<String, Option<values::Backend>>,
    /// Whether all of them are to take nobody new.
    is_draining: bool,
    /// Whether somebody looks whose names are, at all gateways and agents of the host.
    has_looker: bool,
}

/// A game process.
struct Row {
    what: Announced,
    by: Speaker,
    /// As it was said to the registration last, and when.
    written: Option<(values::Backend, u64)>,
    standing: Standing,
    /// Whose process it is, where that is known.
    uid: Option<u32>,
    /// Whether it has been linked. It is not ready before.
    has_linked: bool,
    /// Whether its name is nobody else's at this host. It is told to nobody before.
    is_looked: bool,
    /// Whose players have come.
    joins: Joins,
}

/// Who says what a game process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    /// It does, over this connection.
    Process(u64),
    /// It did so to a predecessor, and has until then to come.
    Before { until_ms: u64 },
    /// The config file.
    File,
}

/// What is known of game processes beside what they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// How many players each has.
    pub(crate) players: BTreeMap<String, u32>,
    /// Those that are linked.
    pub(crate) linked: BTreeSet<String>,
    /// Behind an agent: those of them whom the process does not know, because they wait for it.
    pub(crate) waiting: BTreeMap<String, u32>,
    /// Behind an agent: the gateways that each is connected to.
    pub(crate) gateways: BTreeMap<String, Vec<String>>,
}

/// How a name is a user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A process has it, in the fleet as well.
    Process,
    /// One has it here, and nobody else is kept from it by that.
    Waits,
    /// It is kept through grace.
    Kept,
}

/// What the registration is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    /// This shall stand at a backend's key.
    Set(Name, values::Backend),
    /// Nothing shall, after this.
    Remove(Name, Option<values::Backend>),
}

impl Book {
    /// None yet, where they are reached in this way.
    pub(crate) const fn new(host: Name, reach: Reach, rules: Rules, file: Vec<String>) -> Self {
        Self {
            host,
            reach,
            rights: Rights::new(rules),
            file,
            rows: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: [0; Refusal::ALL.len()],
            has_news: false,
            gone: BTreeMap::new(),
            is_draining: false,
            has_looker: false,
        }
    }

    /// Where they are.
    pub(crate) const fn host(&self) -> &Name {
        &self.host
    }

    /// From now on somebody looks.
    pub(crate) const fn look_first(&mut self) {
        self.has_looker = true;
    }

    /// Names of which it is to be looked whose they are: of those who have just come, or of all
    /// that another process has, too.
    pub(crate) fn to_look(&self, all: bool) -> BTreeSet<String> {
        let is_due = |row: &Row| {
            let is_taken = all && row.standing == Standing::NameTaken;
            matches!(row.by, Speaker::Process(_)) && (!row.is_looked || is_taken)
        };
        let rows = self.rows.iter().filter(|(_, row)| is_due(row)).map(|(name, _)| name.clone());
        rows.chain(self.rights.anothers().filter(|_| all).cloned()).collect()
    }

    /// Whose a name is at this host; `None` for nobody's. Whether another user's process has to
    /// give it up.
    pub(crate) fn looked(&mut self, name: &str, owner: Option<u32>) -> bool {
        self.rights.see_owner(name, owner);
        let Some(row) = self.rows.get_mut(name) else { return false };
        row.is_looked = true;
        let Speaker::Process(connection) = row.by else { return false };
        let is_own = owner.is_none() || row.uid.is_none() || row.uid == owner;
        if is_own || row.standing == Standing::Registered {
            return false;
        }
        if let Some(row) = self.rows.remove(name) {
            if row.written.is_some() {
                self.goes(name.to_owned(), &row);
            }
            self.refuse(Refusal::NameTaken);
            self.refused.insert(connection, row.what);
            self.has_news = true;
        }
        true
    }

    /// The names that are users' by their processes here, and those that are kept for users.
    pub(crate) fn held(&self) -> Vec<(String, u32, Hold)> {
        let how = |row: &Row| {
            let is_held = row.has_linked && row.standing == Standing::Registered;
            if is_held { Hold::Process } else { Hold::Waits }
        };
        let rows = self.rows.iter();
        let rows = rows.filter_map(|(name, row)| Some((name.clone(), row.uid?, how(row))));
        rows.chain(self.rights.kept().map(|it| (it.name, it.uid, Hold::Kept))).collect()
    }

    /// How long a name stays its user's without a process.
    pub(crate) const fn grace_ms(&self) -> u64 {
        self.rights.rules().grace_ms
    }

    /// Whoever speaks for them will end: nobody new is to come to any of them.
    pub(crate) const fn drain(&mut self) {
        self.is_draining = true;
    }

    /// They go on after all.
    pub(crate) const fn undrain(&mut self) {
        self.is_draining = false;
    }

    /// The config was read again: others may come. Who may not any more hears of it.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.has_news |= *self.rights.rules() != rules;
        self.rights.set_rules(rules);
    }

    /// A process has connected, and has said nothing yet.
    pub(crate) fn arrive(&mut self, connection: u64, who: Credentials) -> Result<(), Refusal> {
        self.rights.arrive(connection, who).inspect_err(|&why| self.refuse(why))
    }

    /// One goes on that has connected before.
    pub(crate) fn meet(&mut self, connection: u64, who: Credentials) {
        self.rights.go_on(connection, who);
    }

    /// Whether the process of a connection may be here.
    pub(crate) fn admits(&self, connection: u64) -> bool {
        self.rights.admits(connection)
    }

    /// Whose process a name is, where that is known.
    pub(crate) fn owner(&self, name: &str) -> Option<u32> {
        self.rows.get(name)?.uid
    }

    /// The config was read again. A name that is a backend's there now is no process's any more.
    pub(crate) fn set_file(&mut self, file: Vec<String>) {
        self.file = file;
        for name in self.file.clone() {
            if let Some(row) = self.rows.remove(&name) {
                self.goes(name, &row);
                if let Row { what, by: Speaker::Process(connection), .. } = row {
                    self.refuse(Refusal::NameInConfig);
                    self.refused.insert(connection, what);
                    self.has_news = true;
                }
            }
        }
    }

    /// The file of an agent was read again: of these names, which are no process's that comes by
    /// itself, it registers some, and what else it has registered goes.
    pub(crate) fn set_own(&mut self, file: Vec<String>, registered: &[String]) {
        let is_over = |name: &str, row: &Row| match row.by {
            Speaker::File => !registered.iter().any(|it| it == name),
            Speaker::Process(_) | Speaker::Before { .. } => file.iter().any(|it| it == name),
        };
        let rows = self.rows.iter().filter(|(name, row)| is_over(name, row));
        for name in rows.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let Some(row) = self.rows.remove(&name) else { continue };
            self.goes(name, &row);
            if let Row { what, by: Speaker::Process(connection), .. } = row {
                self.refuse(Refusal::NameInConfig);
                self.refused.insert(connection, what);
                self.has_news = true;
            }
        }
        self.file = file;
    }

    /// A process says what it is. `Waiting` where the fleet decides; what is refused is remembered.
    pub(crate) fn announce(
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
    pub(crate) fn admit_refused(&mut self) -> bool {
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
    pub(crate) fn refuse(&mut self, why: Refusal) {
        self.refusals[why as usize] += 1;
    }

    /// How often that has happened, for each reason.
    pub(crate) const fn refusals(&self) -> [u64; Refusal::ALL.len()] {
        self.refusals
    }

    fn refusal(&self, connection: u64, name: &str) -> Option<Refusal> {
        if self.file.iter().any(|it| it == name) {
            return Some(Refusal::NameInConfig);
        }
        let (uid, process) = (self.rights.uid(connection), Speaker::Process(connection));
        if let Some(row) = self.rows.get(name) {
            let is_anothers = match row.by {
                Speaker::Process(by) => by != connection,
                Speaker::Before { .. } => row.uid.is_some() && row.uid != uid,
                Speaker::File => false,
            };
            return is_anothers.then_some(Refusal::NameTaken);
        }
        if self.rights.is_anothers(name, uid) {
            return Some(Refusal::NameTaken);
        }
        // Its own name would go.
        let others = || self.rows.values().filter(|row| row.by != process);
        let rules = self.rights.rules();
        if others().count() >= rules.max {
            return Some(Refusal::TooMany);
        }
        let is_full = |uid| others().filter(|row| row.uid == Some(uid)).count() >= rules.per_user;
        uid.is_some_and(is_full).then_some(Refusal::UserQuota)
    }

    fn enter(&mut self, connection: u64, what: Announced) -> Standing {
        // A process has one name.
        let other = |(name, row): (&String, &Row)| {
            (row.by == Speaker::Process(connection) && *name != what.name).then(|| name.clone())
        };
        if let Some(other) = self.rows.iter().find_map(other) {
            self.remove(&other);
        }
        self.put(what, Speaker::Process(connection))
    }

    /// What the config file says of a game process.
    pub(crate) fn file(&mut self, what: Announced) {
        self.put(what, Speaker::File);
    }

    fn put(&mut self, what: Announced, by: Speaker) -> Standing {
        self.gone.remove(&what.name);
        self.rights.taken(&what.name);
        let before = self.rows.remove(&what.name);
        let has_linked = match by {
            Speaker::File => true,
            _ => before
                .as_ref()
                .is_some_and(|row| row.has_linked && row.what.instance == what.instance),
        };
        let uid = match by {
            Speaker::Process(connection) => self.rights.uid(connection),
            Speaker::Before { .. } | Speaker::File => None,
        };
        let is_process = matches!(by, Speaker::Process(_));
        let is_looked = !self.has_looker
            || !is_process
            || before.as_ref().is_some_and(|row| row.is_looked && row.by == by);
        let before = before.map(|row| (row.written, row.standing, row.joins));
        let (written, standing, joins) =
            before.unwrap_or_else(|| (None, Standing::Waiting, Joins::default()));
        let name = what.name.clone();
        let row = Row { what, by, written, standing, uid, has_linked, is_looked, joins };
        self.rows.insert(name, row);
        standing
    }

    /// A connection has ended, and its process with it.
    pub(crate) fn leave(&mut self, connection: u64) {
        self.refused.remove(&connection);
        let process = Speaker::Process(connection);
        let of = |(name, row): (&String, &Row)| (row.by == process).then(|| name.clone());
        if let Some(name) = self.rows.iter().find_map(of) {
            self.remove(&name);
        }
        self.rights.leave(connection);
    }

    fn remove(&mut self, name: &str) {
        if let Some(row) = self.rows.remove(name) {
            self.goes(name.to_owned(), &row);
            // A name that nobody has played at is nobody's to keep from others.
            if let Some(uid) = row.uid.filter(|_| row.has_linked) {
                self.rights.keep(name, uid);
            }
        }
    }

    /// The key of a name is to go. That it drains is what is to be seen of it last.
    fn goes(&mut self, name: String, row: &Row) {
        let state = values::State::Draining;
        let last = row.written.as_ref().map(|(it, _)| values::Backend { state, ..it.clone() });
        self.gone.insert(name, last);
    }

    /// What goes to a successor: their records.
    pub(crate) fn handed(&self) -> Vec<Vec<u8>> {
        let record = |row: &Row| row.what.what.encode(&row.what.name, row.what.instance);
        self.rows.values().filter(|row| row.by != Speaker::File).filter_map(record).collect()
    }

    /// The same of names, and of those that are kept.
    pub(crate) fn owned(&self) -> Vec<OwnedName> {
        let owned = |(name, row): (&String, &Row)| {
            let (name, has_linked) = (name.clone(), row.has_linked);
            Some(OwnedName { name, uid: row.uid?, has_linked })
        };
        self.rows.iter().filter_map(owned).chain(self.rights.kept()).collect()
    }

    /// What the next start has to know of that: whoever has been linked.
    pub(crate) fn owned_for_good(&self) -> Vec<OwnedName> {
        let rows = |it: &OwnedName| self.rows.get(&it.name).is_none_or(|row| row.has_linked);
        self.owned()
            .into_iter()
            .filter(rows)
            .map(|it| OwnedName { has_linked: true, ..it })
            .collect()
    }

    /// Goes on with both, until `until_ms` without the processes.
    pub(crate) fn inherit(&mut self, records: &[Vec<u8>], owned: &[OwnedName], until_ms: u64) {
        for what in records.iter().filter_map(|record| Announced::decode(record)) {
            self.put(what, Speaker::Before { until_ms });
        }
        self.inherit_owned(owned);
    }

    /// Those that nothing is said of are from a predecessor that did not know.
    pub(crate) fn inherit_owned(&mut self, owned: &[OwnedName]) {
        for row in self.rows.values_mut() {
            row.has_linked = true;
        }
        for OwnedName { name, uid, has_linked } in owned {
            match self.rows.get_mut(name) {
                Some(row) => (row.uid, row.has_linked) = (Some(*uid), *has_linked),
                None if Name::new(name).is_some() => self.rights.keep(name, *uid),
                None => {}
            }
        }
    }

    /// These players have come, and are among those who are counted from now on.
    pub(crate) fn note_joins(&mut self, joined: impl IntoIterator<Item = (String, Join)>) {
        for (name, join) in joined {
            if let Some(row) = self.rows.get_mut(&name) {
                row.joins.note(join);
            }
        }
    }

    /// Whose players have come lately, as it goes to a successor.
    pub(crate) fn joined(&self) -> Vec<(String, Vec<u64>)> {
        let all = self.rows.iter().map(|(name, row)| (name.clone(), row.joins.all()));
        all.filter(|(_, joins)| !joins.is_empty()).collect()
    }

    /// Goes on with that.
    pub(crate) fn inherit_joined(&mut self, joined: &[(String, Vec<u64>)]) {
        for (name, joins) in joined {
            if let Some(row) = self.rows.get_mut(name) {
                row.joins.go_on(joins);
            }
        }
    }

    /// Everybody who is spoken for, with how many slots each has.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&str, u32)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row.what.what.slots))
    }

    /// Who has come to say what it is.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let come = self.rows.iter().filter(|(_, row)| row.by != Speaker::File);
        come.map(|(name, _)| name.as_str())
    }

    /// What the registration is to be told now.
    fn wishes(&mut self, now_ms: u64, counted: &Counted) -> Vec<Wish> {
        let late = |(name, row): (&String, &Row)| {
            let is_late = matches!(row.by, Speaker::Before { until_ms } if now_ms >= until_ms);
            is_late.then(|| name.clone())
        };
        for name in self.rows.iter().filter_map(late).collect::<Vec<_>>() {
            self.remove(&name);
        }
        self.rights.pass(now_ms);
        let goes = |(name, last): (&String, &Option<values::Backend>)| {
            Some(Wish::Remove(Name::new(name)?, last.clone()))
        };
        let mut wishes: Vec<_> = self.gone.iter().filter_map(goes).collect();
        let mut sets = Vec::new();
        for (name, row) in &mut self.rows {
            row.has_linked |= counted.linked.contains(name);
            row.show_joins(now_ms);
            let mut value = row.value(&self.host, &self.reach, counted);
            if self.is_draining {
                value.state = values::State::Draining;
            }
            if row.is_looked
                && row.is_due(&value, now_ms, self.is_draining)
                && let Some(name) = Name::new(name)
            {
                let last_ms = row.written.as_ref().map(|(_, at_ms)| *at_ms);
                sets.push((last_ms, Wish::Set(name, value)));
            }
        }
        // There may be no room for all of them: who has waited longest is first.
        sets.sort_by_key(|(last_ms, _)| *last_ms);
        wishes.extend(sets.into_iter().map(|(_, wish)| wish));
        wishes
    }

    /// Tells the registration what is due; `say` returns whether there was room.
    pub(crate) fn tell(
        &mut self,
        now_ms: u64,
        counted: &Counted,
        keyspace: &Keyspace,
        mut say: impl FnMut(Command) -> bool,
    ) {
        for wish in self.wishes(now_ms, counted) {
            // What finds no room is told with the next tick.
            if wish.command(keyspace).is_some_and(&mut say) {
                self.told(&wish, now_ms);
            }
        }
    }

    /// That was told.
    fn told(&mut self, wish: &Wish, now_ms: u64) {
        match wish {
            Wish::Set(name, value) => {
                if let Some(row) = self.rows.get_mut(name.as_str()) {
                    row.written = Some((value.clone(), now_ms));
                }
            }
            Wish::Remove(name, _) => drop(self.gone.remove(name.as_str())),
        }
    }

    /// How the registration stands with each. Returns whether that is news for anybody.
    pub(crate) fn see_registration(
        &mut self,
        registration: &Registration,
        keyspace: &Keyspace,
    ) -> bool {
        self.see(|name| registration.standing(&keyspace.key(&Place::Backend(Name::new(name)?))))
    }

    fn see(&mut self, held: impl Fn(&str) -> Option<Held>) -> bool {
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

    /// How it stands with a process of this name.
    pub(crate) fn standing_of(&self, name: &str) -> Option<Standing> {
        self.rows.get(name).map(|row| row.standing)
    }

    /// How it stands with the process of a connection; `None` where it has not said what it is.
    pub(crate) fn standing(&self, connection: u64) -> Option<Standing> {
        if let Some(what) = self.refused.get(&connection) {
            return self.refusal(connection, &what.name).map(Refusal::standing);
        }
        let process = Speaker::Process(connection);
        self.rows.values().find(|row| row.by == process).map(|row| row.standing)
    }
}

impl Wish {
    fn command(&self, keyspace: &Keyspace) -> Option<Command> {
        let key = |name: &Name| keyspace.key(&Place::Backend(name.clone()));
        Some(match self {
            // Without those who have come where the value has no room for them.
            Self::Set(name, value) => {
                let short = || values::Backend { joined: None, ..value.clone() }.encode();
                Command::Set(key(name), value.encode().or_else(|_| short()).ok()?)
            }
            Self::Remove(name, last) => {
                let last = last.as_ref().and_then(|value| value.encode().ok());
                last.map_or_else(
                    || Command::Remove(key(name)),
                    |value| Command::Retire(key(name), value),
                )
            }
        })
    }
}

impl Row {
    fn value(&self, host: &Name, reach: &Reach, counted: &Counted) -> values::Backend {
        let Announced { name, instance, what } = &self.what;
        let count = |of: &BTreeMap<String, u32>| of.get(name).copied().unwrap_or(0);
        let (players, waiting) = (count(&counted.players), count(&counted.waiting));
        values::Backend {
            instance: format!("{instance:016x}"),
            host: host.to_string(),
            group: what.group.clone(),
            reach: reach.clone(),
            gateways: counted.gateways.get(name).cloned().unwrap_or_default(),
            slots: what.slots,
            used: what.players.map_or(players, |said| said.saturating_add(waiting)),
            state: match what.state {
                State::Draining => values::State::Draining,
                // Whoever says so may never link.
                _ if !self.has_linked => values::State::Starting,
                State::Starting => values::State::Starting,
                State::Ready => values::State::Ready,
                State::Allocated => values::State::Allocated,
            },
            // A process that counts by itself may count them later.
            joined: what.players.is_none().then(|| self.joins.shown().clone()),
            labels: what.labels.iter().cloned().collect(),
        }
    }

    /// The next who have come are told, once those before them were, and as often as loads are.
    fn show_joins(&mut self, now_ms: u64) {
        let is_due = self.written.as_ref().is_none_or(|(written, at_ms)| {
            let is_told = written.joined.as_ref().is_none_or(|it| it == self.joins.shown());
            is_told && now_ms >= at_ms + LOAD_EVERY_MS
        });
        if is_due {
            self.joins.show_next();
        }
    }

    /// Whether this is another value than the last, and not too soon after it: later where only the
    /// number of players has changed, and at once where all of them drain.
    fn is_due(&self, value: &values::Backend, now_ms: u64, hurries: bool) -> bool {
        let Some((written, at_ms)) = &self.written else { return true };
        if value == written {
            return false;
        }
        let values::Backend { used, joined, .. } = written.clone();
        let is_load = values::Backend { used, joined, ..value.clone() } == *written;
        let wait_ms = if is_load { LOAD_EVERY_MS } else { CHANGE_EVERY_MS };
        now_ms >= at_ms + wait_ms || (hurries && !is_load)
    }
}

/// Players come and go by the moment.
const LOAD_EVERY_MS: u64 = 1_000;
/// A process may say something else as often as it likes.
const CHANGE_EVERY_MS: u64 = 250;

#[cfg(test)]
mod tests;
