//! The file as a whole: from text to sections, and from their results to a [`Config`].

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::agent;
use super::backend::{self, Known};
use super::keys::KeySources;
use super::listener::{self, Surroundings};
use super::mistake::{Mistakes, Place, Report};
use super::schema::{self, TABLES, Table};
use super::section::{Section, integer, kind_of};
use super::{
    Admin, BatchDelay, Config, Fleet, Gateway, Histograms, Listener, LoadError, Workers,
    fleet as fleet_table, source, values,
};
use ringgate_core::limits::{BACKENDS_MAX, LISTENERS_MAX, SESSIONS_MAX, WORKERS_MAX};

/// Checks a config text. `file` names it in mistakes, and its directory is where relative paths
/// start.
pub fn parse(text: &str, file: &Path, keys: &KeySources<'_>) -> Result<Config, Mistakes> {
    let mut report = Report::new(text);
    let root = syntax(text, &mut report);
    // A text that is not TOML would be full of fields that only seem to be missing. What `read`
    // returns beside mistakes may lack the parts they are in.
    let config = if report.is_clean() { read(root, file, keys, &mut report) } else { None };
    match config {
        Some(config) if report.is_clean() => Ok(config),
        _ => Err(report.into_mistakes(file)),
    }
}

/// Only `gateway.run_dir` of a config file. The rest may be wrong, and its keys out of reach:
/// commands that talk to a running daemon need to know no more.
pub fn run_dir(file: &Path) -> Result<PathBuf, LoadError> {
    let text = super::text_of(file)?;
    let mut report = Report::new(&text);
    let mut root = syntax(&text, &mut report);
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let found = table(&mut root, &schema::GATEWAY, &mut report)
        .unwrap_or_else(|| (Place::new("gateway", 0), DeTable::new()));
    let run_dir = open(&mut report, &schema::GATEWAY, found).path("run_dir", base);
    match run_dir {
        // A text that is no TOML may hide the field.
        Some(run_dir) if report.is_clean() => Ok(run_dir),
        _ => Err(LoadError::Mistakes(report.into_mistakes(file))),
    }
}

/// Only `[fleet]` of a config file, for who needs to know no more: the rest may be wrong, and its
/// keys out of reach. `None` where there is none.
pub fn fleet(file: &Path, keys: &KeySources<'_>) -> Result<Option<Fleet>, LoadError> {
    let text = super::text_of(file)?;
    let mut report = Report::new(&text);
    let mut root = syntax(&text, &mut report);
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let found = table(&mut root, &schema::FLEET, &mut report);
    let fleet = found
        .and_then(|found| fleet_table::read(open(&mut report, &schema::FLEET, found), keys, base));
    if report.is_clean() { Ok(fleet) } else { Err(LoadError::Mistakes(report.into_mistakes(file))) }
}

pub(super) fn syntax<'a>(text: &'a str, report: &mut Report) -> DeTable<'a> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(text.len(), |span| span.start);
        report.note(&Place::new("syntax", at), error.message().replace('\n', " "));
    }
    root.into_inner()
}

