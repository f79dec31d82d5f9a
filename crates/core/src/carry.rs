//! State in bytes, on its way from one process to the next: what a value is made of, written and
//! read field by field.
//!
//! Numbers are little-endian and of a fixed width, and nothing is copied as it lies in memory. Each
//! type says once, by [`carried!`](crate::carried), which fields it has: both directions follow
//! from that list, and a field that is not in it does not compile. So a field that is added to a
//! session cannot be forgotten here.
//!
//! What is read may be hostile: a process that runs as root may be handed state by one that does
//! not. So nothing is taken for true that an invariant depends on, and nothing is allocated for a
//! length that is not there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Memory that state is written into. Keys are written there and nowhere else.
pub struct Writer<'a> {
    memory: &'a mut [u8],
    /// Invariant: larger than the memory once that did not suffice.
    len: usize,
}

/// State that is read.
pub struct Reader<'a> {
    rest: &'a [u8],
    maps: &'a Maps,
}

/// What the numbers of the process before mean in this one.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// By the number of a listener.
    pub listeners: Vec<Option<u16>>,
    /// By the number of a backend.
    pub backends: Vec<Option<u16>>,
    /// By the number of a socket.
    pub sockets: HashMap<u32, u32>,
}

crate::told! {
    /// Why something cannot be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Broken;
    /// It ends too soon.
    Truncated = "it ends too soon",
    /// It is what this never is.
    Invalid(what: &'static str) = "it has an impossible {what}",
    /// It names a listener, a backend or a socket that this process does not have.
    Foreign = "it names what this process does not have",
}

/// What can be carried from one process to the next.
pub trait Carry: Sized {
    /// Writes all that it is made of.
    fn write(&self, out: &mut Writer<'_>);

    /// Reads what [`write`](Self::write) has written.
    fn read(from: &mut Reader<'_>) -> Result<Self, Broken>;

    /// Writes several of a number that is known.
    #[inline]
    fn write_all(all: &[Self], out: &mut Writer<'_>) {
        for it in all {
            it.write(out);
        }
    }

    /// Reads them.
    #[inline]
    fn read_array<const N: usize>(from: &mut Reader<'_>) -> Result<[Self; N], Broken> {
        let mut failed = None;
        let all = std::array::from_fn(|_| {
            let read = Self::read(from);
            read.map_err(|why| failed.get_or_insert(why)).ok()
        });
        match failed {
            None => Ok(all.map(|it| it.expect("none has failed"))),
            Some(why) => Err(why),
        }
    }
}

impl<'a> Writer<'a> {
    /// Writes from the start of the memory.
    pub const fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, len: 0 }
    }

    /// How many bytes were written.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there was no room for something: then what was written is of no use.
    pub const fn is_over(&self) -> bool {
        self.len > self.memory.len()
    }

    /// Writes bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.memory.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
        }
        self.len = end;
    }

    fn text(&mut self, text: &str) {
        (text.len() as u32).write(self);
        self.bytes(text.as_bytes());
    }
}

impl<'a> Reader<'a> {
    /// Reads from the start of some bytes.
    pub const fn new(bytes: &'a [u8], maps: &'a Maps) -> Self {
        Self { rest: bytes, maps }
    }

    /// What was not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What numbers mean here.
    pub const fn maps(&self) -> &'a Maps {
        self.maps
    }

    /// The next bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Broken> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Broken::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next bytes, of a number that is known.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Broken::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Whether everything was read.
    pub const fn end(&self) -> Result<(), Broken> {
        if self.rest.is_empty() { Ok(()) } else { Err(Broken::Invalid("length")) }
    }

    /// The number of a listener, as it is here.
    pub fn listener(&mut self) -> Result<u16, Broken> {
        mapped(u16::read(self)?, &self.maps.listeners)
    }

    /// The number of a backend, as it is here.
    pub fn backend(&mut self) -> Result<u16, Broken> {
        mapped(u16::read(self)?, &self.maps.backends)
    }

    /// The number of a socket, as it is here.
    pub fn socket(&mut self) -> Result<u32, Broken> {
        let before = u32::read(self)?;
        self.maps.sockets.get(&before).copied().ok_or(Broken::Foreign)
    }

    /// How many elements follow, of at least one byte each.
    fn count(&mut self) -> Result<usize, Broken> {
        let count = u32::read(self)? as usize;
        if count <= self.rest.len() { Ok(count) } else { Err(Broken::Truncated) }
    }
}

fn mapped(before: u16, map: &[Option<u16>]) -> Result<u16, Broken> {
    map.get(usize::from(before)).copied().flatten().ok_or(Broken::Foreign)
}

/// Moments of a clock that only goes forward: so far from its end that a span can be added.
pub mod time {
    use super::{Broken, Carry, Reader, Writer};

    /// Writes a moment.
    #[inline]
    pub fn write(ns: &u64, out: &mut Writer<'_>) {
        ns.write(out);
    }

