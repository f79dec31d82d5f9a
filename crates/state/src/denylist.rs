//! Who may not play, as operators have said it.
//!
//! A *rule* says of a prefix that its addresses are denied, or that they are allowed though a
//! shorter prefix around it is denied: an *exception*. Of the rules around an address the one with
//! the longest prefix decides. Of client ids there are only rules that deny. A rule may end by
//! itself.
//!
//! What makes no difference is not kept. To allow a prefix takes its rule away, and leaves an
//! exception only where a denied prefix is around it, for as long as one is. Rules about longer
//! prefixes within it stay.
//!
//! Moments are numbers of whatever clock the owner goes by: seconds of the Unix epoch in a file,
//! nanoseconds since the start in a gateway.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::successors;
use std::str::FromStr;

use ringgate_gate::{Denied, Prefix};

/// Rules that a list has at most.
pub const RULES_MAX: usize = 100_000;

/// Whom a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// Everybody at these addresses.
    Prefix(Prefix),
    /// The player with this id in its token.
    Client(u64),
}

/// What was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Denied, or allowed within something that is.
    pub is_denied: bool,
    /// When that ends, if it does.
    pub until: Option<u64>,
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyList {
    prefixes: BTreeMap<Prefix, Rule>,
    /// When it ends, for each id.
    clients: BTreeMap<u64, Option<u64>>,
}

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// For whom.
    pub whom: Vec<Whom>,
    /// Denied or allowed.
    pub is_denied: bool,
    /// When that ends, if it does.
    pub until: Option<u64>,
    /// Rules about longer prefixes within those are forgotten.
    pub is_whole: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// For whom the list says something else than before.
    pub changed: usize,
    /// Which of those that were allowed are exceptions now.
    pub exceptions: usize,
    /// Rules about longer prefixes within them that say the contrary, and still do.
    pub contrary: usize,
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There would be more than [`RULES_MAX`] rules.
    Full,
    /// Nothing around it is denied, so there is no exception that could end.
    NoException(Whom),
}

/// How many rules there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Denied IPv4 prefixes.
    pub ipv4: usize,
    /// Denied IPv6 prefixes.
    pub ipv6: usize,
    /// Prefixes that are allowed within denied ones.
    pub exceptions: usize,
    /// Denied client ids.
    pub clients: usize,
}

impl DenyList {
    /// The list as it is after a change.
    pub fn changed(&self, change: &Change) -> Result<(Self, Effect), Refusal> {
        let mut list = self.clone();
        let mut effect = Effect::default();
        for whom in &change.whom {
            match *whom {
                Whom::Prefix(prefix) => list.change_prefix(prefix, change, &mut effect)?,
                Whom::Client(id) => list.change_client(id, change, &mut effect)?,
            }
        }
        list.forget_useless();
        if list.len() > RULES_MAX { Err(Refusal::Full) } else { Ok((list, effect)) }
    }

    fn change_prefix(
        &mut self,
        prefix: Prefix,
        change: &Change,
        effect: &mut Effect,
    ) -> Result<(), Refusal> {
        if change.is_whole {
            let within: BTreeSet<Prefix> = self.within(prefix).map(|(it, _)| it).collect();
            effect.changed += within.len();
            self.prefixes.retain(|it, _| !within.contains(it));
        }
        let &Change { is_denied, until, .. } = change;
        let is_exception = !is_denied && self.around(prefix).any(|(_, rule)| rule.is_denied);
        if !is_denied && !is_exception && until.is_some() {
            return Err(Refusal::NoException(Whom::Prefix(prefix)));
        }
        let rule = (is_denied || is_exception).then_some(Rule { is_denied, until });
        let before = match rule {
            Some(rule) => self.prefixes.insert(prefix, rule),
            None => self.prefixes.remove(&prefix),
        };
        effect.changed += usize::from(before != rule);
        effect.exceptions += usize::from(is_exception);
        effect.contrary +=
            self.within(prefix).filter(|(_, rule)| rule.is_denied != is_denied).count();
        Ok(())
    }

