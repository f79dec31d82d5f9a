//! Players of an Unreal game, a whole gateway and game servers, over real sockets and on both
//! drivers.

use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::{Client, Profile, State};
use ringgate_core::proto::unreal::handshake::Base;
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_gate::{Duplicates, Ended, Route};
use ringgate_io::Choice;

use crate::gateway_rig::{local, on_both_drivers, until};
use crate::unreal_rig::{BASE, Gateway, Player, Server, Wishes};

on_both_drivers!(
    a_player_gets_in_and_its_packets_go_both_ways,
    a_player_who_answers_two_challenges_plays_on,
    a_server_that_restarts_gets_its_players_back,
    another_handshake_takes_the_sessions_place_and_a_recorded_one_does_not,
    nothing_is_passed_on_twice,
    players_change_their_port_and_the_server_does_not_notice,
    players_go_to_servers_with_other_session_numbers,
    what_is_encrypted_is_passed_on_once,
    every_framing_is_served,
    every_version_is_served_on_every_base,
    a_refused_build_is_told_to_the_player,
    a_quiet_player_is_asked_to_restart,
    slots_are_free_soon_when_players_leave_and_servers_travel,
);

/// A player in front of one server.
fn one_player(wishes: &Wishes) -> (Server, Gateway, Player) {
    let server = Server::start(wishes.rules.framing, 2);
    let gateway = Gateway::start(wishes, &[&server]);
    gateway.await_servers();
    let mut player = gateway.player(5);
    player.connect();
    (server, gateway, player)
}

#[track_caller]
fn check_server(server: &Server) {
    let tally = server.tally();
    assert_eq!((tally.duplicates, tally.implausible, tally.restarts), (0, 0, 0), "{tally:?}");
}

fn a_player_gets_in_and_its_packets_go_both_ways(io: Choice) {
    let wishes = Wishes::new(io);
    let server = Server::start(wishes.rules.framing, 2);
    let gateway = Gateway::start(&wishes, &[&server]);
    gateway.await_servers();
    assert_eq!(server.connections(), 0, "looking leaves no trace");
    let mut player = gateway.player(5);
    player.connect();
    assert_eq!(server.state().connections()[0].cookie, *player.client.cookie().expect("connected"));
    (0..20).for_each(|_| player.echo());
    check_server(&server);
    assert!(server.tally().packets >= 20);
    until("the counters are published", || gateway.counters().sessions == 1);
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 1);
    assert_eq!(counters.sessions_closed[Ended::Shutdown as usize], 1);
}

/// With an idle timeout of an hour, and a server that is full with one player.
fn slots_are_free_soon_when_players_leave_and_servers_travel(io: Choice) {
    let mut wishes = Wishes { slots: 1, ..Wishes::new(io) };
    wishes.rules.idle_timeout_ns = 3_600_000_000_000;
    let (server, gateway, mut first) = one_player(&wishes);
    first.echo();
    first.say_goodbye();
    until("the server has taken the goodbye", || server.tally().goodbyes == 1);
    let mut second = gateway.player(6);
    second.connect();
    second.echo();
    server.state().travel();
    let mut third = gateway.player(7);
    third.connect();
    third.echo();
    check_server(&server);
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 3);
    assert_eq!(counters.sessions_closed[Ended::TimedOut as usize], 2);
}

/// The network has repeated the player's request.
fn a_player_who_answers_two_challenges_plays_on(io: Choice) {
    let wishes = Wishes::new(io);
    let server = Server::start(wishes.rules.framing, 2);
    let gateway = Gateway::start(&wishes, &[&server]);
    gateway.await_servers();
    let mut player = gateway.player(5);
    player.step();
    let initial = player.sent[0].clone();
    let first = player.await_datagram();
    player.send_datagram(&initial);
    let second = player.await_datagram();
    assert_ne!(first, second);
    player.step_with(&first);
    let ack = player.await_datagram();
    player.step_with(&second);
    assert_eq!(
        player.sent.len(),
        4,
        "the second is answered while the acknowledgement is on the way"
    );
    player.step_with(&ack);
    assert!(player.peer.is_some());
    (0..20).for_each(|_| player.echo());
    assert_eq!(server.connections(), 1);
    check_server(&server);
    let counters = gateway.stop();
    assert_eq!((counters.sessions_opened, server.tally().connections), (1, 1));
    assert_eq!(counters.sessions_closed[Ended::Replaced as usize], 0);
}

