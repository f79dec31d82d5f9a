//! Games' clients against a running gateway: the Rust client, and the C library over it, with a
//! game server that sends each message back.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringgate_client::{Channel, Client, Connection, Event, Options, Reason};
use ringgate_core::netcode::ConnectToken;
use ringgate_io::Choice;
use ringgate_link::backend;
use ringgate_link::bundle::{self, CloseReason};
use ringgate_os::clock::Clock;

use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, KEY_HEX, PATIENCE, Text, token};
use crate::gateway_rig::{on_both_drivers, until};
use crate::upgrade_rig;

on_both_drivers!(
    what_a_game_sends_before_it_closes_arrives,
    a_rust_client_sends_and_gets_messages_of_every_kind,
    a_program_in_c_sends_and_gets_messages,
);

/// A gateway that delivers messages, and `ringgate echo` behind it.
pub(crate) struct Rig {
    _echo: Ending,
    daemon: Daemon,
}

impl Rig {
    pub(crate) fn daemon(io: Choice) -> Daemon {
        let mut config: Text = upgrade_rig::text(if io == Choice::Mmsg { "mmsg" } else { "uring" });
        config.listener.push_str("delivery = \"gateway\"\n");
        Daemon::start(&config)
    }

    fn start(io: Choice) -> Self {
        let daemon = Self::daemon(io);
        let mut echo = ringgate(["echo", "--name", "arena", "--socket"]);
        echo.arg(daemon.run_dir()).stdout(Stdio::null());
        let echo = Ending(echo.spawn().expect("the binary was built"));
        daemon.ready();
        Self { daemon, _echo: echo }
    }

    fn token(&self, client_id: u64) -> ConnectToken {
        Self::token_for(&self.daemon, client_id)
    }

    pub(crate) fn token_for(daemon: &Daemon, client_id: u64) -> ConnectToken {
        token(&[daemon.listener], client_id, KEY_HEX, 600)
    }
}

/// A player behind a network that loses every fourth datagram, each way, and at times all of them.
pub(crate) struct Unlucky {
    pub(crate) connection: Connection,
    socket: UdpSocket,
    clock: Clock,
    seen: u64,
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) is_deaf: bool,
    is_in: bool,
    pub(crate) is_over: bool,
}

impl Unlucky {
    pub(crate) fn connect(token: &ConnectToken) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        let connection = Connection::new(token, &Options::default(), 0).expect("random bytes");
        Self {
            connection,
            socket,
            clock: Clock::start(),
            seen: 0,
            messages: Vec::new(),
            is_deaf: false,
            is_in: false,
            is_over: false,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.seen += 1;
        // Not the handshake, which is netcode's to repeat.
        self.is_deaf || self.is_in && self.seen.is_multiple_of(4)
    }

    pub(crate) fn step(&mut self) {
        let (now_ns, mut bytes) = (self.clock.now_ns(), [0; 2048]);
        self.connection.handle_timeout(now_ns);
        while let Some((to, datagram)) = self.connection.poll_transmit(now_ns, &mut bytes) {
            let datagram = datagram.to_vec();
            if !self.is_lost() {
                let _ = self.socket.send_to(&datagram, to);
            }
        }
        while let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
            if self.is_lost() {
                continue;
            }
            let (datagram, messages) = (&mut bytes[..len], &mut self.messages);
            let on_message = |_, message: &[u8]| messages.push(message.to_vec());
            let _ = self.connection.handle_datagram(now_ns, from, datagram, on_message);
        }
        while let Some(event) = self.connection.poll_event() {
            self.is_in |= matches!(event, Event::Connected { .. });
            self.is_over |= matches!(event, Event::Closed(_));
        }
    }
}

/// Sixty messages and the end in one turn, as a server that throws a player out does.
fn what_a_game_sends_before_it_closes_arrives(io: Choice) {
    let daemon = Rig::daemon(io);
    let start = backend::Options::new(daemon.run_dir(), "arena").start();
    let mut game = start.expect("descriptors are left");
    until("the game is there", || {
        game.wait(Some(TURN)).expect("links work");
        let mut events = game.poll().expect("links work");
        while events.next().is_some() {}
        game.is_up()
    });
    daemon.ready();
    let mut player = Unlucky::connect(&Rig::token_for(&daemon, 1));
    let sent: Vec<_> = (0..60_usize).map(|n| vec![n as u8; 1 + 60 * n]).collect();
    let mut heard = Vec::new();
    until("both have heard of the end", || {
        player.step();
        game.wait(Some(Duration::ZERO)).expect("links work");
        let mut events = game.poll().expect("links work");
        while let Some((event, outbox)) = events.next() {
            match event {
                backend::Event::Opened(opened) => {
                    assert!(opened.delivers);
                    let (session, reliable) = (opened.session, bundle::Channel::Reliable(0));
                    for message in &sent {
                        outbox.send_message(session, reliable, message, None).expect("room");
                    }
                    let (reason, linger) = (CloseReason::Refused, Duration::from_secs(25));
                    outbox.close_after(session, reason, linger, b"old version").expect("up");
                }
                backend::Event::Lingered { undelivered_bytes, is_told, .. } => {
                    heard.push(format!("{undelivered_bytes} {is_told}"));
                }
                backend::Event::Closed { reason, .. } => heard.push(reason.to_string()),
                _ => {}
            }
        }
        game.flush();
        player.is_over && heard.len() == 2
    });
    assert!(player.messages == sent, "{} of 60", player.messages.len());
    assert_eq!(heard, ["0 true", CloseReason::Refused.text()]);
    let farewell = player.connection.farewell().expect("it was told why");
    let said = (farewell.reason, &*farewell.text);
    assert_eq!(said, (CloseReason::Refused.as_u8(), &b"old version"[..]));
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

pub(crate) fn said(command: &mut Command) -> String {
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
pub(crate) fn build(source: &Path, program: &Path) {
    let test = std::env::current_exe().expect("the system knows");
    let library = test.parent().expect("a folder").join("libringgate_client_c.a");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-I"]).arg(root("crates/client-c/include"));
    command.arg(source).arg("-o").arg(program).arg(library).args(SYSTEM);
    let status = command.status().expect("there is a C compiler: Rust links with it");
    assert!(status.success(), "{} compiles", source.display());
}

/// What the static library needs of the system.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

const TURN: Duration = Duration::from_millis(10);

/// Only a test that fails takes so many.
const TURNS_MAX: u128 = PATIENCE.as_millis() / TURN.as_millis();
