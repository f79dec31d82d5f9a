//! Plain players on their way to the next process, half-open ones among them.

use crate::common::Common;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, PlainListener, rules_of};
use crate::front::plain::unproven::Unproven;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::handover::arriving::{NO_TOKEN, Unclaimed};
use crate::ids::{ListenerId, client_serial};
use crate::setup::Sequence;
use crate::store::admission::Bucket;
use crate::store::entry::Entry;
use crate::store::table::handed::{read_free, write_none};
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::plain::Guard;

impl PlainFront {
    /// Writes the session at a place, with its guards.
    pub(crate) fn hand_over_session(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        self.sessions.place(entry).write(out);
        self.sessions.address(entry).write(out);
        self.sessions.at(entry).write(out);
        for guards in &self.guards {
            guards.get(entry).filter(|guard| guard.is_started()).cloned().write(out);
        }
    }

    /// Takes a session in, in the place of whatever was there.
    pub(crate) fn take_session(
        &mut self,
        common: &mut Common,
        place: Place,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        let address = Address::read(from)?;
        if common.front(address.listener) != Front::Plain {
            return Err(Broken::Foreign);
        }
        let session = Session::read(from)?;
        let guards = <[Option<Guard>; 2]>::read(from)?;
        let is_same =
            |known: &Session| known.is_open() == session.is_open() && known.claim == session.claim;
        if let Some(entry) = self.sessions.same_at(place, &address)
            && is_same(self.sessions.at(entry))
        {
            self.note_gone(common, entry);
            *self.sessions.at_mut(entry) = session;
            self.put_guards(common, entry, guards);
            return self.note_come(common, entry);
        }
        for entry in self.sessions.in_the_way(place, &address) {
            self.put_away(common, entry, unclaimed);
        }
        let (is_open, claim) = (session.is_open(), session.claim);
        common.go_on_speaking(session.backend, Front::Plain);
        let entry = self.sessions.put(place, address, session)?;
        if is_open && !common.claims.resume(&claim, NO_TOKEN) {
            unclaimed.0.insert(entry.number(), NO_TOKEN);
        }
        self.put_guards(common, entry, guards);
        self.note_come(common, entry)
    }

    /// Notes what follows from a session: it counts, and it may have an address.
    /// Until a record of its own says more, an open one is not proven, and has earned what may be
    /// kept: an older release does not count that.
    fn note_come(&mut self, common: &Common, entry: Entry<Session>) -> Result<(), Broken> {
        let listener = self.sessions.address(entry).listener;
        let burst = rules_of(common, listener).map_or(0, |rules| rules.credit.burst);
        let session = self.sessions.at_mut(entry);
        let &mut Session { stage, loopback, backend, .. } = session;
        match stage {
            Stage::Open { .. } => {
                session.credit = burst;
                common.claims.shares().resume(backend);
                self.open_count += 1;
            }
            Stage::HalfOpen { .. } => self.half_open_count += 1,
            Stage::Barred => {}
        }
        let is_open = session.is_open();
        match loopback {
            Some(address) => self.addresses.come(address, entry.number(), is_open),
            None => Ok(()),
        }
    }

    /// Takes [`note_come`](Self::note_come) back: the session is over, or about to be another.
    fn note_gone(&mut self, common: &Common, entry: Entry<Session>) {
        let session = self.sessions.at(entry);
        let &Session { stage, loopback, backend, .. } = session;
        match stage {
            Stage::Open { is_proven } => {
                if !is_proven {
                    common.claims.shares().leave(backend);
                }
                self.open_count -= 1;
            }
            Stage::HalfOpen { .. } => self.half_open_count -= 1,
            Stage::Barred => {}
        }
        if let Some(address) = loopback {
            self.addresses.go(address, entry.number(), session.is_open());
        }
    }