    /// Reads a moment.
    #[inline]
    pub fn read(from: &mut Reader<'_>) -> Result<u64, Broken> {
        check(u64::read(from)?)
    }

    /// The moment, if it is one.
    pub const fn check(ns: u64) -> Result<u64, Broken> {
        if ns <= NS_MAX { Ok(ns) } else { Err(Broken::Invalid("time")) }
    }

    /// 146 years after a host was started.
    const NS_MAX: u64 = 1 << 62;
}

/// A moment that may not have been: see [`time`].
pub mod maybe_time {
    use super::{Broken, Carry, Reader, Writer, time};

    /// Writes a moment, or that there was none.
    pub fn write(ns: &Option<u64>, out: &mut Writer<'_>) {
        ns.write(out);
    }

    /// Reads it.
    pub fn read(from: &mut Reader<'_>) -> Result<Option<u64>, Broken> {
        if bool::read(from)? { time::read(from).map(Some) } else { Ok(None) }
    }
}

/// What does not go along, and begins anew.
pub mod anew {
    use super::{Broken, Reader, Writer};

    /// Writes nothing.
    pub const fn write<T>(_: &T, _: &mut Writer<'_>) {}

    /// Reads nothing.
    pub fn read<T: Default>(_: &mut Reader<'_>) -> Result<T, Broken> {
        Ok(T::default())
    }
}

/// Takes a value that is what it must be.
pub fn checked<T>(it: T, is_one: impl FnOnce(&T) -> bool, what: &'static str) -> Result<T, Broken> {
    if is_one(&it) { Ok(it) } else { Err(Broken::Invalid(what)) }
}

/// Says what a struct is made of, so that it can be [carried](crate::carry::Carry). A moment is
/// told from other numbers by `as time` or `as maybe_time`, and what does not go along by `as
/// anew`. All fields have to be there. Behind `if` stands what has to hold of them, and what else
/// is broken.
#[macro_export]
macro_rules! carried {
    (
        $type:ty { $( $field:ident $(as $codec:ident)? ),+ $(,)? } $(if $is_one:expr, $what:literal)?
    ) => {
        impl $crate::carry::Carry for $type {
            #[inline]
            fn write(&self, out: &mut $crate::carry::Writer<'_>) {
                let Self { $( $field ),+ } = self;
                $( $crate::carried!(@write out $field $($codec)?); )+
            }

            #[inline]
            fn read(
                from: &mut $crate::carry::Reader<'_>,
            ) -> Result<Self, $crate::carry::Broken> {
                let it = Self { $( $field: $crate::carried!(@read from $($codec)?) ),+ };
                $( let it = $crate::carry::checked(it, $is_one, $what)?; )?
                Ok(it)
            }
        }
    };
    (@write $out:ident $field:ident) => {
        $crate::carry::Carry::write($field, $out)
    };
    (@write $out:ident $field:ident $codec:ident) => {
        $crate::carry::$codec::write($field, $out)
    };
    (@read $from:ident) => {
        $crate::carry::Carry::read($from)?
    };
    (@read $from:ident $codec:ident) => {
        $crate::carry::$codec::read($from)?
    };
}

/// The same for an enum whose variants have no fields, each with its number.
#[macro_export]
macro_rules! carried_by_number {
    ($type:ident { $( $variant:ident = $number:literal ),+ $(,)? }) => {
        impl $crate::carry::Carry for $type {
            fn write(&self, out: &mut $crate::carry::Writer<'_>) {
                let number: u8 = match self { $( Self::$variant => $number ),+ };
                $crate::carry::Carry::write(&number, out);
            }

            fn read(
                from: &mut $crate::carry::Reader<'_>,
            ) -> Result<Self, $crate::carry::Broken> {
                match <u8 as $crate::carry::Carry>::read(from)? {
                    $( $number => Ok(Self::$variant), )+
                    _ => Err($crate::carry::Broken::Invalid(stringify!($type))),
                }
            }
        }
    };
}

/// The same for structs that are one value without a name.
#[macro_export]
macro_rules! carried_alone {
    ($( $type:ty ),+ $(,)?) => { $(
        impl $crate::carry::Carry for $type {
            #[inline]
            fn write(&self, out: &mut $crate::carry::Writer<'_>) {
                let Self(alone) = self;
                $crate::carry::Carry::write(alone, out);
            }

            #[inline]
            fn read(
                from: &mut $crate::carry::Reader<'_>,
            ) -> Result<Self, $crate::carry::Broken> {
                $crate::carry::Carry::read(from).map(Self)
            }
        }
    )+ };
}

macro_rules! numbers {
    ($( $type:ty )+) => { $(
        impl Carry for $type {
            #[inline]
            fn write(&self, out: &mut Writer<'_>) {
                out.bytes(&self.to_le_bytes());
            }

            #[inline]
            fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
                Ok(Self::from_le_bytes(from.array()?))
            }
        }
    )+ };
}

