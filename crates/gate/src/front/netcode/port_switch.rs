//! Players who come from a new port: a NAT has moved them in mid-game, alone or by the thousand.
//!
//! Nothing in netcode helps there. A packet from an unknown port whose address has live sessions
//! may be one of theirs; it is if it opens *and is newer than everything the session has received*,
//! and then the session follows. A captured packet that is sent from elsewhere is not newer, so it
//! moves nothing; neither does a late one from the old port.
//!
//! ```text
//! classify   has the address sessions, and which workers have them?    one load, no lock
//!            is the packet numbered like some session's next ones?      where there are many: like
//!                                                      one that has fallen silent (lineup)
//!            is there anything left of what may be spent?      by port, address or block, in all
//! open       a copy for each candidate, in the turn's batch
//! step       the session moves; if none opens it, the packet goes to the other workers that have
//!            sessions of the address
//! ```
//!
//! Junk and movers come from the same address and look alike until something opens. So what junk
//! can spend is bounded several times: a port has a small share, few sessions (a household) and
//! many (a carrier) draw on different budgets, and a packet that is not numbered as the next one of
//! some session costs no cipher.
//!
//! A session never changes its worker. When the kernel hashes the new port to another worker, that
//! one forwards the player's datagrams from then on: for the game process, the link and the slot
//! nothing changes.

use arrayvec::ArrayVec;

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::cluster::owning::Owning;
use crate::front::netcode::arrival::Target;
use crate::front::netcode::lineup::{Lost, Sessions, could_be};
use crate::front::netcode::session::{Neighbour, Session};
use crate::front::netcode::spending::PortSwitches;
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::trials::Mover;
use crate::ids::WorkerId;
use crate::now::Now;
use crate::shared::homes::Workers;
use crate::shared::whereabouts::Members;
use crate::store::admission::Rate;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::crypto::Verdict;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::netcode::packet::{Header, Receiver};

/// Who else may have the session of a packet from a new port.
#[derive(Clone, Copy)]
struct Others {
    workers: Workers,
    members: Members,
}

/// The sessions that a packet is tried against.
type Candidates = ArrayVec<Entry<Session>, CANDIDATES_MAX>;

impl NetcodeFront {
    /// A session that packets from new ports of its address may belong to.
    pub(crate) fn make_resident(&mut self, turn: &Turn<'_>, index: Entry<Session>) {
        self.list_resident(turn.common, index);
    }

    /// The same without a turn.
    pub(crate) fn list_resident(&mut self, common: &Common, index: Entry<Session>) {
        let homes = common.claims.homes();
        let bucket = homes.bucket(&self.sessions.address(index).area());
        self.port_switches.residents.enter(homes, bucket, index);
    }

    /// Whether a packet from an unknown port may be from a player who had another one.
    pub(crate) fn look_at_unknown(
        &mut self,
        common: &mut Common,
        now: Now,
        address: &Address,
        hash: u32,
        bytes: &[u8],
        own: Option<Entry<Session>>,
    ) -> Result<Target, DropReason> {
        // Nearly always empty, and its own hash costs as much as ours.
        let is_steered = !common.neighbours.steered.is_empty()
            && common.neighbours.steered.contains_key(&(address.listener, address.endpoint));
        if !is_steered && !common.setup.listeners[address.listener].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let header =
            Header::decode(bytes, Receiver::Server).map_err(|_| DropReason::UnknownSource)?;
        if is_steered && own.is_none() {
            return Ok(Target::Steered);
        }
        if !header.kind.is_replay_protected() {
            return Err(DropReason::UnknownSource);
        }
        let area = address.area();
        let bucket = common.claims.homes().bucket(&area);
        let workers = common.claims.homes().workers(bucket);
        let members = common.claims.whereabouts().map_or(Members::NONE, |it| it.homes_of(address));
        let is_orphans = || own.is_none() && Self::is_near_orphans(common, address);
        if workers.is_empty() && members.is_empty() {
            return if is_orphans() { Ok(Target::Orphan) } else { Err(DropReason::UnknownSource) };
        }
        let others = Others { workers: workers.without(common.worker.id), members };
        let what = (hash, header, bytes.len());
        let candidates = match self.choose(common, now, address, what, others, own) {
            Err(_) if is_orphans() => return Ok(Target::Orphan),
            candidates => candidates?,
        };
        let trials = &mut self.port_switches.trials;
        let is_others = !others.is_empty();
        Ok(Target::Mover(trials.push(header, None, bytes, &candidates, is_others)))
    }

