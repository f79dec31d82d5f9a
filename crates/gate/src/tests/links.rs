//! Bundle links: who may connect, what a link that breaks the format or has no room comes to,
//! processes that restart.

use super::clients::{Library, Player, Scribe};
use super::games::{Game, Heard};
use super::rig::{Asked, OUR_USER, Rig, bundle_backend, home, listener, plain_setup, udp_backend};
use crate::counters::{Ended, LinkRefusal};
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::pace::BatchDelay;
use crate::setup::{Allowed, Credentials, LinkKind, Setup};
use ringgate_batch::{IoEvent, SendFailure};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_core::netcode::user_data;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{CloseReason, Goodbye, GoodbyeReason, Hello, RecordError, VERSION_MAX};

fn ready() -> (Rig, Game) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    (rig, game)
}

fn goodbye(reason: GoodbyeReason) -> [Heard; 1] {
    [Heard::Goodbye(Goodbye { reason, error: None })]
}

fn is_closed(rig: &Rig, game: &Game) -> bool {
    rig.requests.contains(&Asked::Close(game.link))
}

#[test]
fn a_process_has_to_be_allowed() {
    let mut rig = Rig::new(plain_setup());
    for (credentials, is_welcome) in [
        (Credentials { uid: 0, gid: 0, pid: 0 }, false),
        (Credentials { uid: 1001, gid: 1000, pid: 0 }, false),
        (OUR_USER, true),
    ] {
        let game = Game::connect(&mut rig, credentials);
        game.hello(&mut rig, "arena");
        if is_welcome {
            assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { .. }]));
        } else {
            assert_eq!(game.hear(&mut rig), goodbye(GoodbyeReason::Unauthorised));
        }
        assert_eq!(is_closed(&rig, &game), !is_welcome);
    }
    assert_eq!(rig.counters().links_refused, 2);
}

#[test]
fn a_hello_names_a_bundle_backend_that_nobody_else_is() {
    let backends = vec![bundle_backend("arena", 4), udp_backend("box", "127.0.0.1:7777", 4)];
    let mut rig = Rig::new(Setup::new(vec![listener("eu", &[0])], backends, 1));
    let first = Game::join(&mut rig, "arena");
    for (name, reason) in [
        ("arena", GoodbyeReason::NameTaken),
        ("box", GoodbyeReason::NameUnknown),
        ("Arena", GoodbyeReason::NameUnknown),
    ] {
        let game = Game::join(&mut rig, name);
        assert_eq!(game.hear(&mut rig), goodbye(reason));
        assert!(is_closed(&rig, &game));
    }
    assert!(!is_closed(&rig, &first));
}

/// What a process of another release says, byte by byte: the version that is chosen.
#[test]
fn a_hello_offers_versions_and_the_highest_in_common_is_chosen() {
    for (offer, chosen) in [
        // The first release: one version, and a process id in four bytes.
        ([1, 0, 0xe1, 0x10, 0, 0], Some(1)),
        ([1, 0, 0xe1, 0x10, 0, 1], Some(1)),
        ([1, 0, 0xe1, 0x10, 0, 2], Some(2)),
        ([1, 0, 0xff, 0xff, 0xff, 9], Some(VERSION_MAX)),
        ([2, 0, 0, 0, 0, 255], Some(VERSION_MAX)),
        ([3, 0, 0, 0, 0, 3], Some(3)),
        ([0, 0, 0, 0, 0, 1], Some(1)),
        ([4, 0, 0, 0, 0, 4], Some(4)),
        ([5, 0, 0, 0, 0, 5], Some(5)),
        ([6, 0, 0, 0, 0, 9], Some(6)),
        ([7, 0, 0, 0, 0, 9], None),
        ([7, 0, 0, 0, 0, 0], None),
        ([7, 0, 0, 0, 0, 1], None),
        ([1, 1, 0, 0, 0, 9], None),
        ([0, 0, 0, 0, 0, 0], None),
    ] {
        let mut rig = Rig::new(plain_setup());
        let game = Game::connect(&mut rig, OUR_USER);
        let hello = [&[15, 0, 16, 0][..], &offer, b"arena"].concat();
        game.push_bytes(&mut rig, &hello);
        rig.turn();
        match (&game.hear(&mut rig)[..], chosen) {
            ([Heard::Welcome { version, .. }], Some(chosen)) => {
                assert_eq!(*version, chosen, "{offer:?}");
            }
            (heard, _) => {
                assert_eq!(heard, goodbye(GoodbyeReason::VersionUnsupported), "{offer:?}");
                assert_eq!(chosen, None, "{offer:?}");
            }
        }
    }
}

