//! Who wants reports of messages that a player was sent before it has gone to another game process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;

use crate::moves::Side;
use crate::seed::Random;

/// Who wants reports of messages that were sent before the player has gone over.
///
/// A token is a process's own choice, so the other one may choose the same. Until they are
/// reported, the earlier ones have other names in the queue.
#[derive(Default)]
pub(crate) struct Former(pub(crate) BTreeMap<u64, (Side, u64)>);

impl Former {
    /// Gives a message's report another name.
    pub(crate) fn rename(&mut self, whose: (Side, u64), random: &mut Random) -> u64 {
        loop {
            let name = random.next();
            if let Vacant(vacant) = self.0.entry(name) {
                vacant.insert(whose);
                return name;
            }
        }
    }
}
