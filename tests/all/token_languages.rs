//! The token services of `examples/tokens`, each in its language: what they mint, `ringgate token
//! inspect` reads and a running gateway lets in, over IPv4 and IPv6.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_core::netcode::ConnectToken;
use ringgate_io::Choice;

use crate::command::{ringgate, run};
use crate::folder::Folder;
use crate::gateway_rig::{Echo, Gateway, PROTOCOL_ID, Player, Wishes};

/// A file of the examples.
fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tokens").join(file)
}

/// Says aloud that a language is not tested here, unless it has to be.
pub(crate) fn skip(language: &str, what: &str) {
    assert!(std::env::var_os("REQUIRE_LANGUAGES").is_none(), "{language} is required: {what}");
    eprintln!("SKIPPED: {language} is not tested: {what}");
}

/// Where Go keeps what it has compiled: one place for all tests, which it knows how to share.
pub(crate) fn go_cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache")
}

/// Whether a command is there and does what it is told.
pub(crate) fn works(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Mints with a program that takes the examples' arguments, and holds what it mints to the gateway.
fn hold_to_the_gateway(minter: impl Fn() -> Command) {
    for (bind, second) in [("127.0.0.1:0", "[2001:db8::7:1]:40001"), ("[::1]:0", "192.0.2.3:9")] {
        let bind: SocketAddr = bind.parse().expect("an address");
        let gateway = Gateway::start(&Wishes { bind, ..Wishes::new(Choice::Mmsg) });
        let game = Echo::bundle(&gateway);
        let folder = Folder::new();
        let key = folder.file("netcode.key", gateway.key_hex(), 0o600);
        let token = folder.join("player.token");
        let servers = format!("{},{second}", gateway.address());
        let mut mint = minter();
        mint.arg(&key).args([&format!("{PROTOCOL_ID:#x}"), "18446744073709551615", &servers]);
        run_well(mint.arg(&token).arg("arena-1"));

        let mut inspect = ringgate(["token".as_ref(), "inspect".as_ref(), token.as_os_str()]);
        inspect.arg("--key").arg(&key);
        let said = run(inspect).succeeded();
        for part in ["18446744073709551615", &gateway.address().to_string(), second, "arena-1"] {
            assert!(said.contains(part), "{part} is missing:\n{said}");
        }
        let bytes = std::fs::read(&token).expect("the token was written");
        let token = ConnectToken::decode(&bytes).expect("and is one");
        let mut player = Player::new(&token, gateway.address());
        player.connect();
        player.echo(b"hello");
        drop(game);
        gateway.stop();
    }
}

pub(crate) fn run_well(command: &mut Command) {
    let output = command.output().expect("it was there a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tokens_minted_in_python_let_players_in() {
    let python = || Command::new("python3");
    let mut probe = python();
    probe.args(["-c", "import nacl.bindings"]);
    if !works(probe) {
        return skip("Python", "PyNaCl is missing");
    }
    hold_to_the_gateway(|| {
        let mut command = python();
        command.arg(example("mint.py"));
        command
    });
}

#[test]
fn tokens_minted_in_node_let_players_in() {
    let mut probe = Command::new("node");
    probe.args(["-e", "require('libsodium-wrappers')"]);
    if !works(probe) {
        return skip("Node", "libsodium-wrappers is missing (NODE_PATH says where it is)");
    }
    hold_to_the_gateway(|| {
        let mut command = Command::new("node");
        command.arg(example("mint.js"));
        command
    });
}

#[test]
fn tokens_minted_in_go_let_players_in() {
    // Distributions keep Go's packages in one tree, which is how Go finds them without a network.
    let built = Folder::new();
    let program = built.join("mint");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(example("go/mint.go"));
    build.envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"), ("GOFLAGS", "")]);
    build.env("GOCACHE", go_cache());
    if !works(build) {
        return skip("Go", "go or golang.org/x/crypto is missing");
    }
    hold_to_the_gateway(|| Command::new(&program));
}

#[test]
fn tokens_minted_in_csharp_let_players_in() {
    let built = Folder::new();
    let program = built.join("Mint.exe");
    let mut build = Command::new("mcs");
    build.arg(example("csharp/Mint.cs")).arg("-r:System.Numerics.dll");
    build.arg(format!("-out:{}", program.display()));
    if !works(build) {
        return skip("C#", "mono and its compiler are missing");
    }
    hold_to_the_gateway(|| {
        let mut command = Command::new("mono");
        command.arg(&program);
        command
    });
}
