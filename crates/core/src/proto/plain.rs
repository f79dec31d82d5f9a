//! The sequence guard of games whose protocol the gateway does not know: where a datagram has its
//! number, and which numbers were seen.
//!
//! Width, order of bytes and place of the number are what the operator says, so they are values
//! here and not types. A number is extended to the full one closest to the latest (the PAWS rule of
//! [`seq`](super::seq)) and held against a replay [`Window`], as UNet did with 16 bits and 512
//! numbers.
//!
//! Nothing is authenticated. Whoever can send in a player's name can use up numbers, and end a
//! session by a jump where those are limited. Where they are not, one number far ahead would put
//! all of the player's own behind the window. So [`Guard::pass_doubtful`] believes a jump over more
//! than half the window as RFC 3550 does (appendix A.1): when the next number continues it, and
//! only from a source that was silent before. Two forged jumps over half a window each leave the
//! player's own numbers in it.

use crate::drops::DropReason;
use crate::proto::replay::{Policy, Refusal, Window};
use crate::proto::seq::distance;

/// Where a datagram has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes before it.
    pub offset: u16,
    /// How long it is.
    pub width: Width,
    /// Which of its bytes comes first.
    pub order: Order,
}

/// How many bits a number has before it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Eight,
    /// 16 bits.
    Sixteen,
    /// 32 bits.
    ThirtyTwo,
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The highest.
    Big,
    /// The lowest.
    Little,
}

impl Width {
    /// The width of so many bits, if there is one.
    pub const fn of_bits(bits: u32) -> Option<Self> {
        match bits {
            8 => Some(Self::Eight),
            16 => Some(Self::Sixteen),
            32 => Some(Self::ThirtyTwo),
            _ => None,
        }
    }

    /// How many bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }

    /// How many bytes.
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// How many numbers there are from one to the one that is as far behind it as ahead. Window and
    /// gap limit are below it: beyond, new and old cannot be told apart.
    pub const fn half_range(self) -> u64 {
        1 << (self.bits() - 1)
    }

    /// Whether a policy's window and gap limit are below half the range.
    pub const fn holds(self, policy: &Policy) -> bool {
        (policy.size_bits() as u64) < self.half_range() && policy.gap_limit() < self.half_range()
    }
}

impl Field {
    /// How long a datagram has to be at least.
    pub const fn end(&self) -> usize {
        self.offset as usize + self.width.bytes()
    }

    /// The number in a datagram; `None` where it is too short.
    #[inline]
    pub fn read(&self, datagram: &[u8]) -> Option<u32> {
        let bytes = datagram.get(self.offset.into()..self.end())?;
        let push = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
        Some(match self.order {
            Order::Big => bytes.iter().fold(0, push),
            Order::Little => bytes.iter().rev().fold(0, push),
        })
    }
}

/// The numbers that one direction of one session has brought.
///
/// A guard must see the same width and the same size of window at every call.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Invariant: has a latest sequence, of at least 2^32, once the guard was started.
    window: Window,
    /// The number that would confirm a jump that was refused, extended; 0 for none.
    awaited: u64,
}

impl Guard {
    /// A guard whose peer begins with `first`, which counts as seen. What lies before it may still
    /// come.
    pub fn starting_with(first: u32, policy: &Policy) -> Self {
        // A range of every width, so that there is room behind the first.
        Self { window: Window::starting_at((1 << 32) + u64::from(first) + 1, policy), awaited: 0 }
    }

    /// A guard in the place of this one, whose peer begins with `first` by other rules: none of its
    /// numbers, extended, has been one before.
    #[must_use]
    pub fn starting_again(&self, first: u32, policy: &Policy) -> Self {
        let range = (self.window.newest() >> 32) + 2;
        let full = range.saturating_mul(1 << 32).saturating_add(u64::from(first) + 1);
        Self { window: Window::starting_at(full, policy), awaited: 0 }
    }

    /// A guard that goes on with what another one has let pass; `None` where that was not started.
    pub const fn going_on(window: Window) -> Option<Self> {
        if window.newest() < 1 << 32 { None } else { Some(Self { window, awaited: 0 }) }
    }

    /// Whether it was started, and can be asked.
    pub const fn is_started(&self) -> bool {
        self.window.newest() != 0
    }

    /// The newest number so far, extended.
    pub const fn latest(&self) -> u64 {
        self.window.newest()
    }

    /// The number that would confirm a jump, extended.
    pub const fn awaited(&self) -> Option<u64> {
        if self.awaited == 0 { None } else { Some(self.awaited) }
    }

    /// Goes on waiting for a number that would confirm a jump.
    pub const fn wait_for(&mut self, awaited: Option<u64>) {
        self.awaited = match awaited {
            Some(full) => full,
            None => 0,
        };
    }

    /// Takes a number that was not seen before, or says why not and changes nothing.
    #[inline]
    pub fn pass(&mut self, number: u32, width: Width, policy: &Policy) -> Result<(), Refusal> {
        self.window.commit(self.extend(number, width)?, policy)
    }

