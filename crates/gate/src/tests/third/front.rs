//! A session for every address that speaks. What a protocol needs to be a front.

use std::ops::Range;

use super::super::rig::UDP_LINK;
use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::front::Front;
use crate::ids::BackendId;
use crate::info::SessionInfo;
use crate::output::Tag;
use crate::setup::Setup;
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::{Resting, Table, Tenant};
use crate::turn::Turn;
use ringgate_batch::{LocalIp, RxBatch, RxMeta, SocketId, TxTarget};
use ringgate_core::drops::DropReason;

/// Silence after which a player is given up.
const IDLE_NS: u64 = 1_000_000_000;
pub(crate) const KIND: usize = Front::Third.first_kind();

pub(crate) struct ThirdFront {
    pub(crate) sessions: Table<Session>,
}

pub(crate) struct Session {
    claim: Claim,
    socket: SocketId,
    heard_ns: u64,
}

impl Tenant for Session {
    fn nobody() -> Self {
        Self { claim: Claim::NOBODYS, socket: SocketId(u32::MAX), heard_ns: 0 }
    }
}

impl ThirdFront {
    pub(crate) fn new(setup: &Setup, key: HashKey) -> Self {
        Self { sessions: Table::new(setup.worker_sessions_max, Resting::NONE, 0, key) }
    }

    pub(crate) fn due_ns(&self) -> u64 {
        let all = self.sessions.entries().filter_map(|index| self.sessions.get(index));
        all.map(|session| session.heard_ns + IDLE_NS).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn reclaim(&mut self, now_ns: u64) -> (u64, u64) {
        self.sessions.reclaim(now_ns);
        (self.sessions.len() as u64, 0)
    }

    pub(crate) fn info(&self, place: u32) -> Option<SessionInfo> {
        let Session { claim, heard_ns, .. } = self.sessions.get(Entry::numbered(place))?;
        let names = (u64::from(place), None);
        Some(SessionInfo::of_claim(claim, names, claim.source, *heard_ns, IDLE_NS))
    }

    pub(crate) fn backend_of_loopback(&self, local: &LocalIp) -> Option<BackendId> {
        Some(self.sessions.get(entry_of(local)?)?.claim.backend)
    }
}

fn entry_of(local: &LocalIp) -> Option<Entry<Session>> {
    let std::net::IpAddr::V4(v4) = local.ip() else { return None };
    u32::from(v4).checked_sub(FIRST).map(Entry::numbered)
}

/// 127.128.0.0
const FIRST: u32 = 0x7f80_0000;

impl ThirdFront {
    pub(crate) fn step(&mut self, turn: &mut Turn<'_>, run: Range<usize>, rx: &RxBatch) {
        for at in run {
            let origin = turn.common.sources[at].origin(&rx.metas()[at]).expect("from a player");
            match self.step_datagram(turn, &origin, rx.bytes(at)) {
                Ok(()) => turn.common.counters.handled[KIND] += 1,
                Err(why) => turn.common.counters.drops.bump(why),
            }
        }
    }

    fn step_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let known = self.sessions.find(origin.hash, &origin.address);
        let index = known.map_or_else(|| self.open(turn, origin), Ok)?;
        let session = self.sessions.at_mut(index);
        session.heard_ns = turn.now.mono_ns;
        let peer = turn.common.links.backends[session.claim.backend].address;
        let source = LocalIp::v4((FIRST + index.number()).to_be_bytes(), 0);
        turn.send_raw(bytes, TxTarget { socket: UDP_LINK, peer, source }, Tag::UdpPayload);
        turn.common.counters.payloads_up += 1;
        turn.common.counters.payloads_to_links += 1;
        Ok(())
    }

    fn open(&mut self, turn: &mut Turn<'_>, origin: &Origin) -> Result<Entry<Session>, DropReason> {
        let (key, source) = (u64::from(origin.hash), origin.address.endpoint);
        let claim =
            turn.common.claim_place(origin.address.listener, (key, key), source, |_| true)?;
        let (socket, now_ns) = (origin.socket, turn.now.mono_ns);
        let session = Session { claim, socket, heard_ns: now_ns };
        let inserted = self.sessions.insert(origin.address, session, now_ns);
        let index = inserted.map_err(|_| DropReason::ResponseSessionsFull)?;
        turn.common.counters.sessions_opened += 1;
        Ok(index)
    }

    pub(crate) fn handle_server(&mut self, turn: &mut Turn<'_>, meta: &RxMeta, bytes: &[u8]) {
        let found = entry_of(&meta.local);
        let Some(session) = found.and_then(|index| self.sessions.get(index)) else {
            return turn.common.count_from_link(DropReason::SessionUnknown);
        };
        let (socket, peer) = (session.socket, Some(session.claim.source));
        let room = turn.room();
        room.slot[..bytes.len()].copy_from_slice(bytes);
        let target = TxTarget { socket, peer, source: LocalIp::UNSPECIFIED };
        room.send(bytes.len(), target, Tag::Player.encode());
        turn.common.counters.packets_out[KIND] += 1;
        turn.common.counters.payloads_from_links += 1;
        turn.common.counters.payloads_down += 1;
    }

    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now.mono_ns;
        self.end(turn, Ended::TimedOut, |it| it.heard_ns + IDLE_NS <= now_ns);
    }

    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        self.end(turn, Ended::Shutdown, |_| true);
    }

    fn end(&mut self, turn: &mut Turn<'_>, why: Ended, is_over: impl Fn(&Session) -> bool) {
        for index in self.sessions.entries() {
            let session = self.sessions.get(index);
            if let Some(session) = session.filter(|session| is_over(session)) {
                turn.common.claims.leave(&session.claim);
                self.sessions.remove(index);
                turn.common.counters.sessions_closed[why as usize] += 1;
            }
        }
    }
}
