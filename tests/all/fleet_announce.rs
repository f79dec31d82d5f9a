//! Game processes that register themselves with the fleet through the library, in Rust and in C:
//! they appear in etcd, get players, change their state, and die.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_link::announce::{Announcement, Standing, State as Ready};
use ringgate_link::backend::{Event, Options};

use crate::bindings::Examples;
use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_gateway::Heir;
use crate::fleet_rig::{Fleet, backend_is_up, in_fleet, key};
use crate::folder::Folder;
use crate::link_program::{self, compile};

/// A game process in a thread, which sends everything back.
pub(crate) struct Process {
    /// What it is to be from now on.
    wishes: Option<Sender<Announcement>>,
    standings: Receiver<Standing>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start(daemon: &Daemon, name: &str, what: Announcement) -> Self {
        Self::start_at(daemon.run_dir(), name, what)
    }

    /// One that connects in this folder, whoever listens there.
    pub(crate) fn start_at(run_dir: PathBuf, name: &str, what: Announcement) -> Self {
        let (wishes, wished) = channel();
        let (said, standings) = channel();
        let name = name.to_owned();
        wishes.send(what).expect("it is there");
        let thread = std::thread::spawn(move || serve(&run_dir, &name, &wished, &said));
        Self { wishes: Some(wishes), standings, thread: Some(thread) }
    }

    pub(crate) fn announce(&self, what: Announcement) {
        self.wishes.as_ref().expect("it runs").send(what).expect("it is there");
    }

    /// How it has stood since this was last looked at.
    pub(crate) fn heard(&self) -> Vec<Standing> {
        self.standings.try_iter().collect()
    }