#[test]
fn records_of_a_later_version_are_passed_over() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    let bundle = [
        &[12, 0, 19, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
        &[4, 0, 128, 0],
        &[9, 0, 255, 0x81, b'l', b'a', b't', b'e', b'r'],
        &[12, 0, 19, 0, 2, 0, 0, 0, 0, 0, 0, 0],
    ];
    game.push_bytes(&mut rig, &bundle.concat());
    rig.turn();
    assert_eq!(game.hear(&mut rig), [Heard::Pong(1), Heard::Pong(2)]);
    assert_eq!(rig.counters().links_refused, 0);

    game.push_bytes(&mut rig, &[4, 0, 127, 0]);
    rig.turn();
    let error = Some(RecordError::KindUnknown);
    let goodbye_to = Goodbye { reason: GoodbyeReason::RecordInvalid, error };
    assert_eq!(game.hear(&mut rig), [Heard::Goodbye(goodbye_to)], "others may not be skipped");

    let early = Game::connect(&mut rig, OUR_USER);
    early.push_bytes(&mut rig, &[4, 0, 128, 0]);
    rig.turn();
    assert_eq!(early.hear(&mut rig), goodbye(GoodbyeReason::HelloExpected));
}

#[test]
fn a_hello_comes_first_and_once() {
    let mut rig = Rig::new(plain_setup());
    let silent = Game::connect(&mut rig, OUR_USER);
    silent.say(&mut rig, |w| w.ping(1));
    assert_eq!(silent.hear(&mut rig), goodbye(GoodbyeReason::HelloExpected));
    let twice = Game::join(&mut rig, "arena");
    twice.hello(&mut rig, "arena");
    let heard = twice.hear(&mut rig);
    assert_eq!(heard[1..], goodbye(GoodbyeReason::HelloExpected));
    assert!(is_closed(&rig, &twice));
    Game::join(&mut rig, "arena");
}

#[test]
fn who_connects_and_says_nothing_is_parted_from() {
    let mut rig = Rig::new(plain_setup());
    let silent = Game::connect(&mut rig, OUR_USER);
    rig.turn();
    let due_ns = rig.host.gate().poll_timeout().expect("a deadline");
    assert!(due_ns > rig.now.mono_ns, "an idle worker sleeps");
    rig.pass(4_900);
    assert!(!is_closed(&rig, &silent));
    rig.pass(200);
    assert_eq!(silent.hear(&mut rig), goodbye(GoodbyeReason::HelloExpected));
    assert!(is_closed(&rig, &silent));
    assert_eq!(rig.host.gate().poll_timeout(), None);
}

/// A gate with a backend of one user and one of another.
fn two_users() -> (Rig, Credentials) {
    let other = Credentials { uid: 2000, gid: 2000, pid: 0 };
    let mut backends = vec![bundle_backend("arena", 4), bundle_backend("other", 4)];
    backends[1].link = LinkKind::Bundle { allow: Allowed { uids: vec![2000], gids: Vec::new() } };
    (Rig::new(Setup::new(vec![listener("eu", &[0])], backends, 1)), other)
}

fn refusals(rig: &Rig, why: LinkRefusal) -> u64 {
    rig.counters().link_refusals[why as usize]
}

#[test]
fn whom_no_backend_allows_is_refused_at_once_and_takes_no_room() {
    let (mut rig, other) = two_users();
    let stranger = Credentials { uid: 3000, gid: 3000, pid: 0 };
    for _ in 0..5 {
        let links: Vec<_> = (0..100).map(|_| rig.accept_link(stranger)).collect();
        rig.turn();
        let closed = |link: &_| rig.requests.contains(&Asked::Close(*link));
        assert!(links.iter().all(closed), "none stays for a hello that it may not say");
        let told = Game::on(links[7]).hear(&mut rig);
        assert_eq!(told, goodbye(GoodbyeReason::Unauthorised));
    }
    assert_eq!(refusals(&rig, LinkRefusal::Unauthorised), 500);
    let last = rig.host.gate().last_refused()[LinkRefusal::Unauthorised as usize];
    assert_eq!(last, Some(stranger));
    for (user, name) in [(OUR_USER, "arena"), (other, "other")] {
        let game = Game::connect(&mut rig, user);
        game.hello(&mut rig, name);
        assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { .. }]));
    }
}

