//! A player: asks a matchmaker for a token, plays with it, and leaves, in order or not.

use ringgate_batch::Endpoint;
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::{Client, ConnectToken, Notice, Options, State};

/// A player of a client id, which another one may have as well.
pub(crate) struct Player {
    pub(crate) client_id: u64,
    pub(crate) doing: Doing,
}

/// What a player does.
pub(crate) enum Doing {
    /// Nothing, until then.
    Away { until_ms: u64 },
    /// It waits for the token with this number.
    Asking { token: u64, since_ms: u64 },
    /// It plays, or tries to.
    Playing(Box<Play>),
}

/// A token in use.
pub(crate) struct Play {
    pub(crate) token: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) home: Endpoint,
    pub(crate) since_ms: u64,
    /// When it was let in, and by whom.
    pub(crate) connected: Option<(u64, Endpoint)>,
    /// When an answer came last.
    pub(crate) heard_ms: u64,
    pub(crate) leaves_ms: u64,
    /// It goes without a word.
    pub(crate) vanishes: bool,
    /// It is none of those that the token was made for.
    pub(crate) is_thief: bool,
    client: Client,
    says_ms: u64,
}

/// What has become of a step.
#[derive(Clone, Copy)]
pub(crate) enum Became {
    Nothing,
    Connected,
    /// It is over: by the player's own will, or as the client says.
    Over(Option<State>),
}

impl Play {
    pub(crate) fn new(token: u64, bytes: Vec<u8>, home: Endpoint, now_ms: u64) -> Self {
        let read = ConnectToken::decode(&bytes).expect("a token of the service");
        let options = Options { first_sequence: now_ms << 16, answers_at_once: true };
        Self {
            token,
            bytes,
            home,
            since_ms: now_ms,
            connected: None,
            heard_ms: now_ms,
            leaves_ms: u64::MAX,
            vanishes: false,
            is_thief: false,
            client: Client::with_options(&read, ns(now_ms), options),
            says_ms: now_ms,
        }
    }

    /// The gateway that it speaks to.
    pub(crate) fn gateway(&self) -> Endpoint {
        self.client.server().into()
    }

    pub(crate) fn hear(&mut self, from: Endpoint, bytes: &mut [u8], now_ms: u64) -> Became {
        let notice = self.client.handle_datagram(ns(now_ms), from.into(), bytes);
        match notice {
            Ok(Some(Notice::Connected(_))) => {
                self.connected = Some((now_ms, self.gateway()));
                self.heard_ms = now_ms;
                Became::Connected
            }
            Ok(Some(Notice::Closed(state))) => Became::Over(Some(state)),
            Ok(Some(Notice::Payload(said))) => {
                assert_eq!(said, self.token.to_le_bytes(), "a payload for somebody else");
                self.heard_ms = now_ms;
                Became::Nothing
            }
            Ok(_) | Err(_) => Became::Nothing,
        }
    }

    /// What it sends now.
    pub(crate) fn act(&mut self, now_ms: u64, send: &mut dyn FnMut(Endpoint, &[u8])) -> Became {
        let mut out = [0; DATAGRAM_BYTES_MAX];
        if let Some(Notice::Closed(state)) = self.client.handle_timeout(ns(now_ms)) {
            return Became::Over(Some(state));
        }
        if now_ms >= self.leaves_ms {
            if !self.vanishes {
                self.client.disconnect();
                self.transmit(now_ms, &mut out, send);
            }
            return Became::Over(None);
        }
        self.transmit(now_ms, &mut out, send);
        if self.client.is_connected() && now_ms >= self.says_ms {
            self.says_ms = now_ms + SAY_EVERY_MS;
            let said = self.client.write_payload(ns(now_ms), &self.token.to_le_bytes(), &mut out);
            let (to, bytes) = said.expect("it is connected");
            send(to.into(), bytes);
        }
        Became::Nothing
    }

    fn transmit(&mut self, now_ms: u64, out: &mut [u8], send: &mut dyn FnMut(Endpoint, &[u8])) {
        while let Some((to, bytes)) = self.client.poll_transmit(ns(now_ms), out) {
            send(to.into(), bytes);
        }
    }
}

const fn ns(ms: u64) -> u64 {
    ms * 1_000_000
}

const SAY_EVERY_MS: u64 = 500;
