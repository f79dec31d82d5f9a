//! Bit streams: fields of any width at any bit, least significant bit first.
//!
//! Bit `k` of a stream is bit `k mod 8` of byte `k / 8`; an integer's lowest bit comes first, so a
//! byte-aligned field is plain little-endian. A stream says itself where it ends: one `1` bit
//! follows the last field (two in game packets, one for each layer of the engine that ends a
//! stream), then zeros fill the byte. So the highest set bit of the last byte is the end, and a
//! last byte of zero is no stream.
//!
//! Reading past the end is `None`, because what is read may be hostile. Writing past the buffer
//! panics, because the writer knows how much it writes.

/// Takes fields off the front of a stream.
#[derive(Clone, Copy, Debug)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Invariant: at most `end`.
    at: usize,
    /// Invariant: at most the bits of `bytes`.
    end: usize,
}

impl<'a> BitReader<'a> {
    /// A reader of all bits of the slice, whether or not they are a stream with an end.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: 8 * bytes.len() }
    }

    /// A reader of a datagram up to its last termination bit; `None` where there is none.
    #[inline]
    pub fn of_datagram(datagram: &'a [u8]) -> Option<Self> {
        Some(Self { bytes: datagram, at: 0, end: terminator(datagram)? })
    }

    /// The bit that will be read next.
    #[inline]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// How many bits are left.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// The next `width` bits, at most 64.
    #[inline]
    pub fn read(&mut self, width: usize) -> Option<u64> {
        let start = self.at;
        self.skip(width)?;
        Some(load(self.bytes, start, width))
    }

    /// The next bit.
    #[inline]
    pub fn flag(&mut self) -> Option<bool> {
        self.read(1).map(|bit| bit != 0)
    }

    /// The next eight bits.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        self.read(8).map(|byte| byte as u8)
    }

    /// The next `N` bytes, aligned or not.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let start = self.at;
        self.skip(8 * N)?;
        Some(std::array::from_fn(|index| load(self.bytes, start + 8 * index, 8) as u8))
    }

    /// Passes over `width` bits.
    #[inline]
    pub const fn skip(&mut self, width: usize) -> Option<()> {
        if width > self.remaining() {
            return None;
        }
        self.at += width;
        Some(())
    }

    /// A reader of the next `width` bits, which this one passes over.
    #[inline]
    pub const fn take(&mut self, width: usize) -> Option<Self> {
        let mut front = *self;
        if self.skip(width).is_none() {
            return None;
        }
        front.end = self.at;
        Some(front)
    }

    /// What is left without its last bit, which has to be a termination bit; `None` where it is
    /// not.
    pub fn without_terminator(mut self) -> Option<Self> {
        let last = self.remaining().checked_sub(1).map(|_| self.end - 1)?;
        if load(self.bytes, last, 1) == 0 {
            return None;
        }
        self.end = last;
        Some(self)
    }
}

/// Puts fields into a buffer, front to back. What the buffer held before does not matter.
#[derive(Debug)]
pub struct BitWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> BitWriter<'a> {
    /// A writer that begins at the buffer's first bit.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bit that will be written next.
    #[inline]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Writes the low `width` bits of `value`, at most 64.
    ///
    /// # Panics
    /// Where the buffer ends before the field does.
    #[inline]
    pub fn write(&mut self, value: u64, width: usize) {
        let end = self.at + width;
        self.bytes[self.at.div_ceil(8)..end.div_ceil(8)].fill(0);
        store(self.bytes, self.at, width, value);
        self.at = end;
    }

    /// Writes one bit.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    pub fn flag(&mut self, value: bool) {
        self.write(u64::from(value), 1);
    }

    /// Writes whole bytes, aligned or not.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write(u64::from(byte), 8);
        }
    }

    /// Writes everything that is left in a reader.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn copy(&mut self, mut source: BitReader<'_>) {
        while source.remaining() > 0 {
            let width = source.remaining().min(FIELD_BITS_MAX);
            let Some(value) = source.read(width) else { return };
            self.write(value, width);
        }
    }

    /// Ends the stream with `terminators` one-bits and returns how many bytes of the buffer it
    /// fills.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    pub fn finish(mut self, terminators: usize) -> usize {
        self.write(u64::MAX, terminators);
        self.at.div_ceil(8)
    }
}

/// Where the last termination bit of a datagram is, counted in bits from the start; `None` where
/// the last byte is zero or there is no byte.
#[inline]
pub fn terminator(datagram: &[u8]) -> Option<usize> {
    let last = *datagram.last()?;
    Some(8 * (datagram.len() - 1) + last.checked_ilog2()? as usize)
}

/// Reads `width` bits (at most 64) at bit `at`.
///
/// # Panics
/// Where the slice ends before the field does.
#[inline]
pub fn load(bytes: &[u8], at: usize, width: usize) -> u64 {
    let (start, shift) = (at / 8, at % 8);
    let touched = (shift + width).div_ceil(8);
    let mut wide = [0; 16];
    wide[..touched].copy_from_slice(&bytes[start..start + touched]);
    (u128::from_le_bytes(wide) >> shift) as u64 & mask(width)
}

/// Overwrites `width` bits (at most 64) at bit `at` with the low bits of `value`, and no other bit.
///
/// # Panics
/// As [`load`].
#[inline]
pub fn store(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    let (start, shift) = (at / 8, at % 8);
    let touched = (shift + width).div_ceil(8);
    let place = &mut bytes[start..start + touched];
    let mut wide = [0; 16];
    wide[..touched].copy_from_slice(place);
    let others = u128::from_le_bytes(wide) & !(u128::from(mask(width)) << shift);
    let merged = others | u128::from(value & mask(width)) << shift;
    place.copy_from_slice(&merged.to_le_bytes()[..touched]);
}

#[inline]
const fn mask(width: usize) -> u64 {
    debug_assert!(width <= FIELD_BITS_MAX, "a field has at most 64 bits");
    if width == 0 { 0 } else { u64::MAX >> (FIELD_BITS_MAX - width) }
}

const FIELD_BITS_MAX: usize = u64::BITS as usize;

#[cfg(test)]
mod tests;
