//! A session for every address that speaks. What a protocol needs to be a front.

use super::super::rig::UDP_LINK;
use crate::arrivals::{Origin, PlayerRun};
use crate::common::Common;
use crate::counters::Ending;
use crate::front::Front;
use crate::front::carried::Carried;
use crate::front::rules::{Answers, Datagrams, Rules};
use crate::ids::{BackendId, WorkerId};
use crate::info::SessionInfo;
use crate::output::Tag;
use crate::sessions::{Kept, Sessions};
use crate::setup::Setup;
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::{Address, Resting, Tenant};
use crate::turn::Turn;
use ringgate_batch::{LocalIp, RxBatch, SocketId, TxTarget};
use ringgate_core::carry::{Broken, Reader, Writer};
use ringgate_core::drops::DropReason;

/// Silence after which a player is given up.
const IDLE_NS: u64 = 1_000_000_000;
pub(crate) const KIND: usize = Front::Third.first_kind();

pub(crate) struct ThirdFront {
    pub(crate) sessions: Sessions<Session>,
}

impl ThirdFront {
    pub(crate) fn new(setup: &Setup, worker: WorkerId, key: HashKey, now_ns: u64) -> Self {
        let max = setup.worker_sessions_max;
        Self { sessions: Sessions::new(worker, max, Resting::NONE, 0, key, now_ns) }
    }
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

impl Kept for Session {
    fn at_backend(&self) -> BackendId {
        self.claim.backend
    }

    fn held(&self, _address: &Address) -> Option<Claim> {
        Some(self.claim)
    }
}

impl Rules for ThirdFront {
    type Session = Session;

    fn sessions(&self) -> &Sessions<Session> {
        &self.sessions
    }

    fn sessions_mut(&mut self) -> &mut Sessions<Session> {
        &mut self.sessions
    }

    fn info(&self, _common: &Common, index: Entry<Session>) -> Option<SessionInfo> {
        let Session { claim, heard_ns, .. } = self.sessions.get(index)?;
        let names = (self.sessions.id(index).as_u64(), None);
        Some(SessionInfo::of_claim(claim, names, claim.source, *heard_ns, IDLE_NS))
    }

    fn deadline_ns(&self, _common: &Common, index: Entry<Session>) -> u64 {
        self.sessions.at(index).heard_ns + IDLE_NS
    }

    fn end_like(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        turn.common.claims.leave(&self.sessions.at(index).claim);
        self.sessions.remove(index);
        turn.common.counters.sessions_closed[ending.why as usize] += 1;
    }
}

ringgate_core::carried!(Session { claim, socket, heard_ns as time });

impl Carried for ThirdFront {
    const FRONT: Front = Front::Third;

    type Beside = ();

    fn beside(&self, _index: Entry<Session>) {}

    fn hand_over_rules(&self, _out: &mut Writer<'_>) {}

    fn take_rules(&mut self, _common: &Common, _from: &mut Reader<'_>) -> Result<(), Broken> {
        Ok(())
    }
}

impl Datagrams for ThirdFront {
    fn step(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &mut RxBatch) {
        self.step_each(turn, run, rx, Self::step_datagram);
    }
}

impl ThirdFront {
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
        let backend = session.claim.backend;
        let peer = turn.common.links.backends[backend].address;
        let source = LocalIp::v4((FIRST + index.number()).to_be_bytes(), 0);
        turn.send_raw(bytes, TxTarget { socket: UDP_LINK, peer, source }, Tag::UdpPayload);
        turn.common.counters.handled[KIND] += 1;
        turn.common.counters.payloads_up += 1;
        turn.common.note_up(backend, bytes.len(), origin.kernel_ns);
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
        self.sessions.arm(index, now_ns + IDLE_NS);
        turn.common.counters.sessions_opened += 1;
        Ok(index)
    }
}

impl Answers for ThirdFront {
    fn at_loopback(&self, local: &LocalIp) -> Option<Entry<Session>> {
        let std::net::IpAddr::V4(v4) = local.ip() else { return None };
        u32::from(v4).checked_sub(FIRST).map(Entry::numbered)
    }

    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, payload: &[u8]) {
        let Session { claim: Claim { backend, source, .. }, socket, .. } = *self.sessions.at(index);
        let target = TxTarget { socket, peer: Some(source), source: LocalIp::UNSPECIFIED };
        turn.room().send_copy(payload, target, Tag::Player.encode());
        turn.common.counters.packets_out[KIND] += 1;
        turn.common.counters.payloads_from_links += 1;
        let listener = self.sessions.address(index).listener;
        turn.common.note_down(listener, backend, payload.len());
    }
}

/// 127.128.0.0
const FIRST: u32 = 0x7f80_0000;
