//! Captures as Wireshark reads them: pcapng (draft-ietf-opsawg-pcapng), written block by block into
//! memory, and walked through again.
//!
//! Only what a capture of UDP datagrams needs: one section, interfaces whose packets begin with an
//! IP header, packets with their direction and a comment, and counts at the end. Numbers are little
//! endian, times are nanoseconds since 1970.

mod blocks;
pub mod udp;

pub use self::blocks::{Block, blocks};
use self::blocks::{COMMENT, INTERFACE, LOST, MATCHED, PACKET, SECTION, STATISTICS};

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The number of its interface, in the order in which interfaces were written.
    pub interface: u32,
    /// When it passed.
    pub unix_ns: u64,
    /// Which way.
    pub way: Way,
    /// As much of it as is kept, from its IP header on.
    pub bytes: &'a [u8],
    /// How long it was.
    pub len: usize,
    /// What to say about it.
    pub comment: &'a str,
}

/// What was counted at an interface.
#[derive(Clone, Copy, Debug)]
pub struct Statistics<'a> {
    /// The number of the interface.
    pub interface: u32,
    /// When the capture began.
    pub began_unix_ns: u64,
    /// When it ended.
    pub ended_unix_ns: u64,
    /// Packets that were to be captured.
    pub matched: u64,
    /// Those of them that are missing, because nobody took them in time.
    pub lost: u64,
    /// What to say about it.
    pub comment: &'a str,
}

/// Begins a file: which program has written it, and what to say about all of it.
pub fn section(out: &mut Vec<u8>, program: &str, comment: &str) {
    block(out, SECTION, |out| {
        out.extend(BYTE_ORDER.to_le_bytes());
        out.extend(1_u16.to_le_bytes());
        out.extend(0_u16.to_le_bytes());
        // How long the section is, is not known yet.
        out.extend(u64::MAX.to_le_bytes());
        option(out, COMMENT, comment.as_bytes());
        option(out, PROGRAM, program.as_bytes());
        option(out, END, &[]);
    });
}

/// Adds an interface, of whose packets so many bytes are kept.
pub fn interface(out: &mut Vec<u8>, name: &str, snaplen: u32) {
    block(out, INTERFACE, |out| {
        out.extend(RAW_IP.to_le_bytes());
        out.extend(0_u16.to_le_bytes());
        out.extend(snaplen.to_le_bytes());
        option(out, INTERFACE_NAME, name.as_bytes());
        option(out, RESOLUTION, &[NANOSECONDS]);
        option(out, END, &[]);
    });
}

/// Adds a packet.
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    block(out, PACKET, |out| {
        out.extend(packet.interface.to_le_bytes());
        time(out, packet.unix_ns);
        out.extend((packet.bytes.len() as u32).to_le_bytes());
        out.extend((packet.len as u32).to_le_bytes());
        padded(out, packet.bytes);
        let direction: u32 = match packet.way {
            Way::Inbound => 1,
            Way::Outbound => 2,
        };
        option(out, FLAGS, &direction.to_le_bytes());
        option(out, COMMENT, packet.comment.as_bytes());
        option(out, END, &[]);
    });
}

/// Adds the counts of an interface.
pub fn statistics(out: &mut Vec<u8>, counts: &Statistics<'_>) {
    block(out, STATISTICS, |out| {
        out.extend(counts.interface.to_le_bytes());
        time(out, counts.ended_unix_ns);
        option(out, COMMENT, counts.comment.as_bytes());
        for (code, unix_ns) in [(BEGAN, counts.began_unix_ns), (ENDED, counts.ended_unix_ns)] {
            let mut halves = Vec::with_capacity(8);
            time(&mut halves, unix_ns);
            option(out, code, &halves);
        }
        option(out, MATCHED, &counts.matched.to_le_bytes());
        option(out, LOST, &counts.lost.to_le_bytes());
        option(out, END, &[]);
    });
}

/// A block says how long it is at both of its ends.
fn block(out: &mut Vec<u8>, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    write(out);
    let len = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend(len);
}

