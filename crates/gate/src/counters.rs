//! What a gate counts, and the balances that must hold.
//!
//! Counters are plain integers of one worker, published by copying on the slow path. *Conservation*
//! is five sums: every datagram is handled, forwarded to the worker that owns its session, or
//! dropped for a reason; every payload a player sent reached a link or was dropped for a reason;
//! every payload a game process sent was sealed or dropped for a reason; and the same for whole
//! messages, in both directions.

use crate::front::protocol::PACKET_KIND_NAMES;
use crate::ids::ListenerId;
use crate::party::Party;
use ringgate_core::drops::{DropCounts, DropReason};
use ringgate_link::bundle::{CloseReason, GoodbyeReason, MoveRefusal};

/// One table for everything that is counted: field, ledger, metric and what the metric means.
macro_rules! counters {
    (
        numbers { $(
            $(#[$doc:meta])* $field:ident: $kind:ident
            $(, $side:ident in $ledger:ident)? $(, $metric:literal, $help:literal)?;
        )+ }
        lists { $(
            $(#[$list_doc:meta])* $list:ident: $names:expr, by $label:literal
            $(, $list_side:ident in $list_ledger:ident)?, $list_metric:literal, $list_help:literal;
        )+ }
    ) => {
        /// Counters of one gate. All only grow, except the gauges.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $( $(#[$doc])* pub $field: u64, )+
            $( $(#[$list_doc])* pub $list: [u64; $names.len()], )+
            /// Drops by reason.
            pub drops: DropCounts,
        }

        impl Counters {
            /// Everything that is one number.
            pub const NUMBERS: &'static [Number] = &[ $( Number {
                is_gauge: is_gauge!($kind),
                entry: entry!($($side $ledger)?),
                metric: first!($(($metric, $help))?),
                of: |counters| counters.$field,
            }, )+ ];

            /// Everything that is counted by name.
            pub const LISTS: &'static [List] = &[ $( List {
                entry: entry!($($list_side $list_ledger)?),
                metric: ($list_metric, $list_help),
                label: $label,
                names: &$names,
                of: |counters| &counters.$list,
            }, )+ ];

            /// Shows everything by its names: the counter's, and the one in its list.
            pub(crate) fn show(&self, mut show: impl FnMut(&'static str, &'static str, u64)) {
                $( show(stringify!($field), "", self.$field); )+
                $( for (name, count) in $names.iter().zip(&self.$list) {
                    show(stringify!($list), name, *count);
                } )+
                for (reason, count) in self.drops.iter() {
                    show(DROPS, reason.name(), count);
                }
            }

            /// Adds to what has these names. False where there is none: it was counted by
            /// another release.
            pub(crate) fn add(&mut self, counter: &str, name: &str, count: u64) -> bool {
                let place = match (counter, name) {
                    $( (stringify!($field), "") => Some(&mut self.$field), )+
                    $( (stringify!($list), name) => {
                        let at = $names.iter().position(|known| *known == name);
                        at.map(|at| &mut self.$list[at])
                    } )+
                    (DROPS, name) => {
                        let reason = DropReason::named(name);
                        reason.map(|reason| self.drops.add(reason, count));
                        return reason.is_some();
                    }
                    _ => None,
                };
                match place {
                    Some(place) => *place = place.wrapping_add(count),
                    None => return false,
                }
                true
            }

            /// Adds another worker's counters.
            pub fn merge(&mut self, other: &Self) {
                $( self.$field += other.$field; )+
                $( add_all(&mut self.$list, &other.$list); )+
                self.drops.merge(&other.drops);
            }
        }
    };
}

/// What the list of drops is called among the counters.
const DROPS: &str = "drops";

macro_rules! is_gauge {
    (counter) => {
        false
    };
    (gauge) => {
        true
    };
}

macro_rules! entry {
    () => {
        None
    };
    ($side:ident $ledger:ident) => {
        Some((Side::$side, Ledger::$ledger))
    };
}

macro_rules! first {
    () => {
        None
    };
    ($one:expr) => {
        Some($one)
    };
}

