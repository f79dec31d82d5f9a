//! Which key of a listener is for what. Everybody accepts the previous, the current and the next;
//! tokens are minted with the newest that every gateway has confirmed, so nobody's token is refused
//! while a rotation goes through a fleet.
//!
//! ```text
//! key 7   from ──────── mint_until ─── accept_until
//! key 8               from ──────── mint_until ─── accept_until
//!                      │  ▲ minted as soon as all gateways have confirmed it
//!                      ▼
//!                    accepted as soon as a gateway has it
//! ```
//!
//! Nothing here reads a clock: `now_s` is an argument, in seconds since 1970.

use serde::{Deserialize, Serialize};

/// When a key is for what, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Tokens may be minted from then on.
    pub from: u64,
    /// Not any more from then on.
    pub mint_until: u64,
    /// Nor accepted from then on: the last token has expired.
    pub accept_until: u64,
}

/// A key by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Counts up.
    pub number: u32,
    /// When it is for what.
    pub validity: Validity,
}

ringgate_core::named! {
    /// What a key is at a moment.
    pub enum Role;
    /// Tokens are still accepted, and none is minted.
    Previous = "previous",
    /// Tokens are minted with it.
    Current = "current",
    /// Not yet: its time has not come, or a gateway has not confirmed it.
    Next = "next",
    /// No token can be valid any more.
    Over = "over",
}

/// How long keys are for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// For how long tokens are minted with a key, if nobody rotates earlier.
    pub mint_s: u64,
    /// The longest that a token lives, the difference of clocks included.
    pub token_s: u64,
}

/// The epochs that a gateway accepts, and confirms. A key that is not to be minted with yet counts:
/// it has to be accepted before.
pub fn accepted(now_s: u64, epochs: &[Epoch]) -> Vec<u32> {
    let mut found: Vec<_> =
        epochs.iter().filter(|it| now_s < it.validity.accept_until).map(|it| it.number).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The epoch to mint with: the newest whose time it is and that every gateway has confirmed.
///
/// `confirmed` holds a list for each registered gateway that has this listener and does not drain.
/// A gateway that has confirmed nothing accepts no token at all: it is not ready, nobody may be
/// sent there, and it is left out, so that it does not stop the others.
pub fn mint(now_s: u64, epochs: &[Epoch], confirmed: &[&[u32]]) -> Option<u32> {
    let is_confirmed = |number| {
        let mut ready = confirmed.iter().filter(|list| !list.is_empty());
        ready.all(|list| list.contains(&number))
    };
    let is_time = |it: &&Epoch| (it.validity.from..it.validity.mint_until).contains(&now_s);
    epochs.iter().filter(is_time).map(|it| it.number).filter(|it| is_confirmed(*it)).max()
}

/// What a key is while `minted` is the one that is minted with.
pub const fn role(now_s: u64, epoch: &Epoch, minted: Option<u32>) -> Role {
    if now_s >= epoch.validity.accept_until {
        return Role::Over;
    }
    match minted {
        Some(minted) if epoch.number == minted => Role::Current,
        Some(minted) if epoch.number > minted => Role::Next,
        None if now_s < epoch.validity.mint_until => Role::Next,
        Some(_) | None => Role::Previous,
    }
}

/// Of each listener a gateway accepts the newest, so many: each request is tried under every one.
pub const ACCEPTED_MAX: usize = 8;

/// Until when a next key would have gateways refuse tokens that are under way, because one falls
/// out of the newest that they accept. It was minted with until the key after it was there.
pub fn crowded_until(now_s: u64, epochs: &[Epoch]) -> Option<u64> {
    let mut newest: Vec<_> =
        epochs.iter().filter(|it| now_s < it.validity.accept_until).copied().collect();
    newest.sort_unstable_by_key(|it| std::cmp::Reverse(it.number));
    let [after, falls, ..] = newest.get(ACCEPTED_MAX - 2..)? else { return None };
    let Validity { mint_until, accept_until, .. } = falls.validity;
    let token_s = accept_until.saturating_sub(mint_until);
    let until_s = after.validity.from.saturating_add(token_s).min(accept_until);
    (now_s < until_s).then_some(until_s)
}

/// Why there is no next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNext {
    /// The last rotation has not gone through: this epoch still waits for gateways.
    Pending(u32),
    /// Epochs have been counted to their end.
    Exhausted,
}

