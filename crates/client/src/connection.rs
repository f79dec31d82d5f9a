//! A session with its cipher: datagrams in, datagrams out.

use std::net::SocketAddr;

use ringgate_core::delivery::{Channel, Quality, SendError};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::{self, Cipher, ConnectToken, State};

use crate::event::{Event, Farewell};
use crate::session::{Options, Session};

/// A player's end without socket and clock.
///
/// [`handle_datagram`](Self::handle_datagram) takes in what arrives and hands over messages. After
/// it, and when [`poll_timeout`](Self::poll_timeout) says so, come
/// [`handle_timeout`](Self::handle_timeout), [`handle_held`](Self::handle_held),
/// [`poll_transmit`](Self::poll_transmit) until there is nothing, and
/// [`poll_event`](Self::poll_event) until there is nothing.
#[derive(Debug)]
pub struct Connection {
    session: Session,
    cipher: Cipher,
    statistics: Statistics,
}

/// What a connection has counted since it was made, over all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams that came, refused ones among them.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Datagrams that were not taken: from strangers, forged, late or repeated.
    pub refused_in: u64,
    /// Datagrams that left.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that were taken to be sent.
    pub messages_out: u64,
}

impl Connection {
    /// A player who will ask the token's first server. Packets are counted from a random start, so
    /// that a token which is used twice does not repeat nonces.
    pub fn new(
        token: &ConnectToken,
        options: &Options,
        now_ns: u64,
    ) -> Result<Self, getrandom::Error> {
        let netcode = netcode::Options::for_games()?;
        Ok(Self {
            session: Session::new(token, options, netcode, now_ns),
            cipher: Cipher::new(token.protocol_id),
            statistics: Statistics::default(),
        })
    }

    /// Where the player stands.
    pub const fn state(&self) -> State {
        self.session.state()
    }

    /// The server that the player talks to, or last talked to.
    pub fn server(&self) -> SocketAddr {
        self.session.machine().server().into()
    }

    /// How good the connection is; `None` without one.
    pub fn quality(&self) -> Option<Quality> {
        self.session.quality()
    }

    /// What was counted so far.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The longest message that a channel takes; 0 without a connection.
    pub fn message_bytes_max(&self, channel: Channel) -> usize {
        self.session.message_bytes_max(channel)
    }

    /// Whether no message on a reliable channel waits to be acknowledged: all were, or their
    /// connection has ended. Reports tell which.
    pub fn has_delivered_all(&self) -> bool {
        self.session.has_delivered_all()
    }

    /// Queues a message. With a token there will be a report about it.
    pub fn send(
        &mut self,
        channel: Channel,
        message: &[u8],
        token: Option<u64>,
    ) -> Result<(), SendError> {
        self.session.send(channel, message, token)?;
        self.statistics.messages_out += 1;
        Ok(())
    }

    /// Takes in a datagram, which is decrypted in place, and hands over every message that is
    /// complete with it.
    ///
    /// A refusal needs no reaction: anyone who can reach the socket can provoke one.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), DropReason> {
        self.statistics.datagrams_in += 1;
        self.statistics.bytes_in += datagram.len() as u64;
        let taken = self.take_datagram(now_ns, from, datagram, on_message);
        self.statistics.refused_in += u64::from(taken.is_err());
        taken
    }

    /// Hands over the messages of packets that have waited long enough for others before them, as
    /// [`Session::handle_held`].
    pub fn handle_held(&mut self, now_ns: u64, mut on_message: impl FnMut(Channel, &[u8])) {
        let messages_in = &mut self.statistics.messages_in;
        self.session.handle_held(now_ns, |channel, message| {
            *messages_in += 1;
            on_message(channel, message);
        });
    }

    /// Ends an attempt or the connection whose time is up, as [`Session::handle_timeout`].
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.session.handle_timeout(now_ns);
    }

    /// When there is something to do, if no datagram arrives before; an instant that has passed
    /// means at once, `None` means never.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.session.poll_timeout()
    }

    /// Writes the next datagram that is due into `out`, which has at least 1225 bytes.
    pub fn poll_transmit<'o>(
        &mut self,
        now_ns: u64,
        out: &'o mut [u8],
    ) -> Option<(SocketAddr, &'o [u8])> {
        let transmit = self.session.poll_transmit(now_ns, out)?;
        self.cipher.seal(self.session.seal_key(), &transmit, out);
        self.statistics.datagrams_out += 1;
        self.statistics.bytes_out += transmit.len as u64;
        Some((transmit.to.into(), &out[..transmit.len]))
    }

    /// What has happened, messages aside.
    pub fn poll_event(&mut self) -> Option<Event<'static>> {
        self.session.poll_event().map(Event::from)
    }

    /// What the game server has said last, as [`Session::farewell`].
    pub fn farewell(&self) -> Option<&Farewell> {
        self.session.farewell()
    }

    /// Leaves when everything has arrived, as [`Session::disconnect_at`].
    pub fn disconnect_at(&mut self, at_ns: u64) {
        self.session.disconnect_at(at_ns);
    }

    /// Leaves. What is under way is reported as not delivered; the goodbye comes out of
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn disconnect(&mut self) {
        self.session.disconnect();
    }

    fn take_datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        mut on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), DropReason> {
        let work = self.session.handle_datagram(from.into(), datagram)?;
        self.cipher.open(self.session.open_key(), &work, datagram)?;
        let messages_in = &mut self.statistics.messages_in;
        self.session.handle_opened(now_ns, &work, &datagram[work.body()], |channel, message| {
            *messages_in += 1;
            on_message(channel, message);
        })
    }
}
