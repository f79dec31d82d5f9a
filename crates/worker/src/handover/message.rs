//! What predecessor and successor say to each other.
//!
//! Each message is one packet with a line of JSON, so that either side can be older: fields are
//! added, and what a reader does not know it skips. Lists that may be long lie in memory of their
//! own ([`Facts`], [`Given`]), whose length a message tells.

use std::net::SocketAddr;
use std::path::PathBuf;

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
    },
    /// It may prepare. Comes with descriptors: the facts, then the memory of each stream.
    Welcome {
        /// How long the facts are.
        facts_bytes: u64,
    },
    /// Its config fits, and its drivers are there. From now on it may be given something.
    Prepared,
    /// What is known while the predecessor still serves, and does not change until the barrier.
    /// Comes with its memory, behind the descriptors of listeners.
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
    /// Descriptors, in the order of the rows of what is given.
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

/// The version of the conversation. Another one is refused.
pub const CONVERSATION: u32 = 1;

/// What a successor has to know before it prepares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The predecessor's release.
    pub release: String,
    /// Its process id.
    pub pid: u32,
    /// Processes that have had this gateway so far, itself included.
    pub generation: u64,
    /// How many workers it has.
    pub workers: u16,
    /// Where the clock of its workers begins, in nanoseconds of this boot's monotonic clock.
    pub epoch_ns: u64,
    /// When the first process of this gateway started.
    pub started_unix_s: u64,
    /// The name and the addresses of each listener, with the ports that the kernel has chosen.
    pub listeners: Vec<(String, Vec<SocketAddr>)>,
    /// Those of them that drain. A process of an earlier release says nothing.
    #[serde(default)]
    pub leaving: Option<Vec<LeavingRow>>,
    /// Where the sockets for game processes and operators are.
    pub run_dir: PathBuf,
    /// Whether game processes can connect there.
    pub has_links: bool,
    /// How long the layout is, the beginning of the shared stream, in memory of its own.
    pub layout_bytes: u64,
    /// Where the admin address is, if its descriptor is given.
    pub admin: Option<SocketAddr>,
    /// Where the control socket is, if its descriptor is given.
    pub control: Option<PathBuf>,
    /// Where the socket for the next hand-over is, if its descriptor is given.
    pub next: Option<PathBuf>,
    /// Where game processes register themselves, if its descriptor is given: behind all others.
    #[serde(default)]
    pub announce: Option<PathBuf>,
    /// Where who is denied is written, if the folder's lock is given.
    pub state_dir: Option<PathBuf>,
    /// `NOTIFY_SOCKET` of the service manager, if there is one.
    pub notify: Option<String>,
    /// `WATCHDOG_USEC` of it, if it wants to hear that the gateway lives.
    #[serde(default)]
    pub watchdog_us: Option<String>,
    /// Backends that the config does not have any more, and that still have players.
    pub retired: Vec<BackendRow>,
    /// Those that may have players at the barrier, whichever config has them. A process of an
    /// earlier release says none.
    #[serde(default)]
    pub backends: Vec<BackendRow>,
    /// The interface that packets come by past the kernel's sockets, if its descriptors are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardRow>,
}

/// An interface with the gateway's program on it. Its descriptors are the last ones that come with
/// the welcome: what holds the program, its three tables, and for each worker the socket of its
/// queue and the memory of its frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRow {
    /// Its name.
    pub interface: String,
    /// How many queues the config asks for.
    pub wanted_queues: Option<u32>,
    /// The mode that the config asks for.
    pub wanted_mode: String,
    /// Queues that the program knows.
    pub queues: u32,
    /// The kernel runs the program itself.
    pub is_generic: bool,
    /// Frames to receive and to send of each queue, and their bytes.
    pub sizes: [u32; 3],
    /// Where in its memory each worker's frames begin.
    pub bases: Vec<u64>,
    /// Frames to send have room in front of them for a note to who sends them.
    #[serde(default)]
    pub takes_notes: bool,
}

/// What a worker has of its queue at the barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardGiven {
    /// The frames that are not the kernel's.
    pub frames: Vec<u32>,
    /// What the program and the kernel have counted, which go on counting.
    pub counted: Vec<u64>,
}

/// A listener that drains. What it tells its workers stands in the layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingRow {
    /// Its number in the layout.
    pub number: u16,
    /// When those who are left are told to leave, on the workers' clock.
    pub until_ns: u64,
    /// Its frames come by the interface.
    pub by_card: bool,
    /// What its last config said.
    pub made_with: MadeWith,
}

/// What a listener's sockets were made with, as its config said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeWith {
    /// Its addresses. A port of 0 had the kernel choose one.
    pub binds: Vec<SocketAddr>,
    /// They refuse in the kernel what cannot be its.
    pub filter: bool,
    /// The interface that was asked for, as text: only compared.
    pub card: Option<String>,
}

