//! Handshake versions 0 to 4 on both bases: which one a server speaks is learned, and its players
//! get in and stay.

use std::ops::RangeInclusive;

use super::super::handover::mapping::hand_over_to;
use super::super::rig::home;
use super::rig::{Arena, BASE, Player, rules_mut, unreal_setup};
use crate::counters::Ended;
use crate::ids::ListenerId;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Layout, Magic};

const fn speaking(version_min: u8, version: u8) -> Base {
    Base { version_min, version, ..BASE }
}

const fn laid_out(layout: Layout) -> Framing {
    Framing { magic: Magic::NONE, layout }
}

/// A listener that learns the base of its servers.
fn learning(servers: u16, long: Layout, versions: RangeInclusive<u8>) -> Setup {
    let mut setup = unreal_setup(servers);
    rules_mut(&mut setup).framing.layout = long;
    rules_mut(&mut setup).versions = versions;
    setup
}

fn connected(arena: &mut Arena, framing: Framing, client_id: u8, base: Base) -> Player {
    let mut player = Player::with_base(arena, framing, client_id, base);
    player.connect(arena);
    player
}

#[test]
fn every_version_on_every_base_plays_and_restarts() {
    for (layout, versions, served) in [
        (Layout::Original, 0..=0, 0..=0),
        (Layout::EarlyShort, 1..=1, 1..=1),
        (Layout::Early, 1..=1, 1..=2),
        (Layout::EarlyShort, 2..=2, 2..=2),
        (Layout::EarlyShort, 1..=2, 1..=2),
        (Layout::Early, 2..=2, 1..=2),
        (Layout::Early, 1..=2, 1..=2),
        (Layout::VersionedShort, 3..=3, 3..=3),
        (Layout::VersionedShort, 3..=3, 3..=4),
        (Layout::VersionedShort, 4..=4, 4..=4),
        (Layout::Versioned, 3..=3, 3..=4),
        (Layout::Versioned, 3..=4, 3..=4),
        (Layout::Versioned, 4..=4, 4..=4),
    ] {
        let long = match layout {
            Layout::EarlyShort => Layout::Early,
            Layout::VersionedShort => Layout::Versioned,
            other => other,
        };
        let (oldest, newest) = (*versions.start(), *versions.end());
        let server = (laid_out(layout), speaking(oldest, newest));
        let mut arena = Arena::speaking(learning(1, long, served), 2, &[server]);
        arena.pass(1100);
        for version in versions {
            let base = speaking(oldest, version);
            let mut player = connected(&mut arena, laid_out(layout), 1 + version, base);
            (0..3).for_each(|_| assert!(player.plays(&mut arena), "{layout:?} {version}"));
            for worker in [0, 1] {
                player.change_port(&mut arena, worker);
                player.restart(&mut arena);
                assert!(player.plays(&mut arena), "{layout:?} {version}");
            }
        }
        let (tally, counters) = (arena.servers[0].tally(), arena.counters());
        assert_eq!((tally.restarts, tally.duplicates, tally.implausible), (0, 0, 0));
        assert_eq!(counters.port_switches, 2 * tally.connections, "{layout:?}");
        assert_eq!(counters.drops.of(DropReason::UnrealSize), 0);
    }
}

#[test]
fn a_base_that_is_configured_is_the_only_one_that_is_spoken() {
    for (layout, other) in
        [(Layout::VersionedShort, Layout::Versioned), (Layout::Versioned, Layout::VersionedShort)]
    {
        let mut setup = learning(1, layout, 3..=3);
        rules_mut(&mut setup).learns_base = false;
        let server = (laid_out(layout), speaking(3, 3));
        let mut arena = Arena::speaking(setup.clone(), 1, &[server]);
        let mut player = connected(&mut arena, laid_out(layout), 1, speaking(3, 3));
        assert!(player.plays(&mut arena));
        let stranger = (laid_out(other), speaking(3, 3));
        let mut arena = Arena::speaking(setup, 1, &[stranger]);
        arena.pass(3000);
        assert!(arena.rig().host.gate().backends_up().all(|up| !up), "{layout:?}");
    }
}

