//! Sessions of a cluster on their way to the next process, which goes on with what they are there.

use std::collections::HashMap;

use crate::common::Common;
use crate::counters::Ending;
use crate::front::cluster::clustered::Clustered;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::Clustering;
use crate::front::cluster::takeovers::Takeover;
use crate::front::cluster::taking::Taking;
use crate::ids::BackendId;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::store::unarmed::Unarmed;
use crate::turn::Turn;
use ringgate_cluster::{SessionId, Tenure, Term};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// Sessions that go to the next process, or have come from the one before.
pub(crate) trait CarriedClusters: Clustering {
    /// Keeps the records of some sessions that have come from another process.
    fn keep_some(&mut self, turn: &Turn<'_>) {
        for place in self.clusters_mut().unkept.take_some() {
            let entry = Entry::numbered(place);
            if self.sessions().is_live(entry) {
                self.keep_record(turn.common, turn.now, entry);
            }
        }
    }

    /// All sessions have come from another process.
    fn settle_clustered(&mut self, common: &mut Common) {
        let clusters = self.clusters_mut();
        clusters.moving = HashMap::new();
        clusters.unkept = Unarmed::all(clusters.places());
        let asked: Vec<_> = clusters.takeovers.under_way.keys().copied().collect();
        for session in asked {
            self.go_on_asking(common, session);
        }
    }

    /// Takes what the process before has asked an arbiter for. One of a listener that is another
    /// front's by now is given up, and a backend's that is not there any more.
    fn take_takeover(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let takeover = Takeover::read(from)?;
        let takeovers = &mut self.clusters_mut().takeovers;
        takeovers.due_ns = 0;
        takeovers.under_way.insert(takeover.record.session, takeover);
        Ok(())
    }

    /// Claims what a session will hold that the process before has asked for.
    fn go_on_asking(&mut self, common: &mut Common, session: SessionId) {
        let Some(mut takeover) = self.clusters_mut().takeovers.under_way.remove(&session) else {
            return;
        };
        if !takeover.is_given_up {
            let Takeover { record, address, claim, .. } = &takeover;
            let is_there = common.front(address.listener) == Self::FRONT;
            let claimed = if is_there {
                self.claim_for(common, record, address, claim.backend)
            } else {
                Err(TakeoverRefusal::NoRoom)
            };
            match claimed {
                Ok(claim) => {
                    takeover.claim = claim;
                    if let Some(standbys) = common.claims.standbys() {
                        standbys.begin_claim(session);
                    }
                    takeover.enter(common);
                }
                Err(why) => takeover.give_up_unclaimed(common, why),
            }
        }
        self.clusters_mut().takeovers.under_way.insert(session, takeover);
    }

    /// Writes what a session is in its cluster.
    fn hand_over_clustered(&self, entry: Entry<Self::Session>, out: &mut Writer<'_>) {
        let Some(it) = self.clusters().get(entry) else { return };
        let Clustered {
            id,
            tenure,
            token,
            token_until_s,
            // Whatever was told is known to the arbiter by now.
            opens_until_s: _,
            ticket: _,
            since_s,
            revision,
            told,
            // In a record of its own.
            delivered: _,
            is_alone,
            ending,
            // Who is new looks anew.
            is_given: _,
            moves: _,
            forwarded_up_to: _,
        } = it;
        self.sessions().place(entry).write(out);
        id.write(out);
        tenure.write(out);
        token.write(out);
        [*token_until_s, *since_s].write(out);
        revision.write(out);
        told.write(out);
        is_alone.write(out);
        ending.map(Ending::numbers).write(out);
    }

    /// Goes on with it. That of a session that could not be carried is forgotten.
    fn take_clustered(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let (id, tenure, token) = (SessionId::read(from)?, Tenure::read(from)?, Carry::read(from)?);
        let [token_until_s, since_s] = <[u64; 2]>::read(from)?;
        let revision = u32::read(from)?;
        if tenure.term == Term::NONE {
            return Err(Broken::Invalid("term"));
        }
        let (told, is_alone) = (Option::<(BackendId, u32)>::read(from)?, bool::read(from)?);
        let ending = Option::<(u8, u8)>::read(from)?;
        let ending = ending.map(|it| Ending::of_numbers(it).ok_or(Broken::Invalid("ending")));
        let ending = ending.transpose()?;
        if let Some(entry) = self.sessions().live(place) {
            let begun = Clustered::of(id, tenure, (token, token_until_s, since_s), 0);
            let before = self.clusters().get(entry).filter(|before| before.id == id);
            let delivered = before.map_or(begun.delivered, |before| before.delivered);
            let opens_until_s = told.and(begun.opens_until_s);
            let it =
                Clustered { opens_until_s, revision, told, delivered, is_alone, ending, ..begun };
            self.clusters_mut().put(entry, it);
        }
        Ok(())
    }

    /// A session leaves its place, and may come again elsewhere.
    fn move_clustered_out(&mut self, entry: Entry<Self::Session>) {
        let place = self.sessions().place(entry);
        let clusters = self.clusters_mut();
        let it = clusters.forget(entry);
        clusters.moving.extend(it.map(|it| (place, it)));
    }

    /// It has come to its place, perhaps again.
    fn move_clustered_in(&mut self, entry: Entry<Self::Session>) {
        let place = self.sessions().place(entry);
        if let Some(it) = self.clusters_mut().moving.remove(&place) {
            self.clusters_mut().put(entry, *it);
        }
    }
}

impl<F: Clustering> CarriedClusters for F {}
