//! Records: what a stream is made of.
//!
//! `kind u16 | zero u16 | length u32 | bytes`. Kinds with the highest bit may be passed over by a
//! successor that does not know them; one that it does not know without that bit refuses the
//! stream. A stream begins with a magic, the version of the format, and whose it is.

use std::ops::Range;

use crate::handover::fingerprint::Fingerprints;
use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};

ringgate_core::told! {
    /// Why a hand-over cannot go on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refused;
    /// A record cannot be read.
    Broken(why: Broken, what: &'static str) = "the record of {what} cannot be read: {why}",
    /// The gate has mail or requests to give, or is in a turn.
    Busy = "the worker has not come to rest",
    /// The memory for the stream is too small.
    Full = "the memory for the state is too small",
    /// A reload has come since the stream was begun: it has to be begun anew.
    Reloaded = "a reload has come in between",
    /// The stream is another worker's.
    Misplaced = "the state is another worker's",
    /// What begins there is no stream of a gateway's.
    Stranger = "what should be the state is none",
    /// A kind of record that may not be passed over.
    Unknown(kind: u16) = "the state has records of an unknown kind, {kind}",
    /// The stream has this version of the format, which is not read here.
    Version(theirs: u16) =
        "the state is in version {theirs} of its format, and this release reads version {VERSION}",
}

/// Memory that a stream is written into, one record behind the other.
pub struct Sink<'a> {
    memory: &'a mut [u8],
    len: usize,
    /// Records that come next and were appended elsewhere already.
    skipped: usize,
    /// How many records were appended.
    appended: usize,
}

impl<'a> Sink<'a> {
    /// A stream that begins at the start of the memory.
    pub const fn new(memory: &'a mut [u8]) -> Self {
        Self::resume(memory, 0)
    }

    /// A stream of so many bytes that goes on.
    pub const fn resume(memory: &'a mut [u8], len: usize) -> Self {
        Self { memory, len, skipped: 0, appended: 0 }
    }

    /// How long the stream is.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How much memory there is, all in all.
    pub(crate) const fn room(&self) -> usize {
        self.memory.len()
    }

    /// Appends what `write` appends, but for the first `before` records. What was appended is
    /// counted there, even if there is no room for all.
    pub(crate) fn append_behind(
        &mut self,
        before: &mut usize,
        write: impl FnOnce(&mut Self) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        (self.skipped, self.appended) = (*before, 0);
        let written = write(self);
        *before += self.appended;
        self.skipped = 0;
        written
    }

