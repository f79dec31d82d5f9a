//! netcode sessions of a member that is gone, and whose records are here: a packet that opens under
//! such a session's key has this gateway ask the arbiter of its backend.
//!
//! ```text
//! look     is the address that of a session whose owner is gone?        one load where none is
//! step     does the packet open under the record's key, and is it new?  two tries each 100 ms
//!          from another port of the address: under that of any there?   as port switches may
//! ```

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::cluster::taking::Taking;
use crate::front::netcode::players::packet_job;
use crate::front::netcode::spending::PortSwitches;
use crate::front::netcode::state::NetcodeFront;
use crate::shared::standbys::{Found, Standbys};
use crate::store::admission::Rate;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_cluster::{NetcodeProof, Proof, Record};
use ringgate_core::crypto::Verdict;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::netcode::packet::{Header, Receiver};

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
        let why = match standbys.find(&origin.address, turn.now.mono_ns) {
            Some(Found::Try(mut record)) => {
                match self.open_orphans(turn, origin, &mut record, bytes) {
                    Ok(()) => match self.claim_orphan(turn, standbys, origin, record) {
                        why @ DropReason::TakeoverRefused => why,
                        why => return Err(why),
                    },
                    Err(why) => why,
                }
            }
            Some(Found::Claimed) => return Err(DropReason::TakeoverAwaited),
            Some(Found::Limited) => DropReason::TakeoverLimited,
            None => return Err(self.claim_near(turn, origin, bytes).unwrap_or_else(|why| why)),
        };
        let is_sent = turn.common.send_on_from_orphans(turn.now, origin, bytes)?;
        if is_sent { Ok(()) } else { Err(why) }
    }

    /// Whether a packet is a new one of a session's. It stays as it is.
    fn open_orphans(
        &self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        record: &mut Record,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Proof::Netcode(proof) = &mut record.proof else {
            return Err(DropReason::UnknownSource);
        };
        let header = Header::decode(bytes, Receiver::Server)?;
        if header.sequence <= proof.newest {
            return Err(DropReason::ReplayTooOld);
        }
        let mut copy = [0; UNREAL_BYTES_MAX];
        let copy = copy.get_mut(..bytes.len()).ok_or(DropReason::TooLong)?;
        copy.copy_from_slice(bytes);
        let opens = self.opens(turn, origin, header, proof, copy);
        opens.then_some(()).ok_or(DropReason::PacketForged)
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
            let Found::Try(mut record) = it else {
                why = DropReason::TakeoverAwaited;
                continue;
            };
            let Proof::Netcode(proof) = &mut record.proof else { continue };
            if header.sequence <= proof.newest {
                continue;
            }
            copy.copy_from_slice(bytes);
            if self.opens(turn, origin, header, proof, copy) {
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

    /// Whether a packet opens for a session. The owner may have had it, and each before it: none of
    /// them counts where the session goes on.
    fn opens(
        &self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        header: Header,
        proof: &mut NetcodeProof,
        bytes: &mut [u8],
    ) -> bool {
        let rules = &self.listeners[origin.address.listener];
        let mut jobs = [packet_job(&proof.open_key, rules, header, bytes)];
        turn.common.aead.open(&mut jobs);
        let opens = jobs[0].verdict == Verdict::Done;
        proof.newest = if opens { header.sequence } else { proof.newest };
        opens
    }
}

/// Of the sessions at an address whose owners are gone, how many one packet from another port is
/// tried against; the next packet of its source goes on from there.
const NEAR_MAX: u32 = 8;
