//! Each way that a datagram may go, and that none goes far.

use proptest::prelude::*;

use super::*;
use crate::member::{KeyName, Member, Wake};
use crate::question::{Answer, Reply, SessionId};

const OWN: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const C: Incarnation = Incarnation(3);
const BY_OWN_DOOR: Forwarded = Forwarded { hops: 0, term: Term::NONE };

fn tenure(term: u16, incarnation: Incarnation) -> Tenure {
    Tenure { term: Term::new(term).expect("it is one"), incarnation }
}

fn entry(holder: Tenure, standby: Option<Incarnation>) -> Entry {
    Entry { fingerprint: 5, holder, standby }
}

fn standby(holder: Tenure) -> Stake {
    Stake::stand_by(SessionId([0; 16]), KeyName(0), holder)
}

fn owner() -> Stake {
    let mut member = Member::new(OWN, 1);
    let mut stake = Stake::open(SessionId([0; 16]), KeyName(0), 1, &mut member).expect("a term");
    let tenure = stake.question(Wake(0)).expect("it asks").tenure;
    let handed = ringgate_core::proto::replay::Window::new();
    let reply = Reply::Granted { handed };
    stake.handle_answer(&Answer { session: SessionId([0; 16]), tenure, wake: Wake(0), reply });
    stake
}

fn forward(to: Incarnation, hops: u8, term: u16) -> Way {
    Way::Forward { to, how: Forwarded { hops, term: tenure(term, to).term } }
}

#[test]
fn a_players_datagram_goes_to_the_session_or_to_who_has_it() {
    let all = |_| true;
    let at_b = entry(tenure(3, B), Some(C));
    assert_eq!(way(OWN, Some(&owner()), Some(&at_b), BY_OWN_DOOR, all), Way::Here);
    assert_eq!(way(OWN, None, Some(&at_b), BY_OWN_DOOR, all), forward(B, 1, 3));
    assert_eq!(way(OWN, None, None, BY_OWN_DOOR, all), Way::Stranger);
    let stands_by = standby(tenure(4, C));
    let later = way(OWN, Some(&stands_by), Some(&at_b), BY_OWN_DOOR, all);
    assert_eq!(later, forward(C, 1, 4), "the standby knows of a later owner");
    let mut member = Member::new(OWN, 1);
    let mut asks = stands_by;
    asks.claim(&mut member).expect("a term");
    assert_eq!(way(OWN, Some(&asks), Some(&at_b), BY_OWN_DOOR, all), Way::Wait);
}

#[test]
fn where_the_owner_does_not_answer_its_standby_claims() {
    let but_b = |it| it != B;
    let at_b = entry(tenure(3, B), Some(C));
    assert_eq!(way(OWN, None, Some(&at_b), BY_OWN_DOOR, but_b), forward(C, 1, 3));
    let come = Forwarded { hops: 1, term: tenure(3, B).term };
    let at_c = standby(tenure(3, B));
    assert_eq!(way(C, Some(&at_c), Some(&at_b), come, but_b), Way::Claim);
    assert_eq!(
        way(C, Some(&at_c), Some(&at_b), come, |_| true),
        forward(B, 2, 3),
        "who has forwarded it was cut off from the owner, and this one is not"
    );
    let nobody = way(OWN, None, Some(&at_b), BY_OWN_DOOR, |_| false);
    assert_eq!(nobody, Way::Stopped(Stopped::Unreachable));
}

#[test]
fn a_datagram_is_forwarded_again_to_a_later_owner_only() {
    let come = Forwarded { hops: 1, term: tenure(3, B).term };
    let all = |_| true;
    assert_eq!(
        way(OWN, None, Some(&entry(tenure(3, B), None)), come, all),
        Way::Stopped(Stopped::TooFar)
    );
    let later = entry(tenure(4, C), None);
    assert_eq!(way(OWN, None, Some(&later), come, all), forward(C, 2, 4));
    let come = Forwarded { hops: 2, ..come };
    assert_eq!(way(OWN, None, Some(&later), come, all), Way::Stopped(Stopped::TooFar));
}

#[test]
fn the_later_owner_of_an_address_counts() {
    let mut directory = Directory::default();
    directory.learn(entry(tenure(3, B), None));
    directory.learn(entry(tenure(2, C), None));
    assert_eq!(directory.find(5), Some(&entry(tenure(3, B), None)));
    directory.learn(entry(tenure(3, B), Some(C)));
    directory.forget(5, tenure(2, C));
    assert_eq!(directory.find(5), Some(&entry(tenure(3, B), Some(C))));
    directory.forget(5, tenure(3, B));
    assert_eq!(directory.find(5), None);
}

#[test]
fn an_entry_is_read_as_it_was_told() {
    let it = entry(tenure(3, B), Some(C));
    assert_eq!(Entry::from_bytes(&it.to_bytes()), Ok(it));
    assert_eq!(Entry::from_bytes(&[0xff; Entry::BYTES]), Err(Broken::Invalid("term")));
    let mut bytes = entry(tenure(3, B), None).to_bytes();
    bytes[Entry::BYTES - 1] = 1;
    assert_eq!(Entry::from_bytes(&bytes), Err(Broken::Invalid("length")));
}

proptest! {
    /// Whatever members believe, and whoever of them answers whom.
    #[test]
    fn a_datagram_ends_after_two_hops_at_most(
        beliefs in prop::array::uniform4(
            (any::<bool>(), 1..4_u16, 1..5_u16, prop::option::of(1..5_u16)),
        ),
        deaf: [[bool; 5]; 5],
        first in 1..5_u16,
    ) {
        let (mut at, mut come) = (Incarnation(first), BY_OWN_DOOR);
        for hops in 0..=2 {
            let (stands_by, term, holder, standby_of) = beliefs[usize::from(at.0) - 1];
            let entry = entry(tenure(term, Incarnation(holder)), standby_of.map(Incarnation));
            let stake = stands_by.then(|| standby(entry.holder));
            let answers = |it: Incarnation| !deaf[usize::from(at.0)][usize::from(it.0)];
            match way(at, stake.as_ref(), Some(&entry), come, answers) {
                Way::Forward { to, how } => {
                    prop_assert!(to != at && how.hops == hops + 1 && how.term >= come.term);
                    (at, come) = (to, how);
                }
                _ => return Ok(()),
            }
        }
        prop_assert!(false, "it goes on");
    }
}
