//! `io = "xdp"` at a daemon: every protocol in frames, the tools of an operator above them, what is
//! counted, what is given up, and what happens where it cannot be had.

use std::net::SocketAddr;
use std::time::Duration;

use renetcode::{ClientAuthentication, NetcodeClient};
use ringgate_core::secret::Key;
use ringgate_os::clock;

use crate::command::run;
use crate::control_rig::{Daemon, KEY_HEX, PROTOCOL_ID, token, wait_for};
use crate::gateway_rig::{Player, Renet};
use crate::netns::{self, Pair, Serving};
use crate::xdp_rig::{
    BY_CARD, GATEWAY, GATEWAY_V6, Host, NETCODE_PORT, pair, text, unbound, within,
};
use crate::xdp_wire::RawWire;

#[test]
fn every_protocol_is_played_in_frames_over_both_families() {
    if netns::role().is_some() {
        return be_another_netcode();
    }
    let Some(host) = Host::start() else { return };
    let how = ", xdp wire0 copy, checksums by card";
    assert!(host.daemon.ready.trim_end().ends_with(how), "{}", host.daemon.ready);
    for ip in [GATEWAY, GATEWAY_V6] {
        host.plays_plain(ip);
        host.plays_netcode(ip);
        host.plays_unreal(ip);
    }
    let name = "xdp_gateway::every_protocol_is_played_in_frames_over_both_families";
    let ran = host.pair.role(&host.pair.player, name, "player").output().expect("runs");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
    host.warm_up();
    // Every frame that was taken is received or dropped by name.
    let frames = host.wait_for_frames("every frame to be accounted for", |frames| {
        frames.taken == frames.received + frames.dropped
    });
    assert_eq!(frames.dropped, 0);
    assert!(frames.received > 30 && frames.sent > 0, "{frames:?}");
    let page = host.daemon.ask("/metrics");
    assert_eq!(page.value("ringgate_conserved{worker=\"0\"}"), Some(1));
    // When each of them came is known.
    wait_for("how long they have waited", || {
        let queued = "ringgate_stage_seconds_count{stage=\"queue\"}";
        let count = host.daemon.ask("/metrics").value(queued)?;
        (count >= frames.received).then_some(())
    });
    let attached = "ringgate_xdp_attached{interface=\"wire0\",mode=\"copy\"}";
    assert_eq!(page.value(attached), Some(1));
    let shown = host.shown();
    assert_eq!((&shown["mode"], &shown["attached"]), (&"copy".into(), &true.into()));
    assert_eq!(shown["checksums"], "card");
    assert_eq!(rights_of(host.daemon.id()), 0, "what it takes at the start is given up");
}

/// renetcode's client, in the player's namespace: let in, answered, and gone.
fn be_another_netcode() {
    for server in ["10.98.0.1", "fd98::1"] {
        let server = SocketAddr::new(server.parse().expect("an address"), NETCODE_PORT);
        let now = Duration::from_secs(clock::unix_seconds());
        let key = Key::from_hex(KEY_HEX).expect("hex");
        let client_id = 77 + u64::from(server.is_ipv4());
        let token = renetcode::ConnectToken::generate(
            now,
            PROTOCOL_ID,
            60,
            client_id,
            15,
            vec![server],
            None,
            key.as_bytes(),
        );
        let token = ClientAuthentication::Secure { connect_token: token.expect("a token") };
        let client = NetcodeClient::new(now, token).expect("a client");
        let mut player = Renet::new(client, unbound(server));
        player.connect();
        let mut turns = 0_u32;
        wait_for("the echo", || {
            if turns.is_multiple_of(50) {
                player.send(b"another implementation");
            }
            turns += 1;
            player.step().iter().any(|it| it == b"another implementation").then_some(())
        });
        player.disconnect();
    }
}

/// Which of the three rights any thread of a process has, as bits.
fn rights_of(pid: u32) -> u64 {
    const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 39;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    tasks.fold(0, |sum, task| {
        let status = task.expect("a thread").path().join("status");
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |text| u64::from_str_radix(text.trim(), 16).expect("hex"))
        };
        sum | (of("CapEff:") | of("CapPrm:") | of("CapInh:") | of("CapAmb:")) & NEEDED
    })
}

