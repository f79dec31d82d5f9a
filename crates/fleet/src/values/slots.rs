//! Slots that a token service may promise to players, so that several services do not promise the
//! same ones.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, check_name};

/// Slots of one backend that only one token service may promise. Its key's lease lives on for as
/// long as a token does after the service was last there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// How many, those of tokens included that are on their way.
    pub slots: u32,
}

impl Stored for Block {
    fn check(&self) -> Result<(), Refused> {
        Ok(())
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
