//! Slots that a token service may promise to players, so that several services do not promise the
//! same ones.

use serde::{Deserialize, Serialize};

use super::{LIST_MAX, Refused, Stored, check, check_name};

/// Slots of one backend that only one token service may promise. Its key's lease lives on for as
/// long as a token does after the service was last there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// How many, those of tokens included that are on their way.
    pub slots: u32,
    /// Those of them that were promised when this was written: until when a player may come, in
    /// seconds since 1970, and how many. After that moment they are not the block's any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<(u64, u32)>,
    /// Whether the service has ended: nothing more is promised of this block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

impl Block {
    /// How many slots it still holds.
    pub fn holds(&self, now_s: u64) -> u32 {
        let over = self.promised.iter().filter(|(until_s, _)| *until_s <= now_s);
        over.fold(self.slots, |left, (_, count)| left.saturating_sub(*count))
    }

    /// How many of them are promised, as far as it tells.
    pub fn promises(&self, now_s: u64) -> u32 {
        let left = self.promised.iter().filter(|(until_s, _)| *until_s > now_s);
        left.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

impl Stored for Block {
    fn check(&self) -> Result<(), Refused> {
        check(self.promised.len() <= LIST_MAX, "there are too many ends of promises")?;
        let promised: u64 = self.promised.iter().map(|(_, count)| u64::from(*count)).sum();
        check(promised <= self.slots.into(), "more is promised than there are slots")
    }
}

/// Who has decided about a backend's slots last. Its key's revision is what counts: a decision
/// holds only if nobody has decided since its grounds were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The service.
    pub by: String,
}

impl Stored for Guard {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.by, "the service is no name")
    }
}
