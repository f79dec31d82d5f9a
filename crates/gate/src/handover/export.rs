//! What a predecessor writes of each worker.

use std::sync::Arc;

use crate::front::carried::Carried;
use crate::front::cluster::carried::CarriedClusters;
use crate::front::cluster::rules::Clustering;
use crate::front::face::ask;
use crate::front::netcode::session::Session;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::gate::Gate;
use crate::handover::behind::Behind;
use crate::handover::fingerprint::Fingerprints;
use crate::handover::parts::{Parts, Rest};
use crate::handover::record::{Kind, Mirror, Refused, Sink, Whose};
use crate::handover::sockets::bound;
use crate::mail::Request;
use crate::setup::Setup;
use crate::store::entry::Entry;
use crate::store::table::Place;
use ringgate_core::carry::{Carry, Writer};

/// What is being written of one worker.
#[derive(Default)]
pub struct Export {
    /// In the order of [`Front::ALL`].
    mirrors: [Mirror; Front::ALL.len()],
    /// Of what is known of plain sources.
    proofs: Mirror,
    /// Of what sessions are in their cluster, in the same order.
    clusters: [Mirror; Front::ALL.len()],
    /// Whose user data was written.
    user_data: Handed,
    /// Those whose messages agents deliver.
    delivered: Handed,
    /// The table and the place that come next.
    next: (usize, u32),
    begun: Option<Begun>,
    /// How far the rest has come, once that is written.
    behind: Option<Behind>,
    parts: Parts,
}

/// What a stream was begun with.
struct Begun {
    /// What the gate went by: numbers have their meaning from it.
    setup: Arc<Setup>,
    prints: Fingerprints,
}

/// How far it has come with what is written ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A part of the tables.
    Part,
    /// The memory has no room for the next record: it goes on with other memory.
    Full,
    /// To the end of all tables. Afterwards it begins again, and writes what has changed.
    Round,
}

impl Gate {
    /// Goes on after a hand-over that has failed. Every sequence leaves out more numbers than the
    /// other process can have used, if it has begun at all: no nonce is used twice.
    pub fn resume_after_failed_hand_over(&mut self) {
        self.fronts.netcode.skip_sequences(SKIPPED);
        self.common.life.failed_hand_overs = self.common.life.failed_hand_overs.saturating_add(1);
        self.common.claims.leave_terms_out(self.common.life.failed_hand_overs);
    }
}

/// Sequence numbers that are left out where another process may have used some.
const SKIPPED: u64 = 1 << 16;

impl Export {
    /// Nothing was written yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the next so many places of the tables, between two turns; the beginning before the
    /// first. What is written may be taken away at any time, and other memory given for what
    /// follows.
    pub fn ahead(
        &mut self,
        gate: &Gate,
        sink: &mut Sink<'_>,
        places: u32,
    ) -> Result<Ahead, Refused> {
        self.begin(gate, sink)?;
        match self.write_places(gate, sink, places, false) {
            Ok(false) => Ok(Ahead::Part),
            Ok(true) => {
                self.next = (0, 0);
                Ok(Ahead::Round)
            }
            Err(Refused::Full) if !sink.is_empty() => Ok(Ahead::Full),
            Err(why) => Err(why),
        }
    }

    /// Writes what has changed since, and everything that is small, as much of it as there is room
    /// for. No worker takes turns any more, and no mail is under way, until all of it is written.
    pub fn rest(&mut self, gate: &Gate, sink: &mut Sink<'_>) -> Result<Rest, Refused> {
        check_quiet(gate)?;
        self.begin(gate, sink)?;
        let mut behind = self.behind.take().unwrap_or_else(|| {
            self.next = (0, 0);
            Behind::default()
        });
        let mut parts = std::mem::take(&mut self.parts);
        let written = parts.write(sink, |sink| {
            self.write_places(gate, sink, u32::MAX, true)?;
            behind.write(gate, sink)
        });
        (self.behind, self.parts) = (Some(behind), parts);
        written
    }

    /// Writes the next so many places. Returns whether that was the last.
    fn write_places(
        &mut self,
        gate: &Gate,
        sink: &mut Sink<'_>,
        places: u32,
        is_last: bool,
    ) -> Result<bool, Refused> {
        let mut left = places;
        while left > 0 {
            let (table, place) = self.next;
            let Some(&front) = Front::ALL.get(table) else { return Ok(true) };
            if place >= gate.fronts.places(front) {
                self.next = (table + 1, 0);
                continue;
            }
            self.write_session(gate, sink, (table, front), place, is_last)?;
            self.next.1 += 1;
            left -= 1;
        }
        Ok(false)
    }

    fn begin(&mut self, gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
        let setup = &gate.common.setup;
        if let Some(begun) = &self.begun {
            let is_same = Arc::ptr_eq(&begun.setup, setup);
            return if is_same { Ok(()) } else { Err(Refused::Reloaded) };
        }
        let prints = Fingerprints::new(gate.common.hash_key);
        self.mirrors =
            std::array::from_fn(|at| Mirror::new(gate.fronts.places_max(Front::ALL[at])));
        self.proofs = Mirror::new(gate.fronts.places_max(Front::Plain));
        self.clusters = std::array::from_fn(|at| {
            let places = ask!(gate.fronts, Front::ALL[at], .sessions().clusters.places());
            Mirror::new(places as usize)
        });
        self.begun = Some(Begun { setup: Arc::clone(setup), prints });
        sink.begin(Whose(gate.common.worker.id.0))?;
        sink.append(Kind::WorkerKeys, |out| {
            gate.common.hash_key.words().write(out);
            bound(gate).write(out);
        })?;
        sink.append(Kind::Room, |out| gate.fronts.room().write(out))
    }

