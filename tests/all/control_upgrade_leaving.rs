//! Listeners and backends that drain while the gateway is handed over: their players play on in the
//! next process, and have as long as was said.

use std::net::UdpSocket;

use ringgate_core::netcode::State;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_io::Choice;
use ringgate_process::handover::Message;

use crate::control_listeners::{address_of, reload, shown, with};
use crate::control_rig::{Game, KEY_HEX, Player, Text, wait_for};
use crate::control_upgrade_kinds::{Edit, Fleet, Numbered, file};
use crate::delivery_ways::{DELIVERS, exchange, player as message_player};
use crate::gateway_rig::on_both_drivers;
use crate::own::own_address;
use crate::unreal_rig::Player as UnrealPlayer;
use crate::upgrade_rig::{Line, is_root, text};

on_both_drivers!(players_of_removed_listeners_play_on);

/// The file without its further listeners, and what is left of their backends.
fn without_listeners(text: &Text, keeps_backends: bool) -> Text {
    let is_kept = |table: &&str| keeps_backends && table.starts_with("[[backend]]");
    let tables = text.more.split_inclusive('\n').fold(Vec::<String>::new(), |mut all, line| {
        match all.last_mut() {
            Some(table) if !line.starts_with("[[") => table.push_str(line),
            _ => all.push(line.to_owned()),
        }
        all
    });
    let more = tables.iter().map(String::as_str).filter(is_kept).collect();
    Text { more, ..text.clone() }
}

fn players_of_removed_listeners_play_on(io: Choice) {
    let mut fleet = Fleet::start(io);
    let all = file(io, &fleet.servers, Edit::None);
    let gateway = |name: &str| fleet.listener(name);
    let udp = gateway("udp").expect("it is in the config");
    let mut resident = Player::connected(fleet.line.daemon.listener, 1, KEY_HEX);
    let mut netcode = vec![Player::connected(udp, 2, KEY_HEX)];
    netcode.extend(gateway("apart").map(|address| Player::connected(address, 3, KEY_HEX)));
    let mut plain = Numbered::new(gateway("any").expect("it is in the config"));
    let mut unreal = UnrealPlayer::new(Framing::default(), 5, gateway("ue").expect("it is there"));
    unreal.connect();
    plain.echo();
    plain.echo();
    let (players, leaving) = (netcode.len() + 3, netcode.len() + 2);
    reload(&fleet.line.daemon, &without_listeners(&all, true));
    let left_ms = |fleet: &Fleet, name: &str| {
        let listener = shown(&fleet.line.daemon, name).pop().expect("it drains");
        assert_eq!(listener["state"], "draining", "{listener}");
        listener["drain_left_ms"].as_u64().expect("a number")
    };
    let mut last_ms = left_ms(&fleet, "udp");
    // With backends and without: then they are retired, too.
    for keeps_backends in [true, true, false] {
        fleet.line.daemon.rewrite(&without_listeners(&all, keeps_backends));
        let before = fleet.sessions();
        assert_eq!(before.len(), players);
        fleet.upgrade();
        assert_eq!(fleet.sessions(), before, "places, slots and addresses are what they were");
        let metrics = fleet.line.daemon.get("/metrics");
        assert_eq!(metrics.value("ringgate_removed_listener_sessions"), Some(leaving as u64));
        for name in ["any", "ue"] {
            assert!(left_ms(&fleet, name) <= last_ms, "as long as was said");
        }
        last_ms = left_ms(&fleet, "udp");
        resident.echo(b"at home");
        for player in &mut netcode {
            player.echo(b"on it goes");
        }
        plain.echo();
        unreal.echo();
        if keeps_backends {
            unreal.change_port();
            unreal.ahead_ns += 11_000_000_000;
            unreal.echo();
        }
    }
    // A newcomer is refused.
    let newcomer = Numbered::new(fleet.listener("any").expect("it drains"));
    let refused = fleet.drops("draining");
    newcomer.send(1);
    wait_for("the newcomer's end", || (fleet.drops("draining") > refused).then_some(()));
    let mut stranger = Player::new(udp, 9, KEY_HEX);
    wait_for("the stranger's end", || {
        stranger.turn();
        (fleet.drops("draining") > refused + 1).then_some(())
    });

    // The file has one of them again: by a reload, and by the next process.
    let changes = reload(&fleet.line.daemon, &all);
    let changes = changes.as_array().expect("a list");
    for name in ["udp", "any", "ue"] {
        assert!(changes.contains(&format!("listener {name} is back").into()), "{changes:?}");
    }
    Player::connected(udp, 4, KEY_HEX).echo(b"a newcomer");
    reload(&fleet.line.daemon, &without_listeners(&all, true));
    fleet.line.daemon.rewrite(&all);
    fleet.upgrade();
    assert_eq!(shown(&fleet.line.daemon, "udp")[0]["state"], "serving");
    Player::connected(udp, 6, KEY_HEX).echo(b"a newcomer");
    for player in &mut netcode {
        player.echo(b"on it goes");
    }
    plain.echo();
    unreal.echo();
    let status = fleet.line.daemon.status();
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    assert_eq!((fleet.unreal.connections(), fleet.unreal.tally().restarts), (1, 0));
}

