//! What other services know of promises. A client has one promise in a group, whichever service it
//! asks: where there are several, a promise is *claimed* in etcd, at a key of its client, before
//! anybody hears of it. Whoever finds another server there sends the client to that one.
//!
//! ```text
//! claim     the client's key, if nobody has changed it since it was read, and if we are registered
//! end       removes the key once the promise is over, if nobody has changed it since
//! ```
//!
//! A service that is alone claims nothing. What it has promised it claims when another one comes;
//! that one waits until it has read so (`Service::beside`). When the others have gone, what they
//! have claimed still stands, and is looked at until the last of it is over.

use bytes::Bytes;
use ringgate_fleet::etcd::kv::{KeyValue, Range};
pub(crate) use ringgate_fleet::etcd::txn::AT_A_TIME;
use ringgate_fleet::etcd::txn::{Compare, Decided, Op, Put, Txn};
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{PromiseClaim, Refused, Stored};

use crate::book::Now;

/// A claim of ours that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) key: Bytes,
    /// The revision at which we have written it.
    pub(crate) revision: i64,
    /// Until when it says that the player may come.
    pub(crate) until_s: u64,
    /// Until when it stands for others as well; 0 where it is ours alone.
    pub(crate) shared_until_s: u64,
}

/// A promise that is to be claimed.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub(crate) client: u64,
    pub(crate) backend: Name,
    pub(crate) until_s: u64,
    /// Where it stands.
    pub(crate) key: Bytes,
    /// As far as is known, what is there.
    pub(crate) claim: Option<Claim>,
    /// A server of which another claim is worth nothing: nobody can play there any more.
    pub(crate) passed_over: Option<Name>,
}

/// Promises of one service on their way to etcd.
#[derive(Debug)]
pub struct Claiming {
    owner: Name,
    /// Nobody else is there: what others have left is looked at, and nothing is written.
    looks_only: bool,
    wanted: Vec<Wanted>,
    standing: Vec<Wanted>,
}

impl Claiming {
    /// Of these.
    pub fn new(owner: Name, looks_only: bool, wanted: Vec<Wanted>) -> Self {
        Self { owner, looks_only, wanted, standing: Vec::new() }
    }

    /// The next transaction, under this lease; `None` where nothing is left to do. Without a lease
    /// (0) nothing is written: it would stand for ever. Only who is `registered`, at this key under
    /// this lease, is known to others. Each claim is decided by itself.
    pub fn txn(
        &self,
        lease: i64,
        registered: Option<(Bytes, i64)>,
    ) -> Result<Option<Txn>, Refused> {
        let next = &self.wanted[..self.wanted.len().min(AT_A_TIME)];
        if next.is_empty() {
            return Ok(None);
        }
        let read = |it: &Wanted| Op::Range(Range::one(it.key.clone()));
        let or_else = next.iter().map(read).collect();
        if self.looks_only {
            return Ok(Some(Txn { then: or_else, ..Txn::default() }));
        }
        if lease == 0 {
            return Err(Refused::Impossible("a claim without a lease"));
        }
        let claim = |it: &Wanted| {
            let key = it.key.clone();
            let when = vec![match &it.claim {
                Some(claim) => Compare::Unchanged(key.clone(), claim.revision),
                None => Compare::Absent(key.clone()),
            }];
            let value = PromiseClaim {
                service: self.owner.to_string(),
                backend: it.backend.to_string(),
                until: it.until_s,
                shared: it.claim.as_ref().is_some_and(|claim| claim.shared_until_s > 0),
            };
            let then = vec![Op::Put(Put { key, value: value.encode()?, lease })];
            Ok(Txn { when, then, or_else: vec![read(it)] })
        };
        let claims: Result<Vec<_>, Refused> = next.iter().map(claim).collect();
        let when = registered.into_iter().map(|(key, lease)| Compare::Lease(key, lease)).collect();
        Ok(Some(Txn { when, or_else, ..Txn::each(claims?) }))
    }

    /// How the last one went. Returns the clients that have a promise elsewhere, and where; these
    /// are wanted no more.
    pub fn take(&mut self, decided: &Decided, now_s: u64) -> Vec<(u64, Name)> {
        let mut elsewhere = Vec::new();
        let behind = self.wanted.split_off(self.wanted.len().min(AT_A_TIME));
        for (at, mut it) in std::mem::replace(&mut self.wanted, behind).into_iter().enumerate() {
            let of_it = decided.each.get(at);
            if of_it.is_some_and(|it| it.held) {
                let shared_until_s = it.claim.as_ref().map_or(0, |claim| claim.shared_until_s);
                let shared_until_s = if shared_until_s > 0 { it.until_s } else { 0 };
                let (key, until_s) = (it.key.clone(), it.until_s);
                let revision = decided.header.revision;
                it.claim = Some(Claim { key, revision, until_s, shared_until_s });
                self.standing.push(it);
                continue;
            }
            match it.see(&self.owner, &of_it.unwrap_or(decided).found, now_s) {
                Some(backend) => elsewhere.push((it.client, backend)),
                None if self.looks_only => {}
                None => self.wanted.push(it),
            }
        }
        elsewhere
    }

    /// Those that stand since this was asked last.
    pub(crate) fn standing(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.standing)
    }
}

impl Wanted {
    /// What is claimed lasts as long as what was claimed before: there are tokens of it, of this
    /// service or of others.
    pub(crate) fn with_others(mut self, now: Now) -> Self {
        if let Some(claim) = &mut self.claim {
            let is_shared = claim.shared_until_s > now.unix_s;
            claim.shared_until_s = if is_shared { claim.shared_until_s } else { 0 };
            self.until_s = self.until_s.max(claim.until_s).max(claim.shared_until_s);
        }
        self
    }

    /// What stands at its key. Returns where the client has a promise, if that is elsewhere.
    fn see(&mut self, owner: &Name, found: &[KeyValue], now_s: u64) -> Option<Name> {
        let Some(kv) = found.iter().find(|kv| kv.key == self.key) else {
            self.claim = None;
            return None;
        };
        let (key, revision) = (self.key.clone(), kv.mod_revision);
        self.claim = Some(Claim { key, revision, until_s: 0, shared_until_s: 0 });
        // What nobody can read claims nothing.
        let told = PromiseClaim::decode(&kv.value).ok().filter(|it| it.until > now_s)?;
        let is_of_others = told.service != owner.as_str() || told.shared;
        if told.backend == self.backend.as_str() {
            self.until_s = self.until_s.max(told.until);
            let shared_until_s = if is_of_others { self.until_s } else { 0 };
            self.claim.iter_mut().for_each(|it| it.shared_until_s = shared_until_s);
            return None;
        }
        Name::new(&told.backend).filter(|it| is_of_others && self.passed_over.as_ref() != Some(it))
    }
}

/// Those of these claims that are over: nobody may know of them any more.
pub(crate) fn over(found: &[KeyValue], now_s: u64) -> Vec<Claim> {
    let is_over =
        |kv: &&KeyValue| PromiseClaim::decode(&kv.value).is_ok_and(|it| it.until <= now_s);
    let claim = |kv: &KeyValue| Claim {
        key: kv.key.clone(),
        revision: kv.mod_revision,
        until_s: 0,
        shared_until_s: 0,
    };
    found.iter().filter(is_over).map(claim).collect()
}

/// The transaction that removes claims whose promises are over. One that somebody has changed is
/// not ours any more, and stays.
pub(crate) fn ending(claims: &[Claim]) -> Txn {
    Txn::each(claims.iter().map(|it| Txn::remove(it.key.clone(), it.revision)))
}
