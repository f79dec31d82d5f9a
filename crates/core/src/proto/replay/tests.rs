//! Windows against an oracle that remembers every sequence, at every size, and at the edges where
//! arithmetic breaks.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::proto::seq::Seq;

/// Remembers everything and computes in 128 bits.
struct Oracle {
    accepted: HashSet<u64>,
    latest: Option<u64>,
    policy: Policy,
}

impl Oracle {
    fn new(policy: Policy) -> Self {
        Self { accepted: HashSet::new(), latest: None, policy }
    }

    fn check(&self, sequence: u64) -> Result<(), Refusal> {
        let Some(latest) = self.latest else { return Ok(()) };
        let ahead = i128::from(sequence) - i128::from(latest);
        let gap_limit = i128::from(self.policy.gap_limit());
        if gap_limit > 0 && ahead > gap_limit {
            return Err(Refusal::Gap);
        }
        if -ahead >= i128::from(self.policy.size_bits()) {
            return Err(Refusal::TooOld);
        }
        if self.accepted.contains(&sequence) { Err(Refusal::Duplicate) } else { Ok(()) }
    }

    fn commit(&mut self, sequence: u64) -> Result<(), Refusal> {
        self.check(sequence)?;
        self.accepted.insert(sequence);
        self.latest = self.latest.max(Some(sequence));
        Ok(())
    }
}

/// A window and its oracle, which must say the same about everything.
struct Pair {
    window: Window,
    oracle: Oracle,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        Self { window: Window::new(), oracle: Oracle::new(policy) }
    }

    fn step(&mut self, sequence: u64) {
        let policy = self.oracle.policy;
        let before = self.window.clone();
        let verdict = self.oracle.check(sequence);
        assert_eq!(self.window.check(sequence, &policy), verdict, "check of {sequence}");
        assert_eq!(self.window.commit(sequence, &policy), verdict, "commit of {sequence}");
        assert_eq!(self.oracle.commit(sequence), verdict);
        assert_eq!(self.window.latest(&policy), self.oracle.latest);
        if verdict.is_err() {
            assert_eq!(self.window.words, before.words, "a refused {sequence} changed the window");
        }
    }

    /// Every sequence within reach of the window, and a little more, gets the oracle's verdict.
    fn compare_all(&self) {
        let policy = self.oracle.policy;
        let latest = self.oracle.latest.unwrap_or(0);
        let reach = u64::from(policy.size_bits()) + 70;
        for sequence in latest.saturating_sub(reach)..=latest.saturating_add(reach) {
            assert_eq!(
                self.window.check(sequence, &policy),
                self.oracle.check(sequence),
                "{sequence} at {latest}"
            );
        }
    }
}

fn policies() -> impl Iterator<Item = Policy> {
    let sizes = [64, 128, 256, 512, 1024];
    sizes.into_iter().flat_map(|size| {
        [0, 1, 63, 512, 5000].map(|gap| Policy::new(size, gap).expect("a valid size"))
    })
}

/// Moves as packets do: mostly in order, some lost, some late, some twice, now and then a long
/// silence.
#[derive(Clone, Debug)]
enum Move {
    Next,
    Ahead(u64),
    Behind(u64),
}

impl Move {
    fn from(&self, latest: u64) -> u64 {
        match *self {
            Self::Next => latest.saturating_add(1),
            Self::Ahead(steps) => latest.saturating_add(steps),
            Self::Behind(steps) => latest.saturating_sub(steps),
        }
    }
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => Just(Move::Next),
        2 => (1_u64..6).prop_map(Move::Ahead),
        1 => (1_u64..1300).prop_map(Move::Ahead),
        3 => (0_u64..70).prop_map(Move::Behind),
        2 => (0_u64..1100).prop_map(Move::Behind),
    ];
    prop::collection::vec(one, 1..200)
}

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0_u64..2000,
        any::<u64>(),
        (0_u64..2000).prop_map(|below| u64::MAX - below),
        ((1_u64 << 63) - 1000)..((1 << 63) + 1000),
    ]
}