/// One without a value is left out, but for the end of the list.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    if value.is_empty() && code != END {
        return;
    }
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes);
    out.extend(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
}

/// The upper half first.
fn time(out: &mut Vec<u8>, unix_ns: u64) {
    out.extend(((unix_ns >> 32) as u32).to_le_bytes());
    out.extend((unix_ns as u32).to_le_bytes());
}

const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The link type of packets that begin with an IPv4 or IPv6 header.
const RAW_IP: u16 = 101;

/// Ten to the minus ninth seconds.
const NANOSECONDS: u8 = 9;

const END: u16 = 0;
/// Of the section.
const PROGRAM: u16 = 4;
/// Of an interface.
const INTERFACE_NAME: u16 = 2;
const RESOLUTION: u16 = 9;
/// Of a packet.
const FLAGS: u16 = 2;
/// Of an interface's counts.
const BEGAN: u16 = 2;
const ENDED: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_written_byte_by_byte() {
        let mut out = Vec::new();
        section(&mut out, "ringgate", "all");
        #[rustfmt::skip]
        let expected = [
            0x0a, 0x0d, 0x0d, 0x0a, 52, 0, 0, 0,
            0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
            255, 255, 255, 255, 255, 255, 255, 255,
            1, 0, 3, 0, b'a', b'l', b'l', 0,
            4, 0, 8, 0, b'r', b'i', b'n', b'g', b'g', b'a', b't', b'e',
            0, 0, 0, 0, 52, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn an_interface_is_written_byte_by_byte() {
        let mut out = Vec::new();
        interface(&mut out, "eu", 0x1234);
        #[rustfmt::skip]
        let expected = [
            1, 0, 0, 0, 40, 0, 0, 0,
            101, 0, 0, 0, 0x34, 0x12, 0, 0,
            2, 0, 2, 0, b'e', b'u', 0, 0,
            9, 0, 1, 0, 9, 0, 0, 0,
            0, 0, 0, 0, 40, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_packet_is_written_byte_by_byte() {
        let mut out = Vec::new();
        let unix_ns = 0x0102_0304_0506_0708;
        let (way, comment) = (Way::Outbound, "ok");
        let bytes = &[0x45, 1, 2, 3, 4];
        packet(&mut out, &Packet { interface: 3, unix_ns, way, bytes, len: 9, comment });
        #[rustfmt::skip]
        let expected = [
            6, 0, 0, 0, 60, 0, 0, 0,
            3, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5,
            5, 0, 0, 0, 9, 0, 0, 0, 0x45, 1, 2, 3, 4, 0, 0, 0,
            2, 0, 4, 0, 2, 0, 0, 0,
            1, 0, 2, 0, b'o', b'k', 0, 0,
            0, 0, 0, 0, 60, 0, 0, 0,
        ];
        assert_eq!(out, expected);
        let inbound =
            Packet { interface: 0, unix_ns, way: Way::Inbound, bytes, len: 5, comment: "" };
        out.clear();
        packet(&mut out, &inbound);
        assert_eq!(out[36..44], [2, 0, 4, 0, 1, 0, 0, 0]);
        assert_eq!(out.len(), 52, "no comment takes no room");
    }

    #[test]
    fn counts_are_written_byte_by_byte() {
        let mut out = Vec::new();
        let (began_unix_ns, ended_unix_ns) = (1 << 32 | 2, 3 << 32 | 4);
        statistics(
            &mut out,
            &Statistics {
                interface: 1,
                began_unix_ns,
                ended_unix_ns,
                matched: 7,
                lost: 5,
                comment: "",
            },
        );
        #[rustfmt::skip]
        let expected = [
            5, 0, 0, 0, 76, 0, 0, 0,
            1, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0,
            2, 0, 8, 0, 1, 0, 0, 0, 2, 0, 0, 0,
            3, 0, 8, 0, 3, 0, 0, 0, 4, 0, 0, 0,
            4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            5, 0, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 76, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }
}
