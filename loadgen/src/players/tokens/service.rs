//! Tokens of a fleet's token service, asked for over HTTP while players wait, as a matchmaker does.
//!
//! Threads of their own ask, so no player's payload waits for an answer: the swarm says how many
//! players want a token now, takes what has come, and looks again. A service that does not answer
//! is passed over for the next of the list. One that has no slot just now, at a server or at all,
//! or too many callers, is asked again; any other refusal is the same for everybody, and ends the
//! asking.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringgate_core::netcode::ConnectToken;
use ringgate_core::secret::Key;
use ringgate_os::clock;
use ringgate_process::client::{self, BlockingClient, Patience};
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whom to ask, and for what.
#[derive(Clone)]
pub struct Request {
    /// Token services, in the order in which they are asked.
    pub services: Vec<SocketAddr>,
    /// What they want to be shown.
    pub secret: String,
    /// What is asked for, beside the client's id: `{"group": "arena"}`.
    pub body: Map<String, Value>,
    /// Whether a player whose session ends without its wish asks for another token.
    pub comes_back: bool,
}

impl Request {
    /// Reads the secret's file and the body.
    pub fn new(
        services: Vec<SocketAddr>,
        secret: &Path,
        body: &str,
        comes_back: bool,
    ) -> Result<Self, String> {
        let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", secret.display());
        let secret = std::fs::read_to_string(secret).map_err(|why| fail(&why))?.trim().to_owned();
        if secret.is_empty() || !secret.bytes().all(|it| it.is_ascii_graphic()) {
            return Err("a token service's secret is one word".into());
        }
        let body = serde_json::from_str(body)
            .map_err(|why| format!("--token-request: expected a JSON object: {why}"))?;
        Ok(Self { services, secret, body, comes_back })
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { services, secret: _, body, comes_back } = self;
        let mut text = f.debug_struct("Request");
        text.field("services", services).field("body", body).field("comes_back", comes_back);
        text.finish_non_exhaustive()
    }
}

/// What a player finds who wants a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Lack {
    /// One is being asked for.
    NotYet,
    /// There is none, and there will not be one.
    Never,
}

/// A token service, as players see it.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    request: Request,
    /// The next client's id.
    next_id: AtomicU64,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Tokens that players wait for.
    wanted: usize,
    /// Requests that are under way.
    asking: usize,
    pile: VecDeque<ConnectToken>,
    failure: Option<String>,
    /// Why there was no token the last time.
    refusal: Option<String>,
    is_over: bool,
}

impl Service {
    /// Asks for the first token, and has threads ask for the others.
    pub fn start(request: Request) -> Result<Self, String> {
        let seed = Key::generate().map_err(|why| format!("cannot draw random numbers: {why}"))?;
        let first = u64::from_le_bytes(*seed.as_bytes().first_chunk().unwrap_or(&[0; 8]));
        let state = Mutex::new(State { wanted: 1, ..State::default() });
        let next_id = AtomicU64::new(first);
        let shared = Arc::new(Shared { request, next_id, state, news: Condvar::new() });
        for index in 0..ASKERS {
            let shared = Arc::clone(&shared);
            let ask = move || Asker { shared, at: index, connection: None }.run();
            let named = thread::Builder::new().name(format!("tokens-{index}"));
            named.spawn(ask).map_err(|why| format!("cannot start a thread: {why}"))?;
        }
        let service = Self { shared };
        service.wait_for_first()?;
        Ok(service)
    }

