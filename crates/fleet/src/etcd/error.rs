//! What can go wrong with a request, sorted by what a caller does about it.

use std::fmt;

/// The codes of gRPC that etcd uses, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// Done.
    pub const OK: Self = Self(0);
    /// A mistake in the request; also what etcd says of wrong passwords.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// The server had no time left for it.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// There is no such lease.
    pub const NOT_FOUND: Self = Self(5);
    /// The user may not do that.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// Not now: also what etcd says of a lease id that is taken, and of being without a leader.
    pub const FAILED_PRECONDITION: Self = Self(9);
    /// The revision was compacted, or lies ahead.
    pub const OUT_OF_RANGE: Self = Self(11);
    /// The member cannot serve: it starts, stops, or has no leader.
    pub const UNAVAILABLE: Self = Self(14);
    /// The token of this login ended, or its member has forgotten it.
    pub const UNAUTHENTICATED: Self = Self(16);
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server said no.
    Status {
        /// What kind of no.
        code: Code,
        /// The server's words, cut to a line.
        message: String,
    },
    /// The answer is no message of etcd's.
    Malformed(&'static str),
    /// The answer is larger than anything that we ask for.
    TooLarge,
    /// No connection, or it broke.
    Transport(String),
    /// No answer in time.
    Timeout,
    /// The configuration cannot work: files, names, addresses.
    Config(String),
}

impl Error {
    /// An answer that says no.
    pub fn status(code: Code, message: &str) -> Self {
        let message = message.chars().filter(|it| !it.is_control()).take(MESSAGE_CHARS_MAX);
        Self::Status { code, message: message.collect() }
    }

    /// A connection's failure with what lies below it, in one line.
    pub fn broken(why: &dyn std::error::Error) -> Self {
        let mut text = why.to_string();
        let mut below = why.source();
        while let Some(cause) = below {
            text = format!("{text}: {cause}");
            below = cause.source();
        }
        Self::Transport(text)
    }

    /// Whether the revision that was asked for is compacted.
    pub fn is_compacted(&self) -> bool {
        matches!(self, Self::Status { code: Code::OUT_OF_RANGE, message } if message.contains("compacted"))
    }

    /// Whether etcd takes no writes any more, because it has no space left.
    pub fn lacks_space(&self) -> bool {
        matches!(self, Self::Status { message, .. } if message.contains("database space exceeded"))
    }

    /// Whether there is no such lease.
    pub fn is_lease_gone(&self) -> bool {
        matches!(self, Self::Status { code: Code::NOT_FOUND, .. })
    }

    /// Whether another login may help: etcd has forgotten the token, or never had it because the
    /// member was restarted, or the users have been changed meanwhile.
    pub fn wants_login(&self) -> bool {
        match self {
            Self::Status { code: Code::UNAUTHENTICATED, .. } => true,
            Self::Status { code: Code::INVALID_ARGUMENT, message } => {
                message.contains("user name is empty") || message.contains("revision of auth store")
            }
            _ => false,
        }
    }

    /// Whether another member may do better.
    pub fn blames_member(&self) -> bool {
        match self {
            Self::Status { code, .. } => {
                matches!(*code, Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED)
            }
            Self::Malformed(_) | Self::TooLarge | Self::Transport(_) | Self::Timeout => true,
            Self::Config(_) => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, message } => write!(f, "{message} (code {})", code.0),
            Self::Malformed(what) => write!(f, "the answer is malformed: {what}"),
            Self::TooLarge => f.write_str("the answer is too large"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Transport(why) | Self::Config(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// A server's message goes into logs and pages.
const MESSAGE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let status = |code, message| Error::status(code, message);
        let compacted =
            status(Code::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted");
        assert!(compacted.is_compacted() && !compacted.blames_member());
        let ahead =
            status(Code::OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision");
        assert!(!ahead.is_compacted());
        assert!(status(Code::UNAUTHENTICATED, "etcdserver: invalid auth token").wants_login());
        assert!(status(Code::INVALID_ARGUMENT, "etcdserver: user name is empty").wants_login());
        assert!(status(Code::UNAVAILABLE, "etcdserver: no leader").blames_member());
        assert!(status(Code::NOT_FOUND, "etcdserver: requested lease not found").is_lease_gone());
    }

    #[test]
    fn a_servers_words_are_cut_to_a_line() {
        let long = "a\nb\u{1b}[31m".to_owned() + &"x".repeat(1000);
        let Error::Status { message, .. } = Error::status(Code(2), &long) else { panic!() };
        assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX);
        assert!(message.starts_with("ab[31mx"));
    }
}
