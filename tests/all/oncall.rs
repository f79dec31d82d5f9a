//! docs/oncall.md against real processes: each row is made here or where its id stands in another
//! test, and its command finds it. What the command says is read from the page.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringgate_os::clock::{self, Clock};

use crate::command::{ringgate, run};
use crate::control_listeners::with;
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, token, wait_for};
use crate::control_trace::Tracing;
use crate::folder::Folder;
use crate::gateway_rig;
use crate::hold::Hold;

const PAGE: &str = include_str!("../../docs/oncall.md");

/// One row of the page: what to type, and what is said then.
pub(crate) struct Row {
    command: &'static str,
    says: Vec<&'static str>,
}

/// The row with this id.
#[track_caller]
pub(crate) fn row(id: &str) -> Row {
    let anchor = format!("| <a id=\"{id}\"></a>");
    let row = PAGE.lines().find(|line| line.starts_with(&anchor)).expect(id);
    let cells: Vec<_> = row.split(" | ").collect();
    assert_eq!(cells.len(), 4, "{row}");
    let code = |at: usize| cells[at].split('`').skip(1).step_by(2);
    Row { command: code(1).next().expect("a command"), says: code(2).collect() }
}

impl Row {
    /// The only sentence that it says.
    pub(crate) fn sentence(&self) -> &'static str {
        let [sentence] = self.says[..] else { panic!("{:?}", self.says) };
        sentence
    }

    /// The words of its command, with those in capitals filled in.
    pub(crate) fn words(&self, fill: &[(&str, &str)]) -> Vec<String> {
        let filled =
            |word: &str| fill.iter().fold(word.to_owned(), |it, (old, new)| it.replace(old, new));
        let mut words: Vec<_> = self.command.split(' ').map(filled).collect();
        assert_eq!(words.remove(0), "ringgate", "{}", self.command);
        words
    }

    /// Its command as it is typed on a host whose config file this is.
    fn typed(&self, host: &Path, fill: &[(&str, &str)]) -> Command {
        let mut command = ringgate(self.words(fill));
        command.env("RINGGATE_CONFIG", host);
        command
    }

    /// What its command says on that host, which is what the page says.
    #[track_caller]
    pub(crate) fn asked(&self, host: &Path, fill: &[(&str, &str)]) -> String {
        let ran = run(self.typed(host, fill));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        self.is_in(&said, fill);
        said
    }

    /// The same on the host of a gateway.
    #[track_caller]
    pub(crate) fn asked_at(&self, daemon: &Daemon, fill: &[(&str, &str)]) -> String {
        self.asked(&daemon.folder.join("gate.toml"), fill)
    }

    /// A page of the admin address, where that is what its command reads.
    #[track_caller]
    pub(crate) fn read_at(&self, daemon: &Daemon) -> String {
        let (_, path) = self.command.split_once("curl -s http://ADMIN").expect("a page");
        let said = daemon.get(path).body;
        self.is_in(&said, &[]);
        said
    }

    #[track_caller]
    pub(crate) fn is_in(&self, said: &str, fill: &[(&str, &str)]) {
        for says in &self.says {
            let says = fill.iter().fold((*says).to_owned(), |it, (old, new)| it.replace(old, new));
            assert!(said.contains(&says), "{says:?} is missing in {said}");
        }
    }

    /// Its command, which goes on.
    pub(crate) fn tracing(&self, daemon: &Daemon, whom: &str) -> Tracing {
        let fill = ["ID", "PREFIX", "IP"].map(|word| (word, whom));
        let fill = [&fill[..], &[("1m", "10ms")]].concat();
        Tracing::of(self.typed(&daemon.folder.join("gate.toml"), &fill))
    }

    /// The same, and it has told what the page says.
    #[track_caller]
    fn traced_at(&self, daemon: &Daemon, whom: &str, make: impl FnOnce()) {
        let mut tracing = self.tracing(daemon, whom);
        make();
        tracing.told(&self.sentence().replace("PREFIX", whom));
    }
}

/// A gateway that players can play at.
fn serving(text: &Text) -> (Daemon, Game) {
    let daemon = Daemon::start(text);
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    (daemon, game)
}

/// Every id of a row.
fn ids() -> impl Iterator<Item = &'static str> {
    PAGE.split("<a id=\"").skip(1).map(|rest| rest.split('"').next().expect("an id"))
}

