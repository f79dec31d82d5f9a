//! Unreal players of a cluster play on where their gateway dies, or is emptied.

use std::net::UdpSocket;
use std::time::Duration;

use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_os::clock::{self, Clock};

use crate::cluster_rig::{Behind, Cluster, UNREAL_PLACE, among_players, sum};
use crate::cluster_rig::{wait_until_all_stand_by, wait_until_owned};
use crate::command::{ringgate, run};
use crate::unreal_rig::Player;
use crate::upgrade_rig::kill;

fn player(number: u8) -> Player {
    let place = UNREAL_PLACE.parse().expect("literal");
    let mut player = Player::new(Framing::default(), number, place);
    player.socket = UdpSocket::bind("10.2.0.2:0").expect("a free port");
    player.socket.set_nonblocking(true).expect("a socket");
    player
}

/// Has all of them say something until each has heard something that came after this.
fn all_hear(players: &mut [Player]) -> Duration {
    let before: Vec<_> = players.iter().map(|it| it.packets).collect();
    let clock = Clock::start();
    // What was on the way may come meanwhile.
    while players.iter().zip(&before).any(|(it, before)| it.packets < before + 3) {
        assert!(clock.now_ns() < 30_000_000_000, "somebody hears nothing any more");
        for player in &mut *players {
            player.step();
            player.send();
        }
        clock::sleep(Duration::from_millis(50));
    }
    Duration::from_nanos(clock.now_ns())
}

fn owned(cluster: &Cluster, at: usize) -> u64 {
    let status = cluster.lines[at].daemon.status();
    status["cluster"]["sessions"]["owned"].as_u64().expect("a number")
}

/// Players of all three gateways, which have a standby each.
fn playing(cluster: &Cluster) -> Vec<Player> {
    cluster.network.spread(&[1, 2, 3]);
    let mut players: Vec<_> = (0..8).map(player).collect();
    players.iter_mut().for_each(Player::connect);
    all_hear(&mut players);
    wait_until_owned(cluster, players.len() as u64);
    wait_until_all_stand_by(cluster, players.len() as u64);
    players
}

/// Nobody has begun anew, and nobody has heard anything twice.
fn all_are_the_same(cluster: &Cluster, players: &mut [Player]) {
    all_hear(players);
    let count = players.len() as u64;
    wait_until_owned(cluster, count);
    let sessions = cluster.lines.iter().map(|it| it.daemon.status()["totals"].clone());
    let sessions: u64 = sessions.filter_map(|it| it["sessions"].as_u64()).sum();
    assert_eq!(sessions, count);
    assert!(players.iter().all(|it| it.duplicates == 0));
    cluster.is_conserved();
}

#[test]
fn unreal_players_of_a_gateway_that_dies_play_on() {
    let name = "cluster_unreal::unreal_players_of_a_gateway_that_dies_play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = playing(&cluster);
        let most = (0..3).max_by_key(|at| owned(&cluster, *at)).expect("there are three");
        let had = owned(&cluster, most);
        let dead = cluster.lines.remove(most);
        kill(dead.daemon.id());
        drop(dead);
        let others: Vec<_> = (1..=3).filter(|it| *it != most + 1).collect();
        cluster.network.spread(&others);
        let gap = all_hear(&mut players);
        eprintln!("gap of a death with {had} Unreal sessions: {} ms", gap.as_millis());
        all_are_the_same(&cluster, &mut players);
        assert!(had > 0 && sum(&cluster, "taken_over") - sum(&cluster, "moved") >= had);
    });
}

#[test]
fn unreal_players_of_a_gateway_that_is_emptied_play_on() {
    let name = "cluster_unreal::unreal_players_of_a_gateway_that_is_emptied_play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = playing(&cluster);
        let most = (0..3).max_by_key(|at| owned(&cluster, *at)).expect("there are three");
        let mut left = cluster.lines.remove(most);
        let control = left.daemon.control();
        let words = ["drain".as_ref(), "--hand-over".as_ref(), "--control".as_ref()];
        run(ringgate(words.into_iter().chain([control.as_os_str()]))).succeeded();
        let others: Vec<_> = (1..=3).filter(|it| *it != most + 1).collect();
        cluster.network.spread(&others);
        let gap = all_hear(&mut players);
        eprintln!("gap of an emptied gateway: {} ms", gap.as_millis());
        all_are_the_same(&cluster, &mut players);
        assert_eq!(left.daemon.ended(), Some(0));
    });
}
