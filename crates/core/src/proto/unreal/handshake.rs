//! Handshake packets: all seven types, in every layout.
//!
//! ```text
//! original    prefix | restart 1 | body
//! randomized  prefix | restart 1 | says | body | tail
//! short       prefix | restart 1 | says | network version 32 | body | tail
//! long        prefix | restart 1 | says | network version 32 | features 16 | body | tail
//!
//! says        min 8 | current 8 | type 8 | count 8
//! body        none, or: secret id 1 | timestamp 64 | cookie 160
//!             and in restart responses: original cookie 160
//! ```
//!
//! Version 0 is original and version 1 randomized; 2 and 3 are short or long, as the engine was
//! built, and 4 is long. Short and long packets look alike, so a [`Layout`] says which of them a
//! game sends; the rest follows from the current version.
//!
//! [`SIZES`] says how long each type is, and encoder, decoder and tests go by it. The tail is 8 to
//! 16 random bytes, so that packets of one type differ in length; readers pass over it. Initial
//! connects are as long as the challenge they provoke: their body is all zero, which is checked, so
//! no sender gets more bytes out of a server than it put in.
//!
//! In the original shape nothing names the type: the length tells those with other bodies apart,
//! and the timestamp the rest (zero: initial; above: challenge or response, depending on who reads;
//! -1: acknowledgement).
//!
//! No field is judged here that is a matter of policy: versions, network version and ids are for
//! [`front`](super::front) and [`client`](super::client).

use super::bits::{BitReader, BitWriter};
use super::cookie::{COOKIE_BYTES, Cookie, Proof, SecretId, Timestamp};
use super::prefix::{Framing, Ids, Layout, Prefix};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;

/// The types, by their number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Client: let me in, or back in.
    Initial = 0,
    /// Server: prove that you receive at your address.
    Challenge = 1,
    /// Client: the challenge, echoed.
    Response = 2,
    /// Server: you are in.
    Ack = 3,
    /// Server: I do not know your address; if we have met, say so.
    RestartRequest = 4,
    /// Client: the challenge, echoed from a new address, and the cookie I came in with.
    RestartResponse = 5,
    /// Server: I do not speak your version.
    VersionUpgrade = 6,
}

/// Which fields all packets of a version have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// None, and no tail.
    Original,
    /// Versions, type and counter.
    Randomized,
    /// And the network version.
    Short,
    /// And the network features.
    Long,
}

impl Shape {
    /// The shape of packets that say they are of that version.
    #[inline]
    pub const fn of(layout: Layout, version: u8) -> Self {
        match layout {
            Layout::Original => Self::Original,
            Layout::EarlyShort | Layout::Early if version < BUILD_VERSION => Self::Randomized,
            Layout::EarlyShort | Layout::VersionedShort => Self::Short,
            Layout::Early | Layout::Versioned => Self::Long,
        }
    }

    /// Whether packets say which build of the game sent them.
    #[inline]
    pub const fn has_build(self) -> bool {
        matches!(self, Self::Short | Self::Long)
    }
}

/// The first handshake version that says the game's build.
const BUILD_VERSION: u8 = 2;

/// How long the packets of a type are: bits from the handshake bit to the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The type.
    pub kind: Kind,
    /// In each [`Shape`], in their order; `None` where there is no such type.
    pub bits: [Option<u16>; 4],
}

/// The sizes of all types, in the order of their numbers.
pub const SIZES: [Size; 7] = [
    Size { kind: Kind::Initial, bits: CHALLENGE_BITS },
    Size { kind: Kind::Challenge, bits: CHALLENGE_BITS },
    Size { kind: Kind::Response, bits: CHALLENGE_BITS },
    Size { kind: Kind::Ack, bits: CHALLENGE_BITS },
    Size { kind: Kind::RestartRequest, bits: [Some(2), Some(34), Some(66), Some(82)] },
    Size { kind: Kind::RestartResponse, bits: [Some(387), Some(419), Some(451), Some(467)] },
    Size { kind: Kind::VersionUpgrade, bits: [None, None, Some(66), Some(82)] },
];

const CHALLENGE_BITS: [Option<u16>; 4] = [Some(227), Some(259), Some(291), Some(307)];

/// The shortest tail. The original shape has none.
pub const TAIL_BYTES_MIN: usize = 8;

/// The longest tail.
pub const TAIL_BYTES_MAX: usize = 16;

/// The longest handshake packet: a restart response with all 32 magic bits and the longest tail.
pub const HANDSHAKE_BYTES_MAX: usize = 80;

