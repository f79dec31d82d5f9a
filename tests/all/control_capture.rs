//! `ringgate capture` at a daemon: what is in the file, in the eyes of Wireshark's own reader, who
//! may ask, and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{Ran, ringgate, run};
use crate::control_listeners::{address_of, reload, shown, with};
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, request, wait_for};
use crate::folder::{Folder, mode};
use crate::gateway_rig::on_both_drivers;
use crate::own::own_address;
use ringgate_io::Choice;
use ringgate_report::pcapng::{Block, blocks};
use ringgate_report::text::Append as _;

on_both_drivers!(
    a_player_is_captured_in_both_directions,
    payloads_are_captured_in_clear_where_that_is_asked_for,
    exactly_what_was_dropped_for_a_reason_is_there,
    plain_datagrams_are_captured_as_they_are,
);

fn text(io: Choice) -> Text {
    let mut text = Text::new();
    let io = if io == Choice::Mmsg { "mmsg" } else { "uring" };
    text.gateway = format!("workers = 2\npin = false\nio = \"{io}\"\n");
    text
}

/// `ringgate capture` that runs beside the test.
pub(crate) struct Capturing {
    child: Child,
    folder: Folder,
}

impl Capturing {
    /// It has begun when this returns.
    pub(crate) fn start(daemon: &Daemon, words: &[&str]) -> Self {
        let folder = Folder::new();
        let mut command = ringgate(["capture", "--for", "1h"]);
        command.args(words).arg("--control").arg(daemon.control());
        command.arg("--out").arg(folder.join("file.pcapng"));
        let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let capturing = Self { child: child.expect("the binary was built"), folder };
        let path = capturing.folder.join("file.pcapng");
        // The section's head is sent once all workers have been told.
        wait_for("the capture", || {
            std::fs::metadata(&path).is_ok_and(|file| file.len() > 0).then_some(())
        });
        assert_eq!(mode(&path), 0o600);
        capturing
    }

    /// Plays until it has ended. Each packet that comes begins the wait anew: how long all take
    /// depends on the machine.
    fn play(&mut self, mut plays: impl FnMut()) {
        let path = self.folder.join("file.pcapng");
        let len = || std::fs::metadata(&path).expect("it has begun").len();
        let mut has_ended = false;
        while !has_ended {
            let before = len();
            has_ended = wait_for("a packet, or the end", || {
                plays();
                let ended = self.child.try_wait().expect("our child").is_some();
                (ended || len() > before).then_some(ended)
            });
        }
    }

