//! Plain players in front of two gateways.

mod ends;
mod moves;
mod second;
mod stage;
mod takeover;

use super::super::plain::{SERVERS, arrived, plain_setup_with, play};
use super::super::rig::{endpoint, home};
use super::Pair;

const A: usize = 0;
const B: usize = 1;

#[test]
fn a_players_datagrams_reach_its_session_by_either_gateway() {
    let mut pair = Pair::new(plain_setup_with(8, |_| {}), 1);
    let (local, server) = play(pair.rig(A), home(1), b"hello");
    pair.carry();
    for at in [B, A, B] {
        pair.arrive(at, home(1), b"up");
    }
    let expected = (local, server, b"up".to_vec());
    assert_eq!(arrived(pair.rig(A)), [expected.clone(), expected.clone(), expected]);
    assert_eq!((pair.sessions(), arrived(pair.rig(B)).len()), ([1, 0], 0));
    pair.rig(A).answer_udp(endpoint(SERVERS[server]), local, b"down");
    assert_eq!(pair.rig(A).take_for(home(1)), [b"down"]);
    // When it is silent its session is over, and it begins anew wherever it comes to.
    pair.pass(61_000);
    assert_eq!(pair.sessions(), [0, 0]);
    pair.arrive(B, home(1), b"hello");
    assert_eq!((arrived(pair.rig(A)).len(), arrived(pair.rig(B)).len()), (0, 1));
}

#[test]
fn a_session_opens_by_a_datagram_that_comes_to_the_other_gateway() {
    let mut pair = Pair::new(plain_setup_with(8, |_| {}), 1);
    pair.arrive(A, home(1), b"hello");
    let (local, server, _) = arrived(pair.rig(A)).remove(0);
    pair.rig(A).answer_udp(endpoint(SERVERS[server]), local, b"hi");
    pair.carry();
    pair.arrive(B, home(1), b"hello");
    assert_eq!(pair.sessions(), [1, 0]);
    for at in [A, B] {
        pair.fleets[at].hand_over();
        pair.carry();
    }
    pair.arrive(B, home(1), b"up");
    assert_eq!(arrived(pair.rig(A)).len(), 2);
}

#[test]
fn a_flood_of_first_datagrams_by_one_gateway_leaves_the_players_of_the_other_alone() {
    let few = |rules: &mut crate::setup::Plain| rules.half_open_max = 4;
    let mut pair = Pair::new(plain_setup_with(8, few), 1);
    play(pair.rig(A), home(1), b"hello");
    pair.carry();
    for n in 10..100 {
        pair.arrive(B, home(n), b"hello");
    }
    arrived(pair.rig(A));
    pair.arrive(B, home(1), b"up");
    assert_eq!(arrived(pair.rig(A)).len(), 1);
    assert_eq!(pair.whereabouts(A).others_count(), 0, "nobody has answered one of them");
}
