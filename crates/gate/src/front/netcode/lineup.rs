//! Of the many sessions of one address: which ones a packet from a new port may belong to, found
//! without a cipher.
//!
//! A player whose port has changed is silent at its old one, and the first packet from the new one
//! is numbered just ahead of everything that its session has received. So the silent sessions of an
//! address are lined up by the number that they wait for, and a packet finds the few behind its
//! own. A line-up is made when it is needed and kept for a moment, so that to make it costs little
//! however many packets come; a session of it is looked at again before its key is tried.
//!
//! Memory is bounded: so many line-ups, each of so many sessions. Where an address has more, each
//! line-up goes on where the last one has stopped.

use crate::front::netcode::residents::Residents;
use crate::front::netcode::session::Session;
use crate::now::NS_PER_MS;
use crate::store::admission::{Bucket, Rate};
use crate::store::area::Area;
use crate::store::entry::Entry;
use crate::store::table::{Place, Table};
use ringgate_core::proto::replay::Policy;

/// The line-ups of one worker.
pub(crate) struct Lineups {
    lineups: Vec<Lineup>,
    steps: Bucket,
}

struct Lineup {
    area: Area,
    made_ns: u64,
    used_ns: u64,
    /// The last session that was looked at, where there are more behind it.
    goes_on: Option<Entry<Session>>,
    /// By what they wait for.
    waiting: Vec<Waiting>,
}

/// A session that was silent when it was looked at.
#[derive(Clone, Copy)]
struct Waiting {
    /// The lowest sequence that is new to it.
    next: u64,
    place: Place,
}

/// What a worker knows of the sessions that a packet may belong to.
#[derive(Clone, Copy)]
pub(crate) struct Sessions<'a> {
    /// Which ones each address has.
    pub(crate) residents: &'a Residents,
    pub(crate) table: &'a Table<Session>,
    /// How their windows are read.
    pub(crate) policy: &'a Policy,
}

/// A packet that looks for its session.
#[derive(Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) area: Area,
    pub(crate) bucket: u32,
    pub(crate) sequence: u64,
    /// The lowest sequence that its source has shown.
    pub(crate) first_sequence: u64,
    pub(crate) now_ns: u64,
}

impl Lineups {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { lineups: Vec::with_capacity(LINEUPS_MAX), steps: Bucket::full(now_ns) }
    }

    /// Finds sessions that may have sent a packet, the likeliest first. Passes over the first
    /// `skipped`, which were tried before, and looks at no more than `limit` others; returns how
    /// many of them it has looked at.
    pub(crate) fn search(
        &mut self,
        lost: &Lost,
        (skipped, limit): (u32, u32),
        sessions: Sessions<'_>,
        mut found: impl FnMut(Entry<Session>),
    ) -> u32 {
        let Sessions { table, policy, .. } = sessions;
        let lineup = self.of(lost, sessions);
        let end = lineup.waiting.partition_point(|waiting| waiting.next <= lost.first_sequence);
        let mut count = 0;
        // First the session that waits for just this number, then those that have missed more and
        // more.
        let waiting = lineup.waiting[..end].iter().rev().skip(skipped as usize);
        for waiting in waiting.take(limit as usize) {
            if lost.first_sequence - waiting.next > REACH_MAX {
                break;
            }
            count += 1;
            let Some(index) = table.live(waiting.place) else { continue };
            let session = table.at(index);
            if could_be(session, policy, lost) && is_silent(session, lost) {
                found(index);
            }
        }
        count
    }

    fn of(&mut self, lost: &Lost, sessions: Sessions<'_>) -> &Lineup {
        let at = self.place_for(&lost.area);
        let Self { lineups, steps } = self;
        let lineup = &mut lineups[at];
        lineup.used_ns = lost.now_ns;
        let is_old = lost.now_ns >= lineup.made_ns.saturating_add(KEPT_NS);
        let is_fresh = lineup.made_ns == 0;
        if (is_old || is_fresh) && steps.level(STEPS, lost.now_ns) > 0 {
            steps.spend(lineup.make(lost, sessions));
        }
        lineup
    }

    /// The line-up of an area, or the one that was not used for the longest time.
    fn place_for(&mut self, area: &Area) -> usize {
        if let Some(at) = self.lineups.iter().position(|lineup| lineup.area == *area) {
            return at;
        }
        let fresh =
            Lineup { area: *area, made_ns: 0, used_ns: 0, goes_on: None, waiting: Vec::new() };
        if self.lineups.len() < LINEUPS_MAX {
            self.lineups.push(Lineup { waiting: Vec::with_capacity(LOOKED_AT_MAX), ..fresh });
            return self.lineups.len() - 1;
        }
        let by_use = self.lineups.iter().enumerate().min_by_key(|(_, lineup)| lineup.used_ns);
        let at = by_use.map_or(0, |(at, _)| at);
        let mut waiting = std::mem::take(&mut self.lineups[at].waiting);
        waiting.clear();
        self.lineups[at] = Lineup { waiting, ..fresh };
        at
    }
}

