//! What goes to the next process at one moment: sections, each with a name, bytes, and descriptors.
//!
//! ```text
//! RINGPART | version u16 | sections u32
//! then of each: name | may be passed over u8 | descriptors u32 | length u64 | bytes
//! ```
//!
//! Numbers are as [`ringgate_core::carry`] writes them. Whoever reads takes out what it knows, by
//! name, in any order. What is left is of a later release: it is passed over where its writer has
//! said that nothing is lost with it, and the whole is refused otherwise.

use std::io;
use std::os::fd::OwnedFd;

use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};
use ringgate_os::shared::Writing;
use zeroize::Zeroizing;

/// A part of a process that goes on in the next one.
pub trait Part: Sized {
    /// What both processes know it by.
    const NAME: &'static str;

    /// Whether a successor that does not know it goes on without it.
    const MAY_BE_PASSED_OVER: bool = false;

    /// All that it is made of, but its descriptors. Keys may be among it.
    fn take_out(self) -> Zeroizing<Vec<u8>>;

    /// The part, made of what another process has taken out. An error says what is wrong.
    fn put_in(bytes: Zeroizing<Vec<u8>>) -> Result<Self, String>;
}

/// Makes a part of a record that is written as JSON: fields are added, and a reader passes over
/// those that it does not know.
#[macro_export]
macro_rules! part_in_json {
    ($type:ty, $name:literal) => {
        impl $crate::handover::Part for $type {
            const NAME: &'static str = $name;

            fn take_out(self) -> $crate::handover::envelope::Bytes {
                $crate::handover::envelope::to_json(&self)
            }

            fn put_in(bytes: $crate::handover::envelope::Bytes) -> Result<Self, String> {
                $crate::handover::envelope::from_json(&bytes)
            }
        }
    };
}

/// Declares a part whose bytes are read elsewhere.
#[macro_export]
macro_rules! part_in_bytes {
    ($(#[doc = $doc:literal])* $visible:vis $type:ident, $name:literal) => {
        $(#[doc = $doc])*
        $visible struct $type($visible $crate::handover::envelope::Bytes);

        impl $crate::handover::Part for $type {
            const NAME: &'static str = $name;

            fn take_out(self) -> $crate::handover::envelope::Bytes {
                self.0
            }

            fn put_in(bytes: $crate::handover::envelope::Bytes) -> Result<Self, String> {
                Ok(Self(bytes))
            }
        }
    };
}

/// What a section has: wiped, because keys may be among it.
pub type Bytes = Zeroizing<Vec<u8>>;

/// A record as JSON.
pub fn to_json(record: &impl serde::Serialize) -> Bytes {
    Zeroizing::new(serde_json::to_vec(record).expect("no maps with other keys than strings"))
}

/// A record that was written as JSON.
pub fn from_json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|why| format!("what was given is not to be read: {why}"))
}

/// Sections.
#[derive(Debug, Default)]
pub struct Envelope {
    sections: Vec<Section>,
}

#[derive(Debug)]
struct Section {
    name: String,
    may_be_passed_over: bool,
    bytes: Bytes,
    fds: Vec<OwnedFd>,
}

impl Envelope {
    /// Adds a part, with its descriptors in the order in which they are asked for.
    #[must_use]
    pub fn with<P: Part>(self, part: P, fds: Vec<OwnedFd>) -> Self {
        self.with_bytes::<P>(part.take_out(), fds)
    }

    /// Adds a part that was taken out before.
    #[must_use]
    pub fn with_bytes<P: Part>(mut self, bytes: Bytes, fds: Vec<OwnedFd>) -> Self {
        let (name, may_be_passed_over) = (P::NAME.to_owned(), P::MAY_BE_PASSED_OVER);
        self.sections.push(Section { name, may_be_passed_over, bytes, fds });
        self
    }

