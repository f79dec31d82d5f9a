//! A player whose client has crashed comes back with a new token, and its session is in its way.

use super::clients::{Scribe, forged};
use super::rig::{Fleet, Rig, home, netcode_rules, plain_setup, udp_backend};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::Setup;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;

/// So many workers in front of a server with one slot.
fn fleet(workers: u16, replace_after_ns: u64) -> Fleet {
    let backend = udp_backend("arena", "127.0.0.1:7000", 1);
    let mut setup = Setup { backends: vec![backend].into(), ..plain_setup() };
    netcode_rules(&mut setup).replace_after_ns = replace_after_ns;
    Fleet::new(setup, workers)
}

fn tell(fleet: &mut Fleet, setup: Setup) {
    let setup = std::sync::Arc::new(setup);
    for rig in &mut fleet.rigs {
        rig.mail(Mail::Setup(std::sync::Arc::clone(&setup)));
        rig.turn();
    }
}

/// A session at the first worker, that is heard now.
fn playing(fleet: &mut Fleet) -> Scribe {
    let scribe = Scribe::new(&fleet.rigs[0].token(1));
    scribe.connect(&mut fleet.rigs[0], home(1));
    fleet.rigs[0].deliver(home(1), &scribe.keep_alive(5));
    scribe
}

/// Says at the last worker what is due, as a client does, for half a second. Whether it has a
/// session then.
fn logs_in(fleet: &mut Fleet, scribe: &Scribe, from: Endpoint) -> bool {
    let at = fleet.rigs.len() - 1;
    let mut answered: Option<Vec<u8>> = None;
    for _ in 0..5 {
        let due = match &answered {
            None => scribe.request(),
            Some(challenge) => scribe.packet(PacketKind::Response, 1, challenge),
        };
        fleet.rigs[at].deliver(from, &due);
        fleet.deliver_mail();
        let sent = fleet.rigs[at].take_for(from);
        let challenge = sent.iter().filter_map(|it| scribe.open(it)).next_back();
        let challenge = challenge.filter(|(kind, _)| *kind == PacketKind::Challenge);
        answered = challenge.map(|(_, body)| body).or(answered);
        fleet.pass(100);
    }
    fleet.rigs[at].host.gate().sessions().any(|session| session.address == from)
}

fn replaced(fleet: &Fleet) -> u64 {
    fleet.rigs[0].counters().sessions_closed[Ended::NewerLogin as usize]
}

#[test]
fn a_login_replaces_a_session_that_is_silent_and_none_that_talks() {
    for workers in [1, 2] {
        let mut fleet = fleet(workers, 2_000_000_000);
        let crashed = playing(&mut fleet);
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        assert!(!logs_in(&mut fleet, &newer, home(2)), "{workers}: it was just heard");
        // Neither what is forged nor what is repeated is heard.
        fleet.pass(1_000);
        fleet.rigs[0].provokes(DropReason::PacketForged, |rig| {
            rig.deliver(home(1), &forged(crashed.keep_alive(9)));
        });
        fleet.rigs[0].provokes(DropReason::ReplayDuplicate, |rig| {
            rig.deliver(home(1), &crashed.keep_alive(5));
        });
        fleet.pass(500);
        assert!(logs_in(&mut fleet, &newer, home(2)), "{workers}");
        assert_eq!(replaced(&fleet), 1);
        assert_eq!(fleet.rigs.iter().map(Rig::sessions).sum::<usize>(), 1);

        let mut fleet = self::fleet(workers, 2_000_000_000);
        let talks = playing(&mut fleet);
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        for sequence in 10..18 {
            fleet.rigs[0].deliver(home(1), &talks.keep_alive(sequence));
            assert!(!logs_in(&mut fleet, &newer, home(2)), "{workers}: it talks");
        }
        assert_eq!(replaced(&fleet), 0);
    }
}

#[test]
fn a_client_that_comes_back_with_the_port_that_it_had_replaces_its_silent_session() {
    for replace_after_ns in [2_000_000_000, 0] {
        let mut fleet = fleet(1, replace_after_ns);
        let crashed = playing(&mut fleet);
        let before = fleet.rigs[0].session_at(home(1));
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        if replace_after_ns > 0 {
            logs_in(&mut fleet, &newer, home(1));
            assert_eq!(fleet.rigs[0].session_at(home(1)), before, "it was just heard");
            fleet.pass(2_500);
        }
        // Another player behind the same address, and its own token once more.
        let other = Scribe::new(&fleet.rigs[0].token(2));
        logs_in(&mut fleet, &other, home(1));
        logs_in(&mut fleet, &crashed, home(1));
        assert_eq!((fleet.rigs[0].session_at(home(1)), replaced(&fleet)), (before, 0));
        assert!(logs_in(&mut fleet, &newer, home(1)));
        let after = fleet.rigs[0].session_at(home(1));
        assert_ne!(after, before);
        assert_eq!((fleet.rigs[0].sessions(), replaced(&fleet)), (1, 1));
        // It is the newer one's: what the old one says there is nobody's.
        fleet.rigs[0].provokes(DropReason::PacketForged, |rig| {
            rig.deliver(home(1), &crashed.keep_alive(20));
        });
        fleet.rigs[0].deliver(home(1), &newer.keep_alive(20));
        assert_eq!(fleet.rigs[0].session_at(home(1)), after);
    }
}

