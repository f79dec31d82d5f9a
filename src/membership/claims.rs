//! Whose a token is that names several gateways: the first that creates its key in etcd has it.
//!
//! Workers leave questions (`FleetTokens`), of which a hundred go in one transaction, each for
//! itself, and some transactions at once. A key ends with its token: tokens that expire in the same
//! half minute share a lease, so a burst of them costs few. Whoever finds its own value there has
//! asked before and has not heard the answer.
//!
//! An etcd that was emptied or restored may have forgotten all of it, so a gateway that sees
//! another history claims its tokens there again, before any gateway believes it. So does a
//! successor with those of the process before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::clocks::Clocks;
use ringgate_fleet::decisions::{Answered, Decisions};
use ringgate_fleet::etcd::kv::Header;
use ringgate_fleet::etcd::txn::{AT_A_TIME, Decided, Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Place};
use ringgate_fleet::values::{Stored, TokenClaim};
use ringgate_gate::{FleetTokens, TokenQuestion, Whose};

use super::Settings;

/// Asks what workers want to know.
pub(super) struct Claimer {
    client: Client,
    clock: Arc<dyn Clocks>,
    keyspace: Keyspace,
    tokens: Arc<FleetTokens>,
    /// The starts of this gateway, whatever it was called: this one, and those before it. What
    /// they have spent is known here, so the rest of what they have claimed is ours.
    ours: Vec<String>,
    /// What says that a token is ours.
    value: Bytes,
    /// By the end of the half minute in which tokens expire.
    leases: BTreeMap<u64, i64>,
    /// When etcd's history was last another one, and what is to be claimed there again.
    rewritten_at_ms: Option<u64>,
    again: Vec<TokenQuestion>,
}

/// A question on its way.
struct Asked {
    question: TokenQuestion,
    /// Of a token that is ours, in another history.
    is_again: bool,
    /// When etcd's history was last another one as it was asked.
    rewritten_at_ms: Option<u64>,
}

impl Claimer {
    /// `None` where our own name cannot stand in etcd, which the config has made sure of.
    pub(super) fn new(
        (client, clock): (Client, Arc<dyn Clocks>),
        settings: &Settings,
        tokens: Arc<FleetTokens>,
        mut ours: Vec<String>,
    ) -> Option<Self> {
        let (keyspace, leases) = (settings.keyspace.clone(), BTreeMap::new());
        let (gateway, instance) = (settings.name.to_string(), settings.instance.clone());
        ours.push(instance.clone());
        let value = TokenClaim { gateway, instance }.encode().ok()?;
        // The process before may have been about to claim them in another history.
        let (rewritten_at_ms, again) = (None, tokens.claimed());
        Some(Self { client, clock, keyspace, tokens, ours, value, leases, rewritten_at_ms, again })
    }

