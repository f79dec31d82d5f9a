//! What happens in a cluster while something else is under way: a gateway that is replaced, dies or
//! leaves, while another one leaves or the router sends its players elsewhere.
//!
//! The agent is stopped where something is to be in the middle: what gateways want of it waits.

use crate::cluster_rig::{Behind, Cluster, all, among_players, empty, longest_silence, play};
use crate::cluster_rig::{still_connected, sum, wait_until_all_stand_by};
use crate::control_rig::{Player, wait_for};
use crate::upgrade_rig::{Line, kill};

#[test]
fn a_gateway_that_was_replaced_by_its_successor_dies_and_its_players_play_on() {
    let name = "cluster_meets::a_gateway_that_was_replaced_by_its_successor_dies_and_its_players_\
                play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = spread_over(&cluster, &[1, 2, 3]);
        for number in [0, 1] {
            upgrade(&mut cluster.lines[number]);
            play(&mut players, number as u32 + 1);
        }
        // And while its players come to others.
        cluster.network.spread(&[2, 3]);
        upgrade(&mut cluster.lines[0]);
        longest_silence(&mut players, || true);
        cluster.wait_until_complete();
        wait_until_all_stand_by(&cluster, players.len() as u64);
        cluster.network.spread(&[1, 2, 3]);
        play(&mut players, 3);
        longest_silence(&mut players, || true);
        wait_until_all_stand_by(&cluster, players.len() as u64);
        let dead = cluster.lines.remove(0);
        kill(dead.pid());
        cluster.network.spread(&[2, 3]);
        until_all_are_owned(&cluster, &mut players);
        play(&mut players, 4);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn a_gateway_that_is_emptied_is_not_replaced_meanwhile() {
    let name = "cluster_meets::a_gateway_that_is_emptied_is_not_replaced_meanwhile";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = spread_over(&cluster, &[1, 2, 3]);
        let mut leaving = cluster.lines.remove(0);
        // Nor by a process of another cluster, in which its number may be another one's.
        let mut text = cluster.text(1);
        text.backends = text.backends.replace("prefix = \"/f\"", "prefix = \"/other\"");
        leaving.daemon.rewrite(&text);
        let (code, said) = leaving.upgrade();
        assert!(code == Some(1) && said.contains("fleet.prefix has changed"), "{said}");
        leaving.daemon.rewrite(&cluster.text(1));
        while_the_agent_is_stopped(&cluster, || {
            empty(&leaving);
            let (code, said) = leaving.upgrade();
            assert!(code == Some(1) && said.contains("the gateway drains"), "{said}");
        });
        let readiness = leaving.daemon.get("/readyz");
        assert_eq!((readiness.status, readiness.body.as_str()), (503, "draining\n"));
        cluster.network.spread(&[2, 3]);
        until_all_are_owned(&cluster, &mut players);
        has_left(&leaving);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn two_gateways_are_emptied_at_once() {
    let name = "cluster_meets::two_gateways_are_emptied_at_once";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = spread_over(&cluster, &[1, 2, 3]);
        let leaving: Vec<_> = cluster.lines.drain(..2).collect();
        leaving.iter().for_each(empty);
        cluster.network.spread(&[3]);
        until_all_are_owned(&cluster, &mut players);
        leaving.iter().for_each(has_left);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn one_that_takes_dies_while_another_is_emptied() {
    let name = "cluster_meets::one_that_takes_dies_while_another_is_emptied";
    among_players(name, Behind::Agent, |mut cluster| {
        // All are the leaving one's: those of the other would end where both have gone.
        let mut players = spread_over(&cluster, &[1]);
        let leaving = cluster.lines.remove(0);
        let dead = cluster.lines.remove(0);
        let count = players.len() as u64;
        while_the_agent_is_stopped(&cluster, || {
            empty(&leaving);
            kill(dead.pid());
            // A session that nobody stands by for when its gateway dies ends.
            wait_for("another standby for all", || {
                let status = leaving.daemon.status();
                let members = status["cluster"]["members"].as_array()?.clone();
                let third = members.iter().find(|it| it["name"] == "gate-3")?;
                (third["stands_by"] == count).then_some(())
            });
        });
        drop(dead);
        cluster.network.spread(&[3]);
        until_all_are_owned(&cluster, &mut players);
        has_left(&leaving);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn one_that_takes_is_replaced_while_another_is_emptied() {
    let name = "cluster_meets::one_that_takes_is_replaced_while_another_is_emptied";
    one_is_replaced_while_another_is_emptied(name, |_| ());
}

#[test]
fn what_gateways_have_asked_of_an_agent_that_they_gave_up_comes_true() {
    let name = "cluster_meets::what_gateways_have_asked_of_an_agent_that_they_gave_up_comes_true";
    one_is_replaced_while_another_is_emptied(name, |line| {
        wait_for("an agent that is given up", || {
            (line.daemon.status()["agents"][0]["up"] == false).then_some(())
        });
    });
}

/// The agent is stopped meanwhile, and until that is so of both gateways.
fn one_is_replaced_while_another_is_emptied(name: &'static str, until: fn(&Line)) {
    among_players(name, Behind::Agent, move |mut cluster| {
        let mut players = spread_over(&cluster, &[1]);
        let leaving = cluster.lines.remove(0);
        let mut taking = cluster.lines.remove(0);
        while_the_agent_is_stopped(&cluster, || {
            empty(&leaving);
            upgrade(&mut taking);
            [&leaving, &taking].into_iter().for_each(until);
        });
        cluster.lines.insert(0, taking);
        cluster.network.spread(&[2, 3]);
        until_all_are_owned(&cluster, &mut players);
        has_left(&leaving);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn a_gateway_that_is_emptied_dies_before_others_have_all_of_it() {
    let name = "cluster_meets::a_gateway_that_is_emptied_dies_before_others_have_all_of_it";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = spread_over(&cluster, &[1]);
        let leaving = cluster.lines.remove(0);
        while_the_agent_is_stopped(&cluster, || {
            empty(&leaving);
            kill(leaving.pid());
        });
        cluster.network.spread(&[2, 3]);
        until_all_are_owned(&cluster, &mut players);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

#[test]
fn those_that_stand_by_are_replaced_before_players_come_to_them() {
    let name = "cluster_meets::those_that_stand_by_are_replaced_before_players_come_to_them";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut players = spread_over(&cluster, &[1]);
        let dead = cluster.lines.remove(0);
        kill(dead.pid());
        drop(dead);
        for line in &mut cluster.lines {
            wait_for("a member that is gone", || {
                let status = line.daemon.status();
                let members = status["cluster"]["members"].as_array()?.clone();
                members.iter().find(|it| it["name"] == "gate-1" && it["state"] != "up").map(|_| ())
            });
            upgrade(line);
        }
        cluster.network.spread(&[2, 3]);
        until_all_are_owned(&cluster, &mut players);
        play(&mut players, 1);
        still_connected(&mut players);
        cluster.is_conserved();
    });
}

/// Players at these gateways, of whose sessions each has a standby.
fn spread_over(cluster: &Cluster, gateways: &[usize]) -> Vec<Player> {
    cluster.network.spread(gateways);
    let mut players = all(1);
    play(&mut players, 0);
    wait_until_all_stand_by(cluster, players.len() as u64);
    players
}

/// Players play until those gateways that are left have all of them.
fn until_all_are_owned(cluster: &Cluster, players: &mut [Player]) {
    let count = players.len() as u64;
    longest_silence(players, || sum(cluster, "owned") == count);
}

fn upgrade(line: &mut Line) {
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
}

/// What gateways ask of the agent meanwhile is answered behind it.
fn while_the_agent_is_stopped(cluster: &Cluster, then: impl FnOnce()) {
    let (agent, _) = cluster.hosted.as_ref().expect("it is there");
    agent.signal(libc::SIGSTOP);
    then();
    agent.signal(libc::SIGCONT);
}

/// It has ended by itself.
fn has_left(line: &Line) {
    wait_for("its end", || {
        let pid = line.heirs.last().copied().unwrap_or_else(|| line.daemon.id());
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_over =
            state.rsplit(") ").next().is_none_or(|it| it.is_empty() || it.starts_with('Z'));
        is_over.then_some(())
    });
}
