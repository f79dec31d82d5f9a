//! Our client with their server, and a perfect wire between them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use renetcode::{NetcodeServer, ServerResult};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::{Client, ConnectToken, Notice, Options, State, mint};
use ringgate_core::proto::netcode::packet::KeepAlive;
use ringgate_core::secret::Key;

use crate::netcode_interop::{
    CLIENT_ID, PLAYER, SERVER, START_UNIX_S, STEP, address, key, our_token, server, spec,
    standard_form, their_token,
};

/// What a client is told, in a form that outlives the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Closed(State),
    Connected(KeepAlive),
    NextServer(SocketAddr),
    Payload(Vec<u8>),
}

impl From<Notice<'_>> for Told {
    fn from(notice: Notice<'_>) -> Self {
        match notice {
            Notice::Closed(state) => Self::Closed(state),
            Notice::Connected(keep_alive) => Self::Connected(keep_alive),
            Notice::NextServer(address) => Self::NextServer(address),
            Notice::Payload(bytes) => Self::Payload(bytes.to_vec()),
        }
    }
}

/// Our client and their server with a perfect wire between them.
struct Match {
    client: Client,
    server: NetcodeServer,
    now_ns: u64,
    told: Vec<Told>,
    refused: BTreeSet<DropReason>,
    /// What the server got from the game client.
    server_payloads: Vec<Vec<u8>>,
    /// Whether the wire carries anything, by direction.
    is_up_open: bool,
    is_down_open: bool,
}

impl Match {
    fn new(token: &ConnectToken, options: Options, server: NetcodeServer) -> Self {
        Self {
            client: Client::with_options(token, 0, options),
            server,
            now_ns: 0,
            told: Vec::new(),
            refused: BTreeSet::new(),
            server_payloads: Vec::new(),
            is_up_open: true,
            is_down_open: true,
        }
    }

    fn connected() -> Self {
        let mut game = Self::new(&our_token(SERVER), Options::default(), server(4));
        game.run(Duration::from_secs(1));
        assert_eq!(game.client.state(), State::Connected);
        assert!(game.server.is_client_connected(CLIENT_ID));
        game.told.clear();
        game.refused.clear();
        game
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now_ns += STEP.as_nanos() as u64;
        self.server.update(STEP);
        if let Some(notice) = self.client.handle_timeout(self.now_ns) {
            self.told.push(notice.into());
        }
        let mut buffer = [0; 2048];
        while let Some((to, datagram)) = self.client.poll_transmit(self.now_ns, &mut buffer) {
            let datagram = datagram.to_vec();
            self.up(to, datagram);
        }
        if let ServerResult::PacketToSend { payload, .. }
        | ServerResult::ClientDisconnected { payload: Some(payload), .. } =
            self.server.update_client(CLIENT_ID)
        {
            let datagram = payload.to_vec();
            self.down(datagram);
        }
    }

    /// Carries a datagram to the server, and its answer back.
    fn up(&mut self, to: SocketAddr, mut datagram: Vec<u8>) {
        if !self.is_up_open || to != address(SERVER) {
            return;
        }
        let answer = match self.server.process_packet(address(PLAYER), &mut datagram) {
            ServerResult::PacketToSend { payload, .. }
            | ServerResult::ClientConnected { payload, .. } => payload.to_vec(),
            ServerResult::Payload { client_id: CLIENT_ID, payload } => {
                self.server_payloads.push(payload.to_vec());
                return;
            }
            _ => return,
        };
        self.down(answer);
    }

    fn down(&mut self, mut datagram: Vec<u8>) {
        if !self.is_down_open {
            return;
        }
        match self.client.handle_datagram(self.now_ns, address(SERVER), &mut datagram) {
            Ok(notice) => self.told.extend(notice.map(Told::from)),
            Err(why) => {
                self.refused.insert(why);
            }
        }
    }

