//! How a batch is cut into work for a wide kernel, and in which order, so that no forged packet is ever decrypted.
//!
//! ```text
//! for each chunk of 64 jobs:
//!     order the packets by length                      neighbours then keep each other's lanes busy
//!     block 0 of every packet, 16 at a time            its first half is the packet's Poly1305 key
//!     open: compute all tags, compare; freeze what is forged
//!     XOR the texts:  1. with key stream that was computed along with few block 0s
//!                     2. set by set of packets, block by block; their input words are still there
//!                     3. whatever blocks remain, of any packets, a set at a time
//!     seal: compute all tags, write them
//!     wipe the scratch memory and the stack
//! ```
//!
//! Nothing here depends on a secret except what a forged packet saves, and that a packet is forged is no secret: the peer
//! learns it from our silence.

mod order;

use std::fmt;
use std::ops::Range;

use arrayvec::ArrayVec;
use zeroize::{optimization_barrier, zeroize_stack};

use self::order::Order;
use super::token::{self, TokenNonce};
use super::wide::{
    BLOCK_BYTES, CHUNK, Input, LANES, OneTimeKeys, Packet, ROWS, Rows, Source, Tags, Wide,
};
use super::{Job, Key, Nonce, Verdict};

/// A kernel with the memory it needs.
pub(super) struct Batch<W> {
    wide: W,
    scratch: Box<Scratch>,
}

type Packets<'a> = ArrayVec<Packet<'a>, CHUNK>;

impl<W: Wide> Batch<W> {
    pub(super) fn new(wide: W) -> Self {
        Self { wide, scratch: Box::new(Scratch::ZERO) }
    }

