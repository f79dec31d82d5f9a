//! All orders of small worlds, breadth first: what is found is the shortest way to it. Nothing
//! under way is ever taken out, so each message is lost, doubled, late and out of order in some of
//! them.

use std::collections::{HashSet, VecDeque};

use super::judge::Wrong;
use super::world::{Event, Scope, World};

/// What a search has come across.
#[derive(Debug, Default)]
pub(crate) struct Searched {
    pub(crate) states: usize,
    /// The most owners that one session has had.
    pub(crate) owners_max: usize,
    /// States in which a session has ended.
    pub(crate) ended: usize,
    /// The most packets that a game process has been handed.
    pub(crate) handed_max: usize,
}

/// Looks at every state, or stops at the first that is wrong and says how one comes there.
pub(crate) fn search(scope: Scope) -> Result<Searched, (Wrong, Vec<Event>)> {
    let first = World::new(scope);
    let mut known = HashSet::from([first.fingerprint()]);
    // How each state was come to: from which one, by which of its events.
    let mut ways: Vec<(u32, u32)> = vec![(0, 0)];
    let mut ahead = VecDeque::from([(0_u32, first)]);
    let mut searched = Searched::default();
    while let Some((place, world)) = ahead.pop_front() {
        searched.look_at(&world);
        for (number, event) in world.events().iter().enumerate() {
            let mut next = world.clone();
            let outcome = next.apply(event);
            if outcome.is_ok() && !known.insert(next.fingerprint()) {
                continue;
            }
            ways.push((place, number as u32));
            if let Err(wrong) = outcome {
                return Err((wrong, way_to(scope, &ways)));
            }
            ahead.push_back((ways.len() as u32 - 1, next));
        }
    }
    Ok(searched)
}

/// What has happened on the way to the last state.
fn way_to(scope: Scope, ways: &[(u32, u32)]) -> Vec<Event> {
    let mut numbers = Vec::new();
    let mut place = ways.len() - 1;
    while place != 0 {
        let (before, number) = ways[place];
        numbers.push(number as usize);
        place = before as usize;
    }
    let mut world = World::new(scope);
    let step = |number: usize| {
        let event = world.events()[number].clone();
        let _wrong = world.apply(&event);
        event
    };
    numbers.into_iter().rev().map(step).collect()
}

impl Searched {
    fn look_at(&mut self, world: &World) {
        self.states += 1;
        for session in 0..world.scope.sessions {
            self.owners_max = self.owners_max.max(world.judge.holders(session).len());
            self.handed_max = self.handed_max.max(world.judge.handed(session));
            self.ended += usize::from(world.judge.has_ended(session));
        }
    }
}

/// Small worlds, each about one thing: all things at once are more states than there is time for.
pub(crate) mod scopes {
    use super::super::world::{Limits, Scope};

    const NOTHING: Limits = Limits {
        claims: 0,
        deaths: 0,
        ends: 0,
        expiries: 0,
        losses: 0,
        restarts: 0,
        sleeps: 0,
        told: 0,
    };

    const ONE_SESSION: Scope = Scope {
        gateways: 3,
        arbiters: 1,
        sessions: 1,
        keys: 1,
        said: 0,
        keys_max: 8,
        limits: NOTHING,
        broken: None,
    };

    /// Owners follow each other, and each may bring what the player has said.
    pub(crate) const PAYLOADS: Scope =
        Scope { said: 2, limits: Limits { claims: 3, ..NOTHING }, ..ONE_SESSION };

    /// Sessions end by themselves, by a game, by a player, while others stand by.
    pub(crate) const ENDS: Scope = Scope {
        limits: Limits { claims: 2, ends: 1, expiries: 1, ..NOTHING },
        said: 1,
        ..ONE_SESSION
    };

    /// Owners sleep and wake.
    pub(crate) const SLEEPS: Scope =
        Scope { limits: Limits { claims: 2, sleeps: 1, ends: 1, ..NOTHING }, ..ONE_SESSION };

    /// Gateways die and come back under their names.
    pub(crate) const DEATHS: Scope = Scope {
        limits: Limits { claims: 2, deaths: 2, restarts: 1, ..NOTHING },
        said: 1,
        ..ONE_SESSION
    };

    /// Two sessions of one token, at one arbiter or at two.
    pub(crate) const TWO_SESSIONS: Scope =
        Scope { gateways: 2, sessions: 2, limits: Limits { claims: 3, ..NOTHING }, ..ONE_SESSION };

    /// Everything at once, a little of each.
    pub(crate) const DEEP: &[(&str, Scope)] = &[
        (
            "deaths, sleeps and lost ways",
            Scope {
                said: 1,
                limits: Limits { claims: 2, deaths: 1, losses: 1, sleeps: 1, ..NOTHING },
                ..ONE_SESSION
            },
        ),
        (
            "ends and deaths",
            Scope {
                limits: Limits { claims: 2, deaths: 1, ends: 1, expiries: 1, ..NOTHING },
                ..ONE_SESSION
            },
        ),
        ("many owners", Scope { said: 1, limits: Limits { claims: 4, ..NOTHING }, ..ONE_SESSION }),
        (
            "restarts",
            Scope {
                said: 1,
                limits: Limits { claims: 3, deaths: 2, restarts: 2, ..NOTHING },
                ..ONE_SESSION
            },
        ),
        (
            "two sessions at two arbiters",
            Scope { arbiters: 2, limits: Limits { claims: 4, told: 1, ..NOTHING }, ..TWO_SESSIONS },
        ),
    ];

    pub(crate) const TWO_SESSIONS_AND_A_RESTART: Scope = Scope {
        gateways: 2,
        sessions: 2,
        limits: Limits { claims: 1, deaths: 1, restarts: 1, ..NOTHING },
        ..ONE_SESSION
    };
}

fn all_orders(name: &str, scope: Scope) -> Searched {
    match search(scope) {
        Ok(searched) => {
            eprintln!("{name}: {searched:?}");
            searched
        }
        Err((wrong, way)) => panic!("{name}: {wrong:?} after {way:#?}"),
    }
}

#[test]
fn owners_follow_each_other() {
    let searched = all_orders("payloads", scopes::PAYLOADS);
    assert_eq!((searched.owners_max, searched.handed_max), (4, 2));
}

#[test]
fn sessions_end() {
    let searched = all_orders("ends", scopes::ENDS);
    assert!(searched.owners_max == 3 && searched.ended > 0, "{searched:?}");
}

#[test]
fn owners_sleep() {
    assert_eq!(all_orders("sleeps", scopes::SLEEPS).owners_max, 3);
}

#[test]
fn gateways_die_and_come_back() {
    assert_eq!(all_orders("deaths", scopes::DEATHS).owners_max, 3);
}

/// Millions of states each.
#[test]
fn everything_happens_at_once() {
    if std::env::var_os("RINGGATE_CLUSTER_DEEP").is_none_or(|it| it != "1") {
        return eprintln!(
            "SKIPPED: RINGGATE_CLUSTER_DEEP=1 looks through larger worlds, for minutes"
        );
    }
    for (name, scope) in scopes::DEEP {
        all_orders(name, *scope);
    }
}

#[test]
fn two_sessions_have_one_token() {
    all_orders("two sessions", scopes::TWO_SESSIONS);
    all_orders("two sessions and a restart", scopes::TWO_SESSIONS_AND_A_RESTART);
}
