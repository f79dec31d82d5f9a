//! Gateways of a cluster at one address behind a router with equal-cost paths, which sends players
//! to another of them whenever it likes: nobody is lost, and nothing comes twice.

use crate::cluster_rig::{
    Behind, GATEWAYS, PLACES, PLAYERS, all, among_players, longest_silence, play, player,
};
use crate::command::{ringgate, run};
use crate::control_rig::{KEY_HEX, PROTOCOL_ID, Player, wait_for};
use crate::tuning::{OF_CLUSTERS, missing};

#[test]
fn players_stay_whichever_gateway_the_router_sends_them_to() {
    among_players(
        "cluster_forward::players_stay_whichever_gateway_the_router_sends_them_to",
        Behind::Nothing,
        |cluster| {
            let network = &cluster.network;
            network.spread(&[1, 2, 3]);
            let mut players = all(1);
            let mut round = 0;
            let mut go_on = |players: &mut [Player]| {
                play(players, round);
                round += 1;
            };
            go_on(&mut players);
            for over in [&[2, 3, 1][..], &[3, 1, 2], &[1], &[2], &[3], &[1, 2, 3]] {
                network.spread(over);
                (0..3).for_each(|_| go_on(&mut players));
            }
            // A group that moves no flow without need; one gateway is taken out of it, and comes
            // back.
            let kind = "type resilient buckets 96 idle_timer 1";
            network.change("add", [12, 32], &[3, 2, 1], kind);
            network.route(12, 32);
            go_on(&mut players);
            for over in [&[1, 2][..], &[1, 2, 3], &[2, 3]] {
                network.change("replace", [12, 32], over, kind);
                (0..3).for_each(|_| go_on(&mut players));
            }
            assert!(cluster.forwarded() > (PLAYERS * PLACES.len() * 3) as u64);
            cluster.is_conserved();
            let page = cluster.lines[0].daemon.ask("/metrics").body;
            assert_eq!(missing(&page, OF_CLUSTERS), [""; 0], "dashboard and rules name them");
            let control = cluster.lines[0].daemon.run_dir().display().to_string();
            let said = run(ringgate(["cluster", "--control", &control])).succeeded();
            assert!(said.contains("gate-3") && !said.contains("nothing is forwarded"), "{said}");
        },
    );
}

#[test]
fn players_are_found_again_after_an_upgrade_and_after_a_death() {
    among_players(
        "cluster_forward::players_are_found_again_after_an_upgrade_and_after_a_death",
        Behind::Nothing,
        |mut cluster| {
            cluster.network.spread(&[1]);
            let mut players = all(1);
            cluster.network.spread(&[2]);
            play(&mut players, 0);
            let before = cluster.forwarded();
            assert!(before > 0);

            // All play by the second gateway while the first one is another process.
            let gap = std::thread::scope(|scope| {
                let line = &mut cluster.lines[0];
                let upgrade = scope.spawn(|| assert_eq!(line.upgrade().0, Some(0)));
                let gap = longest_silence(&mut players, || upgrade.is_finished());
                upgrade.join().expect("it is upgraded");
                gap
            });
            eprintln!("gap of an upgrade: {} ms", gap.as_millis());
            cluster.wait_until_complete();
            play(&mut players, 1);

            // The second dies, and is there again under its name.
            cluster.network.spread(&[3]);
            play(&mut players, 2);
            let dead = cluster.lines.remove(1);
            crate::upgrade_rig::kill(dead.daemon.id());
            drop(dead);
            cluster.wait_until_complete();
            play(&mut players, 3);
            let line = cluster.gateway(2);
            cluster.lines.insert(1, line);
            cluster.wait_until_complete();
            cluster.network.spread(&[2]);
            play(&mut players, 4);
            let mut more = all(1000);
            cluster.network.spread(&[1]);
            play(&mut more, 5);
            play(&mut players, 5);
            cluster.is_conserved();
        },
    );
}

#[test]
fn a_listener_that_a_reload_adds_is_the_clusters_too() {
    among_players(
        "cluster_forward::a_listener_that_a_reload_adds_is_the_clusters_too",
        Behind::Nothing,
        |cluster| {
            cluster.network.spread(&[1]);
            // The first has it, and players there, before the others know the name.
            for number in 1..=GATEWAYS {
                let mut text = cluster.text(number);
                text.more = text.more.replace("[cluster]", &format!(
                "[[listener]]\nname = \"ap\"\nprotocol = \"netcode\"\nbind = [\"10.9.9.9:40002\"]\n\
                 protocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = 10\n\
                 keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n[cluster]"
            ));
                let daemon = &cluster.lines[number - 1].daemon;
                daemon.rewrite(&text);
                let page = daemon.post("/reload");
                assert_eq!(page.status, 200, "{}", page.body);
                if number == 1 {
                    let mut players = [player("10.9.9.9:40002", 1), player("10.9.9.9:40002", 2)];
                    play(&mut players, 0);
                    std::mem::forget(players);
                }
            }
            let mut players = [player("10.9.9.9:40002", 3), player("10.9.9.9:40002", 4)];
            cluster.wait_until_complete();
            for number in [2, 3] {
                wait_for("all four", || (cluster.sum(number, "players") >= 4).then_some(()));
                cluster.network.spread(&[number]);
                play(&mut players, number as u32);
            }
            cluster.is_conserved();
        },
    );
}
