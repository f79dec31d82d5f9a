//! Plain files in folders that others may write to, and those that change as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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

/// Puts a file there that only its owner may read, whom `give` may change. After a crash at any
/// moment there is the old one or the new one, whole.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    give: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let (draft, mut file) = draft(path)?;
    let written = give(&file).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What is half written is of no use, and takes the room of what may be.
        let _ = fs::remove_file(&draft);
    }
    written?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// The file that becomes the one at a path. One that a crash has left is nobody's.
pub fn draft(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let draft = path.with_file_name(format!(".{}.new", name.to_string_lossy()));
    match fs::remove_file(&draft) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&draft)?;
    Ok((draft, file))
}

const FILE_MODE: u32 = 0o600;
