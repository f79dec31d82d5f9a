//! The filter in front of both ends of a session: each packet passes once.

use super::recent::Recent;
use crate::drops::DropReason;
use crate::gate::hash::HashKey;
use crate::gate::setup::Duplicates;
use crate::proto::unreal::bits::BitReader;
use crate::proto::unreal::cookie::Cookie;
use crate::proto::unreal::notify::{Filter, Header, Sender};

/// How a session's packets are filtered.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and every packet touches it"
)]
pub(super) enum Guard {
    /// By the numbers in their headers.
    Notify(Filter),
    /// By their bytes: the client's, then the server's.
    Opaque(Box<[Recent; 2]>),
    /// Not at all.
    Pass,
}

impl Guard {
    /// For a session whose sides have taken their first numbers from this cookie.
    pub(super) fn new(duplicates: Duplicates, cookie: &Cookie) -> Self {
        match duplicates {
            Duplicates::Notify => Self::Notify(Filter::starting_at(cookie)),
            Duplicates::Opaque => Self::Opaque(Box::new([Recent::new(), Recent::new()])),
            Duplicates::Pass => Self::Pass,
        }
    }

    /// Whether a packet may pass; if so, no copy of it will. `reader` is behind its prefix.
    #[inline]
    pub(super) fn pass(
        &mut self,
        from: Sender,
        reader: BitReader<'_>,
        bytes: &[u8],
        key: HashKey,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        match self {
            Self::Notify(filter) => filter.commit(from, &Header::read(reader)?),
            Self::Opaque(recent) => {
                let is_new =
                    recent[usize::from(from == Sender::Server)].note(key.hash_bytes(bytes), now_ns);
                if is_new { Ok(()) } else { Err(DropReason::ReplayDuplicate) }
            }
            Self::Pass => Ok(()),
        }
    }
}
