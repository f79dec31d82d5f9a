//! The game server's half of a game: it does not echo, it speaks at a pace of its own, as action
//! games do.
//!
//! Each player gets so many pushes a second from the moment its first payload has arrived. What the
//! server has heard goes back in every push, so the players alone know the loss of both directions,
//! and no second set of books has to be collected. Sans-IO: how payloads come and go is the link's
//! business.
//!
//! Players whose first payload never arrives are not known here; a player is forgotten when its
//! link says that it left, or when it was silent for five seconds.

use std::collections::HashMap;
use std::hash::Hash;

use crate::players::traffic::Traffic;
use crate::players::{Ack, PUSH_BYTES, Push, Received, Stamp, TICK_NS, Wheel, since, tick_of};
use crate::rng::mix;

/// A game with players known by the link's name for them.
#[derive(Debug)]
pub struct Game<K> {
    traffic: Traffic,
    /// What time of day the clock of all moments began at.
    unix_at_start_ns: u64,
    places: HashMap<K, u32>,
    players: Vec<Option<Player<K>>>,
    free: Vec<u32>,
    wheel: Wheel,
    due: Vec<u32>,
    totals: Totals,
}

/// What the server has heard and said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Payloads of players, each once.
    pub heard: u64,
    /// Payloads that were heard before.
    pub duplicates: u64,
    /// Payloads that no player of the generator has written.
    pub corrupt: u64,
    /// Pushes.
    pub pushed: u64,
}

#[derive(Debug)]
struct Player<K> {
    key: K,
    run: u32,
    session: u32,
    since: u32,
    received: Received,
    heard: u32,
    newest_intended_ns: u64,
    /// When the newest payload came, by the server's clock.
    newest_ns: u64,
    next_due_ns: u64,
    next_counter: u32,
}

impl<K: Copy + Eq + Hash> Game<K> {
    /// A game without players. `traffic` is what each is sent.
    pub fn new(traffic: Traffic, now_ns: u64, unix_ns: u64) -> Self {
        Self {
            traffic,
            unix_at_start_ns: unix_ns - now_ns,
            places: HashMap::new(),
            players: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(now_ns),
            due: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Totals so far.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Players now.
    pub fn players(&self) -> usize {
        self.places.len()
    }

    /// A player's payload.
    pub fn hear(&mut self, key: K, payload: &[u8], now_ns: u64) {
        let Some(stamp) = Stamp::read(payload) else {
            self.totals.corrupt += 1;
            return;
        };
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.welcome(key, &stamp, now_ns),
        };
        let Some(player) = &mut self.players[place as usize] else { return };
        if (player.run, player.session) != (stamp.run, stamp.session) {
            // Another player got the link's name for one who left.
            self.forget(key);
            return self.hear(key, payload, now_ns);
        }
        if player.received.note(stamp.counter).is_duplicate() {
            self.totals.duplicates += 1;
            return;
        }
        self.totals.heard += 1;
        player.heard += 1;
        if stamp.intended_ns >= player.newest_intended_ns {
            player.newest_intended_ns = stamp.intended_ns;
            player.newest_ns = now_ns;
        }
    }

    fn welcome(&mut self, key: K, stamp: &Stamp, now_ns: u64) -> u32 {
        let interval_ns = self.traffic.interval_ns().unwrap_or(u64::MAX);
        let next_due_ns = now_ns + mix(u64::from(stamp.session)) % interval_ns.max(1);
        let player = Player {
            key,
            run: stamp.run,
            session: stamp.session,
            since: since(self.unix_at_start_ns + now_ns),
            received: Received::new(),
            heard: 0,
            newest_intended_ns: 0,
            newest_ns: now_ns,
            next_due_ns,
            next_counter: 0,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.players.push(None);
            self.players.len() as u32 - 1
        });
        self.players[place as usize] = Some(player);
        self.places.insert(key, place);
        self.wheel.schedule(place, tick_of(next_due_ns));
        place
    }

    /// A player has left.
    pub fn forget(&mut self, key: K) {
        if let Some(place) = self.places.remove(&key) {
            self.players[place as usize] = None;
            self.wheel.cancel(place);
            self.free.push(place);
        }
    }

    /// When a player is due next.
    pub fn poll_timeout(&self) -> u64 {
        self.wheel.next_tick().saturating_mul(TICK_NS)
    }

