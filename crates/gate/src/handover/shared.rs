//! What the workers share: written once, behind the format.

use std::sync::Arc;

use crate::handover::export::Ahead;
use crate::handover::parts::{Parts, Rest, in_pieces};
use crate::handover::record::{Kind, Refused, Sink, take_records};
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::shared::claims::history::Use;
use ringgate_core::carry::{Broken, Carry, Maps, Reader};

/// What is being written of the claims.
#[derive(Default)]
pub struct SharedExport {
    has_begun: bool,
    next: usize,
    /// How much of what is small was written.
    small: usize,
    parts: Parts,
    is_rest: bool,
}

impl SharedExport {
    /// Nothing was written yet, but the [format](super::Format::write).
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the next so many used tokens, while the workers go on; the keys before the first. As
    /// [`Export::ahead`](super::Export::ahead).
    pub fn ahead(
        &mut self,
        claims: &Claims,
        sink: &mut Sink<'_>,
        tokens: usize,
    ) -> Result<Ahead, Refused> {
        self.begin(claims, sink)?;
        let all = claims.token_places();
        let end = self.next.saturating_add(tokens).min(all);
        match self.write_tokens(claims, sink, end) {
            Err(Refused::Full) if !sink.is_empty() => return Ok(Ahead::Full),
            written => written?,
        }
        if self.next < all {
            return Ok(Ahead::Part);
        }
        self.next = 0;
        Ok(Ahead::Round)
    }

    /// Writes what has changed since, and cookies, as [`Export::rest`](super::Export::rest). No
    /// worker takes turns any more.
    pub fn rest(&mut self, claims: &Claims, sink: &mut Sink<'_>) -> Result<Rest, Refused> {
        self.begin(claims, sink)?;
        if !std::mem::replace(&mut self.is_rest, true) {
            self.next = 0;
        }
        let mut parts = std::mem::take(&mut self.parts);
        let written = parts.write(sink, |sink| {
            self.write_tokens(claims, sink, claims.token_places())?;
            sink.append_behind(&mut self.small, |sink| write_small(claims, sink))
        });
        self.parts = parts;
        written
    }

    fn begin(&mut self, claims: &Claims, sink: &mut Sink<'_>) -> Result<(), Refused> {
        if self.has_begun {
            return Ok(());
        }
        sink.append(Kind::SharedKeys, |out| claims.key().write(out))?;
        claims.show_tokens_again();
        self.has_begun = true;
        Ok(())
    }

    /// Writes tokens that have changed, up to a place.
    fn write_tokens(
        &mut self,
        claims: &Claims,
        sink: &mut Sink<'_>,
        end: usize,
    ) -> Result<(), Refused> {
        let mut written = Ok(());
        self.next = claims.show_changed_tokens(self.next..end, |used| {
            written = sink.append(Kind::Token, |out| used.write(out));
            written.is_ok()
        });
        written
    }
}

fn write_small(claims: &Claims, sink: &mut Sink<'_>) -> Result<(), Refused> {
    let cookies = claims.cookies();
    if claims.standbys().is_some() {
        sink.append(Kind::ClusterProcess, |out| claims.hand_over_process(out))?;
    }
    sink.append(Kind::Cookies, |out| cookies.hand_over(out))?;
    for some in in_pieces(cookies.used_count()) {
        sink.append(Kind::UsedCookies, |out| cookies.hand_over_used(some, out))?;
    }
    sink.append(Kind::End, |_| {})
}

/// Claims that are made of another process's.
pub struct SharedImport {
    claims: Option<Arc<Claims>>,
    is_over: bool,
    setup: Arc<Setup>,
}

impl SharedImport {
    /// For a process with that setup. What it reads follows the [format](super::Format::read).
    pub const fn new(setup: Arc<Setup>) -> Self {
        Self { claims: None, is_over: false, setup }
    }

    /// The claims, as soon as their keys have come: for all workers.
    pub fn claims(&self) -> Option<Arc<Claims>> {
        self.claims.clone()
    }

    /// Takes the whole records that some bytes begin with. Returns how many bytes these are; what
    /// is left has to come again, with more behind it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        take_records(bytes, |kind, body| {
            let taken = self.take_record(kind, body);
            taken.map_err(|why| Refused::Broken(why, kind.what()))
        })
    }

    fn take_record(&mut self, kind: Kind, body: &[u8]) -> Result<(), Broken> {
        if self.is_over {
            return Err(Broken::Invalid("record behind the end"));
        }
        let maps = Maps::default();
        let mut from = Reader::new(body, &maps);
        match (kind, &self.claims) {
            (Kind::SharedKeys, None) => {
                let (setup, key) = (&self.setup, <[u64; 2]>::read(&mut from)?);
                let (listeners, slots) = (setup.listeners.len(), setup.backend_slots());
                let claims = Claims::with_key(listeners, &slots, setup.claim_limits(), key);
                self.claims = Some(Arc::new(claims.clustered(setup)));
            }
            (Kind::Token, Some(claims)) => claims.remember_token(Use::read(&mut from)?)?,
            (Kind::Cookies, Some(claims)) => {
                claims.cookies().take_over(&mut from, self.setup.claim_limits())?;
            }
            (Kind::ClusterProcess, Some(claims)) => claims.take_process(&mut from)?,
            (Kind::UsedCookies, Some(claims)) => claims.cookies().take_used(&mut from)?,
            (Kind::End, Some(_)) => self.is_over = true,
            _ => return Err(Broken::Invalid("place among the records")),
        }
        from.end()
    }

    /// Whether everything has come.
    pub fn finish(self) -> Result<Arc<Claims>, Refused> {
        let truncated = Refused::Broken(Broken::Truncated, "the shared state");
        self.claims.filter(|_| self.is_over).ok_or(truncated)
    }
}
