//! A probe of a listener by its gateway's own config: nothing has to be repeated on the command
//! line, and nothing of it can be wrong there.

use std::net::SocketAddr;
use std::path::Path;

use super::super::Failure;
use super::about::Rules;
use super::args::Args;
use super::report::Report;
use super::{netcode, plain, unreal};
use crate::config::{Config, Listener, Protocol, Unreal};
use crate::control::plan;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::Base;

pub(super) fn probe(args: &Args, file: &Path) -> Result<Report, Failure> {
    let config = Config::load(file)?;
    let run_dir = Some(config.gateway.run_dir.as_path());
    let listener = chosen(&config, args.listener.as_deref())?;
    match &listener.protocol {
        Protocol::Netcode(rules) => {
            let named = if listener.public.is_empty() { &listener.bind } else { &listener.public };
            if args.token.is_none() {
                reachable(args, listener, named)?;
            }
            let whose = format!("listener {}", listener.name);
            let protocol_id = Some(rules.protocol_id);
            let rules = Rules { whose: &whose, keys: &rules.keys, protocol_id, named };
            netcode::probe_configured(args, &rules, &config.gateway.run_dir)
        }
        _ if args.token.is_some() => Err(Failure::bad_input(format_args!(
            "listener {} takes no connect tokens",
            listener.name
        ))),
        Protocol::Unreal(rules) => {
            let server = reachable(args, listener, &listener.bind)?;
            unreal::probe(server, &profile(rules, args), args.timeout, run_dir)
        }
        Protocol::Plain(_) => {
            let server = reachable(args, listener, &listener.bind)?;
            plain::probe(server, args.plain_payload(), args.timeout, run_dir)
        }
    }
}

/// The listener of this name, or the only one.
fn chosen<'c>(config: &'c Config, name: Option<&str>) -> Result<&'c Listener, Failure> {
    let names: Vec<_> = config.listeners.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    match (name, &config.listeners[..]) {
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::bad_input(format_args!("--listener: expected one of {names}"))),
        (Some(name), all) => all.iter().find(|it| it.name == name).ok_or_else(|| {
            Failure::bad_input(format_args!("--listener: found {name:?}, expected one of {names}"))
        }),
    }
}

/// Where players connect.
fn reachable(
    args: &Args,
    listener: &Listener,
    named: &[SocketAddr],
) -> Result<SocketAddr, Failure> {
    let is_one = |address: &&SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
    let found = args.server.or_else(|| named.iter().find(is_one).copied());
    let bind = listener.bind.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| {
        Failure::bad_input(format_args!(
            "the config says {bind}, where nobody can connect: --server says where players do"
        ))
    })
}

/// What an engine says that the listener serves.
fn profile(rules: &Unreal, args: &Args) -> Profile {
    let served = plan::unreal(rules);
    let network_version = served.network_versions.and_then(|builds| builds.first().copied());
    let engine = args.engine.profile().base;
    let base = Base {
        version_min: *served.versions.start(),
        version: *served.versions.end(),
        network_version: network_version.unwrap_or(engine.network_version),
        ..engine
    };
    Profile { framing: served.framing, client_id: 0, base }
}