    /// Says what is due, to at most so many players; true when there may be more. Pushes that are
    /// late are all said: the loop is open here too.
    pub fn speak(
        &mut self,
        now_ns: u64,
        unix_ns: u64,
        at_most: usize,
        mut say: impl FnMut(K, &[u8]),
    ) -> bool {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.take_due(now_ns / TICK_NS, at_most, &mut due);
        for place in &due {
            self.push(*place, now_ns, unix_ns, &mut say);
        }
        let has_more = due.len() == at_most;
        self.due = due;
        has_more
    }

    fn push(&mut self, place: u32, now_ns: u64, unix_ns: u64, say: &mut impl FnMut(K, &[u8])) {
        let (Some(player), Some(interval_ns)) =
            (&mut self.players[place as usize], self.traffic.interval_ns())
        else {
            return;
        };
        if now_ns.saturating_sub(player.newest_ns) > SILENCE_NS_MAX {
            let key = player.key;
            return self.forget(key);
        }
        let mut payload = [0; ringgate_core::limits::PAYLOAD_BYTES_MAX];
        while player.next_due_ns <= now_ns {
            player.next_due_ns += interval_ns;
            for _ in 0..self.traffic.at_once {
                let len = self.traffic.bytes(player.session, player.next_counter).max(PUSH_BYTES);
                let ack = Ack {
                    heard: player.heard,
                    intended_ns: player.newest_intended_ns,
                    held_ns: now_ns - player.newest_ns,
                };
                let push = Push {
                    run: player.run,
                    session: player.session,
                    counter: player.next_counter,
                    sent_unix_ns: unix_ns,
                    since: player.since,
                    ack,
                };
                push.write(&mut payload[..len]);
                say(player.key, &payload[..len]);
                player.next_counter += 1;
                self.totals.pushed += 1;
            }
        }
        self.wheel.schedule(place, tick_of(player.next_due_ns));
    }
}

/// A player who was not heard for so long is gone.
const SILENCE_NS_MAX: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn payload(session: u32, counter: u32) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        Stamp { run: 5, session, counter, intended_ns: u64::from(counter) * 33 * MS, late_ns: 0 }
            .write(&mut bytes);
        bytes
    }

    fn pushes(game: &mut Game<u8>, now_ns: u64) -> Vec<(u8, Push)> {
        let mut said = Vec::new();
        game.speak(now_ns, 1 << 60, 100, |key, bytes| {
            said.push((key, Push::read(bytes).expect("a whole push")));
        });
        said
    }

    #[test]
    fn each_player_is_told_at_the_pace_of_the_game_what_was_heard_of_it() {
        let mut game = Game::new(crate::players::traffic::server_half(), 0, 1 << 60);
        game.hear(1, &payload(10, 0), 0);
        game.hear(2, &payload(20, 0), 0);
        game.hear(1, &payload(10, 2), 10 * MS);
        game.hear(1, &payload(10, 2), 11 * MS);
        game.hear(2, &[7; 40], 11 * MS);
        let mut said = Vec::new();
        for ms in 0..1000 {
            said.extend(pushes(&mut game, ms * MS));
        }
        let of = |key| said.iter().filter(move |(to, _)| *to == key).map(|(_, push)| push);
        assert!((29..=31).contains(&of(1).count()) && (29..=31).contains(&of(2).count()));
        assert!(of(1).zip(0..).all(|(push, counter)| push.counter == counter));
        let last = of(1).next_back().expect("some");
        assert_eq!((last.run, last.session, last.ack.heard), (5, 10, 2));
        assert_eq!(last.ack.intended_ns, 66 * MS);
        let totals = game.totals();
        assert_eq!((totals.heard, totals.duplicates, totals.corrupt), (3, 1, 1));
        assert_eq!(totals.pushed as usize, said.len());
    }

    #[test]
    fn who_left_or_fell_silent_is_told_nothing_and_a_name_can_be_used_again() {
        let mut game = Game::new(crate::players::traffic::server_half(), 0, 1 << 60);
        game.hear(1, &payload(10, 0), 0);
        let first = pushes(&mut game, 50 * MS)[0].1;
        game.forget(1);
        assert!(pushes(&mut game, 100 * MS).is_empty());
        game.hear(1, &payload(10, 1), 100 * MS);
        game.hear(1, &payload(11, 0), 100 * MS);
        let again = pushes(&mut game, 200 * MS);
        assert!(again.iter().all(|(_, push)| push.session == 11 && push.since != first.since));
        assert_eq!(game.players(), 1);
        assert!(pushes(&mut game, 6000 * MS).is_empty());
        assert_eq!(game.players(), 0);
    }
}
