//! What a mirror does next, as a state machine without sockets and clocks.
//!
//! ```text
//!            nothing known                    every failure, after a wait
//!   Resting ──────────────▶ Listing ◀───────────────────────────────┐
//!      │                    │    ▲ compacted, counts differ,        │
//!      │ known              │    │ order broken, news in doubt      │
//!      ▼                    ▼    │                                  │
//!   Checking ───────────▶ Opening ──────▶ Watching ─────────────────┘
//! ```
//!
//! Three things are looked at again and again while it watches. A count that the member has to
//! agree on with its leader: a member that is cut off cannot answer it, and the count has to be
//! that of the copy. A progress request on the watch's own stream: a stream that is dead does not
//! answer. And each header: another cluster or an older revision is another truth (`judge`).
//! Besides, a key counts its versions, so an event that was lost is found by the next one of its
//! key. What of all that is in doubt, `held` keeps.

mod held;
mod told;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::face::{Ask, Options, Status};
use super::judge::{self, Doubt, Recent};
use super::staging::{Listed, Staging};
use super::truth::{Change, Truth};
use crate::backoff::Backoff;
use crate::etcd::Error;
use crate::etcd::kv::{Header, Range, Ranged};
use crate::etcd::watch::{ALL_WATCHES, Event, Watched};
use crate::keyspace::Class;
use crate::values::VALUE_BYTES_MAX;

/// The state machine.
#[derive(Debug)]
pub struct Machine {
    options: Options,
    truth: Truth,
    status: Status,
    phase: Phase,
    /// A range whose answer has not come, and what was known when it was asked.
    asked: Option<Asked>,
    question: u64,
    backoff: Backoff,
    stream: u64,
    recent: Recent,
    fragments: Vec<Event>,
    /// Bytes of keys and values in the fragments.
    fragment_bytes: usize,
    /// Bytes of keys and values that are known, or more; those of bans apart.
    bytes: usize,
    ban_bytes: usize,
    /// There is more than may be copied: what is known cannot be continued.
    is_too_much: bool,
    changes: Vec<Change>,
    /// The last counts differed: how many of them, and at which revision of the copy.
    differing: Option<(u32, i64)>,
    doubts: u64,
    /// Keys that are missed: they are not there, and known on. With the revision without them.
    held: BTreeMap<Bytes, i64>,
    /// Up to where a history is seen that is held back.
    seen: Option<Header>,
    /// An operator believes what this doubt is about.
    confirmed: Option<Doubt>,
    /// Things to do at the next poll, before anything else.
    close: bool,
    leave: bool,
}

#[derive(Debug)]
struct Asked {
    number: u64,
    known: Header,
}

#[derive(Debug)]
enum Phase {
    Resting { until_ms: u64 },
    Listing(Staging),
    Checking,
    Opening { asked: bool, until_ms: u64 },
    Watching { heard_ms: u64, check_at_ms: u64, ask_progress: bool },
}

impl Machine {
    /// A mirror that begins with what is known from before, or with nothing.
    pub fn new(options: Options, known: Truth) -> Self {
        let [bytes, ban_bytes] = known.bytes();
        let mut recent = Recent::default();
        recent.reset(known.entries.keys());
        let newest = Self::newest(&options.reads, &known);
        Self {
            backoff: Backoff::new(BACKOFF_FIRST_MS, BACKOFF_LAST_MS, options.seed),
            truth: Truth { newest, ..known },
            status: Status { agreed_at_ms: options.agreed_at_ms, ..Status::default() },
            phase: Phase::Resting { until_ms: 0 },
            asked: None,
            question: 0,
            stream: 0,
            recent,
            fragments: Vec::new(),
            fragment_bytes: 0,
            bytes,
            ban_bytes,
            is_too_much: false,
            changes: Vec::new(),
            differing: None,
            doubts: 0,
            held: BTreeMap::new(),
            seen: None,
            confirmed: None,
            close: false,
            leave: false,
            options,
        }
    }

