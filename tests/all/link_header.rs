//! The C header against the same gateway as the Rust library: what it reads, what it writes, and
//! that it means the same by every number.

use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::process::Command;

use proptest::prelude::RngExt as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use ringgate_batch::Endpoint;
use ringgate_core::limits::{BUNDLE_BYTES_MAX, PAYLOAD_BYTES_MAX, WORKERS_MAX};
use ringgate_link::announce::Standing;
use ringgate_link::bundle::{
    self, Assembly, Channel, CloseReason, Frame, Frames, GoodbyeReason, LONG_PAYLOAD_BYTES_MAX,
    MOVE_BYTES_MAX, MessagePart, MoveRefusal, Offered, Opened, Quality, RecordError,
    SHORT_MESSAGE_BYTES_MAX, SessionId, ToGame, ToGateway, USER_DATA_BYTES, Writer,
};

use crate::command::{ringgate, run};
use crate::config_mistakes::KEY;
use crate::folder::Folder;
use crate::link_gateway::{Gateway, GatewayLink, PATIENCE, listen, opened, opened_plain};
use crate::link_program::{Game, compile};

#[test]
fn the_header_has_the_numbers_of_the_codec() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/constants.c");
    let output = Command::new(program).output().expect("the program was just compiled");
    let printed = String::from_utf8(output.stdout).expect("text");

    let mut expected = String::new();
    let mut add = |name: &str, value: usize| writeln!(expected, "{name} {value}").expect("memory");
    add("RG_VERSION_MIN", bundle::VERSION_MIN.into());
    add("RG_VERSION_MAX", bundle::VERSION_MAX.into());
    add("RG_BUNDLE_BYTES_MAX", BUNDLE_BYTES_MAX);
    add("RG_PAYLOAD_BYTES_MAX", PAYLOAD_BYTES_MAX);
    add("RG_LONG_PAYLOAD_BYTES_MAX", bundle::LONG_PAYLOAD_BYTES_MAX);
    add("RG_MESSAGE_BYTES_MAX", bundle::MESSAGE_BYTES_MAX);
    add("RG_SHORT_MESSAGE_BYTES_MAX", bundle::SHORT_MESSAGE_BYTES_MAX);
    add("RG_NO_SLOT", u32::MAX as usize);
    add("RG_USER_DATA_BYTES", USER_DATA_BYTES);
    add("RG_NAME_BYTES_MAX", bundle::NAME_BYTES_MAX);
    add("RG_MULTICAST_SESSIONS_MAX", bundle::MULTICAST_SESSIONS_MAX);
    add("RG_WORKERS_MAX", WORKERS_MAX);
    add("RG_FAREWELL_BYTES_MAX", bundle::FAREWELL_BYTES_MAX);
    add("RG_LINGER_MS_MAX", bundle::LINGER_MS_MAX as usize);
    add("RG_MOVE_BYTES_MAX", bundle::MOVE_BYTES_MAX);
    add("RG_MOVE_MS_MAX", bundle::MOVE_MS_MAX as usize);
    add("RG_MOVE_MS", bundle::MOVE_MS as usize);
    add("rg_worker(UINT64_C(0x7f00000000000001))", SessionId::new(127, 1).worker());
    for reason in CloseReason::ALL {
        add(&c_name("RG_CLOSE", &format!("{reason:?}")), reason.as_u8().into());
    }
    for reason in GoodbyeReason::ALL {
        add(&c_name("RG_GOODBYE", &format!("{reason:?}")), reason.as_u8().into());
    }
    for error in RecordError::ALL {
        add(&c_name("RG_ERROR", &format!("{error:?}")), error.as_u8().into());
    }
    for refusal in MoveRefusal::ALL {
        add(&c_name("RG_MOVE", &format!("{refusal:?}")), refusal.as_u8().into());
    }
    assert_eq!(printed, expected);
}

/// `TimedOut` is `RG_CLOSE_TIMED_OUT` in C.
fn c_name(prefix: &str, variant: &str) -> String {
    variant.chars().fold(prefix.to_owned(), |mut name, letter| {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
        name
    })
}

