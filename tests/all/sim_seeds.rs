//! Simulated worlds from many seeds: nothing that must not happen happens in any of them.
//!
//! ```text
//! RINGGATE_SIM_SEEDS=10000 cargo test --release --test all sim_    more of them
//! RINGGATE_SIM_SEED=1234 cargo test --test all sim_                one of them again
//! ```

use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{Ended, PACKET_KIND_NAMES, Route};
use ringgate_impair::Impairments;
use ringgate_testkit::{GameLink, GamePlan, Plan, Report, SETTINGS, World};

const SEEDS: u64 = 16;

/// Seeds are dealt to this many tests, which run side by side.
const HANDS: u64 = 4;

#[test]
fn worlds_of_the_first_hand() {
    run_hand(0);
}

#[test]
fn worlds_of_the_second_hand() {
    run_hand(1);
}

#[test]
fn worlds_of_the_third_hand() {
    run_hand(2);
}

#[test]
fn worlds_of_the_fourth_hand() {
    run_hand(3);
}

#[test]
fn a_crowd_of_thousands_comes_at_once() {
    let report = run(Plan::many_players(1, 3000));
    assert!(report.sessions_peak > 2900, "{}", report.sessions_peak);
    assert_eq!(report.said, report.heard);
}

#[test]
fn workers_wait_for_more_while_much_is_said_and_all_of_it_arrives() {
    for seed in 1..3 {
        let plan = Plan { batch_delay: BatchDelay::AUTO, players: 60, ..Plan::calm(seed) };
        assert!(plan.is_fair(), "all that is said must arrive");
        let report = run(plan);
        assert!(report.gathers > 100, "{report:?}");
        assert_eq!(report.said, report.heard);
        let still = run(Plan { players: 60, ..Plan::calm(seed) });
        assert_eq!(still.gathers, 0);
    }
}

#[test]
fn a_gateway_that_is_handed_over_all_the_time_loses_nothing() {
    for seed in 1..3 {
        let plan = Plan { hand_overs: true, workers: 3, ..Plan::calm(seed) };
        assert!(plan.is_fair(), "all that is said must arrive");
        let report = run(plan);
        assert!(report.hand_overs > 5, "{report:?}");
        assert_eq!(report.said, report.heard);
    }
}

/// Whole messages, both ways; every one of them accounted for at the end of each world.
#[test]
fn messages_arrive_however_bad_the_network_and_whatever_happens_to_the_gateway() {
    for (seed, settings) in
        (1..).zip(["", "PktLoss=30", "PktLagVariance=90 LagReorders=1 PktDup=20"])
    {
        let mut plan = Plan { players: 12, hand_overs: true, ..Plan::calm(seed) };
        plan.deliver_messages(1);
        plan.path.settings = plan.settings(settings);
        plan.habits.move_per_mille = 500;
        let report = run(plan);
        let [up, down] = report.messages;
        assert!(up > 500 && down > 500 && report.hand_overs > 3, "{settings}: {report:?}");
    }
}

