//! `ringgate agent` between a gateway and game processes, all of them processes of this host: what
//! players notice of it, and of its end.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use ringgate_core::netcode::State;
use ringgate_os::process;

use crate::command::{Ending, ringgate, run, upgrade_at};
use crate::control_rig::{Daemon, KEY_HEX, Page, Player, Text, ask, request, wait_for};
use crate::folder::Folder;
use crate::oncall::row;
use crate::own::{own_address, own_ip, own_port};
use crate::tuning::{OF_AGENTS, missing};

/// A program that is killed when dropped.
pub(crate) struct Program {
    child: Ending,
    _stdout: Option<BufReader<ChildStdout>>,
}

/// An agent, where its pages are.
pub(crate) struct Agent {
    program: Program,
    control: PathBuf,
    /// Its admin address, where the file has one.
    admin: Option<SocketAddr>,
}

impl Agent {
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::start_with(folder, |_| ())
    }

    /// The same by a command that is changed before.
    pub(crate) fn start_with(folder: &Folder, change: impl FnOnce(&mut Command)) -> Self {
        let config = folder.join("agent.toml");
        let log = std::fs::File::create(folder.join("agent.log")).expect("a log file");
        let mut command = ringgate(["agent".as_ref(), "--config".as_ref(), config.as_os_str()]);
        change(&mut command);
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = Ending(child.expect("the binary was built"));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (mut control, mut admin) = (None, None);
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("text") == 0 {
                let log = std::fs::read_to_string(folder.join("agent.log")).expect("a log");
                panic!("the agent did not start: {log}");
            }
            if let Some(rest) = line.strip_prefix("control on ") {
                control = Some(folder.path().join(rest.trim()));
            } else if let Some(rest) = line.strip_prefix("admin on ") {
                admin = Some(rest.trim().parse().expect("an address"));
            } else if line == "ready\n" {
                break;
            }
        }
        let control = control.expect("it is printed");
        Self { program: Program { child, _stdout: Some(stdout) }, control, admin }
    }

    /// A page as of now.
    pub(crate) fn get(&self, path: &str) -> Page {
        ask(&self.control, path)
    }

    /// Waits for a number of its metrics.
    pub(crate) fn shows(&self, series: &str, value: u64) {
        wait_for(series, || (self.get("/metrics").value(series) == Some(value)).then_some(()));
    }

    /// Why its only trunk, or its last attempt, has ended.
    pub(crate) fn last_end(&self) -> Option<String> {
        let page = self.get("/status").json();
        page["gateways"][0]["last_end"]["reason"].as_str().map(str::to_owned)
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.child.id()
    }

    /// Waits for its end. Its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        wait_for("the agent's end", || self.program.child.try_wait().expect("ours")).code()
    }

    pub(crate) fn signal(&self, number: i32) {
        process::signal(self.program.child.id(), number).expect("it runs");
    }

    /// Tells it to end, and waits. Its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.signal(libc::SIGTERM);
        self.ended()
    }
}

/// An authority's certificate, and one that it has signed for each of these. What is for 127.0.0.1
/// is for this program's own address, too. All tests that ask for the same have the same.
pub(crate) fn certificates(folder: &Folder, names: &[(&str, &str)]) -> bool {
    type Files = Vec<(String, Vec<u8>)>;
    static MADE: Mutex<BTreeMap<String, Option<Files>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let files = made.entry(format!("{names:?}")).or_insert_with(|| {
        let first = Folder::new();
        let read = |name: String| {
            let bytes = std::fs::read(first.join(&name)).expect("it was made");
            (name, bytes)
        };
        let is_made = certificates_of_another(&first, names);
        is_made.then(|| first.names().into_iter().map(read).collect())
    });
    for (name, bytes) in files.iter().flatten() {
        folder.file(name, bytes, if name.contains(".key") { 0o600 } else { 0o644 });
    }
    files.is_some()
}

