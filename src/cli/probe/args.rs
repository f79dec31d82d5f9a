//! How a player for a moment is asked for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::unreal;
use crate::config::values;

/// Be a player for a moment, and say at which step it fails and why
///
/// At what a gateway's config file says, or with a token from the token service, or with one made
/// on the spot under the listener's key, or without any for other protocols. Exits with 0 if it was
/// let in (plain, or with --payload: answered), 1 if not.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The gateway's config file: protocol, address, key and protocol id are taken from there, and
    /// what is wrong with --token by these is said
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "plain", "unreal"])]
    pub(super) config: Option<PathBuf>,
    /// With --config: the listener's name, where there are several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(super) listener: Option<String>,
    /// The player's connect token, as `ringgate token mint` or the token service made it: a probe
    /// uses it up
    #[arg(long, value_name = "FILE")]
    pub(super) token: Option<PathBuf>,
    /// Make a token under this key of the listener's: a key file, or 64 hex digits. With --token:
    /// see whether the token was made under it
    #[arg(long, value_name = "K")]
    pub(super) key: Option<String>,
    /// For a token made here: the listener's protocol id, decimal or 0x…
    #[arg(long, value_name = "N", value_parser = number, requires = "key", conflicts_with = "token")]
    pub(super) protocol_id: Option<u64>,
    /// For a token made here: who the player is, decimal or 0x… [default: a random number]
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "token")]
    pub(super) client_id: Option<u64>,
    /// For a token made here: with route = "user-data", the backend's name
    #[arg(long, value_name = "S", default_value = "", conflicts_with = "token")]
    pub(super) user_data: String,
    /// Where players connect [default: the first server that the token names]
    #[arg(long, value_name = "ADDR", value_parser = server)]
    pub(super) server: Option<SocketAddr>,
    /// A plain listener: send something, and wait for an answer of the game
    #[arg(long, requires = "server", conflicts_with_all = ["token", "key", "unreal", "protocol_id", "client_id"])]
    pub(super) plain: bool,
    /// What is sent to the game as text, and its answer awaited; netcode: once let in, and only if
    /// it is given [default with --plain: ringgate probe]
    #[arg(long, value_name = "TEXT", value_parser = text, conflicts_with = "unreal")]
    pub(super) payload: Option<Payload>,
    /// The same as hex digits
    #[arg(long, value_name = "HEX", value_parser = hex, conflicts_with_all = ["payload", "unreal"])]
    pub(super) payload_hex: Option<Payload>,
    /// An Unreal listener: the handshake, up to the server's acknowledgement
    #[arg(long, requires = "server", conflicts_with_all = ["token", "key", "protocol_id", "client_id"])]
    pub(super) unreal: bool,
    #[command(flatten)]
    pub(super) engine: unreal::Engine,
    /// How long each step may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    pub(super) timeout: Duration,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Payload(Vec<u8>);

impl Args {
    /// What is sent to the game, if anything was said.
    pub(super) fn payload(&self) -> Option<&[u8]> {
        let said = self.payload.as_ref().or(self.payload_hex.as_ref());
        said.map(|payload| payload.0.as_slice())
    }

    /// The same for a game that says nothing by itself.
    pub(super) fn plain_payload(&self) -> &[u8] {
        self.payload().unwrap_or(b"ringgate probe")
    }
}

fn number(text: &str) -> Result<u64, String> {
    values::number(text).ok_or_else(|| format!("found {text:?}, expected a number of 64 bits"))
}

fn server(text: &str) -> Result<SocketAddr, String> {
    values::reachable_address(text)
        .ok_or_else(|| format!("found {text:?}, expected an IP:port such as 203.0.113.9:40000"))
}

fn text(text: &str) -> Result<Payload, String> {
    let is_sendable = (1..=PAYLOAD_MAX).contains(&text.len());
    let payload = is_sendable.then(|| Payload(text.as_bytes().to_vec()));
    payload.ok_or_else(|| format!("expected 1 to {PAYLOAD_MAX} bytes"))
}

fn hex(text: &str) -> Result<Payload, String> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let bytes = bytes.filter(|bytes| (1..=PAYLOAD_MAX).contains(&bytes.len()));
    bytes.map(Payload).ok_or_else(|| format!("expected 2 to {} hex digits", 2 * PAYLOAD_MAX))
}

fn patience(text: &str) -> Result<Duration, String> {
    values::time_within(text, TIMEOUT_MIN..=TIMEOUT_MAX, "a time such as 5s, from 100ms to 1m")
}

const PAYLOAD_MAX: usize = 1200;

const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