#[test]
fn a_server_that_comes_late_is_learned_in_the_best_way_that_it_speaks() {
    for silence_ms in [100, 600, 1100, 1600, 2100, 2600] {
        let setup = learning(1, Layout::Early, 1..=2);
        let server = (laid_out(Layout::EarlyShort), speaking(1, 2));
        let mut arena = Arena::speaking(setup.clone(), 1, &[server]);
        arena.servers[0].is_deaf = true;
        arena.pass(silence_ms);
        arena.servers[0].is_deaf = false;
        arena.pass(1600);
        for version in [1, 2] {
            let base = speaking(1, version);
            let mut player = connected(&mut arena, laid_out(Layout::EarlyShort), version, base);
            assert!(player.plays(&mut arena), "version {version} after {silence_ms} ms");
        }
    }
}

#[test]
fn a_server_is_asked_anew_by_a_process_that_has_fewer_ways_to_ask() {
    let asking = |learns_base| {
        let mut setup = learning(1, Layout::Versioned, 3..=4);
        rules_mut(&mut setup).learns_base = learns_base;
        setup
    };
    // One that says nothing is asked in one way and in two, by turns.
    for (layout, silence_ms) in [
        (Layout::VersionedShort, None),
        (Layout::Versioned, Some(1100)),
        (Layout::Versioned, Some(1600)),
        (Layout::Versioned, Some(2100)),
    ] {
        let server = (laid_out(layout), speaking(3, 3));
        let mut arena = Arena::speaking(asking(true), 1, &[server]);
        arena.servers[0].is_deaf = silence_ms.is_some();
        arena.pass(silence_ms.unwrap_or(3000));
        assert_eq!(hand_over_to(arena.rig(), asking(false)), 0);
        arena.servers[0].is_deaf = false;
        arena.pass(3000);
        let is_up = arena.rig().host.gate().backends_up().any(|up| up);
        assert_eq!(is_up, layout == Layout::Versioned, "{silence_ms:?}");
    }
}

#[test]
fn a_server_that_comes_back_with_another_base_is_learned_anew() {
    let server = (Framing::default(), speaking(3, 3));
    let mut arena = Arena::speaking(learning(1, Layout::Versioned, 3..=4), 1, &[server]);
    let mut player = connected(&mut arena, Framing::default(), 1, speaking(3, 3));
    assert!(player.plays(&mut arena));
    arena.restart_server(0, laid_out(Layout::VersionedShort), 3);
    arena.pass(2000);
    let mut player = connected(&mut arena, laid_out(Layout::VersionedShort), 2, speaking(3, 3));
    assert!(player.plays(&mut arena));
}

#[test]
fn players_are_sent_only_to_servers_that_speak_as_they_do() {
    let short = (laid_out(Layout::VersionedShort), speaking(3, 3));
    let long = (Framing::default(), speaking(3, 4));
    let mut setup = learning(2, Layout::Versioned, 3..=4);
    setup.listeners[ListenerId(0)].route = crate::Route::LeastPlayers;
    let mut arena = Arena::speaking(setup, 1, &[short, long]);
    arena.pass(1100);
    // The first server that answers gives the listener its face.
    for client_id in 1..4 {
        connected(&mut arena, short.0, client_id, short.1);
    }
    let players =
        |arena: &Arena| [0, 1].map(|at: usize| arena.servers[at].stand_in.connections().len());
    assert_eq!(players(&arena), [3, 0]);
    arena.servers[0].is_deaf = true;
    arena.pass(12_000);
    connected(&mut arena, long.0, 5, long.1);
    assert_eq!(players(&arena), [3, 1]);
}

