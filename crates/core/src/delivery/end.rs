//! One end of a connection: joins what is known of packets with what they carry.

use std::collections::VecDeque;

use super::congestion::Congestion;
use super::farewell::Farewells;
use super::flight::{DATA_PACKETS_MAX, Flight, Item, Packet};
use super::held::Held;
use super::incoming::Incoming;
use super::outgoing::{Filling, Outgoing};
use super::parts::queued_bytes;
use super::round_trip::RoundTrip;
use super::timers::Timers;
use super::types::{Channel, Counts, Fault, Options, Quality, Refusal, Report, SendError};
use super::unreliable::Unreliable;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::proto::delivery::{
    FAREWELL_BYTES_MAX, Frame, MESSAGE_BYTES_MAX, SHORT_MESSAGE_BYTES_MAX, part_bytes_max,
    read_header, write_header,
};
use crate::proto::notify::{HISTORY_PACKETS_MAX, Header, Notify, PacketSeq};

/// One end of a connection. The [module](super) says how it is driven.
#[derive(Debug)]
pub struct End {
    options: Options,
    notify: Notify,
    flight: Flight,
    outgoing: Outgoing,
    unreliable: Unreliable,
    incoming: Incoming,
    /// What has overtaken packets that may still come.
    held: Held,
    farewells: Farewells,
    reports: VecDeque<Report>,
    congestion: Congestion,
    round_trip: RoundTrip,
    /// Lost packets, per mille and smoothed, times 16.
    loss: u32,
    timers: Timers,
    /// Which channels are the first in the next packet: those that are not reliable, or those that
    /// are.
    is_unreliable_turn: bool,
    counts: Counts,
    /// When a packet with messages last came or left, and whether memory was given back since.
    busy_ns: u64,
    is_trimmed: bool,
    fault: Option<Fault>,
    /// The caller has ended it.
    is_closed: bool,
}

/// Why a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// There is something to say, and the network has room for it.
    Data,
    /// An acknowledgement is owed, or nothing was said for long.
    Empty,
    /// An acknowledgement is overdue.
    Overdue,
}

impl End {
    /// An end that has not said anything.
    ///
    /// # Panics
    /// Where packets are to be shorter than 200 or longer than 1200 bytes.
    pub fn new(options: &Options, now_ns: u64) -> Self {
        let sizes = PACKET_BYTES_MIN..=PAYLOAD_BYTES_MAX;
        assert!(sizes.contains(&options.packet_bytes), "packets have 200 to 1200 bytes");
        Self {
            options: *options,
            notify: Notify::starting_at(options.first_sent, options.first_received),
            flight: Flight::default(),
            outgoing: Outgoing::new(),
            unreliable: Unreliable::default(),
            incoming: Incoming::new(),
            held: Held::default(),
            farewells: Farewells::new(options.takes_farewell),
            reports: VecDeque::new(),
            congestion: Congestion::new(options.packet_bytes, options.first_sent),
            round_trip: RoundTrip::default(),
            loss: 0,
            timers: Timers::new(now_ns),
            is_unreliable_turn: true,
            counts: Counts::default(),
            busy_ns: now_ns,
            is_trimmed: false,
            fault: None,
            is_closed: false,
        }
    }

