//! Listeners that deliver messages: whole ones between players and game processes, over packets.

mod drops;
mod farewell;
mod faults;
pub(super) mod player;
mod turmoil;

use self::player::{Player, delivering, long_message, messages, not_heard_yet, playing};
use super::clients::Scribe;
use super::games::{Game, Heard};
use super::rig::{OUR_USER, Rig, home, netcode_rules};
use crate::counters::Ended;
use crate::front::netcode::connection::Connection;
use ringgate_batch::SendFailure;
use ringgate_core::delivery::Channel;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{self, CloseReason, Hello, SHORT_MESSAGE_BYTES_MAX};

const RELIABLE: bundle::Channel = bundle::Channel::Reliable(0);

/// A gate with a player in the middle of everything: messages under way, waiting and in parts, in
/// both directions.
pub(super) fn busy_rig() -> Rig {
    busy_rig_with([20_000, 40_000, 700])
}

/// The same with short messages, for those who read it in small pieces.
pub(super) fn busy_rig_in_short() -> Rig {
    busy_rig_with([2000, 3000, 100])
}

/// Messages of the first length up, of the second down, and of the third that need not arrive.
fn busy_rig_with([up, down, unreliable]: [usize; 3]) -> Rig {
    let (mut rig, game, mut player, session) = playing();
    player.loses_every = 3;
    for n in 0..4 {
        let message = long_message(up, n);
        player.end.send(Channel::Reliable(n), &message, None).expect("there is room");
        let token = u64::from(n);
        game.send(&mut rig, (session, RELIABLE), &long_message(down, n), 1 + token);
        let sequenced = (session, bundle::Channel::Sequenced(9));
        game.send(&mut rig, sequenced, &vec![n; unreliable], 100 + token);
        player.live(&mut rig, 20);
    }
    let long = long_message(20_000, 9);
    let begun = bundle::MessagePart::of(session, RELIABLE, 9, &long).next().expect("a part");
    game.say(&mut rig, |writer| writer.message(&begun));
    rig
}

/// A gate of that kind without players.
pub(super) fn idle_rig() -> Rig {
    Rig::new(delivering())
}

#[test]
fn messages_of_every_kind_and_size_cross_the_gate_both_ways() {
    let (mut rig, game, mut player, session) = playing();
    let kinds = [
        (Channel::Reliable(0), RELIABLE, 1),
        (Channel::Reliable(255), bundle::Channel::Reliable(255), 64 * 1024),
        (Channel::Reliable(7), bundle::Channel::Reliable(7), 16_000),
        (Channel::Reliable(7), bundle::Channel::Reliable(7), 16_001),
        (Channel::Sequenced(9), bundle::Channel::Sequenced(9), SHORT_MESSAGE_BYTES_MAX),
        (Channel::Unreliable(1), bundle::Channel::Unreliable(1), 200),
    ];
    for (n, (channel, of_bundle, len)) in (0..).zip(kinds) {
        let (up, down) = (long_message(len, n), long_message(len, 100 + n));
        player.end.send(channel, &up, Some(1)).expect("there is room");
        game.send(&mut rig, (session, of_bundle), &down, 7);
        player.live(&mut rig, 600);
        assert_eq!(player.messages.pop(), Some((channel, down)), "{channel:?}");
        let heard = game.hear(&mut rig);
        assert!(heard.contains(&Heard::Message(session, of_bundle, up)), "{channel:?}");
        assert!(heard.contains(&Heard::Report(session, 7, true)), "{channel:?}");
        assert_eq!(player.reports.pop().map(|report| report.is_delivered), Some(true));
    }
    let counters = rig.counters();
    assert_eq!((counters.messages_up, counters.messages_to_links), (6, 6));
    assert_eq!((counters.messages_from_links, counters.messages_down), (6, 6));
    let traffic = rig.host.gate().delivery_traffic().next().expect("a listener");
    assert_eq!((traffic.messages_in, traffic.messages_out, traffic.packets_lost), (6, 6, 0));
}