/// The key that a rotation makes. With no key at all, the first one.
///
/// Gateways hold three keys, so one rotation has to be through before the next begins.
pub fn next(
    now_s: u64,
    epochs: &[Epoch],
    minted: Option<u32>,
    policy: Policy,
) -> Result<Epoch, NoNext> {
    let last = epochs.iter().map(|it| it.number).max();
    let waiting = epochs.iter().find(|it| role(now_s, it, minted) == Role::Next);
    if let Some(waiting) = waiting {
        return Err(NoNext::Pending(waiting.number));
    }
    let number = last.map_or(Some(1), |last| last.checked_add(1)).ok_or(NoNext::Exhausted)?;
    let mint_until = now_s.saturating_add(policy.mint_s.max(1));
    let accept_until = mint_until.saturating_add(policy.token_s);
    Ok(Epoch { number, validity: Validity { from: now_s, mint_until, accept_until } })
}

/// Whether it is time for a rotation: less than half of the current key's time is left.
pub fn is_due(now_s: u64, epochs: &[Epoch], policy: Policy) -> bool {
    let last = epochs.iter().map(|it| it.validity.mint_until).max();
    last.is_none_or(|until| until.saturating_sub(now_s) < policy.mint_s / 2)
}

/// The key that a rotation makes by itself: when the newest is that old, or its time is soon over.
/// A listener without a key is left to an operator.
pub fn next_by_itself(
    now_s: u64,
    epochs: &[Epoch],
    minted: Option<u32>,
    (every_s, policy): (u64, Policy),
) -> Option<Epoch> {
    let newest = epochs.iter().max_by_key(|it| it.number)?;
    let is_old = now_s.saturating_sub(newest.validity.from) >= every_s;
    let is_due = is_old || is_due(now_s, epochs, policy);
    is_due.then(|| next(now_s, epochs, minted, policy).ok()).flatten()
}

