//! What the batch code and the wide kernels say to each other.
//!
//! A wide kernel computes sixteen `ChaCha20` blocks at once, one per *lane*, and the blocks have nothing to do with each other:
//! word `w` of all of them stands in one row, `words[w][lane]`. Where registers hold fewer lanes, a kernel takes the sixteen in
//! halves.
//!
//! Everything here is integers and borrowed slices. A kernel may trust what it is given because the borrow checker does, and
//! needs `unsafe` for two things only: to move bytes between slices and registers, and to call across target features.

use super::{Job, Nonce, TAG_BYTES};

/// Blocks that one wide call computes.
pub(super) const LANES: usize = 16;

/// Bytes of a `ChaCha20` block.
pub(super) const BLOCK_BYTES: usize = 64;

/// Rows of key stream that are kept at most.
pub(super) const ROWS: usize = 12;

/// Packets that are worked on together. Longer batches are cut, so that the scratch memory stays in the first-level cache.
pub(super) const CHUNK: usize = 64;

/// A kernel. A value of an implementing type proves that the CPU has the kernel's instructions.
pub(super) trait Wide: Copy {
    /// Lanes that share a set of registers. Those of a set take as long as one of them; sets are computed one after the other.
    const SET_LANES: usize;

    /// Up to this many blocks are faster through [`rows`](Self::rows) than through [`xor`](Self::xor).
    const ROWS_BEST: usize;

    /// [`rows`](Self::rows) computes this many blocks, or a multiple, in the time of one.
    const ROWS_AT_ONCE: usize;

    /// Loads and transposes the input words of sixteen blocks, of which `lanes` will be in use.
    fn gather(self, sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input);

    /// Writes the first eight words of every block in use: the one-time keys of the packets from `first` on. May write as much
    /// for lanes that are not in use.
    fn one_time_keys(self, input: &Input, keys: &mut OneTimeKeys, first: usize);

    /// XORs places with the key stream of their lanes, of which the first is the first one of set `set`.
    fn xor(self, input: &Input, set: usize, places: &mut impl Places);

    /// Writes the key stream of each source, of which there are one to twelve, to its row.
    fn rows(self, sources: &[Source<'_>], rows: &mut Rows);

    /// XORs at most 64 bytes with a row.
    fn xor_row(self, text: &mut [u8], row: &[u8; BLOCK_BYTES]);

    /// Computes the tag of every packet. Fast where neighbours are of similar length.
    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags);
}

/// Where the input words of one block come from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) key: &'a [u8; 32],
    pub(super) nonce: &'a Nonce,
    pub(super) counter: u32,
}

/// One job of a chunk, taken apart.
pub(super) struct Packet<'a> {
    key: &'a [u8; 32],
    nonce: &'a Nonce,
    pub(super) aad: &'a [u8],
    /// Without the tag.
    pub(super) text: &'a mut [u8],
    tag: Option<&'a mut [u8; TAG_BYTES]>,
    /// Bytes of `text` that need no key stream any more. Invariant: a multiple of 64, or all of `text`.
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
        let Self { key, nonce, ref mut text, done, .. } = *self;
        self.done = text.len();
        let first = (done / BLOCK_BYTES) as u32 + 1;
        let sources = (first..).map(move |counter| Source { key, nonce, counter });
        sources.zip(text[done..].chunks_mut(BLOCK_BYTES))
    }
}

/// Where the key stream of a set goes, at most 64 bytes for each lane.
pub(super) trait Places {
    /// The place of a lane, counted from the set's first one; empty where the lane is idle. Asked for once per lane.
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

/// The input words of sixteen blocks, transposed. The first four are the same for all blocks and stand nowhere.
///
/// Once the keys and nonces of sixteen packets are in this form, each next block of all of them needs only other counters.
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

/// Key stream of a few blocks.
#[repr(C, align(64))]
pub(super) struct Rows(pub(super) [[u8; BLOCK_BYTES]; ROWS]);

impl Rows {
    pub(super) const ZERO: Self = Self([[0; BLOCK_BYTES]; ROWS]);
}

/// Poly1305's key for each packet of a chunk, which is the first half of its block 0: eight words, transposed.
#[repr(C, align(64))]
pub(super) struct OneTimeKeys {
    words: [[u32; CHUNK + OVERHANG]; 8],
}

/// Words past the last packet, for kernels that read eight lanes at a time. A whole cache line, to keep the rows aligned.
const OVERHANG: usize = 16;

impl OneTimeKeys {
    pub(super) const ZERO: Self = Self { words: [[0; CHUNK + OVERHANG]; 8] };

    /// Where word `word` of the sixteen packets from `first` on goes.
    #[inline]
    pub(super) fn sixteen_mut(&mut self, word: usize, first: usize) -> &mut [u32; LANES] {
        self.words[word][first..].first_chunk_mut().expect("`first` begins a group of the chunk")
    }

    /// Word `word` of the eight packets from `first` on.
    #[inline]
    pub(super) fn eight(&self, word: usize, first: usize) -> &[u32; 8] {
        self.words[word][first..].first_chunk().expect("`first` is a packet of the chunk")
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

    /// Forgets the keys of the first `packets` packets.
    #[inline]
    pub(super) fn wipe(&mut self, packets: usize) {
        for first in (0..packets).step_by(LANES) {
            for word in 0..8 {
                *self.sixteen_mut(word, first) = [0; LANES];
            }
        }
    }
}

/// The tag that each packet of a chunk should carry, in two halves.
#[repr(C, align(64))]
pub(super) struct Tags {
    pub(super) low: [u64; CHUNK],
    pub(super) high: [u64; CHUNK],
}

impl Tags {
    pub(super) const ZERO: Self = Self { low: [0; CHUNK], high: [0; CHUNK] };

    #[inline]
    pub(super) const fn set(&mut self, packet: usize, [low, high]: [u64; 2]) {
        self.low[packet] = low;
        self.high[packet] = high;
    }

    #[inline]
    pub(super) const fn get(&self, packet: usize) -> [u64; 2] {
        [self.low[packet], self.high[packet]]
    }

    /// Forgets the first `packets` tags: those of forged packets must not become known.
    #[inline]
    pub(super) fn wipe(&mut self, packets: usize) {
        for halves in [&mut self.low, &mut self.high] {
            for sixteen in
                halves.as_chunks_mut::<LANES>().0.iter_mut().take(packets.div_ceil(LANES))
            {
                *sixteen = [0; LANES];
            }
        }
    }
}

/// The first four words of every `ChaCha20` block: "expand 32-byte k".
pub(super) const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
