//! Netlink, whatever is asked: messages with a header, and attributes behind what is fixed. Read
//! like any other input: what is shorter than it says is passed over.

use std::io;

use socket2::{Domain, Protocol, Socket, Type};

/// A connection to a family of the kernel's.
pub fn open(family: i32) -> io::Result<Socket> {
    let domain = Domain::from(libc::AF_NETLINK);
    Socket::new(domain, Type::RAW.cloexec(), Some(Protocol::from(family)))
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What it is, by the family's numbers; [`DONE`] and [`ERROR`] are everybody's.
    pub kind: u16,
    /// The header's.
    pub flags: u16,
    /// That of the question.
    pub sequence: u32,
    /// What stands behind the header.
    pub body: &'a [u8],
}

/// The messages of one datagram.
#[derive(Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let (header, _) = self.0.split_first_chunk::<HEADER_BYTES>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = self.0.get(HEADER_BYTES..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    }
}

/// A question: the header, with the flags of one, and what stands behind it.
pub fn question(kind: u16, flags: i32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let len = HEADER_BYTES + body.len();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // From nobody in particular.
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// The attributes behind so many bytes.
pub fn attributes(body: &[u8], at: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(at..).unwrap_or_default();
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *rest.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(ATTRIBUTE_BYTES..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & KIND_MASK, value))
    })
}

/// Four bytes, by this host's order.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// What could not be done: an errno, negative, in the body's first word.
pub const ERROR: u16 = 2;

/// That was all.
pub const DONE: u16 = 3;

/// Of a message.
const HEADER_BYTES: usize = 16;

const ATTRIBUTE_BYTES: usize = 4;

/// Beside the kind an attribute may say how it is laid out.
const KIND_MASK: u16 = 0x3fff;