/// The same, of an authority that no other test has.
pub(crate) fn certificates_of_another(folder: &Folder, names: &[(&str, &str)]) -> bool {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(folder.path()).args(arguments.split(' ')).stdin(Stdio::null());
        command.output().is_ok_and(|said| said.status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=trunks");
    let is_made = openssl(&authority)
        && names.iter().all(|(name, alternative)| {
            let alternative = alternative.replace(LOCAL, &format!("{LOCAL},IP:{}", own_ip()));
            folder.file(&format!("{name}.ext"), format!("subjectAltName={alternative}"), 0o600);
            let asks = format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}");
            let signs = format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile {name}.ext -out {name}.pem"
            );
            openssl(&asks) && openssl(&signs)
        });
    if !is_made {
        eprintln!("SKIPPED: openssl cannot make certificates here");
    }
    is_made
}

/// The table of the agent at its gateway, with the files of a folder.
fn at_gateway(folder: &Folder, port: u16) -> String {
    let (path, ip) = (folder.path().display(), own_ip());
    format!(
        "[[agent]]\nname = \"host-7\"\nbind = \"{ip}:{port}\"\nca = \"{path}/ca.pem\"\n\
         certificate = \"{path}/gate-1.pem\"\nkey = \"{path}/gate-1.key\"\nbackends = [\"arena\"]\n"
    )
}

/// The agent's own file.
pub(crate) fn agent_file(folder: &Folder, name: &str, port: u16, backend: &str) {
    let ip = own_ip();
    let text = format!(
        "[agent]\nname = \"{name}\"\ngateways = [\"{ip}:{port}\"]\nca = \"ca.pem\"\n\
         certificate = \"host-7.pem\"\nkey = \"host-7.key\"\nrun_dir = \"host\"\ndrain_timeout = \"0s\"\n\
         [admin]\nbind = \"127.0.0.1:0\"\n\
         [[backend]]\nname = \"arena\"\nslots = 4\n{backend}"
    );
    folder.file("agent.toml", text, 0o600);
}

pub(crate) fn gateway(folder: &Folder, port: u16) -> Daemon {
    gateway_with(folder, port, |_| ())
}

/// One whose config is changed.
pub(crate) fn gateway_with(folder: &Folder, port: u16, change: impl FnOnce(&mut Text)) -> Daemon {
    Daemon::start(&gateway_text(folder, port, change))
}

/// Its config.
pub(crate) fn gateway_text(folder: &Folder, port: u16, change: impl FnOnce(&mut Text)) -> Text {
    let mut text = Text::new();
    change(&mut text);
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    text.more = at_gateway(folder, port);
    text
}

const LOCAL: &str = "IP:127.0.0.1";

pub(crate) const NAMES: &[(&str, &str)] = &[("gate-1", "IP:127.0.0.1"), ("host-7", "DNS:host-7")];

pub(crate) fn echo(arguments: &[&str]) -> Program {
    let mut command = ringgate(["echo"].iter().chain(arguments));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Program { child: Ending(child.expect("the binary was built")), _stdout: None }
}

/// A game process with the library: what the agent's file says of it, and how it is started.
fn with_library() -> (String, impl FnOnce(&Folder) -> Program) {
    let start = |folder: &Folder| {
        let run_dir = folder.join("host");
        echo(&["--socket", &run_dir.display().to_string(), "--name", "arena"])
    };
    ("link = \"bundle\"\n".to_owned(), start)
}

/// The same for a server that knows nothing of gateways.
fn unmodified() -> (String, impl FnOnce(&Folder) -> Program) {
    let address = own_address().to_string();
    let link = format!("link = \"udp\"\naddress = \"{address}\"\n");
    (link, move |_: &Folder| echo(&["--udp", &address]))
}

