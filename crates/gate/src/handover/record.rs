//! Records: what a stream is made of.
//!
//! `kind u16 | zero u16 | length u32 | bytes`. Kinds with the highest bit may be passed over by a
//! successor that does not know them; one that it does not know without that bit refuses the
//! stream. A stream begins with a magic, the version of the format, and whose it is.

use std::fmt;
use std::ops::Range;

use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};

/// Why a hand-over cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A record cannot be read.
    Broken(Broken, &'static str),
    /// The gate has mail or requests to give, or is in a turn.
    Busy,
    /// The memory for the stream is too small.
    Full,
    /// A reload has come since the stream was begun: it has to be begun anew.
    Reloaded,
    /// The stream is another worker's.
    Misplaced,
    /// What begins there is no stream of a gateway's.
    Stranger,
    /// A kind of record that may not be passed over.
    Unknown(u16),
    /// The stream has this version of the format, which is not read here.
    Version(u16),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why, what) => write!(f, "the record of {what} cannot be read: {why}"),
            Self::Busy => f.write_str("the worker has not come to rest"),
            Self::Full => f.write_str("the memory for the state is too small"),
            Self::Reloaded => f.write_str("a reload has come in between"),
            Self::Misplaced => f.write_str("the state is another worker's"),
            Self::Stranger => f.write_str("what should be the state is none"),
            Self::Unknown(kind) => write!(f, "the state has records of an unknown kind, {kind}"),
            Self::Version(theirs) => write!(
                f,
                "the state is in version {theirs} of its format, and this release reads version {VERSION}"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// Memory that a stream is written into, one record behind the other.
pub struct Sink<'a> {
    memory: &'a mut [u8],
    len: usize,
}

impl<'a> Sink<'a> {
    /// A stream that begins at the start of the memory.
    pub const fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, len: 0 }
    }

    /// A stream of so many bytes that goes on.
    pub const fn resume(memory: &'a mut [u8], len: usize) -> Self {
        Self { memory, len }
    }

    /// How long the stream is.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, whose: Whose) -> Result<(), Refused> {
        self.write(|out, _| {
            MAGIC.write(out);
            VERSION.write(out);
            whose.0.write(out);
        })?;
        Ok(())
    }

    /// Appends a record.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Refused> {
        let start = self.len;
        self.write_record(kind, |out, _| body(out))?;
        debug_assert!(self.len >= start + HEAD_BYTES, "a record has a head");
        Ok(())
    }

    /// Appends a record, unless it says what another one says that begins at `before`, whose bytes
    /// `body` is shown. Returns where the one that says it begins.
    pub(crate) fn append_changed(
        &mut self,
        kind: Kind,
        before: Option<usize>,
        body: impl FnOnce(&mut Writer<'_>, Option<&[u8]>),
    ) -> Result<usize, Refused> {
        let start = self.len;
        let written = self.write_record(kind, |out, earlier| {
            body(out, before.and_then(|before| body_at(earlier, before)));
        })?;
        if let Some(before) = before {
            let same = self.memory.get(before..before + written.len());
            if same == self.memory.get(written) {
                self.len = start;
                return Ok(before);
            }
        }
        Ok(start)
    }

    fn write_record(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>, &[u8]),
    ) -> Result<Range<usize>, Refused> {
        let start = self.len;
        let range = self.write(|out, earlier| {
            out.bytes(&[0; HEAD_BYTES]);
            body(out, earlier);
        })?;
        let len = (range.len() - HEAD_BYTES) as u32;
        let head = &mut self.memory[start..start + HEAD_BYTES];
        head[..2].copy_from_slice(&(kind as u16).to_le_bytes());
        head[4..].copy_from_slice(&len.to_le_bytes());
        Ok(range)
    }

    /// Writes at the end. `write` is shown what was written before.
    fn write(
        &mut self,
        write: impl FnOnce(&mut Writer<'_>, &[u8]),
    ) -> Result<Range<usize>, Refused> {
        let start = self.len;
        let (earlier, room) = self.memory.split_at_mut_checked(start).ok_or(Refused::Full)?;
        let mut out = Writer::new(room);
        write(&mut out, earlier);
        if out.is_over() {
            return Err(Refused::Full);
        }
        self.len += out.len();
        Ok(start..self.len)
    }
}

/// The bytes of the record that begins there.
fn body_at(stream: &[u8], start: usize) -> Option<&[u8]> {
    let (head, behind) = stream.get(start..)?.split_first_chunk::<HEAD_BYTES>()?;
    let [.., a, b, c, d] = *head;
    behind.get(..u32::from_le_bytes([a, b, c, d]) as usize)
}

/// What was written ahead of each place of a table: where its latest record begins.
#[derive(Default)]
pub(crate) struct Mirror(Vec<usize>);

impl Mirror {
    /// Where the record of a place begins that was written before, if one was.
    pub(crate) fn of(&self, place: usize) -> Option<usize> {
        self.0.get(place).copied().filter(|at| *at != NOWHERE)
    }

    pub(crate) fn note(&mut self, place: usize, at: usize) {
        if place >= self.0.len() {
            self.0.resize(place + 1, NOWHERE);
        }
        self.0[place] = at;
    }
}

const NOWHERE: usize = usize::MAX;

/// Whose stream it is: a worker's, by its number, or the one of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose(pub(crate) u16);

impl Whose {
    pub(crate) const SHARED: Self = Self(u16::MAX);
}

