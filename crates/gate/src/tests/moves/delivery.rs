//! Moves of players with messages under way.

use super::super::delivery::player::{Player, long_message};
use super::*;
use crate::ids::BackendId;
use ringgate_core::delivery::Channel;
use ringgate_link::bundle::{self, MessagePart, SHORT_MESSAGE_BYTES_MAX};

const RELIABLE: bundle::Channel = bundle::Channel::Reliable(0);

fn delivering_zones() -> (Rig, [Game; 2], Player, SessionId) {
    let mut setup = zones();
    // Messages need bundle links.
    let rules = netcode_rules(&mut setup);
    (rules.delivers, rules.moves) = (true, [0, 1, 2, 4].map(BackendId).to_vec());
    let mut rig = Rig::new(setup);
    let games = ["lobby", "arena"].map(|name| Game::join(&mut rig, name));
    let player = Player::connected(&mut rig, 1);
    let session = rig.session_at(home(1));
    for game in &games {
        game.hear(&mut rig);
    }
    (rig, games, player, session)
}

fn reports(game: &Game, rig: &mut Rig) -> Vec<(u64, bool)> {
    let report = |heard| match heard {
        Heard::Report(_, token, is_delivered) => Some((token, is_delivered)),
        _ => None,
    };
    game.hear(rig).into_iter().filter_map(report).collect()
}

#[test]
fn messages_go_on_in_their_order_and_each_process_hears_of_its_own() {
    let (mut rig, games, mut player, session) = delivering_zones();
    let [lobby, arena] = &games;
    player.loses_every = 3;
    for n in 0..4 {
        lobby.send(&mut rig, (session, RELIABLE), &long_message(20_000, n), 1 + u64::from(n));
        let short = (session, bundle::Channel::Unreliable(1));
        lobby.send(&mut rig, short, &[n; 500], 10 + u64::from(n));
    }
    let message = Some((RELIABLE, &b"through the door"[..]));
    let offer = offered(&mut rig, &games, &Move { message, ..wanted(session) });
    say_yes(&mut rig, arena, &offer);
    assert!(lobby.news(&mut rig).contains(&Heard::Moved(session, 7)));
    // The other one has the same tokens.
    for n in 4..8 {
        arena.send(&mut rig, (session, RELIABLE), &long_message(20_000, n), u64::from(n) - 3);
    }
    rig.provokes(DropReason::MessageAfterMove, |rig| {
        lobby.send(rig, (session, RELIABLE), b"late", 99);
    });
    let heard = arena.news(&mut rig);
    assert!(matches!(&heard[0], Heard::Opened(guest) if guest.ticket == Some(7) && guest.delivers));
    assert!(heard.contains(&Heard::Room(session, true)), "it is the new one's: {heard:?}");
    player.live(&mut rig, 6000);
    let of_channel = |(channel, bytes): &(Channel, Vec<u8>)| {
        (*channel == Channel::Reliable(0)).then(|| bytes.clone())
    };
    let got: Vec<_> = player.messages.iter().filter_map(of_channel).collect();
    let mut expected: Vec<_> = (0..8).map(|n| long_message(20_000, n)).collect();
    expected.insert(4, b"through the door".to_vec());
    assert!(got == expected, "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
    let mut of_lobby = reports(lobby, &mut rig);
    of_lobby.sort_unstable();
    let tokens: Vec<_> = of_lobby.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [1, 2, 3, 4, 10, 11, 12, 13]);
    assert!(of_lobby[..4].iter().all(|(_, is_delivered)| *is_delivered));
    let of_arena = reports(arena, &mut rig);
    assert_eq!(of_arena, [1, 2, 3, 4].map(|token| (token, true)));
    let connections = &rig.host.gate().fronts.netcode.connections;
    let connection = connections.entries().next().and_then(|entry| connections.get(entry));
    assert!(connection.expect("the player's").former.is_none(), "it costs nothing any more");
}

