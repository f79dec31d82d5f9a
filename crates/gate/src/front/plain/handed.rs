//! Plain players on their way to the next process, half-open ones among them.

use crate::common::Common;
use crate::front::carried::Carried;
use crate::front::cluster::carried::CarriedClusters;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, PlainListener, begins_anew, rules_of};
use crate::front::plain::unproven::Unproven;
use crate::front::protocol::Front;
use crate::ids::{ListenerId, client_serial};
use crate::setup::Sequence;
use crate::store::admission::Bucket;
use crate::store::entry::Entry;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::plain::Guard;

impl Carried for PlainFront {
    const FRONT: Front = Front::Plain;

    /// Its guards.
    type Beside = [Option<Guard>; 2];

    fn beside(&self, index: Entry<Session>) -> Self::Beside {
        let guards = self.guards.each_ref();
        guards.map(|guards| guards.get(index).filter(|guard| guard.is_started()).cloned())
    }

    /// It counts, and it may have an address.
    /// Until a record of its own says more, an open one is not proven, and has earned what may be
    /// kept: an older release does not count that.
    fn note_come(
        &mut self,
        common: &mut Common,
        entry: Entry<Session>,
        guards: Self::Beside,
    ) -> Result<(), Broken> {
        self.put_guards(common, entry, guards);
        let address = *self.sessions.address(entry);
        let burst = rules_of(common, address.listener).map_or(0, |rules| rules.credit.burst);
        let session = self.sessions.at_mut(entry);
        let &mut Session { stage, loopback, backend, .. } = session;
        match stage {
            Stage::Open { .. } => {
                session.credit = burst;
                common.claims.shares().resume(backend, &address);
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

    fn note_gone(&mut self, common: &mut Common, entry: Entry<Session>) {
        let session = self.sessions.at(entry);
        let &Session { stage, loopback, backend, .. } = session;
        match stage {
            Stage::Open { is_proven } => {
                if !is_proven {
                    common.claims.shares().leave(backend, self.sessions.address(entry));
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

    fn move_in(&mut self, _common: &Common, entry: Entry<Session>) {
        self.move_clustered_in(entry);
    }

    fn move_out(&mut self, _common: &Common, entry: Entry<Session>) {
        self.move_clustered_out(entry);
    }

    fn hand_over_rules(&self, out: &mut Writer<'_>) {
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
            // Another process draws others, and tells of all that it has.
            random: _,
        } = self;
        addresses.hand_over(out);
        self.sessions.serial.write(out);
        starts.hand_over(out);
    }

    fn take_rules(&mut self, _common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.addresses.take_over(from)?;
        self.sessions.serial = client_serial(u64::read(from)?);
        self.starts.take_over(from)
    }

    /// Whose turn it is to make room, and how often the rules of its guards have changed.
    fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        let PlainListener { unproven, starts, looks: _, sequence, sequence_changes } =
            &self.listeners[listener];
        unproven.write(out);
        starts.write(out);
        sequence.write(out);
        sequence_changes.write(out);
    }

    /// Goes on with it. Rules that differ now have changed once more.
    fn take_listener(&mut self, common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        let listener = ListenerId::read(from)?;
        let (unproven, starts) = (Unproven::read(from)?, Bucket::read(from)?);
        let sequence = Option::<Sequence>::read(from)?;
        let changes = u32::read(from)?;
        let rules = common.setup.listeners[listener].plain();
        let max = rules.map_or(0, |rules| rules.half_open_max);
        let known = self.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
        known.unproven = unproven;
        known.starts = starts;
        known.sequence_changes = changes.wrapping_add(begins_anew(sequence, known.sequence).into());
        for place in known.unproven.resize(max) {
            self.forget_unproven(place);
        }
        Ok(())
    }

    fn settle_rules(&mut self, common: &mut Common, now_ns: u64) -> Result<(), Broken> {
        self.settle_clustered(common);
        self.addresses.settle(now_ns)
    }
}

impl PlainFront {
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
}