fn every_framing_is_served(io: Choice) {
    let magic = |bits: &[bool]| Magic::from_bits(bits).expect("at most 32");
    for framing in [
        Framing { layout: Layout::Original, ..Framing::default() },
        Framing { magic: magic(&[true, false, true, true]), ..Framing::default() },
        Framing { magic: magic(&[true; 32]), layout: Layout::Versioned },
    ] {
        let mut wishes = Wishes::new(io);
        wishes.rules.framing = framing;
        let (server, gateway, mut player) = one_player(&wishes);
        (0..3).for_each(|_| player.echo());
        check_server(&server);
        gateway.stop();
    }
}

/// The layout of the server, its version, and the versions of the listener, whose layout is the
/// long one and learns the rest.
fn every_version_is_served_on_every_base(io: Choice) {
    for (layout, version, long, versions) in [
        (Layout::Original, 0, Layout::Original, 0..=0),
        (Layout::Early, 1, Layout::Early, 1..=1),
        (Layout::Early, 1, Layout::Early, 1..=2),
        (Layout::EarlyShort, 2, Layout::Early, 1..=2),
        (Layout::Early, 2, Layout::Early, 2..=2),
        (Layout::VersionedShort, 3, Layout::Versioned, 3..=4),
        (Layout::Versioned, 3, Layout::Versioned, 3..=3),
        (Layout::Versioned, 4, Layout::Versioned, 3..=4),
    ] {
        let mut wishes = Wishes::new(io);
        let magic = Magic::from_bits(&[true, false, true]).expect("three");
        let framing = Framing { magic, layout };
        wishes.rules.framing = Framing { layout: long, ..framing };
        wishes.rules.versions = versions;
        let base = Base { version_min: version, version, ..BASE };
        let server = Server::speaking(local("127.0.0.1:0"), framing, base, 2);
        let gateway = Gateway::start(&wishes, &[&server]);
        gateway.await_servers();
        let mut player = Player::speaking(framing, base, 5, gateway.address());
        player.connect();
        (0..3).for_each(|_| player.echo());
        player.change_port();
        player.ahead_ns += 11_000_000_000;
        player.send();
        player.until("the restart", |player| player.reconnected == 1);
        (0..3).for_each(|_| player.echo());
        assert_eq!(server.connections(), 1, "{layout:?} {version}");
        check_server(&server);
        let counters = gateway.stop();
        assert_eq!((counters.sessions_opened, counters.port_switches), (1, 1));
    }
}

fn a_refused_build_is_told_to_the_player(io: Choice) {
    let mut wishes = Wishes::new(io);
    wishes.rules.network_versions = Some(vec![BASE.network_version]);
    let server = Server::start(wishes.rules.framing, 2);
    let gateway = Gateway::start(&wishes, &[&server]);
    gateway.await_servers();
    let base = Base { network_version: 1, ..BASE };
    let mut player = Player::speaking(wishes.rules.framing, base, 5, gateway.address());
    player.until("the refusal", |player| player.client.state() == State::WrongVersion);
    let counters = gateway.stop();
    assert!(counters.drops.of(DropReason::UnrealNetworkVersion) >= 1);
    assert_eq!(server.connections(), 0);
}

/// Keep-alives alone: each is shorter than the question.
fn a_quiet_player_is_asked_to_restart(io: Choice) {
    let (server, gateway, mut player) = one_player(&Wishes::new(io));
    player.echo();
    player.change_port();
    player.ahead_ns += 11_000_000_000;
    player.until("the restart", |player| {
        if player.reconnected == 0 && player.client.state() == State::Connected {
            player.send_keep_alive();
        }
        player.reconnected == 1
    });
    player.echo();
    check_server(&server);
    assert_eq!(gateway.stop().port_switches, 1);
}

