//! `[fleet]`: where etcd is, what this gateway is called there, and what it trusts it with.

use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::keys::{self, KeyError, KeySources};
use super::mistake::Place;
use super::section::{Noted, Section};
use super::source::{self, Secret};
use super::values::Word;
use super::{Allowed, backend};
use ringgate_core::secret::SharedKey;
use ringgate_fleet::etcd::{Credentials, Endpoint, Options, TlsFiles};
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::seal::FleetKey;

/// The fleet that a gateway is in.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The members of etcd. Invariant: at least one, each once.
    pub endpoints: Vec<Endpoint>,
    /// Below which everything of this fleet stands.
    pub keyspace: Keyspace,
    /// What this process is called there, where that is not what the kernel calls its host.
    pub name: Option<Name>,
    /// Where it stands, as the operator calls it.
    pub region: Name,
    /// The host, where that is not what the kernel calls it.
    pub host: Option<Name>,
    /// What opens the keys of listeners.
    pub key: Option<FleetKey>,
    /// For endpoints with TLS. Invariant: there where one of them has it.
    pub tls: Option<TlsFiles>,
    /// A user of etcd's own.
    pub credentials: Option<Account>,
    /// How long the registration lives without this gateway.
    pub lease: Duration,
    /// How long a backend of the fleet may be gone before its players are disconnected.
    pub grace: Duration,
    /// Who may connect as a bundle backend of the fleet.
    pub allowed: Allowed,
    /// Backends of the fleet that this gateway takes.
    pub max_backends: usize,
    /// Backends that one process may register.
    pub backends_per_process: usize,
    /// Backends that the processes of one user may register.
    pub backends_per_user: usize,
    /// What becomes of tokens that nobody can claim.
    pub when_away: WhenAway,
}

/// A user of etcd's own, and what proves that it is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub user: String,
    password: Password,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({})", self.user)
    }
}

/// What becomes of a token that names other gateways as well, while etcd cannot be asked whether it
/// was used there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenAway {
    /// Its player has to wait.
    Refuse,
    /// It is taken as if it had not been used.
    Accept,
}

impl Word for WhenAway {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Self::Refuse), ("accept", Self::Accept)];
}

impl Fleet {
    /// The files that names of hosts are resolved by, where an endpoint has a name.
    pub fn resolver_files(&self) -> &'static [&'static str] {
        let is_name = |endpoint: &Endpoint| endpoint.host.parse::<IpAddr>().is_err();
        if self.endpoints.iter().any(is_name) { RESOLVER_FILES } else { &[] }
    }

    /// The folders that the files of TLS lie in.
    pub fn folders(&self) -> Vec<PathBuf> {
        let own = self.tls.iter().flat_map(|it| &it.own).flat_map(|(one, key)| [one, key]);
        let all = self.tls.iter().map(|it| &it.ca).chain(own);
        all.filter_map(|file| file.parent()).map(Path::to_owned).collect()
    }

    /// How etcd is reached.
    pub fn options(&self) -> Options {
        let credentials = self.credentials.as_ref().map(|account| Credentials {
            user: account.user.clone(),
            password: Arc::clone(&account.password.0),
        });
        let tls = self.tls.clone();
        Options { credentials, tls, ..Options::new(self.endpoints.clone()) }
    }
}

/// Text of an operator's choice.
#[derive(Clone, PartialEq, Eq)]
struct Password(Arc<Zeroizing<String>>);

impl Password {
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
}

impl Secret for Password {
    fn of_file(path: &Path) -> Result<Self, KeyError> {
        Self::opened(&mut keys::open_closed(path)?)
    }

    fn of_environment(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        Self::text(&sources.variable(name, "one that holds the password")?)
    }

    fn of_hex(text: &str) -> Result<Self, KeyError> {
        Self::text(text.as_bytes())
    }

    fn of_credential(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        Self::opened(&mut sources.open_credential(name)?)
    }
}