    fn write_session(
        &mut self,
        gate: &Gate,
        sink: &mut Sink<'_>,
        (table, front): (usize, Front),
        place: u32,
        is_last: bool,
    ) -> Result<(), Refused> {
        let (fronts, common) = (&gate.fronts, &gate.common);
        let begun = self.begun.as_ref().expect("the stream has a beginning before all else");
        if ask!(fronts, front, .sessions().live_at(place).is_none()) {
            return Ok(());
        }
        let mut told = self.mirrors[table].of(place as usize, &begun.prints);
        if is_last && front == Front::Netcode && fronts.netcode.has_uplink(place) {
            // Its own socket may not have been there yet when it was written.
            told.forget();
        }
        let write = |out: &mut Writer<'_>| {
            ask!(fronts, front, .hand_over_session(Entry::numbered(place), out));
        };
        let complete = |body: &mut [u8]| {
            ask!(fronts, front, .add_token(common, Entry::numbered(place), body));
        };
        let start = sink.len();
        sink.append_changed(front.records().session, &mut told, write, complete)?;
        match front {
            Front::Netcode => {
                let entry = Entry::numbered(place);
                self.write_user_data(gate, sink, entry)?;
                self.write_clustered(&fronts.netcode, sink, (table, place))?;
                self.write_delivered(gate, sink, entry)
            }
            Front::Plain => {
                let mut told = self.proofs.of(place as usize, &begun.prints);
                if sink.len() > start {
                    // The session's record has said that nothing is known.
                    told.forget();
                }
                let entry = Entry::numbered(place);
                let write = |out: &mut Writer<'_>| fronts.plain.hand_over_proof(entry, out);
                sink.append_changed(Kind::PlainProof, &mut told, write, |_| {})?;
                self.write_clustered(&fronts.plain, sink, (table, place))
            }
            Front::Unreal => self.write_clustered(&fronts.unreal, sink, (table, place)),
            #[cfg(test)]
            Front::Third => Ok(()),
        }
    }

    fn write_clustered<F: Clustering>(
        &mut self,
        front: &F,
        sink: &mut Sink<'_>,
        (table, place): (usize, u32),
    ) -> Result<(), Refused> {
        let (entry, records) = (Entry::numbered(place), F::FRONT.records().cluster);
        let Some(records) = records.filter(|_| front.clusters().get(entry).is_some()) else {
            return Ok(());
        };
        let begun = self.begun.as_ref().expect("the stream has a beginning");
        let mut told = self.clusters[table].of(place as usize, &begun.prints);
        let write = |out: &mut Writer<'_>| front.hand_over_clustered(entry, out);
        sink.append_changed(records.session, &mut told, write, |_| {})
    }

    fn write_delivered(
        &mut self,
        gate: &Gate,
        sink: &mut Sink<'_>,
        entry: Entry<Session>,
    ) -> Result<(), Refused> {
        let netcode = &gate.fronts.netcode;
        let place = netcode.sessions.place(entry);
        if !netcode.is_delivered(entry) || self.delivered.is_of(place) {
            return Ok(());
        }
        sink.append(Kind::NetcodeDelivered, |out| place.write(out))?;
        self.delivered.note(place);
        Ok(())
    }

    fn write_user_data(
        &mut self,
        gate: &Gate,
        sink: &mut Sink<'_>,
        entry: Entry<Session>,
    ) -> Result<(), Refused> {
        let netcode = &gate.fronts.netcode;
        let place = netcode.sessions.place(entry);
        if netcode.user_data.trimmed(entry).is_none() || self.user_data.is_of(place) {
            return Ok(());
        }
        let write = |out: &mut Writer<'_>| netcode.hand_over_user_data(entry, out);
        sink.append(Kind::NetcodeUserData, write)?;
        self.user_data.note(place);
        Ok(())
    }
}

/// The sessions of which something was written that never changes: by place, which tenant's it was.
#[derive(Default)]
struct Handed(Vec<Option<u32>>);

impl Handed {
    fn is_of(&self, place: Place) -> bool {
        self.0.get(place.index as usize) == Some(&Some(place.generation))
    }

    fn note(&mut self, place: Place) {
        let at = place.index as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(place.generation);
    }
}

/// Whether nothing of a turn is left.
fn check_quiet(gate: &Gate) -> Result<(), Refused> {
    let common = &gate.common;
    let fronts = &gate.fronts;
    let is_quiet = !common.life.in_turn
        && !common.life.stopped
        && common.requests.iter().all(is_asked_again)
        && common.neighbours.mail_out.is_empty()
        && common.neighbours.members_out.is_empty()
        && fronts.netcode.pending.is_settled()
        && Front::ALL.iter().all(|front| ask!(fronts, front, .sessions().is_settled()));
    if is_quiet { Ok(()) } else { Err(Refused::Busy) }
}

/// What a successor asks for by itself.
const fn is_asked_again(request: &Request) -> bool {
    matches!(request, Request::HoldLink { .. })
}
