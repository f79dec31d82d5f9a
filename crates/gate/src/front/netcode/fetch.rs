//! What a batch will touch is fetched before anything looks at it: all first lines, then all that
//! they lead to.
//!
//! With a million players every packet is for somebody whom no cache knows. Looked at one after the
//! other, each costs three or four waits for memory; fetched together, the whole batch costs about
//! as many as one. Where everything is in a cache already, this costs a few nanoseconds
//! (benches/turn.rs).
//!
//! What bounds this is how many walks of page tables the CPU has under way, so the worker asks for
//! huge pages ([`Gate::large_tables`]).

use crate::Gate;
use crate::front::netcode::players::Origin;
use crate::front::netcode::session::{OPENING_LINES, SEALING_LINES};
use crate::links::state::index_of_loopback;
use crate::roles::Role;
use crate::store::table::Address;
use ringgate_batch::{RxBatch, RxMeta};
use ringgate_link::bundle::{Frames, SessionId, ToGateway};

/// Where a datagram comes from, as far as that can be known before anything is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// What it came in through.
    pub(crate) role: Role,
    /// Of its address, where it comes from a player's side.
    pub(crate) hash: u32,
    /// The session that it is probably about, or [`NOBODY`].
    pub(crate) guess: u32,
}

impl Source {
    /// Everything about the way of a datagram, where that is from a player's side.
    pub(crate) fn origin(&self, meta: &RxMeta) -> Option<Origin> {
        let Role::Player { listener, bind } = self.role else { return None };
        Some(Origin {
            address: Address { listener, endpoint: meta.peer },
            hash: self.hash,
            bind,
            socket: meta.socket,
            local: meta.local,
            kernel_ns: meta.kernel_ns,
            forwarded_by: None,
        })
    }
}

/// Behind the end of every table.
const NOBODY: u32 = u32::MAX;

impl Gate {
    /// Hashes the sources of what has arrived, and has their sessions fetched. While one is hashed,
    /// memory works on those before it.
    pub(crate) fn fetch_sources(&mut self, rx: &RxBatch) {
        let Self { sources, sessions, pending, unreal, listeners, roles, .. } = self;
        let is_unreal = |listener: u16| listeners[usize::from(listener)].is_unreal;
        sources.clear();
        for meta in rx.metas() {
            let role = roles.of(meta.socket);
            let mut source = Source { role, hash: 0, guess: NOBODY };
            match role {
                Role::Player { listener, .. } => {
                    source.hash = sessions.hash(&Address { listener, endpoint: meta.peer });
                    if is_unreal(listener) {
                        unreal.sessions.prefetch_index(source.hash);
                    } else {
                        sessions.prefetch_index(source.hash);
                    }
                }
                Role::UdpLink => source.guess = index_of_loopback(&meta.local).unwrap_or(NOBODY),
                _ => {}
            }
            sources.push(source);
        }
        for source in &mut *sources {
            match source.role {
                Role::Player { listener, .. } if is_unreal(listener) => {
                    source.guess = unreal.sessions.guess(source.hash).unwrap_or(NOBODY);
                    unreal.fetch(source.guess);
                }
                Role::Player { .. } => match sessions.guess(source.hash) {
                    Some(guess) => {
                        source.guess = guess;
                        sessions.prefetch(guess, OPENING_LINES);
                    }
                    None => pending.prefetch_index(source.hash),
                },
                Role::UdpLink => {
                    sessions.prefetch(source.guess, OPENING_LINES);
                    sessions.prefetch(source.guess, SEALING_LINES);
                }
                _ => {}
            }
        }
    }

    /// Has the sessions fetched that a bundle is for.
    pub(crate) fn fetch_named(&self, bundle: &[u8]) {
        for frame in Frames::new(bundle).map_while(Result::ok) {
            if let Some(session) = frame.payload_session() {
                self.fetch_session(session);
            } else if let Ok(ToGateway::Multicast { sessions, .. }) = ToGateway::decode(frame) {
                sessions.iter().for_each(|session| self.fetch_session(session));
            }
        }
    }

    /// Has the lines fetched that a packet for a player touches.
    #[inline]
    pub(crate) fn fetch_player(&self, index: u32) {
        self.sessions.prefetch(index, OPENING_LINES);
        self.sessions.prefetch(index, SEALING_LINES);
    }

    #[inline]
    fn fetch_session(&self, session: SessionId) {
        self.fetch_player(session.as_u64() as u32);
    }
}