/// Secrets come from where `keys` says; relative paths start at `base`.
pub(super) fn read(
    mut section: Section<'_, '_>,
    sources: &KeySources<'_>,
    base: &Path,
) -> Option<Fleet> {
    let endpoints = read_endpoints(&mut section);
    let keyspace = section.text("prefix", Keyspace::new);
    let name = section.text_or("name", None, |text| Name::new(text).map(Some));
    let region = section.text("region", Name::new);
    let host = section.text_or("host", None, |text| Name::new(text).map(Some));
    let key = match section.node("key") {
        Some(node) => {
            let key = source::read::<SharedKey>(node, sources, base, section.report);
            key.map(|key| Some(FleetKey::new(key)))
        }
        None => Some(None),
    };
    let tls = read_tls(&mut section, endpoints.as_deref(), base);
    let credentials = read_account(&mut section, sources, base);
    let lease = section.duration("lease");
    let grace = section.duration("grace");
    let allowed = backend::read_allowed(&mut section);
    let max_backends = section.integer("max_backends");
    let backends_per_process = section.integer("backends_per_process");
    let backends_per_user =
        section.integer_or("backends_per_user", max_backends.unwrap_or_default());
    let when_away = section.choice("when_away");
    section.finish();
    Some(Fleet {
        endpoints: endpoints?,
        keyspace: keyspace?.0,
        name: name?,
        region: region?.0,
        host: host?,
        key: key?,
        tls: tls.ok()?,
        credentials: credentials.ok()?,
        lease: lease?,
        grace: grace?,
        allowed: allowed?,
        max_backends: usize::try_from(max_backends?).ok()?,
        backends_per_process: usize::try_from(backends_per_process?).ok()?,
        backends_per_user: usize::try_from(backends_per_user?).ok()?,
        when_away: when_away?.0,
    })
}

fn read_endpoints(section: &mut Section<'_, '_>) -> Option<Vec<Endpoint>> {
    let list = section.list("endpoints", |value| Endpoint::parse(value.as_str()?).ok())?;
    let mut seen = super::distinct::Distinct::default();
    for (endpoint, place) in &list {
        seen.check(section.report, place, endpoint.to_string());
    }
    Some(list.into_iter().map(|(endpoint, _)| endpoint).collect())
}

/// The files of TLS, where an endpoint speaks it.
fn read_tls(
    section: &mut Section<'_, '_>,
    endpoints: Option<&[Endpoint]>,
    base: &Path,
) -> Result<Option<TlsFiles>, Noted> {
    let places = ["ca", "certificate", "certificate_key"].map(|field| section.place(field));
    let mut file = |name| section.text_or(name, None, |text| path(text, base).map(Some));
    let (ca, certificate, key) = (file("ca"), file("certificate"), file("certificate_key"));
    let (ca, certificate, key) = (ca.ok_or(Noted)?, certificate.ok_or(Noted)?, key.ok_or(Noted)?);
    let [of_ca, of_certificate, of_key] = places;
    let own = match (certificate, key) {
        (None, None) => None,
        (Some(_), None) => {
            return missing(section, &of_key, "nothing, and a certificate", "its key's file");
        }
        (None, Some(_)) => {
            return missing(section, &of_certificate, "nothing, and its key", "the certificate");
        }
        (Some(certificate), Some(key)) => {
            if let Err(why) = keys::open_closed(&key) {
                section.report.note(&of_key, why.to_string());
                return Err(Noted);
            }
            Some((certificate, key))
        }
    };
    let is_encrypted = endpoints.ok_or(Noted)?.iter().any(|endpoint| endpoint.tls);
    match (is_encrypted, ca, own) {
        (true, None, _) => {
            let found = "nothing, and an endpoint with https";
            missing(section, &of_ca, found, "a file with who may have signed its certificate")
        }
        (true, Some(ca), own) => Ok(Some(TlsFiles { ca, own })),
        (false, None, None) => Ok(None),
        (false, Some(_), _) => missing(section, &of_ca, NO_TLS, "an endpoint with https"),
        (false, None, Some(_)) => {
            missing(section, &of_certificate, NO_TLS, "an endpoint with https")
        }
    }
}

fn missing<T>(
    section: &mut Section<'_, '_>,
    place: &Place,
    found: &str,
    expected: &str,
) -> Result<T, Noted> {
    section.report.expected(place, found, expected);
    Err(Noted)
}

fn read_account(
    section: &mut Section<'_, '_>,
    sources: &KeySources<'_>,
    base: &Path,
) -> Result<Option<Account>, Noted> {
    let places = ["user", "password"].map(|field| section.place(field));
    let user = section.text_or("user", None, |text| user(text).map(Some));
    let password = match section.node("password") {
        Some(node) => source::read(node, sources, base, section.report).map(Some),
        None => Some(None),
    };
    let [of_user, of_password] = places;
    match (user.ok_or(Noted)?, password.ok_or(Noted)?) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Account { user, password })),
        (Some(_), None) => missing(section, &of_password, "nothing, and a user", "its password"),
        (None, Some(_)) => missing(section, &of_user, "nothing, and a password", "whose it is"),
    }
}

fn user(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= PASSWORD_BYTES_MAX;
    (fits && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| base.join(text))
}

/// What the C library reads to look a name up.
pub(super) const RESOLVER_FILES: &[&str] =
    &["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
const NO_TLS: &str = "it, and no endpoint that speaks TLS";
const PASSWORD: &str = "a password of 1 to 256 characters";
const PASSWORD_BYTES_MAX: usize = 256;
