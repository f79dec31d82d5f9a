//! Backends that are there or not, before any player finds out, and what `/readyz` says of them.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringgate_io::Choice;
use ringgate_os::clock::Clock;
use socket2::{Domain, Socket, Type};

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::gateway_rig::{Echo, on_both_drivers};
use crate::netns::{self, Pair, Serving};
use crate::own::{own_address, own_wildcard_port, take_again};

on_both_drivers!(
    nobody_is_sent_where_nobody_listens,
    a_server_that_goes_and_comes_is_seen_without_players,
    players_who_are_early_are_not_denied,
    a_server_on_another_host_is_asked,
);

/// Two workers, and udp backends at these addresses.
fn text(io: Choice, backends: &[SocketAddr]) -> Text {
    let mut text = Text::new();
    let io = if io == Choice::Uring { "uring" } else { "mmsg" };
    text.gateway = format!("workers = 2\npin = false\nio = \"{io}\"\n");
    let names: Vec<_> = (0..backends.len()).map(|at| format!("\"game-{at}\"")).collect();
    let route = if backends.len() > 1 { "route = \"least-players\"\n" } else { "" };
    let names = names.join(", ");
    text.listener = format!("keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [{names}]\n{route}");
    let table = |(at, address): (usize, &SocketAddr)| {
        format!(
            "[[backend]]\nname = \"game-{at}\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 64\n"
        )
    };
    text.backends = backends.iter().enumerate().map(table).collect();
    text
}

fn bound(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = take_again(|| UdpSocket::bind(address));
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// An address at which nobody listens.
fn deserted() -> SocketAddr {
    own_address()
}

fn nobody_is_sent_where_nobody_listens(io: Choice) {
    let (socket, alive) = bound("127.0.0.1:0");
    let game = Echo::udp(socket);
    let daemon = Daemon::start(&text(io, &[deserted(), alive]));
    daemon.ready();
    for id in 1..=12 {
        Player::connected(daemon.listener, id, KEY_HEX).echo(b"somebody is there");
    }
    let drops = daemon.get("/metrics");
    let found_out = drops.sum("ringgate_drops_total", "reason=\"link_down\"");
    assert_eq!(found_out, Some(0), "no player found out");
    drop(game);
}

fn a_server_that_goes_and_comes_is_seen_without_players(io: Choice) {
    let address = SocketAddr::from(([127, 0, 0, 1], own_wildcard_port()));
    let mut text = text(io, &[address]);
    // What looks has given up files and system calls too.
    text.gateway.push_str("confine = true\n");
    let daemon = Daemon::start(&text);
    let is_ready = |wanted: bool| {
        let page = daemon.get("/readyz?listener=eu");
        let names_it = page.body.contains("game-0") && page.status == 503;
        (if wanted { page.status == 200 } else { names_it }).then_some(())
    };
    assert!(is_ready(false).is_some(), "known from the start");
    let (socket, _) = bound(&address.to_string());
    wait_for("the server to be seen", || is_ready(true));
    drop(socket);
    wait_for("its end to be seen", || is_ready(false));
    let (socket, _) = bound(&format!("0.0.0.0:{}", address.port()));
    wait_for("a wildcard to count", || is_ready(true));
    drop(socket);
    wait_for("its end to be seen", || is_ready(false));
    let Some(dual) = dual_stack(address.port()) else { return };
    wait_for("a dual-stack socket to count", || is_ready(true));
    drop(dual);
    wait_for("its end to be seen", || is_ready(false));
}

fn dual_stack(port: u16) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None);
    let socket =
        socket.inspect_err(|why| eprintln!("SKIPPED: this host has no IPv6: {why}")).ok()?;
    socket.set_only_v6(false).expect("a socket");
    take_again(|| socket.bind(&SocketAddr::from(([0_u16; 8], port)).into()));
    Some(socket)
}

fn players_who_are_early_are_not_denied(io: Choice) {
    let mut bundle = text(io, &[]);
    bundle.listener = Text::new().listener;
    bundle.backends = Text::new().backends;
    // A machine that stands still for as long as a gateway waits has the player denied.
    while !gets_in_early(&bundle) {}
    // Later a denial is the better answer.
    let daemon = Daemon::start(&bundle);
    wait_for("the end of the wait", || {
        let mut late = Player::new(daemon.listener, 2, KEY_HEX);
        (0..20).for_each(|_| drop(late.turn()));
        (!late.is_connected() && late.is_denied()).then_some(())
    });
}

/// Whether a player who is there before its game process is let in once that comes. `false` where
/// it took so long that the gateway did not have to wait for it any more.
fn gets_in_early(text: &Text) -> bool {
    let clock = Clock::start();
    let daemon = Daemon::start(text);
    let mut early = Player::new(daemon.listener, 1, KEY_HEX);
    let is_answered = |early: &mut Player| {
        let is_answered = early.is_connected() || early.is_denied();
        assert!(!early.is_denied() || clock.now_ns() >= AWAITED_NS, "it was denied too early");
        is_answered
    };
    wait_for("requests that are not answered", || {
        let page = daemon.get("/metrics");
        let dropped = page.sum("ringgate_drops_total", "reason=\"backend_starting\"");
        (is_answered(&mut early) || dropped > Some(0)).then_some(())
    });
    let _game = Game::start(&daemon, "arena");
    wait_for("an answer to the player", || is_answered(&mut early).then_some(()));
    early.is_connected()
}

/// How long a gateway waits for a backend that it has never seen.
const AWAITED_NS: u64 = 5_000_000_000;

/// In a network namespace of its own, as a host that is reached over a wire.
fn a_server_on_another_host_is_asked(io: Choice) {
    const SERVER: &str = "10.98.0.2:9000";
    match netns::role() {
        Some((role, _)) if role == "server" => {
            let _socket = UdpSocket::bind(SERVER).expect("our namespace");
            netns::say_that_it_serves();
            std::thread::park_timeout(Duration::from_mins(1));
        }
        Some((_, gateway)) => {
            let daemon = Daemon::start(&text(io, &[SERVER.parse().expect("literal")]));
            let page = |wanted| (daemon.get("/readyz").status == wanted).then_some(());
            wait_for("the refusal", || page(503));
            let server = Serving::start(netns::role_beside(&gateway, &test_name(io), "server"));
            wait_for("the server to be seen", || page(200));
            drop(server);
            wait_for("the refusal", || page(503));
        }
        None => {
            let Some(pair) = Pair::new() else { return };
            let mut gateway = pair.role(&pair.gateway, &test_name(io), "gateway");
            let ran = gateway.output().expect("runs");
            let said = [ran.stdout, ran.stderr].concat();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
        }
    }
}

fn test_name(io: Choice) -> String {
    let driver = if io == Choice::Uring { "uring" } else { "mmsg" };
    format!("control_backends::{driver}::a_server_on_another_host_is_asked")
}
