//! The places of game processes at a local worker.

/// Local links of one worker.
pub const GAMES_MAX: usize = 256;

/// A local link: its place among those of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Game(pub(super) u8);

impl Game {
    /// The number of its place: below [`GAMES_MAX`], and given to another link once this one is
    /// over.
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    /// The link at a place.
    ///
    /// # Panics
    /// Where there is no such place.
    pub const fn at(place: usize) -> Self {
        assert!(place < GAMES_MAX, "places are counted from 0");
        Self(place as u8)
    }
}
