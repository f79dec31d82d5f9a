//! Poly1305 on 64-bit integers, for several packets side by side.
//!
//! The sum is `h`, in words of 64, 64 and a few bits; each block is `h = (h + block) · r`, modulo
//! 2^130 - 5, where a block is its 16 bytes with a bit above them. The tag is `h + s` modulo 2^128.
//!
//! ```text
//! h = h0 + h1 · 2^64 + h2 · 2^128      r = r0 + r1 · 2^64      w = r1 + r1/4
//!
//! weight 1        d0 =  h0·r0 + h1·w              h1·r1 · 2^128 = h1·(r1/4) · 2^130 = h1·w
//! weight 2^64     d1 =  h0·r1 + h1·r0 + h2·w      h2·r1 · 2^192, likewise
//! weight 2^128    d2 =  h2·r0
//! ```
//!
//! 2^130 is 5 modulo 2^130 - 5. Clamping makes `r1` a multiple of 4, so that what a product has
//! above 2^130 comes back as `5 · r1/4 = r1 + r1/4`: a word, computed once, and not a number that
//! would have to be split at bit 130.
//!
//! Nothing overflows:
//!
//! ```text
//! r0, r1 < 2^60 (clamped)              w < 1.25 · 2^60
//! h2 ≤ 4 between two blocks            ≤ 6 with the end bit and a carry; h2·w < 2^63, in a word
//! d0 < 2^124 + 1.25 · 2^124            < 2^126, in 128 bits
//! d1 < 2 · 2^124 + 2^63 + (d0 >> 64)   < 2^126, in 128 bits
//! d2 < 6 · 2^60 + (d1 >> 64)           ≤ 2^63, in a word, and 5q ≤ 5 · 2^61, where q = d2 / 4
//! new h2 = (d2 mod 4) + carry          ≤ 4, so h < 2^130 + 2^64 between two blocks
//! ```
//!
//! Only the end reduces fully, by one subtraction, because that is less than twice the modulus.
//!
//! One packet is a chain of dependent multiplications: 17 cycles per block, most of them spent
//! waiting. Three packets side by side fill the waits and reach 10 cycles per block and packet.
//! Arithmetic on four lanes of AVX2 is as fast on long packets, and slower on packets of game size,
//! which do not repay splitting `r` into limbs and joining the sum again. So this is the Poly1305
//! of every wide kernel without 52-bit multiplication.

use super::wide::{BLOCK_BYTES, OneTimeKeys, Packet, Tags};

/// Packets side by side. Two reach 11 cycles per block; four gain nothing and run out of registers.
const SIDE_BY_SIDE: usize = 3;

