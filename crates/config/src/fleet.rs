//! `[fleet]`: where etcd is, what this gateway is called there, and what it trusts it with.

use std::fmt;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::Allowed;
use super::backend::id;
use super::declare::{Declared, declare};
use super::keys::{self, KeyError};
use super::mistake::Mistake;
use super::schema::{DIR_BYTES_MAX, FLEET_NAME, IDS, Table, example};
use super::section::Section;
use super::source::{FORMS, Secret};
use super::values::worded;
use ringgate_core::secret::SharedKey;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::servers::{Credentials, Endpoint, Options, TlsFiles};
use ringgate_os::host;

declare! {
    /// The fleet that a gateway is in.
    #[derive(Clone, Debug)]
    pub struct Fleet {
        /// The members of etcd. One at a time is spoken to, another when that one fails.
        endpoints: Vec<Endpoint> = set(
            "addresses", "http://HOST:PORT or https://HOST:PORT", |value| Endpoint::parse(value.as_str()?).ok(),
            ToString::to_string
        ), required, Restart;
        /// Below which everything of this fleet stands.
        prefix: Keyspace =
            text("names between slashes, such as \"/ringgate/eu\"", Keyspace::new), required, Restart;
        /// What this gateway is called in the fleet. Of two with one name the first has it while it
        /// lives. Without it: what the kernel calls the host, so two gateways of one host need
        /// names.
        name: Option<Name> = text(FLEET_NAME, Name::new), optional: "gate-1", Restart;
        /// Where it stands, for who chooses a gateway for players.
        region: Name = text(FLEET_NAME, Name::new), default: "default", Restart;
        /// The host, by which it knows the backends that it can reach. Without it: what the kernel
        /// calls it.
        host: Option<Name> = text(FLEET_NAME, Name::new), optional: "host-1", Restart;
        /// What opens the keys of listeners that stand in etcd, from the same sources as those
        /// (`ringgate keygen` makes one). The same for all gateways and token services of a fleet;
        /// etcd never has it.
        key: Option<FleetKey> = secret(FORMS), optional: { file = "/etc/ringgate/fleet.key" }, Restart;
        /// Who may have signed the certificates of endpoints with https. The system's authorities
        /// are not asked.
        ca: Option<PathBuf> = path(DIR_BYTES_MAX), optional: "/etc/ringgate/etcd-ca.pem", Restart;
        /// Our own certificate, where etcd wants one.
        certificate: Option<PathBuf> =
            path(DIR_BYTES_MAX), optional: "/etc/ringgate/etcd-client.pem", Restart;
        /// Its key, closed to group and others (chmod 600).
        certificate_key: Option<PathBuf> =
            path(DIR_BYTES_MAX), optional: "/etc/ringgate/etcd-client.key", Restart;
        /// A user of etcd's own, who may read and write below prefix.
        user: Option<String> = text("a name of 1 to 256 characters", user), optional: "ringgate", Restart;
        /// Its password: 1 to 256 characters, from the same sources as keys; a file is closed to
        /// group and others (chmod 600).
        password: Option<Password> =
            secret(FORMS), optional: { file = "/etc/ringgate/etcd.password" }, Restart;
        /// How long the registration stays when nobody keeps it alive: when the host dies, players
        /// are sent here for so long.
        lease: Duration = duration("3s", "5m"), default: "10s", Restart;
        /// grace of the fleet's backends.
        grace: Duration = duration("0s", "10m"), default: "5s", Reload;
        /// Users whose processes may connect as the fleet's bundle backends. Without this and
        /// allow_gids: the gateway's own.
        allow_uids: Vec<u32> = list("user ids", IDS, id), optional: [990], Reload;
        /// Groups whose processes may connect as the fleet's bundle backends.
        allow_gids: Vec<u32> = list("group ids", IDS, id), optional: [990], Reload;
        /// Most backends of the fleet that this gateway takes at a time; more are refused and
        /// counted.
        max_backends: usize = integer(1, 4000), default: 1000, Reload;
        /// Most backends that one process may register here itself, and connections for that; more
        /// are refused and counted. A process in another pid namespace, such as a container's,
        /// counts for its user only.
        backends_per_process: usize = integer(1, 4000), default: 32, Reload;
        /// Most backends that the processes of one user may register here themselves. Without this:
        /// max_backends.
        backends_per_user: Option<usize> = integer(1, 4000), optional: 200, Reload;
        /// What becomes of a token that names other gateways as well, or comes to a cluster, while
        /// etcd cannot be asked whether it was used elsewhere. "refuse": its player has to wait.
        /// "accept": it is taken, and may be used once at each. Other tokens are taken in any case.
        when_away: WhenAway = word, default: "refuse", Reload;
    }
}

