//! netcode sessions that another gateway could go on with: what it needs for that, and what becomes
//! of such a session where it goes on.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::cluster::clustered::{Clustered, Delivered};
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::{Clustering, Portable};
use crate::front::cluster::takeovers::{Takeover, arbiter_of};
use crate::front::cluster::taking::window_of;
use crate::front::netcode::handshake::unique_in;
use crate::front::netcode::session::{Beginning, HeardSince, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::ids::{BackendId, MemberId};
use crate::setup::Netcode;
use crate::shared::claims::history::{NoTerm, TokenMac};
use crate::shared::standbys::TakeoverRefusal;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_cluster::{NetcodeProof, PacketNumber, Proof, Record, Term};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::server::SessionSequence;
use ringgate_core::proto::replay::Window;
use ringgate_link::bundle::Arbitrated;

impl Clustering for NetcodeFront {
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
        self.announce(turn, index);
    }

    fn announce_anew(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        // Where nothing was said in it, what no agent delivers is delivered here.
        if self.clusters().get(index).is_some_and(Clustered::begins_alone) {
            self.open_connection(turn, index);
        }
        *self.announced(index) = 0;
        self.announce(turn, index);
    }

    fn set_unsure(&mut self, index: Entry<Session>, is_unsure: bool) {
        self.sessions.at_mut(index).set_unsure(is_unsure);
    }

    fn portable(&self, _common: &Common, index: Entry<Session>) -> Portable {
        let session = self.sessions.at(index);
        let policy = &self.listeners[self.sessions.address(index).listener].replay;
        Portable {
            talks_to: session.talks_to(),
            slot: session.slot.0,
            timeout_ms: session.timeout_ms,
            heard_ns: session.last_receive_ns,
            proof: Proof::Netcode(Box::new(NetcodeProof {
                open_key: session.open_key.clone(),
                seal_key: session.seal_key.clone(),
                client_id: session.client_id,
                is_confirmed: session.is_confirmed(),
                newest: session.window.latest(policy).unwrap_or(0),
                user_data: self.user_data.whole(index),
            })),
        }
    }

    /// One that no other session of its token has had here.
    fn make_term(
        turn: &Turn<'_>,
        (record, address): (&Record, &Address),
        beyond: Term,
    ) -> Result<Term, TakeoverRefusal> {
        let token = (&record.token, record.token_until_s);
        let made = turn.common.claims.make_term(token, &address.endpoint, beyond, turn.now);
        made.map_err(|why| match why {
            NoTerm::HistoryFull => TakeoverRefusal::NoRoom,
            NoTerm::UsedUp => TakeoverRefusal::TermsUsedUp,
        })
    }

    fn claimant(&mut self, record: &Record) -> Result<(u64, TokenMac), TakeoverRefusal> {
        let client_id = record.proof.client_id().ok_or(TakeoverRefusal::NoRoom)?;
        Ok((client_id, record.token))
    }

    fn take_in(
        &mut self,
        turn: &mut Turn<'_>,
        takeover: &Takeover,
        handed: &Window,
    ) -> Option<Entry<Session>> {
        let &Takeover { address, socket, local, claim, tenure, ref record, .. } = takeover;
        let (listener, proof) = (address.listener, record.proof.of_netcode()?);
        let beginning = Beginning {
            claim,
            open_key: proof.open_key.clone(),
            seal_key: proof.seal_key.clone(),
            window: window_of(proof.newest, handed, &self.listeners[listener].replay),
            next_sequence: SessionSequence::at(PacketNumber::first(tenure).get()),
            timeout_ms: record.timeout_ms,
        };
        let mut session = Session::new(beginning, socket, local, turn.now.mono_ns);
        // What has opened was sent by a client that knows.
        session.heard = HeardSince::Something;
        session.confirm();
        let index = self.sessions.insert(address, session, turn.now.mono_ns).ok()?;
        self.void_handshake(turn, index);
        if turn.common.setup.listeners[listener].follow_port_switch {
            self.make_resident(turn, index);
        }
        self.user_data.keep(index, &proof.user_data);
        let id = self.sessions.id(index);
        turn.common.claims.seat(listener, claim.client_id, (id, false));
        let players = turn.common.setup.fleet_players.as_ref();
        if let Some((players, group)) = players.zip(unique_in(turn, listener)) {
            let begun = (record.since_s, tenure.term.get());
            players.goes_on((group, claim.client_id), id, begun);
        }
        Some(index)
    }

    fn greet(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, is_offered: bool) {
        self.note_delivered(turn.common, index);
        // A player who hears of this gateway hears nothing of the one before any more: where that
        // one lives, what it has on its way comes first.
        if !is_offered {
            self.emit_keep_alive(turn, index);
        }
        self.announce(turn, index);
        self.arm(turn, index);
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
}

impl NetcodeFront {
    /// A session that has begun may be another gateway's one day, where this is one of a cluster.
    pub(crate) fn begin_in_cluster(
        &mut self,
        turn: &Turn<'_>,
        index: Entry<Session>,
        token: &TokenMac,
    ) {
        let session = self.sessions.at(index);
        let process = Self::process_for(turn, session.backend);
        let listener = self.sessions.address(index).listener;
        let rules = turn.common.setup.listeners[listener].netcode();
        let is_delivered = rules.is_some_and(|rules| rules.delivers);
        if process.is_none() || is_delivered && !is_for_agent(turn.common, rules, session.backend) {
            return;
        }
        let Some(until_s) = turn.common.claims.expiry_of(token) else { return };
        let tenure = PacketNumber::new(session.next_sequence.peek()).map(PacketNumber::tenure);
        let tenure = tenure.filter(|it| process == Some(it.incarnation));
        let begun = tenure.and_then(|it| Clustered::begin(it, (*token, until_s), turn.now));
        if let Some(begun) = begun {
            let delivered = if is_delivered { Delivered::Fresh } else { Delivered::Nothing };
            self.begin_clustered(index, Clustered { delivered, ..begun });
        }
    }

    /// A member has forwarded a packet of a session. Those count by which the player's way shows:
    /// that are newer than all before.
    #[cold]
    pub(crate) fn note_way(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (by, sequence, before): (MemberId, u64, Option<u64>),
    ) {
        let clusters = &mut self.sessions.clusters;
        let Some(it) = clusters.get_mut(index).filter(|it| it.told.is_some()) else { return };
        if before.is_some_and(|before| sequence <= before) {
            return;
        }
        if before != it.forwarded_up_to {
            it.moves.note_newest(None, turn.now.mono_ns);
        }
        it.forwarded_up_to = Some(sequence);
        self.note_newest(turn, index, Some(by));
    }
}

/// Whether an agent is to deliver the messages of a listener's players at a backend: it can, and
/// they are not moved from there to other game processes with what was said.
fn is_for_agent(common: &Common, rules: Option<&Netcode>, backend: BackendId) -> bool {
    let link = arbiter_of(common, backend);
    link.is_some_and(|link| common.links.arbitrates(link, Arbitrated::Delivery))
        && rules.is_some_and(|rules| rules.moves.is_empty())
}