/// The epochs that may be deleted: no gateway confirms them any more. One that does goes by another
/// clock than ours.
pub fn over(now_s: u64, epochs: &[Epoch], confirmed: &[&[u32]]) -> Vec<u32> {
    let over = epochs.iter().filter(|it| now_s >= it.validity.accept_until).map(|it| it.number);
    over.filter(|it| !confirmed.iter().any(|list| list.contains(it))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { mint_s: 1000, token_s: 100 };

    #[test]
    fn a_rotation_by_itself_waits_for_the_last_one_and_begins_no_listener() {
        let rule = (500, POLICY);
        assert_eq!(next_by_itself(0, &[], None, rule), None);
        let first = next(0, &[], None, POLICY).unwrap();
        assert_eq!(next_by_itself(499, &[first], Some(1), rule), None);
        let second = next_by_itself(500, &[first], Some(1), rule).expect("it is time");
        assert_eq!((second.number, second.validity.mint_until), (2, 1500));
        // Not every gateway has it: however long that takes.
        assert_eq!(next_by_itself(1200, &[first, second], Some(1), rule), None);
        assert_eq!(next_by_itself(999, &[first, second], Some(2), rule), None);
        assert_eq!(
            next_by_itself(1000, &[first, second], Some(2), rule).map(|it| it.number),
            Some(3)
        );
        // An operator's key that lives shorter is followed in time, a longer one at its age.
        let brief = Epoch { validity: Validity { mint_until: 60, ..first.validity }, ..first };
        assert!(next_by_itself(1, &[brief], Some(1), rule).is_some());
        let long = Epoch { validity: Validity { mint_until: 9_999, ..first.validity }, ..first };
        assert!(next_by_itself(1, &[long], Some(1), rule).is_none());
        assert!(next_by_itself(500, &[long], Some(1), rule).is_some());
    }

    fn minted(now_s: u64, epochs: &[Epoch], confirmed: &[Vec<u32>]) -> Option<u32> {
        let lists: Vec<_> = confirmed.iter().map(Vec::as_slice).collect();
        mint(now_s, epochs, &lists)
    }

    #[test]
    fn a_rotation_goes_through_a_fleet_without_a_refused_token() {
        let mut epochs = vec![next(0, &[], None, POLICY).unwrap()];
        let mut gateways = vec![accepted(0, &epochs); 3];
        assert_eq!(minted(0, &epochs, &gateways), Some(1));

        epochs.push(next(500, &epochs, Some(1), POLICY).unwrap());
        for slow in 0..3 {
            let epoch = minted(500 + slow, &epochs, &gateways).unwrap();
            assert_eq!(epoch, 1, "a gateway has not confirmed the next");
            assert!(gateways.iter().all(|list| list.contains(&epoch)));
            gateways[slow as usize] = accepted(500 + slow, &epochs);
        }
        assert_eq!(minted(503, &epochs, &gateways), Some(2));
        // A token that was minted last with key 1 is accepted until it expires.
        let last_minted = 503;
        assert!(accepted(last_minted + POLICY.token_s, &epochs).contains(&1));
        assert_eq!(role(503, &epochs[0], Some(2)), Role::Previous);
        assert_eq!(role(503, &epochs[1], Some(2)), Role::Current);
        let lists: Vec<_> = gateways.iter().map(Vec::as_slice).collect();
        assert!(over(1100, &epochs, &lists).is_empty(), "gateways accept it, by their clocks");
        assert_eq!(over(1100, &epochs, &[&[2]]), [1]);
        assert_eq!(accepted(1100, &epochs), [2]);
    }

    #[test]
    fn a_gateway_that_lags_behind_keeps_the_old_key_in_use() {
        let epochs = [1, 2].map(|number| Epoch {
            number,
            validity: Validity { from: 0, mint_until: 1000, accept_until: 1100 },
        });
        assert_eq!(minted(5, &epochs, &[vec![1, 2], vec![1]]), Some(1));
        assert_eq!(minted(5, &epochs, &[vec![1, 2], vec![]]), Some(2), "it is not ready");
        assert_eq!(minted(5, &epochs, &[vec![2], vec![1]]), None);
        assert_eq!(next(5, &epochs, Some(1), POLICY), Err(NoNext::Pending(2)));
    }

    #[test]
    fn keys_are_minted_with_within_their_time() {
        let validity = Validity { from: 10, mint_until: 20, accept_until: 30 };
        let epochs = [Epoch { number: 1, validity }];
        let all = [vec![1]];
        assert_eq!(minted(9, &epochs, &all), None);
        assert_eq!(minted(10, &epochs, &all), Some(1));
        assert_eq!(minted(20, &epochs, &all), None);
        assert_eq!(accepted(9, &epochs), [1], "it is accepted before it is minted with");
        assert!(accepted(30, &epochs).is_empty());
        assert_eq!(role(9, &epochs[0], None), Role::Next);
        assert_eq!(role(25, &epochs[0], None), Role::Previous);
        assert_eq!(role(30, &epochs[0], None), Role::Over);
    }

    #[test]
    fn no_key_falls_out_of_the_newest_while_tokens_of_it_are_under_way() {
        let mut epochs = Vec::new();
        for at in 0..ACCEPTED_MAX as u64 {
            assert_eq!(crowded_until(at, &epochs), None, "at key {at}");
            epochs.push(next(at, &epochs, epochs.last().map(|it| it.number), POLICY).unwrap());
        }
        // The second was made at 1, and a token of the first lives for 100 s.
        assert_eq!(crowded_until(8, &epochs), Some(101));
        assert_eq!(crowded_until(101, &epochs), None);
        // What is over stands in nobody's way.
        epochs[0].validity.accept_until = 8;
        assert_eq!(crowded_until(8, &epochs), None);
    }

    #[test]
    fn a_rotation_is_due_while_there_is_time_for_it() {
        let first = next(0, &[], None, POLICY).unwrap();
        assert!(is_due(0, &[], POLICY));
        assert!(!is_due(500, &[first], POLICY));
        assert!(is_due(501, &[first], POLICY));
        let last = Epoch { number: u32::MAX, ..first };
        assert_eq!(next(1, &[last], Some(u32::MAX), POLICY), Err(NoNext::Exhausted));
    }
}
