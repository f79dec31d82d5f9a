//! The Rust backend library against a gateway that speaks only the codec.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ringgate_core::limits::{BUNDLE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_link::backend::{Backend, Event, LinkLoss, Options, Outbox, SendError};
use ringgate_link::bundle::{
    Channel, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, Goodbye, GoodbyeReason, Hello,
    LINGER_MS_MAX, LONG_PAYLOAD_BYTES_MAX, MessagePart, Opened, RecordError,
    SHORT_MESSAGE_BYTES_MAX, SessionId, ToGateway, USER_DATA_BYTES, VERSION_FAREWELL, VERSION_MAX,
    VERSION_PLAIN, Welcome,
};
use ringgate_os::clock::Clock;
use ringgate_os::notify;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::control_rig::{PATIENCE, wait_for};
use crate::folder::Folder;
use crate::link_gateway::{Gateway, GatewayLink, opened, opened_plain};

/// A game process that is connected to every worker.
fn connected(workers: usize) -> (Folder, Gateway, Vec<GatewayLink>, Backend) {
    let dir = Folder::new();
    let gateway = Gateway::start(dir.path(), workers, 7);
    let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
    let mut links = Vec::new();
    for worker in 0..workers {
        links.push(gateway.accept_and_welcome(worker));
        if worker == 0 {
            run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { worker: 0, .. }));
        }
    }
    let mut up = 1;
    while up < workers {
        run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { .. }));
        up += 1;
    }
    assert!(backend.is_up() && backend.workers() == workers);
    (dir, gateway, links, backend)
}

/// Runs the game's loop until `handle` has seen what it waits for.
fn run_until(backend: &mut Backend, mut handle: impl FnMut(Event<'_>, &mut Outbox) -> bool) {
    // However often it is woken meanwhile.
    let clock = Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        backend.wait(Some(Duration::from_millis(100))).expect("epoll works");
        let mut events = backend.poll().expect("epoll works");
        while let Some((event, outbox)) = events.next() {
            if handle(event, outbox) {
                backend.flush();
                return;
            }
        }
        backend.flush();
    }
    panic!("what the test waits for does not happen");
}

fn next_loss(backend: &mut Backend) -> (usize, LinkLoss, u64) {
    let mut seen = None;
    run_until(backend, |event, _| {
        if let Event::LinkLost { worker, loss, payloads_unsent } = event {
            seen = Some((worker, loss, payloads_unsent));
        }
        seen.is_some()
    });
    seen.expect("just seen")
}

#[test]
fn it_says_hello_to_every_worker() {
    let dir = Folder::new();
    let gateway = Gateway::start(dir.path(), 3, 99);
    let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
    assert!(!backend.is_up());
    for worker in 0..3 {
        let link = gateway.accept(worker);
        let hello = link.receive().expect("hello");
        let expected = Hello::new(std::process::id(), "arena-1");
        assert!(ToGateway::read(&hello).eq([Ok(ToGateway::Hello(expected))]));
        link.send(|writer| assert!(writer.welcome(&gateway.welcome(worker))));
        run_until(&mut backend, |event, _| {
            assert_eq!(
                event,
                Event::LinkUp { worker, workers: 3, incarnation: 99, version: VERSION_MAX }
            );
            true
        });
        // The first welcome says how many there are; the others are connected by then.
        assert_eq!(backend.workers(), 3);
        std::mem::forget(link);
    }
    assert!(backend.is_up());
}