proptest! {
    #[test]
    fn a_window_agrees_with_one_that_remembers_everything(
        policy in prop::sample::select(policies().collect::<Vec<_>>()),
        start in starts(),
        moves in moves(),
    ) {
        let mut pair = Pair::new(policy);
        pair.step(start);
        for step in moves {
            let latest = pair.oracle.latest.expect("the first sequence was accepted");
            pair.step(step.from(latest));
        }
        pair.compare_all();
    }

    #[test]
    fn a_wrapped_window_agrees_with_a_full_one(
        initial in 0_u64..1 << 14,
        moves in moves(),
    ) {
        for policy in [Policy::UNET, Policy::new(64, 0).expect("valid"), Policy::new(1024, 1024).expect("valid")] {
            let mut wrapped = WrappedWindow::<14>::starting_at(Seq::new(initial), &policy);
            let mut full = Window::starting_at((1 << 40) + initial, &policy);
            for step in &moves {
                let sequence = step.from(full.latest);
                prop_assert_eq!(
                    wrapped.check(Seq::new(sequence), &policy),
                    full.check(sequence, &policy)
                );
                prop_assert_eq!(
                    wrapped.commit(Seq::new(sequence), &policy),
                    full.commit(sequence, &policy)
                );
                prop_assert_eq!(wrapped.latest(), Seq::new(full.latest));
            }
        }
    }
}

/// A small generator with a fixed seed: the long runs are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

#[test]
fn long_runs_agree_at_every_size_and_gap_limit() {
    for policy in policies() {
        let mut random = Random(u64::from(policy.size_bits()) ^ policy.gap_limit());
        let mut pair = Pair::new(policy);
        pair.step(random.below(1 << 30) << 20);
        for _ in 0..20_000 {
            let latest = pair.oracle.latest.expect("the first sequence was accepted");
            let size = u64::from(policy.size_bits());
            pair.step(match random.below(100) {
                0..60 => latest + 1,
                60..70 => latest + 1 + random.below(4),
                70..75 => latest + 1 + random.below(2 * size),
                75..95 => latest - random.below(size.min(70)),
                _ => latest - random.below(2 * size),
            });
        }
        pair.compare_all();
    }
}

#[test]
fn every_jump_from_every_bit_of_a_full_window_clears_exactly_what_it_skips() {
    let policy = Policy::new(128, 0).expect("valid");
    for latest in 1000..1128 {
        let mut full = Pair::new(policy);
        (latest - 127..=latest).for_each(|sequence| full.step(sequence));
        for jump in 1..=140 {
            let oracle = Oracle { accepted: full.oracle.accepted.clone(), ..Oracle::new(policy) };
            let mut pair = Pair {
                window: full.window.clone(),
                oracle: Oracle { latest: full.oracle.latest, ..oracle },
            };
            pair.step(latest + jump);
            pair.compare_all();
        }
    }
}

#[test]
fn a_window_that_has_seen_nothing_accepts_anything_first() {
    for policy in policies() {
        for first in [0, 1, 63, 64, 4095, 1 << 63, u64::MAX - 1, u64::MAX] {
            let mut window = Window::new();
            assert_eq!(window.latest(&policy), None);
            assert_eq!(window.commit(first, &policy), Ok(()), "{first}");
            assert_eq!(window.latest(&policy), Some(first));
            assert_eq!(window.commit(first, &policy), Err(Refusal::Duplicate), "{first}");
        }
    }
}

#[test]
fn what_lies_the_size_behind_is_too_old_and_one_later_is_not() {
    for size in [64, 128, 256, 512, 1024] {
        let policy = Policy::new(size, 0).expect("valid");
        let (latest, size) = (1 << 40, u64::from(size));
        let mut window = Window::new();
        window.commit(latest, &policy).expect("a fresh window accepts anything");
        assert_eq!(window.check(latest - size, &policy), Err(Refusal::TooOld));
        assert_eq!(window.check(latest - size + 1, &policy), Ok(()));
        assert_eq!(window.check(0, &policy), Err(Refusal::TooOld));
    }
}

