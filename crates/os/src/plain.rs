//! Plain files in folders that others may write to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What a plain file holds, of at most so many bytes; `None` where there is none.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}

/// Opens one to be read; `None` where there is none.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    // A pipe in its place must not keep us waiting, nor a link lead us elsewhere.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    Ok(Some(file))
}