    /// Goes on until it is dropped. `tell` hears how many were asked about, and had no answer.
    /// `trusts` says whether etcd may answer, and whether it may have answered under a header;
    /// `rewritten`, when another history was last seen.
    pub(super) async fn run(
        mut self,
        tell: impl Fn(u64, u64) + Send,
        trusts: impl Fn(Option<&Header>) -> bool + Send + Sync,
        rewritten: impl Fn() -> Option<u64> + Send,
    ) {
        let mut asking = Decisions::new(self.client.clone());
        loop {
            let rewritten_at_ms = rewritten();
            if std::mem::replace(&mut self.rewritten_at_ms, rewritten_at_ms) != rewritten_at_ms {
                // Its leases are others.
                self.leases.clear();
                self.again = self.tokens.claimed();
            }
            let mut count = Count::default();
            while !asking.is_full() && !count.again_failed && self.has_more(&count) {
                self.ask_next(&mut asking, &trusts, &mut count).await;
            }
            if asking.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            } else if let Ok(Some(answered)) =
                tokio::time::timeout(LOOK_EVERY, asking.answered()).await
            {
                self.take(answered, &trusts, &mut count);
            }
            if count.asked > 0 {
                tell(count.asked, count.failed);
            }
            // Others wait 10 s for what is to be claimed again.
            if count.again_failed || (count.failed > 0 && self.again.is_empty()) {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }

    fn has_more(&self, count: &Count) -> bool {
        !self.again.is_empty() || (count.failed == 0 && self.tokens.is_asked())
    }

    /// Sends what is next on its way: some of our tokens in another history, whether that is
    /// believed or not, and new ones.
    async fn ask_next(
        &mut self,
        asking: &mut Decisions<Asked>,
        trusts: &(impl Fn(Option<&Header>) -> bool + Sync),
        count: &mut Count,
    ) {
        let now_s = self.clock.unix_s();
        self.leases.retain(|end_s, _| *end_s > now_s);
        let again = self.again.split_off(self.again.len().saturating_sub(AT_A_TIME));
        let new = self.tokens.take_questions(AT_A_TIME, now_s);
        let rewritten_at_ms = self.rewritten_at_ms;
        let of = |is_again| move |question| Asked { question, is_again, rewritten_at_ms };
        let mut claims = Vec::with_capacity(again.len() + new.len());
        for asked in again.into_iter().map(of(true)).chain(new.into_iter().map(of(false))) {
            let TokenQuestion { mac, expire_s } = asked.question;
            if expire_s <= now_s {
                // Nobody can use it any more, and etcd has said nothing.
                if !asked.is_again {
                    self.tokens.lose(&mac);
                }
                continue;
            }
            // Where one had no answer, the others are not made to wait for theirs.
            // What etcd has forgotten it would give to whoever asks first.
            let may_ask = if asked.is_again {
                !count.again_failed
            } else {
                count.failed == 0 && trusts(None)
            };
            let lease = if may_ask { self.lease(expire_s, now_s).await.ok() } else { None };
            let Some(lease) = lease else {
                self.settle(&asked, None, count);
                continue;
            };
            let (key, value) = (self.keyspace.key(&Place::Token(mac)), self.value.clone());
            claims.push((asked, Txn::claim(Put { key, value, lease })));
        }
        asking.ask(claims);
    }

    /// Takes what etcd has decided.
    fn take(
        &mut self,
        (asked, answer): Answered<Asked>,
        trusts: &(impl Fn(Option<&Header>) -> bool + Sync),
        count: &mut Count,
    ) {
        if answer.as_ref().is_err_and(Error::is_lease_gone) {
            self.leases.clear();
        }
        let decided = answer.unwrap_or_default();
        let is_trusted = trusts(Some(&decided.header));
        for (at, asked) in asked.iter().enumerate() {
            let whose = decided.each.get(at).and_then(|it| self.whose(it));
            self.settle(asked, whose.filter(|_| is_trusted || asked.is_again), count);
        }
    }

    /// What becomes of a question.
    fn settle(&mut self, asked: &Asked, whose: Option<Whose>, count: &mut Count) {
        // What was asked in an earlier history says nothing in this one.
        let is_current = asked.rewritten_at_ms == self.rewritten_at_ms;
        let whose = whose.filter(|_| is_current);
        let mac = &asked.question.mac;
        match (asked.is_again, whose) {
            (true, Some(Whose::Others)) => self.tokens.lose(mac),
            (true, None) if is_current => {
                self.again.push(asked.question);
                count.again_failed = true;
            }
            // Where the history is another one, it is to be claimed again already.
            (true, _) => {}
            (false, Some(whose)) => self.tokens.answer(mac, whose),
            (false, None) => self.tokens.no_answer(mac),
        }
        if !asked.is_again {
            count.asked += 1;
            count.failed += u64::from(whose.is_none());
        }
    }

    /// The lease of the tokens that expire about then.
    async fn lease(&mut self, expire_s: u64, now_s: u64) -> Result<i64, Error> {
        let end_s = end_of(expire_s);
        if let Some(lease) = self.leases.get(&end_s) {
            return Ok(*lease);
        }
        let lasts_s = end_s.saturating_sub(now_s).clamp(1, LEASE_S_MAX);
        let lease = self.client.grant(lasts_s as i64).await?;
        if self.leases.len() < LEASES_MAX {
            self.leases.insert(end_s, lease.id);
        }
        Ok(lease.id)
    }

    /// `None` where etcd's answer is none.
    fn whose(&self, decided: &Decided) -> Option<Whose> {
        if decided.held {
            return Some(Whose::Ours);
        }
        let found = TokenClaim::decode(&decided.found.first()?.value);
        let is_ours = found.is_ok_and(|it| self.ours.contains(&it.instance));
        Some(if is_ours { Whose::Ours } else { Whose::Others })
    }
}

/// What has become of questions: of how many new ones, how many of those had no answer, and whether
/// one had none that is asked again in another history.
#[derive(Default)]
struct Count {
    asked: u64,
    failed: u64,
    again_failed: bool,
}

/// The end of the half minute in which a token expires, and a little more: clocks differ.
const fn end_of(expire_s: u64) -> u64 {
    (expire_s / BUCKET_S + 2) * BUCKET_S
}

const BUCKET_S: u64 = 30;
/// A token may be minted for longer than anybody will play.
const LEASE_S_MAX: u64 = 366 * 24 * 3600;
/// Tokens of one service expire close together. Beyond these each has a lease of its own.
const LEASES_MAX: usize = 256;
/// A client asks again after a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use ringgate_fleet::etcd::kv::KeyValue;
    use ringgate_fleet::etcd::{Code, Endpoint, Options};

