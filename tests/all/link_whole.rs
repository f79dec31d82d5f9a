//! Game processes behind a whole gateway: what the library and the header promise holds with real
//! workers and real players too.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use ringgate_core::drops::DropReason;
use ringgate_io::Choice;
use ringgate_link::backend::{Backend, Event, LinkLoss, Options, Outbox};
use ringgate_link::bundle::{CloseReason, Goodbye, GoodbyeReason, SessionId};

use crate::folder::Folder;
use crate::gateway_rig::{Gateway, Player, Wishes, on_both_drivers, until, user_data_of};
use crate::link_program::{Game, compile};

on_both_drivers!(
    a_server_in_c_serves_players_and_gets_them_back_after_a_crash,
    a_server_of_the_first_release_does_so_too,
    a_game_multicasts_kicks_and_sees_who_leaves,
    a_game_that_comes_back_is_told_again_who_its_players_are,
    a_name_is_held_by_one_process_and_unknown_names_by_none,
    a_game_that_floods_waits_and_loses_nothing,
);

const PLAYERS: u64 = 6;

/// A gateway whose players wait long for a game process that is gone.
fn patient_gateway(io: Choice) -> Gateway {
    Gateway::start(&Wishes { grace_ms: 60_000, ..Wishes::new(io) })
}

fn join(gateway: &Gateway) -> Vec<Player> {
    (1..=PLAYERS)
        .map(|client_id| {
            let mut player = gateway.player(client_id);
            player.connect();
            player
        })
        .collect()
}

fn wait_for_lines(game: &mut Game, count: usize, what: &str) {
    for _ in 0..count {
        let line = game.line();
        assert!(line.contains(what), "{line}");
    }
}

fn a_server_in_c_serves_players_and_gets_them_back_after_a_crash(io: Choice) {
    let folder = Folder::new();
    let program = compile(&folder, "crates/link/examples/c/echo.c");
    serve_and_crash_and_return(io, || Command::new(&program));
}

/// The header and the example of the first release, which know one version and no range.
fn a_server_of_the_first_release_does_so_too(io: Choice) {
    let folder = Folder::new();
    let program = compile(&folder, "tests/fixtures/first_release/echo.c");
    serve_and_crash_and_return(io, || Command::new(&program));
}

/// An echo server, in whatever language, with what it has to print.
pub(crate) fn serve_and_crash_and_return(io: Choice, program: impl Fn() -> Command) {
    let gateway = patient_gateway(io);
    let mut game = Game::run(program(), gateway.run_dir(), "game");
    wait_for_lines(&mut game, 2, "is up");
    let mut players = join(&gateway);
    wait_for_lines(&mut game, players.len(), "player ");
    for player in &mut players {
        for len in [1, 100, 1200] {
            player.echo(&vec![len as u8; len]);
        }
    }

    drop(game);
    let mut game = Game::run(program(), gateway.run_dir(), "game");
    // Each link announces its players when it is up, at their next payload or keep-alive.
    let mut announced = 0;
    while announced < players.len() {
        players.iter_mut().for_each(Player::step);
        announced += usize::from(game.line().starts_with("player "));
    }
    for player in &mut players {
        player.echo(b"still the same session");
    }
    gateway.stop();
}

fn a_game_that_comes_back_is_told_again_who_its_players_are(io: Choice) {
    let gateway = patient_gateway(io);
    let mut players = Vec::new();
    for _ in 0..3 {
        let mut told = HashMap::new();
        let note = |told: &mut HashMap<_, _>, event: Event<'_>| {
            let Event::Opened(opened) = event else { return };
            told.insert(opened.client_id, *opened.user_data);
        };
        // Who is there may be told in the turn in which the links come up.
        let mut backend = linked_with(&gateway, |event| note(&mut told, event));
        if players.is_empty() {
            players = join(&gateway);
        }
        until("everybody is announced", || {
            players.iter_mut().for_each(Player::step);
            turn(&mut backend, |event, _| note(&mut told, event));
            told.len() as u64 == PLAYERS
        });
        for (client_id, user_data) in told {
            assert_eq!(user_data, user_data_of(client_id), "{client_id}");
        }
    }
    gateway.stop();
}

