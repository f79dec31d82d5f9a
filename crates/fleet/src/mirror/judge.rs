//! What a mirror does not believe by itself. An etcd that was restored from a backup, emptied, or
//! exchanged for another one answers as calmly as ever; obeying it would retire every backend of a
//! fleet at once. So such news is held back until an operator confirms it, or it changes.
//!
//! That much is gone says nothing about what else is told: only what is missed is held, of the
//! kinds of which much is missed. And it is missed only where neither its owner has taken leave,
//! nor one owner had all of it while others still renew their leases. Bans are missed where they go
//! together with something else: nobody lifts them so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use bytes::Bytes;

use super::reads::{Owner, Reads};
use super::truth::Entry;
use crate::etcd::kv::Header;
use crate::keyspace::Class;

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
    /// The store's revision, or that of one of its keys, is lower than it was, or is that of
    /// another value.
    RevisionWentBack {
        /// Which was known.
        known: i64,
        /// Which is told now.
        told: i64,
    },
    /// Elections are counted from anew.
    TermWentBack {
        /// The newest that we knew.
        known: u64,
        /// What is told now.
        told: u64,
    },
    /// Half or more of some kinds of keys is gone within a short time.
    ManyGone(Vec<Loss>),
}

/// Much of one kind of keys is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which kind.
    pub class: Class,
    /// How many there were.
    pub had: usize,
    /// How many there are.
    pub left: usize,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterChanged { known, told } => {
                write!(f, "another cluster answers: {told:x}, where it was {known:x}")
            }
            Self::RevisionWentBack { known, told } if known == told => {
                write!(f, "what was written at revision {told} is not what it was")
            }
            Self::RevisionWentBack { known, told } => {
                write!(f, "the revision went back from {known} to {told}")
            }
            Self::TermWentBack { known, told } => {
                write!(f, "the count of elections went back from {known} to {told}")
            }
            Self::ManyGone(losses) => {
                for (index, Loss { class, had, left }) in losses.iter().enumerate() {
                    let and = if index == 0 { "" } else { ", and " };
                    write!(f, "{and}of {had} {} {left} are left", class.name())?;
                }
                Ok(())
            }
        }
    }
}

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

/// What listed keys say against what is known of them. In one history a key gets another value, or
/// another lease, at a later revision only; a history that was begun anew may have grown beyond the
/// revision of the old one before anybody looks, and is known by that.
pub(super) fn doubt_entries(
    known: &BTreeMap<Bytes, Entry>,
    told: &BTreeMap<Bytes, Entry>,
) -> Option<Doubt> {
    told.iter().find_map(|(key, told)| {
        let known = known.get(key)?;
        let is_older = told.mod_revision < known.mod_revision;
        let is_other = told.mod_revision == known.mod_revision && told != known;
        let (known, told) = (known.mod_revision, told.mod_revision);
        (is_older || is_other).then_some(Doubt::RevisionWentBack { known, told })
    })
}

/// How many keys there are of each kind.
pub(super) fn counts<'a>(keys: impl Iterator<Item = &'a Bytes>) -> [usize; Class::ALL.len()] {
    let mut counts = [0; Class::ALL.len()];
    for class in keys.filter_map(|key| Class::of(key)) {
        counts[class as usize] += 1;
    }
    counts
}

/// Keys of one kind that are gone, and what stands.
pub(super) struct Missing<'a> {
    pub(super) class: Class,
    pub(super) gone: Vec<(&'a Bytes, &'a Entry)>,
    /// Those that came as lately as these went, and so are no replacement of what had gone before.
    pub(super) came: usize,
    /// How many of this kind are there.
    pub(super) left: usize,
}

impl Missing<'_> {
    /// Whether that is more than may go by itself. `stands` are the keys that are there.
    pub(super) fn loss<'a>(
        self,
        is_excused: impl Fn(&Bytes, &Entry) -> bool,
        stands: &(impl Iterator<Item = (&'a Bytes, &'a Entry)> + Clone),
    ) -> Option<Loss> {
        let Missing { class, mut gone, came, left } = self;
        let loss = |gone: usize| Loss { class, had: (left + gone).saturating_sub(came), left };
        if !class.is_missed() {
            return (!gone.is_empty()).then(|| loss(gone.len()));
        }
        if !loss(gone.len()).is_many() {
            return None;
        }
        gone.retain(|(key, entry)| !is_excused(key, entry));
        let loss = Some(loss(gone.len())).filter(Loss::is_many)?;
        (!is_one_owners(class, &gone, stands)).then_some(loss)
    }
}

/// Whether, but for what belongs to one owner, little has gone, while somebody else renews a lease.
fn is_one_owners<'a>(
    class: Class,
    gone: &[(&Bytes, &Entry)],
    stands: &(impl Iterator<Item = (&'a Bytes, &'a Entry)> + Clone),
) -> bool {
    let mut owners: BTreeMap<Owner, usize> = BTreeMap::new();
    for owner in gone.iter().filter_map(|(_, entry)| Reads::owner(entry)) {
        *owners.entry(owner).or_default() += 1;
    }
    let Some((worst, its)) = owners.into_iter().max_by_key(|(_, count)| *count) else {
        return false;
    };
    let is_others = |it: &Entry| Reads::owner(it).as_ref() != Some(&worst);
    let renews = |(key, entry): (&Bytes, &Entry)| {
        let is_kept_alive = matches!(Class::of(key), Some(Class::Gateways | Class::Backends));
        is_kept_alive && entry.lease != 0 && is_others(entry)
    };
    let is_one = |(key, it): &(&Bytes, &Entry)| Class::of(key) == Some(class) && is_others(it);
    let others_gone = gone.len() - its;
    let others_left = stands.clone().filter(is_one).count();
    let is_little = others_gone * CHURN <= others_gone + others_left;
    is_little && stands.clone().any(renews)
}

