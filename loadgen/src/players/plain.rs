//! Players of a game whose protocol nobody knows: a datagram is a payload, with a token at one end
//! of it and a number inside where a gateway looks for them.
//!
//! Token and number are put around the stamped payload, not over it, so that every byte of the
//! payload is judged as in other protocols. What answers may have taken the token away, as a
//! gateway does that routes by it; it may not have touched anything else.

use std::sync::Arc;

use ringgate_batch::Endpoint;

use crate::rng::mix;
use ringgate_bots::stamp::{STAMP_BYTES, Stamp};

/// What plain players say, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Any UDP echo, or what leads to one.
    pub server: Endpoint,
    /// Tokens, all of one length; players take turns. Without any nothing is put around payloads.
    pub tokens: Arc<[Box<[u8]>]>,
    /// Where they stand.
    pub token_at: TokenAt,
    /// A number that counts each player's datagrams.
    pub sequence: Option<Sequence>,
}

/// Where a token stands in a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TokenAt {
    /// At the end
    #[default]
    End,
    /// At the start
    Start,
}

/// Where a number stands in a datagram, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Bytes before it, those of a token at the start included.
    pub offset: usize,
    /// Its bytes: 1, 2 or 4.
    pub bytes: usize,
}

impl Sequence {
    /// Where it ends.
    pub(crate) const fn end(self) -> usize {
        self.offset + self.bytes
    }

    /// So many numbers there are.
    pub const fn range(self) -> u64 {
        1 << (8 * self.bytes)
    }

    /// The number of a session's datagram. Sessions begin anywhere, so some of them wrap soon.
    fn number(self, session: u32, counter: u32) -> u32 {
        let first = mix(u64::from(session) ^ 0x5e9) as u32;
        (u64::from(first.wrapping_add(counter)) % self.range()) as u32
    }

    pub(crate) fn write(self, number: u32, datagram: &mut [u8]) {
        let field = &mut datagram[self.offset..self.offset + self.bytes];
        field.copy_from_slice(&number.to_be_bytes()[4 - self.bytes..]);
    }
}

impl Plain {
    /// Nothing but payloads.
    pub fn bare(server: Endpoint) -> Self {
        Self { server, tokens: Arc::new([]), token_at: TokenAt::End, sequence: None }
    }

    /// What is wrong with it, in one sentence.
    pub fn check(&self) -> Result<(), String> {
        let len = self.token_bytes();
        if self.tokens.iter().any(|token| token.len() != len) {
            return Err("tokens of one listener have one length".into());
        }
        if !self.tokens.is_empty() && !(1..=TOKEN_BYTES_MAX).contains(&len) {
            return Err(format!("a token has 1 to {TOKEN_BYTES_MAX} bytes"));
        }
        let Some(Sequence { offset, bytes }) = self.sequence else { return Ok(()) };
        let before = self.before();
        if offset < before {
            return Err(format!("offset {offset} lies in the token at the start"));
        }
        let last = before + STAMP_BYTES + OVERHEAD_BYTES - bytes;
        if offset > last {
            return Err(format!("offset {offset} lies beyond {last}, in the shortest datagram"));
        }
        Ok(())
    }

    /// Writes the datagram of a payload of so many bytes. Returns its length.
    pub(super) fn write(&self, stamp: &Stamp, len: usize, out: &mut [u8]) -> usize {
        let (start, token) = (self.before(), self.token(stamp.session));
        let mut end = start + len + OVERHEAD_BYTES;
        stamp.write(&mut out[start..end]);
        if let Some(sequence) = self.sequence {
            out.copy_within(sequence.offset..end, sequence.offset + sequence.bytes);
            sequence.write(sequence.number(stamp.session, stamp.counter), out);
            end += sequence.bytes;
        }
        match self.token_at {
            TokenAt::Start => out[..token.len()].copy_from_slice(token),
            TokenAt::End => {
                out[end..end + token.len()].copy_from_slice(token);
                end += token.len();
            }
        }
        end
    }

    /// The payload in what has come back to a session: the same datagram, or the same without its
    /// token. Anything else is left as it is, for others to judge.
    pub(super) fn payload<'a>(&self, session: u32, datagram: &'a mut [u8]) -> &'a [u8] {
        if self.tokens.is_empty() && self.sequence.is_none() {
            return datagram;
        }
        let token = self.token(session);
        let has_token = match self.token_at {
            TokenAt::Start => datagram.starts_with(token),
            TokenAt::End => datagram.ends_with(token),
        };
        // A payload may end like a token by chance.
        let ways = [(has_token && !token.is_empty(), token.len()), (true, 0)];
        for (_, bytes) in ways.into_iter().filter(|(is_possible, _)| *is_possible) {
            let (from, to) = match self.token_at {
                TokenAt::Start => (bytes, datagram.len()),
                TokenAt::End => (0, datagram.len() - bytes),
            };
            if let Some(skip) = self.uncover(session, &mut datagram[from..to]) {
                return &datagram[from + skip..to];
            }
        }
        datagram
    }

    /// Brings a payload together around whose number it lies. Returns where it begins; `None` where
    /// it is none of the session's, and then nothing has changed.
    fn uncover(&self, session: u32, body: &mut [u8]) -> Option<usize> {
        let Some(Sequence { bytes, offset }) = self.sequence else {
            return Stamp::read(body).map(|_| 0);
        };
        let offset = offset - self.before();
        let head = body.get_mut(..offset + bytes)?;
        let number = head[offset..].iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
        head.rotate_right(bytes);
        let is_ours = |stamp: Stamp| {
            self.sequence.is_some_and(|field| field.number(session, stamp.counter) == number)
        };
        if Stamp::read(&body[bytes..]).is_some_and(is_ours) {
            return Some(bytes);
        }
        body[..offset + bytes].rotate_left(bytes);
        None
    }

    /// A player's token.
    pub(crate) fn token(&self, session: u32) -> &[u8] {
        match self.tokens.len() {
            0 => &[],
            many => &self.tokens[session as usize % many],
        }
    }

    /// Bytes of a token.
    pub(crate) fn token_bytes(&self) -> usize {
        self.tokens.first().map_or(0, |token| token.len())
    }

    /// Bytes that a datagram must have to hold token and number.
    pub(crate) fn needs(&self) -> usize {
        self.sequence.map_or(0, Sequence::end).max(self.token_bytes())
    }

    /// Bytes before the payload.
    fn before(&self) -> usize {
        if self.token_at == TokenAt::Start { self.token_bytes() } else { 0 }
    }
}

