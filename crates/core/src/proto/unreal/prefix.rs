//! What every packet begins with: `magic (0..32) | session id (2) | client id (3) | handshake bit`.
//!
//! The magic bits are a game's own and are the same in all of its packets. The ids tell an old
//! connection from the same address from a new one; they are counters, not secrets. Handshake
//! versions 0 to 2 have no ids. Which layout a game speaks cannot be read from a packet, so it is
//! told by configuration, as the magic bits are, or learned from the game's server.

use super::bits::{BitReader, BitWriter, store};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;
use crate::limits::UNREAL_BYTES_MAX;

/// The bits in front of everything (`net.MagicHeader`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Magic {
    /// Invariant: the bits from `len` upwards are zero.
    bits: u32,
    /// Invariant: at most [`MAGIC_BITS_MAX`].
    len: u8,
}

/// The longest magic.
pub const MAGIC_BITS_MAX: usize = 32;

impl Magic {
    /// No bits at all, which is the engine's default.
    pub const NONE: Self = Self { bits: 0, len: 0 };

    /// These bits in the order of the wire; `None` where there are more than 32.
    pub fn from_bits(bits: &[bool]) -> Option<Self> {
        let place = |number, (index, &bit): (usize, &bool)| number | u32::from(bit) << index;
        (bits.len() <= MAGIC_BITS_MAX)
            .then(|| Self { bits: bits.iter().enumerate().fold(0, place), len: bits.len() as u8 })
    }

    /// The bits as the engine's setting spells them: `0` and `1` in the order of the wire.
    pub fn from_text(text: &str) -> Option<Self> {
        let bit = |digit| match digit {
            b'0' => Some(false),
            b'1' => Some(true),
            _ => None,
        };
        Self::from_bits(&text.bytes().map(bit).collect::<Option<Vec<_>>>()?)
    }

    /// How many bits it has.
    #[inline]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Which connection of an address a packet belongs to. Always zero in layouts without ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ids {
    /// Invariant: below `1 << SESSION_BITS`.
    session: u8,
    /// Invariant: below `1 << CLIENT_BITS`.
    client: u8,
}

impl Ids {
    /// The ids of these numbers, cut to the bits they have: both are counters that wrap.
    #[inline]
    pub const fn new(session: u8, client: u8) -> Self {
        Self {
            session: session & ((1 << SESSION_BITS) - 1),
            client: client & ((1 << CLIENT_BITS) - 1),
        }
    }

    /// The server's number, which changes when it travels to another level and drops everybody.
    #[inline]
    pub const fn session(self) -> u8 {
        self.session
    }

    /// The client's number, which changes with each of its connections.
    #[inline]
    pub const fn client(self) -> u8 {
        self.client
    }

    /// The same client with another session number.
    #[inline]
    #[must_use]
    pub const fn with_session(self, session: u8) -> Self {
        Self::new(session, self.client)
    }
}

/// The families of packets. A packet does not say which it is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Handshake version 0: no ids, no versions, no random tail.
    Original,
    /// Versions 1 and 2, of engines without network features: no ids.
    EarlyShort,
    /// Versions 1 and 2, where version 2 also says the network features: no ids.
    Early,
    /// Version 3, of engines without network features.
    VersionedShort,
    /// Versions 3 and 4, with network features.
    #[default]
    Versioned,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Original, Self::EarlyShort, Self::Early, Self::VersionedShort, Self::Versioned];

    /// Whether packets begin with ids.
    #[inline]
    pub const fn has_ids(self) -> bool {
        matches!(self, Self::VersionedShort | Self::Versioned)
    }

    /// Whether handshake packets say their version.
    #[inline]
    pub const fn has_versions(self) -> bool {
        !matches!(self, Self::Original)
    }

    /// The layout of the same versions without network features. The original one never had any.
    #[must_use]
    pub const fn short(self) -> Self {
        match self {
            Self::Original => Self::Original,
            Self::EarlyShort | Self::Early => Self::EarlyShort,
            Self::VersionedShort | Self::Versioned => Self::VersionedShort,
        }
    }

    /// The ids of a connection; zero where there are none.
    #[inline]
    pub const fn ids(self, session: u8, client: u8) -> Ids {
        if self.has_ids() { Ids::new(session, client) } else { Ids::new(0, 0) }
    }
}