impl Kind {
    /// The type with this number.
    #[inline]
    pub fn of_number(number: u8) -> Option<Self> {
        SIZES.get(usize::from(number)).map(|size| size.kind)
    }

    /// Whether that side takes in packets of this type at all.
    #[inline]
    pub const fn is_for(self, receiver: Receiver) -> bool {
        let is_from_client = matches!(self, Self::Initial | Self::Response | Self::RestartResponse);
        matches!(receiver, Receiver::Server) == is_from_client
    }

    /// Bits up to the end of the body, magic and ids included; `None` where that version has no
    /// such type.
    #[inline]
    pub fn body_end(self, framing: &Framing, version: u8) -> Option<usize> {
        let shape = Shape::of(framing.layout, version);
        let bits = SIZES[self as usize].bits[shape as usize]?;
        Some(framing.id_end() + usize::from(bits))
    }

    /// Bytes of a packet with a tail of that length, which counts for nothing in the original
    /// layout.
    pub fn packet_bytes(self, framing: &Framing, version: u8, tail_bytes: usize) -> Option<usize> {
        let tail_bits = if framing.layout.has_versions() { 8 * tail_bytes } else { 0 };
        Some((self.body_end(framing, version)? + tail_bits + 1).div_ceil(8))
    }

    /// The longest tail with which a packet has at most that many bytes; `None` where not even the
    /// shortest one fits.
    pub fn tail_room(self, framing: &Framing, version: u8, bytes_max: usize) -> Option<usize> {
        let fits = |tail: &usize| {
            self.packet_bytes(framing, version, *tail).is_some_and(|bytes| bytes <= bytes_max)
        };
        (TAIL_BYTES_MIN..=TAIL_BYTES_MAX).rev().find(fits)
    }

    /// Whether the restart bit is set, where it does not depend on the occasion.
    const fn is_restart(self) -> bool {
        matches!(self, Self::RestartRequest | Self::RestartResponse)
    }
}

/// Who receives a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The client: takes challenge, ack, restart request, version upgrade.
    Client,
    /// The server: takes initial, response, restart response.
    Server,
}

/// The fields that packets of all types have. Zero where the version does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The oldest handshake version that the sender speaks.
    pub version_min: u8,
    /// The version that this packet is in.
    pub version: u8,
    /// Which handshake packet of the client's this is; a server repeats the client's number. For
    /// people who debug.
    pub sent_count: u8,
    /// A checksum of the game's build.
    pub network_version: u32,
    /// What the build was made with (bit 0 Iris, bit 1 remote object references).
    pub network_features: u16,
}

/// What a handshake packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// See [`Kind::Initial`].
    Initial {
        /// Whether the client was in before.
        is_restart: bool,
    },
    /// See [`Kind::Challenge`].
    Challenge(Proof),
    /// See [`Kind::Response`].
    Response(Proof),
    /// See [`Kind::Ack`]. The cookie names the connection from now on, and both sides take their
    /// sequences from it.
    Ack(Cookie),
    /// See [`Kind::RestartRequest`].
    RestartRequest,
    /// See [`Kind::RestartResponse`].
    RestartResponse {
        /// The challenge, answered from the new address.
        proof: Proof,
        /// The cookie of the connection that is to continue.
        original: Cookie,
    },
    /// See [`Kind::VersionUpgrade`].
    VersionUpgrade,
}

impl Body {
    /// The type of packet that says it.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Initial { .. } => Kind::Initial,
            Self::Challenge(_) => Kind::Challenge,
            Self::Response(_) => Kind::Response,
            Self::Ack(_) => Kind::Ack,
            Self::RestartRequest => Kind::RestartRequest,
            Self::RestartResponse { .. } => Kind::RestartResponse,
            Self::VersionUpgrade => Kind::VersionUpgrade,
        }
    }
}

/// A handshake packet without its magic and its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Whose packet it is.
    pub ids: Ids,
    /// What all types say.
    pub base: Base,
    /// What this one says.
    pub body: Body,
}

crate::carried!(Handshake { ids, base, body });
crate::carried!(Base { version_min, version, sent_count, network_version, network_features });

