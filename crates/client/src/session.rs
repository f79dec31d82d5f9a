//! netcode's client and an end of the delivery layer, joined, without a cipher.
//!
//! Each connection to a server has an [`End`] of its own: it is made when the server takes the
//! player in, and closed when the player leaves it for whatever reason.

use std::collections::VecDeque;

use ringgate_core::delivery::{
    self, Channel, End, Quality, REORDER_NS, Refusal, Report, SendError,
};
use ringgate_core::drops::DropReason;
use ringgate_core::endpoint::Endpoint;
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::netcode::{self, ConnectToken, State};
use ringgate_core::proto::netcode::client::{Client as Machine, Event, OpenWork, Transmit};
use ringgate_core::secret::Key;

use crate::event::{Farewell, Reason};

/// How a player's end behaves. The default is what games want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Messages: sizes, pace, what may wait, how long packets wait for others before them. Both
    /// numbers that packets begin with stay 0, because a gateway expects that.
    pub delivery: delivery::Options,
}

impl Default for Options {
    fn default() -> Self {
        let reorder_ns = REORDER_NS;
        Self { delivery: delivery::Options { reorder_ns, ..delivery::Options::default() } }
    }
}

/// What the caller hears, messages aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A server has taken the player in.
    Connected {
        /// The server.
        server: Endpoint,
        /// The player's index at the game server.
        slot: u32,
        /// How many slots the game server has.
        slots: u32,
    },
    /// The player turns to the token's next server.
    NextServer {
        /// The next one.
        server: Endpoint,
    },
    /// What became of a message that was sent with a token.
    Reported(Report),
    /// It is over, and why.
    Closed(Reason),
}

/// A player's end without socket, clock and cipher. It is driven as
/// [netcode's client](ringgate_core::proto::netcode::client) is; messages are handed over as they
/// come, and everything else waits for [`poll_event`](Self::poll_event), which has to be called
/// after each of the other functions until there is nothing.
#[derive(Debug)]
pub struct Session {
    machine: Machine,
    options: delivery::Options,
    /// Invariant: there while connected, and then only.
    end: Option<Box<End>>,
    /// The caller asks for what has waited for others.
    takes_held: bool,
    /// The player leaves when everything has arrived, or then.
    leaves_at_ns: Option<u64>,
    /// Until when all that came was taken in.
    judged_ns: u64,
    farewell: Option<Farewell>,
    news: VecDeque<SessionEvent>,
}

impl Session {
    /// A player who will ask the token's first server.
    pub fn new(
        token: &ConnectToken,
        options: &Options,
        netcode: netcode::Options,
        now_ns: u64,
    ) -> Self {
        let machine = Machine::new(token, now_ns, netcode);
        let mut session = Self {
            machine,
            options: options.delivery,
            end: None,
            takes_held: false,
            leaves_at_ns: None,
            judged_ns: now_ns,
            farewell: None,
            news: VecDeque::new(),
        };
        if session.state().is_closed() {
            session.news.push_back(SessionEvent::Closed(Reason::Ended(session.state())));
        }
        session
    }

    /// netcode's part, for keys and addresses.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Where the player stands.
    pub const fn state(&self) -> State {
        self.machine.state()
    }

    /// The key that opens what the server sends.
    pub const fn open_key(&self) -> &Key {
        self.machine.open_key()
    }

    /// The key that seals what the player sends.
    pub const fn seal_key(&self) -> &Key {
        self.machine.seal_key()
    }

    /// How good the connection is; `None` without one.
    pub fn quality(&self) -> Option<Quality> {
        self.end.as_ref().map(|end| end.quality())
    }

    /// The longest message that a channel takes.
    pub fn message_bytes_max(&self, channel: Channel) -> usize {
        self.end.as_ref().map_or(0, |end| end.message_bytes_max(channel))
    }

    /// Whether no message on a reliable channel waits to be acknowledged: all were, or their
    /// connection has ended. Reports tell which.
    pub fn has_delivered_all(&self) -> bool {
        self.quality().is_none_or(|quality| quality.reliable_bytes == 0)
    }

    /// What the game server has said last on the connection that has just ended, if it closed the
    /// session after delivery and has said anything.
    pub fn farewell(&self) -> Option<&Farewell> {
        self.farewell.as_ref()
    }

    /// Queues a message. With a token there will be a report about it.
    pub fn send(
        &mut self,
        channel: Channel,
        message: &[u8],
        token: Option<u64>,
    ) -> Result<(), SendError> {
        let end = self.end.as_mut().filter(|_| self.leaves_at_ns.is_none());
        end.map_or(Err(SendError::Closed), |end| end.send(channel, message, token))
    }

    /// Decides whether a datagram is worth opening. Changes nothing.
    pub fn handle_datagram(&self, from: Endpoint, datagram: &[u8]) -> Result<OpenWork, DropReason> {
        self.machine.handle_datagram(from, datagram)
    }