#[test]
fn nothing_overflows_at_the_last_sequence() {
    let policy = Policy::UNET;
    let mut window = Window::starting_at(u64::MAX - 2, &policy);
    for sequence in [u64::MAX - 2, u64::MAX, u64::MAX - 1] {
        assert_eq!(window.commit(sequence, &policy), Ok(()), "{sequence}");
        assert_eq!(window.check(sequence, &policy), Err(Refusal::Duplicate), "{sequence}");
    }
    assert_eq!(window.check(u64::MAX - 511, &policy), Ok(()));
    assert_eq!(window.check(u64::MAX - 512, &policy), Err(Refusal::TooOld));
    assert_eq!(window.check(0, &policy), Err(Refusal::TooOld));
}

#[test]
fn forged_sequences_cannot_move_a_window() {
    let policy = Policy::NETCODE;
    let mut window = Window::new();
    window.commit(1000, &policy).expect("a fresh window accepts anything");
    let before = window.clone();
    for forged in [1001, 5000, 1 << 63, u64::MAX] {
        assert_eq!(
            window.check(forged, &policy),
            Ok(()),
            "only the tag can tell that it is forged"
        );
    }
    assert_eq!((window.latest, window.words), (before.latest, before.words));
    assert_eq!(window.commit(1001, &policy), Ok(()));
}

#[test]
fn a_closed_window_accepts_what_begins_and_nothing_before() {
    for policy in
        [Policy::UNET, Policy::new(64, 0).expect("valid"), Policy::new(1024, 0).expect("valid")]
    {
        let mut window = Window::closed_before(5000);
        assert_eq!(window.latest(&policy), Some(4999));
        assert_eq!(window.commit(5002, &policy), Ok(()));
        for sequence in 3000..5000 {
            assert!(window.check(sequence, &policy).is_err(), "{sequence}");
        }
        for late in [5001, 5000] {
            assert_eq!(window.commit(late, &policy), Ok(()));
            assert_eq!(window.commit(late, &policy), Err(Refusal::Duplicate));
        }
        let mut fresh = Window::closed_before(0);
        assert_eq!(fresh.commit(0, &policy), Ok(()));
    }
}

#[test]
fn a_refused_gap_leaves_the_window_where_it_was() {
    let policy = Policy::new(256, 1024).expect("valid");
    let mut window = Window::starting_at(100, &policy);
    assert_eq!(window.commit(99 + 1025, &policy), Err(Refusal::Gap));
    assert_eq!(window.latest(&policy), Some(99));
    assert_eq!(window.commit(99 + 1024, &policy), Ok(()));
}

#[test]
fn only_powers_of_two_from_64_to_1024_are_sizes() {
    let valid: Vec<_> = (0..4096).filter(|&size| Policy::new(size, 0).is_some()).collect();
    assert_eq!(valid, [64, 128, 256, 512, 1024]);
    let policy = Policy::new(128, 7).expect("valid");
    assert_eq!((policy.size_bits(), policy.gap_limit()), (128, 7));
    assert_eq!(Policy::default(), Policy::new(256, 0).expect("valid"));
}

#[test]
fn refusals_have_their_drop_reasons() {
    assert_eq!(DropReason::from(Refusal::Duplicate), DropReason::ReplayDuplicate);
    assert_eq!(DropReason::from(Refusal::TooOld), DropReason::ReplayTooOld);
    assert_eq!(DropReason::from(Refusal::Gap), DropReason::SequenceGap);
}