/// The first block of a language in the link crate's README.
fn readme_block(language: &str) -> String {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/link/README.md");
    let readme = std::fs::read_to_string(readme).expect("it is part of the repository");
    let (_, rest) = readme.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("```").expect("it ends").0.to_owned()
}

#[test]
fn the_readmes_config_is_right() {
    let folder = Folder::new();
    folder.file("netcode.key", KEY, 0o600);
    let file = folder.file("gate.toml", readme_block("toml"), 0o644);
    let output = run(ringgate(["check".as_ref(), file.as_os_str()])).succeeded();
    assert_eq!(output, format!("{}: ok, 1 listener, 1 backend\n", file.display()));
}

#[test]
fn the_readmes_server_in_c_compiles() {
    let folder = Folder::new();
    let source = readme_block("c");
    std::fs::write(folder.join("readme.c"), source).expect("a folder for temporary files");
    compile(&folder, folder.join("readme.c").to_str().expect("text"));
}

#[test]
fn the_echo_example_returns_what_players_send() {
    let folder = Folder::new();
    let program = compile(&folder, "crates/link/examples/c/echo.c");
    let gateway = Gateway::start(folder.path(), 2, 7);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let links: Vec<_> = (0..2).map(|worker| gateway.accept_and_welcome(worker)).collect();
    let mut up = [game.line(), game.line()];
    up.sort();
    assert_eq!(up, ["link 0 of 2 is up", "link 1 of 2 is up"]);

    let session = links[1].session(7);
    links[1].send(|writer| {
        assert!(writer.opened(&opened(session, &[1; USER_DATA_BYTES])));
        assert!(writer.payload(session, b"hello") && writer.payload(session, b"again"));
    });
    assert_eq!(
        game.line(),
        format!("player {} in slot 5 of 64, by eu-west", 0x1122_3344_5566_7788u64)
    );
    let answer = links[1].receive().expect("the echo");
    let expected: &[&[u8]] = &[
        &[17, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 1],
        b"hello",
        &[17, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 1],
        b"again",
    ];
    assert_eq!(answer, expected.concat());

    for len in 1..=LONG_PAYLOAD_BYTES_MAX {
        let payload = vec![len as u8; len];
        links[0].send(|writer| assert!(writer.payload(links[0].session(1), &payload)));
        let answer = links[0].receive().expect("the echo");
        let expected = ToGateway::Payload { session: links[0].session(1), bytes: &payload };
        assert!(ToGateway::read(&answer).eq([Ok(expected)]));
    }

    drop((gateway, links));
    let mut down = [game.line(), game.line()];
    down.sort();
    assert_eq!(down, ["link 0 is down: reason 256", "link 1 is down: reason 256"]);
    let gateway = Gateway::start(folder.path(), 3, 8);
    let links: Vec<_> = (0..3).map(|worker| gateway.accept_and_welcome(worker)).collect();
    let mut up = [game.line(), game.line(), game.line()];
    up.sort();
    assert_eq!(up, ["link 0 of 3 is up", "link 1 of 3 is up", "link 2 of 3 is up"]);
    echo_once(&links[2]);
}

fn echo_once(link: &GatewayLink) {
    link.send(|writer| assert!(writer.payload(link.session(1), b"ping")));
    let answer = link.receive().expect("the echo");
    let expected = ToGateway::Payload { session: link.session(1), bytes: b"ping" };
    assert!(ToGateway::read(&answer).eq([Ok(expected)]));
}

