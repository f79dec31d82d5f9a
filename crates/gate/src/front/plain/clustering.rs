//! Plain sessions that another gateway could go on with: what it needs for that, and what becomes
//! of such a session where it goes on.
//!
//! All that proves a player is its address, and the token where the listener goes by tokens. So a
//! session goes on with what its owner has believed of that, and with no more: what changes with
//! each datagram (what the source may be sent, words that would be an echo) begins anew.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::{Clustering, Portable};
use crate::front::cluster::takeovers::{Takeover, arbiter_of};
use crate::front::cluster::taking::window_of;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, rules_of};
use crate::ids::{BackendId, LinkId};
use crate::now::NS_PER_MS;
use crate::setup::Plain;
use crate::shared::claims::history::TokenMac;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_cluster::{PlainProof, Proof, Record};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::plain::Guard;
use ringgate_core::proto::replay::Window;
use ringgate_link::bundle::{Arbitrated, Plays};

impl Clustering for PlainFront {
    fn arbiter_of(common: &Common, backend: BackendId) -> Option<LinkId> {
        arbiter_of(common, backend).filter(|link| common.links.arbitrates(*link, Arbitrated::Plain))
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn backend_of(&self, index: Entry<Session>) -> BackendId {
        self.sessions.at(index).backend
    }

    fn announced(&mut self, index: Entry<Session>) -> &mut u32 {
        &mut self.sessions.at_mut(index).announced
    }

    fn announce_again(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if let Some(link) = turn.common.plain_link(self.sessions.at(index).backend) {
            self.announce(turn, index, link);
        }
    }

    fn set_unsure(&mut self, index: Entry<Session>, is_unsure: bool) {
        self.sessions.at_mut(index).is_unsure = is_unsure;
    }

    fn portable(&self, common: &Common, index: Entry<Session>) -> Portable {
        let session = self.sessions.at(index);
        let rules = rules_of(common, self.sessions.address(index).listener);
        let is_numbered = rules.is_ok_and(|rules| rules.sequence.is_some());
        let guard = self.guards[0].get(index).filter(|it| is_numbered && it.is_started());
        Portable {
            talks_to: (session.socket, session.local),
            slot: session.claim.slot.0,
            timeout_ms: rules.map_or(0, timeout_ms),
            heard_ns: session.heard_ns,
            proof: Proof::Plain(PlainProof {
                is_proven: session.stage == (Stage::Open { is_proven: true }),
                newest: guard.map_or(0, Guard::latest),
            }),
        }
    }

    fn claimant(&mut self, _record: &Record) -> Result<(u64, TokenMac), TakeoverRefusal> {
        if self.open_count >= self.open_max {
            return Err(TakeoverRefusal::NoRoom);
        }
        Ok((self.sessions.next_client_id(), [0; 16]))
    }

    fn take_in(
        &mut self,
        turn: &mut Turn<'_>,
        takeover: &Takeover,
        handed: &Window,
    ) -> Option<Entry<Session>> {
        let &Takeover { address, socket, local, claim, ref record, .. } = takeover;
        let (setup, now_ns) = (std::sync::Arc::clone(&turn.common.setup), turn.now.mono_ns);
        let (rules, proof) = (setup.listeners[address.listener].plain()?, record.proof.of_plain()?);
        if self.open_count >= self.open_max {
            return None;
        }
        let is_proven = proof.is_proven;
        let enter = || Self::enter_unproven(turn.common, rules, claim.backend, &address);
        if !is_proven && enter().is_err() {
            // One whose owner has given it away would end.
            if !takeover.is_offered {
                return None;
            }
            turn.common.claims.shares().resume(claim.backend, &address);
        }
        let mut session = Session {
            stage: Stage::Open { is_proven },
            backend: claim.backend,
            server_guarded: None,
            // Its next datagram has the token, which is known by its tag alone.
            token: 0,
            heard_ns: now_ns,
            began_ns: now_ns,
            socket,
            announced: 0,
            slot_told: false,
            guarded_by: self.listeners[address.listener].sequence_changes,
            local,
            loopback: None,
            credit: 0,
            claim,
            is_unsure: false,
        };
        // What the least datagram earns: its owner may have sent more than all that was earned.
        session.earn(&rules.credit, 0);
        let Ok(index) = self.sessions.insert(address, session, now_ns) else {
            if !is_proven {
                turn.common.claims.shares().leave(claim.backend, &address);
            }
            return None;
        };
        self.open_count += 1;
        if rules.echo.is_some() {
            self.echoes.start(index, &[]);
        }
        self.go_on_guarding(rules, index, (proof.newest, handed));
        Some(index)
    }

    fn step_early(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let rules = setup.listeners[origin.address.listener].plain();
        self.step_datagram(turn, rules.ok_or(DropReason::UnknownSource)?, origin, bytes)
    }
}

impl PlainFront {
    /// A session that has begun may be another gateway's one day, where this is one of a cluster.
    /// Its player may have another one already.
    pub(crate) fn begin_in_cluster(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        token: &[u8],
    ) {
        self.begin_by_address(turn, index, tag_of(token));
    }

