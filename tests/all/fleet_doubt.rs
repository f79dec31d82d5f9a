//! What a fleet's processes do not believe of etcd, and what they obey all the same: nobody who
//! plays is hurt, a ban holds at once, and one command has all of it believed.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use ringgate_link::announce::{Announcement, Standing, State};
use ringgate_report::text::Append as _;
use serde_json::json;

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_agent::Rig;
use crate::fleet_announce::{Process, has, takes_players};
use crate::fleet_page::Service;
use crate::fleet_rig::{Fleet, backend_is_up, in_fleet, key};
use crate::folder::Folder;
use crate::oncall::row;

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
    fleet.ages();
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
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
    fleet.ages();
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
    assert_eq!(page.value(held), Some(0));
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    wait_for("its doubt", || (service.get("/metrics", "").value(held) == Some(1)).then_some(()));
    fleet.kill();
    let said = ready(503, "etcd_away:");
    row("tokens-down").is_in(&said, &[]);
    assert!(said.contains("\nfleet: held back under number "), "{said}");
}

#[test]
fn forty_game_processes_that_hang_up_put_nothing_in_doubt() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut text = in_fleet(&fleet, "gate-1");
    text.backends.push_str("backends_per_process = 50\n");
    let daemon = Daemon::start(&text);
    let start = |index: usize| {
        let what = Announcement::new("arena", 4);
        Process::start_at(daemon.run_dir(), &format!("b{index}"), what)
    };
    let processes: Vec<_> = (0..40).map(start).collect();
    for process in &processes {
        process.stands(Standing::Registered);
    }
    // What has just come is no loss when it goes: this one finds them as they have been.
    let late = Daemon::start(&in_fleet(&fleet, "gate-2"));
    fleet.is_heard_by(&late);
    let stand = || fleet.ctl(&["get", "--prefix", "--keys-only", "/f/truth/backend/"]);
    drop(processes);
    wait_for("they are gone", || (!stand().contains("/f/")).then_some(()));
    for daemon in [&daemon, &late] {
        fleet.is_heard_by(daemon);
        assert!(daemon.status()["fleet"]["doubt"].is_null());
    }
    let said = Operator::of(&fleet).does(&["deny", "--client", "2", "--wait"]).succeeded();
    assert!(!said.contains("holds back"), "{said}");
    Player::new(daemon.listener, 2, &key(1)).ended();
}

/// Somebody deletes everything in etcd: nobody who is banned may play for that, and nobody who
/// plays is sent away.
#[test]
fn a_ban_holds_in_an_etcd_whose_keys_were_all_deleted() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
    let mut stays = Player::connected(daemon.listener, 1, &key(1));
    let operator = Operator::of(&fleet);
    operator.does(&["deny", "--client", "2", "--client", "3", "--wait"]).succeeded();
    operator.does(&["allow", "--client", "3", "--wait"]).succeeded();
    Player::connected(daemon.listener, 3, &key(1)).leave();
    let bans = || daemon.get("/metrics").value("ringgate_fleet_bans");
    fleet.erase();
    let held = |count: u64| {
        let series = "ringgate_fleet_held_back{class=\"bans\"}";
        wait_for("what is held back", || {
            daemon.get("/metrics").value(series).filter(|it| *it == count)
        });
    };
    held(1);
    assert_eq!(bans(), Some(1));
    Player::new(daemon.listener, 2, &key(1)).ended();
    stays.echo(b"undisturbed");
    wait_for("its word in etcd", || (fleet.gateway("gate-1")?["doubt"] != 0).then_some(()));
    // What is said now holds: a ban, and its end.
    let said = operator.does(&["deny", "--client", "4", "--wait"]).succeeded();
    assert!(said.contains("bans"), "{said}");
    Player::new(daemon.listener, 4, &key(1)).ended();
    operator.does(&["allow", "--client", "4", "--wait"]).succeeded();
    assert_eq!(bans(), Some(1));
    operator.does(&["confirm", "--all"]).succeeded();
    held(0);
    wait_for("its end", || bans().filter(|count| *count == 0));
    stays.echo(b"undisturbed");
}

