//! How much may be under way at once, and at what pace it leaves.
//!
//! There is a window of bytes. Once in a round trip it is looked at:
//!
//! - *What a network does by itself is not our doing.* The least round trip of the last 10 to 20
//!   seconds is the network's own, and so is the least share of packets that it lost.
//! - *What comes on top is.* If even the fastest packet of the round took longer than that by an
//!   eighth and 20 ms and twice what one differs from the next by, our packets stand in a queue,
//!   and the window becomes a quarter smaller. If 20 % more are lost than the least share was, or
//!   three quarters, a queue has no room for them, and it becomes half as large.
//! - *Otherwise it grows*, if all of it was used: at first to the double in each round, until there
//!   is a queue, or two rounds in a row bring hardly more than those before; then by a sixteenth.
//!   It never grows over three times what a round has brought.
//! - *The network's own round trip is looked for* when it has not been seen for ten seconds: one
//!   round with the smallest window lets the queue run empty.
//!
//! So a link that loses every third packet at random is used as if it lost none, and a link that is
//! full is noticed by its queue. Packets are spread over the round trip, an eighth faster than the
//! window needs; half a window may leave at a time, as a game sends that looks at its network once
//! a frame.

use super::flight::{DATA_PACKETS_MAX, Flight};
use super::least::Least;
use super::round_trip::RoundTrip;
use crate::carry::{Broken, Carry, Reader, Writer, time};
use crate::proto::notify::PacketSeq;

/// The window, and what is in it.
#[derive(Debug)]
pub(super) struct Congestion {
    packet_bytes: u64,
    window: u64,
    in_flight: u64,
    /// No queue has been met yet.
    is_starting: bool,
    /// The window has been used up in this round.
    was_full: bool,
    /// What this round has brought, in bytes.
    brought: u64,
    /// The most that a round has brought, and how many have not brought more since.
    most_brought: u64,
    rounds_in_vain: u32,
    /// The round is over when this packet is reported.
    round_end: PacketSeq,
    /// The fastest round trip of this round.
    fastest_ns: Option<u64>,
    /// The network's own round trip.
    own_ns: Least,
    /// When a round trip was last about as fast as that.
    seen_own_ns: u64,
    /// The window of before, while the queue runs empty.
    set_aside: Option<u64>,
    losses: Losses,
    /// When the next packet may leave.
    next_ns: u64,
}

/// The share of packets that are lost, over some tens of them at a time.
#[derive(Debug)]
struct Losses {
    reported: u64,
    lost: u64,
    /// The network's own share, per mille.
    own: Least,
    /// The last share was larger than that by more than chance.
    are_ours: bool,
}

impl Congestion {
    pub(super) fn new(packet_bytes: usize, first: PacketSeq) -> Self {
        let packet_bytes = packet_bytes as u64;
        Self {
            packet_bytes,
            window: PACKETS_FIRST * packet_bytes,
            in_flight: 0,
            is_starting: true,
            was_full: false,
            brought: 0,
            most_brought: 0,
            rounds_in_vain: 0,
            round_end: first,
            fastest_ns: None,
            own_ns: Least::NONE,
            seen_own_ns: 0,
            set_aside: None,
            losses: Losses { reported: 0, lost: 0, own: Least::NONE, are_ours: false },
            next_ns: 0,
        }
    }

    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// When another packet may leave; `None` before something is acknowledged.
    pub(super) const fn poll_timeout(&self) -> Option<u64> {
        if self.in_flight + self.packet_bytes <= self.window { Some(self.next_ns) } else { None }
    }

    /// `is_last` is whether no other packet may leave for now, however large the window is.
    pub(super) fn handle_sent(
        &mut self,
        now_ns: u64,
        bytes: usize,
        is_last: bool,
        round_trip: &RoundTrip,
    ) {
        self.in_flight += bytes as u64;
        self.was_full |= is_last || self.in_flight + self.packet_bytes > self.window;
        let earliest_ns = now_ns.saturating_sub(self.span_ns(self.packets_at_once(), round_trip));
        let bytes_per_packet = self.packet_bytes.max(1);
        let span_ns = self.span_ns(1, round_trip) * bytes as u64 / bytes_per_packet;
        self.next_ns = self.next_ns.max(earliest_ns) + span_ns;
    }