    /// Verifies every job and decrypts those that are authentic.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunks_mut(CHUNK) {
            self.open_chunk(jobs);
        }
    }

    /// Encrypts every job and writes its tag.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunks_mut(CHUNK) {
            self.seal_chunk(jobs);
        }
    }

    /// Derives the subkeys of tokens, as many side by side as rows of key stream are kept.
    pub(super) fn derive(
        &mut self,
        tokens: &[(&Key, &TokenNonce)],
        pass_on: &mut dyn FnMut(Key, Nonce),
    ) {
        for tokens in tokens.chunks(ROWS) {
            self.derive_some(tokens, pass_on);
            self.wipe(0);
        }
    }

    #[inline(never)]
    fn derive_some(&mut self, tokens: &[(&Key, &TokenNonce)], pass_on: &mut dyn FnMut(Key, Nonce)) {
        let sources: ArrayVec<_, ROWS> =
            tokens.iter().map(|(key, nonce)| token::source(key, nonce)).collect();
        self.rows(&sources);
        for ((_, nonce), row) in tokens.iter().zip(&self.scratch.rows.0) {
            let (head, tail) = token::split(nonce);
            pass_on(token::subkey(row, head), token::nonce_of(tail));
        }
    }

    #[inline(never)]
    fn open_chunk(&mut self, jobs: &mut [Job<'_>]) {
        let order = Order::by_length(jobs);
        let mut packets = Packets::new();
        order.take(jobs, &mut packets);
        let forged = self.open_packets(&mut packets);
        self.wipe(packets.len());
        drop(packets);
        for (index, job) in jobs.iter_mut().enumerate() {
            let is_forged = forged >> order.rank(index) & 1 == 1;
            job.verdict = if is_forged { Verdict::Forged } else { Verdict::Done };
        }
    }

    #[inline(never)]
    fn seal_chunk(&mut self, jobs: &mut [Job<'_>]) {
        let mut packets = Packets::new();
        Order::by_length(jobs).take(jobs, &mut packets);
        self.seal_packets(&mut packets);
        self.wipe(packets.len());
        drop(packets);
        for job in jobs {
            job.verdict = Verdict::Done;
        }
    }

    /// Opens what is authentic. The ranks of the others are the bits of the result.
    ///
    /// Never inlined, like [`seal_packets`](Self::seal_packets), so that all key material on the stack lies below the caller, who
    /// wipes it.
    #[inline(never)]
    fn open_packets(&mut self, packets: &mut [Packet<'_>]) -> u64 {
        let early = self.one_time_keys(packets);
        self.wide.tags(&self.scratch.one_time_keys, packets, &mut self.scratch.tags);
        let forged = freeze_forged(&self.scratch.tags, packets);
        self.xor(packets, early);
        forged
    }

    #[inline(never)]
    fn seal_packets(&mut self, packets: &mut [Packet<'_>]) {
        let early = self.one_time_keys(packets);
        self.xor(packets, early);
        self.wide.tags(&self.scratch.one_time_keys, packets, &mut self.scratch.tags);
        for (rank, packet) in packets.iter_mut().enumerate() {
            packet.write_tag(self.scratch.tags.get(rank));
        }
    }

    /// Computes block 0 of every packet. Where these are few, data blocks fill the lanes: the range of `rows` that is returned
    /// holds the key stream of the first ones.
    fn one_time_keys(&mut self, packets: &[Packet<'_>]) -> Range<usize> {
        let Scratch { groups: inputs, one_time_keys: keys, .. } = &mut *self.scratch;
        for (i, (group, input)) in packets.chunks(LANES).zip(inputs).enumerate() {
            if group.len() > W::ROWS_BEST {
                gather_some(self.wide, group.len(), |lane| group[lane].source(0), input);
                self.wide.one_time_keys(input, keys, i * LANES);
            }
        }
        let (groups, rest) = packets.as_chunks::<LANES>();
        if rest.is_empty() || rest.len() > W::ROWS_BEST {
            return 0..0;
        }
        let first = groups.len() * LANES;
        let mut sources = rest.iter().map(|packet| packet.source(0)).collect();
        if groups.is_empty() {
            add_early_blocks::<W>(&mut sources, packets);
        }
        self.rows(&sources);
        for (i, block) in self.scratch.rows.0.iter().take(rest.len()).enumerate() {
            self.scratch.one_time_keys.set(first + i, block);
        }
        rest.len()..sources.len()
    }

    /// XORs with key stream whatever is not frozen.
    fn xor(&mut self, packets: &mut [Packet<'_>], early: Range<usize>) {
        self.xor_early(packets, early);
        self.xor_groups(packets);
        self.xor_remaining(packets);
    }

    fn xor_early(&self, packets: &mut [Packet<'_>], early: Range<usize>) {
        let mut rows = self.scratch.rows.0[early].iter();
        for packet in packets {
            for row in rows.by_ref().take(packet.stream_blocks()) {
                self.wide.xor_row(packet.next_place(), row);
            }
        }
    }

    /// As many blocks as nearly all packets of a set have. A packet that has fewer, or is forged, leaves its lane idle.
    fn xor_groups(&mut self, packets: &mut [Packet<'_>]) {
        let groups = packets.chunks_mut(LANES).zip(&mut self.scratch.groups);
        for (group, input) in groups.filter(|(_, input)| input.lanes > 0) {
            for (set, mut packets) in group.chunks_mut(W::SET_LANES).enumerate() {
                let missing = W::SET_LANES - packets.len();
                let done = packets.iter().filter(|packet| packet.is_done()).count();
                let idle_max = W::SET_LANES / IDLE_LANES_SHARE;
                if missing + done > idle_max {
                    continue;
                }
                for counter in 1..=packets[idle_max - missing].stream_blocks() as u32 {
                    input.counter = [counter; LANES];
                    self.wide.xor(input, set, &mut packets);
                }
            }
        }
    }

    fn xor_remaining(&mut self, packets: &mut [Packet<'_>]) {
        let mut sources = ArrayVec::new();
        let mut places = ArrayVec::new();
        for (source, place) in packets.iter_mut().flat_map(Packet::remaining_places) {
            sources.push(source);
            places.push(place);
            if places.len() == W::SET_LANES {
                self.xor_places(&mut sources, &mut places);
            }
        }
        if !places.is_empty() {
            self.xor_places(&mut sources, &mut places);
        }
    }

    /// XORs any places, and empties the lists.
    fn xor_places(
        &mut self,
        sources: &mut ArrayVec<Source<'_>, LANES>,
        places: &mut ArrayVec<&mut [u8], LANES>,
    ) {
        if places.len() <= W::ROWS_BEST {
            self.rows(sources);
            for (place, row) in places.drain(..).zip(&self.scratch.rows.0) {
                self.wide.xor_row(place, row);
            }
        } else {
            gather_some(self.wide, sources.len(), |lane| sources[lane], &mut self.scratch.dense);
            self.wide.xor(&self.scratch.dense, 0, &mut places.as_mut_slice());
            places.clear();
        }
        sources.clear();
    }

    fn rows(&mut self, sources: &[Source<'_>]) {
        self.scratch.rows_used = self.scratch.rows_used.max(sources.len());
        self.wide.rows(sources, &mut self.scratch.rows);
    }

    /// Wipes what a chunk of this many packets has left behind, on the stack as well.
    ///
    /// Inlined, so that the stack it wipes begins where that of the kernels began.
    #[allow(clippy::inline_always, reason = "a call would leave its own frame unwiped")]
    #[inline(always)]
    fn wipe(&mut self, packets: usize) {
        if self.scratch.groups[0].lanes == 0 && self.scratch.dense.lanes == 0 {
            zeroize_stack::<STACK_BYTES_ROWS>();
        } else {
            zeroize_stack::<STACK_BYTES>();
        }
        self.scratch.wipe(packets);
    }
}

impl<W> fmt::Debug for Batch<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch(..)")
    }
}

/// Gathers the blocks of a few lanes. The last one stands in for those that are missing.
#[inline]
fn gather_some<'a, W: Wide>(
    wide: W,
    lanes: usize,
    source: impl Fn(usize) -> Source<'a>,
    input: &mut Input,
) {
    wide.gather(&std::array::from_fn(|lane| source(lane.min(lanes - 1))), lanes, input);
}

/// Adds the first data blocks to the block 0s of a small batch: all of them if one call can compute everything, otherwise
/// as many as cost nothing.
fn add_early_blocks<'a, W: Wide>(
    sources: &mut ArrayVec<Source<'a>, LANES>,
    packets: &[Packet<'a>],
) {
    let all = packets.iter().map(|packet| 1 + packet.stream_blocks()).sum();
    let wanted = match sources.len() {
        _ if all <= ROWS => all,
        few if few <= W::ROWS_BEST => few.next_multiple_of(W::ROWS_AT_ONCE),
        _ => return,
    };
    let data = packets.iter().flat_map(|packet| {
        (1..=packet.stream_blocks()).map(|counter| packet.source(counter as u32))
    });
    sources.extend(data.take(wanted - sources.len()));
}

/// Freezes the packets whose tag is wrong. Their ranks are the bits of the result.
fn freeze_forged(tags: &Tags, packets: &mut [Packet<'_>]) -> u64 {
    let mut forged = 0;
    for (rank, packet) in packets.iter_mut().enumerate() {
        if !packet.carries(tags.get(rank)) {
            forged |= 1 << rank;
            packet.freeze();
        }
    }
    forged
}

/// Memory that holds key material while a chunk is worked on, and zeros afterwards.
struct Scratch {
    /// Input words of every group of sixteen packets, and of what is left of them unless that is few.
    groups: [Input; CHUNK / LANES],
    /// Input words of any blocks of a set.
    dense: Input,
    rows: Rows,
    rows_used: usize,
    one_time_keys: OneTimeKeys,
    tags: Tags,
}

impl Scratch {
    const ZERO: Self = Self {
        groups: [Input::ZERO; CHUNK / LANES],
        dense: Input::ZERO,
        rows: Rows::ZERO,
        rows_used: 0,
        one_time_keys: OneTimeKeys::ZERO,
        tags: Tags::ZERO,
    };

    /// Wipes what a chunk of this many packets has used. Wiping everything each time would cost a single packet a tenth of
    /// its time.
    fn wipe(&mut self, packets: usize) {
        let inputs = self.groups.iter_mut().chain([&mut self.dense]);
        for input in inputs.filter(|input| input.lanes > 0) {
            *input = Input::ZERO;
        }
        let rows_used = std::mem::take(&mut self.rows_used);
        let (steps, _) = self.rows.0.as_chunks_mut::<ROWS_WRITTEN>();
        for rows in steps.iter_mut().take(rows_used.div_ceil(ROWS_WRITTEN)) {
            *rows = [[0; BLOCK_BYTES]; ROWS_WRITTEN];
        }
        self.one_time_keys.wipe(packets);
        self.tags.wipe(packets);
        optimization_barrier(self);
    }
}

/// One of so many lanes of a set may be idle before computing the other lanes' blocks together with those of other packets
/// pays: that costs an eighth more, for gathering their input words.
const IDLE_LANES_SHARE: usize = 8;

/// No kernel writes rows in larger steps.
const ROWS_WRITTEN: usize = 4;

/// More stack than the kernels leave key material on: in general, and where only rows were computed. A test searches the stack.
const STACK_BYTES: usize = 3584 * UNOPTIMISED;
const STACK_BYTES_ROWS: usize = 2560 * UNOPTIMISED;

/// Code that is not optimised keeps a copy of everything.
const UNOPTIMISED: usize = if cfg!(debug_assertions) { 8 } else { 1 };
