//! The largest configs: what `check` takes, `run` starts, and what it refuses is one more.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::command::{Ran, ringgate, run};
use crate::config_mistakes::KEY;
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, wait_for};
use crate::folder::Folder;

/// How much of everything a config has.
#[derive(Clone, Copy)]
struct Size {
    listeners: usize,
    binds: usize,
    backends: usize,
    /// Of each listener.
    sessions: usize,
}

const SMALL: Size = Size { listeners: 1, binds: 1, backends: 1, sessions: 100 };

impl Size {
    /// The listeners but the first, which the daemon's rig writes.
    fn more_listeners(self) -> String {
        (1..self.listeners).fold(String::new(), |mut text, at| {
            let binds = vec!["\"127.0.0.1:0\""; self.binds].join(", ");
            write!(
                text,
                "[[listener]]\nname = \"l{at}\"\nprotocol = \"netcode\"\nbind = [{binds}]\nprotocol_id = {at}\n\
                 max_sessions = {}\nkeys = [{{ hex = \"{KEY}\" }}]\nbackends = [\"b0\"]\n",
                self.sessions
            )
            .expect("strings grow");
            text
        })
    }

    fn backends(self) -> String {
        self.backends_from(0)
    }

    fn backends_from(self, from: usize) -> String {
        (from..self.backends).fold(String::new(), |mut text, at| {
            write!(text, "[[backend]]\nname = \"b{at}\"\nlink = \"bundle\"\nslots = 4\n")
                .expect("strings grow");
            text
        })
    }

    /// As a config file of its own.
    fn checked(self) -> Ran {
        let all = Self { listeners: self.listeners + 1, ..self };
        let folder = Folder::new();
        let text = format!("{}{}", all.more_listeners(), all.backends());
        let file: PathBuf = folder.file("gate.toml", text, 0o600);
        run(ringgate(["check".as_ref(), file.as_os_str()]))
    }

    fn is_refused_with(self, field: &str, expected: &str) {
        let Ran { code, stderr, .. } = self.checked();
        assert_eq!(code, Some(2), "{stderr}");
        let line = stderr.lines().find(|line| line.contains(&format!(" {field}: ")));
        let line = line.unwrap_or_else(|| panic!("{field} in {stderr}"));
        assert!(line.ends_with(expected), "{line}");
    }
}

#[test]
fn each_bound_is_checked_at_its_last_and_first_wrong_value() {
    let sizes = |size: Size| size.checked().succeeded();
    sizes(Size { listeners: 256, ..SMALL });
    Size { listeners: 257, ..SMALL }
        .is_refused_with("listener", "found 257 tables [[listener]], expected at most 256");
    sizes(Size { backends: 4096, ..SMALL });
    Size { backends: 4097, ..SMALL }
        .is_refused_with("backend", "found 4097 tables [[backend]], expected at most 4096");
    sizes(Size { binds: 256, ..SMALL });
    Size { binds: 257, ..SMALL }
        .is_refused_with("listener[0].bind", "found 257 addresses, expected at most 256");
    sizes(Size { listeners: 10, sessions: 1_000_000, ..SMALL });
    let expected = "expected at most 10000000 over all listeners";
    Size { listeners: 10, sessions: 1_000_001, ..SMALL }
        .is_refused_with("listener[9].max_sessions", expected);
    Size { listeners: 100, sessions: 10_000_000, ..SMALL }
        .is_refused_with("listener[1].max_sessions", expected);
}

/// A daemon with all of them.
fn started(size: Size, sessions: usize) -> Text {
    let mut text = Text::new();
    text.gateway.push_str("io = \"mmsg\"\n");
    text.listener = text.listener.replace("\"arena\"", "\"b0\"");
    text.max_sessions = sessions;
    text.backends = size.backends();
    text.more = size.more_listeners();
    text
}

#[test]
fn the_most_listeners_and_backends_are_served() {
    let size = Size { listeners: 256, binds: 1, backends: 4096, sessions: 100 };
    let mut daemon = Daemon::start(&started(size, 100));
    let status = daemon.status();
    let count = |name: &str| status[name].as_array().map(Vec::len);
    assert_eq!((count("listeners"), count("backends")), (Some(256), Some(4096)));
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn the_most_sessions_are_served_or_refused_in_words() {
    let text = started(SMALL, 10_000_000);
    let mut daemon = Daemon::start(&text);
    wait_for("an answer", || (daemon.get("/healthz").status == 200).then_some(()));
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0), "within {PATIENCE:?}");
    // Where there is no room for them the daemon says so.
    let why = Daemon::refused_with(&text, |command| {
        let mut limited = std::process::Command::new("prlimit");
        limited.arg("--as=2147483648").arg(command.get_program()).args(command.get_args());
        *command = limited;
    });
    assert!(why.contains("set memory aside for 10000000 sessions"), "{why}");
}

#[test]
fn backends_come_and_go_without_end() {
    let size = Size { backends: 4096, ..SMALL };
    let text = started(size, 100);
    let daemon = Daemon::start(&text);
    let old = Game::start(&daemon, "b0");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"old");
    // All numbers are given out. The player's backend goes with all others but one, and its number
    // stays its own.
    let other = |from: usize| Text {
        listener: text.listener.replace("\"b0\"", &format!("\"b{from}\"")),
        backends: Size { backends: from + 1, ..SMALL }.backends_from(from),
        ..text.clone()
    };
    daemon.rewrite(&other(4095));
    assert_eq!(daemon.post("/reload").status, 200, "{}", daemon.log());
    for from in 4096..4100 {
        daemon.rewrite(&other(from));
        wait_for("a number that every worker has let go of", || {
            (daemon.post("/reload").status == 200).then_some(())
        });
        let _game = Game::start(&daemon, &format!("b{from}"));
        daemon.ready();
        let mut newcomer = Player::connected(daemon.listener, from as u64, KEY_HEX);
        newcomer.echo(b"new");
        player.echo(b"still here");
        newcomer.leave();
    }
    let status = daemon.status();
    let names = status["backends"].as_array().expect("a list").iter();
    let mut names: Vec<_> = names.filter_map(|backend| backend["name"].as_str()).collect();
    names.retain(|name| *name == "b0" || *name == "b4099");
    assert_eq!(names, ["b0", "b4099"]);
    assert_eq!(status["conservation"]["holds"], true, "{status:#}");
    player.leave();
    drop(old);
}
