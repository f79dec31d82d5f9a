//! Game processes and gateways of different releases: what one offers, the other chooses from, and
//! what a later one says in addition is passed over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_link::backend::{Backend, Event, LinkLoss};
use ringgate_link::bundle::{ToGateway, USER_DATA_BYTES, Welcome};

use crate::command::Ends;
use crate::folder::Folder;
use crate::link_gateway::{Gateway, GatewayLink, opened};
use crate::link_program::{Game, compile};

/// Takes a hello as the gateway of the first release did, which refuses everything else: no flags,
/// version 1 and nothing but that, a process id that it does not look at, and a name.
fn first_release_welcomes(gateway: &Gateway, worker: usize) -> GatewayLink {
    let link = gateway.accept(worker);
    let hello = link.receive().expect("hello");
    let (fixed, name) = hello.split_at(10);
    assert_eq!(fixed[..6], [hello.len() as u8, 0, 16, 0, 1, 0]);
    assert!((1..=32).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic));
    let welcome = Welcome { version: 1, ..gateway.welcome(worker) };
    link.send(|writer| assert!(writer.welcome(&welcome)));
    link
}

/// Takes a hello that offers versions 1 to 6, as a gateway does that speaks 1 to 9.
fn later_release_welcomes(gateway: &Gateway, worker: usize) -> GatewayLink {
    let link = gateway.accept(worker);
    let hello = link.receive().expect("hello");
    assert_eq!(([hello[4], hello[5]], hello[9]), ([1, 0], 6));
    let welcome = Welcome { version: 6, ..gateway.welcome(worker) };
    link.send(|writer| assert!(writer.welcome(&welcome)));
    link
}

/// An opening and a payload between records of a later version.
fn speak_later_version(link: &GatewayLink) {
    let session = link.session(7);
    let later: [&[u8]; 3] = [&[4, 0, 129, 0], &[7, 0, 200, 0xff, 1, 2, 3], &[5, 0, 255, 0, 9]];
    let mut bundle = later.concat();
    link.send(|writer| {
        assert!(writer.opened(&opened(session, &[1; USER_DATA_BYTES])));
        bundle.extend(writer.bytes());
    });
    bundle.extend(later.concat());
    bundle.extend([17, 0, 1, 0]);
    bundle.extend(session.as_u64().to_le_bytes());
    bundle.extend(*b"hello");
    bundle.extend(later.concat());
    link.send_bytes(&bundle);
    link.send_bytes(&later.concat());
}

fn expect_echo(link: &GatewayLink) {
    let answer = link.receive().expect("the echo");
    let expected = ToGateway::Payload { session: link.session(7), bytes: b"hello" };
    assert!(ToGateway::read(&answer).eq([Ok(expected)]), "{answer:02x?}");
}