/// One turn of a game: every event, then one flush.
fn turn(backend: &mut Backend, mut handle: impl FnMut(Event<'_>, &mut Outbox)) {
    backend.wait(Some(Duration::from_millis(2))).expect("links work");
    let mut events = backend.poll().expect("links work");
    while let Some((event, outbox)) = events.next() {
        handle(event, outbox);
    }
    backend.flush();
}

fn linked(gateway: &Gateway) -> Backend {
    linked_with(gateway, |_| {})
}

fn linked_with(gateway: &Gateway, mut handle: impl FnMut(Event<'_>)) -> Backend {
    let mut backend = Backend::connect(gateway.run_dir(), "game").expect("the gateway listens");
    until("the links are up", || {
        turn(&mut backend, |event, _| handle(event));
        backend.is_up()
    });
    backend
}

fn a_game_multicasts_kicks_and_sees_who_leaves(io: Choice) {
    let gateway = patient_gateway(io);
    let mut backend = linked(&gateway);
    let mut players = join(&gateway);
    let mut sessions: HashMap<u64, SessionId> = HashMap::new();
    let mut slots = Vec::new();
    until("everybody is announced", || {
        turn(&mut backend, |event, _| {
            let Event::Opened(opened) = event else { return };
            assert_eq!((opened.listener, opened.slots_max), ("test", 64));
            sessions.insert(opened.client_id, opened.session);
            slots.push(opened.slot);
        });
        sessions.len() as u64 == PLAYERS
    });
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..PLAYERS as u32), "the lowest free slots, each once");

    let everybody: Vec<_> = sessions.values().copied().collect();
    assert_eq!(backend.outbox().multicast(&everybody, b"welcome all"), Ok(everybody.len()));
    until("everybody is welcomed", || {
        turn(&mut backend, |_, _| {});
        players.iter_mut().for_each(Player::step);
        players.iter().all(|player| player.received == [b"welcome all"])
    });

    backend.outbox().close(sessions[&2], CloseReason::Kicked).expect("the link is up");
    players[0].client.disconnect();
    let mut closed = Vec::new();
    until("two players are gone", || {
        turn(&mut backend, |event, _| {
            if let Event::Closed { session, reason } = event {
                closed.push((session, reason));
            }
        });
        players.iter_mut().for_each(Player::step);
        closed.len() == 2 && !players[1].client.is_connected()
    });
    assert!(closed.contains(&(sessions[&1], CloseReason::PlayerLeft)), "{closed:?}");
    assert!(closed.contains(&(sessions[&2], CloseReason::Kicked)), "{closed:?}");
    assert!(players[2].client.is_connected());
    gateway.stop();
}

fn a_name_is_held_by_one_process_and_unknown_names_by_none(io: Choice) {
    let gateway = patient_gateway(io);
    let _holder = linked(&gateway);
    for (name, reason) in
        [("game", GoodbyeReason::NameTaken), ("nobody", GoodbyeReason::NameUnknown)]
    {
        let mut refused = Options::new(gateway.run_dir(), name).start().expect("descriptors");
        let mut seen = None;
        let goodbye = LinkLoss::Goodbye(Goodbye { reason, error: None });
        until("the gateway refuses", || {
            refused.wait(Some(Duration::from_millis(2))).expect("links work");
            if let Some((Event::LinkLost { loss, .. }, _)) = refused.poll().expect("links").next() {
                seen = Some(loss);
            }
            seen.is_some()
        });
        assert_eq!(seen, Some(goodbye));
    }
    gateway.stop();
}

/// Multicasts that name one session over and over, as fast as the library takes them: each is done
/// once, all are accounted for, and in the end every player is served as before.
fn a_game_that_floods_waits_and_loses_nothing(io: Choice) {
    const AT_LEAST: u64 = 400;
    const REPEATS: u64 = 1000;
    let gateway = patient_gateway(io);
    let mut backend = Options::new(gateway.run_dir(), "game").connect().expect("a gateway");
    let mut player = None;
    let mut sessions = Vec::new();
    until("a player is there and the links are up", || {
        let _ = backend.wait(Some(Duration::from_millis(1)));
        let mut events = backend.poll().expect("links work");
        while let Some((event, _)) = events.next() {
            if let Event::Opened(opened) = event {
                sessions.push(opened.session);
            }
        }
        if backend.is_up() {
            let player = player.get_or_insert_with(|| gateway.player(1));
            player.step();
            return player.client.is_connected() && !sessions.is_empty();
        }
        false
    });
    let repeated = vec![sessions[0]; REPEATS as usize];
    let (mut taken, mut refused) = (0, 0);
    until("the flood is over", || {
        // Until it had to wait, too.
        while taken < AT_LEAST || refused == 0 {
            let sent = backend.outbox().multicast(&repeated, &taken.to_le_bytes()).expect("valid");
            backend.flush();
            if sent == 0 {
                refused += 1;
                break;
            }
            taken += 1;
        }
        player.as_mut().expect("connected").step();
        taken >= AT_LEAST && refused > 0
    });
    until("all of it has been heard", || {
        backend.flush();
        gateway.counters().payloads_from_links == taken * REPEATS
    });
    let counters = gateway.counters();
    assert_eq!(counters.drops.of(DropReason::MulticastDuplicate), taken * (REPEATS - 1));
    assert_eq!((counters.payloads_down, counters.links_refused), (taken, 0));
    let mut player = player.expect("connected");
    player.send(b"still there?");
    until("the link works as before", || {
        let _ = backend.wait(Some(Duration::from_millis(1)));
        player.step();
        let mut events = backend.poll().expect("links work");
        while let Some((event, _)) = events.next() {
            if matches!(event, Event::Payload { bytes: b"still there?", .. }) {
                return true;
            }
        }
        false
    });
    gateway.stop();
}
