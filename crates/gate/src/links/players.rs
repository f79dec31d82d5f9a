//! The players of game processes, as far as links ask for them.

use crate::common::Common;
use crate::ids::BackendId;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{
    Answer, CloseAfter, CloseReason, MessagePart, Move, SessionId, Standing,
};

impl Turn<'_> {
    /// Tells a backend that a session is over, if it was told of it on its present link.
    pub(crate) fn report_closed(&mut self, player: PlayerOf, announced: u32, reason: CloseReason) {
        let PlayerOf { backend, session } = player;
        let state = &self.common.links.backends[backend];
        let (Some(link), true) = (state.link, announced == state.epoch) else { return };
        self.tell_link(link, |writer| writer.closed(session, reason));
    }
}

impl Common {
    /// A payload came from a game process for a player that it does not have, or not any more.
    #[cold]
    pub(crate) fn count_for_nobody(&mut self, player: PlayerOf) {
        let is_over = self.has_departed(player);
        let why = if is_over { DropReason::AfterMove } else { DropReason::SessionUnknown };
        self.count_from_link(player.backend, why);
    }

    /// Whether a player has gone from a game process to another, and the first may not know.
    pub(crate) fn has_departed(&self, player: PlayerOf) -> bool {
        let link = self.links.backends[player.backend].link;
        let link = link.and_then(|link| self.links.all[link].as_ref());
        link.is_some_and(|link| link.departed.contains_key(&player.session))
    }
}

/// A player as a game process names it: one of its own, by the id of the session.
#[derive(Clone, Copy)]
pub(crate) struct PlayerOf {
    pub(crate) backend: BackendId,
    pub(crate) session: SessionId,
}

/// What a game process can ask for. It names its own players only.
pub(crate) trait Players {
    /// Has the memory fetched of a session that a record names. Any name will do.
    fn fetch(&self, session: SessionId);

    /// What this worker knows a player's session by.
    fn find(&self, turn: &Turn<'_>, player: PlayerOf) -> Option<u32>;

    /// Sends a payload to a player, or counts why not.
    fn send(&mut self, turn: &mut Turn<'_>, player: PlayerOf, payload: &[u8]);

    /// Sends a whole message to a player, or counts why not.
    fn message(&mut self, turn: &mut Turn<'_>, backend: BackendId, message: &MessagePart<'_>);

    /// Answers how good the way to a player is, if messages are delivered to it.
    fn tell_quality(&self, turn: &mut Turn<'_>, player: PlayerOf);

    /// Ends a session, if there is one, when what was sent to it has arrived.
    fn close_after(&mut self, turn: &mut Turn<'_>, backend: BackendId, close: &CloseAfter<'_>);

    /// Moves a player to another game process, or says why not.
    fn move_session(&mut self, turn: &mut Turn<'_>, backend: BackendId, asked: &Move<'_>);

    /// Takes what a process says to an offer.
    fn answer(&mut self, turn: &mut Turn<'_>, player: PlayerOf, answer: (u64, Answer));

    /// A process has heard that it has lost a player.
    fn confirm(&mut self, turn: &mut Turn<'_>, player: PlayerOf);

    /// There is an arbiter of plain players, perhaps again.
    fn hear_arbiter(&mut self);

    /// Takes what the arbiter of a backend says of a session.
    fn hear_standing(&mut self, turn: &mut Turn<'_>, backend: BackendId, said: &Standing<'_>);

    /// An arbiter has said which sessions are not this gateway's any more.
    fn hear_sure(&mut self, turn: &mut Turn<'_>, backend: BackendId, number: u64);

    /// Ends a session, if there is one.
    fn close(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason);
}