fn read(
    mut root: DeTable<'_>,
    file: &Path,
    keys: &KeySources<'_>,
    report: &mut Report,
) -> Option<Config> {
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let gateway = table(&mut root, &schema::GATEWAY, report)
        .unwrap_or_else(|| (Place::new("gateway", 0), DeTable::new()));
    let gateway = read_gateway(open(report, &schema::GATEWAY, gateway), base);
    let admin = table(&mut root, &schema::ADMIN, report)
        .and_then(|admin| read_admin(open(report, &schema::ADMIN, admin), keys, base));
    let histograms = table(&mut root, &schema::HISTOGRAMS, report).and_then(|histograms| {
        read_histograms(open(report, &schema::HISTOGRAMS, histograms), base)
    });

    let has_fleet = root.contains_key(schema::FLEET.name);
    let fleet = table(&mut root, &schema::FLEET, report)
        .map(|fleet| fleet_table::read(open(report, &schema::FLEET, fleet), keys, base));

    let mut known = Known::default();
    let backends = if has_fleet && !root.contains_key(schema::BACKEND.name) {
        Vec::new()
    } else {
        tables(&mut root, &schema::BACKEND, BACKENDS_MAX, report)
    };
    let backends: Vec<_> = backends
        .into_iter()
        .map(|backend| backend::read(open(report, &schema::BACKEND, backend), &mut known))
        .collect();
    let mut before = agent::Before::default();
    let agents: Vec<_> = optional_tables(&mut root, &schema::AGENT, AGENTS_MAX, report)
        .into_iter()
        .map(|found| {
            let section = open(report, &schema::AGENT, found);
            agent::read(section, (&known, has_fleet), (keys, base), &mut before)
        })
        .collect();
    let fleet_read = fleet.as_ref().and_then(Option::as_ref);
    let mut around = Surroundings::new(&known, keys, base, (has_fleet, fleet_read));
    around.workers = match gateway.as_ref().map(|gateway| gateway.workers) {
        Some(Workers::Count(count)) => Some(count.get()),
        Some(Workers::Auto) | None => None,
    };
    let mut sessions = 0;
    let listeners: Vec<_> = tables(&mut root, &schema::LISTENER, LISTENERS_MAX, report)
        .into_iter()
        .map(|found| {
            let place = Place::new(format!("{}.max_sessions", found.0.path), found.0.at);
            let listener = listener::read(open(report, &schema::LISTENER, found), &mut around)?;
            sum_sessions(&mut sessions, &listener, &place, report);
            Some(listener)
        })
        .collect();

    let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    for key in root.keys() {
        let place = Place::new(key.get_ref().as_ref(), key.span().start);
        report.unknown(&place, key.get_ref(), &names);
    }
    Some(Config {
        gateway: gateway?,
        listeners: listeners.into_iter().collect::<Option<_>>()?,
        backends: backends.into_iter().collect::<Option<_>>()?,
        agents: agents.into_iter().collect::<Option<_>>()?,
        fleet: if has_fleet { Some(fleet??) } else { None },
        admin,
        histograms,
    })
}

/// Notes where the sessions of all listeners become too many.
fn sum_sessions(sum: &mut usize, listener: &Listener, place: &Place, report: &mut Report) {
    let before = *sum;
    *sum = before.saturating_add(listener.max_sessions);
    if before <= SESSIONS_MAX && *sum > SESSIONS_MAX {
        report.expected(
            place,
            format_args!("{sum} with the listeners before it"),
            format_args!("at most {SESSIONS_MAX} over all listeners"),
        );
    }
}

fn read_gateway(mut section: Section<'_, '_>, base: &Path) -> Option<Gateway> {
    let workers = section.value("workers", workers);
    let pin = section.flag("pin");
    let io = section.choice("io");
    let run_dir = section.path("run_dir", base);
    let state_dir = section.path("state_dir", base);
    let drain_timeout = section.duration("drain_timeout");
    let reserve_sessions = section.integer("reserve_sessions");
    let spin = section.duration("spin");
    let batch_delay = section.value("batch_delay", batch_delay);
    let log = section.choice("log");
    let user = section.text_or("user", None, |text| values::user(text).map(Some));
    let confine = section.flag("confine");
    section.finish();
    Some(Gateway {
        workers: workers?.0,
        pin: pin?,
        io: io?.0,
        run_dir: run_dir?,
        state_dir: state_dir?,
        drain_timeout: drain_timeout?,
        reserve_sessions: reserve_sessions.and_then(|count| usize::try_from(count).ok())?,
        spin: spin?,
        batch_delay: batch_delay?.0,
        log: log?.0,
        user: user?,
        confine: confine?,
    })
}

/// Agents of one gateway.
const AGENTS_MAX: usize = 256;

fn workers(value: &DeValue<'_>) -> Option<Workers> {
    if value.as_str() == Some("auto") {
        return Some(Workers::Auto);
    }
    let count = usize::try_from(integer(value)?).ok().filter(|count| *count <= WORKERS_MAX)?;
    count.try_into().ok().map(Workers::Count)
}

