//! What a thread of the generator counts and measures.
//!
//! Counters are plain integers of one thread; once per interval the thread gives away what it has
//! gathered and starts anew, so that nothing is shared while packets fly. *Conservation* holds here
//! as it does in the gateway: every payload that was due is sent, refused by the kernel, lost to an
//! impairment of ours, received, or missing, and only the last may need a reason.

use hdrhistogram::Histogram;
use ringgate_core::drops::{DropCounts, DropReason};

macro_rules! counts {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal ),+ $(,)?) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Count { $( $(#[$doc])* $variant ),+ }

        impl Count {
            /// Every counter, in declaration order.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];

            /// The name used in files and tables.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }
        }
    };
}

counts! {
    /// Players who were to connect.
    Joins = "joins",
    /// Players who never dialled, because no connect token was left, or came, for them.
    Tokenless = "tokenless",
    /// Players who never dialled, because no address was free for them.
    Placeless = "placeless",
    /// Players who were let in.
    Connected = "connected",
    /// Those of them whom another gateway let in than the first that their token names.
    ConnectedElsewhere = "connected_elsewhere",
    /// Players who were not let in: denied, expired or not answered.
    ConnectFailed = "connect_failed",
    /// Players who were still asking when the plan, or an interrupt, sent them away.
    Unfinished = "unfinished",
    /// Sessions that ended though the player wanted to stay.
    SessionsLost = "sessions_lost",
    /// Players who left because the scenario says so.
    Left = "left",
    /// Payloads that were due.
    PayloadsDue = "payloads_due",
    /// Payloads that left more than a millisecond after they were due.
    PayloadsLate = "payloads_late",
    /// Datagrams with payloads that the kernel took; a payload that an impairment doubled is two.
    PayloadsSent = "payloads_sent",
    /// Game packets without a payload that the kernel took: Unreal's keep-alives and goodbyes,
    /// which a gateway cannot tell from packets with one.
    PlainSent = "plain_sent",
    /// Payloads that the kernel did not take (send buffer full, refused).
    PayloadsUnsent = "payloads_unsent",
    /// Payloads that the protocol did not let a player send: too many packets of its were not
    /// acknowledged.
    PayloadsStifled = "payloads_stifled",
    /// Payloads that an outgoing impairment dropped.
    PayloadsImpairedUp = "payloads_impaired_up",
    /// Payload packets that an incoming impairment dropped.
    PayloadsImpairedDown = "payloads_impaired_down",
    /// Messages that players' ends took to be delivered.
    MessagesTaken = "messages_taken",
    /// Those of them that are reported as arrived.
    MessagesDelivered = "messages_delivered",
    /// Those that are reported as lost.
    MessagesLost = "messages_lost",
    /// Those whose connection was over before there was a report.
    MessagesGivenUp = "messages_given_up",
    /// Messages that were reported as lost and came back.
    ReportsWrong = "reports_wrong",
    /// Packets of the delivery layer received.
    PacketsIn = "packets_in",
    /// Levels of the game server that came, each once and in order.
    Levels = "levels",
    /// Snapshots of the game server that came, each newer than those before.
    Snapshots = "snapshots",
    /// Echoes that came back, each payload once. For an order it is the level.
    Echoed = "echoed",
    /// Echoes that a newer one had overtaken.
    Reordered = "reordered",
    /// Echoes that had come before.
    Duplicates = "duplicates",
    /// Echoes overtaken by more than 128 others: late or duplicate.
    Stale = "stale",
    /// Messages whose echo had not come when the echo of a later one did.
    Skipped = "skipped",
    /// Payloads with bytes that nobody has sent.
    Corrupt = "corrupt",
    /// Payloads of another session or another run.
    Misdelivered = "misdelivered",
    /// Payloads that the game server says it has heard, each once.
    Heard = "heard",
    /// Payloads that the game server pushed, as far as their numbers tell.
    PushesDue = "pushes_due",
    /// Those of them that came, each once.
    PushedDown = "pushed_down",
    /// What a game server sent before it counted from 0 again, and what came after that.
    PushesOutlived = "pushes_outlived",
    /// Times a game server counted a session's payloads from 0 again: it was restarted, or had
    /// forgotten the session.
    ServerChanges = "server_changes",
    /// Datagrams handed to the kernel.
    DatagramsOut = "datagrams_out",
    /// Bytes in them.
    BytesOut = "bytes_out",
    /// Datagrams of the handshake, keep-alives and goodbyes that the kernel did not take.
    ControlUnsent = "control_unsent",
    /// Datagrams received.
    DatagramsIn = "datagrams_in",
    /// Bytes in them.
    BytesIn = "bytes_in",
    /// Datagrams received that are no payloads: challenges, keep-alives, goodbyes.
    ControlIn = "control_in",
    /// Those among them that are game packets all the same: Unreal's keep-alives.
    PlainIn = "plain_in",
    /// Datagrams received that an incoming impairment dropped, payloads among them.
    ImpairedDown = "impaired_down",
    /// Datagrams from elsewhere than the gateway, or for a player who is gone.
    Strangers = "strangers",
    /// Sudden changes of a player's port.
    PortSwitches = "port_switches",
    /// Sessions that went on after a restart of the handshake.
    Restarted = "restarted",
    /// Datagrams that the kernel dropped at the generator's own sockets.
    OwnKernelDrops = "own_kernel_drops",
}

/// What is measured, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stage {
    /// From the moment a payload was to leave to the moment its echo was seen: what a player would
    /// feel.
    RoundTrip,
    /// From the moment it did leave. Differs from the round trip by what the generator could not
    /// keep up with.
    Service,
    /// From the moment a player was to connect to the moment it was in.
    Handshake,
    /// How late payloads left.
    SendLate,
    /// How long datagrams lay in the generator's own receive queue.
    OwnQueue,
    /// From the game server's push to the player, by the time of day, which both must share.
    PushDown,
    /// From one echo of a player's message to its next.
    Gap,
}

