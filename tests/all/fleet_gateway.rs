//! Gateways of a fleet, with the etcd that they share: what stands there reaches players, and etcd
//! may go away, come back empty, and be restarted without one of them noticing.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::net::UdpSocket;
use std::time::Duration;

use ringgate_core::netcode::{ConnectToken, ServerAddresses, State};
use ringgate_report::text::Append as _;

use crate::command::{ringgate, run, upgrade_at};
use crate::control_rig::{Daemon, Game, Player, Text, token, wait_for};
use crate::fleet_rig::{Fleet, backend, backend_is_up, in_fleet, key, routing_token};
use crate::oncall::row;
use crate::upgrade_rig::kill;

#[test]
fn a_gateway_registers_and_serves_what_the_fleet_knows() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let own = wait_for("the gateway's own value", || {
        fleet
            .gateway("gate-1")
            .filter(|own| own["listeners"][0]["epochs"] == serde_json::json!([1]))
    });
    assert_eq!((&own["region"], &own["host"]), (&"eu-west".into(), &"here".into()));
    assert_eq!((&own["capacity"], &own["draining"]), (&100.into(), &false.into()));
    let address = daemon.listener.to_string();
    assert_eq!(own["listeners"][0]["addresses"], serde_json::json!([address]));
    assert_eq!(own["run_dir"], daemon.run_dir().display().to_string());

    // A game process comes.
    let game = fleet.plays_at(&daemon, "arena");
    let mut first = Player::connected(daemon.listener, 1, &key(1));
    first.echo(b"hello");
    fleet.put_backend(&daemon, "arena", 4, "draining");
    wait_for("nobody new", || (backend(&daemon, "arena")?["intake"] == "nobody").then_some(()));
    let mut late = Player::new(daemon.listener, 2, &key(1));
    assert_eq!(late.ended(), State::Denied);
    first.echo(b"still here");

    // It goes, and its players stay.
    fleet.ctl(&["del", "/f/truth/backend/arena"]);
    wait_for("it is retired", || backend(&daemon, "arena")?["retired"].as_bool().filter(|it| *it));
    first.echo(b"and still");
    drop(game);

    // The gateway takes itself back.
    daemon.end_at_once();
    wait_for("the registration's end", || fleet.gateway("gate-1").is_none().then_some(()));
}

#[test]
fn a_rotation_refuses_nobody_and_is_confirmed() {
    let Some(fleet) = Fleet::start() else { return };
    let gateways = ["gate-1", "gate-2", "gate-3"].map(|name| {
        let daemon = Daemon::start(&in_fleet(&fleet, name));
        fleet.put_backend(&daemon, &format!("at-{name}"), 4, "ready");
        (name, daemon)
    });
    fleet.put_key("eu", 1);
    let confirmed = |epochs: &[u32]| {
        wait_for("all have confirmed", || {
            let list = serde_json::json!(epochs);
            let has = |name: &str| Some(fleet.gateway(name)?["listeners"][0]["epochs"] == list);
            gateways.iter().all(|(name, _)| has(name) == Some(true)).then_some(())
        });
    };
    confirmed(&[1]);
    let games: Vec<_> =
        gateways.iter().map(|(name, it)| Game::start(it, &format!("at-{name}"))).collect();
    let mut players: Vec<_> = gateways
        .iter()
        .map(|(name, daemon)| {
            backend_is_up(daemon, &format!("at-{name}"));
            Player::connected(daemon.listener, 1, &key(1))
        })
        .collect();
    fleet.put_key("eu", 2);
    confirmed(&[1, 2]);
    for (player, (_, daemon)) in players.iter_mut().zip(&gateways) {
        // Tokens of both are taken, and who plays notices nothing.
        Player::connected(daemon.listener, 2, &key(1)).leave();
        Player::connected(daemon.listener, 3, &key(2)).leave();
        player.echo(b"undisturbed");
    }
    drop(games);
}

