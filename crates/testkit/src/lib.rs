//! A gateway without a kernel: the real gate over sockets, a network, players and game processes
//! that exist only in memory.
//!
//! Everything here is driven by a seed and a virtual clock, so a run that fails can be run again,
//! step by step. From the ground up:
//!
//! - [`Host`]: one worker's gate with its batches. What arrives is pushed in, what leaves is handed
//!   to a closure.
//! - [`Network`], [`Player`], [`Game`], [`Attacker`]: those who speak to it.
//! - [`UnrealPlayer`], [`UnrealServer`], [`UnrealJudge`]: the same for an Unreal game.
//! - [`ConnectedPlayers`]: any number of players who are connected already, for measurements.
//! - [`Judge`]: sees what is said and heard, and what must not happen. Where whole messages are
//!   delivered, [`Messages`] has the books of each life.
//! - `turmoil`: gates in any sequence of events, for fuzzers and tests only.
//! - [`World`]: all of them together, as a [`Plan`] says; runs until something is wrong or
//!   all players have left.
#![deny(unsafe_code)]

mod attacker;
mod connected_players;
mod game;
mod hand_over;
mod host;
mod judge;
mod letter;
mod memory;
mod messages;
mod netcode;
mod network;
mod note;
mod plan;
mod player;
mod random;
mod rehearsal;
pub mod turmoil;
mod unreal_player;
mod unreal_server;
mod worker;
mod world;

pub use attacker::Attacker;
pub use connected_players::ConnectedPlayers;
pub use game::{Answer, Game, Guest, Link};
pub use host::Host;
pub use judge::{Judge, LifeRecord, Tally, Violation};
pub use memory::{Memory, MemoryDriver, MemoryOut, Wire};
pub use messages::Messages;
pub use netcode::{Cipher, Heard};
pub use network::{Datagram, Faults, Network};
pub use note::Note;
pub use plan::{GameLink, GamePlan, Habits, Plan, SETTINGS};
pub use player::{Deed, Last, Life, Player, Whereabouts};
pub use random::Random;
pub use rehearsal::{Rehearsal, Succession, succeed};
pub use unreal_player::{UnrealMatch, UnrealMove, UnrealPlayer};
pub use unreal_server::{UnrealAnswer, UnrealJudge, UnrealServer};
pub use worker::{Arrival, Worker};
pub use world::{Report, World};
