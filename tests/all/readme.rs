//! What the first pages tell an operator to type, typed: the README's quick start; what is pasted
//! in front of a server of one's own, an unmodified UDP server behind the daemon, and renetcode's
//! client in front of it, on both drivers; and the same for Unreal servers and for any other.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use renetcode::{ClientAuthentication, ConnectToken, NetcodeClient};
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_io::Choice;
use ringgate_os::clock;

use crate::command::{Ending, Ran, ringgate, run};
use crate::folder::Folder;
use crate::gateway_rig::{Renet, on_both_drivers, socket_toward, until};
use crate::own::own_address;
use crate::unreal_rig::Player as UnrealPlayer;

on_both_drivers!(
    the_readme_serves_an_unmodified_server,
    the_readme_serves_an_unreal_server,
    the_readme_serves_any_server
);

/// A program that ends with its owner, and what it has said so far.
struct Program {
    child: Ending,
    said: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("the binary was built");
        let mut child = Ending(child);
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, said }
    }

    /// The rest of the next line that begins so.
    fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.said.read_line(&mut line).expect("text");
            assert!(len > 0, "it ended without a line that begins with {start}");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("kill is there");
        assert!(sent.success());
        self.child.wait().expect("it is ours").code()
    }
}

/// What a newcomer with a server of its own pastes, and reads.
const OWN_SERVER: &str = include_str!("../../docs/start/own-server.md");

/// One of that page's blocks of this kind.
fn block(kind: &str, number: usize) -> &'static str {
    let rest = OWN_SERVER.split(&format!("```{kind}\n")).nth(1 + number);
    rest.expect("the page has this block").split_once("```").expect("which ends").0
}

/// With our commands first.
fn path() -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_ringgate")).parent().expect("it lies in a folder");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

const fn driver_name(io: Choice) -> &'static str {
    match io {
        Choice::Mmsg => "mmsg",
        _ => "uring",
    }
}

/// With one thing in it replaced, which must be there.
fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "what is pasted has no {old}");
    text.replace(old, new)
}

/// A gateway with this config, which is right: the program, and where its listener is.
fn serving(folder: &Folder, text: &str, io: Choice, listener: &str) -> (Program, SocketAddr) {
    let file = folder.file("gate.toml", text, 0o600);
    run(ringgate(["check".as_ref(), file.as_os_str()])).succeeded();
    let mut daemon =
        Program::start(ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]));
    let address = daemon.line(&format!("listener {listener} on ")).parse().expect("an address");
    assert!(daemon.line("ready: ").contains(&format!("driver {}", driver_name(io))));
    (daemon, address)
}

/// One of the page's configs for a server on loopback: whatever ports are free, one of the
/// drivers, and little time to end.
fn on_loopback(number: usize, ports: [u16; 2], server: &str, io: Choice) -> String {
    let [public, local] = ports;
    let text = with(block("toml", number), &format!("0.0.0.0:{public}"), "127.0.0.1:0");
    let text = with(&text, &format!("127.0.0.1:{local}"), server);
    format!(
        "[gateway]\nio = \"{}\"\nstate_dir = \"state\"\ndrain_timeout = \"1s\"\n\n{text}",
        driver_name(io)
    )
}

/// Everything in the quick start but the build, by a shell, in a folder and at ports of its own.
#[test]
fn the_quick_start_works_when_pasted() {
    let readme = include_str!("../../README.md");
    let rest = readme.split("```sh\n").nth(1).expect("the README has a quick start");
    let mut script = rest.split_once("```").expect("which ends").0.to_owned();
    let folder = Folder::new();
    let bin = Path::new(env!("CARGO_BIN_EXE_ringgate")).parent().expect("it lies in a folder");
    script = with(&script, "cargo build --release -p ringgate ", "# ");
    script = with(&script, "$PWD/target/release", &bin.display().to_string());
    for port in [40000, 7777, 9464] {
        script = with(&script, &format!("127.0.0.1:{port}"), &own_address().to_string());
    }
    // Whatever happens, what it has started ends with it; and a failure on the way is one.
    let script = format!("set -em\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}wait\n");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).current_dir(folder.path()).env_remove("RINGGATE_LOG");
    let Ran { code, stdout, stderr } = run(shell);
    let said = format!("{stdout}\n--- stderr\n{stderr}");
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "challenged",
        "let in (slot 0 of 64)",
        "answered with 5 bytes, the same",
        "since the start: 1 session",
        "listener quick on ",
        "every datagram and payload is accounted for",
    ] {
        assert!(stdout.contains(part), "{part:?} is missing:\n{said}");
    }
}

