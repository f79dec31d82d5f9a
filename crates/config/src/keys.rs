//! Where keys come from: files, the environment, hex text, and credentials that systemd hands over.
//!
//! Key material passes through buffers that are wiped, and no error quotes it. A key file must be
//! closed to everyone but its owner: what others can read is not a secret, and a gateway that
//! starts with it would hide that. Credentials are exempt, because the service manager guards their
//! directory and may set group bits through an access list.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use ringgate_core::secret::{KEY_BYTES, Key, SharedKey};

/// Why there is no key. `Display` is "found …, expected …".
#[derive(Debug)]
pub struct KeyError {
    found: String,
    expected: &'static str,
}

impl KeyError {
    pub(super) fn new(found: impl Into<String>, expected: &'static str) -> Self {
        Self { found: found.into(), expected }
    }

    fn unreadable(cause: &io::Error) -> Self {
        if cause.kind() == io::ErrorKind::IsADirectory {
            return Self::new("a folder", "a key file in it");
        }
        Self::new(format!("a file that cannot be read ({cause})"), "a key file")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl std::error::Error for KeyError {}

/// The parts of the process that keys are looked up in.
pub struct KeySources<'a> {
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    credentials: Option<PathBuf>,
}

impl<'a> KeySources<'a> {
    /// The environment of this process, and the credentials of its service.
    pub fn of_process() -> Self {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self { environment: &|name| std::env::var_os(name), credentials }
    }

    /// Sources that a test decides.
    pub fn new(
        environment: &'a dyn Fn(&str) -> Option<OsString>,
        credentials: Option<PathBuf>,
    ) -> Self {
        Self { environment, credentials }
    }

    /// The key in an environment variable, as hex.
    pub fn environment(&self, name: &str) -> Result<SharedKey, KeyError> {
        let bytes = self.variable(name, "one that holds 64 hex digits")?;
        hex(str::from_utf8(&bytes).unwrap_or_default())
    }

    /// What an environment variable holds.
    pub(super) fn variable(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        // `var_os` panics on names that cannot exist.
        let possible = !name.is_empty() && !name.contains(['=', '\0']);
        let value = possible
            .then(|| (self.environment)(name))
            .flatten()
            .ok_or_else(|| KeyError::new(format!("no environment variable {name:?}"), expected))?;
        Ok(Zeroizing::new(value.into_encoded_bytes()))
    }

    /// The key in a credential of the service.
    pub fn credential(&self, name: &str) -> Result<SharedKey, KeyError> {
        key_in(&mut self.open_credential(name)?)
    }

    /// The file of a credential of the service.
    pub(super) fn open_credential(&self, name: &str) -> Result<File, KeyError> {
        if name.is_empty() || name == ".." || name == "." || name.contains(['/', '\0']) {
            return Err(KeyError::new(format!("{name:?}"), "the name of a credential"));
        }
        let Some(directory) = &self.credentials else {
            return Err(KeyError::new(
                "no $CREDENTIALS_DIRECTORY in the environment",
                "a service with LoadCredential= or SetCredential= (for a command, the folder of those files \
                 as CREDENTIALS_DIRECTORY=/etc/ringgate)",
            ));
        };
        let opened = File::open(directory.join(name));
        let unreadable = |cause| KeyError::unreadable(&cause);
        let opened = opened.map_err(unreadable)?;
        // By SetCredential= units hand on a line without words in place of a file that is missing.
        if opened.metadata().map_err(unreadable)?.len() <= 1 {
            return Err(KeyError::new(
                "nothing in it",
                "a key: LoadCredential= in the unit names the file, which was missing or empty at the start",
            ));
        }
        Ok(opened)
    }
}

/// The key in a file that nobody but its owner may read.
pub fn file(path: &Path) -> Result<SharedKey, KeyError> {
    key_in(&mut open_closed(path)?)
}

/// Opens a file that nobody but its owner may read.
pub(super) fn open_closed(path: &Path) -> Result<File, KeyError> {
    let unreadable = |cause: io::Error| KeyError::unreadable(&cause);
    let opened = File::open(path).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::new(
            format!("a key file that others may use (mode {mode:04o})"),
            "one that is closed to group and others (chmod 600)",
        ));
    }
    Ok(opened)
}

