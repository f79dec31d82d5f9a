//! What members of a cluster say to each other of their players, and players' datagrams on their
//! way to the member that has them.
//!
//! Messages go by the stream of the two members' trunk, in order; a datagram goes by its lane and
//! may be lost. Numbers are little-endian. What is read may be hostile: a member that breaks the
//! format is refused by name, and nothing is allocated for it.

mod ear;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringgate_core::limits::{LISTENERS_MAX, UNREAL_BYTES_MAX};

use crate::number::Incarnation;
use crate::question::SessionId;
use crate::record::RECORD_BYTES_MAX;

pub use ear::Ear;

/// The version that this code speaks. Two members speak the lower one of theirs.
pub const VERSION: u8 = 5;

/// From this version on members stand by for each other's sessions.
pub const VERSION_STANDBY: u8 = 2;

/// From this version on members give sessions to each other.
pub const VERSION_OFFER: u8 = 3;

/// From this version on members stand by for sessions of plain players, too.
pub const VERSION_PLAIN: u8 = 4;

/// From this version on members stand by for sessions of Unreal players, too.
pub const VERSION_UNREAL: u8 = 5;

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The longest datagram with what is said beside it.
pub const DATAGRAM_BYTES_MAX: usize = DATAGRAM_HEADER_BYTES + UNREAL_BYTES_MAX;

/// How often a datagram is forwarded at most: to the member that is believed to have the session,
/// and from there to the one that has it.
pub const HOPS_MAX: u8 = 2;

ringgate_core::named! {
    /// Why something that a member says is not heard.
    pub enum Refused;
    /// An address that no player can have.
    Address = "address",
    /// A datagram that was forwarded too often, or never.
    Hops = "hops",
    /// A message of an unknown kind, which is not to be passed over.
    Kind = "kind",
    /// It is too short, too long, or not of whole entries.
    Length = "length",
    /// A listener that the member has not named.
    Listener = "listener",
    /// Marks of a datagram that nobody knows.
    Marks = "marks",
    /// A name that no listener can have.
    Name = "name",
    /// Something came before the member's version.
    Order = "order",
    /// A version that there is not.
    Version = "version",
}

