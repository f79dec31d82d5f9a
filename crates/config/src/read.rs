//! The file as a whole: from text to sections, and from their results to a [`Config`].

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::agent::{self, AGENT};
use super::backend::{self, BACKEND, Known};
use super::cluster::{self, CLUSTER};
use super::declare::Declared;
use super::fleet::{self as fleet_table, FLEET};
use super::gateway::{ADMIN, GATEWAY, HISTOGRAMS};
use super::keys::KeySources;
use super::listener::{self, LISTENER, Surroundings};
use super::mistake::{Mistake, Mistakes, Place, Report};
use super::schema::{TABLES, Table};
use super::section::{Origin, Section, kind_of};
use super::{Admin, Config, Fleet, Gateway, Histograms, Listener, LoadError, Workers};
use ringgate_core::limits::{BACKENDS_MAX, LISTENERS_MAX, SESSIONS_MAX};

/// Checks a config text. `file` names it in mistakes, and its directory is where relative paths
/// start.
pub fn parse(text: &str, file: &Path, keys: &KeySources<'_>) -> Result<Config, Mistakes> {
    Document::new(text, file, keys).read(TABLES, read)
}

/// Only `gateway.run_dir` of a config file. The rest may be wrong, and its keys out of reach:
/// commands that talk to a running daemon need to know no more.
pub fn run_dir(file: &Path) -> Result<PathBuf, LoadError> {
    let (text, keys) = (super::text_of(file)?, KeySources::of_process());
    let mut document = Document::new(&text, file, &keys);
    let run_dir = document.table_or_empty(&GATEWAY).path("run_dir");
    // A text that is no TOML may hide the field.
    document.end(run_dir).map_err(LoadError::Mistakes)
}

/// Only `[fleet]` of a config file, for who needs to know no more: the rest may be wrong, and its
/// keys out of reach. `None` where there is none. Where its own key is out of reach, why that is so
/// comes beside it.
pub fn fleet(
    file: &Path,
    keys: &KeySources<'_>,
) -> Result<Option<(Fleet, Option<Mistake>)>, LoadError> {
    let text = super::text_of(file)?;
    let mut document = Document::new(&text, file, keys);
    let fleet = document.table(&FLEET).and_then(fleet_table::read_sparing);
    document.end(Some(fleet)).map_err(LoadError::Mistakes)
}