    /// What is known.
    pub const fn truth(&self) -> &Truth {
        &self.truth
    }

    /// How it is.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// What this mirror copies.
    pub const fn prefix(&self) -> &Bytes {
        &self.options.prefix
    }

    /// What has become otherwise since this was last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// An operator believes the doubt with this number. False if it is not the one that stands.
    pub fn confirm(&mut self, now_ms: u64, number: u64) -> bool {
        let Some((_, doubt)) = self.status.doubt.as_ref().filter(|doubt| doubt.0 == number) else {
            return false;
        };
        if matches!(doubt, Doubt::ManyGone(_)) {
            self.let_go(i64::MAX);
            return true;
        }
        self.confirmed = Some(doubt.clone());
        if matches!(self.phase, Phase::Resting { .. }) {
            self.phase = Phase::Resting { until_ms: now_ms };
        }
        true
    }

    /// What to do now. To be asked until it is `None`, and again at [`Machine::next_ms`] or when
    /// something has come.
    pub fn poll(&mut self, now_ms: u64) -> Option<Ask> {
        if std::mem::take(&mut self.close) {
            return Some(Ask::CloseWatch);
        }
        if std::mem::take(&mut self.leave) {
            return Some(Ask::LeaveMember);
        }
        match &mut self.phase {
            Phase::Resting { until_ms } => {
                if now_ms < *until_ms {
                    return None;
                }
                let lists =
                    !self.truth.is_known() || self.status.is_rewritten() || self.is_too_much;
                self.phase =
                    if lists { Phase::Listing(Staging::default()) } else { Phase::Checking };
                self.poll(now_ms)
            }
            Phase::Listing(_) | Phase::Checking if self.asked.is_some() => None,
            Phase::Listing(staging) => {
                let range = staging.next_page(&self.options);
                Some(self.ask(range))
            }
            Phase::Checking => Some(self.ask_count()),
            Phase::Opening { asked: false, .. } => Some(self.open(now_ms)),
            Phase::Opening { until_ms, .. } => {
                if now_ms < *until_ms {
                    return None;
                }
                self.give_up(now_ms, "the watch does not begin");
                self.poll(now_ms)
            }
            Phase::Watching { .. } => self.poll_watching(now_ms),
        }
    }

    /// When something is to be done without anything having come.
    pub const fn next_ms(&self) -> u64 {
        match &self.phase {
            Phase::Resting { until_ms } | Phase::Opening { until_ms, .. } => *until_ms,
            Phase::Listing(_) | Phase::Checking => u64::MAX,
            Phase::Watching { check_at_ms, .. } => *check_at_ms,
        }
    }

    fn poll_watching(&mut self, now_ms: u64) -> Option<Ask> {
        let Phase::Watching { heard_ms, check_at_ms, ask_progress } = &mut self.phase else {
            return None;
        };
        if std::mem::take(ask_progress) {
            return Some(Ask::Progress);
        }
        if now_ms < *check_at_ms {
            return None;
        }
        if now_ms - *heard_ms > self.options.silence_max_ms {
            self.status.disagreements += 1;
            self.give_up(now_ms, "the watch is silent");
            return self.poll(now_ms);
        }
        let jitter = self.backoff.random() % (self.options.check_every_ms / 4 + 1);
        *check_at_ms = now_ms + self.options.check_every_ms + jitter;
        *ask_progress = true;
        // A count that takes longer than the shell's own deadline comes back as an error.
        if self.asked.is_some() { self.poll_watching(now_ms) } else { Some(self.ask_count()) }
    }

    fn ask_count(&mut self) -> Ask {
        self.ask(Range { count_only: true, ..Range::prefix(&self.options.prefix) })
    }

    fn ask(&mut self, range: Range) -> Ask {
        self.question += 1;
        self.asked = Some(Asked { number: self.question, known: self.truth.header() });
        Ask::Range { question: self.question, range }
    }

