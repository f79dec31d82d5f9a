//! The libraries of `bindings/`, each in its language: its own tests, its echo server behind a
//! running gateway, and a match that registers itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_io::Choice;
use ringgate_link::announce::{Announced, Announcement, Standing, State};
use ringgate_link::bundle::{
    Answer, Channel, CloseAfter, CloseReason, Move, MoveRefusal, Offered, Opened, ToGateway,
    USER_DATA_BYTES,
};

use crate::folder::Folder;
use crate::link_gateway::{Gateway, GatewayLink, listen, opened};
use crate::link_header::waits_as_it_should;
use crate::link_library::build_todays_library;
use crate::link_program::Game;
use crate::link_whole::serve_and_crash_and_return;
use crate::token_languages::{go_cache, run_well, skip, works};

/// A folder of the bindings.
fn binding(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings").join(folder)
}

pub(crate) fn go(arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(binding("go"));
    // Nothing is fetched: the library needs Go alone.
    command.envs([("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off"), ("GO111MODULE", "on")]);
    command.env("GOCACHE", go_cache());
    command
}

/// The examples of a language, built where they have to be.
pub(crate) struct Examples {
    built: Folder,
    run: fn(&Folder, &str) -> Command,
}

impl Examples {
    /// Runs one of them, called as in Go.
    pub(crate) fn run(&self, example: &str) -> Command {
        (self.run)(&self.built, example)
    }

    /// `None` where there is no Go, which is said aloud; likewise for the other languages.
    pub(crate) fn in_go() -> Option<Self> {
        if !works(go(&["version"])) {
            skip("Go", "go is missing");
            return None;
        }
        let built = Folder::new();
        run_well(go(&["build", "-o"]).arg(built.join("")).arg("./examples/..."));
        Some(Self { built, run: |built, example| Command::new(built.join(example)) })
    }

    pub(crate) fn in_python() -> Option<Self> {
        let mut probe = Command::new("python3");
        probe.args(["-c", "import ctypes"]);
        if !works(probe) {
            skip("Python", "python3 is missing");
            return None;
        }
        let built = Folder::new();
        let library = build_todays_library(&built);
        assert_eq!(library, built.join(LIBRARY));
        let run = |built: &Folder, example: &str| {
            let mut command = Command::new("python3");
            command.arg("-B").arg(binding("python/examples").join(format!("{example}.py")));
            command.env("PYTHONPATH", binding("python"));
            command.env("RINGGATE_BACKEND_LIBRARY", built.join(LIBRARY));
            command
        };
        Some(Self { built, run })
    }

    pub(crate) fn in_csharp() -> Option<Self> {
        let built = Folder::new();
        let examples = ["Echo", "Snapshots", "Match"].map(|it| format!("examples/{it}.cs"));
        let tested = ["Waits", "Farewell", "Moves"].map(|it| format!("{TESTED}{it}.cs"));
        for source in examples.into_iter().chain(tested) {
            let source = binding("csharp").join(source);
            let program = built.join("").join(source.file_name().expect("a file"));
            let mut build = Command::new("mcs");
            build.args(["-unsafe", "-warnaserror", "-langversion:7"]);
            build.arg(binding("csharp/Ringgate.Backend.cs"));
            build.arg(source);
            build.arg(format!("-out:{}", program.with_extension("exe").display()));
            if !works(build) {
                skip("C#", "mono and its compiler are missing, or it does not compile");
                return None;
            }
        }
        build_todays_library(&built);
        let run = |built: &Folder, example: &str| {
            let mut command = Command::new("mono");
            command.arg(built.join(&program_in_csharp(example)));
            command.env("LD_LIBRARY_PATH", built.join(""));
            command
        };
        Some(Self { built, run })
    }
}

/// `Echo.exe` for `echo`.
fn program_in_csharp(example: &str) -> String {
    let (first, rest) = example.split_at(1);
    format!("{}{rest}.exe", first.to_uppercase())
}

/// From a language's folder to programs that are no examples.
const TESTED: &str = "../../tests/all/bindings/";

const LIBRARY: &str = "libringgate_backend.so.1";

#[test]
fn a_server_in_go_serves_players_and_gets_them_back_after_a_crash() {
    let Some(examples) = Examples::in_go() else { return };
    run_well(&mut go(&["vet", "./..."]));
    run_well(&mut go(&["test", "-timeout", "120s", "./..."]));
    serve_and_crash_and_return(Choice::Mmsg, || examples.run("echo"));
}

#[test]
fn a_server_in_python_serves_players_and_gets_them_back_after_a_crash() {
    let Some(examples) = Examples::in_python() else { return };
    serve_and_crash_and_return(Choice::Mmsg, || examples.run("echo"));
}

