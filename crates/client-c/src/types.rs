//! Structures and numbers as the header has them. The tests hold both to each other.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use ringgate_client::{Channel, Client, Event, Fault, Options, Quality, Reason, State};

use crate::raw::SizedByCaller;

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR_NULL: c_int = -1;
pub(crate) const ERROR_SIZE: c_int = -2;
pub(crate) const ERROR_TOKEN: c_int = -3;
pub(crate) const ERROR_OPTION: c_int = -4;
pub(crate) const ERROR_SYSTEM: c_int = -5;
pub(crate) const ERROR_CLOSED: c_int = -6;
pub(crate) const ERROR_EMPTY: c_int = -7;
pub(crate) const ERROR_FULL: c_int = -8;
pub(crate) const ERROR_TOO_LONG: c_int = -9;
pub(crate) const ERROR_KIND: c_int = -10;

/// What C knows as `struct rgc_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct COptions {
    /// Its size.
    pub size: usize,
    /// Comes back from `rgc_user`.
    pub user: *mut c_void,
    /// The longest packet; 0 for the default.
    pub packet_bytes: u32,
    /// The heartbeat in milliseconds; 0 for the default.
    pub keep_alive_ms: u32,
    /// How long an acknowledgement may wait, in microseconds; 0 for the default.
    pub ack_delay_us: u32,
    /// Nothing yet.
    pub reserved: u32,
    /// What may wait on reliable channels; 0 for the default.
    pub reliable_bytes_max: usize,
    /// What may wait on the others; 0 for the default.
    pub unreliable_bytes_max: usize,
}

/// What C knows as `struct rgc_event`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CEvent {
    /// Its size.
    pub size: usize,
    /// What happened.
    pub kind: u32,
    /// Why it is over.
    pub reason: u32,
    /// Of which kind the message's channel is.
    pub channel_kind: u32,
    /// Its number.
    pub channel: u32,
    /// The message.
    pub bytes: *const u8,
    /// Its length.
    pub bytes_len: usize,
    /// Whose report it is.
    pub token: u64,
    /// What it says.
    pub is_delivered: u32,
    /// The player's index.
    pub slot: u32,
    /// Of how many.
    pub slots: u32,
    /// Nothing yet.
    pub reserved: u32,
    /// The server's address, with a zero at its end.
    pub server: [c_char; SERVER_BYTES],
}

/// What C knows as `struct rgc_quality`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CQuality {
    /// Its size.
    pub size: usize,
    /// The round trip, smoothed.
    pub round_trip_ns: u64,
    /// How far round trips differ from it.
    pub variation_ns: u64,
    /// Lost packets out of a thousand.
    pub loss_per_mille: u32,
    /// How much may be in flight.
    pub window_bytes: u32,
    /// How much is.
    pub in_flight_bytes: u32,
    /// Nothing yet.
    pub reserved: u32,
    /// What waits on reliable channels.
    pub reliable_bytes: u64,
}

/// What C knows as `struct rgc_statistics`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStatistics {
    /// Its size.
    pub size: usize,
    /// Datagrams that came.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Those that were not taken.
    pub refused_in: u64,
    /// Datagrams that left.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Those that the system did not take.
    pub unsent: u64,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that were taken to be sent.
    pub messages_out: u64,
}

// SAFETY: plain numbers and pointers behind the size.
unsafe impl SizedByCaller for COptions {
    const FIRST: usize = offset_of!(Self, unreliable_bytes_max) + size_of::<usize>();
}

// SAFETY: as above.
unsafe impl SizedByCaller for CEvent {
    const FIRST: usize = offset_of!(Self, server) + SERVER_BYTES;
}

// SAFETY: as above.
unsafe impl SizedByCaller for CQuality {
    const FIRST: usize = offset_of!(Self, reliable_bytes) + size_of::<u64>();
}

// SAFETY: as above.
unsafe impl SizedByCaller for CStatistics {
    const FIRST: usize = offset_of!(Self, messages_out) + size_of::<u64>();
}

impl COptions {
    /// The options, unless one of them is out of its bounds.
    pub(crate) fn checked(&self) -> Option<Options> {
        let mut options = Options::default();
        let delivery = &mut options.delivery;
        if self.packet_bytes != 0 {
            delivery.packet_bytes = self.packet_bytes as usize;
        }
        if self.keep_alive_ms != 0 {
            delivery.keep_alive_ns = u64::from(self.keep_alive_ms) * 1_000_000;
        }
        if self.ack_delay_us != 0 {
            delivery.ack_delay_ns = u64::from(self.ack_delay_us) * 1000;
        }
        if self.reliable_bytes_max != 0 {
            delivery.reliable_bytes_max = self.reliable_bytes_max;
        }
        if self.unreliable_bytes_max != 0 {
            delivery.unreliable_bytes_max = self.unreliable_bytes_max;
        }
        let is_valid = (200..=1200).contains(&delivery.packet_bytes) && self.reserved == 0;
        is_valid.then_some(options)
    }
}

