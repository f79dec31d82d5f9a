//! Every reason for which an Unreal listener refuses something, provoked.

use super::super::drops::OF_UNREAL;
use super::super::lens::Lens;
use super::super::rig::{home, newly};
use super::rig::{Arena, BASE, Player, rules_mut, unreal_setup};
use crate::ids::ListenerId;
use crate::setup::{Limits, Setup};
use crate::shared::cookies::By;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::cookie::{Cookie, Proof, SecretId, Timestamp};
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Magic};

/// A player in the arena, and what it takes to make the gateway count the reason once.
type Case = fn(&mut Arena, &mut Player);

const CASES: &[(DropReason, Case)] = &[
    (DropReason::UnrealEnd, |arena, player| send(arena, player, &[0x80, 0, 0, 0])),
    (DropReason::UnrealMagic, |arena, player| {
        let mut packet = initial(player, BASE);
        packet[0] ^= 1;
        send(arena, player, &packet);
    }),
    (DropReason::UnrealSize, |arena, player| {
        let packet = initial(player, BASE);
        let mut short = packet[..packet.len() - 10].to_vec();
        *short.last_mut().expect("long") |= 1;
        send(arena, player, &short);
    }),
    (DropReason::UnrealType, |arena, player| {
        let packet = encode(player, BASE, Body::Ack(Cookie([1; 20])));
        send(arena, player, &packet);
    }),
    (DropReason::UnrealFiller, |arena, player| {
        let mut packet = initial(player, BASE);
        packet[20] ^= 4;
        send(arena, player, &packet);
    }),
    (DropReason::UnrealVersion, |arena, player| {
        let packet = initial(player, Base { version_min: 1, version: 2, ..BASE });
        send(arena, player, &packet);
    }),
    (DropReason::UnrealNetworkVersion, |arena, player| {
        let packet = initial(player, Base { network_version: 1, ..BASE });
        send(arena, player, &packet);
    }),
    (DropReason::UnrealIds, |arena, player| {
        let mut packet = player.game(1).expect("room");
        player.framing.rewrite_ids(&mut packet, Ids::new(1, 7));
        send(arena, player, &packet);
    }),
    (DropReason::CookieExpired, |arena, player| {
        let proof = proof(Timestamp::from_seconds(-5.0));
        let packet = encode(player, BASE, Body::Response(proof));
        send(arena, player, &packet);
    }),
    (DropReason::CookieSecret, |arena, player| {
        arena.pass(1000);
        let timestamp = Timestamp::from_ns(arena.now_ns());
        // Whichever of the two is not in use now; the other one is forged.
        let both = [false, true].map(|bit| {
            let secret_id = SecretId::from_bit(bit);
            let body = Body::Response(Proof { secret_id, ..proof(timestamp) });
            encode(player, BASE, body)
        });
        let before = arena.drops(DropReason::CookieSecret);
        let found = both.iter().find(|packet| {
            arena.deliver(player.worker, player.home, packet);
            arena.drops(DropReason::CookieSecret) > before
        });
        assert!(found.is_some());
    }),
    (DropReason::CookieForged, |arena, player| {
        let mut fresh = Player::new(arena, 6);
        fresh.framing = player.framing;
        fresh.step(arena);
        let mut packet = fresh.owed(arena).expect("a response");
        packet[30] ^= 1;
        send(arena, &fresh, &packet);
    }),
    (DropReason::CookieUnknown, |arena, player| {
        let mut fresh = Player::new(arena, 6);
        fresh.step(arena);
        let response = fresh.owed(arena).expect("a response");
        let body = match decode(&fresh, &response) {
            Body::Response(proof) => Body::RestartResponse { proof, original: Cookie([9; 20]) },
            other => panic!("{other:?}"),
        };
        let packet = encode(&fresh, BASE, body);
        let _ = player;
        send(arena, &fresh, &packet);
    }),
    (DropReason::ResponseReplayed, |arena, player| {
        let recorded = player.sent[1].clone();
        player.client = Player::new(arena, 7).client;
        player.peer = None;
        player.connect(arena);
        send(arena, player, &recorded);
    }),
    (DropReason::RestartRateLimited, |arena, player| {
        let packet = player.game(1).expect("room");
        let stranger = |port| Endpoint::v4([192, 0, 2, 1], port);
        (0..201).for_each(|port| drop(arena.deliver(0, stranger(port), &packet)));
    }),
    (DropReason::GapUnconfirmed, |arena, player| {
        let mut packet = player.game(1).expect("room");
        // The second highest bit of the number, at the end of the header's fields.
        packet[(14 + 30) / 8] ^= 1 << ((14 + 30) % 8);
        send(arena, player, &packet);
    }),
    (DropReason::AckImplausible, |arena, player| {
        let mut packet = player.game(1).expect("room");
        // The acknowledgement's lowest bits, behind 8 bits of magic, 6 of prefix and 4 of the word
        // count.
        packet[18 / 8] ^= 0x3c;
        send(arena, player, &packet);
    }),
    (DropReason::ServerDuplicate, |arena, player| {
        let there = arena.servers[0].stand_in.connections()[0].address;
        arena.pass(300);
        let mut out = [0; 100];
        let now_ns = arena.now_ns();
        let keep_alive = arena.servers[0].stand_in.poll_keep_alive(now_ns, &mut out);
        let (to, len) = keep_alive.expect("due");
        assert_eq!((to, player.repeats), (there, 0));
        arena.say(0, there, &out[..len]);
        arena.say(0, there, &out[..len]);
    }),
    (DropReason::ServerPacketInvalid, |arena, _| {
        let there = arena.servers[0].stand_in.connections()[0].address;
        arena.say(0, there, b"no packet of anybody's");
    }),
];

