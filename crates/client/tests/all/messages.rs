//! Messages of each kind, there and back, over good networks and bad ones: every one accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringgate_client::{Channel, Client, Event, Fault, Options, Reason, SendError, State};
use ringgate_os::clock::Clock;

use super::far_end::{FarEnd, Order, PATIENCE_NS, token};

/// What a client has heard.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) messages: Vec<(Channel, Vec<u8>)>,
    /// Tokens, and whether those messages arrived.
    pub(crate) reports: BTreeMap<u64, bool>,
    pub(crate) connected: u32,
    pub(crate) next_server: u32,
    pub(crate) closed: Option<Reason>,
}

impl Heard {
    /// Lets a client run until that has become true.
    pub(crate) fn until(&mut self, client: &mut Client, is_true: impl Fn(&Self) -> bool) {
        let start = Clock::start();
        while !is_true(self) {
            assert!(start.now_ns() < PATIENCE_NS, "{:?} {:?}", client.state(), self.reports);
            client.turn(Duration::from_millis(5)).expect("a socket that works");
            self.take_all(client);
        }
    }

    pub(crate) fn take_all(&mut self, client: &mut Client) {
        while let Some(event) = client.poll_event() {
            assert_eq!(self.closed, None, "nothing comes after the end");
            match event {
                Event::Connected { .. } => self.connected += 1,
                Event::Message(channel, bytes) => self.messages.push((channel, bytes.to_vec())),
                Event::Reported(report) => {
                    let before = self.reports.insert(report.token, report.is_delivered);
                    assert_eq!(before, None, "{report:?} for the second time");
                }
                Event::NextServer { .. } => self.next_server += 1,
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
    }
}

fn connect(server: &FarEnd, client_id: u64) -> (Client, Heard) {
    let token = token(client_id, &[server.address], 60);
    let mut client = Client::connect(&token, &Options::default()).expect("a socket");
    assert_eq!(client.send(Channel::Reliable(0), b"early", None), Err(SendError::Closed));
    let mut heard = Heard::default();
    heard.until(&mut client, |heard| heard.connected == 1);
    assert!(client.is_connected());
    (client, heard)
}

/// Bytes that follow from a number.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    let head = number.to_le_bytes().into_iter();
    head.chain(std::iter::repeat_with(next)).take(len).collect()
}

fn number_of(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().expect("a number"))
}

#[test]
fn messages_of_each_kind_go_there_and_come_back() {
    let server = FarEnd::start(4, "");
    let (mut client, mut heard) = connect(&server, 1);
    let large = content(9, 64 * 1024);
    let kinds = [Channel::Reliable(3), Channel::Sequenced(0), Channel::Unreliable(255)];
    for (token, channel) in (0..).zip(kinds) {
        client.send(channel, b"hello", Some(token)).expect("there is room");
    }
    client.send(Channel::Reliable(0), &large, Some(3)).expect("there is room");
    assert_eq!(client.send(Channel::Reliable(0), &[], None), Err(SendError::Empty));
    assert_eq!(client.send(Channel::Unreliable(0), &large, None), Err(SendError::TooLong));
    heard.until(&mut client, |heard| heard.messages.len() == 4 && heard.reports.len() == 4);
    assert!(heard.reports.values().all(|is_delivered| *is_delivered));
    let came: BTreeSet<_> = heard.messages.iter().cloned().collect();
    let mut sent: BTreeSet<_> = kinds.map(|channel| (channel, b"hello".to_vec())).into();
    sent.insert((Channel::Reliable(0), large));
    assert!(came == sent);
    assert!(client.has_delivered_all());
    let quality = client.quality().expect("it is connected");
    assert!(quality.round_trip_ns > 0 && quality.reliable_bytes == 0, "{quality:?}");
    let statistics = client.statistics();
    assert_eq!((statistics.messages_out, statistics.messages_in), (4, 4));
    client.disconnect();
    heard.until(&mut client, |heard| heard.closed.is_some());
    assert_eq!((heard.closed, client.is_finished()), (Some(Reason::Left), true));
    let start = Clock::start();
    while server.books().left == 0 {
        assert!(start.now_ns() < PATIENCE_NS);
        std::thread::yield_now();
    }
}

#[test]
fn every_message_over_a_bad_network_is_accounted_for() {
    let server = FarEnd::start(
        4,
        "PktLoss=5 PktLag=25 PktLagVariance=15 PktIncomingLoss=5 PktIncomingLagMin=10 \
         PktIncomingLagMax=40 LagReorders=1 Seed=3",
    );
    let (mut client, mut heard) = connect(&server, 1);
    let mut sent = BTreeMap::new();
    for number in 0..120_u64 {
        let (channel, len) = match number % 4 {
            0 => (Channel::Reliable(0), 20 * 1024),
            1 => (Channel::Reliable(1), 8 + number as usize),
            2 => (Channel::Sequenced(7), 200),
            _ => (Channel::Unreliable(9), 1000),
        };
        let message = content(number, len);
        while client.send(channel, &message, Some(number)) == Err(SendError::Full) {
            client.turn(Duration::from_millis(5)).expect("a socket that works");
            heard.take_all(&mut client);
        }
        sent.insert(number, (channel, message));
        client.turn(Duration::from_millis(3)).expect("a socket that works");
        heard.take_all(&mut client);
    }
    let echoed = |heard: &Heard| {
        let is_reliable =
            |(channel, _): &&(Channel, Vec<u8>)| matches!(channel, Channel::Reliable(_));
        heard.messages.iter().filter(is_reliable).count() == 60
    };
    heard.until(&mut client, |heard| heard.reports.len() == 120 && echoed(heard));
    let books = server.books();
    let arrived: BTreeSet<_> = books.messages.iter().map(|(_, bytes)| number_of(bytes)).collect();
    assert_eq!(arrived.len(), books.messages.len(), "none came twice");
    for (number, is_delivered) in &heard.reports {
        let (channel, _) = &sent[number];
        assert_eq!(*is_delivered, arrived.contains(number), "{number}: a wrong report");
        assert!(*is_delivered || !matches!(channel, Channel::Reliable(_)), "{number}");
    }
    for (channel, bytes) in books.messages.iter().chain(&heard.messages) {
        assert!(sent[&number_of(bytes)] == (*channel, bytes.clone()), "{channel:?} has changed");
    }
    for at in [&books.messages, &heard.messages] {
        for channel in [Channel::Reliable(0), Channel::Reliable(1), Channel::Sequenced(7)] {
            let numbers = at.iter().filter(|(of, _)| *of == channel).map(|(_, m)| number_of(m));
            assert!(numbers.is_sorted(), "{channel:?} goes back");
        }
    }
    assert_eq!(heard.closed, None);
}

#[test]
fn a_server_that_breaks_a_rule_is_left_with_a_reason() {
    let server = FarEnd::start(4, "");
    let (mut client, mut heard) = connect(&server, 1);
    // Its acknowledgement is held back long enough for that.
    client.send(Channel::Reliable(0), &content(0, 60_000), Some(7)).expect("there is room");
    server.order(Order::Lie);
    heard.until(&mut client, |heard| heard.closed.is_some());
    assert_eq!(heard.closed, Some(Reason::Fault(Fault::Malformed)));
    assert_eq!(client.state(), State::Disconnected);
    assert_eq!(heard.reports.len(), 1, "nothing is left without a report");
    assert_eq!(client.send(Channel::Reliable(0), b"late", None), Err(SendError::Closed));
}
