//! An agent that has given up what it does not need: it still does everything that it is there for.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::os::unix::fs::{PermissionsExt, chown};

use ringgate_os::process;
use ringgate_process::confine::User;

use crate::agent::{Agent, NAMES, Program, agent_file, agent_upgrade, certificates, echo, gateway};
use crate::agent_reload::reload;
use crate::command::{ringgate, run};
use crate::control_rig::{KEY_HEX, Player, wait_for};
use crate::folder::Folder;
use crate::own::{own_address, own_port};

/// More in the agent's first table.
fn say(folder: &Folder, more: &str) {
    let file = std::fs::read_to_string(folder.join("agent.toml")).expect("our own");
    folder.file("agent.toml", file.replace("[agent]\n", &format!("[agent]\n{more}")), 0o600);
}

/// What the kernel says of a process.
fn kernel_says(agent: &Agent, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

fn log(folder: &Folder) -> String {
    std::fs::read_to_string(folder.join("agent.log")).unwrap_or_default()
}

/// A gateway comes when the agent is confined, players play, the server comes and goes, and the
/// agent ends.
fn live(folder: &Folder, port: u16, mut agent: Agent, server: impl Fn(&Folder) -> Program) {
    assert_eq!(kernel_says(&agent, "Seccomp"), "2", "{}", log(folder));
    assert_eq!(kernel_says(&agent, "NoNewPrivs"), "1");
    // So it is looked up, connected to, and its lanes' sockets are made, with what is left.
    let gateway = gateway(folder, port);
    let running = server(folder);
    gateway.ready();
    let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
    player.echo(b"confined");
    agent.shows("ringgate_agent_players{backend=\"arena\"}", 1);
    let socket = std::fs::metadata(folder.join("host/worker-2.sock")).expect("it was made");
    assert_eq!(socket.permissions().mode() & 0o777, 0o666, "game processes of other users");
    drop(running);
    wait_for("its end", || (gateway.get("/readyz").status != 200).then_some(()));
    let _running = server(folder);
    player.echo(b"again");
    let refused = agent_upgrade(folder);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("a confined daemon cannot start programs"),
        "{}",
        refused.stderr
    );
    player.echo(b"and again");
    assert_eq!(agent.terminate(), Some(0), "{}", log(folder));
    let left = std::fs::read_dir(folder.join("host")).expect("it is there").count();
    assert_eq!(left, 0, "its sockets are removed");
}

fn game(folder: &Folder) -> Program {
    echo(&["--socket", &folder.join("host").display().to_string(), "--name", "arena"])
}

#[test]
fn a_confined_agent_of_a_bundle_backend_lacks_nothing() {
    let (folder, port) = (Folder::new(), own_port());
    if certificates(&folder, NAMES) {
        agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
        say(&folder, "confine = true\n");
        let agent = Agent::start(&folder);
        live(&folder, port, agent, game);
    }
}

#[test]
fn a_confined_agent_of_an_unmodified_server_lacks_nothing() {
    let (folder, port) = (Folder::new(), own_port());
    if certificates(&folder, NAMES) {
        let address = own_address().to_string();
        agent_file(&folder, "host-7", port, &format!("link = \"udp\"\naddress = \"{address}\"\n"));
        say(&folder, "confine = true\n");
        let agent = Agent::start(&folder);
        live(&folder, port, agent, |_| echo(&["--udp", &address]));
    }
}

#[test]
fn an_agent_becomes_who_it_should_be() {
    if process::effective_uid() != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    // The game process is this test's, whoever the agent becomes.
    agent_file(&folder, "host-7", port, "link = \"bundle\"\nallow_uids = [0]\n");
    say(&folder, "user = \"nobody\"\nconfine = true\n");
    let nobody = User::named("nobody").expect("every system has one");
    // Whoever it becomes reads its files for each connection.
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("our folder");
    for name in ["agent.toml", "host-7.key"] {
        chown(folder.join(name), Some(nobody.uid), None).expect("we are root");
    }
    for name in ["ca.pem", "host-7.pem"] {
        let open = PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(folder.join(name), open).expect("our own file");
    }
    let agent = Agent::start(&folder);
    assert_eq!(kernel_says(&agent, "Uid"), [nobody.uid.to_string().as_str(); 4].join(" "));
    assert_eq!(kernel_says(&agent, "Groups"), "");
    assert_eq!(kernel_says(&agent, "CapEff"), "0000000000000000");
    live(&folder, port, agent, game);
}

#[test]
fn an_agent_that_cannot_become_somebody_says_so_before_it_makes_anything() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    agent_file(&folder, "host-7", 7200, "link = \"bundle\"\n");
    say(&folder, "user = \"nobody-has-this-name\"\n");
    let file = folder.join("agent.toml");
    let ran = run(ringgate(["agent".as_ref(), "--config".as_ref(), file.as_os_str()]));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot become user nobody-has-this-name"), "{}", ran.stderr);
    assert!(!folder.join("host").exists());
}

#[test]
fn certificates_outside_the_confinement_are_not_read() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    // Nobody is there, so it tries again and again, and reads its files each time.
    agent_file(&folder, "host-7", own_port(), "link = \"bundle\"\n");
    say(&folder, "confine = true\n");
    let agent = Agent::start(&folder);
    if log(&folder).contains("Landlock") {
        eprintln!("SKIPPED: this kernel has no Landlock");
        return;
    }
    assert_eq!(wait_for("an attempt", || agent.last_end()), "connection");
    let elsewhere = Folder::new();
    let ca = std::fs::read_to_string(folder.join("ca.pem")).expect("it was made");
    let ca = elsewhere.file("ca.pem", ca, 0o644);
    let file = std::fs::read_to_string(folder.join("agent.toml")).expect("our own");
    let file = file.replace("\"ca.pem\"", &format!("\"{}\"", ca.display()));
    folder.file("agent.toml", file, 0o600);
    let refused = reload(&folder, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("ermission denied"), "{}", refused.stderr);
    assert!(!log(&folder).contains("reason=\"certificate\""), "{}", log(&folder));
    // A name in its folder leads there, too.
    std::fs::remove_file(folder.join("ca.pem")).expect("it was made");
    std::os::unix::fs::symlink(&ca, folder.join("ca.pem")).expect("our own folder");
    wait_for("a refusal", || agent.last_end().filter(|reason| reason == "certificate").map(drop));
    assert!(log(&folder).contains("ermission denied"), "{}", log(&folder));
}