#[test]
fn the_snapshot_example_tells_everyone_about_everyone() {
    let folder = Folder::new();
    let program = compile(&folder, "crates/link/examples/c/snapshots.c");
    let gateway = Gateway::start(folder.path(), 2, 7);
    let _game = Game::start(&program, folder.path(), "arena-1");
    let links: Vec<_> = (0..2).map(|worker| gateway.accept_and_welcome(worker)).collect();
    for (slot, link) in links.iter().enumerate() {
        let mut player = opened(link.session(1), &[0; USER_DATA_BYTES]);
        player.slot = slot as u32;
        link.send(|writer| {
            assert!(writer.opened(&player));
            assert!(writer.payload(link.session(1), &[slot as u8 + 1; 10]));
        });
    }
    for link in &links {
        let mut tick_before = 0;
        let (mut players, mut seen) = (Vec::new(), 0);
        // Until both players are in it, and once more, to see it tick.
        while seen < 2 {
            let bundle = link.receive().expect("a snapshot");
            let record = ToGateway::read(&bundle).next().expect("not empty").expect("valid");
            let ToGateway::Multicast { sessions, bytes } = record else { panic!("{record:?}") };
            assert!(sessions.iter().eq([link.session(1)]), "only those of this worker");
            let (tick, rest) = bytes.split_first_chunk().expect("a tick");
            let tick = u32::from_le_bytes(*tick);
            assert!(tick > tick_before);
            tick_before = tick;
            players = rest.chunks(8).map(<[u8]>::to_vec).collect();
            seen += u32::from(players.len() == 2 && rest[4..8] != [0; 4] && rest[12..] != [0; 4]);
        }
        players.sort();
        assert_eq!(players, [[0, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 2, 2, 2, 2]]);
    }
    // An operator may move anybody, and the next one's snapshots are not for who is gone.
    let [gone, next] = [1, 2].map(|serial| links[0].session(serial));
    links[0].send(|writer| {
        assert!(writer.moved(gone, 7));
        assert!(writer.opened(&opened(next, &[0; USER_DATA_BYTES])));
    });
    loop {
        let bundle = links[0].receive().expect("a snapshot");
        let mut snapshots = ToGateway::read(&bundle).filter_map(|record| match record {
            Ok(ToGateway::Multicast { sessions, .. }) => Some(sessions.iter().collect::<Vec<_>>()),
            _ => None,
        });
        if let Some(sessions) = snapshots.find(|sessions| sessions.contains(&next)) {
            assert_eq!(sessions, [next]);
            return;
        }
    }
}

#[test]
fn a_full_link_in_c_refuses_payloads_and_keeps_closes() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/full.c");
    let gateway = Gateway::start(folder.path(), 2, 7);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let links: Vec<_> = (0..2).map(|worker| gateway.accept_and_welcome(worker)).collect();
    assert_eq!(game.line(), "-8 -4");
    assert_eq!(game.line(), "-3 -3 -1 -1 -4");
    assert_eq!(game.line(), "1", "of a multicast to four, one is reachable and not stuck");
    let answer = links[1].receive().expect("the other link's payloads");
    assert_eq!(ToGateway::read(&answer).count(), 2);

    let (mut payloads, mut closed) = (0, Vec::new());
    while closed.len() < 3000 {
        for record in ToGateway::read(&links[0].receive().expect("more to come")) {
            match record.expect("valid") {
                ToGateway::Payload { .. } if closed.is_empty() => payloads += 1,
                ToGateway::Close { session, reason: CloseReason::Finished } => closed.push(session),
                ToGateway::CloseAfter(close) => {
                    let serial = closed.len() + 1;
                    let text_bytes = (serial % 2 == 0).then_some(serial % 201);
                    assert_eq!((Some(close.text.len()), close.linger_ms), (text_bytes, 30_000));
                    closed.push(close.session);
                }
                record => panic!("out of order: {record:?}"),
            }
        }
    }
    assert!(closed.into_iter().eq((1..=3000).map(|serial| links[0].session(serial))));
    links[0].send(|writer| assert!(writer.pong(0)));
    // Refused: two without a link, two of the multicast; the last send of the loop, one of the
    // multicast.
    assert_eq!(game.line(), format!("{0} {0} 0 4 2", payloads + 2));
    // Before it ends, it waits until all of it has left.
    assert_eq!(game.line(), "1");
    let mut closed = 0;
    while closed < 3000 {
        closed += ToGateway::read(&links[0].receive().expect("more to come")).count();
    }
    assert_eq!(game.line(), "0");
    game.end();
}

