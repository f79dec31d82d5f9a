//! Replay windows: which sequence numbers have been accepted already, in a bitset that never
//! shifts.
//!
//! The bit of sequence `s` is bit `s mod size` of a ring of words. A packet that comes in order
//! sets one bit; a jump clears the bits it skips, and no more than the size. Nothing ever moves, so
//! the cost does not grow with the size, and the words that a small window uses lie together: 40
//! bytes at the default of 256 bits.
//!
//! ```text
//! latest  w0 w1 w2 w3  w4 …             w15
//! 256 bits ---------|
//! 1024 bits --------------------------------|
//! ```
//!
//! [`Window::check`] runs before decryption and changes nothing, so a forged packet can never move
//! a window. [`Window::commit`] runs after the tag has verified and checks again, so the second of
//! two equal packets in one batch is caught. The rules are the netcode reference's: what lies
//! `size` or more behind the latest is too old, and a jump forward is taken however far it goes,
//! unless the [`Policy`] limits it. All comparisons are subtractions of the smaller from the
//! larger, so nothing overflows near 2^64.
//!
//! A check is a load that misses the cache, and a branch that waits for it. Where the work of a
//! whole packet stands between two checks, every miss is paid in full; where checks follow each
//! other, as in the gate's first look at a batch, the CPU has many misses under way at once. With a
//! million sessions that is 320 ns a packet against 40 (benches/replay.rs). A separate pass that
//! only reads gains nothing on top of that: it cost 10 % more there.
//!
//! What a refusal means for the session (drop the packet, or end the connection on a gap) is for
//! the front to decide.

mod wrapped;

#[cfg(test)]
mod tests;

pub use wrapped::WrappedWindow;

use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;

/// How large a window is and how far it may jump. One policy serves all sessions of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Invariant: a power of two from [`SIZE_BITS_MIN`] to [`SIZE_BITS_MAX`].
    size_bits: u64,
    /// `u64::MAX` where jumps are not limited, so that the check is one comparison.
    gap_max: u64,
}

impl Policy {
    /// What the netcode reference does: 256 sequences, any jump.
    pub const NETCODE: Self = Self { size_bits: 256, gap_max: u64::MAX };

    /// What UNet did: 512 sequences, and a jump over more than 512 ends the connection.
    pub const UNET: Self = Self { size_bits: 512, gap_max: 512 };

    /// What Unreal's 14 bits leave room for: 512 sequences, and any jump that is one, which is less
    /// than half the range. How far a packet may jump by itself is for the filter over both
    /// directions to say.
    pub const UNREAL: Self = Self { size_bits: 512, gap_max: u64::MAX };

    /// A window of `size_bits` (a power of two from 64 to 1024) that refuses to jump over more than
    /// `gap_limit` sequences at once; 0 sets no limit. `None` where the size is another.
    pub const fn new(size_bits: u32, gap_limit: u64) -> Option<Self> {
        if size_bits < SIZE_BITS_MIN || size_bits > SIZE_BITS_MAX || !size_bits.is_power_of_two() {
            return None;
        }
        let gap_max = if gap_limit == 0 { u64::MAX } else { gap_limit };
        Some(Self { size_bits: size_bits as u64, gap_max })
    }

    /// The same window, and any jump.
    #[must_use]
    pub const fn unlimited(self) -> Self {
        Self { gap_max: u64::MAX, ..self }
    }

    /// How many sequences, the latest included, the window remembers.
    pub const fn size_bits(&self) -> u32 {
        self.size_bits as u32
    }

    /// The furthest jump that is accepted; 0 where there is no limit.
    pub const fn gap_limit(&self) -> u64 {
        if self.gap_max == u64::MAX { 0 } else { self.gap_max }
    }

    /// Where the bit of `sequence` lies: the word's index, and the bit alone in a word.
    #[inline]
    const fn locate(&self, sequence: u64) -> (usize, u64) {
        (self.word_index(sequence / WORD_BITS), 1 << (sequence % WORD_BITS))
    }

    /// Where the `number`th run of 64 sequences lies in the ring.
    #[inline]
    const fn word_index(&self, number: u64) -> usize {
        // The second mask changes nothing (the size is at most `WORDS` words); it tells the
        // compiler so.
        (number & (self.size_bits / WORD_BITS - 1)) as usize & (WORDS - 1)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::NETCODE
    }
}

/// Why a window does not take a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was accepted before.
    Duplicate,
    /// It jumps over more sequences than the policy allows.
    Gap,
    /// It lies further behind than the window reaches.
    TooOld,
}

impl From<Refusal> for DropReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Duplicate => Self::ReplayDuplicate,
            Refusal::Gap => Self::SequenceGap,
            Refusal::TooOld => Self::ReplayTooOld,
        }
    }
}

/// The sequences that one direction of one session has accepted.
///
/// A window must see the same [`Policy`] size at every call: the size says where the bits lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Window {
    /// Invariant: once anything was accepted, this is the largest accepted sequence, and its bit is
    /// set.
    latest: u64,
    /// Invariant: only bits of accepted sequences less than `size_bits` behind `latest` are set.
    words: [u64; WORDS],
}

