//! What a mirror does not believe by itself. An etcd that was restored from a backup, emptied, or
//! exchanged for another one answers as calmly as ever; obeying it would retire every backend of a
//! fleet at once. So such news is held back until an operator confirms it, or it changes.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use super::truth::{Entry, Truth};
use crate::etcd::kv::Header;

/// Why news is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Another cluster answers.
    ClusterChanged {
        /// Which was known.
        known: u64,
        /// Which answers.
        told: u64,
    },
    /// The store's revision is lower than it was.
    RevisionWentBack {
        /// Up to where we knew.
        known: i64,
        /// What is told now.
        told: i64,
    },
    /// Elections are counted from anew.
    TermWentBack {
        /// The newest that we knew.
        known: u64,
        /// What is told now.
        told: u64,
    },
    /// Half or more of one kind of keys is gone within a short time.
    ManyGone {
        /// Which kind, as the mirror's owner numbers them.
        class: usize,
        /// How many there were.
        had: usize,
        /// How many there are.
        left: usize,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterChanged { known, told } => {
                write!(f, "another cluster answers: {told:x}, where it was {known:x}")
            }
            Self::RevisionWentBack { known, told } => {
                write!(f, "the revision went back from {known} to {told}")
            }
            Self::TermWentBack { known, told } => {
                write!(f, "the count of elections went back from {known} to {told}")
            }
            Self::ManyGone { had, left, .. } => {
                write!(f, "of {had} keys of one kind {left} are left")
            }
        }
    }
}

/// Sorts keys into the kinds whose loss is looked at; `None` for those that come and go.
pub type Classify = fn(&[u8]) -> Option<usize>;

/// How many kinds there may be.
pub const CLASSES_MAX: usize = 4;

/// What a header says against what was known.
pub(super) fn doubt_header(known: &Header, told: &Header) -> Option<Doubt> {
    if known.cluster_id == 0 {
        return None;
    }
    if told.cluster_id != known.cluster_id {
        let (known, told) = (known.cluster_id, told.cluster_id);
        return Some(Doubt::ClusterChanged { known, told });
    }
    if told.revision < known.revision {
        let (known, told) = (known.revision, told.revision);
        return Some(Doubt::RevisionWentBack { known, told });
    }
    if told.raft_term < known.raft_term {
        let (known, told) = (known.raft_term, told.raft_term);
        return Some(Doubt::TermWentBack { known, told });
    }
    None
}

/// What a whole list says against what was known.
pub(super) fn doubt_list(truth: &Truth, next: &Truth, classify: Classify) -> Option<Doubt> {
    let (had, left) = (counts(truth, classify), counts(next, classify));
    (0..CLASSES_MAX).find(|&class| is_many(had[class], left[class])).map(|class| Doubt::ManyGone {
        class,
        had: had[class],
        left: left[class],
    })
}

pub(super) fn counts(truth: &Truth, classify: Classify) -> [usize; CLASSES_MAX] {
    let mut counts = [0; CLASSES_MAX];
    for class in truth.entries.keys().filter_map(|key| classify(key)) {
        counts[class % CLASSES_MAX] += 1;
    }
    counts
}

/// Few keys may all go: somebody stops a fleet of three.
const fn is_many(had: usize, left: usize) -> bool {
    had >= MANY && left * 2 <= had
}

/// Whether an operator has believed this, or worse of the same kind.
pub(super) fn is_believed(believed: Option<&Doubt>, doubt: &Doubt) -> bool {
    use Doubt::{ClusterChanged, ManyGone, RevisionWentBack, TermWentBack};
    match (believed, doubt) {
        (Some(ClusterChanged { told: believed, .. }), ClusterChanged { told, .. }) => {
            believed == told
        }
        // Whoever believes in another history believes that it has fewer keys.
        (Some(RevisionWentBack { .. } | TermWentBack { .. }), ClusterChanged { .. }) => false,
        (Some(RevisionWentBack { .. } | TermWentBack { .. }), _) => true,
        (Some(ManyGone { class: believed, left: down_to, .. }), ManyGone { class, left, .. }) => {
            believed == class && left >= down_to
        }
        _ => false,
    }
}

/// Whether a doubt is no worse than the one that stands, so that whoever confirms it has seen it.
pub(super) fn is_same(stands: &Doubt, new: &Doubt) -> bool {
    match (stands, new) {
        (Doubt::ManyGone { class: a, left: had, .. }, Doubt::ManyGone { class: b, left, .. }) => {
            a == b && left >= had
        }
        (Doubt::ClusterChanged { told: a, .. }, Doubt::ClusterChanged { told: b, .. }) => a == b,
        _ => std::mem::discriminant(stands) == std::mem::discriminant(new),
    }
}

/// What has gone and come in the last seconds, so that a loss in many small steps is seen and can
/// be taken back.
#[derive(Debug, Default)]
pub(super) struct Recent {
    gone: VecDeque<Gone>,
    /// When keys came, by kind.
    came: VecDeque<(u64, usize)>,
    now: [usize; CLASSES_MAX],
}

#[derive(Debug)]
struct Gone {
    at_ms: u64,
    class: usize,
    key: Bytes,
    entry: Entry,
}

impl Recent {
    /// Begins anew: the truth has been replaced.
    pub(super) fn reset(&mut self, truth: &Truth, classify: Classify) {
        *self = Self { now: counts(truth, classify), ..Self::default() };
    }

    /// A key is there that was not.
    pub(super) fn came(&mut self, now_ms: u64, class: usize, key: &Bytes) {
        let class = class % CLASSES_MAX;
        self.now[class] += 1;
        if let Some(index) = self.gone.iter().position(|gone| gone.key == key) {
            self.gone.remove(index);
        } else {
            self.came.push_back((now_ms, class));
        }
    }

    /// A key is gone. Says so if it is one too many.
    pub(super) fn went(
        &mut self,
        now_ms: u64,
        class: usize,
        key: Bytes,
        entry: Entry,
    ) -> Option<Doubt> {
        let class = class % CLASSES_MAX;
        self.forget_before(now_ms.saturating_sub(WINDOW_MS));
        self.now[class] = self.now[class].saturating_sub(1);
        self.gone.push_back(Gone { at_ms: now_ms, class, key, entry });
        let gone = self.gone.iter().filter(|gone| gone.class == class).count();
        let came = self.came.iter().filter(|came| came.1 == class).count();
        let (had, left) = ((self.now[class] + gone).saturating_sub(came), self.now[class]);
        is_many(had, left).then_some(Doubt::ManyGone { class, had, left })
    }

    /// Hands out what has gone, to be put back.
    pub(super) fn take_gone(&mut self) -> impl Iterator<Item = (Bytes, Entry)> {
        std::mem::take(&mut self.gone).into_iter().map(|gone| (gone.key, gone.entry))
    }

    fn forget_before(&mut self, ms: u64) {
        while self.gone.front().is_some_and(|gone| gone.at_ms < ms) {
            self.gone.pop_front();
        }
        while self.came.front().is_some_and(|came| came.0 < ms) {
            self.came.pop_front();
        }
    }
}

/// Fewer keys of a kind than this may go at once.
pub const MANY: usize = 8;
/// What goes within this time goes at once.
pub const WINDOW_MS: u64 = 10_000;
