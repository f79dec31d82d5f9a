//! An agent that is handed over from process to process by others than itself: by root, as the
//! first process of a container, and with either of the two killed on the way.
//!
//! Skipped aloud without openssl, which makes the certificates, and where we are not root.

use std::process::{Child, Command, Stdio};

use ringgate_os::process;
use ringgate_worker::handover::Channel;

use crate::agent::{
    Agent, Heir, NAMES, Program, agent_file, agent_upgrade, certificates, echo, gateway,
};
use crate::command::{Ending, ringgate, run};
use crate::control_rig::{Daemon, KEY_HEX, Player, wait_for};
use crate::control_upgrade_hostile::{killer, last_of, relay};
use crate::folder::Folder;
use crate::own::own_port;
use crate::upgrade_rig::is_root;

/// A gateway, an agent with a game process, and a player of that.
struct Rig {
    folder: Folder,
    gateway: Daemon,
    agent: Agent,
    player: Player,
    _game: Program,
}

impl Rig {
    fn start(more: &str, change: impl FnOnce(&mut Command)) -> Option<Self> {
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

    fn successor(&self, more: &[&str], input: Stdio) -> Child {
        let config = self.folder.join("agent.toml");
        let mut command = ringgate(["agent".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.arg("--take-over").args(more).stdin(input).stdout(Stdio::null());
        command.stderr(std::fs::File::create(self.folder.join("next.log")).expect("a log"));
        command.spawn().expect("the binary was built")
    }

    /// Who answers at the control socket.
    fn pid(&self) -> Option<u64> {
        let control = self.folder.join("host/control.sock");
        let words = ["status".as_ref(), "--json".as_ref(), "--control".as_ref()];
        let said = run(ringgate(words.into_iter().chain([control.as_os_str()])));
        let status: serde_json::Value = serde_json::from_str(&said.stdout).ok()?;
        status["pid"].as_u64()
    }

    /// How many trunks the gateway has seen.
    fn trunks(&self) -> serde_json::Value {
        self.gateway.ask("/status").json()["agents"][0]["trunks"].clone()
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

#[test]
fn root_takes_an_agent_over_that_may_start_no_program() {
    let Some(mut rig) = Rig::start("confine = true\n", |_| ()) else { return };
    let own = Ending(rig.successor(&[], Stdio::null()));
    wait_for("the successor", || (rig.pid() == Some(own.0.id().into())).then_some(()));
    assert_eq!(rig.agent.ended(), Some(0), "{}", rig.log("agent.log"));
    rig.player.echo(b"after");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("next.log"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", own.0.id())).expect("it runs");
    assert!(status.contains("Seccomp:\t2"), "{status}");

    // And once more: where successors come to goes along.
    let next = Ending(rig.successor(&[], Stdio::null()));
    wait_for("the next one", || (rig.pid() == Some(next.0.id().into())).then_some(()));
    rig.player.echo(b"after that");
    assert_eq!(rig.trunks(), 1, "{}", rig.log("next.log"));
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
    assert!(log.contains("nobody to take over from"), "{log}");
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

/// Between the messages of the conversation.
const STEPS: [&str; 6] = ["hello", "welcome", "prepared", "sockets", "given", "last"];

#[test]
fn whoever_is_killed_at_whichever_step_the_players_have_one_agent() {
    for is_predecessor in [true, false] {
        for step in STEPS.into_iter().chain([last_of(is_predecessor)]) {
            let Some(rig) = Rig::start("", |_| ()) else { return };
            let victim = if is_predecessor { "predecessor" } else { "successor" };
            killed_at(rig, is_predecessor, step, &format!("the {victim} is killed at {step}"));
        }
    }
}

fn killed_at(mut rig: Rig, is_predecessor: bool, step: &str, what: &str) {
    let first = rig.agent.id();
    let (its, theirs) = Channel::pair().expect("a pair");
    let input = Stdio::from(theirs.into_fd());
    let mut own = Ending(rig.successor(&["--predecessor-on-stdin"], input));
    let _heir = Heir(own.0.id());
    let agent = Channel::connect(&rig.folder.join("host/handover.sock")).expect("it listens");
    let mut open = Some(agent);
    let mut victim = killer(is_predecessor.then_some(first));
    let is_dead = relay(step, &its, &mut open, &mut own.0, &mut victim);
    assert!(is_dead, "{what}: it never came to that: {}", rig.log("next.log"));
    // As the kernel does when a process ends.
    drop(its);
    drop(open);
    rig.player.echo(b"after");
    let (sent, came) = rig.player.play_for(50);
    assert_eq!((sent, came), (50, 50), "{what}: {}", rig.log("next.log"));
    for worker in ["worker-0.sock", "worker-1.sock"] {
        assert!(rig.folder.join("host").join(worker).exists(), "{what}: {worker} is gone");
    }
    let lives = if is_predecessor { own.0.id() } else { first };
    assert_eq!(rig.pid(), Some(lives.into()), "{what}");
    // Where all was lost before it was given, the gateway has kept the player for another trunk.
    let was_lost = is_predecessor && !matches!(step, "last" | "taken");
    assert_eq!(rig.trunks(), if was_lost { 2 } else { 1 }, "{what}");
}
