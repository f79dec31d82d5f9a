//! Players who may be in one place of a fleet only: the newer login wins wherever it is, and nobody
//! waits for etcd.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::process::Command;

use ringgate_core::netcode::State;

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, Player, wait_for};
use crate::fleet_gateway::Heir;
use crate::fleet_rig::{Fleet, in_fleet, key};
use crate::hold::Hold;

/// A gateway whose listener shares its players' ids with the fleet, and a game process.
fn unique(fleet: &Fleet, name: &str) -> (Daemon, Game) {
    unique_with(fleet, name, |_| {})
}

fn unique_with(fleet: &Fleet, name: &str, change: impl FnOnce(&mut Command)) -> (Daemon, Game) {
    let mut text = in_fleet(fleet, name);
    text.listener.push_str("unique_clients = \"fleet\"\n");
    let daemon = Daemon::start_with(&text, |command, _| change(command));
    let backend = format!("at-{name}");
    let game = fleet.plays_at(&daemon, &backend);
    (daemon, game)
}

/// Where a player is, as etcd has it.
fn place_of(fleet: &Fleet, client_id: u64) -> Option<String> {
    let value = fleet.value(&format!("/f/claim/player/arena/{client_id}"))?;
    value["gateway"].as_str().map(str::to_owned)
}

fn is_at(fleet: &Fleet, client_id: u64, gateway: &str) {
    wait_for("the claim", || (place_of(fleet, client_id)? == gateway).then_some(()));
}

#[test]
fn the_newer_login_wins_wherever_it_is() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let ((first, _game), (second, second_game)) =
        (unique(&fleet, "gate-1"), unique(&fleet, "gate-2"));
    let mut older = Player::connected(first.listener, 7, &key(1));
    let mut other = Player::connected(first.listener, 8, &key(1));
    older.echo(b"at the first");
    is_at(&fleet, 7, "gate-1");
    let mut newer = Player::connected(second.listener, 7, &key(1));
    assert_eq!(older.ended(), State::Disconnected);
    is_at(&fleet, 7, "gate-2");
    newer.echo(b"at the second");
    other.echo(b"somebody else is nobody's business");
    assert!(first.log().contains("fleet_newer_login"), "{}", first.log());
    let ousted = "ringgate_fleet_players_ousted_total{at=\"here\"}";
    wait_for("its count", || (first.get("/metrics").value(ousted) == Some(1)).then_some(()));
    let closed = "ringgate_sessions_closed_total{worker=\"0\",reason=\"newer_login\"}";
    wait_for("its count", || (first.get("/metrics").value(closed) == Some(1)).then_some(()));

    // At the same gateway it is no other.
    let mut again = Player::connected(second.listener, 7, &key(1));
    assert_eq!(newer.ended(), State::Disconnected);
    again.echo(b"once more");
    again.leave();
    wait_for("its release", || place_of(&fleet, 7).is_none().then_some(()));

    // A gateway that dies has nobody.
    Player::connected(second.listener, 9, &key(1)).echo(b"about to lose its gateway");
    is_at(&fleet, 9, "gate-2");
    drop((second, second_game));
    fleet.revoke("/f/claim/player/arena/9");
    wait_for("its lease's end", || place_of(&fleet, 9).is_none().then_some(()));
    other.echo(b"still somebody else");
}

#[test]
fn nobody_is_refused_while_etcd_is_away_and_then_the_newer_one_stays() {
    let Some(mut fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let ((first, _game), (second, _other_game)) =
        (unique(&fleet, "gate-1"), unique(&fleet, "gate-2"));
    let mut older = Player::connected(first.listener, 7, &key(1));
    is_at(&fleet, 7, "gate-1");
    fleet.kill();
    let mut newer = Player::connected(second.listener, 7, &key(1));
    newer.echo(b"nobody is asked");
    older.echo(b"nor told");
    fleet.revive();
    wait_for("the older one's end", || {
        newer.play_once(b"plays on");
        older.turn();
        (!older.is_connected()).then_some(())
    });
    is_at(&fleet, 7, "gate-2");
    newer.echo(b"stays");
}

#[test]
fn a_successor_gives_way_to_the_newer_login_too() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let ((first, _game), (second, _other_game)) =
        (unique(&fleet, "gate-1"), unique(&fleet, "gate-2"));
    let mut older = Player::connected(first.listener, 7, &key(1));
    is_at(&fleet, 7, "gate-1");
    let _heir = Heir::of(&first);
    older.echo(b"carried");
    let mut newer = Player::connected(second.listener, 7, &key(1));
    assert_eq!(older.ended(), State::Disconnected);
    newer.echo(b"at the second");
    is_at(&fleet, 7, "gate-2");
}