    /// What a packet is tried against, and for which there is room: sessions of ours, that of its
    /// address first. Perhaps none, where it may be one of the others'.
    fn choose(
        &mut self,
        common: &Common,
        now: Now,
        address: &Address,
        (hash, header, len): (u32, Header, usize),
        others: Others,
        own: Option<Entry<Session>>,
    ) -> Result<Candidates, DropReason> {
        let candidates = self.candidates(common, now, address, hash, header, len);
        let mut candidates = match candidates {
            // None of our sessions, as far as we can look now; perhaps one of theirs.
            Err(_) if !others.is_empty() => Candidates::new(),
            candidates => candidates?,
        };
        if let Some(own) = own {
            candidates.retain(|it| *it != own);
            candidates.truncate(CANDIDATES_MAX - 1);
            if self.check_window(own, address.listener, header).is_ok() {
                candidates.insert(0, own);
            }
        }
        if candidates.is_empty() {
            self.pay_forward(now, address, (hash, header), others)?;
        }
        if self.port_switches.trials.room_for(len) < candidates.len().max(1) {
            return Err(DropReason::PortSwitchRateLimited);
        }
        Ok(candidates)
    }

    /// The session of an address has refused a packet. If it is not heard, the next one is tried as
    /// one from an unknown port: a router may have given another player this port.
    #[cold]
    pub(crate) fn doubt(&mut self, now: Now, index: Entry<Session>, sequence: u64) {
        if is_missed(self.sessions.at(index), now.mono_ns) {
            let hash = self.sessions.hash(self.sessions.address(index));
            self.port_switches.sources.of(hash, sequence, now.mono_ns);
        }
    }

    /// A packet from the address of a session that is not heard: where that may be another player's
    /// by now, tried as one from an unknown port, and as the session's own.
    #[cold]
    pub(crate) fn look_at_doubtful(
        &mut self,
        common: &mut Common,
        now: Now,
        (index, address, hash): (Entry<Session>, &Address, u32),
        checked: Result<(), DropReason>,
        bytes: &[u8],
    ) -> Option<Target> {
        if checked.is_ok() && !self.port_switches.sources.knows(hash, now.mono_ns) {
            return None;
        }
        self.look_at_unknown(common, now, address, hash, bytes, Some(index)).ok()
    }

    /// The sessions of ours that a packet may belong to, by everything that can be read without a
    /// cipher, and within what may be spent. Never none: then there is a reason.
    fn candidates(
        &mut self,
        common: &Common,
        now: Now,
        address: &Address,
        hash: u32,
        header: Header,
        len: usize,
    ) -> Result<Candidates, DropReason> {
        let now_ns = now.mono_ns;
        let block = address.block();
        let switches = Rate::new(common.limits(address.listener).port_switches_per_block, 2);
        if !self.port_switches.switches.would_admit(&block, switches, now_ns) {
            return Err(DropReason::PortSwitchRateLimited);
        }
        let area = address.area();
        let bucket = common.claims.homes().bucket(&area);
        let Self { sessions, port_switches, listeners, .. } = self;
        let PortSwitches { residents, lineups, sources, few, many, trials, .. } = port_switches;
        let policy = &listeners[address.listener].replay;
        let source = sources.of(hash, header.sequence, now_ns);
        let lost = Lost {
            area,
            bucket,
            sequence: header.sequence,
            first_sequence: source.first_sequence,
            now_ns,
        };
        let is_few = residents.of(bucket).nth(FEW).is_none();
        // Longer packets take longer to verify.
        let cost = 1 + len as u32 / BYTES_PER_COST;
        let (spending, spender) = if is_few { (few, &area) } else { (many, &block) };
        let affordable = (spending.left(spender, now_ns) / cost).min(source.trials_left());
        // The right one is nearly always among the first.
        let at_once = if source.tried == 0 { FIRST_TRIALS } else { CANDIDATES_MAX as u32 };
        let limit = affordable.min(trials.room_for(len) as u32).min(at_once);
        let mut candidates = Candidates::new();
        let mut is_at_home = false;
        let mut looked_at = 0;
        if is_few {
            for index in residents.of(bucket) {
                let home = sessions.address(index);
                if home.area() == area {
                    is_at_home = true;
                    if could_be(sessions.at(index), policy, &lost) {
                        candidates.push(index);
                    }
                }
            }
            // Who has fallen silent is missed most.
            candidates.sort_unstable_by_key(|index| sessions.at(*index).last_receive_ns);
            looked_at = candidates.len() as u32;
            candidates.truncate(limit as usize);
        } else {
            is_at_home = true;
            let range = (source.tried, limit);
            let sessions = Sessions { residents, table: sessions, policy };
            looked_at += lineups.search(&lost, range, sessions, |index| candidates.push(index));
            // Where all were tried, the search begins anew: a session may have fallen silent only
            // now.
            source.tried = if looked_at < limit { 0 } else { source.tried + looked_at };
        }
        if limit == 0 && (looked_at > 0 || !is_few) {
            return Err(DropReason::PortSwitchRateLimited);
        }
        let spent = looked_at.min(limit);
        source.spend_trials(spent);
        spending.spend(spender, spent * cost);
        if candidates.is_empty() {
            let why =
                if is_at_home { DropReason::PortSwitchStale } else { DropReason::UnknownSource };
            return Err(why);
        }
        Ok(candidates)
    }

