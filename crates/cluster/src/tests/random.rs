//! Larger worlds than a search can look through, each from a seed: more gateways, sessions and
//! arbiters, and as much trouble as one likes. In the end all becomes calm, and whoever is left has
//! to serve each session that goes on.

use ringgate_core::splitmix;

use super::breaks::Break;
use super::judge::Wrong;
use super::world::{Event, Limits, Scope, World};

/// Plays a world to its end, or to what is wrong in it.
pub(crate) fn play(seed: u64, broken: Option<Break>) -> Result<World, (Wrong, Vec<Event>)> {
    let mut random = Random(seed);
    let scope = scope(&mut random, broken);
    let mut world = World::new(scope);
    let mut way = Vec::new();
    for _ in 0..random.between(20, 400) {
        let events = world.events();
        if events.is_empty() {
            break;
        }
        let event = &events[random.below(events.len())];
        way.push(event.clone());
        if let Err(wrong) = world.apply(event) {
            return Err((wrong, way));
        }
        if let Event::Deliver(message) = event
            && random.below(4) > 0
        {
            world.under_way.remove(message);
        }
        if random.below(8) == 0 {
            world.under_way.pop_first();
        }
    }
    match world.calm_down() {
        Ok(()) => Ok(world),
        Err(wrong) => Err((wrong, way)),
    }
}

fn scope(random: &mut Random, broken: Option<Break>) -> Scope {
    // What ends or expires early leaves nothing to look at.
    let is_long = random.below(2) == 0;
    let seldom = |it: usize| if is_long { 0 } else { it as u16 };
    Scope {
        gateways: random.between(2, 5),
        arbiters: random.between(1, 2),
        sessions: random.between(1, 4),
        keys: random.between(1, 2),
        said: random.between(1, 4) as u64,
        keys_max: random.between(1, 3),
        limits: Limits {
            claims: random.between(2, 20) as u16,
            deaths: random.below(4) as u16,
            ends: seldom(random.below(3)),
            expiries: seldom(random.below(2)),
            losses: random.below(4) as u16,
            restarts: random.below(4) as u16,
            sleeps: random.below(8) as u16,
            told: random.below(8) as u16,
        },
        broken,
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (splitmix::next(&mut self.0) % bound as u64) as usize
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }
}

#[test]
fn nothing_goes_wrong_in_worlds_from_seeds() {
    let worlds = std::env::var("RINGGATE_CLUSTER_WORLDS")
        .map_or(10_000, |it| it.parse().expect("RINGGATE_CLUSTER_WORLDS is a number of worlds"));
    let mut owners = 0;
    for seed in 0..worlds {
        match play(seed, None) {
            Ok(world) => {
                let sessions = 0..world.scope.sessions;
                owners += sessions.map(|it| world.judge.holders(it).len()).sum::<usize>();
            }
            Err((wrong, way)) => panic!("seed {seed}: {wrong:?} after {way:#?}"),
        }
    }
    eprintln!("{worlds} worlds, {owners} owners of sessions");
    assert!(owners as u64 > 3 * worlds, "sessions hardly move in these worlds");
}

#[test]
fn what_is_broken_is_found_from_seeds_too() {
    for &broken in Break::ALL {
        let found = (0..20_000).find_map(|seed| play(seed, Some(broken)).err());
        let (wrong, way) = found.unwrap_or_else(|| panic!("{broken:?} is not found"));
        eprintln!("{broken:?}: {wrong:?} after {} events", way.len());
    }
}
