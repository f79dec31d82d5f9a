//! Who this process is to the other end of a trunk, and whose word it takes: three files in PEM.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::keys;
use super::section::Section;
use ringgate_os::processor;
use ringgate_trunk::tls;

/// The contents of the files. Several agents may have one.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity(Arc<Files>);

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
        let made = tls::Gateway::new(ringgate_trunk_io::provider(), self.files());
        made.map_err(|why| why.to_string())
    }

    /// What connects to gateways.
    pub fn agent(&self) -> Result<tls::Agent, String> {
        processor::suffices_for_tls()?;
        let made = tls::Agent::new(ringgate_trunk_io::provider(), self.files());
        made.map_err(|why| why.to_string())
    }

    fn files(&self) -> tls::Identity<'_> {
        let Files { ca, certificate, key } = &*self.0;
        tls::Identity { authority: ca, certificate, key }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Reads the files that `ca`, `certificate` and `key` name; relative paths start at `base`.
pub(super) fn read(section: &mut Section<'_, '_>, base: &Path) -> Option<Identity> {
    let ca = file(section, "ca", base, |path| File::open(path).map_err(unreadable));
    let certificate =
        file(section, "certificate", base, |path| File::open(path).map_err(unreadable));
    let closed = |path: &Path| keys::open_closed(path).map_err(|why| why.to_string());
    let key = file(section, "key", base, closed);
    let (ca, certificate) = (ca?.to_vec(), certificate?.to_vec());
    Some(Identity(Arc::new(Files { ca, certificate, key: key? })))
}

/// The contents of the file that a field names.
fn file(
    section: &mut Section<'_, '_>,
    name: &str,
    base: &Path,
    open: impl FnOnce(&Path) -> Result<File, String>,
) -> Option<Zeroizing<Vec<u8>>> {
    let (path, place) = section.text(name, |text| path(text, base))?;
    match open(&path).and_then(|file| contents(file).map_err(unreadable)) {
        Ok(bytes) => Some(bytes),
        Err(why) => {
            section.report.note(&place, format!("{}: {why}", path.display()));
            None
        }
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