    /// Waits until the gateway says that it stands so.
    pub(crate) fn stands(&self, wanted: Standing) {
        wait_for("the standing", || {
            self.standings.try_iter().any(|standing| standing == wanted).then_some(())
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.wishes = None;
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn serve(
    run_dir: &std::path::Path,
    name: &str,
    wished: &Receiver<Announcement>,
    said: &Sender<Standing>,
) {
    let mut backend = Options::new(run_dir, name).start().expect("descriptors are left");
    let mut standing = Standing::Waiting;
    loop {
        match wished.try_recv() {
            Ok(what) => backend.announce(&what).expect("it can be said"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
        backend.wait(Some(Duration::from_millis(5))).expect("epoll works");
        let mut events = backend.poll().expect("epoll works");
        while let Some((event, outbox)) = events.next() {
            if let Event::Payload { session, bytes } = event {
                let _ = outbox.send(session, bytes);
            }
        }
        backend.flush();
        if backend.standing() != standing {
            standing = backend.standing();
            let _ = said.send(standing);
        }
    }
}

/// What stands in etcd of a game process.
pub(crate) fn value(fleet: &Fleet, name: &str) -> Option<serde_json::Value> {
    fleet.value(&format!("/f/truth/backend/{name}"))
}

pub(crate) fn has(fleet: &Fleet, name: &str, field: &str, wanted: impl Into<serde_json::Value>) {
    let wanted = wanted.into();
    wait_for("the value in etcd", || (value(fleet, name)?[field] == wanted).then_some(()));
}

pub(crate) fn takes_players(daemon: &Daemon) {
    wait_for("players are let in", || {
        let status = daemon.status();
        let backend = &status["backends"][0];
        (backend["up"] == true && backend["intake"] != "nobody").then_some(())
    });
}

pub(crate) fn is_gone(fleet: &Fleet, name: &str) {
    wait_for("its end in etcd", || value(fleet, name).is_none().then_some(()));
}

#[test]
fn a_process_registers_itself_gets_players_and_dies() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let arena = || Announcement::new("arena", 4).label("map", "dust");
    let process = Process::start(&daemon, "arena-1", arena().state(Ready::Starting));
    process.stands(Standing::Registered);
    let first = value(&fleet, "arena-1").expect("it stands there");
    assert_eq!((&first["state"], &first["slots"]), (&"starting".into(), &4.into()));
    assert_eq!(first["labels"], serde_json::json!({ "map": "dust" }));
    assert_eq!(first["reach"]["bundle"], daemon.run_dir().display().to_string());
    backend_is_up(&daemon, "arena-1");
    process.announce(arena());
    has(&fleet, "arena-1", "state", "ready");
    takes_players(&daemon);
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    has(&fleet, "arena-1", "used", 1);
    process.announce(arena().state(Ready::Allocated).players(3));
    has(&fleet, "arena-1", "state", "allocated");
    has(&fleet, "arena-1", "used", 3);

    // Whoever comes by the same name is told so, and takes nothing along when it goes.
    let double = Process::start(&daemon, "arena-1", arena());
    double.stands(Standing::NameTaken);
    drop(double);
    player.echo(b"undisturbed");
    assert!(daemon.log().contains("fleet_announcement_refused"), "{}", daemon.log());
    let announced = daemon.get("/metrics").value("ringgate_fleet_announced");
    assert_eq!(announced, Some(1));

    // It dies: nobody new is sent there, and its player waits for the next one.
    drop(process);
    is_gone(&fleet, "arena-1");
    wait_for("it is retired", || {
        daemon.status()["backends"][0]["retired"].as_bool().filter(|it| *it)
    });
    assert!(player.is_connected());
    let _next = Process::start(&daemon, "arena-1", arena());
    player.echo(b"found again");
    // The gateway takes all of it along.
    daemon.end_at_once();
    is_gone(&fleet, "arena-1");
}

#[test]
fn a_process_in_c_registers_itself_by_the_same_call() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/announce.c");
    let mut game = link_program::Game::start(&program, &daemon.run_dir(), "arena-c");
    assert_eq!(game.line(), "registered");
    let first = value(&fleet, "arena-c").expect("it stands there");
    assert_eq!((&first["state"], &first["used"]), (&"starting".into(), &0.into()));
    assert_eq!(first["labels"], serde_json::json!({ "map": "dust", "mode": "café" }));
    backend_is_up(&daemon, "arena-c");
    game.go_on();
    has(&fleet, "arena-c", "state", "ready");
    takes_players(&daemon);
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    assert_eq!(game.line(), "1 players");
    has(&fleet, "arena-c", "state", "allocated");
    has(&fleet, "arena-c", "used", 1);
    player.leave();
    assert_eq!(game.line(), "0 players");
    has(&fleet, "arena-c", "state", "ready");
    drop(game);
    is_gone(&fleet, "arena-c");
}

#[test]
fn a_match_in_go_registers_itself_and_ends() {
    Examples::in_go().iter().for_each(play_a_match);
}

#[test]
fn a_match_in_python_registers_itself_and_ends() {
    Examples::in_python().iter().for_each(play_a_match);
}

#[test]
fn a_match_in_csharp_registers_itself_and_ends() {
    Examples::in_csharp().iter().for_each(play_a_match);
}

/// The example `match` of a language: it registers itself, players come, and it ends with the last.
fn play_a_match(examples: &Examples) {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let mut game = link_program::Game::run(examples.run("match"), &daemon.run_dir(), "match-1");
    while game.line() != Standing::Registered.text() {}
    has(&fleet, "match-1", "state", "ready");
    let value = value(&fleet, "match-1").expect("it stands there");
    assert_eq!((&value["slots"], &value["group"]), (&4.into(), &"arena".into()));
    assert_eq!(value["labels"], serde_json::json!({ "map": "dust", "mode": "café" }));
    backend_is_up(&daemon, "match-1");
    takes_players(&daemon);
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    assert_eq!(game.line(), "1 players");
    has(&fleet, "match-1", "state", "allocated");
    has(&fleet, "match-1", "used", 1);
    player.leave();
    assert_eq!(game.line(), "0 players");
    game.end();
    is_gone(&fleet, "match-1");
}

#[test]
fn a_process_stays_registered_while_its_gateway_is_upgraded() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let process = Process::start(&daemon, "arena-1", Announcement::new("arena", 4));
    process.stands(Standing::Registered);
    backend_is_up(&daemon, "arena-1");
    let mut player = Player::connected(daemon.listener, 1, &key(1));
    player.echo(b"hello");
    has(&fleet, "arena-1", "used", 1);
    let (key, revision) = ("/f/truth/backend/arena-1", fleet.revision());
    let since = || fleet.created(key);
    let before = since().expect("it stands there");
    let heir = Heir::of(&daemon);
    process.stands(Standing::Registered);
    player.echo(b"still here");
    process.announce(Announcement::new("arena", 8));
    has(&fleet, "arena-1", "slots", 8);
    let used = |value: Option<String>| {
        let value: serde_json::Value = serde_json::from_str(&value?).ok()?;
        value["used"].as_u64()
    };
    let history = fleet.history(revision).into_iter().filter(|(at, _)| at == key);
    let used: Vec<_> = history.map(|(_, value)| used(value)).collect();
    assert!(used.iter().all(|it| *it == Some(1)), "its player was there all the time: {used:?}");
    assert_eq!(since(), Some(before), "nobody has seen it go");
    drop(process);
    is_gone(&fleet, "arena-1");
    drop(heir);
}

#[test]
fn a_process_waits_for_its_gateway_and_comes_back_with_it() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    let mut text = in_fleet(&fleet, "gate-1");
    text.run_dir = Some(daemon.run_dir());
    let process = Process::start(&daemon, "arena-1", Announcement::new("arena", 4));
    process.stands(Standing::Registered);
    let mut daemon = daemon;
    daemon.signal("KILL");
    daemon.ended();
    fleet.revoke("/f/truth/gateway/gate-1");
    process.stands(Standing::Waiting);
    let again = Daemon::start(&text);
    process.stands(Standing::Registered);
    backend_is_up(&again, "arena-1");
    Player::connected(again.listener, 1, &key(1)).echo(b"and players come");
}