impl Loss {
    /// Few keys may all go: somebody stops a fleet of three.
    const fn is_many(&self) -> bool {
        self.had >= MANY && self.left * 2 <= self.had
    }
}

/// Whether an operator has believed this, or worse of the same kind.
pub(super) fn is_believed(believed: Option<&Doubt>, doubt: &Doubt) -> bool {
    use Doubt::{ClusterChanged, RevisionWentBack, TermWentBack};
    match (believed, doubt) {
        (Some(ClusterChanged { told: believed, .. }), ClusterChanged { told, .. }) => {
            believed == told
        }
        // Whoever believes in another history believes that it has fewer keys.
        (Some(RevisionWentBack { .. } | TermWentBack { .. }), ClusterChanged { .. }) => false,
        (Some(RevisionWentBack { .. } | TermWentBack { .. }), _) => true,
        _ => false,
    }
}

/// Whether a doubt is no worse than the one that stands, so that whoever confirms it has seen it.
pub(super) fn is_same(stands: &Doubt, new: &Doubt) -> bool {
    match (stands, new) {
        (Doubt::ManyGone(stand), Doubt::ManyGone(new)) => new
            .iter()
            .all(|loss| stand.iter().any(|it| it.class == loss.class && loss.left >= it.left)),
        (Doubt::ClusterChanged { told: a, .. }, Doubt::ClusterChanged { told: b, .. }) => a == b,
        _ => std::mem::discriminant(stands) == std::mem::discriminant(new),
    }
}

/// What has gone and come in the last seconds, so that a loss in many small steps is seen and can
/// be taken back.
#[derive(Debug, Default)]
pub(super) struct Recent {
    gone: VecDeque<Gone>,
    /// When keys of each kind came.
    came: [VecDeque<u64>; Class::ALL.len()],
    /// How many are there, without those that are held.
    now: [usize; Class::ALL.len()],
}

#[derive(Debug)]
pub(super) struct Gone {
    at_ms: u64,
    pub(super) class: Class,
    pub(super) key: Bytes,
    pub(super) entry: Entry,
    /// When, as etcd counts.
    pub(super) revision: i64,
}

impl Recent {
    /// Begins anew: the truth has been replaced.
    pub(super) fn reset<'a>(&mut self, there: impl Iterator<Item = &'a Bytes>) {
        *self = Self { now: counts(there), ..Self::default() };
    }

    /// A key is there that was not.
    pub(super) fn came(&mut self, now_ms: u64, class: Class, key: &Bytes) {
        self.now[class as usize] += 1;
        if let Some(index) = self.gone.iter().position(|gone| gone.key == key) {
            self.gone.remove(index);
        } else if class.is_missed() {
            self.came[class as usize].push_back(now_ms);
        }
    }

    /// A key is not there any more; it is held, or was taken away.
    pub(super) const fn went(&mut self, class: Class) {
        self.now[class as usize] = self.now[class as usize].saturating_sub(1);
    }

    /// One was taken away, and can be put back.
    pub(super) fn remember(&mut self, at_ms: u64, class: Class, revision: i64, it: (Bytes, Entry)) {
        let (key, entry) = it;
        self.gone.push_back(Gone { at_ms, class, key, entry, revision });
    }

    /// How many of a kind are there.
    pub(super) const fn left(&self, class: Class) -> usize {
        self.now[class as usize]
    }

    /// What of a kind has gone.
    pub(super) fn missing(&self, class: Class) -> Missing<'_> {
        let gone = self.gone.iter().filter(|gone| gone.class == class);
        Missing {
            class,
            gone: gone.map(|it| (&it.key, &it.entry)).collect(),
            came: self.came[class as usize].len(),
            left: self.left(class),
        }
    }

    /// Hands out what of a kind has gone, to be put back.
    pub(super) fn take(&mut self, class: Class) -> Vec<Gone> {
        self.came[class as usize].clear();
        self.take_those(|gone| gone.class == class)
    }

    /// The same of bans that have gone at one of these revisions.
    pub(super) fn take_bans(&mut self, revisions: &BTreeSet<i64>) -> Vec<Gone> {
        self.take_those(|gone| gone.class == Class::Bans && revisions.contains(&gone.revision))
    }

    fn take_those(&mut self, is_it: impl Fn(&Gone) -> bool) -> Vec<Gone> {
        let all = std::mem::take(&mut self.gone).into_iter();
        let (taken, kept): (Vec<_>, Vec<_>) = all.partition(is_it);
        self.gone = kept.into();
        taken
    }

    /// What is longer ago is believed, whatever comes and goes from now on.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        let ms = now_ms.saturating_sub(WINDOW_MS);
        while self.gone.front().is_some_and(|gone| gone.at_ms < ms) {
            self.gone.pop_front();
        }
        for came in &mut self.came {
            while came.front().is_some_and(|at_ms| *at_ms < ms) {
                came.pop_front();
            }
        }
    }
}

/// Fewer keys of a kind than this may go at once.
pub const MANY: usize = 8;
/// One in so many keys goes while others do, and has nothing to do with them.
const CHURN: usize = 4;
/// What goes within this time goes at once.
pub const WINDOW_MS: u64 = 10_000;