impl Stage {
    /// Every stage, in declaration order.
    pub const ALL: &'static [Self] = &[
        Self::RoundTrip,
        Self::Service,
        Self::Handshake,
        Self::SendLate,
        Self::OwnQueue,
        Self::PushDown,
        Self::Gap,
    ];

    /// The name used as tag and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round_trip",
            Self::Service => "service",
            Self::Handshake => "handshake",
            Self::SendLate => "send_late",
            Self::OwnQueue => "own_queue",
            Self::PushDown => "push_down",
            Self::Gap => "gap",
        }
    }

    /// The tag in histogram files: which stage, and in which direction it looks.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::RoundTrip => "round_trip:both",
            Self::Service => "service:both",
            Self::Handshake => "handshake:both",
            Self::SendLate => "send_late:up",
            Self::OwnQueue => "own_queue:down",
            Self::PushDown => "push_down:down",
            Self::Gap => "gap:down",
        }
    }
}

/// Counters, one for each [`Count`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u64; COUNTERS]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; COUNTERS])
    }
}

impl Counters {
    /// Counts one.
    #[inline]
    pub const fn bump(&mut self, count: Count) {
        self.0[count as usize] += 1;
    }

    /// Counts several.
    #[inline]
    pub const fn add(&mut self, count: Count, by: u64) {
        self.0[count as usize] += by;
    }

    /// Counts one less: it was counted with the others, and turned out to be none of them.
    #[inline]
    pub const fn take_back(&mut self, count: Count) {
        self.0[count as usize] -= 1;
    }

