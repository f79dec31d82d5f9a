//! Sessions that another gateway has had, and whose records are here: the arbiter of a session's
//! backend is asked for it, and the session goes on here once that grants it.
//!
//! ```text
//! a front     a datagram is believed to be the player's      as its protocol can tell
//! claim       what the session will hold is claimed, the arbiter is asked
//! answer      granted: the session is here and its player hears so   else all is given back
//! ```
//!
//! Until the answer the player's datagrams are dropped, by name: the game process may have a later
//! word of another gateway. What the arbiter has handed over is in the answer, so that nothing is
//! twice.

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::common::Common;
use crate::counters::Ended;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::clustered;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::Clustering;
use crate::front::cluster::takeovers::{ASK_EVERY_NS, Takeover};
use crate::ids::{BackendId, BindId};
use crate::setup::{Limits, Phase};
use crate::shared::claims::{Claim, Wanted};
use crate::shared::standbys::{Standbys, TakeoverRefusal};
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::{Endpoint, LocalIp, SocketId};
use ringgate_cluster::{Record, Reply, SessionId, Tenure};
use ringgate_core::carry::{Carry, Maps, Reader};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::{Policy, SIZE_BITS_MAX, Window};
use ringgate_link::bundle::{
    ArbiterReply, CloseReason, Clustered, Opened, SessionId as LinkSession, Standing,
    USER_DATA_BYTES,
};

/// Sessions that this gateway is to have.
pub(crate) trait Taking: Clustering {
    /// A packet has opened for a session whose owner is gone. What becomes of the packet: where
    /// nothing is asked for it, the owner may live, and a member that has the player is sent it.
    fn claim_orphan(
        &mut self,
        turn: &mut Turn<'_>,
        standbys: &Standbys,
        origin: &Origin,
        record: Box<Record>,
    ) -> DropReason {
        let id = record.session;
        if standbys.begin_claim(id)
            && let Err(why) = self.begin_takeover(turn, standbys, origin, (record, false))
        {
            standbys.give_up(id, why);
            return DropReason::TakeoverRefused;
        }
        DropReason::TakeoverAwaited
    }

    /// A datagram has come from a player whose session its owner offers to this gateway, or the
    /// owner does not wait for one.
    #[cold]
    fn take_offered(&mut self, turn: &mut Turn<'_>, origin: &Origin) {
        let claims = Arc::clone(&turn.common.claims);
        let Some(standbys) = claims.standbys() else { return };
        let Some(record) = standbys.find_offered(&origin.address) else { return };
        let id = record.session;
        if standbys.begin_claim(id)
            && let Err(why) = self.begin_takeover(turn, standbys, origin, (record, true))
        {
            standbys.give_up(id, why);
        }
    }

