//! What was found, how much it matters, and how it is told.

use serde::Serialize;

use crate::Failure;
use crate::exit::print;
use ringgate_report::text::Append as _;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// The gateway works; it could do better.
    Could,
    /// Players will notice, or do already.
    Bites,
}

/// What was looked at, and what is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) what: String,
    pub(crate) found: String,
    /// Why it matters; empty where all is well.
    pub(crate) why: &'static str,
    /// What to do, as a command where there is one; empty where all is well.
    pub(crate) change: String,
}

impl Finding {
    pub(crate) fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        let (what, found) = (what.into(), found.into());
        Self { severity: Severity::Ok, what, found, why: "", change: String::new() }
    }

    pub(crate) fn could(self, why: &'static str, change: impl Into<String>) -> Self {
        Self { severity: Severity::Could, why, change: change.into(), ..self }
    }

    pub(crate) fn bites(self, why: &'static str, change: impl Into<String>) -> Self {
        Self { severity: Severity::Bites, why, change: change.into(), ..self }
    }
}

/// Prints them, and fails where something bites.
pub(crate) fn conclude(findings: &[Finding], as_json: bool) -> Result<(), Failure> {
    print(&if as_json { json(findings) } else { render(findings) })?;
    let bites = findings.iter().filter(|it| it.severity == Severity::Bites).count();
    match bites {
        0 => Ok(()),
        1 => Err(Failure::failed("one finding bites")),
        n => Err(Failure::failed(format_args!("{n} findings bite"))),
    }
}

pub(super) fn json(findings: &[Finding]) -> String {
    let report = serde_json::json!({ "schema": SCHEMA, "findings": findings });
    let mut text = serde_json::to_string_pretty(&report).expect("findings are plain data");
    text.push('\n');
    text
}

/// Of the report in JSON.
const SCHEMA: u32 = 1;

/// Findings as text.
pub(crate) fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|it| it.what.chars().count()).max().unwrap_or(0);
    for Finding { severity, what, found, why, change } in findings {
        let mark = match severity {
            Severity::Ok => "ok   ",
            Severity::Could => "could",
            Severity::Bites => "BITES",
        };
        writeln!(text, "{mark}  {what:width$}  {found}");
        for (label, line) in [("why", *why), ("do", change.as_str())] {
            if !line.is_empty() {
                writeln!(text, "       {label}: {line}");
            }
        }
    }
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    writeln!(
        text,
        "\n{} ok, {} could be better, {} bite",
        count(Severity::Ok),
        count(Severity::Could),
        count(Severity::Bites)
    );
    text
}
