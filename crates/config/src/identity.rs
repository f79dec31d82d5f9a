//! Who this process is to the other end of a trunk, and whose word it takes: three files in PEM,
//! of which the key may be a credential of the service.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeValue;
use zeroize::Zeroizing;

use super::keys;
use super::section::Section;
use ringgate_os::processor;
use ringgate_trunk::protocol::tls::{self, paper};

/// The contents of the files. Several agents may have one.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(super) ca: Pem,
    pub(super) certificate: Pem,
    pub(super) key: Pem,
}

/// What one of the files holds. The same is what says the same, wherever it was read.
#[derive(Clone)]
pub struct Pem {
    bytes: Arc<Zeroizing<Vec<u8>>>,
    /// Where the file lies; none of a credential, which the service manager guards.
    folder: Option<PathBuf>,
}

impl PartialEq for Pem {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Pem {}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem of {:?}", self.folder)
    }
}

impl Identity {
    /// What agents connect to.
    pub fn gateway(&self) -> Result<tls::Gateway, String> {
        processor::suffices_for_tls()?;
        let made = tls::Gateway::new(ringgate_trunk::socket::provider(), self.files());
        made.map_err(|why| why.to_string())
    }

    /// What connects to gateways.
    pub fn agent(&self) -> Result<tls::Agent, String> {
        processor::suffices_for_tls()?;
        let made = tls::Agent::new(ringgate_trunk::socket::provider(), self.files());
        made.map_err(|why| why.to_string())
    }

    /// Both sides of a cluster's member: what others connect to, and what connects to them.
    pub fn peer(&self) -> Result<tls::Peer, String> {
        processor::suffices_for_tls()?;
        let made = tls::Peer::new(&ringgate_trunk::socket::provider(), self.files());
        made.map_err(|why| why.to_string())
    }

    /// From when until when all of the own certificates are good, and all of the authorities', in
    /// seconds of the Unix epoch.
    pub fn good_s(&self) -> [Option<[i64; 2]>; 2] {
        [&self.certificate, &self.ca].map(|pem| paper::good_s(&pem.bytes))
    }

    /// Whether the own certificate is for this name.
    pub fn is_for(&self, name: &str) -> bool {
        paper::is_for(&self.certificate.bytes, name)
    }

    /// The folders that the files lie in, where those come that take their places.
    pub fn folders(&self) -> Vec<PathBuf> {
        let all = [&self.ca, &self.certificate, &self.key];
        all.into_iter().filter_map(|pem| pem.folder.clone()).collect()
    }

    fn files(&self) -> tls::Identity<'_> {
        let [ca, certificate, key] = [&self.ca, &self.certificate, &self.key].map(|pem| &pem.bytes);
        tls::Identity { authority: ca, certificate, key }
    }
}

ringgate_core::shown_by!(Identity {});

/// A file that others may read.
pub(super) fn open(section: &mut Section<'_, '_>, name: &str) -> Option<Pem> {
    file(section, name, |path| File::open(path).map_err(unreadable))
}

/// A key: a file that is closed to others, or a credential, which the service manager guards.
pub(super) fn closed(section: &mut Section<'_, '_>, name: &str) -> Option<Pem> {
    let Some(credential) = section.peek(name).and_then(credential).map(str::to_owned) else {
        let closed = |path: &Path| keys::open_closed(path).map_err(|why| why.to_string());
        return file(section, name, closed);
    };
    let _ = section.node(name);
    let opened = section.origin.keys.open_credential(&credential).map_err(|why| why.to_string());
    match opened.and_then(|file| contents(file).map_err(unreadable)) {
        Ok(bytes) => Some(Pem { bytes: Arc::new(bytes), folder: None }),
        Err(why) => {
            section.note(name, why);
            None
        }
    }
}

/// The contents of the file that a field names.
fn file(
    section: &mut Section<'_, '_>,
    name: &str,
    open: impl FnOnce(&Path) -> Result<File, String>,
) -> Option<Pem> {
    let path = section.file(name)?;
    match open(&path).and_then(|file| contents(file).map_err(unreadable)) {
        Ok(bytes) => Some(Pem { bytes: Arc::new(bytes), folder: Some(folder(&path)) }),
        Err(why) => {
            section.note(name, format!("{}: {why}", path.display()));
            None
        }
    }
}

/// Who three files make this process, where they were read. `try_out` says why they do not fit
/// together.
pub(super) fn whole<T>(
    section: &mut Section<'_, '_>,
    files: [Option<&Pem>; 3],
    try_out: impl FnOnce(&Identity) -> Result<T, String>,
) -> Option<Identity> {
    let [ca, certificate, key] = files.map(Option::<&Pem>::cloned);
    let identity = Identity { ca: ca?, certificate: certificate?, key: key? };
    if let Err(why) = try_out(&identity) {
        section.note("certificate", why);
    }
    Some(identity)
}

/// The name in `{ credential = "NAME" }`.
fn credential<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    let DeValue::Table(table) = value else { return None };
    let name = table.get("credential").filter(|_| table.len() == 1)?;
    name.get_ref().as_str()
}

fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn contents(mut file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let too_long = || io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"));
    keys::whole(&mut file, FILE_BYTES_MAX)?.ok_or_else(too_long)
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn unreadable(why: io::Error) -> String {
    format!("cannot read it: {why}")
}

/// Longer than any chain of certificates.
const FILE_BYTES_MAX: usize = 1 << 18;