#[test]
fn players_and_payloads_arrive_and_answers_leave_in_one_datagram() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let link = &links[0];
    let session = link.session(1);
    let user_data = std::array::from_fn(|at| at as u8);
    link.send(|writer| {
        assert!(writer.opened(&opened(session, &user_data)));
        for n in 1..=100 {
            assert!(writer.payload(session, &[n; 100]));
        }
    });
    let (mut players, mut payloads) = (0, 0u8);
    run_until(&mut backend, |event, outbox| {
        match event {
            Event::Opened(player) => {
                assert_eq!(player, opened(session, &user_data));
                players += 1;
            }
            Event::Payload { session: from, bytes } => {
                payloads += 1;
                assert_eq!((from, bytes), (session, &[payloads; 100][..]));
                outbox.send(from, bytes).expect("the link is up");
            }
            other => panic!("{other:?}"),
        }
        payloads == 100
    });
    assert_eq!(players, 1);

    let bundle = link.receive().expect("the answers");
    let mut expected = Vec::new();
    for n in 1..=100 {
        expected.extend([112, 0, 1, 0]);
        expected.extend(session.as_u64().to_le_bytes());
        expected.extend([n; 100]);
    }
    assert_eq!(bundle, expected);
    let stats = backend.outbox().stats();
    assert_eq!((stats.payloads_taken, stats.payloads_sent, stats.bundles_sent), (100, 100, 1));
}

#[test]
fn payloads_of_every_length_pass_both_ways() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let (link, session) = (&links[0], links[0].session(1));
    for len in 1..=PAYLOAD_BYTES_MAX {
        let payload = vec![len as u8; len];
        link.send(|writer| assert!(writer.payload(session, &payload)));
        run_until(&mut backend, |event, outbox| {
            let Event::Payload { session, bytes } = event else { panic!("{event:?}") };
            outbox.send(session, bytes).expect("the link is up");
            true
        });
        let answer = link.receive().expect("an answer");
        let expected = ToGateway::Payload { session, bytes: &payload };
        assert!(ToGateway::read(&answer).eq([Ok(expected)]));
    }
}

#[test]
fn what_cannot_be_sent_is_refused_and_counted() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let session = links[0].session(1);
    let outbox = backend.outbox();
    assert_eq!(outbox.send(session, &[]), Err(SendError::PayloadLength));
    let long = [0; LONG_PAYLOAD_BYTES_MAX + 1];
    assert_eq!(outbox.send(session, &long), Err(SendError::PayloadLength));
    let longer_than_a_multicast = &long[..=PAYLOAD_BYTES_MAX];
    assert_eq!(
        outbox.multicast(&[session], longer_than_a_multicast),
        Err(SendError::PayloadLength)
    );
    assert_eq!(outbox.multicast(&[session], &[]), Err(SendError::PayloadLength));
    assert_eq!(outbox.close(session, CloseReason::TimedOut), Err(SendError::NotAChoice));
    let elsewhere = SessionId::new(1, 1);
    assert_eq!(outbox.send(elsewhere, b"x"), Err(SendError::LinkDown));
    assert_eq!(outbox.multicast(&[session, elsewhere], b"x"), Ok(1));
    assert_eq!(outbox.close(elsewhere, CloseReason::Kicked), Err(SendError::LinkDown));
    assert_eq!(outbox.stats().payloads_link_down, 2);
    assert_eq!(outbox.stats().payloads_taken, 1);
}

#[test]
fn a_payload_for_a_player_who_gets_messages_is_no_longer_than_one() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let [whole, raw] = [1, 2].map(|serial| links[0].session(serial));
    let announce = |backend: &mut Backend| {
        links[0].send(|writer| {
            let user_data = [0; USER_DATA_BYTES];
            assert!(writer.opened(&Opened { delivers: true, ..opened(whole, &user_data) }));
            assert!(writer.opened(&opened(raw, &user_data)));
        });
        for expected in [whole, raw] {
            run_until(backend, |event, _| {
                let Event::Opened(player) = event else { panic!("{event:?}") };
                assert_eq!((player.session, player.delivers), (expected, expected == whole));
                true
            });
        }
    };
    announce(&mut backend);
    let refused = Err(SendError::MessageLength);
    let (longest, longer) = ([0; SHORT_MESSAGE_BYTES_MAX], [0; SHORT_MESSAGE_BYTES_MAX + 1]);
    let outbox = backend.outbox();
    assert_eq!(outbox.send(whole, &longest), Ok(()));
    assert_eq!(outbox.send(whole, &longer), refused);
    assert_eq!(outbox.send(whole, &[0; PAYLOAD_BYTES_MAX]), refused);
    assert_eq!(outbox.send(raw, &[0; PAYLOAD_BYTES_MAX]), Ok(()));
    assert_eq!(outbox.multicast(&[raw, whole], &longest), Ok(2));
    assert_eq!(outbox.multicast(&[raw, whole], &longer).map(|_| ()), refused);
    assert_eq!(outbox.multicast(&[raw], &longer), Ok(1));
    assert_eq!(outbox.stats().payloads_taken, 5, "nothing of what was refused");
    // The number may be another player's once the session is closed.
    links[0].send(|writer| assert!(writer.closed(whole, CloseReason::PlayerLeft)));
    run_until(&mut backend, |event, _| matches!(event, Event::Closed { .. }));
    assert_eq!(backend.outbox().send(whole, &longer), Ok(()));
}

