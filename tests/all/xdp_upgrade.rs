//! A gateway that serves in frames is handed over with its interface: the program, the queues and
//! the memory of the frames go along, so packets never take another way, and none is lost.

use std::collections::HashSet;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_os::clock;

use crate::command::Ending;
use crate::control_rig::{KEY_HEX, token, wait_for};
use crate::gateway_rig::Player;
use crate::hold::Hold;
use crate::netns::{self, Staying};
use crate::upgrade_rig::kill;
use crate::xdp_rig::{GATEWAY, Host, NETCODE_PORT, PLAIN_PORT, unbound, within};

#[test]
fn players_in_frames_play_on_while_the_gateway_is_handed_over() {
    let name = "xdp_upgrade::players_in_frames_play_on_while_the_gateway_is_handed_over";
    if netns::role().is_some() {
        return be_streaming();
    }
    let Some(mut host) = Host::start() else { return };
    host.warm_up();
    let player = Staying::start(host.pair.role(&host.pair.player, name, "player"));
    let before = host.frames();
    for generation in 2..=3 {
        let (code, said) = host.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
        assert_eq!(host.daemon.ask("/status").json()["generation"], generation);
        host.wait_for_frames("frames in the next process", |now| {
            now.received > before.received && now.sent > before.sent
        });
        assert_eq!(host.shown()["mode"], "copy");
    }
    player.leave().unwrap_or_else(|why| panic!("{why}\n{}", host.daemon.log()));
    // The counters have gone on, and every frame since the first process is accounted for.
    let frames = host.wait_for_frames("every frame to be accounted for", |frames| {
        frames.taken == frames.received + frames.dropped
    });
    assert_eq!(frames.dropped, 0, "{frames:?}");
    assert!(frames.received > before.received, "{before:?} {frames:?}");
    // Addresses are followed by the process that serves.
    let addresses = |host: &Host| host.shown()["addresses"].as_u64().expect("a number");
    let known = addresses(&host);
    Host::set(&host.pair.gateway, "addr add 10.98.0.9/24 dev wire0");
    wait_for("the program to know the address", || (addresses(&host) > known).then_some(()));
    host.plays_plain("10.98.0.9");
    host.plays_plain(GATEWAY);
}

/// It has given up the rights that frames take, and serves in frames as any process that starts.
#[test]
fn a_successor_that_has_to_start_afresh_serves_in_frames() {
    let Some(host) = Host::start() else { return };
    let config = host.daemon.folder.join("gate.toml");
    let config = config.to_str().expect("text");
    let mut command = within(&host.pair.gateway, &["run", "--config", config, "--take-over"]);
    let log = host.daemon.folder.join("successor.log");
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("a log"));
    let mut hold = Hold::at(&mut command, "gateway-takes Read");
    let _second = Ending(command.spawn().expect("the binary was built"));
    let second = hold.reached();
    kill(host.daemon.id());
    hold.release();
    let log = || std::fs::read_to_string(&log).unwrap_or_default();
    let status = wait_for("the next process", || {
        let status = host.daemon.status();
        (status["pid"] == second).then_some(status)
    });
    assert_eq!(status["generation"], 1, "{}", log());
    assert_eq!(host.shown()["mode"], "copy", "{}", log());
}

/// Players wait for a wire that is down; what waits on the card for it is handed over all the same.
#[test]
fn a_gateway_is_handed_over_while_its_interface_is_down() {
    let Some(mut host) = Host::start() else { return };
    host.warm_up();
    for _ in 0..2 {
        Host::set(&host.pair.gateway, "link set wire0 down");
        let (code, said) = host.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
    }
    Host::set(&host.pair.gateway, "link set wire0 up");
    host.warm_up();
}

#[test]
fn an_interface_that_was_made_anew_is_served_after_an_upgrade() {
    let Some(mut host) = Host::start() else { return };
    host.warm_up();
    Host::set(&host.pair.gateway, "link set wire0 address 02:00:00:00:00:99");
    let is_attached = |host: &Host| host.shown()["attached"] == true;
    wait_for("another address to be seen", || (!is_attached(&host)).then_some(()));
    host.plays_plain(GATEWAY);
    let (code, said) = host.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
    assert!(!is_attached(&host), "the next process knows which address its program takes");
    Host::set(&host.pair.gateway, "link del wire0");
    host.pair.wire("0", 1500);
    host.plays_plain(GATEWAY);
    let (code, said) = host.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
    host.warm_up();
    assert!(is_attached(&host), "{}", host.daemon.log());
}

/// Sends a number each millisecond to the plain listener and in a netcode session, until its input
/// ends, and waits while much is on the way: every queue has room for that. Everything has to come
/// back.
fn be_streaming() {
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let plain = UdpSocket::bind("0.0.0.0:0").expect("our namespace");
    plain.connect((GATEWAY, PLAIN_PORT)).expect("a route");
    plain.set_nonblocking(true).expect("a socket");
    let server = SocketAddr::new(GATEWAY.parse().expect("an address"), NETCODE_PORT);
    let mut netcode = Player::new(&token(&[server], 5, KEY_HEX, 60), server);
    netcode.socket = unbound(server);
    netcode.connect();
    netcode.echo(b"before");
    let first = netcode.received.len();
    let mut back = HashSet::new();
    let hear = |back: &mut HashSet<u32>| {
        let mut buffer = [0; 64];
        while let Ok(len) = plain.recv(&mut buffer) {
            back.extend(buffer[..len].try_into().map(u32::from_be_bytes));
        }
    };
    wait_for("the first echo", || {
        plain.send(&0_u32.to_be_bytes()).expect("a route");
        clock::sleep(Duration::from_millis(20));
        hear(&mut back);
        back.contains(&0).then_some(())
    });
    netns::say_that_it_serves();
    let mut sent = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        let least = back.len().min(netcode.received.len() + 1 - first);
        if sent as usize + 1 < least + ON_THE_WAY_MAX {
            sent += 1;
            plain.send(&sent.to_be_bytes()).expect("a route");
            netcode.send(&sent.to_be_bytes());
        }
        netcode.step();
        hear(&mut back);
        clock::sleep(Duration::from_millis(1));
    }
    wait_for("everything to come back", || {
        netcode.step();
        hear(&mut back);
        clock::sleep(Duration::from_millis(1));
        let is_back = back.len() as u32 == sent + 1;
        (is_back && netcode.received.len() - first >= sent as usize).then_some(())
    });
}

/// Fewer than any queue between both ends takes.
const ON_THE_WAY_MAX: usize = 64;
