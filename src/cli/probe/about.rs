//! What is wrong with a connect token can be said before anybody is asked: its time, and whether it
//! is for the listener.

use std::net::SocketAddr;
use std::path::PathBuf;

use ringgate_core::netcode::{self, ConnectToken, OpenError, PrivateToken};
use ringgate_core::secret::SharedKey;
use ringgate_os::{clock, utc};

/// What a token is held against, as far as it is known.
pub(super) struct Rules<'a> {
    /// Whose rules they are.
    pub(super) whose: &'a str,
    /// None: not known.
    pub(super) keys: &'a [SharedKey],
    pub(super) protocol_id: Option<u64>,
    /// The addresses that tokens have to name one of. None: not known.
    pub(super) named: &'a [SocketAddr],
}

/// What a token says by itself.
pub(super) struct About {
    /// In a line.
    pub(super) text: String,
    /// What is wrong with it.
    pub(super) faults: Vec<String>,
    /// Where the gateway may be asked against whose config it was held.
    pub(super) run_dir: Option<PathBuf>,
}

impl About {
    pub(super) fn of(token: &ConnectToken, rules: &Rules<'_>) -> Self {
        let now_s = clock::unix_seconds();
        let mut faults = Vec::new();
        faults.extend(protocol_fault(token, rules));
        faults.extend(faults_of_time(token, now_s));
        faults.extend(faults_of_inside(token, rules));
        let named = token.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let until = match token.expire_unix_s {
            u64::MAX => "never expires".to_owned(),
            expires if expires <= now_s => format!("expired {} ago", utc::span(now_s - expires)),
            expires => format!("expires in {}", utc::span(expires - now_s)),
        };
        let protocol_id = token.protocol_id;
        let text = format!("for protocol id {protocol_id:#x} and {named}, {until}");
        Self { text, faults, run_dir: None }
    }
}

fn protocol_fault(token: &ConnectToken, rules: &Rules<'_>) -> Option<String> {
    let expected = rules.protocol_id.filter(|expected| *expected != token.protocol_id)?;
    let (found, whose) = (token.protocol_id, rules.whose);
    Some(format!(
        "the token is for protocol id {found:#x}, and {whose} has {expected:#x}: servers drop it without a word"
    ))
}

fn faults_of_time(token: &ConnectToken, now_s: u64) -> Vec<String> {
    let (made, expires) = (token.create_unix_s, token.expire_unix_s);
    if expires <= now_s {
        let (ago, made_ago) = (utc::span(now_s - expires), utc::span(now_s.saturating_sub(made)));
        let lasts = utc::span(expires.saturating_sub(made));
        return vec![
            format!(
                "the token expired {ago} ago by this host's clock: servers drop it without a word"
            ),
            format!(
                "it says that it was made {made_ago} ago, for {lasts}: if it was made just now, the token service's clock is behind"
            ),
        ];
    }
    if made > now_s + SKEW_S {
        let ahead = utc::span(made - now_s);
        return vec![format!(
            "the token was made {ahead} from now by this host's clock: the token service's clock is ahead, or this one behind"
        )];
    }
    Vec::new()
}

/// What is wrong with the sealed part, where there is a key that opens it.
fn faults_of_inside(token: &ConnectToken, rules: &Rules<'_>) -> Option<String> {
    let whose = rules.whose;
    let opened: Vec<_> = rules.keys.iter().map(|key| netcode::open_private(token, key)).collect();
    if opened.is_empty() {
        return None;
    }
    match opened.into_iter().find(|opened| *opened != Err(OpenError::WrongKey)) {
        None => Some(format!(
            "the token was made under another key than {whose}, or was changed: servers drop it without a word"
        )),
        Some(Err(why)) => Some(why.to_string()),
        Some(Ok(private)) => address_fault(&private, rules),
    }
}

fn address_fault(private: &PrivateToken, rules: &Rules<'_>) -> Option<String> {
    // A port that the kernel chooses is in no config.
    let is_known = !rules.named.is_empty() && rules.named.iter().all(|it| it.port() != 0);
    if !is_known || private.addresses.iter().any(|it| rules.named.contains(it)) {
        return None;
    }
    let list = |all: &mut dyn Iterator<Item = &SocketAddr>| {
        all.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let (names, ours) = (list(&mut private.addresses.iter()), list(&mut rules.named.iter()));
    let whose = rules.whose;
    Some(format!(
        "the token names {names} to servers, and {whose} is {ours} (`public`): servers drop it without a word"
    ))
}

/// Clocks that differ by less do no harm.
const SKEW_S: u64 = 5;
