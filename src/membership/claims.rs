//! Whose a token is that names several gateways: the first that creates its key in etcd has it.
//!
//! Workers leave questions (`FleetTokens`), of which some dozens are asked side by side. A key ends
//! with its token: tokens that expire in the same half minute share a lease, so a burst of them
//! costs few. Whoever finds its own value there has asked before and has not heard the answer.
//!
//! An etcd that was emptied or restored may have forgotten all of it, so a gateway that sees
//! another history claims its tokens there again, before any gateway believes it. So does a
//! successor with those of the process before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::clocks::Clocks;
use ringgate_fleet::etcd::kv::{Header, KeyValue};
use ringgate_fleet::etcd::txn::{Decided, Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Place};
use ringgate_fleet::values::{Stored, TokenClaim};
use ringgate_gate::{FleetTokens, TokenQuestion, Whose};
use tokio::task::JoinSet;

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
        loop {
            let rewritten_at_ms = rewritten();
            if std::mem::replace(&mut self.rewritten_at_ms, rewritten_at_ms) != rewritten_at_ms {
                // Its leases are others.
                self.leases.clear();
                self.again = self.tokens.claimed();
            }
            if !self.again.is_empty() && !self.claim_again().await {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            if !self.tokens.is_asked() {
                // Others wait 10 s for what is to be claimed again.
                if self.again.is_empty() {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                continue;
            }
            let questions = self.tokens.take_questions(AT_A_TIME);
            let asked = questions.len() as u64;
            let failed = self.ask_all(questions, &trusts).await;
            tell(asked, failed);
            if failed > 0 {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// Claims some of our tokens in another history, whether that is believed or not. False where
    /// one of them had no answer.
    async fn claim_again(&mut self) -> bool {
        let now_s = self.clock.unix_s();
        self.again.retain(|it| it.expire_s > now_s);
        let mut is_answered = true;
        let mut asking = JoinSet::new();
        while let Some(question) = self.again.pop_if(|_| asking.len() < AT_A_TIME) {
            let Ok(lease) = self.lease(question.expire_s, now_s).await else {
                is_answered = false;
                self.again.push(question);
                break;
            };
            drop(asking.spawn(self.claim(question, lease)));
        }
        while let Some(Ok((question, answer))) = asking.join_next().await {
            match answer {
                Ok((_, found)) if self.whose(found.as_ref()) == Whose::Others => {
                    self.tokens.lose(&question.mac);
                }
                Ok(_) => {}
                Err(why) => {
                    if why.is_lease_gone() {
                        self.leases.remove(&end_of(question.expire_s));
                    }
                    is_answered = false;
                    self.again.push(question);
                }
            }
        }
        is_answered
    }

    /// Returns how many had no answer.
    async fn ask_all(
        &mut self,
        questions: Vec<TokenQuestion>,
        trusts: &(impl Fn(Option<&Header>) -> bool + Sync),
    ) -> u64 {
        let now_s = self.clock.unix_s();
        self.leases.retain(|end_s, _| *end_s > now_s);
        let mut failed = 0;
        let mut asking = JoinSet::new();
        for question in questions {
            // Nobody can use it any more, and etcd has said nothing.
            if question.expire_s <= now_s {
                self.tokens.lose(&question.mac);
                continue;
            }
            // Where one had no answer, the others are not made to wait for theirs.
            // What etcd has forgotten it would give to whoever asks first.
            let lease = match failed {
                0 if trusts(None) => self.lease(question.expire_s, now_s).await.ok(),
                _ => None,
            };
            if let Some(lease) = lease {
                drop(asking.spawn(self.claim(question, lease)));
            } else {
                self.tokens.no_answer(&question.mac);
                failed += 1;
            }
        }
        while let Some(Ok((question, answer))) = asking.join_next().await {
            match answer {
                Ok((header, found)) if trusts(Some(&header)) => {
                    self.tokens.answer(&question.mac, self.whose(found.as_ref()));
                }
                Ok(_) => {
                    self.tokens.no_answer(&question.mac);
                    failed += 1;
                }
                Err(why) => {
                    if why.is_lease_gone() {
                        self.leases.remove(&end_of(question.expire_s));
                    }
                    self.tokens.no_answer(&question.mac);
                    failed += 1;
                }
            }
        }
        failed
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

    /// What stands at the token's key, if that is not what we have just written.
    fn claim(
        &self,
        question: TokenQuestion,
        lease: i64,
    ) -> impl Future<Output = (TokenQuestion, Result<(Header, Option<KeyValue>), Error>)> + use<>
    {
        let key = self.keyspace.key(&Place::Token(question.mac));
        let (client, value) = (self.client.clone(), self.value.clone());
        async move {
            let decided = client.txn(&Txn::claim(Put { key, value, lease })).await;
            (question, decided.and_then(found))
        }
    }

    fn whose(&self, found: Option<&KeyValue>) -> Whose {
        let is_own = |it: TokenClaim| self.ours.contains(&it.instance);
        let is_ours = |kv: &KeyValue| TokenClaim::decode(&kv.value).is_ok_and(is_own);
        if found.is_none_or(is_ours) { Whose::Ours } else { Whose::Others }
    }
}

/// What has kept us from writing; nothing if that was done.
fn found(decided: Decided) -> Result<(Header, Option<KeyValue>), Error> {
    let header = decided.header;
    if decided.held {
        return Ok((header, None));
    }
    let found = decided.found.into_iter().next();
    found
        .map(|found| (header, Some(found)))
        .ok_or(Error::Malformed("a claim that failed shows nothing"))
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
/// Transactions side by side.
const AT_A_TIME: usize = 64;
/// A client asks again after a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_millis(200);