#[test]
fn every_row_is_made_by_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all");
    let files = std::fs::read_dir(folder).expect("it is there");
    let files = files.map(|file| file.expect("an entry").path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let code: String = files.map(|path| std::fs::read_to_string(path).expect("text")).collect();
    let not_made: Vec<_> = ids().filter(|id| !code.contains(&format!("\"{id}\""))).collect();
    assert_eq!(not_made, Vec::<&str>::new());
    let all: std::collections::BTreeSet<_> = ids().collect();
    assert_eq!(all.len(), ids().count(), "an id stands twice");
}

#[test]
fn every_alert_leads_to_its_row() {
    let rules = include_str!("../../tuning/prometheus/ringgate.rules.yml");
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 25);
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        let (_, url) =
            alert.split_once("runbook_url: \"").unwrap_or_else(|| panic!("{name} has none"));
        let (page, id) = url.split_once('"').expect("it ends").0.split_once('#').expect("a row");
        assert!(page.ends_with("/oncall.md"), "{name} leads to {page}");
        assert!(ids().any(|it| it == id), "{name} leads to {id}");
    }
}

#[test]
fn all_servers_are_drained() {
    let (daemon, _game) = serving(&Text::new());
    let mut drain = ringgate(["drain", "arena", "--control"]);
    drain.arg(daemon.control());
    run(drain).succeeded();
    for id in [row("all-drained"), row("drained")] {
        let said = id.asked_at(&daemon, &[]);
        assert!(said.contains("takes nobody new"), "{said}");
    }
    assert_eq!(daemon.get("/readyz?listener=eu").status, 503);
}

#[test]
fn a_gateway_is_frozen() {
    let (daemon, _game) = serving(&Text::new());
    daemon.signal("STOP");
    row("frozen").asked_at(&daemon, &[]);
    daemon.signal("CONT");
}

#[test]
fn nothing_of_an_isp_arrives() {
    let (daemon, _game) = serving(&Text::new());
    row("one-isp").traced_at(&daemon, "203.0.113.0/24", || {});
}

/// A worker that comes late, as one without its processor does, is seen in the stage `queue`.
#[test]
fn the_gateway_is_late() {
    let mut text = Text::new();
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let (daemon, _game) = serving(&text);
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    let file = daemon.histogram_file();
    let late = Duration::from_millis(250);
    let row = row("lag");
    wait_for("the stage to be long", || {
        daemon.signal("STOP");
        let stopped = Clock::start();
        while stopped.now_ns() < late.as_nanos() as u64 {
            player.turn();
        }
        daemon.signal("CONT");
        player.echo(b"hello");
        let file = file.display().to_string();
        let ran = run(ringgate(row.words(&[("FILES", &file)])));
        let line = ran.stdout.lines().find(|line| line.starts_with(row.sentence()))?;
        // … max, its unit, mean, its unit
        let mut words = line.split_whitespace().rev().skip(2);
        let unit = words.next()?;
        let longest: f64 = words.next()?.parse().ok()?;
        let is_long = unit == "s" || unit == "ms" && longest >= late.as_secs_f64() * 800.0;
        is_long.then_some(())
    });
}

/// A game process whose every answer takes that long.
#[test]
fn a_game_process_answers_late() {
    let game = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut text = Text::new();
    let address = game.local_addr().expect("bound");
    text.backends = format!(
        "[[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 4\n"
    );
    let takes = Duration::from_millis(300);
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = game.recv_from(&mut buffer) {
            clock::sleep(takes);
            let _ = game.send_to(&buffer[..len], from);
        }
    });
    let daemon = Daemon::start(&text);
    daemon.ready();
    // Port 0 of its file is not where players come.
    let file = std::fs::read_to_string(daemon.folder.join("gate.toml")).expect("it is there");
    let file = file.replace(
        "bind = [\"127.0.0.1:0\"]\nprotocol_id",
        &format!("bind = [\"{}\"]\nprotocol_id", daemon.listener),
    );
    let file = daemon.folder.file("players.toml", file, 0o600).display().to_string();
    let row = row("slow-game");
    let said = row.asked_at(&daemon, &[("FILE", &file)]);
    let (_, after) = said.split_once(row.sentence()).expect("it was said");
    let ms: f64 = after.split_whitespace().next().and_then(|it| it.parse().ok()).expect("a time");
    assert!(ms >= takes.as_secs_f64() * 1000.0 && after.contains(" ms"), "{said}");
}

