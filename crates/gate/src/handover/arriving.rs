//! What goes along while a gate is made of records: sessions whose claims are taken.

use std::collections::{BTreeMap, HashMap};

use crate::shared::claims::history::TokenName;
use crate::store::table::Place;

/// Sessions that have come, and whose slot or client id another one has: which is over in the
/// process before, and ends here as soon as that is read. And what comes once of a session that
/// comes again, because its player has moved: its user data.
#[derive(Default)]
pub(crate) struct Unclaimed(
    pub(crate) BTreeMap<u32, TokenName>,
    pub(crate) HashMap<Place, Box<[u8]>>,
);

/// Who has no session, and what holds none, has no token.
pub(crate) const NO_TOKEN: TokenName = [0; 7];
