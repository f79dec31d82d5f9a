//! Who asks: matchmakers and game backends, each with a secret, what it may do, and how much.

use std::fmt;

use ringgate_fleet::keyspace::Name;
use ringgate_process::pages::bearer;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::refusal::Refusal;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Ask for tokens.
    Tokens,
    /// Ask for places.
    Places,
    /// Confirm what the mirror holds back.
    Admin,
    /// See the whole fleet.
    See,
}

/// One caller.
#[derive(Clone)]
pub struct Caller {
    /// What it is called in logs and metrics.
    pub name: String,
    /// What it shows.
    pub secret: Zeroizing<Vec<u8>>,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Groups that it may ask for; empty for all.
    pub groups: Vec<Name>,
    /// Tokens and places a second; 0 for any number.
    pub rate: u32,
    /// So many at once.
    pub burst: u32,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.name)
    }
}

/// All callers, and how much each of them has left.
#[derive(Debug)]
pub struct Callers {
    list: Vec<(Caller, Bucket)>,
}

/// Names a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId(u32);

impl CallerId {
    /// Its place in the list of callers.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Thousandths of a token or place.
    left: u64,
    filled_ms: u64,
}

impl Callers {
    /// These, with full quotas.
    pub fn new(list: Vec<Caller>) -> Self {
        let full = |caller: Caller| {
            let left = u64::from(caller.burst) * 1000;
            (caller, Bucket { left, filled_ms: 0 })
        };
        Self { list: list.into_iter().map(full).collect() }
    }

    /// Who shows this `Authorization`. Takes as long whoever it is: all are compared, to the end.
    pub fn find(&self, authorization: &[u8]) -> Option<CallerId> {
        let shown = bearer(authorization)?;
        let mut found = u32::MAX;
        for (index, (caller, _)) in self.list.iter().enumerate() {
            let is_it: Choice = caller.secret.ct_eq(shown);
            found.conditional_assign(&(index as u32), is_it);
        }
        (found != u32::MAX).then_some(CallerId(found))
    }

    /// Whether it may do this.
    pub fn may(&self, id: CallerId, scope: Scope) -> Result<(), Refusal> {
        let has = self.caller(id).scopes.contains(&scope);
        if has { Ok(()) } else { Err(Refusal::ScopeMissing) }
    }

    /// Whether it may ask for this group.
    pub fn may_ask_for(&self, id: CallerId, group: &Name) -> Result<(), Refusal> {
        let groups = &self.caller(id).groups;
        let has = groups.is_empty() || groups.contains(group);
        if has { Ok(()) } else { Err(Refusal::GroupForbidden) }
    }

    /// Takes so many out of its quota.
    pub fn spend(&mut self, id: CallerId, count: u32, now_ms: u64) -> Result<(), Refusal> {
        let (caller, bucket) = &mut self.list[id.0 as usize];
        if caller.rate == 0 {
            return Ok(());
        }
        let passed = now_ms.saturating_sub(bucket.filled_ms);
        let full = u64::from(caller.burst) * 1000;
        bucket.left =
            bucket.left.saturating_add(passed.saturating_mul(caller.rate.into())).min(full);
        bucket.filled_ms = now_ms;
        let price = u64::from(count) * 1000;
        bucket.left = bucket.left.checked_sub(price).ok_or(Refusal::QuotaExceeded)?;
        Ok(())
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Who it is.
    pub fn caller(&self, id: CallerId) -> &Caller {
        &self.list[id.0 as usize].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str, secret: &str) -> Caller {
        Caller {
            name: name.into(),
            secret: Zeroizing::new(secret.into()),
            scopes: vec![Scope::Tokens],
            groups: vec![Name::new("main").unwrap()],
            rate: 10,
            burst: 5,
        }
    }

    #[test]
    fn a_caller_is_who_shows_its_secret() {
        let callers = Callers::new(vec![caller("a", "first-secret"), caller("b", "second-secret")]);
        let name = |shown: &[u8]| callers.find(shown).map(|id| callers.caller(id).name.clone());
        assert_eq!(name(b"Bearer first-secret").as_deref(), Some("a"));
        assert_eq!(name(b"bearer second-secret ").as_deref(), Some("b"));
        for other in [&b""[..], b"Bearer ", b"Bearer first", b"Basic first-secret", b"first-secret"]
        {
            assert_eq!(name(other), None);
        }
    }

    #[test]
    fn a_caller_does_what_it_may_and_no_more() {
        let mut callers = Callers::new(vec![caller("a", "secret")]);
        let id = callers.find(b"Bearer secret").unwrap();
        assert_eq!(callers.may(id, Scope::Tokens), Ok(()));
        assert_eq!(callers.may(id, Scope::Admin), Err(Refusal::ScopeMissing));
        let group = |text| Name::new(text).unwrap();
        assert_eq!(callers.may_ask_for(id, &group("main")), Ok(()));
        assert_eq!(callers.may_ask_for(id, &group("other")), Err(Refusal::GroupForbidden));
        assert_eq!(callers.spend(id, 5, 1000), Ok(()));
        assert_eq!(callers.spend(id, 1, 1000), Err(Refusal::QuotaExceeded));
        assert_eq!(callers.spend(id, 1, 1100), Ok(()));
        assert_eq!(callers.spend(id, 6, 60_000), Err(Refusal::QuotaExceeded), "more than at once");
        assert_eq!(callers.spend(id, 5, 60_000), Ok(()));
    }
}
