//! The file of an agent, on a host with game processes: `[agent]`, one `[[backend]]` for each of
//! them, as in a gateway's file, `[admin]`, and `[fleet]`, where it registers them and finds
//! gateways.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::protocol::tls;
use toml::de::DeValue;
use zeroize::Zeroizing;

use super::backend::{self, Known};
use super::distinct::Distinct;
use super::fleet as fleet_table;
use super::hosted::{self, Hosted};
use super::identity::{self, Identity};
use super::keys::KeySources;
use super::mistake::{Mistakes, Place, Report};
use super::read::{open, optional_tables, read_admin, syntax, table};
use super::schema::{self, Changes, Example, Field, Kind, Presence, Table};
use super::section::Section;
use super::values::{self, words};
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

    /// Who the agent is to gateways, by certificates as they are now.
    pub fn identity(&self) -> Result<tls::Agent, String> {
        let text = self.text().clone();
        let read = HostConfig::parse(&text, &self.file, &KeySources::of_process());
        read.map_err(|why| why.to_string())?.agent.identity.agent()
    }

    fn text(&self) -> MutexGuard<'_, Zeroizing<String>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What it takes to change a field of an agent that runs.
pub(crate) fn changes_of(table: &str, field: &str) -> Changes {
    let table = TABLES.iter().find(|it| it.name == table);
    let found = table.and_then(|it| it.fields.iter().find(|it| it.name == field));
    found.map(|it| it.changes).expect("the field is described")
}

/// `[agent]`.
#[derive(Debug)]
pub struct Agent {
    /// What it is called, in its certificate too.
    pub name: String,
    /// The gateways that it connects to. Invariant: each once; at least one, unless there is a
    /// fleet.
    pub gateways: Vec<Gateway>,
    /// Regions whose gateways of the fleet it connects to; none for its own.
    pub regions: Vec<Name>,
    /// Gateways of the fleet that it connects to at a time.
    pub max_gateways: usize,
    /// Who it is to them.
    pub identity: Identity,
    /// Where its sockets live.
    pub run_dir: PathBuf,
    /// Where it keeps what it knows of the fleet.
    pub state_dir: PathBuf,
    /// How long it waits for players to leave before it ends.
    pub drain_timeout: Duration,
    /// How log lines look.
    pub log: LogFormat,
    /// Whom the agent becomes before it connects to anybody.
    pub user: Option<String>,
    /// Whether it gives up system calls and files that it does not need.
    pub confine: bool,
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
        let mut report = Report::new(text);
        let found = read(&mut report, text, file, sources);
        match found {
            Some(config) if report.is_clean() => Ok(config),
            _ => Err(report.into_mistakes(file)),
        }
    }
}