impl Carry for Body {
    fn write(&self, out: &mut Writer<'_>) {
        (self.kind() as u8).write(out);
        match self {
            Self::Initial { is_restart } => is_restart.write(out),
            Self::Challenge(proof) | Self::Response(proof) => proof.write(out),
            Self::Ack(cookie) => cookie.write(out),
            Self::RestartResponse { proof, original } => {
                proof.write(out);
                original.write(out);
            }
            Self::RestartRequest | Self::VersionUpgrade => {}
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let kind = Kind::of_number(u8::read(from)?).ok_or(Broken::Invalid("handshake"))?;
        Ok(match kind {
            Kind::Initial => Self::Initial { is_restart: bool::read(from)? },
            Kind::Challenge => Self::Challenge(Proof::read(from)?),
            Kind::Response => Self::Response(Proof::read(from)?),
            Kind::Ack => Self::Ack(Cookie::read(from)?),
            Kind::RestartRequest => Self::RestartRequest,
            Kind::RestartResponse => {
                Self::RestartResponse { proof: Proof::read(from)?, original: Cookie::read(from)? }
            }
            Kind::VersionUpgrade => Self::VersionUpgrade,
        })
    }
}

impl Handshake {
    /// Reads what follows the prefix of a handshake packet.
    ///
    /// The checks run in this order: size, type, size for the type, filler.
    pub fn decode(
        framing: &Framing,
        prefix: Prefix,
        mut reader: BitReader<'_>,
        receiver: Receiver,
    ) -> Result<Self, DropReason> {
        let bits = reader.position() + reader.remaining();
        let is_restart = reader.flag().ok_or(DropReason::UnrealSize)?;
        let (base, kind) = if framing.layout.has_versions() {
            let read = read_base(framing.layout, &mut reader);
            let (base, number) = read.ok_or(DropReason::UnrealSize)?;
            (base, Kind::of_number(number).ok_or(DropReason::UnrealType)?)
        } else {
            let kind = original_kind(framing, bits, is_restart, reader, receiver)?;
            (Base::default(), kind)
        };
        if !kind.is_for(receiver) {
            return Err(DropReason::UnrealType);
        }
        let body_end = kind.body_end(framing, base.version).ok_or(DropReason::UnrealType)?;
        if !bits.checked_sub(body_end).is_some_and(|tail| is_tail(framing.layout, tail)) {
            return Err(DropReason::UnrealSize);
        }
        let body = read_body(kind, is_restart, &mut reader).ok_or(DropReason::UnrealSize)??;
        debug_assert_eq!(reader.position(), body_end, "the table and the reader agree");
        Ok(Self { ids: prefix.ids, base, body })
    }

    /// Writes the packet with a random tail (which the original layout has not) and returns its
    /// length.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`HANDSHAKE_BYTES_MAX`], or where the version has no packet
    /// of this type.
    pub fn encode(&self, framing: &Framing, tail: &Tail, out: &mut [u8]) -> usize {
        let kind = self.body.kind();
        let body_end = kind
            .body_end(framing, self.base.version)
            .expect("an upgrade is sent by those who speak of builds");
        let mut out = BitWriter::new(&mut out[..HANDSHAKE_BYTES_MAX]);
        framing.write(Prefix { ids: self.ids, is_handshake: true }, &mut out);
        out.flag(matches!(self.body, Body::Initial { is_restart: true }) || kind.is_restart());
        write_base(&self.base, Shape::of(framing.layout, self.base.version), kind, &mut out);
        write_body(&self.body, &mut out);
        debug_assert_eq!(out.position(), body_end, "the table and the writer agree");
        if framing.layout.has_versions() {
            out.bytes(tail.bytes());
        }
        out.finish(1)
    }
}

/// The random bytes at the end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    bytes: [u8; TAIL_BYTES_MAX],
    /// Invariant: from [`TAIL_BYTES_MIN`] to [`TAIL_BYTES_MAX`].
    len: u8,
}

impl Tail {
    /// A tail of random bytes and of random length.
    pub fn draw(random: &[u8; TAIL_BYTES_MAX + 1]) -> Self {
        let [length, bytes @ ..] = *random;
        let spread = (TAIL_BYTES_MAX - TAIL_BYTES_MIN + 1) as u8;
        Self { bytes, len: TAIL_BYTES_MIN as u8 + length % spread }
    }

    /// The same bytes, but not more of them than `len` (nor fewer than a tail needs).
    #[must_use]
    pub fn at_most(self, len: usize) -> Self {
        let len_max = len.clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX) as u8;
        Self { len: self.len.min(len_max), ..self }
    }

    /// The same bytes, and exactly so many of them, as far as a tail may have.
    #[must_use]
    pub fn with_len(self, len: usize) -> Self {
        Self { len: len.clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX) as u8, ..self }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Whether a packet may have that many bits behind its body. Engines take any number of bits in the
/// range.
const fn is_tail(layout: Layout, bits: usize) -> bool {
    if layout.has_versions() {
        bits >= 8 * TAIL_BYTES_MIN && bits <= 8 * TAIL_BYTES_MAX
    } else {
        bits == 0
    }
}

