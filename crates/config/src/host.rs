//! The file of an agent, on a host with game processes: `[agent]`, one `[[backend]]` for each of
//! them, as in a gateway's file, `[admin]`, and `[fleet]`, where it registers them and finds
//! gateways.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::protocol::tls;
use zeroize::Zeroizing;

use super::backend::{self, Known};
use super::declare::{Declared, declare};
use super::fleet::{self as fleet_table, FLEET};
use super::gateway::ADMIN;
use super::hosted::{self, Hosted};
use super::identity::{self, Identity, Pem};
use super::keys::KeySources;
use super::mistake::{Mistakes, Place, Report};
use super::read::Document;
use super::schema::{DIR_BYTES_MAX, Kind, LEVELS, RUN_DIR_BYTES_MAX, TRUNK_KEY, Table, example};
use super::section::Section;
use super::values;
use super::{Admin, Backend, Fleet, Link, LoadError, LogFormat};
use ringgate_core::limits::BACKENDS_MAX;
use ringgate_fleet::keyspace::Name;

/// Everything that such a file says.
#[derive(Debug)]
pub struct HostConfig {
    /// The agent.
    pub agent: Agent,
    /// The fleet that it is in. Invariant: its name is not said, it is the agent's.
    pub fleet: Option<Fleet>,
    /// The game processes of this host. Invariant: at least one, unless there is a fleet; names and
    /// addresses unique, udp addresses IPv4 and loopback.
    pub backends: Vec<Backend>,
    /// What the fleet is told of each, in the same order. Invariant: `None` without a fleet.
    pub hosted: Vec<Option<Hosted>>,
    /// `[admin]`; without it no admin address is served.
    pub admin: Option<Admin>,
}

/// The text of a file that was taken. What it names is read anew as often as it is asked for,
/// whatever has become of the file itself since.
#[derive(Clone)]
pub struct Accepted {
    file: PathBuf,
    text: Arc<Mutex<Zeroizing<String>>>,
}

impl Accepted {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<(HostConfig, Self), LoadError> {
        let text = super::text_of(file)?;
        let read = HostConfig::parse(&text, file, &KeySources::of_process());
        let accepted = Self { file: file.to_owned(), text: Arc::new(Mutex::new(text)) };
        read.map(|config| (config, accepted)).map_err(LoadError::Mistakes)
    }

    /// Reads and checks the same file as it is now.
    pub fn load_again(&self) -> Result<(HostConfig, Self), LoadError> {
        Self::load(&self.file)
    }

    /// That text is in force from now on.
    pub fn replace(&self, other: &Self) {
        let text = other.text().clone();
        *self.text() = text;
    }

    /// Who the agent is to gateways, by certificates as they are now. No other secret of the file
    /// is read for it.
    pub fn identity(&self) -> Result<tls::Agent, String> {
        let (text, keys) = (self.text().clone(), KeySources::of_process());
        let mut document = Document::new(&text, &self.file, &keys);
        let has_fleet = document.has(&FLEET);
        let agent = document.table(&AGENT).and_then(|section| read_agent(section, has_fleet));
        document.end(agent).map_err(|why| why.to_string())?.identity().agent()
    }

