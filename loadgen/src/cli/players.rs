//! Arguments that every command with honest players shares: whom they dial, with which tokens, from
//! which threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringgate_core::netcode;
use ringgate_core::secret::Key;
use ringgate_io::Choice;

use super::outcome::Failure;
use super::plain::PlainArgs;
use super::unreal::UnrealArgs;
use super::values::{driver, duration, number, seconds};
use crate::measure::gateway::{Admin, Gateway};
use crate::players::arrivals::Arrivals;
use crate::players::scenario::Scenario;
use crate::players::tokens::service::{Request, Service};
use crate::players::tokens::{Mint, Tokens};
use crate::players::{Protocol, THREADS_MAX};
use crate::report::require::Allowance;
use crate::run::Run;
use crate::run::engine::{Gather, Options};

/// What players speak, whom they dial, and the protocol id.
pub(super) type Dialled = (Protocol, SocketAddr, u64);

/// Whom to dial and how.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlayerArgs {
    /// The gateway's address, as tokens must name it
    #[arg(long, value_name = "ADDR", required_unless_present_any = ["tokens", "token_service"])]
    pub(super) server: Option<SocketAddr>,
    /// The listener's key, to mint tokens with: a file that holds it in hex
    #[arg(long, value_name = "FILE", required_unless_present_any = ["tokens", "token_service", "unreal", "plain"])]
    key: Option<PathBuf>,
    /// The listener's protocol id, decimal or 0x…
    #[arg(long, value_name = "N", value_parser = number, default_value = "0")]
    protocol_id: u64,
    /// Ready-made tokens instead: a directory of token files, or one file with tokens one after the
    /// other
    #[arg(long, value_name = "PATH", conflicts_with_all = ["key", "server"])]
    tokens: Option<PathBuf>,
    /// Tokens of a fleet's token service instead, over HTTP, as players need them; the next of the
    /// list is asked where one does not answer
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', requires = "token_secret",
        conflicts_with_all = ["key", "server", "tokens"])]
    token_service: Vec<SocketAddr>,
    /// A file with what the token service wants to be shown
    #[arg(long, value_name = "FILE", requires = "token_service")]
    token_secret: Option<PathBuf>,
    /// What to ask the token service for, beside each player's id
    #[arg(long, value_name = "JSON", default_value = "{}")]
    token_request: String,
    /// Have players whose session ends without their wish ask the token service for another token
    #[arg(long, requires = "token_service")]
    come_back: bool,
    /// Name of the backend, put into the tokens' user data for listeners that route by it
    #[arg(long, value_name = "NAME", default_value = "")]
    backend: String,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    unreal: UnrealArgs,
    /// Silence after which a session ends, whole seconds [default: 10s; Unreal 30s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    timeout: Option<i32>,
    /// Time after which a player who has nothing to say sends a keep-alive [default: 100ms; Unreal
    /// 200ms, as clients of games do]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    keep_alive: Option<Duration>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: u32,
    /// Cores to pin the threads to, one for each
    #[arg(long, value_name = "CORE,…", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Driver: auto, mmsg or uring
    #[arg(long, value_name = "NAME", value_parser = driver, default_value = "auto")]
    io: Choice,
    /// Look for work without sleeping: lower latencies of its own, a whole core per thread
    #[arg(long)]
    spin: bool,
    /// When payloads leave [default: spread, on every machine; with --gather ticks]. Spread and
    /// poisson give each payload a moment and a system call of its own, which takes a core for each
    /// thread: pin them with --cores
    #[arg(long, value_enum, value_name = "MODE")]
    arrivals: Option<Arrivals>,
    /// Have players send in bursts, so much time apart, which nobody on the generator's core may
    /// interrupt (needs the right to real-time priorities). With everybody on one core this is what
    /// a worker costs that finds its queue full, and wakes nobody on another core
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) gather: Option<Duration>,
    /// Give every player a socket of its own even on loopback, as it must be with a gateway on
    /// another host
    #[arg(long)]
    pub(super) own_sockets: bool,
    /// Let players share a few sockets although the server is not on loopback: their addresses
    /// begin here, a million for each thread, and all must be this host's, as after `ip route add
    /// local 10.80.0.0/12 dev lo`
    #[arg(long, value_name = "ADDR", conflicts_with = "own_sockets")]
    pub(super) players_at: Option<Ipv4Addr>,
    /// The gateway's admin address, or its control socket, to check its books against ours. Its
    /// control socket shows them as of now
    #[arg(long, value_name = "ADDR|PATH")]
    admin: Option<Admin>,
    /// So many players, or a share of them like 2%, may stay outside or lose their session; more of
    /// them is exit code 5
    #[arg(long, value_name = "N|P%", default_value = "0")]
    allow_unconnected: Allowance,
    /// Whoever leaves waits so long for answers that are on their way, and twice the slowest path
    /// of `--impair`. At the end of a run nobody waits once all are in, and all answers here
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    linger: Duration,
    /// The gateway's process, to see its CPU time; found by --admin where that is given
    #[arg(long, value_name = "PID")]
    gateway_pid: Option<u32>,
}

impl PlayerArgs {
    /// Reads keys and tokens, or asks for the first.
    pub(super) fn dial(&self) -> Result<Dialled, Failure> {
        self.plain.check()?;
        if self.unreal.unreal {
            let server =
                self.server.ok_or_else(|| Failure::BadInput("--server is missing".into()))?;
            return Ok((Protocol::Unreal(self.unreal.setup(server, self.timeout())), server, 0));
        }
        if self.plain.plain {
            let server =
                self.server.ok_or_else(|| Failure::BadInput("--server is missing".into()))?;
            return Ok((Protocol::Plain(self.plain.setup(server)?), server, 0));
        }
        let (tokens, server, protocol_id) = self.tokens()?;
        Ok((Protocol::Netcode(tokens), server, protocol_id))
    }

