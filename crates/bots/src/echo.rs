//! Whole messages of players, sent back on the channel that they came on.
//!
//! A reliable one that finds no room, at the gateway or on the link, waits for it here, and those
//! behind it wait with it. A player for whom too much waits is sent home: that is a game server's
//! own back-pressure, and nothing is lost without a word.

use std::collections::{HashMap, VecDeque};

use ringgate_link::backend::{Outbox, SendError};
use ringgate_link::bundle::{Channel, CloseReason, SessionId};

/// What waits for players.
#[derive(Default)]
pub struct Messages {
    players: HashMap<SessionId, Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The gateway keeps enough for the player.
    is_full: bool,
    messages: VecDeque<(Channel, Vec<u8>)>,
    bytes: usize,
}

impl Messages {
    /// Sends a message back, or keeps it.
    pub fn answer(
        &mut self,
        outbox: &mut Outbox,
        session: SessionId,
        channel: Channel,
        bytes: &[u8],
    ) {
        if !channel.is_reliable() {
            // A full link drops it, as the internet would; the outbox counts it.
            let _ = outbox.send_message(session, channel, bytes, None);
            return;
        }
        let waits = self.players.get(&session).is_some_and(Waiting::is_in_use);
        if !waits && outbox.send_message(session, channel, bytes, None) != FULL {
            return;
        }
        let player = self.players.entry(session).or_default();
        player.bytes += bytes.len();
        player.messages.push_back((channel, bytes.to_vec()));
        if player.bytes > WAITING_BYTES_MAX {
            self.forget(session);
            let _ = outbox.close(session, CloseReason::Kicked);
        }
    }

    /// The gateway says whether it has room for a player.
    pub fn tell_room(&mut self, outbox: &mut Outbox, session: SessionId, is_full: bool) {
        let player = self.players.entry(session).or_default();
        player.is_full = is_full;
        player.send(outbox, session);
    }

    /// Tries again what a link had no room for.
    pub fn send_waiting(&mut self, outbox: &mut Outbox) {
        self.players.retain(|session, player| {
            player.send(outbox, *session);
            player.is_in_use()
        });
    }

    /// Whether a link had no room for something.
    pub fn are_waiting(&self) -> bool {
        self.players.values().any(|player| !player.is_full)
    }

    /// A player has left.
    pub fn forget(&mut self, session: SessionId) {
        self.players.remove(&session);
    }

    /// So have all players of a worker.
    pub fn forget_worker(&mut self, worker: usize) {
        self.players.retain(|session, _| session.worker() != worker);
    }
}

impl Waiting {
    fn is_in_use(&self) -> bool {
        self.is_full || !self.messages.is_empty()
    }

    fn send(&mut self, outbox: &mut Outbox, session: SessionId) {
        while !self.is_full {
            let Some((channel, bytes)) = self.messages.front() else { return };
            if outbox.send_message(session, *channel, bytes, None) == FULL {
                return;
            }
            self.bytes -= bytes.len();
            self.messages.pop_front();
        }
    }
}

/// The one reason that goes by itself.
const FULL: Result<(), SendError> = Err(SendError::LinkFull);

/// What an echo keeps for a player who does not take it.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