#[test]
fn a_server_in_csharp_serves_players_and_gets_them_back_after_a_crash() {
    let Some(examples) = Examples::in_csharp() else { return };
    serve_and_crash_and_return(Choice::Mmsg, || examples.run("echo"));
}

#[test]
fn a_match_in_go_announces_what_the_codec_reads() {
    Examples::in_go().iter().for_each(hold_to_the_codec);
}

#[test]
fn a_match_in_python_announces_what_the_codec_reads() {
    Examples::in_python().iter().for_each(hold_to_the_codec);
}

#[test]
fn a_match_in_csharp_announces_what_the_codec_reads() {
    Examples::in_csharp().iter().for_each(hold_to_the_codec);
}

#[test]
fn a_deadline_that_has_passed_is_not_waited_for_in_python_and_csharp() {
    if let Some(python) = Examples::in_python() {
        waits_as_it_should(python.run(&format!("../{TESTED}waits")));
    }
    if let Some(csharp) = Examples::in_csharp() {
        waits_as_it_should(csharp.run("waits"));
    }
}

#[test]
fn a_session_is_closed_after_delivery_in_python_and_csharp() {
    if let Some(python) = Examples::in_python() {
        closes_after_delivery(python.run(&format!("../{TESTED}farewell")));
    }
    if let Some(csharp) = Examples::in_csharp() {
        closes_after_delivery(csharp.run("farewell"));
    }
}

