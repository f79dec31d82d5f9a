//! The unit in tuning/ under systemd itself, which boots for this test in namespaces of its own: it
//! starts, is upgraded with a player on it, crashes, hangs, and stops.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_core::netcode::State;
use ringgate_os::clock;

use crate::control_rig::{KEY_HEX, Player, wait_for};

/// A process that takes words and says one line to each; both ends with its standard input.
pub(crate) struct Spoken {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Spoken {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, to, from }
    }

    /// The rest of its next line that begins so. Test programs have lines of their own.
    fn hear(&mut self, start: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).expect("text") == 0 {
                return None;
            }
            if let Some((_, rest)) = line.split_once(start) {
                return Some(rest.trim().to_owned());
            }
        }
    }

    pub(crate) fn ask(&mut self, words: &str) -> String {
        writeln!(self.to.as_mut().expect("open"), "{words}").expect("it listens");
        self.hear(ANSWER).unwrap_or_else(|| panic!("it ended when it was told to {words}"))
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// A machine with systemd, and a unit on it.
pub(crate) struct Machine {
    booted: Spoken,
    pid: String,
    unit: &'static str,
    /// Where its control socket is.
    control: &'static str,
}

impl Machine {
    /// `None`, said aloud, where there cannot be one.
    pub(crate) fn boot(unit: &'static str, control: &'static str) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/systemd/boot.sh");
        let mut command = Command::new("bash");
        command.arg(script).args(["/", env!("CARGO_BIN_EXE_ringgate")]);
        let mut booted = Spoken::start(command);
        let Some(pid) = booted.hear("booted ") else {
            let code = booted.child.wait().expect("it is ours").code();
            assert_eq!(code, Some(CANNOT_BE), "its errors are above");
            let is_required = std::env::var_os("REQUIRE_SYSTEMD").is_some_and(|it| it == "1");
            assert!(!is_required, "REQUIRE_SYSTEMD=1, but it cannot be booted here");
            eprintln!("SKIPPED: systemd cannot be booted here");
            return None;
        };
        Some(Self { booted, pid, unit, control })
    }

    /// A program in it.
    pub(crate) fn program(&self, words: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid, "-a"]).args(words.split(' '));
        command
    }

    /// What a program says that has nothing to complain about.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> String {
        let output = self.program(words).output().expect("nsenter was there");
        let said = String::from_utf8(output.stdout).expect("text");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {said}{complaint}\n{}", self.journal());
        said
    }

    pub(crate) fn write(&self, path: &str, mode: u32, text: &str) {
        let mut command = self.program(&format!("install -D -m {mode:o} /dev/stdin {path}"));
        let mut child = command.stdin(Stdio::piped()).spawn().expect("nsenter was there");
        let written = child.stdin.take().expect("piped").write_all(text.as_bytes());
        assert!(written.is_ok() && child.wait().expect("it is ours").success(), "{path}");
    }

    /// A property of the unit.
    pub(crate) fn unit(&self, property: &str) -> String {
        let said = self.run(&format!("systemctl show --value -p {property} {}", self.unit));
        said.trim().to_owned()
    }

    pub(crate) fn journal(&self) -> String {
        let words = format!("journalctl --no-pager -o cat -u {}", self.unit);
        let said = self.program(&words).output();
        String::from_utf8_lossy(&said.expect("nsenter was there").stdout).into_owned()
    }

    /// Waits until the journal has this: what a process has said may come after its end.
    pub(crate) fn tells(&self, what: &str) {
        wait_for(what, || self.journal().contains(what).then_some(()));
    }

    /// Waits until systemd has started it so many times again and it serves.
    pub(crate) fn restarted(&self, times: u32) {
        wait_for("a restart", || {
            let is_there = self.unit("NRestarts") == times.to_string();
            (is_there && self.unit("ActiveState") == "active").then_some(())
        });
    }

    /// `ringgate upgrade`: the processes before and after, as systemd knows them.
    pub(crate) fn upgrade(&self) {
        let before = self.unit("MainPID");
        let said = self.run(&format!("ringgate upgrade --control {}", self.control));
        let pid = said.strip_prefix("upgraded: process ").and_then(|rest| rest.split(' ').next());
        // It is told in a datagram, which it reads when it comes to it.
        wait_for("systemd to follow", || (Some(&*self.unit("MainPID")) == pid).then_some(()));
        assert_ne!(Some(&*before), pid, "{said}");
        wait_for("the one before to go", || {
            let mut is_there = self.program(&format!("test -d /proc/{before}"));
            (!is_there.status().expect("nsenter was there").success()).then_some(())
        });
        let state = ["ActiveState", "StatusText", "Result"].map(|name| self.unit(name));
        assert_eq!(state, ["active", "serving", "success"], "{}", self.journal());
    }

    /// `ringgate drain` and `ringgate undrain`, with players on it: to systemd neither is an end.
    pub(crate) fn drains_and_goes_on(&self) {
        for (command, status) in [("drain --deadline 1h", "draining"), ("undrain", "serving")] {
            self.run(&format!("ringgate {command} --control {}", self.control));
            wait_for(status, || (self.unit("StatusText") == status).then_some(()));
            assert_eq!(self.unit("SubState"), "running", "{command}: {}", self.journal());
        }
    }

    /// Whether its process is nobody in particular and may do nothing in particular.
    pub(crate) fn is_harmless(&self) {
        let status = self.run(&format!("cat /proc/{}/status", self.unit("MainPID")));
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
        };
        assert_ne!(field("Uid:"), "0");
        assert_eq!(field("CapEff:"), "0000000000000000");
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
    }

    /// A player in its network.
    pub(crate) fn player(&self) -> Spoken {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid, "-n"]).arg(std::env::current_exe().expect("a test binary"));
        command.args(["--exact", "systemd::the_unit_is_what_systemd_needs", "--nocapture"]);
        Spoken::start({
            command.env(ROLE, "player");
            command
        })
    }
}

