//! What a batch will touch is fetched before anything looks at it: all first lines, then all that they lead to.
//!
//! With a million players every packet is for somebody whom no cache knows. Looked at one after the other, each costs three
//! or four waits for memory; fetched together, the whole batch costs about as many as one. Where everything is in a cache
//! already, this costs a few nanoseconds (benches/turn.rs).
//!
//! What bounds this is how many walks of page tables the CPU has under way, so the worker asks for huge pages
//! ([`Gate::large_tables`]).

use super::Gate;
use super::links::index_of_loopback;
use super::roles::Role;
use super::session::{OPENING_LINES, SEALING_LINES};
use super::table::Address;
use crate::buf::RxBatch;
use crate::link::bundle::{SessionId, ToGateway};

/// Where a datagram comes from, as far as that has to do with memory.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Of its address, where it comes from a player's side.
    pub(super) hash: u32,
    /// The session that it is probably about, or [`NOBODY`].
    guess: u32,
    is_player: bool,
}

/// Behind the end of every table.
const NOBODY: u32 = u32::MAX;

impl Gate {
    /// Hashes the sources of what has arrived, and has their sessions fetched.
    pub(super) fn fetch_sources(&mut self, rx: &RxBatch) {
        let Self { sources, sessions, pending, roles, .. } = self;
        sources.clear();
        for meta in rx.metas() {
            sources.push(match roles.of(meta.socket) {
                Role::Player { listener, .. } => {
                    let address = Address { listener, endpoint: meta.peer };
                    Source { hash: sessions.hash(&address), guess: NOBODY, is_player: true }
                }
                Role::UdpLink => {
                    let guess = index_of_loopback(&meta.local).unwrap_or(NOBODY);
                    Source { hash: 0, guess, is_player: false }
                }
                _ => Source { hash: 0, guess: NOBODY, is_player: false },
            });
        }
        for source in &*sources {
            sessions.prefetch_index(source.hash);
        }
        for source in sources.iter_mut().filter(|source| source.is_player) {
            match sessions.guess(source.hash) {
                Some(guess) => source.guess = guess,
                None => pending.prefetch_index(source.hash),
            }
        }
        for source in &*sources {
            sessions.prefetch(source.guess, OPENING_LINES);
        }
    }

    /// Has the sessions fetched that a bundle is for.
    pub(super) fn fetch_named(&self, bundle: &[u8]) {
        for record in ToGateway::read(bundle).map_while(Result::ok) {
            match record {
                ToGateway::Payload { session, .. } => self.fetch_session(session),
                ToGateway::Multicast { sessions, .. } => {
                    sessions.iter().for_each(|session| self.fetch_session(session));
                }
                ToGateway::Close { .. } | ToGateway::Hello(_) | ToGateway::Ping { .. } => {}
            }
        }
    }

    /// Has the lines fetched that a packet for a player touches.
    #[inline]
    pub(super) fn fetch_player(&self, index: u32) {
        self.sessions.prefetch(index, OPENING_LINES);
        self.sessions.prefetch(index, SEALING_LINES);
    }

    #[inline]
    fn fetch_session(&self, session: SessionId) {
        self.fetch_player(session.as_u64() as u32);
    }
}