macro_rules! kinds {
    ($( $(#[$doc:meta])* $kind:ident = $number:literal, $what:literal; )+) => {
        /// What a record says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(crate) enum Kind { $( $(#[$doc])* $kind = $number ),+ }

        impl Kind {
            const fn of(number: u16) -> Option<Self> {
                match number { $( $number => Some(Self::$kind), )+ _ => None }
            }

            /// In a sentence.
            pub(crate) const fn what(self) -> &'static str {
                match self { $( Self::$kind => $what ),+ }
            }
        }
    };
}

kinds! {
    /// The last one.
    End = 1, "the end";
    Format = 2, "the format";
    SharedKeys = 3, "the shared keys";
    Token = 4, "a used token";
    Cookies = 5, "the cookies";
    WorkerKeys = 16, "a worker's keys";
    NetcodeSession = 17, "a netcode session";
    NetcodeHandshake = 18, "a netcode handshake";
    NetcodeRest = 19, "the netcode front";
    UnrealSession = 20, "an Unreal session";
    UnrealRest = 21, "the Unreal front";
    PlainSession = 22, "a plain session";
    PlainRest = 23, "the plain front";
    UnrealListener = 24, "an Unreal listener";
    UnrealServer = 25, "an Unreal server";
    PlainListener = 26, "a plain listener";
    NetcodeListener = 27, "a netcode listener";
    Link = 32, "a link";
    Backend = 33, "a backend";
    Listener = 34, "a listener";
    Steered = 35, "a forwarded address";
    Life = 36, "the worker's life";
    Counters = 37, "the counters";
}

/// Reads the beginning of a stream. Returns how long that is.
pub(crate) fn check_beginning(bytes: &[u8], whose: Whose) -> Result<usize, Refused> {
    let maps = Maps::default();
    let mut from = Reader::new(bytes, &maps);
    let read = <([u8; 8], (u16, u16))>::read(&mut from);
    let (magic, (version, owner)) = read.map_err(|why| Refused::Broken(why, "the beginning"))?;
    match (magic, version, owner) {
        (MAGIC, VERSION, owner) if owner == whose.0 => {}
        (MAGIC, VERSION, _) => return Err(Refused::Misplaced),
        (MAGIC, other, _) => return Err(Refused::Version(other)),
        _ => return Err(Refused::Stranger),
    }
    Ok(bytes.len() - from.rest().len())
}

/// The whole records that some bytes begin with. `take` gets each kind with its bytes. Returns how
/// many bytes these are; `None` instead of a kind is passed over.
pub(crate) fn take_records(
    bytes: &[u8],
    mut take: impl FnMut(Kind, &[u8]) -> Result<(), Refused>,
) -> Result<usize, Refused> {
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let [k0, k1, z0, z1, len @ ..] = *head;
        let (kind, len) = (u16::from_le_bytes([k0, k1]), u32::from_le_bytes(len) as usize);
        if [z0, z1] != [0; 2] {
            return Err(Refused::Unknown(kind));
        }
        let Some((body, behind)) = behind.split_at_checked(len) else { break };
        match Kind::of(kind) {
            Some(kind) => take(kind, body)?,
            None if kind & MAY_BE_PASSED_OVER != 0 => {}
            None => return Err(Refused::Unknown(kind)),
        }
        rest = behind;
    }
    Ok(bytes.len() - rest.len())
}

/// The first record, or what there is of it.
pub(crate) fn first_record(bytes: &[u8]) -> &[u8] {
    let len = bytes.get(4..8).and_then(|len| len.first_chunk());
    let end = len.map_or(0, |len| HEAD_BYTES + u32::from_le_bytes(*len) as usize);
    &bytes[..end.min(bytes.len())]
}

/// The version of the format.
pub(crate) const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"RINGGATE";

const HEAD_BYTES: usize = 8;

const MAY_BE_PASSED_OVER: u16 = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_once_as_long_as_it_says_the_same() {
        let mut memory = [0; 100];
        let mut sink = Sink::new(&mut memory);
        let first = sink.append_changed(Kind::Token, None, |out, _| 7_u8.write(out));
        let again = sink.append_changed(Kind::Token, first.ok(), |out, before| {
            assert_eq!(before, Some(&[7][..]));
            7_u8.write(out);
        });
        assert_eq!((first, again, sink.len()), (Ok(0), Ok(0), 9));
        let changed = sink.append_changed(Kind::Token, Some(0), |out, _| 8_u8.write(out));
        assert_eq!((changed, sink.len()), (Ok(9), 18));
        assert_eq!(sink.append(Kind::Token, |out| out.bytes(&[0; 90])), Err(Refused::Full));
        assert_eq!(sink.len(), 18);
    }

    #[test]
    fn records_that_are_not_whole_wait_and_unknown_ones_are_refused_or_passed_over() {
        let record =
            |kind: u16, len: u32| [&kind.to_le_bytes()[..], &[0; 2], &len.to_le_bytes()].concat();
        let mut bytes = record(4, 1);
        let took = take_records(&bytes, |_, _| panic!("it is not whole"));
        assert_eq!(took, Ok(0));
        bytes.push(5);
        bytes.extend(record(0x8123, 0));
        let mut seen = Vec::new();
        let took = take_records(&bytes, |kind, body| {
            seen.push((kind, body.to_vec()));
            Ok(())
        });
        assert_eq!((took, seen), (Ok(17), vec![(Kind::Token, vec![5])]));
        let unknown = record(0x123, 0);
        assert_eq!(take_records(&unknown, |_, _| Ok(())), Err(Refused::Unknown(0x123)));
        assert_eq!(check_beginning(b"RINGGATX\x01\0\0\0", Whose(0)), Err(Refused::Stranger));
        assert_eq!(check_beginning(b"RINGGATE\x01\0\0\0", Whose(0)), Ok(12));
        assert_eq!(check_beginning(b"RINGGATE\x01\0\0\0", Whose(1)), Err(Refused::Misplaced));
        assert_eq!(check_beginning(b"RINGGATE\x02\0\0\0", Whose(0)), Err(Refused::Version(2)));
    }
}