#[test]
fn players_of_any_game_are_led_by_tokens_that_nobody_wrote_down() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut text = in_fleet(&fleet, "gate-1");
    writeln!(
        text.backends,
        "\n[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:0\"]\n\
         group = \"worlds\"\nroute = \"token\"\ntoken = {{ at = \"end\", bytes = 8 }}"
    );
    let daemon = Daemon::start(&text);
    let servers = ["one", "two"].map(|name| {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        server.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        fleet.put_udp_backend("worlds", name, server.local_addr().expect("bound"));
        (name, server)
    });
    for (name, _) in &servers {
        backend_is_up(&daemon, name);
    }
    let own = wait_for("the registration", || fleet.gateway("gate-1"));
    let listeners = own["listeners"].as_array().expect("a list");
    let any = listeners.iter().find(|it| it["name"] == "any").expect("it is told");
    assert_eq!((&any["token_bytes"], &any["group"]), (&8.into(), &"worlds".into()));

    let status = daemon.status();
    let listeners = status["listeners"].as_array().expect("a list");
    let any = listeners.iter().find(|it| it["name"] == "any").expect("it serves");
    let address = any["addresses"][0].as_str().expect("an address");
    for (name, server) in &servers {
        let player = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let datagram = [&b"hello"[..], &routing_token("any", name, 8)].concat();
        let mut buf = [0; 100];
        // The first ones may come while workers do not know the backend yet.
        let heard = wait_for("the datagram at its server", || {
            player.send_to(&datagram, address).expect("sent");
            server.recv(&mut buf).ok()
        });
        assert_eq!(&buf[..heard], b"hello", "without its token");
    }
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    stranger.send_to(b"hello 12345678", address).expect("sent");
    wait_for("the drop by its name", || {
        let page = daemon.get("/metrics");
        page.body
            .lines()
            .any(|line| line.contains("\"token_unknown\"") && line.ends_with(" 1"))
            .then_some(())
    });
}

#[test]
fn a_ban_ends_a_session_and_ends_by_itself() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
    let mut player = Player::connected(daemon.listener, 7, &key(1));
    player.echo(b"hello");
    fleet.denies(&["deny", "--client", "7", "--wait"]);
    assert_eq!(player.ended(), State::Disconnected);
    let mut again = Player::new(daemon.listener, 7, &key(1));
    assert_eq!(again.ended(), State::Denied);
    let bans = |count: u64| {
        wait_for("the number of bans", || {
            let bans = daemon.get("/metrics").value("ringgate_fleet_bans");
            (bans == Some(count)).then_some(())
        });
    };
    bans(1);
    let page = daemon.ask("/denied?client=7").json();
    assert_eq!(
        (&page["decides"]["fleet"], &page["decides"]["denied"]),
        (&true.into(), &true.into())
    );
    assert_eq!(page["decides"]["until_unix_s"], serde_json::Value::Null, "it has no end");
    // A ban that stands is known already.
    fleet.denies(&["deny", "--client", "7", "--wait"]);
    fleet.denies(&["allow", "--client", "7", "--wait"]);
    bans(0);
    Player::connected(daemon.listener, 7, &key(1)).echo(b"back");
}

#[test]
fn a_gateway_serves_on_without_etcd_and_starts_from_its_copy() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut text = in_fleet(&fleet, "gate-1");
    let states = crate::folder::Folder::new();
    let state_dir = states.join("state");
    writeln!(text.gateway, "state_dir = \"{}\"", state_dir.display());
    let mut daemon = Daemon::start(&text);
    let game = fleet.plays_at(&daemon, "arena");
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    wait_for("a copy with the backend in it", || {
        let copy = std::fs::read(states.join("state/fleet")).ok()?;
        copy.windows(14).any(|it| it == b"/backend/arena").then_some(())
    });
    fleet.kill();
    let page = wait_for("the gateway's word that etcd is away", || {
        let page = daemon.get("/readyz");
        page.body.contains("serving on with it").then_some(page)
    });
    assert_eq!(page.status, 200, "{}", page.body);
    row("etcd-away").read_at(&daemon);
    player.echo(b"still here");
    Player::connected(daemon.listener, 2, &key(1)).echo(b"and new ones come");
    assert_eq!(daemon.get("/metrics").value("ringgate_fleet_current"), Some(0));
    assert!(daemon.log().contains("fleet_away"));
    // Its own restart meanwhile.
    drop(game);
    daemon.end_at_once();
    daemon.ended();
    let mut text = text.clone();
    text.run_dir = Some(daemon.run_dir());
    let again = Daemon::start(&text);
    assert!(again.log().contains("fleet_copy_read"), "{}", again.log());
    let status = again.status();
    assert_eq!(status["backends"][0]["name"], "arena");
    // And etcd is back.
    fleet.revive();
    wait_for("everything is up to date", || {
        let current = again.get("/metrics").value("ringgate_fleet_current");
        (current == Some(1)).then_some(())
    });
    // Nothing has changed since the copy, and still it says where players find it now.
    let here = serde_json::json!([again.listener.to_string()]);
    wait_for("it is registered with its address", || {
        let own = fleet.gateway("gate-1")?;
        (own["listeners"][0]["addresses"] == here).then_some(())
    });
}

