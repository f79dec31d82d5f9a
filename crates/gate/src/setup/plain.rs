//! The rules of a plain listener: any game over UDP, of whose protocol only what is said here is
//! known.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::ids::BackendId;
use ringgate_core::proto::plain::Field;
use ringgate_core::proto::replay::Policy;

/// The rules of a plain listener. Its backends are on bundle links, or on a udp link on this host's
/// loopback.
#[derive(Clone, Debug)]
pub struct Plain {
    /// What every datagram has at its start or end and what [`Route::Token`](super::Route::Token)
    /// goes by.
    pub token: Option<Token>,
    /// Where every datagram has a number, and what is done with it.
    pub sequence: Option<Sequence>,
    /// What every datagram begins with.
    pub begins_with: Vec<u8>,
    /// Silence of a player after which it is given up.
    pub idle_ns: u64,
    /// Silence of a source that has not answered an answer yet, after which it is given up.
    pub half_open_ns: u64,
    /// How long a source may not begin again, after a gap has ended its session.
    pub rest_ns: u64,
    /// Half-open sessions that one worker has at most; those that began first make room.
    pub half_open_max: u32,
    /// A half-open session's source gets at most so many times the bytes that it has sent; 0 for as
    /// many as come.
    pub answer_times: u32,
    /// What the source of an open session is sent, unless an echo has proven it.
    pub credit: Credit,
    /// What proves a source, where the game has such a thing.
    pub echo: Option<Echo>,
    /// Players whom no echo has proven hold at most so many of a hundred slots of a server.
    pub unproven_percent: u32,
    /// Sessions that the sources of one block may begin, a second, at each worker; 0 for as many as
    /// come.
    pub starts_per_block: u32,
    /// Sessions that may begin at each worker, a second; 0 for as many as come.
    pub starts_total: u32,
}

impl Default for Plain {
    /// What a listener has where its configuration says nothing.
    fn default() -> Self {
        Self {
            token: None,
            sequence: None,
            begins_with: Vec::new(),
            idle_ns: 60_000_000_000,
            half_open_ns: 2_000_000_000,
            rest_ns: 2_000_000_000,
            half_open_max: 4096,
            answer_times: 3,
            credit: Credit::default(),
            echo: None,
            unproven_percent: 100,
            starts_per_block: 500,
            starts_total: 10_000,
        }
    }
}

/// What the source of an open session is sent while nothing proves that it is where it says: as
/// much as was heard of it pays for. Both count a datagram with the headers of IPv4 and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// So many bytes for each one heard; 0 for as many as come.
    pub ratio: u32,
    /// What is earned and not sent is kept up to so many bytes.
    pub burst: u32,
    /// Silence after which a source is sent nothing until it is heard; 0 for never.
    pub pause_ns: u64,
}

impl Default for Credit {
    /// Lets a player through who is heard once a second, by datagrams of 4 bytes, and is sent 30 of
    /// a kilobyte.
    fn default() -> Self {
        Self { ratio: 1000, burst: 128 << 10, pause_ns: 5_000_000_000 }
    }
}

ringgate_core::carried!(Credit { ratio, burst, pause_ns as time });

/// Where a server's datagrams have four bytes that the player's have after them: a player that
/// sends them back has been where they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Bytes before them in a server's datagram.
    pub sent: u16,
    /// Bytes before them in a player's, as it is received.
    pub heard: u16,
}

ringgate_core::carried!(Echo { sent, heard });

/// Where datagrams have their token, and the backend of each.
#[derive(Clone, Debug)]
pub struct Token {
    /// Where it is.
    pub at: TokenPlace,
    /// How long it is: from 1 to [`TOKEN_BYTES_MAX`](Self::TOKEN_BYTES_MAX).
    pub bytes: u8,
    /// Whether game servers get datagrams without it.
    pub strip: bool,
    /// Whose it is. Shared, because there may be thousands.
    pub backends: Arc<Tokens>,
}

impl Token {
    /// The longest token.
    pub const TOKEN_BYTES_MAX: usize = 64;

    /// The token of a datagram, and the datagram without it; `None` where it is too short.
    #[inline]
    pub(crate) fn split<'a>(&self, datagram: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let len = usize::from(self.bytes);
        match self.at {
            TokenPlace::Start => datagram.split_at_checked(len),
            TokenPlace::End => {
                let (rest, token) = datagram.split_at_checked(datagram.len().checked_sub(len)?)?;
                Some((token, rest))
            }
        }
    }
}

/// Where a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// A datagram's last bytes.
    End,
    /// A datagram's first bytes.
    Start,
}

/// The backend of every token of a listener: found at the same cost however many there are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(HashMap<Box<[u8]>, BackendId>);

impl Tokens {
    /// The backend that a token stands for.
    pub fn get(&self, token: &[u8]) -> Option<BackendId> {
        self.0.get(token).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: AsRef<[u8]>> FromIterator<(T, BackendId)> for Tokens {
    fn from_iter<A: IntoIterator<Item = (T, BackendId)>>(all: A) -> Self {
        Self(all.into_iter().map(|(token, backend)| (token.as_ref().into(), backend)).collect())
    }
}

/// Tokens may be secrets: only their number is told.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.len())
    }
}

/// The sequence guard: where datagrams, as they are received, have their number, and what follows
/// from it. Nothing is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Where the number is.
    pub field: Field,
    /// The window, and the jump that ends a session. Both are
    /// [below half the number's range](ringgate_core::proto::plain::Width::holds).
    pub policy: Policy,
    /// Whether the copies of a server's datagrams are told too.
    pub both: bool,
}

ringgate_core::carried!(Sequence { field, policy, both });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_split_off_where_it_is() {
        let split = |at, bytes, datagram| {
            let token = Token { at, bytes, strip: true, backends: Arc::default() };
            token.split(datagram)
        };
        assert_eq!(split(TokenPlace::Start, 2, b"abcde"), Some((&b"ab"[..], &b"cde"[..])));
        assert_eq!(split(TokenPlace::End, 2, b"abcde"), Some((&b"de"[..], &b"abc"[..])));
        assert_eq!(split(TokenPlace::End, 5, b"abcde"), Some((&b"abcde"[..], &b""[..])));
        assert_eq!(split(TokenPlace::End, 6, b"abcde"), None);
        assert_eq!(split(TokenPlace::Start, 6, b"abcde"), None);
    }

    #[test]
    fn tokens_are_found_and_not_told() {
        let tokens: Tokens = [(b"one", BackendId(1)), (b"two", BackendId(2))].into_iter().collect();
        assert_eq!((tokens.get(b"two"), tokens.get(b"six")), (Some(BackendId(2)), None));
        assert_eq!(format!("{tokens:?}"), "2 tokens");
    }
}