    fn send_up(&mut self, payload: &[u8]) {
        let mut buffer = [0; 2048];
        let (to, datagram) =
            self.client.write_payload(self.now_ns, payload, &mut buffer).expect("connected");
        let datagram = datagram.to_vec();
        self.up(to, datagram);
    }

    fn send_down(&mut self, payload: &[u8]) {
        let (_, datagram) =
            self.server.generate_payload_packet(CLIENT_ID, payload).expect("connected");
        let datagram = datagram.to_vec();
        self.down(datagram);
    }
}

#[test]
fn our_client_connects_to_their_server_at_either_pace() {
    for options in [
        Options::default(),
        Options { answers_at_once: true, first_sequence: 0 },
        Options { answers_at_once: true, first_sequence: (1 << 48) - 2 },
    ] {
        let mut game = Match::new(&our_token(SERVER), options, server(4));
        game.run(Duration::from_secs(1));
        assert_eq!(game.told, [Told::Connected(KeepAlive { slot: 0, slots: 4 })]);
        assert_eq!(game.server.user_data(CLIENT_ID), Some(spec(SERVER).user_data));
        // Its first challenge and its first keep-alive carry sequence 0 in zero bytes, which the
        // standard does not know.
        assert_eq!(game.refused, BTreeSet::from([DropReason::SequenceLength]));
    }
}

#[test]
fn payloads_of_every_size_cross_in_both_directions() {
    let mut game = Match::connected();
    for len in 1..=1200 {
        let payload: Vec<_> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        game.send_up(&payload);
        game.send_down(&payload);
        assert_eq!(game.server_payloads.pop().as_ref(), Some(&payload));
        assert_eq!(game.told.pop(), Some(Told::Payload(payload)));
    }
    assert_eq!((game.told, game.refused), (vec![], BTreeSet::new()));
}

#[test]
fn payloads_that_the_standard_forbids_are_dropped() {
    let mut game = Match::connected();
    for (len, why) in
        [(0, DropReason::BodyLength), (1201, DropReason::BodyLength), (1300, DropReason::TooLong)]
    {
        game.send_down(&vec![1; len]);
        assert_eq!((&game.told[..], &game.refused), (&[][..], &BTreeSet::from([why])));
        game.refused.clear();
    }
}

#[test]
fn both_sides_stay_connected_while_nothing_is_said() {
    let mut game = Match::connected();
    game.run(Duration::from_mins(1));
    assert_eq!(game.client.state(), State::Connected);
    assert!(game.server.is_client_connected(CLIENT_ID));
    assert_eq!((game.told, game.refused), (vec![], BTreeSet::new()));
}

#[test]
fn a_client_that_leaves_is_gone_at_once() {
    let mut game = Match::connected();
    game.client.disconnect();
    assert!(!game.client.is_finished());
    game.step();
    assert!(game.client.is_finished());
    assert!(!game.server.is_client_connected(CLIENT_ID));
}

#[test]
fn a_dismissed_client_is_gone_at_once() {
    let mut game = Match::connected();
    let ServerResult::ClientDisconnected { payload: Some(packet), .. } =
        game.server.disconnect(CLIENT_ID)
    else {
        panic!("connected")
    };
    let packet = packet.to_vec();
    game.down(packet);
    assert_eq!(game.told, [Told::Closed(State::Disconnected)]);
    assert!(game.client.is_finished());
}

#[test]
fn a_dismissed_client_with_another_server_turns_to_it() {
    let servers = format!("{SERVER},192.0.2.2:40000");
    let mut game = Match::new(&our_token(&servers), Options::default(), server(4));
    game.run(Duration::from_secs(1));
    assert_eq!(game.client.state(), State::Connected);
    game.told.clear();
    if let ServerResult::ClientDisconnected { payload: Some(packet), .. } =
        game.server.disconnect(CLIENT_ID)
    {
        let packet = packet.to_vec();
        game.down(packet);
    }
    assert_eq!(game.told, [Told::NextServer(address("192.0.2.2:40000"))]);
    assert_eq!(game.client.state(), State::SendingRequest);
}

