//! Tokens of the token service at a real gateway: whoever gets one is let in, however lately the
//! game process has come.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use ringgate_link::announce::Announcement;

use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_announce::{Process, is_gone};
use crate::fleet_page::Service;
use crate::fleet_rig::{Fleet, in_fleet};

/// A gateway by which tokens lead to the backends that they name.
fn gateway(fleet: &Fleet) -> Daemon {
    fleet.put_key("eu", 1);
    let mut text = in_fleet(fleet, "gate-1");
    "group = \"arena\"\nroute = \"user-data\"\n".clone_into(&mut text.listener);
    Daemon::start(&text)
}

/// Has the first token that there is for this backend open a session.
fn first_token_leads_in(service: &Service, daemon: &Daemon, backend: &str, client_id: u64) {
    let token = wait_for("a token", || service.token(client_id, backend).ok());
    let mut player = Player::holding([127, 0, 0, 1], &token);
    wait_for("the session", || {
        player.turn();
        assert!(!player.is_denied(), "{backend}: {}", daemon.log());
        player.is_connected().then_some(())
    });
    player.echo(b"hello");
    player.leave();
}

#[test]
fn nobody_is_sent_where_no_process_is_and_whoever_is_sent_gets_in() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let service = Service::start(&fleet, &["tokens"]);
    // Somebody registers a process that is not there.
    fleet.put_backend(&daemon, "ghost", 4, "ready");
    let shut = || fleet.gateway("gate-1").map(|it| it["shut"].clone());
    wait_for("the gateway's word", || (shut()? == serde_json::json!(["ghost"])).then_some(()));
    wait_for("the refusal", || {
        let refused = service.token(1, "ghost").expect_err("nobody is there");
        (refused == "no_gateway").then_some(())
    });
    // Processes come, and come back, and each time somebody waits for them at the token service.
    for client_id in 10..18 {
        let name = format!("arena-{}", client_id % 2);
        let arena = Announcement::new("arena", 4);
        let process = Process::start_at(daemon.run_dir(), &name, arena);
        first_token_leads_in(&service, &daemon, &name, client_id);
        drop(process);
        is_gone(&fleet, &name);
    }
    let denied = "ringgate_drops_total{reason=\"request_backend_down\"}";
    // What has never happened is not shown.
    assert_eq!(daemon.get("/metrics").value(denied).unwrap_or(0), 0);
    assert_eq!(service.token(1, "ghost"), Err("no_gateway".to_owned()));
}
