//! Loopback addresses of plain players toward the game servers on this host.
//!
//! A session keeps its address from its first datagram to its end, because a game server knows it
//! by that. So addresses are given out apart from entries, from two stocks. *Unproven* ones go
//! round among those who are half open, the one that was left first before the others: a flood can
//! make them come back sooner, and can never use them up. One whose session opens leaves this stock
//! for that of the *players*, and rests when its player has left. Each stock has its own size, so
//! that neither of the two takes from the other.

use std::collections::VecDeque;
use std::ops::Range;

use crate::links::loopback::{self, LOOPBACK_PLACES};
use crate::store::entry::Entry;
use crate::store::table::handed::write_none;
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
    coming: Coming,
}

/// What has come so far of another process's sessions.
#[derive(Default)]
struct Coming {
    /// Addresses that some session has.
    owned: usize,
    /// Sessions that have an address. Of two with the same one, the earlier was over when the later
    /// came.
    owners: usize,
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
            coming: Coming::default(),
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
        let Self {
            owners,
            // In records of their own.
            unproven: _,
            resting: _,
            players: _,
            players_max: _,
            unproven_max: _,
            coming: _,
        } = self;
        owners.len().write(out);
        write_none(out);
        write_none(out);
    }

    /// Goes on with it; then comes [`settle`](Self::settle).
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let count = usize::read(from)?;
        self.grow_to(count)?;
        if self.owners.len() > count {
            return Err(Broken::Invalid("number of addresses"));
        }
        self.take_list(Free::Unproven, from)?;
        self.take_list(Free::Resting, from)
    }

    /// How many addresses nobody has.
    pub(crate) fn free_counts(&self) -> [(Free, usize); 2] {
        [(Free::Unproven, self.unproven.len()), (Free::Resting, self.resting.len())]
    }

    /// Writes some of them.
    pub(crate) fn hand_over_free(&self, which: Free, some: Range<usize>, out: &mut Writer<'_>) {
        which.write(out);
        (some.len() as u32).write(out);
        match which {
            Free::Unproven => self.unproven.range(some).for_each(|it| it.write(out)),
            Free::Resting => self.resting.range(some).for_each(|it| it.write(out)),
        }
    }

    /// Goes on with them.
    pub(crate) fn take_free(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let which = Free::read(from)?;
        self.take_list(which, from)
    }

    fn take_list(&mut self, which: Free, from: &mut Reader<'_>) -> Result<(), Broken> {
        for _ in 0..u32::read(from)? {
            let address = Entry::read(from)?;
            match self.owners.get_mut(address.index()) {
                Some(owner) if *owner == MISSING => *owner = NOBODY,
                _ => return Err(Broken::Invalid("address")),
            }
            match which {
                Free::Unproven => self.unproven.push_back(address),
                Free::Resting => {
                    self.resting.push_back((address, u64::read(from)?));
                    self.players += 1;
                }
            }
        }
        Ok(())
    }

    /// A session comes from another process, which has an address, as a player's or not.
    pub(crate) fn come(
        &mut self,
        address: Entry<Loopback>,
        owner: u32,
        is_player: bool,
    ) -> Result<(), Broken> {
        self.grow_to(address.index() + 1)?;
        let known = std::mem::replace(&mut self.owners[address.index()], owner);
        if known == NOBODY {
            return Err(Broken::Invalid("address"));
        }
        self.coming.owned += usize::from(known == MISSING);
        self.coming.owners += 1;
        self.players += usize::from(is_player);
        Ok(())
    }

    /// It is not there any more. Another one may have come that has its address.
    pub(crate) fn go(&mut self, address: Entry<Loopback>, owner: u32, is_player: bool) {
        if let Some(known) = self.owners.get_mut(address.index()).filter(|it| **it == owner) {
            *known = MISSING;
            self.coming.owned -= 1;
        }
        self.coming.owners -= 1;
        self.players -= usize::from(is_player);
    }

    fn grow_to(&mut self, count: usize) -> Result<(), Broken> {
        if count > self.players_max + self.unproven_max {
            return Err(Broken::Invalid("number of addresses"));
        }
        if count > self.owners.len() {
            // In the memory that was reserved.
            self.owners.resize(count, MISSING);
        }
        Ok(())
    }

    /// All sessions have come: the addresses of those who were not carried rest.
    pub(crate) fn settle(&mut self, now_ns: u64) -> Result<(), Broken> {
        let Coming { owned, owners } = std::mem::take(&mut self.coming);
        if owned != owners {
            return Err(Broken::Invalid("address"));
        }
        if owned + self.unproven.len() + self.resting.len() == self.owners.len() {
            return Ok(());
        }
        for at in 0..self.owners.len() {
            if self.owners[at] == MISSING {
                self.players += 1;
                self.rest(Entry::numbered(at as u32), now_ns);
            }
        }
        Ok(())
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

/// Of which stock a free address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    Unproven,
    Resting,
}