    use super::*;

    const AT: TokenQuestion = TokenQuestion { mac: [7; 16], expire_s: u64::MAX };

    fn claimer() -> Claimer {
        let endpoint = Endpoint::parse("http://127.0.0.1:1").expect("an endpoint");
        let tokens = FleetTokens::new(4);
        tokens.go_on_with_claimed([AT]);
        Claimer {
            client: Client::new(Options::new(vec![endpoint])).expect("sound"),
            clock: ringgate_fleet::clocks::of_host(),
            keyspace: Keyspace::new("/f").expect("a prefix"),
            tokens: Arc::new(tokens),
            ours: vec!["before".to_owned(), "own".to_owned()],
            value: Bytes::new(),
            leases: BTreeMap::from([(30, 1)]),
            rewritten_at_ms: Some(5),
            again: Vec::new(),
        }
    }

    /// What one claim of another history has come to, and whether it is to be asked again.
    fn take(claimer: &mut Claimer, rewritten_at_ms: u64, answer: Result<Decided, Error>) -> Count {
        let rewritten_at_ms = Some(rewritten_at_ms);
        let asked = Asked { question: AT, is_again: true, rewritten_at_ms };
        let mut count = Count::default();
        claimer.take((vec![asked], answer), &|_: Option<&Header>| false, &mut count);
        count
    }

    fn found(instance: &str) -> Decided {
        let (gateway, instance) = ("g".to_owned(), instance.to_owned());
        let value = TokenClaim { gateway, instance }.encode().expect("a value");
        let found = vec![KeyValue { value, ..KeyValue::default() }];
        let each = vec![Decided { found, ..Decided::default() }];
        Decided { held: true, each, ..Decided::default() }
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_asked_again_and_found_to_be_ours() {
        let mut claimer = claimer();
        assert!(take(&mut claimer, 5, Err(Error::Timeout)).again_failed);
        assert_eq!(std::mem::take(&mut claimer.again), [AT]);
        for ours in ["own", "before"] {
            assert!(!take(&mut claimer, 5, Ok(found(ours))).again_failed);
            assert_eq!((claimer.tokens.claimed(), claimer.again.len()), (vec![AT], 0));
        }
        take(&mut claimer, 5, Ok(found("another")));
        assert!(claimer.tokens.claimed().is_empty());
    }

    #[test]
    fn what_was_asked_in_an_earlier_history_says_nothing_and_is_not_asked_twice() {
        let mut claimer = claimer();
        for answer in [Ok(found("another")), Err(Error::Timeout)] {
            assert!(!take(&mut claimer, 4, answer).again_failed);
            assert_eq!((claimer.tokens.claimed(), claimer.again.len()), (vec![AT], 0));
        }
    }

    #[test]
    fn after_a_lease_that_is_gone_there_is_another_one() {
        let mut claimer = claimer();
        take(&mut claimer, 5, Err(Error::status(Code::NOT_FOUND, "requested lease not found")));
        assert!(claimer.leases.is_empty() && claimer.again == [AT]);
    }
}
