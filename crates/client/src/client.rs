//! A connection with sockets and a clock: what a game's frame loop or a bot calls.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ringgate_core::delivery::{Channel, Quality, SendError};
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::{ConnectToken, State};

use crate::connection::{Connection, Statistics};
use crate::event::{Event, Farewell};
use crate::inbox::Inbox;
use crate::session::Options;
use crate::sockets::Sockets;

/// A player with UDP sockets of its own.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    sockets: Sockets,
    inbox: Inbox,
    start: Instant,
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// Datagrams that the system did not take.
    unsent: u64,
}

impl Client {
    /// Opens a socket and begins to ask the token's first server. That it connected, or failed to,
    /// comes out of [`poll_event`](Self::poll_event).
    #[expect(clippy::disallowed_methods, reason = "a game has no clock of ours")]
    pub fn connect(token: &ConnectToken, options: &Options) -> io::Result<Self> {
        let connection = Connection::new(token, options, 0).map_err(io::Error::other)?;
        let mut sockets = Sockets::default();
        sockets.open_for(connection.server()).or_else(|_| sockets.open_any())?;
        let mut client = Self {
            connection,
            sockets,
            inbox: Inbox::default(),
            start: Instant::now(),
            buffer: Box::new([0; BUFFER_BYTES]),
            unsent: 0,
        };
        client.send_due();
        Ok(client)
    }

    /// Takes in what has arrived, sends what is due, and waits for at most so long if nothing has.
    /// It returns early when there is something to tell, and after an instant where something that
    /// happened earlier was not taken from [`poll_event`](Self::poll_event), or all is over.
    ///
    /// An error is one of the socket or of the system, never of the network.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        if !self.inbox.is_empty() {
            self.take_held();
            self.send_due();
            return Ok(());
        }
        self.inbox.reuse();
        let end_ns = self.now_ns().saturating_add(nanoseconds(wait));
        let mut wait_ns = 0;
        loop {
            let has_received = self.receive_all(Duration::from_nanos(wait_ns))?;
            self.take_held();
            // Not before it was read: a server is not silent whose datagrams lie in our socket.
            self.connection.handle_timeout(self.now_ns());
            self.send_due();
            let now_ns = self.now_ns();
            if has_received || !self.inbox.is_empty() || now_ns >= end_ns {
                return Ok(());
            }
            let Some(due_ns) = self.connection.poll_timeout() else { return Ok(()) };
            wait_ns = end_ns.min(due_ns).saturating_sub(now_ns);
        }
    }

    /// Sends what is due, without waiting and without receiving. Whether the server is silent is
    /// seen in turns only.
    pub fn flush(&mut self) {
        self.send_due();
    }

    /// What has happened. Messages lie in the client's memory until the next [`turn`](Self::turn).
    pub fn poll_event(&mut self) -> Option<Event<'_>> {
        self.inbox.pop()
    }

    /// Queues a message. With a token there will be a report about it. It leaves with the next
    /// [`turn`](Self::turn) or [`flush`](Self::flush).
    pub fn send(
        &mut self,
        channel: Channel,
        message: &[u8],
        token: Option<u64>,
    ) -> Result<(), SendError> {
        self.connection.send(channel, message, token)
    }

    /// What the game server has said last on the connection that has just ended: there from its
    /// [`Event::Closed`] or [`Event::NextServer`] on, where the game server closed the session
    /// after delivery.
    pub fn farewell(&self) -> Option<&Farewell> {
        self.connection.farewell()
    }

    /// Leaves when everything that was sent on reliable channels has arrived, or after so long:
    /// from now on nothing more can be sent, and [`turn`](Self::turn) is called until
    /// [`Event::Closed`] comes.
    pub fn disconnect_after(&mut self, linger: Duration) {
        self.connection.disconnect_at(self.now_ns().saturating_add(nanoseconds(linger)));
        self.send_due();
    }

    /// Leaves: says goodbye, and gives up what is under way.
    /// [`disconnect_after`](Self::disconnect_after) gives that time to arrive.
    pub fn disconnect(&mut self) {
        self.connection.disconnect();
        self.send_due();
    }

    /// Where the player stands.
    pub const fn state(&self) -> State {
        self.connection.state()
    }

    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        self.state() == State::Connected
    }

    /// Whether it is over, and everything that happened was taken.
    pub fn is_finished(&self) -> bool {
        self.state().is_closed() && self.inbox.is_empty()
    }

    /// Whether no message on a reliable channel waits to be acknowledged: all were, or their
    /// connection has ended. Reports tell which.
    pub fn has_delivered_all(&self) -> bool {
        self.connection.has_delivered_all()
    }

    /// The server that the player talks to, or last talked to.
    pub fn server(&self) -> SocketAddr {
        self.connection.server()
    }

    /// Where datagrams leave from.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.sockets.local_addr()
    }

    /// How good the connection is; `None` without one.
    pub fn quality(&self) -> Option<Quality> {
        self.connection.quality()
    }

    /// The longest message that a channel takes; 0 without a connection.
    pub fn message_bytes_max(&self, channel: Channel) -> usize {
        self.connection.message_bytes_max(channel)
    }

    /// What was counted so far.
    pub const fn statistics(&self) -> Statistics {
        self.connection.statistics()
    }

    /// Datagrams that the system did not take: no route, no memory.
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Takes in at most so many datagrams that the game has its turn, and waits only for the first.
    fn receive_all(&mut self, wait: Duration) -> io::Result<bool> {
        let mut wait = wait;
        for received in 0..DATAGRAMS_MAX {
            let buffer = &mut self.buffer[..];
            let Some((len, from)) = self.sockets.receive(wait, buffer)? else {
                return Ok(received > 0);
            };
            wait = Duration::ZERO;
            let now_ns = self.start.elapsed().as_nanos() as u64;
            let inbox = &mut self.inbox;
            let on_message = |channel, message: &[u8]| inbox.push_message(channel, message);
            // Late, foreign and damaged datagrams are normal on the internet, and counted.
            let datagram = &mut self.buffer[..len];
            let _ = self.connection.handle_datagram(now_ns, from, datagram, on_message);
            self.keep_events();
        }
        Ok(true)
    }

    /// Takes in what has waited for others. In turns only: the memory of messages that were handed
    /// out may move.
    fn take_held(&mut self) {
        let (now_ns, inbox) = (self.now_ns(), &mut self.inbox);
        let on_message = |channel, message: &[u8]| inbox.push_message(channel, message);
        self.connection.handle_held(now_ns, on_message);
    }

    fn send_due(&mut self) {
        let now_ns = self.now_ns();
        let Self { connection, sockets, buffer, unsent, .. } = self;
        while let Some((to, datagram)) = connection.poll_transmit(now_ns, &mut buffer[..]) {
            *unsent += u64::from(!sockets.send(to, datagram));
        }
        self.keep_events();
    }

    fn keep_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.inbox.push(event);
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Drop for Client {
    /// Says goodbye, so that the server need not wait for a time-out.
    fn drop(&mut self) {
        self.disconnect();
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// So many datagrams are taken in before the game hears of them.
const DATAGRAMS_MAX: u32 = 64;

/// A datagram that is longer than ours are is not cut to something valid.
const BUFFER_BYTES: usize = 2048;

const _: () = assert!(BUFFER_BYTES > DATAGRAM_BYTES_MAX);