#[test]
fn most_of_the_servers_that_answer_speak_for_their_listener() {
    let short = Base { network_features: 0, ..speaking(3, 3) };
    let short = (laid_out(Layout::VersionedShort), short);
    let long = (Framing::default(), BASE);
    let old = (Framing::default(), Base { network_version: 1, ..BASE });
    let told = |setup: Setup, servers: &[(Framing, Base)]| {
        let mut arena = Arena::speaking(setup, 1, servers);
        arena.pass(1100);
        let face = arena.rig().host.gate().fronts.unreal.faces[ListenerId(0)];
        (arena, face.identity.map(|it| (face.framing, it.base)))
    };
    let learning = |servers| learning(servers, Layout::Versioned, 3..=4);
    for odd in [short, old] {
        let (mut arena, face) = told(learning(3), &[odd, long, long]);
        assert_eq!(face, Some(long));
        assert!(connected(&mut arena, long.0, 5, long.1).plays(&mut arena));
        let (_, face) = told(learning(2), &[odd, long]);
        assert_eq!(face, Some(odd), "the first of equals");
    }
    // Of what the listener serves.
    let mut setup = learning(3);
    rules_mut(&mut setup).network_versions = Some(vec![BASE.network_version]);
    assert_eq!(told(setup, &[old, old, long]).1, Some(long));
}

/// A question with a tail of another length would be answered by a server of the other base, too.
#[test]
fn no_server_refuses_what_it_is_asked_once_it_has_answered() {
    let server = (Framing::default(), BASE);
    let mut arena = Arena::speaking(learning(1, Layout::Versioned, 3..=4), 1, &[server]);
    let before = arena.seen.len();
    arena.pass(30_000);
    let questions = arena.seen.len() - before;
    assert!((5..=7).contains(&questions), "{questions} in 30 s");
    assert_eq!(arena.servers[0].tally().challenges as usize, questions + before);
}

fn initial(base: Base) -> Vec<u8> {
    let body = Body::Initial { is_restart: false };
    let mut out = [0; 100];
    let packet = Handshake { ids: Ids::new(0, 3), base, body };
    let len = packet.encode(&Framing::default(), &Tail::draw(&[0; 17]), &mut out);
    out[..len].to_vec()
}

/// A setup that serves one build, and only version 4.
fn strict() -> Setup {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).network_versions = Some(vec![BASE.network_version]);
    rules_mut(&mut setup).versions = 4..=4;
    setup
}

#[test]
fn who_is_refused_for_version_or_build_is_told() {
    for (base, why) in [
        (Base { network_version: 1, ..BASE }, DropReason::UnrealNetworkVersion),
        (speaking(3, 3), DropReason::UnrealVersion),
        (speaking(5, 6), DropReason::UnrealVersion),
    ] {
        let mut arena = Arena::new(strict(), 1);
        let mut player = Player::with_base(&arena, Framing::default(), 3, base);
        player.step(&mut arena);
        assert_eq!(player.client.state(), State::WrongVersion);
        assert_eq!(arena.drops(why), 1, "{}", why.name());
        assert_eq!(arena.counters().sessions + arena.counters().pending, 0);
    }
}

#[test]
fn upgrades_are_rare_and_never_longer_than_what_they_answer() {
    let mut setup = strict();
    setup.worker_sessions_max = 64;
    let mut arena = Arena::new(setup, 2);
    let packet = initial(Base { network_version: 1, ..BASE });
    let mut sent = 0;
    for n in 0..3000_u16 {
        let answers = arena.deliver(usize::from(n % 2), home(n), &packet);
        assert!(answers.iter().all(|answer| answer.len() <= packet.len()));
        sent += answers.len();
    }
    assert_eq!(sent, 512, "for all workers together");
    assert_eq!(arena.drops(DropReason::UnrealNetworkVersion), 3000);
}

#[test]
fn no_upgrade_is_sent_where_an_engine_would_not() {
    // For a server that does not know them.
    let server = (Framing::default(), speaking(3, 3));
    let mut setup = strict();
    rules_mut(&mut setup).versions = 3..=4;
    let mut arena = Arena::speaking(setup, 1, &[server]);
    let refused = initial(Base { network_version: 1, ..BASE });
    assert!(arena.deliver(0, home(1), &refused).is_empty());
    // To the address of a player who is in: somebody else may have written it.
    let mut arena = Arena::new(strict(), 1);
    let mut player = Player::connected(&mut arena, 3);
    assert!(player.exchange(&mut arena, &refused).is_empty());
    assert!(player.plays(&mut arena));
    assert_eq!(arena.counters().sessions_closed, [0; Ended::COUNT]);
}