    fn open(&mut self, now_ms: u64) -> Ask {
        self.stream += 1;
        self.fragments.clear();
        self.status.watches += 1;
        let until_ms = now_ms + OPEN_WITHIN_MS;
        self.phase = Phase::Opening { asked: true, until_ms };
        Ask::Watch { stream: self.stream, from_revision: self.truth.revision + 1 }
    }

    /// A range's answer, or why there is none.
    pub fn handle_ranged(&mut self, now_ms: u64, question: u64, answer: Result<Ranged, Error>) {
        let Some(asked) = self.asked.take_if(|asked| asked.number == question) else {
            return;
        };
        let ranged = match answer {
            Ok(ranged) => ranged,
            Err(why) => return self.handle_failure(now_ms, &why),
        };
        match &mut self.phase {
            Phase::Listing(staging) => match staging.add(&self.options, &ranged) {
                Err(why) => self.rest(now_ms, why.to_owned()),
                Ok(()) if ranged.more && !staging.is_whole(&self.options) => {}
                Ok(()) => {
                    let Listed { truth, left_out, is_of_bans } =
                        std::mem::take(staging).into_listed();
                    if is_of_bans {
                        self.adopt_bans(now_ms, truth, left_out);
                    } else {
                        self.adopt(now_ms, truth, left_out);
                    }
                }
            },
            Phase::Checking => match judge::doubt_header(&asked.known, &ranged.header) {
                None => {
                    self.truth.raft_term = ranged.header.raft_term;
                    self.phase = Phase::Opening { asked: false, until_ms: now_ms };
                }
                Some(_) => self.phase = Phase::Listing(Staging::default()),
            },
            Phase::Watching { .. } => self.handle_count(now_ms, &asked.known, &ranged),
            Phase::Resting { .. } | Phase::Opening { .. } => {}
        }
    }

    fn handle_failure(&mut self, now_ms: u64, why: &Error) {
        match self.phase {
            Phase::Listing(_) if why.is_compacted() => {
                self.phase = Phase::Listing(Staging::default());
            }
            Phase::Listing(_) | Phase::Checking => self.rest(now_ms, why.to_string()),
            Phase::Watching { .. } => self.give_up(now_ms, &why.to_string()),
            Phase::Resting { .. } | Phase::Opening { .. } => {
                self.status.last_error = Some(why.to_string());
            }
        }
    }

    /// A whole list has been read: believe it, or hold it back.
    fn adopt(&mut self, now_ms: u64, mut next: Truth, left_out: usize) {
        self.status.lists += 1;
        let (word, doubt) = (self.word_in(&next), self.see_history(now_ms, &next));
        let is_another = doubt.is_some();
        if let Some(doubt) = doubt
            && word.is_none()
            && !judge::is_believed(self.confirmed.as_ref(), &doubt)
        {
            return self.hold(now_ms, doubt, &next);
        }
        let missed = match word {
            None if !is_another => self.miss(now_ms, &mut next),
            _ => Vec::new(),
        };
        if missed.is_empty() {
            self.held.clear();
        }
        self.set_losses(missed);
        self.confirmed = None;
        self.differing = None;
        self.status.bans_left_out = left_out;
        self.take_over(next);
        self.is_too_much = false;
        self.agree(now_ms);
        self.phase = Phase::Opening { asked: false, until_ms: now_ms };
    }

    /// More is there than may be copied: who is banned holds as of now, the rest as it was.
    fn adopt_bans(&mut self, now_ms: u64, next: Truth, left_out: usize) {
        if let Some(doubt) = self.see_history(now_ms, &next)
            && !judge::is_believed(self.confirmed.as_ref(), &doubt)
        {
            return self.hold(now_ms, doubt, &next);
        }
        let mut entries = self.truth.entries.clone();
        entries.retain(|key, _| Class::of(key) != Some(Class::Bans));
        entries.extend(next.entries);
        let Truth { cluster_id, revision, raft_term, newest, .. } = self.truth;
        let next = Truth { cluster_id, revision, raft_term, newest, entries };
        self.status.bans_left_out = left_out;
        self.take_over(next);
        self.is_too_much = true;
        self.rest(now_ms, TOO_MUCH.into());
    }

