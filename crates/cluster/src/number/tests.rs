//! Numbers are ordered as owners follow each other, and no two are the same.

use proptest::prelude::*;
use ringgate_core::carry::{Broken, Carry, Maps, Reader};

use super::*;

fn tenure(term: u16, incarnation: u16) -> Tenure {
    Tenure { term: Term(term), incarnation: Incarnation(incarnation) }
}

proptest! {
    /// A member's number in the high bits would order them backwards where a low member takes over
    /// from a high one.
    #[test]
    fn a_later_term_is_higher_whoever_has_it(
        (low, high) in (0..Term::LAST.0).prop_flat_map(|low| (Just(low), low + 1..=Term::LAST.0)),
        incarnations: [u16; 2],
        counts in [0..PacketNumber::COUNTS, 0..PacketNumber::COUNTS],
    ) {
        let before = PacketNumber::of(tenure(low, incarnations[0]), counts[0]);
        let after = PacketNumber::of(tenure(high, incarnations[1]), counts[1]);
        prop_assert!(before < after);
    }

    #[test]
    fn a_number_says_whose_it_is(number in 0..GLOBAL_SEQUENCE_START) {
        let read = PacketNumber::new(number).expect("it is below those of challenges");
        prop_assert_eq!(PacketNumber::of(read.tenure(), number % PacketNumber::COUNTS), read);
    }
}

#[test]
fn terms_and_numbers_end_below_challenges() {
    assert_eq!(Term::NONE.next(), Term::new(1));
    assert_eq!(Term::LAST.next(), None);
    let last = PacketNumber::of(tenure(Term::LAST.0, u16::MAX), PacketNumber::COUNTS - 1);
    assert_eq!(last.get(), GLOBAL_SEQUENCE_START - 1);
    assert_eq!(PacketNumber::new(last.get() + 1), None);
}

/// Whatever a session without a cluster has used, the term after that is higher.
#[test]
fn a_session_from_before_the_cluster_goes_on_above_what_it_has_used() {
    let used = (1 << 48) + (300 << 40);
    let term = PacketNumber::new(used).expect("it is a number").tenure().term;
    let next = PacketNumber::of(tenure(term.next().expect("there are more").0, 0), 0);
    assert!(next.get() > used);
}

#[test]
fn a_term_beyond_the_last_is_refused_by_name() {
    let bytes = (Term::LAST.0 + 1).to_le_bytes();
    let read = Term::read(&mut Reader::new(&bytes, &Maps::default()));
    assert_eq!(read, Err(Broken::Invalid("term")));
}

#[test]
fn the_first_free_term_is_beyond_every_number_before() {
    let free = |number| PacketNumber::new(number).and_then(PacketNumber::free_term).map(Term::get);
    let term = |it: u64| it << (INCARNATION_BITS + COUNT_BITS);
    let (one, last) = (term(1), term(Term::LAST.0.into()));
    assert_eq!([0, one - 1, one, one + 1].map(free), [1, 1, 1, 2].map(Some));
    assert_eq!([last, last + 1].map(free), [Some(Term::LAST.0), None]);
    let first = PacketNumber::first(tenure(3, 9));
    assert_eq!((first.tenure(), first.count()), (tenure(3, 9), 0));
    assert_eq!(PacketNumber::of(tenure(3, 9), 5).count(), 5);
}
