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
//! key.

use bytes::Bytes;

use super::face::{Ask, Options, Status};
use super::judge::{self, Doubt, Recent};
use super::staging::Staging;
use super::truth::{Change, Entry, Truth};
use crate::backoff::Backoff;
use crate::etcd::Error;
use crate::etcd::kv::{Header, Range, Ranged};
use crate::etcd::watch::{ALL_WATCHES, Event, Watched};

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
    /// Bytes of keys and values that are known, or more.
    bytes: usize,
    /// There is more than may be copied: what is known cannot be continued.
    is_too_much: bool,
    changes: Vec<Change>,
    /// The last counts differed: how many of them, and at which revision of the copy.
    differing: Option<(u32, i64)>,
    doubts: u64,
    /// The doubt that a watch has raised, which had not told everything.
    guessed: Option<u64>,
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
        let bytes = known.bytes();
        let mut recent = Recent::default();
        recent.reset(&known, options.classify);
        Self {
            backoff: Backoff::new(BACKOFF_FIRST_MS, BACKOFF_LAST_MS, options.seed),
            truth: known,
            status: Status::default(),
            phase: Phase::Resting { until_ms: 0 },
            asked: None,
            question: 0,
            stream: 0,
            recent,
            fragments: Vec::new(),
            fragment_bytes: 0,
            bytes,
            is_too_much: false,
            changes: Vec::new(),
            differing: None,
            doubts: 0,
            guessed: None,
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
                    !self.truth.is_known() || self.status.doubt.is_some() || self.is_too_much;
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
                Ok(()) if ranged.more => {}
                Ok(()) => {
                    let next = std::mem::take(staging).into_truth();
                    self.adopt(now_ms, next);
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
    fn adopt(&mut self, now_ms: u64, next: Truth) {
        self.status.lists += 1;
        let doubt = self.doubt_in(now_ms, &next);
        if let Some(doubt) =
            doubt.filter(|doubt| !judge::is_believed(self.confirmed.as_ref(), doubt))
        {
            return self.hold(now_ms, doubt);
        }
        self.status.doubt = None;
        self.guessed = None;
        self.confirmed = None;
        self.differing = None;
        self.changes.extend(self.truth.replace(next));
        self.recent.reset(&self.truth, self.options.classify);
        self.bytes = self.truth.bytes();
        self.is_too_much = false;
        self.agree(now_ms);
        self.phase = Phase::Opening { asked: false, until_ms: now_ms };
    }

    fn doubt_in(&self, now_ms: u64, next: &Truth) -> Option<Doubt> {
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
        let remembers = self.status.doubt.is_some()
            || self.status.agreed_at_ms.is_some_and(|at| now_ms - at <= self.options.memory_ms);
        judge::doubt_header(&self.truth.header(), &next.header()).or_else(|| {
            let doubt = || judge::doubt_list(&self.truth, next, self.options.classify);
            if remembers { doubt() } else { None }
        })
    }

    fn hold(&mut self, now_ms: u64, doubt: Doubt) {
        let is_new =
            self.status.doubt.as_ref().is_none_or(|(_, stands)| !judge::is_same(stands, &doubt));
        let is_exact = self.guessed.take().is_some();
        if is_new {
            self.doubts += u64::from(!is_exact);
            self.status.doubt = Some((self.doubts, doubt));
            self.confirmed = None;
        }
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

    /// Applies what has been told of one or more whole revisions.
    fn apply(&mut self, now_ms: u64) {
        let floor = self.truth.revision;
        self.fragment_bytes = 0;
        for event in std::mem::take(&mut self.fragments) {
            let revision = event.kv.mod_revision;
            if revision <= floor && !self.is_known_already(&event) {
                return self.relist("the watch told something late");
            }
            if revision <= floor {
                continue;
            }
            if revision < self.truth.revision {
                return self.relist("the watch told revisions out of order");
            }
            if !event.kv.key.starts_with(&self.options.prefix) {
                return self.relist("the watch told of a key that is not ours");
            }
            if !self.follows(&event) {
                return self.relist("the watch has lost something: a version is missing");
            }
            self.truth.revision = revision;
            self.status.events += 1;
            if let Some(doubt) = self.apply_one(now_ms, &event) {
                return self.take_back(now_ms, doubt);
            }
        }
        if self.truth.entries.len() > self.options.keys_max || self.bytes > self.options.bytes_max {
            // What was deleted or replaced is still counted.
            self.bytes = self.truth.bytes();
            self.is_too_much = self.truth.entries.len() > self.options.keys_max
                || self.bytes > self.options.bytes_max;
        }
        if self.is_too_much {
            self.close_watch();
            self.rest(now_ms, "there are more keys than this mirror may copy".into());
        }
    }

    /// Whether an event of the past says what is known. One that does not may have been lost.
    fn is_known_already(&self, event: &Event) -> bool {
        match self.truth.entries.get(&event.kv.key) {
            Some(entry) => entry.mod_revision >= event.kv.mod_revision,
            None => event.is_delete,
        }
    }

    /// Whether nothing has happened to the key between what is known and this event.
    fn follows(&self, event: &Event) -> bool {
        let known = self.truth.entries.get(&event.kv.key).map_or(0, |entry| entry.version);
        event.is_delete || event.kv.version == known + 1
    }

    fn apply_one(&mut self, now_ms: u64, event: &Event) -> Option<Doubt> {
        let class = (self.options.classify)(&event.kv.key);
        if event.is_delete {
            let (key, entry) = self.truth.entries.remove_entry(&event.kv.key)?;
            let revision = Some(event.kv.mod_revision);
            self.changes.push(Change { key: key.clone(), value: None, revision });
            return class.and_then(|class| self.recent.went(now_ms, class, key, entry));
        }
        let (key, entry) = (Bytes::copy_from_slice(&event.kv.key), Entry::of(&event.kv));
        self.bytes += key.len() + entry.value.len();
        let had = self.truth.entries.insert(key.clone(), entry.clone());
        if had.is_none()
            && let Some(class) = class
        {
            self.recent.came(now_ms, class, &key);
        }
        if had.is_none_or(|had| had.value != entry.value) {
            let revision = Some(entry.mod_revision);
            self.changes.push(Change { key, value: Some(entry.value), revision });
        }
        None
    }

    /// Too much has gone in too short a time: puts back what went, and holds back what comes.
    fn take_back(&mut self, now_ms: u64, doubt: Doubt) {
        for (key, entry) in self.recent.take_gone() {
            let value = Some(entry.value.clone());
            self.changes.push(Change { key: key.clone(), value, revision: None });
            self.truth.entries.insert(key, entry);
        }
        self.recent.reset(&self.truth, self.options.classify);
        self.close_watch();
        self.hold(now_ms, doubt);
        // How many are gone is seen in a list, which comes at once.
        self.guessed = Some(self.doubts);
        self.phase = Phase::Resting { until_ms: now_ms };
    }

    /// How many keys there are, as the member and its leader agree on.
    fn handle_count(&mut self, now_ms: u64, known: &Header, ranged: &Ranged) {
        if judge::doubt_header(known, &ranged.header).is_some() {
            return self.relist("the answer to a count is in doubt");
        }
        self.truth.raft_term = self.truth.raft_term.max(ranged.header.raft_term);
        if ranged.count == self.truth.entries.len() as i64 {
            self.differing = None;
            return self.agree(now_ms);
        }
        // Events may be under way. If none comes until the next count, none will.
        let (times, revision) = self.differing.unwrap_or_default();
        self.differing = Some((times + 1, self.truth.revision));
        if times + 1 >= DIFFERENCES_MAX || (times > 0 && revision == self.truth.revision) {
            self.relist("the watch has lost something: the count differs");
        }
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
/// How long a watch may take to begin.
const OPEN_WITHIN_MS: u64 = 5_000;
/// How soon after its begin a watch is checked for the first time.
const FIRST_CHECK_MS: u64 = 200;
/// A count that differs so often in a row differs for good, whatever happens meanwhile.
const DIFFERENCES_MAX: u32 = 6;
