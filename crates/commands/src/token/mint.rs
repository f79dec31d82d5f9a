//! `ringgate token mint`.

use std::net::SocketAddr;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::super::Failure;
use super::super::exit::print;
use super::super::files::{Existing, write_private};
use super::{key, timeout};
use ringgate_config::values;
use ringgate_core::netcode::{self, ServerAddresses, TokenSpec, USER_DATA_BYTES, UserData};
use ringgate_core::proto::netcode::address;
use ringgate_os::{clock, utc};

/// Make a connect token for one player
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The listener's key: the path of a key file (64 hex digits or 32 raw bytes, mode 600), or the
    /// 64 digits themselves, which other users of this host can then see
    #[arg(long, value_name = "K")]
    key: String,
    /// The listener's protocol id, decimal or 0x…
    #[arg(long, value_name = "N", value_parser = number)]
    protocol_id: u64,
    /// Who the player is, decimal or 0x…
    #[arg(long, value_name = "N", value_parser = number)]
    client_id: u64,
    /// The IP:port pairs to try, up to 32 (IPv6 in brackets); what the listener calls public, or
    /// else bind
    #[arg(long, value_name = "A[,A…]", value_parser = servers)]
    server: ServerAddresses,
    /// Up to 256 bytes for the game server; with route = "user-data", the backend's name
    #[arg(long, value_name = "S", default_value = "", value_parser = user_data)]
    user_data: UserData,
    /// For how long the token can be used, such as 5m; a number alone is seconds, a negative one
    /// without end
    #[arg(
        long,
        value_name = "TIME",
        default_value = "300s",
        value_parser = lifetime,
        allow_negative_numbers = true
    )]
    expire: Lifetime,
    /// After how long without a packet either side gives up, such as 15s; a number alone is
    /// seconds, a negative one never
    #[arg(
        long,
        value_name = "TIME",
        default_value = "15s",
        value_parser = timeout_seconds,
        allow_negative_numbers = true
    )]
    timeout: i32,
    /// The file to write, readable by its owner only, because a token holds the session's keys
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Seconds; `None` is without end.
#[derive(Clone, Copy, Debug)]
struct Lifetime(Option<u64>);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let key = key(&args.key)?;
    let spec = TokenSpec {
        lifetime_seconds: args.expire.0,
        timeout_seconds: args.timeout,
        user_data: args.user_data,
        ..TokenSpec::new(args.protocol_id, args.client_id, args.server.clone())
    };
    let token =
        netcode::mint(&spec, &key, clock::unix_seconds()).map_err(Failure::no_random_numbers)?;
    let bytes = Zeroizing::new(token.to_bytes());
    write_private(&args.out, bytes.as_slice(), Existing::Replace)?;
    print(&format!(
        "{}: client {} may connect to {} {}, timeout {}\n",
        args.out.display(),
        args.client_id,
        args.server,
        match args.expire.0 {
            Some(seconds) => format!("until {} (for {seconds} s)", utc::date(token.expire_unix_s)),
            None => "at any time".to_owned(),
        },
        timeout(args.timeout)
    ))
}

fn number(text: &str) -> Result<u64, String> {
    values::number(text).ok_or_else(|| format!("found {text:?}, expected a number of 64 bits"))
}

fn servers(text: &str) -> Result<ServerAddresses, String> {
    let list: Vec<_> = text.split(',').map(server).collect::<Result<_, _>>()?;
    ServerAddresses::new(&list)
        .map_err(|error| format!("found {} addresses, but {error}", list.len()))
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let server = address::parse(text).map_err(|error| format!("found {text:?}, but {error}"))?;
    if server.ip().is_unspecified() {
        return Err(format!("found {text:?}, but nobody can connect to a wildcard"));
    }
    Ok(server)
}

fn user_data(text: &str) -> Result<UserData, String> {
    netcode::user_data(text.as_bytes())
        .ok_or_else(|| format!("found {} bytes, expected at most {USER_DATA_BYTES}", text.len()))
}

/// Whole seconds, with a unit or without.
fn seconds(text: &str) -> Option<i64> {
    let span = values::duration(text).filter(|span| span.subsec_nanos() == 0);
    span.map_or_else(|| text.parse().ok(), |span| i64::try_from(span.as_secs()).ok())
}

fn lifetime(text: &str) -> Result<Lifetime, String> {
    match seconds(text) {
        Some(0) => Err("found 0, but a token that expires at once is of no use".to_owned()),
        Some(seconds) => Ok(Lifetime(u64::try_from(seconds).ok())),
        None => Err(format!("found {text:?}, expected a time such as 30s or 5m")),
    }
}

fn timeout_seconds(text: &str) -> Result<i32, String> {
    match seconds(text).map(i32::try_from) {
        Some(Ok(0)) => {
            Err("found 0, but servers give up at once then (negative: never)".to_owned())
        }
        Some(Ok(seconds)) => Ok(seconds),
        _ => Err(format!("found {text:?}, expected a time such as 5s or 1m")),
    }
}
