//! Players whom a NAT has moved to another port, and those who pretend to be.

use super::clients::{Player, Scribe, forged};
use super::games::{Game, Heard};
use super::rig::{Fleet, Rig, endpoint, home, plain_setup};
use crate::ids::ListenerId;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;

const MOVED: u16 = 6000;

fn moved() -> Endpoint {
    home(1).with_port(MOVED)
}

fn playing() -> (Rig, Game, Scribe) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.keep_alive(5));
    rig.take_for(home(1));
    (rig, game, scribe)
}

#[test]
fn a_session_follows_its_player_to_another_port() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    for port in [MOVED, 7000, 5000, MOVED] {
        player.home = home(1).with_port(port);
        player.send(&mut rig, b"moved");
        assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"moved".to_vec())]);
        game.say(&mut rig, |w| w.payload(session, b"found you"));
        player.receive(&mut rig);
        assert_eq!(player.got.pop().as_deref(), Some(&b"found you"[..]));
        player.live(&mut rig, 6000);
        assert!(player.library.is_connected());
    }
    assert_eq!(rig.counters().port_switches, 4);
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn a_listener_may_ignore_new_ports() {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].follow_port_switch = false;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.provokes(DropReason::UnknownSource, |rig| rig.deliver(moved(), &scribe.payload(2, b"x")));
}

#[test]
fn a_captured_packet_sent_from_elsewhere_gets_nothing() {
    let (mut rig, game, scribe) = playing();
    let captured = scribe.payload(6, b"captured");
    rig.deliver(home(1), &captured);
    // From another port of the same address: not newer. From another address: nobody's.
    rig.provokes(DropReason::PortSwitchStale, |rig| rig.deliver(moved(), &captured));
    rig.provokes(DropReason::UnknownSource, |rig| {
        rig.deliver(endpoint("198.51.100.1:9"), &captured);
    });
    rig.take_for(home(1));
    let session = game.guests(&mut rig)[0].session;
    game.say(&mut rig, |w| w.payload(session, b"for the player"));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Payload]);
    assert!(rig.take_for(moved()).is_empty());
    assert_eq!(rig.counters().port_switches, 0);
}

#[test]
fn a_late_packet_from_the_old_port_does_not_move_the_session_back() {
    let (mut rig, game, scribe) = playing();
    let late = scribe.payload(6, b"late");
    rig.deliver(moved(), &scribe.payload(7, b"moved"));
    rig.provokes(DropReason::PortSwitchStale, |rig| rig.deliver(home(1), &late));
    let session = game.guests(&mut rig)[0].session;
    game.say(&mut rig, |w| w.payload(session, b"x"));
    assert_eq!(scribe.kinds(&mut rig, moved()), [PacketKind::Payload]);
    assert_eq!(rig.counters().port_switches, 1);
}

#[test]
fn several_packets_from_a_new_port_in_one_turn_all_arrive() {
    let (mut rig, game, scribe) = playing();
    let payloads: [&[u8]; 3] = [b"a", b"b", b"c"];
    for (sequence, payload) in (6..).zip(payloads) {
        rig.push(moved(), &scribe.payload(sequence, payload));
    }
    rig.turn();
    assert_eq!(game.payloads(&mut rig), payloads);
    assert_eq!(rig.counters().port_switches, 1);
}

#[test]
fn packets_from_both_ports_in_one_turn_all_arrive() {
    let (mut rig, game, scribe) = playing();
    rig.push(home(1), &scribe.payload(6, b"old port"));
    rig.push(moved(), &scribe.payload(7, b"new port"));
    rig.push(home(1), &scribe.payload(8, b"old port again"));
    rig.turn();
    assert_eq!(game.payloads(&mut rig).len(), 3);
}

#[test]
fn leaving_from_a_new_port_is_leaving() {
    let (mut rig, _, scribe) = playing();
    rig.deliver(moved(), &scribe.disconnect(6));
    assert_eq!(rig.sessions(), 0);
}

