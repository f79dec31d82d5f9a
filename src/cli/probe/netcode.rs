//! A netcode player: its token, its request, its answer to the challenge, and its goodbye.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::super::Failure;
use super::super::token::{key, read};
use super::about::{About, Rules};
use super::args::Args;
use super::line::Line;
use super::report::{Outcome, Report, SCHEMA, Step, ask_there, ms, network_means};
use super::witness::{Witness, here};
use ringgate_core::netcode::{
    self, Client, ConnectToken, Notice, ServerAddresses, State, TokenSpec,
};
use ringgate_core::secret::Key;
use ringgate_os::clock;

/// With a token that somebody has made, or one made on the spot as the arguments say.
pub(super) fn probe(args: &Args) -> Result<Report, Failure> {
    let key = args.key.as_deref().map(key).transpose()?;
    if let Some(file) = &args.token {
        let token = read(file)?;
        let keys = key.map(|key| vec![key]).unwrap_or_default();
        let rules = Rules { whose: "--key", keys: &keys, protocol_id: None, named: &[] };
        let about = About::of(&token, &rules);
        return play(args, token, about);
    }
    let wanted = "expected --config FILE, --token FILE, --key K --protocol-id N --server ADDR, or --plain or --unreal with --server ADDR";
    let (Some(key), Some(protocol_id), Some(server)) = (key, args.protocol_id, args.server) else {
        return Err(Failure::bad_input(wanted));
    };
    let token = mint(args, &key, protocol_id, &[server])?;
    let about = About::of(&token, &Rules { whose: "", keys: &[], protocol_id: None, named: &[] });
    play(args, token, about)
}

/// At a listener of a config: with a token that somebody has made, or one of our own.
pub(super) fn probe_configured(
    args: &Args,
    rules: &Rules<'_>,
    run_dir: &Path,
) -> Result<Report, Failure> {
    let token = match (&args.token, rules.keys, rules.protocol_id) {
        (Some(file), ..) => read(file)?,
        (None, [key, ..], Some(protocol_id)) => mint(args, key, protocol_id, rules.named)?,
        (None, ..) => return Err(Failure::bad_input("the listener has no key")),
    };
    let about = About { run_dir: Some(run_dir.to_owned()), ..About::of(&token, rules) };
    play(args, token, about)
}

fn play(args: &Args, mut token: ConnectToken, about: About) -> Result<Report, Failure> {
    let first = token.addresses.iter().next().copied();
    let server = args.server.or(first).ok_or_else(|| Failure::bad_input("no server is named"))?;
    // Only this one, whatever else the token names.
    token.addresses = ServerAddresses::new(&[server]).map_err(Failure::bad_input)?;
    let line = Line::open(server)?;
    let from = line.local()?;
    if args.token.is_some() {
        eprintln!("the token is used up by this: its player needs another one");
    }
    let asked = about.run_dir.clone().or_else(|| here(server)).filter(|_| about.faults.is_empty());
    let witness = Witness::of(asked.as_deref(), from, args.timeout);
    let mut way = Way::new(&line, &token)?;
    let outcome = way.go(args.timeout, args.payload())?;
    let steps = std::mem::take(&mut way.steps);
    let asked = if way.is_challenged { "response" } else { "request" };
    let means = match witness {
        Some(witness) if matches!(outcome, Outcome::Denied | Outcome::Silence) => {
            vec![witness.says(from)]
        }
        _ => means(outcome, asked, &about, (server, from)),
    };
    let mut all = vec![Step::new("token", about.text, 0, None)];
    all.extend(steps);
    let took_ms = ms(way.ended_ns);
    Ok(Report {
        schema: SCHEMA,
        protocol: "netcode",
        server,
        from,
        outcome,
        steps: all,
        took_ms,
        means,
    })
}

/// A token of our own.
fn mint(
    args: &Args,
    key: &Key,
    protocol_id: u64,
    named: &[SocketAddr],
) -> Result<ConnectToken, Failure> {
    let random = getrandom::u64().map_err(Failure::failed)?;
    let servers = ServerAddresses::new(named).map_err(Failure::bad_input)?;
    let user_data = netcode::user_data(args.user_data.as_bytes())
        .ok_or_else(|| Failure::bad_input("--user-data: at most 256 bytes"))?;
    let client_id = args.client_id.unwrap_or(random);
    let spec = TokenSpec {
        lifetime_seconds: Some(LIFETIME_S),
        timeout_seconds: TIMEOUT_S,
        user_data,
        ..TokenSpec::new(protocol_id, client_id, servers)
    };
    netcode::mint(&spec, key, clock::unix_seconds()).map_err(Failure::failed)
}

