//! An agent that is handed over from process to process by others than itself: by root, as the
//! first process of a container, and with either of the two killed on the way.
//!
//! Skipped aloud without openssl, which makes the certificates, and where we are not root.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringgate_os::process;
use ringgate_process::handover::Channel;

use crate::agent::{
    Agent, Heir, NAMES, Program, agent_file, agent_upgrade, certificates, echo, gateway,
};
use crate::command::{Ending, ringgate, run};
use crate::control_rig::{Daemon, KEY_HEX, Player, wait_for};
use crate::control_upgrade_ways::{manager, manager_follows, next};
use crate::folder::Folder;
use crate::hold::Hold;
use crate::own::own_port;
use crate::upgrade_rig::{as_before, is_root, pass_changed, successor};

/// A gateway, an agent with a game process, and a player of that.
pub(crate) struct Rig {
    pub(crate) folder: Folder,
    pub(crate) gateway: Daemon,
    pub(crate) agent: Agent,
    pub(crate) player: Player,
    _game: Program,
}

impl Rig {
    pub(crate) fn start(more: &str, change: impl FnOnce(&mut Command)) -> Option<Self> {
        let (folder, port) = (Folder::new(), own_port());
        if !is_root() || !certificates(&folder, NAMES) {
            return None;
        }
        agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
        let file = std::fs::read_to_string(folder.join("agent.toml")).expect("our own");
        folder.file("agent.toml", file.replace("[agent]\n", &format!("[agent]\n{more}")), 0o600);
        let gateway = gateway(&folder, port);
        let agent = Agent::start_with(&folder, change);
        let run_dir = folder.join("host").display().to_string();
        let game = echo(&["--socket", &run_dir, "--name", "arena"]);
        gateway.ready();
        let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
        player.echo(b"before");
        Some(Self { folder, gateway, agent, player, _game: game })
    }

    fn successor(&self, change: impl FnOnce(&mut Command)) -> Child {
        let config = self.folder.join("agent.toml");
        let mut command = ringgate(["agent".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.arg("--take-over").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(self.folder.join("next.log")).expect("a log"));
        change(&mut command);
        command.spawn().expect("the binary was built")
    }

    /// Who answers at the control socket.
    pub(crate) fn pid(&self) -> Option<u64> {
        let control = self.folder.join("host/control.sock");
        let words = ["status".as_ref(), "--json".as_ref(), "--control".as_ref()];
        let said = run(ringgate(words.into_iter().chain([control.as_os_str()])));
        let status: serde_json::Value = serde_json::from_str(&said.stdout).ok()?;
        status["pid"].as_u64()
    }

    /// How many trunks the gateway has seen.
    pub(crate) fn trunks(&self) -> serde_json::Value {
        self.gateway.ask("/status").json()["agents"][0]["trunks"].clone()
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

#[test]
fn root_takes_an_agent_over_that_may_start_no_program() {
    let Some(mut rig) = Rig::start("confine = true\n", |_| ()) else { return };
    let own = Ending(rig.successor(|_| ()));
    wait_for("the successor", || (rig.pid() == Some(own.0.id().into())).then_some(()));
    assert_eq!(rig.agent.ended(), Some(0), "{}", rig.log("agent.log"));
    rig.player.echo(b"after");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("next.log"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", own.0.id())).expect("it runs");
    assert!(status.contains("Seccomp:\t2"), "{status}");

    // And once more: where successors come to goes along.
    let next = Ending(rig.successor(|_| ()));
    wait_for("the next one", || (rig.pid() == Some(next.0.id().into())).then_some(()));
    rig.player.echo(b"after that");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("next.log"));
}

#[test]
fn the_service_manager_follows_an_agent_whoever_starts_the_next_one() {
    let folder = Folder::new();
    let path = folder.join("notify");
    let heard = manager(UnixDatagram::bind(&path).expect("a socket"));
    let told = |command: &mut Command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    };
    let Some(mut rig) = Rig::start("", told) else { return };
    next(&heard, |said| said.starts_with("READY=1\n"));
    let mut heirs = Vec::new();
    // Who is started by root has nothing of the manager's in its environment, and neither has the
    // one that it starts.
    for is_by_root in [false, true, false] {
        let before = rig.pid();
        let own = is_by_root.then(|| Ending(rig.successor(|_| ())));
        let said = (!is_by_root).then(|| agent_upgrade(&rig.folder));
        assert_eq!(said.map_or(Some(0), |it| it.code), Some(0), "{}", rig.log("next.log"));
        let heir = wait_for("the next one", || rig.pid().filter(|it| Some(*it) != before));
        heirs.push((own, Heir(heir as u32)));
        manager_follows(&heard, heir);
        rig.player.echo(b"goes on");
    }
}

/// Has a program take over from whoever listens at a socket, as if both were of the release before
/// sections.
fn take_over_as_before(words: [&OsStr; 3], socket: &Path, log: &Path) -> Ending {
    let (successor, its) = successor(ringgate(words), log);
    pass_changed(&its, &Channel::connect(socket).expect("it listens"), as_before);
    Ending(successor)
}

#[test]
fn trunks_and_players_go_on_between_this_release_and_the_one_before_sections() {
    let Some(mut rig) = Rig::start("", |_| ()) else { return };
    let (file, log) = (rig.folder.join("agent.toml"), rig.folder.join("next.log"));
    let words = ["agent".as_ref(), "--config".as_ref(), file.as_os_str()];
    let agent = take_over_as_before(words, &rig.folder.join("host/handover.sock"), &log);
    wait_for("the agent", || (rig.pid() == Some(agent.0.id().into())).then_some(()));
    rig.player.echo(b"by another agent");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("next.log"));

    let (file, log) = (rig.gateway.folder.join("gate.toml"), rig.folder.join("gateway.log"));
    let words = ["run".as_ref(), "--config".as_ref(), file.as_os_str()];
    let socket = rig.gateway.run_dir().join("handover.sock");
    let gateway = take_over_as_before(words, &socket, &log);
    let pid = || rig.gateway.status()["pid"].as_u64();
    wait_for("the gateway", || (pid() == Some(gateway.0.id().into())).then_some(()));
    rig.player.echo(b"by another gateway");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("gateway.log"));
}

