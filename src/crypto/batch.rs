//! How a batch is cut into work for a wide kernel, and in which order, so that no forged packet is ever decrypted.
//!
//! ```text
//! for each chunk of 64 jobs:
//!     order the packets by length                      neighbours then keep each other's lanes busy
//!     block 0 of every packet, 16 at a time            its first half is the packet's Poly1305 key
//!     open: compute all tags, compare; freeze what is forged
//!     XOR the texts:  1. with key stream that was computed along with few block 0s
//!                     2. groups of 16 packets, block by block; their input words are still there
//!                     3. whatever blocks remain, of any packets, 16 at a time
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
use super::wide::{
    BLOCK_BYTES, CHUNK, Input, LANES, OneTimeKeys, Packet, ROWS, Rows, Source, Tags, Wide,
};
use super::{Job, Verdict};

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

    #[inline(never)]
    fn open_chunk(&mut self, jobs: &mut [Job<'_>]) {
        let order = Order::by_length(jobs);
        let mut packets = Packets::new();
        order.take(jobs, &mut packets);
        let early = self.one_time_keys(&packets);
        self.wide.tags(&self.scratch.one_time_keys, &packets, &mut self.scratch.tags);
        let forged = freeze_forged(&self.scratch.tags, &mut packets);
        self.xor(&mut packets, early);
        drop(packets);
        self.wipe(jobs.len());
        for (index, job) in jobs.iter_mut().enumerate() {
            let is_forged = forged >> order.rank(index) & 1 == 1;
            job.verdict = if is_forged { Verdict::Forged } else { Verdict::Done };
        }
    }

    #[inline(never)]
    fn seal_chunk(&mut self, jobs: &mut [Job<'_>]) {
        let mut packets = Packets::new();
        Order::by_length(jobs).take(jobs, &mut packets);
        let early = self.one_time_keys(&packets);
        self.xor(&mut packets, early);
        self.wide.tags(&self.scratch.one_time_keys, &packets, &mut self.scratch.tags);
        for (rank, packet) in packets.iter_mut().enumerate() {
            packet.write_tag(self.scratch.tags.get(rank));
        }
        drop(packets);
        self.wipe(jobs.len());
        for job in jobs {
            job.verdict = Verdict::Done;
        }
    }

    /// Computes block 0 of every packet. Where these are few, data blocks fill the lanes: the range of `rows` that is returned
    /// holds the key stream of the first ones.
    fn one_time_keys(&mut self, packets: &[Packet<'_>]) -> Range<usize> {
        let Scratch { groups: inputs, dense, one_time_keys: keys, .. } = &mut *self.scratch;
        let (groups, rest) = packets.as_chunks::<LANES>();
        for (i, (group, input)) in groups.iter().zip(inputs).enumerate() {
            self.wide.gather(&std::array::from_fn(|lane| group[lane].source(0)), LANES, input);
            self.wide.one_time_keys(input, keys, i * LANES);
        }
        let first = groups.len() * LANES;
        let mut sources: ArrayVec<_, LANES> = rest.iter().map(|packet| packet.source(0)).collect();
        if groups.is_empty() {
            add_early_blocks::<W>(&mut sources, packets);
        }
        if sources.is_empty() {
            return 0..0;
        }
        if sources.len() == rest.len() && rest.len() > W::ROWS_BEST {
            gather_some(self.wide, &mut sources, dense);
            self.wide.one_time_keys(dense, keys, first);
            return 0..0;
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

    /// As many blocks as nearly all packets of a group have. A packet that has fewer, or is forged, leaves its lane idle.
    fn xor_groups(&mut self, packets: &mut [Packet<'_>]) {
        let (groups, _) = packets.as_chunks_mut::<LANES>();
        for (group, input) in groups.iter_mut().zip(&mut self.scratch.groups) {
            if group.iter().filter(|packet| packet.is_done()).count() > IDLE_LANES_MAX {
                continue;
            }
            for counter in 1..=group[IDLE_LANES_MAX].stream_blocks() as u32 {
                input.counter = [counter; LANES];
                self.wide.xor(input, group);
            }
        }
    }

    fn xor_remaining(&mut self, packets: &mut [Packet<'_>]) {
        let mut sources = ArrayVec::new();
        let mut places = ArrayVec::new();
        for (source, place) in packets.iter_mut().flat_map(Packet::remaining_places) {
            sources.push(source);
            places.push(place);
            if places.is_full() {
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
            gather_some(self.wide, sources, &mut self.scratch.dense);
            while !places.is_full() {
                places.push(&mut []);
            }
            let places_of_lanes: &mut [_; LANES] = places.as_mut_slice().try_into().expect("full");
            self.wide.xor(&self.scratch.dense, places_of_lanes);
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
    /// Called from where the kernels are called, so that the stack it wipes is the stack they have used.
    fn wipe(&mut self, packets: usize) {
        if packets < LANES && self.scratch.dense.lanes == 0 {
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

/// Gathers up to sixteen blocks.
fn gather_some<W: Wide>(wide: W, sources: &mut ArrayVec<Source<'_>, LANES>, input: &mut Input) {
    let (lanes, idle) = (sources.len(), sources[0]);
    while !sources.is_full() {
        sources.push(idle);
    }
    wide.gather(sources.as_slice().try_into().expect("full"), lanes, input);
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
    /// Input words of whole groups of sixteen packets.
    groups: [Input; CHUNK / LANES],
    /// Input words of any sixteen blocks.
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
        for input in self.groups.iter_mut().take(packets / LANES) {
            *input = Input::ZERO;
        }
        if self.dense.lanes > 0 {
            self.dense = Input::ZERO;
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

/// Lanes of a group that may be idle before computing the other lanes' blocks with those of other packets pays. Gathering
/// input words costs 80 of 650 cycles.
const IDLE_LANES_MAX: usize = 2;

/// No kernel writes rows in larger steps.
const ROWS_WRITTEN: usize = 4;

/// More stack than the kernels leave key material on: in general, and where only rows were computed.
const STACK_BYTES: usize = 2560;
const STACK_BYTES_ROWS: usize = 1024;