    /// One counter.
    #[inline]
    pub const fn of(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Adds another thread's, or another interval's.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Every counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Count, u64)> + '_ {
        Count::ALL.iter().map(|count| (*count, self.of(*count)))
    }

    /// Payloads that were to travel, in both directions.
    pub const fn due(&self) -> u64 {
        self.of(Count::PayloadsDue) + self.of(Count::PushesDue)
    }

    /// Payloads that have come: echoes and pushes, and what the game server says it has heard. In
    /// an interval there may be more of them than were due in it.
    pub const fn came(&self) -> u64 {
        self.of(Count::Echoed)
            + self.of(Count::Stale)
            + self.of(Count::Heard)
            + self.of(Count::PushedDown)
    }

    /// Payloads that are known to have arrived in a whole run. What was overtaken by too many to
    /// be remembered may have come twice.
    pub fn arrived(&self) -> u64 {
        self.came().min(self.due())
    }

    /// Payloads of which nothing has been seen again, though they left this machine's sockets.
    pub fn missing(&self) -> u64 {
        if self.of(Count::MessagesTaken) > 0 {
            return self.unreported();
        }
        let gone = self.of(Count::PayloadsUnsent)
            + self.of(Count::PayloadsStifled)
            + self.of(Count::PayloadsImpairedUp)
            + self.of(Count::PayloadsImpairedDown)
            + self.arrived();
        self.due().saturating_sub(gone)
    }

    /// Messages of which there is no report, though each has one at the end.
    pub const fn unreported(&self) -> u64 {
        let reported = self.of(Count::MessagesDelivered)
            + self.of(Count::MessagesLost)
            + self.of(Count::MessagesGivenUp);
        self.of(Count::MessagesTaken).saturating_sub(reported)
    }

    /// Payloads that were due and did not arrive, for whatever reason, as a share of those due.
    pub fn loss_share(&self) -> f64 {
        let due = self.due();
        if due == 0 { 0.0 } else { due.saturating_sub(self.arrived()) as f64 / due as f64 }
    }
}

/// What one thread has gathered in one interval.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Counters.
    pub counters: Counters,
    /// Why datagrams were refused by the players.
    pub drops: DropCounts,
    /// One histogram for each stage.
    histograms: Vec<Histogram<u32>>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        let histograms = Stage::ALL.iter().map(|_| histogram()).collect();
        Self { counters: Counters::default(), drops: DropCounts::new(), histograms }
    }

    /// Measures.
    #[inline]
    pub fn record(&mut self, stage: Stage, ns: u64) {
        self.histograms[stage as usize].saturating_record(ns);
    }

    /// What was measured at a stage.
    pub fn of(&self, stage: Stage) -> &Histogram<u32> {
        &self.histograms[stage as usize]
    }

    /// Adds another thread's, or another interval's.
    pub fn merge(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.drops.merge(&other.drops);
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            mine.add(theirs).expect("all histograms have the same bounds");
        }
    }

    /// Counts a datagram that a player refused.
    #[inline]
    pub fn refuse(&mut self, reason: DropReason) {
        self.drops.bump(reason);
    }

    /// A percentile of a stage in nanoseconds; 0 where nothing was measured.
    pub fn percentile_ns(&self, stage: Stage, percentile: f64) -> u64 {
        let histogram = self.of(stage);
        if histogram.is_empty() { 0 } else { histogram.value_at_percentile(percentile) }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// Three digits from a nanosecond to a minute.
fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are in order")
}

/// What takes longer is recorded as this.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;

const COUNTERS: usize = Count::ALL.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_that_was_due_is_in_one_place() {
        let mut counters = Counters::default();
        counters.add(Count::PayloadsDue, 100);
        counters.add(Count::PayloadsUnsent, 1);
        counters.add(Count::PayloadsStifled, 4);
        counters.add(Count::PayloadsImpairedUp, 2);
        counters.add(Count::PayloadsImpairedDown, 3);
        counters.add(Count::Echoed, 80);
        counters.add(Count::Stale, 4);
        assert_eq!(counters.missing(), 6);
        assert!((counters.loss_share() - 0.16).abs() < 1e-9);
    }

    #[test]
    fn tallies_of_threads_add_up() {
        let (mut one, mut other) = (Tally::new(), Tally::new());
        one.record(Stage::RoundTrip, 1000);
        other.record(Stage::RoundTrip, 2_000_000_000_000);
        other.counters.bump(Count::Echoed);
        one.merge(&other);
        assert_eq!((one.of(Stage::RoundTrip).len(), one.counters.of(Count::Echoed)), (2, 1));
        assert!(one.percentile_ns(Stage::RoundTrip, 100.0) >= LATENCY_NS_MAX);
        assert_eq!(one.percentile_ns(Stage::Service, 50.0), 0);
    }
}
