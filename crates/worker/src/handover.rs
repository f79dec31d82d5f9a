//! What a gateway tells its successor beside the state of its workers. It is JSON, so that either
//! side can be older: fields are added, and what a reader does not know it skips.

use std::net::SocketAddr;
use std::path::PathBuf;

use ringgate_process::systemd::ServiceManager;
use ringgate_process::{part_in_bytes, part_in_json};
use serde::{Deserialize, Serialize};

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
    pub leaving: Option<Vec<LeavingRow>>,
    /// Where the sockets for game processes and operators are.
    pub run_dir: PathBuf,
    /// Where the processes of its cluster are counted, of which it is one.
    pub cluster: Option<String>,
    /// Whether game processes can connect there.
    pub has_links: bool,
    /// What players may speak that there are tables for, as words of the config. A process of an
    /// earlier release says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fronts: Vec<String>,
    /// How long the layout is, the beginning of the shared stream, in memory of its own.
    pub layout_bytes: u64,
    /// Where the admin address is, if its descriptor is given.
    pub admin: Option<SocketAddr>,
    /// Where the control socket is, if its descriptor is given.
    pub control: Option<PathBuf>,
    /// Where the socket for the next hand-over is, if its descriptor is given.
    pub next: Option<PathBuf>,
    /// Where game processes register themselves, if its descriptor is given: behind all others.
    pub announce: Option<PathBuf>,
    /// Where who is denied is written, if the folder's lock is given.
    pub state_dir: Option<PathBuf>,
    /// Who wants to hear that the gateway lives.
    #[serde(flatten)]
    pub manager: ServiceManager,
    /// None: they are among all. The release before sections has to find the field.
    pub retired: Vec<BackendRow>,
    /// Those that may have players at the barrier, whichever config has them. A process of an
    /// earlier release says none.
    #[serde(default)]
    pub backends: Vec<BackendRow>,
    /// The table of who has which sources, if its descriptors are given, the last ones: the table,
    /// the sockets in it, and a program for each group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadRow>,
    /// The interface that packets come by past the kernel's sockets, if its descriptors are given.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// The interface's address by which the program knows frames.
    #[serde(default)]
    pub mac: Option<[u8; 6]>,
}

/// A table of who has which sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadRow {
    /// The address whose sockets go by each program; `None` where it is for one that may come.
    pub groups: Vec<Option<SocketAddr>>,
    /// How many workers newcomers come to.
    pub awake: u16,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<String>,
    /// How many players it had then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub players: Option<u32>,
}

/// A backend that an operator sends nobody to, whether a config has it or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    /// Its name.
    pub name: String,
    /// Where it listens; `None` where it connects to us.
    pub address: Option<SocketAddr>,
    /// When its players have to leave, on the workers' clock.
    pub until_ns: Option<u64>,
    /// The process that says so knows it from its config or its fleet. One that it does not, and
    /// that a successor's file has, was put back there: players are sent to it.
    pub is_there: bool,
}

/// What a successor gets before the barrier, apart from the state itself: the control thread
/// changes none of it from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Early {
    /// A row for each descriptor, in the order in which they were sent.
    pub sockets: Vec<SocketRow>,
    /// Backends that an operator sends nobody to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<DrainRow>,
    /// The same for a release that does not know [`drains`](Self::drains): names of those that are
    /// in the config.
    pub drained: Vec<(String, Option<u64>)>,
    /// Who is denied, as the file would have it.
    pub denied: String,
    /// The file could not be written so.
    #[serde(default)]
    pub is_unwritten: bool,
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
    pub told: AlreadyLogged,
    /// Signals that came meanwhile, and wait to be obeyed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<i32>,
    /// What the gateway is registered as in its fleet, where it is in one: the daemon's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<serde_json::Value>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// How many were recorded in the last interval, the longest of them, and their quantiles.
    pub interval: (u64, u64, Vec<u64>),
    /// How long all were together since the first process began, and how many fell into each
    /// bucket.
    pub sums: (u64, Vec<u64>),
}

/// What the log was told of, by name: so nothing is told again, and nothing is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlreadyLogged {
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

part_in_json!(Facts, "facts");
part_in_json!(Early, "early");
part_in_json!(Given, "given");

part_in_bytes! {
    /// What a successor compares itself with: the beginning of the shared stream.
    pub Layout, "layout"
}