counters! {
    numbers {
        /// Datagrams from players' sockets.
        datagrams_in: counter, CameIn in Datagrams,
            "ringgate_datagrams_in_total", "Datagrams from players' sockets.";
        /// Bytes in them.
        bytes_in: counter,
            "ringgate_bytes_in_total", "Bytes in datagrams from players' sockets.";
        /// Bytes in packets for players.
        bytes_out: counter,
            "ringgate_bytes_out_total", "Bytes in packets for players.";
        /// Datagrams another worker received for a session of ours.
        forwarded_in: counter, CameIn in Datagrams,
            "ringgate_forwarded_in_total",
            "Datagrams that another worker received for a session of this one.";
        /// Datagrams we passed on to another worker, for a session of its own or one that may be.
        forwarded_out: counter, Accounted in Datagrams,
            "ringgate_forwarded_out_total",
            "Datagrams that this worker received for a session of another.";
        /// Datagrams another member of the cluster received for a player of ours.
        members_in: counter, CameIn in Datagrams,
            "ringgate_members_in_total",
            "Datagrams that another member of the cluster received for a player of this one.";
        /// Datagrams we passed on to another member, for a player of its own or one that may be.
        members_out: counter, Accounted in Datagrams,
            "ringgate_members_out_total",
            "Datagrams that this worker received for a player of another member of the cluster.";
        /// Datagrams we passed on to more than one: how many times more.
        forwarded_copies: counter, CameIn in Datagrams;
        /// Datagrams that were kept for a session which another member gives to this one.
        early_kept: counter, Accounted in Datagrams;
        /// Of those, the ones whose wait is over.
        early_taken: counter, CameIn in Datagrams;
        /// Payloads opened.
        payloads_up: counter, CameIn in Uplink,
            "ringgate_payloads_up_total", "Payloads from players, opened.";
        /// Payloads handed to links.
        payloads_to_links: counter, Accounted in Uplink,
            "ringgate_payloads_to_links_total", "Payloads handed to game processes.";
        /// Payloads from links, each receiver of a multicast counted.
        payloads_from_links: counter, CameIn in Downlink,
            "ringgate_payloads_from_links_total", "Payloads from game processes.";
        /// Payloads sealed for players.
        payloads_down: counter, Accounted in Downlink,
            "ringgate_payloads_down_total", "Payloads sealed for players.";
        /// Payloads that were packets of the delivery layer.
        delivery_packets: counter, Accounted in Uplink,
            "ringgate_delivery_packets_total",
            "Payloads from players that were packets of the delivery layer, and were taken.";
        /// Whole messages of players.
        messages_up: counter, CameIn in MessagesUp,
            "ringgate_messages_up_total", "Whole messages from players.";
        /// Messages handed to links.
        messages_to_links: counter, Accounted in MessagesUp,
            "ringgate_messages_to_links_total", "Whole messages handed to game processes.";
        /// Messages from links.
        messages_from_links: counter, CameIn in MessagesDown,
            "ringgate_messages_from_links_total", "Whole messages from game processes.";
        /// Messages queued for players.
        messages_down: counter, Accounted in MessagesDown,
            "ringgate_messages_down_total", "Whole messages queued for players.";
        /// Messages that were queued for players and had not arrived in time.
        messages_undelivered: counter,
            "ringgate_messages_undelivered_total",
            "Messages on reliable channels that had not arrived when a session ended that its game process had closed after delivery.";
        /// Datagrams received from links.
        link_datagrams_in: counter,
            "ringgate_link_datagrams_in_total", "Datagrams from game processes.";
        /// Datagrams handed to links (bundles, or udp payloads).
        link_datagrams_out: counter,
            "ringgate_link_datagrams_out_total", "Datagrams to game processes.";
        /// Links that the gateway closed.
        links_refused: counter,
            "ringgate_links_refused_total", "Links that the gateway closed.";
        /// Players of whom another game process was asked whether they may come.
        moves_offered: counter,
            "ringgate_moves_offered_total",
            "Players that a game process was offered who play at another.";
        /// Players who were moved to another game process.
        moves: counter,
            "ringgate_moves_total", "Players who were moved to another game process.";
        /// Sessions now.
        sessions: gauge,
            "ringgate_sessions", "Sessions now.";
        /// Unfinished handshakes now.
        pending: gauge,
            "ringgate_handshakes_pending", "Unfinished handshakes now.";
        /// Half-open sessions, and sources after a gap, that made room for others.
        half_open_evicted: counter,
            "ringgate_half_open_evicted_total",
            "Half-open sessions of plain listeners, and sources barred after a gap, that made room for others.";
        /// Sessions opened.
        sessions_opened: counter,
            "ringgate_sessions_opened_total", "Handshakes completed.";
        /// Sessions that followed their player to another port.
        port_switches: counter,
            "ringgate_port_switches_total",
            "Sessions that followed their player to another port.";
    }
    lists {
        /// Datagrams that did what they came for, by packet kind.
        handled: PACKET_KIND_NAMES, by "kind", Accounted in Datagrams,
            "ringgate_packets_handled_total",
            "Packets from players that did what they came for, by kind.";
        /// Packets for players, by packet kind.
        packets_out: PACKET_KIND_NAMES, by "kind",
            "ringgate_packets_out_total", "Packets for players, by kind.";
        /// Sessions ended, by reason.
        sessions_closed: Ended::NAMES, by "reason",
            "ringgate_sessions_closed_total", "Sessions ended, by reason.";
        /// Players who were not moved to another game process, by reason.
        moves_refused: MOVE_REFUSALS, by "reason",
            "ringgate_move_refused_total",
            "Players who were not moved to another game process, by reason.";
        /// Links that the gateway closed, by reason.
        link_refusals: LinkRefusal::NAMES, by "reason",
            "ringgate_link_refusals_total", "Links that the gateway closed, by reason.";
    }
}

