//! What becomes of sessions that another gateway of the cluster could go on with: their records are
//! kept, their arbiters told, and other gateways given what is theirs by now.

use std::sync::Arc;

use crate::common::Common;
use crate::counters::Ended;
use crate::front::cluster::clustered::Clustered;
use crate::front::cluster::over::Burying;
use crate::front::cluster::overs::{Over, Player, is_for_good};
use crate::front::cluster::rules::{Clustering, Portable};
use crate::ids::{BackendId, MemberId};
use crate::now::{NS_PER_MS, Now};
use crate::setup::LinkKind;
use crate::shared::claims::history::TokenMac;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::store::unarmed::Unarmed;
use crate::turn::Turn;
use ringgate_batch::LocalIp;
use ringgate_cluster::{Incarnation, Moves, PlainProof, Proof, Record, SessionId, Tenure, Term};

/// Sessions that this gateway has.
pub(crate) trait Owning: Clustering {
    /// Which process of its cluster this is, where sessions of a backend may be another gateway's
    /// one day.
    fn process_for(turn: &Turn<'_>, backend: BackendId) -> Option<Incarnation> {
        let is_bundled =
            matches!(turn.common.setup.backends[backend].link, LinkKind::Bundle { .. });
        turn.common.claims.standbys().filter(|_| is_bundled)?.incarnation()
    }

    /// A session that has begun may be another gateway's one day.
    fn begin_clustered(&mut self, index: Entry<Self::Session>, begun: Clustered) {
        let id = self.new_id(index);
        self.clusters_mut().put(index, Clustered { id, ..begun });
    }

    /// A session has begun whose player has no token that expires: its address tells it apart.
    /// Where this gateway is one of a cluster, it may be another one's one day.
    fn begin_by_address(&mut self, turn: &Turn<'_>, index: Entry<Self::Session>, token: TokenMac) {
        let process = Self::process_for(turn, self.backend_of(index));
        let process = process.filter(|_| self.clusters().get(index).is_none());
        let Some(incarnation) = process else { return };
        let Some(term) = Term::new(1) else { return };
        let known = (token, turn.now.unix_s + ENDS_KNOWN_S);
        if let Some(begun) = Clustered::begin(Tenure { term, incarnation }, known, turn.now) {
            self.begin_clustered(index, begun);
        }
    }

    /// The arbiter of a backend is there, perhaps again: it is told of the sessions there, some in
    /// each turn, though their players are silent.
    fn hear_arbiter(&mut self) {
        self.clusters_mut().unannounced = Unarmed::all(self.clusters().places());
    }

    /// Tells arbiters of some of them.
    fn announce_some(&mut self, turn: &mut Turn<'_>) {
        for place in self.clusters_mut().unannounced.take_some() {
            let index = Entry::numbered(place);
            let is_told = |it: &Clustered| it.told.is_some();
            if self.sessions().is_live(index) && self.clusters().get(index).is_some_and(is_told) {
                self.announce_again(turn, index);
            }
        }
    }