#[test]
fn a_client_whose_server_is_unreachable_finds_the_next_one() {
    let servers = format!("192.0.2.2:40000,{SERVER}");
    let mut token = spec(&servers);
    token.timeout_seconds = 1;
    let token = mint(&token, &key(), START_UNIX_S).expect("random bytes");
    let mut game = Match::new(&token, Options::default(), server(4));
    game.run(Duration::from_secs(2));
    let expected =
        [Told::NextServer(address(SERVER)), Told::Connected(KeepAlive { slot: 0, slots: 4 })];
    assert_eq!(game.told, expected);
}

#[test]
fn a_silent_client_is_dismissed_by_their_server() {
    let mut game = Match::connected();
    game.is_up_open = false;
    game.run(Duration::from_secs(6));
    assert!(!game.server.is_client_connected(CLIENT_ID));
    assert_eq!(game.told, [Told::Closed(State::Disconnected)]);
}

#[test]
fn a_silent_server_is_given_up() {
    let mut game = Match::connected();
    game.is_down_open = false;
    game.run(Duration::from_secs(6));
    assert_eq!(game.told, [Told::Closed(State::ConnectionTimedOut)]);
}

#[test]
fn a_handshake_that_is_cut_ends_by_the_step_it_was_in() {
    let mut game = Match::new(&our_token(SERVER), Options::default(), server(4));
    game.is_up_open = false;
    game.run(Duration::from_secs(6));
    assert_eq!(game.told, [Told::Closed(State::RequestTimedOut)]);

    let mut game = Match::new(&our_token(SERVER), Options::default(), server(4));
    while game.client.state() == State::SendingRequest {
        game.step();
    }
    game.is_up_open = false;
    game.run(Duration::from_secs(6));
    assert_eq!(game.told, [Told::Closed(State::ResponseTimedOut)]);
}

#[test]
fn a_full_server_denies() {
    let mut game = Match::new(&our_token(SERVER), Options::default(), server(0));
    game.run(Duration::from_secs(1));
    assert_eq!(game.told, [Told::Closed(State::Denied)]);
}

#[test]
fn a_token_for_another_server_or_from_another_service_gets_no_answer() {
    let foreign_key = mint(&spec(SERVER), &Key::from_bytes([1; 32]), START_UNIX_S);
    let mut foreign_private = spec(SERVER);
    foreign_private.internal_servers = Some("192.0.2.9:40000".parse().expect("literal"));
    let foreign_private = mint(&foreign_private, &key(), START_UNIX_S);
    for token in [foreign_key, foreign_private] {
        let token = token.expect("random bytes");
        let mut game = Match::new(&token, Options::default(), server(4));
        game.run(Duration::from_secs(6));
        assert_eq!(game.told, [Told::Closed(State::RequestTimedOut)]);
        assert_eq!(game.refused, BTreeSet::new());
    }
}

#[test]
fn forged_and_repeated_packets_do_nothing_to_a_connected_client() {
    let mut game = Match::connected();
    let (_, packet) = game.server.generate_payload_packet(CLIENT_ID, b"once").expect("connected");
    let packet = packet.to_vec();
    for byte in 0..packet.len() {
        let mut forged = packet.clone();
        forged[byte] ^= 0x80;
        game.down(forged);
    }
    assert_eq!(game.told, []);
    assert!(game.refused.contains(&DropReason::PacketForged), "{:?}", game.refused);
    game.refused.clear();

    game.down(packet.clone());
    game.down(packet);
    assert_eq!(game.told, [Told::Payload(b"once".to_vec())]);
    assert_eq!(game.refused, BTreeSet::from([DropReason::ReplayDuplicate]));
}

#[test]
fn our_client_connects_with_their_token() {
    let token = ConnectToken::decode(&standard_form(&their_token(&[SERVER])));
    let mut game = Match::new(&token.expect("a standard token"), Options::default(), server(4));
    game.run(Duration::from_secs(1));
    assert_eq!(game.client.state(), State::Connected);
}
