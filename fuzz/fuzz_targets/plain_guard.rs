//! The sequence guard over any numbers: held against a set that remembers all of them.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use ringgate_core::proto::plain::{Field, Guard, Order, Width};
use ringgate_core::proto::replay::{Policy, Refusal};

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
    for step in steps {
        // Up to 127 ahead or behind, which is less than half of any range.
        let full = latest.wrapping_add_signed(i64::from(*step as i8).max(-127));
        let expected = if full <= latest && latest - full >= u64::from(size) {
            Err(Refusal::TooOld)
        } else if seen.contains(&full) {
            Err(Refusal::Duplicate)
        } else if policy.gap_limit() > 0 && full > latest + policy.gap_limit() {
            Err(Refusal::Gap)
        } else {
            Ok(())
        };
        assert_eq!(guard.pass((full % range) as u32, width, &policy), expected);
        if expected.is_ok() {
            seen.insert(full);
            latest = latest.max(full);
        }
    }
});
