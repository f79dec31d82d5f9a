//! What a gate counts, and the balances that must hold.
//!
//! Counters are plain integers of one worker, published by copying on the slow path. *Conservation*
//! is three sums: every datagram is handled, forwarded to the worker that owns its session, or
//! dropped for a reason; every payload a player sent reached a link or was dropped for a reason;
//! every payload a game process sent was sealed or dropped for a reason.

use crate::front::protocol::PACKET_KINDS;
use ringgate_core::drops::{DropCounts, DropReason};
use ringgate_link::bundle::GoodbyeReason;

/// Counters of one gate. All only grow, except `sessions` and `pending`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams from players' sockets.
    pub datagrams_in: u64,
    /// Bytes in them.
    pub bytes_in: u64,
    /// Datagrams another worker received for a session of ours.
    pub forwarded_in: u64,
    /// Datagrams we passed on to another worker, for a session of its own or one that may be.
    pub forwarded_out: u64,
    /// Datagrams we passed on to more than one: how many times more.
    pub forwarded_copies: u64,
    /// Datagrams that did what they came for, by packet type (see [`PACKET_KINDS`]).
    pub handled: [u64; PACKET_KINDS],
    /// Packets for players, by packet type.
    pub packets_out: [u64; PACKET_KINDS],
    /// Bytes in them.
    pub bytes_out: u64,
    /// Payloads opened.
    pub payloads_up: u64,
    /// Payloads handed to links.
    pub payloads_to_links: u64,
    /// Datagrams handed to links (bundles, or udp payloads).
    pub link_datagrams_out: u64,
    /// Datagrams received from links.
    pub link_datagrams_in: u64,
    /// Payloads in them, each receiver of a multicast counted.
    pub payloads_from_links: u64,
    /// Payloads sealed for players.
    pub payloads_down: u64,
    /// Sessions now.
    pub sessions: u64,
    /// Unfinished handshakes now.
    pub pending: u64,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Sessions ended, by reason.
    pub sessions_closed: [u64; Ended::COUNT],
    /// Sessions that followed their player to another port.
    pub port_switches: u64,
    /// Links that the gateway closed.
    pub links_refused: u64,
    /// The same, by reason.
    pub link_refusals: [u64; LinkRefusal::COUNT],
    /// Drops by reason.
    pub drops: DropCounts,
}

/// Moments that the worker turns into latencies, collected over a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When the kernel received each datagram whose payload went to a link in this turn, in its
    /// real-time clock.
    pub uplink_kernel_ns: Vec<u64>,
    /// How many payloads from links were sealed in this turn.
    pub downlink_count: u64,
    /// How long each handshake took that was completed in this turn, from the first request we
    /// took.
    pub handshakes_ns: Vec<u64>,
}

impl Stamps {
    pub(crate) fn clear(&mut self) {
        self.uplink_kernel_ns.clear();
        self.downlink_count = 0;
        self.handshakes_ns.clear();
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ended {
    /// The backend was gone for longer than its grace time.
    BackendGone,
    /// The game process closed it.
    ByBackend,
    /// The player left.
    ByPlayer,
    /// A second handshake from the player's address took its place.
    Replaced,
    /// The gateway stops.
    Shutdown,
    /// The sequence jumped further than the listener allows.
    SequenceGap,
    /// Nothing was heard from the player for the token's timeout.
    TimedOut,
}

impl Ended {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::BackendGone,
        Self::ByBackend,
        Self::ByPlayer,
        Self::Replaced,
        Self::Shutdown,
        Self::SequenceGap,
        Self::TimedOut,
    ];

    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The name used in metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackendGone => "backend_gone",
            Self::ByBackend => "by_backend",
            Self::ByPlayer => "by_player",
            Self::Replaced => "replaced",
            Self::Shutdown => "shutdown",
            Self::SequenceGap => "sequence_gap",
            Self::TimedOut => "timed_out",
        }
    }
}

/// Why the gateway closed a link, or did not keep one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LinkRefusal {
    /// The process did not say hello first, or once, or in time.
    HelloExpected,
    /// Another process is this backend already.
    NameTaken,
    /// No bundle backend has this name.
    NameUnknown,
    /// A record broke the format.
    RecordInvalid,
    /// Too many processes of this user wait without having said hello.
    TooManyNameless,
    /// The process's user may not be this backend, or none at all, or may not any more.
    Unauthorised,
    /// The process speaks another version.
    VersionUnsupported,
}

impl LinkRefusal {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::HelloExpected,
        Self::NameTaken,
        Self::NameUnknown,
        Self::RecordInvalid,
        Self::TooManyNameless,
        Self::Unauthorised,
        Self::VersionUnsupported,
    ];

    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The name used in metrics, logs and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HelloExpected => "hello_expected",
            Self::NameTaken => "name_taken",
            Self::NameUnknown => "name_unknown",
            Self::RecordInvalid => "record_invalid",
            Self::TooManyNameless => "too_many_nameless",
            Self::Unauthorised => "unauthorised",
            Self::VersionUnsupported => "version_unsupported",
        }
    }

    /// What a goodbye with this reason counts as.
    pub(crate) const fn of(goodbye: GoodbyeReason) -> Self {
        match goodbye {
            GoodbyeReason::NameTaken => Self::NameTaken,
            GoodbyeReason::NameUnknown => Self::NameUnknown,
            GoodbyeReason::RecordInvalid => Self::RecordInvalid,
            GoodbyeReason::Unauthorised => Self::Unauthorised,
            GoodbyeReason::VersionUnsupported => Self::VersionUnsupported,
            // Nobody is refused for the others.
            _ => Self::HelloExpected,
        }
    }
}

