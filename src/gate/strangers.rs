//! Players who come from a new port: a NAT has moved them in mid-game.
//!
//! Nothing in netcode helps there. A packet from an unknown port whose address has live sessions is tried, strictly limited,
//! against those few sessions; if it opens and is *newer than everything the session has received*, the session follows. A
//! captured packet that is sent from elsewhere is not newer, so it moves nothing; neither does a late one from the old port.
//!
//! A session never changes its worker. When the kernel hashes the new port to another worker, that one forwards the player's
//! datagrams from then on: the game process, the link and the slot notice nothing.

use super::admission::Admission;
use super::claims::{Resident, Residents};
use super::hash::HashKey;
use super::mail::{ForwardedDatagram, Mail, Steering};
use super::output::Exit;
use super::players::{Origin, Target};
use super::session::Neighbour;
use super::setup::Setup;
use super::table::Address;
use super::{Gate, Now};
use crate::buf::Endpoint;
use crate::crypto::Verdict;
use crate::drops::DropReason;
use crate::limits::UNREAL_BYTES_MAX;
use crate::proto::netcode::packet::{Header, Receiver};

/// How much may be spent on packets from unknown ports.
pub(super) struct Strangers {
    /// Looks into the claims, over all sources.
    looks: Admission,
    /// Trials, for each source prefix.
    per_source: Admission,
    /// Trials, over all sources.
    total: Admission,
}

impl Strangers {
    pub(super) fn new(setup: &Setup, key: HashKey, now_ns: u64) -> Self {
        Self {
            looks: Admission::new(LOOKS, 1, key, now_ns),
            per_source: Admission::new(setup.port_switch_rate, BUCKETS, key, now_ns),
            total: Admission::new(setup.port_switch_total, 1, key, now_ns),
        }
    }

    /// Whether somebody from a new port is listened to now.
    pub(super) fn may_ask(&mut self, source: &Endpoint, now_ns: u64) -> bool {
        self.per_source.admit(source, now_ns) && self.total.admit(&ANYBODY, now_ns)
    }
}

impl Gate {
    /// Whether a packet from nobody we know may be from a player who had another port.
    pub(super) fn look_at_stranger(
        &mut self,
        now: Now,
        address: &Address,
        bytes: &[u8],
    ) -> Result<Target, DropReason> {
        // Nearly always empty, and its own hash costs as much as ours.
        let is_steered = !self.steered.is_empty()
            && self.steered.contains_key(&(address.listener, address.endpoint));
        if !is_steered && !self.setup.listeners[usize::from(address.listener)].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let header =
            Header::decode(bytes, Receiver::Server).map_err(|_| DropReason::UnknownSource)?;
        if is_steered {
            return Ok(Target::Stranger);
        }
        if !header.kind.is_replay_protected() || !self.strangers.looks.admit(&ANYBODY, now.mono_ns)
        {
            return Err(DropReason::UnknownSource);
        }
        if self.claims.residents(address.endpoint.ip(), address.listener).is_empty() {
            return Err(DropReason::UnknownSource);
        }
        if self.strangers.may_ask(&address.endpoint, now.mono_ns) {
            Ok(Target::Stranger)
        } else {
            Err(DropReason::PortSwitchRateLimited)
        }
    }

