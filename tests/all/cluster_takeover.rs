//! Gateways of a cluster that die or fall silent: their players play on at another one, and the
//! game processes behind the agent notice nothing.

use std::time::Duration;

use ringgate_os::clock;

use crate::agent::{Heir, agent_upgrade};
use crate::cluster_rig::{Behind, Cluster, PLACES, all, among_players, longest_silence};
use crate::cluster_rig::{play, player};
use crate::cluster_rig::{still_connected, sum, wait_until_all_stand_by};
use crate::oncall::row;
use crate::upgrade_rig::kill;

#[test]
fn players_of_a_gateway_that_dies_play_on() {
    let name = "cluster_takeover::players_of_a_gateway_that_dies_play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        cluster.network.spread(&[1, 2, 3]);
        let mut players = all(1);
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, players.len() as u64);
        for round in 1..=3 {
            // Each one dies in turn, and is there again under its name.
            let dead = cluster.lines.remove(0);
            let number = round as usize;
            let owned = dead.daemon.status()["cluster"]["sessions"]["owned"].clone();
            kill(dead.daemon.id());
            drop(dead);
            let others: Vec<_> = (1..=3).filter(|it| *it != number).collect();
            cluster.network.spread(&others);
            let gap = longest_silence(&mut players, || true);
            eprintln!("gap of a death with {owned} sessions: {} ms", gap.as_millis());
            still_connected(&mut players);
            play(&mut players, round);
            cluster.is_conserved();
            let line = cluster.gateway(number);
            cluster.lines.push(line);
            cluster.wait_until_complete();
            wait_until_all_stand_by(&cluster, players.len() as u64);
            cluster.network.spread(&[1, 2, 3]);
            play(&mut players, round + 10);
        }
        assert!(sum(&cluster, "taken_over") > 0);
        // Until the last one has them all.
        let players_count = players.len() as u64;
        for number in 1..=2 {
            let dead = cluster.lines.remove(0);
            kill(dead.daemon.id());
            drop(dead);
            cluster.network.spread(&(number + 1..=3).collect::<Vec<_>>());
            longest_silence(&mut players, || sum(&cluster, "owned") == players_count);
            if number == 1 {
                wait_until_all_stand_by(&cluster, players_count);
            }
        }
        play(&mut players, 20);
        for id in [row("member-gone"), row("standby-missing")] {
            id.asked_at(&cluster.lines[0].daemon, &[]);
        }
    });
}

#[test]
fn members_ask_together_whether_one_is_there_and_not_one_after_the_other() {
    let name = "cluster_takeover::members_ask_together_whether_one_is_there_and_not_one_after_the_\
                other";
    among_players(name, Behind::Agent, |cluster| {
        cluster.network.spread(&[1]);
        let mut players = vec![player(PLACES[0], 1)];
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, 1);
        let sleeper = &cluster.lines[0].daemon;
        let status = sleeper.status();
        let members = status["cluster"]["members"].as_array().expect("members");
        let stands_by = members.iter().find(|it| it["stands_by"] == 1).expect("one does");
        // To the other one nothing comes for whose sessions it would have to ask.
        let (here, other) = if stands_by["name"] == "gate-2" { (2, 3) } else { (3, 2) };
        sleeper.signal("STOP");
        cluster.network.spread(&[here]);
        longest_silence(&mut players, || cluster.sum(other, "silences") == 1);
        assert_eq!(cluster.sum(other, "forwarded_out"), 0);
        sleeper.signal("CONT");
        still_connected(&mut players);
    });
}

#[test]
fn a_gateway_that_wakes_finds_its_sessions_elsewhere() {
    let name = "cluster_takeover::a_gateway_that_wakes_finds_its_sessions_elsewhere";
    among_players(name, Behind::Agent, |cluster| {
        cluster.network.spread(&[1]);
        let mut players = all(1);
        let players_count = players.len() as u64;
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, players_count);
        for (round, sleeps_ms) in [(1, 300), (2, 1000), (3, 5000)] {
            let sleeper = &cluster.lines[0].daemon;
            sleeper.signal("STOP");
            cluster.network.spread(&[2, 3]);
            clock::sleep(Duration::from_millis(sleeps_ms));
            let gap = longest_silence(&mut players, || true);
            eprintln!("gap of a sleep of {sleeps_ms} ms: {} ms", gap.as_millis());
            sleeper.signal("CONT");
            // Until it has heard that its sessions are others', it says that it has them.
            longest_silence(&mut players, || sum(&cluster, "owned") == players_count);
            still_connected(&mut players);
            cluster.wait_until_complete();
            play(&mut players, round);
            cluster.network.spread(&[1]);
            play(&mut players, round + 10);
            wait_until_all_stand_by(&cluster, players_count);
            cluster.is_conserved();
        }
        assert!(sum(&cluster, "fenced") > 0);
    });
}

#[test]
fn an_agent_that_is_replaced_goes_on_with_who_has_which_session_and_one_that_dies_begins_anew() {
    let name = "cluster_takeover::an_agent_that_is_replaced_goes_on_with_who_has_which_session_\
                and_one_that_dies_begins_anew";
    among_players(name, Behind::Agent, |mut cluster| {
        cluster.network.spread(&[1]);
        let mut players = all(1);
        let players_count = players.len() as u64;
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, players_count);
        // Before anybody has taken a session, and when all are elsewhere than their homes.
        let mut heirs = vec![replaced(&cluster)];
        play(&mut players, 1);
        let dead = cluster.lines.remove(0);
        kill(dead.daemon.id());
        drop(dead);
        cluster.network.spread(&[2, 3]);
        longest_silence(&mut players, || sum(&cluster, "owned") == players_count);
        play(&mut players, 2);
        heirs.push(replaced(&cluster));
        play(&mut players, 3);
        let line = cluster.gateway(1);
        cluster.lines.push(line);
        cluster.wait_until_complete();
        wait_until_all_stand_by(&cluster, players_count);
        let dead = cluster.lines.remove(0);
        kill(dead.daemon.id());
        drop(dead);
        cluster.network.spread(&[1, 3]);
        longest_silence(&mut players, || sum(&cluster, "owned") == players_count);
        play(&mut players, 4);

        // One that is killed knows nothing: gateways keep their sessions, and tell of them again.
        drop(heirs.pop());
        cluster.host_again();
        longest_silence(&mut players, || true);
        play(&mut players, 5);
        still_connected(&mut players);
    });
}

/// Another process goes on with what the agent has.
pub(crate) fn replaced(cluster: &Cluster) -> Heir {
    let said = agent_upgrade(&cluster.folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    Heir(pid.expect("it says which process goes on"))
}