const RELIABLE: Channel = Channel::Reliable(0);

#[test]
fn a_message_for_a_player_who_gets_none_is_refused_where_the_gateway_says_who_does() {
    for version in [VERSION_FAREWELL - 1, VERSION_FAREWELL] {
        let dir = Folder::new();
        let gateway = Gateway::start(dir.path(), 1, 7);
        let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
        let link = gateway.accept(0);
        link.receive().expect("hello");
        let [whole, raw, plain] = [1, 2, 3].map(|serial| link.session(serial));
        link.send(|writer| {
            assert!(writer.welcome(&Welcome { version, ..gateway.welcome(0) }));
            let delivers = version >= VERSION_FAREWELL;
            let user_data = [0; USER_DATA_BYTES];
            assert!(writer.opened(&Opened { delivers, ..opened(whole, &user_data) }));
            assert!(writer.opened(&opened(raw, &user_data)));
            assert!(writer.opened_plain(&opened_plain(plain, 0)));
        });
        run_until(&mut backend, |event, _| matches!(event, Event::OpenedPlain(_)));
        let outbox = backend.outbox();
        let mut ask = |session| {
            let sent = outbox.send_message(session, RELIABLE, b"x", None);
            assert_eq!(outbox.ask_quality(session), sent);
            sent
        };
        assert_eq!(ask(whole), Ok(()));
        let refused = match version {
            VERSION_FAREWELL => Err(SendError::NoDelivery),
            _ => Ok(()),
        };
        assert_eq!((ask(raw), ask(plain)), (refused, refused));
        link.send(|writer| assert!(writer.closed(whole, CloseReason::PlayerLeft)));
        run_until(&mut backend, |event, _| matches!(event, Event::Closed { .. }));
        let sent = backend.outbox().send_message(whole, RELIABLE, b"x", None);
        assert_eq!(sent, refused);
    }
}

#[test]
fn a_payload_for_a_player_of_netcode_is_no_longer_than_its_packets() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let [netcode, plain] = [1, 2].map(|serial| links[0].session(serial));
    links[0].send(|writer| {
        assert!(writer.opened(&opened(netcode, &[0; USER_DATA_BYTES])));
        assert!(writer.opened_plain(&opened_plain(plain, 0)));
        assert!(writer.opened_plain(&opened_plain(plain, 1)));
    });
    let mut openings = 0;
    run_until(&mut backend, |event, _| {
        openings += usize::from(matches!(event, Event::Opened(_) | Event::OpenedPlain(_)));
        openings == 3
    });
    let refused = Err(SendError::PayloadLength);
    let (longest, longer) = ([0; LONG_PAYLOAD_BYTES_MAX], [0; PAYLOAD_BYTES_MAX + 1]);
    let outbox = backend.outbox();
    assert_eq!(outbox.send(netcode, &longer), refused);
    assert_eq!(outbox.send(netcode, &longest), refused);
    assert_eq!(outbox.send(netcode, &longest[..PAYLOAD_BYTES_MAX]), Ok(()));
    assert_eq!(outbox.send(plain, &longer), Ok(()));
    assert_eq!(outbox.send(plain, &longest), Ok(()));
    assert_eq!(outbox.multicast(&[netcode, plain], &longest[..PAYLOAD_BYTES_MAX]), Ok(2));
    assert_eq!(outbox.multicast(&[plain], &longer).map(|_| ()), refused, "in no multicast");
    assert_eq!(outbox.stats().payloads_taken, 5, "nothing of what was refused");
    // Of a session that is over, the gateway says so.
    links[0].send(|writer| assert!(writer.closed(netcode, CloseReason::PlayerLeft)));
    run_until(&mut backend, |event, _| matches!(event, Event::Closed { .. }));
    assert_eq!(backend.outbox().send(netcode, &longest), Ok(()));
}