/// A counter that is one number.
pub struct Number {
    /// It may also fall.
    pub is_gauge: bool,
    /// Where it stands in a balance, if it does.
    entry: Option<(Side, Ledger)>,
    /// What it is called in metrics, and what that means.
    pub metric: Option<(&'static str, &'static str)>,
    /// Its value.
    pub of: fn(&Counters) -> u64,
}

/// A counter that has a number for each of several names.
pub struct List {
    /// Where its sum stands in a balance, if it does.
    entry: Option<(Side, Ledger)>,
    /// What it is called in metrics, and what that means.
    pub metric: (&'static str, &'static str),
    /// What the names are.
    pub label: &'static str,
    /// The names, in the order of the numbers.
    pub names: &'static [&'static str],
    /// The numbers.
    pub of: fn(&Counters) -> &[u64],
}

/// A side of a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    CameIn,
    Accounted,
}

/// Moments that the worker turns into latencies, collected over a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When the kernel received each datagram whose payload went to a link in this turn, in its
    /// real-time clock.
    pub uplink_kernel_ns: Vec<u64>,
    /// Whose these are, from which position on.
    uplink_parties: Vec<(Party, usize)>,
    /// How many payloads from links were sealed in this turn, by whose players they are for.
    pub downlinks: [u64; Party::COUNT],
    /// How long each handshake took that was completed in this turn, from the first request we
    /// took, and whose it is.
    pub handshakes_ns: Vec<(Party, u64)>,
}

impl Stamps {
    pub(crate) fn clear(&mut self) {
        self.uplink_kernel_ns.clear();
        self.uplink_parties.clear();
        self.downlinks = [0; Party::COUNT];
        self.handshakes_ns.clear();
    }

    /// From now on a listener's players are heard.
    pub(crate) fn begin_uplinks(&mut self, listener: ListenerId) {
        let party = Party::of(listener);
        if self.uplink_parties.last().is_none_or(|(last, _)| *last != party) {
            self.uplink_parties.push((party, self.uplink_kernel_ns.len()));
        }
    }

    /// What went to links, in stretches that are of one party each.
    pub(crate) fn uplinks(&self) -> impl Iterator<Item = (Party, &[u64])> {
        let starts = || self.uplink_parties.iter().map(|(_, start)| *start);
        let parties = [Party::NONE].into_iter().chain(self.uplink_parties.iter().map(|it| it.0));
        let ends = starts().chain([self.uplink_kernel_ns.len()]);
        let bounds = [0].into_iter().chain(starts()).zip(ends);
        let stretches = parties.zip(bounds).filter(|(_, (start, end))| start < end);
        stretches.map(|(party, (start, end))| (party, &self.uplink_kernel_ns[start..end]))
    }
}

