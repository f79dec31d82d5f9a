//! What fields of a listener may be: the words of its protocols, and what they mean.

use std::fmt;
use std::ops::RangeInclusive;

use super::listener::{Netcode, Plain, Unreal};
use super::values::Word;
use ringgate_gate::Front;

/// How a new player's backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By a hash of the client id (of the address, on Unreal and plain listeners).
    Hash,
    /// The backend with the fewest players.
    LeastPlayers,
    /// The only backend there is.
    Single,
    /// The backend that the datagram's token stands for. Invariant: plain only, and there are a
    /// token and tokens.
    Token,
    /// The backend named in the first 32 bytes of the token's user data. Invariant: netcode only.
    UserData,
}

impl Word for Route {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("single", Self::Single),
        ("user-data", Self::UserData),
        ("token", Self::Token),
        ("hash", Self::Hash),
        ("least-players", Self::LeastPlayers),
    ];
}

/// What happens when a player's packets come from another port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortSwitch {
    /// The session follows, once a packet from there has proved itself.
    Follow,
    /// The packets are dropped: where nothing could prove that it is the same player, too.
    #[default]
    Ignore,
}

impl Word for PortSwitch {
    const WORDS: &'static [(&'static str, Self)] =
        &[("follow", Self::Follow), ("ignore", Self::Ignore)];
}

/// What becomes of a connect token whose player comes again with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReuse {
    /// It opens another session.
    Allow,
    /// It is denied, once a session of the token has taken anything in from its player.
    Deny,
}

impl Word for TokenReuse {
    const WORDS: &'static [(&'static str, Self)] = &[("deny", Self::Deny), ("allow", Self::Allow)];
}

/// Who makes messages of what players send, and acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The game, if it wants to: payloads arrive or do not.
    None,
    /// The gateway: game processes get whole messages, and are told what arrived.
    Gateway,
}

impl Word for Delivery {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("gateway", Self::Gateway)];
}

/// Where nobody else may have a player's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueClients {
    /// At this gateway's listener: a second login waits until the first session is silent.
    Gateway,
    /// At all listeners of the fleet with its group: the newer login wins.
    Fleet,
    /// At this gateway's listener: the newer login wins.
    Newest,
}

impl Word for UniqueClients {
    const WORDS: &'static [(&'static str, Self)] =
        &[("gateway", Self::Gateway), ("fleet", Self::Fleet), ("newest", Self::Newest)];
}

/// What a listener speaks, with the fields that only this protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// netcode 1.02.
    Netcode(Netcode),
    /// Unreal Engine's UDP protocol.
    Unreal(Unreal),
    /// Anything else over UDP.
    Plain(Plain),
}

impl Protocol {
    /// Which of them it is.
    pub const fn front(&self) -> Front {
        match self {
            Self::Netcode(_) => Front::Netcode,
            Self::Unreal(_) => Front::Unreal,
            Self::Plain(_) => Front::Plain,
        }
    }
}

/// Which Unreal handshakes are served. The packets of the three kinds begin differently, so a
/// listener serves one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeVersions {
    /// The layout without a version number, and without session and client ids.
    Original,
    /// Versions without session and client ids. Invariant: within 1 to 2.
    Early(RangeInclusive<u8>),
    /// Versions with both. Invariant: within 3 to 4.
    Versioned(RangeInclusive<u8>),
}

/// Whether the handshake packets of versions 2 to 4 say the network features, which depends on the
/// engine's build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeBase {
    /// As the server behind the listener does.
    Auto,
    /// They do: 82 bits before the body.
    Long,
    /// They do not: 66 bits.
    Short,
}

impl Word for HandshakeBase {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("short", Self::Short), ("long", Self::Long)];
}

/// Whether the packets of an Unreal game can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnrealMode {
    /// The notify header is in the clear: duplicates are found by sequence.
    Notify,
    /// Game packets are encrypted: only exact copies are found.
    Opaque,
}

impl Word for UnrealMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("notify", Self::Notify), ("opaque", Self::Opaque)];
}

/// Which builds of an Unreal game may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkVersions {
    /// All of them; the server judges.
    Any,
    /// Those with one of these checksums.
    Only(Vec<u32>),
}

/// Where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// At a datagram's end.
    End,
    /// At its start.
    Start,
}

impl Word for TokenPlace {
    const WORDS: &'static [(&'static str, Self)] = &[("end", Self::End), ("start", Self::Start)];
}

/// Tokens, each with an index into [`Config::backends`](super::Config::backends).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RoutingTokens(pub Vec<(Box<[u8]>, usize)>);

/// Whoever knows a token reaches a server by it: only their number is told.
impl fmt::Debug for RoutingTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOrder {
    /// The highest.
    Big,
    /// The lowest.
    Little,
}

impl Word for NumberOrder {
    const WORDS: &'static [(&'static str, Self)] = &[("big", Self::Big), ("little", Self::Little)];
}

/// Whose numbers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedWays {
    /// Those of players.
    Up,
    /// Those of players and game servers.
    Both,
}

impl Word for GuardedWays {
    const WORDS: &'static [(&'static str, Self)] = &[("up", Self::Up), ("both", Self::Both)];
}

/// How a listener's packets come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerIo {
    /// By sockets, with the gateway's driver.
    Sockets,
    /// Past them, in frames of a network interface.
    Xdp,
}

impl Word for ListenerIo {
    const WORDS: &'static [(&'static str, Self)] =
        &[("sockets", Self::Sockets), ("xdp", Self::Xdp)];
}

/// How frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// As well as the interface can.
    Auto,
    /// The card reads and writes the gateway's memory.
    ZeroCopy,
    /// The driver runs the program, the kernel copies.
    Copy,
    /// The kernel runs the program itself, and copies.
    Generic,
}

impl Word for XdpMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("zerocopy", Self::ZeroCopy),
        ("copy", Self::Copy),
        ("generic", Self::Generic),
    ];
}