/// While nobody reads, more comes than a receive buffer holds.
#[test]
fn receive_buffers_overflow() {
    let mut text = Text::new();
    text.listener.push_str("filter = false\n");
    let (daemon, _game) = serving(&text);
    let flood = UdpSocket::bind("127.0.0.1:0").expect("a port");
    wait_for("an overflow", || {
        daemon.signal("STOP");
        for _ in 0..20_000 {
            let _ = flood.send_to(&[0; 1200], daemon.listener);
        }
        daemon.signal("CONT");
        let said = row("overflow").asked_at(&daemon, &[]);
        let page: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        (page["totals"]["socket_overflows"].as_u64() > Some(0)).then_some(())
    });
}

#[test]
fn a_game_process_does_not_read() {
    let daemon = Daemon::start(&Text::new());
    let mut game = ringgate(["echo", "--name", "arena", "--socket"]);
    game.arg(daemon.run_dir()).stdout(Stdio::piped());
    let mut game = crate::command::Ending(game.spawn().expect("the binary was built"));
    let mut said = BufReader::new(game.stdout.take().expect("piped")).lines();
    said.next().expect("a line").expect("text");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    ringgate_os::process::signal(game.id(), libc::SIGSTOP).expect("ours");
    wait_for("a full link", || {
        (0..500).for_each(|_| player.play_once(&[7; 1000]));
        let drops = daemon.get("/metrics?as_of=now").sum("ringgate_drops_total", "");
        let status = daemon.status();
        (drops > Some(0) && status["drops"]["link_full"].as_u64() > Some(0)).then_some(())
    });
    row("link-full").asked_at(&daemon, &[]);
    ringgate_os::process::signal(game.id(), libc::SIGCONT).expect("ours");
}

#[test]
fn a_players_packets_come_twice_and_from_another_port() {
    let (daemon, _game) = serving(&Text::new());
    let mut player =
        gateway_rig::Player::new(&token(&[daemon.listener], 7, KEY_HEX, 600), daemon.listener);
    player.connect();
    player.echo(b"hello");
    row("late-packets").traced_at(&daemon, "7", || {
        let again = player.write(b"twice");
        for _ in 0..2 {
            player.socket.send_to(&again, daemon.listener).expect("loopback takes it");
        }
    });
    row("port-switch").traced_at(&daemon, "7", || {
        player.socket = gateway_rig::socket_toward(daemon.listener);
        player.echo(b"from here");
    });
}

#[test]
fn a_game_process_has_died_with_its_players() {
    let (daemon, game) = serving(&Text::new());
    let _player = Player::connected(daemon.listener, 4711, KEY_HEX);
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));
    let said = row("who-is-there").asked_at(&daemon, &[("NAME", "arena")]);
    assert!(said.contains("4711"), "{said}");
    drop(game);
    wait_for("its end", || (daemon.status()["backends"][0]["workers_up"] == 0).then_some(()));
    row("server-down").asked_at(&daemon, &[]);
}

#[test]
fn a_server_is_full() {
    let mut text = Text::new();
    text.backends = text.backends.replace("slots = 4", "slots = 1");
    let (daemon, _game) = serving(&text);
    let _first = Player::connected(daemon.listener, 1, KEY_HEX);
    let mut second = Player::new(daemon.listener, 2, KEY_HEX);
    row("server-full").traced_at(&daemon, "2", || {
        wait_for("an answer", || {
            second.turn();
            second.is_denied().then_some(())
        });
    });
}