ringgate_core::named! {
    /// Why a session ended.
    pub enum Ended;
    /// The backend was gone for longer than its grace time.
    BackendGone = "backend_gone" => "its backend was gone for longer than its grace time",
    /// The agent in front of its game says that it has ended, at whichever gateway of the cluster.
    ByArbiter = "by_arbiter" => "its agent says that it has ended",
    /// The game process closed it.
    ByBackend = "by_backend" => "the game process closed it",
    /// An operator ended it.
    ByOperator = "by_operator" => "an operator ended it (kick, or the end of a drain)",
    /// The player left.
    ByPlayer = "by_player" => "the player left",
    /// The player acknowledged what was not sent, or took an acknowledgement back.
    DeliveryAcknowledgement = "delivery_acknowledgement" =>
        "the player acknowledged what was never sent",
    /// A packet or a frame that nobody writes.
    DeliveryMalformed = "delivery_malformed" =>
        "the player sent what is no packet of the delivery layer",
    /// A message began in the middle of another, or went on without a beginning.
    DeliveryMarks = "delivery_marks" => "a message of the player's began in the middle of another",
    /// More waited than a receiver holds.
    DeliveryMemory = "delivery_memory" => "more of the player's messages waited than is kept",
    /// A message grew over 64 KiB.
    DeliveryMessageLength = "delivery_message_length" =>
        "a message of the player's grew over 64 KiB",
    /// The game process sent more on reliable channels than is kept for a player.
    DeliveryOverflow = "delivery_overflow" => "the game process sent more than the player took",
    /// A message on a channel that is not reliable was longer than 1159 bytes.
    DeliveryOversize = "delivery_oversize" =>
        "the player sent 1160 bytes or more on an unreliable channel",
    /// A packet's number was further ahead than packets can be in flight.
    DeliverySequence = "delivery_sequence" => "a packet of the player's was numbered too far ahead",
    /// The player acknowledged nothing as arrived for 30 seconds.
    DeliverySilence = "delivery_silence" => "the player acknowledged nothing for half a minute",
    /// A part of a message was further ahead than its channel's window.
    DeliveryWindow = "delivery_window" => "a part of a message of the player's was too far ahead",
    /// The player's address is denied, or its id.
    Denied = "denied" => "an operator has denied the player's address or id",
    /// Another gateway of the cluster goes on with it.
    Fenced = "fenced" => "another member of the cluster goes on with it",
    /// The game process closed it after delivery, and not everything had arrived in time.
    LingerExpired = "linger_expired" =>
        "the game process closed it, and not all had arrived in time",
    /// The player has logged in again, here or at another gateway.
    NewerLogin = "newer_login" => "the player has logged in again, here or at another gateway",
    /// It could not be carried into the process that has taken the gateway over.
    NotCarried = "not_carried" => "it could not be carried into the process that has taken over",
    /// The session has used up the numbers that its packets may have.
    NumbersUsedUp = "numbers_used_up" => "its packets have no numbers left",
    /// A second handshake from the player's address took its place.
    Replaced = "replaced" => "another handshake from the same address took its place",
    /// The gateway stops.
    Shutdown = "shutdown" => "the gateway stops",
    /// The sequence jumped further than the listener allows.
    SequenceGap = "sequence_gap" => "its packet number jumped further than gap_limit",
    /// Nothing was heard from the player for the token's timeout.
    TimedOut = "timed_out" => "nothing was heard from the player for the timeout",
}

ringgate_core::named! {
    /// Why the gateway closed a link, or did not keep one.
    pub enum LinkRefusal;
    /// The process did not say hello first, or once, or in time.
    HelloExpected = "hello_expected",
    /// Another process is this backend already.
    NameTaken = "name_taken",
    /// No bundle backend has this name.
    NameUnknown = "name_unknown",
    /// A record broke the format.
    RecordInvalid = "record_invalid",
    /// Too many processes of this user wait without having said hello.
    TooManyNameless = "too_many_nameless",
    /// The process's user may not be this backend, or none at all, or may not any more.
    Unauthorised = "unauthorised",
    /// The process speaks another version.
    VersionUnsupported = "version_unsupported",
}