/// What goes by the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The first: which version the member speaks at most.
    Begin {
        /// From 1 on.
        version: u8,
    },
    /// A listener of the member has this number in what it says.
    Listener {
        /// Below [`LISTENERS_MAX`].
        number: u16,
        /// The same at all members that have the listener.
        name: &'a str,
    },
    /// The member has these players, or such that begin a handshake.
    Told(Entries<'a>),
    /// It does not have these any more.
    Left(Entries<'a>),
    /// It has told of all that it has.
    AllTold,
    /// It wants to be told of all once more.
    Ask,
    /// So much of what was forwarded to it has been accepted as its players' since it said so last.
    Accepted(Entries<'a>),
    /// Which process the member is, among all that were ever in the cluster.
    Incarnation(Incarnation),
    /// The member stands by for these players, in case their owner dies.
    Stands(Entries<'a>),
    /// It does not stand by for these any more.
    StandsNot(Entries<'a>),
    /// A session of the member for which we are to stand by, or what has changed of one.
    Record {
        /// The listener's number at the member.
        listener: u16,
        /// A [`Record`](crate::Record), written.
        bytes: &'a [u8],
    },
    /// We are not to stand by for that session any more.
    Release(SessionId),
    /// We are to go on with a session of the member, for which we stand by.
    Offer(Offered),
    /// The member drains, and goes on with no session of others; or it does again.
    Leaving(bool),
    /// Whether we are there. We answer with the same number.
    Question(u32),
    /// It is there.
    Answer(u32),
    /// The member asks this process whether it is there. We do as well, at the same time: one of us
    /// may stand by for sessions whose datagrams come in at the other.
    Doubt(Incarnation),
    /// Of a later version.
    Unknown,
}

/// Players of one listener. Each has a count, which only [`Message::Accepted`] goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    /// The listener's number at who says so.
    pub listener: u16,
    /// Invariant: whole entries with possible addresses.
    bytes: &'a [u8],
    each: usize,
}

impl<'a> Entries<'a> {
    fn read(bytes: &'a [u8], each: usize) -> Result<Self, Refused> {
        let (listener, bytes) = bytes.split_first_chunk().ok_or(Refused::Length)?;
        if bytes.is_empty() || !bytes.len().is_multiple_of(each) {
            return Err(Refused::Length);
        }
        let listener = u16::from_le_bytes(*listener);
        let all = Self { listener, bytes, each };
        let are_good = all.iter().all(|(player, _)| player.port() != 0);
        if are_good { Ok(all) } else { Err(Refused::Address) }
    }

    /// Each player, and its count.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SocketAddr, u32)> + use<'a> {
        self.bytes.chunks_exact(self.each).map(|entry| {
            let (address, count) = entry.split_first_chunk().expect("an entry begins so");
            let count = count.try_into().map_or(0, u32::from_le_bytes);
            (read_address(address), count)
        })
    }
}

impl<'a> Message<'a> {
    /// Reads one.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Refused> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Refused::Length);
        }
        let (kind, body) = bytes.split_first().ok_or(Refused::Length)?;
        let bare = |message| if body.is_empty() { Ok(message) } else { Err(Refused::Length) };
        match *kind {
            kind::BEGIN => match body {
                [0] => Err(Refused::Version),
                [version, ..] => Ok(Self::Begin { version: *version }),
                [] => Err(Refused::Length),
            },
            kind::LISTENER => {
                let (number, name) = body.split_first_chunk().ok_or(Refused::Length)?;
                let number = u16::from_le_bytes(*number);
                let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
                    && name.iter().all(u8::is_ascii_graphic);
                let name = str::from_utf8(name).ok().filter(|_| is_name).ok_or(Refused::Name)?;
                let fits = usize::from(number) < LISTENERS_MAX;
                if fits { Ok(Self::Listener { number, name }) } else { Err(Refused::Listener) }
            }
            kind::TOLD => Entries::read(body, ADDRESS_BYTES).map(Self::Told),
            kind::LEFT => Entries::read(body, ADDRESS_BYTES).map(Self::Left),
            kind::ALL_TOLD => bare(Self::AllTold),
            kind::ASK => bare(Self::Ask),
            kind::ACCEPTED => Entries::read(body, COUNTED_BYTES).map(Self::Accepted),
            kind::INCARNATION => {
                whole(body).map(|it| Self::Incarnation(Incarnation(u16::from_le_bytes(it))))
            }
            kind::STANDS => Entries::read(body, ADDRESS_BYTES).map(Self::Stands),
            kind::STANDS_NOT => Entries::read(body, ADDRESS_BYTES).map(Self::StandsNot),
            kind::RECORD => {
                let (listener, bytes) = body.split_first_chunk().ok_or(Refused::Length)?;
                let fits = (1..=RECORD_BYTES_MAX).contains(&bytes.len());
                let listener = u16::from_le_bytes(*listener);
                if fits { Ok(Self::Record { listener, bytes }) } else { Err(Refused::Length) }
            }
            kind::RELEASE => whole(body).map(|it| Self::Release(SessionId(it))),
            kind::OFFER => {
                let (session, is_coming) = body.split_first_chunk().ok_or(Refused::Length)?;
                let is_coming = flag(is_coming)?;
                Ok(Self::Offer(Offered { session: SessionId(*session), is_coming }))
            }
            kind::LEAVING => flag(body).map(Self::Leaving),
            kind::QUESTION => whole(body).map(|it| Self::Question(u32::from_le_bytes(it))),
            kind::ANSWER => whole(body).map(|it| Self::Answer(u32::from_le_bytes(it))),
            kind::DOUBT => whole(body).map(|it| Self::Doubt(Incarnation(u16::from_le_bytes(it)))),
            kind::FIRST_SKIPPABLE.. => Ok(Self::Unknown),
            _ => Err(Refused::Kind),
        }
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { version } => out.extend([kind::BEGIN, *version]),
            Self::Listener { number, name } => {
                out.push(kind::LISTENER);
                out.extend(number.to_le_bytes());
                out.extend(name.as_bytes());
            }
            Self::Told(entries) => entries.write(kind::TOLD, out),
            Self::Left(entries) => entries.write(kind::LEFT, out),
            Self::AllTold => out.push(kind::ALL_TOLD),
            Self::Ask => out.push(kind::ASK),
            Self::Accepted(entries) => entries.write(kind::ACCEPTED, out),
            Self::Incarnation(Incarnation(it)) => put(out, kind::INCARNATION, &it.to_le_bytes()),
            Self::Stands(entries) => entries.write(kind::STANDS, out),
            Self::StandsNot(entries) => entries.write(kind::STANDS_NOT, out),
            Self::Record { listener, bytes } => {
                put(out, kind::RECORD, &listener.to_le_bytes());
                out.extend(*bytes);
            }
            Self::Release(SessionId(it)) => put(out, kind::RELEASE, it),
            Self::Offer(Offered { session: SessionId(it), is_coming }) => {
                put(out, kind::OFFER, it);
                out.push((*is_coming).into());
            }
            Self::Leaving(it) => put(out, kind::LEAVING, &[(*it).into()]),
            Self::Question(it) => put(out, kind::QUESTION, &it.to_le_bytes()),
            Self::Answer(it) => put(out, kind::ANSWER, &it.to_le_bytes()),
            Self::Doubt(Incarnation(it)) => put(out, kind::DOUBT, &it.to_le_bytes()),
            Self::Unknown => out.push(kind::FIRST_SKIPPABLE),
        }
    }
}

