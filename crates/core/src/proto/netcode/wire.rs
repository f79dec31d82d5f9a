//! Cursors over byte slices, little-endian.
//!
//! Reading past the end is `None`, because what is read may be hostile. Writing past the end
//! panics, because every layout written here has a fixed size that its buffer is declared with.

/// Takes fields off the front of a slice.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| *byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().copied().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().copied().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().copied().map(u64::from_le_bytes)
    }
}

/// Puts fields into a slice, front to back.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Fills what is left with zeros, which the fixed-size layouts are padded with.
    pub(super) fn pad(self) {
        self.out[self.len..].fill(0);
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }
}
