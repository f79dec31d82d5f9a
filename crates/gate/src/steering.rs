//! Datagrams that belong to another worker or another gateway: handed over, and taken in.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::taking::Taking;
use crate::front::face::{Fronts, ask, ask_clustered};
use crate::front::protocol::Front;
use crate::front::rules::{Datagrams, Rules};
use crate::ids::{BindId, MemberId, WorkerId};
use crate::mail::{ForwardedDatagram, Mail, Mailed, Offered, Steering};
use crate::now::Now;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::LocalIp;
use ringgate_cluster::wire::HOPS_MAX;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;

impl Common {
    /// Hands a datagram to another worker: one of a session that it has, or one that may belong to
    /// a session of the same address (`is_lost`).
    pub(crate) fn forward(
        &mut self,
        origin: &Origin,
        worker: WorkerId,
        is_lost: bool,
        bytes: &[u8],
    ) {
        let to = Elsewhere::Worker(worker);
        let datagram = self.forwarded(origin, to, is_lost, bytes);
        self.neighbours.mail_out.push((worker, Mail::Datagram(datagram)));
        self.counters.forwarded_out += 1;
        self.captures.defer();
    }

    /// The same to another member of the cluster.
    pub(crate) fn forward_to_member(
        &mut self,
        origin: &Origin,
        member: MemberId,
        is_lost: bool,
        bytes: &[u8],
    ) {
        let to = Elsewhere::Member(member);
        let datagram = self.forwarded(origin, to, is_lost, bytes);
        self.neighbours.members_out.push((member, datagram));
        self.counters.members_out += 1;
        self.trace(&origin.address, None, Fact::SentOn);
        self.captures.defer();
    }

    /// The same to whoever has its player.
    pub(crate) fn pass_on(&mut self, origin: &Origin, there: Elsewhere, bytes: &[u8]) {
        match there {
            Elsewhere::Member(member) => self.forward_to_member(origin, member, false, bytes),
            Elsewhere::Worker(worker) => self.forward(origin, worker, false, bytes),
        }
    }