/// The way in.
struct Way<'a> {
    line: &'a Line,
    client: Client,
    steps: Vec<Step>,
    /// Datagrams that were sent for the step at hand, and when it began.
    sent: u32,
    since_ns: u64,
    is_challenged: bool,
    ended_ns: u64,
}

impl<'a> Way<'a> {
    fn new(line: &'a Line, token: &ConnectToken) -> Result<Self, Failure> {
        let now_ns = line.now_ns();
        let client = Client::new(token, now_ns).map_err(Failure::failed)?;
        let steps = Vec::new();
        Ok(Self {
            line,
            client,
            steps,
            sent: 0,
            since_ns: now_ns,
            is_challenged: false,
            ended_ns: 0,
        })
    }

    /// All of it, with the patience that each step deserves. A payload asks the game for an answer.
    fn go(&mut self, patience: Duration, payload: Option<&[u8]>) -> Result<Outcome, Failure> {
        let outcome = self.get_in(patience)?;
        let outcome = match payload {
            Some(payload) if outcome == Outcome::Connected => self.ask_game(patience, payload)?,
            _ => outcome,
        };
        self.ended_ns = self.line.now_ns();
        if self.client.is_connected() {
            self.leave(&mut [0; 2048])?;
        }
        Ok(outcome)
    }

    fn get_in(&mut self, patience: Duration) -> Result<Outcome, Failure> {
        let patience_ns = patience.as_nanos() as u64;
        let mut buffer = [0; 2048];
        let outcome = loop {
            let now_ns = self.line.now_ns();
            let _ = self.client.handle_timeout(now_ns);
            if now_ns >= self.since_ns + patience_ns || self.is_given_up() {
                break Outcome::Silence;
            }
            if let Some(trouble) = self.send_due(&mut buffer)? {
                break trouble;
            }
            let len = match self.line.receive(&mut buffer)? {
                Ok(Some(len)) => len,
                Ok(None) => continue,
                Err(trouble) => break trouble.into(),
            };
            let (now_ns, server) = (self.line.now_ns(), self.client.server());
            let notice = self.client.handle_datagram(now_ns, server, &mut buffer[..len]);
            let slot = match notice {
                Ok(Some(Notice::Connected(info))) => Some((info.slot, info.slots)),
                _ => None,
            };
            if let Some(outcome) = self.note(slot) {
                break outcome;
            }
        };
        if !matches!(outcome, Outcome::Connected | Outcome::Denied) {
            let step = if self.is_challenged { "response" } else { "request" };
            self.end_step(step, no_answer(outcome));
        }
        Ok(outcome)
    }

    /// Sends the game something until it answers.
    fn ask_game(&mut self, patience: Duration, payload: &[u8]) -> Result<Outcome, Failure> {
        let patience_ns = patience.as_nanos() as u64;
        let mut buffer = [0; 2048];
        let mut asked_ns = None;
        loop {
            let now_ns = self.line.now_ns();
            if now_ns >= self.since_ns + patience_ns || !self.client.is_connected() {
                self.end_step("payload", "no answer of the game");
                return Ok(Outcome::Unanswered);
            }
            if asked_ns.is_none_or(|asked_ns| now_ns >= asked_ns + ASK_AGAIN_NS) {
                asked_ns = Some(now_ns);
                let written = self.client.write_payload(now_ns, payload, &mut buffer);
                let (_, datagram) = written.map_err(|why| Failure::failed(why.name()))?;
                self.sent += 1;
                if let Err(trouble) = self.line.send(datagram)? {
                    return Ok(trouble.into());
                }
            }
            if let Some(trouble) = self.send_due(&mut buffer)? {
                return Ok(trouble);
            }
            let _ = self.client.handle_timeout(now_ns);
            let len = match self.line.receive(&mut buffer)? {
                Ok(Some(len)) => len,
                Ok(None) => continue,
                Err(trouble) => return Ok(trouble.into()),
            };
            let (now_ns, server) = (self.line.now_ns(), self.client.server());
            let notice = self.client.handle_datagram(now_ns, server, &mut buffer[..len]);
            if let Ok(Some(Notice::Payload(answer))) = notice {
                let same = if answer == payload { ", the same" } else { "" };
                let found = format!("answered with {} bytes{same}", answer.len());
                self.end_step("payload", found);
                return Ok(Outcome::Connected);
            }
        }
    }