    /// This is known now.
    fn take_over(&mut self, next: Truth) {
        let changes = self.truth.replace(next);
        self.note_words(&changes);
        self.changes.extend(changes);
        let there = self.truth.entries.keys().filter(|key| !self.held.contains_key(*key));
        self.recent.reset(there);
        [self.bytes, self.ban_bytes] = self.truth.bytes();
    }

    /// What the headers of a list, and its keys that are known, say against what is known.
    fn doubt_in(&self, next: &Truth) -> Option<Doubt> {
        if !self.truth.is_known() {
            return None;
        }
        // That history was rewritten stays true when the new one grows longer than the old.
        if let Some((_, doubt @ (Doubt::RevisionWentBack { .. } | Doubt::TermWentBack { .. }))) =
            &self.status.doubt
            && next.cluster_id == self.truth.cluster_id
        {
            return Some(doubt.clone());
        }
        judge::doubt_header(&self.truth.header(), &next.header())
            .or_else(|| judge::doubt_entries(&self.truth.entries, &next.entries))
    }

    /// The same, and notes when it is another history than before.
    fn see_history(&mut self, now_ms: u64, next: &Truth) -> Option<Doubt> {
        let (doubt, told) = (self.doubt_in(next), next.header());
        let seen = std::mem::replace(&mut self.seen, doubt.as_ref().map(|_| told));
        let is_seen = seen.is_some_and(|seen| judge::doubt_header(&seen, &told).is_none());
        if doubt.is_some() && !is_seen {
            self.status.rewritten_at_ms = Some(now_ms);
        }
        doubt
    }

    /// Nothing of this history is believed, but for what the fleet's key vouches for.
    fn hold(&mut self, now_ms: u64, doubt: Doubt, next: &Truth) {
        self.set_doubt(doubt);
        self.borrow(next);
        self.status.is_current = false;
        let until_ms = now_ms + self.options.doubt_every_ms;
        self.enter(Phase::Resting { until_ms });
    }

    /// Something has come on a watch.
    pub fn handle_watched(&mut self, now_ms: u64, stream: u64, watched: Watched) {
        if stream != self.stream {
            return;
        }
        match &mut self.phase {
            Phase::Opening { asked: true, .. } if watched.created => {
                let check_at_ms = now_ms + FIRST_CHECK_MS.min(self.options.check_every_ms);
                self.phase = Phase::Watching { heard_ms: now_ms, check_at_ms, ask_progress: false };
            }
            Phase::Watching { heard_ms, .. } => *heard_ms = now_ms,
            _ if watched.canceled => {}
            _ => return,
        }
        if watched.canceled || watched.header.cluster_id != self.truth.cluster_id {
            return self.handle_cancel(now_ms, &watched);
        }
        if watched.watch_id == ALL_WATCHES {
            return;
        }
        let bytes = |event: &Event| event.kv.key.len() + event.kv.value.len();
        self.fragment_bytes += watched.events.iter().map(bytes).sum::<usize>();
        self.fragments.extend(watched.events);
        if watched.is_fragment {
            if self.fragments.len() > self.options.keys_max
                || self.fragment_bytes > self.options.bytes_max
            {
                self.relist("a watch's answer does not end");
            }
            return;
        }
        // Notices of a watch's own progress come in order with its events, so everything up to
        // their revision has been told. With events, the header may run ahead of them.
        if self.fragments.is_empty() && !watched.created {
            self.truth.revision = self.truth.revision.max(watched.header.revision);
        } else {
            self.apply(now_ms);
        }
    }

