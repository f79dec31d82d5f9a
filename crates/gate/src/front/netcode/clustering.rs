//! What becomes of sessions that another gateway of the cluster could go on with: their records are
//! kept, their arbiters told, and the next process goes on with both.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::Common;
use crate::counters::{Ended, Ending};
use crate::front::netcode::clustered::Clustered;
use crate::front::netcode::overs::{Over, Player, is_for_good};
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::takeovers::arbiter_of;
use crate::front::rules::Rules;
use crate::ids::{BackendId, MemberId};
use crate::now::{NS_PER_MS, Now};
use crate::setup::LinkKind;
use crate::shared::claims::history::TokenMac;
use crate::store::entry::Entry;
use crate::store::table::{Address, Place};
use crate::store::unarmed::Unarmed;
use crate::turn::Turn;
use ringgate_batch::LocalIp;
use ringgate_cluster::{Moves, Record, SessionId, Tenure, Term};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

impl NetcodeFront {
    /// A session that has begun may be another gateway's one day, where this is one of a cluster.
    pub(crate) fn begin_clustered(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        token: &TokenMac,
    ) {
        let session = self.sessions.at(index);
        let is_bundled =
            matches!(turn.common.setup.backends[session.backend].link, LinkKind::Bundle { .. });
        let process = turn.common.claims.standbys().and_then(|standbys| standbys.incarnation());
        // Whose messages are delivered here has more than a record says.
        if process.is_none() || !is_bundled || self.connections.has(index) {
            return;
        }
        let Some(until_s) = turn.common.claims.expiry_of(token) else { return };
        let begun = Clustered::begin(session.next_sequence, (*token, until_s), turn.now);
        if let Some(begun) = begun.filter(|it| process == Some(it.tenure.incarnation)) {
            let id = self.new_id(index);
            self.clusters.put(index, Clustered { id, ..begun });
        }
    }