    /// A part with its descriptors, if it is there.
    pub fn find<P: Part>(&mut self) -> Result<Option<(P, Vec<OwnedFd>)>, String> {
        let Some(at) = self.sections.iter().position(|it| it.name == P::NAME) else {
            return Ok(None);
        };
        let Section { bytes, fds, .. } = self.sections.remove(at);
        Ok(Some((P::put_in(bytes)?, fds)))
    }

    /// A part that has to be there.
    pub fn take<P: Part>(&mut self) -> Result<(P, Vec<OwnedFd>), String> {
        self.find()?.ok_or_else(|| format!("the process that runs has not given its {}", P::NAME))
    }

    /// The names of what was not taken; an error where that may not be passed over.
    pub fn end(self) -> Result<Vec<String>, String> {
        match self.sections.iter().find(|it| !it.may_be_passed_over) {
            Some(Section { name, .. }) => {
                Err(format!("what was given has a section that this release does not know, {name}"))
            }
            None => Ok(self.sections.into_iter().map(|it| it.name).collect()),
        }
    }

    /// The memory that another process reads it from, its length, and the descriptors to give.
    pub fn seal(self) -> io::Result<(Writing, u64, Vec<OwnedFd>)> {
        let mut measure = Writer::new(&mut []);
        self.write(&mut measure);
        let len = measure.len();
        let mut memory = Writing::new(len)?;
        self.write(&mut Writer::new(memory.bytes_mut()));
        Ok((memory, len as u64, self.sections.into_iter().flat_map(|it| it.fds).collect()))
    }

    /// The same for a release before sections: each that has bytes in memory of its own, and the
    /// length of the first.
    pub fn seal_apart(self) -> io::Result<(Vec<Writing>, u64, Vec<OwnedFd>)> {
        let len = self.sections.first().map_or(0, |first| first.bytes.len());
        let with_bytes = self.sections.iter().filter(|it| !it.bytes.is_empty());
        let memories = with_bytes.map(|it| super::memory::filled(&it.bytes));
        let memories = memories.collect::<io::Result<_>>()?;
        Ok((memories, len as u64, self.sections.into_iter().flat_map(|it| it.fds).collect()))
    }

    fn write(&self, out: &mut Writer<'_>) {
        MAGIC.write(out);
        VERSION.write(out);
        (self.sections.len() as u32).write(out);
        for Section { name, may_be_passed_over, bytes, fds } in &self.sections {
            name.write(out);
            may_be_passed_over.write(out);
            (fds.len() as u32).write(out);
            bytes.len().write(out);
            out.bytes(bytes);
        }
    }

    /// Opens what another process has [sealed](Self::seal).
    pub fn open(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Self, String> {
        let opened = Self::read(bytes, fds);
        opened.map_err(|why| format!("the sections of what was given cannot be read: {why}"))
    }

    fn read(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Self, Broken> {
        let maps = Maps::default();
        let (mut from, mut fds) = (Reader::new(bytes, &maps), fds.into_iter());
        if <[u8; 8]>::read(&mut from)? != MAGIC {
            return Err(Broken::Invalid("beginning"));
        }
        if u16::read(&mut from)? != VERSION {
            return Err(Broken::Invalid("version"));
        }
        let mut sections: Vec<Section> = Vec::new();
        for _ in 0..u32::read(&mut from)? {
            let (name, may_be_passed_over) = <(String, bool)>::read(&mut from)?;
            if sections.iter().any(|it| it.name == name) {
                return Err(Broken::Invalid("name twice"));
            }
            let (count, len) = (u32::read(&mut from)? as usize, usize::read(&mut from)?);
            let bytes = Zeroizing::new(from.bytes(len)?.to_vec());
            let fds: Vec<_> = fds.by_ref().take(count).collect();
            if fds.len() != count {
                return Err(Broken::Invalid("number of descriptors"));
            }
            sections.push(Section { name, may_be_passed_over, bytes, fds });
        }
        from.end()?;
        match fds.next() {
            None => Ok(Self { sections }),
            Some(_) => Err(Broken::Invalid("number of descriptors")),
        }
    }
}

const MAGIC: [u8; 8] = *b"RINGPART";

const VERSION: u16 = 1;
