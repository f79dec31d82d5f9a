//! What is shown apart for each listener is bounded: many listeners make no endless pages.

use crate::ids::ListenerId;

/// What is counted together: each of the first listeners has its own, those behind them share one,
/// and one is for what no listener is known of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party(u8);

impl Party {
    /// How many listeners have their own.
    pub const APART: usize = 16;

    /// How many parties there are.
    pub const COUNT: usize = Self::APART + 2;

    /// All listeners that have not their own.
    pub const OTHERS: Self = Self(Self::APART as u8);

    /// Of no listener.
    pub const NONE: Self = Self(Self::APART as u8 + 1);

    /// All, each at its own position.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// A listener's.
    #[inline]
    pub const fn of(listener: ListenerId) -> Self {
        let number = listener.index();
        Self(if number < Self::APART { number as u8 } else { Self::APART as u8 })
    }

    /// Its position among all.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The listener whose own it is.
    pub const fn listener(self) -> Option<ListenerId> {
        if self.index() < Self::APART { Some(ListenerId::at(self.index())) } else { None }
    }
}
