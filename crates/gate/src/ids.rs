//! Numbers that name something, each of a type of its own, and vectors that are indexed by them.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// What names an element of an [`IdVec`].
pub(crate) trait Id: Copy {
    fn new(at: usize) -> Self;
    fn at(self) -> usize;
}

macro_rules! ids {
    ($( $(#[$doc:meta])* $name:ident($number:ty); )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $number);

        impl Id for $name {
            #[inline]
            fn new(at: usize) -> Self {
                Self(at as $number)
            }

            #[inline]
            fn at(self) -> usize {
                self.0 as usize
            }
        }
    )+ };
}

ids! {
    /// A connection on the worker's link socket.
    LinkId(u16);
}

/// A vector whose elements have names.
pub(crate) struct IdVec<I, T> {
    all: Vec<T>,
    named_by: PhantomData<I>,
}

impl<I: Id, T> IdVec<I, T> {
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), named_by: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds an element and says what names it.
    pub(crate) fn push(&mut self, element: T) -> I {
        self.all.push(element);
        I::new(self.all.len() - 1)
    }

    /// What names the elements. Does not hold the vector, so that they can be changed meanwhile.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.all.len()).map(I::new)
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.all.get_mut(id.at())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.all.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.all.iter_mut()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.all[id.at()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.all[id.at()]
    }
}