#[test]
fn the_nameless_of_one_user_are_bounded_and_lock_nobody_else_out() {
    let (mut rig, other) = two_users();
    let links: Vec<_> = (0..100).map(|_| rig.accept_link(other)).collect();
    rig.turn();
    let refused = rig.requests.clone();
    assert_eq!(refused.len(), 68, "more than 32 wait to say who they are");
    assert_eq!(refused[0], Asked::Close(links[0]), "the oldest goes first");
    assert_eq!(refusals(&rig, LinkRefusal::TooManyNameless), 68);
    let game = Game::join(&mut rig, "arena");
    assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { .. }]));
    let game = Game::on(links[95]);
    game.hello(&mut rig, "other");
    assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { .. }]));
    rig.requests.clear();
    rig.pass(5_100);
    assert_eq!(rig.requests.len(), 31, "the others had their time");
    assert_eq!(refusals(&rig, LinkRefusal::HelloExpected), 31);
}

/// One that connects again and again, and its children, keep no other process of their user out.
#[test]
fn silent_processes_keep_no_other_process_of_their_user_from_linking() {
    let mut rig = Rig::new(plain_setup());
    let connect = |rig: &mut Rig, pid| rig.accept_link(Credentials { pid, ..OUR_USER });
    let first: Vec<_> = (0..20).map(|_| connect(&mut rig, 7)).collect();
    rig.turn();
    let refused: Vec<_> = first[16..].iter().map(|link| Asked::Close(*link)).collect();
    assert_eq!(rig.requests, refused, "one process may have 16");
    rig.requests.clear();
    rig.pass(10);
    let second: Vec<_> = (0..14).map(|_| connect(&mut rig, 8)).collect();
    let others = [9, 10, 11].map(|pid| connect(&mut rig, pid));
    rig.turn();
    assert_eq!(rig.requests, [Asked::Close(first[0])], "the oldest of who has most");
    let game = Game::on(others[0]);
    game.hello(&mut rig, "arena");
    assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { .. }]));
    assert_eq!(refusals(&rig, LinkRefusal::TooManyNameless), 5);
    for link in [first[1], second[0], others[1], others[2]] {
        assert!(!rig.requests.contains(&Asked::Close(link)), "their time is not over");
    }
}

#[test]
fn a_reload_that_allows_less_ends_links_by_name() {
    let (mut rig, other) = two_users();
    let game = Game::join(&mut rig, "arena");
    let stays = Game::connect(&mut rig, other);
    stays.hello(&mut rig, "other");
    let nameless = Game::connect(&mut rig, OUR_USER);
    let mut player = Player::connected(&mut rig, home(1), 1);
    for process in [&game, &stays] {
        process.hear(&mut rig);
    }
    let mut setup = rig.host.gate().setup().clone();
    setup.backends[BackendId(0)].link =
        LinkKind::Bundle { allow: Allowed { uids: vec![7], gids: vec![] } };
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
    assert_eq!(game.hear(&mut rig), goodbye(GoodbyeReason::Unauthorised));
    assert_eq!(nameless.hear(&mut rig), goodbye(GoodbyeReason::Unauthorised));
    assert!(is_closed(&rig, &game) && is_closed(&rig, &nameless) && !is_closed(&rig, &stays));
    assert_eq!(refusals(&rig, LinkRefusal::Unauthorised), 2);
    rig.provokes(DropReason::LinkDown, |rig| player.send(rig, b"x"));
    let again = Game::join(&mut rig, "arena");
    assert_eq!(again.hear(&mut rig), goodbye(GoodbyeReason::Unauthorised));
}