/// A session that its owner gives away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Which.
    pub session: SessionId,
    /// Its player's datagrams come in there by now: the next shows which worker is to have it.
    pub is_coming: bool,
}

impl Entries<'_> {
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend(self.listener.to_le_bytes());
        out.extend(self.bytes);
    }
}

/// What is to be said of players, in the order in which it happened: messages as long as may be.
#[derive(Debug, Default)]
pub struct Draft {
    /// The last message, which may become longer.
    open: Vec<u8>,
    whole: Vec<Vec<u8>>,
}

impl Draft {
    /// Something else.
    pub fn message(&mut self, message: &Message<'_>) {
        self.close();
        message.write(&mut self.open);
        self.close();
    }

    /// A player of a listener is here, or is not any more.
    pub fn player(&mut self, listener: u16, player: &SocketAddr, is_here: bool) {
        let kind = if is_here { kind::TOLD } else { kind::LEFT };
        self.entry(kind, listener, player, &[]);
    }

    /// We stand by for a player of a listener, or do not any more.
    pub fn stands(&mut self, listener: u16, player: &SocketAddr, stands_by: bool) {
        let kind = if stands_by { kind::STANDS } else { kind::STANDS_NOT };
        self.entry(kind, listener, player, &[]);
    }

    /// So much that was forwarded was accepted as a player's.
    pub fn accepted(&mut self, listener: u16, player: &SocketAddr, count: u32) {
        self.entry(kind::ACCEPTED, listener, player, &count.to_le_bytes());
    }

    fn entry(&mut self, kind: u8, listener: u16, player: &SocketAddr, count: &[u8]) {
        let [low, high] = listener.to_le_bytes();
        let head = [kind, low, high];
        let has_room = self.open.len() + ADDRESS_BYTES + count.len() <= MESSAGE_BYTES_MAX;
        if !(self.open.starts_with(&head) && has_room) {
            self.close();
            self.open.extend(head);
        }
        self.open.extend(address_bytes(player));
        self.open.extend(count);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.whole.push(std::mem::take(&mut self.open));
        }
    }

    /// All messages.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.close();
        std::mem::take(&mut self.whole)
    }
}