    /// Takes in an authentic packet, and hands over every message that is complete with it; `body`
    /// is without the tag.
    pub fn handle_opened(
        &mut self,
        now_ns: u64,
        work: &OpenWork,
        body: &[u8],
        on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), DropReason> {
        match self.machine.handle_opened(now_ns, work, body)? {
            Some(Event::Payload) => self.handle_payload(now_ns, body, on_message),
            Some(event) => {
                let is_left = matches!(event, Event::Closed | Event::NextServer);
                if let Some(end) = self.end.as_mut().filter(|_| is_left) {
                    // Nothing comes any more that they could wait for.
                    end.wait_no_more();
                    let _ = end.handle_held(now_ns, on_message);
                }
                self.handle_change(now_ns, event);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Hands over the messages of packets that have waited long enough for others before them. To
    /// be called with [`handle_timeout`](Self::handle_timeout), from the beginning on: without
    /// that none waits, whatever [`reorder_ns`](delivery::Options::reorder_ns) says.
    pub fn handle_held(&mut self, now_ns: u64, on_message: impl FnMut(Channel, &[u8])) {
        self.takes_held = true;
        let Some(end) = &mut self.end else { return };
        if let Err(Refusal::Fault(fault)) = end.handle_held(now_ns, on_message) {
            self.close(Reason::Fault(fault));
        }
    }

    /// Ends an attempt or the connection whose time is up. What has come by then was taken in: who
    /// only sends meanwhile does not know who is silent, and does not call this.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.judged_ns = now_ns;
        let has_said_all = self.end.as_ref().is_none_or(|end| end.has_said_all());
        let is_time = self.leaves_at_ns.is_some_and(|at_ns| has_said_all || at_ns <= now_ns);
        if is_time && !self.state().is_closed() {
            return self.close(Reason::Left);
        }
        if let Some(event) = self.machine.handle_timeout(now_ns) {
            self.handle_change(now_ns, event);
        }
    }

    /// When there is something to do, if nothing arrives before; an instant that has passed means
    /// at once, `None` means never.
    pub fn poll_timeout(&self) -> Option<u64> {
        let end_ns = self.end.as_ref().and_then(|end| end.poll_timeout());
        let leaves_ns = self.leaves_at_ns.filter(|_| !self.state().is_closed());
        [self.machine.poll_timeout(), end_ns, leaves_ns].into_iter().flatten().min()
    }

    /// Writes the next datagram that is due into `out`, which has at least 1225 bytes.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<Transmit> {
        self.poll_messages(now_ns, out).or_else(|| self.machine.poll_transmit(now_ns, out))
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let news = self.news.pop_front();
        news.or_else(|| self.end.as_mut()?.poll_report().map(SessionEvent::Reported))
    }

    /// Leaves. What is under way is reported as not delivered; the goodbye comes out of
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn disconnect(&mut self) {
        self.close(Reason::Left);
    }

    /// Leaves when everything that was sent on reliable channels has arrived, or at that moment:
    /// from now on nothing more can be sent.
    pub fn disconnect_at(&mut self, at_ns: u64) {
        self.leaves_at_ns = Some(self.leaves_at_ns.map_or(at_ns, |before| before.min(at_ns)));
    }

    fn handle_payload(
        &mut self,
        now_ns: u64,
        payload: &[u8],
        on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), DropReason> {
        let Some(end) = &mut self.end else { return Err(DropReason::PacketUnexpected) };
        match end.handle_packet(now_ns, payload, on_message) {
            Ok(()) => {
                // The server knows by now that the player is in, and a packet of the delivery layer
                // says as much as a keep-alive of netcode's ten a second.
                self.machine.set_keep_alive(self.options.keep_alive_ns);
                Ok(())
            }
            Err(Refusal::Dropped(why)) => Err(why),
            Err(Refusal::Fault(fault)) => {
                self.close(Reason::Fault(fault));
                Ok(())
            }
            Err(Refusal::Closed) => Err(DropReason::PacketUnexpected),
        }
    }

    fn handle_change(&mut self, now_ns: u64, event: Event) {
        let server = self.machine.server();
        match event {
            Event::Connected(keep_alive) => {
                let mut options = delivery::Options { takes_farewell: true, ..self.options };
                options.reorder_ns *= u64::from(self.takes_held);
                self.end = Some(Box::new(End::new(&options, now_ns)));
                self.farewell = None;
                let (slot, slots) = (keep_alive.slot, keep_alive.slots);
                self.news.push_back(SessionEvent::Connected { server, slot, slots });
            }
            Event::NextServer => {
                self.close_end();
                self.news.push_back(SessionEvent::NextServer { server });
            }
            Event::Closed => {
                self.close_end();
                self.news.push_back(SessionEvent::Closed(Reason::Ended(self.state())));
            }
            Event::Payload => {}
        }
    }

    fn poll_messages(&mut self, now_ns: u64, out: &mut [u8]) -> Option<Transmit> {
        let end = self.end.as_mut()?;
        let is_unheard = end.gives_up(now_ns) && !end.gives_up(self.judged_ns);
        if end.poll_timeout()? > now_ns || is_unheard {
            return None;
        }
        let mut packet = [0; PAYLOAD_BYTES_MAX];
        if let Some(len) = end.poll_transmit(now_ns, &mut packet) {
            return self.machine.write_payload(now_ns, &packet[..len], out).ok();
        }
        if let Some(fault) = end.fault() {
            self.close(Reason::Fault(fault));
        }
        None
    }

    /// Says goodbye, unless it is over.
    fn close(&mut self, reason: Reason) {
        if self.state().is_closed() {
            return;
        }
        self.machine.disconnect();
        self.close_end();
        self.news.push_back(SessionEvent::Closed(reason));
    }

    fn close_end(&mut self) {
        let Some(mut end) = self.end.take() else { return };
        self.farewell = end.farewell().map(Farewell::of);
        end.close();
        while let Some(report) = end.poll_report() {
            self.news.push_back(SessionEvent::Reported(report));
        }
    }
}