ringgate_core::carried_by_number!(Free { Unproven = 0, Resting = 1 });

/// How long a player's address is nobody else's. Game servers give a silent player up within a
/// minute or so, and would take another one at the same address for the one before.
const REST_NS: u64 = 120_000_000_000;

const NOBODY: u32 = u32::MAX;

/// Of an address whose session has not come yet.
const MISSING: u32 = u32::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::carry::Maps;

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

    /// One that goes on with what another has, after sessions have come.
    fn settled(before: &Addresses, come: impl FnOnce(&mut Addresses)) -> Result<Addresses, Broken> {
        let maps = Maps::default();
        let mut after = Addresses::new(before.players_max, before.unproven_max);
        come(&mut after);
        let mut memory = [0; 500];
        let mut take = |write: &dyn Fn(&mut Writer<'_>), is_list: bool| {
            let mut out = Writer::new(&mut memory);
            write(&mut out);
            let len = out.len();
            let mut from = Reader::new(&memory[..len], &maps);
            if is_list { after.take_free(&mut from) } else { after.take_over(&mut from) }
        };
        take(&|out| before.hand_over(out), false)?;
        for (which, count) in before.free_counts() {
            take(&|out| before.hand_over_free(which, 0..count, out), true)?;
        }
        after.settle(0)?;
        Ok(after)
    }

    #[test]
    fn an_address_that_another_session_has_since_it_was_copied_is_that_ones() {
        let mut before = Addresses::new(4, 4);
        let [first, second, third] = [7, 8, 9].map(|owner| before.take(owner, 0).expect("one"));
        before.promote();
        before.give_back(first);
        before.give_back(third);
        assert_eq!(numbers(&mut before, 3), [3, 4, 0], "those of 0, 1 and 2 by now");
        let after = settled(&before, |after| {
            let [fourth, fifth] = [3, 4].map(Entry::numbered);
            for (address, owner, is_player) in [
                (first, 7, false),
                (second, 8, true),
                (third, 9, false),
                (first, 2, false),
                (fourth, 0, false),
                (fifth, 1, false),
            ] {
                after.come(address, owner, is_player).expect("in range");
            }
            // As their places turn out to be others', or free.
            after.go(first, 7, false);
            after.go(third, 9, false);
        });
        let after = after.expect("all have come");
        assert_eq!((after.owners, after.players), (before.owners, before.players));
    }

    #[test]
    fn two_sessions_do_not_have_one_address_and_the_missing_ones_rest() {
        let mut before = Addresses::new(4, 4);
        assert_eq!(numbers(&mut before, 2), [0, 1]);
        let twice = settled(&before, |after| {
            for (address, owner) in [(0, 0), (1, 1), (1, 5)] {
                after.come(Entry::numbered(address), owner, false).expect("in range");
            }
        });
        assert_eq!(twice.err(), Some(Broken::Invalid("address")));
        let lost = settled(&before, |after| {
            after.come(Entry::numbered(0), 0, false).expect("in range");
        });
        let lost = lost.expect("one was not carried");
        assert_eq!((lost.owners, lost.resting.len(), lost.players), (vec![0, NOBODY], 1, 1));
        let far = settled(&before, |after| {
            assert!(after.come(Entry::numbered(8), 0, false).is_err(), "there are 8 of them");
        });
        assert!(far.is_ok());
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