    /// What a session is called in its cluster. No two have the same random half and the same half
    /// that is one worker's alone.
    fn new_id(&mut self, index: Entry<Self::Session>) -> SessionId {
        let (random, own) = (self.random(), self.sessions().id(index).as_u64());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.to_le_bytes());
        id[8..].copy_from_slice(&own.to_le_bytes());
        SessionId(id)
    }

    /// A session is about to be announced on the link to its backend. Returns what the arbiter
    /// there is told of it, if there is one.
    fn tell_clustered(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Self::Session>,
        is_arbitrated: bool,
    ) -> Option<Clustered> {
        let backend = self.backend_of(index);
        let epoch = turn.common.links.backends[backend].epoch;
        let told = self.clusters().get(index)?.told;
        if !is_arbitrated || told.is_some_and(|(before, _)| before != backend) {
            self.take_back(turn.common, index);
            if let Some(it) = self.clusters_mut().get_mut(index).filter(|_| told.is_some()) {
                it.note_announced();
            }
        }
        let it = self.clusters_mut().get_mut(index).filter(|it| is_arbitrated && !it.is_alone)?;
        // Under a name that no arbiter has heard nothing has ended.
        let opens_until_s = it.token_until_s.max(turn.now.unix_s + OPENS_S);
        it.opens_until_s.get_or_insert(opens_until_s);
        self.clusters_mut().tell(index, (backend, epoch));
        self.keep_record(turn.common, turn.now, index);
        self.clusters().get(index).cloned()
    }

    /// A session goes on that ends with this gateway.
    fn leave_cluster(&mut self, common: &Common, index: Entry<Self::Session>) {
        self.take_back(common, index);
        if let Some(it) = self.clusters_mut().get_mut(index) {
            it.is_alone = true;
        }
        if let Some(standbys) = common.claims.standbys() {
            standbys.note_alone();
        }
    }

    /// A session that was told an arbiter of goes on where that one has no word: it has another
    /// name from then on.
    fn take_back(&mut self, common: &Common, index: Entry<Self::Session>) {
        let Some(before) = self.clusters_mut().forget(index) else { return };
        if let (Some((backend, _)), Some(standbys)) = (before.told, common.claims.standbys()) {
            standbys.end(before.id);
            let over = Over { backend, tenure: before.tenure };
            self.note_over(common, (Player::MayPlayOn, before.id), over);
        }
        let id = self.new_id(index);
        let it = Clustered { id, revision: 0, told: None, opens_until_s: None, ..*before };
        self.clusters_mut().put(index, it);
    }

    /// A session is over, or goes on at another gateway.
    fn end_clustered(&mut self, common: &Common, index: Entry<Self::Session>, why: Ended) {
        let Some(it) = self.clusters_mut().forget(index) else { return };
        let Some((backend, _)) = it.told else { return };
        if let Some(standbys) = common.claims.standbys() {
            standbys.end(it.id);
        }
        if is_for_good(why) {
            let over = Over { backend, tenure: it.tenure };
            self.note_over(common, (Player::of(why), it.id), over);
        }
    }

    /// An arbiter says that another gateway has a session which was this one's. Where this one has
    /// given it away, what the game process has said before may be behind that: the session is left
    /// in a moment, and the arbiter hears so. Where that knows no packet by its number, it is left
    /// at once: what came here meanwhile could come twice.
    fn hear_fenced(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, holder: Tenure) {
        let hands_over = turn.common.claims.standbys().is_some_and(|it| it.hands_over());
        let Some(it) = self.clusters().get(index) else { return };
        if holder < it.tenure || !it.is_given && !hands_over {
            return self.leave_to(turn, index, (it.id, holder));
        }
        let words_ns = match hands_over {
            _ if !Self::HAS_IDS => 0,
            true => LAST_WORDS_NS,
            false => LAST_WORDS_OF_ONE_NS,
        };
        let leaving = (turn.now.mono_ns + words_ns, it.id, holder);
        self.clusters_mut().leaving.push_back(leaving);
        self.leave_given(turn);
    }

    /// Leaves sessions that were given away, and whose last words are said.
    fn leave_given(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now.mono_ns;
        let is_due = |it: &mut (u64, _, _)| it.0 <= now_ns;
        while let Some((_, id, holder)) = self.clusters_mut().leaving.pop_front_if(is_due) {
            let Some(index) = self.clusters().find(id) else { continue };
            let own = self.clusters().get(index).map(|it| it.tenure);
            if own.is_some_and(|own| own < holder) {
                self.leave_to(turn, index, (id, holder));
            }
        }
    }

    /// Another gateway has a session which was this one's, or the session that its player has had
    /// already. That gateway has the player from now on; where it cannot be reached, this one
    /// stands by. Nothing more goes to the player from here, as the arbiter hears: also where the
    /// process before had given the session away.
    fn leave_to(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Self::Session>,
        (session, holder): (SessionId, Tenure),
    ) {
        let claims = Arc::clone(&turn.common.claims);
        let own = self.clusters().get(index).filter(|it| it.id == session);
        let own = own.map(|it| it.tenure);
        let link = Self::arbiter_of(turn.common, self.arbitrated_at(index));
        if let (Some(own), Some(link)) = (own, link) {
            turn.tell_link(link, |writer| writer.given(&session.0, own.number()));
        }
        let kept = self.record_of(turn.common, turn.now, index);
        self.end(turn, index, Ended::Fenced);
        let (Some(standbys), Some((address, mut record))) = (claims.standbys(), kept) else {
            return;
        };
        let is_second = record.session != session;
        if is_second && let Proof::Plain(proof) = &mut record.proof {
            // What was proven and numbered here was another session's.
            *proof = PlainProof { is_proven: false, newest: 0 };
        }
        standbys.note_left(is_second);
        let record = Record { session, ..record };
        Self::look_to(turn.common, turn.now, (address, record), holder);
    }

    /// A session is that one's, as its arbiter says. Where that cannot be reached, this gateway
    /// stands by for it.
    fn look_to(common: &Common, now: Now, (address, record): (Address, Record), holder: Tenure) {
        let claims = &common.claims;
        let Some((whereabouts, standbys)) = claims.whereabouts().zip(claims.standbys()) else {
            return;
        };
        if whereabouts.worker_of(&address).is_some() {
            // Another worker has it.
            return;
        }
        // Its owner's own records are later.
        let record = Record { holder, revision: 0, ..record };
        if let Some(member) = standbys.stand_by_for(address, record, now.mono_ns) {
            // Where it does not fit, that member says so itself.
            let _ = whereabouts.learn(&address, member, now.mono_ns);
        }
    }

    /// A packet of a session that is newer than all before has come by a member, or by this
    /// gateway's own door. Where all of them come by the same member for a while, the session is to
    /// be that one's.
    fn note_newest(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Self::Session>,
        by: Option<MemberId>,
    ) {
        let now_ns = turn.now.mono_ns;
        let Some(it) = self.clusters_mut().get_mut(index).filter(|it| it.told.is_some()) else {
            return;
        };
        let Some(to) = it.moves.note_newest(by, now_ns) else { return };
        let id = it.id;
        it.moves = Moves::new(now_ns);
        if let Some(standbys) = turn.common.claims.standbys() {
            self.keep_record(turn.common, turn.now, index);
            let is_given = standbys.offer(id, to);
            if let Some(it) = self.clusters_mut().get_mut(index) {
                it.is_given = is_given;
            }
        }
    }

    /// Keeps what another gateway needs to go on with a session, in the place of what was kept.
    fn keep_record(&mut self, common: &Common, now: Now, index: Entry<Self::Session>) {
        let Some(standbys) = common.claims.standbys() else { return };
        let is_told = self.clusters().get(index).is_some_and(|it| it.told.is_some());
        if is_told && let Some((address, record)) = self.record_of(common, now, index) {
            standbys.keep(address, record);
        }
    }

    /// Nobody is to go on with a session until a record of it is kept again.
    fn withdraw_record(&self, common: &Common, index: Entry<Self::Session>) {
        let id = self.clusters().get(index).map(|it| it.id);
        if let Some((standbys, id)) = common.claims.standbys().zip(id) {
            standbys.end(id);
        }
    }

    /// What another gateway needs to go on with a session: nothing where its player has no address.
    fn record_of(
        &mut self,
        common: &Common,
        now: Now,
        index: Entry<Self::Session>,
    ) -> Option<(Address, Record)> {
        let address = *self.sessions().address(index);
        if address.endpoint.port() == 0 {
            return None;
        }
        let it = self.clusters_mut().get_mut(index)?;
        it.revision += 1;
        let it = self.clusters().get(index)?;
        let Portable { talks_to, slot, timeout_ms, heard_ns, proof } = self.portable(common, index);
        let backend = self.arbitrated_at(index);
        let silent_ns = now.mono_ns.saturating_sub(heard_ns);
        let (socket, local) = talks_to;
        let local = if local == LocalIp::UNSPECIFIED { [0; 16] } else { *local.ip_bytes() };
        // The thread of members knows the port, and the address where that is fixed.
        let sockets = &common.listeners.get(address.listener)?.sockets;
        let bind = sockets.iter().position(|it| *it == socket).unwrap_or_default() as u16;
        let record = Record {
            session: it.id,
            token: it.token,
            holder: it.tenure,
            revision: it.revision,
            token_until_s: it.token_until_s,
            since_s: it.since_s,
            timeout_ms,
            silent_ms: u32::try_from(silent_ns / NS_PER_MS).unwrap_or(u32::MAX),
            slot,
            player: (*address.endpoint.ip_bytes(), address.endpoint.port()),
            local: (local, bind),
            backend: common.setup.backends[backend].name.clone(),
            proof,
        };
        Some((address, record))
    }
}

impl<F: Clustering> Owning for F {}

/// How long what was sent before a session was given away may come behind what says so: less than
/// an arbiter hears who has given one away.
const LAST_WORDS_NS: u64 = 20 * NS_PER_MS;

/// Of a session that goes alone: its player waits for them.
const LAST_WORDS_OF_ONE_NS: u64 = 5 * NS_PER_MS;

/// How long an arbiter may open a session that goes on under another name: it remembers as long
/// that the session has ended.
const OPENS_S: u64 = 300;

/// How long an arbiter remembers from its beginning that a session has ended which has no token.
const ENDS_KNOWN_S: u64 = 3600;