    fn change_client(
        &mut self,
        id: u64,
        change: &Change,
        effect: &mut Effect,
    ) -> Result<(), Refusal> {
        let before = match (change.is_denied, change.until) {
            (true, until) => self.clients.insert(id, until),
            (false, None) => self.clients.remove(&id),
            (false, Some(_)) => return Err(Refusal::NoException(Whom::Client(id))),
        };
        let after = change.is_denied.then_some(change.until);
        effect.changed += usize::from(before != after);
        Ok(())
    }

    /// Forgets what is over. Returns how many rules that were.
    pub fn expire(&mut self, now: u64) -> usize {
        let before = self.len();
        let lasts = |until: Option<u64>| until.is_none_or(|until| until > now);
        self.prefixes.retain(|_, rule| lasts(rule.until));
        self.clients.retain(|_, until| lasts(*until));
        self.forget_useless();
        before - self.len()
    }

    /// When the next rule ends.
    pub fn next_end(&self) -> Option<u64> {
        self.rules().filter_map(|(_, rule)| rule.until).min()
    }

    /// The same list on another clock.
    #[must_use]
    pub fn on_clock(&self, to: impl Fn(u64) -> u64) -> Self {
        let mut list = self.clone();
        list.prefixes.values_mut().for_each(|rule| rule.until = rule.until.map(&to));
        list.clients.values_mut().for_each(|until| *until = until.map(&to));
        list
    }

    /// What workers go by.
    pub fn to_denied(&self) -> Denied {
        let prefixes = self.prefixes.iter().map(|(prefix, rule)| (*prefix, rule.is_denied));
        Denied::new(prefixes).with_clients(self.clients.keys().copied())
    }