    /// The same for numbers that anybody may have made up. Where the policy has no limit, a jump
    /// over more than half the window is refused until the next number continues it. Unless the
    /// source `was_silent` before, no such jump is looked at.
    #[inline]
    pub fn pass_doubtful(
        &mut self,
        number: u32,
        width: Width,
        policy: &Policy,
        was_silent: bool,
    ) -> Result<(), DropReason> {
        let full = self.extend(number, width)?;
        let ahead = full.saturating_sub(self.window.newest());
        if ahead > u64::from(policy.size_bits() / 2) && policy.gap_limit() == 0 {
            self.confirm(full, was_silent)?;
        }
        self.window.commit(full, policy)?;
        self.awaited = 0;
        Ok(())
    }

    #[cold]
    const fn confirm(&mut self, full: u64, was_silent: bool) -> Result<(), DropReason> {
        if was_silent && full == self.awaited {
            return Ok(());
        }
        self.awaited = if was_silent { full.saturating_add(1) } else { 0 };
        Err(DropReason::GapUnconfirmed)
    }

    /// A number that has passed just now, extended.
    pub fn full(&self, number: u32, width: Width) -> Option<u64> {
        self.extend(number, width).ok()
    }

    #[inline]
    fn extend(&self, number: u32, width: Width) -> Result<u64, Refusal> {
        let latest = self.window.newest();
        let steps = distance(width.bits(), u64::from(number), latest);
        // It exists as long as nobody sends 2^63 numbers.
        latest.checked_add_signed(steps).ok_or(Refusal::TooOld)
    }
}

crate::carried!(Field { offset, width, order });
crate::carried_by_number!(Width { Eight = 8, Sixteen = 16, ThirtyTwo = 32 });
crate::carried_by_number!(Order { Big = 0, Little = 1 });