/// A backend that the config no longer has keeps its process and its players, also where the next
/// process does not know whom the config before allowed.
#[test]
fn a_retired_backend_keeps_its_link() {
    let (mut rig, game) = ready();
    let mut setup = rig.host.gate().setup().clone();
    setup.backends[BackendId(0)].retired = true;
    for allow in [Allowed { uids: vec![1000], gids: Vec::new() }, Allowed::default()] {
        setup.backends[BackendId(0)].link = LinkKind::Bundle { allow };
        rig.mail(Mail::Setup(setup.clone().into()));
        rig.turn();
        assert!(!is_closed(&rig, &game));
    }
    setup.backends[BackendId(0)].retired = false;
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
    assert!(is_closed(&rig, &game), "back in a config that does not allow it");
}

#[test]
fn a_bad_record_ends_its_link_with_the_reason_and_no_other() {
    let too_long = vec![0; BUNDLE_BYTES_MAX + 1];
    let bad: [(&[u8], RecordError); 5] = [
        (&[1], RecordError::HeaderTruncated),
        (&[3, 0, 1, 0], RecordError::RecordLength),
        (&[4, 0, 99, 0], RecordError::KindUnknown),
        (&[4, 0, 1, 1], RecordError::FlagsUnknown),
        (&too_long, RecordError::DatagramTooLong),
    ];
    for (bytes, error) in bad {
        let backends = vec![bundle_backend("arena", 4), bundle_backend("other", 4)];
        let mut rig = Rig::new(Setup::new(vec![listener("eu", &[1])], backends, 1));
        let game = Game::join(&mut rig, "arena");
        let other = Game::join(&mut rig, "other");
        let mut player = Player::connected(&mut rig, home(1), 1);
        game.hear(&mut rig);
        game.push_bytes(&mut rig, bytes);
        rig.turn();
        let reason = Goodbye { reason: GoodbyeReason::RecordInvalid, error: Some(error) };
        assert_eq!(game.hear(&mut rig), [Heard::Goodbye(reason)]);
        assert!(is_closed(&rig, &game) && !is_closed(&rig, &other));
        other.hear(&mut rig);
        player.send(&mut rig, b"x");
        assert_eq!(other.payloads(&mut rig), [b"x"]);
        assert_eq!(rig.drops(DropReason::RecordInvalid), 1);
    }
}

#[test]
fn what_came_before_a_bad_record_counts() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    let mut buf = [0; 200];
    let mut writer = ringgate_link::bundle::Writer::new(&mut buf);
    assert!(writer.payload(session, b"good"));
    let good = writer.bytes().to_vec();
    let rest = good.clone();
    game.push_bytes(&mut rig, &[&good[..], &[4, 0, 99, 0], &rest].concat());
    rig.turn();
    player.receive(&mut rig);
    assert_eq!(player.got, [b"good"], "and what comes after it does not");
}

#[test]
fn one_payload_for_many_and_a_ping() {
    let (mut rig, game) = ready();
    let mut players = [1, 2, 3].map(|n| Player::connected(&mut rig, home(n), n.into()));
    let guests = game.guests(&mut rig);
    let sessions: Vec<_> = guests.iter().map(|guest| guest.session).collect();
    game.say(&mut rig, |w| w.multicast(&sessions, b"snapshot") && w.ping(77));
    for player in &mut players {
        player.receive(&mut rig);
        assert_eq!(player.got, [b"snapshot"]);
    }
    assert_eq!(game.hear(&mut rig), [Heard::Pong(77)]);
    assert_eq!(rig.counters().payloads_down, 3);
}