    fn is_given_up(&self) -> bool {
        self.client.state().is_closed() && self.client.state() != State::Denied
    }

    /// Sends what the client has to say.
    fn send_due(&mut self, buffer: &mut [u8]) -> Result<Option<Outcome>, Failure> {
        let now_ns = self.line.now_ns();
        while let Some((_, datagram)) = self.client.poll_transmit(now_ns, buffer) {
            self.sent += 1;
            if let Err(trouble) = self.line.send(datagram)? {
                return Ok(Some(trouble.into()));
            }
        }
        Ok(None)
    }

    /// Looks where the client stands behind a datagram.
    fn note(&mut self, slot: Option<(u32, u32)>) -> Option<Outcome> {
        let step = if self.is_challenged { "response" } else { "request" };
        if let Some((slot, slots)) = slot {
            self.end_step(step, format!("let in (slot {slot} of {slots})"));
            return Some(Outcome::Connected);
        }
        match self.client.state() {
            State::Denied => {
                self.end_step(step, "denied");
                Some(Outcome::Denied)
            }
            State::SendingResponse if !self.is_challenged => {
                self.end_step(step, "challenged");
                self.is_challenged = true;
                None
            }
            _ => None,
        }
    }

    fn end_step(&mut self, step: &'static str, found: impl Into<String>) {
        let now_ns = self.line.now_ns();
        self.steps.push(Step::new(step, found, self.sent, Some(now_ns - self.since_ns)));
        (self.sent, self.since_ns) = (0, now_ns);
    }

    /// Gives the slot back.
    fn leave(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        self.client.disconnect();
        // Whoever put us out meanwhile does not matter any more.
        let _ = self.send_due(buffer)?;
        self.steps.push(Step::new("goodbye", "said", 0, None));
        Ok(())
    }
}

fn no_answer(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "refused by the host (ICMP)",
        Outcome::Unreachable => "unreachable, says the network (ICMP)",
        Outcome::Blocked => "not let out by this host",
        _ => "no answer",
    }
}

fn means(
    outcome: Outcome,
    asked: &str,
    about: &About,
    (server, from): (SocketAddr, SocketAddr),
) -> Vec<String> {
    let mut means = match outcome {
        Outcome::Connected => Vec::new(),
        Outcome::Denied => vec![
            "the gateway knows the token and says no: no free slot (max_sessions, slots), no backend up, a limit on one source, \
             a drain, or a token that has had its session"
                .to_owned(),
            "`ringgate status` on the gateway shows sessions, slots and backends; `ringgate trace` says which it was".to_owned(),
        ],
        Outcome::Unanswered => vec![
            "the player is in, and the game process has said nothing: it may wait for something else, or does not listen where the \
             backend's address says"
                .to_owned(),
            "`ringgate sessions` on the gateway shows the backend, `ringgate status` what was delivered to it".to_owned(),
        ],
        Outcome::Silence if asked == "response" => vec![
            "the challenge was answered and nothing came back: the client id may have a session already (`ringgate sessions \
             --client`), or the backend is still starting"
                .to_owned(),
            "or larger datagrams are lost on the way: a response is 334 bytes, a request 1078".to_owned(),
        ],
        Outcome::Silence if about.run_dir.is_some() && about.faults.is_empty() => vec![
            format!(
                "key, protocol id and addresses are the config's, so a filter on the way to {server} (`nft list ruleset` on both hosts, \
                 and what is between them), a denied address, a token that was used from another one, a limit on requests, a gateway \
                 whose `pending` is full, that is frozen, or that runs with another config (`ringgate reload`)"
            ),
        ],
        Outcome::Silence => {
            let mut means = about.faults.clone();
            if about.run_dir.is_some() {
                return means;
            }
            let others = if means.is_empty() { "" } else { "otherwise: " };
            means.push(format!(
                "{others}another key or protocol id than the listener's, an expired token, a token that names other addresses than \
                 the listener's public ones, one that was used from another address, a denied address, a limit on requests, a frozen \
                 gateway or one whose `pending` is full, or a filter on the way to {server}"
            ));
            means
        }
        other => network_means(other, server),
    };
    if matches!(outcome, Outcome::Silence | Outcome::Denied) {
        means.push(ask_there(from));
    }
    if outcome == Outcome::Connected {
        means.extend(about.faults.iter().cloned());
    }
    means
}

/// Of tokens made here.
const LIFETIME_S: u64 = 60;
const TIMEOUT_S: i32 = 15;

/// A payload may be lost, or come before the game is ready.
const ASK_AGAIN_NS: u64 = 500_000_000;