pub(super) const FLEET: Table = Table {
    examples: &[example!("": endpoints = ["http://127.0.0.1:2379"], prefix = "/ringgate/eu")],
    ..Table::new(
        "fleet",
        "The fleet that this gateway is in, in etcd (docs/FLEET.md). Without it the gateway is alone.",
        &[Fleet::FIELDS],
    )
};

worded! {
    /// What becomes of a token that other gateways may let in as well, while etcd cannot be asked
    /// whether one has.
    pub enum WhenAway {
        /// Its player has to wait.
        Refuse = "refuse",
        /// It is taken as if it had not been used.
        Accept = "accept",
    }
}

impl Fleet {
    /// The host, as the file or the kernel calls it. The error is one sentence.
    pub fn host_name(&self) -> Result<Name, String> {
        self.host.clone().or_else(|| Name::new(host::name())).ok_or_else(|| {
            let name = host::name();
            format!("[fleet]: the kernel calls this host {name:?}, which is no name: give `host` and `name`")
        })
    }

    /// The files that names of hosts are resolved by, where an endpoint has a name.
    pub fn resolver_files(&self) -> &'static [&'static str] {
        let is_name = |endpoint: &Endpoint| endpoint.host.parse::<IpAddr>().is_err();
        if self.endpoints.iter().any(is_name) { RESOLVER_FILES } else { &[] }
    }

    /// The files of TLS.
    pub fn tls_files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.ca, &self.certificate, &self.certificate_key].into_iter().flatten()
    }

    /// Who may connect as a bundle backend of the fleet.
    pub fn allowed(&self) -> Allowed {
        Allowed { uids: self.allow_uids.clone(), gids: self.allow_gids.clone() }
    }

    /// Backends that the processes of one user may register.
    pub fn backends_per_user(&self) -> usize {
        self.backends_per_user.unwrap_or(self.max_backends)
    }

    /// How etcd is reached.
    pub fn options(&self) -> Options {
        let account = self.user.clone().zip(self.password.as_ref());
        let credentials =
            account.map(|(user, password)| Credentials { user, password: Arc::clone(&password.0) });
        let own = self.certificate.clone().zip(self.certificate_key.clone());
        let tls = self.ca.clone().map(|ca| TlsFiles { ca, own });
        Options { credentials, tls, ..Options::new(self.endpoints.clone()) }
    }
}

/// Text of an operator's choice.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<Zeroizing<String>>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Secret for Password {
    const VARIABLE: &str = "one that holds the password";

    fn opened(file: &mut File) -> Result<Self, KeyError> {
        Self::text(&keys::read_short(file, PASSWORD)?)
    }

    fn text(bytes: &[u8]) -> Result<Self, KeyError> {
        let wrong = || KeyError::new("what is none".to_owned(), PASSWORD);
        let text = str::from_utf8(bytes).map_err(|_| wrong())?.trim_end_matches(['\r', '\n']);
        let is_plain = !text.is_empty() && text.len() <= PASSWORD_BYTES_MAX;
        if !is_plain || text.chars().any(char::is_control) {
            return Err(wrong());
        }
        Ok(Self(Arc::new(Zeroizing::new(text.to_owned()))))
    }

    fn hex(text: &str) -> Result<Self, KeyError> {
        Self::text(text.as_bytes())
    }
}

