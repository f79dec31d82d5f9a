//! One worker's mind, sans I/O: sessions, handshakes, admission, timers, routing, the turn.
//!
//! Datagrams come in as an [`RxBatch`](ringgate_batch::RxBatch), time as an argument, and
//! everything that leaves is written into a [`TxBatch`](ringgate_batch::TxBatch). Both belong to a
//! driver, which [`body`] takes turns with: the same loop on the kernel's sockets and in memory. So
//! a whole gateway runs in the simulator, from a seed, faster than real time.
//!
//! A turn has the stages that the documents name. **Classify** looks at everything that arrived
//! without decrypting anything; **open** runs one AEAD batch over what deserves it; **step**
//! commits replay windows, drives the state machines and copies payloads into the backends'
//! bundles; **seal** runs one batch over what leaves; **submit** is the driver's. Positions noted
//! early in a turn stay valid to its end, because nothing is reclaimed before.
//!
//! After warm-up a turn allocates nothing: what grows has been reserved, and rare things (a
//! session's user data, a mailed setup) are allocated where they are rare.
#![deny(unsafe_code)]

mod adopt;
mod answering;
mod arrivals;
mod awake;
pub mod body;
mod capture;
mod captures;
mod clash;
mod common;
mod counters;
mod denied;
mod elsewhere;
mod front;
mod gate;
pub mod handover;
#[cfg(test)]
#[path = "../../testkit/src/host.rs"]
pub mod host;
mod ids;
mod info;
mod links;
mod listeners;
mod mail;
#[cfg(test)]
#[path = "../../testkit/src/memory.rs"]
pub mod memory;
mod moves;
mod now;
mod offering;
mod output;
pub mod pace;
mod party;
mod prefix;
#[cfg(test)]
#[path = "../../testkit/src/rehearsal.rs"]
pub mod rehearsal;
mod roles;
mod routing;
mod sealing;
mod seed;
mod sessions;
mod setup;
mod shared;
mod stages;
mod steering;
mod store;
mod survey;
mod taps;
#[cfg(test)]
mod tests;
mod trace;
mod traffic;
mod turn;
mod turnover;
mod watching;

// What tests share with the simulator names this package as that does.
#[cfg(test)]
extern crate self as ringgate_gate;

pub use awake::Awake;
pub use capture::{Capture, Captured, Meant, Seen};
pub use clash::{clash, clashes};
pub use counters::{
    Counters, Ended, Imbalance, Ledger, LinkRefusal, List, MOVE_REFUSALS, Number, Stamps,
};
pub use denied::Denied;
pub use elsewhere::Elsewhere;
pub use front::netcode::filter::filter as netcode_filter;
pub use front::{Front, PACKET_KIND_NAMES, PACKET_KINDS};
pub use gate::Gate;
pub use ids::{BackendId, BindId, Id, IdVec, ListenerId, MemberId, Slot, WorkerId};
pub use info::{ServerInfo, SessionInfo};
pub use links::loopback::is_shared_socket_backend;
pub use mail::{ForwardedDatagram, Listening, Mail, Offered, Steering};
pub use moves::{BackendMoves, MoveOrder};
pub use now::Now;
pub use party::Party;
pub use prefix::Prefix;
pub use ringgate_link::bundle::{MOVE_MS, MOVE_MS_MAX, MoveRefusal, SessionId};
pub use seed::{Seed, WorkerIndex};
pub use setup::{
    Allowed, Backend, ClaimLimits, Credentials, Credit, Duplicates, Echo, Intake, Limits, LinkKind,
    Listener, Netcode, Phase, Plain, Protocol, Route, Sequence, Setup, Token, TokenPlace,
    TokenReuse, Tokens, Unreal,
};
pub use shared::buckets::Buckets;
pub use shared::claims::history::SpentToken;
pub use shared::claims::{Claims, Takers};
pub use shared::fleet_players::{FleetPlayer, FleetPlayers, PlayerClaimed, PlayerNews};
pub use shared::fleet_tokens::{FleetTokens, TokenQuestion, Whose};
pub use shared::standbys::{Owned, StandbyCounts, Standbys, TakeoverRefusal};
pub use shared::whereabouts::{Members, PARTS, Whereabouts};
pub use store::table::Address;
pub use survey::{Found, Survey, Wanted};
pub use trace::{Detail, Fact, Record, Trace, Watched};
pub use traffic::{BackendTraffic, DeliveryTraffic, ListenerTraffic};