#[test]
fn an_agent_is_not_taken_over_by_a_user_who_could_never_connect() {
    let Some(mut rig) = Rig::start("", |_| ()) else { return };
    // Whoever it becomes reaches the folder, and none of root's files in it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(rig.folder.path(), open).expect("our folder");
    let file = std::fs::read_to_string(rig.folder.join("agent.toml")).expect("our own");
    let file = file.replace("[agent]\n", "[agent]\nuser = \"nobody\"\n");
    rig.folder.file("agent.toml", file, 0o600);
    let before = rig.pid();
    let mut next = Ending(rig.successor(|_| ()));
    let code = wait_for("its end", || next.0.try_wait().expect("it is ours")).code();
    let log = rig.log("next.log");
    assert!(code == Some(1) && log.contains("ermission denied"), "{code:?}: {log}");
    rig.player.echo(b"nothing has changed");
    assert_eq!((rig.pid(), rig.trunks()), (before, 1.into()));
}

#[test]
fn with_nobody_to_take_over_from_an_agent_starts_as_ever() {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let mut agent = Agent::start_with(&folder, |command| {
        command.arg("--take-over");
    });
    let log = std::fs::read_to_string(folder.join("agent.log")).expect("a log");
    assert!(log.contains("no process to take over from"), "{log}");
    assert_eq!(agent.terminate(), Some(0));
}

/// Has it be the first process of a namespace of processes.
fn first(command: &mut Command) {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.arg(command.get_program()).args(command.get_args());
    *command = unshare;
}

/// What a process of a namespace is called outside, whose parent is this.
fn child_of(parent: u32) -> u32 {
    let path = format!("/proc/{parent}/task/{parent}/children");
    wait_for("its child", || std::fs::read_to_string(&path).ok()?.trim().parse().ok())
}

#[test]
fn an_agent_that_is_the_first_process_of_a_container_stays_when_it_is_upgraded() {
    let Some(mut rig) = Rig::start("", first) else { return };
    let inside = child_of(rig.agent.id());
    for _ in 0..2 {
        let before = rig.pid();
        let said = agent_upgrade(&rig.folder).succeeded();
        assert!(said.starts_with("upgraded: process "), "{said}");
        wait_for("the next process", || rig.pid().filter(|now| Some(*now) != before));
        rig.player.echo(b"after");
    }
    assert_eq!(rig.trunks(), 1, "{}", rig.log("agent.log"));
    // What a container's engine tells the first process is meant for the one that serves.
    process::signal(inside, libc::SIGTERM).expect("it is there");
    assert_eq!(rig.agent.ended(), Some(0), "{}", rig.log("agent.log"));
    assert!(rig.player.is_connected(), "the gateway keeps the player for a while");
}

/// Where one of the two is killed, by the names of its steps.
const STEPS: [&str; 11] = [
    "gives Welcome",
    "gives Lend",
    "gives Copy",
    "gives Freeze",
    "gives Give",
    "gives Leave",
    "takes Hello",
    "takes Prepare",
    "takes SayPrepared",
    "takes Import",
    "takes Take",
];

#[test]
fn a_process_is_killed_at_any_step_and_the_players_have_one_agent() {
    for step in STEPS {
        let is_predecessor = step.starts_with("gives");
        let (mut hold, point) = (Hold::new(), format!("agent-{step}"));
        let told = hold.told(&point);
        let [of_first, of_second] = [is_predecessor, !is_predecessor].map(|it| it.then_some(&told));
        let change = |command: &mut Command| hold_by(command, of_first);
        let Some(rig) = Rig::start("", change) else { return };
        killed_at(rig, step, &mut hold, |command| hold_by(command, of_second));
    }
}