    /// Whether a packet may go to others that have sessions of its address.
    fn pay_forward(
        &mut self,
        now: Now,
        address: &Address,
        (hash, header): (u32, Header),
        others: Others,
    ) -> Result<(), DropReason> {
        let PortSwitches { sources, forwards, .. } = &mut self.port_switches;
        let source = sources.of(hash, header.sequence, now.mono_ns);
        if source.take_forward() && forwards.take(&address.block(), others.count(), now.mono_ns) {
            Ok(())
        } else {
            Err(DropReason::PortSwitchRateLimited)
        }
    }

    /// A datagram that another worker's player has sent.
    pub(crate) fn step_steered(
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let steered =
            turn.common.neighbours.steered.get(&(origin.address.listener, origin.address.endpoint));
        let &worker = steered.ok_or(DropReason::UnknownSource)?;
        turn.common.forward(origin, worker, false, bytes);
        Ok(())
    }

    /// Packets from new ports that came by mail: before everything that has arrived, as they came.
    pub(crate) fn step_mailed_movers(&mut self, turn: &mut Turn<'_>) {
        for number in 0..self.port_switches.trials.len() as u32 {
            let mover = self.port_switches.trials.mover(number);
            let Some(origin) = mover.origin else { continue };
            let mut copies = self.port_switches.trials.lend();
            let mut packet = [0; UNREAL_BYTES_MAX];
            let packet = &mut packet[..mover.packet().len()];
            packet.copy_from_slice(&copies[mover.packet()]);
            let sealed = turn.common.take_up_mover(&origin, packet);
            let outcome = self.step_mover(turn, &mover, &origin, packet, &mut copies);
            self.port_switches.trials.give_back(copies);
            if let Err(why) = outcome {
                turn.common.drop_datagram(&origin.address, why);
            }
            if let Some(sealed) = sealed {
                let moved = self.player_at(&origin.address);
                moved.inspect(|client_id| turn.common.captures.identify(*client_id));
                turn.common.show_mover(turn.now.mono_ns, &origin, &sealed);
            }
        }
    }

    /// A packet from a new port that this worker has received itself.
    pub(crate) fn step_own_mover(
        &mut self,
        turn: &mut Turn<'_>,
        number: u32,
        origin: &Origin,
        packet: &mut [u8],
    ) -> Result<(), DropReason> {
        let mover = self.port_switches.trials.mover(number);
        let mut copies = self.port_switches.trials.lend();
        let outcome = self.step_mover(turn, &mover, origin, packet, &mut copies);
        self.port_switches.trials.give_back(copies);
        outcome
    }

