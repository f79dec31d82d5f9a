//! Sessions that a game process closes after delivery, behind a running gateway: whatever happens
//! to the gateway meanwhile, and with the libraries of each language.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringgate_io::Choice;
use ringgate_link::backend::{self, Backend};
use ringgate_link::bundle::{self, CloseReason};

use crate::bindings::{Examples, go};
use crate::control_rig::wait_for;
use crate::delivery_clients::{Rig, Unlucky, build, said};
use crate::folder::Folder;
use crate::link_program::{Game, compile};
use crate::token_languages::run_well;
use crate::upgrade_rig::Line;

/// A gateway, a game process that has closed its only player after delivery, and that player, who
/// has heard nothing of it.
struct Lingering {
    line: Line,
    game: Backend,
    player: Unlucky,
    sent: Vec<Vec<u8>>,
    heard: Vec<String>,
}

impl Lingering {
    fn start() -> Self {
        let daemon = Rig::daemon(Choice::Mmsg);
        let start = backend::Options::new(daemon.run_dir(), "arena").start();
        let game = start.expect("descriptors are left");
        let player = Unlucky::connect(&Rig::token_for(&daemon, 1));
        let sent = (0..20_usize).map(|n| vec![n as u8; 1 + 300 * n]).collect();
        let line = Line::of(daemon);
        let mut all = Self { line, game, player, sent, heard: Vec::new() };
        all.until("the end is said", |it| it.heard.iter().any(|word| word == "asked"));
        all
    }

    fn until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        wait_for(what, || {
            self.step();
            is_true(self).then_some(())
        });
    }

    fn step(&mut self) {
        self.player.step();
        self.game.wait(Some(Duration::ZERO)).expect("links work");
        let mut events = self.game.poll().expect("links work");
        while let Some((event, outbox)) = events.next() {
            match event {
                backend::Event::Opened(opened) => {
                    self.player.is_deaf = true;
                    let (session, reliable) = (opened.session, bundle::Channel::Reliable(0));
                    for message in &self.sent {
                        outbox.send_message(session, reliable, message, None).expect("room");
                    }
                    let (reason, linger) = (CloseReason::Refused, Duration::from_secs(25));
                    outbox.close_after(session, reason, linger, b"old version").expect("up");
                    outbox.ask_quality(session).expect("up");
                }
                // The gateway has read all that came before.
                backend::Event::Quality { .. } => self.heard.push("asked".to_owned()),
                backend::Event::Lingered { undelivered_bytes, is_told, .. } => {
                    self.heard.push(format!("{} {is_told}", undelivered_bytes > 0));
                }
                backend::Event::Closed { reason, .. } => self.heard.push(reason.to_string()),
                _ => {}
            }
        }
        self.game.flush();
    }

    /// The player hears again, and has heard everything.
    fn ends_well(&mut self) {
        assert_eq!(self.heard, ["asked"], "it waits for its player");
        self.player.is_deaf = false;
        self.until("both have heard of the end", |it| it.player.is_over && it.heard.len() == 3);
        assert!(self.player.messages == self.sent, "{} of 20", self.player.messages.len());
        assert_eq!(self.heard[1..], ["false true", CloseReason::Refused.text()]);
        let farewell = self.player.connection.farewell().expect("it was told why");
        assert_eq!(&*farewell.text, b"old version");
    }
}

#[test]
fn an_upgrade_leaves_a_session_that_is_closed_its_time() {
    let mut all = Lingering::start();
    let (code, said) = all.line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    all.ends_well();
}

#[test]
fn a_drain_and_a_signal_leave_a_session_that_is_closed_its_time() {
    for is_signal in [false, true] {
        let mut all = Lingering::start();
        if is_signal {
            all.line.daemon.signal("TERM");
        } else {
            assert_eq!(all.line.daemon.post("/drain").status, 200);
        }
        wait_for("the drain", || (all.line.daemon.status()["state"] == "draining").then_some(()));
        all.ends_well();
        assert_eq!(all.line.daemon.ended(), Some(0), "it ends with its last player");
    }
}

#[test]
fn an_operator_ends_a_session_that_is_closed_at_once() {
    let mut all = Lingering::start();
    assert_eq!(all.line.daemon.post("/kick?client=1").status, 200);
    all.until("the game has heard of the end", |it| it.heard.len() == 3);
    assert_eq!(all.heard[1..], ["true false", CloseReason::Operator.text()]);
    all.player.is_deaf = false;
    let page = all.line.daemon.ask("/metrics");
    assert_eq!(page.sum("ringgate_messages_undelivered_total", ""), Some(20));
}

/// A player in C with a game process in each language: everything that was sent arrives, with the
/// reason and the text.
#[test]
fn a_player_in_c_hears_why_games_of_each_language_have_closed_its_session() {
    let built = Folder::new();
    let player = built.join("player");
    build(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PLAYER), &player);
    let c = || Some(Command::new(compile(&built, &format!("{TESTED}farewell.c"))));
    parts_with_its_player(&player, c, "taken 0", 60);
    if Examples::in_go().is_some() {
        let program = built.join("in-go");
        run_well(go(&["build", "-o"]).arg(&program).arg(format!("../../{TESTED}farewell.go")));
        let program = || Some(Command::new(&program));
        parts_with_its_player(&player, program, "taken <nil>", 60);
    }
    for (examples, name) in [
        (Examples::in_python(), format!("../../../{TESTED}farewell")),
        (Examples::in_csharp(), "farewell".to_owned()),
    ] {
        let program = || Some(examples.as_ref()?.run(&name));
        parts_with_its_player(&player, program, "refused -8", 1);
    }
}

/// A game process that closes the first player who comes, once it has said this.
fn parts_with_its_player(
    player: &Path,
    program: impl Fn() -> Option<Command>,
    last: &str,
    messages: u32,
) {
    let Some(mut program) = program() else { return };
    let daemon = Rig::daemon(Choice::Mmsg);
    program.stderr(Stdio::inherit());
    let mut game = Game::run(program, &daemon.run_dir(), "arena");
    daemon.ready();
    let token = daemon.folder.join("player.token");
    std::fs::write(&token, Rig::token_for(&daemon, 1).to_bytes()).expect("a file");
    let heard = said(Command::new(player).arg(&token));
    assert_eq!(heard, format!("{messages} messages, then 1: 129 adé\n"));
    while game.line() != last {}
    let told = (game.line().to_lowercase(), game.line());
    let told = (told.0.replace("true", "1"), told.1);
    assert_eq!(told, ("lingered 0 1".to_owned(), "closed 129".to_owned()));
}

const TESTED: &str = "tests/all/bindings/";

const PLAYER: &str = "crates/client-c/tests/c/farewell.c";