    /// What became of a packet that asked for an acknowledgement.
    pub(super) fn handle_report(&mut self, now_ns: u64, bytes: u16, arrived: bool) {
        self.in_flight = self.in_flight.saturating_sub(bytes.into());
        self.brought += if arrived { bytes.into() } else { 0 };
        self.losses.count(now_ns, arrived);
    }

    pub(super) fn handle_round_trip(&mut self, now_ns: u64, sample_ns: u64) {
        self.own_ns.insert(now_ns, sample_ns);
        let own_ns = self.own_ns.value().unwrap_or(sample_ns);
        if sample_ns <= own_ns + own_ns / 8 {
            self.seen_own_ns = now_ns;
        }
        self.fastest_ns = Some(self.fastest_ns.map_or(sample_ns, |least| least.min(sample_ns)));
    }

    /// Looks at the window if a round is over: `acked` is the newest packet that is known of, and
    /// `next` the one that leaves next.
    pub(super) fn handle_acked(
        &mut self,
        now_ns: u64,
        acked: PacketSeq,
        next: PacketSeq,
        round_trip: &RoundTrip,
    ) {
        if self.round_end.is_newer_than(acked) {
            return;
        }
        self.round_end = next;
        if let Some(window) = self.set_aside.take() {
            self.window = window;
            self.seen_own_ns = now_ns;
        } else if now_ns.saturating_sub(self.seen_own_ns) >= OWN_NS {
            self.set_aside = Some(self.window);
            self.window = 0;
        } else {
            self.judge(round_trip);
        }
        self.bound();
        self.was_full = false;
        self.brought = 0;
        self.fastest_ns = None;
    }

    /// Writes what is known of the network.
    pub(super) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            // As in the options.
            packet_bytes: _,
            window,
            // What is under way says it.
            in_flight: _,
            is_starting,
            was_full,
            brought,
            most_brought,
            rounds_in_vain,
            round_end,
            fastest_ns,
            own_ns,
            seen_own_ns,
            set_aside,
            losses: Losses { reported, lost, own, are_ours },
            next_ns,
        } = self;
        window.write(out);
        is_starting.write(out);
        was_full.write(out);
        brought.write(out);
        most_brought.write(out);
        rounds_in_vain.write(out);
        round_end.write(out);
        fastest_ns.write(out);
        own_ns.write(out);
        seen_own_ns.write(out);
        set_aside.write(out);
        reported.write(out);
        lost.write(out);
        own.write(out);
        are_ours.write(out);
        next_ns.write(out);
    }

    /// Reads it.
    pub(super) fn take_over(
        packet_bytes: usize,
        flight: &Flight,
        from: &mut Reader<'_>,
    ) -> Result<Self, Broken> {
        let mut read = Self {
            packet_bytes: packet_bytes as u64,
            window: bounded(from)?,
            in_flight: flight.asking_bytes(),
            is_starting: bool::read(from)?,
            was_full: bool::read(from)?,
            brought: bounded(from)?,
            most_brought: bounded(from)?,
            rounds_in_vain: u32::read(from)?.min(ROUNDS_MAX),
            round_end: PacketSeq::read(from)?,
            fastest_ns: if bool::read(from)? { Some(bounded(from)?) } else { None },
            own_ns: Least::read(from)?,
            seen_own_ns: time::read(from)?,
            set_aside: if bool::read(from)? { Some(bounded(from)?) } else { None },
            losses: Losses {
                reported: u64::read(from)?,
                lost: u64::read(from)?,
                own: Least::read(from)?,
                are_ours: bool::read(from)?,
            },
            next_ns: time::read(from)?,
        };
        let Losses { reported, lost, .. } = read.losses;
        if reported >= SHARE_PACKETS || lost > reported {
            return Err(Broken::Invalid("share of lost packets"));
        }
        read.bound();
        Ok(read)
    }

    fn judge(&mut self, round_trip: &RoundTrip) {
        let are_lost = std::mem::take(&mut self.losses.are_ours);
        let are_queued = self.stands_in_a_queue(round_trip);
        if are_lost || are_queued {
            self.is_starting = false;
            self.window = if are_lost { self.window / 2 } else { self.window * 3 / 4 };
        } else if self.was_full {
            let more = if self.is_starting { self.window } else { self.window / 16 };
            let most = self.window.max(3 * self.brought);
            self.window = (self.window + more.max(self.packet_bytes)).min(most);
            self.look_for_the_end_of_the_start();
        }
    }

    /// A window that grows and brings no more is as large as it is useful, and more.
    fn look_for_the_end_of_the_start(&mut self) {
        if 4 * self.brought > 5 * self.most_brought {
            (self.most_brought, self.rounds_in_vain) = (self.brought, 0);
            return;
        }
        self.rounds_in_vain = (self.rounds_in_vain + 1).min(ROUNDS_MAX);
        if self.is_starting && self.rounds_in_vain == 2 {
            self.is_starting = false;
            self.window = 2 * self.most_brought;
        }
    }

    /// Two acknowledgements in a row are overdue: whatever was known of the network is not true any
    /// more.
    pub(super) fn handle_outage(&mut self) {
        self.window = 0;
        self.set_aside = None;
        self.is_starting = true;
        (self.most_brought, self.rounds_in_vain) = (0, 0);
        self.bound();
    }

    fn stands_in_a_queue(&self, round_trip: &RoundTrip) -> bool {
        let (Some(fastest_ns), Some(own_ns)) = (self.fastest_ns, self.own_ns.value()) else {
            return false;
        };
        fastest_ns > own_ns + own_ns / 8 + QUEUE_NS + 2 * round_trip.jitter_ns()
    }

    fn bound(&mut self) {
        let packets = PACKETS_MIN..=DATA_PACKETS_MAX as u64;
        let (least, most) =
            (packets.start() * self.packet_bytes, packets.end() * self.packet_bytes);
        self.window = self.window.clamp(least, most);
    }

    /// How many packets may leave at a time: half a window of what the network has shown to carry.
    fn packets_at_once(&self) -> u64 {
        (self.window / self.packet_bytes / 2).clamp(PACKETS_AT_ONCE_MIN, PACKETS_AT_ONCE_MAX)
    }

    /// Over how long so many packets are spread.
    fn span_ns(&self, packets: u64, round_trip: &RoundTrip) -> u64 {
        let round_trip_ns = match round_trip.smoothed_ns() {
            0 => ROUND_TRIP_NS_FIRST,
            known => known.max(ROUND_TRIP_NS_MIN),
        };
        let (faster, than) = if self.is_starting { (2, 1) } else { (9, 8) };
        packets * self.packet_bytes * round_trip_ns * than / (self.window * faster)
    }
}

