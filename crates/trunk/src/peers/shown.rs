//! What there is to say of a cluster's members, as its thread saw them last.

use std::collections::BTreeMap;
use std::net::SocketAddr;

ringgate_core::named! {
    /// How it stands with another member.
    pub enum State;
    /// Nothing is known of where it is, and it is not here.
    Absent = "absent",
    /// It is to come to us, and has not.
    Awaited = "awaited",
    /// A connection to it is tried.
    Connecting = "connecting",
    /// Both have proven who they are, and its lane has been heard.
    Up = "up",
}

/// Another member.
#[derive(Clone, Debug)]
pub struct MemberShown {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// Whether it is told of from outside.
    pub is_known: bool,
    /// Where it is, while it is up.
    pub peer: Option<SocketAddr>,
    /// Since when it is up, on the gateway's clock.
    pub since_ns: u64,
    /// There and back on its lane.
    pub round_trip_ns: Option<u64>,
    /// The version in which it says which players it has; none where it says nothing of them, and
    /// nothing is forwarded.
    pub speaks: Option<u8>,
    /// Whether it has told of all that it had.
    pub has_told_all: bool,
    /// How many players it has told of.
    pub players: usize,
    /// Whether it can go on with sessions of this gateway.
    pub can_stand_by: bool,
    /// For how many of them it stands by.
    pub stands_by: usize,
    /// How often it was connected and did not answer, so that its sessions could be taken over.
    pub silences: u64,
    /// Datagrams that it has sent, and those that it was sent.
    pub forwarded: [u64; 2],
    /// What of either kind went no further, and messages that were refused, by the reasons' names.
    pub dropped: BTreeMap<&'static str, u64>,
    /// How often it has come up.
    pub connections: u64,
    /// Why its last connection ended: a name, and words.
    pub last_end: Option<(&'static str, String)>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Where others connect, once they can.
    pub address: Option<SocketAddr>,
    /// By name.
    pub members: Vec<MemberShown>,
    /// Connections that were refused here, by the reasons' names.
    pub refused: BTreeMap<&'static str, u64>,
    /// Datagrams for members that were gone when they were to be sent.
    pub not_connected: u64,
}