numbers!(u16 u32 u64 i32);

impl Carry for u8 {
    #[inline]
    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(&[*self]);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        from.array().map(|[byte]| byte)
    }

    #[inline]
    fn write_all(all: &[Self], out: &mut Writer<'_>) {
        out.bytes(all);
    }

    #[inline]
    fn read_array<const N: usize>(from: &mut Reader<'_>) -> Result<[Self; N], Broken> {
        from.array()
    }
}

/// A length of something in memory.
impl Carry for usize {
    fn write(&self, out: &mut Writer<'_>) {
        (*self as u64).write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Self::try_from(u64::read(from)?).map_err(|_| Broken::Invalid("length"))
    }
}

impl Carry for bool {
    fn write(&self, out: &mut Writer<'_>) {
        u8::from(*self).write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Broken::Invalid("truth")),
        }
    }
}

impl<T: Carry, const N: usize> Carry for [T; N] {
    #[inline]
    fn write(&self, out: &mut Writer<'_>) {
        T::write_all(self, out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        T::read_array(from)
    }
}

impl<T: Carry> Carry for Option<T> {
    fn write(&self, out: &mut Writer<'_>) {
        self.is_some().write(out);
        if let Some(it) = self {
            it.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Carry> Carry for Box<T> {
    fn write(&self, out: &mut Writer<'_>) {
        T::write(self, out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        T::read(from).map(Self::new)
    }
}

impl<T: Carry> Carry for Vec<T> {
    fn write(&self, out: &mut Writer<'_>) {
        (self.len() as u32).write(out);
        T::write_all(self, out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut all = Self::new();
        for _ in 0..from.count()? {
            all.push(T::read(from)?);
        }
        Ok(all)
    }
}

impl<T: Carry> Carry for VecDeque<T> {
    fn write(&self, out: &mut Writer<'_>) {
        (self.len() as u32).write(out);
        for it in self {
            it.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Vec::read(from).map(Self::from)
    }
}

impl Carry for String {
    fn write(&self, out: &mut Writer<'_>) {
        out.text(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let len = from.count()?;
        let text = std::str::from_utf8(from.bytes(len)?);
        text.map(str::to_owned).map_err(|_| Broken::Invalid("text"))
    }
}

impl Carry for Arc<str> {
    fn write(&self, out: &mut Writer<'_>) {
        out.text(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        String::read(from).map(Self::from)
    }
}

impl Carry for () {
    fn write(&self, _out: &mut Writer<'_>) {}

    fn read(_from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(())
    }
}

impl<A: Carry, B: Carry> Carry for (A, B) {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        number: u32,
        seen_ns: u64,
        asked_ns: Option<u64>,
        names: Vec<String>,
        pair: (u8, Option<bool>),
    }

    carried!(Sample { number, seen_ns as time, asked_ns as maybe_time, names, pair });

    fn sample() -> Sample {
        let names = vec!["one".to_owned(), String::new()];
        Sample { number: 7, seen_ns: 8, asked_ns: Some(9), names, pair: (1, Some(true)) }
    }

    fn written(sample: &Sample) -> Vec<u8> {
        let mut memory = [0; 200];
        let mut out = Writer::new(&mut memory);
        sample.write(&mut out);
        let len = out.len();
        memory[..len].to_vec()
    }

    #[test]
    fn what_was_written_is_read_and_every_shorter_one_is_refused() {
        let (maps, bytes) = (Maps::default(), written(&sample()));
        let mut from = Reader::new(&bytes, &maps);
        assert_eq!(Sample::read(&mut from), Ok(sample()));
        assert_eq!(from.end(), Ok(()));
        for len in 0..bytes.len() {
            let mut from = Reader::new(&bytes[..len], &maps);
            assert_eq!(Sample::read(&mut from), Err(Broken::Truncated), "{len}");
        }
    }

    #[test]
    fn lengths_that_are_not_there_and_impossible_values_are_refused() {
        let maps = Maps::default();
        let long = u32::MAX.to_le_bytes();
        assert_eq!(Vec::<u64>::read(&mut Reader::new(&long, &maps)), Err(Broken::Truncated));
        assert_eq!(bool::read(&mut Reader::new(&[2], &maps)), Err(Broken::Invalid("truth")));
        let late = (u64::MAX).to_le_bytes();
        assert_eq!(time::read(&mut Reader::new(&late, &maps)), Err(Broken::Invalid("time")));
        assert_eq!(Reader::new(&[0, 0], &maps).listener(), Err(Broken::Foreign));
    }

    #[test]
    fn memory_that_is_too_small_is_noticed_and_nothing_is_written_behind_it() {
        let mut memory = [0; 6];
        let mut out = Writer::new(&mut memory[..5]);
        (1_u32, 0x0202_u16).write(&mut out);
        assert!(out.is_over());
        assert_eq!(memory, [1, 0, 0, 0, 0, 0]);
    }
}
