//! Hostile datagrams over real sockets: nothing is answered, and the honest neighbour does not
//! notice.

use ringgate_core::drops::DropReason;
use ringgate_io::Choice;

use crate::gateway_rig::{Echo, Gateway, Wishes, on_both_drivers, reports, socket_toward, until};

on_both_drivers!(
    junk_of_every_length_is_met_with_silence,
    a_captured_session_gets_an_attacker_nowhere,
    the_kernel_refuses_junk_before_it_is_queued,
);

/// Asserts that nothing has been answered, after something that would have been answered later.
fn assert_silence(attacker: &std::net::UdpSocket) {
    let mut buffer = [0; 2048];
    let answer = attacker.recv_from(&mut buffer);
    assert!(answer.is_err(), "answered with {:?}", answer.map(|(len, _)| buffer[..len].to_vec()));
}

fn junk_of_every_length_is_met_with_silence(io: Choice) {
    // Without the socket filter, so that the worker sees it all.
    let gateway = Gateway::start(&Wishes { filter: false, ..Wishes::new(io) });
    let _game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    let attacker = socket_toward(gateway.address());
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for len in 0..1400_usize {
        let mut junk = vec![0; len];
        for byte in &mut junk {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *byte = random as u8;
        }
        attacker.send_to(&junk, gateway.address()).expect("loopback");
        if let Some(first) = junk.first_mut() {
            // And what looks like packets: every kind, every count of sequence bytes.
            *first = (len % 9) as u8 * 16 + (len % 8) as u8;
            attacker.send_to(&junk, gateway.address()).expect("loopback");
        }
        if len % 100 == 0 {
            player.echo(format!("undisturbed {len}").as_bytes());
        }
    }
    until("all of it has been looked at", || {
        let counters = gateway.counters();
        counters.drops.total() + counters.handled.iter().sum::<u64>() >= 2799
    });
    player.echo(b"still undisturbed");
    assert_silence(&attacker);
    let counters = gateway.stop();
    assert!(counters.drops.of(DropReason::Empty) >= 2);
    assert!(counters.drops.of(DropReason::TooLong) > 0);
    assert!(counters.drops.of(DropReason::RequestLength) > 0);
    assert_eq!(counters.port_switches, 0);
}

fn a_captured_session_gets_an_attacker_nowhere(io: Choice) {
    let gateway = Gateway::start(&Wishes::new(io));
    let game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    player.echo_once(b"a payload to be captured");
    let played = |game: &Echo| game.payloads.load(std::sync::atomic::Ordering::Relaxed);
    let before = played(&game);
    let attacker = socket_toward(gateway.address());
    // Everything the player has sent, from the attacker's port, while the session lives and again
    // when it is over.
    for datagram in &player.sent {
        attacker.send_to(datagram, gateway.address()).expect("loopback");
    }
    player.echo_once(b"undisturbed");
    assert_eq!(played(&game) - before, 1);
    // A forged goodbye in the player's name: the right shape, the highest sequence, no valid tag,
    // sent from the player's own socket.
    let mut goodbye = vec![0x86];
    goodbye.extend([0xff; 8 + 16]);
    player.socket.send_to(&goodbye, gateway.address()).expect("loopback");
    until("the forgery is dropped", || {
        player.step();
        gateway.counters().drops.of(DropReason::PacketForged) > 0
    });
    player.echo_once(b"not gone");

    player.client.disconnect();
    player.step();
    until("the session is over", || gateway.counters().sessions == 0);
    let before = played(&game);
    for datagram in &player.sent {
        attacker.send_to(datagram, gateway.address()).expect("loopback");
        // From the player's address too: a spoofer who can also capture.
        player.socket.send_to(datagram, gateway.address()).expect("loopback");
    }
    let mut other = gateway.player(2);
    other.connect();
    other.echo_once(b"after the replay");
    assert_eq!(played(&game) - before, 1, "nothing of the replay has reached the game");
    assert_silence(&attacker);
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 2, "the replay has opened nothing");
    assert!(counters.drops.of(DropReason::TokenUsedElsewhere) > 0);
}

fn the_kernel_refuses_junk_before_it_is_queued(io: Choice) {
    let gateway = Gateway::start(&Wishes::new(io));
    let _game = Echo::bundle(&gateway);
    let mut player = gateway.player(1);
    player.connect();
    let attacker = socket_toward(gateway.address());
    for len in 0..1000_usize {
        attacker.send_to(&vec![0xee; len], gateway.address()).expect("loopback");
    }
    player.echo(b"undisturbed");
    until("the kernel has counted them", || {
        reports(gateway.fleet()).iter().map(|report| report.socket_drops).sum::<u64>() == 1000
    });
    assert_silence(&attacker);
    let counters = gateway.stop();
    assert_eq!(counters.drops.of(DropReason::UnknownSource), 0, "no junk came through");
}
