//! Places rest between two players: everybody leaves and as many come, and no newcomer is taken for
//! one who has left.

use std::collections::HashSet;

use super::clients::Player;
use super::rig::{Rig, endpoint, home, listener, udp_backend};
use super::unreal::rig::{Arena, Player as Shooter, rules_mut, unreal_setup};
use crate::ids::{BackendId, ListenerId};
use crate::setup::Setup;
use ringgate_batch::LocalIp;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::Client;

const GAME: &str = "127.0.0.1:7777";
const ROOM: u16 = 6;

/// As many slots as sessions, and both few.
fn full_setup() -> Setup {
    let backend = udp_backend("box", GAME, ROOM.into());
    let mut setup = Setup::new(vec![listener("eu", &[0])], vec![backend], 1);
    setup.listeners[ListenerId(0)].sessions_max = ROOM.into();
    setup.worker_sessions_max = ROOM.into();
    setup
}

/// Fills the gateway with the players of a generation. Returns them with their loopback addresses.
fn fill(rig: &mut Rig, generation: u16) -> Vec<(Player<Client>, LocalIp)> {
    let players = (0..ROOM).map(|n| {
        let n = generation * ROOM + n;
        let mut player = Player::connected(rig, home(n), n.into());
        rig.take_udp();
        player.send(rig, b"x");
        (player, rig.take_udp().remove(0).0)
    });
    players.collect()
}

#[test]
fn a_full_table_leaves_and_is_full_again_at_other_addresses() {
    let mut rig = Rig::new(full_setup());
    let start_ns = rig.now.mono_ns;
    let mut seen = HashSet::new();
    let mut players = fill(&mut rig, 0);
    for generation in 1..4 {
        for (player, _) in &mut players {
            player.leave(&mut rig);
        }
        assert_eq!(rig.sessions(), 0);
        let before: Vec<LocalIp> = players.iter().map(|(_, address)| *address).collect();
        players = fill(&mut rig, generation);
        // The game server still has something to say to those who were here.
        for address in &before {
            rig.provokes(DropReason::SessionUnknown, |rig| {
                rig.answer_udp(endpoint(GAME), *address, b"private");
            });
        }
        for (player, _) in &mut players {
            player.receive(&mut rig);
            assert!(player.library.is_connected() && player.got.is_empty());
        }
        seen.extend(before);
        assert!(players.iter().all(|(_, address)| !seen.contains(address)));
    }
    assert!(rig.now.mono_ns - start_ns < 30_000_000_000, "no place has rested");
}

#[test]
fn a_full_unreal_table_leaves_and_is_full_again_at_other_addresses() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).idle_timeout_ns = 1_000_000_000;
    setup.backends[BackendId(0)].slots = ROOM.into();
    setup.listeners[ListenerId(0)].sessions_max = ROOM.into();
    setup.worker_sessions_max = ROOM.into();
    let mut arena = Arena::new(setup, 1);
    let mut generations: Vec<HashSet<_>> = Vec::new();
    for generation in 0..4 {
        arena.seen.clear();
        for n in 0..ROOM as u8 {
            let mut player = Shooter::connected(&mut arena, 1 + generation * ROOM as u8 + n);
            assert!(player.plays(&mut arena));
        }
        assert_eq!(arena.counters().sessions, u64::from(ROOM));
        let here: HashSet<_> = arena.seen.drain(..).filter(|at| at.ip() != PROBER).collect();
        assert!(generations.iter().all(|earlier| earlier.is_disjoint(&here)));
        generations.push(here);
        arena.pass(1_500);
        assert_eq!(arena.counters().sessions, 0);
    }
    let here: HashSet<_> = generations.into_iter().flatten().collect();
    assert_eq!(here.len(), 4 * usize::from(ROOM));
}

/// Where the gateway's own questions to servers come from.
const PROBER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