    /// What an arbiter is told of a session's player: all gateways of the cluster say the same of
    /// it, whichever of them has the session.
    pub(crate) fn plays(&self, common: &Common, index: Entry<Session>) -> Option<Plays> {
        let it = self.sessions.clusters.get(index)?;
        let Address { listener, endpoint } = self.sessions.address(index);
        let setup = &common.setup;
        let names = [setup.cluster.as_ref()?, &setup.listeners[*listener].name];
        let [cluster, listener] = names.map(|name| tag_of(name.as_bytes()));
        let mut port = [0; 16];
        port[..2].copy_from_slice(&endpoint.port().to_le_bytes());
        let player = [cluster, listener, *endpoint.ip_bytes(), port, it.token];
        Some(Plays {
            session: self.sessions.id(index),
            id: it.id.0,
            tenure: it.tenure.number(),
            player: tag_of(player.as_flattened()),
        })
    }

    /// The token of a session that goes on here is known by its tag. Whether this is that one; it
    /// is known from then on.
    pub(crate) fn learn_token(
        &mut self,
        index: Entry<Session>,
        (token, token_hash): (&[u8], u64),
    ) -> bool {
        let clusters = &self.sessions.clusters;
        let is_unknown = self.sessions.at(index).token == 0;
        let is_its = is_unknown && clusters.get(index).is_some_and(|it| it.token == tag_of(token));
        if is_its {
            self.sessions.at_mut(index).token = token_hash;
        }
        is_its
    }

    /// A datagram of a session has been accepted, which shows by which way its player comes.
    #[inline(never)]
    pub(crate) fn note_way(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, origin: &Origin) {
        let by = origin.forwarded_by.and_then(Elsewhere::member);
        self.note_newest(turn, index, by);
    }

    /// The number of a datagram, where its arbiter is to know it: each is handed over once.
    pub(crate) fn full_number(
        &self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        number: Option<u32>,
    ) -> Option<u64> {
        let rules = rules_of(turn.common, self.sessions.address(index).listener).ok()?;
        let width = rules.sequence?.field.width;
        self.guards[0].get(index)?.full(number?, width)
    }

    /// Goes on with the numbers that the arbiter has handed over.
    fn go_on_guarding(
        &mut self,
        rules: &Plain,
        index: Entry<Session>,
        (newest, handed): (u64, &Window),
    ) {
        let Some(sequence) = &rules.sequence else { return };
        match Guard::going_on(window_of(newest, handed, &sequence.policy)) {
            Some(guard) => self.guards[0].put(index, guard),
            // Its owner has guarded nothing: the first number begins.
            None => {
                let session = self.sessions.at_mut(index);
                session.guarded_by = session.guarded_by.wrapping_sub(1);
                self.guards[0].put(index, Guard::default());
            }
        }
    }
}

/// After how long a silence a player is given up, in milliseconds.
pub(crate) fn timeout_ms(rules: &Plain) -> u32 {
    u32::try_from(rules.idle_ns / NS_PER_MS).unwrap_or(u32::MAX)
}

/// What tells a token apart from others at all gateways; zeros for none.
pub(crate) fn tag_of(token: &[u8]) -> TokenMac {
    let mut tag = [0; 16];
    if !token.is_empty() {
        let halves = TAG_KEYS.map(|key| key.hash_bytes(token).to_le_bytes());
        tag.copy_from_slice(halves.as_flattened());
    }
    tag
}

/// The same everywhere: what is told apart by them are tokens that the config has.
const TAG_KEYS: [HashKey; 2] =
    [HashKey::new([0x7469_6e67, 0x6761_7465]), HashKey::new([0x706c_6169, 0x6e74_6167])];