impl Secret for FleetKey {
    const VARIABLE: &str = SharedKey::VARIABLE;

    fn opened(file: &mut File) -> Result<Self, KeyError> {
        SharedKey::opened(file).map(Self::new)
    }

    fn text(bytes: &[u8]) -> Result<Self, KeyError> {
        SharedKey::text(bytes).map(Self::new)
    }

    fn hex(text: &str) -> Result<Self, KeyError> {
        <SharedKey as Secret>::hex(text).map(Self::new)
    }
}

pub(super) fn read(mut section: Section<'_, '_>) -> Option<Fleet> {
    let found = Fleet::find(&mut section);
    judge(section, found)
}

/// For whom may do without the fleet's key: without it, and with why, where it cannot be had.
pub(super) fn read_sparing(mut section: Section<'_, '_>) -> Option<(Fleet, Option<Mistake>)> {
    let mut found = Fleet::find(&mut section);
    let why = section.forgive("key");
    if why.is_some() {
        found.key = Some(None);
    }
    judge(section, found).map(|fleet| (fleet, why))
}

fn judge(mut section: Section<'_, '_>, found: <Fleet as Declared>::Found) -> Option<Fleet> {
    if let (Some(certificate), Some(key)) = (&found.certificate, &found.certificate_key) {
        check_pair(&mut section, certificate.as_ref(), key.as_deref());
        let any_encrypted = |all: &Vec<Endpoint>| all.iter().any(|endpoint| endpoint.tls);
        let is_encrypted = found.endpoints.as_ref().map(any_encrypted);
        let own = certificate.is_some() && key.is_some();
        match (is_encrypted, &found.ca) {
            (Some(true), Some(None)) => {
                let found = "nothing, and an endpoint with https";
                section.expected("ca", found, "a file with who may have signed its certificate");
            }
            (Some(false), Some(Some(_))) => {
                section.expected("ca", NO_TLS, "an endpoint with https");
            }
            (Some(false), Some(None)) if own => {
                section.expected("certificate", NO_TLS, "an endpoint with https");
            }
            (Some(true), Some(Some(ca))) => check_readable(&mut section, "ca", ca),
            _ => {}
        }
    }
    match (&found.user, &found.password) {
        (Some(Some(_)), Some(None)) => {
            section.expected("password", "nothing, and a user", "its password");
        }
        (Some(None), Some(Some(_))) => {
            section.expected("user", "nothing, and a password", "whose it is");
        }
        _ => {}
    }
    if !cfg!(feature = "fleet") {
        section.left_out("fleet");
    }
    section.finish();
    Fleet::whole(found)
}

/// A certificate and its key come together and can be read, and the key's file is closed to others.
pub(super) fn check_pair(
    section: &mut Section<'_, '_>,
    certificate: Option<&PathBuf>,
    key: Option<&Path>,
) {
    match (certificate, key) {
        (None, None) => {}
        (Some(_), None) => {
            section.expected("certificate_key", "nothing, and a certificate", "its key's file");
        }
        (None, Some(_)) => {
            section.expected("certificate", "nothing, and its key", "the certificate");
        }
        (Some(certificate), Some(key)) => {
            check_readable(section, "certificate", certificate);
            if let Err(why) = keys::open_closed(key) {
                section.note("certificate_key", why.to_string());
            }
        }
    }
}

/// Notes a file that cannot be read.
fn check_readable(section: &mut Section<'_, '_>, name: &str, file: &Path) {
    if let Err(why) = fs::read(file) {
        section.note(name, format!("{}: cannot read it: {why}", file.display()));
    }
}

fn user(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= PASSWORD_BYTES_MAX;
    (fits && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// What the C library reads to look a name up.
pub(super) const RESOLVER_FILES: &[&str] =
    &["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
const NO_TLS: &str = "it, and no endpoint that speaks TLS";
const PASSWORD: &str = "a password of 1 to 256 characters";
const PASSWORD_BYTES_MAX: usize = 256;
