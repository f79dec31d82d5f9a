//! What operators ask this gateway through etcd: a key that is sealed with the fleet's key, and is
//! taken away before it is obeyed. The gateway's own pages answer, part by part, below a key of the
//! question's.
//!
//! Two processes of a hand-over see the same keys: who takes one away has it. Whoever can only
//! write to etcd can put an old one back, which `ringgate_fleet::asking::Used` refuses.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as HttpBody;
use ringgate_fleet::asking::{NotNow, TOO_LONG, Used, opened, sealed};
use ringgate_fleet::clocks::Clocks;
use ringgate_fleet::etcd::kv::{KeyValue, Range, end_of_prefix};
use ringgate_fleet::etcd::txn::{Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::question::PIECE_BYTES;
use ringgate_fleet::values::{Piece, Question};
use ringgate_os::sparing::OnceASecond;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Settings;

/// What answers: a page's status and what it consists of. `None` where another process has the
/// gateway, and is to be asked.
pub type Answerer = Arc<dyn Fn() -> Option<AnswerMaker> + Send + Sync>;

/// What makes an answer of a question.
pub(super) type AnswerMaker = Box<dyn FnOnce(Question) -> Answering + Send>;

/// An answer that is being made.
pub type Answering = Pin<Box<dyn Future<Output = (u16, AnswerBody)> + Send>>;

/// What an answer consists of. Dropped, it ends.
pub type AnswerBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = Infallible> + Send>>;

/// What has become of questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// A page has answered them.
    pub answered: u64,
    /// They were too old, or too many.
    pub refused: u64,
    /// Nobody with the fleet's key has asked so, or that was answered before.
    pub forged: u64,
}

/// Answers what is asked.
#[derive(Clone)]
pub(super) struct Asked {
    client: Client,
    clock: Arc<dyn Clocks>,
    keyspace: Keyspace,
    key: FleetKey,
    gateway: Name,
    instance: Name,
    answerer: Answerer,
    used: Arc<Mutex<Used>>,
    told: Arc<OnceASecond>,
}

impl Asked {
    /// `None` where our own name cannot stand in etcd, which the config has made sure of.
    pub(super) fn new(
        (client, clock): (Client, Arc<dyn Clocks>),
        settings: &Settings,
        key: FleetKey,
        (answerer, used): (Answerer, Arc<Mutex<Used>>),
    ) -> Option<Self> {
        let (keyspace, gateway) = (settings.keyspace.clone(), settings.name.clone());
        let instance = Name::new(&settings.instance)?;
        let told = Arc::default();
        Some(Self { client, clock, keyspace, key, gateway, instance, answerer, used, told })
    }

    /// Goes on until `ends` says so, and then until what was begun is answered.
    pub(super) async fn run(self, tell: impl Fn(Questions) + Send, ends: watch::Receiver<bool>) {
        let (questions, moves) =
            (self.keyspace.questions(&self.instance), self.keyspace.moves(&self.instance));
        tokio::join!(
            self.take_all(&questions, &tell, ends.clone()),
            self.take_all(&moves, &tell, ends)
        );
    }

    async fn take_all(
        &self,
        prefix: &Bytes,
        tell: &(impl Fn(Questions) + Send),
        mut ends: watch::Receiver<bool>,
    ) {
        let mut answering = JoinSet::new();
        while ends.has_changed().is_ok() && !*ends.borrow() {
            if self.follow(prefix, &mut answering, tell, &mut ends).await.is_err() {
                or_end(&mut ends, tokio::time::sleep(AGAIN_AFTER)).await;
            }
        }
        while answering.join_next().await.is_some() {}
    }

    /// Takes what stands there and what comes, for a while. What it waits for may not come; a
    /// question that is being taken away is never left halfway, or nobody would answer it.
    async fn follow(
        &self,
        prefix: &Bytes,
        answering: &mut JoinSet<()>,
        tell: &(impl Fn(Questions) + Send),
        ends: &mut watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let range = Range { limit: AT_A_TIME, ..Range::prefix(prefix) };
        let Some(found) = or_end(ends, self.client.range(&range)).await else { return Ok(()) };
        let mut found = found?;
        // In the order in which they were asked.
        found.kvs.sort_unstable_by_key(|kv| kv.mod_revision);
        for kv in &found.kvs {
            tell(self.take(kv, answering).await?);
        }
        let (end, from) = (end_of_prefix(prefix), found.header.revision + 1);
        let watch = self.client.watch(prefix, &end, from);
        let Some(watch) = or_end(ends, watch).await else { return Ok(()) };
        let mut watch = watch?;
        // A connection that is dead without a word is left then.
        let until = Instant::now() + LOOK_ANEW;
        while let Some(Ok(watched)) = or_end(ends, timeout_at(until, watch.next_answer())).await {
            let watched = watched?;
            for event in watched.events.iter().filter(|it| !it.is_delete) {
                tell(self.take(&event.kv, answering).await?);
            }
            if watched.canceled {
                break;
            }
        }
        Ok(())
    }