fn read(document: &mut Document<'_>) -> Option<Config> {
    let gateway = Gateway::read(document.table_or_empty(&GATEWAY));
    let admin = document.table(&ADMIN).and_then(Admin::read);
    let histograms = document.table(&HISTOGRAMS).and_then(Histograms::read);

    let has_fleet = document.has(&FLEET);
    let fleet = document.table(&FLEET).map(fleet_table::read);

    let mut known = Known::default();
    let backends = if has_fleet { Document::optional_tables } else { Document::tables };
    let backends = backends(document, &BACKEND, BACKENDS_MAX).into_iter();
    let backends: Vec<_> = backends
        .map(|found| backend::read(document.section(&BACKEND, found), &mut known))
        .collect();
    let mut before = agent::Before::default();
    let agents = document.optional_tables(&AGENT, AGENTS_MAX).into_iter();
    let agents: Vec<_> = agents
        .map(|found| {
            let section = document.section(&AGENT, found);
            agent::read(section, (&known, has_fleet), &mut before)
        })
        .collect();
    let fleet_read = fleet.as_ref().and_then(Option::as_ref);
    let has_cluster = document.has(&CLUSTER);
    // Where the fleet is wrong, that is said.
    let may_be_judged = !has_fleet || fleet_read.is_some();
    let cluster = document
        .table(&CLUSTER)
        .filter(|_| may_be_judged)
        .map(|section| cluster::read(section, fleet_read));
    let mut around = Surroundings::new(&known, (has_fleet, fleet_read));
    let served = agents.iter().map(|agent| agent.as_ref().map(|it| it.backends.iter().cloned()));
    around.served =
        served.collect::<Option<Vec<_>>>().map(|all| all.into_iter().flatten().collect());
    let clusters = cluster.iter().flatten().map(|cluster| cluster.bind);
    around.doors = agents.iter().flatten().map(|agent| agent.bind).chain(clusters).collect();
    around.workers = match gateway.as_ref().map(|gateway| gateway.workers) {
        Some(Workers::Count(count)) => Some(count.get()),
        Some(Workers::Auto) | None => None,
    };
    let mut sessions = 0;
    let listeners = document.tables(&LISTENER, LISTENERS_MAX).into_iter();
    let listeners: Vec<_> = listeners
        .map(|found| {
            let place = Place::new(format!("{}.max_sessions", found.0.path), found.0.at);
            let listener = listener::read(document.section(&LISTENER, found), &mut around)?;
            sum_sessions(&mut sessions, &listener, &place, &mut document.report);
            Some(listener)
        })
        .collect();
    Some(Config {
        gateway: gateway?,
        listeners: listeners.into_iter().collect::<Option<_>>()?,
        backends: backends.into_iter().collect::<Option<_>>()?,
        agents: agents.into_iter().collect::<Option<_>>()?,
        cluster: if has_cluster { Some(cluster??) } else { None },
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

/// Agents of one gateway.
const AGENTS_MAX: usize = 256;

/// One table of the text, with its place.
pub(super) type Found<'a> = (Place, DeTable<'a>);

/// A text that is being read, whatever it configures. Tables are taken out of it: what is left at
/// the end does not belong there.
pub(super) struct Document<'a> {
    root: DeTable<'a>,
    pub(super) report: Report,
    origin: Origin<'a>,
    file: &'a Path,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, file: &'a Path, keys: &'a KeySources<'a>) -> Self {
        let mut report = Report::new(text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            report.note(&Place::new("syntax", at), error.message().replace('\n', " "));
        }
        let base = file.parent().unwrap_or_else(|| Path::new(""));
        Self { root: root.into_inner(), report, origin: Origin { base, keys }, file }
    }

    /// Has all of it read, which has these tables.
    pub(super) fn read<T>(
        mut self,
        tables: &[&Table],
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Result<T, Mistakes> {
        // A text that is not TOML would be full of fields that only seem to be missing.
        if !self.report.is_clean() {
            return self.end(None);
        }
        let found = read(&mut self);
        let names: Vec<_> = tables.iter().map(|table| table.name).collect();
        for key in self.root.keys() {
            let place = Place::new(key.get_ref().as_ref(), key.span().start);
            self.report.unknown(&place, key.get_ref(), &names);
        }
        self.end(found)
    }

    /// What was found, where nothing is wrong: beside mistakes it may lack the parts they are in.
    pub(super) fn end<T>(self, found: Option<T>) -> Result<T, Mistakes> {
        match found {
            Some(found) if self.report.is_clean() => Ok(found),
            _ => Err(self.report.into_mistakes(self.file)),
        }
    }

    /// Whether the text says `[name]`.
    pub(super) fn has_table(&self, table: &Table) -> bool {
        self.root.get(table.name).is_some_and(|it| matches!(it.get_ref(), DeValue::Table(_)))
    }

    /// Whether the text has a table that was not read yet, whatever it is.
    pub(super) fn has(&self, table: &Table) -> bool {
        self.root.contains_key(table.name)
    }

    /// The table that is written `[name]`.
    pub(super) fn table(&mut self, table: &'static Table) -> Option<Section<'_, 'a>> {
        let found = self.find(table)?;
        Some(self.section(table, found))
    }

    /// The table that is written `[name]`, which has to be there.
    pub(super) fn table_or_note(&mut self, table: &'static Table) -> Option<Section<'_, 'a>> {
        if !self.has(table) {
            let expected = format_args!("a table [{}]", table.name);
            self.report.expected(&Place::new(table.name, 0), "nothing", expected);
        }
        self.table(table)
    }

    /// Where an absent field of `[name]` would stand.
    pub(super) fn place(&self, table: &Table, field: &str) -> Place {
        let at = self.root.get(table.name).map_or(0, |value| value.span().start);
        Place::new(format!("{}.{field}", table.name), at)
    }

    /// The table that is written `[name]`, or one of defaults.
    fn table_or_empty(&mut self, table: &'static Table) -> Section<'_, 'a> {
        let empty = || (Place::new(table.name, 0), DeTable::new());
        let found = self.find(table).unwrap_or_else(empty);
        self.section(table, found)
    }

    fn find(&mut self, table: &Table) -> Option<Found<'a>> {
        let name = table.name;
        let value = self.root.remove(name)?;
        let place = Place::new(name, value.span().start);
        match value.into_inner() {
            DeValue::Table(values) => Some((place, values)),
            other => {
                let expected = format_args!("one table [{name}]");
                self.report.expected(&place, kind_of(&other), expected);
                None
            }
        }
    }

    /// One of the tables that were found.
    pub(super) fn section(
        &mut self,
        table: &'static Table,
        (place, values): Found<'a>,
    ) -> Section<'_, 'a> {
        Section::new(&mut self.report, self.origin, table, place, values)
    }

    /// The tables that are written `[[name]]`, if there are any, and at most so many.
    pub(super) fn optional_tables(&mut self, table: &Table, count_max: usize) -> Vec<Found<'a>> {
        if self.has(table) { self.tables(table, count_max) } else { Vec::new() }
    }

    /// The tables that are written `[[name]]`, at least one and at most so many.
    pub(super) fn tables(&mut self, table: &Table, count_max: usize) -> Vec<Found<'a>> {
        let (name, report) = (table.name, &mut self.report);
        let Some(value) = self.root.remove(name) else {
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
}