fn magic_setup() -> Setup {
    let mut setup = unreal_setup(1);
    let bits: Vec<_> = (0..8).map(|bit| bit % 2 == 0).collect();
    rules_mut(&mut setup).framing.magic = Magic::from_bits(&bits).expect("eight");
    rules_mut(&mut setup).network_versions = Some(vec![BASE.network_version]);
    setup
}

#[test]
fn every_reason_is_provoked_by_itself() {
    for (why, case) in CASES {
        let mut arena = Arena::new(magic_setup(), 1);
        let mut player = Player::connected(&mut arena, 5);
        let before = arena.counters().drops;
        let lens = Lens::wide(arena.rig());
        case(&mut arena, &mut player);
        let found = newly(&before, &arena.counters().drops);
        assert!(found.contains(&(*why, 1)), "{}: {found:?}", why.name());
        let besides = found.iter().filter(|(other, _)| other != why);
        let is_forged_too = |(other, _): &(DropReason, u64)| *other == DropReason::CookieForged;
        assert!(besides.copied().all(|it| is_forged_too(&it)), "{}: {found:?}", why.name());
        lens.has_seen(*why);
    }
}

#[test]
fn the_memory_of_responses_is_bounded() {
    let mut setup = unreal_setup(1);
    setup.worker_sessions_max = 4;
    let mut arena = Arena::new(setup, 1);
    fill_memory_of_responses(&mut arena);
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    player.step(&mut arena);
    assert_eq!(arena.drops(DropReason::ResponseHistoryFull), 1);
    assert_eq!(arena.counters().sessions, 0);
}

/// Each of its connections takes the place of the one before.
#[test]
fn one_address_does_not_fill_the_memory_of_responses() {
    let mut setup = unreal_setup(1);
    setup.listeners[ListenerId(0)].limits = Limits::NONE;
    setup.worker_sessions_max = 8;
    let share = setup.claim_limits().tokens_max / 8;
    let mut arena = Arena::new(setup, 1);
    // The gate stays in this process: the next one counts the shares of blocks anew.
    let _claims = std::sync::Arc::clone(&arena.rig().host.gate().common.claims);
    let mut mover = Player::connected(&mut arena, 5);
    let flood = |arena: &mut Arena, from: Endpoint, client_id: usize| {
        let mut hostile = Player::new(arena, client_id as u8);
        hostile.home = from;
        hostile.step(arena);
        hostile.step(arena);
        arena.rig().jump(1);
    };
    arena.servers[0].is_deaf = true;
    (0..=share).for_each(|n| flood(&mut arena, home(1), 1 + n % 2));
    arena.servers[0].is_deaf = false;
    assert_eq!(arena.drops(DropReason::ResponseHistoryFull), 1);
    mover.change_port(&mut arena, 0);
    mover.home = home(1).with_port(9);
    mover.restart(&mut arena);
    assert_eq!(arena.counters().port_switches, 1, "who has a session is followed there");
    let mut other = Player::new(&arena, 4);
    (0..2).for_each(|_| other.step(&mut arena));
    assert!(other.plays(&mut arena), "others come in");
    // One connection that answers more challenges than it needs.
    let used = |arena: &mut Arena| arena.rig().host.gate().common.claims.cookies().used_count();
    let before = used(&mut arena);
    (0..1000).for_each(|_| flood(&mut arena, other.home, 4));
    assert!(used(&mut arena) <= before + 3);
}

