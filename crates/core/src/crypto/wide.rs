//! What the batch code and the wide kernels say to each other.
//!
//! A wide kernel computes sixteen `ChaCha20` blocks at once, one per *lane*, and the blocks have
//! nothing to do with each other: word `w` of all of them stands in one row, `words[w][lane]`.
//! Where registers hold fewer lanes, a kernel takes the sixteen in halves.
//!
//! ```text
//!              lane 0        lane 1        …   lane 15
//! (constant)   w0 … w3       w0 … w3           w0 … w3       the same everywhere, so not stored
//! key[0]       w4 of p0      w4 of p1          w4 of p15
//! …
//! key[7]       w11 of p0     w11 of p1         w11 of p15
//! counter      w12 of p0     …                               the only row that differs between
//! nonce[0]     w13 of p0     …                               two blocks of the same packets
//! nonce[2]     w15 of p0     …
//! ```
//!
//! A block is the cipher's 4 by 4 matrix of 32-bit words, and a round is four quarter rounds on its
//! columns or on its diagonals:
//!
//! ```text
//!  0  1  2  3    constant           columns     (0 4  8 12) (1 5  9 13) (2 6 10 14) (3 7 11 15)
//!  4  5  6  7    key                diagonals   (0 5 10 15) (1 6 11 12) (2 7  8 13) (3 4  9 14)
//!  8  9 10 11    key
//! 12 13 14 15    counter, nonce
//!
//! (a b c d):   a += b;  d = (d ^ a) <<< 16;  c += d;  b = (b ^ c) <<< 12;
//!              a += b;  d = (d ^ a) <<< 8;   c += d;  b = (b ^ c) <<< 7
//! ```
//!
//! There are no carries to look after: every addition is of 32 bits and wraps within its lane, as
//! the cipher wants it. The counter does not wrap either: a datagram has a few dozen blocks.
//!
//! Poly1305 needs more care, because its sums are wider than any word: see [`poly`](super::poly)
//! and the `field` module of the kernels with 52-bit multiplication.
//!
//! Everything here is integers and borrowed slices. A kernel may trust what it is given because the
//! borrow checker does, and needs `unsafe` for two things only: to move bytes between slices and
//! registers, and to call across target features.

use super::{Job, Nonce};
use crate::limits::TAG_BYTES;

/// Blocks that one wide call computes.
pub(super) const LANES: usize = 16;

/// Bytes of a `ChaCha20` block.
pub(super) const BLOCK_BYTES: usize = 64;

/// Rows of key stream that one call computes at most.
pub(super) const ROWS: usize = 12;

/// Rows of key stream that are kept at most: a datagram's.
pub(super) const ROWS_MAX: usize = 24;

/// Packets that are ordered together. Longer batches are cut.
pub(super) const CHUNK: usize = 64;

/// A kernel. A value of an implementing type proves that the CPU has the kernel's instructions.
pub(super) trait Wide: Copy {
    /// Lanes that share a set of registers. Those of a set take as long as one of them; sets are
    /// computed one after the other.
    const SET_LANES: usize;

    /// Up to this many blocks are faster through [`rows`](Self::rows) than through
    /// [`xor`](Self::xor).
    const ROWS_BEST: usize;

    /// [`rows`](Self::rows) computes this many blocks, or a multiple, in the time of one.
    const ROWS_AT_ONCE: usize;

    /// [`stream`](Self::stream) computes at most this many rows.
    const ROWS_NEXT: usize;

    /// Blocks of key stream, block 0s included, up to which two, three and four packets are worked
    /// on together; beyond that each alone is faster.
    const TOGETHER_MAX: [usize; 3];

    /// A lone packet's text, as long as it is faster on ordinary integers than in lanes.
    const LONE_TEXT_MAX: usize;

    /// Loads and transposes the input words of sixteen blocks, of which `lanes` will be in use.
    fn gather(self, sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input);

    /// Writes the first eight words of every block in use: the packets' one-time keys. May write as
    /// much for lanes that are not in use.
    fn one_time_keys(self, input: &Input, keys: &mut OneTimeKeys);

    /// XORs places with the key stream of their lanes, of which the first is the first one of set
    /// `set`.
    fn xor(self, input: &Input, set: usize, places: &mut impl Places);

