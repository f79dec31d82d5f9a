//! Players who are where other players were: a router has swapped the ports of two of them, or
//! given several of them each other's.
//!
//! Each one's packets come from another's address then, whose session refuses them. While that
//! session is heard, the packets may be forged: an engine that gets through sends something every
//! 0.2 s. Once the session has been silent for a second, a sender at its address is asked to
//! restart the handshake, as a sender at an address without a session is, and out of the same
//! budget. A forged packet gives nothing more: a player who is there and is asked proves that it is
//! there, and its session stays.
//!
//! A session whose address another player has proven to have is not over. It keeps its place and
//! its slot, is found by its cookie alone, and is sent nothing, until its player has proven in the
//! same way where it is, or until it times out.

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::owning::Owning;
use crate::front::rules::Rules;
use crate::front::unreal::loopback::loopback_of;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::prefix::Ids;

impl UnrealFront {
    /// The session of an address has refused a game packet. Where another member of the cluster has
    /// a session of that address, the packet is that one's; else asks for a restart where another
    /// player may be there by now.
    #[cold]
    pub(crate) fn doubt(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
        game: (Ids, BitReader<'_>),
        (bytes, why): (&[u8], DropReason),
    ) -> Result<(), DropReason> {
        let may_be_anothers = matches!(
            why,
            DropReason::UnrealIds
                | DropReason::AckImplausible
                | DropReason::ReplayDuplicate
                | DropReason::ReplayTooOld
        );
        let is_members =
            || matches!(turn.common.elsewhere(&origin.address), Some(Elsewhere::Member(_)));
        if may_be_anothers && is_members() && turn.common.send_elsewhere(turn.now, origin, bytes)? {
            return Ok(());
        }
        let silent_ns = turn.now.mono_ns.saturating_sub(self.sessions.at(index).heard_ns);
        if may_be_anothers
            && silent_ns >= SILENT_NS
            && let Some(becomes) = self.claim_later(turn, index, origin, game.0)
        {
            return Err(becomes);
        }
        if may_be_anothers
            && asks_after(silent_ns)
            && !self.may_be_elsewhere(turn.common, index)
            && self.ask_to_restart(turn, origin, game, bytes.len()).is_ok()
        {
            return Ok(());
        }
        Err(why)
    }

    /// Another player has proven to have the address of a session.
    pub(crate) fn displace(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let old = *self.sessions.address(index);
        let nowhere = nowhere(index).filter(|_| !self.sessions.at(index).is_opening());
        let Some(endpoint) = nowhere else {
            // Its player has nothing yet to prove with whose session it is.
            return self.end(turn, index, Ended::Replaced);
        };
        if let Some(worker) = self.sessions.at_mut(index).steered_by.take() {
            turn.common.unsteer(worker, old, None);
        }
        turn.common.trace(&old, None, Fact::Displaced);
        // What comes from its address is not its player's: nobody could go on with it from there.
        self.withdraw_record(turn.common, index);
        self.sessions.readdress(index, Address { endpoint, ..old });
    }

    /// Whether another player has the address that a session had.
    #[inline]
    pub(crate) fn is_displaced(&self, index: Entry<Session>) -> bool {
        let endpoint = self.sessions.address(index).endpoint;
        endpoint.port() == NO_PORT && nowhere(index) == Some(endpoint)
    }

    /// Where the player of a session is, or was last.
    pub(crate) fn last_address(&self, index: Entry<Session>) -> Address {
        let listener = self.sessions.address(index).listener;
        Address { listener, endpoint: self.sessions.at(index).claim.source }
    }
}

/// What stands for the address of a session that has none. No datagram comes from there, and no two
/// sessions of a worker have the same.
fn nowhere(index: Entry<Session>) -> Option<Endpoint> {
    let ip = loopback_of(index)?.ip();
    Some(Endpoint::from(std::net::SocketAddr::new(ip, NO_PORT)))
}

/// Whether a sender is asked to restart at an address whose session has been silent for so long.
///
/// For a while in every two seconds: an engine that has just done its handshake passes over
/// requests, and while the other player's server sends packets there as well, it obeys the first
/// one that comes after a pause of 1.1 s. Two of the smallest packets, which it takes to pay for a
/// request, fit into the while.
const fn asks_after(silent_ns: u64) -> bool {
    silent_ns >= SILENT_NS && (silent_ns - SILENT_NS) % ASKED_EVERY_NS < ASKED_WITHIN_NS
}

/// An engine that gets through sends several packets in this time.
const SILENT_NS: u64 = 1_000_000_000;

const ASKED_EVERY_NS: u64 = 2_000_000_000;
const ASKED_WITHIN_NS: u64 = 500_000_000;

/// Where no answer can be sent to.
const NO_PORT: u16 = 0;