    /// A packet from a new port, and what has become of its copies: moves the session that it opens
    /// for.
    fn step_mover(
        &mut self,
        turn: &mut Turn<'_>,
        mover: &Mover,
        origin: &Origin,
        packet: &mut [u8],
        copies: &mut [u8],
    ) -> Result<(), DropReason> {
        let (header, kernel_ns) = (mover.header, origin.kernel_ns);
        let there = self.sessions.find(origin.hash, &origin.address);
        let verdicts = &self.verdicts[self.arrivals.len()..];
        let mut candidates = self.port_switches.trials.candidates_of(mover);
        let Some((copy, index)) = candidates.find(|(copy, _)| verdicts[*copy] == Verdict::Done)
        else {
            drop(candidates);
            if let Some(index) = there {
                // An earlier packet of this batch may have moved the session here.
                let verdict = self.open_single(turn, index, header, packet);
                if verdict == Verdict::Done {
                    return self.step_session(turn, index, header, verdict, packet, kernel_ns);
                }
            }
            let passed = self.pass_mover_on(turn, mover, origin, packet);
            return passed.map_err(|why| there.map_or(why, |_| DropReason::PacketForged));
        };
        drop(candidates);
        let opened = &copies[mover.copy(copy)];
        if there == Some(index) {
            return self.step_session(turn, index, header, Verdict::Done, opened, kernel_ns);
        }
        if there.is_some_and(|there| !is_missed(self.sessions.at(there), turn.now.mono_ns)) {
            return Err(DropReason::PacketForged);
        }
        // Much may have happened since it was looked at first, in this very turn.
        if !self.sessions.is_live(index) {
            return Err(DropReason::SessionEnded);
        }
        let policy = &self.listeners[origin.address.listener].replay;
        let latest = self.sessions.at(index).window.latest(policy);
        if latest.is_some_and(|latest| header.sequence <= latest) {
            return Err(DropReason::PortSwitchStale);
        }
        let rate =
            Rate::new(turn.common.limits(origin.address.listener).port_switches_per_block, 2);
        if !self.port_switches.switches.admit(&origin.address.block(), rate, turn.now.mono_ns) {
            // The next packet is to find the same session again.
            self.port_switches.sources.of(origin.hash, header.sequence, turn.now.mono_ns).tried = 0;
            return Err(DropReason::PortSwitchRateLimited);
        }
        match there {
            Some(there) => self.change_places(turn, index, there, origin),
            None => self.move_session(turn, index, origin),
        }
        self.step_session(turn, index, header, Verdict::Done, opened, kernel_ns)
    }

    /// It is of none of our sessions: has the others try theirs.
    fn pass_mover_on(
        &mut self,
        turn: &mut Turn<'_>,
        mover: &Mover,
        origin: &Origin,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        if Self::is_near_orphans(turn.common, &origin.address)
            && let Ok(outcome) = self.claim_near(turn, origin, packet)
        {
            return Err(outcome);
        }
        if !mover.is_others {
            return Err(DropReason::PortSwitchForged);
        }
        let homes = turn.common.claims.homes();
        let workers = homes.workers(homes.bucket(&origin.address.area()));
        // What has come from another member goes to none.
        let whereabouts =
            turn.common.claims.whereabouts().filter(|_| origin.forwarded_by.is_none());
        let members = whereabouts.map_or(Members::NONE, |it| it.homes_of(&origin.address));
        let others = Others { workers: workers.without(turn.common.worker.id), members };
        if others.is_empty() {
            return Err(DropReason::PortSwitchForged);
        }
        if mover.has_candidates() {
            self.pay_forward(turn.now, &origin.address, (origin.hash, mover.header), others)?;
        }
        for worker in others.workers.iter() {
            turn.common.forward(origin, worker, true, packet);
        }
        for member in others.members.iter() {
            turn.common.forward_to_member(origin, member, true, packet);
        }
        turn.common.counters.forwarded_copies += u64::from(others.count()) - 1;
        Ok(())
    }

    /// A packet from a new port that another worker has received: tried with those that arrive in
    /// this turn. Where no worker was asked yet, others are if it is none of ours.
    pub(crate) fn take_mover_in(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        is_lost: bool,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let header = Header::decode(bytes, Receiver::Server)?;
        if !(turn.common.setup.listeners[origin.address.listener].follow_port_switch
            && header.kind.is_replay_protected())
        {
            return Err(DropReason::UnknownSource);
        }
        let homes = turn.common.claims.homes();
        let workers = homes.workers(homes.bucket(&origin.address.area()));
        let workers = if is_lost { Workers::NONE } else { workers.without(turn.common.worker.id) };
        let others = Others { workers, members: Members::NONE };
        let what = (origin.hash, header, bytes.len());
        let candidates =
            match self.choose(turn.common, turn.now, &origin.address, what, others, None) {
                Err(_) if Self::is_near_orphans(turn.common, &origin.address) => {
                    let claimed = self.claim_near(turn, origin, bytes);
                    return Err(claimed.unwrap_or_else(|why| why));
                }
                candidates => candidates?,
            };
        let is_others = !others.is_empty();
        self.port_switches.trials.push(header, Some(*origin), bytes, &candidates, is_others);
        turn.common.captures.defer();
        Ok(())
    }