    fn wait_for_first(&self) -> Result<(), String> {
        let state = self.shared.state();
        let waits = |state: &mut State| state.pile.is_empty() && state.failure.is_none();
        let waited = self.shared.news.wait_timeout_while(state, FIRST_WITHIN, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (&state.failure, state.pile.is_empty()) {
            (Some(why), _) => Err(why.clone()),
            (None, true) => Err(format!(
                "no token service has answered with a token: {}",
                state.refusal.as_deref().unwrap_or("none has answered")
            )),
            (None, false) => Ok(()),
        }
    }

    /// Whether players whose session was lost want another token.
    pub fn comes_back(&self) -> bool {
        self.shared.request.comes_back
    }

    /// A token for the first of so many players who want one now.
    pub fn take(&self, now_unix_s: u64, waiting: usize) -> Result<ConnectToken, Lack> {
        let mut state = self.shared.state();
        state.pile.retain(|token| token.expire_unix_s > now_unix_s + SPARE_S);
        let token = state.pile.pop_front();
        state.wanted = waiting.saturating_sub(usize::from(token.is_some())).min(AHEAD_MAX);
        let is_failed = state.failure.is_some();
        drop(state);
        self.shared.news.notify_all();
        token.ok_or(if is_failed { Lack::Never } else { Lack::NotYet })
    }

    /// Why players had no token, the last time or for good.
    pub fn refusal(&self) -> Option<String> {
        let state = self.shared.state();
        state.failure.clone().or_else(|| state.refusal.clone())
    }

    /// What the first token of the pile says.
    pub fn terms(&self) -> Option<(SocketAddr, u64)> {
        let state = self.shared.state();
        let token = state.pile.front()?;
        token.addresses.first().map(|first| (*first, token.protocol_id))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.news.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more is wanted; false when there is nothing to ask for any more.
    fn begin(&self) -> bool {
        let rests = |state: &mut State| {
            !state.is_over
                && state.failure.is_none()
                && state.wanted <= state.asking + state.pile.len()
        };
        let waited = self.news.wait_while(self.state(), rests);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let goes_on = !state.is_over && state.failure.is_none();
        state.asking += usize::from(goes_on);
        goes_on
    }

    fn end(&self, answer: Result<ConnectToken, Refused>) {
        let mut state = self.state();
        state.asking -= 1;
        match answer {
            Ok(token) => state.pile.push_back(token),
            Err(Refused::ForGood(why)) => state.failure = Some(why),
            Err(Refused::ForNow(why)) => state.refusal = Some(why),
        }
        drop(state);
        self.news.notify_all();
    }
}

/// Why there is no token.
enum Refused {
    /// The next attempt may be served, by this service or by another.
    ForNow(String),
    /// Nobody will ever be served who asks like this.
    ForGood(String),
}

/// A thread that asks.
struct Asker {
    shared: Arc<Shared>,
    /// Which service it asks.
    at: usize,
    connection: Option<BlockingClient>,
}

impl Asker {
    fn run(mut self) {
        while self.shared.begin() {
            let answer = self.ask();
            let is_put_off = matches!(answer, Err(Refused::ForNow(_)));
            self.shared.end(answer);
            if is_put_off {
                clock::sleep(AGAIN_AFTER);
            }
        }
    }

    fn ask(&mut self) -> Result<ConnectToken, Refused> {
        let request = &self.shared.request;
        let mut body = request.body.clone();
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        body.insert("client_id".into(), Value::String(id.to_string()));
        let service = request.services[self.at % request.services.len()];
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => open(service),
        };
        let body = Value::Object(body).to_string();
        let answered = connection.and_then(|connection| {
            let answer = post(connection, service, &request.secret, body)?;
            let status = answer.status;
            answer.text(BODY_BYTES_MAX).map(|(text, connection)| (status, text, connection))
        });
        let (status, text, connection) = answered.map_err(|why| {
            self.at += 1;
            Refused::ForNow(format!("token service {service}: {why}"))
        })?;
        self.connection = connection;
        let why = || format!("the token service answers {status}: {}", text.trim_end());
        match status {
            200 => token(&text).map_err(Refused::ForGood),
            408 | 409 | 429 | 500.. => {
                // Another one may have a slot, or etcd.
                self.at += 1;
                self.connection = None;
                Err(Refused::ForNow(why()))
            }
            _ => Err(Refused::ForGood(why())),
        }
    }
}

fn open(service: SocketAddr) -> io::Result<BlockingClient> {
    BlockingClient::open(Patience::of(ANSWER_WITHIN), async || {
        let stream = timeout(CONNECT_WITHIN, TcpStream::connect(service)).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
}

fn post(
    connection: BlockingClient,
    service: SocketAddr,
    secret: &str,
    body: String,
) -> io::Result<client::Answer> {
    let (host, secret) = (service.to_string(), Some(secret.as_bytes()));
    let mut request = client::request("POST", "/v1/tokens", &host, secret, body)?;
    let json = "application/json".parse().expect("a header's value");
    request.headers_mut().insert("content-type", json);
    connection.ask(request)
}

/// The token in an answer.
fn token(text: &str) -> Result<ConnectToken, String> {
    let fail = |why: &dyn std::fmt::Display| format!("the token service's answer: {why}");
    let answer: Value = serde_json::from_str(text).map_err(|why| fail(&why))?;
    let token = answer["token"].as_str().ok_or_else(|| fail(&"there is no token in it"))?;
    let bytes = STANDARD.decode(token).map_err(|why| fail(&why))?;
    ConnectToken::decode(&bytes).map_err(|why| fail(&why))
}

/// Threads that ask.
const ASKERS: usize = 4;
/// Tokens that are asked for before their players are there.
const AHEAD_MAX: usize = 64;
/// A token that has no longer than this is not dialled with.
const SPARE_S: u64 = 2;
const FIRST_WITHIN: Duration = Duration::from_secs(20);
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const BODY_BYTES_MAX: u64 = 64 << 10;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
pub(crate) mod tests;