impl Losses {
    fn count(&mut self, now_ns: u64, arrived: bool) {
        self.reported += 1;
        self.lost += u64::from(!arrived);
        if self.reported < SHARE_PACKETS {
            return;
        }
        let per_mille = self.lost * 1000 / self.reported;
        let own = self.own.value().unwrap_or(per_mille);
        self.are_ours = per_mille > (own + LOSS_PER_MILLE).min(LOSS_PER_MILLE_MAX);
        self.own.insert(now_ns, per_mille);
        (self.reported, self.lost) = (0, 0);
    }
}

/// A number of bytes or nanoseconds that can be reckoned with.
fn bounded(from: &mut Reader<'_>) -> Result<u64, Broken> {
    u64::read(from).and_then(|it| if it <= 1 << 40 { Ok(it) } else { Err(Broken::Invalid("pace")) })
}

/// Nothing changes after so many rounds.
const ROUNDS_MAX: u32 = 1000;

/// The window before anything is known.
const PACKETS_FIRST: u64 = 32;

/// The smallest window.
const PACKETS_MIN: u64 = 4;

/// How many packets leave at a time, however small the window is.
const PACKETS_AT_ONCE_MIN: u64 = 10;

/// And however large. A game that looks at its network once a frame sends a frame's worth at once.
const PACKETS_AT_ONCE_MAX: u64 = 64;

/// Over how many packets the share of lost ones is taken.
const SHARE_PACKETS: u64 = 128;

/// What a share of lost packets may be above the network's own.
const LOSS_PER_MILLE: u64 = 200;

/// How long the network's own round trip is believed without being seen.
const OWN_NS: u64 = 10_000_000_000;

/// A network that loses more than this by itself is none.
const LOSS_PER_MILLE_MAX: u64 = 750;

/// What a round trip may take longer than the network's own.
const QUEUE_NS: u64 = 20_000_000;

/// What a round trip is taken for before there was one.
const ROUND_TRIP_NS_FIRST: u64 = 50_000_000;

/// The pace is that of this round trip where packets are faster, so that a peer that answers at
/// once does not get everything at once.
const ROUND_TRIP_NS_MIN: u64 = 2_000_000;