#[test]
fn guessing_is_limited_and_guests_of_other_addresses_do_not_pay_for_it() {
    let (mut rig, game, scribe) = playing();
    let other = Scribe::new(&rig.token(2));
    other.connect(&mut rig, home(2));
    for port in 1..=3000 {
        rig.deliver(home(1).with_port(port), &forged(scribe.payload(100, b"x")));
    }
    assert_eq!(
        rig.drops(DropReason::PortSwitchForged),
        1000,
        "what one address may cost in a second"
    );
    assert_eq!(rig.drops(DropReason::PortSwitchRateLimited), 2000);
    game.hear(&mut rig);
    rig.deliver(home(2).with_port(MOVED), &other.payload(6, b"moved"));
    assert_eq!(game.payloads(&mut rig), [b"moved"]);
    rig.jump(1000);
    rig.deliver(moved(), &scribe.payload(6, b"moved too"));
    assert_eq!(game.payloads(&mut rig), [b"moved too"], "the player who was attacked, later");
}

/// One port that sends much spends its own share, and no more.
#[test]
fn a_loud_port_does_not_keep_its_neighbours_from_being_followed() {
    let (mut rig, game, scribe) = playing();
    for _ in 0..3000 {
        rig.deliver(home(1).with_port(9), &forged(scribe.payload(100, b"x")));
    }
    assert_eq!(rig.drops(DropReason::PortSwitchForged), 256);
    game.hear(&mut rig);
    rig.deliver(moved(), &scribe.payload(6, b"moved"));
    assert_eq!(game.payloads(&mut rig), [b"moved"]);
}

/// Everything that can be read without a cipher is read first.
#[test]
fn what_is_numbered_like_nobodys_next_packet_costs_no_cipher() {
    let (mut rig, game, scribe) = playing();
    for far in [5 + 258, 1000, 1 << 40, u64::MAX] {
        rig.provokes(DropReason::PortSwitchStale, |rig| {
            rig.deliver(moved(), &scribe.payload(far, b"x"));
        });
    }
    // A player counts on while nothing arrives: what was too far is within reach a second later.
    rig.jump(1000);
    rig.deliver(moved(), &scribe.payload(1000, b"after a cut"));
    assert_eq!(game.payloads(&mut rig), [b"after a cut"]);
}

#[test]
fn of_several_players_behind_one_address_the_right_one_moves() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribes = [1, 2, 3].map(|id| Scribe::new(&rig.token(id)));
    for (port, scribe) in (1..).zip(&scribes) {
        scribe.connect(&mut rig, home(1).with_port(port));
        rig.deliver(home(1).with_port(port), &scribe.keep_alive(2));
    }
    let guests = game.guests(&mut rig);
    for (guest, (port, scribe)) in guests.iter().zip((101..).zip(&scribes)) {
        rig.deliver(home(1).with_port(port), &scribe.payload(3, b"moved"));
        assert_eq!(game.hear(&mut rig), [Heard::Payload(guest.session, b"moved".to_vec())]);
    }
    assert_eq!(rig.counters().port_switches, 3);
}

/// A player of worker 0 whom the kernel now sends to worker 1.
fn moved_across() -> (Fleet, Game, Scribe) {
    let mut fleet = Fleet::new(plain_setup(), 3);
    let owner = &mut fleet.rigs[0];
    let game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(1));
    scribe.connect(owner, home(1));
    owner.deliver(home(1), &scribe.keep_alive(5));
    (fleet, game, scribe)
}

fn arrive(fleet: &mut Fleet, worker: usize, from: Endpoint, packet: &[u8]) {
    fleet.rigs[worker].deliver(from, packet);
    fleet.deliver_mail();
}