/// Plays over an agent that is killed, comes back, and ends in order; a gateway likewise.
fn play((backend, server): (String, impl FnOnce(&Folder) -> Program)) {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let port = own_port();
    agent_file(&folder, "host-7", port, &backend);
    let gateway = gateway(&folder, port);
    let mut agent = Agent::start(&folder);
    let _server = server(&folder);
    gateway.ready();
    assert_eq!(agent.get("/readyz").status, 200);
    let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
    player.echo(b"over the wire");
    agent.shows("ringgate_agent_players{backend=\"arena\"}", 1);
    agent.shows("ringgate_agent_workers", 3);
    let missing = missing(&gateway.get("/metrics").body, OF_AGENTS);
    assert!(missing.is_empty(), "dashboard and rules name {missing:?}");
    for number in [libc::SIGHUP, libc::SIGUSR1] {
        agent.signal(number);
        player.echo(b"it goes on");
    }
    assert_eq!(agent.get("/readyz").status, 200);

    // Its players stay at the gateway, and find the game where they left it.
    drop(agent);
    wait_for("the gateway hears of it", || (gateway.get("/readyz").status != 200).then_some(()));
    row("agent-gone").asked_at(&gateway, &[]);
    agent = Agent::start(&folder);
    player.echo(b"over another wire");
    agent.shows("ringgate_agent_players{backend=\"arena\"}", 1);

    let clean = "ringgate_agent_dropped_total{reason=\"session_unknown\"}";
    agent.shows(clean, 0);
    assert_eq!(agent.terminate(), Some(0));
    assert!(!folder.join("host/control.sock").exists(), "it tidies up");
    assert!(!folder.join("host/worker-1.sock").exists(), "it tidies up");
    assert!(player.is_connected(), "the gateway keeps the player for a while");
}

#[test]
fn players_of_a_process_behind_an_agent_survive_the_agent() {
    play(with_library());
}

#[test]
fn players_of_an_unmodified_server_behind_an_agent_survive_the_agent() {
    play(unmodified());
}

/// Changes an agent's file.
fn edit(folder: &Folder, change: impl FnOnce(String) -> String) {
    let file = std::fs::read_to_string(folder.join("agent.toml")).expect("our own");
    folder.file("agent.toml", change(file), 0o600);
}

#[test]
fn an_agent_that_is_told_to_end_gets_nobody_new_and_keeps_who_is_there() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let (backend, server) = with_library();
    let port = own_port();
    agent_file(&folder, "host-7", port, &backend);
    edit(&folder, |file| file.replace("drain_timeout = \"0s\"", "drain_timeout = \"1h\""));
    let gateway = gateway(&folder, port);
    let mut agent = Agent::start(&folder);
    let _server = server(&folder);
    gateway.ready();
    let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
    player.echo(b"over the wire");
    agent.shows("ringgate_agent_players{backend=\"arena\"}", 1);
    let intake = || gateway.ask("/status").json()["backends"][0]["intake"].clone();
    assert!(intake().is_null());

    // Asked for at the control socket, it can be called off, and has a deadline of its own.
    let asks = |word: &str, more: &[&str]| {
        let control = folder.join("host/control.sock").display().to_string();
        run(ringgate([word, "--control", &control].iter().chain(more)))
    };
    let said = asks("drain", &["--deadline", "2h"]).succeeded();
    assert_eq!(said, "draining: 1 sessions, 2 h at most\n");
    wait_for("the gateway knows", || (intake() == "nobody").then_some(()));
    assert_eq!(agent.get("/readyz").status, 503);
    assert!(agent.get("/status").json()["drain_left_ms"].as_u64() > Some(3_600_000));
    assert_eq!(asks("undrain", &[]).succeeded(), "players are taken in again\n");
    wait_for("the gateway knows", || intake().is_null().then_some(()));
    Player::connected(gateway.listener, 9, KEY_HEX).echo(b"it goes on");
    assert_eq!(agent.get("/readyz").status, 200);

    agent.signal(libc::SIGTERM);
    wait_for("the gateway knows", || (intake() == "nobody").then_some(()));
    let refused = asks("undrain", &[]);
    assert!(refused.stderr.contains("a signal has begun this drain"), "{}", refused.stderr);
    assert_eq!(gateway.ask("/status").json()["backends"][0]["up"], true);
    assert_eq!(Player::new(gateway.listener, 8, KEY_HEX).ended(), State::Denied);
    player.echo(b"still here");
    assert_eq!(agent.get("/status").json()["state"], "draining");
    player.leave();
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.ended(), Some(0));

    let _agent = Agent::start(&folder);
    wait_for("the next one takes players", || intake().is_null().then_some(()));
    gateway.ready();
    Player::connected(gateway.listener, 10, KEY_HEX).echo(b"somebody new");
}

