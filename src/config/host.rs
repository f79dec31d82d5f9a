//! The file of an agent, on a host with game processes: `[agent]`, one `[[backend]]` for each of
//! them, as in a gateway's file, and `[admin]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate_agent::options::Gateway;

use super::backend::{self, Known};
use super::distinct::Distinct;
use super::identity::{self, Identity};
use super::keys::KeySources;
use super::mistake::{Mistakes, Place, Report};
use super::read::{open, read_admin, syntax, table, tables};
use super::schema::{self, Changes, Example, Field, Kind, Presence, Table};
use super::section::Section;
use super::values::{self, words};
use super::{Admin, Backend, Link, LoadError, LogFormat};
use ringgate_core::limits::BACKENDS_MAX;

/// Everything that such a file says.
#[derive(Debug)]
pub struct HostConfig {
    /// The agent.
    pub agent: Agent,
    /// The game processes of this host. Invariant: at least one, names and addresses unique, udp
    /// addresses IPv4 and loopback.
    pub backends: Vec<Backend>,
    /// `[admin]`; without it no admin address is served.
    pub admin: Option<Admin>,
}

/// `[agent]`.
#[derive(Debug)]
pub struct Agent {
    /// What it is called, in its certificate too.
    pub name: String,
    /// The gateways that it connects to. Invariant: at least one, each once.
    pub gateways: Vec<Gateway>,
    /// Who it is to them.
    pub identity: Identity,
    /// Where its sockets live.
    pub run_dir: PathBuf,
    /// How long it waits for players to leave before it ends.
    pub drain_timeout: Duration,
    /// How log lines look.
    pub log: LogFormat,
}

impl HostConfig {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        super::load(file, |text, sources| Self::parse(text, file, sources))
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

fn read<'a>(
    report: &mut Report<'a>,
    text: &'a str,
    file: &Path,
    sources: &KeySources<'_>,
) -> Option<HostConfig> {
    let mut root = syntax(text, report);
    if !report.is_clean() {
        return None;
    }
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let agent = table(&mut root, &AGENT, report);
    if agent.is_none() && report.is_clean() {
        report.expected(&Place::new("agent", 0), "nothing", "a table [agent]");
    }
    let agent = agent.and_then(|found| read_agent(open(report, &AGENT, found), base));
    let admin = table(&mut root, &schema::ADMIN, report)
        .map(|admin| read_admin(open(report, &schema::ADMIN, admin), sources, base));
    let mut known = Known::default();
    let backends: Vec<_> = tables(&mut root, &schema::BACKEND, BACKENDS_MAX, report)
        .into_iter()
        .map(|found| {
            let place = Place::new(format!("{}.address", found.0.path), found.0.at);
            let backend = backend::read(open(report, &schema::BACKEND, found), &mut known)?;
            check_address(&backend, &place, report);
            Some(backend)
        })
        .collect();
    let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    for key in root.keys() {
        let place = Place::new(key.get_ref().as_ref(), key.span().start);
        report.unknown(&place, key.get_ref(), &names);
    }
    Some(HostConfig {
        agent: agent?,
        backends: backends.into_iter().collect::<Option<_>>()?,
        admin: admin.map_or(Some(None), |admin| admin.map(Some))?,
    })
}

/// Players have loopback addresses towards a server, so it has to be there.
fn check_address(backend: &Backend, place: &Place, report: &mut Report<'_>) {
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

fn read_agent(mut section: Section<'_, '_>, base: &Path) -> Option<Agent> {
    let name = section.text("name", values::agent);
    let gateways = read_gateways(&mut section);
    let of_certificate = section.place("certificate");
    let identity = identity::read(&mut section, base);
    if let Some(Err(why)) = identity.as_ref().map(Identity::agent) {
        section.report.note(&of_certificate, why);
    }
    let run_dir = section.path("run_dir", base);
    let drain_timeout = section.duration("drain_timeout");
    let log = section.choice("log");
    section.finish();
    Some(Agent {
        name: name?.0,
        gateways: gateways?,
        identity: identity?,
        run_dir: run_dir?,
        drain_timeout: drain_timeout?,
        log: log?.0,
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

/// All tables of such a file.
pub(super) const TABLES: &[&Table] = &[&AGENT, &schema::ADMIN, &schema::BACKEND];

const AGENT: Table = Table {
    name: "agent",
    repeated: false,
    meaning: "An agent (`ringgate agent --config FILE`) on a host with game processes, in a file of its own beside their [[backend]] \
              tables, whose names, users and addresses it takes; slots and grace are the gateway's to keep.",
    examples: &[Example {
        variant: "",
        values: &[
            ("name", "\"host-7\""),
            ("gateways", "[\"gate-1.example:7200\"]"),
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
            Changes::Restart,
            Kind::List {
                items: "one or more gateways",
                item: "a host and its port, such as \"gate-1.example:7200\"",
            },
            Presence::Required,
            "Where it connects to: [[agent]] bind of each gateway, one number for TCP and UDP. Names are looked up anew for each \
             connection, and a gateway's certificate has to be for the host that stands here.",
        ),
        Field::new(
            "ca",
            Changes::Restart,
            Kind::Value("the path of a file in PEM"),
            Presence::Required,
            "Certificates of the authority that has signed those of gateways. This file and the two that follow are read anew \
             for each connection.",
        ),
        Field::new(
            "certificate",
            Changes::Restart,
            Kind::Value("the path of a file in PEM"),
            Presence::Required,
            "The agent's certificate, for its name, and those that lead to its authority.",
        ),
        Field::new(
            "key",
            Changes::Restart,
            Kind::Value("the path of a file in PEM that is closed to group and others"),
            Presence::Required,
            "The certificate's key.",
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
            "drain_timeout",
            Changes::Restart,
            Kind::Duration { min: "0s", max: "24h" },
            Presence::Default("\"30s\""),
            "An agent that is told to end waits this long for players to leave.",
        ),
        Field::new(
            "log",
            Changes::Restart,
            Kind::Choice(words::<LogFormat>),
            Presence::Default("\"human\""),
            "How log lines look. The command line's --log goes first.",
        ),
    ],
};