/// A program that closes the first player who comes.
fn closes_after_delivery(program: Command) {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::run(program, folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    let (session, user_data, reason) = (link.session(1), [0; USER_DATA_BYTES], CloseReason::Kicked);
    link.send(|writer| {
        assert!(writer.opened(&opened(link.session(2), &user_data)));
        assert!(writer.opened(&Opened { delivers: true, ..opened(session, &user_data) }));
    });
    let raw = ["False", "-9", "-5", "-9", "-5", "0 1", "0 1", "0 1", "-3 0", "-9"];
    let whole = ["True", "0", "-5", "0", "-5", "0 1", "-5 0", "-5 0", "-5 0", "0"];
    for results in [raw, whole] {
        for (what, result) in TRIED.iter().zip(results) {
            assert_eq!(game.line(), format!("{what} {result}"));
        }
    }
    assert_eq!(game.line(), "refused -8");
    let close = CloseAfter { session, reason, linger_ms: 5000, text: "adé".as_bytes() };
    // What was taken comes before.
    let is_the_end = |said: Vec<u8>| {
        ToGateway::read(&said).any(|record| record == Ok(ToGateway::CloseAfter(close)))
    };
    while !link.receive().is_some_and(is_the_end) {}
    link.send(|writer| {
        assert!(writer.lingered(session, 7, true) && writer.closed(session, reason));
    });
    assert_eq!((game.line(), game.line()), ("lingered 7 True".to_owned(), "closed 129".to_owned()));
    game.end();
}

#[test]
fn a_player_is_moved_in_python_and_csharp() {
    if let Some(python) = Examples::in_python() {
        moves_players(python.run(&format!("../{TESTED}moves")));
    }
    if let Some(csharp) = Examples::in_csharp() {
        moves_players(csharp.run("moves"));
    }
}

/// A program that has its first player moved, and takes in who comes with something.
fn moves_players(program: Command) {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::run(program, folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    let (player, denied, coming) = (link.session(1), link.session(2), link.session(3));
    let user_data = [7; USER_DATA_BYTES];
    let player_opened = Opened { delivers: true, ..opened(player, &user_data) };
    link.send(|writer| assert!(writer.opened(&player_opened)));
    assert_eq!(game.line(), "opened True False 0 eu-west");
    assert_eq!(game.line(), "moves -11 -12 -7 -5 0 0");
    let moved = Move {
        session: player,
        backend: "zone-2",
        ticket: 12,
        time_ms: 7000,
        confirms: true,
        message: Some((Channel::Sequenced(3), b"do\0or")),
        data: b"le\0vel",
    };
    let shortest =
        Move { ticket: 0, time_ms: 2000, confirms: false, message: None, data: b"", ..moved };
    hears(&link, &[ToGateway::Move(moved), ToGateway::Move(shortest)]);
    let offered = Offered {
        session: denied,
        offer: 4,
        ticket: 13,
        client_id: 42,
        address: player_opened.address,
        slot: 6,
        slots_max: 64,
        left_ms: 2500,
        delivers: true,
        user_data: &user_data,
        listener: "eu-west",
        from: "zone-1",
        data: b"",
    };
    let with_key = Offered { session: coming, offer: 5, data: b"key", ..offered };
    let came = Opened { session: coming, ticket: Some(13), ..player_opened };
    link.send(|writer| {
        assert!(writer.move_refused(player, 0, MoveRefusal::Busy));
        assert!(writer.offered(&offered) && writer.offered(&with_key));
        assert!(writer.offer_over(coming, 5, MoveRefusal::Time));
        assert!(writer.opened(&came) && writer.moved(player, 12));
    });
    let about = "13 2500 42 203.0.113.9:40001 6 64 7 256 eu-west zone-1 True";
    for line in [
        "refused 0 10 the player is being moved already".to_owned(),
        format!("offered 4 {about} "),
        format!("offered 5 {about} key"),
        "over 5 6 no answer in time".to_owned(),
        "opened True True 13 eu-west".to_owned(),
        "moved 12".to_owned(),
    ] {
        assert_eq!(game.line(), line);
    }
    let answer = |session, offer, answer| ToGateway::Answer { session, offer, answer };
    let (no, yes) = (answer(denied, 4, Answer::No), answer(coming, 5, Answer::Yes));
    hears(&link, &[no, yes, ToGateway::Confirm { session: player }]);
    game.end();
}

/// Reads what the program says, which is that.
fn hears(link: &GatewayLink, expected: &[ToGateway<'_>]) {
    let mut left = expected;
    while !left.is_empty() {
        let said = link.receive().expect("it says more");
        for record in ToGateway::read(&said) {
            assert_eq!(record.as_ref(), Ok(&left[0]));
            left = &left[1..];
        }
    }
}

/// What is tried before a player is closed.
const TRIED: [&str; 10] = [
    "opened",
    "message 65536",
    "message 65537",
    "message 1159",
    "message 1160",
    "payload 1159",
    "payload 1160",
    "payload 1200",
    "payload 1201",
    "asked",
];

/// The match of a language with a gateway that only registers.
fn hold_to_the_codec(examples: &Examples) {
    let folder = Folder::new();
    let listener = listen(&folder.join("announce.sock"));
    let mut game = Game::run(examples.run("match"), folder.path(), "arena-1");
    let accept = || GatewayLink::accept(&listener, 0);
    let gateway = accept();
    let arena = Announcement::new("arena", 4).label("map", "dust").label("mode", "café");
    let starting = announced(&gateway);
    assert_eq!(starting.what, arena.clone().state(State::Starting));
    let ready = announced(&gateway);
    let instance = starting.instance;
    assert_eq!(ready, Announced { name: "arena-1".to_owned(), instance, what: arena });
    for standing in [
        Standing::Registered,
        Standing::NameTaken,
        Standing::NameInConfig,
        Standing::TooMany,
        Standing::Invalid,
        Standing::Refused,
        Standing::Waiting,
        Standing::Unauthorised,
    ] {
        gateway.send_bytes(&standing.encode());
        assert_eq!(game.line(), standing.text());
    }
    // It goes on trying, and what it was told last stands until it is told otherwise.
    drop(gateway);
    let gateway = accept();
    assert_eq!(announced(&gateway), ready, "the latest, to the next gateway too");
    gateway.send_bytes(&Standing::Registered.encode());
    assert_eq!(game.line(), Standing::Registered.text());
    // Another start of it is another one.
    drop((game, gateway));
    let _game = Game::run(examples.run("match"), folder.path(), "arena-1");
    assert_ne!(announced(&accept()).instance, instance);
    // What cannot be said is not.
    for name in ["-arena", "a+b", &"n".repeat(32)] {
        let refused = examples.run("match").arg(folder.path()).arg(name).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{name}");
        assert!(said.contains("an announcement with a name"), "{name}: {said}");
    }
    plays_on(examples);
}

/// A match whose last player leaves while another one comes.
fn plays_on(examples: &Examples) {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::run(examples.run("match"), folder.path(), "arena-1");
    let link = gateway.accept_and_welcome(0);
    let [first, second] = [1, 2].map(|serial| link.session(serial));
    let (user_data, reason) = ([0; USER_DATA_BYTES], CloseReason::PlayerLeft);
    link.send(|writer| assert!(writer.opened(&opened(first, &user_data))));
    assert_eq!(game.line(), "1 players");
    link.send(|writer| {
        assert!(writer.closed(first, reason) && writer.opened(&opened(second, &user_data)));
    });
    assert_eq!((game.line(), game.line()), ("0 players".to_owned(), "1 players".to_owned()));
    link.send(|writer| assert!(writer.payload(second, b"x")));
    hears(&link, &[ToGateway::Payload { session: second, bytes: b"x" }]);
    link.send(|writer| assert!(writer.closed(second, reason)));
    assert_eq!(game.line(), "0 players");
    game.end();
}

fn announced(gateway: &GatewayLink) -> Announced {
    let record = gateway.receive().expect("it announces itself");
    Announced::decode(&record).expect("by the codec")
}