impl Counters {
    /// Adds another worker's counters.
    pub fn merge(&mut self, other: &Self) {
        let sums = [
            (&mut self.datagrams_in, other.datagrams_in),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.forwarded_in, other.forwarded_in),
            (&mut self.forwarded_out, other.forwarded_out),
            (&mut self.forwarded_copies, other.forwarded_copies),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.payloads_up, other.payloads_up),
            (&mut self.payloads_to_links, other.payloads_to_links),
            (&mut self.link_datagrams_out, other.link_datagrams_out),
            (&mut self.link_datagrams_in, other.link_datagrams_in),
            (&mut self.payloads_from_links, other.payloads_from_links),
            (&mut self.payloads_down, other.payloads_down),
            (&mut self.sessions, other.sessions),
            (&mut self.pending, other.pending),
            (&mut self.sessions_opened, other.sessions_opened),
            (&mut self.port_switches, other.port_switches),
            (&mut self.links_refused, other.links_refused),
        ];
        for (mine, theirs) in sums {
            *mine += theirs;
        }
        add_all(&mut self.handled, &other.handled);
        add_all(&mut self.packets_out, &other.packets_out);
        add_all(&mut self.sessions_closed, &other.sessions_closed);
        add_all(&mut self.link_refusals, &other.link_refusals);
        self.drops.merge(&other.drops);
    }

    /// The three balances. `Err` names the one that does not hold, with both sides.
    pub fn check_conservation(&self) -> Result<(), Imbalance> {
        let dropped = |ledger| {
            let entries = self.drops.iter().filter(|(reason, _)| Ledger::of(*reason) == ledger);
            entries.map(|(_, count)| count).sum::<u64>()
        };
        let handled: u64 = self.handled.iter().sum();
        balance(
            "datagrams",
            self.datagrams_in + self.forwarded_in + self.forwarded_copies,
            handled + self.forwarded_out + dropped(Ledger::Datagrams),
        )?;
        balance("uplink", self.payloads_up, self.payloads_to_links + dropped(Ledger::Uplink))?;
        balance(
            "downlink",
            self.payloads_from_links,
            self.payloads_down + dropped(Ledger::Downlink),
        )
    }
}

/// A balance that does not hold: something was lost, or counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Which one.
    pub balance: &'static str,
    /// What came in.
    pub came_in: u64,
    /// What is accounted for.
    pub accounted: u64,
}

/// Which balance a drop belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ledger {
    /// Datagrams that came in.
    Datagrams,
    /// Packets that were sealed but not sent.
    Departures,
    /// Payloads from game processes.
    Downlink,
    /// Records and datagrams on links that are not payloads.
    Links,
    /// Payloads for game processes.
    Uplink,
}

impl Ledger {
    /// The ledger of a reason.
    pub const fn of(reason: DropReason) -> Self {
        use DropReason as R;
        match reason {
            R::LinkFull | R::LinkDown => Self::Uplink,
            R::SessionUnknown
            | R::MulticastDuplicate
            | R::LinkEnded
            | R::PayloadLength
            | R::SequenceExhausted
            | R::ServerDuplicate
            | R::ServerPacketInvalid => Self::Downlink,
            R::RecordInvalid | R::LinkStranger => Self::Links,
            R::SendBufferFull | R::SendRefused => Self::Departures,
            _ => Self::Datagrams,
        }
    }
}

fn balance(balance: &'static str, came_in: u64, accounted: u64) -> Result<(), Imbalance> {
    if came_in == accounted { Ok(()) } else { Err(Imbalance { balance, came_in, accounted }) }
}

fn add_all(mine: &mut [u64], theirs: &[u64]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_datagram_is_an_imbalance() {
        let mut counters = Counters { datagrams_in: 2, ..Counters::default() };
        counters.handled[5] = 1;
        counters.drops.bump(DropReason::PacketForged);
        assert_eq!(counters.check_conservation(), Ok(()));
        counters.datagrams_in = 3;
        let imbalance = Imbalance { balance: "datagrams", came_in: 3, accounted: 2 };
        assert_eq!(counters.check_conservation(), Err(imbalance));
    }

    #[test]
    fn link_drops_balance_payloads_and_not_datagrams() {
        let mut counters = Counters { payloads_up: 5, payloads_to_links: 3, ..Counters::default() };
        counters.drops.add(DropReason::LinkFull, 2);
        assert_eq!(counters.check_conservation(), Ok(()));
        let mut sum = counters.clone();
        sum.merge(&counters);
        assert_eq!((sum.payloads_up, sum.check_conservation()), (10, Ok(())));
    }
}
