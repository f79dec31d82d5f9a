//! What predecessor and successor say to each other.
//!
//! Each message is one packet with a line of JSON, so that either side can be older: fields are
//! added, and what a reader does not know it skips. What may be long lies in memory of its own,
//! whose length a message tells.

use serde::{Deserialize, Serialize};

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Message {
    /// The successor is there. The first word.
    Hello {
        /// What it speaks: [`CONVERSATION`].
        conversation: u32,
        /// Its release, for logs.
        release: String,
        /// Its process id, for logs and for the service manager.
        pid: u32,
        /// Whether it can go on with connections of agents.
        #[serde(default)]
        trunks: bool,
        /// Whether it can go on with listeners that drain.
        #[serde(default)]
        leaving: bool,
        /// Whether it reads what is given as sections. A release that does not gets the bytes of
        /// each section in memory of its own, and its sockets in front of them.
        #[serde(default)]
        sections: bool,
        /// Whether it takes as many descriptors with what is given as it may have open.
        #[serde(default, rename = "descriptors")]
        any: bool,
    },
    /// It may prepare. Comes with the memory of what it has to know.
    Welcome {
        /// How long that is.
        facts_bytes: u64,
        /// Whether that and what follows are sections.
        #[serde(default)]
        sections: bool,
    },
    /// Its config fits, and its drivers are there. From now on it may be given something.
    Prepared,
    /// What is known while the predecessor still serves, and does not change until the barrier.
    /// Comes with its memory.
    Early {
        /// How long it is.
        early_bytes: u64,
    },
    /// A part of each stream was written ahead, at the beginning of its memory.
    Ahead {
        /// How much of the shared stream.
        shared_bytes: u64,
        /// How much of each worker's.
        worker_bytes: Vec<u64>,
    },
    /// The successor has taken that in, so the memory may be written to again.
    Read,
    /// Descriptors of what is given next, where that is not in sections.
    Sockets,
    /// Descriptors of the next message, the first ones: it has more than one packet takes.
    More,
    /// The workers stand still. Comes with the memory of the rows.
    Given {
        /// How long the rows are.
        given_bytes: u64,
    },
    /// A part of what is left of each stream, at the beginning of its memory.
    Rest {
        /// How much of the shared stream.
        shared_bytes: u64,
        /// How much of each worker's.
        worker_bytes: Vec<u64>,
        /// Nothing comes behind it. Otherwise the next part follows when this one was read.
        is_last: bool,
    },
    /// From here on the successor is the owner.
    Taken,
    /// The predecessor's workers have ended. Comes with the memory of what they had recorded of
    /// latencies and nobody had asked for: too much to be told while players wait.
    Recorded {
        /// How long that is.
        recorded_bytes: u64,
        /// Signals that came when they could not be obeyed any more.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        signals: Vec<i32>,
    },
    /// The predecessor was not answered in time and is the owner again.
    TakenBack,
    /// It is not to be, and why.
    Refused {
        /// A sentence.
        why: String,
    },
}

/// When something is given beside streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// First of all: what a successor has to know before it prepares.
    Welcome,
    /// What does not change any more until the barrier, in front of what is written ahead.
    Early,
    /// The barrier.
    Given,
}

/// The version of the conversation. Another one is refused.
pub const CONVERSATION: u32 = 1;

impl Message {
    /// As it goes over the wire.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has no maps with other keys than strings")
    }

    /// `None` where the bytes are no message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// A first word of this release.
    pub fn hello() -> Self {
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Self::Hello {
            conversation: CONVERSATION,
            release,
            pid: std::process::id(),
            trunks: true,
            leaving: true,
            sections: true,
            any: true,
        }
    }

    /// Says that so many bytes are given, as sections or not.
    pub const fn at(moment: Moment, bytes: u64, sections: bool) -> Self {
        match moment {
            Moment::Welcome => Self::Welcome { facts_bytes: bytes, sections },
            Moment::Early => Self::Early { early_bytes: bytes },
            Moment::Given => Self::Given { given_bytes: bytes },
        }
    }

    /// A refusal that fits a packet.
    pub fn refused(why: &impl ToString) -> Self {
        let mut why = why.to_string();
        while why.len() > WHY_BYTES_MAX {
            why.pop();
        }
        Self::Refused { why }
    }
}

const WHY_BYTES_MAX: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    /// As the config has it.
    const WORKERS_MAX: usize = 256;

    #[test]
    fn messages_come_back_as_they_went() {
        let all = [
            Message::hello(),
            Message::Welcome { facts_bytes: 5, sections: true },
            Message::Prepared,
            Message::Early { early_bytes: 7 },
            Message::Ahead { shared_bytes: u64::MAX, worker_bytes: vec![u64::MAX; WORKERS_MAX] },
            Message::Read,
            Message::Sockets,
            Message::More,
            Message::Given { given_bytes: u64::MAX },
            Message::Rest {
                shared_bytes: u64::MAX,
                worker_bytes: vec![u64::MAX; WORKERS_MAX],
                is_last: true,
            },
            Message::Taken,
            Message::Recorded { recorded_bytes: u64::MAX, signals: vec![i32::MIN; 64] },
            Message::TakenBack,
            Message::refused(&"é".repeat(5000)),
        ];
        for message in all {
            let bytes = message.encode();
            assert!(bytes.len() < super::super::channel::MESSAGE_BYTES_MAX);
            assert_eq!(Message::decode(&bytes), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_none_and_what_is_new_is_skipped() {
        for bytes in [&b""[..], b"{}", b"GET / HTTP/1.1", b"{\"say\":\"dance\"}", b"\xff"] {
            assert_eq!(Message::decode(bytes), None);
        }
        let later = br#"{"say":"prepared","since":7}"#;
        assert_eq!(Message::decode(later), Some(Message::Prepared));
    }
}
