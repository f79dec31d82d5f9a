//! Sessions of a member that is gone, and whose records are here: a packet that opens under such a
//! session's key has this gateway ask the arbiter of its backend, and go on with the session once
//! that grants it.
//!
//! ```text
//! look     is the address that of a session whose owner is gone?        one load where none is
//! step     does the packet open under the record's key, and is it new?  two tries each 100 ms
//!          from another port of the address: under that of any there?   as port switches may
//!          client id and slot are claimed, the arbiter is asked
//! answer   granted: the session, a keep-alive at once                   else all is given back
//! ```
//!
//! Until the answer the player's datagrams are dropped, by name: the game process may have a later
//! word of another gateway. What the arbiter has handed over is in the answer, so that nothing is
//! twice.

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::clustered;
use crate::front::netcode::handshake::unique_in;
use crate::front::netcode::players::packet_job;
use crate::front::netcode::session::{Beginning, HeardSince, Session};
use crate::front::netcode::spending::PortSwitches;
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::takeovers::{ASK_EVERY_NS, Takeover, arbiter_of};
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::ids::{BackendId, BindId};
use crate::setup::Phase;
use crate::shared::claims::history::NoTerm;
use crate::shared::standbys::{Found, Standbys, TakeoverRefusal};
use crate::store::admission::Rate;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::Endpoint;
use ringgate_cluster::{Incarnation, Moves, PacketNumber, Record, Reply, SessionId, Tenure, Term};
use ringgate_core::carry::{Carry, Maps, Reader};
use ringgate_core::crypto::Verdict;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::netcode::packet::{Header, Receiver};
use ringgate_core::proto::netcode::server::SessionSequence;
use ringgate_core::proto::replay::{Policy, SIZE_BITS_MAX, Window};
use ringgate_link::bundle::{
    ArbiterReply, CloseReason, Clustered, Opened, SessionId as LinkSession, Standing,
    USER_DATA_BYTES,
};

impl NetcodeFront {
    /// Whether a packet comes from the address of a session whose owner is gone.
    #[inline]
    pub(crate) fn is_orphans(common: &Common, address: &Address, bytes: &[u8]) -> bool {
        common.claims.standbys().is_some_and(|standbys| standbys.awaits(address))
            && Header::decode(bytes, Receiver::Server)
                .is_ok_and(|header| header.kind.is_replay_protected())
    }

    /// Such a packet.
    #[cold]
    pub(crate) fn step_orphans(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let claims = Arc::clone(&turn.common.claims);
        let standbys = claims.standbys().ok_or(DropReason::UnknownSource)?;
        let record = match standbys.find(&origin.address, turn.now.mono_ns) {
            Some(Found::Try(record)) => record,
            Some(Found::Claimed) => return Err(DropReason::TakeoverAwaited),
            Some(Found::Limited) => return Err(DropReason::TakeoverLimited),
            None => return Err(self.claim_near(turn, origin, bytes).unwrap_or_else(|why| why)),
        };
        let header = Header::decode(bytes, Receiver::Server)?;
        if header.sequence <= record.newest {
            return Err(DropReason::ReplayTooOld);
        }
        if !self.opens(turn, origin, header, &record, bytes) {
            return Err(DropReason::PacketForged);
        }
        Err(self.claim_orphan(turn, standbys, origin, record))
    }

