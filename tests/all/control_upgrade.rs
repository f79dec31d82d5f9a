//! Handing a running gateway to the next process, with real processes: players, counters and links
//! go on, whoever is killed at whichever step, and nobody takes over who may not.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringgate::handover::{Channel, Heard, Message};
use ringgate_os::{clock, process};

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::io_rig::Rig;

const IS_ROOT: u32 = 0;

/// A hand-over that the daemon has not started itself is root's.
fn is_root() -> bool {
    let is_root = process::effective_uid() == IS_ROOT;
    if !is_root {
        eprintln!("SKIPPED: only root may take a gateway over");
    }
    is_root
}

/// A gateway that may be another process by now; whichever it is, it ends with this.
struct Line {
    daemon: Daemon,
    /// Processes that have come after the first.
    heirs: Vec<u32>,
}

impl Line {
    fn start(text: &Text) -> Self {
        let daemon = Daemon::start(text);
        Self { daemon, heirs: Vec::new() }
    }

    /// `ringgate upgrade`: its exit code and what it says.
    fn upgrade(&mut self) -> (Option<i32>, String) {
        let control = self.daemon.control();
        let ran = run(ringgate(["upgrade".as_ref(), "--control".as_ref(), control.as_os_str()]));
        if ran.code == Some(0) {
            self.heirs.push(self.pid());
        }
        (ran.code, ran.stdout + &ran.stderr)
    }

    /// The process that serves now.
    fn pid(&self) -> u32 {
        let status = wait_for("a status", || {
            let page = std::panic::catch_unwind(|| self.daemon.ask("/status")).ok()?;
            (page.status == 200).then_some(page)
        });
        status.json()["pid"].as_u64().expect("a number") as u32
    }

    fn generation(&self) -> u64 {
        self.daemon.ask("/status").json()["generation"].as_u64().expect("a number")
    }

    /// A successor that talks to us instead of the gateway.
    fn successor(&mut self) -> (Child, Channel) {
        let (ours, its) = Channel::pair().expect("a pair");
        let config = self.daemon.folder.join("gate.toml");
        let log = self.daemon.folder.join("successor.log");
        let mut command = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.args(["--take-over", "--predecessor-on-stdin"]);
        command.stdin(Stdio::from(its.into_fd())).stdout(Stdio::null());
        command.stderr(std::fs::File::create(log).expect("a log"));
        (command.spawn().expect("the binary was built"), ours)
    }

    /// What a successor connects to.
    fn connect(&self) -> Channel {
        Channel::connect(&self.daemon.run_dir().join("handover.sock")).expect("it listens")
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.daemon.folder.join(name)).unwrap_or_default()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for pid in &self.heirs {
            kill(*pid);
        }
    }
}

fn kill(pid: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).output();
}

/// Two workers over one driver.
fn text(io: &str) -> Text {
    let mut text = Text::new();
    text.gateway = format!("workers = 2\npin = false\ndrain_timeout = \"1h\"\nio = \"{io}\"\n");
    text
}

/// The drivers that there are here.
fn drivers() -> Vec<&'static str> {
    if Rig::uring_works() { vec!["mmsg", "uring"] } else { vec!["mmsg"] }
}

#[test]
fn players_counters_and_links_go_on_in_the_next_process_and_the_one_after() {
    for io in drivers() {
        let mut line = Line::start(&text(io));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let server = line.daemon.listener;
        let mut players: Vec<_> =
            (1..=4).map(|id| Player::connected(server, id, KEY_HEX)).collect();
        for player in &mut players {
            player.echo(b"before");
        }
        let before = line.daemon.status();
        for generation in 2..=4 {
            let former = line.pid();
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{io}: {said}\n{}", line.daemon.log());
            assert!(said.starts_with("upgraded: process "), "{said}");
            assert_ne!(line.pid(), former);
            assert_eq!(line.generation(), generation);
            for player in &mut players {
                let (sent, back) = player.play_for(20);
                assert_eq!(sent, back, "{io}: nothing is lost afterwards");
            }
        }
        assert_eq!(line.daemon.ended(), Some(0), "the first has left");
        let after = line.daemon.status();
        assert_eq!(after["incarnation"], before["incarnation"]);
        assert_eq!(after["started_unix_s"], before["started_unix_s"]);
        assert_eq!(after["totals"]["sessions_opened"], 4);
        assert_eq!(after["totals"]["sessions"], 4);
        assert_eq!(after["conservation"]["holds"], true, "{}", after["conservation"]);
        let came = |status: &serde_json::Value| status["totals"]["datagrams_in"].as_u64();
        let wanted = came(&before).map(|count| count + 4 * 3 * 20);
        wait_for("the counters to go on", || (came(&line.daemon.status()) >= wanted).then_some(()));
        // Who leaves is gone, and who comes has the place.
        players[0].leave();
        wait_for("one to be gone", || {
            (line.daemon.status()["totals"]["sessions"] == 3).then_some(())
        });
        Player::connected(server, 5, KEY_HEX).echo(b"new");
    }
}

