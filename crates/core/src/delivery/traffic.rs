//! What has been said in messages between game processes and their players, over many ends.

use super::types::Counts;

crate::numbered! {
    /// What has been said in messages at a listener that delivers them, or by an agent that does.
    /// All only grow.
    pub struct Traffic;
    /// Whole messages from players.
    messages_in,
    /// Whole messages queued for players.
    messages_out,
    /// Packets of messages and acknowledgements that were sent to players.
    packets_sent,
    /// Packets with messages that did not reach their player, as far as is known.
    packets_lost,
    /// Parts of reliable messages that were sent again.
    parts_repeated,
    /// Messages on other channels that made room for newer ones before they were sent.
    messages_displaced,
}

impl Traffic {
    /// Adds what an end has done since.
    pub const fn note(&mut self, before: &Counts, now: &Counts) {
        self.packets_sent += now.packets_sent - before.packets_sent;
        self.packets_lost += now.packets_lost - before.packets_lost;
        self.parts_repeated += now.parts_repeated - before.parts_repeated;
        self.messages_displaced += now.messages_displaced - before.messages_displaced;
    }
}