/// Etcd is a backup, from when a server drained and a player was banned. Both play on, what an
/// operator says now holds, and one word has all of it believed by a gateway, an agent and a token
/// service.
#[test]
fn an_etcd_that_went_back_drains_and_bans_nobody() {
    let Some(mut rig) = Rig::new() else { return };
    let agent = rig.agent("");
    let fleet = &rig.fleet;
    let daemon = Daemon::start(&in_fleet(fleet, "gate-1"));
    let arena = || Announcement::new("arena", 4);
    let process = Process::start_at(daemon.run_dir(), "arena-1", arena().state(State::Draining));
    has(fleet, "arena-1", "state", "draining");
    let operator = Operator::of(fleet);
    operator.does(&["deny", "--client", "1", "--wait"]).succeeded();
    let backup = fleet.back_up();
    // A history that has grown past what somebody knew of the other cannot be told from it.
    (0..50).for_each(|_| drop(fleet.ctl(&["put", "/elsewhere", "later"])));
    operator.does(&["allow", "--client", "1", "--wait"]).succeeded();
    process.announce(arena());
    has(fleet, "arena-1", "state", "ready");
    backend_is_up(&daemon, "arena-1");
    takes_players(&daemon);
    let service = Service::start(fleet, &["tokens"]);
    wait_for("a token", || service.token(9, "arena-1").ok());
    let mut first = Player::connected(daemon.listener, 1, &key(1));
    let mut second = Player::connected(daemon.listener, 2, &key(1));
    rig.fleet.go_back(&backup);
    wait_for("the doubt", || daemon.status()["fleet"]["doubt"]["number"].as_u64());
    agent.shows("ringgate_fleet_held_back{class=\"all\"}", 1);
    wait_for("the service's doubt", || {
        let lines = service.get("/readyz", "").body;
        lines.contains("held back").then_some(())
    });
    first.echo(b"banned long ago");
    second.echo(b"in a server that drained long ago");
    Player::connected(daemon.listener, 3, &key(1)).leave();
    // What is said now holds.
    process.announce(arena().state(State::Draining));
    let who = ["gate-1", "agent host-7", "token service tokens-1"];
    wait_for("everybody's word in etcd", || {
        let said = operator.does(&["deny", "--client", "2"]).succeeded();
        who.iter().all(|name| said.contains(&format!("{name} holds back"))).then_some(())
    });
    // The gateway's revision is larger, and of the history before.
    let late = operator.does(&["deny", "--client", "4", "--wait=1s"]);
    assert!(late.code == Some(1) && late.stderr.contains("gate-1 (holds"), "{}", late.stderr);
    let said = operator.does(&["keys", "rotate", "eu", "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("tokens-1 holds back"), "{}", said.stdout);
    second.ended();
    wait_for("its drain", || (daemon.status()["backends"][0]["intake"] == "nobody").then_some(()));
    assert!(daemon.status()["fleet"]["doubt"]["number"].is_u64(), "nobody has confirmed");
    first.echo(b"here");
    let said = operator.does(&["confirm", "--all"]).succeeded();
    assert!(said.contains("everybody obeys what etcd tells"), "{said}");
    assert!(daemon.status()["fleet"]["doubt"].is_null());
    agent.shows("ringgate_fleet_held_back{class=\"all\"}", 0);
    assert!(!service.get("/readyz", "").body.contains("held back"));
}

#[test]
fn a_key_that_etcd_has_forgotten_is_accepted_by_the_next_process_too() {
    let Some(fleet) = Fleet::start() else { return };
    let state = Folder::new();
    let mut text = in_fleet(&fleet, "gate-1");
    writeln!(text.gateway, "state_dir = \"{}\"", state.path().display());
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
    let _game = fleet.plays_at(&daemon, "arena");
    Player::connected(daemon.listener, 1, &key(1)).leave();
    Player::connected(daemon.listener, 2, &key(2)).echo(b"minted by a service that waits");
    let refused = "ringgate_fleet_kept_keys_refused_total{reason=\"not_ours\"}";
    assert_eq!(daemon.get("/metrics").value(refused), Some(0));
}