#[test]
fn a_full_link_loses_payloads_by_name_and_nothing_else() {
    let (mut rig, game) = ready();
    let mut before = Player::connected(&mut rig, home(1), 1);
    let first = game.guests(&mut rig)[0].session;

    rig.obstacles.push((game.link, SendFailure::Full));
    before.send(&mut rig, b"lost");
    let scribe = Scribe::new(&rig.token(2));
    scribe.connect(&mut rig, home(2));
    rig.deliver(home(2), &scribe.payload(2, b"lost too"));
    before.leave(&mut rig);
    rig.deliver(home(2), &scribe.disconnect(3));
    let third = Scribe::new(&rig.token(3));
    third.connect(&mut rig, home(3));
    let payloads = rig.counters().payloads_up;
    assert_eq!(rig.drops(DropReason::LinkFull), payloads);
    assert!(rig.host.gate().poll_timeout().expect("retry") <= rig.now.mono_ns + 10_000_000);

    rig.obstacles.clear();
    rig.turn();
    let heard = game.hear(&mut rig);
    let opened: Vec<_> = heard
        .iter()
        .map(|heard| match heard {
            Heard::Opened(guest) => format!("+{}", guest.client_id),
            Heard::Closed(session, _) if *session == first => "-1".to_owned(),
            Heard::Closed(..) => "-2".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(opened, ["+2", "-1", "-2", "+3"], "in the order in which it happened");
}

#[test]
fn what_a_full_link_is_owed_arrives_in_order_however_long_it_takes() {
    let mut setup = plain_setup();
    setup.backends[BackendId(0)].slots = 200;
    setup.listeners[ListenerId(0)].sessions_max = 200;
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    rig.obstacles.push((game.link, SendFailure::Full));
    let mut expected = Vec::new();
    for id in 0..150 {
        // More than one bundle of openings, and closings between them.
        let scribe = Scribe::new(&rig.token(id));
        scribe.connect(&mut rig, home(id as u16));
        expected.push(format!("+{id}"));
        if id % 3 == 0 {
            rig.deliver(home(id as u16), &scribe.disconnect(2));
            expected.push(format!("-{id}"));
        }
    }
    let mut ids = std::collections::HashMap::new();
    let mut heard = Vec::new();
    for _ in 0..20 {
        rig.obstacles.clear();
        rig.turn();
        rig.obstacles.push((game.link, SendFailure::Full));
        rig.turn();
        for record in game.hear(&mut rig) {
            match record {
                Heard::Opened(guest) => {
                    ids.insert(guest.session, guest.client_id);
                    heard.push(format!("+{}", guest.client_id));
                }
                Heard::Closed(session, _) => heard.push(format!("-{}", ids[&session])),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(heard, expected);
}

#[test]
fn a_process_that_never_reads_loses_its_link_before_the_gateway_its_memory() {
    let mut setup = plain_setup();
    setup.backends[BackendId(0)].slots = 5000;
    setup.listeners[ListenerId(0)].sessions_max = 5000;
    setup.worker_sessions_max = 5000;
    setup.listeners[ListenerId(0)].limits = crate::Limits::NONE;
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    rig.obstacles.push((game.link, SendFailure::Full));
    let mut joined = 0;
    while !is_closed(&rig, &game) {
        let scribe = Scribe::new(&rig.token(joined));
        scribe.connect(&mut rig, home(joined as u16));
        rig.forget_tokens();
        rig.sent.clear();
        joined += 1;
        assert!(joined < 4500, "more than a megabyte is owed");
    }
    assert!(joined > 2000, "{joined}");
}

#[test]
fn a_restarted_process_is_told_again_who_is_here() {
    let (mut rig, game) = ready();
    let token = rig.token_with(1, |spec| spec.user_data = user_data(b"team=red").expect("short"));
    let mut player = Player::new(&rig, home(1), &token);
    player.connect(&mut rig);
    let before = game.guests(&mut rig).remove(0);
    assert_eq!(*before.user_data, user_data(b"team=red").expect("short"));
    game.crash(&mut rig);
    player.send(&mut rig, b"into the void");
    assert_eq!(rig.drops(DropReason::LinkDown), 1);
    player.live(&mut rig, 1500);
    assert!(player.library.is_connected());

    let game = Game::join(&mut rig, "arena");
    player.live(&mut rig, 200);
    let after = game.guests(&mut rig).remove(0);
    assert_eq!((after.session, after.client_id, after.slot), (before.session, 1, 0));
    assert_eq!((after.address, after.user_data), (before.address, before.user_data));
    player.send(&mut rig, b"hello again");
    assert_eq!(game.payloads(&mut rig), [b"hello again"]);
}

#[test]
fn a_payload_never_overtakes_the_opening_of_its_session() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    game.crash(&mut rig);
    let game = Game::join(&mut rig, "arena");
    player.send(&mut rig, b"at once");
    let heard = game.hear(&mut rig);
    let order = heard.iter().filter(|heard| !matches!(heard, Heard::Welcome { .. }));
    let order: Vec<_> = order.collect();
    assert!(matches!(order[..], [Heard::Opened(_), Heard::Payload(..)]), "{order:?}");
}

#[test]
fn players_wait_for_their_backend_for_its_grace_time() {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token_with(1, |spec| spec.timeout_seconds = -1));
    scribe.connect(&mut rig, home(1));
    game.crash(&mut rig);
    let new = Scribe::new(&rig.token(2));
    rig.provokes(DropReason::RequestBackendDown, |rig| rig.deliver(home(2), &new.request()));
    rig.pass(1_950);
    assert_eq!(rig.sessions(), 1);
    rig.take_for(home(1));
    rig.pass(200);
    assert_eq!(rig.sessions(), 0);
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
    let kinds = scribe.kinds(&mut rig, home(1));
    assert!(kinds.ends_with(&[PacketKind::Disconnect; 10]), "{kinds:?}");
}

#[test]
fn a_process_that_comes_hears_how_many_wait_for_it_and_how_long_it_may() {
    let mut rig = Rig::new(Setup { batch_delay: BatchDelay::AUTO, ..plain_setup() });
    let game = Game::join(&mut rig, "arena");
    assert_eq!(game.hear_players(&mut rig), [(0, 2000, Some(190))]);
    for client in 1..=2_u16 {
        let spec = rig.token_with(client.into(), |spec| spec.timeout_seconds = -1);
        Scribe::new(&spec).connect(&mut rig, home(client));
    }
    game.crash(&mut rig);
    let game = Game::join(&mut rig, "arena");
    assert_eq!(game.hear_players(&mut rig), [(2, 2000, Some(190))]);
    game.crash(&mut rig);
    // Nothing is said that a process of the first release would not pass over.
    let old = Game::connect(&mut rig, OUR_USER);
    let hello = Hello { version_min: 1, version_max: 0, pid: 0, name: "arena" };
    old.say(&mut rig, |w| w.hello(&hello));
    assert_eq!(old.hear_players(&mut rig), []);
    rig.pass(2_100);
}

#[test]
fn a_process_that_is_there_hears_that_players_wait_for_longer() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    Scribe::new(&rig.token(1)).connect(&mut rig, home(1));
    game.hear(&mut rig);
    let mut setup = rig.host.gate().setup().clone();
    let mut reload = |rig: &mut Rig, change: fn(&mut Setup)| {
        change(&mut setup);
        rig.mail(Mail::Setup(setup.clone().into()));
        rig.turn();
        game.hear_players(rig)
    };
    assert_eq!(reload(&mut rig, |_| {}), []);
    let longer = |setup: &mut Setup| setup.backends[BackendId(0)].grace_ns = 60_000_000_000;
    assert_eq!(reload(&mut rig, longer), [(1, 60_000, Some(0))]);
    let auto = |setup: &mut Setup| setup.batch_delay = BatchDelay::AUTO;
    assert_eq!(reload(&mut rig, auto), [(1, 60_000, Some(190))]);
    // The file of the next process may say something else.
    rig.hand_over();
    rig.host.gate_mut().tell_taken_over(2);
    rig.turn();
    assert_eq!(game.hear_players(&mut rig), [(1, 60_000, Some(190))]);
}

#[test]
fn the_last_words_of_a_process_are_heard() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    game.push(&mut rig, |w| {
        w.payload(session, b"bye") && w.close(session, CloseReason::GameShutdown)
    });
    game.crash(&mut rig);
    player.receive(&mut rig);
    assert_eq!(player.got, [b"bye"]);
    assert!(player.library.is_over());
    assert_eq!(rig.sessions(), 0);
}

#[test]
fn a_process_that_restarts_within_a_turn_takes_its_name_over() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.host.notice(IoEvent::Closed { socket: game.link });
    let again = Game::join(&mut rig, "arena");
    assert!(is_closed(&rig, &game) && !is_closed(&rig, &again));
    player.live(&mut rig, 200);
    let heard = again.hear(&mut rig);
    assert!(matches!(heard[..], [Heard::Welcome { .. }, Heard::Opened(_)]), "{heard:?}");
}