#[test]
fn a_session_is_closed_after_delivery_and_by_an_earlier_gateway_at_once() {
    let close = |outbox: &mut Outbox, session, text: &[u8]| {
        outbox.close_after(session, CloseReason::Kicked, Duration::from_hours(1), text)
    };
    let (_dir, _gateway, links, mut backend) = connected(1);
    let session = links[0].session(1);
    let outbox = backend.outbox();
    let too_long = close(outbox, session, &[b'x'; FAREWELL_BYTES_MAX + 1]);
    assert_eq!(too_long, Err(SendError::FarewellLength));
    let not_a_choice =
        outbox.close_after(session, CloseReason::TimedOut, Duration::from_secs(1), b"");
    assert_eq!(not_a_choice, Err(SendError::NotAChoice));
    assert_eq!(close(outbox, SessionId::new(1, 1), b""), Err(SendError::LinkDown));
    let text = [b'x'; FAREWELL_BYTES_MAX];
    assert_eq!(close(outbox, session, &text), Ok(()));
    backend.flush();
    let reason = CloseReason::Kicked;
    let said = CloseAfter { session, reason, linger_ms: LINGER_MS_MAX, text: &text };
    let bundle = links[0].receive().expect("the end");
    assert!(ToGateway::read(&bundle).eq([Ok(ToGateway::CloseAfter(said))]));
    links[0].send(|writer| {
        assert!(writer.lingered(session, 7, true) && writer.closed(session, reason));
    });
    let (undelivered_bytes, is_told) = (7, true);
    for expected in
        [Event::Lingered { session, undelivered_bytes, is_told }, Event::Closed { session, reason }]
    {
        run_until(&mut backend, |event, _| {
            assert_eq!(event, expected);
            true
        });
    }

    let dir = Folder::new();
    let gateway = Gateway::start(dir.path(), 1, 7);
    let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
    let link = gateway.accept(0);
    link.receive().expect("hello");
    let version = VERSION_FAREWELL - 1;
    link.send(|writer| assert!(writer.welcome(&Welcome { version, ..gateway.welcome(0) })));
    run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { .. }));
    assert_eq!(close(backend.outbox(), session, b"bye"), Ok(()));
    backend.flush();
    let bundle = link.receive().expect("the end");
    assert!(ToGateway::read(&bundle).eq([Ok(ToGateway::Close { session, reason })]));
}

#[test]
fn a_multicast_crosses_each_link_once() {
    let (_dir, _gateway, links, mut backend) = connected(2);
    let sessions: Vec<_> =
        (1..=1500).flat_map(|n| [links[0].session(n), links[1].session(n)]).collect();
    assert_eq!(backend.outbox().multicast(&sessions, &[9; 200]), Ok(3000));
    backend.flush();
    for link in &links {
        let mut received = Vec::new();
        while received.len() < 1500 {
            let bundle = link.receive().expect("a part of the multicast");
            for record in ToGateway::read(&bundle) {
                let Ok(ToGateway::Multicast { sessions, bytes }) = record else {
                    panic!("{record:?}")
                };
                assert_eq!(bytes, [9; 200]);
                received.extend(sessions.iter());
            }
        }
        assert!(received.into_iter().eq((1..=1500).map(|n| link.session(n))));
    }
    assert_eq!(backend.outbox().stats().payloads_sent, 3000);
}

#[test]
fn a_turn_is_answered_with_one_datagram_on_each_link() {
    let (_dir, _gateway, links, mut backend) = connected(2);
    let sessions = [links[0].session(1), links[1].session(1)];
    for link in &links {
        link.send(|writer| assert!(writer.payload(link.session(1), b"said by one")));
        link.send(|writer| assert!(writer.payload(link.session(1), b"said by one")));
    }
    let mut heard = 0;
    run_until(&mut backend, |event, outbox| {
        let Event::Payload { bytes, .. } = event else { panic!("{event:?}") };
        assert_eq!(outbox.multicast(&sessions, bytes), Ok(2));
        heard += 1;
        heard == 4
    });
    for link in &links {
        let bundle = link.receive().expect("the answers");
        assert_eq!(ToGateway::read(&bundle).count(), 4, "all in one");
    }
}