    /// A packet of no session here, from an address where such sessions were: its player may have
    /// another port since. What becomes of it where it opens for one of them, or why it does not.
    #[cold]
    pub(crate) fn claim_near(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<DropReason, DropReason> {
        let claims = Arc::clone(&turn.common.claims);
        let standbys = claims.standbys().ok_or(DropReason::UnknownSource)?;
        let record = self.open_near(turn, standbys, origin, bytes)?;
        Ok(self.claim_orphan(turn, standbys, origin, record))
    }

    /// Whether that may be.
    #[inline]
    pub(crate) fn is_near_orphans(common: &Common, address: &Address) -> bool {
        common.setup.listeners[address.listener].follow_port_switch
            && common.claims.standbys().is_some_and(|standbys| standbys.awaits_near(address))
    }

    /// The record of the session that such a packet opens for, within what may be spent on packets
    /// from unknown ports. A packet that is older than the record moves nothing.
    fn open_near(
        &mut self,
        turn: &mut Turn<'_>,
        standbys: &Standbys,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<Box<Record>, DropReason> {
        let header = Header::decode(bytes, Receiver::Server)?;
        let (address, now_ns) = (&origin.address, turn.now.mono_ns);
        if !header.kind.is_replay_protected() || !Self::is_near_orphans(turn.common, address) {
            return Err(DropReason::UnknownSource);
        }
        let area = address.area();
        let PortSwitches { sources, few, .. } = &mut self.port_switches;
        let source = sources.of(origin.hash, header.sequence, now_ns);
        let max = source.trials_left().min(few.left(&area, now_ns)).min(NEAR_MAX);
        let found = standbys.find_near(address, source.tried as usize, max as usize);
        if found.is_empty() {
            return Err(DropReason::PortSwitchRateLimited);
        }
        let count = found.len() as u32;
        source.spend_trials(count);
        source.tried = source.tried.wrapping_add(count);
        few.spend(&area, count);
        let mut why = DropReason::PortSwitchStale;
        let mut copy = [0; UNREAL_BYTES_MAX];
        let copy = copy.get_mut(..bytes.len()).ok_or(DropReason::TooLong)?;
        for it in found {
            let Found::Try(record) = it else {
                why = DropReason::TakeoverAwaited;
                continue;
            };
            if header.sequence <= record.newest {
                continue;
            }
            copy.copy_from_slice(bytes);
            if self.opens(turn, origin, header, &record, copy) {
                let most = turn.common.limits(address.listener).port_switches_per_block;
                let switches = &mut self.port_switches.switches;
                let is_admitted = switches.admit(&address.block(), Rate::new(most, 2), now_ns);
                return is_admitted.then_some(record).ok_or(DropReason::PortSwitchRateLimited);
            }
            if why == DropReason::PortSwitchStale {
                why = DropReason::PortSwitchForged;
            }
        }
        Err(why)
    }

    fn opens(
        &self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        header: Header,
        record: &Record,
        bytes: &mut [u8],
    ) -> bool {
        let rules = &self.listeners[origin.address.listener];
        let mut jobs = [packet_job(&record.open_key, rules, header, bytes)];
        turn.common.aead.open(&mut jobs);
        jobs[0].verdict == Verdict::Done
    }

    /// A packet has opened for a session whose owner is gone. What becomes of the packet.
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
    pub(crate) fn take_offered(&mut self, turn: &mut Turn<'_>, origin: &Origin) {
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

    fn begin_takeover(
        &mut self,
        turn: &mut Turn<'_>,
        standbys: &Standbys,
        origin: &Origin,
        (record, is_offered): (Box<Record>, bool),
    ) -> Result<(), TakeoverRefusal> {
        let now_ns = turn.now.mono_ns;
        let setup = Arc::clone(&turn.common.setup);
        if setup.denied.holds_client(record.client_id) {
            return Err(TakeoverRefusal::Denied);
        }
        let mut named = setup.backends.pairs().filter(|(_, it)| it.name == record.backend);
        let backend = named.find(|(_, it)| !it.retired).map(|(backend, _)| backend);
        let backend = backend.ok_or(TakeoverRefusal::BackendUnknown)?;
        arbiter_of(turn.common, backend).ok_or(TakeoverRefusal::LinkDown)?;
        let incarnation = standbys.incarnation().ok_or(TakeoverRefusal::LinkDown)?;
        if self.takeovers.under_way.len() >= UNDER_WAY_MAX {
            self.takeovers.under_way.retain(|_, it| !it.is_given_up);
        }
        let is_full = self.takeovers.under_way.len() >= UNDER_WAY_MAX;
        if is_full || !self.sessions.has_rested_place(now_ns) {
            return Err(TakeoverRefusal::NoRoom);
        }
        let claim = Takeover::claim(turn.common, &record, &origin.address, backend)?;
        let over = record.holder;
        let tenure = make_tenure(turn, incarnation, (&record, &origin.address), over.term);
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
        takeover.ask(turn);
        takeover.enter(turn.common);
        self.takeovers.due_ns = self.takeovers.due_ns.min(now_ns + ASK_EVERY_NS);
        self.takeovers.under_way.insert(takeover.record.session, takeover);
        Ok(())
    }

    /// What the arbiter of a backend says of a session, asked or not. What cannot be meant by any
    /// is passed over.
    #[cold]
    pub(crate) fn hear_standing(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        said: &Standing<'_>,
    ) {
        let (id, tenure) = (SessionId(said.id), Tenure::of_number(said.tenure));
        let (Some(tenure), Some(reply)) = (tenure, reply_of(said)) else { return };
        if reply == Reply::Ended {
            self.clusters.overs.hear_ended(id);
        }
        let asked = self.takeovers.under_way.get(&id);
        if asked.is_some_and(|it| it.claim.backend == backend && it.tenure == tenure) {
            return self.hear_answer(turn, id, reply);
        }
        let Some(index) = self.clusters.find(id) else {
            if asked.is_none() && matches!(reply, Reply::Granted { .. }) {
                self.decline(turn, backend, (id, tenure));
            }
            return;
        };
        if self.sessions.at(index).backend != backend {
            return;
        }
        let own = self.clusters.get(index).map(|it| it.tenure);
        match reply {
            Reply::Fenced { holder } if Some(holder) > own => {
                if let Some(ending) = self.ending_of(index) {
                    // The arbiter hears that it is over, and its holder from there.
                    return self.end_like(turn, index, ending);
                }
                self.leave_to(turn, index, holder);
            }
            Reply::Ended => self.end(turn, index, Ended::ByArbiter),
            Reply::Full => self.go_alone(turn, index),
            Reply::Fenced { .. } | Reply::Granted { .. } => {}
        }
    }

    fn hear_answer(&mut self, turn: &mut Turn<'_>, id: SessionId, reply: Reply) {
        let Some(mut takeover) = self.takeovers.under_way.remove(&id) else { return };
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
                match make_tenure(turn, holder.incarnation, whose, holder.term) {
                    Ok(tenure) => {
                        (takeover.tenure, takeover.over) = (tenure, holder);
                        takeover.ask(turn);
                        self.takeovers.under_way.insert(id, takeover);
                        return;
                    }
                    Err(why) => why,
                }
            }
            Reply::Fenced { .. } => TakeoverRefusal::Fenced,
        };
        takeover.give_up(turn.common, why);
    }

    /// An answer comes when nothing is held for the session any more.
    fn hear_late(&mut self, turn: &mut Turn<'_>, mut takeover: Takeover, reply: &Reply) {
        let Reply::Granted { handed } = reply else { return };
        let Takeover { record, address, claim, tenure, .. } = &takeover;
        match Takeover::claim(turn.common, record, address, claim.backend) {
            Ok(claim) => {
                takeover.claim = claim;
                self.go_on_with(turn, &mut takeover, handed);
            }
            Err(_) => self.decline(turn, claim.backend, (record.session, *tenure)),
        }
    }

    /// The session is this gateway's.
    fn go_on_with(&mut self, turn: &mut Turn<'_>, takeover: &mut Takeover, handed: &Window) {
        let &mut Takeover { address, socket, local, claim, tenure, .. } = takeover;
        let listener = address.listener;
        let is_there = turn.common.front(listener) == Front::Netcode
            && turn.common.setup.listeners[listener].phase != Phase::Closed;
        let is_free = self.sessions.find(self.sessions.hash(&address), &address).is_none();
        if !is_there || !is_free {
            return self.give_back(turn, takeover);
        }
        let record = &takeover.record;
        let beginning = Beginning {
            claim,
            open_key: record.open_key.clone(),
            seal_key: record.seal_key.clone(),
            window: window_of(record.newest, handed, &self.listeners[listener].replay),
            next_sequence: SessionSequence::at(PacketNumber::first(tenure).get()),
            timeout_ms: record.timeout_ms,
        };
        let mut session = Session::new(beginning, socket, local, turn.now.mono_ns);
        // What has opened was sent by a client that knows.
        session.heard = HeardSince::Something;
        session.confirm();
        let Ok(index) = self.sessions.insert(address, session, turn.now.mono_ns) else {
            return self.give_back(turn, takeover);
        };
        if turn.common.setup.listeners[listener].follow_port_switch {
            self.make_resident(turn, index);
        }
        self.user_data.keep(index, &record.user_data);
        let clustered = clustered::Clustered {
            id: record.session,
            tenure,
            token: record.token,
            token_until_s: record.token_until_s,
            since_s: record.since_s,
            revision: 0,
            told: None,
            is_alone: false,
            ending: None,
            is_given: false,
            moves: Moves::new(turn.now.mono_ns),
            forwarded_up_to: None,
        };
        self.clusters.put(index, clustered);
        let id = self.sessions.id(index);
        turn.common.claims.seat(listener, claim.client_id, (id, false));
        let players = turn.common.setup.fleet_players.as_ref();
        if let Some((players, group)) = players.zip(unique_in(turn, listener)) {
            players.taken_over(group, claim.client_id, id, record.since_s);
        }
        turn.common.count_session(listener, claim.backend);
        let fact = Fact::TookOver { backend: claim.backend, slot: claim.slot };
        turn.common.trace(&address, Some(claim.client_id), fact);
        if let Some(standbys) = turn.common.claims.standbys() {
            standbys.note_taken_over(record.session, takeover.is_offered);
        }
        takeover.leave(turn.common);
        // A player who hears of this gateway hears nothing of the one before any more: where that
        // one lives, what it has on its way comes first.
        if !takeover.is_offered {
            self.emit_keep_alive(turn, index);
        }
        self.announce(turn, index);
        self.arm(turn, index);
        self.take_early(turn, takeover);
    }

    /// A packet has come for a session that its owner gives to this gateway, and that is not here
    /// yet. Whether it waits for that.
    pub(crate) fn wait_for_session(
        &mut self,
        common: &mut Common,
        origin: &Origin,
        bytes: &[u8],
    ) -> bool {
        let mut under_way = self.takeovers.under_way.values_mut();
        let is_it = |it: &&mut Takeover| it.is_offered && it.address == origin.address;
        let Some(takeover) = under_way.find(is_it) else { return false };
        let has_room = takeover.early.len() < EARLY_MAX;
        if has_room {
            takeover.early.push(bytes.into());
            common.counters.early_kept += 1;
        }
        has_room
    }

    /// The session is here.
    fn take_early(&mut self, turn: &mut Turn<'_>, takeover: &mut Takeover) {
        let &mut Takeover { address, socket, local, .. } = takeover;
        let hash = address.hash(turn.common.hash_key);
        let (bind, kernel_ns, forwarded_by) = (BindId(0), 0, None);
        let origin = Origin { address, hash, bind, socket, local, kernel_ns, forwarded_by };
        turn.common.counters.early_taken += takeover.early.len() as u64;
        for mut bytes in takeover.early.drain(..) {
            if let Err(why) = self.step_early(turn, &origin, &mut bytes) {
                turn.common.drop_datagram(&address, why);
            }
        }
    }

    fn step_early(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let (index, header) = self.look_at_mailed(origin, bytes)?;
        let verdict = self.open_single(turn, index, header, bytes);
        self.step_session(turn, index, header, verdict, bytes, origin.kernel_ns)
    }

    /// A session was granted that cannot be here after all.
    fn give_back(&mut self, turn: &mut Turn<'_>, takeover: &mut Takeover) {
        takeover.give_up(turn.common, TakeoverRefusal::NoRoom);
        let whose = (takeover.record.session, takeover.tenure);
        self.decline(turn, takeover.claim.backend, whose);
    }

    /// Ends a session at its arbiter that is granted to this gateway, and that it does not have: it
    /// was given up meanwhile. Nobody else would end it. One that the arbiter has forgotten is not
    /// opened by that.
    fn decline(&mut self, turn: &mut Turn<'_>, backend: BackendId, whose: (SessionId, Tenure)) {
        let Some(link) = arbiter_of(turn.common, backend) else { return };
        let (id, tenure) = whose;
        // No session has such a number: theirs come from places of a table, from the first on.
        let serial = self.random.next() | 1 << 63;
        let session = LinkSession::new(turn.common.worker.id.index(), serial >> 8);
        let clustered = Clustered {
            session,
            id: id.0,
            tenure: tenure.number(),
            token_until_s: 0,
            timeout_ms: 0,
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

    /// The arbiter has no room for a session: it goes on, and ends with this gateway.
    fn go_alone(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        self.leave_cluster(turn.common, index);
        self.sessions.at_mut(index).announced = 0;
        self.announce(turn, index);
        self.be_sure(turn, index);
    }

    /// Asks again for what is not answered, and gives up what cannot be any more.
    pub(crate) fn look_after_takeovers(&mut self, turn: &mut Turn<'_>) {
        if turn.now.mono_ns < self.takeovers.due_ns {
            return;
        }
        let now_ns = turn.now.mono_ns;
        self.takeovers.under_way.retain(|_, it| {
            let common = &turn.common;
            let is_same = common.links.backends[it.claim.backend].epoch == it.epoch;
            let is_gone = !is_same || arbiter_of(common, it.claim.backend).is_none();
            if it.is_given_up {
                return !is_gone && now_ns < it.since_ns + FORGET_NS;
            }
            if is_gone {
                it.give_up(turn.common, TakeoverRefusal::LinkDown);
                return false;
            }
            if now_ns >= it.since_ns + GIVE_UP_NS {
                it.give_up(turn.common, TakeoverRefusal::NotAnswered);
                it.is_given_up = true;
            } else if now_ns >= it.asked_ns + ASK_EVERY_NS {
                it.asked_ns = now_ns;
                it.ask(turn);
            }
            true
        });
        let due = self.takeovers.under_way.values().map(|it| {
            let wait_ns = if it.is_given_up { FORGET_NS } else { 0 };
            (it.asked_ns + ASK_EVERY_NS).max(it.since_ns + wait_ns)
        });
        self.takeovers.due_ns = due.min().unwrap_or(u64::MAX);
    }
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
    })
}

fn make_tenure(
    turn: &Turn<'_>,
    incarnation: Incarnation,
    (record, address): (&Record, &Address),
    beyond: Term,
) -> Result<Tenure, TakeoverRefusal> {
    let token = (&record.token, record.token_until_s);
    let made = turn.common.claims.make_term(token, &address.endpoint, beyond, turn.now);
    let term = made.map_err(|why| match why {
        NoTerm::HistoryFull => TakeoverRefusal::NoRoom,
        NoTerm::UsedUp => TakeoverRefusal::TermsUsedUp,
    })?;
    Ok(Tenure { term, incarnation })
}

/// What a session has taken that goes on: what was handed over, and all up to the newest packet
/// when its record was written, because who had it then knew of those.
fn window_of(newest: u64, handed: &Window, policy: &Policy) -> Window {
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

/// Of the sessions at an address whose owners are gone, how many one packet from another port is
/// tried against; the next packet of its source goes on from there.
const NEAR_MAX: u32 = 8;

/// Packets that wait for a session.
const EARLY_MAX: usize = 8;

/// Claims of one worker that are not answered.
const UNDER_WAY_MAX: usize = 4096;

const GIVE_UP_NS: u64 = 3_000_000_000;

/// How late an answer may be.
const FORGET_NS: u64 = 60_000_000_000;
