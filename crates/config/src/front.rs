//! What fields of a listener may be: the words of its protocols, and what they mean.

use std::fmt;
use std::ops::RangeInclusive;

use super::listener::{Netcode, Plain, Unreal};
use super::values::{Word, paired, worded};
pub use ringgate_core::proto::plain::Order as NumberOrder;
use ringgate_gate::Front;
pub use ringgate_gate::{Route, TokenPlace, TokenReuse};
pub use ringgate_io::CardMode as XdpMode;

impl Word for Route {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("single", Self::Single),
        ("user-data", Self::UserData),
        ("token", Self::Token),
        ("hash", Self::Hash),
        ("least-players", Self::LeastPlayers),
    ];
}

worded! {
    /// What happens when a player's packets come from another port.
    #[derive(Default)]
    pub enum PortSwitch {
        /// The session follows, once a packet from there has proved itself.
        Follow = "follow",
        /// The packets are dropped: where nothing could prove that it is the same player, too.
        #[default]
        Ignore = "ignore",
    }

    /// Who makes messages of what players send, and acknowledges it.
    pub enum Delivery {
        /// The game, if it wants to: payloads arrive or do not.
        None = "none",
        /// The gateway: game processes get whole messages, and are told what arrived.
        Gateway = "gateway",
    }

    /// Where nobody else may have a player's id.
    pub enum UniqueClients {
        /// At this gateway's listener: a second login waits until the first session is silent.
        Gateway = "gateway",
        /// At all listeners of the fleet with its group: the newer login wins.
        Fleet = "fleet",
        /// At this gateway's listener: the newer login wins.
        Newest = "newest",
    }

    /// Whether the handshake packets of versions 2 to 4 say the network features, which depends on
    /// the engine's build.
    pub enum HandshakeBase {
        /// As the server behind the listener does.
        Auto = "auto",
        /// They do not: 66 bits.
        Short = "short",
        /// They do: 82 bits before the body.
        Long = "long",
    }

    /// Whether the packets of an Unreal game can be read.
    pub enum UnrealMode {
        /// The notify header is in the clear: duplicates are found by sequence.
        Notify = "notify",
        /// Game packets are encrypted: only exact copies are found.
        Opaque = "opaque",
    }

    /// Whose numbers are looked at.
    pub enum GuardedWays {
        /// Those of players.
        Up = "up",
        /// Those of players and game servers.
        Both = "both",
    }

    /// How a listener's packets come and go.
    pub enum ListenerIo {
        /// By sockets, with the gateway's driver.
        Sockets = "sockets",
        /// Past them, in frames of a network interface.
        Xdp = "xdp",
    }
}

impl Word for TokenReuse {
    const WORDS: &'static [(&'static str, Self)] = &[("deny", Self::Deny), ("allow", Self::Allow)];
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

/// Which builds of an Unreal game may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkVersions {
    /// All of them; the server judges.
    Any,
    /// Those with one of these checksums.
    Only(Vec<u32>),
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

impl Word for NumberOrder {
    const WORDS: &'static [(&'static str, Self)] = &[("big", Self::Big), ("little", Self::Little)];
}

impl Word for XdpMode {
    const WORDS: &'static [(&'static str, Self)] = &paired(Self::NAMES, Self::ALL);
}
