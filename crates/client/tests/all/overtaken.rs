//! A game with a socket of its own, to which packets come in another order than they have left.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringgate_client::{Channel, Client, Connection, Event, Options, State};
use ringgate_core::delivery;
use ringgate_os::clock::Clock;

use super::far_end::{FarEnd, Order, PATIENCE_NS, token};

struct Game {
    connection: Connection,
    socket: UdpSocket,
    clock: Clock,
    heard: Vec<u8>,
    /// Whether the game asks for what has waited for other packets.
    takes_held: bool,
}

impl Game {
    fn connected(
        servers: &[SocketAddr],
        client_id: u64,
        options: &Options,
        takes_held: bool,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        let token = token(client_id, servers, 60);
        let connection = Connection::new(&token, options, 0).expect("random bytes");
        let (clock, heard) = (Clock::start(), Vec::new());
        let mut game = Self { connection, socket, clock, heard, takes_held };
        while game.connection.state() != State::Connected {
            game.send_due();
            let come = game.receive();
            if let Some(datagram) = come {
                game.take(datagram);
            }
        }
        game
    }

    fn send_due(&mut self) {
        assert!(self.clock.now_ns() < PATIENCE_NS, "{:?}", self.connection.state());
        let (now_ns, mut out) = (self.clock.now_ns(), [0; 2048]);
        self.connection.handle_timeout(now_ns);
        if self.takes_held {
            let heard = &mut self.heard;
            self.connection.handle_held(now_ns, |_, message| heard.push(message[0]));
        }
        while let Some((to, datagram)) = self.connection.poll_transmit(now_ns, &mut out) {
            self.socket.send_to(datagram, to).expect("loopback");
        }
        while self.connection.poll_event().is_some() {}
    }

    fn receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut bytes = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut bytes).ok()?;
        Some((from, bytes[..len].to_vec()))
    }

    fn take(&mut self, (from, mut datagram): (SocketAddr, Vec<u8>)) {
        let (now_ns, heard) = (self.clock.now_ns(), &mut self.heard);
        let on_message = |_, message: &[u8]| heard.push(message[0]);
        let _ = self.connection.handle_datagram(now_ns, from, &mut datagram, on_message);
    }

    /// Two messages go there and come back in two packets, of which the second is taken first, and
    /// the first one last, if at all.
    fn exchange(&mut self, messages: [u8; 2], takes_first: bool) {
        let mut come = Vec::new();
        for (count, message) in (1..).zip(messages) {
            let sent = self.connection.send(Channel::Unreliable(0), &[message; LONG], None);
            sent.expect("there is room");
            let is_long = |(_, datagram): &&(SocketAddr, Vec<u8>)| datagram.len() > LONG;
            while come.iter().filter(is_long).count() < count {
                self.send_due();
                come.extend(self.receive());
            }
        }
        let first = come.iter().position(|(_, datagram)| datagram.len() > LONG);
        let last = come.len() - 1;
        come.swap(first.expect("it is there"), last);
        come.truncate(last + usize::from(takes_first));
        for datagram in come {
            self.take(datagram);
        }
    }
}

#[test]
fn a_game_with_a_socket_of_its_own_hears_what_was_overtaken() {
    let server = FarEnd::start(4, "");
    let never =
        Options { delivery: delivery::Options { reorder_ns: 0, ..Options::default().delivery } };
    let runs = [
        // Where no packet has come late before, a gap is a loss; then it is not.
        (Options::default(), true, &[2, 3, 4][..]),
        (Options::default(), false, &[2, 4]),
        (never, true, &[2, 4]),
    ];
    for (client_id, (options, takes_held, heard)) in (1..).zip(runs) {
        let mut game = Game::connected(&[server.address], client_id, &options, takes_held);
        game.exchange([1, 2], true);
        game.exchange([3, 4], true);
        assert_eq!(game.heard, heard);
    }
}

