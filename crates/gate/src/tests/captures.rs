//! Captures: what is copied, of whom, and what is said of it.

use super::clients::{Scribe, forged};
use super::games::Game;
use super::lens::{Lens, Sight};
use super::rig::{Fleet, Rig, endpoint, home, plain_setup};
use super::unreal::rig::{Arena, Player, unreal_setup};
use crate::capture::{Capture, Meant};
use crate::elsewhere::Elsewhere;
use crate::ids::{ListenerId, WorkerId};
use crate::mail::Mail;
use ringgate_batch::{SendFailure, SocketId};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use std::sync::Arc;

fn playing() -> (Rig, Game, Scribe) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(7));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.keep_alive(2));
    rig.take_for(home(1));
    (rig, game, scribe)
}

pub(super) fn of_client(client_id: u64) -> Meant {
    Meant { client_id: Some(client_id), ..Meant::default() }
}

fn handled(bytes: &[u8]) -> Sight {
    Sight {
        is_outbound: false,
        dropped: None,
        client_id: Some(7),
        is_clear: false,
        bytes: bytes.to_vec(),
    }
}

fn dropped(bytes: &[u8], why: DropReason) -> Sight {
    Sight { dropped: Some(why), ..handled(bytes) }
}

#[test]
fn both_directions_are_copied_as_they_are_on_the_wire() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(7));
    let lens = Lens::wide(&mut rig);
    let request = scribe.request();
    rig.deliver(home(1), &request);
    let challenge = rig.sent.iter().find(|sent| sent.target.peer == Some(home(1)));
    let challenge = challenge.expect("it is answered").bytes.clone();
    let seen = lens.take();
    assert_eq!(seen[0], handled(&request));
    assert!(seen[1].is_outbound && seen[1].dropped.is_none());
    assert_eq!(seen[1].bytes, challenge);
    let body = scribe.challenge(&mut rig, home(1));
    rig.deliver(home(1), &scribe.packet(PacketKind::Response, 1, &body));
    let payload = scribe.payload(2, b"up");
    rig.deliver(home(1), &payload);
    rig.deliver(home(1), &payload);
    let seen: Vec<_> = lens.take().into_iter().filter(|sight| !sight.is_outbound).collect();
    assert_eq!(seen[1..], [handled(&payload), dropped(&payload, DropReason::ReplayDuplicate)]);
    let session = game.guests(&mut rig)[0].session;
    rig.take_for(home(1));
    game.say(&mut rig, |w| w.payload(session, b"down"));
    let seen = lens.take();
    let sent = rig.take_for(home(1));
    assert_eq!((seen.len(), &seen[0].bytes, seen[0].is_clear), (1, &sent[0], false));
}

#[test]
fn in_clear_is_what_is_said_and_never_a_key() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(7));
    let lens = Lens::new(&mut rig, of_client(7), true);
    let request = scribe.request();
    rig.deliver(home(1), &request);
    let body = scribe.challenge(&mut rig, home(1));
    let response = scribe.packet(PacketKind::Response, 1, &body);
    rig.deliver(home(1), &response);
    let seen = lens.take();
    assert!(seen.iter().all(|sight| !sight.is_clear), "handshakes stay as they are");
    let inbound: Vec<_> = seen.iter().filter(|it| !it.is_outbound).map(|it| &it.bytes).collect();
    assert_eq!(inbound, [&request, &response]);
    let session = game.guests(&mut rig)[0].session;
    let (up, bad) = (scribe.payload(2, b"up"), forged(scribe.payload(3, b"bad")));
    rig.push(home(1), &up);
    rig.push(home(1), &bad);
    game.push(&mut rig, |w| w.payload(session, b"down"));
    rig.turn();
    let seen = lens.take();
    assert_eq!(seen[0], Sight { is_clear: true, ..handled(b"up") });
    assert_eq!(
        seen[1],
        dropped(&bad, DropReason::PacketForged),
        "what did not open stays as it was"
    );
    let outbound: Vec<_> = seen[2..].iter().map(|it| (it.is_clear, &it.bytes[..])).collect();
    assert_eq!(outbound, [(true, &b"down"[..])]);
}

