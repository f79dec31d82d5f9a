//! How a batch is cut into work for a wide kernel, and in which order, so that no forged packet is
//! ever decrypted.
//!
//! ```text
//! for each chunk of 64 jobs:
//!     order the packets by length                  neighbours then keep each other's lanes busy
//!     for each group of 16, from the long end:
//!         block 0 of every packet                  its first half is the packet's Poly1305 key
//!         compute the tags, compare; freeze what is forged
//!         XOR the texts:  with key stream that was computed along with few block 0s, or as many
//!                         blocks as nearly all have, side by side: their input words are there
//!     XOR whatever blocks remain, of any packets, 16 at a time
//!     wipe the scratch memory and the stack
//! ```
//!
//! Sealing goes the other way round: what would remain comes first, and the tags of a group come
//! last.
//!
//! Why group by group, and not all tags of a chunk in one go: multiplications in 512-bit registers
//! that are dense for more than about 0.6 µs make the CPU change its power state, and run at half
//! its speed for 60 to 500 µs until it has. So there is always some key stream between the tags of
//! two groups.
//!
//! A single packet takes a shorter way ([`lone`]), and so does each of a few long ones ([`few`]).
//!
//! Nothing here depends on a secret except what a forged packet saves, and that a packet is forged
//! is no secret: the peer learns it from our silence.

mod few;
mod lone;
mod order;

use std::fmt;
use std::ops::Range;

use arrayvec::ArrayVec;
use zeroize::{optimization_barrier, zeroize_stack};

use self::order::{Order, Packets};
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

impl<W: Wide> Batch<W> {
    pub(super) fn new(wide: W) -> Self {
        Self { wide, scratch: Box::new(Scratch::ZERO) }
    }

    pub(super) const fn kernel(&self) -> W {
        self.wide
    }