#[test]
fn a_full_link_refuses_payloads_keeps_closes_and_leaves_the_other_alone() {
    let (_dir, _gateway, links, mut backend) = connected(2);
    let (stuck, free) = (links[0].session(1), links[1].session(1));
    let mut taken = 0;
    while backend.outbox().send(stuck, &[1; PAYLOAD_BYTES_MAX]).is_ok() {
        taken += 1;
        assert!(taken < 100_000, "nobody reads this link");
    }
    let again = backend.outbox().send(stuck, &[1; PAYLOAD_BYTES_MAX]);
    assert_eq!(again, Err(SendError::LinkFull));
    for serial in 1..=3000 {
        backend.outbox().close(links[0].session(serial), CloseReason::Finished).expect("link up");
    }
    backend.outbox().send(free, b"still here").expect("this link has room");
    backend.flush();
    let answer = links[1].receive().expect("the other link's payload");
    let expected = ToGateway::Payload { session: free, bytes: b"still here" };
    assert!(ToGateway::read(&answer).eq([Ok(expected)]));

    // The gateway reads again: the game is woken by room alone and sends the rest.
    let reader = std::thread::spawn({
        let link = links.into_iter().next().expect("the stuck link");
        move || {
            let (mut payloads, mut closed) = (0, Vec::new());
            while closed.len() < 3000 {
                for record in ToGateway::read(&link.receive().expect("more to come")) {
                    match record.expect("valid") {
                        ToGateway::Payload { .. } if closed.is_empty() => payloads += 1,
                        ToGateway::Close { session, .. } => closed.push(session),
                        record => panic!("out of order: {record:?}"),
                    }
                }
            }
            assert!(closed.into_iter().eq((1..=3000).map(|serial| link.session(serial))));
            link.send(|writer| assert!(writer.pong(0)));
            payloads
        }
    });
    run_until(&mut backend, |event, _| matches!(event, Event::Pong { .. }));
    let received = reader.join().expect("the gateway got every close, in order");
    assert_eq!(received, taken, "every payload that was taken arrived, and none that was refused");
    let stats = backend.outbox().stats();
    assert_eq!((stats.payloads_taken, stats.payloads_sent), (taken + 1, taken + 1));
    assert_eq!((stats.payloads_link_full, stats.payloads_lost), (2, 0));
}

#[test]
fn a_process_that_ends_waits_until_all_that_it_has_said_has_left() {
    let (_dir, _gateway, mut links, mut backend) = connected(1);
    let link = links.remove(0);
    for serial in 1..=3000 {
        let (session, linger) = (link.session(serial), Duration::from_secs(1));
        let closed =
            backend.outbox().close_after(session, CloseReason::Kicked, linger, &[b'x'; 200]);
        closed.expect("the link is up");
    }
    assert!(backend.flush_for(Duration::ZERO) > 0);
    let reader = std::thread::spawn(move || {
        let bundles = std::iter::from_fn(|| link.receive());
        bundles.map(|bundle| ToGateway::read(&bundle).count()).sum::<usize>()
    });
    assert_eq!(backend.flush_for(PATIENCE), 0);
    drop(backend);
    assert_eq!(reader.join().expect("it only reads"), 3000);
}

