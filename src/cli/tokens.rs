//! `ringgate tokens`: the fleet's token service. What it does stands in the package
//! `ringgate-tokens`; here it is configured, started and stopped.

mod state;

use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate_os::process;
use ringgate_process::confine::Calls;
use ringgate_process::privileges::{self, Privileges};
use ringgate_process::reloads::{Outcome, Reloads, sentences};
use ringgate_process::role::{Role, attend};
use ringgate_process::signals::{self, Signals};
use ringgate_process::systemd::Notifier;
use ringgate_report::text::Append as _;
use ringgate_tokens::desk::Rules;
use ringgate_tokens::journal::Disk;
use ringgate_tokens::service::{self, Options, Running};
use ringgate_tokens::{self as tokens, tls};
use tokio::runtime::Builder;
use zeroize::Zeroizing;

use super::Failure;
use super::config_file::{RoleFile, TOKENS};
use super::logging::{self, LogArgs};
use crate::config;
use crate::config::tokens::{Caller, TokensConfig, WhenAway};
use ringgate_process::levels;
use state::State;

/// Serve connect tokens and places in a fleet over HTTP, until SIGTERM
///
/// The file has [fleet], [tokens] and [[caller]].
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: RoleFile,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let served = args.file.to_serve(TOKENS, config::explain_tokens, TokensConfig::load)?;
    let Some(file) = &served else { return Ok(()) };
    process::ignore_user_signals();
    let config = logging::begin(
        args.log,
        || TokensConfig::load(file),
        |it| (it.tokens.log, &it.tokens.log_level),
    )?;
    let of = &config.tokens;
    let privileges = Privileges::of(of.user.as_deref(), of.confine, Calls::Tokens)?;
    let state_dir = of.state_dir.clone();
    let state = state_dir.as_ref().map(|path| State::open(path, &privileges)).transpose()?;
    // Before any thread: they would not be bound by it.
    privileges.give_up_files(&folders(&config, file), state_dir.as_slice())?;
    signals::check_room().map_err(Failure::failed)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let caught = runtime.block_on(async { Signals::listen() });
    let mut signals =
        caught.map_err(|why| Failure::failed(format_args!("cannot catch signals: {why}")))?;
    let (notifier, drain) = (Notifier::own(), of.drain_timeout);
    let running = service::start(options(config, state)?).map_err(Failure::failed)?;
    privileges.become_user()?;
    privileges.give_up_system_calls()?;
    let mut text = String::new();
    for address in running.addresses() {
        writeln!(text, "tokens on {address}");
    }
    logging::announce(&text, false)?;
    tracing::info!(event = "start", version = env!("CARGO_PKG_VERSION"), "ready");
    notifier.serves(false);
    let mut role = Serving { running, notifier: &notifier, drain, file };
    runtime.block_on(attend(&mut role, &mut signals, &notifier));
    Ok(())
}

/// A service while it serves.
struct Serving<'a> {
    running: Running,
    notifier: &'a Notifier,
    drain: Duration,
    file: &'a Path,
}

impl Role for Serving<'_> {
    type End = ();
    const LOOK_EVERY: Duration = Duration::from_millis(50);

    fn is_healthy(&self) -> bool {
        self.running.is_healthy()
    }

    async fn wake(&mut self) -> Option<()> {
        pending().await
    }

    fn look(&mut self) -> Option<()> {
        self.running.has_ended().then_some(())
    }

    fn reload(&mut self) {
        Reloads::default().note(&reload(self.file));
    }

    fn upgrade(&mut self) {
        let why = "the next release is started beside a token service";
        tracing::warn!(event = "hand_over_refused", why, "nothing is handed over: {why}");
    }

    fn drain(&mut self) {
        self.notifier.stopping(self.drain);
        tracing::info!(event = "stop", "answering what is under way");
        self.running.end();
    }

    fn stop(&mut self) {}
}

/// Reads the file again, and goes by its level of the log.
fn reload(file: &Path) -> Outcome {
    let config = TokensConfig::load(file).map_err(|why| sentences(&why))?;
    let level = &config.tokens.log_level;
    levels::change(level);
    Ok(vec![format!("tokens.log_level is {level:?}; all else is read when the service starts")])
}

/// What a confined service may read.
fn folders(config: &TokensConfig, file: &Path) -> Vec<PathBuf> {
    let tls = [&config.tokens.certificate, &config.tokens.certificate_key].into_iter().flatten();
    let tls = tls.filter_map(|file| file.parent()).map(Path::to_owned);
    let etcd = config.fleet.tls_files().flat_map(|file| privileges::of_file(file));
    let names = privileges::of_resolver(config.fleet.resolver_files());
    privileges::of_config(file).into_iter().chain(tls).chain(etcd).chain(names).collect()
}

fn options(config: TokensConfig, state: Option<State>) -> Result<Options, Failure> {
    let TokensConfig { fleet, tokens, callers } = config;
    let host = fleet.host_name().map_err(Failure::bad_input)?;
    let name = fleet.name.clone().unwrap_or_else(|| host.clone());
    let etcd = fleet.options();
    let key = fleet.key.ok_or_else(|| Failure::bad_input("fleet.key: found nothing"))?;
    let tls = tokens.certificate.zip(tokens.certificate_key);
    Ok(Options {
        etcd,
        keyspace: fleet.prefix,
        key,
        name,
        host,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        bind: tokens.bind,
        tls: tls.map(|(certificate, key)| tls::Files { certificate, key }),
        threads: tokens.threads,
        rules: Rules {
            expire_default_s: tokens.expire.as_secs(),
            expire_max_s: tokens.max_expire.as_secs(),
            addresses_max: tokens.max_addresses,
            serves_away: tokens.when_away == WhenAway::Serve,
        },
        callers: callers.into_iter().map(caller).collect(),
        memory_bytes: tokens.memory,
        drain: tokens.drain_timeout,
        rotate_every: tokens.rotate_every,
        disk: state.map(|it| Box::new(it) as Box<dyn Disk>),
    })
}

fn caller(caller: Caller) -> tokens::Caller {
    tokens::Caller {
        scopes: caller.scopes,
        name: caller.name,
        secret: Zeroizing::new(caller.secret.as_str().as_bytes().to_vec()),
        groups: caller.groups,
        rate: caller.rate,
        burst: caller.burst,
    }
}
