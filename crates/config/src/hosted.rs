//! What the fleet is told of a `[[backend]]` behind an agent: its group, what it can be chosen by,
//! and how the agent knows whether it is well.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use toml::de::DeValue;

use super::declare::{Declared, declare};
use super::mistake::Place;
use super::schema::{FLEET_NAME, Field, Kind, REACHABLE, Table};
use super::section::{Node, Noted, Read, Section, kind_of};
use super::values::{self, Word, paired};
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::State;

declare! {
    /// A game process that an agent registers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Hosted {
        /// Has the agent register it in the fleet, for listeners of this group. Without it the
        /// fleet is not told of it, and a process on a bundle link may register itself.
        group: Name = by_hand(Kind::Value(FLEET_NAME)), optional: "arena", Reload;
        /// What a matchmaker can choose it by.
        labels: Vec<(String, String)> = custom(Kind::Value(
            "a table of up to 32 names and texts, such as { map = \"dust\", mode = \"ctf\" }"
        ), read_labels), optional: { map = "dust", mode = "ctf" }, Reload;
        /// What it is ready for while it is well: "ready" for anybody, "allocated" for those whom a
        /// matchmaker sends there by its name. { agones = … } asks the SDK server of Agones, which
        /// runs beside each of its game servers, once a second. A process that is not there, or not
        /// well, is "starting": nobody is sent there, and its players stay.
        state: StateOf = custom(Kind::Value(
            "\"ready\", \"allocated\", \"starting\", \"draining\", or { agones = \"http://127.0.0.1:9358\" }"
        ), read_state), default: "ready", Reload;
        /// How it is known to be well. Without it: a udp server listens, a process on a bundle link
        /// is connected. With it, that and more: a TCP connection is accepted, an HTTP GET answers
        /// 2xx, or A2S_INFO, the query that Source and many other servers answer, is answered.
        /// failures in a row make it not well, one good answer makes it well.
        health: Option<Health> = custom(Kind::Value(
            "a table with exactly one of tcp, http and a2s, such as { http = \"http://127.0.0.1:8080/healthz\" }, and with every \
             (\"2s\"), timeout (\"1s\") and failures (3) where they differ"
        ), read_health),
            optional: { http = "http://127.0.0.1:8080/healthz", every = "2s", timeout = "1s", failures = 3 }, Reload;
    }
}

/// What `[[backend]]` has in an agent's file alone.
pub(super) const FIELDS: &[Field] = Hosted::FIELDS;

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

declare! {
    /// A check as it stands in the file.
    struct Fields {
        /// Where a connection is accepted.
        tcp: Option<SocketAddr> =
            text(REACHABLE, values::reachable_address), optional: "127.0.0.1:27015", Reload;
        /// What is answered with 2xx.
        http: Option<Url> = text(
            "http://IP:PORT/PATH, such as \"http://127.0.0.1:8080/healthz\"", Url::parse
        ), optional: "http://127.0.0.1:8080/healthz", Reload;
        /// Where a query of Source servers is answered.
        a2s: Option<SocketAddr> =
            text(REACHABLE, values::reachable_address), optional: "127.0.0.1:27015", Reload;
        /// How often.
        every: Duration = duration("100ms", "10m"), default: "2s", Reload;
        /// How long an answer may take.
        timeout: Duration = duration("10ms", "1m"), default: "1s", Reload;
        /// So many in a row without a good answer, and it is not well.
        failures: u32 = integer(1, 100), default: 3, Reload;
    }
}

const HEALTH: Table = Table::inline("health", &[Fields::FIELDS]);

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
    const WORDS: &'static [(&'static str, Self)] = &paired(Self::NAMES, Self::ALL);
}

/// `None` where the fleet is told nothing of it.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    has_fleet: bool,
) -> Result<Option<Hosted>, Noted> {
    let said = FIELDS.iter().map(|field| field.name).find(|field| section.has(field));
    let group = section.text_or("group", None, |text| Name::new(text).map(Some));
    let mut found = Hosted::find(section);
    if let Some(field) = said.filter(|_| !has_fleet) {
        let place = section.place_of(field);
        section.report.expected(&place, format_args!("{field} without a fleet"), "a table [fleet]");
    }
    found.group = group.ok_or(Noted)?;
    if found.group.is_none() {
        if let Some(field) = said {
            let found = format_args!("nothing, and {field}");
            section.expected("group", found, "the group that it is registered under");
        }
        return Ok(None);
    }
    Hosted::whole(found).map(Some).ok_or(Noted)
}

fn read_labels(section: &mut Section<'_, '_>, name: &str) -> Option<Vec<(String, String)>> {
    let form = section.form(name);
    let Some(Node { place, value }) = section.node(name) else { return Some(Vec::new()) };
    let DeValue::Table(table) = value else {
        section.report.expected(&place, kind_of(&value), form);
        return None;
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
    is_good.then_some(labels)
}

fn is_value(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control)
}

fn read_state(section: &mut Section<'_, '_>, name: &str) -> Option<StateOf> {
    let form = section.form(name);
    let Node { place, value } = section.node(name)?;
    let found = match &value {
        DeValue::String(word) => values::word(word).map(StateOf::File),
        DeValue::Table(table) if table.len() == 1 => {
            let url = table.get("agones").and_then(|it| Url::parse(it.get_ref().as_str()?));
            url.map(StateOf::Agones)
        }
        _ => None,
    };
    if found.is_none() {
        section.report.expected(&place, kind_of(&value), form);
    }
    found
}

fn read_health(section: &mut Section<'_, '_>, name: &str) -> Read<Option<Health>> {
    let Some(mut health) = section.inline(name, &HEALTH).ok()? else { return Some(None) };
    let found = Fields::find(&mut health);
    health.finish();
    let Fields { tcp, http, a2s, every, timeout, failures } = Fields::whole(found)?;
    let checks = [tcp.map(Check::Tcp), a2s.map(Check::A2s), http.map(Check::Http)];
    let mut checks: Vec<_> = checks.into_iter().flatten().collect();
    if checks.len() != 1 {
        let (place, found) = (section.place(name), format_args!("{} checks", checks.len()));
        section.report.expected(&place, found, "exactly one of tcp, http and a2s");
    }
    let check = checks.pop().filter(|_| checks.is_empty())?;
    Some(Some(Health { check, every, timeout, failures }))
}

const LABEL: &str = "a text of at most 255 bytes without control characters";
const LABEL_BYTES_MAX: usize = 255;
const LABELS_MAX: usize = 32;
const PATH_BYTES_MAX: usize = 1024;