#[test]
fn a_session_stays_with_its_worker_and_the_other_one_forwards() {
    let (mut fleet, game, scribe) = moved_across();
    let session = game.guests(&mut fleet.rigs[0])[0].session;
    for sequence in 6..200 {
        // Far more than the rate at which strangers are tried.
        arrive(&mut fleet, 1, moved(), &scribe.payload(sequence, b"across"));
    }
    let owner = &mut fleet.rigs[0];
    assert_eq!(game.payloads(owner).len(), 194);
    owner.take_for(home(1));
    game.say(owner, |w| w.payload(session, b"down"));
    assert_eq!(scribe.kinds(owner, moved()), [PacketKind::Payload], "from the owner itself");
    assert_eq!(owner.counters().port_switches, 1);
    fleet.pass(4_000);
    assert_eq!(fleet.rigs[0].sessions(), 1);
    arrive(&mut fleet, 1, moved(), &scribe.disconnect(300));
    assert_eq!(fleet.rigs[0].sessions(), 0);
    // The forwarding worker has been told, and asks nobody any more.
    fleet.rigs[1].provokes(DropReason::SessionEnded, |rig| {
        rig.deliver(moved(), &scribe.payload(301, b"x"));
    });
}

#[test]
fn a_player_may_move_from_worker_to_worker_and_home_again() {
    let (mut fleet, game, scribe) = moved_across();
    for (sequence, (worker, port)) in (6..).zip([(1, 1), (2, 2), (0, 3), (1, 4), (0, 5000)]) {
        let from = home(1).with_port(port);
        arrive(&mut fleet, worker, from, &scribe.payload(2 * sequence, b"x"));
        arrive(&mut fleet, worker, from, &scribe.payload(2 * sequence + 1, b"y"));
        assert_eq!(game.payloads(&mut fleet.rigs[0]).len(), 2, "at worker {worker}");
    }
    // Ports that were left behind belong to nobody.
    for (worker, port) in [(1, 1), (2, 2), (1, 4)] {
        let from = home(1).with_port(port);
        let before = fleet.rigs[0].counters().port_switches;
        arrive(&mut fleet, worker, from, &scribe.payload(7, b"late"));
        assert_eq!(fleet.rigs[0].counters().port_switches, before);
    }
}

#[test]
fn a_full_mailbox_loses_datagrams_by_name_and_the_next_one_moves_the_session() {
    let (mut fleet, game, scribe) = moved_across();
    fleet.rigs[1].deliver(moved(), &scribe.payload(6, b"lost"));
    fleet.rigs[1].refuse_mail();
    assert_eq!(fleet.rigs[1].drops(DropReason::MailboxFull), 1);
    arrive(&mut fleet, 1, moved(), &scribe.payload(7, b"found"));
    assert_eq!(game.payloads(&mut fleet.rigs[0]), [b"found"]);
}

#[test]
fn a_steering_message_that_was_lost_is_sent_again() {
    let (mut fleet, game, scribe) = moved_across();
    fleet.rigs[1].deliver(moved(), &scribe.payload(6, b"first"));
    fleet.deliver_mail_once(1);
    // The owner has moved the session, but cannot say so.
    fleet.rigs[0].refuse_mail();
    for sequence in 7..300 {
        arrive(&mut fleet, 1, moved(), &scribe.payload(sequence, b"x"));
    }
    assert_eq!(game.payloads(&mut fleet.rigs[0]).len(), 294, "no rate limit applies any more");
}

#[test]
fn an_end_that_could_not_be_told_is_told_when_it_is_asked_for() {
    let (mut fleet, _, scribe) = moved_across();
    arrive(&mut fleet, 1, moved(), &scribe.payload(6, b"x"));
    fleet.rigs[0].pass(10_000);
    assert_eq!(fleet.rigs[0].sessions(), 0, "timed out");
    fleet.rigs[0].refuse_mail();
    arrive(&mut fleet, 1, moved(), &scribe.payload(7, b"x"));
    assert_eq!(fleet.rigs[1].counters().forwarded_out, 2);
    arrive(&mut fleet, 1, moved(), &scribe.payload(8, b"x"));
    assert_eq!(fleet.rigs[1].counters().forwarded_out, 2, "asks nobody any more");
}

