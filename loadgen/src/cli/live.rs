//! What is shown while a run goes on: a few lines that are drawn again and again on a terminal, one
//! line a second elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use crate::measure::tally::{Count, Counters, Stage};
use crate::run::Progress;
use crate::text::{count, time};

/// The view. Everything goes to stderr, so that stdout holds the results alone.
#[derive(Debug)]
pub(super) struct Live {
    is_terminal: bool,
    is_quiet: bool,
    lines: usize,
}

impl Live {
    /// `is_quiet` shows nothing where there is no terminal.
    pub(super) fn new(is_quiet: bool) -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_quiet, lines: 0 }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        if !self.is_terminal {
            if !self.is_quiet {
                write(&format!("{}\n", line(progress)));
            }
            return;
        }
        let block = block(progress);
        let up = if self.lines > 0 { format!("\x1b[{}F\x1b[J", self.lines) } else { String::new() };
        self.lines = block.lines().count();
        write(&format!("{up}{block}"));
    }

    /// Leaves the terminal as the table wants it.
    pub(super) fn end(&mut self) {
        if self.is_terminal && self.lines > 0 {
            write(&format!("\x1b[{}F\x1b[J", self.lines));
        }
    }
}

/// A closed stderr is no reason to stop.
fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn rate(progress: &Progress<'_>, of: fn(&Counters) -> u64) -> String {
    let per_second = of(&progress.interval.counters) as f64 / progress.interval_s;
    count(per_second.round() as u64)
}

fn latencies(progress: &Progress<'_>) -> String {
    let at = |percentile| time(progress.interval.percentile_ns(Stage::RoundTrip, percentile));
    format!("p50 {}  p99 {}  max {}", at(50.0), at(99.0), at(100.0))
}

/// Trouble so far, and nothing where there is none.
fn trouble(progress: &Progress<'_>) -> String {
    let counters = &progress.total.counters;
    let kinds = [
        Count::Tokenless,
        Count::Placeless,
        Count::ConnectFailed,
        Count::SessionsLost,
        Count::ServerChanges,
        Count::PayloadsLate,
        Count::PayloadsUnsent,
        Count::Corrupt,
        Count::Misdelivered,
        Count::Duplicates,
        Count::OwnKernelDrops,
    ];
    kinds.iter().filter(|kind| counters.of(**kind) > 0).fold(String::new(), |mut text, kind| {
        let _ = write!(text, "  {} {}", kind.name().replace('_', " "), count(counters.of(*kind)));
        text
    })
}

fn phase<'a>(progress: &Progress<'a>) -> &'a str {
    let index = progress.scenario.phase_at(progress.elapsed_s - progress.interval_s / 2.0);
    index.map_or("goodbye", |(index, _)| progress.scenario.phases[index].name.as_str())
}

fn line(progress: &Progress<'_>) -> String {
    format!(
        "{:6.1} s  {:<8}  sessions {}  due {}/s  arrived {}/s  {}{}",
        progress.elapsed_s,
        phase(progress),
        count(progress.gauges.playing.into()),
        rate(progress, Counters::due),
        rate(progress, Counters::came),
        latencies(progress),
        trouble(progress),
    )
}

fn block(progress: &Progress<'_>) -> String {
    const BAR: usize = 40;
    let share = (progress.elapsed_s / progress.scenario.seconds()).min(1.0);
    let done = (share * BAR as f64) as usize;
    let trouble = trouble(progress);
    format!(
        "[{}{}] {:.0} of {:.0} s  {}\n\
         sessions   {} in, {} connecting, {} leaving\n\
         payloads   {}/s due, {}/s arrived\n\
         round trip {}\n\
         trouble  {}\n",
        "█".repeat(done),
        "·".repeat(BAR - done),
        progress.elapsed_s,
        progress.scenario.seconds(),
        phase(progress),
        count(progress.gauges.playing.into()),
        count(progress.gauges.connecting.into()),
        count(progress.gauges.leaving.into()),
        rate(progress, Counters::due),
        rate(progress, Counters::came),
        latencies(progress),
        if trouble.is_empty() { "  none" } else { &trouble },
    )
}
