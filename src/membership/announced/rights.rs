//! Who may register which name, and how many a process and a user may have: what one process of an
//! allowed user does is not to keep all the others from registering, nor to get a name that is
//! another user's while that one's process starts anew.
//!
//! A process is who had its id when it connected. One whose id cannot be seen from here, because it
//! is in another namespace, counts for its user only.

use std::collections::BTreeMap;

use ringgate_gate::{Allowed, Credentials};
use ringgate_link::announce::Standing;
use serde::{Deserialize, Serialize};

use crate::config;

/// What the config says of processes that register themselves. A reload changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whose they may be.
    pub allowed: Allowed,
    /// How many there may be.
    pub max: usize,
    /// How many of them may be one process.
    pub per_process: usize,
    /// How many may be one user's.
    pub per_user: usize,
    /// How long a name stays its user's without a process.
    pub grace_ms: u64,
}

impl Rules {
    /// As the config says. With nobody named it is `own` whose processes they may be.
    pub fn of(fleet: &config::Fleet, own: u32) -> Self {
        let config::Allowed { mut uids, gids } = fleet.allowed();
        if uids.is_empty() && gids.is_empty() {
            uids.push(own);
        }
        Self {
            allowed: Allowed { uids, gids },
            max: fleet.max_backends,
            per_process: fleet.backends_per_process,
            per_user: fleet.backends_per_user(),
            grace_ms: u64::try_from(fleet.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A name that is a user's, as it goes to a successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(String, u32, bool)")]
pub struct OwnedName {
    /// The name.
    pub name: String,
    /// Whose it is.
    pub uid: u32,
    /// Whether its process has been linked.
    pub has_linked: bool,
}

/// As gateways have always written it. Agents wrote its fields by name; either is read.
impl From<OwnedName> for (String, u32, bool) {
    fn from(OwnedName { name, uid, has_linked }: OwnedName) -> Self {
        (name, uid, has_linked)
    }
}

ringgate_core::named! {
    /// Why a process is not registered, or not yet.
    pub(crate) enum Refusal;
    /// Another process has the name at this gateway.
    NameTaken = "name_taken",
    /// A backend of the config file has it.
    NameInConfig = "name_in_config",
    /// There are as many as there may be.
    TooMany = "too_many",
    /// Its user may not.
    Unauthorised = "unauthorised",
    /// It has said something that is no announcement.
    Invalid = "invalid",
    /// It has connected, and said nothing.
    Silent = "silent",
    /// It has as many connections as a process may have.
    ProcessQuota = "process_quota",
    /// Its user has as many processes as a user may have.
    UserQuota = "user_quota",
}

impl Refusal {
    /// What the process is told.
    pub(super) const fn standing(self) -> Standing {
        match self {
            Self::NameTaken => Standing::NameTaken,
            Self::NameInConfig => Standing::NameInConfig,
            Self::TooMany | Self::ProcessQuota | Self::UserQuota => Standing::TooMany,
            Self::Unauthorised => Standing::Unauthorised,
            Self::Invalid | Self::Silent => Standing::Invalid,
        }
    }
}

/// The rules, and what they are held to.
pub(super) struct Rights {
    rules: Rules,
    /// Who is at the other end of each connection.
    guests: BTreeMap<u64, Credentials>,
    /// Names that are no process's at the moment, but still a user's.
    kept: BTreeMap<String, Kept>,
    /// Those that are a user's by other gateways and agents of this host, or were when somebody
    /// looked last.
    elsewhere: BTreeMap<String, u32>,
}

struct Kept {
    uid: u32,
    /// Until when; `None` where time has not been told since.
    until_ms: Option<u64>,
}

impl Rights {
    pub(super) const fn new(rules: Rules) -> Self {
        Self { rules, guests: BTreeMap::new(), kept: BTreeMap::new(), elsewhere: BTreeMap::new() }
    }

    pub(super) const fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// How many connections there may be: some are of processes that are refused.
    pub(super) const fn room(&self) -> usize {
        self.rules.max.saturating_add(REFUSED_MAX)
    }

    /// A process has connected.
    pub(super) fn arrive(&mut self, connection: u64, who: Credentials) -> Result<(), Refusal> {
        let Rules { per_process, per_user, .. } = self.rules;
        let count = |is: fn(&Credentials, &Credentials) -> bool| {
            self.guests.values().filter(|it| is(it, &who)).count()
        };
        if !self.rules.allowed.admits(who) {
            return Err(Refusal::Unauthorised);
        }
        if self.guests.len() >= self.room() {
            return Err(Refusal::TooMany);
        }
        if who.pid != 0 && count(|it, who| it.pid == who.pid) >= per_process {
            return Err(Refusal::ProcessQuota);
        }
        if count(|it, who| it.uid == who.uid) >= per_user.saturating_add(REFUSED_MAX) {
            return Err(Refusal::UserQuota);
        }
        self.go_on(connection, who);
        Ok(())
    }

    /// It had connected to a predecessor, or before the last rest.
    pub(super) fn go_on(&mut self, connection: u64, who: Credentials) {
        self.guests.insert(connection, who);
    }

    pub(super) fn leave(&mut self, connection: u64) {
        self.guests.remove(&connection);
    }

    /// Whether its process may be here, by the rules as they are now.
    pub(super) fn admits(&self, connection: u64) -> bool {
        self.guests.get(&connection).is_some_and(|who| self.rules.allowed.admits(*who))
    }

    /// Whose process that is, where it is known.
    pub(super) fn uid(&self, connection: u64) -> Option<u32> {
        self.guests.get(&connection).map(|who| who.uid)
    }

    /// A name is no process's any more.
    pub(super) fn keep(&mut self, name: &str, uid: u32) {
        self.kept.insert(name.to_owned(), Kept { uid, until_ms: None });
        // A process that takes one name after the other keeps as many as there may be.
        let own = || self.kept.iter().filter(|(_, it)| it.uid == uid);
        if own().count() > self.rules.max {
            let first = own().min_by_key(|(_, it)| it.until_ms.unwrap_or(u64::MAX));
            let first = first.map(|(name, _)| name.clone());
            first.and_then(|name| self.kept.remove(&name));
        }
    }

    /// It is a process's again, or the config file's.
    pub(super) fn taken(&mut self, name: &str) {
        self.kept.remove(name);
    }

    /// Whether a name is kept for somebody else than that user.
    pub(super) fn is_anothers(&self, name: &str, uid: Option<u32>) -> bool {
        let owners = [self.kept.get(name).map(|it| it.uid), self.elsewhere.get(name).copied()];
        owners.into_iter().flatten().any(|owner| Some(owner) != uid)
    }

    /// Whose a name is at this host, or that it is nobody's.
    pub(super) fn see_owner(&mut self, name: &str, owner: Option<u32>) {
        match owner {
            Some(uid) => drop(self.elsewhere.insert(name.to_owned(), uid)),
            None => drop(self.elsewhere.remove(name)),
        }
    }

    /// The names that are users' by what was seen last.
    pub(super) fn anothers(&self) -> impl Iterator<Item = &String> {
        self.elsewhere.keys()
    }

    /// Names are free again after a while.
    pub(super) fn pass(&mut self, now_ms: u64) {
        let until_ms = now_ms.saturating_add(self.rules.grace_ms);
        self.kept.retain(|_, it| *it.until_ms.get_or_insert(until_ms) > now_ms);
    }

    /// Names that are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = OwnedName> {
        let owned = |(name, it): (&String, &Kept)| OwnedName {
            name: name.clone(),
            uid: it.uid,
            has_linked: false,
        };
        self.kept.iter().map(owned)
    }
}

/// Connections of those that are refused, beyond those that there may be.
const REFUSED_MAX: usize = 16;