#[test]
fn players_who_never_pause_do_not_have_the_reader_to_themselves() {
    let (mut rig, _game, scribe) = playing();
    let lens = Lens::wide(&mut rig);
    let (mut sequence, mut read) = (2, 0);
    let mut says_more = || {
        sequence += 1;
        rig.deliver(home(1), &scribe.payload(sequence, b"x"));
    };
    says_more();
    lens.0.drain(|_| {
        read += 1;
        says_more();
        read < 100_000
    });
    assert!((1..10_000).contains(&read), "{read}");
}

#[test]
fn what_is_said_in_the_turn_of_a_response_is_in_clear_too() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(7));
    let lens = Lens::new(&mut rig, of_client(7), true);
    rig.deliver(home(1), &scribe.request());
    let body = scribe.challenge(&mut rig, home(1));
    rig.push(home(1), &scribe.packet(PacketKind::Response, 1, &body));
    rig.deliver(home(1), &scribe.payload(2, b"up"));
    assert_eq!(game.payloads(&mut rig), [b"up"]);
    assert!(lens.take().contains(&Sight { is_clear: true, ..handled(b"up") }));
}

#[test]
fn a_player_is_followed_by_its_id_and_others_are_left_out() {
    let (mut rig, game, scribe) = playing();
    let other = Scribe::new(&rig.token(8));
    other.connect(&mut rig, home(2));
    let guests = game.guests(&mut rig);
    let lens = Lens::new(&mut rig, of_client(7), false);
    rig.deliver(home(2), &other.payload(2, b"other"));
    let moved = home(1).with_port(6000);
    let packets = [scribe.payload(3, b"x"), scribe.payload(4, b"moved")];
    rig.deliver(home(1), &packets[0]);
    rig.deliver(moved, &packets[1]);
    for guest in &guests {
        game.say(&mut rig, |w| w.payload(guest.session, b"down"));
    }
    let seen = lens.take();
    assert_eq!(seen[..2], packets.each_ref().map(|packet| handled(packet)));
    let peers = rig.take_for(moved);
    assert_eq!(seen[2..].iter().map(|it| &it.bytes).collect::<Vec<_>>(), [&peers[0]]);
}

#[test]
fn what_a_player_is_sent_is_known_from_the_first_packet_on() {
    let (mut rig, game, _scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    let homes = vec![(ListenerId(0), home(1))];
    let until_ns = rig.now.mono_ns + 1_000_000_000;
    let capture = Arc::new(Capture::new(of_client(7), false, until_ns, homes, 1));
    rig.mail(Mail::Capture(Arc::clone(&capture)));
    game.say(&mut rig, |w| w.payload(session, b"down"));
    let mut seen = 0;
    capture.drain(|_| {
        seen += 1;
        true
    });
    assert_eq!(seen, 1);
    // Whoever reads it, it is over at its time.
    rig.jump(990);
    rig.turn();
    assert!(!capture.is_home());
    rig.jump(10);
    rig.turn();
    assert!(capture.is_home());
}

#[test]
fn addresses_listeners_and_reasons_are_told_apart() {
    let (mut rig, _game, scribe) = playing();
    let address = "10.0.1.0/24".parse().expect("a prefix");
    let near = Lens::new(&mut rig, Meant { address: Some(address), ..Meant::default() }, false);
    let listener = Some(ListenerId(1));
    let elsewhere = Lens::new(&mut rig, Meant { listener, ..Meant::default() }, false);
    let reasons = vec![DropReason::PacketForged, DropReason::ReplayDuplicate];
    let bad = Lens::new(&mut rig, Meant { reasons, ..Meant::default() }, false);
    let payload = scribe.payload(3, b"x");
    rig.deliver(home(1), &payload);
    rig.deliver(home(1), &payload);
    rig.deliver(home(1), &forged(scribe.payload(4, b"x")));
    rig.deliver(endpoint("198.51.100.1:9"), &[1]);
    assert_eq!(near.drops(), [DropReason::ReplayDuplicate, DropReason::PacketForged]);
    assert_eq!(bad.take().len(), 2);
    assert!(elsewhere.take().is_empty());
    near.0.end();
    assert!(!near.0.is_home());
    rig.turn();
    assert!(near.0.is_home() && !bad.0.is_home());
}

#[test]
fn a_datagram_that_another_worker_has_received_is_seen_once_by_who_decides() {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let owner = &mut fleet.rigs[0];
    let game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(7));
    scribe.connect(owner, home(1));
    owner.deliver(home(1), &scribe.keep_alive(5));
    let lenses: Vec<_> = fleet.rigs.iter_mut().map(Lens::wide).collect();
    let moved = home(1).with_port(6000);
    let packets = [6, 7].map(|sequence| scribe.payload(sequence, b"across"));
    for packet in &packets {
        fleet.rigs[1].deliver(moved, packet);
        fleet.deliver_mail();
    }
    assert_eq!(game.payloads(&mut fleet.rigs[0]).len(), 2);
    assert!(lenses[1].take().is_empty());
    let seen = lenses[0]
        .each(|it| (it.bytes.clone(), it.seen.dropped, it.seen.client_id, it.seen.received_by));
    let worker = Some(Elsewhere::Worker(WorkerId(1)));
    assert_eq!(seen, packets.map(|packet| (packet, None, Some(7), worker)));
    // What does not fit into the other's mailbox is lost where it was received.
    fleet.rigs[1].deliver(moved, &scribe.payload(8, b"lost"));
    fleet.rigs[1].refuse_mail();
    assert_eq!(lenses[1].drops(), [DropReason::MailboxFull]);
}