/// What must arrive is of any length, and is kept where the link is full.
#[test]
fn a_full_link_in_c_keeps_moves_whole() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/late.c");
    let gateway = Gateway::start(folder.path(), 1, 7);
    let bytes = |len: usize, prime: usize| (0..len).map(|at| (at % prime) as u8).collect();
    let (message, data): (Vec<u8>, Vec<u8>) =
        (bytes(SHORT_MESSAGE_BYTES_MAX, 251), bytes(MOVE_BYTES_MAX, 241));
    for early in [0, 62, 63, 64, 65] {
        let mut game = Game::start(&program, folder.path(), "arena-1");
        game.say(&early.to_string());
        let link = gateway.accept_and_welcome(0);
        let session = link.session(1);
        let user_data = [0; USER_DATA_BYTES];
        let whole = Opened { delivers: true, ..opened(session, &user_data) };
        link.send(|writer| assert!(writer.opened(&whole)));
        let (mut parts, mut moved, mut closed) = (0, 0, Vec::new());
        while closed.len() < early + 200 {
            for record in ToGateway::read(&link.receive().expect("more to come")) {
                match record.expect("valid") {
                    ToGateway::Message(_) => parts += 1,
                    ToGateway::Payload { .. } => assert!(closed.is_empty() && moved == 0),
                    ToGateway::Close { session, .. } => closed.push(session),
                    ToGateway::Move(it) => {
                        let expected = Some((Channel::Reliable(3), &message[..]));
                        assert_eq!((it.session, it.ticket), (session, 77));
                        assert_eq!((it.backend, it.message), ("another-one", expected));
                        assert!(it.data == data && closed.len() == early);
                        moved += 1;
                    }
                    record => panic!("nobody has said that: {record:?}"),
                }
            }
        }
        assert_eq!((parts, moved), (5, 1));
        let of = |first, count| (first + 1..=first + count).map(|serial| link.session(serial));
        assert!(closed.into_iter().eq(of(1000, early as u64).chain(of(2000, 200))));
        link.send(|writer| assert!(writer.pong(0)));
        assert_eq!(game.line(), "all of it has left");
        game.end();
    }
}

/// A game may take pointers away itself, and has a player's from the first one on that comes after.
#[test]
fn a_program_in_c_has_the_pointers_of_players_who_come_after_a_lost_link() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/again.c");
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    for (players, is_broken) in [(1, false), (700, true), (2, false)] {
        let link = gateway.accept_and_welcome(0);
        let sessions: Vec<_> = (1..=players).map(|serial| link.session(serial << 20)).collect();
        for session in &sessions {
            link.send(|writer| assert!(writer.opened_plain(&opened_plain(*session, 1))));
            link.send(|writer| assert!(writer.payload(*session, b"x")));
            assert_eq!(game.line(), "its own");
        }
        for session in &sessions {
            link.send(|writer| assert!(writer.payload(*session, b"x")));
            assert_eq!(game.line(), "its own");
        }
        if is_broken {
            link.send_bytes(b"?");
            assert_eq!(link.receive(), None, "it has hung up, though its child has the socket");
        }
        drop(link);
        assert_eq!(game.line(), format!("lost {players}"));
        assert_eq!(game.line(), "nothing is left");
    }
}

#[test]
fn a_program_in_c_hears_why_it_is_not_registered_though_nobody_has_read_what_it_said() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/announce.c");
    let listener = listen(&folder.join("announce.sock"));
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let (guest, _) = listener.accept().expect("it connects");
    guest.set_read_timeout(Some(PATIENCE)).expect("timeout");
    guest.peek(&mut [MaybeUninit::uninit()]).expect("it announces itself");
    guest.send(&Standing::Unauthorised.encode()).expect("there is room");
    drop(guest);
    assert_eq!(
        game.line(),
        "the user may not: run as the gateway's, or list this one in fleet.allow_uids"
    );
}

#[test]
fn a_payload_in_c_is_no_longer_than_its_player_takes() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/delivers.c");
    let gateway = Gateway::start(folder.path(), 1, 9);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    let [whole, raw, plain] = [1, 2, 3].map(|serial| link.session(serial));
    let user_data = [0; USER_DATA_BYTES];
    link.send(|writer| {
        assert!(writer.opened(&Opened { delivers: true, ..opened(whole, &user_data) }));
        assert!(writer.opened(&opened(raw, &user_data)));
        assert!(writer.opened_plain(&opened_plain(plain, 1)));
    });
    let delivers = ["message 0 0", "message -9 -9", "message -9 -9"];
    let first = ["send 0 -5 0", "multicast 2 0 1"].into_iter().chain(delivers);
    let tried = first.chain(["long -5 -5 -5", "long 0 -3 -3", "long 0 0 0"]);
    let said = ["opened 1 0", "opened 0 0", "opened 0 0"].into_iter().chain(tried.clone());
    for line in said.chain(["set"]).chain(tried).chain(["users 0"]) {
        assert_eq!(game.line(), line);
    }
    link.send(|writer| assert!(writer.closed(whole, CloseReason::PlayerLeft)));
    assert_eq!(game.line(), "closed -5");
    // The number may be another player's by now.
    link.send(|writer| assert!(writer.payload(whole, b"x")));
    assert_eq!(game.line(), "after 0");
    drop(link);
    game.end();
}