/// The key that 64 hex digits spell.
pub fn hex(text: &str) -> Result<SharedKey, KeyError> {
    let key = SharedKey::from_hex(text)
        .ok_or_else(|| KeyError::new(shape(text.trim().as_bytes()), "64 hex digits"))?;
    refuse_zeros(key)
}

/// A key as 64 hex digits, or the path of a file that holds one: what the command line takes.
pub fn hex_or_file(text: &str) -> Result<SharedKey, KeyError> {
    let path = Path::new(text);
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (is_hex, text.len() == 2 * KEY_BYTES) {
        (true, true) => hex(text),
        (true, false) if !path.exists() => {
            Err(KeyError::new(shape(text.as_bytes()), "64 hex digits or the path of a key file"))
        }
        _ => file(path),
    }
}

/// The key that an open file holds, in either form.
pub(super) fn key_in(opened: &mut File) -> Result<SharedKey, KeyError> {
    const EXPECTED: &str = "64 hex digits or 32 raw bytes";
    let bytes = &read_short(opened, EXPECTED)?[..];
    let text = str::from_utf8(bytes).unwrap_or_default();
    if let Some(key) = SharedKey::from_hex(text) {
        return refuse_zeros(key);
    }
    // 32 hex digits fit the raw form by length, but are half a key.
    let raw = <&[u8; KEY_BYTES]>::try_from(bytes).ok();
    let raw = raw.filter(|raw| !raw.iter().all(u8::is_ascii_hexdigit));
    let write = |raw: &[u8; KEY_BYTES]| {
        SharedKey::written(|key| {
            key.copy_from_slice(raw);
            Some(())
        })
    };
    if let Some(key) = raw.and_then(write) {
        return refuse_zeros(key);
    }
    Err(KeyError::new(format!("a file with {}", shape(bytes.trim_ascii())), EXPECTED))
}

/// What a short file holds.
pub(super) fn read_short(
    opened: &mut File,
    expected: &'static str,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let whole = whole(opened, FILE_BYTES_MAX).map_err(|cause| KeyError::unreadable(&cause))?;
    let too_long =
        || KeyError::new(format!("a file of more than {FILE_BYTES_MAX} bytes"), expected);
    whole.ok_or_else(too_long)
}

/// What a file holds, unless it is longer than that.
pub(super) fn whole(opened: &mut File, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    // Made with room for all at once: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    opened.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}

/// A key of zeros is a file that nobody filled.
fn refuse_zeros(key: SharedKey) -> Result<SharedKey, KeyError> {
    if *key == Key::from_bytes([0; KEY_BYTES]) {
        return Err(KeyError::new("a key of zeros", "a random one (ringgate keygen makes one)"));
    }
    Ok(key)
}

/// What is not a key, by its size.
pub(super) fn shape(bytes: &[u8]) -> String {
    let count = bytes.len();
    if bytes.iter().all(u8::is_ascii_hexdigit) {
        format!("{count} hex digits")
    } else {
        format!("{count} bytes that are not all hex digits")
    }
}

/// Longest key file: 64 digits with generous white space.
const FILE_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn sources(lookup: &dyn Fn(&str) -> Option<OsString>) -> KeySources<'_> {
        KeySources::new(lookup, None)
    }

    #[test]
    fn hex_of_any_other_length_is_described_but_not_shown() {
        let error = hex("abcd").expect_err("short").to_string();
        assert_eq!(error, "found 4 hex digits, expected 64 hex digits");
        let error = hex("secret!").expect_err("no digits").to_string();
        assert_eq!(error, "found 7 bytes that are not all hex digits, expected 64 hex digits");
    }

    #[test]
    fn zeros_are_not_a_key() {
        assert!(hex(&"0".repeat(64)).is_err());
    }

    #[test]
    fn the_environment_holds_hex() {
        let lookup = |name: &str| (name == "KEY").then(|| DIGITS.into());
        assert!(sources(&lookup).environment("KEY").is_ok());
        let error = sources(&lookup).environment("K=Y").expect_err("no such name").to_string();
        assert_eq!(
            error,
            "found no environment variable \"K=Y\", expected one that holds 64 hex digits"
        );
    }

    #[test]
    fn credential_names_stay_in_their_directory() {
        let sources = KeySources::new(&|_| None, Some(PathBuf::from("/")));
        for name in ["", ".", "..", "../etc/passwd", "a/b"] {
            let error = sources.credential(name).expect_err(name).to_string();
            assert!(error.ends_with("expected the name of a credential"), "{error}");
        }
    }
}