#[test]
fn a_restart_that_is_refused_leaves_its_session_counted_where_it_was() {
    let mut setup = unreal_setup(1);
    setup.worker_sessions_max = 4;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    let before = player.home;
    fill_memory_of_responses(&mut arena);
    arena.pass(11_000);
    player.home = home(77);
    player.restart(&mut arena);
    assert!(arena.drops(DropReason::ResponseHistoryFull) > 0);
    let gate = arena.rig().host.gate();
    let sessions = &gate.fronts.unreal.sessions;
    let at = |index| sessions.at(index).claim.source;
    assert_eq!(sessions.entries().map(at).collect::<Vec<_>>(), [before]);
}

fn fill_memory_of_responses(arena: &mut Arena) {
    let now_ns = arena.now_ns();
    let gate = arena.rig().host.gate();
    let tokens_max = gate.common.setup.claim_limits().tokens_max as u64;
    let is_full = (0..=tokens_max).any(|n| {
        let mut cookie = Cookie([7; 20]);
        cookie.0[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        let used = gate.common.claims.cookies().use_once(&cookie, By::Mover, now_ns);
        used == Err(DropReason::ResponseHistoryFull)
    });
    assert!(is_full);
}

#[test]
fn the_list_is_complete() {
    let provoked: Vec<_> = CASES.iter().map(|(why, _)| *why).collect();
    let missing = OF_UNREAL.iter().filter(|why| !provoked.contains(why));
    assert_eq!(missing.collect::<Vec<_>>(), [&DropReason::ResponseHistoryFull]);
}

fn send(arena: &mut Arena, player: &Player, packet: &[u8]) {
    arena.deliver(player.worker, player.home, packet);
}

fn encode(player: &Player, base: Base, body: Body) -> Vec<u8> {
    let packet = Handshake { ids: player.client.ids(), base, body };
    let mut out = [0; 100];
    let len = packet.encode(&player.framing, &Tail::draw(&[8; 17]), &mut out);
    out[..len].to_vec()
}

fn initial(player: &Player, base: Base) -> Vec<u8> {
    encode(player, base, Body::Initial { is_restart: false })
}

fn decode(player: &Player, packet: &[u8]) -> Body {
    use ringgate_core::proto::unreal::handshake::Receiver;
    let framing: &Framing = &player.framing;
    let (prefix, reader) = framing.read(packet).expect("a packet");
    Handshake::decode(framing, prefix, reader, Receiver::Server).expect("for a server").body
}

fn proof(timestamp: Timestamp) -> Proof {
    Proof { secret_id: SecretId::from_bit(false), timestamp, cookie: Cookie([3; 20]) }
}

#[test]
fn nobody_gets_more_than_they_sent() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let (mut bytes_in, mut bytes_out) = (0, 0);
    for n in 0..3000_u16 {
        let tail = arena.dice.tail();
        let ids = Ids::new(0, n as u8);
        let body = Body::Initial { is_restart: n % 2 == 0 };
        let mut out = [0; 100];
        let len = Handshake { ids, base: BASE, body }.encode(&Framing::default(), &tail, &mut out);
        let answers = arena.deliver(0, home(n), &out[..len]);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].len() <= len);
        bytes_in += len;
        bytes_out += answers[0].len();
    }
    assert!(bytes_out < bytes_in);
    assert_eq!(arena.counters().sessions + arena.counters().pending, 0);
}