/// A trunk has what is reliable in its stream and the rest in datagrams, which may come first.
#[test]
fn a_message_that_is_not_reliable_may_come_between_the_parts_of_one_that_is() {
    let (mut rig, game, mut player, session) = playing();
    let long = long_message(40_000, 1);
    let parts: Vec<_> = bundle::MessagePart::of(session, RELIABLE, 7, &long).collect();
    let others = [bundle::Channel::Unreliable(1), bundle::Channel::Sequenced(2)];
    assert!(parts.len() > others.len());
    for (at, part) in parts.iter().enumerate() {
        game.say(&mut rig, |writer| writer.message(part));
        if let Some(other) = others.get(at) {
            game.send(&mut rig, (session, *other), &[at as u8; 30], 0);
        }
    }
    player.live(&mut rig, 600);
    let reliable = (Channel::Reliable(0), long.clone());
    let short = |at: u8| vec![at; 30];
    for message in [reliable, (Channel::Unreliable(1), short(0)), (Channel::Sequenced(2), short(1))]
    {
        assert!(player.messages.contains(&message), "{:?}", message.0);
    }
    // Two that are reliable come one after the other in that stream.
    game.say(&mut rig, |writer| writer.message(&parts[0]));
    game.send(&mut rig, (session, bundle::Channel::Reliable(9)), b"short", 0);
    assert_eq!(rig.drops(DropReason::RecordInvalid), 1);
}

#[test]
fn what_is_lost_is_sent_again_and_what_is_not_reliable_is_reported() {
    let (mut rig, game, mut player, session) = playing();
    player.loses_every = 4;
    for n in 0..20 {
        game.send(&mut rig, (session, RELIABLE), &long_message(5000, n), 0);
        let unreliable = (session, bundle::Channel::Unreliable(0));
        game.send(&mut rig, unreliable, &[n; 900], 1 + u64::from(n));
        player.live(&mut rig, 30);
    }
    player.live(&mut rig, 3000);
    let of = |wanted| {
        move |(channel, bytes): &(Channel, Vec<u8>)| (*channel == wanted).then(|| bytes.clone())
    };
    let reliable = player.messages.iter().filter_map(of(Channel::Reliable(0)));
    assert!(reliable.eq((0..20).map(|n| long_message(5000, n))));
    let arrived: Vec<_> = player.messages.iter().filter_map(of(Channel::Unreliable(0))).collect();
    let reports: Vec<_> = game.hear(&mut rig);
    for n in 0..20 {
        let is_delivered = arrived.contains(&vec![n; 900]);
        assert!(reports.contains(&Heard::Report(session, 1 + u64::from(n), is_delivered)), "{n}");
    }
    assert!(arrived.len() < 20, "some are lost");
    let traffic = rig.host.gate().delivery_traffic().next().expect("a listener");
    assert!(traffic.parts_repeated > 10 && traffic.packets_lost > 10, "{traffic:?}");
}

#[test]
fn a_quiet_player_is_sent_heartbeats_in_place_of_keep_alives() {
    let (mut rig, _game, mut player, _) = playing();
    player.live(&mut rig, 100);
    let before = rig.counters().packets_out;
    player.live(&mut rig, 2000);
    let after = rig.counters().packets_out;
    let sent = |kind: PacketKind| after[kind as usize] - before[kind as usize];
    assert_eq!(sent(PacketKind::KeepAlive), 0);
    assert!((17..=21).contains(&sent(PacketKind::Payload)), "{}", sent(PacketKind::Payload));
}

#[test]
fn the_gate_says_nothing_before_the_player_knows_that_it_is_connected() {
    let (mut rig, game, scribe, session) = not_heard_yet();
    game.send(&mut rig, (session, RELIABLE), b"welcome", 0);
    rig.pass(300);
    assert!(!scribe.kinds(&mut rig, home(1)).contains(&PacketKind::Payload));
    rig.deliver(home(1), &scribe.keep_alive(2));
    assert!(scribe.kinds(&mut rig, home(1)).contains(&PacketKind::Payload));
}

#[test]
fn a_payload_for_such_a_player_is_a_message_on_the_first_unreliable_channel() {
    let (mut rig, game, mut player, session) = playing();
    game.say(&mut rig, |writer| writer.multicast(&[session], b"snapshot"));
    game.say(&mut rig, |writer| writer.payload(session, b"alone"));
    player.live(&mut rig, 50);
    let expected = [b"snapshot".to_vec(), b"alone".to_vec()];
    assert_eq!(player.messages, expected.map(|bytes| (Channel::Unreliable(0), bytes)));
    rig.provokes(DropReason::PayloadLength, |rig| {
        game.say(rig, |writer| writer.payload(session, &[0; SHORT_MESSAGE_BYTES_MAX + 1]));
    });
}

#[test]
fn a_game_process_is_told_who_gets_messages_if_it_speaks_of_that() {
    for (version_max, is_told) in [(4, false), (5, true)] {
        let mut rig = Rig::new(delivering());
        let game = Game::connect(&mut rig, OUR_USER);
        let hello = Hello { version_max, ..Hello::new(1, "arena") };
        game.say(&mut rig, |writer| writer.hello(&hello));
        Player::connected(&mut rig, 1);
        let told: Vec<_> = game.guests(&mut rig).iter().map(|guest| guest.delivers).collect();
        assert_eq!(told, [is_told]);
    }
    let mut raw = Rig::new(super::rig::plain_setup());
    let game = Game::join(&mut raw, "arena");
    super::clients::Player::connected(&mut raw, home(2), 2);
    assert!(game.guests(&mut raw).iter().all(|guest| !guest.delivers));
}

