//! What a fleet's processes do not believe of etcd, and what they obey all the same: nobody who
//! plays is hurt, a ban holds at once, and one command has all of it believed.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use ringgate_report::text::put;
use serde_json::json;

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, Player, wait_for};
use crate::fleet_gateway::backend_is_up;
use crate::fleet_page::Service;
use crate::fleet_rig::{Fleet, in_fleet, key};
use crate::folder::Folder;

/// An operator with the fleet's key.
pub(crate) struct Operator(Folder);

impl Operator {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        let folder = Folder::new();
        std::fs::write(folder.join("fleet.toml"), fleet.table("nobody"))
            .expect("it can be written");
        Self(folder)
    }

    pub(crate) fn does(&self, args: &[&str]) -> Ran {
        let mut command = ringgate(["fleet"]);
        command.args(args).arg("--config").arg(self.0.join("fleet.toml"));
        run(command)
    }
}

#[test]
fn a_ban_holds_in_an_emptied_etcd_and_one_word_has_all_of_it_believed() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    fleet.put_backend(&daemon, "arena", 4, "ready");
    let _game = Game::start(&daemon, "arena");
    backend_is_up(&daemon, "arena");
    let (mut stays, mut banned) = (
        Player::connected(daemon.listener, 1, &key(1)),
        Player::connected(daemon.listener, 2, &key(1)),
    );
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    let number = wait_for("the doubt", || daemon.status()["fleet"]["doubt"]["number"].as_u64());
    wait_for("its word in etcd", || (fleet.gateway("gate-1")?["doubt"] == number).then_some(()));
    assert_eq!(fleet.gateway("gate-1").expect("it is there")["held"], json!(["all"]));

    let operator = Operator::of(&fleet);
    let said = operator.does(&["deny", "--client", "2"]).succeeded();
    assert!(said.contains(&format!("gate-1 holds back under number {number}: all")), "{said}");
    banned.ended();
    assert!(daemon.status()["fleet"]["doubt"]["number"].is_u64(), "nobody has confirmed");
    stays.echo(b"who plays plays on");

    let said = operator.does(&["confirm", "--all"]).succeeded();
    assert!(said.contains("everybody obeys what etcd tells"), "{said}");
    assert!(daemon.status()["fleet"]["doubt"].is_null());
    stays.echo(b"players stay even so");
}

#[test]
fn a_token_service_says_what_it_holds_back_whether_it_serves_or_not() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let service = Service::start_with(&fleet, &["tokens"], "when_away = \"refuse\"\n");
    let ready = |status: u16, begins: &str| {
        wait_for(begins, || {
            let page = service.get("/readyz", "");
            let is_it = page.status == status && page.body.starts_with(begins);
            is_it.then_some(page.body)
        })
    };
    ready(200, "ok\n");
    let held = "ringgate_fleet_held_back{class=\"all\"}";
    let page = service.get("/metrics", "");
    assert!(page.body.contains("# TYPE ringgate_fleet_held_back gauge"), "{}", page.body);
    assert_eq!(page.value(held), None);
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    wait_for("its doubt", || (service.get("/metrics", "").value(held) == Some(1)).then_some(()));
    fleet.kill();
    let said = ready(503, "etcd_away:");
    assert!(said.contains("\nfleet: held back under number "), "{said}");
}

#[test]
fn game_processes_that_are_announced_and_hang_up_put_nothing_in_doubt() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let registered = wait_for("its registration", || fleet.entry("gate-1"));
    let lease = format!("--lease={:x}", registered.lease);
    let value = json!({ "v": 1, "instance": "i", "host": "here", "group": "arena", "slots": 4,
        "used": 0, "reach": { "bundle": daemon.run_dir() }, "state": "ready" });
    for index in 0..40 {
        let at = format!("/f/truth/backend/b{index}");
        fleet.ctl(&["put", &lease, &at, &value.to_string()]);
    }
    let known = |count: u64| {
        let keys = daemon.get("/metrics").value("ringgate_fleet_keys")?;
        (keys == count).then_some(())
    };
    wait_for("forty of them are known", || known(42));
    fleet.ctl(&["del", "--prefix", "/f/truth/backend/b"]);
    wait_for("they are gone", || known(2));
    assert!(daemon.status()["fleet"]["doubt"].is_null());
    let said = Operator::of(&fleet).does(&["deny", "--client", "2"]).succeeded();
    assert_eq!(said, "client 2 may not play in this fleet\n");
    let mut banned = Player::new(daemon.listener, 2, &key(1));
    wait_for("the ban", || {
        (daemon.get("/metrics").value("ringgate_fleet_bans") == Some(1)).then_some(())
    });
    banned.ended();
}

#[test]
fn a_key_that_etcd_has_forgotten_is_accepted_by_the_next_process_too() {
    let Some(fleet) = Fleet::start() else { return };
    let state = Folder::new();
    let mut text = in_fleet(&fleet, "gate-1");
    put(&mut text.gateway, format_args!("state_dir = \"{}\"\n", state.path().display()));
    fleet.put_key("eu", 1);
    fleet.put_key("eu", 2);
    let accepts = |epochs: &[u32]| {
        let list = json!(epochs);
        wait_for("its keys", || {
            (fleet.gateway("gate-1")?["listeners"][0]["epochs"] == list).then_some(())
        });
    };
    let mut daemon = Daemon::start(&text);
    accepts(&[1, 2]);
    let kept = "ringgate_fleet_keys_kept_total{result=\"done\"}";
    wait_for("the keys on disk", || daemon.get("/metrics").value(kept).filter(|it| *it > 0));
    // A backup from before the second key is believed, by a token service not yet.
    fleet.ctl(&["del", "/f/truth/key/eu/2"]);
    wait_for("a copy without it", || {
        let copy = std::fs::read(state.join("fleet")).ok()?;
        let has = |place: &[u8]| copy.windows(place.len()).any(|it| it == place);
        (has(b"/f/truth/key/eu/1") && !has(b"/f/truth/key/eu/2")).then_some(())
    });
    daemon.signal("KILL");
    daemon.ended();

    let daemon = Daemon::start(&text);
    fleet.put_backend(&daemon, "arena", 4, "ready");
    let _game = Game::start(&daemon, "arena");
    backend_is_up(&daemon, "arena");
    Player::connected(daemon.listener, 1, &key(1)).leave();
    Player::connected(daemon.listener, 2, &key(2)).echo(b"minted by a service that waits");
    let refused = "ringgate_fleet_kept_keys_refused_total{reason=\"not_ours\"}";
    assert_eq!(daemon.get("/metrics").value(refused), Some(0));
}