    /// What a session is called in its cluster. No two have the same random half and the same half
    /// that is one worker's alone.
    fn new_id(&mut self, index: Entry<Session>) -> SessionId {
        let (random, own) = (self.random.next(), self.sessions.id(index).as_u64());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.to_le_bytes());
        id[8..].copy_from_slice(&own.to_le_bytes());
        SessionId(id)
    }

    /// A session is about to be announced on the link to its backend. Returns what the arbiter
    /// there is told of it, if there is one.
    pub(crate) fn tell_clustered(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        is_arbitrated: bool,
    ) -> Option<Clustered> {
        let backend = self.sessions.at(index).backend;
        let epoch = turn.common.links.backends[backend].epoch;
        let told = self.clusters.get(index)?.told;
        if !is_arbitrated || told.is_some_and(|(before, _)| before != backend) {
            self.take_back(turn.common, index);
        }
        let it = self.clusters.get_mut(index).filter(|it| is_arbitrated && !it.is_alone)?;
        it.told = Some((backend, epoch));
        self.keep_record(turn.common, turn.now, index);
        self.clusters.get(index).cloned()
    }

    /// A session goes on that ends with this gateway.
    pub(crate) fn leave_cluster(&mut self, common: &Common, index: Entry<Session>) {
        self.take_back(common, index);
        if let Some(it) = self.clusters.get_mut(index) {
            it.is_alone = true;
        }
        if let Some(standbys) = common.claims.standbys() {
            standbys.note_alone();
        }
    }

    /// A session that was told an arbiter of goes on where that one has no word: it has another
    /// name from then on.
    fn take_back(&mut self, common: &Common, index: Entry<Session>) {
        let Some(before) = self.clusters.forget(index) else { return };
        if let (Some((backend, _)), Some(standbys)) = (before.told, common.claims.standbys()) {
            standbys.end(before.id);
            let over = Over { backend, tenure: before.tenure };
            self.note_over(common, (Player::MayPlayOn, before.id), over);
        }
        let id = self.new_id(index);
        self.clusters.put(index, Clustered { id, revision: 0, told: None, ..*before });
    }

    /// A session is over, or goes on at another gateway.
    pub(crate) fn end_clustered(&mut self, common: &Common, index: Entry<Session>, why: Ended) {
        let Some(it) = self.clusters.forget(index) else { return };
        let Some((backend, _)) = it.told else { return };
        if let Some(standbys) = common.claims.standbys() {
            standbys.end(it.id);
        }
        if is_for_good(why) {
            let over = Over { backend, tenure: it.tenure };
            self.note_over(common, (Player::of(why), it.id), over);
        }
    }

    /// An arbiter says that another gateway has a session which was this one's. That gateway has
    /// its player from now on; where it cannot be reached, this one stands by.
    pub(crate) fn leave_to(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, holder: Tenure) {
        let claims = Arc::clone(&turn.common.claims);
        let kept = self.record_of(turn.common, turn.now, index);
        let hands_over = claims.standbys().is_some_and(|standbys| standbys.hands_over());
        let backend = self.sessions.at(index).backend;
        if let Some(it) = self.clusters.get(index).filter(|it| it.is_given || hands_over)
            && let Some(link) = arbiter_of(turn.common, backend)
        {
            let (id, tenure) = (it.id.0, it.tenure.number());
            turn.tell_link(link, |writer| writer.given(&id, tenure));
        }
        self.end(turn, index, Ended::Fenced);
        let (Some(standbys), Some(kept)) = (claims.standbys(), kept) else { return };
        let address = kept.0;
        let member = standbys.note_fenced(kept, holder, turn.now.mono_ns);
        if let (Some(member), Some(whereabouts)) = (member, claims.whereabouts()) {
            whereabouts.learn(&address, member, turn.now.mono_ns);
        }
    }

    /// A member has forwarded a packet of a session that is newer than all before. Where all of
    /// them come by the same member for a while, the session is to be that one's.
    #[cold]
    pub(crate) fn note_way(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        (by, sequence, before): (MemberId, u64, Option<u64>),
    ) {
        let now_ns = turn.now.mono_ns;
        let Some(it) = self.clusters.get_mut(index).filter(|it| it.told.is_some()) else { return };
        if before.is_some_and(|before| sequence <= before) {
            return;
        }
        if before != it.forwarded_up_to {
            it.moves.note_newest(None, now_ns);
        }
        it.forwarded_up_to = Some(sequence);
        let Some(to) = it.moves.note_newest(Some(by), now_ns) else { return };
        let id = it.id;
        it.moves = Moves::new(now_ns);
        if let Some(standbys) = turn.common.claims.standbys() {
            self.keep_record(turn.common, turn.now, index);
            let is_given = standbys.offer(id, to);
            if let Some(it) = self.clusters.get_mut(index) {
                it.is_given = is_given;
            }
        }
    }

    /// Keeps what another gateway needs to go on with a session, in the place of what was kept.
    pub(crate) fn keep_record(&mut self, common: &Common, now: Now, index: Entry<Session>) {
        let Some(standbys) = common.claims.standbys() else { return };
        if let Some((address, record)) = self.record_of(common, now, index) {
            standbys.keep(address, record);
        }
    }

    fn record_of(
        &mut self,
        common: &Common,
        now: Now,
        index: Entry<Session>,
    ) -> Option<(Address, Record)> {
        let it = self.clusters.get_mut(index).filter(|it| it.told.is_some())?;
        it.revision += 1;
        let it = self.clusters.get(index)?;
        let (session, address) = (self.sessions.at(index), *self.sessions.address(index));
        let policy = &self.listeners[address.listener].replay;
        let silent_ns = now.mono_ns.saturating_sub(session.last_receive_ns);
        let (socket, local) = session.talks_to();
        let local = if local == LocalIp::UNSPECIFIED { [0; 16] } else { *local.ip_bytes() };
        // The thread of members knows the port, and the address where that is fixed.
        let sockets = &common.listeners.get(address.listener)?.sockets;
        let bind = sockets.iter().position(|it| *it == socket).unwrap_or_default() as u16;
        let record = Record {
            session: it.id,
            token: it.token,
            holder: it.tenure,
            revision: it.revision,
            open_key: session.open_key.clone(),
            seal_key: session.seal_key.clone(),
            client_id: session.client_id,
            token_until_s: it.token_until_s,
            since_s: it.since_s,
            timeout_ms: session.timeout_ms,
            silent_ms: u32::try_from(silent_ns / NS_PER_MS).unwrap_or(u32::MAX),
            is_confirmed: session.is_confirmed(),
            newest: session.window.latest(policy).unwrap_or(0),
            slot: session.slot.0,
            player: (*address.endpoint.ip_bytes(), address.endpoint.port()),
            local: (local, bind),
            user_data: self.user_data.whole(index),
            backend: common.setup.backends[session.backend].name.clone(),
        };
        Some((address, record))
    }

    /// Keeps the records of some sessions that have come from another process.
    pub(crate) fn keep_some(&mut self, turn: &Turn<'_>) {
        for place in self.clusters.unkept.take_some() {
            let entry = Entry::numbered(place);
            if self.sessions.is_live(entry) {
                self.keep_record(turn.common, turn.now, entry);
            }
        }
    }

    /// All sessions have come from another process.
    pub(crate) fn settle_clustered(&mut self) {
        self.clusters.moving = HashMap::new();
        self.clusters.unkept = Unarmed::all(self.clusters.places());
    }

    /// Writes what a session is in its cluster.
    pub(crate) fn hand_over_clustered(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        let Some(it) = self.clusters.get(entry) else { return };
        let Clustered {
            id,
            tenure,
            token,
            token_until_s,
            since_s,
            revision,
            told,
            is_alone,
            ending,
            // Who is new looks anew.
            is_given: _,
            moves: _,
            forwarded_up_to: _,
        } = it;
        self.sessions.place(entry).write(out);
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
    pub(crate) fn take_clustered(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
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
        if let Some(entry) = self.sessions.live(place) {
            let (moves, forwarded_up_to) = (Moves::new(0), None);
            self.clusters.put(
                entry,
                Clustered {
                    id,
                    tenure,
                    token,
                    token_until_s,
                    since_s,
                    revision,
                    told,
                    is_alone,
                    ending,
                    is_given: false,
                    moves,
                    forwarded_up_to,
                },
            );
        }
        Ok(())
    }

    /// A session leaves its place, and may come again elsewhere.
    pub(crate) fn move_clustered_out(&mut self, entry: Entry<Session>) {
        let place = self.sessions.place(entry);
        let it = self.clusters.forget(entry);
        self.clusters.moving.extend(it.map(|it| (place, it)));
    }

    /// It has come to its place, perhaps again.
    pub(crate) fn move_clustered_in(&mut self, entry: Entry<Session>) {
        if let Some(it) = self.clusters.moving.remove(&self.sessions.place(entry)) {
            self.clusters.put(entry, *it);
        }
    }
}
