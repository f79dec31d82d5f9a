//! Where players get their connect tokens: minted here from a listener's key, handed in as files,
//! or asked for at a token service.

pub mod service;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringgate_core::netcode::{self, ConnectToken, ServerAddresses, TokenSpec, UserData};
use ringgate_core::secret::Key;
use ringgate_os::clock::{self, Clock};

use self::service::{Lack, Service};

/// A source of tokens that threads share.
#[derive(Clone, Debug)]
pub enum Tokens {
    /// Makes them.
    Mint(Arc<Mint>),
    /// Takes one after the other from a pile; nobody gets a used one.
    Pile(Arc<Mutex<VecDeque<ConnectToken>>>),
    /// Asks a fleet's token service.
    Service(Arc<Service>),
}

/// What minted tokens say.
#[derive(Debug)]
pub struct Mint {
    /// The listener's key.
    pub key: Key,
    /// The game.
    pub protocol_id: u64,
    /// The servers to dial.
    pub servers: ServerAddresses,
    /// Seconds of silence after which a session ends.
    pub timeout_seconds: i32,
    /// For the game server, or for the gateway's routing.
    pub user_data: UserData,
}

impl Tokens {
    /// Reads tokens: every file of a directory, or one file with tokens one after the other.
    pub fn read(path: &Path) -> Result<Self, String> {
        let fail = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let mut files = vec![path.to_owned()];
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|why| fail(path, &why))?;
            files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
            files.sort();
        }
        let mut pile = VecDeque::new();
        for file in files.iter().filter(|file| file.is_file()) {
            let bytes = std::fs::read(file).map_err(|why| fail(file, &why))?;
            if bytes.is_empty() || !bytes.len().is_multiple_of(TOKEN_BYTES) {
                return Err(fail(file, &"not a whole number of 2048-byte connect tokens"));
            }
            for token in bytes.chunks_exact(TOKEN_BYTES) {
                pile.push_back(ConnectToken::decode(token).map_err(|why| fail(file, &why))?);
            }
        }
        if pile.is_empty() {
            return Err(fail(path, &"no connect token here"));
        }
        Ok(Self::Pile(Arc::new(Mutex::new(pile))))
    }

    /// A token for a player, the first of so many who want one now.
    pub fn take(
        &self,
        client_id: u64,
        now_unix_s: u64,
        waiting: usize,
    ) -> Result<ConnectToken, Lack> {
        match self {
            Self::Mint(mint) => mint.token(client_id, now_unix_s).ok_or(Lack::Never),
            Self::Pile(pile) => {
                let mut pile = pile.lock().unwrap_or_else(PoisonError::into_inner);
                pile.pop_front().ok_or(Lack::Never)
            }
            Self::Service(service) => service.take(now_unix_s, waiting),
        }
    }

    /// The same for somebody who has time: a service that is being asked is waited for, but not for
    /// ever.
    pub fn wait(&self, client_id: u64) -> Result<ConnectToken, String> {
        let clock = Clock::start();
        loop {
            match self.take(client_id, clock::unix_seconds(), 1) {
                Err(Lack::NotYet) if clock.now_ns() < WAIT_NS_MAX => clock::sleep(LOOK_EVERY),
                taken => {
                    let why =
                        || self.refusal().unwrap_or_else(|| "no connect token is left".into());
                    return taken.map_err(|_| why());
                }
            }
        }
    }

    /// Why there was none, where somebody else gives them.
    pub fn refusal(&self) -> Option<String> {
        if let Self::Service(service) = self { service.refusal() } else { None }
    }

    /// Whether players whose session was lost want another token.
    pub fn comes_back(&self) -> bool {
        matches!(self, Self::Service(service) if service.comes_back())
    }

    /// The servers that tokens name, and the game's protocol id.
    pub fn terms(&self) -> Option<(SocketAddr, u64)> {
        match self {
            Self::Mint(mint) => mint.servers.first().map(|first| (*first, mint.protocol_id)),
            Self::Pile(pile) => {
                let pile = pile.lock().unwrap_or_else(PoisonError::into_inner);
                let token = pile.front()?;
                token.addresses.first().map(|first| (*first, token.protocol_id))
            }
            Self::Service(service) => service.terms(),
        }
    }
}

impl Mint {
    /// A token that can be used for ten minutes.
    pub fn token(&self, client_id: u64, now_unix_s: u64) -> Option<ConnectToken> {
        let spec = TokenSpec {
            lifetime_seconds: Some(600),
            timeout_seconds: self.timeout_seconds,
            user_data: self.user_data,
            ..TokenSpec::new(self.protocol_id, client_id, self.servers.clone())
        };
        netcode::mint(&spec, &self.key, now_unix_s).ok()
    }
}

const TOKEN_BYTES: usize = 2048;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// As long as the first token of a service is waited for.
const WAIT_NS_MAX: u64 = 20_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn mint() -> Mint {
        Mint {
            key: Key::from_bytes([1; 32]),
            protocol_id: 7,
            servers: "127.0.0.1:5".parse().expect("literal"),
            timeout_seconds: 5,
            user_data: [0; 256],
        }
    }

    #[test]
    fn files_give_each_token_once() {
        let folder = std::env::temp_dir().join(format!("loadgen-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary folder");
        let token = |id| mint().token(id, 1000).expect("random bytes").to_bytes();
        std::fs::write(folder.join("a"), [token(1), token(2)].concat()).expect("written");
        std::fs::write(folder.join("b"), token(3)).expect("written");
        let tokens = Tokens::read(&folder).expect("three tokens");
        assert_eq!(tokens.terms(), Some(("127.0.0.1:5".parse().expect("literal"), 7)));
        let taken: Vec<_> =
            std::iter::from_fn(|| tokens.take(0, 0, 1).ok()).map(|t| t.nonce).collect();
        assert_eq!(taken.len(), 3);
        assert!(taken[0] != taken[1] && taken[1] != taken[2]);
        std::fs::write(folder.join("b"), [0; 100]).expect("written");
        assert!(Tokens::read(&folder).expect_err("cut").contains("2048"));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