/// Runs a backend that echoes, until `enough` says so.
fn echo_until(backend: &mut Backend, mut enough: impl FnMut(Event<'_>) -> bool) {
    let mut done = false;
    while !done {
        backend.wait(None).expect("links work");
        let mut events = backend.poll().expect("links work");
        while let Some((event, outbox)) = events.next() {
            if let Event::Payload { session, bytes } = event {
                outbox.send(session, bytes).expect("the link is up");
            }
            done |= enough(event);
        }
        backend.flush();
    }
}

#[test]
fn the_library_speaks_the_first_version_with_a_gateway_of_the_first_release() {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut backend = Backend::connect(folder.path(), "arena-1").expect("a gateway");
    let link = first_release_welcomes(&gateway, 0);
    echo_until(&mut backend, |event| {
        assert_eq!(event, Event::LinkUp { worker: 0, workers: 1, incarnation: 7, version: 1 });
        true
    });
    link.send(|writer| assert!(writer.payload(link.session(7), b"hello")));
    echo_until(&mut backend, |event| matches!(event, Event::Payload { .. }));
    expect_echo(&link);
}

#[test]
fn the_library_passes_over_what_a_later_gateway_says() {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut backend = Backend::connect(folder.path(), "arena-1").expect("a gateway");
    let link = later_release_welcomes(&gateway, 0);
    echo_until(&mut backend, |event| {
        assert!(matches!(event, Event::LinkUp { version: 6, .. }), "{event:?}");
        true
    });
    speak_later_version(&link);
    link.send(|writer| assert!(writer.draining(1)));
    let mut seen = 0;
    echo_until(&mut backend, |event| {
        assert!(!matches!(event, Event::LinkLost { .. }), "{event:?}");
        seen += 1;
        matches!(event, Event::Draining { .. })
    });
    assert_eq!(seen, 4, "opened twice, a payload, draining");
    expect_echo(&link);
}

#[test]
fn nothing_is_passed_over_before_the_welcome() {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut backend = Backend::connect(folder.path(), "arena-1").expect("a gateway");
    gateway.accept(0).send_bytes(&[4, 0, 128, 0]);
    echo_until(&mut backend, |event| {
        let expected = LinkLoss::WelcomeExpected;
        assert!(matches!(event, Event::LinkLost { loss, .. } if loss == expected), "{event:?}");
        true
    });
}

#[test]
fn the_header_speaks_with_gateways_of_other_releases() {
    let folder = Folder::new();
    let program = compile(&folder, "crates/link/examples/c/echo.c");
    for welcome in [first_release_welcomes, later_release_welcomes] {
        let gateway = Gateway::start(folder.path(), 1, 7);
        let mut game = Game::start(&program, folder.path(), "arena-1");
        let link = welcome(&gateway, 0);
        assert_eq!(game.line(), "link 0 of 1 is up");
        link.send(|writer| assert!(writer.payload(link.session(7), b"hello")));
        expect_echo(&link);
    }
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut game = Game::start(&program, folder.path(), "arena-1");
    let link = later_release_welcomes(&gateway, 0);
    assert_eq!(game.line(), "link 0 of 1 is up");
    speak_later_version(&link);
    expect_echo(&link);
    for _ in 0..2 {
        assert!(game.line().starts_with("player "), "opened, between records of a later version");
    }
    link.send_bytes(&[4, 0, 127, 0]);
    assert_eq!(game.line(), "link 0 is down: reason 257", "other kinds may not be skipped");
}

/// What a game process has said in one datagram.
fn says(link: &GatewayLink, expected: &[ToGateway<'_>]) {
    let said = link.receive().expect("it says something");
    let said: Vec<_> = ToGateway::read(&said).map(|it| it.expect("sound")).collect();
    assert_eq!(said, expected);
}

/// A game that takes nobody new until a payload tells it to, and sends payloads back.
fn tells_on_each_link_whether_players_may_come(gateway: &Gateway) {
    let tell = |link: &GatewayLink, bytes: &[u8]| {
        link.send(|writer| {
            assert!(writer.opened(&opened(link.session(7), &[1; USER_DATA_BYTES])));
            assert!(writer.payload(link.session(7), bytes));
        });
    };
    let intake = |is_open| ToGateway::Intake { is_open };
    let link = first_release_welcomes(gateway, 0);
    let back = |bytes| ToGateway::Payload { session: link.session(7), bytes };
    tell(&link, b"close");
    says(&link, &[back(b"close")]);
    drop(link);
    for _ in 0..2 {
        says(&gateway.accept_and_welcome(0), &[intake(false)]);
    }
    let link = gateway.accept_and_welcome(0);
    says(&link, &[intake(false)]);
    tell(&link, b"open");
    let back = |bytes| ToGateway::Payload { session: link.session(7), bytes };
    says(&link, &[back(b"open"), intake(true)]);
    tell(&link, b"open");
    says(&link, &[back(b"open")]);
}

#[test]
fn the_library_says_on_each_link_whether_players_may_come() {
    let folder = Folder::new();
    let gateway = Gateway::start(folder.path(), 1, 7);
    let mut backend = Backend::connect(folder.path(), "arena-1").expect("a gateway");
    backend.set_intake(false);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut said = None;
                backend.wait(Some(Duration::from_millis(20))).expect("links work");
                let mut events = backend.poll().expect("links work");
                while let Some((event, outbox)) = events.next() {
                    if let Event::Payload { session, bytes } = event {
                        outbox.send(session, bytes).expect("the link is up");
                        said = Some(bytes == b"open");
                    }
                }
                if let Some(is_open) = said {
                    backend.set_intake(is_open);
                }
                backend.flush();
            }
        });
        let _ends = Ends(&is_over);
        tells_on_each_link_whether_players_may_come(&gateway);
    });
}

#[test]
fn the_header_says_on_each_link_whether_players_may_come() {
    let folder = Folder::new();
    let program = compile(&folder, "tests/all/link_header/intake.c");
    let gateway = Gateway::start(folder.path(), 1, 7);
    let _game = Game::start(&program, folder.path(), "arena-1");
    tells_on_each_link_whether_players_may_come(&gateway);
}
