//! What goes along while a gate is made of records: sessions whose claims are taken.

use std::collections::BTreeMap;

use crate::shared::claims::history::TokenName;

/// Sessions that have come, and whose slot or client id another one has: which is over in the
/// process before, and ends here as soon as that is read.
#[derive(Default)]
pub(crate) struct Unclaimed(pub(crate) BTreeMap<u32, TokenName>);

/// Who has no session, and what holds none, has no token.
pub(crate) const NO_TOKEN: TokenName = [0; 7];