    /// Verifies every job and decrypts those that are authentic.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunks_mut(CHUNK) {
            if few::each_alone::<W>(jobs) {
                jobs.chunks_mut(1).for_each(|job| self.open_one(job));
            } else {
                self.open_chunk(jobs);
            }
        }
    }

    /// Encrypts every job and writes its tag.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunks_mut(CHUNK) {
            if few::each_alone::<W>(jobs) {
                jobs.chunks_mut(1).for_each(|job| self.seal_one(job));
            } else {
                self.seal_chunk(jobs);
            }
        }
    }

    /// Verifies a single job, and decrypts it if it is authentic.
    fn open_one(&mut self, job: &mut [Job<'_>]) {
        match job {
            [job] if Self::is_short(job) => self.open_lone(job),
            job => self.open_chunk(job),
        }
    }

    /// Encrypts a single job and writes its tag.
    fn seal_one(&mut self, job: &mut [Job<'_>]) {
        match job {
            [job] if Self::is_short(job) => self.seal_lone(job),
            job => self.seal_chunk(job),
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
            self.wipe(false);
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
        self.wipe(few::took_one_call(&packets));
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
        self.wipe(few::took_one_call(&packets));
        drop(packets);
        for job in jobs {
            job.verdict = Verdict::Done;
        }
    }

    /// Opens what is authentic. The ranks of the others are the bits of the result.
    ///
    /// Never inlined, like [`seal_packets`](Self::seal_packets), so that all key material on the
    /// stack lies below the caller, who wipes it.
    #[inline(never)]
    fn open_packets(&mut self, packets: &mut [Packet<'_>]) -> u64 {
        let mut forged = 0;
        for group in packets.rchunks_mut(LANES) {
            let early = self.one_time_keys(group);
            self.wide.tags(&self.scratch.one_time_keys, group, &mut self.scratch.tags);
            forged = forged << group.len() | freeze_forged(&self.scratch.tags, group);
            self.xor_early(group, early);
            self.xor_group(group);
        }
        self.xor_places(packets.iter_mut().flat_map(Packet::remaining_places));
        forged
    }

    /// What is left over comes first, because tags need their whole text.
    #[inline(never)]
    fn seal_packets(&mut self, packets: &mut [Packet<'_>]) {
        let few = Some(packets.len() % LANES).filter(|few| *few <= W::ROWS_BEST);
        let (few, full) = packets.split_at_mut(few.unwrap_or(0));
        let early = self.one_time_keys(few);
        self.xor_early(few, early);
        let sets = full.rchunks_mut(LANES).flat_map(|group| group.chunks_mut(W::SET_LANES));
        let left_over = sets.flat_map(|set| {
            let common = common_blocks::<W>(set);
            set.iter_mut().flat_map(move |packet| packet.places_from(common))
        });
        self.xor_places(few.iter_mut().flat_map(Packet::remaining_places).chain(left_over));
        self.write_tags(few);
        for group in full.rchunks_mut(LANES) {
            self.one_time_keys(group);
            self.xor_group(group);
            self.write_tags(group);
        }
    }

    fn write_tags(&mut self, group: &mut [Packet<'_>]) {
        self.wide.tags(&self.scratch.one_time_keys, group, &mut self.scratch.tags);
        for (lane, packet) in group.iter_mut().enumerate() {
            packet.write_tag(self.scratch.tags.get(lane));
        }
    }

    /// Computes block 0 of every packet of a group. Where these are few, data blocks fill the
    /// lanes: the range of `rows` that is returned holds the key stream of the first ones.
    fn one_time_keys(&mut self, group: &[Packet<'_>]) -> Range<usize> {
        let Scratch { group: input, one_time_keys: keys, .. } = &mut *self.scratch;
        if group.len() > W::ROWS_BEST {
            gather_some(self.wide, group.len(), |lane| group[lane].source(0), input);
            self.wide.one_time_keys(input, keys);
            return 0..0;
        }
        if group.is_empty() {
            return 0..0;
        }
        let mut sources = ArrayVec::new();
        sources.extend(group.iter().map(|packet| packet.source(0)));
        add_early_blocks::<W>(&mut sources, group);
        self.rows(&sources);
        for (lane, block) in self.scratch.rows.0.iter().enumerate().take(group.len()) {
            self.scratch.one_time_keys.set(lane, block);
        }
        group.len()..sources.len()
    }

    fn xor_early(&self, group: &mut [Packet<'_>], early: Range<usize>) {
        let mut rows = self.scratch.rows.0[early].iter();
        for packet in group {
            for row in rows.by_ref().take(packet.stream_blocks()) {
                self.wide.xor_row(packet.next_place(), row);
            }
        }
    }

    /// As many blocks as nearly all packets of a set have. A packet that has fewer, or is forged,
    /// leaves its lane idle.
    fn xor_group(&mut self, group: &mut [Packet<'_>]) {
        if group.len() <= W::ROWS_BEST {
            return;
        }
        let input = &mut self.scratch.group;
        for (set, mut packets) in group.chunks_mut(W::SET_LANES).enumerate() {
            for counter in 1..=common_blocks::<W>(packets) as u32 {
                input.counter = [counter; LANES];
                self.wide.xor(input, set, &mut packets);
            }
        }
    }

    /// XORs any places, a set at a time.
    fn xor_places<'k, 't>(&mut self, all: impl Iterator<Item = (Source<'k>, &'t mut [u8])>) {
        let mut sources = ArrayVec::new();
        let mut places = ArrayVec::new();
        for (source, place) in all {
            sources.push(source);
            places.push(place);
            if places.len() == W::SET_LANES {
                self.xor_set(&mut sources, &mut places);
            }
        }
        if !places.is_empty() {
            self.xor_set(&mut sources, &mut places);
        }
    }

    /// XORs the places of one set, and empties the lists.
    fn xor_set(
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

    /// Wipes what a chunk has left behind, on the stack as well, which is less where one call has
    /// computed all key stream of few packets.
    ///
    /// Inlined, so that the stack it wipes begins where that of the kernels began.
    #[allow(clippy::inline_always, reason = "a call would leave its own frame unwiped")]
    #[inline(always)]
    fn wipe(&mut self, took_one_call: bool) {
        if took_one_call {
            zeroize_stack::<STACK_BYTES_FEW>();
        } else {
            zeroize_stack::<STACK_BYTES>();
        }
        self.scratch.wipe();
    }

    /// Wipes what a lone packet that took so many rows has left behind.
    #[allow(clippy::inline_always, reason = "as above")]
    #[inline(always)]
    fn wipe_lone(&mut self, rows: usize) {
        zeroize_stack::<STACK_BYTES_LONE>();
        self.wide.wipe_rows(&mut self.scratch.rows.0[..rows]);
        optimization_barrier(&self.scratch);
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

/// Adds the first data blocks to the block 0s of a small batch: all of them if one call can compute
/// everything, otherwise as many as cost nothing.
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

/// How many blocks of key stream the packets of a set are given side by side, unless too many of
/// them need none.
fn common_blocks<W: Wide>(packets: &[Packet<'_>]) -> usize {
    let missing = W::SET_LANES - packets.len();
    let done = packets.iter().filter(|packet| packet.is_done()).count();
    let idle_max = W::SET_LANES / IDLE_LANES_SHARE;
    if missing + done > idle_max { 0 } else { packets[idle_max - missing].stream_blocks() }
}

/// Freezes the packets of a group whose tag is wrong. Their lanes are the bits of the result.
fn freeze_forged(tags: &Tags, packets: &mut [Packet<'_>]) -> u64 {
    let mut forged = 0;
    for (lane, packet) in packets.iter_mut().enumerate() {
        if !packet.carries(tags.get(lane)) {
            forged |= 1 << lane;
            packet.freeze();
        }
    }
    forged
}

/// Memory that holds key material while a chunk is worked on, and zeros afterwards.
struct Scratch {
    /// Input words of a group, unless that is few packets.
    group: Input,
    /// Input words of any blocks of a set.
    dense: Input,
    rows: Rows,
    rows_used: usize,
    one_time_keys: OneTimeKeys,
    tags: Tags,
}

impl Scratch {
    const ZERO: Self = Self {
        group: Input::ZERO,
        dense: Input::ZERO,
        rows: Rows::ZERO,
        rows_used: 0,
        one_time_keys: OneTimeKeys::ZERO,
        tags: Tags::ZERO,
    };

    /// Wipes what has been used. Wiping everything each time would cost a single packet a tenth of
    /// its time.
    fn wipe(&mut self) {
        let inputs = [&mut self.group, &mut self.dense];
        for input in inputs.into_iter().filter(|input| input.lanes > 0) {
            *input = Input::ZERO;
        }
        let rows_used = std::mem::take(&mut self.rows_used);
        let (steps, _) = self.rows.0.as_chunks_mut::<ROWS_WRITTEN>();
        for rows in steps.iter_mut().take(rows_used.div_ceil(ROWS_WRITTEN)) {
            *rows = [[0; BLOCK_BYTES]; ROWS_WRITTEN];
        }
        self.one_time_keys.wipe();
        self.tags = Tags::ZERO;
        optimization_barrier(self);
    }
}

/// One of so many lanes of a set may be idle before computing the other lanes' blocks together with
/// those of other packets pays: that costs an eighth more, for gathering their input words.
const IDLE_LANES_SHARE: usize = 8;

/// No kernel writes rows in larger steps.
const ROWS_WRITTEN: usize = 4;

/// More stack than the kernels leave key material on: in general, for few packets, and for one. A
/// test searches the stack; it needs half as much in our own release profile as in one without
/// link-time optimisation, which is what dependants have.
///
/// It is written at 32 bytes a cycle, before anything else can be: that was a quarter of what a
/// lone packet took.
const STACK_BYTES: usize = 8192 * UNOPTIMISED;
const STACK_BYTES_FEW: usize = 4096 * UNOPTIMISED;
const STACK_BYTES_LONE: usize = 1024 * UNOPTIMISED;

/// Code that is not optimised keeps a copy of everything.
const UNOPTIMISED: usize = if cfg!(debug_assertions) { 8 } else { 1 };