/// Tells the types of the original layout apart; the reader is at the body.
fn original_kind(
    framing: &Framing,
    bits: usize,
    is_restart: bool,
    mut reader: BitReader<'_>,
    receiver: Receiver,
) -> Result<Kind, DropReason> {
    let ends_like = |kind: Kind| kind.body_end(framing, 0) == Some(bits);
    if ends_like(Kind::RestartRequest) && is_restart {
        return Ok(Kind::RestartRequest);
    }
    if ends_like(Kind::RestartResponse) {
        return Ok(Kind::RestartResponse);
    }
    if !ends_like(Kind::Initial) {
        return Err(DropReason::UnrealSize);
    }
    let proof = read_proof(&mut reader).ok_or(DropReason::UnrealSize)?;
    Ok(match receiver {
        Receiver::Client if proof.timestamp.seconds() > 0.0 => Kind::Challenge,
        Receiver::Client => Kind::Ack,
        Receiver::Server if proof.timestamp == Timestamp::ZERO => Kind::Initial,
        Receiver::Server => Kind::Response,
    })
}

/// The common fields, and the number of the type.
fn read_base(layout: Layout, reader: &mut BitReader<'_>) -> Option<(Base, u8)> {
    let (version_min, version) = (reader.byte()?, reader.byte()?);
    let (number, sent_count) = (reader.byte()?, reader.byte()?);
    let mut base = Base { version_min, version, sent_count, ..Base::default() };
    let shape = Shape::of(layout, version);
    if shape.has_build() {
        base.network_version = reader.read(32)? as u32;
    }
    if shape == Shape::Long {
        base.network_features = reader.read(16)? as u16;
    }
    Some((base, number))
}

fn write_base(base: &Base, shape: Shape, kind: Kind, out: &mut BitWriter<'_>) {
    if shape == Shape::Original {
        return;
    }
    out.bytes(&[base.version_min, base.version, kind as u8, base.sent_count]);
    if shape.has_build() {
        out.write(base.network_version.into(), 32);
    }
    if shape == Shape::Long {
        out.write(base.network_features.into(), 16);
    }
}

/// `None` where the packet ends too early.
fn read_body(
    kind: Kind,
    is_restart: bool,
    reader: &mut BitReader<'_>,
) -> Option<Result<Body, DropReason>> {
    Some(Ok(match kind {
        Kind::Initial if read_proof(reader)? == FILLER => Body::Initial { is_restart },
        Kind::Initial => return Some(Err(DropReason::UnrealFiller)),
        Kind::Challenge => Body::Challenge(read_proof(reader)?),
        Kind::Response => Body::Response(read_proof(reader)?),
        Kind::Ack => Body::Ack(read_proof(reader)?.cookie),
        Kind::RestartRequest => Body::RestartRequest,
        Kind::RestartResponse => {
            Body::RestartResponse { proof: read_proof(reader)?, original: read_cookie(reader)? }
        }
        Kind::VersionUpgrade => Body::VersionUpgrade,
    }))
}

fn write_body(body: &Body, out: &mut BitWriter<'_>) {
    match body {
        Body::Initial { .. } => write_proof(&FILLER, out),
        Body::Challenge(proof) | Body::Response(proof) => write_proof(proof, out),
        Body::Ack(cookie) => {
            // The secret id says nothing here; the engine sets it.
            let secret_id = SecretId::from_bit(true);
            write_proof(&Proof { secret_id, timestamp: Timestamp::ACK, cookie: *cookie }, out);
        }
        Body::RestartResponse { proof, original } => {
            write_proof(proof, out);
            out.bytes(&original.0);
        }
        Body::RestartRequest | Body::VersionUpgrade => {}
    }
}

fn read_proof(reader: &mut BitReader<'_>) -> Option<Proof> {
    let secret_id = SecretId::from_bit(reader.flag()?);
    let timestamp = Timestamp::from_wire(reader.read(64)?);
    Some(Proof { secret_id, timestamp, cookie: read_cookie(reader)? })
}

fn write_proof(proof: &Proof, out: &mut BitWriter<'_>) {
    out.flag(proof.secret_id.bit());
    out.write(proof.timestamp.to_wire(), 64);
    out.bytes(&proof.cookie.0);
}

fn read_cookie(reader: &mut BitReader<'_>) -> Option<Cookie> {
    reader.array::<COOKIE_BYTES>().map(Cookie)
}

/// The body of an initial connect.
const FILLER: Proof = Proof {
    secret_id: SecretId::from_bit(false),
    timestamp: Timestamp::ZERO,
    cookie: Cookie::ZERO,
};

#[cfg(test)]
mod tests;
