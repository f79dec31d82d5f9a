//! Who this process is to the other end of a trunk, and whose word it takes: three files in PEM,
//! of which the key may be a credential of the service.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeValue;
use zeroize::Zeroizing;

use super::keys::{self, KeySources};
use super::section::Section;
use ringgate_os::processor;
use ringgate_trunk::protocol::tls::{self, paper};

/// The contents of the files. Several agents may have one.
#[derive(Clone)]
pub struct Identity {
    files: Arc<Files>,
    folders: Arc<[PathBuf]>,
}

/// The same is what says the same, wherever it was read.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for Identity {}

#[derive(PartialEq, Eq)]
struct Files {
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
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

    /// When the first of the own certificates ends, and the first of the authorities', in seconds
    /// of the Unix epoch.
    pub fn ends_s(&self) -> [Option<i64>; 2] {
        [&self.files.certificate, &self.files.ca].map(|pem| paper::first_end_s(pem))
    }

    /// Whether the own certificate is for this name.
    pub fn is_for(&self, name: &str) -> bool {
        paper::is_for(&self.files.certificate, name)
    }

    /// The folders that the files lie in, where those come that take their places.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    fn files(&self) -> tls::Identity<'_> {
        let Files { ca, certificate, key } = &*self.files;
        tls::Identity { authority: ca, certificate, key }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Reads the files that `ca`, `certificate` and `key` name; relative paths start at `base`.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    sources: &KeySources<'_>,
    base: &Path,
) -> Option<Identity> {
    let open = |path: &Path| File::open(path).map_err(unreadable);
    let certificates = ["ca", "certificate"].map(|name| file(section, name, base, open));
    let key = key(section, sources, base);
    let [(ca, of_ca), (certificate, of_certificate)] = both(certificates)?;
    let (key, of_key) = key?;
    let folders = [Some(of_ca), Some(of_certificate), of_key].into_iter().flatten();
    let files = Files { ca: ca.to_vec(), certificate: certificate.to_vec(), key };
    Some(Identity { files: Arc::new(files), folders: folders.collect() })
}

fn both<T>([one, other]: [Option<T>; 2]) -> Option<[T; 2]> {
    Some([one?, other?])
}

/// What a file holds, and its folder.
type Contents = (Zeroizing<Vec<u8>>, PathBuf);

/// The contents of the file that a field names, and its folder.
fn file(
    section: &mut Section<'_, '_>,
    name: &str,
    base: &Path,
    open: impl FnOnce(&Path) -> Result<File, String>,
) -> Option<Contents> {
    let (path, place) = section.text(name, |text| path(text, base))?;
    match open(&path).and_then(|file| contents(file).map_err(unreadable)) {
        Ok(bytes) => Some((bytes, folder(&path))),
        Err(why) => {
            section.report.note(&place, format!("{}: {why}", path.display()));
            None
        }
    }
}

/// The key: a file that is closed to others, or a credential, which the service manager guards.
fn key(
    section: &mut Section<'_, '_>,
    sources: &KeySources<'_>,
    base: &Path,
) -> Option<(Zeroizing<Vec<u8>>, Option<PathBuf>)> {
    let place = section.place("key");
    let Some(name) = section.peek("key").and_then(credential).map(str::to_owned) else {
        let closed = |path: &Path| keys::open_closed(path).map_err(|why| why.to_string());
        return file(section, "key", base, closed).map(|(key, folder)| (key, Some(folder)));
    };
    let _ = section.node("key");
    let opened = sources.open_credential(&name).map_err(|why| why.to_string());
    match opened.and_then(|file| contents(file).map_err(unreadable)) {
        Ok(bytes) => Some((bytes, None)),
        Err(why) => {
            section.report.note(&place, why);
            None
        }
    }
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
    // Made in full at once: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(vec![0; FILE_BYTES_MAX + 1]);
    let mut len = 0;
    while len < bytes.len() {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    if len > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    bytes.truncate(len);
    Ok(bytes)
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn unreadable(why: io::Error) -> String {
    format!("cannot read it: {why}")
}

fn path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| base.join(text))
}

/// Longer than any chain of certificates.
const FILE_BYTES_MAX: usize = 1 << 18;