    /// Sends a datagram that has arrived here to whoever has the player of its address, which has
    /// no session here. Whether there is somebody.
    pub(crate) fn send_elsewhere(
        &mut self,
        now: Now,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<bool, DropReason> {
        if self.claims.whereabouts().is_none() || origin.forwarded_by.is_some() {
            return Ok(false);
        }
        let Some(there) = self.elsewhere(&origin.address) else { return Ok(false) };
        self.pay_way(now, there, &origin.address)?;
        self.pass_on(origin, there, bytes);
        Ok(true)
    }

    /// The same with a datagram that is of no session which this gateway is to go on with: its
    /// player may have another one since, at a member that answers.
    #[cold]
    pub(crate) fn send_on_from_orphans(
        &mut self,
        now: Now,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<bool, DropReason> {
        if origin.forwarded_by.is_some() {
            return Ok(false);
        }
        let Some(member) = self.claims.member_since(&origin.address) else { return Ok(false) };
        let there = Elsewhere::Member(member);
        self.pay_way(now, there, &origin.address)?;
        self.pass_on(origin, there, bytes);
        Ok(true)
    }

    /// Sends a datagram on, which a member has forwarded, to the member that has its session by
    /// now. False where none has, or it was forwarded often enough.
    #[cold]
    fn send_after(&mut self, now: Now, datagram: &ForwardedDatagram) -> bool {
        let address = &datagram.address;
        let Some(Elsewhere::Member(member)) = self.elsewhere(address) else { return false };
        let goes = datagram.hops < HOPS_MAX
            && !datagram.is_lost
            && self.pay_way(now, Elsewhere::Member(member), address).is_ok();
        if goes {
            let next = datagram.clone().forwarded(datagram.hops + 1);
            self.neighbours.members_out.push((member, next));
            self.counters.members_out += 1;
        }
        goes
    }

    /// Who else has the player of an address, in a cluster: another worker, which has heard of it
    /// by a member, or a member.
    pub(crate) fn elsewhere(&self, address: &Address) -> Option<Elsewhere> {
        let whereabouts = self.claims.whereabouts()?;
        let worker = whereabouts.worker_of(address).filter(|it| *it != self.worker.id);
        let member = || self.claims.member_with(address).map(Elsewhere::Member);
        worker.map(Elsewhere::Worker).or_else(member)
    }

    /// Whether one more datagram may go there.
    pub(crate) fn pay_way(
        &self,
        now: Now,
        there: Elsewhere,
        address: &Address,
    ) -> Result<(), DropReason> {
        let Some(whereabouts) = self.claims.whereabouts() else { return Ok(()) };
        match there {
            Elsewhere::Member(_) => whereabouts.pay(address, now.mono_ns),
            Elsewhere::Worker(_) => whereabouts.pay_own(address, now.mono_ns),
        }
    }

    /// Where something comes from that has not come by a socket of this worker. Nothing where the
    /// listener has no such socket here.
    fn origin(
        &self,
        address: Address,
        (bind, local): (BindId, LocalIp),
        (kernel_ns, forwarded_by): (u64, Option<Elsewhere>),
    ) -> Option<Origin> {
        let listener = self.listeners.get(address.listener)?;
        let socket = listener.sockets.get(bind).copied()?;
        let hash = address.hash(self.hash_key);
        Some(Origin { address, hash, bind, socket, local, kernel_ns, forwarded_by })
    }

    fn forwarded(
        &self,
        origin: &Origin,
        to: Elsewhere,
        is_lost: bool,
        bytes: &[u8],
    ) -> ForwardedDatagram {
        let mut datagram = ForwardedDatagram {
            address: origin.address,
            bind: origin.bind,
            local: origin.local,
            kernel_ns: origin.kernel_ns,
            is_lost,
            to,
            by: Elsewhere::Worker(self.worker.id),
            hops: 1,
            len: bytes.len() as u16,
            bytes: [0; UNREAL_BYTES_MAX],
        };
        datagram.bytes_mut().copy_from_slice(bytes);
        datagram
    }

    pub(crate) fn steer(&mut self, steering: Steering) {
        if self.neighbours.steered.len() >= STEERED_MAX {
            // Any of them: an address that is forgotten too early is steered again by its next
            // packet.
            let forgotten = self.neighbours.steered.keys().next().copied();
            forgotten.map(|key| self.neighbours.steered.remove(&key));
        }
        let key = (steering.address.listener, steering.address.endpoint);
        self.neighbours.steered.insert(key, steering.worker);
    }

    /// Has another worker forward us what comes from an address.
    pub(crate) fn steer_here(&mut self, worker: WorkerId, address: Address) {
        let steering = Steering { address, worker: self.worker.id, departed_at: None };
        self.neighbours.mail_out.push((worker, Mail::Steer(steering)));
    }

    /// Tells another worker that what comes from an address is not ours any more. Where that is
    /// because the session is over, the sequence that it had come to goes along.
    pub(crate) fn unsteer(&mut self, worker: WorkerId, address: Address, departed_at: Option<u64>) {
        let steering = Steering { address, worker: self.worker.id, departed_at };
        self.neighbours.mail_out.push((worker, Mail::Unsteer(steering)));
    }

    /// The same to whoever forwards it: members hear by themselves who has which address.
    pub(crate) fn unsteer_by(&mut self, by: Elsewhere, address: Address, departed_at: Option<u64>) {
        if let Elsewhere::Worker(worker) = by {
            self.unsteer(worker, address, departed_at);
        }
    }

    /// A datagram could not be handed over, so its address is not the other worker's either, unless
    /// it was before.
    pub(crate) fn take_back(&mut self, datagram: &ForwardedDatagram) {
        if let (true, Elsewhere::Worker(worker)) = (datagram.is_lost, datagram.to) {
            self.forget_owner(&datagram.address, worker);
        }
    }

    pub(crate) fn forget_owner(&mut self, address: &Address, worker: WorkerId) {
        let key = (address.listener, address.endpoint);
        if self.neighbours.steered.get(&key) == Some(&worker) {
            self.neighbours.steered.remove(&key);
        }
    }
}

impl Fronts {
    /// A datagram that another worker received, or another gateway.
    pub(crate) fn handle_forwarded(
        &mut self,
        turn: &mut Turn<'_>,
        mut datagram: ForwardedDatagram,
    ) {
        match datagram.by {
            Elsewhere::Worker(_) => turn.common.counters.forwarded_in += 1,
            Elsewhere::Member(_) => turn.common.counters.members_in += 1,
        }
        if turn.common.listeners.get(datagram.address.listener).is_none() {
            // A member's word for it.
            turn.common.counters.drops.bump(DropReason::UnknownSource);
            return;
        }
        turn.common.stamps.begin_uplinks(datagram.address.listener);
        if !turn.common.taps.is_empty() {
            self.netcode.note_mailed(turn.common, &datagram.address);
        }
        if turn.common.captures.is_empty() {
            self.take_forwarded(turn, &mut datagram);
        } else {
            self.handle_forwarded_watched(turn, &mut datagram);
        }
    }

    pub(crate) fn take_forwarded(&mut self, turn: &mut Turn<'_>, datagram: &mut ForwardedDatagram) {
        match (self.step_forwarded(turn, datagram), datagram.by) {
            (Ok(()), Elsewhere::Member(member)) => {
                let whereabouts = turn.common.claims.whereabouts();
                whereabouts.inspect(|it| it.note_accepted(&datagram.address, member));
            }
            (Ok(()), Elsewhere::Worker(_)) => {}
            (Err(DropReason::UnknownSource), Elsewhere::Member(_))
                if turn.common.send_after(turn.now, datagram) => {}
            (Err(why), _) => turn.common.drop_datagram(&datagram.address, why),
        }
    }

    /// A member gives a session to this gateway. Whoever gets its player's datagrams is to have it.
    pub(crate) fn handle_offered(&mut self, turn: &mut Turn<'_>, offered: Offered) {
        let Offered { address, bind, local } = offered;
        let front = turn.common.front(address.listener);
        let worker = ask!(self, front, .sessions().worker_of(&address));
        if let Some(worker) = worker.filter(|it| *it != turn.common.worker.id) {
            turn.common.neighbours.mail_out.push((worker, Mail::Offered(offered)));
            return;
        }
        if let Some(origin) = turn.common.origin(address, (bind, local), (0, None)) {
            ask_clustered!(self, front, .take_offered(turn, &origin));
        }
    }

    fn step_forwarded(
        &mut self,
        turn: &mut Turn<'_>,
        datagram: &mut ForwardedDatagram,
    ) -> Result<(), DropReason> {
        // Whoever forwarded it may not have known yet.
        turn.common.check_denied(&datagram.address.endpoint)?;
        let listener = datagram.address.listener;
        let ForwardedDatagram { address, bind, local, kernel_ns, by, .. } = *datagram;
        let origin = turn.common.origin(address, (bind, local), (kernel_ns, Some(by)));
        let origin = origin.ok_or(DropReason::UnknownSource)?;
        let mailed = Mailed { by: datagram.by, is_lost: datagram.is_lost };
        let bytes = datagram.bytes_mut();
        ask!(self, turn.common.front(listener), .step_mailed(turn, &origin, mailed, bytes))
    }
}

/// Players whose datagrams one worker forwards.
const STEERED_MAX: usize = 65_536;
