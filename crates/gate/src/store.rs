//! Tables of fixed size, and what is counted and timed in them. Nothing here knows what a session
//! is.

pub(crate) mod admission;
pub(crate) mod alarms;
pub(crate) mod area;
pub(crate) mod census;
pub(crate) mod entry;
pub(crate) mod hash;
pub(crate) mod index;
pub(crate) mod marks;
pub(crate) mod multimap;
pub(crate) mod table;
pub(crate) mod unarmed;
pub(crate) mod wheel;
