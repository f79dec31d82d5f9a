//! Whole fleets in virtual time: token services, gateways, game processes, players and an etcd in
//! one process, by seed. Everything that decides is what ships; sockets, clocks and disks are the
//! world's. Any part is killed, started anew, replaced or cut off at any moment, and nothing that
//! must not happen happens.
//!
//! ```text
//! RINGGATE_FLEET_SEEDS=1000 cargo test --test worlds            more of them
//! RINGGATE_FLEET_SEED=1234 cargo test --test worlds -- --nocapture    one of them again
//! ```

#[path = "worlds/bans.rs"]
mod bans;
#[path = "worlds/breaks.rs"]
mod breaks;
#[path = "worlds/etcd.rs"]
mod etcd;
#[path = "worlds/gateway.rs"]
mod gateway;
#[path = "worlds/judge.rs"]
mod judge;
#[path = "worlds/moves.rs"]
mod moves;
#[path = "worlds/player.rs"]
mod player;
#[path = "worlds/process.rs"]
mod process;
#[path = "worlds/questions.rs"]
mod questions;
#[path = "worlds/server.rs"]
mod server;
#[path = "worlds/service.rs"]
mod service;
#[path = "worlds/udp.rs"]
mod udp;
#[path = "worlds/world.rs"]
mod world;

use std::collections::BTreeMap;

use world::{Report, World};

/// How much time goes by between two looks.
pub(crate) const STEP_MS: u64 = 20;

/// Two seconds of a processor each, and more than five minutes of a fleet.
const SEEDS: u64 = 3;

#[test]
fn nothing_that_must_not_happen_happens_in_any_fleet() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("RINGGATE_FLEET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGGATE_FLEET_SEEDS").unwrap_or(SEEDS),
    };
    let (mut lasted_ms, mut worlds) = (0, 0);
    let mut counts = BTreeMap::<_, u64>::new();
    for seed in seeds {
        let report = run(seed);
        lasted_ms += report.lasted_ms;
        worlds += 1;
        report.counts().iter().for_each(|(name, count)| *counts.entry(*name).or_default() += count);
        println!("seed {seed}: {report:?}");
    }
    let never: Vec<_> = counts.iter().filter(|(_, count)| **count == 0).collect();
    assert!(worlds < SEEDS || never.is_empty(), "in no world there were {never:?}");
    println!("{:.1} hours", lasted_ms as f64 / 3_600_000.0);
}

#[test]
fn the_same_seed_is_the_same_fleet() {
    let [first, second] = [7, 7].map(|seed| World::new(seed).storm(40_000));
    assert_eq!(first, second);
    assert!(first.expect("it holds").met.connected > 0);
}

#[test]
fn a_successor_knows_the_bans_that_the_process_before_it_has_known() {
    for is_lifted in [false, true] {
        for after_ms in [600, 1000, 1400, 1800, 2200] {
            let known = World::new(1).upgrade_behind_a_ban(is_lifted, after_ms);
            assert_eq!(known, Ok([!is_lifted; 2]), "after {after_ms} ms");
        }
    }
}

#[test]
fn a_ban_that_comes_right_before_an_upgrade_ends_who_plays() {
    for after_ms in (0..=200).step_by(STEP_MS as usize) {
        let plays_on = World::new(1).upgrade_right_behind_a_ban(after_ms);
        assert_eq!(plays_on, Ok(false), "after {after_ms} ms");
    }
}

#[test]
fn a_successor_keeps_what_is_registered_hears_its_fleet_and_holds_back_what_was_held_back() {
    let ([before, fewest], awaits, doubts) = World::new(1).upgrade_twice().expect("it holds");
    assert!(before > 0 && fewest == before, "of {before} backends {fewest} stand");
    assert!(!awaits, "etcd has said that all of it is known");
    assert_eq!(doubts, [true; 2], "nobody has confirmed it");
}

#[test]
fn a_successor_claims_again_what_the_process_before_it_has_claimed() {
    let known = World::new(TOKENS_OF_TWO).upgrade_behind_forgotten_tokens();
    let [before, after] = known.expect("it holds");
    assert!(before > 0 && after >= before, "of {before} tokens {after} are claimed");
}

/// A world in which tokens name two gateways.
const TOKENS_OF_TWO: u64 = 2;

fn run(seed: u64) -> Report {
    let replay = Replay(seed);
    match World::new(seed).run() {
        Ok(report) => report,
        Err(why) => panic!("seed {}: {why}", replay.0),
    }
}

/// The seed of a world that is running.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "\nagain: RINGGATE_FLEET_SEED={seed} cargo test --test worlds -- --nocapture\n"
            );
        }
    }
}
