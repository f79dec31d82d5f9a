//! What a worker knows of the players of plain listeners.

use crate::common::Common;
use crate::front::plain::addresses::Addresses;
use crate::front::plain::echo::Echoes;
use crate::front::plain::guards::Guards;
use crate::front::plain::session::Session;
use crate::front::plain::unproven::Unproven;
use crate::front::room::Room;
use crate::ids::{IdVec, ListenerId, WorkerId};
use crate::seed::Random;
use crate::sessions::Sessions;
use crate::setup::{Listener, Plain, Sequence, Setup};
use crate::store::admission::{Admission, Bucket};
use crate::store::hash::HashKey;
use crate::store::table::Resting;
use ringgate_core::drops::DropReason;

/// The players of one worker's plain listeners, and those who may become some.
pub(crate) struct PlainFront {
    pub(crate) sessions: Sessions<Session>,
    pub(crate) addresses: Addresses,
    /// Of players' datagrams, and of servers'.
    pub(crate) guards: [Guards; 2],
    pub(crate) echoes: Echoes,
    pub(crate) listeners: IdVec<ListenerId, PlainListener>,
    /// Sessions that may begin, for each block.
    pub(crate) starts: Admission,
    /// Open sessions, of which there may be `open_max`.
    pub(crate) open_count: usize,
    pub(crate) open_max: usize,
    pub(crate) half_open_count: usize,
    /// Half-open sessions and barred sources that the table has room for, beside the open ones.
    pub(crate) unproven_max: usize,
    /// Keys the hashes of tokens.
    pub(crate) hash: HashKey,
    pub(crate) random: Random,
}

/// What a worker remembers of one listener.
pub(crate) struct PlainListener {
    pub(crate) unproven: Unproven,
    /// Sessions that may begin, from whatever block.
    pub(crate) starts: Bucket,
    /// Searches for room for one, most of which may be in vain.
    pub(crate) looks: Bucket,
    pub(crate) sequence: Option<Sequence>,
    /// Counts how often that has changed.
    pub(crate) sequence_changes: u32,
}

impl PlainListener {
    pub(crate) fn new(listener: &Listener, now_ns: u64) -> Self {
        let rules = listener.plain();
        Self {
            unproven: Unproven::new(rules.map_or(0, |rules| rules.half_open_max)),
            starts: Bucket::full(now_ns),
            looks: Bucket::full(now_ns),
            sequence: rules.and_then(|rules| rules.sequence),
            sequence_changes: 0,
        }
    }
}

/// Whether the numbers so far mean nothing under other rules.
pub(crate) fn begins_anew(before: Option<Sequence>, after: Option<Sequence>) -> bool {
    let [before, after] =
        [before, after].map(|it| it.map(|it| Sequence { policy: it.policy.unlimited(), ..it }));
    before != after
}

impl PlainFront {
    pub(crate) fn new(
        setup: &Setup,
        room: Room,
        worker: WorkerId,
        key: HashKey,
        random: u64,
        now_ns: u64,
    ) -> Self {
        let Sizes { open_max, unproven_max, spare } = Sizes::of(setup, room);
        let (is_served, places) = (unproven_max > 0, Self::places(setup, room));
        let unproven_addresses =
            if is_served { UNPROVEN_ADDRESSES.max(4 * unproven_max) } else { 0 };
        Self {
            sessions: Sessions::new(
                worker,
                open_max + unproven_max,
                // Addresses rest, and ids have a generation: places need no rest.
                Resting { ns: 0, spare },
                (random >> 32) as u32,
                key,
                now_ns,
            ),
            addresses: Addresses::new(open_max + setup.spare_places(open_max), unproven_addresses),
            guards: [Guards::new(places), Guards::new(places)],
            echoes: Echoes::new(places),
            listeners: IdVec::new(),
            starts: Admission::new(if is_served { START_BUCKETS } else { 1 }, key, now_ns),
            open_count: 0,
            open_max,
            half_open_count: 0,
            unproven_max,
            hash: key,
            random: Random(random),
        }
    }

    /// How many places the table has.
    pub(crate) fn places(setup: &Setup, room: Room) -> usize {
        let Sizes { open_max, unproven_max, spare } = Sizes::of(setup, room);
        open_max + unproven_max + spare
    }
}

/// How many entries there may be of each sort.
struct Sizes {
    open_max: usize,
    unproven_max: usize,
    /// For what is removed in a turn and given back at its end.
    spare: usize,
}

impl Sizes {
    /// None at all where there is no room for those who have proven nothing.
    fn of(setup: &Setup, room: Room) -> Self {
        let unproven_max = room.plain_unproven as usize;
        if unproven_max == 0 {
            return Self { open_max: 0, unproven_max: 0, spare: 0 };
        }
        Self { open_max: setup.worker_sessions_max, unproven_max, spare: TURN_STARTS_MAX }
    }
}

/// The rules of a listener.
pub(crate) fn rules_of(common: &Common, listener: ListenerId) -> Result<&Plain, DropReason> {
    common.setup.listeners[listener].plain().ok_or(DropReason::UnknownSource)
}

/// At the fastest rate at which sessions may begin by default, one comes back after 13 seconds.
const UNPROVEN_ADDRESSES: usize = 1 << 17;

/// More than a driver brings in a turn.
const TURN_STARTS_MAX: usize = 8192;

/// 8 bytes each.
const START_BUCKETS: usize = 1 << 14;
