//! A slot that is promised to a player who has not come, and the tokens that it may come with.
//!
//! A promise ends when no player can come with any of its tokens: each has been used, as whoever
//! counts the backend's players tells (`Backend::joined`), or is over. A client may be there with
//! one token and come again with another, so a promise with a token left stays.

use std::collections::HashSet;

use ringgate_core::netcode::destination::Join;

use crate::claims::Claim;

/// A slot that is promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    /// When no player can come any more, in seconds since 1970.
    pub(crate) until_s: u64,
    /// The client; `None` where there are no tokens, or where an earlier start has promised it.
    pub(crate) client: Option<u64>,
    /// The client that has another one since this one is doubtful.
    pub(crate) former: Option<u64>,
    /// There was more than one token: who has come with the first may leave and come again.
    pub(crate) is_renewed: bool,
    /// Somebody has come, perhaps this client: then the slot is that of another one.
    pub(crate) is_doubtful: bool,
    /// Where other services find it.
    pub(crate) claim: Option<Claim>,
    /// Tokens of which it is told when they are used, and until when they can be.
    tagged: Vec<(Join, u64)>,
    /// Until when there are others.
    untagged_until_s: u64,
}

impl Promise {
    /// To a player of whom nothing is told.
    pub(crate) fn untold(until_s: u64) -> Self {
        Self { until_s, untagged_until_s: until_s, ..Self::default() }
    }

    /// To a client, without a token.
    pub(crate) fn to(client: u64) -> Self {
        Self { client: Some(client), ..Self::default() }
    }

    /// There is another token. Of many it is not told which are used.
    pub(crate) fn add(&mut self, tag: Option<Join>, until_s: u64) {
        let is_new = |tag: &Join| self.tagged.iter().all(|(it, _)| it != tag);
        match tag.filter(is_new).filter(|_| self.tagged.len() < TAGGED_MAX) {
            Some(tag) => self.tagged.push((tag, until_s)),
            None => self.untagged_until_s = self.untagged_until_s.max(until_s),
        }
        self.is_renewed |= self.until_s > 0;
        self.until_s = self.until_s.max(until_s);
    }

    /// Whether it is told of any of its tokens when that is used.
    pub(crate) fn is_tagged(&self) -> bool {
        !self.tagged.is_empty()
    }

    /// These tokens have been used. Returns how many of them were of this promise; where it ends
    /// by that, nobody can come any more.
    pub(crate) fn settle(&mut self, joined: &HashSet<Join>, now_s: u64) -> u32 {
        let before = self.tagged.len();
        self.tagged.retain(|(tag, _)| !joined.contains(tag));
        let came = before - self.tagged.len();
        if came > 0 {
            let last_s = self.tagged.iter().map(|(_, until_s)| *until_s).max().unwrap_or(0);
            self.until_s = last_s.max(self.untagged_until_s);
            if self.until_s <= now_s {
                self.until_s = 0;
            }
        }
        came as u32
    }

    /// Until when there are tokens of which nothing is told.
    pub(crate) const fn untagged_until_s(&self) -> u64 {
        self.untagged_until_s
    }

    /// These tokens were given to nobody, nor others of which nothing is told that last longer.
    /// Whether there is another one.
    pub(crate) fn retract(
        &mut self,
        tokens: &[(u64, Option<Join>)],
        untagged_until_s: u64,
    ) -> bool {
        self.tagged.retain(|(tag, _)| tokens.iter().all(|(_, it)| *it != Some(*tag)));
        self.untagged_until_s = self.untagged_until_s.min(untagged_until_s);
        let last_s = self.tagged.iter().map(|(_, until_s)| *until_s).max().unwrap_or(0);
        self.until_s = last_s.max(self.untagged_until_s);
        self.until_s > 0
    }

    /// Whether others do not find it, or not for as long as it lasts.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.claim.as_ref().is_none_or(|it| it.until_s < self.until_s)
    }

    /// What is claimed of it, where its last token was used.
    pub(crate) fn settled_claim(&mut self) -> Option<Claim> {
        self.claim.take_if(|_| self.until_s == 0)
    }

    /// Whether its last token was used.
    pub(crate) const fn is_settled(&self) -> bool {
        self.until_s == 0
    }
}

/// A client that asks for more tokens than this at a time has its slot until the last is over.
const TAGGED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn came(promise: &mut Promise, tags: &[u64], now_s: u64) -> (u32, bool, u64) {
        let joined = tags.iter().map(|tag| Join(*tag)).collect();
        let count = promise.settle(&joined, now_s);
        (count, promise.is_settled(), promise.until_s)
    }

    #[test]
    fn a_promise_lasts_until_its_last_token_is_used_or_over() {
        let mut promise = Promise::to(7);
        promise.add(Some(Join(1)), 50);
        promise.add(Some(Join(2)), 90);
        promise.add(Some(Join(3)), 70);
        assert_eq!(promise.until_s, 90);
        assert_eq!(came(&mut promise, &[9], 10), (0, false, 90));
        assert_eq!(came(&mut promise, &[2, 9], 10), (1, false, 70));
        assert_eq!(came(&mut promise.clone(), &[3], 10), (1, false, 50));
        assert_eq!(came(&mut promise.clone(), &[3], 50), (1, true, 0), "the first is over");
        assert_eq!(came(&mut promise, &[1, 3], 10), (2, true, 0));
    }

    #[test]
    fn a_token_of_which_nothing_is_told_counts_until_it_ends() {
        let mut promise = Promise::to(7);
        promise.add(Some(Join(1)), 50);
        promise.add(None, 40);
        promise.add(Some(Join(1)), 45);
        assert_eq!(came(&mut promise, &[1], 10), (1, false, 45), "one of two that look the same");
        let mut many = Promise::to(7);
        (0..1500).for_each(|at| many.add(Some(Join(at)), 50 + at));
        assert_eq!((many.tagged.len(), many.until_s), (TAGGED_MAX, 1549));
        assert_eq!(came(&mut many, &[0, 1, 2, 3, 4, 5, 6, 7], 10), (8, false, 1549));
    }
}