#[test]
fn players_play_while_it_happens_and_lose_nothing() {
    for io in drivers() {
        let mut line = Line::start(&text(io));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let server = line.daemon.listener;
        let players: Vec<_> = (1..=4)
            .map(|id| {
                let mut player = Player::connected(server, id, KEY_HEX);
                std::thread::spawn(move || player.play_for(400))
            })
            .collect();
        for _ in 0..3 {
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{io}: {said}\n{}", line.daemon.log());
        }
        for player in players {
            let (sent, back) = player.join().expect("it plays");
            assert_eq!(sent, back, "{io}");
        }
    }
}

#[test]
fn a_signal_upgrades_too() {
    let mut line = Line::start(&text("mmsg"));
    line.daemon.signal("USR2");
    assert_eq!(line.daemon.ended(), Some(0), "{}", line.daemon.log());
    line.heirs.push(line.pid());
    assert_eq!(line.generation(), 2);
}

#[test]
fn a_successor_that_cannot_start_changes_nothing_and_says_why() {
    let mut line = Line::start(&text("mmsg"));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let mut other = text("mmsg");
    other.gateway = other.gateway.replace("workers = 2", "workers = 3");
    for (text, why) in [
        (&other, "workers: the running process has 2, this one 3"),
        (&Text { listener: "keys = 5\n".to_owned(), ..other.clone() }, "its log says why"),
    ] {
        line.daemon.rewrite(text);
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("goes on as it is") && said.contains(why), "{said}");
        player.echo(b"still here");
    }
    assert!(line.daemon.is_running());
    assert_eq!(line.generation(), 1);
}

#[test]
fn with_nobody_to_take_over_from_it_starts_as_ever_and_says_so() {
    let daemon = Daemon::start_with(&Text::new(), |command, _| {
        command.arg("--take-over");
    });
    assert!(daemon.log().contains("no gateway to take over from"), "{}", daemon.log());
    assert_eq!(daemon.status()["generation"], 1);
}

#[test]
fn what_the_operator_has_drained_and_denied_stays_so() {
    let mut line = Line::start(&text("mmsg"));
    let tell = |line: &Line, words: &[&str]| {
        let control = line.daemon.control();
        let at = ["--control".as_ref(), control.as_os_str()];
        let words = words.iter().map(std::ffi::OsStr::new).chain(at);
        run(ringgate(words))
    };
    assert_eq!(tell(&line, &["deny", "192.0.2.0/24"]).code, Some(0));
    line.daemon.post("/drain?backend=arena");
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let status = line.daemon.status();
    assert_eq!(status["backends"][0]["drained"], true, "{status}");
    let denied = tell(&line, &["denied"]).stdout;
    assert!(denied.contains("192.0.2.0/24"), "{denied}");
    let allowed = tell(&line, &["allow", "192.0.2.0/24"]);
    assert_eq!(allowed.code, Some(0), "it can be changed: {}", allowed.stderr);
    line.daemon.post("/undrain?backend=arena");
    assert_eq!(line.daemon.post("/drain").status, 200);
    let (code, said) = line.upgrade();
    assert!(code == Some(1) && said.contains("drains"), "{said}");
}

/// Steps at which one of the two is killed, between the messages of the conversation.
const STEPS: [&str; 5] = ["hello", "welcome", "prepared", "given", "taken"];

#[test]
fn whoever_is_killed_at_whichever_step_the_players_have_one_gateway() {
    if !is_root() {
        return;
    }
    for io in drivers() {
        for victim in ["predecessor", "successor"] {
            for step in STEPS {
                let what = format!("{io}: the {victim} is killed at {step}");
                killed_at(io, victim == "predecessor", step, &what);
            }
        }
    }
}