#[test]
fn nothing_but_a_new_token_for_its_id_replaces_a_session() {
    for workers in [1, 2] {
        let mut fleet = fleet(workers, 2_000_000_000);
        let crashed = playing(&mut fleet);
        fleet.pass(2_500);
        // Its own token, from elsewhere and from where it was.
        assert!(!logs_in(&mut fleet, &crashed, home(2)));
        let other = Scribe::new(&fleet.rigs[0].token(2));
        assert!(!logs_in(&mut fleet, &other, home(3)));
        // A login that proves nothing: its request, and the responses of others.
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        let at = fleet.rigs.len() - 1;
        for _ in 0..3 {
            fleet.rigs[at].deliver(home(4), &newer.request());
            fleet.deliver_mail();
            fleet.rigs[at].deliver(home(4), &newer.packet(PacketKind::Response, 1, &[7; 308]));
            fleet.pass(100);
        }
        assert_eq!((replaced(&fleet), fleet.rigs[0].sessions()), (0, 1), "{workers}");
    }
}

#[test]
fn a_session_that_has_talked_again_since_the_challenge_stays() {
    for workers in [1, 2] {
        let mut fleet = fleet(workers, 2_000_000_000);
        let slow = playing(&mut fleet);
        fleet.pass(2_500);
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        let at = fleet.rigs.len() - 1;
        for _ in 0..2 {
            fleet.rigs[at].deliver(home(2), &newer.request());
            fleet.deliver_mail();
        }
        let challenge = newer.challenge(&mut fleet.rigs[at], home(2));
        fleet.rigs[0].deliver(home(1), &slow.keep_alive(9));
        fleet.rigs[at].deliver(home(2), &newer.packet(PacketKind::Response, 1, &challenge));
        fleet.pass(100);
        assert_eq!((replaced(&fleet), fleet.rigs[0].sessions()), (0, 1), "{workers}");
    }
}

#[test]
fn where_the_newest_wins_it_wins_over_one_that_talks_and_a_successor_knows_whom_to_ask() {
    for (workers, is_handed_over) in [(1, false), (2, false), (2, true)] {
        let mut fleet = fleet(workers, 0);
        let older = playing(&mut fleet);
        if is_handed_over {
            fleet.hand_over();
        }
        fleet.rigs[0].deliver(home(1), &older.keep_alive(9));
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        assert!(logs_in(&mut fleet, &newer, home(2)), "{workers}");
        assert_eq!(replaced(&fleet), 1);
    }
}

/// A login that could not come in ends nobody's session, whichever rule says which login wins.
#[test]
fn a_login_for_which_there_is_no_room_replaces_nobody() {
    type Change = fn(&mut Setup);
    let changes: [(DropReason, Change); 3] = [
        (DropReason::BackendDrained, |setup| setup.backends[BackendId(0)].drained = true),
        (DropReason::RequestBackendDown, |setup| setup.backends[BackendId(0)].retired = true),
        // Of the address that the newer login comes from: another player has the only place.
        (DropReason::AddressFull, |setup| {
            setup.listeners[ListenerId(0)].limits.sessions_per_address = 1;
        }),
    ];
    for (workers, replace_after_ns) in [(1, 2_000_000_000), (1, 0), (2, 2_000_000_000), (2, 0)] {
        for (why, change) in changes {
            let mut fleet = fleet(workers, replace_after_ns);
            let mut setup = fleet.rigs[0].host.gate().setup().clone();
            setup.backends[BackendId(0)].slots = 2;
            change(&mut setup);
            playing(&mut fleet);
            tell(&mut fleet, setup);
            if why == DropReason::AddressFull {
                let neighbour = Scribe::new(&fleet.rigs[0].token(2));
                neighbour.connect(&mut fleet.rigs[0], home(2).with_port(77));
            }
            fleet.pass(2_500);
            let newer = Scribe::new(&fleet.rigs[0].token(1));
            assert!(!logs_in(&mut fleet, &newer, home(2)), "{why:?} {workers}");
            assert_eq!(replaced(&fleet), 0, "{why:?} {workers} {replace_after_ns}");
            fleet.rigs[0].session_at(home(1));
            // Where another worker has the session, only that one knows whose room is whose.
            let denied: u64 = fleet.rigs.iter().map(|rig| rig.drops(why)).sum();
            assert!(denied > 0 || workers == 2, "{why:?} {workers}");
        }
    }
}

/// Its room is that of the session that it replaces.
#[test]
fn a_login_has_the_room_of_the_session_that_it_replaces() {
    for workers in [1, 2] {
        let mut fleet = fleet(workers, 2_000_000_000);
        let mut setup = fleet.rigs[0].host.gate().setup().clone();
        setup.listeners[ListenerId(0)].sessions_max = 1;
        setup.listeners[ListenerId(0)].limits.sessions_per_address = 1;
        tell(&mut fleet, setup);
        playing(&mut fleet);
        fleet.pass(2_500);
        let newer = Scribe::new(&fleet.rigs[0].token(1));
        assert!(logs_in(&mut fleet, &newer, home(1).with_port(77)), "{workers}");
        assert_eq!(replaced(&fleet), 1);
    }
}
