//! One histogram as bytes (`HdrHistogram`, V2): a head with its range, then its counts from the
//! lowest value up to the highest that was recorded, where a negative number is a run of zeros.

use hdrhistogram::{Counter, Histogram};

/// The encoding's first four bytes.
pub(super) const COOKIE_PLAIN: u32 = 0x1C84_9303 | 0x10;

/// Cookie, length of the payload, offset, digits, lowest and highest value, ratio.
pub(super) const HEAD_BYTES: usize = 40;

/// `None` where a count is more than the encoding can say.
pub(super) fn encode<C: Counter>(histogram: &Histogram<C>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 64);
    bytes.extend(COOKIE_PLAIN.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(u32::from(histogram.sigfig()).to_be_bytes());
    bytes.extend(histogram.low().to_be_bytes());
    bytes.extend(histogram.high().to_be_bytes());
    bytes.extend(1_f64.to_be_bytes());
    let (shape, mut next) = (Shape::of(histogram.low(), histogram.sigfig().into()), 0);
    for step in histogram.iter_recorded() {
        let index = shape.index_of(step.value_iterated_to());
        match index - next {
            0 => {}
            1 => put(&mut bytes, 0),
            zeros => put(&mut bytes, -(zeros as i64)),
        }
        put(&mut bytes, i64::try_from(step.count_at_value().as_u64()).ok()?);
        next = index + 1;
    }
    if next == 0 {
        put(&mut bytes, 0);
    }
    let payload_bytes = (bytes.len() - HEAD_BYTES) as u32;
    bytes[4..8].copy_from_slice(&payload_bytes.to_be_bytes());
    Some(bytes)
}

/// The histogram with this head and payload, which keeps so many counts.
pub(super) fn decode(plain: &[u8], counts: usize) -> Result<Histogram<u64>, &'static str> {
    let (head, mut payload) = plain.split_first_chunk::<HEAD_BYTES>().ok_or("its length")?;
    let digits = u32::from_be_bytes(head[12..16].try_into().expect("4 bytes"));
    let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let (low, high) = (number(16), number(24));
    if head[8..12] != [0; 4] || number(32) != 1_f64.to_bits() {
        return Err("an offset or a ratio");
    }
    let digits = u8::try_from(digits).map_err(|_| "its range")?;
    let mut histogram = Histogram::new_with_bounds(low, high, digits).map_err(|_| "its range")?;
    let (shape, mut index) = (Shape::of(low, digits.into()), 0_usize);
    while !payload.is_empty() {
        match take(&mut payload).ok_or("a number without an end")? {
            zeros @ ..0 => index = index.saturating_add(zeros.unsigned_abs() as usize),
            count => {
                if count > 0 {
                    let value = (index < counts).then(|| shape.value_at(index));
                    let recorded = value.map(|value| histogram.record_n(value, count as u64));
                    recorded.and_then(Result::ok).ok_or("more counts than its range")?;
                }
                index = index.saturating_add(1);
            }
        }
    }
    Ok(histogram)
}

/// Which values share a count.
#[derive(Clone, Copy)]
struct Shape {
    /// Of the lowest value, as a power of two.
    unit: u32,
    /// Half the number of counts that tell two values apart which differ by one in the last digit,
    /// as a power of two.
    half: u32,
}

impl Shape {
    const fn of(low: u64, digits: u32) -> Self {
        let fine = (2 * 10_u64.pow(digits)).next_power_of_two();
        Self { unit: low.ilog2(), half: fine.ilog2() - 1 }
    }

    const fn index_of(self, value: u64) -> usize {
        let mask = ((2 << self.half) - 1) << self.unit;
        let doublings = (value | mask).ilog2() - self.half - self.unit;
        let within = (value >> (doublings + self.unit)) as usize;
        ((doublings as usize) << self.half) + within
    }

    const fn value_at(self, index: usize) -> u64 {
        let doublings = (index >> self.half).saturating_sub(1);
        let within = index - (doublings << self.half);
        (within as u64) << (doublings as u32 + self.unit)
    }
}

/// Appends a number: its sign in the lowest bit, then seven bits in a byte, and eight in the ninth.
fn put(bytes: &mut Vec<u8>, number: i64) {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    for _ in 0..8 {
        if left < 0x80 {
            break;
        }
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
}

/// Takes one off.
fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for place in 0..=8 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if place == 8 {
            number |= u64::from(*byte) << 56;
            break;
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

    use super::*;

    fn histograms() -> Vec<Histogram<u64>> {
        let ranges = [(1, 2, 0), (1, 1000, 1), (1000, 60_000_000_000, 2), (1, 60_000_000_000, 3)];
        let wide = [(1, 1 << 62, 4), (7, u64::MAX, 3)];
        let mut all = Vec::new();
        for (low, high, digits) in ranges.into_iter().chain(wide) {
            let empty = Histogram::new_with_bounds(low, high, digits).expect("bounds");
            let mut full = empty.clone();
            for (at, power) in (0..64).enumerate() {
                for value in [1_u64 << power, (1 << power) + 1, (1 << power) - 1, 3 << (power / 2)]
                {
                    let count = 1 << (at.min(61));
                    let _ = full.record_n(value.clamp(low, high), count);
                }
            }
            all.extend([empty, full]);
        }
        all
    }

    #[test]
    fn another_implementation_writes_the_same_bytes_and_reads_them() {
        for histogram in histograms() {
            let mut theirs = Vec::new();
            let sums_up = V2Serializer::new().serialize(&histogram, &mut theirs).is_ok();
            let ours = encode(&histogram);
            assert_eq!(ours.is_some(), sums_up);
            let Some(ours) = ours else { continue };
            assert_eq!(ours, theirs);
            let counts = histogram.distinct_values();
            let read = decode(&ours, counts).expect("our own");
            let theirs = Deserializer::new().deserialize::<u64, _>(&mut ours.as_slice());
            assert_eq!(read, theirs.expect("what both have written"));
            assert_eq!((read.len(), read.max()), (histogram.len(), histogram.max()));
        }
    }

    #[test]
    fn numbers_are_read_as_they_were_written_and_cut_ones_are_none() {
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!((take(&mut rest), rest.len()), (Some(number), 0));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None, "{number}");
        }
    }
}
