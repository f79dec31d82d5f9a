//! Games' clients against a running gateway: the Rust client, and the C library over it, with a
//! game server that sends each message back.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringgate_client::{Channel, Client, Event, Options, Reason};
use ringgate_core::netcode::{self, ConnectToken, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_io::Choice;
use ringgate_os::clock;

use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, KEY_HEX, PATIENCE, PROTOCOL_ID, Text};
use crate::gateway_rig::on_both_drivers;
use crate::upgrade_rig;

on_both_drivers!(
    a_rust_client_sends_and_gets_messages_of_every_kind,
    a_program_in_c_sends_and_gets_messages,
);

/// A gateway that delivers messages, and `ringgate echo` behind it.
struct Rig {
    _echo: Ending,
    daemon: Daemon,
}

impl Rig {
    fn start(io: Choice) -> Self {
        let mut config: Text = upgrade_rig::text(if io == Choice::Mmsg { "mmsg" } else { "uring" });
        config.listener.push_str("delivery = \"gateway\"\n");
        let daemon = Daemon::start(&config);
        let mut echo = ringgate(["echo", "--name", "arena", "--socket"]);
        echo.arg(daemon.run_dir()).stdout(Stdio::null());
        let echo = Ending(echo.spawn().expect("the binary was built"));
        daemon.ready();
        Self { daemon, _echo: echo }
    }

    fn token(&self, client_id: u64) -> ConnectToken {
        let servers = self.daemon.listener.to_string().parse().expect("an address");
        let spec = TokenSpec::new(PROTOCOL_ID, client_id, servers);
        let key = Key::from_hex(KEY_HEX).expect("a key");
        netcode::mint(&spec, &key, clock::unix_seconds()).expect("random bytes")
    }
}

fn a_rust_client_sends_and_gets_messages_of_every_kind(io: Choice) {
    let rig = Rig::start(io);
    let mut client = Client::connect(&rig.token(1), &Options::default()).expect("a socket");
    let large: Vec<u8> = (0..64 * 1024_u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let mut sent = vec![
        (Channel::Reliable(255), large),
        (Channel::Reliable(0), b"hello".to_vec()),
        (Channel::Sequenced(9), vec![3; 1159]),
        (Channel::Unreliable(0), vec![4; 200]),
    ];
    let (mut came, mut delivered, mut has_sent, mut is_over) = (Vec::new(), 0, false, false);
    let mut turns = 0..TURNS_MAX;
    while !is_over {
        turns.next().expect("it comes in time");
        client.turn(TURN).expect("a socket that works");
        while let Some(event) = client.poll_event() {
            match event {
                Event::Connected { slots, .. } => assert_eq!(slots, 4),
                Event::Message(channel, bytes) => came.push((channel, bytes.to_vec())),
                Event::Reported(report) => delivered += usize::from(report.is_delivered),
                Event::Closed(reason) => {
                    assert_eq!(reason, Reason::Left);
                    is_over = true;
                }
                event @ Event::NextServer { .. } => panic!("{event:?}"),
            }
        }
        if client.is_connected() && !has_sent {
            has_sent = true;
            for (token, (channel, bytes)) in (1..).zip(&sent) {
                client.send(*channel, bytes, Some(token)).expect("there is room");
            }
        }
        if came.len() == sent.len() && delivered == sent.len() {
            client.disconnect();
        }
    }
    came.sort();
    sent.sort();
    assert!(came == sent, "they have changed on their way");
}

fn a_program_in_c_sends_and_gets_messages(io: Choice) {
    let rig = Rig::start(io);
    let token = rig.daemon.folder.join("player.token");
    std::fs::write(&token, rig.token(1).to_bytes()).expect("a file");
    let program = rig.daemon.folder.join("faces");
    build(&root("crates/client-c/tests/c/faces.c"), &program);
    assert_eq!(said(Command::new(&program).arg(&token)), "done\n");

    std::fs::write(&token, rig.token(2).to_bytes()).expect("a file");
    let program = rig.daemon.folder.join("bot");
    build(&root("crates/client-c/examples/bot.c"), &program);
    let said = said(Command::new(&program).arg(&token).arg("1"));
    assert!(said.contains("of 127.0.0.1:") && said.contains("line 0\n"), "{said}");
    assert!(said.contains(", 0 lost\n") && said.contains("\nleft\n"), "{said}");
}

fn said(command: &mut Command) -> String {
    let ended = command.output().expect("it was compiled");
    let (out, err) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{}: {out}{err}", ended.status);
    out.into_owned()
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles a C program with the static library that this test was built with.
fn build(source: &Path, program: &Path) {
    let test = std::env::current_exe().expect("the system knows");
    let library = test.parent().expect("a folder").join("libringgate_client_c.a");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-O1", "-I"]).arg(root("crates/client-c/include"));
    command.arg(source).arg("-o").arg(program).arg(library).args(SYSTEM);
    let status = command.status().expect("there is a C compiler: Rust links with it");
    assert!(status.success(), "{} compiles", source.display());
}

/// What the static library needs of the system.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

const TURN: Duration = Duration::from_millis(10);

/// Only a test that fails takes so many.
const TURNS_MAX: u128 = PATIENCE.as_millis() / TURN.as_millis();
