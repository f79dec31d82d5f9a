//! Loopback addresses of plain players toward the game servers on this host.
//!
//! A session keeps its address from its first datagram to its end, because a game server knows it
//! by that. So addresses are given out apart from entries, from two stocks. *Unproven* ones go
//! round among those who are half open, the one that was left first before the others: a flood can
//! make them come back sooner, and can never use them up. One whose session opens leaves this stock
//! for that of the *players*, and rests when its player has left. Each stock has its own size, so
//! that neither of the two takes from the other.

use std::collections::VecDeque;

use crate::links::loopback::{self, LOOPBACK_PLACES};
use crate::store::entry::Entry;
use ringgate_batch::LocalIp;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// What is numbered here: a loopback address.
pub(crate) struct Loopback;

pub(crate) struct Addresses {
    /// The number of the entry that each address has, as far as addresses were ever given out.
    owners: Vec<u32>,
    unproven: VecDeque<Entry<Loopback>>,
    /// Those that players have left, and when they may go back to the unproven.
    resting: VecDeque<(Entry<Loopback>, u64)>,
    /// Addresses of players, and those that rest.
    players: usize,
    players_max: usize,
    unproven_max: usize,
}

impl Addresses {
    /// Addresses for so many players, those who have left lately among them, and so many others.
    pub(crate) fn new(players_max: usize, unproven_max: usize) -> Self {
        let unproven_max = unproven_max.min(LOOPBACK_PLACES);
        let players_max = players_max.min(LOOPBACK_PLACES - unproven_max);
        let all = players_max + unproven_max;
        Self {
            owners: Vec::with_capacity(all),
            unproven: VecDeque::with_capacity(all),
            resting: VecDeque::with_capacity(players_max),
            players: 0,
            players_max,
            unproven_max,
        }
    }

    /// An address for the session of an entry, which is half open. `None` while all unproven ones
    /// are in use.
    pub(crate) fn take(&mut self, owner: u32, now_ns: u64) -> Option<Entry<Loopback>> {
        self.end_rests(now_ns);
        if self.owners.len() - self.players < self.unproven_max {
            self.owners.push(owner);
            return Some(Entry::numbered(self.owners.len() as u32 - 1));
        }
        let address = self.unproven.pop_front()?;
        self.owners[address.index()] = owner;
        Some(address)
    }

    /// Whether another player may have an address.
    pub(crate) fn has_player_address(&mut self, now_ns: u64) -> bool {
        self.end_rests(now_ns);
        self.players < self.players_max
    }

    /// A half-open session has opened, and its address is a player's from now on.
    pub(crate) fn promote(&mut self) {
        self.players += 1;
    }

    /// A half-open session is over.
    pub(crate) fn give_back(&mut self, address: Entry<Loopback>) {
        self.owners[address.index()] = NOBODY;
        self.unproven.push_back(address);
    }

    /// A player has left.
    pub(crate) fn rest(&mut self, address: Entry<Loopback>, now_ns: u64) {
        self.owners[address.index()] = NOBODY;
        self.resting.push_back((address, now_ns + REST_NS));
    }

    /// The number of the entry that has this address.
    pub(crate) fn owner(&self, local: &LocalIp) -> Option<u32> {
        let address: Entry<Loopback> = loopback::entry_of_loopback(local)?;
        self.owners.get(address.index()).copied().filter(|owner| *owner != NOBODY)
    }