    fn text(&self) -> MutexGuard<'_, Zeroizing<String>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

ringgate_core::shown_by!(Accepted { file });

declare! {
    /// `[agent]`.
    #[derive(Debug)]
    pub struct Agent {
        /// What it is called at gateways ([[agent]] name there) and in its certificate. In a fleet
        /// it begins with a letter or a digit.
        name: String =
            text("a DNS name of at most 31 letters, digits, '.', '_' or '-'", values::agent), required, Restart;
        /// Where it connects to: [[agent]] bind of each gateway, one number for TCP and UDP. Names
        /// are looked up anew for each connection, and a gateway's certificate has to be for the
        /// host that stands here. Required without [fleet], where gateways say themselves where
        /// they are ([[agent]] public).
        gateways: Vec<Gateway> = set(
            "one or more gateways", "a host and its port, such as \"gate-1.example:7200\"",
            |value| Gateway::parse(value.as_str()?), ToString::to_string
        ), optional: ["gate-1.example:7200"],
            ReloadBut("who plays by one that is taken out may do so for drain_timeout");
        /// Regions whose gateways of the fleet it connects to. Without it: its own, fleet.region.
        regions: Vec<Name> = list(
            "regions", "the fleet.region of gateways", |value| Name::new(value.as_str()?)
        ), optional: ["eu", "us"], ReloadBut("those that it is connected to stay until they are gone");
        /// Gateways of the fleet that it connects to at a time. Where there are more, each agent
        /// has others of them, and those that it has stay until they are gone.
        max_gateways: usize = integer(1, 64), default: 8, Reload;
        /// Certificates of the authority that has signed those of gateways. This file and the two
        /// that follow are read anew for each connection.
        ca: Pem = custom(Kind::Value("the path of a file in PEM"), identity::open), required,
            ReloadBut("for connections that are made later");
        /// The agent's certificate, for its name, and those that lead to its authority.
        certificate: Pem = custom(Kind::Value("the path of a file in PEM"), identity::open), required,
            ReloadBut("for connections that are made later");
        /// The certificate's key: a file, or a credential of the service, which is what it was when
        /// that was started.
        key: Pem = custom(Kind::Value(TRUNK_KEY), identity::closed), required,
            ReloadBut("for connections that are made later");
        /// Directory of the control socket (control.sock) and of the sockets that game processes
        /// connect to: worker-0.sock, worker-1.sock and so on. A gateway of the same host has
        /// another.
        run_dir: PathBuf = path(RUN_DIR_BYTES_MAX), default: "/run/ringgate-agent", Restart;
        /// Directory of what it knows of the fleet's gateways, for a start while etcd is away. Not
        /// used without [fleet].
        state_dir: PathBuf = path(DIR_BYTES_MAX), default: "/var/lib/ringgate-agent", Restart;
        /// An agent that is told to end waits this long for players to leave, and so do those of a
        /// gateway that a reload has taken out.
        drain_timeout: Duration = duration("0s", "24h"), default: "30s", Reload;
        /// How log lines look. The command line's --log goes first.
        log: LogFormat = word, default: "human", Restart;
        /// Which log lines are told: a level, and for single parts of the program PART=LEVEL, with
        /// commas between. The variable RINGGATE_LOG goes first.
        log_level: String = text(LEVELS, values::levels), default: "info", Reload;
        /// Become this user before anybody is connected to. Needs a start as root; without it the
        /// agent stays who it is. This user has to be able to read this file and those that it
        /// names.
        user: Option<String> = text("a user's name", values::user), optional: "ringgate-agent", Restart;
        /// Give up most system calls, and all files but run_dir, state_dir, the folders of this
        /// file and of the certificates that it names, systemd's credentials, and what names of
        /// hosts are looked up in.
        confine: bool = flag, default: false, Restart;
    }
}

const AGENT: Table = Table {
    examples: &[example!(
        "": name = "host-7", ca = "/etc/ringgate/trunk-ca.pem", certificate = "/etc/ringgate/host-7.pem",
        key = "/etc/ringgate/host-7.key.pem"
    )],
    ..Table::new(
        "agent",
        "An agent (`ringgate agent --config FILE`) on a host with game processes, in a file of its own beside their \
         [[backend]] tables, whose names, users and addresses it takes. grace is the gateway's to keep, and so are slots \
         outside of a fleet.",
        &[Agent::FIELDS],
    )
};

/// A gateway's table, and what the fleet is told of the process.
const BACKEND: Table = Table {
    parts: &[backend::FIELDS, hosted::FIELDS],
    meaning: "A game process of this host. At least one (none is needed in a fleet), at most 4096.",
    ..backend::BACKEND
};

/// All tables of such a file.
pub(super) const TABLES: &[&Table] = &[&AGENT, &BACKEND, &ADMIN, &FLEET];

impl Agent {
    /// Who it is to gateways.
    pub fn identity(&self) -> Identity {
        let [ca, certificate, key] = [&self.ca, &self.certificate, &self.key].map(Pem::clone);
        Identity { ca, certificate, key }
    }
}

impl HostConfig {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        super::load(file, |text, sources| Self::parse(text, file, sources))
    }

    /// The files that names of hosts are looked up in: gateways may have names, and more of them
    /// may come.
    pub const fn resolver_files(&self) -> &'static [&'static str] {
        fleet_table::RESOLVER_FILES
    }

    /// Checks a text. `file` names it in mistakes, and its directory is where relative paths start.
    pub fn parse(text: &str, file: &Path, sources: &KeySources<'_>) -> Result<Self, Mistakes> {
        Document::new(text, file, sources).read(TABLES, read)
    }
}