fn read(
    report: &mut Report,
    text: &str,
    file: &Path,
    sources: &KeySources<'_>,
) -> Option<HostConfig> {
    let mut root = syntax(text, report);
    if !report.is_clean() {
        return None;
    }
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let has_fleet = root.contains_key(schema::FLEET.name);
    let agent = table(&mut root, &AGENT, report);
    if agent.is_none() && report.is_clean() {
        report.expected(&Place::new("agent", 0), "nothing", "a table [agent]");
    }
    let agent =
        agent.and_then(|found| read_agent(open(report, &AGENT, found), has_fleet, (sources, base)));
    let fleet = table(&mut root, &schema::FLEET, report)
        .map(|found| read_fleet(open(report, &schema::FLEET, found), sources, base));
    let admin = table(&mut root, &schema::ADMIN, report)
        .map(|admin| read_admin(open(report, &schema::ADMIN, admin), sources, base));
    let mut known = Known::default();
    if !has_fleet && !root.contains_key(BACKEND.name) {
        let expected = "at least one table [[backend]], or a table [fleet]";
        report.expected(&Place::new(BACKEND.name, 0), "nothing", expected);
    }
    let backends: Vec<_> = optional_tables(&mut root, &BACKEND, BACKENDS_MAX, report)
        .into_iter()
        .map(|found| {
            let place = Place::new(format!("{}.address", found.0.path), found.0.at);
            let (backend, hosted) =
                read_backend(open(report, &BACKEND, found), has_fleet, &mut known)?;
            check_address(&backend, &place, report);
            Some((backend, hosted))
        })
        .collect();
    let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    for key in root.keys() {
        let place = Place::new(key.get_ref().as_ref(), key.span().start);
        report.unknown(&place, key.get_ref(), &names);
    }
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
fn read_fleet(section: Section<'_, '_>, sources: &KeySources<'_>, base: &Path) -> Option<Fleet> {
    if section.has("name") {
        let place = section.place("name");
        section.report.expected(&place, "a name", "nothing: an agent is called by agent.name");
    }
    fleet_table::read(section, sources, base)
}

fn read_backend(
    mut section: Section<'_, '_>,
    has_fleet: bool,
    known: &mut Known,
) -> Option<(Backend, Option<Hosted>)> {
    let backend = backend::read_fields(&mut section, known);
    let hosted = hosted::read(&mut section, has_fleet);
    section.finish();
    Some((backend?, hosted.ok()?))
}

fn read_agent(
    mut section: Section<'_, '_>,
    has_fleet: bool,
    (sources, base): (&KeySources<'_>, &Path),
) -> Option<Agent> {
    let name = section.text("name", values::agent);
    if !has_fleet && !section.has("gateways") {
        let place = section.place("gateways");
        section.report.expected(&place, "nothing", "one or more gateways, or a table [fleet]");
    }
    let gateways = read_gateways(&mut section);
    let regions = section.list("regions", |value| Name::new(value.as_str()?));
    let max_gateways = section.integer("max_gateways");
    let of_certificate = section.place("certificate");
    let identity = identity::read(&mut section, sources, base);
    if let Some(Err(why)) = identity.as_ref().map(Identity::agent) {
        section.report.note(&of_certificate, why);
    }
    let run_dir = section.path("run_dir", base);
    let state_dir = section.path("state_dir", base);
    let drain_timeout = section.duration("drain_timeout");
    let log = section.choice("log");
    let user = section.text_or("user", None, |text| values::user(text).map(Some));
    let confine = section.flag("confine");
    section.finish();
    Some(Agent {
        name: name?.0,
        gateways: gateways?,
        regions: regions?.into_iter().map(|(region, _)| region).collect(),
        max_gateways: usize::try_from(max_gateways?).ok()?,
        identity: identity?,
        run_dir: run_dir?,
        state_dir: state_dir?,
        drain_timeout: drain_timeout?,
        log: log?.0,
        user: user?,
        confine: confine?,
    })
}

fn read_gateways(section: &mut Section<'_, '_>) -> Option<Vec<Gateway>> {
    let list = section.list("gateways", |value| Gateway::parse(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (gateway, place) in &list {
        seen.check(section.report, place, gateway.to_string());
    }
    Some(list.into_iter().map(|(gateway, _)| gateway).collect())
}

/// Whether a file is an agent's: it says `[agent]`, where a gateway's has `[[agent]]` or none. A
/// file that cannot be read is nobody's.
pub fn is_of_agent(file: &Path) -> bool {
    let Ok(text) = super::text_of(file) else { return false };
    let mut report = Report::new(&text);
    let root = syntax(&text, &mut report);
    let agent = root.get(AGENT.name);
    agent.is_some_and(|agent| matches!(agent.get_ref(), DeValue::Table(_)))
}

/// All tables of such a file.
pub(super) const TABLES: &[&Table] = &[&AGENT, &BACKEND, &schema::ADMIN, &schema::FLEET];

/// A gateway's table, and what the fleet is told of the process.
const BACKEND: Table = Table {
    fields: &BACKEND_FIELDS,
    meaning: "A game process of this host. At least one (none is needed in a fleet), at most 4096.",
    ..schema::BACKEND
};

const BACKEND_FIELDS: [Field; 11] = schema::joined(schema::BACKEND.fields, &hosted::FIELDS);

const AGENT: Table = Table {
    name: "agent",
    repeated: false,
    meaning: "An agent (`ringgate agent --config FILE`) on a host with game processes, in a file of its own beside their [[backend]] \
              tables, whose names, users and addresses it takes. grace is the gateway's to keep, and so are slots outside of a fleet.",
    examples: &[Example {
        variant: "",
        values: &[
            ("name", "\"host-7\""),
            ("ca", "\"/etc/ringgate/trunk-ca.pem\""),
            ("certificate", "\"/etc/ringgate/host-7.pem\""),
            ("key", "\"/etc/ringgate/host-7.key.pem\""),
        ],
    }],
    fields: &[
        Field::new(
            "name",
            Changes::Restart,
            Kind::Value("a DNS name of at most 31 letters, digits, '.', '_' or '-'"),
            Presence::Required,
            "What it is called at gateways ([[agent]] name there) and in its certificate.",
        ),
        Field::new(
            "gateways",
            Changes::ReloadBut("who plays by one that is taken out may do so for drain_timeout"),
            Kind::List {
                items: "one or more gateways",
                item: "a host and its port, such as \"gate-1.example:7200\"",
            },
            Presence::Optional("[\"gate-1.example:7200\"]"),
            "Where it connects to: [[agent]] bind of each gateway, one number for TCP and UDP. Names are looked up anew for each \
             connection, and a gateway's certificate has to be for the host that stands here. Required \
             without [fleet], where gateways say themselves where they are ([[agent]] public).",
        ),
        Field::new(
            "regions",
            Changes::ReloadBut("those that it is connected to stay until they are gone"),
            Kind::List { items: "regions", item: "the fleet.region of gateways" },
            Presence::Optional("[\"eu\", \"us\"]"),
            "Regions whose gateways of the fleet it connects to. Without it: its own, fleet.region.",
        ),
        Field::new(
            "max_gateways",
            Changes::Reload,
            Kind::Integer { min: 1, max: 64 },
            Presence::Default("8"),
            "Gateways of the fleet that it connects to at a time. Where there are more, each agent has others of them, and those \
             that it has stay until they are gone.",
        ),
        Field::new(
            "ca",
            Changes::ReloadBut("for connections that are made later"),
            Kind::Value("the path of a file in PEM"),
            Presence::Required,
            "Certificates of the authority that has signed those of gateways. This file and the two that follow are read anew \
             for each connection.",
        ),
        Field::new(
            "certificate",
            Changes::ReloadBut("for connections that are made later"),
            Kind::Value("the path of a file in PEM"),
            Presence::Required,
            "The agent's certificate, for its name, and those that lead to its authority.",
        ),
        Field::new(
            "key",
            Changes::ReloadBut("for connections that are made later"),
            schema::TRUNK_KEY,
            Presence::Required,
            "The certificate's key: a file, or a credential of the service, which is what it was when that was started.",
        ),
        Field::new(
            "run_dir",
            Changes::Restart,
            Kind::Path { bytes_max: schema::RUN_DIR_BYTES_MAX },
            Presence::Default("\"/run/ringgate-agent\""),
            "Directory of the control socket (control.sock) and of the sockets that game processes connect to: worker-0.sock, \
             worker-1.sock and so on. A gateway of the same host has another.",
        ),
        Field::new(
            "state_dir",
            Changes::Restart,
            Kind::Path { bytes_max: schema::DIR_BYTES_MAX },
            Presence::Default("\"/var/lib/ringgate-agent\""),
            "Directory of what it knows of the fleet's gateways, for a start while etcd is away. Not used without [fleet].",
        ),
        Field::new(
            "drain_timeout",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "24h" },
            Presence::Default("\"30s\""),
            "An agent that is told to end waits this long for players to leave, and so do those of a gateway that a reload has taken \
             out.",
        ),
        Field::new(
            "log",
            Changes::Restart,
            Kind::Choice(words::<LogFormat>),
            Presence::Default("\"human\""),
            "How log lines look. The command line's --log goes first.",
        ),
        Field::new(
            "user",
            Changes::Restart,
            Kind::Value("a user's name"),
            Presence::Optional("\"ringgate-agent\""),
            "Become this user before anybody is connected to. Needs a start as root; without it the agent stays who it is. This user \
             has to be able to read this file and those that it names.",
        ),
        Field::new(
            "confine",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("false"),
            "Give up most system calls, and all files but run_dir, state_dir, the folders of this file and of the certificates that it \
             names, systemd's credentials, and what names of hosts are looked up in.",
        ),
    ],
};