    /// Every rule, in order.
    pub fn rules(&self) -> impl Iterator<Item = (Whom, Rule)> + '_ {
        let prefixes = self.prefixes.iter().map(|(prefix, rule)| (Whom::Prefix(*prefix), *rule));
        let clients = self.clients.iter();
        let clients =
            clients.map(|(id, until)| (Whom::Client(*id), Rule { is_denied: true, until: *until }));
        prefixes.chain(clients)
    }

    /// The rules that concern a prefix or a client id: around it, of its own, and within it.
    pub fn about(&self, whom: Whom) -> Vec<(Whom, Rule)> {
        match whom {
            Whom::Client(id) => {
                let until = self.clients.get(&id);
                let rule = |until: &Option<u64>| Rule { is_denied: true, until: *until };
                until.map(|until| (whom, rule(until))).into_iter().collect()
            }
            Whom::Prefix(prefix) => {
                let mut around: Vec<_> = self.around(prefix).collect();
                around.reverse();
                around.extend(self.prefixes.get(&prefix).map(|rule| (prefix, *rule)));
                let all = around.into_iter().chain(self.within(prefix));
                all.map(|(prefix, rule)| (Whom::Prefix(prefix), rule)).collect()
            }
        }
    }

    /// The rule that decides about an address, a whole prefix or a client id.
    pub fn decides(&self, whom: Whom) -> Option<(Whom, Rule)> {
        let concerns = |it: &(Whom, Rule)| match (it.0, whom) {
            (Whom::Prefix(it), Whom::Prefix(prefix)) => it.covers(&prefix),
            (it, whom) => it == whom,
        };
        self.about(whom).into_iter().rfind(concerns)
    }

    /// How many rules of each kind there are.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { clients: self.clients.len(), ..Counts::default() };
        for (prefix, rule) in &self.prefixes {
            let kind = match (rule.is_denied, prefix.is_v4()) {
                (false, _) => &mut counts.exceptions,
                (true, true) => &mut counts.ipv4,
                (true, false) => &mut counts.ipv6,
            };
            *kind += 1;
        }
        counts
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.prefixes.len() + self.clients.len()
    }

    /// Whether nobody is denied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A list of these rules, as far as they make a difference. Of two about the same the later one
    /// holds.
    pub fn of_rules(rules: impl IntoIterator<Item = (Whom, Rule)>) -> Self {
        let mut list = Self::default();
        for (whom, rule) in rules {
            match whom {
                Whom::Prefix(prefix) => {
                    list.prefixes.insert(prefix, rule);
                }
                Whom::Client(id) => {
                    list.clients.insert(id, rule.until);
                }
            }
        }
        list.forget_useless();
        list
    }

    /// This list and another one: who is denied by either is denied. So an exception of one is left
    /// out where the other denies.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut list = Self::default();
        for (one, another) in [(self, other), (other, self)] {
            let counts = |it: &(&Prefix, &Rule)| it.1.is_denied || !another.denies_around(*it.0);
            for (prefix, rule) in one.prefixes.iter().filter(counts) {
                let known = list.prefixes.entry(*prefix).or_insert(*rule);
                if rule.is_denied {
                    known.until = later(known.until, rule.until);
                }
            }
            for (id, until) in &one.clients {
                let known = list.clients.entry(*id).or_insert(*until);
                *known = later(*known, *until);
            }
        }
        list
    }

    /// Whether a prefix is denied, as far as no rule about a longer one says otherwise.
    fn denies_around(&self, prefix: Prefix) -> bool {
        let own = self.prefixes.get(&prefix).copied();
        let decides = own.or_else(|| self.around(prefix).next().map(|(_, rule)| rule));
        decides.is_some_and(|rule| rule.is_denied)
    }

    /// Rules about shorter prefixes around one, the longest first.
    fn around(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, Rule)> + '_ {
        let shorter = successors(prefix.shorter(), Prefix::shorter);
        shorter.filter_map(|it| self.prefixes.get(&it).map(|rule| (it, *rule)))
    }

    /// Rules about longer prefixes within one, in order.
    fn within(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, Rule)> + '_ {
        let last = prefix.range().1;
        let all = self.prefixes.range(prefix..).map(|(it, rule)| (*it, *rule));
        all.take_while(move |(it, _)| it.range().0 <= last)
            .filter(move |(it, _)| *it != prefix && prefix.covers(it))
    }

    /// Forgets exceptions that nothing denied is around.
    fn forget_useless(&mut self) {
        for is_v4 in [true, false] {
            // The prefixes that the one at hand lies in, and whether any of them is denied.
            let mut around: Vec<(Prefix, bool)> = Vec::new();
            self.prefixes.retain(|prefix, rule| {
                if prefix.is_v4() != is_v4 {
                    return true;
                }
                while around.pop_if(|(it, _)| !it.covers(prefix)).is_some() {}
                let is_within = around.last().is_some_and(|(_, is_denied)| *is_denied);
                around.push((*prefix, is_within || rule.is_denied));
                is_within || rule.is_denied
            });
        }
    }
}

/// No end is the latest.
fn later(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Client(id) => write!(f, "client {id}"),
        }
    }
}

impl FromStr for Whom {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("client ") {
            Some(id) => client_id(id).map(Self::Client).ok_or("expected a client id"),
            None => text.parse().map(Self::Prefix),
        }
    }
}

/// A client id, decimal or, after `0x`, hexadecimal.
pub fn client_id(text: &str) -> Option<u64> {
    let is_number = |digits: &str| digits.bytes().all(|it| it.is_ascii_hexdigit());
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().filter(|_| is_number(digits)),
        None => text.parse().ok().filter(|_| is_number(text)),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "{RULES_MAX} prefixes and client ids are the most"),
            Self::NoException(whom) => write!(
                f,
                "nothing around {whom} is denied, so there would be no exception that ends: allow it without a time"
            ),
        }
    }
}
