//! This gateway as a member of its fleet: it registers itself in etcd, and hears from there which
//! backends, keys and bans there are. A gateway whose config has no `[fleet]` has nothing of this.
//!
//! `known` says what etcd's keys mean to this gateway, `merge` makes one config of that and the
//! file, `own` is what it registers; none of them touches anything. `thread` has the connection to
//! etcd, and tells the control thread of what has changed, which changes workers as a reload does.
//! `announced` are the game processes that come to this gateway (or to an agent, see
//! `crate::hosting`) and have it register them. `names` tells all gateways and agents of a host
//! whose their names are. `asked` answers what operators ask all gateways of the fleet through
//! etcd. `claims` asks whose a token is that names several gateways, `players` tells where players
//! are who may be in one place only, `kept` are the keys of listeners that were known, for a start
//! after a restore; `incarnation` is which process of its cluster it is, `unreadable` which keys of
//! etcd are left out. What any process of a fleet does is `ringgate_fleet::member`. Nothing of this
//! is on the way of a packet.

pub(crate) mod announced;
mod asked;
mod claims;
mod incarnation;
mod kept;
mod known;
pub(crate) mod leases;
mod merge;
pub(crate) mod names;
mod own;
mod players;
mod thread;
pub(crate) mod unreadable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ringgate_fleet::clocks::{self, Clocks};
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::lease::Handed;
pub use ringgate_fleet::member::COPY_FILE;
use ringgate_fleet::member::load;
use ringgate_fleet::mirror::{Change, Entry, Truth};
use ringgate_fleet::seal::FleetKey;
pub use ringgate_fleet::values::joined::Join;
use ringgate_fleet::values::{Ban, Reach, Stored as _};
use serde::{Deserialize, Serialize};

use crate::config::{self, Config};
use announced::Book;
pub use announced::{Door, OwnedName, Rules};
pub use asked::{AnswerBody, Answerer, Answering, Questions};
pub use kept::KEYS_FILE;
use known::Reading;
pub use known::{Backend, Clustered, Known};
pub use leases::LEASES_FILE;
use leases::Left;
pub(crate) use merge::{CLASH, keep_connected, merged_beside, serve_also};
pub use merge::{Merged, Refused, merged};
pub use own::Facts;
pub use players::PlayerCounts;
pub use thread::{Ground, Member, Order, Shelf, Status};

/// What is known of a fleet before its thread starts. To be made before files are given up.
pub struct Prepared {
    around: Surroundings,
    settings: Settings,
    /// What was known when the last process of this gateway wrote it down.
    truth: Truth,
    reading: Reading,
    handed: Option<Inherited>,
    /// What the processes before have left in `state_dir`.
    left: Left,
}

/// What a gateway's part in a fleet has around it: all of it that is no decision.
pub struct Surroundings {
    /// Speaks with etcd.
    pub client: Client,
    /// Says what time it is.
    pub clock: Arc<dyn Clocks>,
    /// What the next start finds.
    pub files: StateFiles,
    /// Random, for each process.
    pub random: u64,
}

/// What a gateway leaves to its next start.
#[derive(Clone, Debug)]
pub struct StateFiles {
    /// What was known of the fleet.
    pub copy: StateFile,
    /// Leases, instances and names.
    pub left: StateFile,
    /// The keys of listeners.
    pub kept: StateFile,
}

impl StateFiles {
    /// Those in this folder.
    fn of(state_dir: &Path) -> Self {
        let file = |name| StateFile::Disk(state_dir.join(name));
        Self { copy: file(COPY_FILE), left: file(LEASES_FILE), kept: file(KEYS_FILE) }
    }
}

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
struct Settings {
    keyspace: Keyspace,
    name: Name,
    region: Name,
    host: Name,
    /// Random, for each start of a gateway; its successors have it too.
    instance: String,
    lease_s: i64,
    /// What may be written for the next start, if anything may.
    files: Option<StateFiles>,
    /// Where game processes connect, and which of them are let in when the gateway starts.
    run_dir: PathBuf,
    rules: Rules,
    /// Whether questions are answered: the fleet's key is known.
    answers: bool,
}

/// What a predecessor has handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// Its instance, which goes on.
    pub instance: String,
    /// Its lease, and what stands under it.
    #[serde(flatten)]
    pub handed: Handed,
    /// What game processes have said that registered themselves there.
    #[serde(default)]
    pub announced: Vec<Vec<u8>>,
    /// Whose names are whose.
    #[serde(default)]
    pub owned: Vec<OwnedName>,
    /// By name: whose players have come lately.
    #[serde(default)]
    pub joined: Vec<(String, Vec<u64>)>,
    /// Questions that were answered, and until when each could be believed.
    #[serde(default)]
    pub asked: Vec<(String, u64)>,
    /// How late it was there when one was asked last, in seconds since 1970.
    #[serde(default)]
    pub asked_latest_s: u64,
    /// What [`bounds`](ringgate_fleet::asking::Used::bounds) questions there.
    #[serde(default)]
    pub asked_bounds_s: Option<[u64; 2]>,
    /// Players who have left and of whom the fleet does not know that yet: group and client id.
    #[serde(default)]
    pub left: Vec<(String, u64)>,
    /// Tokens that it had claimed, by their tags, and when each expires.
    #[serde(default)]
    pub tokens: Vec<([u8; 16], u64)>,
    /// Which process of its cluster it was, and its successor is.
    #[serde(default)]
    pub incarnation: Option<u16>,
    /// Whose bans it knew, by key, and until when: its copy may be older. `None` where it has not
    /// said.
    #[serde(default)]
    pub bans: Option<Vec<(String, u64)>>,
    /// Whether its copy says how many keys there should be: what it holds back, its successor does.
    #[serde(default)]
    pub remembers: bool,
}