/// How a session ends: what is counted, and what a game process on a bundle link is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) why: Ended,
    pub(crate) reason: CloseReason,
}

impl Ending {
    /// How game processes and operators have a session end, who can wait.
    const WANTED: [Ended; 3] = [Ended::ByBackend, Ended::ByOperator, Ended::Denied];

    /// It for another process, whose release may have other reasons.
    pub(crate) fn numbers(self) -> (u8, u8) {
        let at = Self::WANTED.iter().position(|why| *why == self.why);
        (at.unwrap_or_default() as u8, self.reason.as_u8())
    }

    pub(crate) fn of_numbers((at, reason): (u8, u8)) -> Option<Self> {
        let why = *Self::WANTED.get(usize::from(at))?;
        Some(Self { why, reason: CloseReason::from_u8(reason)? })
    }
}

impl From<Ended> for Ending {
    fn from(why: Ended) -> Self {
        Self { why, reason: why.close_reason() }
    }
}

impl Ended {
    const fn close_reason(self) -> CloseReason {
        match self {
            Self::BackendGone | Self::Fenced | Self::NotCarried | Self::NumbersUsedUp => {
                CloseReason::Unconfigured
            }
            Self::ByArbiter | Self::ByBackend | Self::LingerExpired => CloseReason::Finished,
            Self::ByOperator | Self::Denied => CloseReason::Operator,
            Self::ByPlayer | Self::Replaced => CloseReason::PlayerLeft,
            Self::DeliveryAcknowledgement
            | Self::DeliveryMalformed
            | Self::DeliveryMarks
            | Self::DeliveryMemory
            | Self::DeliveryMessageLength
            | Self::DeliveryOversize
            | Self::DeliverySequence
            | Self::DeliverySilence
            | Self::DeliveryWindow => CloseReason::Delivery,
            Self::DeliveryOverflow => CloseReason::Overflow,
            Self::NewerLogin => CloseReason::NewerLogin,
            Self::SequenceGap => CloseReason::SequenceGap,
            Self::Shutdown => CloseReason::Shutdown,
            Self::TimedOut => CloseReason::TimedOut,
        }
    }
}

/// What each refusal to move a player is counted under, by its number.
pub const MOVE_REFUSALS: [&str; MoveRefusal::ALL.len()] = [
    "other",
    "no_such_backend",
    "itself",
    "full",
    "not_linked",
    "denied",
    "time",
    "version",
    "front",
    "not_allowed",
    "busy",
    "offers",
    "closed",
    "session_over",
    "player_full",
    "source_gone",
];

impl LinkRefusal {
    /// What a goodbye with this reason counts as.
    pub(crate) const fn of(goodbye: GoodbyeReason) -> Self {
        match goodbye {
            GoodbyeReason::NameTaken => Self::NameTaken,
            GoodbyeReason::NameUnknown => Self::NameUnknown,
            GoodbyeReason::RecordInvalid => Self::RecordInvalid,
            GoodbyeReason::Unauthorised => Self::Unauthorised,
            GoodbyeReason::VersionUnsupported => Self::VersionUnsupported,
            // No process is refused for the other reasons.
            _ => Self::HelloExpected,
        }
    }
}

impl Counters {
    /// The five balances. `Err` names the one that does not hold, with both sides.
    pub fn check_conservation(&self) -> Result<(), Imbalance> {
        for (balance, ledger) in BALANCES {
            let came_in = self.sum(Side::CameIn, ledger);
            let accounted = self.sum(Side::Accounted, ledger) + self.dropped(ledger);
            if came_in != accounted {
                return Err(Imbalance { balance, came_in, accounted });
            }
        }
        Ok(())
    }

    /// One side of a balance, without the drops.
    fn sum(&self, side: Side, ledger: Ledger) -> u64 {
        let entry = Some((side, ledger));
        let numbers = Self::NUMBERS.iter().filter(|number| number.entry == entry);
        let lists = Self::LISTS.iter().filter(|list| list.entry == entry);
        let sums = lists.map(|list| (list.of)(self).iter().sum::<u64>());
        numbers.map(|number| (number.of)(self)).chain(sums).sum()
    }