/// Whether there is another server to go on to or not.
#[test]
fn what_has_come_is_heard_though_what_it_waits_for_is_behind_a_goodbye() {
    let servers = [(); 2].map(|()| FarEnd::start(4, ""));
    let waits = delivery::Options { reorder_ns: 2 * PATIENCE_NS, ..Options::default().delivery };
    for count in [1, 2] {
        let addresses = servers.each_ref().map(|server| server.address);
        let options = Options { delivery: waits };
        let mut game = Game::connected(&addresses[..count], count as u64, &options, true);
        game.exchange([1, 2], true);
        game.exchange([3, 4], false);
        assert_eq!(game.heard, [2], "it waits");
        servers[0].order(Order::Kick);
        while game.connection.state() == State::Connected {
            game.send_due();
            let come = game.receive();
            if let Some(datagram) = come {
                game.take(datagram);
            }
        }
        assert_eq!(game.heard, [2, 4]);
    }
}

/// A relay between a client and its server, which passes on what the test says.
struct Relay {
    socket: UdpSocket,
    server: SocketAddr,
    player: Option<SocketAddr>,
}

impl Relay {
    /// Passes everything on for a moment but long datagrams to the player, and returns those.
    fn pump(&mut self) -> Vec<Vec<u8>> {
        let (mut bytes, mut long) = ([0; 2048], Vec::new());
        while let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
            let to = if from == self.server { self.player } else { Some(self.server) };
            self.player = if from == self.server { self.player } else { Some(from) };
            if from == self.server && len > LONG {
                long.push(bytes[..len].to_vec());
            } else if let Some(to) = to {
                self.socket.send_to(&bytes[..len], to).expect("loopback");
            }
        }
        long
    }

    fn pass(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.player.expect("it has sent")).expect("loopback");
    }

    /// The answer to a message, on its way to the player.
    fn answer(&mut self, client: &mut Client, message: u8) -> Vec<u8> {
        client.send(Channel::Unreliable(0), &[message; LONG], None).expect("room");
        client.flush();
        let clock = Clock::start();
        loop {
            assert!(clock.now_ns() < PATIENCE_NS, "no answer");
            if let Some(answer) = self.pump().pop() {
                return answer;
            }
        }
    }
}

fn message_of(event: Option<Event<'_>>) -> Option<u8> {
    match event {
        Some(Event::Message(_, message)) => Some(message[0]),
        _ => None,
    }
}

/// What was handed out lies in the client's memory until the next turn, and a game in C is told so.
#[test]
fn what_has_waited_is_taken_in_by_turns_alone() {
    let server = FarEnd::start(4, "");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    let token = token(1, &[socket.local_addr().expect("bound"), server.address], 60);
    let mut relay = Relay { socket, server: server.address, player: None };
    let waits = delivery::Options { reorder_ns: WAITS_NS, ..Options::default().delivery };
    let mut client = Client::connect(&token, &Options { delivery: waits }).expect("a socket");
    while !client.is_connected() {
        relay.pump();
        client.turn(Duration::ZERO).expect("a socket that works");
    }
    while client.poll_event().is_some() {}
    let next = |client: &mut Client, relay: &mut Relay| loop {
        relay.pump();
        client.turn(Duration::from_millis(1)).expect("a socket that works");
        if let Some(message) = message_of(client.poll_event()) {
            return message;
        }
    };
    // One packet comes late, so that the next gap is waited for.
    let [first, second] = [1, 2].map(|message| relay.answer(&mut client, message));
    for datagram in [second, first] {
        relay.pass(&datagram);
    }
    assert_eq!(next(&mut client, &mut relay), 2);
    for round in 1..100 {
        let [late, early] = [3, 4].map(|message| relay.answer(&mut client, message));
        relay.pass(&early);
        let clock = Clock::start();
        while clock.now_ns() < WAITS_NS / 2 {
            client.turn(Duration::ZERO).expect("a socket that works");
        }
        // On a machine that stood still meanwhile, its time is over.
        if message_of(client.poll_event()).is_some() {
            relay.pass(&late);
            continue;
        }
        ringgate_os::clock::sleep(Duration::from_nanos(WAITS_NS));
        client.send(Channel::Reliable(0), b"so that it stays", None).expect("room");
        client.flush();
        client.disconnect_after(Duration::from_mins(1));
        assert_eq!(message_of(client.poll_event()), None, "round {round}");
        assert_eq!(next(&mut client, &mut relay), 4);
        return;
    }
    panic!("nothing was waited for");
}

/// So long a gap is waited for.
const WAITS_NS: u64 = 100_000_000;

/// Nothing else is as long.
const LONG: usize = 500;
