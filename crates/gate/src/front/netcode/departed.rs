//! Players who have just left: their last packets, which still arrive, are known by this memory.
//!
//! A netcode client says goodbye ten times, and one whose session was ended goes on sending until
//! it hears of it. Those packets come from an address without a session, as junk does. But they are
//! no attack, and must not be tried against the sessions of other players at the same address. So
//! each worker remembers a few thousand addresses for half a minute, with the sequence that their
//! session had come to: a late packet is numbered close to it. The packets of another player whom a
//! NAT moves to the same port are numbered otherwise, except by rare chance.
//!
//! The memory is fixed, with four entries to a cache line: an address that is new takes the place
//! of the oldest of four. Nothing is looked up while no player has left lately.

use crate::now::NS_PER_MS;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, maybe_time};

/// Addresses that sessions have left.
pub(crate) struct Departed {
    sets: Vec<Set>,
    /// When a player last left.
    latest_ns: Option<u64>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Set([Departure; 4]);

#[derive(Clone, Copy)]
struct Departure {
    /// Of the address.
    hash: u32,
    /// When its session ended, in milliseconds that wrap.
    left_ms: u32,
    /// What the session had come to.
    sequence: u64,
}

impl Departed {
    /// A memory for a worker of so many sessions.
    pub(crate) fn new(sessions_max: usize) -> Self {
        let sets = (sessions_max / 4).next_power_of_two().clamp(SETS_MIN, SETS_MAX);
        let nobody = Departure { hash: 0, left_ms: 0, sequence: 0 };
        Self { sets: vec![Set([nobody; 4]); sets], latest_ns: None }
    }

    /// Notes that the session of an address is over, which had taken in everything up to
    /// `sequence`.
    pub(crate) fn leave(&mut self, hash: u32, sequence: u64, now_ns: u64) {
        let left_ms = ms(now_ns);
        self.note(Departure { hash, left_ms, sequence }, left_ms);
        self.latest_ns = Some(now_ns);
    }

    fn note(&mut self, departure: Departure, now_ms: u32) {
        let at = self.set_of(departure.hash);
        let set = &mut self.sets[at].0;
        let known = set.iter().position(|entry| entry.hash == departure.hash);
        let oldest = || (0..set.len()).max_by_key(|at| now_ms.wrapping_sub(set[*at].left_ms));
        let at = known.or_else(oldest).unwrap_or(0);
        set[at] = departure;
    }

    /// Whether anything is remembered. A flood of junk at a gateway that no player leaves touches
    /// no memory here.
    #[inline]
    pub(crate) fn is_asked(&self, now_ns: u64) -> bool {
        self.latest_ns.is_some_and(|latest_ns| now_ns <= latest_ns + REMEMBERED_NS)
    }

    /// Whether a packet with that sequence is late from a session that its address has had.
    pub(crate) fn has_left(&self, hash: u32, sequence: u64, now_ns: u64) -> bool {
        if !self.is_asked(now_ns) {
            return false;
        }
        let now_ms = ms(now_ns);
        self.sets[self.set_of(hash)].0.iter().any(|entry| {
            entry.hash == hash
                && now_ms.wrapping_sub(entry.left_ms) <= REMEMBERED_MS
                && entry.sequence.abs_diff(sequence) <= REACH
        })
    }

    /// Writes those that are remembered, if any may be asked about.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { sets, latest_ns } = self;
        latest_ns.write(out);
        let left = sets.iter().flat_map(|set| &set.0).filter(|it| it.left_ms != 0);
        let left = left.filter(|_| latest_ns.is_some());
        (left.clone().count() as u32).write(out);
        for departure in left {
            departure.write(out);
        }
    }