/// With a further netcode listener in front of the same backend, at an address that no other test
/// is given when it is free.
fn with_second(text: &Text) -> Text {
    with(text, "us", &own_address().to_string())
}

#[test]
fn the_next_process_ends_a_removed_listener_when_its_time_is_over() {
    assert!([2, 8, 32, 128].into_iter().any(the_next_process_ends_a_removed_listener));
}

/// Whether there was a next process before the time was over.
fn the_next_process_ends_a_removed_listener(time_s: u32) -> bool {
    let text = text("mmsg");
    let mut line = Line::start(&with_second(&text));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let address = address_of(&line.daemon, "us");
    let mut resident = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let mut guest = Player::connected(address, 2, KEY_HEX);
    let mut short = text;
    let time = format!("\"{time_s}s\"");
    short.gateway = short.gateway.replace("\"1h\"", &time);
    reload(&line.daemon, &short);
    // The time of those that drain is not that of the file as it is by then.
    short.gateway = short.gateway.replace(&time, "\"1h\"");
    line.daemon.rewrite(&short);
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
    if shown(&line.daemon, "us").is_empty() {
        return false;
    }
    assert_eq!(guest.ended(), State::Disconnected);
    wait_for("the listener's end", || shown(&line.daemon, "us").is_empty().then_some(()));
    assert!(line.daemon.log().contains("listener us has gone"), "{}", line.daemon.log());
    resident.echo(b"at home");
    // Its address is free for another one, once its last socket has closed.
    wait_for("its address", || UdpSocket::bind(address).ok());
    let again = with(&short, "asia", &address.to_string());
    assert_eq!(reload(&line.daemon, &again), serde_json::json!(["listener asia added"]));
    Player::connected(address, 3, KEY_HEX).echo(b"at the same address");
    let status = line.daemon.status();
    assert_eq!(status["sessions_closed"]["by_operator"], 1);
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    true
}

#[test]
fn an_earlier_release_is_told_why_it_cannot_have_what_drains() {
    if !is_root() {
        return;
    }
    let text = text("mmsg");
    let line = Line::start(&with_second(&text));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut guest = Player::connected(address_of(&line.daemon, "us"), 2, KEY_HEX);
    reload(&line.daemon, &text);
    let gateway = line.connect();
    let hello = br#"{"say":"hello","conversation":1,"release":"0.1.0","pid":1,"trunks":true}"#;
    let hello = Message::decode(hello).expect("as the first release says it");
    gateway.say(&hello, &[]).expect("it listens");
    let hear = || wait_for("a word", || gateway.hear(std::time::Duration::from_millis(10)).ok()).0;
    assert!(matches!(hear(), Message::Welcome { .. }));
    let why = "listener us is gone; remove it by a reload first";
    gateway.say(&Message::refused(&why), &[]).expect("it listens");
    wait_for("the refusal", || line.daemon.log().contains("hand_over_refused").then_some(()));
    let log = line.daemon.log();
    assert!(log.contains("does not go on with what drains (listener us)"), "{log}");
    guest.echo(b"still here");
}

