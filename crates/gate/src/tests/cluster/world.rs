//! A router that sends players' datagrams to either gateway as it likes, by seed: what the network
//! has not lost arrives, and arrives once.

use std::collections::BTreeSet;

use super::super::clients::{Library, Player};
use super::super::games::Game;
use super::super::rig::{home, plain_setup};
use super::super::unreal::rig::Dice;
use super::Pair;
use crate::ids::BackendId;
use ringgate_batch::Endpoint;
use ringgate_core::netcode::Client;

/// A datagram on its way to the router.
struct Flight {
    due: u64,
    from: Endpoint,
    bytes: Vec<u8>,
}

struct World {
    pair: Pair,
    games: [Game; 2],
    players: Vec<Player<Client>>,
    doors: Vec<usize>,
    flights: Vec<Flight>,
    dice: Dice,
    step: u64,
    /// What was sent and has not been lost.
    sent: BTreeSet<Vec<u8>>,
    heard: BTreeSet<Vec<u8>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut setup = plain_setup();
        setup.backends[BackendId(0)].slots = 50;
        let mut pair = Pair::new(setup, 1 + (seed % 2) as u16);
        let games = [0, 1].map(|at| Game::join(pair.rig(at), "arena"));
        let mut player = |number: u16| {
            let token = pair.rig(0).token(u64::from(number) + 1);
            Player::new(pair.rig(0), home(number), &token)
        };
        let players: Vec<_> = (0..PLAYERS).map(&mut player).collect();
        let (sent, heard) = (BTreeSet::new(), BTreeSet::new());
        let (doors, flights) = (vec![0; players.len()], Vec::new());
        Self { pair, games, players, doors, flights, dice: Dice(seed), step: 0, sent, heard }
    }

    fn turn(&mut self, speaks: bool) {
        self.step += 1;
        for number in 0..self.players.len() {
            self.live(number, speaks);
        }
        self.arrive();
        self.pair.pass(10);
        for (at, game) in self.games.iter().enumerate() {
            for payload in game.payloads(self.pair.rig(at)) {
                let text = String::from_utf8_lossy(&payload).into_owned();
                assert!(self.heard.insert(payload), "twice: {text}");
            }
        }
        for at in [0, 1] {
            for worker in 0..self.pair.fleets[at].rigs.len() {
                let rig = &mut self.pair.fleets[at].rigs[worker];
                self.players.iter_mut().for_each(|player| player.receive(rig));
            }
        }
    }

    fn live(&mut self, number: usize, speaks: bool) {
        let now_ns = self.pair.rig(0).now.mono_ns;
        let player = &mut self.players[number];
        if speaks && player.library.is_connected() {
            let is_quiet = self.flights.iter().all(|flight| flight.from != player.home);
            if is_quiet && self.dice.roll(100) == 0 {
                player.home = player.home.with_port(5000 + self.dice.roll(9) as u16);
            }
            if self.dice.roll(3) == 0 {
                let text = format!("{number}: {}", self.step).into_bytes();
                let bytes = player.library.payload(now_ns, &text);
                if self.send(number, &bytes) {
                    self.sent.insert(text);
                }
            }
        }
        for bytes in self.players[number].library.poll(now_ns) {
            self.send(number, &bytes);
        }
    }

    /// Returns whether the network carries it.
    fn send(&mut self, number: usize, bytes: &[u8]) -> bool {
        let from = self.players[number].home;
        let copies = [0, 1, 1, 1, 1, 1, 1, 1, 1, 2][self.dice.roll(10) as usize];
        for _ in 0..copies {
            let due = self.step + self.dice.roll(4);
            self.flights.push(Flight { due, from, bytes: bytes.to_vec() });
        }
        copies > 0
    }

    /// Has the router send what is due where it sends each player's datagrams just now.
    fn arrive(&mut self) {
        let step = self.step;
        for Flight { from, bytes, .. } in
            self.flights.extract_if(.., |it| it.due <= step).collect::<Vec<_>>()
        {
            let number = self.players.iter().position(|it| it.home == from);
            let door = &mut self.doors[number.expect("it does not move while anything flies")];
            if self.dice.roll(8) == 0 {
                *door = 1 - *door;
            }
            let door = *door;
            let worker = self.dice.roll(self.pair.fleets[door].rigs.len() as u64) as usize;
            self.pair.fleets[door].rigs[worker].deliver(from, &bytes);
            self.pair.carry();
        }
    }
}

fn lives(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..150 {
        world.turn(false);
    }
    let connected = world.players.iter().all(|it| it.library.is_connected());
    assert!(connected, "seed {seed}: every player is let in");
    for _ in 0..600 {
        world.turn(true);
    }
    for _ in 0..30 {
        world.turn(false);
    }
    let lost: Vec<_> = world.sent.difference(&world.heard).collect();
    assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    assert!(world.heard.len() > 300, "seed {seed}");
    assert_eq!(world.pair.sessions().iter().sum::<usize>(), PLAYERS as usize, "seed {seed}");
    let forwarded = world.pair.forwarded(0) + world.pair.forwarded(1);
    assert!(forwarded > 100, "seed {seed}: {forwarded}");
}

#[test]
fn what_the_network_has_not_lost_arrives_once_wherever_the_router_sends_it() {
    (0..16).for_each(lives);
}

const PLAYERS: u16 = 4;