/// Game processes that die, stall and come back move their players to each other meanwhile, and the
/// gateway is handed over: nothing comes twice, and messages in their order.
#[test]
fn players_are_moved_whatever_dies_meanwhile() {
    for (seed, delivers) in [(1, false), (2, true), (3, true)] {
        let games = vec![GamePlan { link: GameLink::Bundle, slots: 64 }; 3];
        let route = Route::Hash;
        let calm = Plan { lasts_ns: 30_000_000_000, ..Plan::calm(seed) };
        let mut plan = Plan { games, route, crashes: true, stalls: true, hand_overs: true, ..calm };
        if delivers {
            plan.deliver_messages(1);
        }
        let Report { counters, hand_overs, .. } = run(plan);
        let refused = counters.moves_refused.iter().sum::<u64>();
        assert!(counters.moves > 10 && refused > 5 && hand_overs > 3, "{counters:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    // What differs anywhere differs in all that follows.
    let plan = |seed| Plan { lasts_ns: 5_000_000_000, ..Plan::from_seed(seed) };
    let [first, second] = [7, 7].map(|seed| run(plan(seed)));
    assert!(first.heard > 0 && first.unreal_heard > 0 && first.plain_heard > 0, "{first:?}");
    assert_eq!(first.counters, second.counters);
    assert_eq!((first.lives, first.said, first.heard), (second.lives, second.said, second.heard));
    assert_eq!(first.unreal_heard, second.unreal_heard);
    assert_eq!(first.plain_heard, second.plain_heard);
    let [first, second] = [7, 7].map(|seed| {
        let mut plan = plan(seed);
        plan.deliver_messages(2);
        run(plan)
    });
    assert!(first.messages.iter().all(|count| *count > 0), "{first:?}");
    assert_eq!((first.counters, first.messages), (second.counters, second.messages));
}

#[test]
fn a_game_that_nobody_understands_is_played_beside_others_and_under_attack() {
    for seed in [1, 2] {
        let plan = Plan { plain_players: 20, ..Plan::from_seed(seed) };
        let report = run(plan);
        assert!(report.heard > 100 && report.plain_heard > 300, "{report:?}");
    }
}

#[test]
fn an_unreal_game_is_played_beside_another_and_ports_change() {
    let mut plan = Plan::from_seed(19);
    (plan.unreal_players, plan.servers) = (20, 2);
    plan.habits.move_per_mille = 900;
    plan.habits.stay_ns = 4_000_000_000..8_000_000_000;
    let report = run(plan);
    let named = PACKET_KIND_NAMES.iter().zip(report.counters.handled);
    let restarts = named.filter(|(name, _)| **name == "unreal_restart_response").map(|it| it.1);
    let restarts: u64 = restarts.sum();
    assert!(report.heard > 200 && report.unreal_heard > 500, "{report:?}");
    assert!(restarts > 10, "{report:?}");
}

/// Challenges take so long that every player has asked again before the first one comes, and
/// answers all of them.
#[test]
fn players_of_an_unreal_game_answer_every_challenge_and_have_one_session() {
    let mut plan = Plan::calm(11);
    (plan.unreal_players, plan.servers) = (20, 2);
    plan.path.delay_ns = 100_000_000..100_000_001;
    plan.habits.same_port_per_mille = 0;
    assert!(plan.is_fair(), "all that is said must arrive");
    let report = run(plan);
    assert!(report.unreal_heard > 500, "{report:?}");
    assert_eq!(report.counters.sessions_closed[Ended::Replaced as usize], 0, "{report:?}");
}

/// What the load generator's network does to datagrams, a world's does too.
#[test]
fn worlds_know_every_setting_of_a_bad_network() {
    for (seed, settings) in (1..).zip(SETTINGS) {
        let mut plan = Plan { players: 10, lasts_ns: 3_000_000_000, ..Plan::calm(seed) };
        plan.path.settings = plan.settings(settings);
        let report = run(plan);
        assert!(report.heard > 50, "{settings}: {report:?}");
    }
    // A world moves players to other ports by a habit of theirs, and has a seed of its own.
    let named =
        |name: &&str| SETTINGS.iter().any(|settings| settings.contains(&format!("{name}=")));
    let missing: Vec<_> = Impairments::NAMES.iter().filter(|name| !named(name)).collect();
    assert_eq!(missing, [&"NatSwitchSeconds", &"Seed"]);
}

fn run_hand(hand: u64) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("RINGGATE_SIM_SEED") {
        if seed / 2 % HANDS == hand {
            println!("seed {seed}: {:?}", run(Plan::from_seed(seed)));
        }
        return;
    }
    let seeds = number("RINGGATE_SIM_SEEDS").unwrap_or(SEEDS);
    let (mut payloads, mut unreal, mut gathers, mut messages) = (0, 0, 0, 0);
    // Seeds that follow each other in pairs, so that each hand has easy and hard ones.
    for seed in (0..seeds).filter(|seed| seed / 2 % HANDS == hand) {
        let report = run(Plan::from_seed(seed));
        payloads += report.heard;
        unreal += report.unreal_heard;
        gathers += report.gathers;
        messages += report.messages.iter().sum::<u64>();
    }
    assert!(payloads > 0 && unreal > 0, "nobody has said anything: {payloads}, {unreal}");
    assert!(messages > 0 || seeds <= 32, "nobody has had messages");
    assert!(gathers > 0 || seeds <= 32, "no worker has waited for more");
}

/// Runs a world, and says how to run it again if it ends badly, be it by a panic.
fn run(plan: Plan) -> Report {
    let replay = Replay(plan.seed);
    let outcome = World::new(plan).run();
    match outcome {
        Ok(report) => report,
        Err(violation) => panic!("seed {}: {violation}", replay.0),
    }
}

/// The seed of a world that is running.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "\nagain: RINGGATE_SIM_SEED={seed} cargo test --test all sim_ -- --nocapture\n"
            );
        }
    }
}
