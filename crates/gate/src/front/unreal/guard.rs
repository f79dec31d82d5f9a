//! The filter in front of both ends of a session: each packet passes once.

use crate::front::unreal::recent::Recent;
use crate::setup::Duplicates;
use crate::store::hash::HashKey;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::{Policy, Window};
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
    /// The same of a session that goes on here, before its server has sent a packet here.
    Resuming(Box<Resuming>),
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

/// What is known of a session that goes on here. What its player acknowledges cannot be judged
/// before its server has said how far the player can have heard.
pub(crate) struct Resuming {
    /// Which packets of the player's have passed, by their numbers in full.
    passed: Window,
    /// Packets of the player's that have come meanwhile.
    early: Vec<Box<[u8]>>,
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

    /// For a session that goes on here, of which another gateway has let these packets pass.
    pub(crate) fn going_on(duplicates: Duplicates, passed: Window) -> Self {
        match duplicates {
            Duplicates::Notify => Self::Resuming(Box::new(Resuming { passed, early: Vec::new() })),
            Duplicates::Opaque | Duplicates::Pass => Self::new(duplicates, &Cookie::ZERO, 0),
        }
    }

    /// The newest packet of the player's that has passed, in full; 0 where they have no numbers.
    pub(crate) fn newest(&self) -> u64 {
        match self {
            Self::Notify(filter) => filter.newest(),
            Self::Resuming(it) => it.passed.latest(&Policy::UNREAL).unwrap_or(0),
            Self::Opaque(_) | Self::Pass => 0,
        }
    }

    /// The number of a packet of the player's that has passed just now, in full.
    pub(crate) fn full(&self, reader: BitReader<'_>) -> Option<u64> {
        let Self::Notify(filter) = self else { return None };
        filter.full(Header::read(reader).ok()?.sequence)
    }

    /// A packet of the player's has come before it can be judged. Whether it waits for that.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        let Self::Resuming(it) = self else { return false };
        let has_room = it.early.len() < EARLY_MAX;
        if has_room {
            it.early.push(bytes.into());
        }
        has_room
    }

    /// Nothing is waited for any more: returns what has come too early.
    pub(crate) fn take_early(&mut self) -> Vec<Box<[u8]>> {
        let Self::Resuming(it) = self else { return Vec::new() };
        std::mem::take(&mut it.early)
    }

    /// A packet of the server's has come, which is still to pass. Returns what has waited for it.
    #[inline]
    pub(crate) fn resume(
        &mut self,
        reader: BitReader<'_>,
        now_ns: u64,
    ) -> Result<Vec<Box<[u8]>>, DropReason> {
        let Self::Resuming(it) = self else { return Ok(Vec::new()) };
        let filter = Filter::going_on(&it.passed, &Header::read(reader)?, now_ns);
        let filter = filter.ok_or(DropReason::ServerPacketInvalid)?;
        let early = self.take_early();
        *self = Self::Notify(filter);
        Ok(early)
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
            Self::Resuming(_) => Err(DropReason::TakeoverAwaited),
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
            Self::Resuming(it) => {
                3_u8.write(out);
                it.passed.write(out);
                it.early.iter().map(|it| it.to_vec()).collect::<Vec<_>>().write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Filter::read(from).map(Self::Notify),
            1 => Carry::read(from).map(Self::Opaque),
            2 => Ok(Self::Pass),
            3 => {
                let (passed, early) = (Carry::read(from)?, Vec::<Vec<u8>>::read(from)?);
                let early = early.into_iter().map(Vec::into_boxed_slice).collect();
                Ok(Self::Resuming(Box::new(Resuming { passed, early })))
            }
            _ => Err(Broken::Invalid("guard")),
        }
    }
}

/// Packets of a player's that wait for one of its server's: an engine sends one at least each
/// 0.2 s, and players rarely more in that time.
const EARLY_MAX: usize = 16;
