//! What an end has to do when: acknowledge, show that it is there, ask why nothing is acknowledged,
//! and give up.

use crate::carry::{Broken, Carry, Reader, Writer, maybe_time, time};

/// When something was, and what follows from it.
#[derive(Debug)]
pub(super) struct Timers {
    /// When the last packet left.
    sent_ns: u64,
    /// When an acknowledgement has to leave, if one is owed.
    pub(super) ack_ns: Option<u64>,
    /// Packets that ask for an acknowledgement, since one left.
    asked: u8,
    /// From when on an acknowledgement is waited for: the last packet that asks for one, or the
    /// last that came.
    waiting_since_ns: u64,
    /// How often was asked since one came.
    asked_again: u32,
    /// When the last packet arrived of which that is known, or the first one left after a pause, or
    /// nothing could leave.
    pub(super) alive_ns: u64,
}

impl Timers {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            sent_ns: now_ns,
            ack_ns: None,
            asked: 0,
            waiting_since_ns: now_ns,
            asked_again: 0,
            alive_ns: now_ns,
        }
    }

    /// A packet has come that asks for an acknowledgement, perhaps behind a gap.
    pub(super) fn handle_asked(&mut self, now_ns: u64, is_gap: bool, ack_delay_ns: u64) {
        self.asked = self.asked.saturating_add(1);
        let due_ns = if is_gap || self.asked >= ASKED_MAX { now_ns } else { now_ns + ack_delay_ns };
        self.ack_ns = Some(self.ack_ns.map_or(due_ns, |before| before.min(due_ns)));
    }

    /// A packet leaves; whatever is owed leaves with it.
    pub(super) fn handle_sent(&mut self, now_ns: u64, asks: bool, is_first_that_asks: bool) {
        self.sent_ns = now_ns;
        self.ack_ns = None;
        self.asked = 0;
        if is_first_that_asks && now_ns.saturating_sub(self.waiting_since_ns) >= PAUSE_NS {
            self.alive_ns = now_ns;
        }
        if asks {
            self.waiting_since_ns = now_ns;
        }
    }

    /// Packets that asked for it have been reported, and perhaps one of them as arrived.
    pub(super) fn handle_acked(&mut self, now_ns: u64, arrived: bool) {
        self.waiting_since_ns = now_ns;
        self.asked_again = 0;
        if arrived {
            self.alive_ns = now_ns;
        }
    }

    /// An acknowledgement is overdue, and is asked for. How often that was since one came.
    pub(super) const fn handle_overdue(&mut self) -> u32 {
        if self.asked_again < ASKED_AGAIN_MAX {
            self.asked_again += 1;
        }
        self.asked_again
    }

    /// When an empty packet has to leave if no other one does.
    pub(super) const fn keep_alive_at(&self, keep_alive_ns: u64) -> u64 {
        self.sent_ns + keep_alive_ns
    }

    /// When an acknowledgement is overdue: later and later, but not later than a second, unless so
    /// few numbers are left to ask with that they have to be spread over the time until there is
    /// no hope.
    pub(super) fn overdue_at(&self, overdue_ns: u64, numbers_left: usize) -> u64 {
        let doubled_ns = overdue_ns << self.asked_again.min(DOUBLINGS_MAX);
        let again_ns = doubled_ns.min(ASK_AGAIN_NS_MAX).max(overdue_ns);
        let rest_ns = self.give_up_at().saturating_sub(self.waiting_since_ns);
        let spread_ns = match self.asked_again {
            ..ASKED_SOON => 0,
            _ => rest_ns / (numbers_left as u64 + 1),
        };
        self.waiting_since_ns + again_ns.max(spread_ns)
    }

    /// When there is no hope left.
    pub(super) const fn give_up_at(&self) -> u64 {
        self.alive_ns + SILENCE_NS
    }
}

impl Carry for Timers {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { sent_ns, ack_ns, asked, waiting_since_ns, asked_again, alive_ns } = self;
        sent_ns.write(out);
        ack_ns.write(out);
        asked.write(out);
        waiting_since_ns.write(out);
        asked_again.write(out);
        alive_ns.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self {
            sent_ns: time::read(from)?,
            ack_ns: maybe_time::read(from)?,
            asked: u8::read(from)?,
            waiting_since_ns: time::read(from)?,
            // It says how long to wait, and has said the longest by then.
            asked_again: u32::read(from)?.min(ASKED_AGAIN_MAX),
            alive_ns: time::read(from)?,
        })
    }
}

/// Every other packet is acknowledged without delay.
const ASKED_MAX: u8 = 2;

const DOUBLINGS_MAX: u32 = 8;

/// So many questions are asked as soon as they can be, with however few numbers.
const ASKED_SOON: u32 = 4;

/// Nothing changes after so many questions in vain.
const ASKED_AGAIN_MAX: u32 = 1000;

/// A network that comes back is noticed within a second.
const ASK_AGAIN_NS_MAX: u64 = 1_000_000_000;

/// After such a time without a question, what was not answered before does not count.
const PAUSE_NS: u64 = 2_000_000_000;

/// How long an end goes on to which nothing is acknowledged.
const SILENCE_NS: u64 = 30_000_000_000;