/// The process had ended behind its last words, and a player's payload finds that out first.
#[test]
fn a_link_that_breaks_while_it_is_written_to_is_read_to_its_end() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    rig.obstacles.push((game.link, SendFailure::Gone));
    for _ in 0..2 {
        player.send(&mut rig, b"x");
    }
    assert!(!is_closed(&rig, &game), "it may have said something");
    assert_eq!(rig.drops(DropReason::LinkDown), 2);
    game.say(&mut rig, |writer| writer.payload(session, b"last"));
    rig.event(IoEvent::Closed { socket: game.link });
    assert!(is_closed(&rig, &game));
    player.receive(&mut rig);
    assert_eq!(player.got, [b"last"]);
    rig.obstacles.clear();
    let game = Game::join(&mut rig, "arena");
    player.live(&mut rig, 200);
    assert_eq!(game.guests(&mut rig).len(), 1);
}

#[test]
fn more_than_a_bundle_in_a_turn_goes_in_several() {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    game.hear(&mut rig);
    for sequence in 2..52 {
        rig.push(home(1), &scribe.payload(sequence, &[sequence as u8; 1200]));
    }
    rig.turn();
    let payloads = game.payloads(&mut rig);
    assert_eq!(payloads.len(), 50);
    assert!(payloads.iter().zip(2..).all(|(payload, n)| *payload == [n; 1200]), "in order");
}