#[test]
fn the_command_says_who_has_the_agent_where_that_dies_once_it_has_given_all() {
    let mut hold = Hold::new();
    let told = hold.told("agent-gives Leave");
    let Some(mut rig) = Rig::start("", |command| hold_by(command, Some(&told))) else { return };
    let said = std::thread::scope(|scope| {
        let killed = scope.spawn(|| hold.kill());
        let said = agent_upgrade(&rig.folder);
        assert_eq!(killed.join().expect("it was killed"), rig.agent.id());
        said
    });
    let (first, second) = (rig.agent.id(), rig.pid().expect("an agent") as u32);
    let _heir = Heir(second);
    let expected = format!(
        "upgraded: process {second} goes on, with 1 players; process {first}, which had the agent, has died \
         before it could say how long players waited\n"
    );
    assert_eq!((said.code, said.stdout), (Some(0), expected), "{}", said.stderr);
    rig.player.echo(b"after");
    assert_eq!(rig.trunks(), 1);
}

#[test]
fn the_process_before_ends_though_whoever_asked_for_the_upgrade_has_gone() {
    let mut hold = Hold::new();
    let told = hold.told("agent-gives Freeze");
    let Some(mut rig) = Rig::start("", |command| hold_by(command, Some(&told))) else { return };
    let mut asker = UnixStream::connect(rig.folder.join("host/control.sock")).expect("it listens");
    asker.write_all(b"POST /upgrade HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it listens");
    hold.reached();
    drop(asker);
    hold.release();
    let first = u64::from(rig.agent.id());
    let heir = wait_for("the next one", || rig.pid().filter(|pid| *pid != first));
    let _heir = Heir(heir as u32);
    assert_eq!(rig.agent.ended(), Some(0), "{}", rig.log("agent.log"));
    rig.player.echo(b"after");
    assert_eq!(rig.trunks(), 1);
}

#[test]
fn which_thread_comes_to_rest_too_late_is_said_and_without_that_of_local_links_nothing_changes() {
    let mut hold = Hold::new();
    let told = hold.told("agent-rests Local");
    let Some(mut rig) = Rig::start("", |command| hold_by(command, Some(&told))) else { return };
    let refused = agent_upgrade(&rig.folder);
    hold.reached();
    let why = "the thread of local links did not come to rest in time";
    assert!(refused.code == Some(1) && refused.stderr.contains(why), "{}", refused.stderr);
    hold.release();
    rig.player.echo(b"nothing has changed");
    let _heir = upgraded(&rig);
    rig.player.echo(b"it rests in time");
    assert_eq!(rig.trunks(), 1);
}

#[test]
fn a_gateways_thread_that_comes_to_rest_too_late_is_named_and_its_trunk_begins_anew() {
    let mut hold = Hold::new();
    let told = hold.told("agent-rests Gateway");
    let Some(mut rig) = Rig::start("", |command| hold_by(command, Some(&told))) else { return };
    let _heir = upgraded(&rig);
    hold.reached();
    let log = rig.log("agent.log");
    let late = |line: &str| line.contains("agent_thread_late") && line.contains("of gateway");
    assert!(log.lines().any(late), "{log}");
    // Which finds the sockets of local links in use, and has them once the thread lets them go.
    wait_for("the next trunk", || (rig.trunks() == 2).then_some(()));
    hold.release();
    rig.player.echo(b"after");
    assert_eq!(rig.trunks(), 2);
}

/// Has another process of the same release take over.
pub(crate) fn upgraded(rig: &Rig) -> Heir {
    let said = agent_upgrade(&rig.folder).succeeded();
    Heir(said.split(' ').nth(2).and_then(|pid| pid.parse().ok()).expect("it says which goes on"))
}

pub(crate) fn hold_by(command: &mut Command, told: Option<&String>) {
    command.envs(told.map(|told| ("RINGGATE_HOLD", told)));
}

fn killed_at(mut rig: Rig, step: &str, hold: &mut Hold, change: impl FnOnce(&mut Command)) {
    let first = rig.agent.id();
    let own = Ending(rig.successor(change));
    let second = own.0.id();
    let _heir = Heir(second);
    let is_predecessor = hold.kill() == first;
    let what = format!("it is killed where it {step}");
    rig.player.echo(b"after");
    let (sent, came) = rig.player.play_for(50);
    assert_eq!((sent, came), (50, 50), "{what}: {}", rig.log("next.log"));
    for worker in ["worker-0.sock", "worker-1.sock"] {
        assert!(rig.folder.join("host").join(worker).exists(), "{what}: {worker} is gone");
    }
    let lives = if is_predecessor { second } else { first };
    assert_eq!(rig.pid(), Some(lives.into()), "{what}");
    // Where all was lost before it was given, the gateway has kept the player for another trunk.
    let was_lost = is_predecessor && step != "gives Leave";
    assert_eq!(rig.trunks(), if was_lost { 2 } else { 1 }, "{what}");
}
