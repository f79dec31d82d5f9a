//! Sessions of members that are gone, while their arbiters are asked for them.

use std::collections::HashMap;

use crate::common::Common;
use crate::ids::{BackendId, LinkId};
use crate::links::state::Load;
use crate::shared::claims::Claim;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_batch::{LocalIp, SocketId};
use ringgate_cluster::{Record, SessionId, Tenure};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Arbitrated, ClusterClaim};

/// What was asked for and is not answered.
pub(crate) struct Takeovers {
    pub(crate) under_way: HashMap<SessionId, Takeover>,
    pub(crate) due_ns: u64,
}

pub(crate) struct Takeover {
    pub(crate) record: Box<Record>,
    pub(crate) address: Address,
    /// What the player's packet came in through.
    pub(crate) socket: SocketId,
    pub(crate) local: LocalIp,
    /// What the session will hold.
    pub(crate) claim: Claim,
    pub(crate) tenure: Tenure,
    /// The tenure that is known to have it.
    pub(crate) over: Tenure,
    /// That one gives it away.
    pub(crate) is_offered: bool,
    /// Of the link to its backend.
    pub(crate) epoch: u32,
    pub(crate) since_ns: u64,
    pub(crate) asked_ns: u64,
    /// Packets of its player that have come since it was asked for, where its owner gives it away:
    /// that one may not have it any more.
    pub(crate) early: Vec<Box<[u8]>>,
    /// It was not answered in time: nothing is held for it any more. A late answer still counts.
    pub(crate) is_given_up: bool,
}

impl Takeovers {
    pub(crate) fn new() -> Self {
        Self { under_way: HashMap::new(), due_ns: u64::MAX }
    }
}

impl Takeover {
    /// Writes it for the next process: the answer may come there.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            record,
            address,
            socket,
            local,
            // Claimed anew.
            claim,
            tenure,
            over,
            is_offered,
            epoch,
            since_ns,
            // The next process asks at once: the question may be lost.
            asked_ns: _,
            early,
            is_given_up,
        } = self;
        address.write(out);
        claim.backend.write(out);
        socket.write(out);
        local.write(out);
        [*tenure, *over].write(out);
        [*is_offered, *is_given_up].write(out);
        epoch.write(out);
        time::write(since_ns, out);
        early.iter().map(|it| it.to_vec()).collect::<Vec<_>>().write(out);
        // One without a record is passed over there.
        let _ = record.append_to(out);
    }

    /// Goes on with it, once what the session will hold is claimed.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let address = Address::read(from)?;
        let backend = BackendId::read(from)?;
        let (socket, local) = (SocketId::read(from)?, LocalIp::read(from)?);
        let [tenure, over] = <[Tenure; 2]>::read(from)?;
        let [is_offered, is_given_up] = <[bool; 2]>::read(from)?;
        let (epoch, since_ns) = (u32::read(from)?, time::read(from)?);
        let early = Vec::<Vec<u8>>::read(from)?;
        let record = Box::new(Record::read_rest(from)?);
        let claim = Claim { listener: address.listener, backend, ..Claim::NOBODYS };
        let early = early.into_iter().map(Vec::into_boxed_slice).collect();
        Ok(Self {
            record,
            address,
            socket,
            local,
            claim,
            tenure,
            over,
            is_offered,
            epoch,
            since_ns,
            asked_ns: 0,
            early,
            is_given_up,
        })
    }

    /// Asks for it on the link to its arbiter.
    pub(crate) fn ask(&self, turn: &mut Turn<'_>, link: LinkId) {
        let claim = ClusterClaim {
            id: self.record.session.0,
            tenure: self.tenure.number(),
            over: self.over.number(),
            timeout_ms: self.record.timeout_ms,
            is_offered: self.is_offered,
        };
        turn.append(link, Load::NONE, |writer| writer.claim(&claim));
    }

    /// Every datagram of its player comes to this worker from now on: an offered session may be
    /// here before its owner knows.
    pub(crate) fn enter(&self, common: &Common) {
        if let Some(whereabouts) = common.claims.whereabouts().filter(|_| self.is_offered) {
            whereabouts.enter(&self.address, common.worker.id);
        }
    }

    /// That is over: the session is here and has entered itself, or it is given up.
    pub(crate) fn leave(&self, common: &Common) {
        let is_entered = self.is_offered && !self.is_given_up;
        if let Some(whereabouts) = common.claims.whereabouts().filter(|_| is_entered) {
            whereabouts.leave(&self.address);
        }
    }

    /// Gives back what the session would have held.
    pub(crate) fn give_up(&mut self, common: &mut Common, why: TakeoverRefusal) {
        common.claims.release(&self.claim);
        self.leave(common);
        self.refuse(common, why);
    }

    /// The same where nothing is held for it here. A late answer still counts.
    pub(crate) fn give_up_unclaimed(&mut self, common: &mut Common, why: TakeoverRefusal) {
        self.is_given_up = true;
        self.refuse(common, why);
    }

    /// The link on which it was asked for is over: an answer would be lost.
    pub(crate) fn note_unanswered(&self, common: &Common, now_ns: u64) {
        if let Some(standbys) = common.claims.standbys() {
            standbys.note_unanswered(self.address, &self.record, self.tenure, now_ns);
        }
    }

    fn refuse(&mut self, common: &mut Common, why: TakeoverRefusal) {
        let early = std::mem::take(&mut self.early);
        drop_early(common, &self.address, early, DropReason::TakeoverRefused);
        if let Some(standbys) = common.claims.standbys() {
            standbys.give_up(self.record.session, why);
        }
    }
}

/// Packets have waited in vain.
pub(crate) fn drop_early(
    common: &mut Common,
    address: &Address,
    early: Vec<Box<[u8]>>,
    why: DropReason,
) {
    common.counters.early_taken += early.len() as u64;
    for _ in early {
        common.drop_datagram(address, why);
    }
}

/// The link to a backend, if it is there and what is behind it arbitrates.
pub(crate) fn arbiter_of(common: &Common, backend: BackendId) -> Option<LinkId> {
    let link = common.links.live(backend)?;
    common.links.arbitrates(link, Arbitrated::Netcode).then_some(link)
}

/// How often an arbiter is asked.
pub(crate) const ASK_EVERY_NS: u64 = 200_000_000;
