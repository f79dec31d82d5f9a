//! A gateway without a kernel: the real gate over sockets, a network, players and game processes
//! that exist only in memory.
//!
//! Everything here is driven by a seed and a virtual clock, so a run that fails can be run again,
//! step by step. From the ground up:
//!
//! - [`Host`]: one worker's gate with its batches. What arrives is pushed in, what leaves is handed
//!   to a closure.
//! - [`Network`], [`Player`], [`Game`], [`Attacker`]: those who speak to it.
//! - [`Shooter`], [`Server`], [`Referee`]: the same for an Unreal game.
//! - [`Crowd`]: any number of players who are connected already, for measurements.
//! - [`Judge`]: sees what is said and heard, and what must not happen.
//! - `turmoil`: gates in any sequence of events, for fuzzers and tests only.
//! - [`World`]: all of them together, as a [`Plan`] says; runs until something is wrong or
//!   everybody has gone home.
#![deny(unsafe_code)]

mod arena;
mod attacker;
mod crowd;
mod game;
mod judge;
mod netcode;
mod network;
mod note;
mod plan;
mod player;
mod random;
mod shooter;
pub mod turmoil;
mod worker;
mod world;

pub use arena::{Referee, Server, ServerAnswer};
pub use attacker::Attacker;
pub use crowd::Crowd;
pub use game::{Answer, Game, Guest, Link};
pub use judge::{Judge, LifeRecord, Tally, Violation};
pub use netcode::{Cipher, Heard};
pub use network::{Datagram, Faults, Network};
pub use note::Note;
pub use plan::{GameLink, GamePlan, Habits, Plan};
pub use player::{Deed, Last, Life, Player, Whereabouts};
pub use random::Random;
pub use ringgate_gate::host::{Carry, Host};
pub use shooter::{Match, Move, Shooter};
pub use worker::{Arrival, Worker};
pub use world::{Report, World};