/// A backend that a successor keeps for its players, where its own config does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendRow {
    /// Its name.
    pub name: String,
    /// Where it listens; `None` where it connects to us.
    pub address: Option<SocketAddr>,
    /// How many players it takes.
    pub slots: u32,
    /// How long it may be gone.
    pub grace_ns: u64,
    /// What its players speak, or those who may come: a word of the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<String>,
    /// How many players it had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players: Option<u32>,
}

/// What a successor gets before the barrier, apart from the state itself: the control thread
/// changes none of it from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Early {
    /// A row for each descriptor, in the order in which they were sent.
    pub sockets: Vec<SocketRow>,
    /// Backends that an operator sends nobody to, and until when, on the workers' clock.
    pub drained: Vec<(String, Option<u64>)>,
    /// When the players of backends have to leave that may be in no config any more: the name of
    /// each, and where it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deadlines: Vec<(String, Option<SocketAddr>, u64)>,
    /// Who is denied, as the file would have it.
    pub denied: String,
}

/// What a successor gets at the barrier, apart from the state itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// A row for each descriptor that was not given before, in the order in which they were sent.
    pub sockets: Vec<SocketRow>,
    /// What each worker's driver and loop have counted.
    pub counted: Vec<Vec<u64>>,
    /// What the control plane has counted.
    pub control: Vec<u64>,
    /// What was shown of latencies last.
    #[serde(default)]
    pub latencies: Vec<Latency>,
    /// What each worker has of its queue, where there is an interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardGiven>,
    /// When the workers were told to rest, on their clock.
    #[serde(default)]
    pub since_ns: u64,
    /// What the log was told.
    #[serde(default)]
    pub told: Told,
    /// Signals that came meanwhile, and wait to be obeyed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<i32>,
    /// What the gateway is registered as in its fleet, where it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetRow>,
    /// How long the memory is that comes with this message behind its own: connections of agents.
    #[serde(default)]
    pub trunk_bytes: u64,
    /// How many descriptors of theirs came behind those of the rows.
    #[serde(default)]
    pub trunk_sockets: u32,
}

/// A worker's durations by the names of their stages: how many nanoseconds, and how often.
pub type Recorded = Vec<(String, Vec<(u64, u64)>)>;

/// One stage, as pages show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Its name.
    pub stage: String,
    /// Of which listener, where it is not of all. These stand behind those that are of all, whose
    /// names earlier releases look for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// How many were recorded in the last interval, the longest of them, and their quantiles.
    pub interval: (u64, u64, Vec<u64>),
    /// How long all were together since the first process began, and how many fell into each
    /// bucket.
    pub sums: (u64, Vec<u64>),
}

/// What the log was told of, by name: so nothing is told again, and nothing is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Whether each backend was up.
    pub backends: Vec<(String, bool)>,
    /// Backends that take nobody new by their own word.
    #[serde(default)]
    pub closed: Vec<String>,
    /// Whether each listener was full.
    pub full: Vec<(String, bool)>,
    /// How many links were refused, by the reason.
    pub links: Vec<(String, u64)>,
    /// How many sessions have ended, by the reason.
    pub ended: Vec<(String, u64)>,
    /// How many players were refused, by the reason, and when that was told last, on the workers'
    /// clock.
    pub refused: Vec<(String, u64, Option<u64>)>,
}

/// A registration, which the successor goes on with: nobody else sees that the process changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRow {
    /// Which start of the gateway this is.
    pub instance: String,
    /// Its lease; 0 for none.
    pub lease: i64,
    /// Earlier ones, whose keys may still be there.
    pub former: Vec<i64>,
    /// What stands under the lease.
    pub keys: Vec<String>,
    /// What game processes have said that registered themselves.
    #[serde(default)]
    pub announced: Vec<Vec<u8>>,
    /// Names, whose each is, and whether its process has been linked.
    #[serde(default)]
    pub owned: Vec<(String, u32, bool)>,
    /// By name: whose players have come to them lately.
    #[serde(default)]
    pub joined: Vec<(String, Vec<u64>)>,
    /// Questions of operators that were answered, and until when each could be believed.
    #[serde(default)]
    pub asked: Vec<(String, u64)>,
    /// Players who have left and of whom the fleet does not know that yet: group and client id.
    #[serde(default)]
    pub left: Vec<(String, u64)>,
}

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRow {
    /// Whose it is.
    pub worker: u16,
    /// What it is, as a driver has to know.
    pub kind: u8,
    /// Its number in the predecessor's driver, by which the streams name it.
    pub id: u32,
    /// The listener and the position of the address, where it is a listener's.
    pub player: Option<(u16, u16)>,
}

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
            Message::Welcome { facts_bytes: 5 },
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