/// A player's datagram that came to another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The number of the listener at who forwards it.
    pub listener: u16,
    /// Whose it is.
    pub player: SocketAddr,
    /// The address of the listener that it came to.
    pub to: SocketAddr,
    /// It comes from an unknown port, and may belong to a session of that address.
    pub is_lost: bool,
    /// How often it was forwarded, this time included.
    pub hops: u8,
    /// As the player has sent it.
    pub bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads one.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Refused> {
        let (header, bytes) =
            bytes.split_first_chunk::<DATAGRAM_HEADER_BYTES>().ok_or(Refused::Length)?;
        let [marks, hops, low, high, ..] = *header;
        let at = |from| {
            read_address(header[from..].first_chunk().expect("both addresses are in the header"))
        };
        let (player, to) = (at(PLAYER_AT), at(TO_AT));
        let listener = u16::from_le_bytes([low, high]);
        if marks & !LOST != 0 {
            return Err(Refused::Marks);
        }
        if !(1..=HOPS_MAX).contains(&hops) {
            return Err(Refused::Hops);
        }
        if player.port() == 0 || to.port() == 0 {
            return Err(Refused::Address);
        }
        if bytes.is_empty() || bytes.len() > UNREAL_BYTES_MAX {
            return Err(Refused::Length);
        }
        Ok(Self { listener, player, to, is_lost: marks & LOST != 0, hops, bytes })
    }

    /// Writes it, and says how long it is.
    pub fn write_to(&self, out: &mut [u8; DATAGRAM_BYTES_MAX]) -> usize {
        let (header, rest) = out.split_at_mut(DATAGRAM_HEADER_BYTES);
        let [low, high] = self.listener.to_le_bytes();
        header[..PLAYER_AT].copy_from_slice(&[u8::from(self.is_lost), self.hops, low, high]);
        header[PLAYER_AT..TO_AT].copy_from_slice(&address_bytes(&self.player));
        header[TO_AT..].copy_from_slice(&address_bytes(&self.to));
        rest[..self.bytes.len()].copy_from_slice(self.bytes);
        DATAGRAM_HEADER_BYTES + self.bytes.len()
    }
}

/// A body of a length that its kind has.
fn whole<const BYTES: usize>(body: &[u8]) -> Result<[u8; BYTES], Refused> {
    body.try_into().map_err(|_| Refused::Length)
}

fn flag(body: &[u8]) -> Result<bool, Refused> {
    match whole(body)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [_] => Err(Refused::Marks),
    }
}

fn put(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend(body);
}

/// An IP address, IPv4 mapped, and a port. What only one host understands of it is left out.
fn address_bytes(address: &SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..IP_BYTES].copy_from_slice(&ip.octets());
    bytes[IP_BYTES..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

fn read_address(bytes: &[u8; ADDRESS_BYTES]) -> SocketAddr {
    let (ip, port) = bytes.split_first_chunk::<IP_BYTES>().expect("an address begins so");
    let port = u16::from_le_bytes([port[0], port[1]]);
    SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port)
}

/// What each message begins with.
mod kind {
    pub(super) const BEGIN: u8 = 1;
    pub(super) const LISTENER: u8 = 2;
    pub(super) const TOLD: u8 = 3;
    pub(super) const LEFT: u8 = 4;
    pub(super) const ALL_TOLD: u8 = 5;
    pub(super) const ASK: u8 = 6;
    pub(super) const ACCEPTED: u8 = 7;
    pub(super) const INCARNATION: u8 = 8;
    pub(super) const STANDS: u8 = 9;
    pub(super) const STANDS_NOT: u8 = 10;
    pub(super) const RECORD: u8 = 11;
    pub(super) const RELEASE: u8 = 12;
    pub(super) const QUESTION: u8 = 13;
    pub(super) const ANSWER: u8 = 14;
    pub(super) const OFFER: u8 = 15;
    pub(super) const LEAVING: u8 = 16;
    pub(super) const FIRST_SKIPPABLE: u8 = 128;
    pub(super) const DOUBT: u8 = 129;
}

const LOST: u8 = 1;
const IP_BYTES: usize = 16;
const ADDRESS_BYTES: usize = IP_BYTES + 2;
const COUNTED_BYTES: usize = ADDRESS_BYTES + 4;
const PLAYER_AT: usize = 4;
const TO_AT: usize = PLAYER_AT + ADDRESS_BYTES;
const DATAGRAM_HEADER_BYTES: usize = TO_AT + ADDRESS_BYTES;
/// As in the config.
const NAME_BYTES_MAX: usize = 32;
