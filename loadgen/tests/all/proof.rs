//! No command may call a run good that proved nothing: nobody got in, nothing came back, nothing
//! was measured.

use std::net::UdpSocket;
use std::process::Output;

use super::command::{folder, loadgen};
use super::fleet::{Server, key};
use super::gateway::{Game, Gateway, Link, text};
use super::own::own_address;

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_unproven(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    for part in parts {
        assert!(stderr(output).contains(part), "no {part:?} in {output:?}");
    }
}

/// A command whose players dial a port at which a server hears them and never answers.
fn into_the_void(name: &str, command: &[&str]) -> Output {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let address = silent.local_addr().expect("bound").to_string();
    let folder = folder(name);
    let file = folder.join("key");
    std::fs::write(&file, key().to_hex()).expect("written");
    let players = ["--server", &address, "--key", file.to_str().expect("UTF-8")];
    let few = ["--sessions", "4", "--ramp", "200ms", "--timeout", "1", "--hz", "10"];
    let output = loadgen(&[command, &players, &few].concat());
    std::fs::remove_dir_all(folder).expect("removed");
    output
}

/// A command without a look at the gateway's books, which would have more to say.
fn blindly(gateway: &Gateway, command: &str, more: &[&str]) -> Output {
    let (server, key) = (gateway.address.to_string(), gateway.folder.join("key"));
    let players = [command, "--server", &server, "--key", text(&key), "--protocol-id", "7"];
    loadgen(&[&players[..], &["--timeout", "1s"], more].concat())
}

#[test]
fn a_run_into_which_nobody_gets_meets_no_condition() {
    let conditions = "p99<60s,max<60s,loss<100%,late<100%,missing<1000";
    let more = ["run", "--hold", "1500ms", "--require", conditions];
    let output = into_the_void("proof-run", &more);
    assert_unproven(&output, &["4 came, 0 were let in", "p99<60s is missed: nothing was measured"]);
    for condition in ["max<60s", "loss<100%", "late<100%", "missing<1000"] {
        assert!(stderr(&output).contains(&format!("{condition} is missed")), "{output:?}");
    }
    let output = into_the_void("proof-run-plain", &["run", "--hold", "1500ms"]);
    assert_unproven(&output, &["4 came, 0 were let in"]);
}

#[test]
fn a_run_without_players_proves_nothing() {
    let output = into_the_void("proof-none", &["run", "--hold", "100ms"]);
    assert_unproven(&output, &["were let in"]);
    let server = Server::start();
    let folder = folder("proof-zero");
    let file = folder.join("key");
    std::fs::write(&file, key().to_hex()).expect("written");
    let (address, file) = (server.address.to_string(), file.to_str().expect("UTF-8").to_owned());
    let run = ["run", "--server", &address, "--key", &file, "--sessions", "0"];
    let output = loadgen(&[&run[..], &["--ramp", "100ms", "--hold", "100ms"]].concat());
    assert_unproven(&output, &["0 came"]);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_run_of_which_nothing_comes_back_proves_nothing() {
    let mut gateway = Gateway::start("proof-deaf", Link::Udp, Game::Echo);
    gateway.end_game();
    let few = ["--sessions", "4", "--ramp", "200ms", "--hold", "1500ms"];
    let output = blindly(&gateway, "run", &[&few[..], &["--require", "p50<60s"]].concat());
    assert_unproven(&output, &["p50<60s is missed: nothing was measured"]);
}

#[test]
fn some_may_stay_outside_where_that_is_allowed_by_number_or_by_share() {
    let folder = folder("proof-some");
    for (allowed, code) in
        [(None, 5), (Some("1"), 5), (Some("2"), 0), (Some("39%"), 5), (Some("40%"), 0)]
    {
        let server = Server::start();
        let servers = ringgate_core::netcode::ServerAddresses::new(&[server.address]).expect("one");
        let pile: Vec<u8> = (0..3)
            .flat_map(|client| {
                let spec = ringgate_core::netcode::TokenSpec::new(7, client, servers.clone());
                let now = ringgate_os::clock::unix_seconds();
                ringgate_core::netcode::mint(&spec, &key(), now).expect("random bytes").to_bytes()
            })
            .collect();
        let file = folder.join("tokens");
        std::fs::write(&file, pile).expect("written");
        let run = ["run", "--tokens", file.to_str().expect("UTF-8"), "--sessions", "5"];
        let times = ["--hz", "20", "--ramp", "300ms", "--hold", "500ms"];
        let allow = allowed.map(|allowed| ["--allow-unconnected", allowed]);
        let more = allow.as_ref().map_or(&[][..], |words| words);
        let output = loadgen(&[&run[..], &times, more].concat());
        assert_eq!(output.status.code(), Some(code), "{allowed:?}: {output:?}");
        let text = stdout(&output);
        assert!(text.contains("2 never dialled: the connect tokens ran out"), "{text}");
        assert_eq!(text.contains("NO  everyone"), code != 0, "{text}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_ladder_that_saw_no_traffic_has_no_knee() {
    let output = into_the_void("proof-ladder", &["ladder", "--hold", "1500ms", "--from", "40"]);
    assert_unproven(&output, &["no knee", "0 were let in"]);
    assert!(!stdout(&output).contains("\nknee:"), "{output:?}");
    let mut gateway = Gateway::start("proof-ladder-deaf", Link::Udp, Game::Echo);
    gateway.end_game();
    // Bounds that anything meets: what is not measured meets none.
    let bounds = ["--loss", "100", "--p99", "60s", "--from", "40", "--to", "40"];
    let few = ["--sessions", "4", "--ramp", "200ms", "--hold", "1500ms"];
    let output = blindly(&gateway, "ladder", &[&bounds[..], &few].concat());
    assert_unproven(&output, &["no knee"]);
    assert!(!stdout(&output).contains("\nknee:"), "{output:?}");
}

#[test]
fn an_attack_without_honest_players_shows_nothing_of_what_they_feel() {
    let attack = ["attack", "--kind", "junk", "--rate", "100", "--each", "1s"];
    let output = into_the_void("proof-attack", &attack);
    assert_unproven(&output, &["4 came, 0 were let in"]);
}

#[test]
fn a_floor_is_no_figure_without_the_gateway_s_answers() {
    let pid = std::process::id().to_string();
    let floor = ["floor", "--rounds", "1", "--hold", "3s", "--gateway-pid", &pid];
    let output = into_the_void("proof-floor", &floor);
    assert_unproven(&output, &["0 were let in"]);
    assert!(!stdout(&output).contains("\nratio"), "{output:?}");
    let output = into_the_void("proof-rounds", &["floor", "--rounds", "0", "--gateway-pid", &pid]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn an_admin_address_that_does_not_answer_is_no_check_of_the_books() {
    let address = own_address().to_string();
    let output = into_the_void("proof-admin", &["run", "--hold", "500ms", "--admin", &address]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(&address), "{output:?}");
}