#[test]
fn a_restarted_gateway_is_found_again_with_other_workers() {
    let (dir, gateway, links, mut backend) = connected(2);
    let session = links[0].session(1);
    drop((gateway, links));
    let mut lost = [next_loss(&mut backend), next_loss(&mut backend)];
    lost.sort_by_key(|&(worker, ..)| worker);
    assert_eq!(lost, [(0, LinkLoss::HungUp, 0), (1, LinkLoss::HungUp, 0)]);
    assert_eq!(backend.outbox().send(session, b"x"), Err(SendError::LinkDown));

    let gateway = Gateway::start(dir.path(), 3, 8);
    let listening = std::thread::spawn(move || {
        let links: Vec<_> = (0..3).map(|worker| gateway.accept_and_welcome(worker)).collect();
        (gateway, links)
    });
    let mut up = Vec::new();
    run_until(&mut backend, |event, _| {
        let Event::LinkUp { worker, workers, incarnation, .. } = event else { panic!("{event:?}") };
        up.push((worker, workers, incarnation));
        up.len() == 3
    });
    up.sort_unstable();
    assert_eq!(up, [(0, 3, 8), (1, 3, 8), (2, 3, 8)]);
    let (_gateway, links) = listening.join().expect("three links");
    backend.outbox().send(links[2].session(1), b"again").expect("the link is up");
    backend.flush();
    let answer = links[2].receive().expect("the payload");
    let expected = ToGateway::Payload { session: links[2].session(1), bytes: b"again" };
    assert!(ToGateway::read(&answer).eq([Ok(expected)]));
}

#[test]
fn payloads_that_go_down_with_their_link_are_counted() {
    let (_dir, _gateway, mut links, mut backend) = connected(1);
    let session = links[0].session(1);
    for _ in 0..5 {
        backend.outbox().send(session, b"too late").expect("the link is up");
    }
    links.clear();
    // No flush before the loss is noticed: `wait` would flush.
    let seen = wait_for("the loss", || {
        let mut seen = None;
        let mut events = backend.poll().expect("epoll works");
        while let Some((event, _)) = events.next() {
            if let Event::LinkLost { loss, payloads_unsent, .. } = event {
                seen = Some((loss, payloads_unsent));
            }
        }
        seen
    });
    assert_eq!(seen, (LinkLoss::HungUp, 5));
    let stats = backend.outbox().stats();
    assert_eq!((stats.payloads_taken, stats.payloads_sent, stats.payloads_lost), (5, 0, 5));
}

#[test]
fn a_goodbye_is_read_even_when_the_gateway_left_our_data_unread() {
    let (_dir, _gateway, mut links, mut backend) = connected(1);
    let goodbye =
        Goodbye { reason: GoodbyeReason::RecordInvalid, error: Some(RecordError::PayloadLength) };
    for _ in 0..2 {
        backend.outbox().send(links[0].session(1), b"unread").expect("the link is up");
        backend.flush();
    }
    links[0].send(|writer| assert!(writer.goodbye(goodbye)));
    links.clear();
    // The kernel reports the reset to whichever call comes first; a send must not swallow the rest.
    backend.outbox().send(SessionId::new(0, 1), b"into the void").expect("not noticed yet");
    assert_eq!(next_loss(&mut backend).1, LinkLoss::Goodbye(goodbye));
}

#[test]
fn a_gateway_that_breaks_the_format_loses_the_link() {
    let too_long = vec![0; BUNDLE_BYTES_MAX + 1];
    let cases: [(&[u8], LinkLoss); 4] = [
        (&[12, 0, 5, 0, 0], LinkLoss::RecordInvalid(RecordError::RecordLength)),
        (&[4, 0, 19, 0], LinkLoss::RecordInvalid(RecordError::KindUnknown)),
        (
            &[13, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
            LinkLoss::RecordInvalid(RecordError::SessionZero),
        ),
        (&too_long, LinkLoss::RecordInvalid(RecordError::DatagramTooLong)),
    ];
    for (bytes, expected) in cases {
        let (_dir, gateway, links, mut backend) = connected(1);
        links[0].send_bytes(bytes);
        assert_eq!(next_loss(&mut backend).1, expected);
        let listening = std::thread::spawn(move || (gateway.accept_and_welcome(0), gateway));
        run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { .. }));
        listening.join().expect("the link is made again");
    }
}