    /// Writes the key stream of each source, of which there are one to twelve, to its row.
    fn rows(self, sources: &[Source<'_>], rows: &mut Rows);

    /// Writes the key stream of one packet, from a source on, to `rows`, of which there are at most
    /// [`ROWS_NEXT`](Self::ROWS_NEXT), in step with something else.
    fn stream<M: Meanwhile>(
        self,
        source: Source<'_>,
        rows: &mut [[u8; BLOCK_BYTES]],
        meanwhile: &mut M,
    );

    /// Writes zeros to rows.
    fn wipe_rows(self, rows: &mut [[u8; BLOCK_BYTES]]);

    /// XORs at most 64 bytes with a row.
    fn xor_row(self, text: &mut [u8], row: &[u8; BLOCK_BYTES]);

    /// XORs a text with the rows of its key stream, as far as either reaches.
    fn xor_rows(self, text: &mut [u8], rows: &[[u8; BLOCK_BYTES]]);

    /// Computes the tag of every packet of a group. Fast where neighbours are of similar length.
    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags);
}

/// Work on ordinary integers, done while wide registers wait for themselves. Implementations are
/// always inlined: a call would make the registers take the way through memory. For the same
/// reason a kernel works on a copy.
pub(super) trait Meanwhile: Copy {
    /// A piece of it, ten or twenty times.
    fn step(&mut self);
}

/// Nothing.
impl Meanwhile for () {
    #[allow(clippy::inline_always, reason = "see the trait")]
    #[inline(always)]
    fn step(&mut self) {}
}

/// Where the input words of one block come from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) key: &'a [u8; 32],
    pub(super) nonce: &'a Nonce,
    pub(super) counter: u32,
}

impl Source<'_> {
    /// The first eight bytes of the nonce, and the last four.
    #[inline]
    pub(super) fn nonce_words(&self) -> [u64; 2] {
        let head = self.nonce.first_chunk().expect("a nonce has twelve bytes");
        let tail = self.nonce.last_chunk().expect("a nonce has twelve bytes");
        [u64::from_le_bytes(*head), u64::from(u32::from_le_bytes(*tail))]
    }
}

/// One job of a chunk, taken apart.
pub(super) struct Packet<'a> {
    key: &'a [u8; 32],
    nonce: &'a Nonce,
    pub(super) aad: &'a [u8],
    /// Without the tag.
    pub(super) text: &'a mut [u8],
    tag: Option<&'a mut [u8; TAG_BYTES]>,
    /// Bytes of `text` that need no key stream any more. Invariant: a multiple of 64, or all of
    /// `text`.
    done: usize,
}

impl<'a> Packet<'a> {
    /// # Panics
    /// Where the job's buffer has no room for a tag.
    #[inline]
    pub(super) fn new(job: &'a mut Job<'_>) -> Self {
        let Job { key, nonce, aad, buf, .. } = job;
        let (text, tag) = buf.split_last_chunk_mut().expect("a job's buffer ends with its tag");
        Self { key: key.as_bytes(), nonce, aad, text, tag: Some(tag), done: 0 }
    }

    /// No packet: a place that will be filled.
    #[inline]
    pub(super) const fn vacant() -> Self {
        Self { key: &[0; 32], nonce: &[0; 12], aad: &[], text: &mut [], tag: None, done: 0 }
    }

    /// What block `counter` of the key stream is computed from.
    #[inline]
    pub(super) const fn source(&self, counter: u32) -> Source<'a> {
        Source { key: self.key, nonce: self.nonce, counter }
    }

    /// Blocks of key stream that the text needs.
    #[inline]
    pub(super) const fn stream_blocks(&self) -> usize {
        self.text.len().div_ceil(BLOCK_BYTES)
    }

    /// Blocks of 16 bytes that Poly1305 absorbs, the one with the lengths included.
    #[inline]
    pub(super) const fn tag_blocks(&self) -> usize {
        self.aad.len().div_ceil(16) + self.text.len().div_ceil(16) + 1
    }

    /// Whether the packet carries this tag; takes the same time whatever the answer.
    #[inline]
    pub(super) fn carries(&self, [low, high]: [u64; 2]) -> bool {
        let carried = self.tag.as_ref().map_or(0, |tag| u128::from_le_bytes(**tag));
        (low ^ carried as u64) | (high ^ (carried >> 64) as u64) == 0
    }

    #[inline]
    pub(super) fn write_tag(&mut self, [low, high]: [u64; 2]) {
        if let Some(tag) = &mut self.tag {
            **tag = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        }
    }

    /// From now on no key stream touches the text.
    #[inline]
    pub(super) const fn freeze(&mut self) {
        self.done = self.text.len();
    }

    #[inline]
    pub(super) const fn is_done(&self) -> bool {
        self.done == self.text.len()
    }

    /// The next 64 bytes that need key stream, fewer at the end, none after it.
    #[inline]
    pub(super) fn next_place(&mut self) -> &mut [u8] {
        let rest = &mut self.text[self.done..];
        let len = rest.len().min(BLOCK_BYTES);
        self.done += len;
        &mut rest[..len]
    }

    /// All places that still need key stream, each with what it is computed from.
    #[inline]
    pub(super) fn remaining_places(&mut self) -> impl Iterator<Item = (Source<'a>, &mut [u8])> {
        self.places_from(self.done.div_ceil(BLOCK_BYTES))
    }

    /// All places from block `first` of the text on, each with what it is computed from.
    #[inline]
    pub(super) fn places_from(
        &mut self,
        first: usize,
    ) -> impl Iterator<Item = (Source<'a>, &mut [u8])> {
        let Self { key, nonce, ref mut text, .. } = *self;
        let start = text.len().min(first * BLOCK_BYTES);
        let sources = (first as u32 + 1..).map(move |counter| Source { key, nonce, counter });
        sources.zip(text[start..].chunks_mut(BLOCK_BYTES))
    }
}