fn killed_at(io: &str, is_predecessor: bool, step: &str, what: &str) {
    let mut line = Line::start(&text(io));
    // The ports that the kernel has chosen are the next one's too, even if it has to start afresh.
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    player.echo(b"before");
    let first = line.daemon.id();
    let (mut successor, its) = line.successor();
    line.heirs.push(successor.id());
    let gateway = line.connect();
    let mut open = Some(gateway);
    let mut victim = |open: &mut Option<Channel>, successor: &mut Child| {
        if is_predecessor {
            kill(first);
            *open = None;
        } else {
            successor.kill().expect("our child");
            successor.wait().expect("our child");
        }
    };
    let is_dead = relay(step, &its, &mut open, &mut successor, &mut victim);
    assert!(is_dead, "{what}: it never came to that: {}", line.log("successor.log"));
    // As the kernel does when a process ends.
    drop(its);
    drop(open);
    if is_predecessor && matches!(step, "hello" | "welcome" | "prepared") {
        // Nothing was given: the successor starts afresh, on ports that are free.
        assert_eq!(line.pid(), successor.id(), "{what}");
        assert_eq!(line.generation(), 1, "{what}");
        return;
    }
    player.echo(b"after");
    if is_predecessor {
        assert_eq!(line.pid(), successor.id(), "{what}");
        assert_eq!(line.generation(), 2, "{what}");
    } else {
        assert_eq!(line.pid(), first, "{what}");
        assert!(line.daemon.is_running(), "{what}");
    }
}

/// Passes messages on between the two, and kills at a step. Whether it came to that.
fn relay(
    step: &str,
    its: &Channel,
    gateway: &mut Option<Channel>,
    successor: &mut Child,
    kill: &mut impl FnMut(&mut Option<Channel>, &mut Child),
) -> bool {
    let soon = Duration::from_secs(20);
    let pass = |to: &Channel, (message, fds): (Message, Vec<OwnedFd>)| {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        to.say(&message, &fds)
    };
    for expected in STEPS {
        let from_successor = matches!(expected, "hello" | "prepared" | "taken");
        loop {
            let from = if from_successor { Some(its) } else { gateway.as_ref() };
            let (heard, packet) = from.expect("it lives").hear(soon);
            let Some(packet) = packet else { return false };
            let is_it = matches!(
                (expected, heard),
                ("hello", Heard::Hello)
                    | ("welcome", Heard::Welcome)
                    | ("prepared", Heard::Prepared)
                    | ("given", Heard::Given)
                    | ("taken", Heard::Taken)
            );
            if is_it && step == expected {
                // What was said before the death is heard, but a take that is not passed on.
                if expected == "given" {
                    kill(gateway, successor);
                    let _ = pass(its, packet);
                    return true;
                }
                kill(gateway, successor);
                return true;
            }
            let to = if from_successor { gateway.as_ref() } else { Some(its) };
            if pass(to.expect("it lives"), packet).is_err() {
                return false;
            }
            if is_it {
                break;
            }
        }
    }
    false
}

#[test]
fn a_successor_that_takes_too_long_finds_that_the_gateway_goes_on() {
    if !is_root() {
        return;
    }
    for io in drivers() {
        let mut line = Line::start(&text(io));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let channel = line.connect();
        let soon = Duration::from_secs(20);
        channel.say(&Message::hello(), &[]).expect("said");
        assert_eq!(channel.hear(soon).0, Heard::Welcome);
        channel.say(&Message::Prepared, &[]).expect("said");
        // Whatever was given, it is not taken.
        while channel.hear(soon).0 != Heard::Given {}
        assert_eq!(channel.hear(soon).0, Heard::TakenBack, "{}", line.daemon.log());
        assert!(channel.say(&Message::Taken, &[]).is_err(), "the door is shut");
        player.echo(b"still here");
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{io}: it can be tried again: {said}");
        player.echo(b"and after that");
    }
}

#[test]
fn strangers_are_parted_from_and_other_users_do_not_get_in() {
    if !is_root() {
        return;
    }
    let mut line = Line::start(&text("mmsg"));
    let channel = line.connect();
    channel.say(&Message::Taken, &[]).expect("said");
    assert_eq!(channel.hear(Duration::from_secs(5)).0, Heard::Refused);
    let other = Message::Hello { conversation: 77, release: "9".to_owned(), pid: 1 };
    let channel = line.connect();
    channel.say(&other, &[]).expect("said");
    let (heard, packet) = channel.hear(Duration::from_secs(5));
    assert_eq!(heard, Heard::Refused, "{packet:?}");
    // Silent ones keep nobody from the next: each has a few seconds.
    let _silent = line.connect();
    let open = |path: &std::path::Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("our folder");
    };
    open(line.daemon.folder.path(), 0o755);
    open(&line.daemon.run_dir(), 0o755);
    let config = line.daemon.folder.join("gate.toml");
    open(&config, 0o644);
    let socket = line.daemon.run_dir().join("handover.sock");
    for (mode, why) in [(0o600, "ermission denied"), (0o666, "only root")] {
        open(&socket, mode);
        let mut command = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.arg("--take-over").uid(65_534);
        let ran = run(command);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    assert!(line.daemon.is_running());
    wait_for("the silent one to be parted from", || {
        let (code, _) = line.upgrade();
        clock::sleep(Duration::from_millis(200));
        (code == Some(0)).then_some(())
    });
}