/// A program that leaves each turn after one event and sleeps on the descriptor misses nothing, and
/// sleeps when all is taken.
#[test]
fn the_descriptor_is_readable_while_records_wait() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/partly.c");
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    assert_eq!(game.line(), "up");
    for first in [1_u8, 11, 21] {
        link.send(|writer| {
            for n in first..first + 5 {
                assert!(writer.payload(link.session(1), &[n]));
            }
        });
        for n in first..first + 5 {
            assert_eq!(game.line(), format!("payload {n}"));
        }
        assert_eq!(game.line(), "over 0", "nothing is left, and poll knows");
    }
}

#[test]
fn a_deadline_that_has_passed_is_not_waited_for() {
    let folder = Folder::new();
    waits_as_it_should(Command::new(compile(&folder, "tests/all/link_header/waits.c")));
}

/// A game that waits for times that have passed, and then four times until something comes. A frame
/// that took too long makes such a time: no server may stand still for that.
pub(crate) fn waits_as_it_should(program: Command) {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::run(program, folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    assert_eq!(game.line(), "event 1");
    assert_eq!(game.line(), "waited");
    for _ in 0..4 {
        link.send(|writer| assert!(writer.payload(link.session(1), b"x")));
        assert_eq!(game.line(), "event 3");
    }
    assert_eq!(link.receive(), None, "whatever children it has");
    game.end();
}

#[test]
fn it_waits_for_more_only_where_bundles_follow_each_other_closely() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/pace.c");
    let ran = std::process::Command::new(program).output().expect("runs");
    let text = String::from_utf8(ran.stdout).expect("numbers");
    let sleeps: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!((&sleeps[..3], sleeps[4]), (&[0, 50_000, 50_000][..], 0));
    assert!(sleeps[3] > 0 && sleeps[3] < 50_000, "eight bundles are enough: {}", sleeps[3]);
    // What is said of the Rust library's pace, case by case.
    let told_us: Vec<_> = sleeps[5..].iter().map(|ns| ns / 1000).collect();
    assert_eq!(told_us, [0, 0, 0, 0, 50, 50, 96, 120, 109, 0]);
}

const SPOKEN: RangeInclusive<u16> = bundle::VERSION_MIN..=bundle::VERSION_MAX;

/// What `reader.c` prints for a datagram.
fn expected_lines(datagram: &[u8], assembly: &mut Assembly) -> Vec<String> {
    if datagram.len() > BUNDLE_BYTES_MAX {
        return vec![lost(257, RecordError::DatagramTooLong.as_u8().into())];
    }
    let mut lines = Vec::new();
    for record in ToGame::read(datagram) {
        // The header has no event for a gateway that was taken over, nor for the number of its
        // players: it passes these over, too.
        if matches!(
            record,
            Ok(ToGame::Unknown(_) | ToGame::TakenOver { .. } | ToGame::Players { .. })
        ) {
            continue;
        }
        if let Ok(ToGame::Message(part)) = &record
            && !assembly.is_passed_by(part)
        {
            match assembly.take(part) {
                Ok(false) => continue,
                Ok(true) => {
                    let whole = MessagePart { bytes: assembly.message(), ..*part };
                    lines.push(describe(&ToGame::Message(whole)));
                    continue;
                }
                Err(error) => {
                    lines.push(lost(257, error.as_u8().into()));
                    break;
                }
            }
        }
        if let Ok(ToGame::Closed { session, .. } | ToGame::Moved { session, .. }) = record {
            assembly.forget(session);
        }
        let is_last = matches!(record, Err(_) | Ok(ToGame::Welcome(_) | ToGame::Goodbye(_)));
        lines.push(match record {
            Err(error) => lost(257, error.as_u8().into()),
            Ok(ToGame::Welcome(welcome)) if !SPOKEN.contains(&welcome.version) => {
                lost(259, welcome.version)
            }
            Ok(ToGame::Welcome(welcome)) if welcome.worker != 0 => {
                lost(257, RecordError::WorkerInvalid.as_u8().into())
            }
            Ok(ToGame::Welcome(_)) => lost(258, 0),
            Ok(ToGame::Goodbye(goodbye)) => lost(
                goodbye.reason.as_u8().into(),
                goodbye.error.map_or(0, RecordError::as_u8).into(),
            ),
            Ok(record) => describe(&record),
        });
        if is_last {
            break;
        }
    }
    lines
}

