//! Players through a gateway to a game server and back, over real sockets.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_core::drops::DropReason;
use ringgate_gate::body::Gathers;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{Counters, Ended};
use ringgate_io::Choice;
use ringgate_os::clock;

use crate::gateway_rig::{Echo, Gateway, Wishes, local, on_both_drivers, socket_toward, until};
use crate::own::{own_address, take_again};

on_both_drivers!(
    renetcode_plays_over_a_bundle_link,
    renetcode_plays_over_a_udp_link,
    renetcode_plays_over_ipv6,
    a_player_leaves_and_its_slot_is_free_again,
    a_backend_that_is_full_denies,
    late_and_repeated_datagrams_reach_the_game_once_each,
    answers_leave_from_the_address_that_was_asked,
    a_game_server_off_loopback_gets_a_socket_per_player,
    a_player_keeps_playing_from_another_port,
    a_udp_game_server_that_dies_is_missed_and_taken_back,
    a_bundle_game_server_that_dies_is_missed_and_taken_back,
    stopping_while_players_play_tells_them_and_loses_nothing_silently,
    a_busy_worker_waits_for_more_until_it_is_told_not_to,
);

/// Every length that a payload may have, in steps and at the ends.
fn lengths() -> impl Iterator<Item = usize> {
    [1, 2, 15, 16, 17, 63, 64, 65].into_iter().chain((100..1200).step_by(97)).chain([1199, 1200])
}

fn play_all_lengths(gateway: &Gateway, client_id: u64) {
    let mut player = gateway.renet(client_id);
    player.connect();
    for len in lengths() {
        let payload: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        let mut tries = 0;
        until("the echo is back", || {
            if tries % 200 == 0 {
                player.send(&payload);
            }
            tries += 1;
            player.step().contains(&payload)
        });
    }
    player.disconnect();
    until("the session is over", || {
        gateway.counters().sessions_closed[Ended::ByPlayer as usize] > 0
    });
}

fn renetcode_plays_over_a_bundle_link(io: Choice) {
    let gateway = Gateway::start(&Wishes::new(io));
    let game = Echo::bundle(&gateway);
    play_all_lengths(&gateway, 1);
    until("the game has heard", || game.closed.load(std::sync::atomic::Ordering::Relaxed) == 1);
    let counters = gateway.stop();
    assert_eq!(counters.drops.of(DropReason::PacketForged), 0);
    assert!(counters.payloads_down >= lengths().count() as u64);
}

fn renetcode_plays_over_a_udp_link(io: Choice) {
    let (gateway, _game) = udp_gateway(io);
    play_all_lengths(&gateway, 1);
    gateway.stop();
}

fn renetcode_plays_over_ipv6(io: Choice) {
    let gateway = Gateway::start(&Wishes { bind: local("[::1]:0"), ..Wishes::new(io) });
    let _game = Echo::bundle(&gateway);
    play_all_lengths(&gateway, 1);
    gateway.stop();
}

fn udp_gateway(io: Choice) -> (Gateway, Echo) {
    let socket = UdpSocket::bind(own_address()).expect("a free port");
    let udp = Some(socket.local_addr().expect("bound"));
    let game = Echo::udp(socket);
    (Gateway::start(&Wishes { udp, ..Wishes::new(io) }), game)
}

fn a_player_leaves_and_its_slot_is_free_again(io: Choice) {
    let gateway = Gateway::start(&Wishes { slots: 1, ..Wishes::new(io) });
    let _game = Echo::bundle(&gateway);
    for client_id in 1..=3 {
        let mut player = gateway.renet(client_id);
        player.connect();
        player.disconnect();
        until("the slot is free", || {
            gateway.counters().sessions_closed[Ended::ByPlayer as usize] == client_id
        });
    }
    assert_eq!(gateway.stop().sessions_opened, 3);
}

fn a_backend_that_is_full_denies(io: Choice) {
    let gateway = Gateway::start(&Wishes { slots: 1, ..Wishes::new(io) });
    let _game = Echo::bundle(&gateway);
    let mut first = gateway.player(1);
    first.connect();
    let mut second = gateway.renet(2);
    until("the second player is denied", || {
        first.step();
        second.step();
        second.client.is_disconnected()
    });
    first.echo(b"still here");
    assert!(gateway.stop().drops.of(DropReason::RequestBackendFull) > 0);
}

fn late_and_repeated_datagrams_reach_the_game_once_each(io: Choice) {
    let gateway = Gateway::start(&Wishes::new(io));
    let game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    player.echo_once(b"warm");
    player.received.clear();
    let before = game.payloads.load(std::sync::atomic::Ordering::Relaxed);
    let datagrams: Vec<_> = (0..50_u8).map(|n| player.write(&[n; 20])).collect();
    for datagram in datagrams.iter().rev().chain(&datagrams) {
        player.socket.send_to(datagram, gateway.address()).expect("loopback");
    }
    until("all echoes are back", || {
        player.step();
        player.received.len() >= 50
    });
    until("all repeats are dropped", || {
        player.step();
        gateway.counters().drops.of(DropReason::ReplayDuplicate) == 50
    });
    let mut received: Vec<u8> = player.received.iter().map(|payload| payload[0]).collect();
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<u8>>());
    assert_eq!(game.payloads.load(std::sync::atomic::Ordering::Relaxed) - before, 50);
    gateway.stop();
}

fn answers_leave_from_the_address_that_was_asked(io: Choice) {
    let public = vec![local("127.0.0.77:0")];
    let wishes = Wishes { bind: local("0.0.0.0:0"), public, ..Wishes::new(io) };
    let gateway = Gateway::start(&wishes);
    let _game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    // The client takes datagrams from the address it has dialled only, so it connects only if that
    // is where they come from.
    player.connect();
    player.echo(b"from 127.0.0.77");
    gateway.stop();
}