    /// Writes who waits for what. Who has which address is told by the sessions.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { owners, unproven, resting, players: _, players_max: _, unproven_max: _ } = self;
        owners.len().write(out);
        unproven.write(out);
        resting.write(out);
    }

    /// Goes on with it; then come [`own`](Self::own) and [`settle`](Self::settle).
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let count = usize::read(from)?;
        if count > self.players_max + self.unproven_max {
            return Err(Broken::Invalid("number of addresses"));
        }
        // In the memory that was reserved.
        self.owners.clear();
        self.owners.resize(count, MISSING);
        self.unproven.extend(VecDeque::<Entry<Loopback>>::read(from)?);
        self.resting.extend(VecDeque::<(Entry<Loopback>, u64)>::read(from)?);
        let rest = self.resting.iter().map(|(address, _)| address);
        for address in self.unproven.iter().chain(rest) {
            match self.owners.get_mut(address.index()) {
                Some(owner) if *owner == MISSING => *owner = NOBODY,
                _ => return Err(Broken::Invalid("address")),
            }
        }
        self.players = self.resting.len();
        Ok(())
    }

    /// A session has an address, as a player's or not.
    pub(crate) fn own(
        &mut self,
        address: Entry<Loopback>,
        owner: u32,
        is_player: bool,
    ) -> Result<(), Broken> {
        match self.owners.get_mut(address.index()) {
            Some(known) if *known == MISSING => *known = owner,
            _ => return Err(Broken::Invalid("address")),
        }
        self.players += usize::from(is_player);
        Ok(())
    }

    /// All sessions have come: the addresses of those who were not carried rest.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        for at in 0..self.owners.len() {
            if self.owners[at] == MISSING {
                self.players += 1;
                self.rest(Entry::numbered(at as u32), now_ns);
            }
        }
    }

    fn end_rests(&mut self, now_ns: u64) {
        while let Some(&(address, until_ns)) = self.resting.front()
            && now_ns >= until_ns
        {
            self.resting.pop_front();
            self.unproven.push_back(address);
            self.players -= 1;
        }
    }
}

/// How long a player's address is nobody else's. Game servers give a silent player up within a
/// minute or so, and would take another one at the same address for the one before.
const REST_NS: u64 = 120_000_000_000;

const NOBODY: u32 = u32::MAX;

/// Of an address whose session has not come yet.
const MISSING: u32 = u32::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(addresses: &mut Addresses, count: u32) -> Vec<u32> {
        (0..count).map_while(|owner| addresses.take(owner, 0)).map(Entry::number).collect()
    }

    #[test]
    fn an_unproven_address_comes_back_after_all_others() {
        let mut addresses = Addresses::new(4, 3);
        assert_eq!(numbers(&mut addresses, 9), [0, 1, 2]);
        for number in [1, 0, 2] {
            addresses.give_back(Entry::numbered(number));
        }
        assert_eq!(numbers(&mut addresses, 9), [1, 0, 2]);
    }

    #[test]
    fn a_players_address_rests_and_is_no_unproven_one_meanwhile() {
        let mut addresses = Addresses::new(2, 2);
        let mut play = |number: u32| {
            let address = addresses.take(7, 0).expect("an unproven one");
            assert_eq!(address.number(), number);
            assert!(addresses.has_player_address(0));
            addresses.promote();
            assert_eq!(
                addresses.owner(&loopback::loopback_of(address).expect("in range")),
                Some(7)
            );
            addresses.rest(address, 0);
        };
        play(0);
        play(1);
        assert!(!addresses.has_player_address(REST_NS - 1), "all of them rest");
        assert_eq!(numbers(&mut addresses, 9), [2, 3], "and others still get theirs");
        addresses.give_back(Entry::numbered(3));
        assert!(addresses.has_player_address(REST_NS));
        assert_eq!(addresses.take(1, REST_NS).map(Entry::number), Some(3));
        assert_eq!(addresses.take(1, REST_NS).map(Entry::number), Some(0));
    }

    #[test]
    fn a_flood_uses_no_more_addresses_than_there_are_for_it() {
        let mut addresses = Addresses::new(1_000_000, 64);
        for _ in 0..1000 {
            let taken: Vec<_> = (0..32).filter_map(|owner| addresses.take(owner, 0)).collect();
            for address in taken {
                addresses.give_back(address);
            }
        }
        assert_eq!(addresses.owners.len(), 64);
        assert!(addresses.has_player_address(0));
    }
}