    /// Remembers them.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.latest_ns = maybe_time::read(from)?;
        // The last of a set is written over first.
        let left = Vec::<Departure>::read(from)?;
        let latest_ms = ms(self.latest_ns.unwrap_or(0));
        left.into_iter().rev().for_each(|departure| self.note(departure, latest_ms));
        Ok(())
    }

    const fn set_of(&self, hash: u32) -> usize {
        hash as usize & (self.sets.len() - 1)
    }
}

ringgate_core::carried!(Departure { hash, left_ms, sequence });

fn ms(now_ns: u64) -> u32 {
    (now_ns / NS_PER_MS) as u32
}

/// Twice as long as most tokens let a client wait for its server.
const REMEMBERED_NS: u64 = 30_000_000_000;
const REMEMBERED_MS: u32 = (REMEMBERED_NS / NS_PER_MS) as u32;

/// Packets that may be under way, or that were sent while nothing arrived: half a minute of 128 a
/// second.
const REACH: u64 = 4096;

/// 16 KiB, and a mebibyte.
const SETS_MIN: usize = 256;
const SETS_MAX: usize = 1 << 14;

const _: () = assert!(size_of::<Set>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::carry::Maps;

    const S: u64 = 1_000_000_000;

    #[test]
    fn stragglers_are_known_by_address_and_number_for_half_a_minute() {
        let mut departed = Departed::new(100);
        assert!(!departed.has_left(7, 50, S));
        departed.leave(7, 5_000, S);
        for sequence in [904, 5_000, 9_096] {
            assert!(departed.has_left(7, sequence, 31 * S), "{sequence}");
        }
        assert!(!departed.has_left(7, 903, S) && !departed.has_left(7, 9_097, S));
        assert!(!departed.has_left(8, 5_000, S), "another address");
        assert!(!departed.has_left(7, 5_000, 31 * S + 1_000_000));
        departed.leave(9, 0, 100 * S);
        assert!(!departed.has_left(7, 5_000, 100 * S), "somebody else's leaving revives nobody");
    }

    #[test]
    fn the_last_session_of_an_address_is_what_counts() {
        let mut departed = Departed::new(100);
        departed.leave(7, 1 << 40, S);
        departed.leave(7, 3, 2 * S);
        assert!(departed.has_left(7, 3, 2 * S) && !departed.has_left(7, 1 << 40, 2 * S));
    }

    #[test]
    fn of_five_who_share_a_line_the_first_is_forgotten() {
        let mut departed = Departed::new(100);
        let hashes: [u32; 5] = std::array::from_fn(|n| 7 + ((n as u32) << 20));
        for (n, hash) in (0..).zip(hashes) {
            departed.leave(hash, 3, S + n * 1_000_000);
        }
        let known = hashes.map(|hash| departed.has_left(hash, 3, 2 * S));
        assert_eq!(known, [false, true, true, true, true]);
    }

    #[test]
    fn the_next_process_remembers_the_same() {
        let mut departed = Departed::new(100);
        let hashes: [u32; 6] = std::array::from_fn(|n| 7 + ((n as u32) << 20));
        for (n, hash) in (0..).zip(hashes) {
            departed.leave(hash, 3, S + n * 1_000_000);
        }
        let (mut bytes, maps) = ([0; 200], Maps::default());
        departed.hand_over(&mut Writer::new(&mut bytes));
        let mut next = Departed::new(100);
        next.take_over(&mut Reader::new(&bytes, &maps)).expect("it was written");
        let known = hashes.map(|hash| next.has_left(hash, 3, 2 * S));
        assert_eq!(known, [false, false, true, true, true, true]);
    }

    #[test]
    fn a_whole_table_that_leaves_at_once_is_remembered() {
        let mut departed = Departed::new(40_000);
        let hash = |n: u32| n.wrapping_mul(0x9e37_79b9) ^ n >> 7;
        (0..40_000).for_each(|n| departed.leave(hash(n), 3, S));
        let known = (0..40_000).filter(|n| departed.has_left(hash(*n), 3, S)).count();
        assert!(known > 30_000, "{known}");
    }
}