    /// Why the connection is over, if it is. Nothing comes out any more then.
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Ends it here: nothing comes or goes any more, and every message that was sent with a token
    /// and has no report yet gets one, as not delivered.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.held.clear();
        for token in self.flight.take_tokens() {
            self.reports.push_back(Report { token, is_delivered: false });
        }
        self.outgoing.give_up(&mut self.reports);
        self.unreliable.give_up(&mut self.reports);
    }

    /// Says why this end is about to end, with a text of at most 200 bytes, as far as the other end
    /// takes that. From then on nothing more can be sent; what was sent before goes on. A text that
    /// is longer than that, or than packets are, is cut.
    pub fn say_farewell(&mut self, reason: u8, text: &[u8]) {
        let len_max = part_bytes_max(self.options.packet_bytes).min(FAREWELL_BYTES_MAX);
        self.farewells.say(reason, &text[..text.len().min(len_max)]);
    }

    /// Whether a farewell was said and has arrived.
    pub fn has_told_farewell(&self) -> bool {
        self.farewells.has_arrived()
    }

    /// Why the other end has said that it ends, if it has.
    pub fn farewell(&self) -> Option<(u8, &[u8])> {
        self.farewells.heard()
    }

    /// Whether all that was sent has come to its end: what is reliable has arrived, everything else
    /// has left and was reported where that was asked for, and a farewell has arrived or finds no
    /// ear.
    pub fn has_said_all(&self) -> bool {
        self.outgoing.queued_bytes() == 0
            && self.unreliable.is_empty()
            && !self.flight.carries_anything()
            && self.farewells.is_settled()
    }

    /// How many messages on reliable channels are not known to have arrived, and their bytes.
    pub fn undelivered(&self) -> (usize, usize) {
        self.outgoing.undelivered()
    }

    /// Shows every token whose report was not polled yet, to be changed: whoever sends from now on
    /// may use the same tokens as who has sent so far.
    pub fn for_each_token(&mut self, mut change: impl FnMut(&mut u64)) {
        self.reports.iter_mut().for_each(|report| change(&mut report.token));
        self.flight.tokens_mut().for_each(&mut change);
        self.outgoing.tokens_mut().for_each(&mut change);
        self.unreliable.tokens_mut().for_each(&mut change);
    }

    /// Whether the caller has [closed](Self::close) it.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How good the connection is.
    pub fn quality(&self) -> Quality {
        Quality {
            round_trip_ns: self.round_trip.smoothed_ns(),
            variation_ns: self.round_trip.variation_ns(),
            loss_per_mille: (self.loss / LOSS_SMOOTHING) as u16,
            window_bytes: self.congestion.window() as u32,
            in_flight_bytes: self.congestion.in_flight() as u32,
            reliable_bytes: self.outgoing.queued_bytes(),
        }
    }

    /// What this end has done so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes how long this end may be silent.
    pub const fn set_keep_alive(&mut self, keep_alive_ns: u64) {
        self.options.keep_alive_ns = keep_alive_ns;
    }

    /// Nothing can leave or come now: that nothing is acknowledged meanwhile is not the other end's
    /// silence.
    pub const fn note_away(&mut self, now_ns: u64) {
        self.timers.alive_ns = now_ns;
    }

    /// How much waits on all reliable channels, what is not acknowledged yet included: of each
    /// message its bytes, and of a shorter one 128.
    pub const fn waiting_bytes(&self) -> usize {
        self.outgoing.queued_bytes()
    }

    /// The longest message that a channel takes.
    pub const fn message_bytes_max(&self, channel: Channel) -> usize {
        match channel {
            // What the queue never has room for could not wait for it.
            Channel::Reliable(_) if self.options.reliable_bytes_max < MESSAGE_BYTES_MAX => {
                self.options.reliable_bytes_max
            }
            Channel::Reliable(_) => MESSAGE_BYTES_MAX,
            Channel::Sequenced(_) | Channel::Unreliable(_) => {
                part_bytes_max(self.options.packet_bytes)
            }
        }
    }

    /// Queues a message. With a token there will be a report about it.
    pub fn send(
        &mut self,
        channel: Channel,
        message: &[u8],
        token: Option<u64>,
    ) -> Result<(), SendError> {
        if self.is_over() || self.farewells.is_said() {
            return Err(SendError::Closed);
        }
        if message.is_empty() {
            return Err(SendError::Empty);
        }
        if message.len() > self.message_bytes_max(channel) {
            return Err(SendError::TooLong);
        }
        if let Channel::Reliable(number) = channel {
            let queued = self.outgoing.queued_bytes() + queued_bytes(message.len());
            if queued > queued_bytes(self.options.reliable_bytes_max) {
                return Err(SendError::Full);
            }
            let len_max = part_bytes_max(self.options.packet_bytes);
            self.outgoing.push(number, message, len_max, token);
        } else {
            let bytes_max = self.options.unreliable_bytes_max;
            let displaced =
                self.unreliable.push(channel, message, token, bytes_max, &mut self.reports);
            self.counts.messages_displaced += displaced;
        }
        Ok(())
    }

    /// What became of a message that was sent with a token.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// Takes a packet of the other end, and hands over every message that is complete with it.
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        mut on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), Refusal> {
        if let Some(fault) = self.fault {
            return Err(Refusal::Fault(fault));
        }
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        let taken = self.take_or_hold(now_ns, packet, &mut on_message);
        if let Err(Refusal::Fault(fault)) = taken {
            self.fault = Some(fault);
        }
        taken
    }

    /// When to come back to [`poll_transmit`](Self::poll_transmit), if nothing arrives and nothing
    /// is sent before; an instant that has passed means at once, `None` means never.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let next_ns = match self.notify.in_flight() {
            HISTORY_PACKETS_MAX.. => None,
            DATA_PACKETS_MAX.. => self.wants_answer().then(|| self.overdue_at()),
            _ => Some(self.next_packet_at()),
        };
        let end_ns = self.waits_for_answer().then(|| self.timers.give_up_at());
        [next_ns, end_ns, self.held_until()].into_iter().flatten().min()
    }

    /// Writes the packet that is due into `out`, which has at least as many bytes as the longest
    /// packet, and returns its length. To be called until there is none.
    ///
    /// # Panics
    /// Where the buffer is too short.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        if self.gives_up(now_ns) {
            self.fault = Some(Fault::Silence);
            return None;
        }
        let cause = self.due(now_ns)?;
        match cause {
            Cause::Data => {}
            Cause::Empty => self.trim_if_idle(now_ns),
            Cause::Overdue => self.handle_overdue(),
        }
        let out = &mut out[..self.options.packet_bytes];
        let head = write_header(&self.notify, out);
        let (frames, asks) = match cause {
            Cause::Empty => (self.write_mark(&mut out[head..]), false),
            Cause::Data | Cause::Overdue => self.write_frames(&mut out[head..], cause),
        };
        self.handle_sent(now_ns, head + frames, asks);
        Some(head + frames)
    }

    /// Gives back the memory that is kept for the next messages, where there are none now. An end
    /// that says nothing for ten seconds but that it is there, and hears no more, does so by
    /// itself.
    pub fn trim(&mut self) {
        self.flight.trim();
        self.outgoing.trim();
        self.unreliable.trim();
        self.incoming.trim();
        self.held.trim();
        self.reports.shrink_to_fit();
    }

    /// How much memory this end takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.flight.heap_bytes()
            + self.outgoing.heap_bytes()
            + self.unreliable.heap_bytes()
            + self.incoming.heap_bytes()
            + self.held.heap_bytes()
            + self.farewells.heap_bytes()
            + self.reports.capacity() * size_of::<Report>()
    }

    const fn is_over(&self) -> bool {
        self.is_closed || self.fault.is_some()
    }

    fn take_packet(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        on_message: &mut dyn FnMut(Channel, &[u8]),
    ) -> Result<(), Refusal> {
        let parsed = read_header(packet).filter(|_| packet.len() <= PAYLOAD_BYTES_MAX);
        let (header, mut frames) = parsed.ok_or(Refusal::Fault(Fault::Malformed))?;
        let steps = self.check(&header)?;
        let asks = !frames.is_empty();
        let mut is_busy = false;
        let mut pings = 0;
        self.handle_header(now_ns, &header);
        while !frames.is_empty() {
            let frame = Frame::read(&mut frames).ok_or(Refusal::Fault(Fault::Malformed))?;
            if matches!(frame, Frame::Ping) {
                pings += 1;
                continue;
            }
            is_busy = true;
            self.handle_frame(&frame, on_message).map_err(Refusal::Fault)?;
        }
        self.farewells.handle_packet(pings >= PINGS_OF_A_MARK);
        if asks {
            self.timers.handle_asked(now_ns, steps > 1, self.options.ack_delay_ns);
        }
        if is_busy {
            self.handle_busy(now_ns);
        }
        Ok(())
    }

    /// How many packets after the newest one this is. The cipher below vouches for who has sent it,
    /// so what no honest end says is a fault.
    fn check(&self, header: &Header) -> Result<i64, Refusal> {
        let steps = self.notify.steps_to(header);
        if steps > HISTORY_PACKETS_MAX as i64 {
            return Err(Refusal::Fault(Fault::Sequence));
        }
        match self.notify.check(header) {
            Ok(()) => Ok(steps),
            Err(late) if steps <= 0 => Err(Refusal::Dropped(late)),
            Err(_) => Err(Refusal::Fault(Fault::Acknowledgement)),
        }
    }

    fn handle_header(&mut self, now_ns: u64, header: &Header) {
        let mut news = News { now_ns, ..News::default() };
        let Self { notify, flight, outgoing, farewells, reports, congestion, loss, counts, .. } =
            self;
        let taken = notify.handle_header(header, true, |number, arrived| {
            let Some(packet) = flight.take_packet() else { return };
            farewells.handle_report(number, arrived);
            for _ in 0..packet.items {
                let Some(item) = flight.take_item() else { return };
                match item {
                    Item::Part { channel, sequence } => {
                        outgoing.handle_report((channel, sequence), number, arrived, reports);
                    }
                    Item::Token(token) => {
                        reports.push_back(Report { token, is_delivered: arrived });
                    }
                }
            }
            if packet.asks {
                congestion.handle_report(now_ns, packet.bytes, arrived);
                *loss = smoothed(*loss, arrived);
                counts.packets_lost += u64::from(!arrived);
            }
            news.add(number, packet, arrived);
        });
        debug_assert!(taken.is_ok(), "it was checked");
        self.handle_news(&news);
    }

    fn handle_news(&mut self, news: &News) {
        let Some(acked) = news.acked else { return };
        if news.asked {
            self.timers.handle_acked(news.now_ns, news.arrived);
        }
        if let Some(sample_ns) = news.round_trip_ns {
            self.round_trip.handle_sample(sample_ns);
            self.congestion.handle_round_trip(news.now_ns, sample_ns);
        }
        let next = self.notify.next();
        self.congestion.handle_acked(news.now_ns, acked, next, &self.round_trip);
    }

    fn handle_frame(
        &mut self,
        frame: &Frame<'_>,
        on_message: &mut dyn FnMut(Channel, &[u8]),
    ) -> Result<(), Fault> {
        match *frame {
            Frame::Ping => {}
            Frame::Farewell { reason, text } => return self.farewells.hear(reason, text),
            Frame::Sequenced { bytes, .. } | Frame::Unreliable { bytes, .. }
                if bytes.len() > SHORT_MESSAGE_BYTES_MAX =>
            {
                return Err(Fault::Oversize);
            }
            Frame::Reliable(part) => {
                let channel = Channel::Reliable(part.channel);
                return self.incoming.handle_part(&part, |message| on_message(channel, message));
            }
            Frame::Sequenced { channel, bytes } => on_message(Channel::Sequenced(channel), bytes),
            Frame::Unreliable { channel, bytes } => on_message(Channel::Unreliable(channel), bytes),
        }
        Ok(())
    }

    /// What has to leave now, if anything.
    fn due(&self, now_ns: u64) -> Option<Cause> {
        let in_flight = self.notify.in_flight();
        if in_flight >= HISTORY_PACKETS_MAX {
            return None;
        }
        let is_overdue = self.wants_answer() && self.overdue_at() <= now_ns;
        if is_overdue {
            return Some(Cause::Overdue);
        }
        // The last packets that a history can answer for are for asking only.
        if in_flight >= DATA_PACKETS_MAX {
            return None;
        }
        if self.data_at().is_some_and(|at_ns| at_ns <= now_ns) {
            return Some(Cause::Data);
        }
        (self.empty_at() <= now_ns).then_some(Cause::Empty)
    }

    fn next_packet_at(&self) -> u64 {
        let overdue_ns = self.wants_answer().then(|| self.overdue_at());
        let next_ns = self.data_at().into_iter().chain(overdue_ns);
        next_ns.fold(self.empty_at(), u64::min)
    }

    fn empty_at(&self) -> u64 {
        let keep_alive_ns = self.timers.keep_alive_at(self.options.keep_alive_ns);
        self.timers.ack_ns.unwrap_or(u64::MAX).min(keep_alive_ns)
    }

    fn data_at(&self) -> Option<u64> {
        self.has_data().then(|| self.congestion.poll_timeout()).flatten()
    }

    fn overdue_at(&self) -> u64 {
        let overdue_ns = self.round_trip.overdue_ns(self.options.ack_delay_ns);
        let numbers_left = HISTORY_PACKETS_MAX.saturating_sub(self.notify.in_flight());
        self.timers.overdue_at(overdue_ns, numbers_left)
    }

    pub(super) fn has_data(&self) -> bool {
        !self.unreliable.is_empty() || self.outgoing.is_ready() || self.farewells.is_due()
    }

    /// Whether an answer is missed when none comes.
    fn wants_answer(&self) -> bool {
        let is_crowded = self.notify.in_flight() >= DATA_PACKETS_MAX;
        self.flight.asking() > 0 || is_crowded && (self.has_data() || self.timers.ack_ns.is_some())
    }

    /// Whether the connection is over when none comes.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.flight.asking() > 0
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) ends the connection then, if no answer comes
    /// before.
    pub fn gives_up(&self, now_ns: u64) -> bool {
        self.waits_for_answer() && now_ns >= self.timers.give_up_at()
    }

    /// Asks, with what may be lost rather than with nothing.
    fn handle_overdue(&mut self) {
        if self.timers.handle_overdue() >= OUTAGE_ASKED {
            self.congestion.handle_outage();
        }
        self.outgoing.give_up_oldest(&self.flight, self.options.packet_bytes);
    }

    /// Fills a packet, and returns how much of it, and whether its acknowledgement is waited for:
    /// that this end takes a farewell is said again with what leaves anyhow.
    fn write_frames(&mut self, frames: &mut [u8], cause: Cause) -> (usize, bool) {
        let number = self.notify.next();
        let part_bytes_max = part_bytes_max(self.options.packet_bytes);
        let mut packet = Filling { number, frames, len: 0, part_bytes_max, repeated: 0 };
        self.farewells.begin(&mut packet);
        if self.is_unreliable_turn {
            self.unreliable.fill(&mut packet, &mut self.flight);
            self.outgoing.fill(&mut packet, &mut self.flight);
        } else {
            self.outgoing.fill(&mut packet, &mut self.flight);
            self.unreliable.fill(&mut packet, &mut self.flight);
        }
        self.is_unreliable_turn = !self.is_unreliable_turn;
        self.counts.parts_repeated += packet.repeated;
        let asks = packet.len > 0 || cause == Cause::Overdue;
        self.farewells.end(&mut packet);
        if cause == Cause::Overdue && packet.len == 0 {
            packet.write(&Frame::Ping);
        }
        (packet.len, asks)
    }

    /// A packet that says nothing else says that this end takes a farewell, until that is known.
    fn write_mark(&mut self, frames: &mut [u8]) -> usize {
        let number = self.notify.next();
        let mut packet = Filling { number, frames, len: 0, part_bytes_max: 0, repeated: 0 };
        self.farewells.end(&mut packet);
        packet.len
    }

    fn handle_sent(&mut self, now_ns: u64, bytes: usize, asks: bool) {
        let is_first_that_asks = asks && self.flight.asking() == 0;
        self.flight.handle_sent(now_ns, bytes, asks);
        self.notify.handle_sent();
        self.counts.packets_sent += 1;
        self.timers.handle_sent(now_ns, asks, is_first_that_asks);
        if asks {
            let is_last = self.notify.in_flight() >= DATA_PACKETS_MAX;
            self.congestion.handle_sent(now_ns, bytes, is_last, &self.round_trip);
            self.handle_busy(now_ns);
        }
    }

    /// Messages have come or left; a ping is none.
    const fn handle_busy(&mut self, now_ns: u64) {
        (self.busy_ns, self.is_trimmed) = (now_ns, false);
    }

    fn trim_if_idle(&mut self, now_ns: u64) {
        if !self.is_trimmed && now_ns.saturating_sub(self.busy_ns) >= IDLE_NS {
            self.trim();
            self.is_trimmed = true;
        }
    }
}