/// Where the key stream of a set goes, at most 64 bytes for each lane.
pub(super) trait Places {
    /// The place of a lane, counted from the set's first one; empty where the lane is idle. Asked
    /// for once per lane.
    fn place(&mut self, lane: usize) -> &mut [u8];
}

impl Places for &mut [Packet<'_>] {
    #[inline]
    fn place(&mut self, lane: usize) -> &mut [u8] {
        self.get_mut(lane).map_or(&mut [], Packet::next_place)
    }
}

impl Places for &mut [&mut [u8]] {
    #[inline]
    fn place(&mut self, lane: usize) -> &mut [u8] {
        self.get_mut(lane).map_or(&mut [], |place| place)
    }
}

/// The input words of sixteen blocks, transposed. The first four are the same for all blocks and
/// stand nowhere.
///
/// Once the keys and nonces of sixteen packets are in this form, each next block of all of them
/// needs only other counters.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Input {
    /// Words 4 to 11.
    pub(super) key: [[u32; LANES]; 8],
    /// Word 12.
    pub(super) counter: [u32; LANES],
    /// Words 13 to 15.
    pub(super) nonce: [[u32; LANES]; 3],
    /// Lanes in use, from the first one on.
    pub(super) lanes: usize,
}

impl Input {
    pub(super) const ZERO: Self =
        Self { key: [[0; LANES]; 8], counter: [0; LANES], nonce: [[0; LANES]; 3], lanes: 0 };
}

/// Key stream of a few blocks, or of one packet.
#[repr(C, align(64))]
pub(super) struct Rows(pub(super) [[u8; BLOCK_BYTES]; ROWS_MAX]);

impl Rows {
    pub(super) const ZERO: Self = Self([[0; BLOCK_BYTES]; ROWS_MAX]);
}

/// Poly1305's key for each packet of a group, which is the first half of its block 0: eight words,
/// transposed.
#[repr(C, align(64))]
pub(super) struct OneTimeKeys {
    words: [[u32; LANES + OVERHANG]; 8],
}

/// Words past the last packet, for kernels that read eight lanes at a time. A whole cache line, to
/// keep the rows aligned.
const OVERHANG: usize = 16;

impl OneTimeKeys {
    pub(super) const ZERO: Self = Self { words: [[0; LANES + OVERHANG]; 8] };

    /// Where word `word` of the packets goes.
    #[inline]
    pub(super) fn sixteen_mut(&mut self, word: usize) -> &mut [u32; LANES] {
        self.words[word].first_chunk_mut().expect("LANES words and more")
    }

    /// Word `word` of the eight packets from `first` on.
    #[inline]
    pub(super) fn eight(&self, word: usize, first: usize) -> &[u32; 8] {
        self.words[word][first..].first_chunk().expect("`first` is a packet of the group")
    }

    /// Takes the key of one packet from its block 0.
    #[inline]
    pub(super) fn set(&mut self, packet: usize, block: &[u8; BLOCK_BYTES]) {
        for (lanes, word) in self.words.iter_mut().zip(block.as_chunks().0) {
            lanes[packet] = u32::from_le_bytes(*word);
        }
    }

    /// The two halves of `r`, not clamped yet, and the two of `s`.
    #[inline]
    pub(super) fn halves(&self, packet: usize) -> [u64; 4] {
        let word = |word: usize| u64::from(self.words[word][packet]);
        std::array::from_fn(|half| word(2 * half) | word(2 * half + 1) << 32)
    }

    /// Forgets all keys. Nothing is written to the overhang.
    #[inline]
    pub(super) fn wipe(&mut self) {
        (0..8).for_each(|word| *self.sixteen_mut(word) = [0; LANES]);
    }
}

/// The tag that each packet of a group should carry, in two halves.
#[repr(C, align(64))]
pub(super) struct Tags {
    pub(super) low: [u64; LANES],
    pub(super) high: [u64; LANES],
}

impl Tags {
    pub(super) const ZERO: Self = Self { low: [0; LANES], high: [0; LANES] };

    #[inline]
    pub(super) const fn set(&mut self, packet: usize, [low, high]: [u64; 2]) {
        self.low[packet] = low;
        self.high[packet] = high;
    }

    #[inline]
    pub(super) const fn get(&self, packet: usize) -> [u64; 2] {
        [self.low[packet], self.high[packet]]
    }
}

/// The first four words of every `ChaCha20` block.
pub(super) const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The same as bytes.
pub(super) static SIGMA_BYTES: [u8; 16] = *b"expand 32-byte k";

/// Rounds of `ChaCha20`: one on columns and one on diagonals in turn.
pub(super) const ROUNDS: usize = 20;