impl Lineup {
    /// Lines up the sessions that are silent now; returns how many were looked at for it.
    fn make(&mut self, lost: &Lost, sessions: Sessions<'_>) -> u32 {
        let Sessions { residents, table, policy } = sessions;
        self.made_ns = lost.now_ns;
        self.waiting.clear();
        let mut looked_at = 0;
        for index in residents.behind(lost.bucket, self.goes_on.take()) {
            looked_at += 1;
            let address = table.address(index);
            if address.area() == self.area {
                let session = table.at(index);
                if is_silent(session, lost) {
                    let next = next_of(session, policy);
                    self.waiting.push(Waiting { next, place: table.place(index) });
                }
            }
            if looked_at == LOOKED_AT_MAX {
                self.goes_on = Some(index);
                break;
            }
        }
        // In the same order each time, so that a search can go on where it has stopped.
        self.waiting.sort_unstable_by_key(|waiting| (waiting.next, waiting.place.index));
        looked_at as u32
    }
}

/// The lowest sequence that is ahead of everything a session has received.
fn next_of(session: &Session, policy: &Policy) -> u64 {
    session.window.latest(policy).map_or(0, |latest| latest.saturating_add(1))
}

/// Whether a packet is numbered as the next ones of a session are: ahead of all that it has
/// received, and not further than its player can have counted meanwhile.
pub(crate) fn could_be(session: &Session, policy: &Policy, lost: &Lost) -> bool {
    let silent_ms = lost.now_ns.saturating_sub(session.last_receive_ns) / NS_PER_MS;
    let reach = silent_ms.saturating_add(REACH_AT_ONCE).min(REACH_MAX);
    let next = next_of(session, policy);
    let has_latest = session.window.latest(policy) != Some(u64::MAX);
    has_latest && lost.sequence >= next && lost.sequence - next <= reach
}

/// Whether a session of many has not been heard for long enough to be missed.
fn is_silent(session: &Session, lost: &Lost) -> bool {
    lost.now_ns >= session.last_receive_ns.saturating_add(SILENT_NS)
}

/// Packets that a player may send at once, or lose, without that time passes.
const REACH_AT_ONCE: u64 = 256;

/// A player counts a thousand packets a second at the most, and no more than this altogether.
const REACH_MAX: u64 = 65_536;

/// Where an address has many sessions, one that was heard so recently is not missed. Players speak,
/// or keep alive, ten times a second as a rule.
const SILENT_NS: u64 = 250_000_000;

/// How long a line-up is used.
const KEPT_NS: u64 = 100_000_000;

/// Addresses whose sessions can be searched at the same time without making line-ups anew.
const LINEUPS_MAX: usize = 64;

/// Sessions that are looked at for one line-up.
const LOOKED_AT_MAX: usize = 4096;

