//! Questions to all gateways of a fleet at once, and their answers: by keys in etcd that only
//! holders of the fleet's key can write and read.
//!
//! The process that asks writes one key for each start of a gateway, under a lease that it keeps
//! alive while it listens; what is written with that lease ends with it. A gateway takes the key
//! away and answers below another one ([`Used`] says whether it answers at all).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::etcd::kv::Range;
use crate::etcd::txn::{Delete, Op, Put, Txn};
use crate::etcd::{Client, Error};
use crate::keyspace::{Keyspace, Name, Place};
use crate::seal::FleetKey;
use crate::values::{Gateway, Piece, Question, Refused, SealedText, Stored, What};

/// A question that was asked.
#[derive(Debug)]
pub struct Asking {
    client: Client,
    keyspace: Keyspace,
    key: FleetKey,
    id: Name,
    lease: i64,
    kept: Instant,
    /// When etcd has answered last.
    heard: Instant,
    /// Which part each start of a gateway tells next.
    next: BTreeMap<Name, u32>,
    /// Gateways that have not told everything, and whether each has told something.
    open: BTreeMap<Name, bool>,
}

impl Asking {
    /// Asks these starts of gateways.
    pub async fn begin(
        client: Client,
        (keyspace, key): (Keyspace, FleetKey),
        question: &Question,
        gateways: &BTreeMap<Name, Gateway>,
    ) -> Result<Self, Error> {
        let id = new_id()?;
        let lease = client.grant(LEASE.as_secs() as i64).await?.id;
        let place = if question.what == What::Move { Place::Move } else { Place::Question };
        let mut next = BTreeMap::new();
        let mut puts = Vec::new();
        for gateway in gateways.values() {
            // Checked when it was read. Who took another one's is asked by its name alone.
            let Some(instance) = Name::new(&gateway.instance) else { continue };
            let at = keyspace.key(&place(instance.clone(), id.clone()));
            if next.insert(instance, 0).is_none() {
                let value = sealed(&key, &at, question)?;
                puts.push(Op::Put(Put { key: at, value, lease }));
            }
        }
        let mut is_asked = false;
        for some in puts.chunks(KEYS_AT_A_TIME) {
            match client.txn(&Txn { then: some.to_vec(), ..Txn::default() }).await {
                Ok(_) => is_asked = true,
                // It may stand there: a gateway that does not hear of it is silent.
                Err(why) if is_asked || why.blames_member() => is_asked = true,
                Err(why) => return Err(why),
            }
        }
        let open = gateways.keys().map(|name| (name.clone(), false)).collect();
        let (kept, heard) = (Instant::now(), Instant::now());
        Ok(Self { client, keyspace, key, id, lease, kept, heard, next, open })
    }

    /// What has been answered since. An etcd that is away for a moment has told nothing: gateways
    /// obey meanwhile.
    pub async fn hear(&mut self) -> Result<Vec<Piece>, Error> {
        match self.look().await {
            Ok(pieces) => {
                self.heard = Instant::now();
                Ok(pieces)
            }
            Err(_) if self.heard.elapsed() < LEASE => Ok(Vec::new()),
            Err(why) => Err(why),
        }
    }

    async fn look(&mut self) -> Result<Vec<Piece>, Error> {
        if self.kept.elapsed() > KEEP_EVERY && self.client.keep_alive(self.lease).await.is_ok() {
            self.kept = Instant::now();
        }
        let range = Range::prefix(&self.keyspace.answers(&self.id));
        let found = self.client.range(&Range { limit: KEYS_AT_A_TIME as i64, ..range }).await?.kvs;
        let mut pieces = Vec::new();
        let mut read = Vec::new();
        for kv in found {
            if let Some(piece) = self.read(&kv.key, &kv.value) {
                if piece.last {
                    self.open.remove(piece.gateway.as_str());
                } else if let Some(is_heard) = self.open.get_mut(piece.gateway.as_str()) {
                    *is_heard = true;
                }
                pieces.push(piece);
            }
            read.push(Op::Delete(Delete { key: kv.key, end: Bytes::new() }));
        }
        if !read.is_empty() {
            // What stays is found again, and has been read.
            let _ = self.client.txn(&Txn { then: read, ..Txn::default() }).await;
        }
        Ok(pieces)
    }

    /// What stands there, if a gateway has sealed it and it is the part that comes next.
    fn read(&mut self, key: &Bytes, value: &Bytes) -> Option<Piece> {
        let Some(Place::Answer(_, instance, part)) = self.keyspace.place(key) else { return None };
        let piece = opened::<Piece>(&self.key, key, value)?.ok()?;
        let next = self.next.get_mut(&instance).filter(|next| **next == part)?;
        *next += 1;
        Some(piece)
    }

