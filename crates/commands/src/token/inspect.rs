//! `ringgate token inspect`: every field of a connect token in words. Session keys are in every
//! token, and are never shown.
//!
//! What the token says goes to stdout in any case. An expired token, or one that the key does not
//! open, is then reported like any other wrong input.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::super::Failure;
use super::super::exit::print;
use super::{key, timeout};
use ringgate_core::netcode::{self, ConnectToken, PrivateToken, ServerAddresses, TokenError};
use ringgate_core::proto::netcode::token::CONNECT_TOKEN_BYTES;
use ringgate_os::{clock, utc};
use ringgate_report::text::Append as _;

/// Explain a connect token
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The token, 2048 bytes
    file: PathBuf,
    /// The listener's key, to read the private part too: the path of a key file (64 hex digits or
    /// 32 raw bytes, mode 600), or the 64 digits themselves, which other users of this host can
    /// then see
    #[arg(long, value_name = "K")]
    key: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.file.display();
    let key = args.key.as_deref().map(key).transpose()?;
    let token = read(&args.file)?;
    let now_unix_s = clock::unix_seconds();
    let private = key.map(|key| netcode::open_private(&token, &key)).transpose();

    let mut text = String::new();
    public_part(&mut text, &token, now_unix_s);
    match &private {
        Ok(Some(private)) => private_part(&mut text, private, &token),
        Ok(None) => line(&mut text, "private part", "sealed (--key K opens it)"),
        Err(error) => line(&mut text, "private part", format_args!("not readable: {error}")),
    }
    print(&text)?;

    private.map_err(|error| Failure::bad_input(format_args!("{file}: {error}")))?;
    if token.expire_unix_s <= now_unix_s {
        let ago = utc::span(now_unix_s - token.expire_unix_s);
        return Err(Failure::bad_input(format_args!("{file}: the token expired {ago} ago")));
    }
    Ok(())
}

/// A token's file.
pub fn read(path: &Path) -> Result<ConnectToken, Failure> {
    let bad =
        |error: &dyn fmt::Display| Failure::bad_input(format_args!("{}: {error}", path.display()));
    let mut bytes = Zeroizing::new([0; CONNECT_TOKEN_BYTES]);
    let mut file = File::open(path).map_err(|cause| bad(&cause))?;
    // A short or a long file is a wrong file, not one that cannot be read.
    let short = |cause: std::io::Error| match cause.kind() {
        std::io::ErrorKind::UnexpectedEof => bad(&TokenError::Length),
        _ => bad(&cause),
    };
    file.read_exact(bytes.as_mut_slice()).map_err(short)?;
    if file.read(&mut [0]).map_err(|cause| bad(&cause))? > 0 {
        return Err(bad(&TokenError::Length));
    }
    ConnectToken::decode(bytes.as_slice()).map_err(|error| bad(&error))
}

fn public_part(text: &mut String, token: &ConnectToken, now_unix_s: u64) {
    line(text, "version", "netcode 1.02");
    line(text, "protocol id", format_args!("{0:#018x} ({0})", token.protocol_id));
    line(text, "created", When { unix_s: token.create_unix_s, now_unix_s });
    if token.expire_unix_s == u64::MAX {
        line(text, "expires", "never");
    } else {
        line(text, "expires", When { unix_s: token.expire_unix_s, now_unix_s });
    }
    line(text, "timeout", timeout(token.timeout_seconds));
    servers(text, "servers", &token.addresses);
    line(text, "nonce", Hex(&token.nonce));
    line(text, "session keys", "two, not shown");
}

fn private_part(text: &mut String, private: &PrivateToken, token: &ConnectToken) {
    line(text, "private part", "opens under this key");
    line(text, "  client id", private.client_id);
    line(text, "  timeout", timeout(private.timeout_seconds));
    servers(text, "  servers", &private.addresses);
    let same_keys = private.client_to_server == token.client_to_server
        && private.server_to_client == token.server_to_client;
    line(
        text,
        "  session keys",
        if same_keys { "those of the public part" } else { "NOT those of the public part" },
    );
    line(text, "  user data", UserDataText(&private.user_data));
}

/// One server a line, the first beside the label.
fn servers(text: &mut String, label: &str, addresses: &ServerAddresses) {
    for (index, address) in addresses.iter().enumerate() {
        line(text, if index == 0 { label } else { "" }, address);
    }
}

fn line(text: &mut String, label: &str, value: impl fmt::Display) {
    writeln!(text, "{label:<14}  {value}");
}

/// A time, and how far away it is.
struct When {
    unix_s: u64,
    now_unix_s: u64,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = utc::date(self.unix_s);
        match self.unix_s.checked_sub(self.now_unix_s) {
            Some(0) => write!(f, "{date} (now)"),
            Some(ahead) => write!(f, "{date} (in {})", utc::span(ahead)),
            None => write!(f, "{date} ({} ago)", utc::span(self.now_unix_s - self.unix_s)),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// User data as text with escapes, without the zeros that pad it.
struct UserDataText<'a>(&'a [u8]);

impl fmt::Display for UserDataText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match (used, self.0.len() - used) {
            (0, _) => f.write_str("none"),
            (_, 0) => write!(f, "\"{}\"", self.0.escape_ascii()),
            (_, zeros) => write!(f, "\"{}\" and {zeros} zero bytes", self.0[..used].escape_ascii()),
        }
    }
}
