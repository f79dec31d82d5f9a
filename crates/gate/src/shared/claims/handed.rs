//! Claims on their way to the next process: what sessions hold is claimed again by the sessions
//! themselves, so that neither of the two can be there without the other; the rest is carried.

use std::sync::atomic::Ordering;

use super::history::{Terms, TokenName, Use};
use super::{Claim, Claims, Client, ClientKey, Slots};
use crate::ids::{BackendId, Slot};
use ringgate_cluster::Incarnation;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::sync::lock;

impl Claims {
    /// The key of all hashes.
    pub(crate) const fn key(&self) -> [u64; 2] {
        self.hashes.words()
    }

    /// The token that a session was opened with.
    pub(crate) fn token_of(&self, claim: &Claim) -> Option<TokenName> {
        let key = ClientKey { client_id: claim.client_id, listener: claim.listener };
        let hash = self.hash(&key);
        let inner = lock(&self.inner);
        inner.find_client(hash, &key).map(|position| inner.clients.at(position).token)
    }

    /// Claims exactly what a session has held in the process before. False where it is taken: then
    /// the session that has it is over there, or this one is made up.
    pub(crate) fn resume(&self, claim: &Claim, token: TokenName) -> bool {
        let &Claim { listener, client_id, backend, slot, source } = claim;
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        let mut inner = lock(&self.inner);
        if inner.find_client(hash, &key).is_some() || inner.clients.is_full() {
            return false;
        }
        if !inner.slots.get_mut(backend).is_some_and(|slots| slots.take_again(slot)) {
            return false;
        }
        inner.clients.insert(hash, Client::new(&key, token));
        self.players[backend].fetch_add(1, Ordering::Relaxed);
        self.sessions[listener].fetch_add(1, Ordering::Relaxed);
        inner.enter_source(listener, &source);
        true
    }

    /// Takes [`resume`](Self::resume) back. Nothing is noted about the token: what is known of it
    /// comes by itself.
    pub(crate) fn release(&self, claim: &Claim) {
        let key = ClientKey { client_id: claim.client_id, listener: claim.listener };
        let hash = self.hash(&key);
        let mut inner = lock(&self.inner);
        let Some(position) = inner.find_client(hash, &key) else { return };
        inner.clients.remove(hash, position);
        inner.slots[claim.backend].give(claim.slot);
        inner.leave_source(claim.listener, &claim.source);
        self.players[claim.backend].fetch_sub(1, Ordering::Relaxed);
        self.sessions[claim.listener].fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps exactly the slot that the process before has kept for a player. False where it is
    /// taken.
    pub(crate) fn reserve_again(&self, backend: BackendId, slot: Slot) -> bool {
        let mut inner = lock(&self.inner);
        let is_kept = inner.slots.get_mut(backend).is_some_and(|slots| slots.take_again(slot));
        if is_kept {
            self.count_offer(backend);
        }
        is_kept
    }

    /// How many places used tokens have had.
    pub(crate) fn token_places(&self) -> usize {
        lock(&self.inner).tokens.places()
    }

    /// Has all used tokens shown from the first on.
    pub(crate) fn show_tokens_again(&self) {
        lock(&self.inner).tokens.show_again();
    }

    /// Shows used tokens of some places that have changed since they were shown, until `show` takes
    /// no more. Returns the place that comes next.
    pub(crate) fn show_changed_tokens(
        &self,
        places: std::ops::Range<usize>,
        show: impl FnMut(&Use) -> bool,
    ) -> usize {
        lock(&self.inner).tokens.show_changed(places, show)
    }

    /// Writes which process of a cluster this is: its successor is the same, and makes no term that
    /// this one has made.
    pub(crate) fn hand_over_process(&self, out: &mut Writer<'_>) {
        self.standbys().and_then(|standbys| standbys.incarnation()).write(out);
        lock(&self.inner).tokens.terms().write(out);
    }

    /// Goes on as that.
    pub(crate) fn take_process(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let incarnation = Option::<Incarnation>::read(from)?;
        lock(&self.inner).tokens.set_terms(Terms::read(from)?);
        if let Some((standbys, incarnation)) = self.standbys().zip(incarnation) {
            standbys.set_incarnation(incarnation);
        }
        Ok(())
    }

    /// Remembers a token as the process before has.
    pub(crate) fn remember_token(&self, used: Use) -> Result<(), Broken> {
        lock(&self.inner).tokens.remember(used)?;
        self.has_spent.store(true, Ordering::Release);
        Ok(())
    }
}

/// Nobody's claim names no listener and no backend, so that it can always be read.
impl Carry for Claim {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { listener, client_id, backend, slot, source } = self;
        let is_held = *self != Self::NOBODYS;
        is_held.write(out);
        if is_held {
            listener.write(out);
            client_id.write(out);
            backend.write(out);
            slot.write(out);
            source.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        if !bool::read(from)? {
            return Ok(Self::NOBODYS);
        }
        Ok(Self {
            listener: Carry::read(from)?,
            client_id: Carry::read(from)?,
            backend: Carry::read(from)?,
            slot: Carry::read(from)?,
            source: Carry::read(from)?,
        })
    }
}

impl Slots {
    /// Takes a certain slot, if it is free. Players may be in slots that a new setup does not have
    /// any more.
    fn take_again(&mut self, slot: Slot) -> bool {
        if slot.0 >= self.max.max(SLOTS_KEPT) {
            return false;
        }
        let (at, bit) = (slot.index() / 64, 1 << (slot.0 % 64));
        if at >= self.taken.len() {
            self.taken.resize(at + 1, 0);
        }
        let word = &mut self.taken[at];
        let is_free = *word & bit == 0;
        if is_free {
            *word |= bit;
            self.count += 1;
        }
        is_free
    }
}

/// Slots that a session may keep where its backend has fewer now: all that a config can give.
const SLOTS_KEPT: u32 = 1 << 20;