#[test]
fn draining_is_told_to_who_is_here_and_to_who_comes() {
    let backends = vec![bundle_backend("arena", 4), bundle_backend("other", 4)];
    let mut rig = Rig::new(Setup::new(vec![listener("eu", &[0])], backends, 1));
    let early = Game::join(&mut rig, "arena");
    let nameless = Game::connect(&mut rig, OUR_USER);
    let mut player = Player::connected(&mut rig, home(1), 1);
    early.hear(&mut rig);
    rig.mail(Mail::Drain { left_ms: 3000 });
    rig.turn();
    assert_eq!(early.hear(&mut rig), [Heard::Draining(3000)]);
    assert!(nameless.hear(&mut rig).is_empty(), "nothing comes before a welcome");
    player.live(&mut rig, 1000);
    assert!(player.library.is_connected(), "who is here stays");
    let late = Game::join(&mut rig, "other");
    let heard = late.hear(&mut rig);
    assert!(matches!(heard[..], [Heard::Welcome { .. }, Heard::Draining(2000)]), "{heard:?}");
}

#[test]
fn whoever_was_told_of_a_drain_is_told_that_it_is_undone() {
    let backends = ["arena", "old", "late"].map(|name| bundle_backend(name, 4));
    let mut rig = Rig::new(Setup::new(vec![listener("eu", &[0])], backends.to_vec(), 1));
    let game = Game::join(&mut rig, "arena");
    let nameless = Game::connect(&mut rig, OUR_USER);
    let first_release = Game::connect(&mut rig, OUR_USER);
    let hello = Hello { version_min: 1, version_max: 0, pid: 0, name: "old" };
    first_release.say(&mut rig, |writer| writer.hello(&hello));
    rig.mail(Mail::Drain { left_ms: 3000 });
    rig.turn();
    let late = Game::join(&mut rig, "late");
    let told = |heard: Vec<Heard>| heard.contains(&Heard::Draining(3000));
    assert!([&game, &first_release, &late].iter().all(|it| told(it.hear(&mut rig))));
    rig.mail(Mail::Undrain);
    rig.turn();
    assert_eq!(game.hear(&mut rig), [Heard::Undrained]);
    assert_eq!(late.hear(&mut rig), [Heard::Undrained]);
    assert!(first_release.hear(&mut rig).is_empty(), "it would not know the record");
    assert!(nameless.hear(&mut rig).is_empty(), "nothing comes before a welcome");
    let _player = Player::connected(&mut rig, home(1), 1);
    rig.mail(Mail::Undrain);
    rig.turn();
    let heard = game.hear(&mut rig);
    assert!(!heard.contains(&Heard::Undrained), "there was no drain: {heard:?}");
}

#[test]
fn draining_over_a_full_link_keeps_the_grace_of_its_players() {
    let (mut rig, game) = ready();
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.obstacles.push((game.link, SendFailure::Gone));
    rig.mail(Mail::Drain { left_ms: 3000 });
    rig.turn();
    rig.event(IoEvent::Closed { socket: game.link });
    rig.obstacles.clear();
    player.live(&mut rig, 1500);
    assert!(player.library.is_connected(), "the backend may come back for two seconds");
}