    /// Takes a question away, and has it answered.
    async fn take(&self, kv: &KeyValue, answering: &mut JoinSet<()>) -> Result<Questions, Error> {
        // Where it is another process's, it stays for that.
        let Some(answers) = (self.answerer)() else { return Ok(Questions::default()) };
        let remove = Txn::remove(kv.key.clone(), kv.mod_revision);
        if !self.client.txn(&remove).await?.held {
            return Ok(Questions::default());
        }
        let forged = Questions { forged: 1, ..Questions::default() };
        let place = self.keyspace.place(&kv.key);
        let Some(Place::Question(_, id) | Place::Move(_, id)) = place else { return Ok(forged) };
        let Some(read) = opened::<Question>(&self.key, &kv.key, &kv.value) else {
            if self.told.is_told() {
                tracing::warn!(
                    event = "fleet_question_forged",
                    "a question stood in etcd that nobody with the fleet's key has asked: it is not answered"
                );
            }
            return Ok(forged);
        };
        while answering.try_join_next().is_some() {}
        let judged = read
            .map_err(|why| (400, why.to_string()))
            .and_then(|question| self.admit(&id, &question, answering.len()).map(|()| question));
        let reply = Reply { id, lease: kv.lease, asked: self.clone() };
        match judged {
            Ok(question) => {
                drop(answering.spawn(reply.answer(question, answers)));
                Ok(Questions { answered: 1, ..Questions::default() })
            }
            // Whoever had asked has its answer.
            Err((USED, why)) => {
                if self.told.is_told() {
                    tracing::warn!(
                        event = "fleet_question_replayed",
                        "somebody has put a question back into etcd: {why}"
                    );
                }
                Ok(forged)
            }
            Err((status, why)) => {
                let text = format!("{why}\n");
                drop(answering.spawn(async move {
                    reply.say(0, (status, true), text).await;
                }));
                Ok(Questions { refused: 1, ..Questions::default() })
            }
        }
    }

    fn admit(&self, id: &Name, question: &Question, under_way: usize) -> Result<(), (u16, String)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.admit(id, question.at, self.clock.unix_s()).map_err(|why| {
            let status = match why {
                NotNow::Used => USED,
                NotNow::Clocks(_) | NotNow::Overtaken(_) => 403,
                NotNow::Many => 429,
            };
            (status, why.to_string())
        })?;
        if under_way >= ANSWERS_MAX {
            return Err((429, format!("{ANSWERS_MAX} questions are being answered already")));
        }
        Ok(())
    }
}

/// An answer on its way.
struct Reply {
    asked: Asked,
    id: Name,
    /// Of whoever asks: with it ends what is written, and the answer.
    lease: i64,
}

impl Reply {
    async fn answer(self, question: Question, answers: AnswerMaker) {
        let pieces_max = question.what.pieces_max();
        let (status, mut body) = answers(question).await;
        let (mut part, mut text) = (0, Vec::new());
        let mut due = Instant::now() + GATHER;
        loop {
            let came = timeout_at(due, frame(&mut body)).await;
            if let Ok(Some(bytes)) = &came {
                text.extend_from_slice(bytes);
            }
            let is_due = came.is_err();
            while text.len() > PIECE_BYTES || (is_due && !text.is_empty()) {
                if part + 1 == pieces_max {
                    self.say(part, (TOO_LONG, true), LESS.to_owned()).await;
                    return;
                }
                let rest = text.split_off(cut(&text));
                if !self.say(part, (status, false), into_text(text)).await {
                    return;
                }
                (part, text) = (part + 1, rest);
            }
            if is_due {
                due = Instant::now() + GATHER;
            }
            if matches!(came, Ok(None)) {
                self.say(part, (status, true), into_text(text)).await;
                return;
            }
        }
    }

    /// Whether somebody can hear it still.
    async fn say(&self, part: u32, (status, last): (u16, bool), text: String) -> bool {
        let Asked { client, keyspace, key, gateway, instance, .. } = &self.asked;
        let place = keyspace.key(&Place::Answer(self.id.clone(), instance.clone(), part));
        let piece = Piece { gateway: gateway.to_string(), status, last, text };
        // Nothing of it may stay for ever.
        let Ok(value) = sealed(key, &place, &piece) else { return false };
        self.lease != 0 && client.put(&Put { key: place, value, lease: self.lease }).await.is_ok()
    }
}

/// What comes of this, if the end does not come first.
async fn or_end<T>(ends: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = ends.wait_for(|it| *it) => None,
        it = work => Some(it),
    }
}

/// What comes next of a body, which is data and nothing else.
async fn frame(body: &mut AnswerBody) -> Option<Bytes> {
    let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await?;
    frame.ok()?.into_data().ok()
}

/// Where the first part of a long text ends: no letter is in two of them.
fn cut(text: &[u8]) -> usize {
    let end = text.len().min(PIECE_BYTES);
    let is_within = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (0..=end).rev().find(|at| !is_within(*at)).unwrap_or(end).max(1)
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|it| String::from_utf8_lossy(it.as_bytes()).into_owned())
}

/// Not answered: what was asked twice has its answer.
const USED: u16 = 409;
/// Questions that are taken at a time, of those that stand there.
const AT_A_TIME: i64 = 64;
/// Answers that are made side by side: moves, and others.
const ANSWERS_MAX: usize = 16;
/// For what comes in small parts to become larger ones.
const GATHER: Duration = Duration::from_millis(200);
const LESS: &str = "there is more than one answer may hold: ask for less\n";
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOK_ANEW: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let mut text = "x".repeat(PIECE_BYTES - 1);
        text.push('é');
        assert_eq!(cut(text.as_bytes()), PIECE_BYTES - 1);
        assert_eq!(cut(&text.as_bytes()[..PIECE_BYTES - 1]), PIECE_BYTES - 1);
        assert_eq!(cut(&[0x80; 3]), 3, "what is no text gets on, too");
        assert_eq!(cut(&vec![0x80; 2 * PIECE_BYTES]), PIECE_BYTES);
    }
}