#[test]
fn what_could_not_be_sent_is_seen_with_its_reason() {
    let (mut rig, game, _scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    let lens = Lens::new(&mut rig, Meant::default(), true);
    rig.obstacles.push((SocketId(1), SendFailure::Full));
    game.say(&mut rig, |w| w.payload(session, b"down"));
    let seen = lens.take();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].dropped, &seen[0].bytes[..]),
        (Some(DropReason::SendBufferFull), &b"down"[..])
    );
}

#[test]
fn everything_that_comes_in_and_leaves_in_a_crowded_turn_is_there() {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    let lens = Lens::new(&mut rig, Meant::default(), true);
    let before = (rig.counters().datagrams_in, rig.counters().drops.total());
    for sequence in 10..110 {
        rig.push(home(1), &scribe.payload(sequence, &sequence.to_be_bytes()));
        rig.push(endpoint("198.51.100.1:9"), &[1, 2, 3]);
        game.push(&mut rig, |w| w.payload(session, &sequence.to_be_bytes()));
    }
    rig.turn();
    let seen = lens.take();
    let up: Vec<_> = seen.iter().filter(|it| !it.is_outbound && it.dropped.is_none()).collect();
    let down: Vec<_> = seen.iter().filter(|it| it.is_outbound).collect();
    let said: Vec<_> = (10_u64..110).map(|sequence| sequence.to_be_bytes().to_vec()).collect();
    let bytes = |list: &[&Sight]| list.iter().map(|it| it.bytes.clone()).collect::<Vec<_>>();
    assert_eq!((bytes(&up), bytes(&down)), (said.clone(), said));
    let came = (rig.counters().datagrams_in - before.0) as usize;
    let drops = (rig.counters().drops.total() - before.1) as usize;
    assert_eq!((up.len() + drops, seen.len() - down.len()), (came, came));
    assert_eq!(lens.0.lost(ListenerId(0)), 0);
}

#[test]
fn packets_of_an_unreal_game_are_seen_in_both_directions() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let lens = Lens::wide(arena.rig());
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let seen = lens.take();
    let count = |is_outbound| seen.iter().filter(|it| it.is_outbound == is_outbound).count() as u64;
    let counters = arena.counters();
    assert_eq!(count(false), counters.datagrams_in);
    assert_eq!(count(true), counters.packets_out.iter().sum::<u64>());
    assert!(seen.iter().all(|it| it.dropped.is_none() && !it.is_clear));
}
