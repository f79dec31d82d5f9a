//! Numbers that name something, each of a type of its own, and vectors that are indexed by them.
//!
//! The compiler keeps a backend's number from being taken for a listener's. There is no conversion
//! that happens by itself: where a number comes in or leaves (a wire format, a driver, the
//! configuration), the code says so.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// What names an element of an [`IdVec`].
pub trait Id: Copy {
    /// What names the element at a position.
    fn at(position: usize) -> Self;

    /// The position of the element that it names.
    fn index(self) -> usize;
}

/// Another member of the cluster, by a number that it has here while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u8);

macro_rules! ids {
    ($( $(#[$doc:meta])* $vis:vis $name:ident($number:ty); )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $vis struct $name($vis $number);

        impl $name {
            /// What names the element at a position.
            #[inline]
            $vis const fn at(position: usize) -> Self {
                debug_assert!(position <= <$number>::MAX as usize, "a position has a number");
                Self(position as $number)
            }

            /// The position of the element that it names.
            #[inline]
            $vis const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl Id for $name {
            #[inline]
            fn at(position: usize) -> Self {
                Self::at(position)
            }

            #[inline]
            fn index(self) -> usize {
                self.index()
            }
        }
    )+ };
}

ids! {
    /// A game process: its position in [`Setup::backends`](crate::Setup::backends).
    pub BackendId(u16);
    /// One of a listener's addresses: its position in the list of them.
    pub BindId(u16);
    /// A listener: its position in [`Setup::listeners`](crate::Setup::listeners).
    pub ListenerId(u16);
    /// A player's index at its backend, from 0.
    pub Slot(u32);
    /// A worker of the gateway, from 0.
    pub WorkerId(u16);
    /// A connection on the worker's link socket.
    pub(crate) LinkId(u16);
}

/// Listeners and backends may have other numbers in the process that takes over.
impl Carry for ListenerId {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        from.listener().map(Self)
    }
}

impl Carry for BackendId {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        from.backend().map(Self)
    }
}

impl BackendId {
    /// Of no backend: no setup has so many. Whoever looks one up by a number that may be this one
    /// asks whether it is there.
    pub(crate) const NOBODYS: Self = Self(u16::MAX);
}

ringgate_core::carried_alone!(LinkId, Slot, WorkerId);

impl WorkerId {
    /// The id of a worker's player where the protocol has none: another one for each.
    pub(crate) fn client_id(self, serial: u64) -> u64 {
        u64::from(self.0) << CLIENT_SERIAL_BITS | serial
    }
}

/// A number of a worker's players, of which a client id has so many bits.
pub(crate) const fn client_serial(number: u64) -> u64 {
    number & ((1 << CLIENT_SERIAL_BITS) - 1)
}

const CLIENT_SERIAL_BITS: u32 = 48;

/// A vector whose elements have names.
#[derive(Clone, Debug)]
pub struct IdVec<I, T> {
    all: Vec<T>,
    named_by: PhantomData<fn() -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Without elements.
    pub const fn new() -> Self {
        Self { all: Vec::new(), named_by: PhantomData }
    }

    /// How many elements it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds an element and says what names it.
    pub fn push(&mut self, element: T) -> I {
        self.all.push(element);
        I::at(self.all.len() - 1)
    }

    /// Adds or removes elements at the end until there are so many.
    pub fn resize_with(&mut self, len: usize, new: impl FnMut() -> T) {
        self.all.resize_with(len, new);
    }

    /// What names the elements. Does not hold the vector, so that they can be changed meanwhile.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.all.len()).map(I::at)
    }

    /// The element that `id` names, if there is one.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.all.get(id.index())
    }

    /// The element that `id` names, if there is one.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.all.get_mut(id.index())
    }

    /// All elements, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.all.iter()
    }

    /// All elements, in order.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.all.iter_mut()
    }

    /// All elements, in order, each with what names it.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.all.iter().enumerate().map(|(position, element)| (I::at(position), element))
    }
}

impl<I: Id, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id, T> From<Vec<T>> for IdVec<I, T> {
    fn from(all: Vec<T>) -> Self {
        Self { all, named_by: PhantomData }
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(all: A) -> Self {
        Vec::from_iter(all).into()
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IdVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, I: Id, T> IntoIterator for &'a mut IdVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.all[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.all[id.index()]
    }
}
