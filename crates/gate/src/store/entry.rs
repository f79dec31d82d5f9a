//! Which entry of a table: a number that the compiler does not take for that of another table.
//!
//! A netcode session, a handshake and an Unreal session are found by numbers that look alike. In
//! the wrong table such a number would find a stranger. So the type of an entry says what is stored
//! in its table. It costs nothing: an entry has four bytes, as the number has.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::ids::Id;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// Which entry, of a table or a multimap of `T`.
pub(crate) struct Entry<T> {
    number: u32,
    table_of: PhantomData<fn() -> T>,
}

impl<T> Entry<T> {
    /// The entry of this number, for what knows numbers only: the index, guesses, session ids,
    /// loopback addresses, lists of entries that are linked by number. There may be none.
    #[inline]
    pub(crate) const fn numbered(number: u32) -> Self {
        Self { number, table_of: PhantomData }
    }

    /// Its number, for the same users.
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.number
    }

    /// Its number, where that is a position.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.number as usize
    }
}

/// In a table of the same kind: whoever reads it looks whether there is one of that number.
impl<T> Carry for Entry<T> {
    fn write(&self, out: &mut Writer<'_>) {
        self.number.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        u32::read(from).map(Self::numbered)
    }
}

impl<T> Clone for Entry<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Entry<T> {}

impl<T> PartialEq for Entry<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T> Hash for Entry<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<T> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.number)
    }
}

impl<T> Id for Entry<T> {
    #[inline]
    fn at(position: usize) -> Self {
        Self::numbered(position as u32)
    }

    #[inline]
    fn index(self) -> usize {
        self.number as usize
    }
}