    /// How long silence lasts until a session ends.
    fn timeout(&self) -> Duration {
        let default = if self.unreal.unreal { UNREAL_TIMEOUT_SECONDS } else { TIMEOUT_SECONDS };
        let seconds = self.timeout.unwrap_or(default);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0).clamp(1, 120))
    }

    /// After how much silence of its own a player sends a keep-alive.
    pub(super) fn keep_alive(&self) -> Duration {
        let default = Duration::from_millis(if self.unreal.unreal { 200 } else { 100 });
        self.keep_alive.unwrap_or(default)
    }

    /// Where players get tokens, whom these name, and for which protocol.
    pub(super) fn tokens(&self) -> Result<(Tokens, SocketAddr, u64), Failure> {
        let tokens = match (&self.tokens, &self.key, self.server) {
            _ if !self.token_service.is_empty() => self.service()?,
            (Some(path), ..) => Tokens::read(path).map_err(Failure::BadInput)?,
            (None, Some(key), Some(server)) => Tokens::Mint(Arc::new(self.mint(key, server)?)),
            _ => {
                return Err(Failure::BadInput(
                    "players need --tokens, --token-service, or --server and --key".into(),
                ));
            }
        };
        let (server, protocol_id) =
            tokens.terms().unwrap_or_else(|| unreachable!("all sources have a server"));
        Ok((tokens, server, protocol_id))
    }

    fn service(&self) -> Result<Tokens, Failure> {
        let services = self.token_service.clone();
        let secret = self.token_secret.as_deref().unwrap_or_else(|| Path::new(""));
        let request = Request::new(services, secret, &self.token_request, self.come_back);
        let request = request.map_err(Failure::BadInput)?;
        Ok(Tokens::Service(Arc::new(Service::start(request).map_err(Failure::Failed)?)))
    }

    fn mint(&self, key: &PathBuf, server: SocketAddr) -> Result<Mint, Failure> {
        let fail =
            |why: &dyn std::fmt::Display| Failure::BadInput(format!("{}: {why}", key.display()));
        let text = std::fs::read_to_string(key).map_err(|why| fail(&why))?;
        let key = Key::from_hex(&text).ok_or_else(|| fail(&"a key is 64 hex digits"))?;
        let servers = netcode::ServerAddresses::new(&[server])
            .map_err(|why| Failure::BadInput(format!("--server: {why}")))?;
        let user_data = netcode::user_data(self.backend.as_bytes())
            .ok_or_else(|| Failure::BadInput("--backend: at most 256 bytes".into()))?;
        Ok(Mint {
            key,
            protocol_id: self.protocol_id,
            servers,
            timeout_seconds: self.timeout.unwrap_or(TIMEOUT_SECONDS),
            user_data,
        })
    }

    /// How threads work.
    pub(super) fn options(&self, server: SocketAddr, nat: bool) -> Result<Options, Failure> {
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(Failure::BadInput(format!("--threads: 1 to {THREADS_MAX}")));
        }
        if self.players_at.is_some() && server.is_ipv6() {
            return Err(Failure::BadInput("--players-at: these addresses reach no IPv6".into()));
        }
        Ok(Options {
            io: self.io,
            cores: self.cores.clone(),
            spin: self.spin,
            gather: self.gather.map(|every| Gather { every, bursts: None }),
            interval: Duration::from_secs(1),
            server,
            ports: if nat { NAT_PORTS } else { 1 },
            players_at: self.players_at,
            own_sockets: self.own_sockets,
        })
    }

    /// When payloads leave. Bursts are what they are.
    pub(super) fn arrivals(&self) -> Result<Arrivals, Failure> {
        match (self.gather, self.arrivals) {
            (None, asked) => Ok(asked.unwrap_or_default()),
            (Some(_), None | Some(Arrivals::Ticks)) => Ok(Arrivals::Ticks),
            (Some(_), Some(exact)) => Err(Failure::BadInput(format!(
                "--gather makes bursts: it does not go with --arrivals {}",
                exact.name()
            ))),
        }
    }

    /// A run of these players against `server`, without a histogram log. `nat` is whether their
    /// ports may change.
    pub(super) fn run(
        &self,
        scenario: Scenario,
        server: SocketAddr,
        protocol: Protocol,
        protocol_id: u64,
        nat: bool,
    ) -> Result<Run, Failure> {
        Ok(Run {
            options: self.options(server, nat)?,
            protocol,
            protocol_id,
            server,
            arrivals: self.arrivals()?,
            threads: self.threads,
            keep_alive: self.keep_alive(),
            allowed_outside: self.allow_unconnected,
            patience: self.patience(),
            linger: self.linger,
            gateway: self.gateway(),
            hlog: None,
            scenario,
        })
    }

    /// How long sessions can outlive their players: minted tokens say so, and two seconds are for
    /// the gateway to act on it.
    pub(super) fn patience(&self) -> Duration {
        self.timeout() + Duration::from_secs(2)
    }

    pub(super) fn gateway(&self) -> Gateway {
        Gateway::new(self.gateway_pid, self.admin.clone())
    }
}

/// Tokens of netcode's players say this where nothing else is asked for.
const TIMEOUT_SECONDS: i32 = 10;

/// Unreal's players expect less of a network.
const UNREAL_TIMEOUT_SECONDS: i32 = 30;

/// Ports among which a NAT can choose.
const NAT_PORTS: usize = 4;