// One that was never started has seen nothing, and is started before it is asked. What would
// confirm a jump came later, and is in a record that the gate writes.
crate::carried!(
    Guard { window, awaited as anew }
    if |it| it.window.newest() >= 1 << 32 || it.window.newest() == 0,
    "guard"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const UNET: Field = Field { offset: 3, width: Width::Sixteen, order: Order::Big };

    /// A datagram of UNet, whose number is its fourth and fifth byte.
    fn datagram(number: u16) -> [u8; 8] {
        let [high, low] = number.to_be_bytes();
        [0, 0, 0, high, low, 7, 7, 7]
    }

    fn pass(guard: &mut Guard, number: u16) -> Result<(), Refusal> {
        let read = UNET.read(&datagram(number)).expect("it is long enough");
        guard.pass(read, UNET.width, &Policy::UNET)
    }

    #[test]
    fn the_examples_of_unets_document() {
        let mut guard = Guard::starting_with(354, &Policy::UNET);
        assert_eq!(pass(&mut guard, 354), Err(Refusal::Duplicate));
        assert_eq!(pass(&mut guard, 352), Ok(()), "it was not received before");
        assert_eq!(pass(&mut guard, 352), Err(Refusal::Duplicate));
        assert_eq!(pass(&mut guard, 358), Ok(()), "four ahead");
        assert_eq!(pass(&mut guard, 354), Err(Refusal::Duplicate), "now four behind");
        for skipped in [355, 356, 357] {
            assert_eq!(pass(&mut guard, skipped), Ok(()));
        }
        assert_eq!(pass(&mut guard, 358 + 513), Err(Refusal::Gap), "more than 512 ahead");
        assert_eq!(pass(&mut guard, 358 + 512), Ok(()));
        assert_eq!(pass(&mut guard, 358), Err(Refusal::TooOld), "out of the window");
        assert_eq!(pass(&mut guard, 359), Ok(()), "the last one in it");
    }

    #[test]
    fn a_number_wraps_in_the_middle_of_a_session() {
        let mut guard = Guard::starting_with(65_534, &Policy::UNET);
        assert_eq!([65_535, 0, 1].map(|number| pass(&mut guard, number)), [Ok(()); 3]);
        assert_eq!(pass(&mut guard, 65_535), Err(Refusal::Duplicate));
        assert_eq!(pass(&mut guard, 65_533), Ok(()), "late, from before the wrap");
        for round in 0..200_000_u32 {
            assert_eq!(pass(&mut guard, (2 + round) as u16), Ok(()));
        }
    }

    #[test]
    fn a_number_is_read_in_either_order_and_not_beyond_the_end() {
        let bytes = [1, 2, 3, 4, 5];
        let read = |offset, bits, order| {
            let width = Width::of_bits(bits).expect("a width");
            Field { offset, width, order }.read(&bytes)
        };
        assert_eq!(read(1, 16, Order::Big), Some(0x0203));
        assert_eq!(read(1, 16, Order::Little), Some(0x0302));
        assert_eq!(read(1, 32, Order::Big), Some(0x0203_0405));
        assert_eq!(read(1, 32, Order::Little), Some(0x0504_0302));
        assert_eq!(read(4, 8, Order::Little), Some(5));
        assert_eq!((read(2, 32, Order::Big), read(5, 8, Order::Big)), (None, None));
        assert_eq!(read(u16::MAX, 32, Order::Big), None);
    }

    #[test]
    fn window_and_limit_are_below_half_the_range() {
        let policy = |bits, gap| Policy::new(bits, gap).expect("a size");
        assert!(Width::Eight.holds(&policy(64, 127)) && !Width::Eight.holds(&policy(64, 128)));
        assert!(!Width::Eight.holds(&policy(128, 0)));
        assert!(Width::Sixteen.holds(&policy(1024, 32_767)));
        assert!(!Width::Sixteen.holds(&policy(1024, 32_768)));
        assert_eq!(Width::of_bits(24), None);
    }

    /// Every number once, over any width: held against a set of all full numbers.
    fn agrees_with_a_set(width: Width, policy: &Policy, first: u32, steps: &[i64]) {
        let base = 1_u64 << 40;
        let low = |full: u64| (full & (width.half_range() * 2 - 1)) as u32;
        let start = base + u64::from(first) % (width.half_range() * 2);
        let mut guard = Guard::starting_with(low(start), policy);
        let (mut seen, mut latest) = (HashSet::from([start]), start);
        for step in steps {
            let full = latest.saturating_add_signed(*step);
            let expected = if full <= latest && latest - full >= u64::from(policy.size_bits()) {
                Err(Refusal::TooOld)
            } else if seen.contains(&full) {
                Err(Refusal::Duplicate)
            } else if policy.gap_limit() > 0 && full > latest + policy.gap_limit() {
                Err(Refusal::Gap)
            } else {
                Ok(())
            };
            assert_eq!(guard.pass(low(full), width, policy), expected, "{full} at {latest}");
            if expected.is_ok() {
                seen.insert(full);
                latest = latest.max(full);
            }
        }
    }

    fn doubted(guard: &mut Guard, number: u16, was_silent: bool) -> Result<(), DropReason> {
        guard.pass_doubtful(number.into(), Width::Sixteen, &Policy::NETCODE, was_silent)
    }

    #[test]
    fn a_jump_is_believed_when_the_next_number_continues_it() {
        let mut guard = Guard::starting_with(65_000, &Policy::NETCODE);
        assert_eq!(doubted(&mut guard, 65_128, false), Ok(()), "half a window");
        let far = Err(DropReason::GapUnconfirmed);
        for forged in [32_000, 32_001, 32_002] {
            assert_eq!(doubted(&mut guard, forged, false), far, "the player is heard");
        }
        assert_eq!(doubted(&mut guard, 31_000, true), far);
        assert_eq!(doubted(&mut guard, 31_002, true), far, "not the next one");
        assert_eq!(doubted(&mut guard, 31_002, true), far, "a copy continues nothing");
        assert_eq!(doubted(&mut guard, 65_001, true), Ok(()), "the player's own, meanwhile");
        assert_eq!(doubted(&mut guard, 31_003, true), far, "which ends the doubt");
        assert_eq!(doubted(&mut guard, 65_001, true), Err(DropReason::ReplayDuplicate));
        assert_eq!(doubted(&mut guard, 31_004, true), Ok(()));
        assert_eq!(
            doubted(&mut guard, 65_128, true),
            Err(DropReason::ReplayTooOld),
            "as it was accepted"
        );
    }

    #[test]
    fn two_forged_jumps_leave_a_players_own_numbers_in_the_window() {
        for width in [Width::Eight, Width::Sixteen, Width::ThirtyTwo] {
            let policy = Policy::new(64, 0).expect("a size");
            for first in [0, 100, (width.half_range() * 2 - 3) as u32] {
                let number = |ahead: u32| {
                    (u64::from(first.wrapping_add(ahead)) & (width.half_range() * 2 - 1)) as u32
                };
                let mut guard = Guard::starting_with(first, &policy);
                let mut pass = |ahead| guard.pass_doubtful(number(ahead), width, &policy, false);
                assert_eq!([pass(32), pass(64)], [Ok(()); 2]);
                assert!(
                    (1..200).filter(|ahead| ![32, 64].contains(ahead)).all(|it| pass(it).is_ok())
                );
            }
        }
    }

    proptest! {
        #[test]
        fn every_width_agrees_with_a_set(
            first in any::<u32>(),
            gap in prop::sample::select(vec![0_u64, 1, 60, 127]),
            steps in prop::collection::vec(-100_i64..100, 1..200),
        ) {
            let policy = Policy::new(64, gap).expect("a size");
            for width in [Width::Eight, Width::Sixteen, Width::ThirtyTwo] {
                agrees_with_a_set(width, &policy, first, &steps);
            }
        }
    }
}