/// Plays over an agent that is replaced twice while it runs, and once in vain.
fn play_on((backend, server): (String, impl FnOnce(&Folder) -> Program)) {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let port = own_port();
    agent_file(&folder, "host-7", port, &backend);
    let gateway = gateway(&folder, port);
    let mut agent = Agent::start(&folder);
    let _server = server(&folder);
    gateway.ready();
    let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
    player.echo(b"over the wire");
    let seen = || {
        let metrics = agent.get("/metrics");
        let value = |series: &str| metrics.value(series);
        (value("ringgate_agent_links_total"), value("ringgate_agent_players{backend=\"arena\"}"))
    };
    let mut before =
        wait_for("a player", || Some(seen()).filter(|(_, players)| *players == Some(1)));

    let mut heirs = Vec::new();
    for is_first in [true, false] {
        let upgraded = agent_upgrade(&folder);
        let said = upgraded.succeeded();
        let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
        heirs.push(Heir(pid.expect("it says which process goes on")));
        player.echo(b"over the same wire");
        let after = wait_for("its pages", || Some(seen()));
        if is_first {
            // A thread shows its newest links a little later, and its heir all of them at once.
            assert!(after.0 >= before.0 && after.1 == before.1, "{after:?} after {before:?}");
        } else {
            assert_eq!(after, before, "counts go on");
        }
        before = after;
    }
    let ended = wait_for("the first one's end", || agent.program.child.try_wait().expect("ours"));
    assert_eq!(ended.code(), Some(0));

    edit(&folder, |file| file.replace("[agent]", "[agent]\nspeed = 9"));
    let refused = agent_upgrade(&folder);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("goes on as it is"), "{}", refused.stderr);
    player.echo(b"nothing has happened");

    let status = gateway.ask("/status").json();
    let of_agent = &status["agents"][0];
    assert_eq!((&of_agent["up"], &of_agent["trunks"]), (&true.into(), &1.into()), "{of_agent}");
    let lanes = of_agent["lanes"].as_array().expect("a list");
    assert!(lanes.iter().all(|lane| lane["lost"] == serde_json::json!([0, 0])), "{of_agent}");
}

pub(crate) fn agent_upgrade(folder: &Folder) -> crate::command::Ran {
    upgrade_at(&folder.join("host/control.sock"))
}

/// A process that an agent has started.
pub(crate) struct Heir(pub(crate) u32);

impl Drop for Heir {
    fn drop(&mut self) {
        crate::upgrade_rig::kill(self.0);
    }
}

/// Who holds the token of the admin address may change things there, and start no program.
#[test]
fn an_agent_is_upgraded_through_its_control_socket_alone() {
    const TOKEN: &str = "a-token-of-the-operators";
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    agent_file(&folder, "host-7", own_port(), &with_library().0);
    folder.file("admin.token", TOKEN, 0o600);
    let token = "[admin]\ntoken = { file = \"admin.token\" }";
    edit(&folder, |file| file.replace("[admin]", token));
    let mut agent = Agent::start(&folder);
    let admin = agent.admin.expect("the file has one");
    let with_token = format!("Authorization: Bearer {TOKEN}\r\n");
    let post = |path: &str, headers: &str| {
        let page = request(admin, "POST", path, headers).expect("an answer");
        (page.status, page.body)
    };
    assert_eq!(post("/reload?dry_run=1", &with_token).0, 200, "it is the token");
    let refused = "an upgrade is asked for through the control socket\n";
    assert_eq!(post("/upgrade", &with_token), (403, refused.to_owned()));
    assert_eq!(post("/upgrade", "").0, 401);
    assert_eq!(agent.get("/status").json()["pid"], agent.id(), "it is the same process");
    let log = std::fs::read_to_string(folder.join("agent.log")).expect("a log");
    assert!(!log.contains("what=\"upgrade\"") && !log.contains("handed_over"), "{log}");

    let said = agent_upgrade(&folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    let _heir = Heir(pid.expect("it says which process goes on"));
    assert_eq!(agent.ended(), Some(0));
}

#[test]
fn a_process_behind_an_agent_plays_on_when_the_agent_is_upgraded() {
    play_on(with_library());
}

#[test]
fn an_unmodified_server_behind_an_agent_plays_on_when_the_agent_is_upgraded() {
    play_on(unmodified());
}

#[test]
fn an_agent_that_is_not_who_it_says_is_refused_by_name() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let port = own_port();
    let _gateway = gateway(&folder, port);
    agent_file(&folder, "host-8", port, "link = \"bundle\"\n");
    let agent = Agent::start(&folder);
    let why = wait_for("a refusal", || agent.last_end());
    assert_eq!(why, "unknown_agent");
    assert_eq!(agent.get("/readyz").status, 503);
    drop(agent);

    // Another authority's: neither side takes the other's word.
    assert!(certificates_of_another(&folder, &NAMES[1..]));
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let agent = Agent::start(&folder);
    assert_eq!(wait_for("a refusal", || agent.last_end()), "certificate_unknown");
}