#[test]
fn copies_for_several_workers_balance_also_when_mailboxes_are_full() {
    let (mut fleet, _, _) = moved_across();
    // A second player of the same address lives at worker 2.
    let second = &mut fleet.rigs[2];
    let _game = Game::join(second, "arena");
    let neighbour = Scribe::new(&second.token(2));
    neighbour.connect(second, home(1).with_port(9));

    let forgery = forged(neighbour.payload(100, b"x"));
    fleet.rigs[1].deliver(moved(), &forgery);
    assert_eq!(fleet.rigs[1].counters().forwarded_out, 2);
    fleet.rigs[1].refuse_mail();
    assert_eq!(fleet.rigs[1].drops(DropReason::MailboxFull), 2);
    arrive(&mut fleet, 1, moved(), &forgery);
    let forged = |rig: &Rig| rig.drops(DropReason::PortSwitchForged);
    assert_eq!((forged(&fleet.rigs[0]), forged(&fleet.rigs[2])), (1, 1));
    arrive(&mut fleet, 1, moved(), &neighbour.payload(101, b"x"));
    assert_eq!(fleet.rigs[2].counters().port_switches, 1);
}

#[test]
fn a_replay_from_elsewhere_gets_nothing_from_another_worker_either() {
    let (mut fleet, game, scribe) = moved_across();
    let captured = scribe.payload(6, b"captured");
    arrive(&mut fleet, 0, home(1), &captured);
    game.hear(&mut fleet.rigs[0]);
    arrive(&mut fleet, 1, moved(), &captured);
    assert_eq!(fleet.rigs[0].drops(DropReason::PortSwitchStale), 1);
    assert!(game.hear(&mut fleet.rigs[0]).is_empty());
    assert!(fleet.rigs.iter_mut().all(|rig| rig.take_for(moved()).is_empty()));
}

#[test]
fn a_new_player_on_an_address_that_was_steered_is_let_in() {
    let (mut fleet, game, scribe) = moved_across();
    arrive(&mut fleet, 1, moved(), &scribe.payload(6, b"x"));
    let newcomer = Scribe::new(&fleet.rigs[1].token(2));
    let _game = Game::join(&mut fleet.rigs[1], "arena");
    newcomer.connect(&mut fleet.rigs[1], moved());
    assert_eq!(fleet.rigs[1].sessions(), 1);
    let _ = game;
}

/// Two players of one address, the second at the last of so many workers, with numbers from `far`
/// on.
fn neighbours(workers: u16, far: u64) -> (Fleet, [Scribe; 2]) {
    let mut fleet = Fleet::new(plain_setup(), workers);
    let mut join = |at: usize, id: u64, from: Endpoint, number: u64| {
        let rig = &mut fleet.rigs[at];
        if id == 1 || at > 0 {
            Game::join(rig, "arena");
        }
        let scribe = Scribe::new(&rig.token(id));
        scribe.connect(rig, from);
        rig.deliver(from, &scribe.keep_alive(number));
        scribe
    };
    let first = join(0, 1, home(1), 50);
    let second = join(usize::from(workers) - 1, 2, moved(), far);
    (fleet, [first, second])
}

/// Who plays where, by the workers' own books.
fn residents(fleet: &Fleet) -> Vec<(u64, Endpoint)> {
    let all = fleet.rigs.iter().flat_map(|rig| rig.host.gate().sessions());
    let mut all: Vec<_> = all.map(|it| (it.client_id, it.address)).collect();
    all.sort_by_key(|(client_id, _)| *client_id);
    all
}