    fn move_session(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, origin: &Origin) {
        let old = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        session.talk_through(origin.socket, origin.local);
        let steered_by =
            std::mem::replace(&mut session.steered_by, origin.steered_by().map(Neighbour::new));
        self.sessions.readdress(index, origin.address);
        self.keep_record(turn.common, turn.now, index);
        self.void_handshake(turn, index);
        if let Some(worker) = steered_by {
            turn.common.unsteer(worker.worker(), old, None);
        }
        if let Some(worker) = origin.steered_by() {
            turn.common.steer_here(worker, origin.address);
        }
        turn.common.counters.port_switches += 1;
        let client_id = self.sessions.at(index).client_id;
        turn.common.trace(&origin.address, Some(client_id), Fact::Moved { from: old.endpoint });
    }

    /// A player has come to the address of one who is not heard, and who has most likely got the
    /// address that this one had: routers swap ports. Otherwise it is found wherever it is.
    fn change_places(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        there: Entry<Session>,
        origin: &Origin,
    ) {
        let old = *self.sessions.address(index);
        let (socket, local) = self.sessions.at(index).talks_to();
        // No datagram comes from there.
        let nowhere = origin.address.endpoint.with_port(0);
        self.sessions.readdress(there, Address { endpoint: nowhere, ..old });
        self.move_session(turn, index, origin);
        self.sessions.readdress(there, old);
        self.void_handshake(turn, there);
        let session = self.sessions.at_mut(there);
        session.talk_through(socket, local);
        session.steered_by = None;
        let client_id = session.client_id;
        self.keep_record(turn.common, turn.now, there);
        let from = origin.address.endpoint;
        turn.common.trace(&old, Some(client_id), Fact::Moved { from });
    }

    /// The worker that receives a player's datagrams does not know that they are ours: its mailbox
    /// was full when it was told.
    pub(crate) fn remind_of_steering(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        from_worker: WorkerId,
    ) {
        if self.sessions.is_live(index) {
            let address = *self.sessions.address(index);
            self.sessions.at_mut(index).steered_by = Some(Neighbour::new(from_worker));
            turn.common.steer_here(from_worker, address);
        }
    }

    /// Whether a packet comes late from a session that its address has had. Not where the address
    /// is a player's again whose session another worker has.
    pub(crate) fn is_straggler(
        &self,
        common: &Common,
        now: Now,
        address: &Address,
        hash: u32,
        bytes: &[u8],
    ) -> bool {
        // Nothing is read of a flood of junk at a gateway that no player has left lately.
        if !self.departed.is_asked(now.mono_ns) {
            return false;
        }
        Header::decode(bytes, Receiver::Server).is_ok_and(|header| {
            self.departed.has_left(hash, header.sequence, now.mono_ns)
                && !common.neighbours.steered.contains_key(&(address.listener, address.endpoint))
        })
    }
}

impl Others {
    const fn is_empty(self) -> bool {
        self.workers.is_empty() && self.members.is_empty()
    }

    const fn count(self) -> u32 {
        self.workers.count() + self.members.count()
    }
}

/// Whether a session is silent for so long that another player may be where its player was.
pub(crate) fn is_missed(session: &Session, now_ns: u64) -> bool {
    now_ns >= session.last_receive_ns.saturating_add(MISSED_NS)
}

/// Players speak, or keep alive, ten times a second as a rule.
const MISSED_NS: u64 = 1_000_000_000;

/// An address with so many sessions on this worker is a household: all of them are looked at. One
/// with more is a carrier's.
const FEW: usize = 8;

/// Sessions that one packet is tried against at a time; the next packet of its source goes on from
/// there. One batch of the cipher.
const CANDIDATES_MAX: usize = 64;

/// Of many sessions, how many a source's first packet is tried against: one set of the cipher's
/// lanes.
const FIRST_TRIALS: u32 = 16;

/// A trial of a packet up to this long costs 1, one of twice the length 2.
const BYTES_PER_COST: u32 = 256;
