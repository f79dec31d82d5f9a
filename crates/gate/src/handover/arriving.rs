//! What goes along while sessions come from another process.

use std::collections::BTreeMap;

use crate::shared::claims::history::TokenName;
use crate::store::table::Place;

/// What is not settled of the sessions of a front, as far as they have come.
#[derive(Default)]
pub(crate) struct Arriving {
    /// Sessions whose slot or client id another one has, with their tokens: that one is over in the
    /// process before, and ends here as soon as that is read.
    pub(crate) unclaimed: BTreeMap<u32, TokenName>,
    /// Who cannot be carried, by place.
    pub(crate) lost: BTreeMap<u32, Place>,
}

/// Who has no session, and what holds none, has no token.
pub(crate) const NO_TOKEN: TokenName = [0; 7];