    pub(super) fn step_stranger(
        &mut self,
        now: Now,
        origin: &Origin,
        header: Header,
        bytes: &mut [u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        if let Some(&worker) = self.steered.get(&(origin.address.listener, origin.address.endpoint))
        {
            self.forward(origin, worker, None, bytes);
            return Ok(());
        }
        if let Some(index) = self.sessions.find(origin.hash, &origin.address) {
            // An earlier packet of this batch has moved the session here already.
            return self.step_moved(now, index, origin, header, bytes, exit);
        }
        self.try_residents(now, origin, header, bytes, exit)
    }

    /// Tries our own sessions of that address, and has the other workers try theirs.
    fn try_residents(
        &mut self,
        now: Now,
        origin: &Origin,
        header: Header,
        bytes: &mut [u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let Address { listener, endpoint } = origin.address;
        let residents = self.claims.residents(endpoint.ip(), listener);
        let is_mine = |resident: &Resident| resident.worker == self.worker.index;
        let (mine, theirs): (Residents, Residents) = residents.into_iter().partition(is_mine);
        let mut outcome = Err(DropReason::PortSwitchForged);
        for resident in &mine {
            outcome = self.try_resident(now, resident, origin, header, bytes, exit);
            if !matches!(outcome, Err(DropReason::PortSwitchForged | DropReason::PortSwitchStale)) {
                return outcome;
            }
        }
        if theirs.is_empty() {
            return outcome;
        }
        for resident in &theirs {
            self.forward(origin, resident.worker, Some(*resident), bytes);
        }
        self.counters.forwarded_copies += theirs.len() as u64 - 1;
        Ok(())
    }

    /// A datagram that another worker received.
    pub(super) fn handle_forwarded(
        &mut self,
        now: Now,
        mut datagram: ForwardedDatagram,
        exit: &mut Exit<'_>,
    ) {
        self.counters.forwarded_in += 1;
        if let Err(why) = self.step_forwarded(now, &mut datagram, exit) {
            self.counters.drops.bump(why);
        }
    }

    fn step_forwarded(
        &mut self,
        now: Now,
        datagram: &mut ForwardedDatagram,
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let listener = usize::from(datagram.address.listener);
        let sockets = self.listeners.get(listener).map_or(&[][..], |listener| &listener.sockets);
        let socket = *sockets.get(usize::from(datagram.bind)).ok_or(DropReason::UnknownSource)?;
        let origin = Origin {
            address: datagram.address,
            hash: self.sessions.hash(&datagram.address),
            bind: datagram.bind,
            socket,
            local: datagram.local,
            kernel_ns: datagram.kernel_ns,
            forwarded_by: Some(datagram.from_worker),
        };
        let candidate = datagram.candidate;
        let from_worker = datagram.from_worker;
        let bytes = datagram.bytes_mut();
        if self.is_unreal(origin.address.listener) {
            return self.step_unreal_forwarded(now, &origin, from_worker, candidate, bytes, exit);
        }
        match self.look_at_mailed(&origin, bytes) {
            Ok((index, header)) => {
                let verdict = self.open_single(index, header, bytes);
                self.step_session(now, index, header, verdict, bytes, origin.kernel_ns, exit)?;
                if candidate.is_some() {
                    self.remind_of_steering(index, from_worker);
                }
                Ok(())
            }
            Err(DropReason::UnknownSource) => {
                let header = Header::decode(bytes, Receiver::Server)?;
                let Some(resident) = candidate else {
                    // The session is over and the other worker has not heard yet.
                    let forget = forget_steering(origin.address, self.worker.index);
                    self.mail_out.push((from_worker, forget));
                    return Err(DropReason::UnknownSource);
                };
                self.try_resident(now, &resident, &origin, header, bytes, exit)
            }
            Err(why) => Err(why),
        }
    }

    /// Tries a packet from a new port against one session, and moves the session if it is the player's.
    fn try_resident(
        &mut self,
        now: Now,
        resident: &Resident,
        origin: &Origin,
        header: Header,
        bytes: &mut [u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        let index = self.sessions.live(resident.place).ok_or(DropReason::PortSwitchForged)?;
        let policy = &self.listeners[usize::from(listener)].replay;
        let latest = self.sessions.at(index).window.latest(policy);
        if latest.is_some_and(|latest| header.sequence <= latest) {
            return Err(DropReason::PortSwitchStale);
        }
        if self.open_single(index, header, bytes) != Verdict::Done {
            return Err(DropReason::PortSwitchForged);
        }
        self.move_session(index, origin);
        self.step_session(now, index, header, Verdict::Done, bytes, origin.kernel_ns, exit)
    }

    fn step_moved(
        &mut self,
        now: Now,
        index: u32,
        origin: &Origin,
        header: Header,
        bytes: &mut [u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let verdict = self.open_single(index, header, bytes);
        self.step_session(now, index, header, verdict, bytes, origin.kernel_ns, exit)
    }

    fn move_session(&mut self, index: u32, origin: &Origin) {
        let old = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        session.socket = origin.socket;
        session.local = origin.local;
        let steered_by =
            std::mem::replace(&mut session.steered_by, origin.forwarded_by.map(Neighbour::new));
        self.sessions.readdress(index, origin.address);
        // A handshake that the new address may have begun is void: it is a player already.
        if let Some(pending) = self.pending.find(origin.hash, &origin.address) {
            self.pending.remove(pending);
        }
        if let Some(worker) = steered_by {
            self.mail_out.push((worker.worker(), forget_steering(old, self.worker.index)));
        }
        if let Some(worker) = origin.forwarded_by {
            self.mail_out.push((worker, steer_to(origin.address, self.worker.index)));
        }
        self.counters.port_switches += 1;
    }

    /// The worker that receives a player's datagrams does not know that they are ours: its mailbox was full when it was told.
    fn remind_of_steering(&mut self, index: u32, from_worker: u16) {
        if self.sessions.is_live(index) {
            let address = *self.sessions.address(index);
            self.sessions.at_mut(index).steered_by = Some(Neighbour::new(from_worker));
            self.mail_out.push((from_worker, steer_to(address, self.worker.index)));
        }
    }

    pub(super) fn forward(
        &mut self,
        origin: &Origin,
        worker: u16,
        candidate: Option<Resident>,
        bytes: &[u8],
    ) {
        let mut datagram = ForwardedDatagram {
            address: origin.address,
            bind: origin.bind,
            local: origin.local,
            kernel_ns: origin.kernel_ns,
            candidate,
            from_worker: self.worker.index,
            len: bytes.len() as u16,
            bytes: [0; UNREAL_BYTES_MAX],
        };
        datagram.bytes_mut().copy_from_slice(bytes);
        self.mail_out.push((worker, Mail::Datagram(datagram)));
        self.counters.forwarded_out += 1;
    }

    pub(super) fn steer(&mut self, steering: Steering) {
        if self.steered.len() >= STEERED_MAX {
            // Any of them: whoever is wrongly forgotten is steered again by its next packet.
            let forgotten = self.steered.keys().next().copied();
            forgotten.map(|key| self.steered.remove(&key));
        }
        let key = (steering.address.listener, steering.address.endpoint);
        self.steered.insert(key, steering.worker);
    }

    pub(super) fn unsteer(&mut self, steering: &Steering) {
        let key = (steering.address.listener, steering.address.endpoint);
        if self.steered.get(&key) == Some(&steering.worker) {
            self.steered.remove(&key);
        }
    }
}

/// Tells a worker that datagrams from `address` are `owner`'s.
pub(super) fn steer_to(address: Address, owner: u16) -> Mail {
    Mail::Steer(Steering { address, worker: owner })
}

/// Tells a worker that datagrams from `address` are no longer `owner`'s.
pub(super) fn forget_steering(address: Address, owner: u16) -> Mail {
    Mail::Unsteer(Steering { address, worker: owner })
}

/// Looks into the claims per second and worker: a lock shared with the other workers, so a flood of junk must not take it
/// for every datagram.
const LOOKS: super::Rate = super::Rate { per_second: 20_000, burst: 20_000 };

/// 8 bytes each.
const BUCKETS: usize = 1 << 12;

/// Players whose datagrams one worker forwards.
const STEERED_MAX: usize = 65_536;

/// Stands for all sources in a bucket that they share.
const ANYBODY: Endpoint = Endpoint::v4([0; 4], 0);
