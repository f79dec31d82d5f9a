//! Which messages of a player a game server has heard, from when it got the player to when it lost
//! it: what several servers, between which players are moved, have heard together.
//!
//! A line for each stay, with the generator's run and session: the first message heard, the one
//! that would be next, and how many of them were not the next. The lines of all servers, sorted,
//! follow each other without a gap or an overlap where every message was heard once and in order.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use crate::players::Stamp;

/// The stays of players, known by the link's name for them.
#[derive(Debug)]
pub struct Stays<K> {
    open: HashMap<K, Stay>,
    over: Vec<Stay>,
    corrupt: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    of: (u32, u32),
    first: u32,
    next: u32,
    out_of_order: u32,
}

impl<K: Copy + Eq + Hash> Stays<K> {
    /// Nobody yet.
    pub fn new() -> Self {
        Self { open: HashMap::new(), over: Vec::new(), corrupt: 0 }
    }

    /// A player's message.
    pub fn hear(&mut self, key: K, message: &[u8]) {
        let Some(Stamp { run, session, counter, .. }) = Stamp::read(message) else {
            self.corrupt += 1;
            return;
        };
        let of = (run, session);
        let new = Stay { of, first: counter, next: counter, out_of_order: 0 };
        let stay = self.open.entry(key).or_insert(new);
        stay.out_of_order += u32::from((stay.of, stay.next) != (of, counter));
        stay.next = counter + 1;
    }

    /// Players whom the server has lost.
    pub fn end(&mut self, is_gone: impl Fn(K) -> bool) {
        self.over.extend(self.open.extract_if(|key, _| is_gone(*key)).map(|(_, stay)| stay));
    }
}

impl<K: Copy + Eq + Hash> Default for Stays<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Display for Stays<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Stay { of: (run, session), first, next, out_of_order } in
            self.over.iter().chain(self.open.values())
        {
            writeln!(f, "stay {run} {session} {first} {next} {out_of_order}")?;
        }
        writeln!(f, "serve: {} messages that no player of the generator wrote", self.corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(session: u32, counter: u32) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        Stamp { run: 5, session, counter, intended_ns: 1, late_ns: 0 }.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_stay_says_what_was_heard_in_it_and_what_not_in_order() {
        let mut stays = Stays::new();
        (3..6).for_each(|counter| stays.hear(1, &message(10, counter)));
        stays.end(|key| key == 1);
        for counter in [9, 9, 11] {
            stays.hear(1, &message(10, counter));
        }
        stays.hear(1, b"no message");
        let said = "stay 5 10 3 6 0\nstay 5 10 9 12 2\n\
                    serve: 1 messages that no player of the generator wrote\n";
        assert_eq!(stays.to_string(), said);
    }
}