/// What a header has told.
#[derive(Debug, Default)]
struct News {
    now_ns: u64,
    /// The newest packet that is known of.
    acked: Option<PacketSeq>,
    /// One of them asked for it.
    asked: bool,
    /// One of those that asked has arrived.
    arrived: bool,
    /// From the newest one, if it asked and has arrived.
    round_trip_ns: Option<u64>,
}

impl News {
    fn add(&mut self, number: PacketSeq, packet: Packet, arrived: bool) {
        let has_arrived = packet.asks && arrived;
        self.acked = Some(number);
        self.asked |= packet.asks;
        self.arrived |= has_arrived;
        let took_ns = self.now_ns.saturating_sub(packet.left_ns);
        self.round_trip_ns = has_arrived.then_some(took_ns.min(ROUND_TRIP_NS_MAX));
    }
}

/// What takes longer is the other end's doing, and not the network's.
const ROUND_TRIP_NS_MAX: u64 = 60_000_000_000;

/// A sixteenth of what is new.
const fn smoothed(loss: u32, arrived: bool) -> u32 {
    let sample = if arrived { 0 } else { 1000 };
    loss - loss / LOSS_SMOOTHING + sample
}

const LOSS_SMOOTHING: u32 = 16;

/// So many in one packet say that their sender takes a farewell.
const PINGS_OF_A_MARK: u32 = 2;

/// Headers and heads of frames are not worth it in shorter ones.
const PACKET_BYTES_MIN: usize = 200;

/// After such a pause, memory for the next messages is given back.
const IDLE_NS: u64 = 10_000_000_000;

/// So many times an answer is overdue when the network has changed.
const OUTAGE_ASKED: u32 = 2;

mod handed;
mod reorder;
