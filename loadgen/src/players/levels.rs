//! What players hear of the game server `crates/link/examples/c/messages.c`: a level of 20 KiB when
//! they come and another one for each order, and snapshots beside them.
//!
//! Levels come once, in order and as they were sent; snapshots may be left out, and never go back.

use std::collections::VecDeque;

use ringgate_client::Channel;

/// What a player has heard of it.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// Levels that have come.
    came: u32,
    /// The newest snapshot's number.
    newest: Option<u32>,
    /// When orders were to leave whose levels have not come, oldest first.
    ordered_ns: VecDeque<u64>,
}

/// What a message of the game server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The level that a player gets unasked.
    FirstLevel,
    /// The level for an order that was to leave then.
    Level { ordered_ns: u64 },
    /// A newer snapshot.
    Snapshot,
    /// Not what comes next, or not as it was sent.
    Wrong,
}

impl Levels {
    /// The player has ordered one.
    pub(super) fn order(&mut self, intended_ns: u64) {
        self.ordered_ns.push_back(intended_ns);
    }

    /// Whether one is to come.
    pub(super) fn are_due(&self) -> bool {
        self.came == 0 || !self.ordered_ns.is_empty()
    }

    /// Takes a message of the game server.
    pub(super) fn hear(&mut self, channel: Channel, message: &[u8]) -> Told {
        let Some((number, rest)) = message.split_first_chunk() else { return Told::Wrong };
        let number = u32::from_le_bytes(*number);
        match channel {
            LEVELS if number == self.came && is_level(number, rest) => self.take_level(),
            SNAPSHOTS if self.newest < Some(number) && is_snapshot(rest) => {
                self.newest = Some(number);
                Told::Snapshot
            }
            _ => Told::Wrong,
        }
    }

    fn take_level(&mut self) -> Told {
        self.came += 1;
        if self.came == 1 {
            return Told::FirstLevel;
        }
        self.ordered_ns.pop_front().map_or(Told::Wrong, |ordered_ns| Told::Level { ordered_ns })
    }
}

fn is_level(number: u32, rest: &[u8]) -> bool {
    let byte = |at: usize| ((at * 31) as u8).wrapping_add(number as u8);
    let is_whole = |(at, found): (usize, &u8)| *found == byte(NUMBER_BYTES + at);
    rest.len() + NUMBER_BYTES == LEVEL_BYTES && rest.iter().enumerate().all(is_whole)
}

fn is_snapshot(rest: &[u8]) -> bool {
    rest.len() + NUMBER_BYTES == SNAPSHOT_BYTES && rest.iter().all(|byte| *byte == 0)
}

/// Where orders go and levels come from.
pub(super) const LEVELS: Channel = Channel::Reliable(0);

const SNAPSHOTS: Channel = Channel::Sequenced(1);

/// Both begin with their number.
const NUMBER_BYTES: usize = 4;

const LEVEL_BYTES: usize = 20 * 1024;

const SNAPSHOT_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn level(number: u32) -> Vec<u8> {
        let byte = |at: usize| ((at * 31) as u8).wrapping_add(number as u8);
        let rest = (NUMBER_BYTES..LEVEL_BYTES).map(byte);
        number.to_le_bytes().into_iter().chain(rest).collect()
    }

    fn snapshot(number: u32) -> Vec<u8> {
        let mut bytes = vec![0; SNAPSHOT_BYTES];
        bytes[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn levels_come_in_order_and_each_but_the_first_was_ordered() {
        let mut levels = Levels::default();
        assert_eq!(levels.hear(LEVELS, &level(1)), Told::Wrong, "the first has number 0");
        assert_eq!(levels.hear(LEVELS, &level(0)), Told::FirstLevel);
        assert_eq!(levels.hear(LEVELS, &level(0)), Told::Wrong, "twice");
        levels.order(7);
        assert_eq!(levels.hear(LEVELS, &level(1)), Told::Level { ordered_ns: 7 });
        assert_eq!(levels.hear(LEVELS, &level(2)), Told::Wrong, "nobody has ordered it");
    }

    #[test]
    fn snapshots_do_not_go_back_and_no_byte_may_differ() {
        let mut levels = Levels::default();
        assert_eq!(levels.hear(SNAPSHOTS, &snapshot(3)), Told::Snapshot);
        assert_eq!(levels.hear(SNAPSHOTS, &snapshot(9)), Told::Snapshot);
        for (channel, mut message) in [
            (SNAPSHOTS, snapshot(9)),
            (SNAPSHOTS, snapshot(4)),
            (LEVELS, snapshot(10)),
            (Channel::Unreliable(1), snapshot(10)),
            (SNAPSHOTS, vec![1]),
        ] {
            assert_eq!(levels.hear(channel, &message), Told::Wrong);
            message.push(0);
            assert_eq!(levels.hear(channel, &message), Told::Wrong);
        }
        let mut changed = level(0);
        changed[9000] ^= 1;
        assert_eq!(levels.hear(LEVELS, &changed), Told::Wrong);
        assert_eq!(levels.hear(LEVELS, &level(0)[..9000]), Told::Wrong);
    }
}
