//! The file as a whole: from text to sections, and from their results to a [`Config`].

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::backend::{self, Known};
use super::keys::KeySources;
use super::listener::{self, Surroundings};
use super::mistake::{Mistakes, Place, Report};
use super::schema::{self, TABLES};
use super::section::{Found, Section, integer};
use super::{Admin, Config, Gateway, Histograms, Workers, values};
use crate::limits::WORKERS_MAX;

/// Checks a config text. `file` names it in mistakes, and its directory is where relative paths start.
pub fn parse(text: &str, file: &Path, keys: &KeySources<'_>) -> Result<Config, Mistakes> {
    let mut report = Report::new(text);
    let root = syntax(text, &mut report);
    // A text that is not TOML would be full of fields that only seem to be missing.
    let config = if report.is_clean() { read(&root, file, keys, &mut report) } else { None };
    match config {
        Some(config) if report.is_clean() => Ok(config),
        _ => Err(report.into_mistakes(file)),
    }
}

fn syntax<'a>(text: &'a str, report: &mut Report<'_>) -> DeTable<'a> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(text.len(), |span| span.start);
        report.note(&Place::new("syntax", at), error.message().replace('\n', " "));
    }
    root.into_inner()
}

fn read(
    root: &DeTable<'_>,
    file: &Path,
    keys: &KeySources<'_>,
    report: &mut Report<'_>,
) -> Option<Config> {
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    for key in root.keys() {
        let known: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        if !known.contains(&key.get_ref().as_ref()) {
            report.unknown(
                &Place::new(key.get_ref().as_ref(), key.span().start),
                key.get_ref(),
                &known,
            );
        }
    }
    let empty = DeTable::new();
    let gateway = table(root, &schema::GATEWAY, report)
        .unwrap_or_else(|| Section::new(&schema::GATEWAY, Place::new("gateway", 0), &empty));
    let gateway = read_gateway(gateway, base, report);
    let admin = table(root, &schema::ADMIN, report).map(|section| read_admin(section, report));
    let histograms = table(root, &schema::HISTOGRAMS, report)
        .map(|section| read_histograms(section, base, report));

    let mut known = Known::default();
    let backends: Vec<_> = tables(root, &schema::BACKEND, report)
        .into_iter()
        .map(|section| backend::read(section, &mut known, report))
        .collect();
    let mut surroundings = Surroundings::new(&known, keys, base);
    let listeners: Vec<_> = tables(root, &schema::LISTENER, report)
        .into_iter()
        .map(|section| listener::read(section, &mut surroundings, report))
        .collect();

    Some(Config {
        gateway: gateway?,
        listeners: listeners.into_iter().collect::<Option<_>>()?,
        backends: backends.into_iter().collect::<Option<_>>()?,
        admin: admin.map_or(Some(None), |admin| admin.map(Some))?,
        histograms: histograms.map_or(Some(None), |histograms| histograms.map(Some))?,
    })
}

fn read_gateway(mut section: Section<'_>, base: &Path, report: &mut Report<'_>) -> Option<Gateway> {
    let workers = section.value(report, "workers", workers);
    let pin = section.flag(report, "pin");
    let io = section.choice(report, "io");
    let run_dir = section.path(report, "run_dir", base);
    let drain_timeout = section.duration(report, "drain_timeout");
    let spin = section.duration(report, "spin");
    let log = section.choice(report, "log");
    section.finish(report);
    Some(Gateway {
        workers: workers?.0,
        pin: pin?,
        io: io?.0,
        run_dir: run_dir?,
        drain_timeout: drain_timeout?,
        spin: spin?,
        log: log?.0,
    })
}

fn workers(value: &DeValue<'_>) -> Option<Workers> {
    if value.as_str() == Some("auto") {
        return Some(Workers::Auto);
    }
    let count = usize::try_from(integer(value)?).ok().filter(|count| *count <= WORKERS_MAX)?;
    count.try_into().ok().map(Workers::Count)
}

fn read_admin(mut section: Section<'_>, report: &mut Report<'_>) -> Option<Admin> {
    let bind = section.text(report, "bind", values::address);
    section.finish(report);
    Some(Admin { bind: bind?.0 })
}

fn read_histograms(
    mut section: Section<'_>,
    base: &Path,
    report: &mut Report<'_>,
) -> Option<Histograms> {
    let dir = section.path(report, "dir", base);
    let interval = section.duration(report, "interval");
    section.finish(report);
    Some(Histograms { dir: dir?, interval: interval? })
}

/// The table that is written `[name]`.
fn table<'a>(
    root: &'a DeTable<'a>,
    description: &'static schema::Table,
    report: &mut Report<'_>,
) -> Option<Section<'a>> {
    let name = description.name;
    let value = root.get(name)?;
    let place = Place::new(name, value.span().start);
    let Some(values) = value.get_ref().as_table() else {
        report.expected(&place, Found(value.get_ref()), format_args!("one table [{name}]"));
        return None;
    };
    Some(Section::new(description, place, values))
}

/// The tables that are written `[[name]]`, at least one.
fn tables<'a>(
    root: &'a DeTable<'a>,
    description: &'static schema::Table,
    report: &mut Report<'_>,
) -> Vec<Section<'a>> {
    let name = description.name;
    let Some(value) = root.get(name) else {
        let place = Place::new(name, 0);
        report.expected(&place, "nothing", format_args!("at least one table [[{name}]]"));
        return Vec::new();
    };
    let list = value.get_ref().as_array();
    let elements: &[Spanned<DeValue<'_>>] = list.map_or(&[], |list| list);
    let sections: Vec<_> = elements
        .iter()
        .enumerate()
        .filter_map(|(index, element)| {
            let place = Place::new(format!("{name}[{index}]"), element.span().start);
            element.get_ref().as_table().map(|values| Section::new(description, place, values))
        })
        .collect();
    if sections.is_empty() || sections.len() < elements.len() {
        let place = Place::new(name, value.span().start);
        let expected = format_args!("tables [[{name}]], each with its own fields");
        report.expected(&place, Found(value.get_ref()), expected);
    }
    sections
}