    /// Waits for its end.
    pub(crate) fn ended(self) -> (Ran, Folder) {
        let output = self.child.wait_with_output().expect("our child");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let ran = Ran {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        (ran, self.folder)
    }
}

/// What a file holds: packets, and what was lost where its end says so.
fn held(path: &Path) -> (usize, Option<u64>) {
    let bytes = std::fs::read(path).expect("readable");
    let mut packets = 0;
    let mut lost = None;
    let mut whole = 0;
    for block in blocks(&bytes) {
        let (block, end) = block.expect("every block is one");
        whole = end;
        match block {
            Block::Packet => packets += 1,
            Block::Statistics { lost: more, comment, .. } if !comment.is_empty() => {
                lost = Some(lost.unwrap_or(0) + more);
            }
            _ => {}
        }
    }
    assert_eq!(whole, bytes.len(), "blocks are whole");
    (packets, lost)
}

/// Whether a packet has come to a file that is still being written.
fn has_packet(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("readable");
    blocks(&bytes).any(|it| matches!(it, Ok((Block::Packet, _))))
}

/// A packet, as tshark tells it.
#[derive(Debug)]
struct Dissected {
    interface: String,
    from: String,
    to: String,
    comment: String,
    payload: String,
    is_inbound: bool,
}

/// What tshark reads out of a file; `None` where it is not installed.
fn tshark(path: &Path) -> Option<Vec<Dissected>> {
    const FIELDS: [&str; 10] = [
        "frame.interface_name",
        "ip.src",
        "udp.srcport",
        "ip.dst",
        "udp.dstport",
        "frame.comment",
        "udp.payload",
        "frame.packet_flags_direction",
        "ip.checksum.status",
        "udp.checksum.status",
    ];
    // One in two hundred sealed packets looks to it like one of some protocol, malformed.
    const AS_IT_IS: [&str; 2] = ["-d", "udp.port==1-65535,data"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(AS_IT_IS).args(["-n", "-T", "fields", "-E", "separator=|"]);
    command.args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        let why = "tshark is not there (Debian has it in the package tshark)";
        let required = std::env::var_os("REQUIRE_TSHARK").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_TSHARK=1, but {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("cut short") && !said.contains("damaged"), "{said}");
    let lines = String::from_utf8(output.stdout).expect("text");
    let mut command = Command::new("tshark");
    let malformed = command.arg("-r").arg(path).args(AS_IT_IS).args(["-Y", "_ws.malformed"]);
    let malformed = malformed.output();
    let malformed = malformed.expect("it was there").stdout;
    assert!(malformed.is_empty(), "{}", String::from_utf8_lossy(&malformed));
    Some(lines.lines().map(dissected).collect())
}

fn dissected(line: &str) -> Dissected {
    let fields: Vec<_> = line.split('|').collect();
    let [interface, from, from_port, to, to_port, comment, payload, direction, ip_sum, udp_sum] =
        fields[..]
    else {
        panic!("{line}")
    };
    assert_eq!((ip_sum, udp_sum), ("1", "1"), "checksums are right: {line}");
    Dissected {
        interface: interface.to_owned(),
        from: format!("{from}:{from_port}"),
        to: format!("{to}:{to_port}"),
        comment: comment.to_owned(),
        payload: payload.to_owned(),
        is_inbound: u32::from_str_radix(direction.trim_start_matches("0x"), 16) == Ok(1),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}");
    }
    text
}

fn a_player_is_captured_in_both_directions(io: Choice) {
    let daemon = Daemon::start(&text(io));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut capturing = Capturing::start(&daemon, &["--client", "7", "--max-packets", "12"]);
    let mut other = Player::connected(daemon.listener, 8, KEY_HEX);
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    capturing.play(|| {
        player.echo(b"a payload");
        other.echo(b"of another");
    });
    let (ran, folder) = capturing.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("12 packets in "), "{}", ran.stderr);
    let path = folder.join("file.pcapng");
    assert_eq!(held(&path), (12, Some(0)));
    assert!(daemon.log().contains("capture of client 7"), "{}", daemon.log());
    let Some(packets) = tshark(&path) else { return };
    let (mine, gate) = (player.local().to_string(), daemon.listener.to_string());
    assert_eq!(packets.len(), 12);
    for packet in &packets {
        assert_eq!(packet.interface, "eu");
        let (from, to) = if packet.is_inbound { (&mine, &gate) } else { (&gate, &mine) };
        assert_eq!((&packet.from, &packet.to), (from, to), "{packet:?}");
        let word = if packet.is_inbound { "handled" } else { "sent" };
        // A client that is not answered at once says again what the gateway knows by then.
        let may_come_again = ["; request;", "; response;"];
        let is_again =
            packet.is_inbound && may_come_again.iter().any(|it| packet.comment.contains(it));
        assert!(is_again || packet.comment.starts_with(word), "{packet:?}");
    }
    assert!(packets.iter().any(|it| it.is_inbound) && packets.iter().any(|it| !it.is_inbound));
    assert!(packets.iter().all(|packet| !packet.payload.contains(&hex(b"a payload"))));
}

fn payloads_are_captured_in_clear_where_that_is_asked_for(io: Choice) {
    let daemon = Daemon::start(&text(io));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    // Whatever else is said meanwhile, each payload has its echo before the next.
    let words = ["--listener", "eu", "--decrypted", "--max-packets", "100"];
    let mut capturing = Capturing::start(&daemon, &words);
    capturing.play(|| player.echo_once(b"hello there"));
    let (ran, folder) = capturing.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("in clear"), "{}", ran.stderr);
    assert!(daemon.log().contains("capture of listener eu, with payloads in clear"));
    // The command has the file's last block before the gateway lets go of its question.
    wait_for("its end to be told", || daemon.log().contains("capture_end").then_some(()));
    let path = folder.join("file.pcapng");
    let bytes = std::fs::read(&path).expect("readable");
    let said = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(said(b"IN CLEAR"), "the file says what it holds");
    let Some(packets) = tshark(&path) else { return };
    let clear: Vec<_> = packets.iter().filter(|it| it.comment.contains("in clear")).collect();
    assert!(clear.iter().all(|packet| packet.payload == hex(b"hello there")), "{clear:?}");
    assert!(clear.iter().any(|it| it.is_inbound) && clear.iter().any(|it| !it.is_inbound));
}