fn nothing_is_passed_on_twice(io: Choice) {
    let (server, gateway, mut player) = one_player(&Wishes::new(io));
    for _ in 0..50 {
        for _ in 0..4 {
            player.send();
            let repeated = player.sent.last().expect("sent").clone();
            player.send_datagram(&repeated);
        }
        // Everything once more, as recorded: also what is older than any window.
        for datagram in player.sent.clone() {
            let _ = player.socket.send_to(&datagram, player.server);
        }
        player.echo();
    }
    check_server(&server);
    assert_eq!(player.duplicates, 0);
    let counters = gateway.stop();
    let drops = |why| counters.drops.of(why);
    assert!(drops(DropReason::ReplayDuplicate) > 1000, "{:?}", counters.drops);
}

fn what_is_encrypted_is_passed_on_once(io: Choice) {
    let mut wishes = Wishes::new(io);
    wishes.rules.duplicates = Duplicates::Opaque;
    let (server, gateway, mut player) = one_player(&wishes);
    for _ in 0..30 {
        player.send();
        let repeated = player.sent.last().expect("sent").clone();
        (0..3).for_each(|_| player.send_datagram(&repeated));
        player.echo();
    }
    check_server(&server);
    // The last ones may be in the socket yet.
    until("all repeats are dropped", || {
        gateway.counters().drops.of(DropReason::ReplayDuplicate) >= 90
    });
    gateway.stop();
}

/// With four workers, eight ports in a row are all on one worker once in sixteen thousand times;
/// then the test says nothing about forwarding and still holds.
fn players_change_their_port_and_the_server_does_not_notice(io: Choice) {
    let mut wishes = Wishes::new(io);
    wishes.workers = 4;
    let (server, gateway, mut player) = one_player(&wishes);
    for times in 1..=8 {
        player.echo();
        player.change_port();
        // An engine's client follows no request within ten seconds of its last handshake.
        player.ahead_ns += 11_000_000_000;
        player.echo();
        assert_eq!(player.reconnected, times);
    }
    assert_eq!(server.connections(), 1);
    check_server(&server);
    until("the counters are published", || gateway.counters().port_switches == 8);
    let counters = gateway.stop();
    assert_eq!((counters.sessions_opened, counters.port_switches), (1, 8));
    assert!(counters.forwarded_in > 0, "some port was another worker's");
}

fn another_handshake_takes_the_sessions_place_and_a_recorded_one_does_not(io: Choice) {
    let (server, gateway, mut player) = one_player(&Wishes::new(io));
    let recorded = player.sent.clone();
    player.echo();
    let profile = Profile { framing: player.framing, client_id: 6, base: BASE };
    player.client = Client::new(&profile, 0);
    player.peer = None;
    player.connect();
    player.echo();
    for datagram in recorded {
        let _ = player.socket.send_to(&datagram, player.server);
    }
    player.echo();
    until("the recorded response is refused", || {
        gateway.counters().drops.of(DropReason::ResponseReplayed) == 1
    });
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 2);
    assert_eq!(counters.sessions_closed[Ended::Replaced as usize], 1);
    check_server(&server);
}

fn a_server_that_restarts_gets_its_players_back(io: Choice) {
    let wishes = Wishes::new(io);
    let (server, gateway, mut player) = one_player(&wishes);
    player.echo();
    let address = server.address;
    drop(server);
    let server = Server::start_at(address, wishes.rules.framing, 2);
    until("the gateway has noticed", || {
        player.send();
        player.step();
        gateway.counters().sessions_closed[Ended::BackendGone as usize] == 1
    });
    gateway.await_servers();
    let mut again = gateway.player(6);
    again.connect();
    again.echo();
    check_server(&server);
    gateway.stop();
}

fn players_go_to_servers_with_other_session_numbers(io: Choice) {
    let mut wishes = Wishes::new(io);
    wishes.route = Route::LeastPlayers;
    let servers = [1, 2, 3].map(|session| Server::start(wishes.rules.framing, session));
    let gateway = Gateway::start(&wishes, &servers.each_ref());
    gateway.await_servers();
    let mut players: Vec<_> = (0..6).map(|client_id| gateway.player(client_id)).collect();
    for player in &mut players {
        player.connect();
        player.echo();
    }
    for server in &servers {
        assert_eq!(server.connections(), 2);
        check_server(server);
    }
    players.iter_mut().for_each(Player::echo);
    gateway.stop();
}
