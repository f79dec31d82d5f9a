//! Records on the disk, each of them until a moment: a file for each span of time holds those that
//! end within it, and goes when all of them have. Records are only ever added at a file's end.

use std::collections::BTreeMap;
use std::io;

use ringgate_gate::Now;

use crate::folder::{Folder, Lasting};

/// The files of a folder whose names begin alike.
#[derive(Debug)]
pub struct SpanFiles {
    folder: Folder,
    /// The beginning of their names; the span follows.
    name: &'static str,
    span_s: u64,
    bytes_max: u64,
    /// By the span, until when its file is kept whatever the wall clock says: in seconds of the
    /// monotonic clock, once that was asked.
    spans: BTreeMap<u64, Option<u64>>,
}

impl SpanFiles {
    /// Those that are there: each has so many seconds, and at most so many bytes.
    pub fn of(folder: Folder, name: &'static str, span_s: u64, bytes_max: u64) -> io::Result<Self> {
        let names = folder.names()?;
        let span = |it: &String| it.strip_prefix(name)?.parse().ok();
        let spans = names.iter().filter_map(|it| Some((span(it)?, None))).collect();
        Ok(Self { folder, name, span_s, bytes_max, spans })
    }

    /// Where they are.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// What they are called.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.spans.keys().map(|span| self.name(*span))
    }

    /// What one of them is called.
    pub fn name(&self, span: u64) -> String {
        format!("{}{span}", self.name)
    }

    /// Reads them all: each file's span, and what it holds.
    pub fn read(&self) -> impl Iterator<Item = (u64, io::Result<Vec<u8>>)> {
        self.spans.keys().map(|span| {
            let bytes = self.folder.read_up_to(&self.name(*span), self.bytes_max);
            (*span, bytes.map(Option::unwrap_or_default))
        })
    }

    /// Adds records that end then. Where it fails, any part of them may be there.
    pub fn add(
        &mut self,
        until_s: u64,
        records: &[u8],
        lasting: Lasting,
        now: Now,
    ) -> io::Result<()> {
        let span = until_s / self.span_s;
        self.folder.append(&self.name(span), records, lasting)?;
        let keep_until_s = self.keep_until_s(span, now);
        self.spans.entry(span).or_default().get_or_insert(keep_until_s);
        Ok(())
    }

    /// Has a file hold this and nothing else.
    pub fn replace(&mut self, span: u64, bytes: &[u8]) -> io::Result<()> {
        self.folder.replace(&self.name(span), bytes)
    }

    /// Removes all files.
    pub fn clear(&mut self) -> io::Result<()> {
        let removed = self.names().try_for_each(|name| self.folder.remove(&name));
        if removed.is_ok() {
            self.spans.clear();
        }
        removed
    }

    /// Removes the files whose records have all ended: by both clocks, because the wall clock may
    /// be set ahead and back.
    pub fn forget_ended(&mut self, now: Now) -> io::Result<()> {
        let spans: Vec<_> = self.spans.keys().copied().collect();
        let mut removed = Ok(());
        for span in spans {
            let keep_until_s = self.keep_until_s(span, now);
            let until_s = self.spans.entry(span).or_default().get_or_insert(keep_until_s);
            let keeps = now.mono_ns / NS_PER_S < *until_s;
            if keeps || now.unix_s < self.end_of(span) {
                continue;
            }
            match self.folder.remove(&self.name(span)) {
                Ok(()) => drop(self.spans.remove(&span)),
                Err(why) => removed = removed.and(Err(why)),
            }
        }
        removed
    }

    fn keep_until_s(&self, span: u64, now: Now) -> u64 {
        (now.mono_ns / NS_PER_S).saturating_add(self.end_of(span).saturating_sub(now.unix_s))
    }

    /// From when on nothing in it holds.
    const fn end_of(&self, span: u64) -> u64 {
        span.saturating_add(1).saturating_mul(self.span_s)
    }
}

const NS_PER_S: u64 = 1_000_000_000;