fn the_readme_serves_an_unmodified_server(io: Choice) {
    let folder = Folder::new();
    let mut game = Program::start(ringgate(["echo", "--udp", "127.0.0.1:0"]));
    let game_address = game.line("echo: udp on ");

    // What is pasted as it stands, up to the gateway itself.
    let pasted = block("sh", 0);
    assert!(!pasted.contains("/etc/"), "not everybody may write there");
    let (script, last) = pasted.trim_end().rsplit_once('\n').expect("more than one line");
    assert_eq!(last, "ringgate run --config gate.toml");
    // What it finds of this host is not ours to judge.
    let mut script = with(script, "ringgate doctor --config gate.toml ", ": ");
    for (old, new) in [
        ("state_dir = ", format!("io = \"{}\"\nstate_dir = ", driver_name(io))),
        ("0.0.0.0:40000", "127.0.0.1:0".to_owned()),
        // Port 0 cannot be told to players beforehand; a test reads it instead.
        ("public = ", "# public = ".to_owned()),
        ("127.0.0.1:7777", game_address),
    ] {
        script = with(&script, old, &new);
    }
    let mut shell = Command::new("bash");
    shell.arg("-ec").arg(script).current_dir(folder.path()).env("PATH", path());
    run(shell).succeeded();
    let key = folder.join("netcode.key");
    let text = std::fs::read_to_string(folder.join("gate.toml")).expect("it was pasted");
    let (mut daemon, address) = serving(&folder, &text, io, "eu-west");

    let token = folder.join("player.token");
    let mut mint = ringgate(["token", "mint", "--protocol-id", "0x1122334455667788"]);
    mint.args(["--client-id", "7", "--server", &address.to_string(), "--key"]).arg(&key);
    mint.arg("--out").arg(&token);
    run(mint).succeeded();
    let bytes = std::fs::read(&token).expect("the token was written");
    // renetcode's own file form has the client id in front of the standard one.
    let file = [&7_u64.to_le_bytes()[..], &bytes].concat();
    let connect_token = ConnectToken::read(&mut file.as_slice()).expect("renetcode reads it");
    let now = Duration::from_secs(clock::unix_seconds());
    let client = NetcodeClient::new(now, ClientAuthentication::Secure { connect_token });
    let mut player = Renet::new(client.expect("a client"), socket_toward(address));
    player.connect();
    for payload in [&b"hello"[..], &[7; 1200]] {
        let mut tries = 0;
        until("the echo is back", || {
            if tries % 200 == 0 {
                player.send(payload);
            }
            tries += 1;
            player.step().iter().any(|echo| echo == payload)
        });
    }
    player.disconnect();
    assert_eq!(daemon.terminate(), Some(0), "SIGTERM drains and exits 0");
}

fn the_readme_serves_an_unreal_server(io: Choice) {
    let folder = Folder::new();
    let mut game = Program::start(ringgate(["echo", "--unreal", "127.0.0.1:0"]));
    let game_address = game.line("echo: unreal on ");
    let text = on_loopback(0, [7777, 7778], &game_address, io);
    let (mut daemon, address) = serving(&folder, &text, io, "shooter");
    let mut player = UnrealPlayer::new(Framing::default(), 5, address);
    player.connect();
    (0..3).for_each(|_| player.echo());
    assert_eq!(daemon.terminate(), Some(0), "SIGTERM drains and exits 0");
}

fn the_readme_serves_any_server(io: Choice) {
    let folder = Folder::new();
    let mut game = Program::start(ringgate(["echo", "--udp", "127.0.0.1:0"]));
    let game_address = game.line("echo: udp on ");
    let text = on_loopback(1, [7000, 7001], &game_address, io);
    let (mut daemon, address) = serving(&folder, &text, io, "any");
    let player = socket_toward(address);
    for payload in [&b"hello"[..], &[7; 1], &[9; 1472]] {
        let (mut tries, mut echo) = (0, [0; 2000]);
        until("the echo is back", || {
            if tries % 200 == 0 {
                player.send_to(payload, address).expect("loopback takes it");
            }
            tries += 1;
            player.recv(&mut echo).is_ok_and(|len| echo[..len] == *payload)
        });
    }
    assert_eq!(daemon.terminate(), Some(0), "SIGTERM drains and exits 0");
}

/// Whoever knows nothing but the first page is one step from each of these: a command, and a link
/// to its page. That links lead somewhere, `house_rules` holds.
#[test]
fn the_first_page_answers_the_commonest_questions_in_one_step() {
    let readme = include_str!("../../README.md");
    let (_, table) = readme.split_once("## Answers in one step\n").expect("the table");
    let table = table.split("\n## ").next().expect("it ends");
    for question in [
        "rotate a key",
        "one ISP cannot get in",
        "p99 since noon",
        "upgrade?",
        "players are on server 7",
        "hosts for 200,000",
        "block a cheater everywhere",
        "roll back?",
    ] {
        let row = table.lines().find(|line| line.contains(question)).expect(question);
        let answer = row.split('|').nth(2).expect("a second column");
        assert!(answer.contains("`ringgate ") && answer.contains("](docs/"), "{row}");
    }
    assert!(
        readme.rsplit("\n## ").next().expect("a chapter").starts_with("How much does it carry?")
    );
}
