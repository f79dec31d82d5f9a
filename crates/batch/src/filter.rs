//! What may pass a socket at all: a description in plain data, from which each driver makes what
//! its kernel or its network card runs.
//!
//! What passes is checked again by whoever knows the protocol: a filter sees single datagrams and
//! no state, and must never refuse what the protocol accepts.

use std::ops::RangeInclusive;

/// Which datagrams may pass: those that match one of the rules. An empty datagram never does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    rules: Vec<Rule>,
}

/// What a datagram that begins with certain bytes has to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What its first byte may be.
    pub first: RangeInclusive<u8>,
    /// How long it may be.
    pub bytes: RangeInclusive<u16>,
    /// Bytes that it has at offsets, all inside of the shortest datagram.
    fixed: Vec<(u16, Vec<u8>)>,
}

impl Rule {
    /// Datagrams whose first byte and length lie in these ranges.
    pub fn new(first: RangeInclusive<u8>, bytes: RangeInclusive<u16>) -> Self {
        Self { first, bytes, fixed: Vec::new() }
    }

    /// And which have exactly these bytes at an offset.
    ///
    /// # Panics
    /// Where the shortest datagram of the rule ends before them: a program that reads past the end
    /// refuses the datagram, even if a later rule would have let it pass.
    #[must_use]
    pub fn with(mut self, at: u16, bytes: &[u8]) -> Self {
        let end = usize::from(at) + bytes.len();
        assert!(end <= usize::from(*self.bytes.start()), "fixed bytes lie inside every datagram");
        self.fixed.push((at, bytes.to_vec()));
        self
    }

    /// The bytes that a datagram has to have, with their offsets.
    pub fn fixed(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.fixed.iter().map(|(at, bytes)| (*at, bytes.as_slice()))
    }

    fn accepts(&self, datagram: &[u8]) -> bool {
        let len = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
        datagram.first().is_some_and(|first| self.first.contains(first))
            && self.bytes.contains(&len)
            && self.fixed.iter().all(|(at, bytes)| datagram[usize::from(*at)..].starts_with(bytes))
    }
}

impl Filter {
    /// Lets nothing pass.
    pub const fn new() -> Self {
        Self { rules: Vec::new() }
    }

    /// Lets also pass what this rule describes. Rules are tried in order: put the frequent ones
    /// first.
    #[must_use]
    pub fn allow(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether a datagram passes: what a program made from this computes, in Rust.
    pub fn accepts(&self, datagram: &[u8]) -> bool {
        self.rules.iter().any(|rule| rule.accepts(datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "inside every datagram")]
    fn fixed_bytes_past_the_shortest_datagram_are_a_mistake() {
        let _ = Rule::new(0..=255, 4..=9).with(2, &[1, 2, 3]);
    }
}