    fn handle_cancel(&mut self, now_ms: u64, watched: &Watched) {
        let is_other = watched.header.cluster_id != self.truth.cluster_id;
        if watched.compact_revision > 0 || is_other {
            self.close_watch();
            self.enter(Phase::Listing(Staging::default()));
        } else {
            let why = format!("the watch was canceled: {}", watched.cancel_reason);
            self.give_up(now_ms, &why);
        }
    }

    /// A watch has ended.
    pub fn handle_watch_end(&mut self, now_ms: u64, stream: u64, why: &Error) {
        let is_open = matches!(self.phase, Phase::Opening { .. } | Phase::Watching { .. });
        if stream == self.stream && is_open {
            if why.is_compacted() {
                self.relist("compacted");
            } else {
                self.give_up(now_ms, &why.to_string());
            }
        }
    }

    /// How many keys there are, as the member and its leader agree on.
    fn handle_count(&mut self, now_ms: u64, known: &Header, ranged: &Ranged) {
        if judge::doubt_header(known, &ranged.header).is_some() {
            return self.relist("the answer to a count is in doubt");
        }
        self.truth.raft_term = self.truth.raft_term.max(ranged.header.raft_term);
        let known = self.truth.entries.len() - self.held.len() + self.status.bans_left_out;
        if ranged.count == known as i64 {
            self.differing = None;
            if self.status.bans_left_out > 0 && self.has_room_for_bans() {
                return self.relist("there is room for bans that were left out");
            }
            return self.agree(now_ms);
        }
        // Events may be under way. If none comes until the next count, none will.
        let (times, revision) = self.differing.unwrap_or_default();
        self.differing = Some((times + 1, self.truth.revision));
        if times + 1 >= DIFFERENCES_MAX || (times > 0 && revision == self.truth.revision) {
            self.relist("the watch has lost something: the count differs");
        }
    }

    /// Some are gone, so that others may be obeyed that were left out.
    fn has_room_for_bans(&self) -> bool {
        let bans = self.recent.left(Class::Bans);
        self.options.has_room_for_ban(bans, self.ban_bytes + VALUE_BYTES_MAX)
    }

    fn agree(&mut self, now_ms: u64) {
        self.backoff.reset();
        self.status.is_current = true;
        self.status.agreed_at_ms = Some(now_ms);
    }

    /// What is known cannot be continued: list everything.
    fn relist(&mut self, why: &str) {
        self.status.disagreements += 1;
        self.status.last_error = Some(why.to_owned());
        self.differing = None;
        self.close_watch();
        self.enter(Phase::Listing(Staging::default()));
    }

    /// The member is no good: wait, and try another.
    fn give_up(&mut self, now_ms: u64, why: &str) {
        self.close_watch();
        self.leave = true;
        self.rest(now_ms, why.to_owned());
    }

    fn rest(&mut self, now_ms: u64, why: String) {
        self.status.last_error = Some(why);
        self.status.is_current = false;
        let until_ms = now_ms + self.backoff.next_wait_ms();
        self.enter(Phase::Resting { until_ms });
    }

    fn enter(&mut self, phase: Phase) {
        self.asked = None;
        self.phase = phase;
    }

    /// What still comes of this watch is of no interest.
    fn close_watch(&mut self) {
        self.fragments.clear();
        self.fragment_bytes = 0;
        self.stream += 1;
        self.close = true;
    }
}

const BACKOFF_FIRST_MS: u64 = 100;
const BACKOFF_LAST_MS: u64 = 10_000;
/// Why a copy is not continued.
const TOO_MUCH: &str = "there are more keys than this mirror may copy: only bans are heard of";
/// How long a watch may take to begin.
const OPEN_WITHIN_MS: u64 = 5_000;
/// How soon after its begin a watch is checked for the first time.
const FIRST_CHECK_MS: u64 = 200;
/// A count that differs so often in a row differs for good, whatever happens meanwhile.
const DIFFERENCES_MAX: u32 = 6;
