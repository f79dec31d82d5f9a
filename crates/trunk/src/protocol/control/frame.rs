//! The frames of a trunk's stream, decoded, and why a trunk ends.

use std::fmt;

use ringgate_link::bundle::Frame;

/// The lowest version that this code speaks.
pub const VERSION_MIN: u16 = 1;

/// The highest version that this code speaks.
pub const VERSION_MAX: u16 = 1;

/// What both sides call this protocol in TLS (ALPN).
pub const ALPN: &[u8] = b"ringgate-trunk";

/// The same between the gateways of a cluster: who speaks the one is never heard as the other.
pub const PEER_ALPN: &[u8] = b"ringgate-cluster";

/// How often each side says something on the stream.
pub const BEAT_NS: u64 = 1_000_000_000;

/// Bytes before a frame's body: length, kind, lane.
pub(super) const HEADER_BYTES: usize = 4;

/// The longest frame: a record of the longest bundle, and what it is on.
pub(super) const FRAME_BYTES_MAX: usize =
    HEADER_BYTES + 2 + ringgate_link::bundle::BUNDLE_BYTES_MAX;

pub(super) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WELCOME: u8 = 2;
    pub(crate) const REFUSED: u8 = 3;
    pub(crate) const RECORD: u8 = 4;
    pub(crate) const ENDED: u8 = 5;
    pub(crate) const BEAT: u8 = 6;
    pub(crate) const GOODBYE: u8 = 7;
    pub(crate) const FIRST_SKIPPABLE: u8 = 128;
    pub(crate) const MESSAGE: u8 = 128;
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// From the agent, first.
    Hello {
        /// The lowest version that it speaks.
        version_min: u16,
        /// The highest.
        version_max: u16,
        /// Its name: one that its certificate has.
        name: &'a str,
    },
    /// From the gateway, first.
    Welcome(Welcome),
    /// From the gateway instead: the trunk ends here.
    Refused(Reason),
    /// A record that must arrive.
    Record {
        /// The worker.
        lane: u8,
        /// The link: the agent's choice.
        link: u16,
        /// Of the bundle format, unchanged.
        frame: Frame<'a>,
    },
    /// A link is over; nothing follows about it.
    Ended {
        /// The worker.
        lane: u8,
        /// The link.
        link: u16,
    },
    /// Says that the sender lives.
    Beat,
    /// The last frame of a side that ends the trunk on purpose.
    Goodbye(Reason),
    /// What gateways of a cluster say to each other.
    Message(&'a [u8]),
    /// Of a later version.
    Unknown,
}

/// The gateway's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// What both sides speak from now on.
    pub version: u16,
    /// How many workers the gateway has.
    pub lanes: u8,
    /// The number of this trunk, in each datagram.
    pub trunk: u32,
    /// Differs from one start of the gateway to the next.
    pub incarnation: u64,
}

ringgate_core::carried!(Welcome { version, lanes, trunk, incarnation });

ringgate_core::named! {
    /// Why a trunk ends, or is not begun.
    pub enum Reason;
    /// Another one, of a later version.
    Other = "other",
    /// The process shuts down.
    ShuttingDown = "shutting_down",
    /// There is no version that both speak.
    Version = "version",
    /// The config has no agent of that name.
    UnknownAgent = "unknown_agent",
    /// The certificate is not for that name.
    ForeignName = "foreign_name",
    /// The same agent has come again, and the newer one is kept.
    Replaced = "replaced",
    /// The other side broke the format, or the order.
    Format = "format",
    /// The other side was not heard for too long.
    Silence = "silence",
    /// The other side reads too slowly, or has trunks enough that are not gone yet.
    OverFull = "over_full",
    /// The certificate is not one that the other side's authorities have signed, who are others
    /// than when the trunk began.
    CertificateUnknown = "certificate_unknown",
}

impl Reason {
    pub(super) fn from_u8(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "another reason",
            Self::ShuttingDown => "it shuts down",
            Self::Version => "no version that both sides speak",
            Self::UnknownAgent => "no agent of this name is configured, or the gateway has as many as it lets in (256)",
            Self::ForeignName => "the certificate is not for this name",
            Self::Replaced => "the same agent has come again",
            Self::Format => "the format was broken",
            Self::Silence => "nothing was heard for 3 s",
            Self::OverFull => "it reads too slowly",
            Self::CertificateUnknown => "the certificate's authority is none of ours any more",
        })
    }
}

/// A frame that breaks the format: the trunk ends with [`Reason::Format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame of the stream breaks the format")
    }
}

impl std::error::Error for Malformed {}