#[test]
fn a_game_process_learns_how_good_the_way_to_a_player_is() {
    let (mut rig, game, mut player, session) = playing();
    game.send(&mut rig, (session, RELIABLE), b"x", 0);
    player.live(&mut rig, 100);
    game.say(&mut rig, |writer| writer.ask_quality(session));
    let heard = game.hear(&mut rig);
    let [Heard::Quality(of, quality)] = heard[..] else { panic!("{heard:?}") };
    assert_eq!((of, quality.loss_per_mille, quality.waiting_bytes), (session, 0, 0));
    assert!((1..100_000).contains(&quality.round_trip_us), "{quality:?}");
}

#[test]
fn a_game_process_is_told_when_too_much_waits_and_when_there_is_room_again() {
    let (mut rig, game, mut player, session) = playing();
    for n in 0..3 {
        game.send(&mut rig, (session, RELIABLE), &long_message(60_000, n), 0);
    }
    assert_eq!(game.hear(&mut rig), [Heard::Room(session, true)]);
    player.live(&mut rig, 3000);
    assert_eq!(game.hear(&mut rig), [Heard::Room(session, false)]);
    assert_eq!(player.messages.len(), 3);
}

#[test]
fn a_game_process_is_told_what_becomes_of_messages_before_the_player_has_spoken() {
    let (mut rig, game, scribe, session) = not_heard_yet();
    for n in 0..3 {
        game.send(&mut rig, (session, RELIABLE), &long_message(60_000, n), 0);
    }
    assert_eq!(game.hear(&mut rig), [Heard::Room(session, true)]);
    for token in 1..=3 {
        game.send(&mut rig, (session, bundle::Channel::Sequenced(0)), b"the latest", token);
    }
    assert_eq!(game.hear(&mut rig), [1, 2].map(|token| Heard::Report(session, token, false)));
    assert!(!scribe.kinds(&mut rig, home(1)).contains(&PacketKind::Payload));
}

#[test]
fn while_the_link_is_full_players_keep_what_is_not_taken() {
    let (mut rig, game, mut player, _) = playing();
    rig.obstacles.push((game.link, SendFailure::Full));
    for n in 0..50 {
        player.end.send(Channel::Reliable(0), &long_message(3000, n), None).expect("room");
        player.live(&mut rig, 10);
    }
    player.live(&mut rig, 1000);
    assert!(rig.drops(DropReason::DeliveryDeferred) > 10);
    assert!(game.hear(&mut rig).is_empty() && rig.sessions() == 1);
    rig.obstacles.clear();
    player.live(&mut rig, 10_000);
    let expected: Vec<_> = (0..50).map(|n| long_message(3000, n)).collect();
    assert!(messages(&game, &mut rig) == expected, "in order, once, and none is lost");
    assert_eq!((rig.drops(DropReason::MessageNotTaken), rig.sessions()), (0, 1));
}

#[test]
fn messages_that_are_not_reliable_are_lost_at_a_full_link_by_name() {
    let (mut rig, game, mut player, _) = playing();
    rig.obstacles.push((game.link, SendFailure::Full));
    rig.provokes(DropReason::MessageNotTaken, |rig| {
        player.end.send(Channel::Unreliable(0), b"x", None).expect("room");
        player.exchange(rig);
    });
    rig.obstacles.clear();
    player.live(&mut rig, 300);
    assert_eq!(messages(&game, &mut rig).len(), 0);
}

#[test]
fn a_session_ends_with_the_process_that_has_taken_its_messages() {
    let (mut rig, game, mut player, _) = playing();
    player.end.send(Channel::Reliable(0), b"x", None).expect("room");
    player.live(&mut rig, 50);
    game.crash(&mut rig);
    let again = Game::join(&mut rig, "arena");
    player.live(&mut rig, 200);
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
    assert!(again.guests(&mut rig).is_empty(), "nobody can go on in its place");
}