#[test]
fn the_unet_documents_own_numbers() {
    let policy = Policy::UNET;
    let mut window = WrappedWindow::<16>::starting_at(Seq::new(354), &policy);
    assert_eq!(window.commit(Seq::new(354), &policy), Ok(()));
    assert_eq!(window.commit(Seq::new(358), &policy), Ok(()));
    assert_eq!(window.latest(), Seq::new(358));
    assert_eq!(window.commit(Seq::new(354), &policy), Err(Refusal::Duplicate));

    let mut window = WrappedWindow::<16>::starting_at(Seq::new(354), &policy);
    assert_eq!(window.commit(Seq::new(354), &policy), Ok(()));
    assert_eq!(window.commit(Seq::new(352), &policy), Ok(()));
    assert_eq!(window.commit(Seq::new(352), &policy), Err(Refusal::Duplicate));
    assert_eq!(window.latest(), Seq::new(354));

    assert_eq!(window.check(Seq::new(354 + 512), &policy), Ok(()));
    assert_eq!(window.check(Seq::new(354 + 513), &policy), Err(Refusal::Gap));
    assert_eq!(window.check(Seq::new(354).wrapping_sub(511), &policy), Ok(()));
    assert_eq!(window.check(Seq::new(354).wrapping_sub(512), &policy), Err(Refusal::TooOld));
}

fn runs_through_its_wrap<const BITS: u32>() {
    let policy = Policy::UNET;
    let first = Seq::<BITS>::MAX.wrapping_sub(700);
    let mut window = WrappedWindow::starting_at(first, &policy);
    let mut accepted = 0_u64;
    // Every third packet is lost at first and arrives 60 later; every packet arrives twice.
    for step in 0..1400 {
        let late = (step >= 60).then(|| step - 60).filter(|step| step % 3 == 0);
        for step in [Some(step).filter(|step| step % 3 != 0), late].into_iter().flatten() {
            let sequence = first.wrapping_add(step);
            assert_eq!(window.commit(sequence, &policy), Ok(()), "{sequence:?}");
            assert_eq!(window.commit(sequence, &policy), Err(Refusal::Duplicate), "{sequence:?}");
            accepted += 1;
        }
    }
    assert_eq!(accepted, 933 + 447);
    assert_eq!(window.latest(), first.wrapping_add(1399));
}

#[test]
fn wrapped_windows_run_through_16383_and_65535() {
    runs_through_its_wrap::<14>();
    runs_through_its_wrap::<16>();
}

#[test]
fn a_wrapped_window_goes_on_with_full_numbers() {
    let policy = Policy::UNREAL;
    let mut full = Window::closed_before((5 << 14) - 1);
    assert_eq!(full.commit((5 << 14) + 1, &policy), Ok(()));
    let mut window = WrappedWindow::<14>::going_on(full).expect("it has some");
    assert_eq!((window.latest(), window.newest()), (Seq::new(1), (5 << 14) + 1));
    assert_eq!(window.commit(Seq::new(1), &policy), Err(Refusal::Duplicate));
    for (sequence, number) in [(Seq::MAX, (5 << 14) - 1), (Seq::new(0), 5 << 14)] {
        assert_eq!(window.commit(sequence, &policy), Ok(()));
        assert_eq!(window.full(sequence), Some(number));
    }
    assert!(WrappedWindow::<14>::going_on(Window::new()).is_none());
    assert!(WrappedWindow::<14>::going_on(Window::closed_before((1 << 14) - 1)).is_none());
    assert!(WrappedWindow::<14>::going_on(Window::closed_before(1 << 14)).is_some());
}

#[test]
fn the_half_range_point_of_a_wrapped_window_is_too_old() {
    let policy = Policy::new(1024, 0).expect("valid");
    let window = WrappedWindow::<14>::starting_at(Seq::new(0), &policy);
    let latest = window.latest();
    assert_eq!(latest, Seq::MAX);
    assert_eq!(window.check(latest.wrapping_add(0x1fff), &policy), Ok(()));
    assert_eq!(window.check(latest.wrapping_add(0x2000), &policy), Err(Refusal::TooOld));
    assert_eq!(window.check(latest.wrapping_add(0x2001), &policy), Err(Refusal::TooOld));
}
