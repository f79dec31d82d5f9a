//! One end of a connection on its way to the next process, which goes on with the next packet.

use super::super::congestion::Congestion;
use super::super::farewell::Farewells;
use super::super::flight::Flight;
use super::super::held::Held;
use super::super::incoming::Incoming;
use super::super::outgoing::Outgoing;
use super::super::round_trip::RoundTrip;
use super::super::timers::Timers;
use super::super::types::{Counts, Options};
use super::super::unreliable::Unreliable;
use super::{End, LOSS_SMOOTHING};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::delivery::part_bytes_max;
use crate::proto::notify::Notify;

impl End {
    /// Writes everything but the options, and that it is over, which its caller knows.
    pub fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            options: _,
            notify,
            flight,
            outgoing,
            unreliable,
            incoming,
            // What waits for others is not acknowledged: reliable parts leave again, as they do
            // after any packet that is lost.
            held: _,
            // In a record of its own.
            farewells: _,
            reports,
            congestion,
            round_trip,
            loss,
            timers,
            is_unreliable_turn,
            counts,
            // The next process gives back what it need not have, when nothing is said for a while.
            busy_ns: _,
            is_trimmed: _,
            fault: _,
            is_closed: _,
        } = self;
        notify.write(out);
        flight.write(out);
        outgoing.hand_over(out);
        unreliable.hand_over(out);
        incoming.hand_over(out);
        reports.write(out);
        congestion.hand_over(out);
        round_trip.write(out);
        loss.write(out);
        timers.write(out);
        is_unreliable_turn.write(out);
        counts.write(out);
    }

    /// Writes what is known of farewells, which releases before them do not read.
    pub fn hand_over_farewells(&self, out: &mut Writer<'_>) {
        self.farewells.hand_over(out);
    }

    /// Goes on with that.
    pub fn take_farewells(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.farewells = Farewells::take_over(from)?;
        Ok(())
    }

    /// Reads what [`hand_over`](Self::hand_over) has written. The options are those of the process
    /// that reads; packets must be as long as they were.
    pub fn take_over(options: &Options, from: &mut Reader<'_>) -> Result<Self, Broken> {
        let len_max = part_bytes_max(options.packet_bytes);
        let (notify, flight) = (Notify::read(from)?, Flight::read(from)?);
        if flight.packets() != notify.in_flight() {
            return Err(Broken::Invalid("number of packets under way"));
        }
        let end = Self {
            options: *options,
            outgoing: Outgoing::take_over(len_max, from)?,
            unreliable: Unreliable::take_over(len_max, from)?,
            incoming: Incoming::take_over(from)?,
            held: Held::default(),
            farewells: Farewells::new(options.takes_farewell),
            reports: Carry::read(from)?,
            congestion: Congestion::take_over(options.packet_bytes, &flight, from)?,
            round_trip: RoundTrip::read(from)?,
            loss: u32::read(from)?,
            timers: Timers::read(from)?,
            is_unreliable_turn: bool::read(from)?,
            counts: Counts::read(from)?,
            busy_ns: 0,
            is_trimmed: false,
            fault: None,
            is_closed: false,
            notify,
            flight,
        };
        if end.loss > LOSS_SMOOTHING * 1000 {
            return Err(Broken::Invalid("share of lost packets"));
        }
        Ok(end)
    }
}
