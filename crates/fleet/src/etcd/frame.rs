//! The envelope of a gRPC message: a flag, a length and that many bytes. What comes in pieces of
//! any size is put together here, and no peer can make us keep more than one message's bound.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::{Code, Error};

/// The largest message that is taken. A page of a range, and a watch response without fragments,
/// are far below it.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Puts a message into its envelope.
pub fn envelope(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(ENVELOPE_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

/// Takes messages out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Frames {
    waiting: BytesMut,
}

impl Frames {
    /// Bytes have come.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next whole message, if it is there.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, Error> {
        let Some((&[flag, a, b, c, d], _)) = self.waiting.split_first_chunk() else {
            return Ok(None);
        };
        if flag != 0 {
            return Err(Error::Malformed("a message is compressed, which was not agreed on"));
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        if self.waiting.len() < ENVELOPE_BYTES + len {
            return Ok(None);
        }
        self.waiting.advance(ENVELOPE_BYTES);
        Ok(Some(self.waiting.split_to(len).freeze()))
    }

    /// Whether a message has begun and not ended.
    pub fn is_partial(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// What a server's trailers, or its headers when it has no more to say, tell of a call's end.
pub fn status(headers: &http::HeaderMap) -> Option<Result<(), Error>> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
    let Some(code) = code else {
        return Some(Err(Error::Malformed("the status is no number")));
    };
    if Code(code) == Code::OK {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map_or(&[][..], |message| message.as_bytes());
    Some(Err(Error::status(Code(code), &unescaped(message))))
}

/// gRPC escapes what is not printable ASCII as `%XX`.
fn unescaped(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut left = message;
    while let [first, rest @ ..] = left {
        let escaped = match rest {
            [a, b, ..] if *first == b'%' => hex_digit(*a).zip(hex_digit(*b)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                left = &rest[2..];
            }
            None => {
                bytes.push(*first);
                left = rest;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

const ENVELOPE_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_however_they_are_cut() {
        let stream = [envelope(b"one"), envelope(b""), envelope(&[7; 300])].concat();
        for piece_len in [1, 2, 5, 7, 100, 1000] {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in stream.chunks(piece_len) {
                frames.extend(piece);
                while let Some(message) = frames.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"one"[..], b"", &[7; 300]]);
            assert!(!frames.is_partial());
        }
    }

    #[test]
    fn what_is_too_large_or_compressed_is_refused_at_its_first_bytes() {
        let mut frames = Frames::default();
        frames.extend(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(frames.next_message(), Err(Error::TooLarge));
        let mut frames = Frames::default();
        frames.extend(&[1, 0, 0, 0, 0]);
        assert!(matches!(frames.next_message(), Err(Error::Malformed(_))));
    }

    #[test]
    fn a_status_is_read_from_trailers() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", "0".parse().unwrap());
        assert_eq!(status(&headers), Some(Ok(())));
        headers.insert("grpc-status", "11".parse().unwrap());
        headers.insert("grpc-message", "100%25 gone%".parse().unwrap());
        assert_eq!(status(&headers), Some(Err(Error::status(Code(11), "100% gone%"))));
        headers.insert("grpc-status", "x".parse().unwrap());
        assert!(matches!(status(&headers), Some(Err(Error::Malformed(_)))));
    }
}
