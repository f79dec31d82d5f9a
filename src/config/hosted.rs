//! What the fleet is told of a `[[backend]]` behind an agent: its group, what it can be chosen by,
//! and how the agent knows whether it is well.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use toml::de::DeValue;

use super::mistake::Place;
use super::schema::{Changes, FLEET_NAME, Field, Kind, Presence, Table};
use super::section::{Node, Noted, Section, kind_of};
use super::values::{self, Word};
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::State;

/// A game process that an agent registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// Which listeners of the fleet lead to it.
    pub group: Name,
    /// What it can be chosen by. Invariant: at most 32, values short and printable.
    pub labels: Vec<(String, String)>,
    /// Who says what it is ready for.
    pub state: StateOf,
    /// How it is known to be well, beside being there.
    pub health: Option<Health>,
}

/// Who says what a game process is ready for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateOf {
    /// The file: that is what it is while it is well.
    File(State),
    /// The SDK server of Agones.
    Agones(Url),
}

/// A check that is made again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What is asked.
    pub check: Check,
    /// How often.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many in a row without a good answer, and it is not well.
    pub failures: u32,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Whether a connection is accepted.
    Tcp(SocketAddr),
    /// Whether the answer is of 2xx.
    Http(Url),
    /// Whether a query of Source servers (`A2S_INFO`) is answered.
    A2s(SocketAddr),
}

/// `http://IP:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Where it is asked.
    pub address: SocketAddr,
    /// What is asked for; it begins with a slash.
    pub path: String,
}

impl Url {
    /// Reads one. `localhost` is 127.0.0.1: nothing is looked up.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = match host.strip_prefix("localhost:") {
            Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)),
            None => values::reachable_address(host)?,
        };
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
        let path = if path.is_empty() { "/" } else { path };
        let is_good = is_plain && address.port() != 0 && path.len() <= PATH_BYTES_MAX;
        is_good.then(|| Self { address, path: path.to_owned() })
    }
}

impl Word for State {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("starting", Self::Starting),
        ("ready", Self::Ready),
        ("allocated", Self::Allocated),
        ("draining", Self::Draining),
    ];
}

/// `None` where the fleet is told nothing of it.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    has_fleet: bool,
) -> Result<Option<Hosted>, Noted> {
    let place = section.place("group");
    let said = ["group", "labels", "state", "health"].into_iter().find(|field| section.has(field));
    let group = section.text_or("group", None, |text| Name::new(text).map(Some));
    let labels = read_labels(section);
    let state = read_state(section);
    let health = read_health(section);
    if let Some(field) = said.filter(|_| !has_fleet) {
        let place = section.place_of(field);
        section.report.expected(&place, format_args!("{field} without a fleet"), "a table [fleet]");
    }
    let (group, labels, state, health) = (group.ok_or(Noted)?, labels?, state?, health?);
    let Some(group) = group else {
        if let Some(field) = said {
            let found = format_args!("nothing, and {field}");
            section.report.expected(&place, found, "the group that it is registered under");
        }
        return Ok(None);
    };
    Ok(Some(Hosted { group, labels, state, health }))
}

fn read_labels(section: &mut Section<'_, '_>) -> Result<Vec<(String, String)>, Noted> {
    let form = section.form("labels");
    let Some(Node { place, value }) = section.node("labels") else { return Ok(Vec::new()) };
    let DeValue::Table(table) = value else {
        section.report.expected(&place, kind_of(&value), form);
        return Err(Noted);
    };
    let mut labels = Vec::new();
    for (name, value) in &table {
        let name = name.get_ref().as_ref();
        let place = Place::new(format!("{}.{name}", place.path), value.span().start);
        match value.get_ref().as_str().filter(|text| is_value(text)) {
            Some(text) if Name::new(name).is_some() => labels.push((name.to_owned(), text.into())),
            Some(_) => section.report.expected(&place, format_args!("{name:?}"), FLEET_NAME),
            None => section.report.expected(&place, kind_of(value.get_ref()), LABEL),
        }
    }
    if labels.len() > LABELS_MAX {
        let found = format_args!("{} labels", labels.len());
        section.report.expected(&place, found, format_args!("at most {LABELS_MAX}"));
    }
    let is_good = labels.len() == table.len() && labels.len() <= LABELS_MAX;
    is_good.then_some(labels).ok_or(Noted)
}

fn is_value(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control)
}

fn read_state(section: &mut Section<'_, '_>) -> Result<StateOf, Noted> {
    let form = section.form("state");
    let Some(Node { place, value }) = section.node("state") else {
        return Ok(StateOf::File(State::Ready));
    };
    let found = match &value {
        DeValue::String(word) => values::word(word).map(StateOf::File),
        DeValue::Table(table) if table.len() == 1 => {
            let url = table.get("agones").and_then(|it| Url::parse(it.get_ref().as_str()?));
            url.map(StateOf::Agones)
        }
        _ => None,
    };
    found.ok_or_else(|| {
        section.report.expected(&place, kind_of(&value), form);
        Noted
    })
}