#[test]
fn an_emptied_etcd_is_held_back_until_an_operator_confirms() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.ages();
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    let number = wait_for("the doubt", || daemon.status()["fleet"]["doubt"]["number"].as_u64());
    player.echo(b"nothing is obeyed");
    Player::connected(daemon.listener, 2, &key(1)).echo(b"the key and the backend stay");
    assert!(daemon.log().contains("fleet_doubt"), "{}", daemon.log());
    wait_for("its word in etcd", || (fleet.gateway("gate-1")?["doubt"] == number).then_some(()));
    assert_eq!(daemon.post("/fleet/confirm").status, 400);
    let confirm = |number: u64| {
        let mut command = ringgate(["fleet", "confirm", &number.to_string(), "--control"]);
        command.arg(daemon.control());
        run(command)
    };
    let other = confirm(number + 1).refused();
    assert!(other.contains("does not hold back anything under the number"), "{other}");
    let said = confirm(number).succeeded();
    assert_eq!(said, format!("confirmed {number}: the gateway obeys what etcd tells\n"));
    wait_for("it is believed", || backend(&daemon, "arena")?["retired"].as_bool().filter(|it| *it));
    player.echo(b"players stay even so");
}

#[test]
fn a_successor_has_the_lease_and_nobody_sees_the_change() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    let before = wait_for("it is confirmed", || {
        fleet.entry("gate-1").filter(|_| {
            fleet
                .gateway("gate-1")
                .is_some_and(|it| it["listeners"][0]["epochs"] != serde_json::json!(null))
        })
    });
    // What the copy in `state_dir` may not have yet.
    fleet.put_backend(&daemon, "late", 4, "ready");
    let is_drained = |it: &serde_json::Value| it["name"] == "late" && it["drained"] == true;
    let has_drained = |daemon: &Daemon| {
        let status = daemon.ask("/status").json();
        status["backends"].as_array().expect("a list").iter().any(is_drained)
    };
    wait_for("a drained backend", || {
        let mut command = ringgate(["drain", "--backend", "late", "--control"]);
        command.arg(daemon.control());
        (run(command).code == Some(0)).then_some(())
    });
    let heir = Heir::of(&daemon);
    player.echo(b"still here");
    wait_for("the successor is registered", || {
        daemon.ask("/status").json()["fleet"]["registered"].as_bool().filter(|it| *it)
    });
    let after = fleet.entry("gate-1").expect("it never went");
    assert_eq!((after.lease, after.created), (before.lease, before.created));
    fleet.put_backend(&daemon, "arena", 8, "ready");
    wait_for("the successor hears", || {
        let status = daemon.ask("/status").json();
        (status["backends"][0]["slots"] == 8).then_some(())
    });
    wait_for("it knows the late one", || has_drained(&daemon).then_some(()));
    drop(heir);
}

