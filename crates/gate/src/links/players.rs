//! The players of game processes, as far as links ask for them.

use crate::ids::BackendId;
use crate::turn::Turn;
use ringgate_link::bundle::{CloseReason, SessionId};

/// What a game process can ask for. It names its own players only: each question has the number of
/// its backend.
pub(crate) trait Players {
    /// Has the memory fetched of a session that a record names. Any name will do.
    fn fetch(&self, session: SessionId);

    /// What this worker knows a session by.
    fn find(&self, turn: &Turn<'_>, backend: BackendId, session: SessionId) -> Option<u32>;

    /// Sends a payload to a player, or counts why not.
    fn send(&mut self, turn: &mut Turn<'_>, backend: BackendId, session: SessionId, payload: &[u8]);

    /// Ends a session, if there is one.
    fn close(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        session: SessionId,
        reason: CloseReason,
    );
}