fn read(document: &mut Document<'_>) -> Option<HostConfig> {
    let has_fleet = document.has(&FLEET);
    let agent = document.table_or_note(&AGENT).and_then(|section| read_agent(section, has_fleet));
    let fleet = document.table(&FLEET).map(read_fleet);
    let admin = document.table(&ADMIN).map(Admin::read);
    let mut known = Known::default();
    if !has_fleet && !document.has(&BACKEND) {
        let expected = "at least one table [[backend]], or a table [fleet]";
        document.report.expected(&Place::new(BACKEND.name, 0), "nothing", expected);
    }
    let backends = document.optional_tables(&BACKEND, BACKENDS_MAX).into_iter();
    let backends: Vec<_> = backends
        .map(|found| {
            let place = Place::new(format!("{}.address", found.0.path), found.0.at);
            let section = document.section(&BACKEND, found);
            let (backend, hosted) = read_backend(section, has_fleet, &mut known)?;
            check_address(&backend, &place, &mut document.report);
            Some((backend, hosted))
        })
        .collect();
    let backends: Vec<_> = backends.into_iter().collect::<Option<_>>()?;
    let (backends, hosted) = backends.into_iter().unzip();
    Some(HostConfig {
        agent: agent?,
        fleet: fleet.map_or(Some(None), |fleet| fleet.map(Some))?,
        backends,
        hosted,
        admin: admin.map_or(Some(None), |admin| admin.map(Some))?,
    })
}

/// Players have loopback addresses towards a server, so it has to be there.
fn check_address(backend: &Backend, place: &Place, report: &mut Report) {
    let Link::Udp(address) = backend.link else { return };
    let is_local = matches!(address, SocketAddr::V4(v4) if v4.ip().is_loopback());
    if !is_local {
        report.expected(
            place,
            address,
            "an IPv4 loopback address: an agent is on the server's host",
        );
    }
}

/// An agent is called in the fleet as it is at gateways.
fn read_fleet(mut section: Section<'_, '_>) -> Option<Fleet> {
    if section.has("name") {
        section.expected("name", "a name", "nothing: an agent is called by agent.name");
    }
    fleet_table::read(section)
}

fn read_backend(
    mut section: Section<'_, '_>,
    has_fleet: bool,
    known: &mut Known,
) -> Option<(Backend, Option<Hosted>)> {
    let backend = backend::read_fields(&mut section, known);
    let hosted = hosted::read(&mut section, has_fleet);
    if let (Some(backend), Ok(Some(_))) = (&backend, &hosted) {
        section.check_fleet_name(&backend.name);
    }
    section.finish();
    Some((backend?, hosted.ok()?))
}

fn read_agent(mut section: Section<'_, '_>, has_fleet: bool) -> Option<Agent> {
    if !has_fleet && !section.has("gateways") {
        section.expected("gateways", "nothing", "one or more gateways, or a table [fleet]");
    }
    let found = Agent::find(&mut section);
    if let Some(name) = found.name.as_ref().filter(|_| has_fleet) {
        section.check_fleet_name(name);
    }
    let files = [&found.ca, &found.certificate, &found.key].map(Option::as_ref);
    let _ = identity::whole(&mut section, files, Identity::agent);
    section.finish();
    Agent::whole(found)
}

/// Whether a file is an agent's: it says `[agent]`, where a gateway's has `[[agent]]` or none. A
/// file that cannot be read is nobody's.
pub fn is_of_agent(file: &Path) -> bool {
    let Ok(text) = super::text_of(file) else { return false };
    Document::new(&text, file, &KeySources::of_process()).has_table(&AGENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_handbook_says_of_an_agents_fields_what_it_takes_to_change_them() {
        let text = include_str!("../../../docs/start/two-hosts.md");
        for table in ["agent", "admin"] {
            let start = format!("| in `[{table}]` |");
            let row = text.lines().find_map(|line| line.strip_prefix(&start)).expect("a row");
            let (with_reload, without) = row.split_once('|').expect("two columns");
            let names = |column: &'static str| column.split('`').skip(1).step_by(2);
            let table = TABLES.iter().find(|it| it.name == table).expect("there is such a table");
            let all = table.fields().map(|it| (it.name, it.changes));
            let (live, others): (Vec<_>, Vec<_>) =
                all.partition(|(_, changes)| *changes != super::super::Changes::Restart);
            let [live, others] =
                [live, others].map(|it| it.into_iter().map(|(name, _)| name).collect());
            assert_eq!(names(with_reload).collect::<BTreeSet<_>>(), live, "{}", table.name);
            assert_eq!(names(without).collect::<BTreeSet<_>>(), others, "{}", table.name);
        }
    }
}