/// A server that one listener's players are at, whom the file sends there no more, is no other
/// protocol's while they are: neither by an upgrade nor by two reloads.
#[test]
fn a_server_whose_players_are_still_there_is_not_listed_behind_another_protocol() {
    let mut fleet = Fleet::start(Choice::Mmsg);
    let all = file(Choice::Mmsg, &fleet.servers, Edit::None);
    let udp = fleet.listener("udp").expect("it is in the config");
    let mut player = Player::connected(udp, 2, KEY_HEX);
    player.echo(b"here");
    let spare =
        "[[backend]]\nname = \"spare\"\nlink = \"udp\"\naddress = \"127.0.0.9:9\"\nslots = 4\n";
    let lists = |text: &Text, from: &str, to: &str| {
        let more = text.more.replace(from, to);
        assert_ne!(more, text.more, "{from}");
        Text { more, ..text.clone() }
    };
    let mut unlisted = lists(&all, "backends = [\"udp-1\"]", "backends = [\"spare\"]");
    unlisted.more.push_str(spare);
    let moved = lists(&unlisted, "backends = [\"any-1\"]", "backends = [\"udp-1\"]");
    let moved = lists(&moved, "backend = \"any-1\"", "backend = \"udp-1\"");

    fleet.line.daemon.rewrite(&moved);
    let (code, said) = fleet.line.upgrade();
    assert_eq!(code, Some(1), "{said}");
    let why = "listener any: backend udp-1 has players who speak netcode; try again when they have left it";
    assert!(said.contains(why), "{said}");
    player.echo(b"still here");

    let refused = |fleet: &Fleet| {
        fleet.line.daemon.rewrite(&moved);
        let page = fleet.line.daemon.post("/reload");
        assert_eq!(page.status, 422, "{}", page.body);
        page.body
    };
    let body = refused(&fleet);
    assert!(body.contains("take it out there first"), "{body}");
    reload(&fleet.line.daemon, &unlisted);
    for _ in 0..2 {
        let body = refused(&fleet);
        assert!(body.contains(why), "{body}");
        player.echo(b"still here");
        fleet.line.daemon.rewrite(&unlisted);
        fleet.upgrade();
    }
    player.leave();
    let is_gone = || fleet.sessions().is_empty().then_some(());
    wait_for("the player's end", is_gone);
    reload(&fleet.line.daemon, &moved);
    let mut plain = Numbered::new(fleet.listener("any").expect("it is in the config"));
    plain.echo();
    plain.echo();
}

/// Game processes whose backends the next process's file does not name keep their links, whatever
/// that tells its workers later.
#[test]
fn players_of_removed_backends_play_on_whatever_changes_after_an_upgrade() {
    let mut text = text("mmsg");
    text.more = with(&text, "whole", "127.0.0.1:0").more.replace("\"arena\"", "\"hall\"");
    text.more.push_str(DELIVERS);
    text.more.push_str(&text.backends.replace("arena", "hall"));
    let mut line = Line::start(&text);
    let _games = ["arena", "hall"].map(|name| Game::start(&line.daemon, name));
    line.daemon.ready();
    let mut whole = message_player(address_of(&line.daemon, "whole"), 2);
    let mut plain = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let mut play = |after: &str| {
        eprintln!("after {after}");
        plain.echo(after.as_bytes());
        exchange(&mut whole);
    };
    play("a start");
    line.daemon.post("/drain?backend=hall&deadline_ms=3600000");
    let renamed = |part: &str| part.replace("\"arena\"", "\"a\"").replace("\"hall\"", "\"h\"");
    let other = Text {
        listener: renamed(&text.listener),
        backends: renamed(&text.backends),
        more: renamed(&text.more),
        ..text
    };
    line.daemon.rewrite(&other);
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
    play("an upgrade with a drain that has a deadline");
    for (what, path) in [
        ("a ban", "/deny?client=77"),
        ("a reload", "/reload"),
        ("a drain", "/drain?backend=a&deadline_ms=3600000"),
        ("its end", "/undrain?backend=a"),
    ] {
        let page = line.daemon.post(path);
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        play(what);
    }
    let status = line.daemon.status();
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
}

/// What a reload has taken out of the config drains until the moment that an operator has named.
#[test]
fn players_of_a_removed_backend_have_to_leave_when_its_drain_is_over() {
    let text = text("mmsg");
    let mut line = Line::start(&text);
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let other = Text {
        listener: text.listener.replace("arena", "other"),
        backends: text.backends.replace("arena", "other"),
        ..text.clone()
    };
    for is_reloaded in [true, false] {
        let mut is_over_behind_it = |deadline_ms: u32| {
            let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
            line.daemon.post(&format!("/drain?backend=arena&deadline_ms={deadline_ms}"));
            if is_reloaded {
                reload(&line.daemon, &other);
            } else {
                line.daemon.rewrite(&other);
            }
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
            let is_there = line.daemon.status()["totals"]["sessions"] == 1;
            assert_eq!(player.ended(), State::Disconnected);
            reload(&line.daemon, &text);
            line.daemon.ready();
            is_there
        };
        assert!([2000, 8000, 32_000, 128_000].into_iter().any(&mut is_over_behind_it));
    }
}

