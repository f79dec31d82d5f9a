//! The filter in front of both ends of a session: each packet passes once.

use crate::front::unreal::recent::Recent;
use crate::setup::Duplicates;
use crate::store::hash::HashKey;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::bunch::closes_connection;
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::notify::{Filter, Gaps, Header, Sender};

/// How a session's packets are filtered.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and every packet touches it"
)]
pub(crate) enum Guard {
    /// By the numbers in their headers.
    Notify(Filter),
    /// By their bytes: the client's, then the server's.
    Opaque(Box<[Recent; 2]>),
    /// Not at all.
    Pass,
}

/// What a packet that may pass is, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// It closes the connection.
    Closing,
    /// Anything else.
    Playing,
}

impl Guard {
    /// For a session whose sides have taken their first numbers from this cookie.
    pub(crate) fn new(duplicates: Duplicates, cookie: &Cookie, now_ns: u64) -> Self {
        match duplicates {
            Duplicates::Notify => Self::Notify(Filter::starting_at(cookie, now_ns)),
            Duplicates::Opaque => Self::Opaque(Box::new([Recent::new(), Recent::new()])),
            Duplicates::Pass => Self::Pass,
        }
    }

    /// Whether a packet may pass; if so, no copy of it will. `reader` is behind its prefix.
    /// [`DropReason::SequenceGap`] ends the session.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        from: Sender,
        reader: BitReader<'_>,
        bytes: &[u8],
        key: HashKey,
        gaps: Gaps,
    ) -> Result<Passed, DropReason> {
        match self {
            Self::Notify(filter) => {
                let header = Header::read(reader)?;
                filter.commit(from, &header, gaps)?;
                let is_closing = closes_connection(header.payload());
                Ok(if is_closing { Passed::Closing } else { Passed::Playing })
            }
            Self::Opaque(recent) => {
                let recent = &mut recent[usize::from(from == Sender::Server)];
                let is_new = recent.note(key.hash_bytes(bytes), gaps.now_ns);
                if is_new { Ok(Passed::Playing) } else { Err(DropReason::ReplayDuplicate) }
            }
            Self::Pass => Ok(Passed::Playing),
        }
    }
}

impl Carry for Guard {
    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Self::Notify(filter) => {
                0_u8.write(out);
                filter.write(out);
            }
            Self::Opaque(recent) => {
                1_u8.write(out);
                recent.write(out);
            }
            Self::Pass => 2_u8.write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Filter::read(from).map(Self::Notify),
            1 => Carry::read(from).map(Self::Opaque),
            2 => Ok(Self::Pass),
            _ => Err(Broken::Invalid("guard")),
        }
    }
}