    /// Copies as much of some bytes as there is room for. Returns how much that is.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.memory[self.len..];
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.len += len;
        len
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, whose: Whose) -> Result<(), Refused> {
        self.write(|out| {
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
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(());
        }
        let start = self.len;
        self.write_record(kind, body)?;
        self.appended += 1;
        debug_assert!(self.len >= start + HEAD_BYTES, "a record has a head");
        Ok(())
    }

    /// Appends a record, unless it says what the last one of its place has said. What `body` writes
    /// is compared; `complete` then fills in what follows from that and costs more to find out.
    pub(crate) fn append_changed(
        &mut self,
        kind: Kind,
        told: &mut ToldPlace<'_>,
        body: impl FnOnce(&mut Writer<'_>),
        complete: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        let start = self.len;
        let written = self.write_record(kind, body)?;
        let body = &mut self.memory[written.start + HEAD_BYTES..written.end];
        if told.is_news(body) {
            complete(body);
        } else {
            self.len = start;
        }
        Ok(())
    }

    fn write_record(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Range<usize>, Refused> {
        let start = self.len;
        let range = self.write(|out| {
            out.bytes(&[0; HEAD_BYTES]);
            body(out);
        })?;
        let len = (range.len() - HEAD_BYTES) as u32;
        let head = &mut self.memory[start..start + HEAD_BYTES];
        head[..2].copy_from_slice(&(kind as u16).to_le_bytes());
        head[4..].copy_from_slice(&len.to_le_bytes());
        Ok(range)
    }

    /// Writes at the end.
    fn write(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Result<Range<usize>, Refused> {
        let start = self.len;
        let room = self.memory.get_mut(start..).ok_or(Refused::Full)?;
        let mut out = Writer::new(room);
        write(&mut out);
        if out.is_over() {
            return Err(Refused::Full);
        }
        self.len += out.len();
        Ok(start..self.len)
    }
}

/// What was told of each place of a table: a hash of its latest record, so that nothing that was
/// written has to be kept.
#[derive(Default)]
pub(crate) struct Mirror(Vec<u64>);

/// What was told of one place.
pub(crate) struct ToldPlace<'a> {
    prints: &'a Fingerprints,
    latest: &'a mut u64,
}

impl Mirror {
    /// For so many places. Memory is taken as they are told of.
    pub(crate) fn new(places: usize) -> Self {
        Self(Vec::with_capacity(places))
    }

    /// What was told of a place.
    pub(crate) fn of<'a>(&'a mut self, place: usize, prints: &'a Fingerprints) -> ToldPlace<'a> {
        if place >= self.0.len() {
            self.0.resize(place + 1, NOTHING);
        }
        ToldPlace { prints, latest: &mut self.0[place] }
    }
}

impl ToldPlace<'_> {
    /// Has the next record written whatever it says.
    pub(crate) const fn forget(&mut self) {
        *self.latest = NOTHING;
    }

    /// Whether a record says something else than the one before. It is the latest from then on.
    fn is_news(&mut self, record: &[u8]) -> bool {
        let hash = self.prints.of(record).max(NOTHING + 1);
        std::mem::replace(self.latest, hash) != hash
    }
}

/// The hash of no record.
const NOTHING: u64 = 0;

/// Whose stream it is: a worker's, by its number, or the one of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose(pub(crate) u16);

impl Whose {
    pub(crate) const SHARED: Self = Self(u16::MAX);
}

macro_rules! kinds {
    ($(
        $(#[doc = $doc:literal])* $(#[cfg($cfg:meta)])?
        $kind:ident = $number:literal, $what:literal;
    )+) => {
        /// What a record says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(crate) enum Kind { $( $(#[doc = $doc])* $(#[cfg($cfg)])? $kind = $number ),+ }

        impl Kind {
            const fn of(number: u16) -> Option<Self> {
                match number { $( $(#[cfg($cfg)])? $number => Some(Self::$kind), )+ _ => None }
            }

            /// In a sentence.
            pub(crate) const fn what(self) -> &'static str {
                match self { $( $(#[cfg($cfg)])? Self::$kind => $what ),+ }
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
    UsedCookies = 6, "used cookies";
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
    NetcodeConnection = 28, "a player's messages";
    Link = 32, "a link";
    Backend = 33, "a backend";
    Listener = 34, "a listener";
    Steered = 35, "a forwarded address";
    Life = 36, "the worker's life";
    Counters = 37, "the counters";
    LinkMessage = 38, "a message on a link";
    ListenerMessages = 39, "a listener's messages";
    FreePlaces = 40, "free places";
    FreeAddresses = 41, "free loopback addresses";
    #[cfg(test)]
    ThirdSession = 0x7ffe, "a session of the front that tests have";
    #[cfg(test)]
    ThirdRest = 0x7fff, "the front that tests have";
    // From here on they may be passed over.
    NetcodeUserData = 0x8001, "a token's user data";
    ClosedBackend = 0x8002, "a backend that takes nobody new";
    BackendWait = 0x8003, "since when a backend is waited for";
    Room = 0x8004, "the room of tables";
    PlainProof = 0x8005, "what is known of a plain source";
    LeavingListener = 0x8006, "a listener that drains";
    NetcodeFarewell = 0x8007, "what a player is told last";
    UnrealCalled = 0x8008, "what an Unreal listener is called in cookies";
    ListenerDrops = 0x8009, "what a listener has dropped";
    Move = 0x800a, "a player who is moved";
    NetcodeFormer = 0x800b, "who wants reports of a player's messages";
    BackendMoves = 0x800c, "how many players a backend was moved";
    ClusterProcess = 0x800d, "which process of a cluster this is";
    NetcodeClustered = 0x800e, "a session that others could go on with";
    LinkArbitrates = 0x800f, "a link to an arbiter";
    NetcodeOvers = 0x8010, "sessions of whose ends their arbiters have not heard";
    NetcodeDoubt = 0x8011, "that it is asked whose sessions are";
    PlainClustered = 0x8012, "a plain session that others could go on with";
    LinkArbitratesPlain = 0x8013, "a link to an arbiter of plain players";
    /// A link whose other end delivers messages of such players.
    LinkArbitratesDelivery = 0x801b, "a link to an arbiter that delivers messages";
    PlainOvers = 0x8014, "plain sessions of whose ends their arbiters have not heard";
    PlainDoubt = 0x8015, "that it is asked whose plain sessions are";
    UnrealClustered = 0x8016, "an Unreal session that others could go on with";
    UnrealOvers = 0x8017, "Unreal sessions of whose ends their arbiters have not heard";
    NetcodeTakeover = 0x8018, "a session that its arbiter is asked for";
    PlainTakeover = 0x8019, "a plain session that its arbiter is asked for";
    Orphan = 0x801a, "a session whose owner is gone";
    NetcodeDelivered = 0x801c, "a session whose messages its agent delivers";
    UnrealDoubt = 0x801d, "that it is asked whose Unreal sessions are";
    UnrealTakeover = 0x801e, "an Unreal session that its arbiter is asked for";
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
    use crate::store::hash::HashKey;

    #[test]
    fn a_record_is_written_once_as_long_as_it_says_the_same() {
        let (prints, mut memory) = (Fingerprints::new(HashKey::new([1, 2])), [0; 100]);
        let (mut mirror, mut sink) = (Mirror::new(4), Sink::new(&mut memory));
        let mut say = |sink: &mut Sink<'_>, number: u8, is_forced: bool| {
            let mut told = mirror.of(3, &prints);
            if is_forced {
                told.forget();
            }
            let body = |out: &mut Writer<'_>| number.write(out);
            let said = sink.append_changed(Kind::Token, &mut told, body, |body| body[0] += 100);
            said.map(|()| sink.len())
        };
        assert_eq!(say(&mut sink, 7, false), Ok(9));
        assert_eq!(say(&mut sink, 7, false), Ok(9), "it was said");
        assert_eq!(say(&mut sink, 7, true), Ok(18));
        assert_eq!(say(&mut sink, 8, false), Ok(27));
        assert_eq!(sink.append(Kind::Token, |out| out.bytes(&[0; 90])), Err(Refused::Full));
        assert_eq!((sink.len(), memory[8], memory[26]), (27, 107, 108));
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
