//! What a mirror holds back: keys that are missed, and a history that nobody has confirmed. What is
//! held back stays as it was; of another history only what the fleet's key vouches for is obeyed,
//! where it is newer than all that was known. So a ban, a drain and a key hold at once, and an old
//! one that a backup has brought back does not.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::judge::{self, Doubt, Gone, Loss, Missing};
use super::super::reads::{CONFIRM, Reads};
use super::super::truth::{CONFIRM_KIND, Change, Entry, KINDS, Truth};
use super::Machine;
use crate::keyspace::Class;
use crate::values::Confirmation;

impl Machine {
    /// Whether much of this kind is missed.
    pub(super) fn is_lacking(&self, class: Option<Class>) -> bool {
        let losses = match &self.status.doubt {
            Some((_, Doubt::ManyGone(losses))) => losses.as_slice(),
            _ => &[],
        };
        losses.iter().any(|loss| Some(loss.class) == class)
    }

    /// Looks at what has gone lately, and at what is missed: too much in too short a time is put
    /// back and held, and what is little again is believed.
    pub(super) fn judge(&mut self) {
        let mut losses = Vec::new();
        for class in Class::ALL {
            let was_lacking = self.is_lacking(Some(class));
            let is_held = was_lacking || !class.is_missed();
            let missing = if is_held { self.missed(class) } else { self.recent.missing(class) };
            let loss = if missing.gone.is_empty() { None } else { self.loss(missing, None) };
            match loss {
                Some(loss) => {
                    if !is_held {
                        let gone = self.recent.take(class);
                        self.put_back(gone);
                    }
                    losses.push(loss);
                }
                None if was_lacking => self.let_go_of(Some(class), i64::MAX),
                None => {}
            }
        }
        self.set_losses(losses);
    }

    /// Compares a list with what is known, and has it hold what is missed.
    pub(super) fn miss(&mut self, now_ms: u64, next: &mut Truth) -> Vec<Loss> {
        if !self.status.remembers(now_ms, self.options.memory_ms) {
            return Vec::new();
        }
        let left = judge::counts(next.entries.keys());
        let is_gone =
            |key: &Bytes, class| Class::of(key) == Some(class) && !next.entries.contains_key(key);
        let mut losses = Vec::new();
        for class in Class::ALL.into_iter().filter(|class| class.is_missed()) {
            let gone = self.truth.entries.iter().filter(|(key, _)| is_gone(key, class));
            let gone: Vec<_> = gone.collect();
            // Those that came are no measure of how many there were.
            let missing = Missing { class, gone, came: 0, left: left[class as usize] };
            let had = judge::counts(self.truth.entries.keys())[class as usize];
            let came = (missing.left + missing.gone.len()).saturating_sub(had);
            losses.extend(self.loss(Missing { came, ..missing }, Some(next)));
        }
        let had_losses = !losses.is_empty();
        let is_lifted =
            |key: &Bytes| is_gone(key, Class::Bans) && (had_losses || self.held.contains_key(key));
        let lifted = self.truth.entries.iter().filter(|(key, _)| is_lifted(key)).collect();
        let left = left[Class::Bans as usize];
        let bans = Missing { class: Class::Bans, gone: lifted, came: 0, left };
        losses.extend(self.loss(bans, Some(next)));
        let mut held = BTreeMap::new();
        for (key, entry) in &self.truth.entries {
            let is_lost = losses.iter().any(|loss| is_gone(key, loss.class));
            if is_lost && !self.has_taken_leave(key, entry, next) {
                let since = self.held.get(key).copied().unwrap_or(next.revision);
                held.insert(key.clone(), since);
            }
        }
        for key in held.keys() {
            if let Some(entry) = self.truth.entries.get(key) {
                next.entries.insert(key.clone(), entry.clone());
            }
        }
        self.held = held;
        losses
    }

    /// Whether this much may not go by itself, as things stand, or in this list.
    fn loss(&self, missing: Missing<'_>, next: Option<&Truth>) -> Option<Loss> {
        let truth = next.unwrap_or(&self.truth);
        let is_there =
            |(key, _): &(&Bytes, &Entry)| next.is_some() || !self.held.contains_key(*key);
        let stands = truth.entries.iter().filter(is_there);
        missing.loss(|key, entry| self.has_taken_leave(key, entry, truth), &stands)
    }

    pub(super) fn has_taken_leave(&self, key: &[u8], entry: &Entry, truth: &Truth) -> bool {
        self.options.reads.has_taken_leave(&self.options.prefix, (key, entry), truth)
    }