#[test]
fn a_token_of_several_gateways_is_used_at_one() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let start = |name: &str| {
        let daemon = Daemon::start(&in_fleet(&fleet, name));
        fleet.put_backend(&daemon, &format!("at-{name}"), 4, "ready");
        let game = Game::start(&daemon, &format!("at-{name}"));
        (daemon, game)
    };
    let ((first, game), (second, _game)) = (start("gate-1"), start("gate-2"));
    backend_is_up(&first, "at-gate-1");
    backend_is_up(&second, "at-gate-2");
    let both = [first.listener, second.listener];
    let used = token(&both, 1, &key(1), 60);
    let mut player = Player::holding(LOCAL, &used);
    player.connect();
    player.echo(b"at the first");
    assert!(fleet.ctl(&["get", "--prefix", "--keys-only", "/f/claim/token/"]).contains("/f/"));
    player.leave();
    drop((first, game));

    // The first gateway is dead: a token that it has seen is of no use elsewhere, others are.
    let mut again = Player::holding(LOCAL, &from_the_last(&used));
    wait_for("its refusal", || {
        again.turn();
        drops(&second, "token_claimed").filter(|count| *count > 0)
    });
    assert!(!again.is_connected());
    let mut other = Player::holding(LOCAL, &from_the_last(&token(&both, 2, &key(1), 60)));
    other.connect();
    other.echo(b"at the second");
    assert_eq!(second.status()["totals"]["sessions_opened"], 1);

    // Nobody can be asked: players wait, unless the operator says otherwise.
    fleet.kill();
    let mut late = Player::holding(LOCAL, &token(&[second.listener, both[0]], 3, &key(1), 60));
    wait_for("its refusal", || {
        late.turn();
        drops(&second, "token_unclaimed").filter(|count| *count > 0)
    });
    Player::connected(second.listener, 4, &key(1)).echo(b"with one name there is nothing to ask");
    fleet.revive();
    late.connect();
    fleet.kill();
    let mut text = in_fleet(&fleet, "gate-2");
    text.backends.push_str("when_away = \"accept\"\n");
    second.rewrite(&text);
    assert_eq!(second.post("/reload").status, 200);
    Player::holding(LOCAL, &token(&[second.listener, both[0]], 5, &key(1), 60)).connect();
}

#[test]
fn a_gateway_claims_its_tokens_again_in_an_etcd_that_has_forgotten_them() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.ages();
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let _game = fleet.plays_at(&daemon, "arena");
    let elsewhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let used = token(&[daemon.listener, elsewhere], 1, &key(1), 60);
    let mut player = Player::holding(LOCAL, &used);
    player.connect();
    player.leave();
    let claims = |fleet: &Fleet| fleet.ctl(&["get", "--prefix", "/f/claim/token/"]);
    let before = claims(&fleet);
    assert!(before.contains("gate-1"), "{before}");
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    // Nobody believes that history yet: another gateway that did would find whose the token is.
    wait_for("its claim", || (claims(&fleet) == before).then_some(()));
    assert!(daemon.status()["fleet"]["doubt"]["number"].is_u64());
}

#[test]
fn an_etcd_in_doubt_gives_no_used_token_away() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.ages();
    fleet.put_key("eu", 1);
    let start = |name: &str| {
        let daemon = Daemon::start(&in_fleet(&fleet, name));
        let game = fleet.plays_at(&daemon, &format!("at-{name}"));
        (daemon, game)
    };
    let ((first, game), (second, _game)) = (start("gate-1"), start("gate-2"));
    let both = [first.listener, second.listener];
    let used = token(&both, 1, &key(1), 60);
    let mut player = Player::holding(LOCAL, &used);
    player.connect();
    player.echo(b"at the first");
    player.leave();
    drop((first, game));
    fleet.kill();
    fleet.wipe();
    fleet.revive();
    // Etcd has forgotten whose it is. Whether the mirror has noticed yet makes no difference.
    let again = Player::holding(LOCAL, &from_the_last(&used));
    let other = Player::holding(LOCAL, &token(&[both[1], both[0]], 2, &key(1), 60));
    for (number, mut player) in (1..).zip([again, other]) {
        wait_for("refusals", || {
            player.turn();
            drops(&second, "token_unclaimed").filter(|count| *count >= 10 * number)
        });
        assert!(!player.is_connected(), "nobody can say that it was not used elsewhere");
    }
    assert_eq!(second.status()["totals"]["sessions_opened"], 0);
}

#[test]
fn a_gateway_that_was_killed_has_its_name_and_its_claims_back_at_once() {
    is_killed_and_started_as("gate-1");
}

#[test]
fn a_gateway_that_was_killed_and_has_another_name_has_its_claims_back_at_once() {
    is_killed_and_started_as("gate-fra-1");
}