#[test]
fn nothing_counts_before_the_welcome_and_no_second_one_is_taken() {
    let right = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 7 };
    let cases: [(&[Welcome], LinkLoss); 4] = [
        (&[], LinkLoss::WelcomeExpected),
        (&[right, right], LinkLoss::WelcomeExpected),
        (
            &[Welcome { version: VERSION_MAX + 1, ..right }],
            LinkLoss::VersionUnsupported(VERSION_MAX + 1),
        ),
        (
            &[Welcome { worker: 1, workers: 2, ..right }],
            LinkLoss::RecordInvalid(RecordError::WorkerInvalid),
        ),
    ];
    for (welcomes, expected) in cases {
        let dir = Folder::new();
        let gateway = Gateway::start(dir.path(), 1, 7);
        let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
        let link = gateway.accept(0);
        link.send(|writer| {
            assert!(welcomes.iter().all(|welcome| writer.welcome(welcome)));
            assert!(writer.payload(link.session(1), b"x"));
        });
        assert_eq!(next_loss(&mut backend).1, expected);
        assert!(!backend.is_up());
    }
}

/// A link of an older version does not take what only later ones have room for.
#[test]
fn long_payloads_leave_only_on_links_that_know_them() {
    for version in [VERSION_PLAIN - 1, VERSION_PLAIN] {
        let dir = Folder::new();
        let gateway = Gateway::start(dir.path(), 1, 7);
        let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
        let link = gateway.accept(0);
        link.send(|writer| {
            assert!(writer.welcome(&Welcome { version, ..gateway.welcome(0) }));
        });
        run_until(&mut backend, |event, outbox| {
            assert!(matches!(event, Event::LinkUp { .. }), "{event:?}");
            let sent = outbox.send(link.session(1), &[0; PAYLOAD_BYTES_MAX + 1]);
            assert_eq!(sent.is_ok(), version >= VERSION_PLAIN);
            true
        });
    }
}

#[test]
fn pings_come_back_with_a_round_trip() {
    let (_dir, _gateway, links, mut backend) = connected(2);
    assert_eq!(backend.ping(), 2);
    backend.flush();
    for link in &links {
        let bundle = link.receive().expect("the ping");
        let Some(Ok(ToGateway::Ping { token })) = ToGateway::read(&bundle).next() else {
            panic!("{bundle:?}")
        };
        link.send(|writer| assert!(writer.pong(token)));
    }
    let mut answered = Vec::new();
    run_until(&mut backend, |event, _| {
        let Event::Pong { worker, round_trip } = event else { panic!("{event:?}") };
        assert!(round_trip > Duration::ZERO);
        answered.push(worker);
        answered.len() == 2
    });
    answered.sort_unstable();
    assert_eq!(answered, [0, 1]);
}

#[test]
fn draining_and_closed_are_told() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let session = links[0].session(1);
    links[0].send(|writer| {
        assert!(writer.draining(30_000) && writer.closed(session, CloseReason::PlayerLeft));
    });
    let mut seen = Vec::new();
    run_until(&mut backend, |event, _| {
        seen.push(format!("{event:?}"));
        seen.len() == 2
    });
    let expected = [
        Event::Draining { worker: 0, left: Duration::from_secs(30) },
        Event::Closed { session, reason: CloseReason::PlayerLeft },
    ];
    assert_eq!(seen, expected.map(|event| format!("{event:?}")));
}

#[test]
fn nothing_is_left_of_a_message_that_has_begun_for_who_leaves_or_is_moved_away() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let [session, other] = [1, 2].map(|serial| links[0].session(serial));
    let part = |session, is_last, bytes| MessagePart {
        session,
        channel: Channel::Reliable(0),
        is_first: true,
        is_last,
        token: 0,
        bytes,
    };
    for is_moved in [false, true] {
        links[0].send(|writer| {
            assert!(writer.message(&part(session, false, b"half")));
            assert!(if is_moved {
                writer.moved(session, 5)
            } else {
                writer.closed(session, CloseReason::PlayerLeft)
            });
            assert!(writer.message(&part(other, true, b"whole")));
        });
        run_until(&mut backend, |event, _| match event {
            Event::Message { session, bytes, .. } => {
                assert_eq!((session, bytes), (other, &b"whole"[..]));
                true
            }
            Event::LinkLost { loss, .. } => panic!("{loss}"),
            _ => false,
        });
    }
}