#[test]
fn the_end_of_a_drain_is_told_once_whoever_goes_on_with_it() {
    let mut line = Line::start(&text("mmsg"));
    let told = |line: &Line| line.daemon.log().matches("\"backend_drain_end\"").count();
    line.daemon.post("/drain?backend=arena&deadline_ms=0");
    wait_for("the end of the drain", || (told(&line) == 1).then_some(()));
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
    // It is looked for more often than commands are taken.
    for _ in 0..2 {
        line.daemon.post("/undrain");
        line.daemon.status();
    }
    assert_eq!(told(&line), 1, "{}", line.daemon.log());
}

/// A drain is of the server at an address, whatever the next file calls that one, and whatever it
/// calls so.
#[test]
fn a_server_goes_on_draining_under_another_name_and_another_one_under_its_name_does_not() {
    let [old, new] = [own_address(), own_address()];
    let table = |name: &str, address| {
        format!(
            "[[backend]]\nname = \"{name}\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 4\n"
        )
    };
    let text = Text { backends: table("arena", old), ..text("mmsg") };
    let mut line = Line::start(&text);
    line.daemon.post("/drain?backend=arena&deadline_ms=3600000");
    let both = Text {
        listener: text
            .listener
            .replace("\"arena\"]", "\"arena-old\", \"arena\"]\nroute = \"hash\""),
        backends: table("arena-old", old) + &table("arena", new),
        ..text.clone()
    };
    let alone = Text { backends: table("arena", new), ..text };
    // Whoever takes the server from the file and puts it back wants players there.
    for (file, drained) in [(&both, &[true, false][..]), (&alone, &[false]), (&both, &[false; 2])] {
        line.daemon.rewrite(file);
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        let status = line.daemon.status();
        let backends = status["backends"].as_array().expect("a list");
        let shown: Vec<_> = backends.iter().map(|it| it["drained"] == true).collect();
        assert_eq!(shown, drained, "{status}");
    }
}

/// A backend that is back in the config takes players again, and tells none of them to leave.
#[test]
fn a_backend_that_is_back_does_not_drain_any_more() {
    let text = text("mmsg");
    let line = Line::start(&text);
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let other = Text {
        listener: text.listener.replace("arena", "other"),
        backends: text.backends.replace("arena", "other"),
        ..text.clone()
    };
    let mut both = text.clone();
    both.backends.push_str(&other.backends);
    let is_over = |backend: &str| {
        let said = format!("the drain of backend {backend} is over");
        line.daemon.log().matches(&said).count()
    };
    let is_back_in_time = |deadline_ms: u32| {
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let drain = |backend: &str| {
            let path = format!("/drain?backend={backend}&deadline_ms={deadline_ms}");
            let page = line.daemon.post(&path);
            assert_eq!(page.status, 200, "{}", page.body);
        };
        let before = is_over("arena");
        drain("arena");
        reload(&line.daemon, &other);
        reload(&line.daemon, &text);
        if is_over("arena") > before {
            return false;
        }
        // Another drain's end shows that the first one's time is over.
        reload(&line.daemon, &both);
        drain("other");
        wait_for("the other's end", || (is_over("other") > 0).then_some(()));
        player.echo(b"still here");
        true
    };
    assert!([2000, 8000, 32_000, 128_000].into_iter().any(is_back_in_time));
}

#[test]
fn what_there_were_tables_for_may_come_back_after_upgrades() {
    let mut fleet = Fleet::start(Choice::Mmsg);
    let all = file(Choice::Mmsg, &fleet.servers, Edit::None);
    reload(&fleet.line.daemon, &without_listeners(&all, true));
    for name in ["any", "ue"] {
        wait_for("its end", || shown(&fleet.line.daemon, name).is_empty().then_some(()));
    }
    for _ in 0..2 {
        fleet.upgrade();
    }
    reload(&fleet.line.daemon, &all);
    Numbered::new(fleet.listener("any").expect("it is back")).echo();
    let ue = fleet.listener("ue").expect("it is back");
    UnrealPlayer::new(Framing::default(), 5, ue).connect();
}
