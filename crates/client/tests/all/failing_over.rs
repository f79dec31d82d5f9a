//! What a client does where a server does not take or keep it.

use std::net::UdpSocket;

use std::time::Duration;

use ringgate_client::{Channel, Client, Options, Reason, State};
use ringgate_os::clock::{self, Clock};

use super::far_end::{FarEnd, Order, token};
use super::messages::Heard;

#[test]
fn a_server_that_is_silent_or_says_goodbye_is_followed_by_the_next() {
    let deaf = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let servers = [FarEnd::start(4, ""), FarEnd::start(4, "")];
    let addresses = [deaf.local_addr().expect("bound"), servers[0].address, servers[1].address];
    let mut client =
        Client::connect(&token(1, &addresses, 1), &Options::default()).expect("a socket");
    let mut heard = Heard::default();
    heard.until(&mut client, |heard| heard.connected == 1);
    assert_eq!((heard.next_server, client.server()), (1, addresses[1]));
    // Far more than can arrive at once.
    client.send(Channel::Reliable(0), &vec![1; 60_000], Some(1)).expect("there is room");
    client.send(Channel::Unreliable(0), &[1; 1000], Some(2)).expect("there is room");
    servers[0].order(Order::Kick);
    assert!(!client.has_delivered_all());
    heard.until(&mut client, |heard| heard.connected == 2);
    assert!(client.has_delivered_all() && !heard.reports[&1], "who waits does not wait for ever");
    assert_eq!((heard.next_server, client.server()), (2, addresses[2]));
    assert_eq!(heard.reports.len(), 2, "each has its report, whichever it is");
    client.send(Channel::Reliable(0), b"again", Some(3)).expect("there is room");
    heard.until(&mut client, |heard| heard.reports.contains_key(&3));
    assert!(heard.reports[&3]);
    servers[1].order(Order::Kick);
    heard.until(&mut client, |heard| heard.closed.is_some());
    assert_eq!(heard.closed, Some(Reason::Ended(State::Disconnected)));
    assert!(client.is_finished());
}

#[test]
fn a_server_whose_datagrams_were_not_read_is_not_silent() {
    let server = FarEnd::start(4, "");
    let mut client =
        Client::connect(&token(1, &[server.address], 2), &Options::default()).expect("a socket");
    let mut heard = Heard::default();
    heard.until(&mut client, |heard| heard.connected == 1);
    let clock = Clock::start();
    while clock.now_ns() < 2_500_000_000 {
        client.flush();
        clock::sleep(Duration::from_millis(20));
    }
    client.send(Channel::Reliable(0), b"here", Some(1)).expect("it is connected");
    heard.until(&mut client, |heard| heard.reports.contains_key(&1));
    assert_eq!((heard.closed, server.books().left), (None, 0));
}

#[test]
fn servers_that_are_full_deny_and_nobody_else_is_left() {
    let full = FarEnd::start(1, "");
    let options = Options::default();
    let mut first = Client::connect(&token(1, &[full.address], 60), &options).expect("a socket");
    let mut heard = Heard::default();
    heard.until(&mut first, |heard| heard.connected == 1);
    let mut second = Client::connect(&token(2, &[full.address], 60), &options).expect("a socket");
    let mut refused = Heard::default();
    refused.until(&mut second, |heard| heard.closed.is_some());
    assert_eq!(refused.closed, Some(Reason::Ended(State::Denied)));
}

#[test]
fn a_token_that_contradicts_itself_is_refused_at_once() {
    let token = token(1, &["127.0.0.1:9".parse().expect("literal")], 5);
    let token =
        ringgate_core::netcode::ConnectToken { expire_unix_s: token.create_unix_s - 1, ..token };
    let mut client = Client::connect(&token, &Options::default()).expect("a socket");
    let mut heard = Heard::default();
    heard.until(&mut client, |heard| heard.closed.is_some());
    assert_eq!(heard.closed, Some(Reason::Ended(State::InvalidToken)));
}