    fn dropped(&self, ledger: Ledger) -> u64 {
        let entries = self.drops.iter().filter(|(reason, _)| Ledger::of(*reason) == ledger);
        entries.map(|(_, count)| count).sum()
    }
}

/// What has to balance, and what it is called.
const BALANCES: [(&str, Ledger); 5] = [
    ("datagrams", Ledger::Datagrams),
    ("uplink", Ledger::Uplink),
    ("downlink", Ledger::Downlink),
    ("messages up", Ledger::MessagesUp),
    ("messages down", Ledger::MessagesDown),
];

/// A balance that does not hold: something was lost, or counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Which one.
    pub balance: &'static str,
    /// What came in.
    pub came_in: u64,
    /// What is accounted for.
    pub accounted: u64,
}

/// Which balance a drop belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ledger {
    /// Datagrams that came in.
    Datagrams,
    /// Packets that were sealed but not sent.
    Departures,
    /// Payloads from game processes.
    Downlink,
    /// Records and datagrams on links that are not payloads.
    Links,
    /// Messages from game processes.
    MessagesDown,
    /// Messages for game processes.
    MessagesUp,
    /// Payloads for game processes.
    Uplink,
}

impl Ledger {
    /// The ledger of a reason.
    #[rustfmt::skip]
    pub const fn of(reason: DropReason) -> Self {
        use DropReason as R;
        match reason {
            R::Empty | R::TooLong | R::PatternMissing | R::TokenUnknown | R::SequenceMissing
            | R::AfterGap | R::StartBlockLimited | R::StartLimited | R::HalfOpenFull
            | R::UnprovenFull | R::UnknownSource | R::AddressDenied | R::SessionEnded
            | R::RequestRateLimited | R::RequestLength | R::RequestVersion | R::RequestProtocol
            | R::RequestExpired | R::RequestForged | R::TokenUnreadable | R::TokenNotForUs
            | R::ClientDenied | R::RequestAddressConnected | R::RequestClientConnected
            | R::TokenUsedElsewhere | R::TokenSpent | R::TokenHistoryFull | R::TokenClaimed
            | R::TokenClaimPending | R::TokenUnclaimed | R::TokenClaimsFull | R::RequestBackendFull
            | R::RequestBackendDown | R::BackendDrained | R::BackendStarting
            | R::RequestSessionsFull | R::TokenSuperseded | R::AddressFull | R::SiteFull
            | R::BlockFull | R::BlockHandshakesFull | R::PendingFull | R::RequestDeferred
            | R::BucketMoved | R::Draining | R::PacketLength | R::PacketType | R::SequenceLength
            | R::PacketTruncated | R::ReplayDuplicate | R::ReplayTooOld | R::SequenceGap
            | R::PacketForged | R::BodyLength | R::PacketUnexpected | R::ChallengeForged
            | R::ChallengeForeign | R::ResponseClientConnected | R::ResponseBackendFull
            | R::ResponseBackendDown | R::ResponseSessionsFull | R::PlacesResting
            | R::PortSwitchRateLimited | R::PortSwitchForged | R::PortSwitchStale | R::MailboxFull
            | R::ForwardLimited | R::MemberQueueFull | R::TakeoverAwaited | R::TakeoverLimited
            | R::TakeoverRefused | R::UnrealEnd | R::UnrealMagic | R::UnrealSize | R::UnrealType
            | R::UnrealFiller | R::UnrealVersion | R::UnrealNetworkVersion | R::UnrealIds
            | R::CookieExpired | R::CookieSecret | R::CookieForged | R::CookieUnknown
            | R::ResponseReplayed | R::ResponseHistoryFull | R::RestartRateLimited
            | R::GapUnconfirmed | R::AckImplausible => Self::Datagrams,
            R::LinkFull | R::LinkDown | R::MoveUnconfirmed | R::OwnerUnconfirmed
            | R::DeliveryDeferred | R::DeliveryLate | R::DeliveryFault => Self::Uplink,
            R::MessageNotTaken => Self::MessagesUp,
            R::MessageUnknown | R::MessageAfterMove | R::MessageOverflow => Self::MessagesDown,
            R::SessionUnknown | R::AfterMove | R::ServerDuplicate | R::ServerPacketInvalid
            | R::MulticastDuplicate | R::LinkEnded | R::AnswerLimited | R::SourcePaused
            | R::CreditSpent | R::PayloadLength | R::SequenceExhausted => Self::Downlink,
            R::RecordInvalid | R::OfferUnknown | R::LinkStranger => Self::Links,
            R::SendBufferFull | R::SendRefused => Self::Departures,
        }
    }
}

