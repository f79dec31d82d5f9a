//! A simulated player: it comes, talks, is moved by its NAT, and leaves with or without a word;
//! then it comes again.

use super::netcode::{Cipher, Heard};
use super::network::Faults;
use super::plan::Habits;
use super::random::Random;
use ringgate_batch::Endpoint;
use ringgate_core::delivery::{self, End};
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::ConnectToken;
use ringgate_core::proto::netcode::client::{Client, Event, Options, State};

/// A player.
pub struct Player {
    /// Who it is.
    pub client_id: u64,
    /// Its address; ports come and go.
    pub ip: Endpoint,
    /// The way between it and the gateway.
    pub path: Faults,
    /// Where it is.
    pub whereabouts: Whereabouts,
    /// When it last sent anything.
    pub spoke_ns: u64,
    /// Whether its last life ended by leaving properly, so that the gateway need not wait for a
    /// timeout.
    pub left_properly: bool,
    /// What it may use again.
    pub last: Option<Last>,
}

/// What is left of a life.
#[derive(Clone)]
pub struct Last {
    /// The number of its token.
    pub token: usize,
    /// The token itself.
    pub connect_token: ConnectToken,
    /// Where it was.
    pub home: Endpoint,
    /// How many lives have used the token.
    pub uses: u64,
}

/// Where a player is.
pub enum Whereabouts {
    /// Not here before then.
    Away(u64),
    /// Taking part.
    Here(Box<Life>),
}

/// A player while it takes part.
pub struct Life {
    /// Its number in [`Judge`](super::Judge).
    pub number: u64,
    /// The gateway's address that it talks to.
    pub server: Endpoint,
    /// Where it is.
    pub home: Endpoint,
    /// Its end of the connection.
    pub client: Client,
    /// What it may use again afterwards.
    pub last: Last,
    /// When it came.
    pub since_ns: u64,
    /// When the gateway had taken it in.
    pub connected_ns: Option<u64>,
    /// Its listener delivers messages.
    pub delivers: bool,
    /// Its end of what they are delivered with, while it is connected.
    pub end: Option<Box<End>>,
    leaves_ns: u64,
    leaves_silently: bool,
    talks_ns: u64,
    moves_ns: u64,
}

/// What a player does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is over: for good, or because it could not get in.
    End {
        /// It has said goodbye, or the gateway has.
        properly: bool,
    },
    /// A NAT gives it another port.
    Move,
    /// It has something to say.
    Talk,
}

impl Life {
    /// A life that begins now.
    pub fn begin(
        number: u64,
        last: Last,
        server: Endpoint,
        now_ns: u64,
        habits: &Habits,
        random: &mut Random,
    ) -> Self {
        // Where a token may be used again, each of its lives numbers its packets above the ones
        // before, as a client must; elsewhere all count from the start, as the reference does.
        let first_sequence = if habits.counts_on { last.uses << 40 } else { 0 };
        let options = Options { first_sequence, answers_at_once: random.chance(500) };
        let stay_ns = random.within(habits.stay_ns.clone());
        let moves = random.chance(habits.move_per_mille);
        Self {
            number,
            server,
            home: last.home,
            client: Client::new(&last.connect_token, now_ns, options),
            last,
            since_ns: now_ns,
            connected_ns: None,
            delivers: false,
            end: None,
            leaves_ns: now_ns + stay_ns,
            leaves_silently: random.chance(habits.silent_per_mille),
            talks_ns: now_ns,
            moves_ns: if moves { now_ns + random.within(0..stay_ns) } else { u64::MAX },
        }
    }

    /// What is due now, if anything is. To be asked until it is not.
    pub fn next_deed(&mut self, now_ns: u64, habits: &Habits, random: &mut Random) -> Option<Deed> {
        let _ = self.client.handle_timeout(now_ns);
        if self.client.state().is_closed() {
            return Some(Deed::End { properly: self.client.state() == State::Disconnected });
        }
        if now_ns >= self.leaves_ns {
            if self.leaves_silently {
                return Some(Deed::End { properly: false });
            }
            self.client.disconnect();
            return None;
        }
        if now_ns >= self.moves_ns {
            self.moves_ns = now_ns + random.within(habits.stay_ns.clone());
            return Some(Deed::Move);
        }
        if self.client.state() == State::Connected && now_ns >= self.talks_ns {
            self.talks_ns = now_ns + random.within(habits.talk_ns.clone());
            return Some(Deed::Talk);
        }
        None
    }

    /// Says nothing more; and leaves then, if it has to, with a goodbye.
    pub fn fall_silent(&mut self, leaves_ns: u64) {
        (self.talks_ns, self.moves_ns) = (u64::MAX, u64::MAX);
        (self.leaves_ns, self.leaves_silently) = (leaves_ns, false);
    }

    /// Writes the next datagram that is due; returns its length.
    pub fn poll(
        &mut self,
        cipher: &mut Cipher,
        now_ns: u64,
        out: &mut [u8; DATAGRAM_BYTES_MAX],
    ) -> Option<usize> {
        cipher.poll(&mut self.client, now_ns, out)
    }

    /// Takes a datagram in; returns the payload, if it was one.
    pub fn take<'d>(
        &mut self,
        cipher: &mut Cipher,
        now_ns: u64,
        from: Endpoint,
        datagram: &'d mut [u8],
    ) -> Option<&'d [u8]> {
        match cipher.take(&mut self.client, now_ns, from, datagram) {
            Heard::Payload(payload) => Some(payload),
            Heard::Event(Some(Event::Connected(_))) => {
                self.connected_ns = Some(now_ns);
                let end = || Box::new(End::new(&delivery::Options::default(), now_ns));
                self.end = self.delivers.then(end);
                None
            }
            Heard::Event(_) | Heard::Refused(_) => None,
        }
    }
}