    fn missed(&self, class: Class) -> Missing<'_> {
        let keys = self.held.keys().filter(|key| Class::of(key) == Some(class));
        let gone = keys.filter_map(|key| self.truth.entries.get_key_value(key)).collect();
        Missing { class, gone, came: 0, left: self.recent.left(class) }
    }

    /// Takes back what went, and holds it.
    pub(super) fn put_back(&mut self, gone: Vec<Gone>) {
        for Gone { key, entry, revision, class, .. } in gone {
            if self.has_taken_leave(&key, &entry, &self.truth) {
                continue;
            }
            if class == Class::Bans {
                self.ban_bytes += key.len() + entry.value.len();
            }
            let value = Some(entry.value.clone());
            self.changes.push(Change { key: key.clone(), value, revision: None });
            self.truth.entries.insert(key.clone(), entry);
            self.held.insert(key, revision);
        }
    }

    /// An operator believes that everything is gone that was missed up to a revision.
    pub(super) fn let_go(&mut self, until: i64) {
        self.let_go_of(None, until);
        self.judge();
    }

    fn let_go_of(&mut self, class: Option<Class>, until: i64) {
        let goes = |key: &Bytes, since: &mut i64| {
            *since <= until && class.is_none_or(|class| Class::of(key) == Some(class))
        };
        for (key, _) in self.held.extract_if(.., goes).collect::<Vec<_>>() {
            self.truth.entries.remove(&key);
            self.changes.push(Change { key, value: None, revision: None });
        }
        [self.bytes, self.ban_bytes] = self.truth.bytes();
    }

    pub(super) fn set_losses(&mut self, losses: Vec<Loss>) {
        if losses.is_empty() {
            self.status.doubt = None;
        } else {
            self.set_doubt(Doubt::ManyGone(losses));
        }
    }

    /// A doubt that is no worse than the one that stands has its number.
    pub(super) fn set_doubt(&mut self, doubt: Doubt) {
        let stands = self.status.doubt.as_ref();
        if stands.is_none_or(|(_, stands)| !judge::is_same(stands, &doubt)) {
            self.doubts += 1;
            self.confirmed = None;
        }
        self.status.doubt = Some((self.doubts, doubt));
    }

    /// An operator's word in a list that is about it, and that was not known.
    pub(super) fn word_in(&self, next: &Truth) -> Option<Confirmation> {
        let key = self.confirm_key()?;
        let word = self.word_at(&key, &next.entries.get(&key)?.value)?;
        let is_about = word.is_about(next.cluster_id) && word.revision <= next.revision;
        is_about.then_some(word)
    }

    fn word_at(&self, key: &[u8], value: &[u8]) -> Option<Confirmation> {
        let (counter, word) = self.options.reads.confirmation(key, value)?;
        (counter > self.truth.newest[CONFIRM_KIND]).then_some(word)
    }

    /// Where it would stand; nowhere for a mirror of a part.
    fn confirm_key(&self) -> Option<Bytes> {
        let prefix = self.options.prefix.strip_suffix(b"/truth/")?;
        Some([prefix, CONFIRM].concat().into())
    }

    /// Remembers how new the fleet's words are that have come, and obeys an operator's.
    pub(super) fn note_words(&mut self, changes: &[Change]) {
        for Change { key, value, .. } in changes {
            let (Some(kind), Some(value)) = (Reads::kind(key), value) else { continue };
            let Some(counter) = self.options.reads.counter(key, value) else { continue };
            let word = self.word_at(key, value);
            self.truth.newest[kind] = self.truth.newest[kind].max(counter);
            if let Some(word) = word.filter(|word| word.is_about(self.truth.cluster_id)) {
                self.let_go(word.revision);
            }
        }
    }

    /// Obeys what the fleet's key vouches for of a history that is in doubt, if it is newer than
    /// all that was known. Nothing is taken away, and nothing else is changed.
    pub(super) fn borrow(&mut self, next: &Truth) {
        let before = self.truth.newest;
        let mut changes = Vec::new();
        for (key, entry) in &next.entries {
            let Some(kind) = Reads::kind(key).filter(|kind| *kind != CONFIRM_KIND) else {
                continue;
            };
            let known = self.truth.entries.get(key);
            if known.is_some_and(|known| known.value == entry.value) {
                continue;
            }
            let Some(counter) = self.options.reads.counter(key, &entry.value) else { continue };
            let said = known.and_then(|known| self.options.reads.counter(key, &known.value));
            // A key of a listener that opens is always its: it was sealed with its time.
            let is_key = known.is_none() && Class::of(key) == Some(Class::Keys);
            if is_key || counter > said.unwrap_or(before[kind]) {
                changes.push(Change {
                    key: key.clone(),
                    value: Some(entry.value.clone()),
                    revision: None,
                });
                self.truth.entries.insert(key.clone(), entry.clone());
                self.held.remove(key);
            }
        }
        self.note_words(&changes);
        self.changes.extend(changes);
    }

    /// The newest words of what is known from before.
    pub(super) fn newest(reads: &Reads, known: &Truth) -> [u64; KINDS] {
        let mut newest = known.newest;
        for (key, entry) in &known.entries {
            if let Some(kind) = Reads::kind(key) {
                newest[kind] = newest[kind].max(reads.counter(key, &entry.value).unwrap_or(0));
            }
        }
        newest
    }
}