#[test]
fn two_players_whose_ports_their_router_has_swapped_play_on() {
    for (workers, far) in [(1, 100), (1, 1000), (2, 100), (2, 1000)] {
        let (mut fleet, [first, second]) = neighbours(workers, far);
        let last = usize::from(workers) - 1;
        let heard = |fleet: &Fleet| fleet.rigs.iter().map(|rig| rig.counters().payloads_up).sum();
        let before: u64 = heard(&fleet);
        for sequence in 1..=20 {
            arrive(&mut fleet, last, moved(), &first.payload(50 + sequence, b"first"));
            arrive(&mut fleet, 0, home(1), &second.payload(far + sequence, b"second"));
            fleet.pass(100);
        }
        assert_eq!(residents(&fleet), [(1, moved()), (2, home(1))], "{workers} {far}");
        let lost = 2 * 20 - (heard(&fleet) - before);
        assert!(lost <= 2 * 12, "{workers} {far}: {lost} after a second of silence");
        // And back again.
        for sequence in 21..=40 {
            arrive(&mut fleet, 0, home(1), &first.payload(50 + sequence, b"first"));
            arrive(&mut fleet, last, moved(), &second.payload(far + sequence, b"second"));
            fleet.pass(100);
        }
        assert_eq!(residents(&fleet), [(1, home(1)), (2, moved())], "{workers} {far}");
        fleet.pass(4_000);
        assert_eq!(fleet.rigs.iter().map(Rig::sessions).sum::<usize>(), 2);
    }
}

#[test]
fn three_players_whose_ports_have_gone_round_play_on() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let port = |at: u64| home(1).with_port(at as u16 % 3 + 1);
    let scribes = [0, 1, 2].map(|id| Scribe::new(&rig.token(id)));
    for (at, scribe) in (0..).zip(&scribes) {
        scribe.connect(&mut rig, port(at));
        rig.deliver(port(at), &scribe.keep_alive(50 * at + 2));
    }
    for sequence in 3..23 {
        for (at, scribe) in (0..).zip(&scribes) {
            rig.deliver(port(at + 1), &scribe.payload(50 * at + sequence, b"round"));
        }
        rig.pass(100);
    }
    game.hear(&mut rig);
    for (at, scribe) in (0..).zip(&scribes) {
        rig.deliver(port(at + 1), &scribe.payload(50 * at + 23, b"there"));
    }
    assert_eq!(game.payloads(&mut rig), [b"there"; 3]);
    assert_eq!(rig.sessions(), 3);
}

/// Neither of who is heard nor of who is silent.
#[test]
fn forged_packets_from_a_players_address_move_nobody() {
    for workers in [1, 2] {
        let (mut fleet, [first, second]) = neighbours(workers, 100);
        let last = usize::from(workers) - 1;
        // Nobody's, and one of the neighbour's that was heard before: from a player's address.
        let captured = first.payload(60, b"captured");
        arrive(&mut fleet, 0, home(1), &captured);
        for ms in [100, 2_000] {
            fleet.pass(ms);
            for _ in 0..3 {
                arrive(&mut fleet, last, moved(), &forged(second.payload(101, b"x")));
                arrive(&mut fleet, last, moved(), &captured);
            }
            assert_eq!(residents(&fleet), [(1, home(1)), (2, moved())], "{workers}");
        }
        // Who was silent meanwhile is heard at once.
        let rig = &mut fleet.rigs[last];
        let before = rig.counters().payloads_up;
        rig.deliver(moved(), &second.payload(101, b"here"));
        assert_eq!(rig.counters().payloads_up, before + 1, "{workers}");
        // While it talks, what another player's session would take is refused there.
        rig.provokes(DropReason::PacketForged, |rig| {
            rig.deliver(moved(), &first.payload(200, b"x"));
        });
    }
}

/// What forged packets may cost at the address of a player who is silent is what they may cost at
/// any other port.
#[test]
fn forged_packets_at_a_silent_players_address_are_limited() {
    let (mut fleet, [_, second]) = neighbours(1, 100);
    fleet.pass(2_000);
    let rig = &mut fleet.rigs[0];
    let mut rest = Vec::new();
    for n in 0..3000_u64 {
        rig.deliver(moved(), &forged(second.payload(101 + n % 100, b"x")));
        rest.push(rig.host.gate().fronts.netcode.verdicts.len());
    }
    let trials = rest.iter().filter(|verdicts| **verdicts > 2).count();
    assert!(trials <= 256, "{trials}: one port has its share");
    rig.deliver(moved(), &second.payload(300, b"here"));
    assert_eq!(rig.counters().payloads_up, 1);
}