#[test]
fn a_message_that_lacks_a_part_at_the_cut_is_the_other_processs_whole() {
    for cut_after in 0..40 {
        let (mut rig, games, mut player, session) = delivering_zones();
        let [lobby, arena] = &games;
        let offer = offered(&mut rig, &games, &wanted(session));
        let sent: Vec<_> = (0..6).map(|n| long_message(9000, n)).collect();
        for message in &sent {
            player.end.send(Channel::Reliable(0), message, None).expect("there is room");
        }
        player.loses_every = 4;
        player.live(&mut rig, cut_after * 10);
        say_yes(&mut rig, arena, &offer);
        player.live(&mut rig, 3000);
        let whole = |game: &Game, rig: &mut Rig| {
            let message = |heard| match heard {
                Heard::Message(_, _, bytes) => Some(bytes),
                _ => None,
            };
            game.hear(rig).into_iter().filter_map(message).collect::<Vec<_>>()
        };
        let mut heard = whole(lobby, &mut rig);
        heard.extend(whole(arena, &mut rig));
        assert!(heard == sent, "cut after {cut_after}");
    }
}

#[test]
fn what_a_process_has_begun_to_say_at_the_cut_is_not_said() {
    let (mut rig, games, mut player, session) = delivering_zones();
    let [lobby, arena] = &games;
    let long = long_message(40_000, 1);
    let parts: Vec<_> = MessagePart::of(session, RELIABLE, 5, &long).collect();
    lobby.say(&mut rig, |writer| writer.message(&parts[0]));
    let offer = offered(&mut rig, &games, &wanted(session));
    say_yes(&mut rig, arena, &offer);
    lobby.say(&mut rig, |writer| writer.message(&parts[1]));
    rig.provokes(DropReason::MessageAfterMove, |rig| {
        lobby.say(rig, |writer| writer.message(&parts[2]));
    });
    player.live(&mut rig, 500);
    assert!(player.messages.is_empty());
}

/// What has waited for a packet that may be late is what the process is told of first.
#[test]
fn a_process_that_comes_back_is_told_that_its_player_gets_messages() {
    let (mut rig, [lobby, arena], mut player, session) = delivering_zones();
    // In the next 20 ms the session is not due, which would tell of it, too.
    player.live(&mut rig, 50);
    let [one, two, three, four] = [b"1", b"2", b"3", b"4"].map(|message| {
        player.end.send(Channel::Reliable(0), message, None).expect("there is room");
        player.next_packet(rig.now.mono_ns).expect("it is due")
    });
    for datagram in [two, one, four] {
        rig.push(home(1), &datagram);
    }
    rig.turn();
    let asked = Move { confirms: true, ..wanted(session) };
    let games = [lobby, arena];
    let offer = offered(&mut rig, &games, &asked);
    let [lobby, arena] = games;
    say_yes(&mut rig, &arena, &offer);
    arena.crash(&mut rig);
    lobby.say(&mut rig, |writer| writer.confirm(session));
    let arena = Game::join(&mut rig, "arena");
    rig.jump(20);
    rig.turn();
    rig.deliver(home(1), &three);
    let guests = arena.guests(&mut rig);
    assert!(matches!(&guests[..], [guest] if guest.delivers), "{guests:?}");
}

#[test]
fn a_full_link_hears_of_the_move_behind_what_waits_there() {
    let (mut rig, games, mut player, session) = delivering_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &Move { confirms: true, ..wanted(session) });
    rig.obstacles.push((lobby.link, ringgate_batch::SendFailure::Full));
    let long = long_message(30_000, 1);
    player.end.send(Channel::Reliable(0), &long, None).expect("there is room");
    player.live(&mut rig, 200);
    say_yes(&mut rig, arena, &offer);
    player.end.send(Channel::Reliable(0), b"next", None).expect("there is room");
    player.live(&mut rig, 200);
    assert!(rig.drops(DropReason::DeliveryDeferred) > 0, "nobody has the player");
    rig.obstacles.clear();
    player.live(&mut rig, 30);
    let heard = lobby.hear(&mut rig);
    assert_eq!(heard, [Heard::Message(session, RELIABLE, long), Heard::Moved(session, 7)]);
    lobby.say(&mut rig, |writer| writer.confirm(session));
    player.live(&mut rig, 1500);
    let heard = arena.hear(&mut rig);
    assert!(matches!(&heard[0], Heard::Opened(guest) if guest.ticket == Some(7)));
    assert_eq!(heard[1], Heard::Message(session, RELIABLE, b"next".to_vec()));
}