    /// A datagram of an address without a session here, and without one whose owner is gone.
    /// Whether another gateway looks at it.
    fn send_elsewhere(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<bool, DropReason> {
        if origin.forwarded_by.is_none() {
            self.take_offered(turn, origin);
            return turn.common.send_elsewhere(turn.now, origin, bytes);
        }
        // Who has forwarded it may not have heard yet where its session has gone.
        match turn.common.elsewhere(&origin.address) {
            Some(Elsewhere::Member(_)) => Err(DropReason::UnknownSource),
            _ => Ok(false),
        }
    }

    fn begin_takeover(
        &mut self,
        turn: &mut Turn<'_>,
        standbys: &Standbys,
        origin: &Origin,
        (record, is_offered): (Box<Record>, bool),
    ) -> Result<(), TakeoverRefusal> {
        let asked = self.clusters().takeovers.under_way.get(&record.session);
        if asked.is_some_and(|it| !it.is_given_up) {
            return Ok(());
        }
        let now_ns = turn.now.mono_ns;
        let setup = Arc::clone(&turn.common.setup);
        if is_denied(turn.common, &origin.address, &record) {
            return Err(TakeoverRefusal::Denied);
        }
        // Also one whose registration is away: its session is no newcomer.
        let named = setup.backends.pairs().filter(|(_, it)| it.name == record.backend);
        let mut named = named.map(|(backend, _)| backend).peekable();
        named.peek().ok_or(TakeoverRefusal::BackendUnknown)?;
        let backend = named.find(|it| Self::arbiter_of(turn.common, *it).is_some());
        let backend = backend.ok_or(TakeoverRefusal::LinkDown)?;
        let incarnation = standbys.incarnation().ok_or(TakeoverRefusal::LinkDown)?;
        let under_way = &mut self.clusters_mut().takeovers.under_way;
        if under_way.len() >= UNDER_WAY_MAX {
            under_way.retain(|_, it| !it.is_given_up);
        }
        let is_full = under_way.len() >= UNDER_WAY_MAX;
        let has_place = self.has_place_at(turn.common, &origin.address)
            && self.sessions_mut().has_rested_place(now_ns);
        // What is granted and cannot be here ends, though its owner may live.
        if is_full || !has_place {
            return Err(TakeoverRefusal::NoRoom);
        }
        let claim = self.claim_for(turn.common, &record, &origin.address, backend)?;
        let over = record.holder;
        let term = Self::make_term(turn, (&record, &origin.address), over.term);
        let tenure = term.map(|term| Tenure { term, incarnation });
        let tenure = tenure.inspect_err(|_| turn.common.claims.release(&claim))?;
        let takeover = Takeover {
            address: origin.address,
            socket: origin.socket,
            local: origin.local,
            claim,
            tenure,
            over,
            is_offered,
            epoch: turn.common.links.backends[backend].epoch,
            since_ns: now_ns,
            asked_ns: now_ns,
            early: Vec::new(),
            is_given_up: false,
            record,
        };
        Self::ask(turn, &takeover);
        takeover.enter(turn.common);
        let takeovers = &mut self.clusters_mut().takeovers;
        takeovers.due_ns = takeovers.due_ns.min(now_ns + ASK_EVERY_NS);
        takeovers.under_way.insert(takeover.record.session, takeover);
        Ok(())
    }

    /// Whether a session of an address could be this front's.
    fn has_place_at(&self, common: &Common, address: &Address) -> bool {
        common.front(address.listener) == Self::FRONT
            && common.setup.listeners[address.listener].phase != Phase::Closed
            && self.sessions().find(self.sessions().hash(address), address).is_none()
    }

    /// Claims what a session will hold that this gateway asks for.
    fn claim_for(
        &mut self,
        common: &Common,
        record: &Record,
        address: &Address,
        backend: BackendId,
    ) -> Result<Claim, TakeoverRefusal> {
        let (client_id, token_mac) = self.claimant(record)?;
        common.claims.take_over(&Wanted {
            listener: address.listener,
            client_id,
            backend,
            sessions_max: common.setup.listeners[address.listener].sessions_max,
            source: address.endpoint,
            limits: &Limits::NONE,
            token_mac: &token_mac,
            allows_reuse: true,
            random: 0,
        })
    }

    /// What the arbiter of a backend says of a session, asked or not. What cannot be meant by any
    /// is passed over.
    #[cold]
    fn hear_standing(&mut self, turn: &mut Turn<'_>, backend: BackendId, said: &Standing<'_>) {
        let (id, tenure) = (SessionId(said.id), Tenure::of_number(said.tenure));
        let (Some(tenure), Some(reply)) = (tenure, reply_of(said)) else { return };
        if reply == Reply::Ended {
            self.clusters_mut().overs.hear_ended(id);
        }
        let asked = self.clusters().takeovers.under_way.get(&id);
        if asked.is_some_and(|it| it.claim.backend == backend && it.tenure == tenure) {
            return self.hear_answer(turn, id, reply);
        }
        let Some(index) = self.clusters().find(id) else {
            if asked.is_none() && matches!(reply, Reply::Granted { .. }) {
                self.decline(turn, backend, (id, tenure));
            }
            return;
        };
        if self.arbitrated_at(index) != backend {
            return;
        }
        let own = self.clusters().get(index).map(|it| it.tenure);
        match reply {
            // An arbiter that has begun anew may have believed one that has an earlier term.
            Reply::Fenced { holder } if Some(holder) > own || own == Some(tenure) => {
                if let Some(ending) = self.ending_of(index) {
                    // The arbiter hears that it is over, and its holder from there.
                    return self.end_like(turn, index, ending);
                }
                self.hear_fenced(turn, index, holder);
            }
            // One that has gone over has ended there.
            Reply::Ended if self.backend_of(index) != backend => {}
            Reply::Ended => self.end(turn, index, Ended::ByArbiter),
            Reply::Full => self.go_alone(turn, index),
            Reply::Second { first, holder } => self.leave_to(turn, index, (first, holder)),
            Reply::Fenced { .. } | Reply::Granted { .. } => {}
        }
    }

    fn hear_answer(&mut self, turn: &mut Turn<'_>, id: SessionId, reply: Reply) {
        let Some(mut takeover) = self.clusters_mut().takeovers.under_way.remove(&id) else {
            return;
        };
        if takeover.is_given_up {
            return self.hear_late(turn, takeover, &reply);
        }
        let why = match reply {
            Reply::Granted { handed } => return self.go_on_with(turn, &mut takeover, &handed),
            Reply::Ended => TakeoverRefusal::Ended,
            Reply::Full => TakeoverRefusal::NoRoom,
            // An answer to this process that came too late, or went to the one before it.
            Reply::Fenced { holder } if holder.incarnation == takeover.tenure.incarnation => {
                let whose = (&*takeover.record, &takeover.address);
                match Self::make_term(turn, whose, holder.term) {
                    Ok(term) => {
                        let incarnation = holder.incarnation;
                        (takeover.tenure, takeover.over) = (Tenure { term, incarnation }, holder);
                        Self::ask(turn, &takeover);
                        self.clusters_mut().takeovers.under_way.insert(id, takeover);
                        return;
                    }
                    Err(why) => why,
                }
            }
            Reply::Fenced { holder } => {
                takeover.give_up(turn.common, TakeoverRefusal::Fenced);
                let Takeover { record, address, .. } = takeover;
                return Self::look_to(turn.common, turn.now, (address, *record), holder);
            }
            Reply::Second { .. } => TakeoverRefusal::Fenced,
        };
        takeover.give_up(turn.common, why);
    }

    /// An answer comes when nothing is held for the session any more.
    fn hear_late(&mut self, turn: &mut Turn<'_>, mut takeover: Takeover, reply: &Reply) {
        let Reply::Granted { handed } = reply else { return };
        let Takeover { record, address, claim, tenure, .. } = &takeover;
        match self.claim_for(turn.common, record, address, claim.backend) {
            Ok(claim) => {
                takeover.claim = claim;
                self.go_on_with(turn, &mut takeover, handed);
            }
            Err(_) => self.decline(turn, claim.backend, (record.session, *tenure)),
        }
    }

    /// The session is this gateway's.
    fn go_on_with(&mut self, turn: &mut Turn<'_>, takeover: &mut Takeover, handed: &Window) {
        let &mut Takeover { address, claim, tenure, .. } = takeover;
        let listener = address.listener;
        if !self.has_place_at(turn.common, &address) {
            return self.give_back(turn, takeover, TakeoverRefusal::NoRoom);
        }
        // Who was denied since it was asked for has no session here that was ended.
        if is_denied(turn.common, &address, &takeover.record) {
            return self.give_back(turn, takeover, TakeoverRefusal::Denied);
        }
        let Some(index) = self.take_in(turn, takeover, handed) else {
            return self.give_back(turn, takeover, TakeoverRefusal::NoRoom);
        };
        let record = &takeover.record;
        let token = (record.token, record.token_until_s, record.since_s);
        let it = clustered::Clustered::of(record.session, tenure, token, turn.now.mono_ns);
        self.clusters_mut().put(index, it);
        turn.common.count_session(listener, claim.backend);
        let fact = Fact::TookOver { backend: claim.backend, slot: claim.slot };
        turn.common.trace(&address, Self::HAS_IDS.then_some(claim.client_id), fact);
        if let Some(standbys) = turn.common.claims.standbys() {
            standbys.note_taken_over(record.session, takeover.is_offered);
        }
        takeover.leave(turn.common);
        self.greet(turn, index, takeover.is_offered);
        let early = std::mem::take(&mut takeover.early);
        self.take_early(turn, (takeover.address, takeover.socket, takeover.local), early);
    }

    /// Lost where there is no room: it is asked again.
    fn ask(turn: &mut Turn<'_>, takeover: &Takeover) {
        if let Some(link) = Self::arbiter_of(turn.common, takeover.claim.backend) {
            takeover.ask(turn, link);
        }
    }

    /// A packet has come for a session that its owner gives to this gateway, and that is not here
    /// yet. Whether it waits for that.
    fn wait_for_session(&mut self, common: &mut Common, origin: &Origin, bytes: &[u8]) -> bool {
        let mut under_way = self.clusters_mut().takeovers.under_way.values_mut();
        let is_it = |it: &&mut Takeover| it.is_offered && it.address == origin.address;
        let Some(takeover) = under_way.find(is_it) else { return false };
        let has_room = takeover.early.len() < EARLY_MAX;
        if has_room {
            takeover.early.push(bytes.into());
            common.counters.early_kept += 1;
        }
        has_room
    }

    /// What packets have waited for is there.
    fn take_early(
        &mut self,
        turn: &mut Turn<'_>,
        (address, socket, local): (Address, SocketId, LocalIp),
        early: Vec<Box<[u8]>>,
    ) {
        let hash = address.hash(turn.common.hash_key);
        let (bind, kernel_ns, forwarded_by) = (BindId(0), 0, None);
        let origin = Origin { address, hash, bind, socket, local, kernel_ns, forwarded_by };
        turn.common.counters.early_taken += early.len() as u64;
        for mut bytes in early {
            if let Err(why) = self.step_early(turn, &origin, &mut bytes) {
                turn.common.drop_datagram(&address, why);
            }
        }
    }

    /// A session was granted that cannot be here after all.
    fn give_back(&mut self, turn: &mut Turn<'_>, takeover: &mut Takeover, why: TakeoverRefusal) {
        takeover.give_up(turn.common, why);
        let whose = (takeover.record.session, takeover.tenure);
        self.decline(turn, takeover.claim.backend, whose);
    }

    /// Ends a session at its arbiter that is granted to this gateway, and that it does not have:
    /// it was given up meanwhile, and no other gateway would end it. One that the arbiter has
    /// forgotten is not opened by that.
    fn decline(&mut self, turn: &mut Turn<'_>, backend: BackendId, whose: (SessionId, Tenure)) {
        let Some(link) = Self::arbiter_of(turn.common, backend) else { return };
        let (id, tenure) = whose;
        // No session has such a number: theirs come from places of a table, from the first on.
        let serial = self.random() | 1 << 63;
        let session = LinkSession::new(turn.common.worker.id.index(), serial >> 8);
        let clustered = Clustered {
            session,
            id: id.0,
            tenure: tenure.number(),
            token_until_s: 0,
            timeout_ms: 0,
            delivery: None,
        };
        let opened = Opened {
            session,
            client_id: 0,
            address: Endpoint::v4([0; 4], 0).into(),
            slot: 0,
            slots_max: 0,
            delivers: false,
            ticket: None,
            user_data: &[0; USER_DATA_BYTES],
            listener: "-",
        };
        turn.tell_link(link, |writer| writer.clustered(&clustered));
        turn.tell_link(link, |writer| writer.opened(&opened));
        turn.tell_link(link, |writer| writer.closed(session, CloseReason::Other));
    }

    /// The arbiter has no room for a session, or has begun anew and does not believe in it: it goes
    /// on, and ends with this gateway. Where this one has slept, a member may have it, of which the
    /// arbiter knows as little: what members say of it is waited for.
    fn go_alone(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        if self.is_unsure(index) {
            let address = self.sessions().address(index);
            let whereabouts = turn.common.claims.whereabouts();
            if whereabouts.is_some_and(|it| it.is_at_member(address)) {
                if let Some(standbys) = turn.common.claims.standbys() {
                    standbys.note_left(false);
                }
                return self.end(turn, index, Ended::Fenced);
            }
            if turn.now.mono_ns < self.clusters().doubt.since_ns + MEMBERS_SAY_NS {
                *self.announced(index) = 0;
                return;
            }
        }
        self.leave_cluster(turn.common, index);
        self.announce_anew(turn, index);
        self.be_sure(turn, index);
    }

    /// Asks again for what is not answered, and gives up what cannot be any more.
    fn look_after_takeovers(&mut self, turn: &mut Turn<'_>) {
        let (now_ns, takeovers) = (turn.now.mono_ns, &mut self.clusters_mut().takeovers);
        if now_ns < takeovers.due_ns {
            return;
        }
        takeovers.under_way.retain(|_, it| {
            let common = &turn.common;
            let is_same = common.links.backends[it.claim.backend].epoch == it.epoch;
            let is_gone = !is_same || Self::arbiter_of(common, it.claim.backend).is_none();
            if is_gone {
                if !it.is_given_up {
                    it.give_up(turn.common, TakeoverRefusal::LinkDown);
                }
                it.note_unanswered(turn.common, now_ns);
                return false;
            }
            if it.is_given_up {
                return now_ns < it.since_ns + FORGET_NS;
            }
            if now_ns >= it.since_ns + GIVE_UP_NS {
                it.give_up(turn.common, TakeoverRefusal::NotAnswered);
                it.is_given_up = true;
            } else if now_ns >= it.asked_ns + ASK_EVERY_NS {
                it.asked_ns = now_ns;
                Self::ask(turn, it);
            }
            true
        });
        let due = takeovers.under_way.values().map(|it| {
            let from_ns = if it.is_given_up { now_ns } else { it.asked_ns };
            from_ns + ASK_EVERY_NS
        });
        takeovers.due_ns = due.min().unwrap_or(u64::MAX);
    }
}

impl<F: Clustering> Taking for F {}

/// Whether the player of a session is denied, by its client id or its address.
fn is_denied(common: &Common, address: &Address, record: &Record) -> bool {
    let (denied, client_id) = (&common.setup.denied, record.proof.client_id());
    denied.holds(&address.endpoint) || client_id.is_some_and(|it| denied.holds_client(it))
}

fn reply_of(said: &Standing<'_>) -> Option<Reply> {
    Some(match said.reply {
        ArbiterReply::Granted([]) => Reply::Granted { handed: Window::new() },
        ArbiterReply::Granted(window) => {
            let maps = Maps::default();
            let mut from = Reader::new(window, &maps);
            let handed = Window::read(&mut from).ok()?;
            from.end().ok()?;
            Reply::Granted { handed }
        }
        ArbiterReply::Fenced { holder } => Reply::Fenced { holder: Tenure::of_number(holder)? },
        ArbiterReply::Ended => Reply::Ended,
        ArbiterReply::Full => Reply::Full,
        ArbiterReply::Second { first, holder } => {
            Reply::Second { first: SessionId(first), holder: Tenure::of_number(holder)? }
        }
    })
}

/// What a session has taken that goes on: what was handed over, and all up to the newest packet
/// when its record was written, because who had it then knew of those.
pub(crate) fn window_of(newest: u64, handed: &Window, policy: &Policy) -> Window {
    let mut window = Window::closed_before(newest.saturating_add(1));
    let Some(latest) = handed.latest(&WIDEST) else { return window };
    let size = u64::from(SIZE_BITS_MAX);
    let first = latest.saturating_sub(size - 1).max(newest.saturating_add(1));
    let unlimited = Policy::new(policy.size_bits(), 0).unwrap_or(*policy);
    for number in first..=latest {
        if handed.check(number, &WIDEST).is_err() {
            let _ = window.commit(number, &unlimited);
        }
    }
    window
}

/// An arbiter's windows are as wide as any can be.
const WIDEST: Policy = Policy::new(SIZE_BITS_MAX, 0).expect("it is a size");

/// Packets that wait for a session.
const EARLY_MAX: usize = 8;

/// Claims of one worker that are not answered.
const UNDER_WAY_MAX: usize = 4096;

const GIVE_UP_NS: u64 = 3_000_000_000;

/// Until when members have said what they have, to a gateway that they have lost while it slept.
const MEMBERS_SAY_NS: u64 = 1_000_000_000;

/// How late an answer may be.
const FORGET_NS: u64 = 60_000_000_000;