fn lost(reason: u16, error: u16) -> String {
    format!("lost reason={reason} error={error}")
}

fn describe(record: &ToGame<'_>) -> String {
    match record {
        ToGame::Opened(player) => {
            let address = Endpoint::from(player.address);
            format!(
                "opened session={} client={} scope={} port={} slot={} of={} delivers={} moved={} ticket={} listener={} ip={} user={}",
                player.session.as_u64(),
                player.client_id,
                address.scope(),
                address.port(),
                player.slot,
                player.slots_max,
                u8::from(player.delivers),
                u8::from(player.ticket.is_some()),
                player.ticket.unwrap_or(0),
                player.listener,
                hex(address.ip_bytes()),
                hex(player.user_data),
            )
        }
        ToGame::OpenedPlain(player) => {
            let address = Endpoint::from(player.address);
            format!(
                "opened_plain session={} scope={} port={} slot={} of={} listener={} ip={}",
                player.session.as_u64(),
                address.scope(),
                address.port(),
                player.slot.unwrap_or(u32::MAX),
                player.slots_max,
                player.listener,
                hex(address.ip_bytes()),
            )
        }
        ToGame::Payload { session, bytes } => {
            format!("payload session={} bytes={}", session.as_u64(), hex(bytes))
        }
        ToGame::Message(part) => {
            let (kind, number) = match part.channel {
                Channel::Reliable(number) => (1, number),
                Channel::Sequenced(number) => (2, number),
                Channel::Unreliable(number) => (3, number),
            };
            let MessagePart { session, bytes, .. } = part;
            let session = session.as_u64();
            format!("message session={session} kind={kind} channel={number} bytes={}", hex(bytes))
        }
        ToGame::Report { session, token, is_delivered } => {
            let (session, is_delivered) = (session.as_u64(), u8::from(*is_delivered));
            format!("report session={session} token={token} is_delivered={is_delivered}")
        }
        ToGame::Room { session, is_full, waiting_bytes } => {
            let (session, is_full) = (session.as_u64(), u8::from(*is_full));
            format!("room session={session} is_full={is_full} waiting={waiting_bytes}")
        }
        ToGame::Quality { session, quality } => format!(
            "quality session={} round_trip={} variation={} loss={} waiting={}",
            session.as_u64(),
            u64::from(quality.round_trip_us) * 1000,
            u64::from(quality.variation_us) * 1000,
            quality.loss_per_mille,
            quality.waiting_bytes,
        ),
        ToGame::Lingered { session, undelivered_bytes, is_told } => {
            let (session, is_told) = (session.as_u64(), u8::from(*is_told));
            format!("lingered session={session} waiting={undelivered_bytes} is_told={is_told}")
        }
        ToGame::Offered(player) => {
            let address = Endpoint::from(player.address);
            format!(
                "offered session={} offer={} ticket={} client={} scope={} port={} slot={} of={} left={} delivers={} listener={} from={} ip={} user={} bytes={}",
                player.session.as_u64(),
                player.offer,
                player.ticket,
                player.client_id,
                address.scope(),
                address.port(),
                player.slot,
                player.slots_max,
                player.left_ms,
                u8::from(player.delivers),
                player.listener,
                player.from,
                hex(address.ip_bytes()),
                hex(player.user_data),
                hex(player.data),
            )
        }
        ToGame::OfferOver { session, offer, reason } => {
            let session = session.as_u64();
            format!("offer_over session={session} offer={offer} reason={}", reason.as_u8())
        }
        ToGame::Moved { session, ticket } => {
            format!("moved session={} ticket={ticket}", session.as_u64())
        }
        ToGame::MoveRefused { session, ticket, reason } => {
            let session = session.as_u64();
            format!("move_refused session={session} ticket={ticket} reason={}", reason.as_u8())
        }
        ToGame::Closed { session, reason } => {
            format!("closed session={} reason={}", session.as_u64(), reason.as_u8())
        }
        ToGame::Pong { .. } => "pong".to_owned(),
        ToGame::Draining { left_ms } => format!("draining left={left_ms}"),
        ToGame::Undrained => "undrained".to_owned(),
        ToGame::Welcome(_)
        | ToGame::Goodbye(_)
        | ToGame::TakenOver { .. }
        | ToGame::Players { .. }
        | ToGame::Unknown(_) => panic!("handled by the caller"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A few records, mostly with a mistake or two in them.
fn hostile_datagram(rng: &mut TestRng) -> Vec<u8> {
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let user_data = std::array::from_fn(|_| rng.random());
    let session = SessionId::new(rng.random_range(0..2), rng.random_range(1..9));
    let payload = vec![7; rng.random_range(1..=40)];
    for _ in 0..rng.random_range(1..6) {
        assert!(match rng.random_range(0..21) {
            20 => writer.move_refused(session, rng.random(), refusal(rng)),
            19 => writer.moved(session, rng.random()),
            18 => writer.offer_over(session, rng.random(), refusal(rng)),
            17 => writer.offered(&offered(session, &user_data, &payload, rng)),
            16 => writer.lingered(session, rng.random(), rng.random()),
            15 => writer.players(rng.random(), rng.random(), rng.random()),
            14 => writer.taken_over(rng.random()),
            13 => writer.report(session, rng.random(), rng.random()),
            12 => writer.room(session, rng.random(), rng.random()),
            11 => writer.quality(session, &quality(rng)),
            9 | 10 => writer.message(&message_part(session, &payload, rng)),
            8 => writer.undrained(),
            7 => writer.opened_plain(&opened_plain(session, rng.random_range(0..3))),
            6 => writer.frame(later_record(&mut [9; 50], rng)),
            0 => writer.opened(&Opened {
                delivers: rng.random(),
                ticket: rng.random::<bool>().then(|| rng.random()),
                ..opened(session, &user_data)
            }),
            1 => writer.payload(session, &payload),
            2 => writer.closed(session, CloseReason::ALL[rng.random_range(0..12)]),
            3 => writer.pong(rng.random()),
            4 => writer.draining(rng.random()),
            _ => writer.payload(session, &[1; LONG_PAYLOAD_BYTES_MAX]),
        });
    }
    let mut datagram = writer.bytes().to_vec();
    for _ in 0..rng.random_range(0..3) {
        let at = rng.random_range(0..datagram.len().min(80));
        datagram[at] = match rng.random_range(0..3) {
            0 => rng.random(),
            1 => datagram[at].wrapping_add(1),
            _ => rng.random_range(0..20),
        };
    }
    if rng.random_range(0..4) == 0 {
        datagram.truncate(rng.random_range(1..=datagram.len()));
    }
    datagram
}

fn refusal(rng: &mut TestRng) -> MoveRefusal {
    MoveRefusal::ALL[rng.random_range(0..MoveRefusal::ALL.len())]
}

fn offered<'a>(
    session: SessionId,
    user_data: &'a [u8; USER_DATA_BYTES],
    data: &'a [u8],
    rng: &mut TestRng,
) -> Offered<'a> {
    let Opened { client_id, address, slot, slots_max, listener, .. } = opened(session, user_data);
    Offered {
        session,
        offer: rng.random(),
        ticket: rng.random(),
        client_id,
        address,
        slot,
        slots_max,
        left_ms: rng.random(),
        delivers: rng.random(),
        user_data,
        listener,
        from: "lobby",
        data,
    }
}

/// Whole ones mostly, or a part that may fit to the one before.
fn message_part<'a>(session: SessionId, bytes: &'a [u8], rng: &mut TestRng) -> MessagePart<'a> {
    let channel = match rng.random_range(0..4) {
        0 => Channel::Sequenced(rng.random()),
        1 => Channel::Unreliable(rng.random()),
        _ => Channel::Reliable(rng.random_range(0..2)),
    };
    let is_part = channel.is_reliable() && rng.random_range(0..2) == 0;
    let (is_first, is_last) =
        if is_part { (rng.random(), rng.random_range(0..4) == 0) } else { (true, true) };
    MessagePart { session, channel, is_first, is_last, token: rng.random(), bytes }
}

