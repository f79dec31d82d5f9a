//! An Unreal server behind `ringgate agent`: its players notice neither the way nor who is replaced
//! on it.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ringgate_core::proto::unreal::prefix::Framing;

use crate::agent::{Agent, Heir, NAMES, agent_file, agent_upgrade, certificates, gateway_text};
use crate::control_rig::{Daemon, KEY_HEX, wait_for};
use crate::folder::Folder;
use crate::own::{own_address, own_port};
use crate::unreal_rig::{Player, Server};
use crate::upgrade_rig::Line;

const PLAYERS: &str = "ringgate_agent_players{backend=\"arena\"}";

/// A gateway whose Unreal listener leads to a server behind the agent. Its netcode listener leads
/// elsewhere.
fn gateway(folder: &Folder, port: u16) -> (Line, SocketAddr) {
    let mut text = gateway_text(folder, port, |text| {
        text.listener = format!("keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"other\"]\n");
        text.backends.push_str("[[backend]]\nname = \"other\"\nlink = \"bundle\"\nslots = 4\n");
    });
    let at = own_address();
    write!(
        text.more,
        "[[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"{at}\"]\nmax_sessions = 20\n\
         backends = [\"arena\"]\n"
    )
    .expect("strings grow");
    (Line::of(Daemon::start(&text)), at)
}

#[test]
fn an_unreal_server_behind_an_agent_keeps_its_players_while_gateway_and_agent_are_replaced() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let server = Server::start(Framing::default(), 1);
    let port = own_port();
    let link = format!("link = \"udp\"\naddress = \"{}\"\n", server.address);
    agent_file(&folder, "host-7", port, &link);
    let (mut line, listener) = gateway(&folder, port);
    let agent = Agent::start(&folder);
    let is_up = |line: &Line| {
        let backends = line.daemon.ask("/status").json()["backends"].clone();
        let all = backends.as_array().expect("a list").clone();
        all.iter().any(|it| it["name"] == "arena" && it["up"] == true)
    };
    wait_for("the server has answered", || is_up(&line).then_some(()));

    let mut player = Player::new(Framing::default(), 1, listener);
    player.connect();
    player.echo();
    agent.shows(PLAYERS, 1);
    let row = line.daemon.ask("/sessions").json()["sessions"][0].clone();
    assert_eq!((&row["backend"], &row["link_address"]), (&"arena".into(), &().into()), "{row}");

    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    player.echo();
    let said = agent_upgrade(&folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    let _heir = Heir(pid.expect("it says which process goes on"));
    player.echo();
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    player.echo();

    // The server has seen one player at one address, and nothing twice.
    let tally = server.tally();
    assert_eq!((tally.connections, tally.restarts), (1, 0), "{tally:?}");
    assert_eq!((tally.duplicates, tally.late, tally.implausible), (0, 0, 0), "{tally:?}");
    assert_eq!(player.duplicates, 0);

    // The port changes, and the handshake begins anew: the server does not notice.
    player.ahead_ns += 11_000_000_000;
    player.change_port();
    player.send();
    player.until("it has restarted", |player| player.reconnected == 1);
    player.echo();
    assert_eq!((server.tally().connections, server.tally().restarts), (1, 0));

    // Who leaves gives the slot back, here and there.
    player.say_goodbye();
    agent.shows(PLAYERS, 0);
    let mut next = Player::new(Framing::default(), 2, listener);
    next.connect();
    next.echo();
    agent.shows(PLAYERS, 1);
}
