//! Who may not come in. Whom it means stands in the key.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, check_text};

/// A ban. Its key's lease ends with it; the time is for those who only have a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Until when, in seconds since 1970.
    pub until: u64,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
    /// Who has said so, for people.
    #[serde(default)]
    pub by: String,
}

impl Ban {
    /// Whether it still holds.
    pub const fn holds(&self, now_s: u64) -> bool {
        now_s < self.until
    }
}

impl Stored for Ban {
    fn check(&self) -> Result<(), Refused> {
        check_text(&self.reason)?;
        check_text(&self.by)
    }
}