/// What a player is told to do, line by line.
fn play() {
    let mut player = None;
    let mut knocking = None;
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let connected = || Player::connected(server(), number.parse().expect("a number"), KEY_HEX);
        let said = match word {
            "connect" => {
                player = Some(connected());
                "connected".to_owned()
            }
            "echo" => {
                player.as_mut().expect("a player").echo(b"hello");
                "echoed".to_owned()
            }
            "end" => format!("{:?}", player.take().expect("a player").ended()),
            "knock" => {
                knocking = Some(Knocking::start());
                "knocking".to_owned()
            }
            "rest" => knocking.take().expect("it knocks").refusals().to_string(),
            _ => panic!("{line}"),
        };
        println!("{ANSWER}{said}");
    }
}

/// Sends to the listener's port all the time: who sends to a port that is closed is told.
struct Knocking {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Knocking {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let its_end = Arc::clone(&ends);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(server()).expect("loopback");
        let thread = std::thread::spawn(move || {
            let mut refusals = 0;
            while !its_end.load(Ordering::Relaxed) {
                refusals += u32::from(socket.send(&[0; 20]).is_err());
                clock::sleep(Duration::from_millis(5));
            }
            refusals
        });
        Self { ends, thread }
    }

    fn refusals(self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sends")
    }
}

fn server() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40000))
}

/// A config with more in its first table.
fn config(gateway: &str) -> String {
    format!("[gateway]\nworkers = 2\npin = false\ndrain_timeout = \"100ms\"\n{gateway}\n{REST}")
}

const REST: &str = "[[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [\"0.0.0.0:40000\", \"127.0.0.1:40000\"]\n\
     public = [\"127.0.0.1:40000\"]\n\
     protocol_id = \"0x1122334455667788\"\nkeys = [{ credential = \"netcode.key\" }]\n\
     backends = [\"arena\"]\nmax_sessions = 100\n\n\
     [[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 4\nallow_uids = [0]\n";