    /// Every session of a listener whose datagrams are numbered has guards.
    fn put_guards(&mut self, common: &Common, entry: Entry<Session>, guards: [Option<Guard>; 2]) {
        let listener = self.sessions.address(entry).listener;
        let rules = common.setup.listeners[listener].plain();
        let is_numbered = rules.is_some_and(|rules| rules.sequence.is_some());
        for (mine, guard) in self.guards.iter_mut().zip(guards) {
            if is_numbered || guard.is_some() {
                mine.put(entry, guard.unwrap_or_default());
            }
        }
    }

    /// Takes a session out that was copied and is not there any more.
    pub(crate) fn put_away(
        &mut self,
        common: &Common,
        entry: Entry<Session>,
        unclaimed: &mut Unclaimed,
    ) {
        self.note_gone(common, entry);
        let session = self.sessions.at(entry);
        if unclaimed.0.remove(&entry.number()).is_none() && session.is_open() {
            common.claims.release(&session.claim);
        }
        self.sessions.take_out(entry);
    }

    /// Claims again what a session could not have when it came.
    pub(crate) fn claim_again(&self, common: &Common, entry: Entry<Session>) -> bool {
        common.claims.resume(&self.sessions.at(entry).claim, NO_TOKEN)
    }

    /// Writes everything but sessions and listeners.
    pub(crate) fn hand_over_rest(&self, out: &mut Writer<'_>) {
        let Self {
            // In records of their own, and so are free places and free addresses.
            sessions: _,
            // They follow from the sessions.
            open_count: _,
            half_open_count: _,
            addresses,
            // With their sessions.
            guards: _,
            echoes: _,
            // Each in a record of its own.
            listeners: _,
            starts,
            // From the setup.
            open_max: _,
            unproven_max: _,
            // The same key, with which the gate was made.
            hash: _,
        } = self;
        write_none(out);
        addresses.hand_over(out);
        self.sessions.serial.write(out);
        starts.hand_over(out);
    }

    /// Goes on with it.
    pub(crate) fn take_rest(
        &mut self,
        common: &Common,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        self.take_free(common, from, unclaimed)?;
        self.addresses.take_over(from)?;
        self.sessions.serial = client_serial(u64::read(from)?);
        self.starts.take_over(from)
    }

    /// Takes places that are free now, whoever was copied there.
    pub(crate) fn take_free(
        &mut self,
        common: &Common,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        read_free(from, |place, since_ns| {
            if let Some(entry) = self.sessions.live_at(place.index) {
                self.put_away(common, entry, unclaimed);
            }
            self.sessions.free(place, since_ns)
        })
    }

    /// Writes what is remembered of a listener: whose turn it is to make room, and how often the
    /// rules of its guards have changed.
    pub(crate) fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        let PlainListener { unproven, starts, sequence, sequence_changes } =
            &self.listeners[listener];
        listener.write(out);
        unproven.write(out);
        starts.write(out);
        sequence.write(out);
        sequence_changes.write(out);
    }

    /// Goes on with it. Rules that differ now have changed once more.
    pub(crate) fn take_listener(
        &mut self,
        common: &Common,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let listener = ListenerId::read(from)?;
        let (unproven, starts) = (Unproven::read(from)?, Bucket::read(from)?);
        let sequence = Option::<Sequence>::read(from)?;
        let changes = u32::read(from)?;
        let rules = common.setup.listeners[listener].plain();
        let max = rules.map_or(0, |rules| rules.half_open_max);
        let known = self.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
        known.unproven = unproven;
        known.starts = starts;
        known.sequence_changes = changes.wrapping_add((sequence != known.sequence).into());
        for place in known.unproven.resize(max) {
            self.forget_unproven(place);
        }
        Ok(())
    }

    /// Everything has come: timers. Nothing here goes through all sessions: players wait.
    pub(crate) fn settle_in(&mut self, common: &Common, now_ns: u64) -> Result<(), Broken> {
        self.sessions.start_at(now_ns);
        self.arm_some(common);
        self.addresses.settle(now_ns)
    }
}