#[test]
fn denials_traces_and_captures_see_frames() {
    let Some(host) = Host::start() else { return };
    host.warm_up();
    let control = host.daemon.control().display().to_string();
    let file = host.daemon.folder.join("frames.pcapng");
    let path = file.display().to_string();
    let words = ["capture", "--address", "10.98.0.2", "--max-packets", "2", "--out", &path];
    let capture = crate::command::ringgate(words).args(["--control", &control]).spawn();
    let mut capture = capture.expect("the binary was built");
    let trace = crate::command::ringgate(["trace", "--address", "10.98.0.2", "--for", "1h"])
        .args(["--control", &control, "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut trace = trace.expect("the binary was built");
    let mut lines = std::io::BufReader::new(trace.stdout.take().expect("piped"));
    wait_for("the capture's file", || std::fs::metadata(&file).ok().filter(|it| it.len() > 0));
    let ended = wait_for("the capture's end", || {
        host.plays_plain(GATEWAY);
        capture.try_wait().expect("our child")
    });
    assert!(ended.success());
    assert!(std::fs::metadata(&file).expect("written").len() > 200, "two packets");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).expect("text");
    assert!(line.starts_with('{'), "{line}");
    let _ = trace.kill();
    let _ = trace.wait();

    let deny = crate::command::ringgate(["deny", "10.98.0.2", "--control", &control]);
    run(deny).succeeded();
    let denied = "ringgate_drops_total{worker=\"0\",reason=\"address_denied\"}";
    let before = host.frames();
    wait_for("a denied player's frames", || {
        let _ = host.probe_for("100ms", &["--plain", "--server", "10.98.0.1:7001"]);
        host.daemon.ask("/metrics").value(denied).filter(|count| *count > 0)
    });
    assert!(host.frames().received > before.received, "they come in frames");
    host.plays_plain(GATEWAY_V6);
}

#[test]
fn a_confined_daemon_follows_addresses_that_come_and_go() {
    let is_confined = "workers = 1\npin = false\nuser = \"nobody\"\nconfine = true\n";
    let Some(host) = Host::start_with(|text| text.gateway = is_confined.to_owned()) else {
        return;
    };
    assert_eq!(rights_of(host.daemon.id()), 0);
    host.warm_up();
    let addresses = |host: &Host| host.shown()["addresses"].as_u64().expect("a number");
    let before = addresses(&host);
    Host::set(&host.pair.gateway, "addr add 10.98.0.9/24 dev wire0");
    wait_for("the program to know the address", || (addresses(&host) > before).then_some(()));
    let frames = host.frames();
    host.plays_plain("10.98.0.9");
    host.wait_for_frames("its frames", |now| now.received > frames.received);
    Host::set(&host.pair.gateway, "addr del 10.98.0.9/24 dev wire0");
    wait_for("the program to forget it", || (addresses(&host) == before).then_some(()));
    host.plays_plain(GATEWAY);
}

#[test]
fn what_cannot_be_had_is_refused_with_a_sentence_or_falls_back() {
    let Some(pair) = pair() else { return };
    let refused = |table: &str, gateway: &str| {
        let mut text = text(&pair, &format!("io = \"xdp\"\nxdp = {{ {table} }}\n"));
        text.gateway = gateway.to_owned();
        Daemon::refused(&text)
    };
    let one = "workers = 1\npin = false\n";
    for (table, gateway, wanted) in [
        ("interface = \"wire7\"", one, "ip link show"),
        ("interface = \"wire0\", mode = \"zerocopy\"", one, "this interface cannot do zero-copy"),
        ("interface = \"wire0\", queues = 4", one, "it has 1 in use"),
        (
            "interface = \"wire0\"",
            "workers = 2\npin = false\n",
            "each worker needs a queue of its own",
        ),
    ] {
        let said = refused(table, gateway);
        assert!(said.contains(wanted), "{table}: {said}");
    }
    let fallback = "io = \"xdp\"\nxdp = { interface = \"wire7\", fallback = true }\n";
    let mut two = text(&pair, fallback);
    two.gateway = "workers = 2\npin = false\nworkers_awake = \"auto\"\n".to_owned();
    let why = Daemon::start(&two).status()["why_all_awake"].clone();
    assert!(why.is_null(), "no frames come to workers by queues: {why}");
    let daemon = Daemon::start(&text(&pair, fallback));
    assert!(!daemon.ready.contains("xdp"), "{}", daemon.ready);
    assert!(daemon.log().contains("players are served by sockets"), "{}", daemon.log());
    let host = Host::around(pair, daemon);
    host.plays_plain(GATEWAY);
    assert_eq!(host.frames().taken, 0);
    assert_eq!(rights_of(host.daemon.id()), 0);
}

#[test]
fn a_queue_that_somebody_else_has_is_refused_with_a_sentence_or_falls_back() {
    let name =
        "xdp_gateway::a_queue_that_somebody_else_has_is_refused_with_a_sentence_or_falls_back";
    if netns::role().is_some() {
        let _wire = RawWire::open();
        netns::say_that_it_serves();
        loop {
            std::thread::park();
        }
    }
    let Some(pair) = pair() else { return };
    let somebody = Serving::start(pair.role(&pair.gateway, name, "somebody"));
    let said = Daemon::refused(&text(&pair, BY_CARD));
    assert!(said.contains("another process has this queue"), "{said}");
    let fallback = "io = \"xdp\"\nxdp = { interface = \"wire0\", fallback = true }\n";
    let daemon = Daemon::start(&text(&pair, fallback));
    assert!(daemon.log().contains("xdp_fallback"), "{}", daemon.log());
    let host = Host::around(pair, daemon);
    host.plays_plain(GATEWAY);
    assert_eq!(host.frames().taken, 0);
    drop(somebody);
}

/// Two workers, each with its queue. A player whose frames come on the other queue from one moment
/// to the next is the same player, and so it is for the process after this one.
#[test]
fn frames_that_come_on_another_queue_are_their_players() {
    let name = "xdp_gateway::frames_that_come_on_another_queue_are_their_players";
    match netns::role() {
        Some((role, _)) if role == "netcode" => return be_on_both_queues(),
        Some(_) => return,
        None => {}
    }
    let Some(pair) = pair() else { return };
    two_queues(&pair);
    let mut text = text(&pair, BY_CARD);
    text.gateway = "workers = 2\npin = false\n".to_owned();
    let daemon = Daemon::start(&text);
    let mut host = Host::around(pair, daemon);
    let received = |host: &Host, worker: u8| {
        let series = format!("ringgate_frames_received_total{{worker=\"{worker}\"}}");
        host.daemon.ask("/metrics").of_one(&series).expect("it is counted")
    };
    for generation in 1..=2 {
        let before = [0, 1].map(|worker| received(&host, worker));
        wait_for("frames on both queues", || {
            host.plays_plain(GATEWAY);
            host.plays_unreal(GATEWAY_V6);
            let ran = host.pair.role(&host.pair.player, name, "netcode").output().expect("runs");
            let said = [ran.stdout, ran.stderr].concat();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
            let has_more = |(worker, before)| received(&host, worker) > before + 8;
            (0..).zip(before).all(has_more).then_some(())
        });
        if generation == 1 {
            let (code, said) = host.upgrade();
            assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
        }
    }
    let forwarded = host.daemon.ask("/metrics").sum("ringgate_forwarded_in_total", "");
    assert!(forwarded > Some(0), "to the worker that has the session");
}

/// The first wire, made anew with two queues at each end.
fn two_queues(pair: &Pair) {
    let queues = "numtxqueues 2 numrxqueues 2";
    Host::set(&pair.gateway, "link del wire0");
    let make = format!("link add wire0 {queues} type veth peer name wire0 {queues}");
    Host::set(&pair.gateway, &format!("{make} netns {}", pair.player));
    for (namespace, last) in [(&pair.gateway, 1), (&pair.player, 2)] {
        Host::set(namespace, &format!("addr add 10.98.0.{last}/24 dev wire0"));
        Host::set(namespace, &format!("addr add fd98::{last}/64 dev wire0 nodad"));
        Host::set(namespace, "link set wire0 up");
    }
}

/// One session, whose socket the kernel gives another queue, by chance, each time it is connected
/// to the server again.
fn be_on_both_queues() {
    let server = SocketAddr::new(GATEWAY.parse().expect("an address"), NETCODE_PORT);
    let id = std::process::id().into();
    let mut player = Player::new(&token(&[server], id, KEY_HEX, 60), server);
    player.socket = unbound(server);
    player.connect();
    for round in 0..16_u8 {
        player.socket.connect(server).expect("a route");
        player.echo(&[round; 100]);
    }
}

#[test]
fn a_second_gateway_on_the_interface_is_refused_and_a_dead_ones_port_works() {
    let Some(host) = Host::start() else { return };
    host.warm_up();
    let second = |by_card: &str| {
        let mut text = text(&host.pair, by_card);
        text.bind = "\"10.98.0.1:7100\"";
        text.more = String::new();
        text
    };
    let said = Daemon::refused(&second(BY_CARD));
    assert!(said.contains("another program is on this interface"), "{said}");
    host.plays_plain(GATEWAY);

    // Killed without a word: what it had is gone with it, and the port is whoever's takes it.
    host.daemon.signal("KILL");
    let answered = || {
        let words = ["probe", "--timeout", "1s", "--plain", "--server", "10.98.0.1:7001"];
        wait_for("an answer", || {
            (run(within(&host.pair.player, &words)).code == Some(0)).then_some(())
        });
    };
    let sockets = Daemon::start(&text(&host.pair, ""));
    answered();
    drop(sockets);
    let again = Daemon::start(&text(&host.pair, BY_CARD));
    answered();
    wait_for("its frames", || (crate::xdp_rig::frames(&again).received > 0).then_some(()));
}