fn a_game_server_off_loopback_gets_a_socket_per_player(io: Choice) {
    let socket = UdpSocket::bind("[::1]:0").expect("a free port");
    let udp = Some(socket.local_addr().expect("bound"));
    let _game = Echo::udp(socket);
    let gateway = Gateway::start(&Wishes { udp, ..Wishes::new(io) });
    let mut players = [gateway.player(1), gateway.player(2)];
    for player in &mut players {
        player.connect();
        player.echo(format!("hello from {:?}", player.socket).as_bytes());
    }
    for mut player in players {
        player.client.disconnect();
        player.step();
    }
    until("both are gone", || gateway.counters().sessions == 0);
    gateway.stop();
}

fn a_player_keeps_playing_from_another_port(io: Choice) {
    let (gateway, _game) = udp_gateway(io);
    let mut player = gateway.player(1);
    player.connect();
    player.echo(b"before");
    // Enough ports that the kernel hashes some of them to the other worker.
    for round in 0..8_u8 {
        player.socket = socket_toward(gateway.address());
        player.echo(&[b'a' + round; 30]);
    }
    let counters = gateway.stop();
    assert!(counters.port_switches >= 8, "{}", counters.port_switches);
    assert_eq!(counters.sessions_opened, 1);
}

fn a_udp_game_server_that_dies_is_missed_and_taken_back(io: Choice) {
    let (gateway, game) = udp_gateway(io);
    let mut player = gateway.player(1);
    player.connect();
    player.echo(b"alive");
    let socket = game_address(&gateway);
    drop(game);
    until("the player is told that its game server is gone", || {
        if player.client.is_connected() {
            player.send(b"anybody?");
        }
        player.step();
        !player.client.is_connected()
    });
    until("new players are denied", || is_denied(&gateway, 2));
    let _game = Echo::udp(take_again(|| UdpSocket::bind(socket)));
    until("new players are taken in again", || !is_denied(&gateway, 3));
    let counters = gateway.stop();
    assert_eq!(counters.sessions_closed[Ended::BackendGone as usize], 1);
    assert!(counters.drops.of(DropReason::RequestBackendDown) > 0);
}

fn game_address(gateway: &Gateway) -> std::net::SocketAddr {
    gateway.udp().expect("a udp backend")
}

/// Whether a player who asks is denied; one who gets in leaves again.
fn is_denied(gateway: &Gateway, client_id: u64) -> bool {
    let mut player = gateway.renet(client_id);
    until("the request is answered", || {
        player.step();
        player.client.is_connected() || player.client.is_disconnected()
    });
    if player.client.is_connected() {
        player.disconnect();
        return false;
    }
    true
}

fn a_bundle_game_server_that_dies_is_missed_and_taken_back(io: Choice) {
    let gateway = Gateway::start(&Wishes { workers: 1, ..Wishes::new(io) });
    let game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    player.echo(b"alive");
    drop(game);
    until("new players are denied", || is_denied(&gateway, 2));
    until("the player is told that its game server is gone", || {
        player.step();
        !player.client.is_connected()
    });
    let _game = Echo::bundle(&gateway);
    let mut next = gateway.player(3);
    next.connect();
    next.echo(b"back");
    assert_eq!(gateway.stop().sessions_closed[Ended::BackendGone as usize], 1);
}

fn stopping_while_players_play_tells_them_and_loses_nothing_silently(io: Choice) {
    let gateway = Gateway::start(&Wishes::new(io));
    let game = Echo::bundle(&gateway);
    let mut players: Vec<_> = (1..=20).map(|id| gateway.player(id)).collect();
    until("everybody plays", || {
        players.iter_mut().for_each(crate::gateway_rig::Player::step);
        players.iter().all(|player| player.client.is_connected())
    });
    for round in 0..50_u8 {
        for player in &mut players {
            player.send(&[round; 200]);
        }
    }
    let counters: Counters = gateway.stop();
    assert_eq!(counters.sessions_closed[Ended::Shutdown as usize], 20);
    until("everybody is told", || {
        players.iter_mut().for_each(crate::gateway_rig::Player::step);
        players.iter().all(|player| !player.client.is_connected())
    });
    drop(game);
}

fn a_busy_worker_waits_for_more_until_it_is_told_not_to(io: Choice) {
    let mut gateway = Gateway::start(&Wishes { workers: 1, filter: false, ..Wishes::new(io) });
    let _game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    let busy = Arc::new(AtomicBool::new(true));
    let crowd = std::thread::spawn({
        let (busy, address) = (Arc::clone(&busy), gateway.address());
        move || {
            let crowd = socket_toward(address);
            while busy.load(Ordering::Relaxed) {
                // A full receive buffer may refuse some.
                (0..5).for_each(|_| _ = crowd.send_to(&[0x35; 40], address));
                clock::sleep(Duration::from_micros(100));
            }
        }
    });
    gateway.adopt_delay(BatchDelay::AtMost(Duration::from_millis(1)));
    until("it has waited", || gateway.gathers().is_some_and(|it| it.count > 20));
    player.echo(b"mail, timers and players get through");
    assert!(gateway.gathers().is_some_and(|it| it.waited_ns > 0));
    gateway.adopt_delay(BatchDelay::OFF);
    until("it is told", || gateway.gathers().is_some());
    let told = gateway.gathers().expect("as above");
    let turns = || gateway.fleet().published()[0].report().turns;
    let enough = turns() + 200;
    until("it has gone on", || turns() > enough);
    assert_eq!(gateway.gathers(), Some(Gathers { delay_ns: 0, ..told }));
    busy.store(false, Ordering::Relaxed);
    crowd.join().expect("it only sends");
    player.echo(b"and afterwards");
    gateway.stop();
}
