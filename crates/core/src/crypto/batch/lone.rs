//! A batch of one packet, without what only many packets repay: no order, no lists, no lanes to
//! fill.
//!
//! ```text
//! key stream of blocks 0 to 3         the one-time key, and all that a text of 192 bytes needs
//! key stream of the next 8, and so on, if the text is longer
//!     meanwhile: Poly1305 of what is encrypted already
//! ```
//!
//! Few blocks of key stream are one chain of dependent instructions in wide registers, and Poly1305
//! of one packet is one on ordinary integers: neither can use the whole core, and both in step take
//! hardly longer than one of them. What it costs is that a forged packet's key stream is computed
//! before the tag is known; the packet is not touched all the same.

use super::Batch;
use crate::crypto::poly::Running;
use crate::crypto::wide::{BLOCK_BYTES, Meanwhile, Packet, ROWS_MAX, Rows, Wide};
use crate::crypto::{Job, TAG_BYTES, Verdict};

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
    let (rows, mut tag) = begin(wide, rows, packet);
    let (mut left, tail) = packet.text.as_chunks();
    let mut first = ROWS_FIRST;
    for rows in rows.get_mut(ROWS_FIRST..).unwrap_or_default().chunks_mut(ROWS_NEXT) {
        let absorbing = Absorbing { tag, blocks: left };
        Absorbing { tag, blocks: left } = wide.stream(packet.source(first as u32), rows, absorbing);
        first += rows.len();
    }
    for block in left {
        tag.absorb(block);
    }
    tag.absorb_padded(tail);
    let authentic = packet.carries(tag.finish(packet));
    if authentic {
        xor(wide, packet.text, &rows[1..]);
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
    xor(wide, &mut packet.text[..encrypted], &first_rows[1..]);
    let mut absorbed = 0;
    for rows in next_rows.chunks_mut(ROWS_NEXT) {
        let (blocks, _) = packet.text[absorbed..encrypted].as_chunks();
        let absorbing = Absorbing { tag, blocks };
        let left;
        Absorbing { tag, blocks: left } = wide.stream(packet.source(first as u32), rows, absorbing);
        absorbed = encrypted - size_of_val(left);
        first += rows.len();
        let end = packet.text.len().min((first - 1) * BLOCK_BYTES);
        xor(wide, &mut packet.text[encrypted..end], rows);
        encrypted = end;
    }
    tag.absorb_padded(&packet.text[absorbed..]);
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
    let wanted = (1 + packet.stream_blocks()).next_multiple_of(W::ROWS_AT_ONCE);
    let rows = &mut rows.0[..wanted];
    wide.stream(packet.source(0), &mut rows[..wanted.min(ROWS_FIRST)], ());
    let mut tag = Running::new(&rows[0]);
    tag.absorb_padded(packet.aad);
    (rows, tag)
}

/// Poly1305 over the blocks that are left.
struct Absorbing<'t> {
    tag: Running,
    blocks: &'t [[u8; 16]],
}

impl Meanwhile for Absorbing<'_> {
    #[allow(clippy::inline_always, reason = "see the trait")]
    #[inline(always)]
    fn step(&mut self) {
        if let Some((some, rest)) = self.blocks.split_first_chunk::<BLOCKS_PER_STEP>() {
            for block in some {
                self.tag.absorb(block);
            }
            self.blocks = rest;
        }
    }
}

#[inline]
fn xor<W: Wide>(wide: W, text: &mut [u8], rows: &[[u8; BLOCK_BYTES]]) {
    for (place, row) in text.chunks_mut(BLOCK_BYTES).zip(rows) {
        wide.xor_row(place, row);
    }
}

/// Rows that are computed before anything else. The first one is the one-time key's.
const ROWS_FIRST: usize = 4;

/// Rows that are computed at a time after them.
const ROWS_NEXT: usize = 8;

/// Blocks of Poly1305 that take hardly longer than the rounds of `ChaCha20` beside them.
const BLOCKS_PER_STEP: usize = 2;