/// How the packets of a game begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// The game's magic bits.
    pub magic: Magic,
    /// Whether ids follow.
    pub layout: Layout,
}

crate::carried!(Framing { magic, layout });
crate::carried_by_number!(Layout {
    Original = 0,
    EarlyShort = 1,
    Early = 2,
    VersionedShort = 3,
    Versioned = 4,
});

crate::carried!(
    Magic { bits, len }
    if |it| usize::from(it.len) <= MAGIC_BITS_MAX && u64::from(it.bits) >> it.len == 0,
    "magic"
);

impl Carry for Ids {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { session, client } = self;
        (*session, *client).write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (session, client) = <(u8, u8)>::read(from)?;
        let ids = Self::new(session, client);
        if (ids.session, ids.client) == (session, client) {
            Ok(ids)
        } else {
            Err(Broken::Invalid("ids"))
        }
    }
}

/// The beginning of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Whose packet it claims to be.
    pub ids: Ids,
    /// Whether it belongs to the handshake or to the game.
    pub is_handshake: bool,
}

impl Framing {
    /// Bits of the prefix without the handshake bit.
    #[inline]
    pub const fn id_end(&self) -> usize {
        self.magic.len() + if self.layout.has_ids() { ID_BITS } else { 0 }
    }

    /// Bits of the prefix; what follows begins here.
    #[inline]
    pub const fn prefix_bits(&self) -> usize {
        self.id_end() + 1
    }

    /// Reads the prefix of a datagram. The reader is left behind it and ends before the (outer)
    /// termination bit.
    #[inline]
    pub fn read<'a>(&self, datagram: &'a [u8]) -> Result<(Prefix, BitReader<'a>), DropReason> {
        if datagram.is_empty() {
            return Err(DropReason::Empty);
        }
        if datagram.len() > UNREAL_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        let mut reader = BitReader::of_datagram(datagram).ok_or(DropReason::UnrealEnd)?;
        if reader.read(self.magic.len()) != Some(self.magic.bits.into()) {
            return Err(DropReason::UnrealMagic);
        }
        let prefix = self.read_behind_magic(&mut reader).ok_or(DropReason::UnrealSize)?;
        Ok((prefix, reader))
    }

    fn read_behind_magic(&self, reader: &mut BitReader<'_>) -> Option<Prefix> {
        let has_ids = self.layout.has_ids();
        let ids = if has_ids { unpack_ids(reader.read(ID_BITS)?) } else { Ids::default() };
        Some(Prefix { ids, is_handshake: reader.flag()? })
    }

    /// Writes a prefix at the start of a packet.
    ///
    /// # Panics
    /// Where the buffer is shorter than the prefix.
    pub fn write(&self, prefix: Prefix, out: &mut BitWriter<'_>) {
        out.write(self.magic.bits.into(), self.magic.len());
        if self.layout.has_ids() {
            out.write(pack_ids(prefix.ids), ID_BITS);
        }
        out.flag(prefix.is_handshake);
    }

    /// Gives a packet other ids, in place; no other bit changes. Nothing happens in layouts without
    /// ids, or where the datagram is shorter than a prefix.
    #[inline]
    pub fn rewrite_ids(&self, datagram: &mut [u8], ids: Ids) {
        if self.layout.has_ids() && 8 * datagram.len() >= self.id_end() {
            store(datagram, self.magic.len(), ID_BITS, pack_ids(ids));
        }
    }
}

#[inline]
fn pack_ids(ids: Ids) -> u64 {
    u64::from(ids.session) | u64::from(ids.client) << SESSION_BITS
}

#[inline]
fn unpack_ids(bits: u64) -> Ids {
    Ids::new(bits as u8, (bits >> SESSION_BITS) as u8)
}

const SESSION_BITS: usize = 2;
const CLIENT_BITS: usize = 3;
const ID_BITS: usize = SESSION_BITS + CLIENT_BITS;

#[cfg(test)]
mod tests;