/// Sessions that are looked at for all line-ups of a second: a wait for memory each, at the most.
const STEPS: Rate = Rate::new(100 * LOOKED_AT_MAX as u32, 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListenerId, WorkerId};
    use crate::shared::homes::Homes;
    use crate::store::hash::HashKey;
    use crate::store::table::{Address, Resting, Tenant};
    use proptest::prelude::*;
    use ringgate_batch::Endpoint;
    use std::collections::HashSet;

    const MS: u64 = NS_PER_MS;
    const KEY: HashKey = HashKey::new([1, 2]);
    const CARRIER: Endpoint = Endpoint::v4([203, 0, 113, 7], 0);

    struct World {
        homes: Homes,
        residents: Residents,
        sessions: Table<Session>,
        area: Area,
        bucket: u32,
    }

    impl World {
        /// Sessions of one address, each with its latest sequence and how long ago it was heard at
        /// `now_ms`. Every third belongs to another address in the same bucket.
        fn new(players: &[(u64, u64)], now_ms: u64) -> Self {
            let homes = Homes::new(1, KEY);
            let mut residents = Residents::new(WorkerId(0), &homes, players.len());
            let mut sessions = Table::new(players.len().max(1), Resting::NONE, 0, KEY);
            let area = Area::address(ListenerId(0), &CARRIER);
            let bucket = homes.bucket(&area);
            for (n, (latest, silent_ms)) in (0..).zip(players) {
                let mut session = Session::nobody();
                session.window.commit(*latest, &Policy::NETCODE).expect("the first");
                session.last_receive_ns = (now_ms - silent_ms) * MS;
                let home = if n % 3 == 2 { Endpoint::v4([198, 51, 100, 7], 0) } else { CARRIER };
                let address = Address { listener: ListenerId(0), endpoint: home.with_port(n) };
                let index = sessions.insert(address, session, 0).expect("room");
                residents.enter(&homes, bucket, index);
            }
            Self { homes, residents, sessions, area, bucket }
        }

        fn lost(&self, sequence: u64, now_ms: u64) -> Lost {
            let (area, bucket) = (self.area, self.bucket);
            Lost { area, bucket, sequence, first_sequence: sequence, now_ns: now_ms * MS }
        }

        /// All that a search finds that goes on with each packet where the last one has stopped.
        fn found(&self, lineups: &mut Lineups, lost: &Lost, at_a_time: u32) -> Vec<Entry<Session>> {
            let (mut found, mut skipped) = (Vec::new(), 0);
            loop {
                let looked_at = lineups.search(
                    lost,
                    (skipped, at_a_time),
                    Sessions {
                        residents: &self.residents,
                        table: &self.sessions,
                        policy: &Policy::NETCODE,
                    },
                    |index| found.push(index),
                );
                assert!(looked_at <= at_a_time);
                skipped += looked_at;
                if looked_at == 0 {
                    return found;
                }
            }
        }

        /// The same by asking every session.
        fn expected(&self, lost: &Lost) -> HashSet<Entry<Session>> {
            let is_it = |index: &Entry<Session>| {
                let address = self.sessions.address(*index);
                let session = self.sessions.at(*index);
                let latest = session.window.latest(&Policy::NETCODE).expect("one was received");
                let silent_ms = (lost.now_ns - session.last_receive_ns) / MS;
                let ahead = lost.sequence.checked_sub(latest).filter(|ahead| *ahead > 0);
                address.endpoint.ip() == CARRIER.ip()
                    && silent_ms >= 250
                    && ahead.is_some_and(|ahead| ahead - 1 <= (256 + silent_ms).min(65_536))
            };
            self.sessions.entries().filter(is_it).collect()
        }
    }

    proptest! {
        #[test]
        fn finds_whom_asking_everybody_would_find_the_likeliest_first(
            players in prop::collection::vec((0u64..5000, 0u64..3000), 0..60),
            sequence in 0u64..9000,
            at_a_time in 1u32..9,
        ) {
            let world = World::new(&players, 10_000);
            prop_assert_eq!(world.homes.workers(world.bucket).is_empty(), players.is_empty());
            let lost = world.lost(sequence, 10_000);
            let found = world.found(&mut Lineups::new(0), &lost, at_a_time);
            let latest = |index: &Entry<Session>| players[index.index()].0;
            prop_assert!(found.is_sorted_by_key(|index| std::cmp::Reverse(latest(index))));
            let set: HashSet<_> = found.iter().copied().collect();
            prop_assert_eq!(set.len(), found.len(), "nobody twice");
            prop_assert_eq!(set, world.expected(&lost));
        }
    }

    #[test]
    fn who_is_heard_or_leaves_after_it_was_made_is_no_candidate() {
        let mut world = World::new(&[(100, 1000), (101, 1000)], 10_000);
        let mut lineups = Lineups::new(0);
        let [first, second] = [0, 1].map(Entry::numbered);
        assert_eq!(world.found(&mut lineups, &world.lost(110, 10_000), 9), [second, first]);
        world.sessions.at_mut(second).last_receive_ns = 10_010 * MS;
        assert_eq!(world.found(&mut lineups, &world.lost(110, 10_020), 9), [first]);
        world.sessions.remove(first);
        world.residents.leave(&world.homes, first);
        assert!(world.found(&mut lineups, &world.lost(110, 10_030), 9).is_empty());
        // Once the line-up is old, it is made again, and knows who has fallen silent since.
        assert_eq!(world.found(&mut lineups, &world.lost(110, 10_300), 9), [second]);
    }

    #[test]
    fn numbers_at_the_end_of_their_range_are_compared_and_not_overflowed() {
        let world = World::new(&[(u64::MAX, 1000), (u64::MAX - 1, 1000)], 10_000);
        let mut lineups = Lineups::new(0);
        assert_eq!(
            world.found(&mut lineups, &world.lost(u64::MAX, 10_000), 9),
            [Entry::numbered(1)]
        );
        assert!(world.found(&mut lineups, &world.lost(0, 10_000), 9).is_empty());
    }

    #[test]
    fn an_address_with_more_sessions_than_a_line_up_is_gone_through_in_parts() {
        let count = LOOKED_AT_MAX + 1000;
        let players: Vec<_> = (0..count as u64).map(|n| (n * 1000, 1000)).collect();
        let world = World::new(&players, 10_000);
        let mut lineups = Lineups::new(0);
        // The first who came is at the very end.
        let found = |lineups: &mut Lineups, now_ms| world.found(lineups, &world.lost(1, now_ms), 9);
        assert!(found(&mut lineups, 10_000).is_empty());
        assert_eq!(found(&mut lineups, 10_200), [Entry::numbered(0)]);
    }
}