fn is_killed_and_started_as(next: &str) {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let state = crate::folder::Folder::new();
    let mut text = in_fleet(&fleet, "gate-1");
    writeln!(text.gateway, "state_dir = \"{}\"", state.join("state").display());
    text.bind = format!("\"{}\"", crate::own::own_address()).leak();
    let start = |text: &Text| {
        let daemon = Daemon::start(text);
        let game = fleet.plays_at(&daemon, "arena");
        wait_for("its registration", || {
            daemon.status()["fleet"]["registered"].as_bool().filter(|it| *it)
        });
        (daemon, game)
    };
    let (mut daemon, game) = start(&text);
    let before = fleet.entry("gate-1").expect("it is registered");
    let elsewhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let token = token(&[daemon.listener, elsewhere], 1, &key(1), 60);
    let mut player = Player::holding(LOCAL, &token);
    wait_for("its claim", || {
        player.turn();
        fleet
            .ctl(&["get", "--prefix", "--keys-only", "/f/claim/token/"])
            .contains("/f/")
            .then_some(())
    });
    wait_for("its lease in the folder", || {
        let left = std::fs::read_to_string(state.join("state").join("leases")).ok()?;
        left.lines().any(|line| line.parse::<i64>().is_ok()).then_some(())
    });
    daemon.signal("KILL");
    daemon.ended();
    drop((daemon, game));
    text.backends = text.backends.replace("gate-1", next);
    let (_daemon, _game) = start(&text);
    let after = fleet.entry(next).expect("it is registered");
    assert_ne!(after.lease, before.lease);
    let is_same = next == "gate-1";
    assert_eq!(after.created == before.created, is_same, "nobody has seen it go");
    // The client gives its first session up, and asks again.
    let mut player = Player::holding(LOCAL, &token);
    player.connect();
    player.echo(b"nobody has used it");
}

/// A token with its servers the other way round: whoever holds it asks the last of them first.
fn from_the_last(token: &ConnectToken) -> ConnectToken {
    let mut addresses: Vec<_> = token.addresses.iter().copied().collect();
    addresses.reverse();
    let addresses = ServerAddresses::new(&addresses).expect("as many");
    ConnectToken { addresses, ..token.clone() }
}

fn drops(daemon: &Daemon, reason: &str) -> Option<u64> {
    let series = format!("ringgate_drops_total{{worker=\"0\",reason=\"{reason}\"}}");
    daemon.get("/metrics").value(&series)
}

const LOCAL: [u8; 4] = [127, 0, 0, 1];

#[test]
fn more_bans_than_are_obeyed_are_shown() {
    let Some(fleet) = Fleet::start() else { return };
    for client_id in ["1", "2", "3", "4", "5"] {
        fleet.denies(&["deny", client_id, "--for", "1h", "--reason", "cheats"]);
    }
    let daemon = Daemon::start_with(&in_fleet(&fleet, "gate-1"), |command, _| {
        command.env("RINGGATE_BANS_MAX", "2");
    });
    let left_out = "ringgate_fleet_bans_left_out";
    wait_for("what is left out", || (daemon.get("/metrics").value(left_out)? == 3).then_some(()));
    row("bans-left-out").read_at(&daemon);
}

#[test]
fn promtool_has_nothing_to_say_about_a_gateway_in_a_fleet() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let page = wait_for("the fleet's families", || {
        let page = daemon.get("/metrics");
        page.body.contains("ringgate_fleet_current 1").then_some(page)
    });
    let Some(said) = crate::control_metrics::promtool(&page.body) else { return };
    assert_eq!(said, "");
}

/// A process that has taken a gateway over.
pub(crate) struct Heir(String);

impl Heir {
    /// The one that a gateway is handed over to now.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let ran = upgrade_at(&daemon.control());
        assert_eq!(ran.code, Some(0), "{} {}", ran.stderr, daemon.log());
        let heir = daemon.ask("/status").json()["pid"].as_u64().expect("a number");
        Self(heir.to_string())
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        kill(self.0.parse().expect("a number"));
    }
}

#[test]
fn a_gateway_without_a_fleet_has_nothing_of_it() {
    let daemon = Daemon::start(&Text::new());
    let page = daemon.get("/metrics");
    assert!(!page.body.contains("ringgate_fleet"), "{}", page.body);
    assert!(daemon.status()["fleet"].is_null());
    let threads = format!("/proc/{}/task", daemon.id());
    let names: Vec<String> = std::fs::read_dir(threads)
        .expect("it runs")
        .filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("comm")).ok())
        .collect();
    assert!(names.iter().all(|name| !name.starts_with("ringgate-fleet")), "{names:?}");
}