/// A process that has given its gateway away goes by the name of its successor in etcd, for as long
/// as it takes to end: what is said to that name is for the successor.
#[test]
fn what_is_said_to_a_successor_is_not_heard_by_the_process_before_it() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut hold = None;
    let (first, _game) = unique_with(&fleet, "gate-1", |command| {
        hold = Some(Hold::at(command, "gateway-gives Leave"));
    });
    let mut hold = hold.expect("it is held");
    let (second, _other_game) = unique(&fleet, "gate-2");
    let ids = 1..=4;
    let mut older: Vec<Player> =
        ids.clone().map(|id| Player::connected(first.listener, id, &key(1))).collect();
    ids.clone().for_each(|id| is_at(&fleet, id, "gate-1"));
    std::thread::scope(|scope| {
        let heir = scope.spawn(|| Heir::of(&first));
        assert_eq!(hold.reached(), first.id());
        for older in &mut older {
            older.echo(b"carried");
        }
        // Each claim takes a while, in which either process may look.
        let newer: Vec<Player> = ids
            .map(|id| {
                let newer = Player::connected(second.listener, id, &key(1));
                is_at(&fleet, id, "gate-2");
                newer
            })
            .collect();
        for older in &mut older {
            assert_eq!(older.ended(), State::Disconnected);
        }
        hold.release();
        drop((heir.join().expect("it was handed over"), newer));
    });
}

/// The note of a newer login is gone once it was heard, however long the copying takes.
#[test]
fn the_newer_login_wins_while_a_gateway_is_copied() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut hold = None;
    let (first, _game) = unique_with(&fleet, "gate-1", |command| {
        hold = Some(Hold::at(command, "gateway-gives Copy"));
    });
    let mut hold = hold.expect("it is held");
    let (second, _other_game) = unique(&fleet, "gate-2");
    let mut older = Player::connected(first.listener, 7, &key(1));
    is_at(&fleet, 7, "gate-1");
    std::thread::scope(|scope| {
        let heir = scope.spawn(|| Heir::of(&first));
        assert_eq!(hold.reached(), first.id());
        let _newer = Player::connected(second.listener, 7, &key(1));
        assert_eq!(older.ended(), State::Disconnected);
        hold.release();
        drop(heir.join().expect("it was handed over"));
    });
}

/// A ban that a process hears while its workers stand still already is known to its successor from
/// the beginning, and ends who plays there.
#[test]
fn a_ban_that_comes_while_a_gateway_is_given_away_ends_who_plays() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut hold = None;
    let (first, _game) = unique_with(&fleet, "gate-1", |command| {
        hold = Some(Hold::at(command, "gateway-gives Give"));
    });
    let mut hold = hold.expect("it is held");
    let (second, _other_game) = unique(&fleet, "gate-2");
    let mut player = Player::connected(first.listener, 7, &key(1));
    is_at(&fleet, 7, "gate-1");
    std::thread::scope(|scope| {
        let heir = scope.spawn(|| Heir::of(&first));
        assert_eq!(hold.reached(), first.id());
        fleet.denies(&["deny", "--client", "7"]);
        // The first hears it as soon, and says nothing of it.
        fleet.is_heard_by(&second);
        hold.release();
        assert_eq!(player.ended(), State::Disconnected);
        drop(heir.join().expect("it was handed over"));
    });
}

#[test]
fn who_keeps_the_gateway_because_its_successor_has_died_hears_again() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let mut hold = None;
    let (first, _game) = unique_with(&fleet, "gate-1", |command| {
        hold = Some(Hold::at(command, "gateway-takes Import"));
    });
    let mut hold = hold.expect("it is held");
    let (second, _other_game) = unique(&fleet, "gate-2");
    let mut older = Player::connected(first.listener, 7, &key(1));
    is_at(&fleet, 7, "gate-1");
    std::thread::scope(|scope| {
        let killed = scope.spawn(|| hold.kill());
        let control = first.control();
        let upgrade = ["upgrade".as_ref(), "--control".as_ref(), control.as_os_str()];
        assert_eq!(run(ringgate(upgrade)).code, Some(1), "{}", first.log());
        assert_ne!(killed.join().expect("it was killed"), first.id());
    });
    let _newer = Player::connected(second.listener, 7, &key(1));
    assert_eq!(older.ended(), State::Disconnected);
    is_at(&fleet, 7, "gate-2");
}
