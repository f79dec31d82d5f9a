//! A daemon at the addresses of one that runs, or of one that was killed a moment ago.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use ringgate_io::Choice;
use socket2::{Domain, Socket, Type};

use crate::command::{Ending, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, PROTOCOL_ID, Player, Text};
use crate::folder::Folder;
use crate::gateway_rig::on_both_drivers;
use crate::own::{own_address, own_wildcard_port};

on_both_drivers!(
    a_second_gateway_is_refused_and_the_first_loses_nothing,
    a_gateway_that_was_killed_starts_again_at_once,
);

const fn name_of(io: Choice) -> &'static str {
    if matches!(io, Choice::Uring) { "uring" } else { "mmsg" }
}

/// The config of a daemon beside others: everything that they could have in common is said.
fn config(io: Choice, binds: &str, run_dir: &Path, admin: SocketAddr) -> String {
    let (io, run_dir) = (name_of(io), run_dir.display());
    format!(
        "[gateway]\nworkers = 2\npin = false\nio = \"{io}\"\nrun_dir = \"{run_dir}\"\nstate_dir = \"state\"\n\
         [[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [{binds}]\n\
         public = [\"127.0.0.1:40000\"]\nprotocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = 100\n\
         keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n\
         [[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 4\n[admin]\nbind = \"{admin}\"\n"
    )
}

/// Starts a daemon that has to be refused; what it says. Nothing of its own may be left.
fn refused(io: Choice, binds: &str, run_dir: Option<&Path>, admin: SocketAddr) -> String {
    let folder = Folder::new();
    let own = folder.join("run");
    let config = config(io, binds, run_dir.unwrap_or(&own), admin);
    let file = folder.file("gate.toml", config, 0o600);
    let ran = run(ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert_eq!(folder.names(), ["gate.toml"], "refused before anything was made");
    ran.stderr
}

fn a_second_gateway_is_refused_and_the_first_loses_nothing(io: Choice) {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("literal");
    let mut text = Text::new();
    text.gateway = format!("workers = 2\npin = false\nio = \"{}\"\n", name_of(io));
    let first = Daemon::start(&text);
    let _game = Game::start(&first, "arena");
    first.ready();
    let mut player = Player::connected(first.listener, 1, KEY_HEX);
    player.echo(b"before");

    let port = first.listener.port();
    let holder = format!("process {} (ringgate)", first.id());
    let playing = std::thread::spawn(move || {
        let sent = player.play_for(300);
        (sent, player)
    });
    for binds in [
        format!("\"127.0.0.1:{port}\""),
        format!("\"0.0.0.0:{port}\""),
        format!("\"{}\", \"0.0.0.0:{port}\"", own_address()),
    ] {
        let said = refused(io, &binds, None, any);
        assert!(said.contains(&holder) && said.contains(&port.to_string()), "{binds}: {said}");
    }
    let elsewhere = format!("\"{}\"", own_address());
    let said = refused(io, &elsewhere, Some(&first.run_dir()), any);
    assert!(said.contains(&holder) && said.contains("worker-0.sock"), "{said}");
    let said = refused(io, &elsewhere, None, first.admin);
    assert!(said.contains(&holder) && said.contains("admin address"), "{said}");

    // Who has only the admin address is no gateway for that.
    let other = std::net::TcpListener::bind(any).expect("a port");
    let said = refused(io, &elsewhere, None, other.local_addr().expect("it is bound"));
    let why = "holds it: stop that one, or give `bind` of [admin] another port";
    assert!(said.contains(why) && !said.contains("second gateway"), "{said}");

    let ((sent, echoes), mut player) = playing.join().expect("the player plays on");
    assert_eq!(sent, echoes, "not one payload is lost");
    player.echo(b"after");
    let status = first.status();
    assert_eq!(status["totals"]["sessions"], 1, "{status}");
}

/// A daemon that a test may kill.
struct Killable {
    child: Ending,
    _stdout: BufReader<ChildStdout>,
}

impl Killable {
    /// Starts one and waits until it serves.
    fn start(file: &Path) -> Self {
        let mut command = ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]);
        let child = command.stdout(Stdio::piped()).spawn().expect("the binary was built");
        let mut child = Ending(child);
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("ready: ") {
            line.clear();
            assert!(stdout.read_line(&mut line).expect("text") > 0, "it did not start");
        }
        Self { child, _stdout: stdout }
    }
}

fn a_gateway_that_was_killed_starts_again_at_once(io: Choice) {
    let folder = Folder::new();
    let admin = own_address();
    let binds = format!("\"{}\", \"0.0.0.0:{}\"", own_address(), own_wildcard_port());
    let file = folder.file("gate.toml", config(io, &binds, &folder.join("run"), admin), 0o600);
    for _ in 0..6 {
        let mut daemon = Killable::start(&file);
        daemon.child.kill().expect("ours");
    }
    drop(Killable::start(&file));
}

#[test]
fn a_wildcard_and_one_of_its_addresses_are_both_ours() {
    let folder = Folder::new();
    let port = own_wildcard_port();
    for binds in [
        format!("\"127.0.0.1:{port}\", \"0.0.0.0:{port}\""),
        format!("\"0.0.0.0:{port}\", \"127.0.0.1:{port}\""),
    ] {
        let admin = "127.0.0.1:0".parse().expect("literal");
        let config = config(Choice::Mmsg, &binds, &folder.join("run"), admin);
        let file = folder.file("gate.toml", config, 0o600);
        let daemon = Killable::start(&file);
        let said = refused(Choice::Mmsg, &format!("\"127.0.0.1:{port}\""), None, admin);
        assert!(said.contains(&format!("process {} (ringgate)", daemon.child.id())), "{said}");
    }
}

#[test]
fn any_socket_in_the_way_is_named() {
    let v6 = |one_family: bool, address: &str| {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).ok()?;
        socket.set_only_v6(one_family).ok()?;
        let ip: Ipv6Addr = address.parse().expect("literal");
        socket.bind(&SocketAddr::from((ip, own_wildcard_port())).into()).ok()?;
        Some(socket)
    };
    let v4 = UdpSocket::bind((Ipv4Addr::LOCALHOST, own_wildcard_port())).expect("ours").into();
    let strangers = [
        (Some(v4), "0.0.0.0"),
        (v6(false, "::"), "127.0.0.1"),
        (v6(true, "::1"), "[::]"),
        (v6(true, "::"), "[::1]"),
    ];
    let admin = "127.0.0.1:0".parse().expect("literal");
    for (stranger, ours) in strangers {
        let Some(stranger) = stranger else {
            eprintln!("SKIPPED: this host has no IPv6");
            continue;
        };
        // As a gateway of the first release: ready to share.
        stranger.set_reuse_port(true).expect("an option");
        let local = stranger.local_addr().ok().and_then(|it| it.as_socket()).expect("bound");
        let said = refused(Choice::Mmsg, &format!("\"{ours}:{}\"", local.port()), None, admin);
        assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    }
}
