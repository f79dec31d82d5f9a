//! A batch of one packet, without what only many packets repay: no order, no lists, no lanes to
//! fill.
//!
//! ```text
//! key stream of blocks 0 to 5         the one-time key, and all that a text of 320 bytes needs
//! key stream of the next 8, and so on, if the text is longer            (AVX2: the next 6)
//!     meanwhile: Poly1305 of what is encrypted already
//! ```
//!
//! Few blocks of key stream are one chain of dependent instructions in wide registers, and Poly1305
//! of one packet is one on ordinary integers: neither can use the whole core, and both in step take
//! hardly longer than one of them. So Poly1305, the longer chain of the two, begins as early as it
//! can: after as many blocks as take little longer than block 0 alone. What it costs is that a
//! forged packet's key stream is computed before the tag is known; the packet is not touched all
//! the same.

use super::Batch;
use crate::crypto::poly::Running;
use crate::crypto::wide::{BLOCK_BYTES, Meanwhile, Packet, ROWS_MAX, Rows, Wide};
use crate::crypto::{Job, Verdict};
use crate::limits::TAG_BYTES;

impl<W: Wide> Batch<W> {
    /// Whether a packet is short enough for what follows.
    #[inline]
    pub(super) const fn is_short(job: &Job<'_>) -> bool {
        const { assert!(W::LONE_TEXT_MAX <= (ROWS_MAX - 1) * BLOCK_BYTES) };
        job.buf.len() <= W::LONE_TEXT_MAX + TAG_BYTES
    }

    /// Opens a packet that [is short](Self::is_short).
    #[inline(never)]
    pub(super) fn open_lone(&mut self, job: &mut Job<'_>) {
        let (authentic, rows) = open(self.wide, &mut self.scratch.rows, &mut Packet::new(job));
        job.verdict = if authentic { Verdict::Done } else { Verdict::Forged };
        self.wipe_lone(rows);
    }

    /// Seals a packet that [is short](Self::is_short).
    #[inline(never)]
    pub(super) fn seal_lone(&mut self, job: &mut Job<'_>) {
        let rows = seal(self.wide, &mut self.scratch.rows, &mut Packet::new(job));
        job.verdict = Verdict::Done;
        self.wipe_lone(rows);
    }
}

/// Whether the packet is authentic, and how many rows it took to know.
///
/// Never inlined, so that what it leaves on the stack lies below the caller, who wipes it.
#[inline(never)]
fn open<W: Wide>(wide: W, rows: &mut Rows, packet: &mut Packet<'_>) -> (bool, usize) {
    let (rows, tag) = begin(wide, rows, packet);
    let (blocks, tail) = packet.text.as_chunks();
    let mut absorbing = Absorbing { tag, blocks };
    let mut first = ROWS_FIRST;
    for rows in rows.get_mut(ROWS_FIRST..).unwrap_or_default().chunks_mut(W::ROWS_NEXT) {
        wide.stream(packet.source(first as u32), rows, &mut absorbing);
        first += rows.len();
    }
    absorbing.tag.absorb_all(absorbing.blocks);
    absorbing.tag.absorb_tail(tail);
    let authentic = packet.carries(absorbing.tag.finish(packet));
    if authentic {
        wide.xor_rows(packet.text, &rows[1..]);
    }
    (authentic, rows.len())
}

/// Returns how many rows it took.
#[inline(never)]
fn seal<W: Wide>(wide: W, rows: &mut Rows, packet: &mut Packet<'_>) -> usize {
    let (rows, mut tag) = begin(wide, rows, packet);
    let (first_rows, next_rows) = rows.split_at_mut(rows.len().min(ROWS_FIRST));
    let mut first = first_rows.len();
    let mut encrypted = packet.text.len().min((first - 1) * BLOCK_BYTES);
    wide.xor_rows(&mut packet.text[..encrypted], &first_rows[1..]);
    let mut absorbed = 0;
    for rows in next_rows.chunks_mut(W::ROWS_NEXT) {
        let (blocks, _) = packet.text[absorbed..encrypted].as_chunks();
        let mut absorbing = Absorbing { tag, blocks };
        wide.stream(packet.source(first as u32), rows, &mut absorbing);
        tag = absorbing.tag;
        absorbed = encrypted - size_of_val(absorbing.blocks);
        first += rows.len();
        let end = packet.text.len().min((first - 1) * BLOCK_BYTES);
        wide.xor_rows(&mut packet.text[encrypted..end], rows);
        encrypted = end;
    }
    let (blocks, tail) = packet.text[absorbed..].as_chunks();
    tag.absorb_all(blocks);
    tag.absorb_tail(tail);
    packet.write_tag(tag.finish(packet));
    rows.len()
}

/// Computes the first of all rows that are needed, and begins the tag with the associated data.
#[inline]
fn begin<'r, W: Wide>(
    wide: W,
    rows: &'r mut Rows,
    packet: &Packet<'_>,
) -> (&'r mut [[u8; BLOCK_BYTES]], Running) {
    let wanted = 1 + packet.stream_blocks();
    let rows = &mut rows.0[..wanted];
    wide.stream(packet.source(0), &mut rows[..wanted.min(ROWS_FIRST)], &mut ());
    let mut tag = Running::new(&rows[0]);
    let (blocks, tail) = packet.aad.as_chunks();
    tag.absorb_all(blocks);
    tag.absorb_tail(tail);
    (rows, tag)
}

/// Poly1305 over the blocks that are left.
#[derive(Clone, Copy)]
struct Absorbing<'t> {
    tag: Running,
    blocks: &'t [[u8; 16]],
}

impl Meanwhile for Absorbing<'_> {
    #[allow(clippy::inline_always, reason = "see the trait")]
    #[inline(always)]
    fn step(&mut self) {
        if let Some((some, rest)) = self.blocks.split_first_chunk::<BLOCKS_PER_STEP>() {
            self.tag.absorb_all(some);
            self.blocks = rest;
        } else {
            self.tag.absorb_all(std::mem::take(&mut self.blocks));
        }
    }
}

/// Rows that are computed before anything else. The first one is the one-time key's.
const ROWS_FIRST: usize = 6;

/// Blocks of Poly1305 that take as long as a pair of `ChaCha20` rounds beside them.
const BLOCKS_PER_STEP: usize = 3;
