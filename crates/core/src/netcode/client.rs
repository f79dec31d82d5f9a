//! The client with its cipher: datagrams in, datagrams out.

use std::net::SocketAddr;

use super::{Cipher, ConnectToken, Options, State};
use crate::drops::DropReason;
use crate::proto::netcode::client::{Client as Machine, Event, Transmit};
use crate::proto::netcode::packet::KeepAlive;

/// A game's connection to its server.
///
/// It owns neither socket nor clock; a game with a UDP socket and a frame loop drives it like this:
///
/// ```no_run
/// use std::net::UdpSocket;
/// use std::time::{Duration, Instant};
///
/// use ringgate_core::netcode::{Client, ConnectToken, Notice};
///
/// fn play(token: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
///     let start = Instant::now();
///     let socket = UdpSocket::bind("0.0.0.0:0")?;
///     socket.set_read_timeout(Some(Duration::from_millis(10)))?;
///     let mut client = Client::new(&ConnectToken::decode(token)?, 0)?;
///     let mut buffer = [0; 2048];
///     while !client.is_finished() {
///         let now_ns = start.elapsed().as_nanos() as u64;
///         if let Some(notice) = client.handle_timeout(now_ns) {
///             println!("{notice:?}");
///         }
///         while let Some((to, datagram)) = client.poll_transmit(now_ns, &mut buffer) {
///             socket.send_to(datagram, to)?;
///         }
///         let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
///         match client.handle_datagram(now_ns, from, &mut buffer[..len]) {
///             Ok(Some(Notice::Payload(bytes))) => println!("{} bytes of game", bytes.len()),
///             Ok(Some(Notice::Connected(info))) => println!("in slot {}", info.slot),
///             Ok(_) | Err(_) => {}
///         }
///     }
///     println!("{}", client.state().name());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Client {
    machine: Machine,
    cipher: Cipher,
}

/// What a game may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// It is over, and why.
    Closed(State),
    /// The server has taken the player in.
    Connected(KeepAlive),
    /// The server did not take or keep the player; the client turns to the next one.
    NextServer(SocketAddr),
    /// Bytes from the game server.
    Payload(&'a [u8]),
}

impl Client {
    /// A client that will ask the token's first server. It answers a challenge without delay and
    /// counts its packets from a random start, so that a token which is used twice does not repeat
    /// nonces.
    #[cfg(feature = "random")]
    pub fn new(token: &ConnectToken, now_ns: u64) -> Result<Self, getrandom::Error> {
        Ok(Self::with_options(token, now_ns, Options::for_games()?))
    }

    /// A client with other habits. [`Options::default`] are those of the reference implementation.
    pub fn with_options(token: &ConnectToken, now_ns: u64, options: Options) -> Self {
        Self {
            machine: Machine::new(token, now_ns, options),
            cipher: Cipher::new(token.protocol_id),
        }
    }

    /// Where the client stands.
    pub const fn state(&self) -> State {
        self.machine.state()
    }

    /// Whether payloads can be sent.
    pub fn is_connected(&self) -> bool {
        self.state() == State::Connected
    }

    /// Whether the client has ended and said its goodbye.
    pub fn is_finished(&self) -> bool {
        self.poll_timeout().is_none()
    }

    /// The server that the client talks to, or last talked to.
    pub fn server(&self) -> SocketAddr {
        self.machine.server().into()
    }

    /// Takes in a datagram, which is decrypted in place.
    ///
    /// A refusal needs no reaction: anyone who can reach the socket can provoke one.
    pub fn handle_datagram<'d>(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        datagram: &'d mut [u8],
    ) -> Result<Option<Notice<'d>>, DropReason> {
        let work = self.machine.handle_datagram(from.into(), datagram)?;
        self.cipher.open(self.machine.open_key(), &work, datagram)?;
        let body = &datagram[work.body()];
        let event = self.machine.handle_opened(now_ns, &work, body)?;
        Ok(event.map(|event| self.notice(event, body)))
    }

    /// Ends an attempt or the connection whose time is up.
    pub fn handle_timeout(&mut self, now_ns: u64) -> Option<Notice<'static>> {
        let event = self.machine.handle_timeout(now_ns)?;
        Some(self.notice(event, &[]))
    }

    /// When to come back to [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit), if no datagram arrives before; an instant that has
    /// passed means at once, `None` means never.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.machine.poll_timeout()
    }

    /// Writes the next datagram that is due into `out`, which has at least 1225 bytes. To be called
    /// until there is none.
    pub fn poll_transmit<'o>(
        &mut self,
        now_ns: u64,
        out: &'o mut [u8],
    ) -> Option<(SocketAddr, &'o [u8])> {
        let transmit = self.machine.poll_transmit(now_ns, out)?;
        Some(self.seal(transmit, out))
    }

    /// Writes a payload of 1 to 1200 bytes as a datagram into `out`, which has at least 1225 bytes.
    pub fn write_payload<'o>(
        &mut self,
        now_ns: u64,
        payload: &[u8],
        out: &'o mut [u8],
    ) -> Result<(SocketAddr, &'o [u8]), DropReason> {
        let transmit = self.machine.write_payload(now_ns, payload, out)?;
        Ok(self.seal(transmit, out))
    }

    /// Leaves. The goodbye comes out of [`poll_transmit`](Self::poll_transmit).
    pub fn disconnect(&mut self) {
        self.machine.disconnect();
    }

    fn seal<'o>(&mut self, transmit: Transmit, out: &'o mut [u8]) -> (SocketAddr, &'o [u8]) {
        self.cipher.seal(self.machine.seal_key(), &transmit, out);
        (transmit.to.into(), &out[..transmit.len])
    }

    fn notice<'d>(&self, event: Event, body: &'d [u8]) -> Notice<'d> {
        match event {
            Event::Closed => Notice::Closed(self.state()),
            Event::Connected(keep_alive) => Notice::Connected(keep_alive),
            Event::NextServer => Notice::NextServer(self.server()),
            Event::Payload => Notice::Payload(body),
        }
    }
}

impl Options {
    /// A challenge is answered without delay, and packets are counted from a random start, so that
    /// a token which is used twice does not repeat nonces.
    #[cfg(feature = "random")]
    pub fn for_games() -> Result<Self, getrandom::Error> {
        let mut start = [0; 8];
        getrandom::fill(&mut start[..6])?;
        Ok(Self { first_sequence: u64::from_le_bytes(start), answers_at_once: true })
    }
}