impl CEvent {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let none = Self::none();
        match *event {
            Event::Connected { server, slot, slots } => {
                Self { kind: EVENT_CONNECTED, slot, slots, server: address(server), ..none }
            }
            Event::Message(channel, bytes) => {
                let (channel_kind, channel) = numbers(channel);
                let (bytes, bytes_len) = (bytes.as_ptr(), bytes.len());
                let channel = channel.into();
                Self { kind: EVENT_MESSAGE, channel_kind, channel, bytes, bytes_len, ..none }
            }
            Event::Reported(report) => {
                let is_delivered = report.is_delivered.into();
                Self { kind: EVENT_REPORT, token: report.token, is_delivered, ..none }
            }
            Event::NextServer { server } => {
                Self { kind: EVENT_NEXT_SERVER, server: address(server), ..none }
            }
            Event::Closed(reason) => Self { kind: EVENT_CLOSED, reason: number_of(reason), ..none },
        }
    }

    const fn none() -> Self {
        Self {
            size: size_of::<Self>(),
            kind: 0,
            reason: 0,
            channel_kind: 0,
            channel: 0,
            bytes: ptr::null(),
            bytes_len: 0,
            token: 0,
            is_delivered: 0,
            slot: 0,
            slots: 0,
            reserved: 0,
            server: [0; SERVER_BYTES],
        }
    }
}

impl CQuality {
    pub(crate) const fn of(quality: &Quality) -> Self {
        Self {
            size: size_of::<Self>(),
            round_trip_ns: quality.round_trip_ns,
            variation_ns: quality.variation_ns,
            loss_per_mille: quality.loss_per_mille as u32,
            window_bytes: quality.window_bytes,
            in_flight_bytes: quality.in_flight_bytes,
            reserved: 0,
            reliable_bytes: quality.reliable_bytes as u64,
        }
    }
}

impl CStatistics {
    pub(crate) const fn of(client: &Client) -> Self {
        let counted = client.statistics();
        Self {
            size: size_of::<Self>(),
            datagrams_in: counted.datagrams_in,
            bytes_in: counted.bytes_in,
            refused_in: counted.refused_in,
            datagrams_out: counted.datagrams_out,
            bytes_out: counted.bytes_out,
            unsent: client.unsent(),
            messages_in: counted.messages_in,
            messages_out: counted.messages_out,
        }
    }
}

/// The channel of that kind and number.
pub(crate) fn channel(kind: u32, number: u8) -> Option<Channel> {
    Channel::from_bytes([u8::try_from(kind).ok()?, number])
}

/// The number of a reason.
pub(crate) const fn number_of(reason: Reason) -> u32 {
    match reason {
        Reason::Left => 1,
        Reason::Ended(state) => match state {
            State::Denied => 3,
            State::RequestTimedOut => 4,
            State::ResponseTimedOut => 5,
            State::ConnectionTimedOut => 6,
            State::InvalidToken => 7,
            State::TokenExpired => 8,
            State::Disconnected
            | State::SendingRequest
            | State::SendingResponse
            | State::Connected => 2,
        },
        Reason::Fault(fault) => REASON_FAULT + fault as u32,
    }
}

/// The reason with that number.
pub(crate) fn reason(number: u32) -> Option<Reason> {
    let states = [
        State::Disconnected,
        State::Denied,
        State::RequestTimedOut,
        State::ResponseTimedOut,
        State::ConnectionTimedOut,
        State::InvalidToken,
        State::TokenExpired,
    ];
    let faults = Fault::ALL.iter().copied().map(Reason::Fault);
    let all = states.into_iter().map(Reason::Ended).chain(faults);
    std::iter::once(Reason::Left).chain(all).find(|reason| number_of(*reason) == number)
}

fn numbers(channel: Channel) -> (u32, u8) {
    let [kind, number] = channel.to_bytes();
    (kind.into(), number)
}

fn address(server: std::net::SocketAddr) -> [c_char; SERVER_BYTES] {
    let mut text = [0; SERVER_BYTES];
    for (to, from) in text[..SERVER_BYTES - 1].iter_mut().zip(server.to_string().bytes()) {
        *to = from as c_char;
    }
    text
}

const EVENT_CONNECTED: u32 = 1;
const EVENT_MESSAGE: u32 = 2;
const EVENT_REPORT: u32 = 3;
const EVENT_NEXT_SERVER: u32 = 4;
const EVENT_CLOSED: u32 = 5;

/// Faults of the delivery layer count from here.
pub(crate) const REASON_FAULT: u32 = 32;

/// The longest IPv6 address with a scope and a port has 64.
const SERVER_BYTES: usize = 72;
