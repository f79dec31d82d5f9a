//! The sequence guard over any numbers: held against a set that remembers all of them.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::plain::{Field, Guard, Order, Width};
use ringgate_core::proto::replay::Policy;

fuzz_target!(|data: &[u8]| {
    let Some((&[how, size, gap, first, offset], steps)) = data.split_first_chunk() else { return };
    let width = [Width::Eight, Width::Sixteen, Width::ThirtyTwo][usize::from(how % 3)];
    let order = if how < 128 { Order::Big } else { Order::Little };
    let _ = Field { offset: offset.into(), width, order }.read(steps);
    let size = if width == Width::Eight { 64 } else { 64 << (size % 5) };
    let Some(policy) = Policy::new(size, u64::from(gap % 128)) else { return };
    assert!(width.holds(&policy));
    let range = width.half_range() * 2;
    let mut latest = (1 << 40) + u64::from(first);
    let mut guard = Guard::starting_with((latest % range) as u32, &policy);
    let mut seen = HashSet::from([latest]);
    let mut awaited = None;
    for (at, step) in steps.iter().enumerate() {
        // Up to 127 ahead or behind, which is less than half of any range.
        let full = latest.wrapping_add_signed(i64::from(*step as i8).max(-127));
        let was_silent = at % 4 != 3;
        let is_doubted = policy.gap_limit() == 0 && full > latest + u64::from(size / 2);
        let expected = if full <= latest && latest - full >= u64::from(size) {
            Err(DropReason::ReplayTooOld)
        } else if seen.contains(&full) {
            Err(DropReason::ReplayDuplicate)
        } else if policy.gap_limit() > 0 && full > latest + policy.gap_limit() {
            Err(DropReason::SequenceGap)
        } else if is_doubted && !(was_silent && awaited == Some(full)) {
            Err(DropReason::GapUnconfirmed)
        } else {
            Ok(())
        };
        let passed = guard.pass_doubtful((full % range) as u32, width, &policy, was_silent);
        assert_eq!(passed, expected);
        if expected == Err(DropReason::GapUnconfirmed) {
            awaited = was_silent.then_some(full + 1);
        }
        if expected.is_ok() {
            awaited = None;
            seen.insert(full);
            latest = latest.max(full);
        }
        // The guard counts from a number of its own.
        let ahead = guard.awaited().map(|number| number - guard.latest());
        assert_eq!(ahead, awaited.map(|number| number - latest));
    }
});
