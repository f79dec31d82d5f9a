//! How much a gateway remembers of what the others of its cluster say.

/// Why it remembers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// There is room for nothing more, whoever says it.
    All,
    /// The member that says it has its share of the room.
    Share,
}