fn batch_delay(value: &DeValue<'_>) -> Option<BatchDelay> {
    match value.as_str()? {
        "auto" => Some(BatchDelay::Auto),
        text => {
            let delay = values::duration(text).filter(|delay| *delay <= BATCH_DELAY_MAX)?;
            Some(BatchDelay::AtMost(delay))
        }
    }
}

/// A player feels more than that, and receive buffers may overflow meanwhile.
const BATCH_DELAY_MAX: Duration = Duration::from_millis(1);

pub(super) fn read_admin(
    mut section: Section<'_, '_>,
    keys: &KeySources<'_>,
    base: &Path,
) -> Option<Admin> {
    let bind = section.text("bind", values::address);
    let hosts = section.list("hosts", |value| values::host(value.as_str()?));
    let token = section.node("token").map(|node| source::read(node, keys, base, section.report));
    section.finish();
    let hosts = hosts?.into_iter().map(|(host, _)| host).collect();
    Some(Admin { bind: bind?.0, hosts, token: token.map_or(Some(None), |it| it.map(Some))? })
}

fn read_histograms(mut section: Section<'_, '_>, base: &Path) -> Option<Histograms> {
    let dir = section.path("dir", base);
    let interval = section.duration("interval");
    let bytes_max = section.integer("max_bytes");
    let age_max = section.duration("max_age");
    let keep = section.integer("keep");
    section.finish();
    Some(Histograms {
        dir: dir?,
        interval: interval?,
        bytes_max: bytes_max?,
        age_max: age_max?,
        keep: NonZeroUsize::new(keep? as usize),
    })
}

/// One table of the text, with its place.
pub(super) type Found<'a> = (Place, DeTable<'a>);

pub(super) fn open<'r, 'a>(
    report: &'r mut Report,
    description: &'static Table,
    (place, values): Found<'a>,
) -> Section<'r, 'a> {
    Section::new(report, description, place, values)
}

/// The table that is written `[name]`.
pub(super) fn table<'a>(
    root: &mut DeTable<'a>,
    description: &Table,
    report: &mut Report,
) -> Option<Found<'a>> {
    let name = description.name;
    let value = root.remove(name)?;
    let place = Place::new(name, value.span().start);
    match value.into_inner() {
        DeValue::Table(values) => Some((place, values)),
        other => {
            report.expected(&place, kind_of(&other), format_args!("one table [{name}]"));
            None
        }
    }
}

/// The tables that are written `[[name]]`, if there are any, and at most so many.
pub(super) fn optional_tables<'a>(
    root: &mut DeTable<'a>,
    description: &Table,
    count_max: usize,
    report: &mut Report,
) -> Vec<Found<'a>> {
    let is_there = root.contains_key(description.name);
    if is_there { tables(root, description, count_max, report) } else { Vec::new() }
}

/// The tables that are written `[[name]]`, at least one and at most so many.
pub(super) fn tables<'a>(
    root: &mut DeTable<'a>,
    description: &Table,
    count_max: usize,
    report: &mut Report,
) -> Vec<Found<'a>> {
    let name = description.name;
    let Some(value) = root.remove(name) else {
        let expected = format_args!("at least one table [[{name}]]");
        report.expected(&Place::new(name, 0), "nothing", expected);
        return Vec::new();
    };
    let place = Place::new(name, value.span().start);
    let expected = format_args!("tables [[{name}]], each with its own fields");
    let list = match value.into_inner() {
        DeValue::Array(list) if !list.is_empty() => list,
        other => {
            report.expected(&place, kind_of(&other), expected);
            return Vec::new();
        }
    };
    if let Some(excess) = list.get(count_max) {
        let place = Place::new(name, excess.span().start);
        let found = format_args!("{} tables [[{name}]]", list.len());
        report.expected(&place, found, format_args!("at most {count_max}"));
    }
    let mut tables = Vec::with_capacity(list.len());
    for (index, element) in list.into_iter().enumerate() {
        let place = Place::new(format!("{name}[{index}]"), element.span().start);
        match element.into_inner() {
            DeValue::Table(values) => tables.push((place, values)),
            other => report.expected(&place, kind_of(&other), expected),
        }
    }
    tables
}
