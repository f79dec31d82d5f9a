//! An attacker on the path: sees datagrams go by, keeps some, and sends any datagram from any
//! address.
//!
//! It knows no key. So nothing that it sends may be delivered to anybody, end anything, or keep
//! anything alive.

use super::network::Datagram;
use super::random::Random;
use ringgate_batch::Endpoint;
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;

/// An attacker with a tape.
pub struct Attacker {
    tape: Vec<Datagram>,
    protocol_id: u64,
}

impl Attacker {
    /// One that knows which game it is.
    pub const fn new(protocol_id: u64) -> Self {
        Self { tape: Vec::new(), protocol_id }
    }

    /// Sees a datagram go by.
    pub fn overhear(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8], random: &mut Random) {
        let recorded = Datagram { from, to, bytes: bytes.to_vec() };
        if self.tape.len() < TAPE_MAX {
            self.tape.push(recorded);
        } else if random.chance(50) {
            let at = random.within(0..TAPE_MAX as u64) as usize;
            self.tape[at] = recorded;
        }
    }

    /// Something to be sent, in either direction.
    pub fn strike(&self, random: &mut Random, now_unix_s: u64) -> Option<Datagram> {
        let Datagram { from, to, bytes } = random.pick(&self.tape)?;
        let (from, to, bytes) = (*from, *to, bytes.clone());
        Some(match random.within(0..8) {
            0 | 1 => Datagram { from, to, bytes },
            2 => Datagram { from: from.with_port(random.word() as u16), to, bytes },
            3 => Datagram { from: stranger(random), to, bytes },
            4 | 5 => Datagram { from, to, bytes: damaged(bytes, random) },
            6 => Datagram { from: stranger(random), to, bytes: junk(random) },
            _ => Datagram {
                from: if random.chance(500) { from } else { stranger(random) },
                to,
                bytes: self.false_request(random, now_unix_s),
            },
        })
    }

    /// A request that looks right until its token is opened.
    fn false_request(&self, random: &mut Random, now_unix_s: u64) -> Vec<u8> {
        let mut request = vec![0; REQUEST_BYTES];
        random.fill(&mut request[1..]);
        request[1..14].copy_from_slice(VERSION_INFO);
        request[14..22].copy_from_slice(&self.protocol_id.to_le_bytes());
        request[22..30].copy_from_slice(&(now_unix_s + 100).to_le_bytes());
        request
    }
}

fn stranger(random: &mut Random) -> Endpoint {
    let [a, b, c, d] = random.bytes();
    Endpoint::v4([198, 18 + a % 2, b, c], u16::from(d) + 1024)
}

fn junk(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; random.within(0..1400) as usize];
    random.fill(&mut bytes);
    bytes
}

/// Changes a byte, the length, or the sequence number.
fn damaged(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let len = bytes.len();
    match random.within(0..3) {
        0 if len > 0 => bytes[random.within(0..len as u64) as usize] ^= 1 << random.within(0..8),
        1 => bytes.truncate(random.within(0..len as u64 + 1) as usize),
        _ => bytes.iter_mut().skip(1).take(3).for_each(|byte| *byte = byte.wrapping_add(1)),
    }
    bytes
}

/// Datagrams on the tape.
const TAPE_MAX: usize = 256;
