//! Unreal sessions that go on at other gateways of a cluster: what another one needs for that.
//!
//! To its arbiter such a session is one of a plain player, whose packets have numbers where they
//! can be read. Nobody looks for a second session of its player: one who shakes hands anew has a
//! new connection, which has nothing to do with the one before.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::carried::Carried;
use crate::front::cluster::clustered::Clustered;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::{Clustering, Portable};
use crate::front::cluster::takeovers::{Takeover, arbiter_of};
use crate::front::cluster::taking::window_of;
use crate::front::unreal::datagrams::rules_of;
use crate::front::unreal::guard::Guard;
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, LinkId};
use crate::now::NS_PER_MS;
use crate::setup::Unreal;
use crate::shared::claims::history::TokenMac;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_cluster::{Proof, Record, UnrealProof};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::{Policy, Window};
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_link::bundle::{self, Arbitrated};

impl Clustering for UnrealFront {
    fn arbiter_of(common: &Common, backend: BackendId) -> Option<LinkId> {
        arbiter_of(common, backend).filter(|link| common.links.arbitrates(*link, Arbitrated::Plain))
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn backend_of(&self, index: Entry<Session>) -> BackendId {
        self.sessions.at(index).claim.backend
    }

    fn announced(&mut self, index: Entry<Session>) -> &mut u32 {
        &mut self.sessions.at_mut(index).announced
    }

    fn announce_again(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if let Some(link) = turn.common.unreal_link(self.backend_of(index)) {
            self.announce(turn, index, link);
        }
    }

    fn set_unsure(&mut self, index: Entry<Session>, is_unsure: bool) {
        self.sessions.at_mut(index).is_unsure = is_unsure;
    }

    fn portable(&self, common: &Common, index: Entry<Session>) -> Portable {
        let session = self.sessions.at(index);
        let (cookie, newest) = match &session.stage {
            Stage::Open { cookie, guard } => (*cookie, guard.newest()),
            Stage::Opening(_) => (Cookie::ZERO, 0),
        };
        let rules = rules_of(common, self.sessions.address(index).listener);
        let (player_ids, server_ids) = (session.player_ids, session.server_ids);
        Portable {
            talks_to: (session.socket, session.local),
            slot: session.claim.slot.0,
            timeout_ms: rules.map_or(0, timeout_ms),
            heard_ns: session.heard_ns,
            proof: Proof::Unreal(UnrealProof { cookie, player_ids, server_ids, newest }),
        }
    }

    fn claimant(&mut self, _record: &Record) -> Result<(u64, TokenMac), TakeoverRefusal> {
        Ok((self.sessions.next_client_id(), [0; 16]))
    }

    fn take_in(
        &mut self,
        turn: &mut Turn<'_>,
        takeover: &Takeover,
        handed: &Window,
    ) -> Option<Entry<Session>> {
        let &Takeover { address, socket, local, claim, ref record, .. } = takeover;
        let rules = turn.common.setup.listeners[address.listener].unreal()?;
        let (proof, now_ns) = (*record.proof.of_unreal()?, turn.now.mono_ns);
        let passed = window_of(proof.newest, handed, &Policy::UNREAL);
        let guard = Guard::going_on(rules.duplicates, passed);
        let session = Session {
            stage: Stage::Open { cookie: proof.cookie, guard },
            player_ids: proof.player_ids,
            server_ids: proof.server_ids,
            heard_ns: now_ns,
            socket,
            local,
            claim,
            // No cookie of this gateway's has proven its player: the next one may.
            accepted: Cookie::ZERO,
            proven_ns: 0,
            acknowledged_ns: now_ns,
            noted_ns: 0,
            moved_ns: 0,
            closed_ns: 0,
            announced: 0,
            is_unsure: false,
            steered_by: None,
        };
        let index = self.sessions.insert(address, session, now_ns).ok()?;
        self.move_in(turn.common, index);
        self.note_come(turn.common, index, ()).ok()?;
        Some(index)
    }

    fn step_early(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        self.step_datagram(turn, origin, bytes)
    }
}

impl UnrealFront {
    /// A session is open: it may be another gateway's one day, where this is one of a cluster.
    pub(crate) fn begin_in_cluster(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        self.begin_by_address(turn, index, [0; 16]);
        if self.sessions.clusters.get(index).is_some() {
            self.announce_anew(turn, index);
        }
    }

    /// Whether another gateway may have a session by now, of which its arbiter could not tell: then
    /// it is not asked where its player is.
    pub(crate) fn may_be_elsewhere(&self, common: &Common, index: Entry<Session>) -> bool {
        let backend = self.backend_of(index);
        let epoch = common.links.backends[backend].epoch;
        let clusters = &self.sessions.clusters;
        let is_confirmed = clusters.is_told(index, backend, epoch)
            && Self::arbiter_of(common, backend).is_some()
            && !self.is_unsure(index);
        clusters.get(index).is_some_and(|it| !it.is_alone && it.told.is_some()) && !is_confirmed
    }

    /// What an arbiter is told of a session that is about to be announced to it.
    pub(crate) fn told_clustered(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        link: LinkId,
    ) -> Option<bundle::Clustered> {
        let is_arbitrated = turn.common.links.arbitrates(link, Arbitrated::Plain);
        let told: Clustered = self.tell_clustered(turn, index, is_arbitrated)?;
        let rules = rules_of(turn.common, self.sessions.address(index).listener);
        Some(told.told_as(self.sessions.id(index), rules.map_or(0, timeout_ms)))
    }
}

/// After how long a silence a player is given up, in milliseconds.
fn timeout_ms(rules: &Unreal) -> u32 {
    u32::try_from(rules.idle_timeout_ns / NS_PER_MS).unwrap_or(u32::MAX)
}