fn exactly_what_was_dropped_for_a_reason_is_there(io: Choice) {
    let daemon = Daemon::start(&text(io));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let words = ["--drop-reason", "request_protocol", "--drop-reason", "request_forged"];
    let words = [&words[..], &["--max-packets", "20"]].concat();
    let mut capturing = Capturing::start(&daemon, &words);
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    let liar = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut forged = Player::new(daemon.listener, 9, &"22".repeat(32));
    capturing.play(|| {
        player.echo(b"all is well");
        liar.send_to(&[0x15; 26], daemon.listener).expect("loopback takes it");
        forged.turn();
    });
    let (ran, folder) = capturing.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let path = folder.join("file.pcapng");
    assert_eq!(held(&path), (20, Some(0)));
    let Some(packets) = tshark(&path) else { return };
    for packet in &packets {
        assert!(packet.is_inbound && packet.comment.starts_with("dropped: request_forged"));
        assert_eq!(packet.from, forged.local().to_string());
    }
}

fn plain_datagrams_are_captured_as_they_are(io: Choice) {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = server.local_addr().expect("bound");
    let mut text = text(io);
    let backend = format!("name = \"box\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 4\n");
    write!(text.backends, "[[backend]]\n{backend}");
    text.more.push_str(
        "[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:0\"]\n\
         backends = [\"box\"]\nmax_sessions = 10\n",
    );
    let daemon = Daemon::start(&text);
    let any = listener_address(&daemon, "any");
    let capturing = Capturing::start(&daemon, &["--listener", "any", "--max-packets", "2"]);
    let player = UdpSocket::bind("127.0.0.1:0").expect("a port");
    player.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut buffer = [0; 64];
    let from = wait_for("the server to be known", || {
        player.send_to(b"ping", any).expect("loopback takes it");
        server.set_read_timeout(Some(PAUSE)).expect("a timeout");
        let (len, from) = server.recv_from(&mut buffer).ok()?;
        (&buffer[..len] == b"ping").then_some(from)
    });
    server.send_to(b"pong", from).expect("loopback takes it");
    player.recv_from(&mut buffer).expect("the answer");
    let (ran, folder) = capturing.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let Some(packets) = tshark(&folder.join("file.pcapng")) else { return };
    assert!(packets.iter().all(|packet| packet.interface == "any"));
    assert_eq!((packets[0].payload.as_str(), packets[0].is_inbound), (&*hex(b"ping"), true));
    assert_eq!(packets[0].to, any.to_string());
}

/// Where a listener besides the first one is.
fn listener_address(daemon: &Daemon, name: &str) -> SocketAddr {
    let status = daemon.status();
    let listeners = status["listeners"].as_array().expect("a list");
    let listener = listeners.iter().find(|it| it["name"] == name).expect("it is there");
    listener["addresses"][0].as_str().expect("text").parse().expect("an address")
}

fn capture(daemon: &Daemon, words: &[&str], out: &Path) -> Ran {
    let mut command = ringgate(["capture"]);
    command.args(words).arg("--control").arg(daemon.control()).arg("--out").arg(out);
    run(command)
}