#[test]
fn the_unit_is_what_systemd_needs() {
    if std::env::var_os(ROLE).is_some() {
        return play();
    }
    let Some(machine) = Machine::boot("ringgate", "/run/ringgate") else { return };
    machine.write("/etc/ringgate/gate.toml", 0o644, &config(""));
    machine.write("/etc/ringgate/netcode.key", 0o600, &format!("{KEY_HEX}\n"));
    let unit = include_str!("../../tuning/ringgate.service");
    machine.write("/etc/systemd/system/ringgate.service", 0o644, unit);
    machine.run("systemctl daemon-reload");
    it_starts_as_nobody(&machine);
    machine.run("systemd-run -q --unit=game /usr/local/bin/ringgate echo --socket /run/ringgate --name arena");
    let mut player = machine.player();
    wait_for("a game", || {
        let said = machine.run("ringgate status --json");
        let status: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        (status["backends"][0]["workers_up"] == 2).then_some(())
    });
    it_goes_on_in_another_process(&machine, &mut player);
    it_comes_back_after_a_crash(&machine, &mut player);
    it_is_ended_when_it_hangs(&machine, &mut player);
    it_stops(&machine, &mut player);
    it_gives_up_what_it_does_not_need(&machine, &mut player);
    it_lets_workers_sleep(&machine);
    it_takes_the_keys_that_there_are(&machine);
    drop(player);
    drop(machine.booted);
}

fn it_starts_as_nobody(machine: &Machine) {
    machine.run("systemctl start ringgate");
    assert_eq!(machine.unit("StatusText"), "serving");
    machine.is_harmless();
    // A socket for each worker and address.
    assert_eq!(machine.unit("NFileDescriptorStore"), "4", "{}", machine.journal());
    // systemd has them as well, but the port is the gateway's.
    let doctor =
        "env CREDENTIALS_DIRECTORY=/etc/ringgate ringgate doctor --config /etc/ringgate/gate.toml";
    let said = machine.program(doctor).output().expect("it runs").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("served from this file: UDP 0.0.0.0:40000"), "{said}");
}

fn it_goes_on_in_another_process(machine: &Machine, player: &mut Spoken) {
    player.ask("connect 1");
    player.ask("echo");
    machine.run("ringgate deny 203.0.113.0/24");
    machine.upgrade();
    player.ask("echo");
    machine.drains_and_goes_on();
    it_is_told_to_reload(machine);
    player.ask("echo");
    assert_eq!(machine.unit("NRestarts"), "0");
}

fn it_is_told_to_reload(machine: &Machine) {
    machine.write("/etc/ringgate/gate.toml", 0o644, &config("spim = \"5us\"\n"));
    let refused = machine.program("systemctl reload ringgate").output().expect("it runs");
    assert!(!refused.status.success(), "{}", machine.journal());
    machine.tells("did you mean spin?");
    machine.write("/etc/ringgate/gate.toml", 0o644, &config(""));
    machine.run("systemctl reload ringgate");
    assert_eq!(machine.unit("StatusText"), "serving", "{}", machine.journal());
    it_rotates_its_key(machine);
}

/// As docs/howto/rotate-a-key.md says: a credential is a copy of the start.
fn it_rotates_its_key(machine: &Machine) {
    let page = include_str!("../../docs/howto/rotate-a-key.md");
    let (_, chapter) = page.split_once("a copy of the\nstart").expect("the chapter");
    let lines = chapter.lines().filter_map(|line| line.strip_prefix("    ")).take(4);
    for line in lines {
        match line.strip_prefix("# keys = ") {
            Some(keys) => {
                let config = config("").replace("[{ credential = \"netcode.key\" }]", keys);
                machine.write("/etc/ringgate/gate.toml", 0o644, &config);
            }
            None => drop(machine.run(line)),
        }
    }
    for key in ["/etc/ringgate/netcode.key", "/var/lib/ringgate/2.key"] {
        let probe = format!(
            "ringgate probe --key {key} --protocol-id 0x1122334455667788 --server {}",
            server()
        );
        assert!(machine.run(&probe).contains("let in after"), "{key}");
    }
    assert_eq!(machine.unit("NRestarts"), "0", "without a restart");
}

fn it_comes_back_after_a_crash(machine: &Machine, player: &mut Spoken) {
    player.ask("knock");
    machine.run("systemctl kill -s KILL --kill-whom=main ringgate");
    machine.restarted(1);
    assert_eq!(player.ask("rest"), "0", "the port was closed");
    machine.tells("4 sockets go on that the service manager has kept");
    assert!(machine.run("ringgate denied").contains("203.0.113.0/24"), "{}", machine.journal());
    player.ask("connect 2");
    player.ask("echo");
}

