//! Players whose messages are delivered here: an end of a connection for each of them, and when to
//! look after it.
//!
//! A session without one has nothing of it, not even a pointer: ends are found by the session's
//! place. They are boxed because few sessions of a table may have one.

use crate::front::netcode::former::Former;
use crate::front::netcode::session::Session;
use crate::moves::Side;
use crate::seed::Random;
use crate::store::alarms::Alarms;
use crate::store::entry::Entry;
use ringgate_core::delivery::{Counts, End, Options, Report};
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_link::bundle::CloseReason;
use std::collections::BTreeSet;

/// What a session has whose messages are delivered here.
pub(crate) struct Connection {
    pub(crate) end: End,
    /// What of its counts stands in the listener's traffic already.
    pub(crate) counted: Counts,
    /// The game process was told that no more should be sent.
    pub(crate) is_full: bool,
    /// The game process has closed the session.
    pub(crate) linger: Option<Linger>,
    /// Who wants reports of what was sent before another process has got the player.
    pub(crate) former: Option<Box<Former>>,
    /// It is looked after at the end of the turn.
    is_touched: bool,
}

/// That its game process has closed a session, until when it goes on, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linger {
    pub(crate) until_ns: u64,
    pub(crate) reason: CloseReason,
}

/// All of them.
pub(crate) struct Connections {
    by_place: Vec<Option<Box<Connection>>>,
    /// How many there are.
    count: usize,
    touched: Vec<Entry<Session>>,
    pub(crate) alarms: Alarms<Entry<Session>>,
    /// The packet that is being written.
    pub(crate) packet: Vec<u8>,
}

impl Connection {
    pub(crate) const fn new(end: End) -> Self {
        let counted = end.counts();
        Self { end, counted, is_full: false, linger: None, former: None, is_touched: false }
    }

    /// Whoever sends from now on is another process than whose messages have no report yet.
    pub(crate) fn change_sender(&mut self, before: Side, random: &mut Random) {
        let former = self.former.get_or_insert_default();
        let earlier: BTreeSet<u64> = former.0.keys().copied().collect();
        self.end.for_each_token(|token| {
            if !earlier.contains(token) {
                *token = former.rename((before, *token), random);
            }
        });
        if former.0.is_empty() {
            self.former = None;
        }
    }

    /// A process sends a message with this token: no earlier one is to be called so.
    pub(crate) fn make_room_for(&mut self, token: u64, random: &mut Random) {
        let Some(former) = &mut self.former else { return };
        if let Some(whose) = former.0.remove(&token) {
            let name = former.rename(whose, random);
            self.end.for_each_token(|known| {
                if *known == token {
                    *known = name;
                }
            });
        }
    }

    /// The next report of what was sent by an earlier process, or by this one.
    pub(crate) fn poll_report(&mut self) -> Option<(Report, Option<Side>)> {
        let mut report = self.end.poll_report()?;
        let mut whose = None;
        if let Some(former) = &mut self.former {
            if let Some((side, token)) = former.0.remove(&report.token) {
                (whose, report.token) = (Some(side), token);
            }
            if former.0.is_empty() {
                self.former = None;
            }
        }
        Some((report, whose))
    }
}

impl Connections {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            by_place: Vec::new(),
            count: 0,
            touched: Vec::new(),
            alarms: Alarms::new(now_ns),
            packet: vec![0; PAYLOAD_BYTES_MAX],
        }
    }

    /// Whether no session has one.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a session has one.
    #[inline]
    pub(crate) fn has(&self, index: Entry<Session>) -> bool {
        !self.is_empty() && self.by_place.get(index.index()).is_some_and(Option::is_some)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Entry<Session>) -> Option<&mut Connection> {
        self.by_place.get_mut(index.index())?.as_deref_mut()
    }

    pub(crate) fn get(&self, index: Entry<Session>) -> Option<&Connection> {
        self.by_place.get(index.index())?.as_deref()
    }

    /// A session begins that has one.
    pub(crate) fn open(&mut self, index: Entry<Session>, options: &Options, now_ns: u64) {
        let fresh = Connection::new(End::new(options, now_ns));
        self.put_new(index, fresh);
    }

    /// A session goes on that has one.
    pub(crate) fn put_new(&mut self, index: Entry<Session>, fresh: Connection) {
        let at = index.index();
        if self.by_place.len() <= at {
            self.by_place.resize_with(at + 1, || None);
        }
        self.count += usize::from(self.by_place[at].is_none());
        self.by_place[at] = Some(Box::new(fresh));
    }

    /// Takes one out for a while, to be [put back](Self::put_back) in the same step.
    #[inline]
    pub(crate) fn take(&mut self, index: Entry<Session>) -> Option<Box<Connection>> {
        self.by_place.get_mut(index.index())?.take()
    }

    #[inline]
    pub(crate) fn put_back(&mut self, index: Entry<Session>, connection: Box<Connection>) {
        self.by_place[index.index()] = Some(connection);
    }

    /// The session is over: what waited for its player goes.
    pub(crate) fn close(&mut self, index: Entry<Session>) {
        if self.take(index).is_some() {
            self.count -= 1;
            self.alarms.clear(index);
        }
    }

    /// Has a session looked after at the end of the turn.
    #[inline]
    pub(crate) fn touch(&mut self, index: Entry<Session>) {
        let Some(connection) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut connection.is_touched, true) {
            self.touched.push(index);
        }
    }

    /// One that has to be looked after.
    pub(crate) fn pop_touched(&mut self) -> Option<Entry<Session>> {
        let index = self.touched.pop()?;
        if let Some(connection) = self.get_mut(index) {
            connection.is_touched = false;
        }
        Some(index)
    }

    /// How many places have ever had one.
    pub(crate) fn places(&self) -> u32 {
        self.by_place.len() as u32
    }

    /// Those that there are.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<Session>> + use<> {
        let places = 0..self.by_place.len() as u32;
        let taken: Vec<_> =
            places.filter(|place| self.by_place[*place as usize].is_some()).collect();
        taken.into_iter().map(Entry::numbered)
    }
}
