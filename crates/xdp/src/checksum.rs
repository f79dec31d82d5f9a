//! The Internet's checksum (RFC 1071): ones' complement of the ones' complement sum of 16-bit
//! words.
//!
//! The sum is the same in either byte order, so words are read in the machine's own, four bytes at
//! a time, and the result is stored in the same order.

/// A sum that is not folded yet. Everything but the last piece has an even number of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes, the last one filled up with a zero.
    #[inline]
    #[must_use]
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds a number as it stands in a header.
    #[inline]
    #[must_use]
    pub(crate) fn add_number(self, number: u16) -> Self {
        Self(self.0 + u64::from(number.to_be()))
    }

    /// The sum in 16 bits, in the machine's byte order.
    #[inline]
    pub(crate) const fn folded(self) -> u16 {
        let mut sum = self.0;
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }

    /// What stands in a header. UDP writes a sum of zero as ones, because zero says that there is
    /// none; to whoever checks, both are the same.
    #[inline]
    pub(crate) const fn field(self) -> [u8; 2] {
        let field = !self.folded();
        if field == 0 { [0xff; 2] } else { field.to_ne_bytes() }
    }

    /// Whether everything, the checksum included, adds up.
    #[inline]
    pub(crate) const fn is_right(self) -> bool {
        self.folded() == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As RFC 1071 describes it.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_the_rfc() {
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded().to_ne_bytes(), [0xdd, 0xf2]);
        assert_eq!(sum.field(), [!0xdd, !0xf2]);
    }

    #[test]
    fn a_sum_of_zero_is_written_as_ones() {
        assert_eq!(Sum::default().add(&[0xff; 6]).field(), [0xff; 2]);
        assert!(Sum::default().add(&[0xff; 6]).is_right());
        assert!(!Sum::default().add(&[0; 6]).is_right());
    }

    proptest! {
        #[test]
        fn pieces_of_even_length_add_up_to_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 0..1500_usize, number: u16
        ) {
            let (one, other) = bytes.split_at((2 * cut).min(bytes.len() & !1));
            let sum = Sum::default().add(one).add_number(number).add(other);
            let whole = [&number.to_be_bytes()[..], &bytes].concat();
            prop_assert_eq!(u16::from_be_bytes(sum.folded().to_ne_bytes()), plain(&whole));
        }

        #[test]
        fn what_has_its_checksum_adds_up(bytes in prop::collection::vec(any::<u8>(), 2..200)) {
            let mut bytes = bytes;
            bytes[..2].fill(0);
            let field = Sum::default().add(&bytes).field();
            bytes[..2].copy_from_slice(&field);
            prop_assert!(Sum::default().add(&bytes).is_right());
        }
    }
}