/// Computes the tags of `packets`, of which the first is packet `first` of its chunk.
pub(super) fn tags(keys: &OneTimeKeys, packets: &[Packet<'_>], mut first: usize, tags: &mut Tags) {
    let (threes, rest) = packets.as_chunks::<SIDE_BY_SIDE>();
    for packets in threes {
        tags_of(keys, packets, first, tags);
        first += SIDE_BY_SIDE;
    }
    match <&[_; 2]>::try_from(rest) {
        Ok(two) => tags_of(keys, two, first, tags),
        Err(_) => rest.iter().for_each(|one| tags_of(keys, std::array::from_ref(one), first, tags)),
    }
}

fn tags_of<const N: usize>(
    keys: &OneTimeKeys,
    packets: &[Packet<'_>; N],
    first: usize,
    tags: &mut Tags,
) {
    let keys: [_; N] = std::array::from_fn(|i| keys.halves(first + i));
    let mut sums = keys.map(|[low, high, ..]| Sum::new([low, high]));
    let aads = std::array::from_fn(|i| packets[i].aad);
    let texts = std::array::from_fn(|i| &*packets[i].text);
    for parts in [aads, texts] {
        absorb_padded(&mut sums, parts);
    }
    for i in 0..N {
        sums[i].absorb([packets[i].aad.len() as u64, packets[i].text.len() as u64]);
    }
    for i in 0..N {
        tags.set(first + i, sums[i].finish([keys[i][2], keys[i][3]]));
    }
}

/// Absorbs a part of each packet, padded with zeros to whole blocks: side by side as far as all of
/// them reach.
#[inline]
fn absorb_padded<const N: usize>(sums: &mut [Sum; N], parts: [&[u8]; N]) {
    let parts = parts.map(<[u8]>::as_chunks::<16>);
    let common = parts.iter().map(|(blocks, _)| blocks.len()).min().unwrap_or(0);
    for b in 0..common {
        for i in 0..N {
            sums[i].absorb(halves(&parts[i].0[b]));
        }
    }
    for i in 0..N {
        parts[i].0[common..].iter().for_each(|block| sums[i].absorb(halves(block)));
    }
    let tails: [_; N] =
        std::array::from_fn(|i| (!parts[i].1.is_empty()).then(|| padded_halves(parts[i].1)));
    for i in 0..N {
        if let Some(tail) = tails[i] {
            sums[i].absorb(tail);
        }
    }
}

/// The tag of one packet, while what it is computed from comes in parts.
#[derive(Clone, Copy)]
pub(super) struct Running {
    sum: Sum,
    s: [u64; 2],
}

impl Running {
    /// Takes the one-time key from a packet's block 0.
    #[inline]
    pub(super) fn new(block_0: &[u8; BLOCK_BYTES]) -> Self {
        let (halves_of, _) = block_0.as_chunks();
        Self { sum: Sum::new(halves(&halves_of[0])), s: halves(&halves_of[1]) }
    }

    #[inline]
    pub(super) fn absorb_all(&mut self, blocks: &[[u8; 16]]) {
        let mut sum = self.sum;
        for block in blocks {
            sum.absorb(halves(block));
        }
        self.sum = sum;
    }

    /// Absorbs what a part has beyond whole blocks, padded with zeros.
    #[inline]
    pub(super) fn absorb_tail(&mut self, tail: &[u8]) {
        if !tail.is_empty() {
            self.sum.absorb(padded_halves(tail));
        }
    }

    /// Absorbs the lengths and ends.
    #[inline]
    pub(super) fn finish(mut self, packet: &Packet<'_>) -> [u64; 2] {
        self.sum.absorb([packet.aad.len() as u64, packet.text.len() as u64]);
        self.sum.finish(self.s)
    }
}

/// The running sum of one packet, and what it is multiplied by.
#[derive(Clone, Copy)]
struct Sum {
    /// Invariant: below 2^131 between blocks.
    h: [u64; 3],
    r0: u64,
    r1: u64,
    /// `r1 + r1/4`
    r1_wrapped: u64,
}

impl Sum {
    /// Starts with the first half of a one-time key, which it clamps.
    #[inline]
    const fn new([low, high]: [u64; 2]) -> Self {
        let r0 = low & CLAMP[0];
        let r1 = high & CLAMP[1];
        Self { h: [0; 3], r0, r1, r1_wrapped: r1 + (r1 >> 2) }
    }

    /// Absorbs a block of 16 bytes.
    #[inline]
    fn absorb(&mut self, block: [u64; 2]) {
        self.absorb_with(block, 1);
    }

    /// Absorbs a block with `end` above its 128 bits.
    #[inline]
    fn absorb_with(&mut self, [low, high]: [u64; 2], end: u64) {
        let (h0, carry) = self.h[0].overflowing_add(low);
        let (h1, from_high) = self.h[1].overflowing_add(high);
        let (h1, from_carry) = h1.overflowing_add(u64::from(carry));
        let h2 = self.h[2] + end + u64::from(from_high | from_carry);

        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let d0 = product(h0, self.r0) + product(h1, self.r1_wrapped);
        let d1 = product(h0, self.r1) + product(h1, self.r0) + u128::from(h2 * self.r1_wrapped);
        let d1 = d1 + (d0 >> 64);
        let d2 = (h2 * self.r0).wrapping_add((d1 >> 64) as u64);

        // d2 = 4q + rest, and q · 2^130 comes back as 5q.
        let wrapped = (d2 & !3) + (d2 >> 2);
        let (h0, carry) = (d0 as u64).overflowing_add(wrapped);
        let (h1, carry) = (d1 as u64).overflowing_add(u64::from(carry));
        self.h = [h0, h1, (d2 & 3) + u64::from(carry)];
    }

    #[inline]
    const fn finish(self, s: [u64; 2]) -> [u64; 2] {
        finish(self.h, s)
    }
}

/// Reduces a sum below 2^131 fully and adds the second half of the one-time key: the tag.
#[inline]
pub(super) const fn finish([h0, h1, h2]: [u64; 3], s: [u64; 2]) -> [u64; 2] {
    // h + 5 has a bit above 2^130 exactly if h is not below the modulus.
    let (g0, carry) = h0.overflowing_add(5);
    let (g1, carry) = h1.overflowing_add(carry as u64);
    let g2 = h2 + carry as u64;
    let keep_h = (g2 >> 2).wrapping_sub(1);
    let low = (h0 & keep_h) | (g0 & !keep_h);
    let high = (h1 & keep_h) | (g1 & !keep_h);
    let (low, carry) = low.overflowing_add(s[0]);
    [low, high.wrapping_add(s[1]).wrapping_add(carry as u64)]
}

/// What `r` keeps of the two halves of its key.
pub(super) const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

#[inline]
fn halves(block: &[u8; 16]) -> [u64; 2] {
    let whole = u128::from_le_bytes(*block);
    [whole as u64, (whole >> 64) as u64]
}

/// A block that ends early, with zeros behind it. Two reads that overlap stand in for a copy of
/// variable length.
#[inline]
fn padded_halves(tail: &[u8]) -> [u64; 2] {
    debug_assert!(!tail.is_empty() && tail.len() < 16);
    let bits = 8 * tail.len() as u32;
    if let (Some(head), Some(end)) = (tail.first_chunk(), tail.last_chunk()) {
        let end = u64::from_le_bytes(*end);
        // `end` begins at bit `bits - 64`; what lies above 128 - 64 is its own upper part.
        return [u64::from_le_bytes(*head), end.unbounded_shr(128 - bits)];
    }
    if let (Some(head), Some(end)) = (tail.first_chunk(), tail.last_chunk()) {
        let end = u64::from(u32::from_le_bytes(*end));
        return [u64::from(u32::from_le_bytes(*head)) | end << (bits - 32), 0];
    }
    let byte = |i: usize| u64::from(tail[i]) << (8 * i);
    [byte(0) | byte(tail.len() / 2) | byte(tail.len() - 1), 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Poly1305 as RFC 8439 defines it, for messages of any length.
    fn tag(r: u128, s: u128, message: &[u8]) -> u128 {
        let split = |key: u128| [key as u64, (key >> 64) as u64];
        let mut sum = Sum::new(split(r));
        let (blocks, tail) = message.as_chunks();
        for block in blocks {
            sum.absorb(halves(block));
        }
        if !tail.is_empty() {
            let mut last = [0; 16];
            last[..tail.len()].copy_from_slice(tail);
            last[tail.len()] = 1;
            sum.absorb_with(halves(&last), 0);
        }
        let [low, high] = sum.finish(split(s));
        u128::from(low) | u128::from(high) << 64
    }

    /// Sixteen bytes in the order in which the RFC prints them.
    fn printed(digits: &str) -> u128 {
        u128::from_str_radix(digits, 16).expect("hex").swap_bytes()
    }

    #[test]
    fn rfc_8439_section_2_5_2() {
        let r = printed("85d6be7857556d337f4452fe42d506a8");
        let s = printed("0103808afb0db2fd4abff6af4149f51b");
        let message = b"Cryptographic Forum Research Group";
        assert_eq!(tag(r, s, message), printed("a8061dc1305136c6c22b8baf0c0127a9"));
    }

    #[test]
    fn rfc_8439_appendix_a_3() {
        let statement = b"Any submission to the IETF intended by the Contributor for publication \
            as all or part of an IETF Internet-Draft or RFC and any statement made within the \
            context of an IETF activity is considered an \"IETF Contribution\". Such statements \
            include oral statements in IETF sessions, as well as written and electronic \
            communications made at any time or place, which are addressed to";
        let jabberwocky = b"'Twas brillig, and the slithy toves\nDid gyre and gimble in the \
            wabe:\nAll mimsy were the borogoves,\nAnd the mome raths outgrabe.";
        let key = printed("36e5f6b5c5e06070f0efca96227a863e");
        assert_eq!(tag(0, 0, &[0; 64]), 0);
        assert_eq!(tag(0, key, statement), key);
        assert_eq!(tag(key, 0, statement), printed("f3477e7cd95417af89a6b8794c310cf0"));
        let r = printed("1c9240a5eb55d38af333888604f6b5f0");
        let s = printed("473917c1402b80099dca5cbc207075c0");
        assert_eq!(tag(r, s, jabberwocky), printed("4541669a7eaaee61e708dc7cbcc5eb62"));
    }

    /// The RFC's sums at the edges of the modulus and of the words.
    #[test]
    fn rfc_8439_appendix_a_3_carries() {
        let ones = u128::MAX.to_le_bytes();
        assert_eq!(tag(2, 0, &ones), 3);
        assert_eq!(tag(2, u128::MAX, &2_u128.to_le_bytes()), 3);
        let last = printed("11000000000000000000000000000000");
        assert_eq!(tag(1, 0, &message(&[u128::MAX, u128::MAX - 15, last])), 5);
        let second = printed("fbfefefefefefefefefefefefefefefe");
        let third = printed("01010101010101010101010101010101");
        assert_eq!(tag(1, 0, &message(&[u128::MAX, second, third])), 0);
        assert_eq!(tag(2, 0, &message(&[u128::MAX - 2])), u128::MAX - 5);
        let r = printed("01000000000000000400000000000000");
        let first = printed("e33594d7505e43b90000000000000000");
        let second = printed("3394d7505e4379cd0100000000000000");
        let expected = printed("14000000000000005500000000000000");
        assert_eq!(tag(r, 0, &message(&[first, second, 0, 1])), expected);
        assert_eq!(tag(r, 0, &message(&[first, second, 0])), 19);
    }

    fn message(blocks: &[u128]) -> Vec<u8> {
        blocks.iter().flat_map(|block| block.to_le_bytes()).collect()
    }

    #[test]
    fn a_tail_is_padded_with_zeros() {
        let bytes: Vec<_> = (1..16).collect();
        for len in 1..16 {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(padded_halves(&bytes[..len]), halves(&padded), "{len} bytes");
        }
    }
}