#[test]
fn events_that_were_not_taken_come_with_the_next_poll() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let session = links[0].session(1);
    let user_data = [0; USER_DATA_BYTES];
    links[0].send(|writer| {
        assert!(writer.opened(&opened(session, &user_data)));
        assert!(writer.payload(session, b"one") && writer.payload(session, b"two"));
    });
    let mut seen = Vec::new();
    while seen.len() < 3 {
        // One event from each poll; what is left is a reason not to sleep.
        assert!(backend.wait(Some(PATIENCE)).expect("epoll works"));
        if let Some((event, _)) = backend.poll().expect("epoll works").next() {
            seen.push(match event {
                Event::Opened(player) => player.listener.as_bytes().to_vec(),
                Event::Payload { bytes, .. } => bytes.to_vec(),
                event => panic!("{event:?}"),
            });
        }
    }
    assert_eq!(seen, [&b"eu-west"[..], b"one", b"two"]);
}

/// A game that polls the descriptor by itself takes one event of each turn: it never sleeps over
/// records that wait, and sleeps when all are taken.
#[test]
fn the_descriptor_is_readable_while_records_wait() {
    let (_dir, _gateway, links, mut backend) = connected(1);
    let session = links[0].session(1);
    let is_readable = |backend: &Backend, patience: Duration| {
        let mut set = [notify::awaited(backend.as_raw_fd())];
        notify::wait(&mut set, patience).expect("ppoll works") == 1
    };
    let take_one = |backend: &mut Backend| {
        let mut events = backend.poll().expect("epoll works");
        events.next().map(|(event, _)| match event {
            Event::Payload { bytes, .. } => bytes[0],
            event => panic!("{event:?}"),
        })
    };
    for first in [1_u8, 11, 21] {
        links[0].send(|writer| {
            for n in first..first + 5 {
                assert!(writer.payload(session, &[n]));
            }
        });
        for n in first..first + 5 {
            assert!(is_readable(&backend, Duration::from_secs(10)), "{n} waits");
            assert_eq!(take_one(&mut backend), Some(n));
        }
        assert_eq!(take_one(&mut backend), None);
        assert!(!is_readable(&backend, Duration::ZERO), "nothing is left");
    }
}

#[test]
fn connecting_needs_a_gateway_and_starting_waits_for_one() {
    let dir = Folder::new();
    let error = Backend::connect(dir.path(), "arena-1").expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    for name in ["", "two words", "a-name-that-is-longer-than-thirty-two-bytes"] {
        let error = Backend::connect(dir.path(), name).expect_err("not a name");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    let options = Options::new(dir.path(), "arena-1").batch_delay(Duration::ZERO).queue_bundles(1);
    let mut backend = options.start().expect("a gateway may come later");
    assert!(!backend.wait(Some(Duration::ZERO)).expect("epoll works"));
    let gateway = Gateway::start(dir.path(), 1, 7);
    let listening = std::thread::spawn(move || (gateway.accept_and_welcome(0), gateway));
    run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { .. }));
    assert!(backend.is_up());
    listening.join().expect("the link");
}

#[test]
fn a_gateway_to_which_many_connect_is_waited_for() {
    let dir = Folder::new();
    let gateway = Gateway::start(dir.path(), 1, 7);
    let at = SockAddr::unix(dir.join("worker-0.sock")).expect("short path");
    let connects = || {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking(), None);
        let socket = socket.expect("a descriptor");
        socket.connect(&at).is_ok().then_some(socket)
    };
    let others: Vec<_> = std::iter::from_fn(connects).collect();
    let mut backend = Backend::connect(dir.path(), "arena-1").expect("the gateway listens");
    for _ in &others {
        drop(gateway.accept(0));
    }
    let listening = std::thread::spawn(move || (gateway.accept_and_welcome(0), gateway));
    run_until(&mut backend, |event, _| matches!(event, Event::LinkUp { .. }));
    listening.join().expect("the link");
}

#[test]
fn a_backend_may_move_to_another_thread() {
    const fn is_send<T: Send>() {}
    const { is_send::<Backend>() }
}