#[test]
fn what_cannot_be_captured_is_said_in_a_sentence() {
    let daemon = Daemon::start(&Text::new());
    let folder = Folder::new();
    let file = folder.join("file.pcapng");
    for (words, said) in [
        (&["--listener", "nowhere"][..], "there is no listener"),
        (&["--client", "x"], "client: found \"x\""),
        (&["--address", "10.0.0.0/99"], "expected an address or a prefix"),
        (&["--drop-reason", "bad_luck"], "bad_luck"),
        (&["--drop-reason", "payload_length"], "what links carry"),
        (&["--listener", "eu", "--for", "2h"], "1h at most"),
    ] {
        let ran = capture(&daemon, words, &file);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
        assert!(!file.exists(), "no empty file is left");
    }
    assert_eq!(capture(&daemon, &[], &file).code, Some(2), "everything at all is too much");
    folder.file("there", "mine", 0o644);
    let ran = capture(&daemon, &["--listener", "eu"], &folder.join("there"));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("already exists"), "{}", ran.stderr);
    assert_eq!(std::fs::read(folder.join("there")).expect("readable"), b"mine");
    let ran = capture(&daemon, &["--listener", "eu"], &folder.join("none/file"));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn players_addresses_and_words_are_for_those_who_may_see_them() {
    const TOKEN: &str = "a-token-of-the-operators";
    let mut text = Text::new();
    text.admin.push_str("token = { file = \"admin.token\" }\n");
    let daemon = Daemon::start_with(&text, |_, folder| {
        folder.file("admin.token", TOKEN, 0o600);
    });
    let path = "/capture?listener=eu&for_ms=50";
    let refused = |headers: &str| {
        let page = request(daemon.admin, "GET", path, headers).expect("an answer");
        assert!(matches!(page.status, 401 | 403), "{headers}: {}", page.status);
    };
    refused("");
    refused("Authorization: Bearer wrong-token-of-operators\r\n");
    refused(&format!("Authorization: Bearer {TOKEN}\r\nOrigin: http://evil.example\r\n"));
    let folder = Folder::new();
    let out = folder.join("file.pcapng");
    let mut command = ringgate(["capture", "--listener", "eu", "--for", "50ms"]);
    command.arg("--admin").arg(daemon.admin.to_string());
    command.arg("--token").arg(daemon.folder.join("admin.token")).arg("--out").arg(&out);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("the time is over"), "{}", ran.stderr);
    assert_eq!(held(&out), (0, Some(0)));
    assert!(daemon.log().contains("with the token asks for a capture of listener eu"));
}

#[test]
fn a_reader_that_goes_away_ends_its_capture_and_only_that() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    let mut gone = Capturing::start(&daemon, &["--client", "7"]);
    let mut stays = Capturing::start(&daemon, &["--listener", "eu", "--max-packets", "30"]);
    player.echo(b"both see it");
    let file = gone.folder.join("file.pcapng");
    wait_for("a packet in its file", || has_packet(&file).then_some(()));
    gone.child.kill().expect("our child");
    gone.child.wait().expect("our child");
    wait_for("its end", || {
        player.echo(b"one sees it");
        daemon.log().contains("reader_gone").then_some(())
    });
    stays.play(|| player.echo(b"one sees it"));
    let (ran, folder) = stays.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(held(&folder.join("file.pcapng")), (30, Some(0)));
    // What was written before is whole.
    let (packets, end) = held(&gone.folder.join("file.pcapng"));
    assert!(packets > 0 && end.is_none());
}

#[test]
fn a_listener_that_has_closed_is_captured_no_more_whoever_has_its_number() {
    let text = Text::new();
    let daemon = Daemon::start(&with(&text, "us", &own_address().to_string()));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    Player::connected(address_of(&daemon, "us"), 7, KEY_HEX).leave();
    let mut of_it = Capturing::start(&daemon, &["--listener", "us"]);
    let mut of_all = Capturing::start(&daemon, &["--address", "127.0.0.0/8"]);
    reload(&daemon, &text);
    of_it.play(|| ());
    let (ran, _) = of_it.ended();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("its listener has gone"), "{}", ran.stderr);
    assert!(shown(&daemon, "us").is_empty());
    reload(&daemon, &with(&text, "asia", &own_address().to_string()));
    let file = of_all.folder.join("file.pcapng");
    let is_named = || {
        let bytes = std::fs::read(&file).expect("readable");
        bytes.windows(4).any(|it| it == b"asia")
    };
    let mut player = Player::connected(address_of(&daemon, "asia"), 7, KEY_HEX);
    wait_for("its packets, under its own name", || {
        player.echo(b"over there");
        is_named().then_some(())
    });
    of_all.child.kill().expect("our child");
    of_all.child.wait().expect("our child");
}

