//! Memory for parts that wait for their turn: five sizes, kept for the next ones.

use crate::limits::PAYLOAD_BYTES_MAX;

/// Buffers that are not in use, and how much all of them take.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: [Vec<Vec<u8>>; SIZES.len()],
    /// Bytes of all buffers, also of those in use.
    bytes: usize,
}

impl Buffers {
    /// A buffer with these bytes, at most as many as a packet has.
    pub(super) fn hold(&mut self, bytes: &[u8]) -> Vec<u8> {
        let size = size_of_part(bytes.len());
        let mut buffer = self.free[size].pop().unwrap_or_else(|| {
            self.bytes += SIZES[size];
            Vec::with_capacity(SIZES[size])
        });
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn release(&mut self, mut buffer: Vec<u8>) {
        let size = size_of_part(buffer.len());
        buffer.clear();
        self.free[size].push(buffer);
    }

    /// Frees everything that is not in use.
    pub(super) fn trim(&mut self) {
        let free: usize = self.free.iter().flatten().map(Vec::capacity).sum();
        self.bytes -= free;
        self.free = Default::default();
    }

    /// What all of them take, also those in use.
    pub(super) fn heap_bytes(&self) -> usize {
        let lists: usize = self.free.iter().map(Vec::capacity).sum();
        self.bytes + lists * size_of::<Vec<u8>>()
    }
}

/// What an end counts for a part of that length that waits for its turn, or for the rest of its
/// message.
pub(super) const fn cost_of_part(len: usize) -> usize {
    SIZES[size_of_part(len)] + OVERHEAD_BYTES
}

const fn size_of_part(len: usize) -> usize {
    let mut size = 0;
    while SIZES[size] < len {
        size += 1;
    }
    size
}

/// From chat and moves to parts of something larger.
const SIZES: [usize; 5] = [64, 128, 256, 512, PAYLOAD_BYTES_MAX];

/// The part's place in its channel.
const OVERHEAD_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_to_where_it_is_from() {
        let mut buffers = Buffers::default();
        for len in [1, 64, 65, 256, 257, 513, 1200] {
            let buffer = buffers.hold(&vec![7; len]);
            assert_eq!(
                (buffer.len(), buffer.capacity() + OVERHEAD_BYTES),
                (len, cost_of_part(len))
            );
            let place = buffer.as_ptr();
            buffers.release(buffer);
            let again = buffers.hold(&[1]);
            assert_eq!(again.as_ptr() == place, len <= 64);
            buffers.release(again);
        }
        buffers.trim();
        assert_eq!(buffers.heap_bytes(), 0);
    }
}