fn it_is_ended_when_it_hangs(machine: &Machine, player: &mut Spoken) {
    // The process that systemd has not started itself is watched as well.
    machine.upgrade();
    player.ask("echo");
    machine.run("systemctl kill -s STOP --kill-whom=main ringgate");
    machine.restarted(2);
    machine.tells("Watchdog timeout");
    player.ask("connect 3");
    player.ask("echo");
}

fn it_stops(machine: &Machine, player: &mut Spoken) {
    machine.run("systemctl stop ringgate");
    assert_eq!(player.ask("end"), format!("{:?}", State::Disconnected));
    let state = ["ActiveState", "Result", "NFileDescriptorStore"];
    let state = state.map(|name| machine.unit(name));
    assert_eq!(state, ["inactive", "success", "0"], "{}", machine.journal());
}

fn it_gives_up_what_it_does_not_need(machine: &Machine, player: &mut Spoken) {
    machine.write("/etc/ringgate/gate.toml", 0o644, &config("confine = true\n"));
    machine.run("systemctl start ringgate");
    player.ask("connect 4");
    player.ask("echo");
    let refused = machine.program("ringgate upgrade").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(1), "{}", machine.journal());
    machine.run("systemctl stop ringgate");
}

/// With the rights of docs/howto/install.md.
fn it_lets_workers_sleep(machine: &Machine) {
    let page = include_str!("../../docs/howto/install.md");
    let (_, block) = page.split_once("systemctl edit ringgate").expect("the rights");
    let lines: Vec<_> = block.split("\n\n").nth(1).expect("them").lines().map(str::trim).collect();
    assert!(lines[0] == "[Service]" && lines.len() == 6, "{lines:?}");
    let folder = "/etc/systemd/system/ringgate.service.d";
    machine.write(&format!("{folder}/override.conf"), 0o644, &lines.join("\n"));
    machine.run("systemctl daemon-reload");
    machine.write("/etc/ringgate/gate.toml", 0o644, &config("workers_awake = \"auto\"\n"));
    machine.run("systemctl start ringgate");
    let status = machine.run("ringgate status --json");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["why_all_awake"], serde_json::Value::Null, "{status}");
    machine.is_harmless();
    machine.run("systemctl stop ringgate");
    machine.run(&format!("rm -r {folder}"));
    machine.run("systemctl daemon-reload");
}

/// A gateway without a netcode listener of its own has no such key, and one in a fleet has another.
fn it_takes_the_keys_that_there_are(machine: &Machine) {
    machine.run("rm /etc/ringgate/netcode.key");
    machine.write("/etc/ringgate/gate.toml", 0o644, &config(""));
    let refused = machine.program("systemctl start ringgate").output().expect("it runs");
    assert!(!refused.status.success(), "{}", machine.journal());
    machine.tells("keys[0].credential: found nothing in it");
    machine.run("systemctl stop ringgate");

    machine.write("/etc/ringgate/fleet.key", 0o600, &format!("{KEY_HEX}\n"));
    let fleet = "[fleet]\nendpoints = [\"http://127.0.0.1:1\"]\nprefix = \"/f\"\n\
         name = \"gate-1\"\nkey = { credential = \"fleet.key\" }\n";
    let text = config("").replace("protocol = \"netcode\"", "protocol = \"unreal\"");
    let lines =
        text.lines().filter(|line| !["protocol_id", "keys"].iter().any(|it| line.starts_with(it)));
    let text = lines.collect::<Vec<_>>().join("\n").replace(
        "link = \"bundle\"\nslots = 4\nallow_uids = [0]",
        "link = \"udp\"\naddress = \"127.0.0.1:7778\"\nslots = 4",
    );
    machine.write("/etc/ringgate/gate.toml", 0o644, &format!("{text}\n{fleet}"));
    machine.run("systemctl start ringgate");
    assert_eq!(machine.unit("StatusText"), "serving", "{}", machine.journal());
    machine.run("systemctl stop ringgate");
}

/// What a process of this test program is to do, in its environment.
const ROLE: &str = "RINGGATE_SYSTEMD_ROLE";

/// Before what a player says, for test programs say other things as well.
const ANSWER: &str = "player: ";

/// The script's exit code where something that it needs is missing.
const CANNOT_BE: i32 = 3;