fn add_all(mine: &mut [u64], theirs: &[u64]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uplinks_are_told_in_stretches_of_one_party() {
        let [eu, us] = [0, 1].map(ListenerId);
        let mut stamps = Stamps::default();
        stamps.uplink_kernel_ns.push(1);
        for (listener, kernel_ns) in [(eu, &[2, 3][..]), (eu, &[4]), (us, &[]), (eu, &[5])] {
            stamps.begin_uplinks(listener);
            stamps.uplink_kernel_ns.extend(kernel_ns);
        }
        let of_eu = Party::of(eu);
        let expected: [(Party, &[u64]); 3] =
            [(Party::NONE, &[1]), (of_eu, &[2, 3, 4]), (of_eu, &[5])];
        assert!(stamps.uplinks().eq(expected));
        stamps.clear();
        assert_eq!(stamps.uplinks().count(), 0);
    }

    #[test]
    fn a_lost_datagram_is_an_imbalance() {
        let mut counters = Counters { datagrams_in: 2, ..Counters::default() };
        counters.handled[5] = 1;
        counters.drops.bump(DropReason::PacketForged);
        assert_eq!(counters.check_conservation(), Ok(()));
        counters.datagrams_in = 3;
        let imbalance = Imbalance { balance: "datagrams", came_in: 3, accounted: 2 };
        assert_eq!(counters.check_conservation(), Err(imbalance));
    }

    #[test]
    fn operators_are_told_the_balances_that_are_checked() {
        let page = include_str!("../../../docs/reference/metrics.md");
        let code = |names: Vec<&str>| match names[..] {
            [] => String::new(),
            _ => format!("`{}`", names.join("`, `")),
        };
        let none = [("none", Ledger::Links), ("none", Ledger::Departures)];
        for (balance, ledger) in BALANCES.into_iter().chain(none) {
            let [came_in, accounted] = [Side::CameIn, Side::Accounted].map(|side| {
                let entry = Some((side, ledger));
                let numbers = Counters::NUMBERS.iter().filter(|it| it.entry == entry);
                let lists = Counters::LISTS.iter().filter(|it| it.entry == entry);
                let lists = lists.map(|it| it.metric.0);
                code(numbers.filter_map(|it| Some(it.metric?.0)).chain(lists).collect())
            });
            let all = || DropReason::ALL.iter().filter(|why| Ledger::of(**why) == ledger);
            let reasons = match ledger {
                Ledger::Datagrams => "all that no other line has".to_owned(),
                _ => code(all().map(|why| why.name()).collect()),
            };
            let line = format!("| {balance} | {came_in} | {accounted} | {reasons} |");
            assert!(page.lines().any(|it| it == line), "metrics.md has no line\n{line}");
        }
    }

    #[test]
    fn every_goodbye_to_a_refused_process_has_a_name_of_its_own() {
        for &goodbye in GoodbyeReason::ALL {
            let is_shared = matches!(
                goodbye,
                GoodbyeReason::HelloExpected | GoodbyeReason::Other | GoodbyeReason::Shutdown
            );
            let refusal = LinkRefusal::of(goodbye);
            assert_eq!(refusal == LinkRefusal::HelloExpected, is_shared, "{goodbye:?}");
        }
    }

    #[test]
    fn link_drops_balance_payloads_and_not_datagrams() {
        let mut counters = Counters { payloads_up: 5, payloads_to_links: 3, ..Counters::default() };
        counters.drops.add(DropReason::LinkFull, 2);
        assert_eq!(counters.check_conservation(), Ok(()));
        let mut sum = counters.clone();
        sum.merge(&counters);
        assert_eq!((sum.payloads_up, sum.check_conservation()), (10, Ok(())));
    }
}
