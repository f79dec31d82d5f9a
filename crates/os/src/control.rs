//! Control messages: what the kernel says beside a datagram, and what is asked of it beside one.
//!
//! A control buffer is a chain of headers (length, level, type), each followed by its data and
//! padded to the alignment of `usize`. It is read and written byte by byte, bounds checked, without
//! a pointer cast.

/// The messages of a control buffer. Ends at the first header that does not fit.
#[inline]
pub fn messages(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = i32::from_ne_bytes(*control.get(8..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*control.get(12..)?.first_chunk()?);
        let data = control.get(HEADER_BYTES..len)?;
        control = control.get(aligned(len)..).unwrap_or_default();
        Some((level, kind, data))
    })
}

/// Writes a message to the beginning of a buffer of zeroes. Returns how many bytes it takes there.
#[inline]
pub fn write(to: &mut [u8], level: i32, kind: i32, data: &[u8]) -> usize {
    let len = HEADER_BYTES + data.len();
    let message = &mut to[..len];
    message[..8].copy_from_slice(&len.to_ne_bytes());
    message[8..12].copy_from_slice(&level.to_ne_bytes());
    message[12..16].copy_from_slice(&kind.to_ne_bytes());
    message[16..].copy_from_slice(data);
    aligned(len)
}

/// How many bytes a message with so many takes.
pub const fn bytes_of(data: usize) -> usize {
    aligned(HEADER_BYTES + data)
}

#[inline]
const fn aligned(len: usize) -> usize {
    len.next_multiple_of(align_of::<usize>())
}

/// Of a message.
pub const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

// The byte offsets above are those of 64-bit Linux.
const _: () = assert!(HEADER_BYTES == 16 && size_of::<usize>() == 8);

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    #[test]
    fn offsets_are_those_of_libc() {
        assert_eq!(offset_of!(libc::cmsghdr, cmsg_level), 8);
        assert_eq!(offset_of!(libc::cmsghdr, cmsg_type), 12);
    }
}