fn read_health(section: &mut Section<'_, '_>) -> Result<Option<Health>, Noted> {
    let place = section.place("health");
    let Some(mut health) = section.inline("health", &HEALTH)? else { return Ok(None) };
    let address = |text: &str| values::reachable_address(text).map(Some);
    let tcp = health.text_or("tcp", None, address);
    let a2s = health.text_or("a2s", None, address);
    let http = health.text_or("http", None, |text| Url::parse(text).map(Some));
    let every = health.duration("every");
    let timeout = health.duration("timeout");
    let failures = health.integer("failures");
    let (tcp, a2s, http) = (tcp.ok_or(Noted)?, a2s.ok_or(Noted)?, http.ok_or(Noted)?);
    let checks = [tcp.map(Check::Tcp), a2s.map(Check::A2s), http.map(Check::Http)];
    let mut checks: Vec<_> = checks.into_iter().flatten().collect();
    if checks.len() != 1 {
        let found = format_args!("{} checks", checks.len());
        health.report.expected(&place, found, "exactly one of tcp, http and a2s");
    }
    health.finish();
    let check = checks.pop().filter(|_| checks.is_empty()).ok_or(Noted)?;
    let failures = u32::try_from(failures.ok_or(Noted)?).map_err(|_| Noted)?;
    let (every, timeout) = (every.ok_or(Noted)?, timeout.ok_or(Noted)?);
    Ok(Some(Health { check, every, timeout, failures }))
}

/// What `[[backend]]` has in an agent's file alone.
pub(super) const FIELDS: [Field; 4] = [
    Field::new(
        "group",
        Changes::Reload,
        FLEET_NAME,
        Presence::Optional("\"arena\""),
        "Has the agent register it in the fleet, for listeners of this group. Without it the fleet is not told of it, and a \
         process on a bundle link may register itself.",
    ),
    Field::new(
        "labels",
        Changes::Reload,
        Kind::Value(
            "a table of up to 32 names and texts, such as { map = \"dust\", mode = \"ctf\" }",
        ),
        Presence::Optional("{ map = \"dust\", mode = \"ctf\" }"),
        "What a matchmaker can choose it by.",
    ),
    Field::new(
        "state",
        Changes::Reload,
        Kind::Value(
            "\"ready\", \"allocated\", \"starting\", \"draining\", or { agones = \"http://127.0.0.1:9358\" }",
        ),
        Presence::Default("\"ready\""),
        "What it is ready for while it is well: \"ready\" for anybody, \"allocated\" for those whom a matchmaker sends there by its \
         name. { agones = … } asks the SDK server of Agones, which runs beside each of its game servers, once a second. A process \
         that is not there, or not well, is \"starting\": nobody is sent there, and its players stay.",
    ),
    Field::new(
        "health",
        Changes::Reload,
        Kind::Value(
            "a table with exactly one of tcp, http and a2s, such as { http = \"http://127.0.0.1:8080/healthz\" }, and with every \
             (\"2s\"), timeout (\"1s\") and failures (3) where they differ",
        ),
        Presence::Optional(
            "{ http = \"http://127.0.0.1:8080/healthz\", every = \"2s\", timeout = \"1s\", failures = 3 }",
        ),
        "How it is known to be well. Without it: a udp server listens, a process on a bundle link is connected. With it, that and \
         more: a TCP connection is accepted, an HTTP GET answers 2xx, or A2S_INFO, the query that Source and many other servers \
         answer, is answered. failures in a row make it not well, one good answer makes it well.",
    ),
];

/// Explained with the field.
const HEALTH: Table = Table {
    name: "health",
    repeated: false,
    meaning: "",
    examples: &[],
    fields: &[
        Field::new("tcp", Changes::Restart, ADDRESS, Presence::Optional("\"127.0.0.1:27015\""), ""),
        Field::new(
            "http",
            Changes::Restart,
            Kind::Value("http://IP:PORT/PATH, such as \"http://127.0.0.1:8080/healthz\""),
            Presence::Optional("\"http://127.0.0.1:8080/healthz\""),
            "",
        ),
        Field::new("a2s", Changes::Restart, ADDRESS, Presence::Optional("\"127.0.0.1:27015\""), ""),
        Field::new(
            "every",
            Changes::Restart,
            Kind::Duration { min: "100ms", max: "10m" },
            Presence::Default("\"2s\""),
            "",
        ),
        Field::new(
            "timeout",
            Changes::Restart,
            Kind::Duration { min: "10ms", max: "1m" },
            Presence::Default("\"1s\""),
            "",
        ),
        Field::new(
            "failures",
            Changes::Restart,
            Kind::Integer { min: 1, max: 100 },
            Presence::Default("3"),
            "",
        ),
    ],
};

const ADDRESS: Kind = Kind::Value("an IP:port that can be sent to (no wildcard, no port 0)");
const LABEL: &str = "a text of at most 255 bytes without control characters";
const LABEL_BYTES_MAX: usize = 255;
const LABELS_MAX: usize = 32;
const PATH_BYTES_MAX: usize = 1024;
