//! Which counter the packets of plain listeners go to.

use crate::front::protocol::Front;

/// All of them are of one kind.
pub(crate) const PLAIN: usize = Front::Plain.first_kind();
