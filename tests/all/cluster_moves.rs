//! Sessions of a cluster that follow their players, and a gateway that is emptied into others.

use crate::cluster_rig::{Behind, all, among_players, empty, longest_silence, play};
use crate::cluster_rig::{still_connected, sum, wait_until_all_stand_by};
use crate::control_rig::wait_for;
use crate::oncall::row;

#[test]
fn a_session_goes_where_the_router_sends_its_player() {
    let name = "cluster_moves::a_session_goes_where_the_router_sends_its_player";
    among_players(name, Behind::Agent, |cluster| {
        cluster.network.spread(&[1]);
        let mut players = all(1);
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, players.len() as u64);
        let owned =
            |at: usize| cluster.lines[at].daemon.status()["cluster"]["sessions"]["owned"].as_u64();
        let mut round = 1;
        for to in [2, 3, 1] {
            cluster.network.spread(&[to]);
            // Each is echoed once, and nothing else is.
            while owned(to - 1) != Some(players.len() as u64) {
                play(&mut players, round);
                round += 1;
            }
            // Until nothing needs to be forwarded any more.
            let mut before = None;
            while before.replace(cluster.forwarded()) != Some(cluster.forwarded()) {
                play(&mut players, round);
                round += 1;
            }
        }
        still_connected(&mut players);
        // A member that stands still for longer than others wait for is taken for dead.
        assert!(sum(&cluster, "moved") > players.len() as u64);
        assert_eq!(sum(&cluster, "taken_over"), 3 * players.len() as u64);
        row("flows-unsettled").asked_at(&cluster.lines[0].daemon, &[]);
        cluster.is_conserved();
    });
}

#[test]
fn a_gateway_is_emptied_before_its_host_is_taken_away() {
    let name = "cluster_moves::a_gateway_is_emptied_before_its_host_is_taken_away";
    among_players(name, Behind::Agent, |mut cluster| {
        cluster.network.spread(&[1, 2, 3]);
        let mut players = all(1);
        play(&mut players, 0);
        wait_until_all_stand_by(&cluster, players.len() as u64);
        let mut leaving = cluster.lines.remove(0);
        empty(&leaving);
        let readiness = leaving.daemon.get("/readyz");
        assert_eq!((readiness.status, readiness.body.as_str()), (503, "draining\n"));
        // The router has not heard: what comes here goes on to where the sessions are.
        let mut round = 1;
        let mut is_empty = false;
        while !is_empty {
            play(&mut players, round);
            round += 1;
            is_empty = leaving.daemon.status()["totals"]["sessions"] == 0;
        }
        let daemon = &mut leaving.daemon;
        play(&mut players, round);
        assert!(daemon.is_running());
        cluster.network.spread(&[2, 3]);
        play(&mut players, round + 1);
        wait_for("its end", || {
            longest_silence(&mut players, || true);
            (!daemon.is_running()).then_some(())
        });
        assert_eq!(daemon.ended(), Some(0));
        play(&mut players, round + 2);
        still_connected(&mut players);
        assert_eq!(sum(&cluster, "owned"), players.len() as u64);
        cluster.is_conserved();
    });
}