#[test]
fn what_is_wrong_with_an_agents_file_is_said_with_its_place() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let refused = |folder: &Folder| {
        let file = folder.join("agent.toml");
        let ran = run(ringgate([
            "agent".as_ref(),
            "--check".as_ref(),
            "--config".as_ref(),
            file.as_os_str(),
        ]));
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    agent_file(&folder, "host-7", 7200, "link = \"udp\"\naddress = \"192.0.2.1:7\"\n");
    let said = refused(&folder);
    assert!(
        said.contains("backend[0].address: found 192.0.2.1:7, expected an IPv4 loopback"),
        "{said}"
    );

    agent_file(&folder, "-host", 0, "link = \"bundle\"\nspeed = 9\n");
    let said = refused(&folder);
    for part in ["agent.name: ", "agent.gateways[0]: ", "backend[0].speed: "] {
        assert!(said.contains(part), "{part} is not in {said}");
    }

    // What concerns the fleet.
    let fleet = "[fleet]\nendpoints = [\"http://127.0.0.1:2379\"]\nprefix = \"/f\"\nname = \"x\"\n";
    let wrong = "group = \"a\"\nlabels = { map = 7 }\nstate = \"asleep\"\n\
                 health = { tcp = \"127.0.0.1:1\", http = \"http://127.0.0.1:2/\" }\n";
    agent_file(&folder, "host-7", 7200, &format!("link = \"bundle\"\n{wrong}{fleet}"));
    let said = refused(&folder);
    for part in [
        "fleet.name: found a name, expected nothing: an agent is called by agent.name",
        "backend[0].labels.map: found a number, expected a text",
        "backend[0].state: found a string, expected \"ready\"",
        "backend[0].health: found 2 checks, expected exactly one of tcp, http and a2s",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    agent_file(&folder, "host-7", 7200, "link = \"bundle\"\ngroup = \"a\"\n");
    let said = refused(&folder);
    assert!(
        said.contains("backend[0].group: found group without a fleet, expected a table [fleet]"),
        "{said}"
    );

    agent_file(&folder, "host-7", 7200, "link = \"bundle\"\n");
    let check = |folder: &Folder| {
        let file = folder.join("agent.toml");
        run(ringgate(["agent".as_ref(), "--check".as_ref(), "--config".as_ref(), file.as_os_str()]))
    };
    assert!(check(&folder).succeeded().ends_with("agent.toml: ok\n"));
    let file = folder.join("agent.toml");
    let said = run(ringgate(["check".as_ref(), file.as_os_str()])).succeeded();
    assert!(said.ends_with("agent.toml: ok, an agent's\n"), "{said}");
    open_to_others(&folder.join("host-7.key"));
    let said = refused(&folder);
    assert!(said.contains("others may use (mode 0644)"), "{said}");
}

fn open_to_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(path, mode).expect("our own file");
}
