//! Whole messages through a whole gateway: a game server in C, players over a network that loses
//! and delays, and every message accounted for on both sides.
//!
//! `RINGGATE_DELIVERY_PLAYERS=1000` has more of them.

use std::collections::VecDeque;

use ringgate_core::delivery::{Channel, End, Options};
use ringgate_io::Choice;
use ringgate_os::clock::Clock;

use crate::folder::Folder;
use crate::gateway_rig::{Gateway, Player, Wishes, on_both_drivers, until};
use crate::link_program::{Game, compile};

on_both_drivers!(levels_and_snapshots_reach_players_behind_a_bad_network);

/// What the server sends on request, and what players send to order one.
const LEVEL_BYTES: usize = 20 * 1024;

/// How many levels every player gets: the first one unasked.
const LEVELS: u32 = 3;

const LOSS_PERCENT: u64 = 5;
const LAG_NS: u64 = 50_000_000;

/// A player whose payloads are packets of the delivery layer, behind a bad network.
struct Gamer {
    raw: Player,
    end: End,
    clock: Clock,
    random: u64,
    /// What is on its way to the gateway, and when it gets there.
    late: VecDeque<(u64, Vec<u8>)>,
    levels: u32,
    snapshots: u64,
    newest: Option<u32>,
    ordered: u32,
}

impl Gamer {
    fn new(gateway: &Gateway, client_id: u64) -> Self {
        let mut raw = gateway.player(client_id);
        raw.connect();
        let clock = Clock::start();
        Self {
            raw,
            end: End::new(&Options::default(), clock.now_ns()),
            clock,
            random: client_id | 1 << 40,
            late: VecDeque::new(),
            levels: 0,
            snapshots: 0,
            newest: None,
            ordered: 0,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < LOSS_PERCENT
    }

    fn step(&mut self) {
        let now_ns = self.clock.now_ns();
        let mut packet = [0; 1200];
        while let Some(len) = self.end.poll_transmit(now_ns, &mut packet) {
            let datagram = self.raw.write(&packet[..len]);
            if !self.is_lost() {
                self.late.push_back((now_ns + LAG_NS, datagram));
            }
        }
        while let Some((_, datagram)) = self.late.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            let _ = self.raw.socket.send_to(&datagram, self.raw.client.server());
        }
        self.raw.step();
        for payload in std::mem::take(&mut self.raw.received) {
            if !self.is_lost() {
                self.take(now_ns, &payload);
            }
        }
        if self.levels > self.ordered && self.levels < LEVELS {
            let order = vec![self.ordered as u8; LEVEL_BYTES];
            self.end.send(Channel::Reliable(0), &order, None).expect("there is room for one");
            self.ordered += 1;
        }
    }

    fn take(&mut self, now_ns: u64, payload: &[u8]) {
        let Self { levels, snapshots, newest, .. } = self;
        let taken = self.end.handle_packet(now_ns, payload, |channel, message| {
            let number = u32::from_le_bytes(*message.first_chunk().expect("a number"));
            match channel {
                Channel::Reliable(0) => {
                    assert_eq!((number, message.len()), (*levels, LEVEL_BYTES));
                    let byte = |at: usize| (at * 31) as u8;
                    let is_whole = (4..LEVEL_BYTES)
                        .all(|at| message[at] == byte(at).wrapping_add(number as u8));
                    assert!(is_whole, "level {number} has changed");
                    *levels += 1;
                }
                Channel::Sequenced(1) => {
                    assert!(*newest < Some(number), "snapshots do not go back");
                    (*newest, *snapshots) = (Some(number), *snapshots + 1);
                }
                other => panic!("the server does not send on {other:?}"),
            }
        });
        taken.expect("the gateway is honest");
    }
}

/// `name=value` of the server's line: those of levels and of snapshots have the same name.
fn numbers(line: &str) -> Vec<u64> {
    let value = |word: &str| word.split_once('=').and_then(|(_, value)| value.parse().ok());
    line.split_whitespace().filter_map(value).collect()
}

fn levels_and_snapshots_reach_players_behind_a_bad_network(io: Choice) {
    let wished = std::env::var("RINGGATE_DELIVERY_PLAYERS").ok();
    let count = wished.and_then(|count| count.parse().ok()).unwrap_or(8_u32);
    let folder = Folder::new();
    let program = compile(&folder, "crates/link/examples/c/messages.c");
    let gateway = Gateway::start(&Wishes { delivers: true, slots: count, ..Wishes::new(io) });
    let mut game = Game::start(&program, gateway.run_dir(), "game");
    let mut gamers = Vec::new();
    // The first may come before the server is there.
    for client_id in 1..=u64::from(count) {
        gamers.push(Gamer::new(&gateway, client_id));
        gamers.iter_mut().for_each(Gamer::step);
    }
    until("everybody has all levels", || {
        gamers.iter_mut().for_each(Gamer::step);
        gamers.iter().all(|gamer| gamer.levels == LEVELS && gamer.snapshots > 10)
    });
    // The server hears of what the last acknowledgements say.
    let all = u64::from(count * LEVELS);
    let (mut slowest_ms, mut most_lost) = (0, 0);
    let line = loop {
        let mut line = None;
        until("the server says how it stands", || {
            gamers.iter_mut().for_each(Gamer::step);
            line = game.next_line();
            line.is_some()
        });
        let line = numbers(&line.expect("it was waited for"));
        // How good the ways to players are, on request.
        (slowest_ms, most_lost) = (slowest_ms.max(line[10]), most_lost.max(line[11]));
        let is_known = slowest_ms >= LAG_NS / 1_000_000 && most_lost > 0;
        if line[2] == all && is_known {
            break line;
        }
    };
    let [players, levels, delivered, snapshots, seen, lost, orders, bytes, refused, given_up, _, _] =
        line[..]
    else {
        panic!("{line:?}")
    };
    assert_eq!((players, levels, delivered, given_up), (count.into(), all, all, 0));
    let ordered = u64::from(count * (LEVELS - 1));
    assert_eq!((orders, bytes, refused), (ordered, ordered * LEVEL_BYTES as u64, 0));
    // What is not reported yet is on its way; and what was reported as delivered was seen.
    let here: u64 = gamers.iter().map(|gamer| gamer.snapshots).sum();
    assert!(seen <= here && seen + lost <= snapshots, "{seen} and {lost} of {snapshots}, {here}");
    // Some are lost on the way, and some make room for newer ones while a level leaves.
    assert!(lost > 0 && seen > lost, "{seen} {lost}");
    let counters = gateway.stop();
    assert_eq!((counters.messages_up, counters.messages_to_links), (ordered, ordered));
    assert!(counters.messages_down > all, "{counters:?}");
}
