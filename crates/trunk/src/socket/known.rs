//! Links that a worker has already when it is lent their lane: it has them by sockets of which it
//! does not know where they lead, because they are older than the lane, or have come with the
//! process before.
//!
//! Each is *called*: its socket gets a sign, behind all that it was given before, and the worker
//! hears the name of the link with that sign at its desk. Until it has come across it, the worker
//! goes on by the socket, and reads itself what it has said there: nobody else does any more. So
//! both directions change over without a gap, and in order.

use std::io::Read;

use ringgate_core::secret::{KEY_BYTES, Key};
use ringgate_link::bundle::{Frame, Frames};
use socket2::Socket;

/// A record that says which link this is. Nobody can guess it, whom a process might believe to be
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign([u8; SIGN_BYTES]);

/// A record's header, and random bytes.
const SIGN_BYTES: usize = 4 + KEY_BYTES;

/// Of a kind that may be skipped: who has no use for it passes over it.
const HEADER: [u8; 4] = [SIGN_BYTES as u8, 0, 255, 0];

impl Sign {
    pub(crate) fn new() -> std::io::Result<Self> {
        let key = Key::generate().map_err(std::io::Error::other)?;
        let mut bytes = [0; SIGN_BYTES];
        bytes[..HEADER.len()].copy_from_slice(&HEADER);
        bytes[HEADER.len()..].copy_from_slice(key.as_bytes());
        Ok(Self(bytes))
    }

    pub(crate) fn frame(&self) -> Frame<'_> {
        let frame = Frames::new(&self.0).next();
        frame.and_then(Result::ok).expect("a record's header")
    }

    /// Whether it is this record.
    pub fn is(&self, frame: Frame<'_>) -> bool {
        frame.bytes() == self.0
    }
}

/// A link that is called.
#[derive(Debug)]
pub struct CalledLink {
    /// What it is called on its lane.
    pub number: u16,
    /// And at the trunk.
    pub serial: u32,
    /// What its worker will find on it.
    pub sign: Sign,
    /// What its worker has said on it.
    pub said: Said,
}

/// What has been said on a link, as far as nobody has read it.
#[derive(Debug)]
pub struct Said(pub(crate) Socket);

/// The next of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A bundle of so many bytes.
    Bundle(usize),
    /// There is nothing, for now.
    Nothing,
    /// There will not be any more.
    Over,
}

impl Said {
    /// Reads the next bundle.
    pub fn next(&self, bytes: &mut [u8]) -> Next {
        use std::io::ErrorKind::{Interrupted, WouldBlock};
        match (&self.0).read(bytes) {
            Ok(0) => Next::Over,
            Ok(len) => Next::Bundle(len),
            Err(why) if matches!(why.kind(), WouldBlock | Interrupted) => Next::Nothing,
            // The worker has closed it with something unread. What it had said follows.
            Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => Next::Nothing,
            Err(_) => Next::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_link::bundle::ToGateway;

    #[test]
    fn a_sign_is_known_by_who_made_it_and_passed_over_by_others() {
        let [one, other] = [0; 2].map(|_| Sign::new().expect("the system has random bytes"));
        assert!(one.is(one.frame()) && !one.is(other.frame()));
        let read = ToGateway::decode(one.frame());
        assert!(matches!(read, Ok(ToGateway::Unknown(_))), "{read:?}");
        assert!(!one.frame().may_be_lost());
    }
}
