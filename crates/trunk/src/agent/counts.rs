//! What goes no further at an agent, by name, and what it has let in.

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

use crate::protocol::relay::DeliveredCounts;

ringgate_core::numbered! {
    /// What a thread has let in, and what has come through it; the numbers only grow.
    pub struct Passed;
    /// Bundles of game processes.
    bundles_in,
    /// Payloads that local links were handed.
    payloads_to_games,
    /// Datagrams to game servers that speak plain UDP.
    datagrams_to_servers,
    /// Their answers, as far as they are a player's.
    datagrams_from_servers,
    /// Links that were let in.
    links,
}

/// All counters of a thread; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What was let in, and what has come through.
    pub passed: Passed,
    /// What went no further.
    pub dropped: [u64; Drop::ALL.len()],
    /// What was delivered in messages; relays count it, and hand it over.
    pub delivered: DeliveredCounts,
}

impl Carry for Counts {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { passed, dropped, delivered: _ } = self;
        passed.write(out);
        u64::write_all(&dropped[..Drop::HANDED], out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let passed = Passed::read(from)?;
        let mut dropped = [0; Drop::ALL.len()];
        dropped[..Drop::HANDED].copy_from_slice(&<[u64; Drop::HANDED]>::read(from)?);
        Ok(Self { passed, dropped, delivered: DeliveredCounts::default() })
    }
}

impl Counts {
    /// Something went no further.
    #[inline]
    pub const fn drop(&mut self, why: Drop, count: u64) {
        self.dropped[why as usize] += count;
    }

    /// What several threads have counted.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.passed.merge(&other.passed);
        self.delivered.merge(&other.delivered);
        for (mine, theirs) in self.dropped.iter_mut().zip(other.dropped) {
            *mine += theirs;
        }
        self
    }
}

ringgate_core::named! {
    /// Why something went no further, or a process was not let in.
    pub enum Drop;
    /// Payloads while the lane of their worker was down.
    LaneDown = "lane_down",
    /// Payloads for sessions of another worker.
    SessionUnknown = "session_unknown",
    /// Records for a link that its process has left.
    LinkGone = "link_gone",
    /// Payloads for a game process that reads too slowly.
    LinkFull = "link_full",
    /// Payloads for a server's player who is not there.
    PlayerUnknown = "player_unknown",
    /// Payloads that the kernel did not take for a server.
    ServerFull = "server_full",
    /// Datagrams to a player's address from elsewhere than the server.
    ServerStranger = "server_stranger",
    /// Answers of a server that no player may be sent: empty, or too long.
    PayloadLength = "payload_length",
    /// Players of servers for whom there was no address left.
    AddressesTaken = "addresses_taken",
    /// Processes whose user may not connect under the name that they said.
    Unauthorised = "unauthorised",
    /// Processes that said nothing for too long, or of which there were too many at a time.
    Nameless = "nameless",
    /// Processes that did not read what must arrive.
    Unresponsive = "unresponsive",
    /// Processes turned away because one worker has no more places.
    LinksFull = "links_full",
    /// Lanes for which there was no number.
    WorkersFull = "workers_full",
    /// Payloads of a session of a cluster whose gateway does not have it any more.
    Fenced = "fenced",
    /// Payloads of such a session that were handed over before.
    Replayed = "replayed",
    /// Payloads of such a session that has ended, or was never announced.
    SessionOver = "session_over",
    /// Records between two local workers, one of which had too much to do.
    CrossingFull = "crossing_full",
    /// Players for whom a game process had no slot.
    SlotsTaken = "slots_taken",
    /// Payloads of such players.
    PlayerRefused = "player_refused",
    /// Packets with messages whose game process had no room for them: their players send again.
    DeliveryDeferred = "delivery_deferred",
    /// Packets of the delivery layer that came late, or after the end.
    DeliveryLate = "delivery_late",
    /// Messages for players who have left, or are about to.
    MessageUnknown = "message_unknown",
    /// Messages for players for whom too much waits already.
    MessageOverflow = "message_overflow",
    /// Processes that called themselves as another one does that is there, or as a server.
    NameTaken = "name_taken",
    /// Messages for a process that has gone, of players whom it has closed after delivery.
    MessageNotTaken = "message_not_taken",
}

impl Drop {
    /// Those that each thread counts for itself, and hands over: those of sessions of clusters
    /// stand behind, where there are any. Players are counted together
    /// ([`Rolls`](crate::protocol::rolls::Rolls)).
    const HANDED: usize = Self::Fenced as usize;
}