impl Prepared {
    /// Reads the files that the config names, and the copy. `None` for a gateway without a fleet.
    /// `own` is the user that it runs as, once it has given up what it started with.
    pub fn of(config: &Config, own: u32) -> Result<Option<Self>, String> {
        let Some(fleet) = &config.fleet else { return Ok(None) };
        let client = Client::new(fleet.options()).map_err(|why| format!("[fleet]: {why}"))?;
        let random =
            getrandom::u64().map_err(|why| format!("cannot draw random numbers: {why}"))?;
        let files = StateFiles::of(&config.gateway.state_dir);
        let around = Surroundings { client, clock: clocks::of_host(), files, random };
        Self::with(fleet, &config.gateway, own, around).map(Some)
    }

    /// The same with these surroundings.
    pub fn with(
        fleet: &config::Fleet,
        gateway: &config::Gateway,
        own: u32,
        around: Surroundings,
    ) -> Result<Self, String> {
        let settings = Settings::of(fleet, gateway, own, &around)?;
        let files = &around.files;
        let truth = load(&files.copy, &settings.keyspace.truth(), around.clock.unix_s());
        let mut reading = Reading::new(&settings, fleet.key.clone(), &truth);
        reading.recall(&files.kept);
        let left = leases::load(&files.left);
        Ok(Self { around, settings, truth, reading, handed: None, left })
    }

    /// What the copy says.
    pub fn known(&mut self, now_s: u64) -> Known {
        self.reading.known(now_s)
    }

    /// Writes nothing, and knows of no process before: the folder is another gateway's, or cannot
    /// be used.
    pub fn forget_copy(&mut self) {
        self.settings.files = None;
        self.left = Left::default();
    }

    /// Goes on with the registration of the process before this one.
    pub fn inherit(&mut self, inherited: Inherited) {
        self.settings.instance.clone_from(&inherited.instance);
        self.reading.set_instance(&inherited.instance);
        if let Some(bans) = &inherited.bans {
            self.inherit_bans(&bans.iter().cloned().collect());
        }
        self.handed = Some(inherited);
    }

    /// Who was banned or is no more since the copy was written.
    fn inherit_bans(&mut self, bans: &BTreeMap<String, u64>) {
        let copied = self.reading.bans();
        for key in copied.keys().filter(|key| !bans.contains_key(*key)) {
            self.set_ban(key, None);
        }
        for (key, until) in bans.iter().filter(|(key, until)| copied.get(*key) != Some(*until)) {
            self.set_ban(key, Some(*until));
        }
    }

    fn set_ban(&mut self, key: &str, until: Option<u64>) {
        let key = Bytes::from(key.to_owned());
        let ban = |until| Ban { until, reason: String::new(), by: String::new() };
        let value = until.and_then(|until| ban(until).encode().ok());
        if let Some(value) = value.clone() {
            // At which revision is not known: whatever etcd says of it is news.
            let entry = Entry { value, mod_revision: 0, version: 0, lease: 0 };
            self.truth.entries.insert(key.clone(), entry);
        } else {
            self.truth.entries.remove(&key);
        }
        self.reading.change(&Change { key, value, revision: None }, self.truth.revision);
    }
}

impl Settings {
    /// Who has announced itself: those that a predecessor has handed over, by then. After a start
    /// names are whose they were.
    fn book(&self, file: &[String], handed: Option<(&Inherited, u64)>, left: &Left) -> Book {
        let reach = Reach::Bundle(self.run_dir.to_string_lossy().into_owned());
        let mut book = Book::new(self.host.clone(), reach, self.rules.clone(), file.to_vec());
        if let Some((inherited, now_ms)) = handed {
            book.inherit(&inherited.announced, &inherited.owned, now_ms + LEFT_ALONE_MS);
            book.inherit_joined(&inherited.joined);
        } else {
            book.inherit_owned(&left.owned);
        }
        book
    }

    fn of(
        fleet: &config::Fleet,
        gateway: &config::Gateway,
        uid: u32,
        around: &Surroundings,
    ) -> Result<Self, String> {
        let host = fleet.host_name()?;
        let name = fleet.name.clone().unwrap_or_else(|| host.clone());
        Ok(Self {
            keyspace: fleet.prefix.clone(),
            name,
            region: fleet.region.clone(),
            host,
            instance: format!("{:016x}", around.random),
            lease_s: i64::try_from(fleet.lease.as_secs()).unwrap_or(i64::MAX),
            files: Some(around.files.clone()),
            run_dir: gateway.run_dir.clone(),
            rules: Rules::of(fleet, uid),
            answers: fleet.key.is_some(),
        })
    }
}

ringgate_core::shown_by!(Prepared { settings });

/// How long a process that its gateway's predecessor knew may take to connect again. Its library
/// looks every two seconds at the latest.
const LEFT_ALONE_MS: u64 = 10_000;

/// A fleet may be used without the keys of listeners.
type MaybeKey = Option<FleetKey>;