    /// Whether no gateway has more to tell.
    pub fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    /// Waits no more for those that have told nothing. Returns who they are.
    pub fn give_up_silent(&mut self) -> impl Iterator<Item = Name> + '_ {
        self.open.extract_if(.., |_, is_heard| !*is_heard).map(|(name, _)| name)
    }

    /// Waits no more for anybody. Returns those that have not told everything.
    pub fn give_up(&mut self) -> impl Iterator<Item = Name> + '_ {
        std::mem::take(&mut self.open).into_keys()
    }

    /// Takes away what is left of it. Where that fails it ends by itself.
    pub async fn end(self) {
        let _ = self.client.revoke(self.lease).await;
    }
}

/// What a fleet has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// By gateway: its page's status, and the page.
    pub whole: BTreeMap<String, (u16, String)>,
    /// Who has not answered, and why where that is known.
    pub silent: Vec<(Name, &'static str)>,
}

impl Answers {
    /// Asks gateways that are registered, and waits for all: so long for a word of each, and for
    /// the rest as long again as the answer takes to be made.
    pub async fn of(
        client: &Client,
        fleet: (Keyspace, FleetKey),
        question: &Question,
        mut gateways: BTreeMap<Name, Gateway>,
        (within, lasts): (Duration, Duration),
    ) -> Result<Self, Error> {
        let mut answers = Self { silent: deaf(&mut gateways), ..Self::default() };
        let mut asking = Asking::begin(client.clone(), fleet, question, &gateways).await?;
        let until = Instant::now() + within;
        let mut parts = BTreeMap::<String, String>::new();
        while !asking.is_over() && Instant::now() < until + lasts {
            if Instant::now() > until {
                answers.silent.extend(asking.give_up_silent().map(|name| (name, "")));
            }
            let Ok(pieces) = asking.hear().await else { break };
            for Piece { gateway, status, last, text } in pieces {
                let whole = parts.entry(gateway.clone()).or_default();
                // Where there was more than an answer may hold, what there is says nothing.
                if status == TOO_LONG {
                    whole.clear();
                }
                whole.push_str(&text);
                if last {
                    answers.whole.insert(gateway, (status, std::mem::take(whole)));
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        answers.silent.extend(asking.give_up_silent().map(|name| (name, "")));
        answers.silent.extend(asking.give_up().map(|name| (name, BREAKS_OFF)));
        asking.end().await;
        Ok(answers)
    }

    /// The same for programs. What is made line by line is a list of them.
    pub fn json(&self, what: What) -> serde_json::Value {
        let read = |status: u16, text: &str| match what {
            What::Trace if status == 200 => {
                let lines = text.lines().filter(|line| !line.is_empty());
                lines.map(serde_json::from_str::<serde_json::Value>).collect::<Result<_, _>>().ok()
            }
            _ => serde_json::from_str(text).ok(),
        };
        let answer = |(gateway, (status, text)): (&String, &(u16, String))| {
            let answer = read(*status, text).unwrap_or_else(|| json!(text.trim_end()));
            json!({ "gateway": gateway, "status": status, "answer": answer })
        };
        let silent = |(name, why): &(Name, &str)| json!({ "gateway": name.as_str(), "why": why });
        json!({
            "schema": 1,
            "answers": self.whole.iter().map(answer).collect::<Vec<_>>(),
            "silent": self.silent.iter().map(silent).collect::<Vec<_>>(),
        })
    }
}

/// Gateways that answer no question; they are asked none.
pub fn deaf(gateways: &mut BTreeMap<Name, Gateway>) -> Vec<(Name, &'static str)> {
    let is_deaf = |_: &Name, it: &mut Gateway| !it.answers;
    gateways.extract_if(.., is_deaf).map(|(name, _)| (name, DEAF)).collect()
}

/// Seals a value for its place.
pub fn sealed<T: Stored>(key: &FleetKey, place: &[u8], value: &T) -> Result<Bytes, Error> {
    let text = value.encode().map_err(|why| Error::Config(why.to_string()))?;
    let sealed = key.seal_text(place, &text).map_err(|why| Error::Config(why.to_string()))?;
    sealed.encode().map_err(|why| Error::Config(why.to_string()))
}

/// Opens a value; `None` where it was not sealed with the fleet's key for this place.
pub fn opened<T: Stored>(key: &FleetKey, place: &[u8], value: &[u8]) -> Option<Result<T, Refused>> {
    let text = SealedText::decode(value).ok()?;
    key.open_text(place, &text).ok().map(|text| T::decode(&text))
}

fn new_id() -> Result<Name, Error> {
    let random = || getrandom::u64().map_err(|why| Error::Config(why.to_string()));
    let text = format!("{:016x}{:016x}", random()?, random()?);
    Ok(Name::new(&text).expect("digits are a name"))
}

/// Which questions were answered, so that each is answered once.
///
/// Time only goes on here: where the host's clock is set back, an old question stays old. By more
/// than a question lasts, the clock was ahead: then it is believed again, and a question has to be
/// younger than all that were answered. All of it goes on in the next process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Until when each could be believed, in seconds since 1970.
    until: BTreeMap<Name, u64>,
    latest_s: u64,
    /// When the youngest of those that were answered was asked, and up to which moment none is
    /// answered any more.
    asked_s: u64,
    over_s: u64,
}

ringgate_core::told! {
    /// Why a question is not answered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NotNow;
    /// It was answered.
    Used = "it was answered before",
    /// One that was asked so many seconds later was answered, while this gateway's clock was ahead.
    Overtaken(later_s: u64) = "while its clock was ahead this gateway has answered one that was asked {later_s} s later, and answers none that was asked before that",
    /// The clocks of both sides are so many seconds apart, or the question was kept for so long.
    Clocks(apart_s: u64) = "it was asked {apart_s} s away from this gateway's clock, and {LIFE_S} s is the most: are both clocks right?",
    /// Too many are remembered.
    Many = "too many questions were asked within a minute",
}

impl Used {
    /// What a process before has remembered, how late it was there, and its
    /// [bounds](Self::bounds) where it has said them.
    pub fn adopt(
        &mut self,
        before: impl IntoIterator<Item = (String, u64)>,
        latest_s: u64,
        bounds: Option<[u64; 2]>,
    ) {
        self.latest_s = latest_s;
        [self.asked_s, self.over_s] = bounds.unwrap_or([latest_s, 0]);
        let before =
            before.into_iter().filter_map(|(id, until_s)| Some((Name::new(&id)?, until_s)));
        self.until.extend(before);
    }

    /// What the next process has to remember.
    pub fn handed(&self) -> Vec<(String, u64)> {
        self.until.iter().map(|(id, until_s)| (id.to_string(), *until_s)).collect()
    }

    /// How late it was when it was asked last, in seconds since 1970: for the next process not
    /// earlier than the moment up to which none is answered.
    pub fn latest_s(&self) -> u64 {
        self.latest_s.max(self.over_s)
    }

    /// When the youngest of those that were answered was asked, and up to which moment none is
    /// answered: for the next process.
    pub const fn bounds(&self) -> [u64; 2] {
        [self.asked_s, self.over_s]
    }

    /// Whether a question that was asked then is to be answered. It is remembered that it was.
    pub fn admit(&mut self, id: &Name, at_s: u64, now_s: u64) -> Result<(), NotNow> {
        if self.latest_s > now_s.saturating_add(LIFE_S) {
            (self.over_s, self.latest_s) = (self.asked_s, now_s);
        }
        let now_s = now_s.max(self.latest_s);
        self.latest_s = now_s;
        self.until.retain(|_, until_s| *until_s >= now_s);
        let apart_s = at_s.abs_diff(now_s);
        if apart_s > LIFE_S {
            return Err(NotNow::Clocks(apart_s));
        }
        if self.until.contains_key(id) {
            return Err(NotNow::Used);
        }
        if at_s <= self.over_s {
            return Err(NotNow::Overtaken(self.over_s - at_s));
        }
        if self.until.len() >= USED_MAX {
            return Err(NotNow::Many);
        }
        self.asked_s = self.asked_s.max(at_s);
        self.until.insert(id.clone(), at_s + LIFE_S);
        Ok(())
    }
}

const DEAF: &str = "a release that cannot be asked, or a config without the fleet's key";
/// Why an answer is not there that has begun.
pub const BREAKS_OFF: &str = "its answer has not come to its end";
/// The status of an answer that is longer than it may be.
pub const TOO_LONG: u16 = 413;
/// How often answers are looked for.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How far the clocks of both sides may be apart, and how long a question can be believed.
const LIFE_S: u64 = 60;
const USED_MAX: usize = 4096;
/// A question whose asker has gone ends by then, and the answers that go on with it.
const LEASE: Duration = Duration::from_secs(15);
const KEEP_EVERY: Duration = Duration::from_secs(4);
/// etcd decides about 128 keys in one transaction.
const KEYS_AT_A_TIME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn id(number: usize) -> Name {
        Name::new(&format!("{number:032x}")).expect("digits")
    }

    fn next_of(used: &Used) -> Used {
        let mut next = Used::default();
        next.adopt(used.handed(), used.latest_s(), Some(used.bounds()));
        next
    }

    #[test]
    fn a_question_is_answered_once_and_while_it_is_young() {
        let mut used = Used::default();
        assert_eq!(used.admit(&id(1), NOW_S, NOW_S), Ok(()));
        for now_s in [NOW_S, NOW_S + LIFE_S, NOW_S - LIFE_S] {
            assert_eq!(used.admit(&id(1), NOW_S, now_s), Err(NotNow::Used), "{now_s}");
        }
        // Once it is forgotten it is too old, whatever the host's clock says afterwards.
        for (now_s, why) in [
            (NOW_S + LIFE_S + 1, NotNow::Clocks(LIFE_S + 1)),
            (NOW_S + 1, NotNow::Clocks(LIFE_S + 1)),
            (NOW_S, NotNow::Overtaken(0)),
            (NOW_S - 3600, NotNow::Clocks(3600)),
            (NOW_S, NotNow::Overtaken(0)),
        ] {
            assert_eq!(used.admit(&id(1), NOW_S, now_s), Err(why), "{now_s}");
        }
        assert!(used.until.is_empty(), "nothing is remembered for ever");
        assert_eq!(used.admit(&id(2), NOW_S - 3600, NOW_S), Err(NotNow::Clocks(3600)));
        // An asker whose clock is ahead is believed within bounds, and no longer twice.
        let ahead_s = NOW_S + 2 * LIFE_S;
        assert_eq!(used.admit(&id(3), ahead_s, NOW_S + LIFE_S + 1), Ok(()));
        assert_eq!(used.admit(&id(3), ahead_s, ahead_s + LIFE_S), Err(NotNow::Used));
    }

    #[test]
    fn a_clock_that_was_ahead_is_believed_again() {
        let day_s = 24 * 3600;
        let mut used = Used::default();
        assert_eq!(used.admit(&id(1), NOW_S, NOW_S), Ok(()));
        assert_eq!(used.admit(&id(2), NOW_S + 1, NOW_S + day_s), Err(NotNow::Clocks(day_s - 1)));
        assert_eq!(used.admit(&id(3), NOW_S + 2, NOW_S + 2), Ok(()));
        let overtaken = Err(NotNow::Overtaken(0));
        assert_eq!(used.admit(&id(1), NOW_S, NOW_S + 2), overtaken, "it was forgotten");
        let mut next = next_of(&used);
        assert_eq!(next.admit(&id(4), NOW_S + 3, NOW_S + 3), Ok(()));
        assert_eq!(next.admit(&id(3), NOW_S + 2, NOW_S + 3), Err(NotNow::Used));
        assert_eq!(next.admit(&id(1), NOW_S, NOW_S + 3), overtaken, "it stays so");
        // An upgrade while it was ahead, or before anybody has asked since it is right.
        assert_eq!(next.admit(&id(5), NOW_S + 4, NOW_S + day_s), Err(NotNow::Clocks(day_s - 4)));
        let mut last = next_of(&next);
        assert_eq!(last.admit(&id(4), NOW_S + 3, NOW_S + 5), overtaken);
        assert_eq!(last.admit(&id(3), NOW_S + 2, NOW_S + 5), Err(NotNow::Overtaken(1)));
        assert_eq!(last.admit(&id(6), NOW_S + 5, NOW_S + 5), Ok(()));
    }

    #[test]
    fn a_successor_remembers_what_was_answered() {
        let mut used = Used::default();
        assert_eq!(used.admit(&id(1), NOW_S, NOW_S), Ok(()));
        let mut next = next_of(&used);
        assert_eq!(next.admit(&id(1), NOW_S, NOW_S + 1), Err(NotNow::Used));
        assert_eq!(next.admit(&id(2), NOW_S, NOW_S + 1), Ok(()));
        // What was forgotten stays too old for the one after that, wherever its clock is.
        let later_s = NOW_S + LIFE_S + 2;
        assert_eq!(next.admit(&id(3), later_s, later_s), Ok(()));
        let mut last = next_of(&next);
        let overtaken = NotNow::Overtaken(LIFE_S + 2);
        assert_eq!(last.admit(&id(1), NOW_S, NOW_S), Err(overtaken));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut used = Used::default();
        for number in 0..USED_MAX {
            assert_eq!(used.admit(&id(number), NOW_S, NOW_S), Ok(()));
        }
        assert_eq!(used.admit(&id(USED_MAX), NOW_S, NOW_S), Err(NotNow::Many));
        let later_s = NOW_S + LIFE_S + 1;
        assert_eq!(used.admit(&id(USED_MAX), later_s, later_s), Ok(()));
    }
}