#[test]
fn who_has_no_room_for_a_message_more_stays() {
    let (mut rig, games, _player, session) = delivering_zones();
    let [lobby, arena] = &games;
    let long = [7; SHORT_MESSAGE_BYTES_MAX];
    let asked = Move { message: Some((RELIABLE, &long)), ..wanted(session) };
    let offer = offered(&mut rig, &games, &asked);
    for n in 0..4 {
        lobby.send(&mut rig, (session, RELIABLE), &long_message(65_000, n), 0);
    }
    lobby.hear(&mut rig);
    lobby.send(&mut rig, (session, RELIABLE), &long_message(1500, 4), 0);
    say_yes(&mut rig, arena, &offer);
    let over = MoveRefusal::PlayerFull;
    assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, over)]);
    assert_eq!(arena.news(&mut rig), [Heard::OfferOver(session, offer.number, over)]);
    assert_eq!((rig.sessions(), players(&rig)), (1, [1, 0]));
}

#[test]
fn who_is_closed_after_delivery_goes_nowhere() {
    let (mut rig, games, mut player, session) = delivering_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &wanted(session));
    lobby.send(&mut rig, (session, RELIABLE), &long_message(5000, 1), 0);
    let close =
        bundle::CloseAfter { session, reason: CloseReason::Finished, linger_ms: 1000, text: b"" };
    lobby.say(&mut rig, |writer| writer.close_after(&close));
    let over = MoveRefusal::SessionOver;
    assert_eq!(arena.news(&mut rig), [Heard::OfferOver(session, offer.number, over)]);
    lobby.say(&mut rig, |writer| writer.move_session(&wanted(session)));
    assert_eq!(
        lobby.news(&mut rig),
        [Heard::MoveRefused(session, 7, over), Heard::MoveRefused(session, 7, over)]
    );
    player.live(&mut rig, 1200);
    assert_eq!(rig.sessions(), 0);
}

#[test]
fn reports_find_their_process_however_often_the_player_moves_and_tokens_are_chosen() {
    let (mut rig, games, mut player, session) = delivering_zones();
    let names = ["lobby", "arena"];
    let mut tokens = [Vec::new(), Vec::new()];
    for round in 0..6_usize {
        let (here, there) = (round % 2, (round + 1) % 2);
        let game = &games[here];
        for n in 0..3 {
            // The same tokens, again and again.
            game.send(&mut rig, (session, RELIABLE), &long_message(3000, n), 1 + u64::from(n));
            tokens[here].push(1 + u64::from(n));
        }
        game.say(&mut rig, |writer| {
            writer.move_session(&Move { backend: names[there], ..wanted(session) })
        });
        let heard = games[there].hear(&mut rig);
        let offer = heard.iter().find_map(|heard| match heard {
            Heard::Offered(offer) => Some(offer.clone()),
            _ => None,
        });
        say_yes(&mut rig, &games[there], &offer.expect("an offer"));
    }
    player.live(&mut rig, 2000);
    assert_eq!(player.messages.len(), 18);
    // Some reports were heard with the offers.
    for (game, tokens) in games.iter().zip(&mut tokens) {
        let heard = reports(game, &mut rig);
        assert!(heard.len() <= tokens.len() && heard.iter().all(|(_, delivered)| *delivered));
        for (token, _) in heard {
            let at = tokens.iter().position(|known| *known == token).expect("one for each");
            tokens.swap_remove(at);
        }
    }
}
