//! Replay windows for sequences that wrap (Unreal's 14 bits, UNet's 16): a [`Window`] over the full
//! numbers behind them.
//!
//! A peer's sequence is extended to the full number closest to the latest one, and the window never
//! learns that anything wraps. Full numbers begin one range above zero, so that there is room
//! behind the first.

use super::{Policy, Refusal, SIZE_BITS_MAX, Window};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::seq::Seq;

/// The sequences of `BITS` bits that one direction of one session has accepted.
#[derive(Clone, Debug)]
pub struct WrappedWindow<const BITS: u32> {
    /// Invariant: has a latest sequence, of at least `RANGE - 1`.
    window: Window,
}

impl<const BITS: u32> WrappedWindow<BITS> {
    /// A window for a peer who has agreed to begin with `initial`: only the sequence before it
    /// counts as accepted.
    pub const fn starting_at(initial: Seq<BITS>, policy: &Policy) -> Self {
        Self { window: Window::starting_at(Self::RANGE + initial.value(), policy) }
    }

    /// A window for a peer who sends nothing before `initial`: all of that counts as accepted.
    pub const fn closed_before(initial: Seq<BITS>) -> Self {
        Self { window: Window::closed_before(Self::RANGE + initial.value()) }
    }

    /// A window that goes on with full numbers that another one has accepted; `None` where it has
    /// none.
    pub const fn going_on(window: Window) -> Option<Self> {
        if window.newest() < Self::RANGE - 1 { None } else { Some(Self { window }) }
    }

    /// The newest number accepted so far, in full.
    pub const fn newest(&self) -> u64 {
        self.window.newest()
    }

    /// A sequence that was accepted just now, in full.
    pub fn full(&self, sequence: Seq<BITS>) -> Option<u64> {
        self.extend(sequence).ok()
    }

    /// The newest sequence accepted so far; the one before the initial, where none was.
    #[inline]
    pub const fn latest(&self) -> Seq<BITS> {
        Seq::new(self.window.latest)
    }

    /// Whether [`commit`](Self::commit) would accept `sequence` now.
    #[inline]
    pub fn check(&self, sequence: Seq<BITS>, policy: &Policy) -> Result<(), Refusal> {
        self.window.check(self.extend(sequence)?, policy)
    }

    /// Accepts `sequence`, or says why not and changes nothing. Only for packets that have proven
    /// to be authentic.
    #[inline]
    pub fn commit(&mut self, sequence: Seq<BITS>, policy: &Policy) -> Result<(), Refusal> {
        let full = self.extend(sequence)?;
        self.window.commit(full, policy)
    }

    /// The full number must exist as long as nobody receives 2^64 packets; should it not, the
    /// sequence leads nowhere.
    #[inline]
    fn extend(&self, sequence: Seq<BITS>) -> Result<u64, Refusal> {
        sequence.extend(self.window.latest).ok_or(Refusal::TooOld)
    }

    const RANGE: u64 = {
        assert!(BITS < u64::BITS, "64 bits need no extension: use `Window`");
        let range = 1 << BITS;
        assert!(range / 2 >= SIZE_BITS_MAX as u64, "the window must fit into the half that is old");
        range
    };
}

impl<const BITS: u32> Carry for WrappedWindow<BITS> {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { window } = self;
        window.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let window = Window::read(from)?;
        if window.latest < Self::RANGE - 1 {
            return Err(Broken::Invalid("window"));
        }
        Ok(Self { window })
    }
}