fn quality(rng: &mut TestRng) -> Quality {
    Quality {
        round_trip_us: rng.random(),
        variation_us: rng.random(),
        loss_per_mille: rng.random(),
        waiting_bytes: rng.random(),
    }
}

/// A message in its parts, each in a datagram of its own.
fn long_message() -> Vec<Vec<u8>> {
    let message: Vec<_> = (0..bundle::MESSAGE_BYTES_MAX).map(|at| (at >> 4) as u8).collect();
    let parts = MessagePart::of(SessionId::new(0, 7), Channel::Reliable(9), 0, &message);
    let datagram = |part| {
        let mut buf = vec![0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        assert!(writer.message(&part));
        writer.bytes().to_vec()
    };
    parts.map(datagram).collect()
}

/// A record that nobody knows yet and that may be skipped.
fn later_record<'a>(buf: &'a mut [u8], rng: &mut TestRng) -> Frame<'a> {
    let len = rng.random_range(4..=buf.len());
    buf[..4].copy_from_slice(&[len as u8, 0, rng.random_range(128..=255), rng.random()]);
    Frames::new(&buf[..len]).next().expect("one").expect("whole")
}

#[test]
fn the_header_reads_every_datagram_as_the_codec_does() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/reader.c");
    let gateway = Gateway::start(folder.path(), 1, 9);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let mut datagrams: Vec<_> = (0..400).map(|_| hostile_datagram(&mut rng)).collect();
    datagrams.extend(named_mistakes());
    datagrams.push(vec![4, 0, 0, 0]);
    datagrams.extend(long_message());
    datagrams.extend(long_message().into_iter().skip(1));
    // Whoever leaves, or is moved away, leaves nothing that has begun.
    let session = SessionId::new(0, 7);
    for is_moved in [false, true] {
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf);
        assert!(if is_moved {
            writer.moved(session, 5)
        } else {
            writer.closed(session, CloseReason::PlayerLeft)
        });
        datagrams.extend(long_message().into_iter().take(2));
        datagrams.push(writer.bytes().to_vec());
        datagrams.extend(long_message());
    }
    let mut assembly = Assembly::new();
    let mut link = welcomed(&gateway, &mut game);
    let mut losses = 0;
    for datagram in datagrams {
        link.send_bytes(&datagram);
        for expected in expected_lines(&datagram, &mut assembly) {
            assert_eq!(game.line(), expected, "{datagram:02x?}");
            if expected.starts_with("lost") {
                losses += 1;
                assembly.clear();
                game.go_on();
                link = welcomed(&gateway, &mut game);
            }
        }
    }
    assert!(losses > 100, "the mistakes are noticed: {losses}");
    link.send_bytes(&[6, 0, 7, 0, 1, 0]);
    assert_eq!(game.line(), lost(1, 0));
    game.end();
}

/// One datagram for each mistake that chance may miss.
fn named_mistakes() -> Vec<Vec<u8>> {
    vec![
        vec![0; BUNDLE_BYTES_MAX + 1],
        vec![4, 0, 1, 0],
        vec![12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        vec![13, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        vec![18, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![18, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![18, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![18, 0, 2, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![18, 0, 2, 0, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![18, 0, 2, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![17, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![6, 0, 7, 0, 7, 3],
        vec![7, 0, 7, 0, 7, 3, 0],
        vec![14, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        vec![4, 0, 16, 0],
        vec![4, 0, 127, 0],
        vec![4, 0, 128, 1, 3, 0, 128, 0],
    ]
}

fn welcomed(gateway: &Gateway, game: &mut Game) -> GatewayLink {
    let link = gateway.accept_and_welcome(0);
    assert_eq!(game.line(), "up workers=1 incarnation=9 version=6");
    link
}