#[test]
fn no_more_than_a_few_go_on_at_once() {
    let daemon = Daemon::start(&Text::new());
    let held: Vec<_> = (0..4).map(|_| Capturing::start(&daemon, &["--listener", "eu"])).collect();
    let folder = Folder::new();
    let ran = capture(&daemon, &["--listener", "eu"], &folder.join("one-too-many"));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("4 captures run already"), "{}", ran.stderr);
    for mut capturing in held {
        capturing.child.kill().expect("our child");
        capturing.child.wait().expect("our child");
    }
    let words = ["--listener", "eu", "--for", "10ms"];
    let out = folder.join("later");
    wait_for("a free place", || (capture(&daemon, &words, &out).code == Some(0)).then_some(()));
}

#[test]
fn a_disk_that_is_full_ends_the_command_and_not_the_daemon() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let folder = Folder::new();
    let out = folder.join("file.pcapng");
    let mut command = Command::new("bash");
    // A file may have no more than two blocks of a kilobyte.
    command.args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "-"]);
    command.arg(env!("CARGO_BIN_EXE_ringgate")).args(["capture", "--listener", "eu"]);
    command.arg("--control").arg(daemon.control()).arg("--out").arg(&out);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("bash is there");
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    wait_for("its end", || {
        player.echo(&[7; 500]);
        child.try_wait().expect("our child")
    });
    let output = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("too large"), "{said}");
    assert!(held(&out).0 > 0, "what is there is whole");
    player.echo(b"the daemon goes on");
    wait_for("the capture's end", || daemon.log().contains("reader_gone").then_some(()));
}

/// After so long without a word the books are looked at again.
const PAUSE: Duration = Duration::from_millis(100);

/// A reader who does not read, and then does.
#[test]
fn what_is_not_taken_in_time_is_counted_and_the_books_balance() {
    let daemon = Daemon::start(&Text::new());
    let mut stream = UnixStream::connect(daemon.control()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let asks = "GET /capture?listener=eu&for_ms=600000&packets=1000000 HTTP/1.0\r\n\r\n";
    stream.write_all(asks.as_bytes()).expect("it listens");
    // The file's beginning is sent once all workers have been told.
    let mut answer = vec![0; 1 << 16];
    let mut len = 0;
    while !answer[..len].windows(5).any(|part| part == b"\r\n\r\n\n") {
        len += stream.read(&mut answer[len..]).expect("it begins");
    }
    answer.truncate(len);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let drops = || daemon.status()["totals"]["drops"].as_u64().expect("a number");
    wait_for("a flood that nobody reads", || {
        for _ in 0..2000 {
            // Long enough for the connection's buffers to fill up, too.
            stranger.send_to(&[0x15; 1200], daemon.listener).expect("loopback takes it");
        }
        (drops() > 20_000).then_some(())
    });
    let head = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
    answer.drain(..head);
    let (mut packets, mut lost) = (0, 0);
    let mut chunk = vec![0; 1 << 16];
    // When nothing has happened for a while, the counts so far are sent. Those that were sent in a
    // pause of the flood are not the last ones, and the daemon may say a moment later than they do
    // what it has refused.
    stream.set_read_timeout(Some(PAUSE)).expect("a timeout");
    wait_for("the last counts", || {
        let mut has_more = true;
        match stream.read(&mut chunk) {
            Ok(0) => panic!("it does not end"),
            Ok(len) => answer.extend_from_slice(&chunk[..len]),
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::WouldBlock, "{why}");
                has_more = false;
            }
        }
        let mut read = 0;
        for block in blocks(&answer) {
            let (block, end) = block.expect("every block is one");
            match block {
                Block::Packet => packets += 1,
                Block::Statistics { lost: so_far, .. } => lost = so_far,
                _ => {}
            }
            read = end;
        }
        answer.drain(..read);
        (!has_more && lost > 0 && books_balance(&daemon, packets + lost)).then_some(())
    });
    assert!(packets > 0);
}

/// All that has come was refused, and there were so many.
fn books_balance(daemon: &Daemon, refused: u64) -> bool {
    let status = daemon.status();
    status["conservation"]["holds"] == true && status["totals"]["drops"] == refused
}
