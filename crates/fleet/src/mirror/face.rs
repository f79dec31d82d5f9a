//! What goes into a mirror's machine and comes out of it: options, questions, how it is.

use bytes::Bytes;

use super::judge::{Doubt, Loss, doubt_header};
use super::reads::Reads;
use crate::etcd::kv::{Header, Range};
use crate::keyspace::Class;
use crate::values::HELD_ALL;

/// What a mirror is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it copies.
    pub prefix: Bytes,
    /// Whose loss is looked at, and what is vouched for.
    pub reads: Reads,
    /// Makes this process's waits unlike others'.
    pub seed: u64,
    /// How often the count and the stream are checked.
    pub check_every_ms: u64,
    /// How long a watch may say nothing at all, asked for progress.
    pub silence_max_ms: u64,
    /// How often a list that is in doubt is read again.
    pub doubt_every_ms: u64,
    /// A copy that is older than this is no measure of how many keys there should be.
    pub memory_ms: u64,
    /// When what it begins with last agreed with etcd, where that is known.
    pub agreed_at_ms: Option<u64>,
    /// Keys in a page.
    pub page_keys: i64,
    /// More keys than this are not copied, bans aside.
    pub keys_max: usize,
    /// More bytes of keys and values than this are not copied, bans aside.
    pub bytes_max: usize,
    /// More bans than this are left out, and take nothing else along.
    pub bans_max: usize,
    /// More bytes of bans than this are left out.
    pub ban_bytes_max: usize,
}

impl Options {
    /// The usual times and bounds.
    pub fn new(prefix: impl Into<Bytes>, reads: Reads, seed: u64) -> Self {
        Self {
            prefix: prefix.into(),
            reads,
            seed,
            check_every_ms: 5_000,
            silence_max_ms: 15_000,
            doubt_every_ms: 10_000,
            memory_ms: MEMORY_MS,
            agreed_at_ms: None,
            page_keys: 500,
            keys_max: 200_000,
            bytes_max: 256 << 20,
            bans_max: bans_max(),
            ban_bytes_max: BAN_BYTES_MAX,
        }
    }

    /// What the keys of bans begin with.
    pub(super) fn bans(&self) -> Bytes {
        [&self.prefix[..], b"ban/"].concat().into()
    }

    /// Whether one ban more may be copied, with which there are so many bytes of them.
    pub(super) const fn has_room_for_ban(&self, bans: usize, bytes: usize) -> bool {
        bans < self.bans_max && bytes <= self.ban_bytes_max
    }
}

/// What the shell shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read this range, and hand the answer to `Machine::handle_ranged` with this number. What
    /// was asked before is of no interest any more.
    Range {
        /// Tells this question from earlier ones.
        question: u64,
        /// What to read.
        range: Range,
    },
    /// Watch the prefix from this revision on, under this number. What comes goes to
    /// `Machine::handle_watched`, its end to `Machine::handle_watch_end`.
    Watch {
        /// Tells answers of this watch from those of earlier ones.
        stream: u64,
        /// The first revision of interest.
        from_revision: i64,
    },
    /// Ask the running watch for progress.
    Progress,
    /// End the running watch.
    CloseWatch,
    /// Speak to another member.
    LeaveMember,
}

/// How a mirror is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether what is known is up to date, as far as anybody can know.
    pub is_current: bool,
    /// When an answer last agreed with what is known.
    pub agreed_at_ms: Option<u64>,
    /// What is held back, under a number that a confirmation names.
    pub doubt: Option<(u64, Doubt)>,
    /// When another history than the one that was known was last seen for the first time.
    pub rewritten_at_ms: Option<u64>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How often everything was listed.
    pub lists: u64,
    /// How often a watch was opened.
    pub watches: u64,
    /// How often the count, the order or the stream's silence made everything be listed again.
    pub disagreements: u64,
    /// Events that were applied.
    pub events: u64,
    /// Bans that are not obeyed, because there are more than a mirror copies.
    pub bans_left_out: usize,
}

impl Status {
    /// Whether what etcd tells now is another history than the one that is known: nothing of it is
    /// obeyed but what the fleet's key vouches for.
    pub const fn is_rewritten(&self) -> bool {
        matches!(&self.doubt, Some((_, doubt)) if !matches!(doubt, Doubt::ManyGone(_)))
    }

    /// Whether what is known says how many keys there should be.
    pub fn remembers(&self, now_ms: u64, memory_ms: u64) -> bool {
        let is_fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) <= memory_ms;
        self.doubt.is_some() || self.agreed_at_ms.is_some_and(is_fresh)
    }

    /// Whether etcd may say whose something is, by an answer with this header where there is one.
    /// One that is doubted, or that answers from another history than the one that is known, may
    /// have forgotten it.
    pub fn trusts(&self, known: &Header, told: Option<&Header>) -> bool {
        self.doubt.is_none() && told.is_none_or(|told| doubt_header(known, told).is_none())
    }

    /// What is held back, in a word or two for each kind.
    pub fn held(&self) -> Vec<String> {
        words(&self.held_back())
    }

    /// How many keys of each kind are held back. Another history is held as a whole, and is 1.
    pub fn held_back(&self) -> HeldBack {
        let mut held = [(HELD_ALL, usize::from(self.is_rewritten())); Class::ALL.len() + 1];
        for (row, class) in held.iter_mut().zip(Class::ALL) {
            *row = (class.name(), 0);
        }
        if let Some((_, Doubt::ManyGone(losses))) = &self.doubt {
            for Loss { class, had, left } in losses {
                held[*class as usize].1 = had.abs_diff(*left);
            }
        }
        held
    }
}

/// How many keys of each kind are held back.
pub type HeldBack = [(&'static str, usize); Class::ALL.len() + 1];

/// The kinds of which some are.
pub fn words(held: &HeldBack) -> Vec<String> {
    held.iter().filter(|(_, keys)| *keys > 0).map(|(kind, _)| (*kind).to_owned()).collect()
}

/// How long a copy says how many keys there should be.
pub const MEMORY_MS: u64 = 600_000;

/// Bans that a mirror copies, and commands let there be.
pub const BANS_MAX: usize = 200_000;

/// Builds for tests may copy fewer, so that few are too many.
fn bans_max() -> usize {
    let asked = if cfg!(debug_assertions) { std::env::var("RINGGATE_BANS_MAX").ok() } else { None };
    asked.and_then(|text| text.parse().ok()).unwrap_or(BANS_MAX)
}
/// The same of the bytes of their keys and values.
pub const BAN_BYTES_MAX: usize = 128 << 20;
