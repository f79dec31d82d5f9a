//! What the workers share: written once, behind the format.

use std::sync::Arc;

use crate::handover::export::Ahead;
use crate::handover::fingerprint::Fingerprints;
use crate::handover::record::{Kind, Mirror, Refused, Sink, take_records};
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::shared::claims::history::Use;
use crate::store::hash::HashKey;
use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};

/// What is being written of the claims.
#[derive(Default)]
pub struct SharedExport {
    tokens: Mirror,
    /// From when on the keys were written.
    prints: Option<Fingerprints>,
    next: usize,
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
        if self.prints.is_none() {
            sink.append(Kind::SharedKeys, |out| claims.key().write(out))?;
        }
        let key = HashKey::new(claims.key());
        let prints = &*self.prints.get_or_insert_with(|| Fingerprints::new(key));
        let all = claims.token_places();
        let places = self.next..self.next.saturating_add(tokens).min(all);
        let mut written = Ok(());
        self.next = places.end;
        claims.show_tokens(places, |place, used| {
            if written.is_ok() {
                let told = &mut self.tokens.of(place, prints);
                let write = |out: &mut Writer<'_>| used.write(out);
                written = sink.append_changed(Kind::Token, told, write, |_| {});
                if written.is_err() {
                    self.next = place;
                }
            }
        });
        match written {
            Err(Refused::Full) if !sink.is_empty() => return Ok(Ahead::Full),
            written => written?,
        }
        if self.next < all {
            return Ok(Ahead::Part);
        }
        self.next = 0;
        Ok(Ahead::Round)
    }

    /// Writes what has changed since, and cookies. No worker takes turns any more.
    pub fn rest(&mut self, claims: &Claims, sink: &mut Sink<'_>) -> Result<(), Refused> {
        self.next = 0;
        if self.ahead(claims, sink, usize::MAX)? == Ahead::Full {
            return Err(Refused::Full);
        }
        sink.append(Kind::Cookies, |out| claims.cookies().hand_over(out))?;
        sink.append(Kind::End, |_| {})
    }
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
                self.claims = Some(Arc::new(claims));
            }
            (Kind::Token, Some(claims)) => claims.remember_token(Use::read(&mut from)?)?,
            (Kind::Cookies, Some(claims)) => {
                claims.cookies().take_over(&mut from, self.setup.claim_limits())?;
            }
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