/// The longest token.
pub(crate) const TOKEN_BYTES_MAX: usize = 64;

/// Payloads are longer by what netcode adds to one (prefix, four sequence bytes, tag), so that
/// datagrams of both protocols have one length.
pub(crate) const OVERHEAD_BYTES: usize = 1 + 4 + 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(tokens: &[&[u8]], token_at: TokenAt, sequence: Option<(usize, usize)>) -> Plain {
        Plain {
            tokens: tokens.iter().map(|token| Box::from(*token)).collect(),
            token_at,
            sequence: sequence.map(|(offset, bytes)| Sequence { offset, bytes }),
            ..Plain::bare(Endpoint::v4([127, 0, 0, 1], 9))
        }
    }

    fn stamp(session: u32, counter: u32) -> Stamp {
        Stamp { run: 7, session, counter, intended_ns: 5, late_ns: 1 }
    }

    fn all() -> impl Iterator<Item = Plain> {
        let tokens: [&[&[u8]]; 4] = [&[], &[&[9]], &[&[1; 8], &[2; 8]], &[&[3; 64]]];
        let ats = [TokenAt::End, TokenAt::Start];
        let fields = [None, Some((0, 1)), Some((3, 2)), Some((17, 4)), Some((45, 4))];
        tokens.into_iter().flat_map(move |tokens| {
            ats.into_iter().flat_map(move |at| {
                fields.into_iter().map(move |field| {
                    let before = if at == TokenAt::Start {
                        tokens.first().map_or(0, |token| token.len())
                    } else {
                        0
                    };
                    plain(tokens, at, field.map(|(offset, bytes)| (before + offset, bytes)))
                })
            })
        })
    }

    #[test]
    fn what_is_echoed_is_read_with_its_token_and_without() {
        for plain in all() {
            assert_eq!(plain.check(), Ok(()), "{plain:?}");
            for counter in 0..300 {
                let (session, mut out) = (5 + counter % 2, [0xaa; 1600]);
                let stamp = stamp(session, counter);
                let len = plain.write(&stamp, 28 + counter as usize, &mut out);
                let mut echo = out[..len].to_vec();
                assert_eq!(Stamp::read(plain.payload(session, &mut echo)), Some(stamp));
                let stripped = match plain.token_at {
                    TokenAt::Start => plain.token_bytes()..len,
                    TokenAt::End => 0..len - plain.token_bytes(),
                };
                let mut echo = out[stripped].to_vec();
                assert_eq!(Stamp::read(plain.payload(session, &mut echo)), Some(stamp));
            }
        }
    }

    #[test]
    fn no_bit_may_differ_but_the_token_s_which_belongs_to_nobody() {
        for plain in all() {
            let mut out = [0; 1600];
            let stamp = stamp(6, 1000);
            let len = plain.write(&stamp, 100, &mut out);
            for bit in 0..len * 8 {
                let mut echo = out[..len].to_vec();
                echo[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Stamp::read(plain.payload(6, &mut echo)), None, "{plain:?} {bit}");
            }
        }
    }

    #[test]
    fn numbers_count_each_session_s_datagrams_and_wrap() {
        let plain = plain(&[], TokenAt::End, Some((3, 2)));
        let number = |counter| {
            let mut out = [0; 1600];
            plain.write(&stamp(9, counter), 40, &mut out);
            u16::from_be_bytes([out[3], out[4]])
        };
        let numbers: Vec<_> = (0..70_000).map(number).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0].wrapping_add(1)));
        assert_ne!(
            Sequence { offset: 0, bytes: 2 }.number(1, 0),
            Sequence { offset: 0, bytes: 2 }.number(2, 0)
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (plain, expected) in [
            (plain(&[&[1; 4], &[2; 5]], TokenAt::End, None), "one length"),
            (plain(&[&[]], TokenAt::End, None), "1 to 64"),
            (plain(&[&[1; 65]], TokenAt::End, None), "1 to 64"),
            (plain(&[&[1; 8]], TokenAt::Start, Some((7, 2))), "in the token"),
            (plain(&[], TokenAt::End, Some((48, 2))), "beyond 47"),
        ] {
            let why = plain.check().expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