#[test]
fn a_process_of_an_earlier_version_gets_no_players_and_may_say_no_messages() {
    let mut rig = Rig::new(delivering());
    let game = Game::connect(&mut rig, OUR_USER);
    game.say(&mut rig, |writer| writer.hello(&Hello { version_max: 3, ..Hello::new(1, "arena") }));
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(DropReason::RequestBackendDown, |rig| rig.deliver(home(1), &scribe.request()));
    game.hear(&mut rig);
    let session = bundle::SessionId::new(0, 9);
    game.send(&mut rig, (session, RELIABLE), b"x", 0);
    let heard = game.hear(&mut rig);
    assert!(matches!(heard[..], [Heard::Goodbye(_)]), "{heard:?}");
}

#[test]
fn a_reload_changes_what_later_sessions_are() {
    let (mut rig, game, mut player, session) = playing();
    let mut setup = delivering();
    netcode_rules(&mut setup).delivers = false;
    rig.mail(crate::mail::Mail::Setup(std::sync::Arc::new(setup)));
    rig.turn();
    let mut other = super::clients::Player::connected(&mut rig, home(2), 2);
    game.hear(&mut rig);
    other.send(&mut rig, b"raw");
    assert_eq!(game.payloads(&mut rig), [b"raw"]);
    game.send(&mut rig, (session, RELIABLE), b"still whole", 0);
    player.live(&mut rig, 100);
    assert_eq!(player.messages.len(), 1);
}

#[test]
fn queues_and_channels_go_on_in_the_next_process() {
    let (mut rig, game, mut player, session) = playing();
    player.loses_every = 5;
    for n in 0..10 {
        player.end.send(Channel::Reliable(1), &long_message(20_000, n), None).expect("room");
        for part in bundle::MessagePart::of(session, RELIABLE, 5, &long_message(20_000, n)) {
            game.push(&mut rig, |writer| writer.message(&part));
            rig.turn();
            // Also in the middle of a message.
            rig.hand_over();
        }
        player.live(&mut rig, 200);
        rig.hand_over();
    }
    player.live(&mut rig, 8000);
    let expected: Vec<_> = (0..10).map(|n| long_message(20_000, n)).collect();
    let heard = game.hear(&mut rig);
    let messages = heard.iter().filter_map(|heard| match heard {
        Heard::Message(_, _, bytes) => Some(bytes),
        _ => None,
    });
    assert!(messages.eq(&expected), "up");
    assert!(player.messages.iter().map(|(_, bytes)| bytes).eq(&expected), "down");
    let reports = heard.iter().filter(|heard| **heard == Heard::Report(session, 5, true));
    assert_eq!(reports.count(), 10);
}

#[test]
fn what_is_overtaken_is_waited_for_in_the_next_process_too() {
    let (mut rig, game, mut player, _) = playing();
    for _ in 0..2 {
        let [one, two, three, four] = [b"1", b"2", b"3", b"4"].map(|message| {
            player.end.send(Channel::Unreliable(0), message, None).expect("there is room");
            player.next_packet(rig.now.mono_ns).expect("it is due")
        });
        // That the first one comes late shows that packets do.
        for datagram in [two, one, four, three] {
            rig.push(home(1), &datagram);
        }
        rig.turn();
        assert_eq!(messages(&game, &mut rig), [b"2", b"3", b"4"]);
        rig.hand_over();
    }
}

#[test]
fn a_quiet_session_takes_less_than_four_kibibytes_and_no_other_takes_any() {
    let (rig, ..) = playing();
    let connections = &rig.host.gate().fronts.netcode.connections;
    let connection = connections.entries().next().and_then(|entry| connections.get(entry));
    let heap_bytes = connection.expect("the player's").end.heap_bytes();
    let bytes = size_of::<Connection>() + heap_bytes;
    assert!(bytes < 4096, "{bytes}");
    let raw = Rig::new(super::rig::plain_setup());
    let connections = &raw.host.gate().fronts.netcode.connections;
    assert!(connections.is_empty() && connections.entries().next().is_none());
}

#[test]
fn a_message_for_a_session_that_is_over_goes_no_further() {
    let (mut rig, game, _, session) = playing();
    game.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::Kicked)]);
    game.send(&mut rig, (session, RELIABLE), b"late", 0);
    assert_eq!(rig.drops(DropReason::MessageUnknown), 1);
}

#[test]
fn what_is_not_reported_when_a_session_ends_is_reported_as_lost_before_its_end() {
    let (mut rig, game, _, session) = playing();
    game.send(&mut rig, (session, RELIABLE), b"under way", 3);
    game.send(&mut rig, (session, RELIABLE), &vec![7; 60_000], 4);
    game.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    let mut heard = game.hear(&mut rig);
    assert_eq!(heard.pop(), Some(Heard::Closed(session, CloseReason::Kicked)));
    assert_eq!(heard, [3, 4].map(|token| Heard::Report(session, token, false)));
}
