//! Sessions that a game process has closed after delivery: what was sent before still arrives, as
//! far as there is time, and the player is told why.
//!
//! From then on the session needs its game process no more: neither a link that ends nor another
//! process behind it shortens the time. What ends it early is what ends any session: the player, an
//! operator, a newer login, the end of the gateway. Nothing that a player does or leaves undone
//! makes it longer than [`LINGER_MS_MAX`](ringgate_link::bundle::LINGER_MS_MAX).

use crate::counters::{Ended, Ending};
use crate::front::netcode::connection::{Connection, Linger};
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::turn::Turn;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::proto::delivery;
use ringgate_link::bundle::{CloseReason, FAREWELL_BYTES_MAX, VERSION_FAREWELL};

/// What has become of a session that was closed.
pub(crate) struct Lingered {
    undelivered: u64,
    undelivered_bytes: u32,
    is_told: bool,
}

impl Lingered {
    /// To be asked before its end is closed.
    pub(crate) fn of(connection: &Connection) -> Option<Self> {
        let end = &connection.end;
        let (messages, bytes) = end.undelivered();
        connection.linger.map(|_| Self {
            undelivered: messages as u64,
            undelivered_bytes: bytes as u32,
            is_told: end.has_told_farewell(),
        })
    }
}

impl NetcodeFront {
    /// Whether a session is closed and waits for what was sent to arrive.
    pub(crate) fn is_lingering(&self, index: Entry<Session>) -> bool {
        self.connections.get(index).is_some_and(|connection| connection.linger.is_some())
    }

    /// Ends a session whose time is up or whose messages have arrived. Whether it has.
    pub(crate) fn end_linger(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) -> bool {
        let Some(connection) = self.connections.get(index) else { return false };
        let Some(linger) = connection.linger else { return false };
        let has_said_all = connection.end.has_said_all();
        if !has_said_all && turn.now.mono_ns < linger.until_ns {
            return false;
        }
        let why = if has_said_all { Ended::ByBackend } else { Ended::LingerExpired };
        self.end_like(turn, index, Ending { why, reason: linger.reason });
        true
    }

    /// Tells the game process what became of a session that was closed.
    pub(crate) fn tell_lingered(
        &self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        lingered: &Lingered,
    ) {
        turn.common.counters.messages_undelivered += lingered.undelivered;
        let Session { backend, .. } = *self.sessions.at(index);
        let link = turn.common.links.live(backend);
        let speaks = |link: &_| turn.common.links.speaks(*link, VERSION_FAREWELL);
        let Some(link) = link.filter(speaks) else { return };
        if self.has_lost_its_link(turn, index) {
            return;
        }
        let (session, undelivered_bytes) = (self.sessions.id(index), lingered.undelivered_bytes);
        turn.tell_link(link, |writer| {
            writer.lingered(session, undelivered_bytes, lingered.is_told)
        });
    }

    /// Writes what a session has of farewells, if anything.
    pub(crate) fn hand_over_farewell(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        let Some(connection) = self.connections.get(entry) else { return };
        self.sessions.place(entry).write(out);
        let linger = connection.linger.map(|linger| (linger.until_ns, linger.reason.as_u8()));
        linger.write(out);
        connection.end.hand_over_farewells(out);
    }

    /// Goes on with it. That of a session that could not be carried is forgotten.
    pub(crate) fn take_farewell(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let linger = if bool::read(from)? {
            let (until_ns, reason) = (time::read(from)?, u8::read(from)?);
            let reason = CloseReason::from_u8(reason).filter(|it| it.is_games_choice());
            Some(Linger { until_ns, reason: reason.ok_or(Broken::Invalid("reason"))? })
        } else {
            None
        };
        let entry = self.sessions.live(place);
        let connection = entry.and_then(|entry| self.connections.get_mut(entry));
        let Some(connection) = connection else {
            from.bytes(from.rest().len())?;
            return Ok(());
        };
        connection.linger = linger;
        connection.end.take_farewells(from)
    }
}

const _: () = assert!(FAREWELL_BYTES_MAX == delivery::FAREWELL_BYTES_MAX);