impl Window {
    /// A window that has seen nothing: whatever comes first is accepted.
    pub const fn new() -> Self {
        Self { latest: 0, words: [0; WORDS] }
    }

    /// A window for a peer who has agreed to begin with `initial`: the sequence before it counts as
    /// accepted, so that jumps are measured from there. Where `initial` is 0 nothing lies before
    /// it, and this is [`new`](Self::new).
    pub const fn starting_at(initial: u64, policy: &Policy) -> Self {
        let mut window = Self::new();
        if let Some(latest) = initial.checked_sub(1) {
            let (word, bit) = policy.locate(latest);
            window.latest = latest;
            window.words[word] = bit;
        }
        window
    }

    /// A window for a peer who sends nothing before `initial`: all of that counts as accepted, so
    /// that nobody can make it up. Where `initial` is 0 nothing lies before it, and this is
    /// [`new`](Self::new).
    pub const fn closed_before(initial: u64) -> Self {
        match initial.checked_sub(1) {
            Some(latest) => Self { latest, words: [u64::MAX; WORDS] },
            None => Self::new(),
        }
    }

    /// The largest sequence accepted so far, if any was.
    #[inline]
    pub fn latest(&self, policy: &Policy) -> Option<u64> {
        self.holds(self.latest, policy).then_some(self.latest)
    }

    /// The largest sequence accepted so far, in a window that has one.
    #[inline]
    pub(crate) const fn newest(&self) -> u64 {
        self.latest
    }

    /// Whether [`commit`](Self::commit) would accept `sequence` now.
    #[inline]
    pub fn check(&self, sequence: u64, policy: &Policy) -> Result<(), Refusal> {
        if sequence > self.latest {
            let jump = sequence - self.latest;
            let gap = jump > policy.gap_max && self.latest(policy).is_some();
            return if gap { Err(Refusal::Gap) } else { Ok(()) };
        }
        if self.latest - sequence >= policy.size_bits {
            return Err(Refusal::TooOld);
        }
        if self.holds(sequence, policy) { Err(Refusal::Duplicate) } else { Ok(()) }
    }

    /// Accepts `sequence`, or says why not and changes nothing. Only for packets that have proven
    /// to be authentic.
    #[inline]
    pub fn commit(&mut self, sequence: u64, policy: &Policy) -> Result<(), Refusal> {
        self.check(sequence, policy)?;
        if sequence > self.latest {
            self.clear_skipped(sequence, policy);
            self.latest = sequence;
        }
        let (word, bit) = policy.locate(sequence);
        self.words[word] |= bit;
        Ok(())
    }

    #[inline]
    fn holds(&self, sequence: u64, policy: &Policy) -> bool {
        let (word, bit) = policy.locate(sequence);
        self.words[word] & bit != 0
    }

    /// Clears the bits of all sequences between `latest` and `next`: those places hold sequences
    /// that are too old now.
    #[inline]
    fn clear_skipped(&mut self, next: u64, policy: &Policy) {
        let jump = next - self.latest;
        if jump == 1 {
            // In order: there is nothing between. The bit of `next` itself is about to be set.
            return;
        }
        if jump >= policy.size_bits {
            let words_used = (policy.size_bits / WORD_BITS) as usize;
            self.words[..words_used].fill(0);
            return;
        }
        let last = next / WORD_BITS;
        let mut number = self.latest / WORD_BITS;
        let mut skipped = !0 << (self.latest % WORD_BITS) << 1;
        while number < last {
            self.words[policy.word_index(number)] &= !skipped;
            skipped = !0;
            number += 1;
        }
        skipped &= (1 << (next % WORD_BITS)) - 1;
        self.words[policy.word_index(last)] &= !skipped;
    }
}

crate::carried!(Window { latest, words });

impl Carry for Policy {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { size_bits, gap_max } = self;
        [*size_bits, *gap_max].write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let [size_bits, gap_max] = <[u64; 2]>::read(from)?;
        let size_bits = u32::try_from(size_bits).unwrap_or(0);
        let gap_limit = if gap_max == u64::MAX { 0 } else { gap_max };
        Self::new(size_bits, gap_limit).ok_or(Broken::Invalid("policy"))
    }
}

/// The smallest window.
pub const SIZE_BITS_MIN: u32 = 64;

/// The largest window, which is what every [`Window`] has room for.
pub const SIZE_BITS_MAX: u32 = 1024;

const WORD_BITS: u64 = 64;
const WORDS: usize = SIZE_BITS_MAX as usize / WORD_BITS as usize;

/// Where a window lies is its holder's business: 24 bytes before a cache line's end, 256 bits need
/// that line and no other.
const _: () = assert!(size_of::<Window>() == 136);
const _: () = assert!(SIZE_BITS_MIN as u64 == WORD_BITS && WORDS.is_power_of_two());
