//! What a front has to say of sessions that go on at another gateway.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::carried::Carried;
use crate::front::cluster::clustered::Clusters;
use crate::front::cluster::takeovers::{Takeover, arbiter_of};
use crate::ids::{BackendId, LinkId};
use crate::shared::claims::history::TokenMac;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_batch::{LocalIp, SocketId};
use ringgate_cluster::{Proof, Record, Term};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Window;

/// What differs between the fronts whose sessions go on.
pub(crate) trait Clustering: Carried + Sized {
    fn clusters(&self) -> &Clusters<Self::Session> {
        &self.sessions().clusters
    }

    fn clusters_mut(&mut self) -> &mut Clusters<Self::Session> {
        &mut self.sessions_mut().clusters
    }

    /// The link to a backend, if it is there and what is behind it arbitrates such sessions.
    fn arbiter_of(common: &Common, backend: BackendId) -> Option<LinkId> {
        arbiter_of(common, backend)
    }

    /// A number that cannot be guessed.
    fn random(&mut self) -> u64;

    /// Where a session plays, also while no backend may name it.
    fn backend_of(&self, index: Entry<Self::Session>) -> BackendId;

    /// Whose arbiter knows a session: one that goes over to another backend is the first one's
    /// until that is told there.
    fn arbitrated_at(&self, index: Entry<Self::Session>) -> BackendId {
        let told = self.clusters().get(index).and_then(|it| it.told);
        told.map_or_else(|| self.backend_of(index), |(backend, _)| backend)
    }

    /// The epoch of the link to its backend in which that was told of it; 0 before it was.
    fn announced(&mut self, index: Entry<Self::Session>) -> &mut u32;

    /// Tells its backend of it, if that was not told on its present link.
    fn announce_again(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>);

    /// Tells its backend of it, though that was told, as what it is called differently now.
    fn announce_anew(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        *self.announced(index) = 0;
        self.announce_again(turn, index);
    }

    /// Whether another gateway may have it by now: no backend can name it meanwhile.
    fn set_unsure(&mut self, index: Entry<Self::Session>, is_unsure: bool);

    /// What another gateway needs to go on with it, beside what is the same with all fronts.
    fn portable(&self, common: &Common, index: Entry<Self::Session>) -> Portable;

    /// A term for a session that this gateway is to go on with, beyond another one. Where nothing
    /// is sealed with numbers of its own, the next will do.
    fn make_term(
        _turn: &Turn<'_>,
        _whose: (&Record, &Address),
        beyond: Term,
    ) -> Result<Term, TakeoverRefusal> {
        Term::new(beyond.get() + 1).ok_or(TakeoverRefusal::TermsUsedUp)
    }

    /// Whom a session is to be claimed for that this gateway asks for: the client, and its token's
    /// tag where tokens are remembered.
    fn claimant(&mut self, record: &Record) -> Result<(u64, TokenMac), TakeoverRefusal>;

    /// A session is this gateway's, and begins here with what it has taken so far. None where there
    /// is no room for it after all.
    fn take_in(
        &mut self,
        turn: &mut Turn<'_>,
        takeover: &Takeover,
        handed: &Window,
    ) -> Option<Entry<Self::Session>>;

    /// It is here, and its backend and its player are to hear so: where a gateway seals nothing,
    /// the player does by what its game says.
    fn greet(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, _is_offered: bool) {
        self.announce_again(turn, index);
        let deadline_ns = self.deadline_ns(turn.common, index);
        self.sessions_mut().arm(index, deadline_ns);
    }

    /// Looks at a datagram that has waited for it.
    fn step_early(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason>;
}

/// A session's part of its record that its front knows.
pub(crate) struct Portable {
    /// What its player talks to.
    pub(crate) talks_to: (SocketId, LocalIp),
    pub(crate) slot: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) heard_ns: u64,
    pub(crate) proof: Proof,
}
