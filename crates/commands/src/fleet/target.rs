//! Which fleet is meant, and asking its etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ringgate_core::secret::Key;
use ringgate_fleet::etcd::kv::KeyValue;
use ringgate_fleet::etcd::{Client, Credentials, Endpoint, Error, Options, TlsFiles};
use ringgate_fleet::keyspace::Keyspace;
use ringgate_fleet::seal::FleetKey;
use ringgate_os::clock;
use zeroize::Zeroizing;

use super::super::{Failure, config_file};
use ringgate_config::keys::{self, KeySources};
use ringgate_config::{self as config, Token};

/// Which fleet
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// A file with [fleet], of which the rest is not read [default: this host's config file, unless
    /// --fleet says which]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["endpoint", "fleet"])]
    config: Option<PathBuf>,
    /// A member of etcd, such as `http://127.0.0.1:2379`; may be given more than once
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse, requires = "fleet")]
    endpoint: Vec<Endpoint>,
    /// Below which the fleet stands, such as /ringgate/eu
    #[arg(long, value_name = "PREFIX", value_parser = prefix, requires = "endpoint")]
    fleet: Option<Keyspace>,
    /// The fleet's key, for commands that make keys or ask gateways (mode 600)
    #[arg(long, alias = "key", value_name = "FILE", requires = "endpoint")]
    fleet_key: Option<PathBuf>,
    /// Who may have signed the certificates of endpoints with https
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    ca: Option<PathBuf>,
    /// Our own certificate, where etcd wants one
    #[arg(long, value_name = "FILE", requires_all = ["certificate_key", "ca"])]
    certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    certificate_key: Option<PathBuf>,
    /// A user of etcd's own
    #[arg(long, value_name = "NAME", requires = "password")]
    user: Option<String>,
    /// The file with the user's password (mode 600)
    #[arg(long, value_name = "FILE", requires = "user")]
    password: Option<PathBuf>,
}

fn prefix(text: &str) -> Result<Keyspace, String> {
    Keyspace::new(text).ok_or_else(|| {
        format!("found {text:?}, expected names between slashes such as /ringgate/eu")
    })
}

/// A fleet that can be asked.
pub(super) struct Fleet {
    pub(super) keyspace: Keyspace,
    pub(super) options: Options,
    /// The error is why what the file names cannot be had: most commands do without.
    key: Result<Option<FleetKey>, String>,
}

impl Target {
    /// The fleet that the arguments mean.
    pub(super) fn find(&self) -> Result<Fleet, Failure> {
        let Some(keyspace) = self.fleet.clone() else {
            let file = self.config.clone().or_else(config_file::of_host).ok_or_else(|| {
                Failure::bad_input(
                    "expected --config FILE with [fleet], or --endpoint URL and --fleet PREFIX",
                )
            })?;
            return Fleet::of(&file);
        };
        let mut options = Options::new(self.endpoint.clone());
        options.tls = self.ca.clone().map(|ca| {
            let own = self.certificate.clone().zip(self.certificate_key.clone());
            TlsFiles { ca, own }
        });
        options.credentials = self.credentials()?;
        let key = self.fleet_key.as_deref().map(keys::file).transpose();
        let key = key.map_err(|why| Failure::bad_input(format_args!("--fleet-key: {why}")))?;
        Ok(Fleet { keyspace, options, key: Ok(key.map(FleetKey::new)) })
    }

    fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let (Some(user), Some(file)) = (&self.user, &self.password) else { return Ok(None) };
        let password = Token::file(file)
            .map_err(|why| Failure::bad_input(format_args!("--password: {why}")))?;
        let password = Arc::new(Zeroizing::new(password.as_str().to_owned()));
        Ok(Some(Credentials { user: user.clone(), password }))
    }
}

impl Fleet {
    /// The fleet that a file means.
    pub(super) fn of(file: &Path) -> Result<Self, Failure> {
        let found = config::fleet(file, &KeySources::of_process())?;
        let at = file.display();
        let (fleet, no_key) = found
            .ok_or_else(|| Failure::bad_input(format_args!("{at}: expected a table [fleet]")))?;
        let (options, keyspace) = (fleet.options(), fleet.prefix);
        let no_key = no_key.map(|why| format!("{at}:{}: {why}", why.line));
        Ok(Self { keyspace, options, key: no_key.map_or(Ok(fleet.key), Err) })
    }

    /// A value as the fleet's word, which also those obey who doubt what etcd says; as it is where
    /// the fleet's key is not at hand. It is newer than `latest`: somebody's clock may be ahead.
    pub(super) fn vouch(&self, key: &[u8], value: &Bytes, latest: u64) -> Result<Bytes, Failure> {
        let Some(fleet_key) = self.named_key()? else { return Ok(value.clone()) };
        let counter = (clock::unix_ns() / NS_PER_MS).max(latest.saturating_add(1));
        fleet_key.vouch(key, value, counter).map_err(Failure::no_random_numbers)
    }

    /// The newest of the fleet's words among these; 0 where the fleet's key is not at hand.
    pub(super) fn latest(&self, kvs: &[KeyValue]) -> Result<u64, Failure> {
        let Some(fleet_key) = self.named_key()? else { return Ok(0) };
        let said = kvs.iter().filter_map(|kv| fleet_key.vouched(&kv.key, &kv.value));
        Ok(said.max().unwrap_or(0))
    }

    /// Asks etcd.
    pub(super) fn ask<T>(
        &self,
        asking: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let client = self.client()?;
        runtime()?.block_on(asking(&client)).map_err(|why| match why {
            Failure::Failed(said) if said.starts_with(ETCD) => {
                let (at, rest) = (self.endpoints(), &said[ETCD.len()..]);
                Failure::failed(format_args!("etcd at {at}: {rest}"))
            }
            why => why,
        })
    }

    fn endpoints(&self) -> String {
        let all = self.options.endpoints.iter().map(ToString::to_string);
        all.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn client(&self) -> Result<Client, Failure> {
        Client::new(self.options.clone()).map_err(Failure::bad_input)
    }

    /// What seals the keys of listeners, and questions to gateways.
    pub(super) fn key(&self) -> Result<&FleetKey, Failure> {
        self.named_key()?.ok_or_else(|| {
            Failure::bad_input(
                "this is sealed with the fleet's key: [fleet] key in the config, or --fleet-key FILE \
                 (`ringgate keygen --out FILE` makes one)",
            )
        })
    }

    /// The key that the arguments or the file name.
    fn named_key(&self) -> Result<Option<&FleetKey>, Failure> {
        self.key.as_ref().map(Option::as_ref).map_err(Failure::bad_input)
    }

    /// A key of the operating system's generator.
    pub(super) fn new_key() -> Result<Key, Failure> {
        Key::generate().map_err(Failure::no_random_numbers)
    }
}

/// What asks.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|why| Failure::failed(format_args!("cannot wait for answers: {why}")))
}

/// etcd has not done it.
pub(super) fn away(why: &Error) -> Failure {
    Failure::failed(format_args!("{ETCD}{why}"))
}

const ETCD: &str = "etcd: ";

const NS_PER_MS: u64 = 1_000_000;