/// On a host that has a megabyte: what tells of memory there is in its place for one process.
#[test]
fn memory_is_short() {
    let folder = Folder::new();
    let little = folder.file("meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n", 0o644);
    let mut text = Text::new();
    text.max_sessions = 10_000;
    let (daemon, _game) = serving(&text);
    let file = daemon.folder.join("gate.toml").display().to_string();
    let row = row("memory");
    let mut doctor = Command::new("unshare");
    let script = "mount --bind \"$0\" /proc/meminfo && exec \"$@\"";
    doctor.args(["--mount", "sh", "-c", script]).arg(little);
    doctor.arg(ringgate([""; 0]).get_program()).args(row.words(&[("FILE", &file)]));
    let can = Command::new("unshare").args(["--mount", "true"]).output();
    if !can.is_ok_and(|ran| ran.status.success()) {
        return eprintln!("SKIPPED: another view of /proc takes root and the program `unshare`");
    }
    let ran = run(doctor);
    row.is_in(&format!("{}{}", ran.stdout, ran.stderr), &[]);
    assert!(ran.stdout.contains("for 10,000 sessions, 1.05 MB free"), "{}", ran.stdout);
}

#[test]
fn a_gateway_was_started_anew() {
    let run_dir = Folder::new();
    let text = Text { run_dir: Some(run_dir.path().to_owned()), ..Text::new() };
    let (daemon, game) = serving(&text);
    let before = daemon.status();
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    daemon.signal("KILL");
    drop((daemon, game));
    let (daemon, _game) = serving(&text);
    row("restarted").asked_at(&daemon, &[]);
    let after = daemon.status();
    assert_ne!(before["incarnation"], after["incarnation"]);
    assert_eq!(after["totals"]["sessions"], 0, "all of its players have to connect again");
}

/// A worker stops at a point by its name, and goes on from there when it may.
#[test]
fn a_worker_does_not_report() {
    let (mut text, mut hold) = (Text::new(), None);
    text.gateway.push_str("reserve_sessions = 1000\n");
    let daemon = Daemon::start_with(&text, |command, _| {
        hold = Some(Hold::at(command, "worker Sockets"));
    });
    let mut hold = hold.expect("it was begun");
    daemon.rewrite(&with(&text, "us", "127.0.0.1:0"));
    daemon.signal("HUP");
    hold.reached();
    let row = row("worker-stuck");
    wait_for("what is said of a worker", || {
        let ran = run(row.typed(&daemon.folder.join("gate.toml"), &[]));
        ran.stdout.contains(row.sentence()).then_some(())
    });
    // And what a container's engine asks.
    let image = include_str!("../../tuning/container/Dockerfile");
    let check = image.lines().find(|line| line.starts_with("HEALTHCHECK")).expect("there is one");
    let words = check.split_once("CMD ").and_then(|(_, it)| serde_json::from_str(it).ok());
    let mut words: Vec<String> = words.expect("a list");
    *words.last_mut().expect("the socket") = daemon.control().display().to_string();
    let check = || run(ringgate(&words[1..])).code;
    assert_eq!(check(), Some(1));
    hold.release();
    // It turns once, and has the new listener's tables to make.
    wait_for("the worker", || (check() == Some(0)).then_some(()));
}

/// A gateway whose books do not balance is not to be had, so its page says what it would.
#[test]
fn datagrams_are_not_accounted_for() {
    let (daemon, _game) = serving(&Text::new());
    let mut page = daemon.ask("/status").json();
    page["conservation"]["holds"] = false.into();
    let page = page.to_string();
    let folder = Folder::new();
    let host = folder.file("gate.toml", "[gateway]\nrun_dir = \".\"\n", 0o600);
    let door = UnixListener::bind(folder.join("control.sock")).expect("a new folder");
    std::thread::spawn(move || {
        for stream in door.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = BufReader::new(stream.try_clone().expect("it is open")).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
            stream.write_all(format!("{head}{page}").as_bytes()).expect("it is read");
        }
    });
    row("not-accounted").asked(&host, &[]);
}

#[test]
fn a_listener_and_a_server_are_nearly_full() {
    let mut text = Text::new();
    text.max_sessions = 1;
    text.backends = text.backends.replace("slots = 4", "slots = 1");
    let (daemon, _game) = serving(&text);
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));
    let said = row("nearly-full").asked_at(&daemon, &[]);
    for name in ["eu", "arena"] {
        let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert!(lines.any(|line| line.starts_with(&[name, "1", "1"])), "{name}: {said}");
    }
}

#[test]
fn a_reload_is_refused() {
    let (daemon, _game) = serving(&Text::new());
    let wrong = daemon.folder.file("wrong.toml", "[gateway]\nspim = 1\n", 0o600);
    row("config-refused").asked_at(&daemon, &[("FILE", &wrong.display().to_string())]);
}
