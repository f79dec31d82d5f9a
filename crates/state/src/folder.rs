//! The folder itself: made, taken by one gateway for as long as that runs, and files in it that
//! change as a whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use ringgate_os::{plain, process};

/// A folder that is this process's alone.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked while it is open. Nothing is left behind by it, however the process ends.
    handle: File,
}

/// What it outlives that was added to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// The end of the process, whatever ends it.
    Kill,
    /// That, and the loss of power: the disk is waited for.
    PowerLoss,
}

impl Folder {
    /// Makes the folder if it is not there: the last part closed to everybody else, those above as
    /// the system makes them.
    pub fn make(path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        }
    }

    /// Makes the folder if it is not there, and takes it. The error says why that cannot be.
    pub fn take(path: &Path) -> Result<Self, String> {
        Self::make(path).map_err(|why| format!("cannot make it: {why}"))?;
        let handle = File::open(path).map_err(|why| format!("cannot open it: {why}"))?;
        let meta = handle.metadata().map_err(|why| format!("cannot look at it: {why}"))?;
        if !meta.is_dir() {
            return Err("it is not a directory".to_owned());
        }
        if meta.mode() & OTHERS_WRITE != 0 {
            return Err("every user may write to it: take that away (chmod o-w)".to_owned());
        }
        match handle.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), handle }),
            Err(TryLockError::WouldBlock) => {
                Err("another process uses it: each needs a state_dir of its own".to_owned())
            }
            Err(TryLockError::Error(why)) => Err(format!("cannot lock it: {why}")),
        }
    }

    /// The folder that another process has taken and passes on: the lock belongs to both for as
    /// long as either has it open.
    pub fn adopt(path: &Path, handle: OwnedFd) -> Self {
        Self { path: path.to_owned(), handle: handle.into() }
    }

    /// What is passed on for that.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells it from a copy of it, and from what stands at its path one day.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        self.handle.metadata().map(|it| (it.dev(), it.ino()))
    }

    /// Whether a file could be made in it.
    pub fn check_writable(&self) -> io::Result<()> {
        let (path, _) = plain::draft(&self.path.join("probe"))?;
        fs::remove_file(path)
    }

    /// The same folder for another owner; the lock is theirs together.
    pub fn second(&self) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), handle: self.handle.try_clone()? })
    }

    /// The names of what is in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// What a file holds; `None` where there is none.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.read_up_to(name, FILE_BYTES_MAX)
    }

    /// The same of one that may have so many bytes.
    pub fn read_up_to(&self, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        plain::read(&self.path.join(name), bytes_max)
    }

    /// Adds to the end of a file, which is made if it is not there. A crash before this returns may
    /// leave any part of it.
    pub fn append(&self, name: &str, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
        let path = self.path.join(name);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(flags).mode(FILE_MODE);
        let (mut file, is_new) = match options.open(&path) {
            Ok(file) => (file, false),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                (options.create_new(true).open(&path)?, true)
            }
            Err(why) => return Err(why),
        };
        if is_new {
            self.give(&file)?;
        }
        file.write_all(bytes)?;
        if lasting == Lasting::Kill {
            return Ok(());
        }
        file.sync_data()?;
        if is_new { self.handle.sync_all() } else { Ok(()) }
    }

    /// A file that root makes is of the folder's owner, whom this process may be about to become.
    /// Where it stays root, it may have given the call up, and needs no such thing.
    fn give(&self, file: &File) -> io::Result<()> {
        let folder = self.handle.metadata()?;
        if process::effective_uid() == 0 && folder.uid() != 0 {
            let _ = fchown(file, Some(folder.uid()), Some(folder.gid()));
        }
        Ok(())
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        }
    }

    /// Puts a file there, readable by its owner. After a crash at any moment there is the old one
    /// or the new one, whole.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        plain::replace(&self.path.join(name), bytes, |file| self.give(file))
    }

    /// Gives the folder, and those files in it that are there, to the user that this process is
    /// about to become. Nothing that a link leads to, and nothing of a third user: where others may
    /// write to what the folder lies in, they could have us give away any folder of the host.
    pub fn give_to(&self, user: u32, group: u32, names: &[&str]) -> io::Result<()> {
        let owner = self.handle.metadata()?.uid();
        if fs::symlink_metadata(&self.path)?.is_symlink() {
            return Err(io::Error::other("a link stands in its place"));
        }
        if owner != user && owner != process::effective_uid() {
            return Err(io::Error::other(format!("it belongs to user {owner}")));
        }
        for name in names {
            let Some(file) = plain::open(&self.path.join(name))? else { continue };
            let found = file.metadata()?;
            // One with another name, too, may be anybody's.
            let is_ours = found.uid() == process::effective_uid() && found.nlink() == 1;
            if found.uid() != user && !is_ours {
                let (owner, links) = (found.uid(), found.nlink());
                let why = format!("{name} belongs to user {owner} and has {links} names");
                return Err(io::Error::other(why));
            }
            fchown(&file, Some(user), Some(group))?;
        }
        fchown(&self.handle, Some(user), Some(group))
    }
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS_WRITE: u32 = 0o002;

/// Far more than [`RULES_MAX`](crate::denylist::RULES_MAX) rules take.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("ringgate-state-{}-{count}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    /// The user that the folder is given to may have put something there before.
    #[test]
    fn nothing_but_plain_files_of_the_folder_are_given_away_or_waited_for() {
        let place = Place::new();
        let folder = Folder::take(&place.0).expect("ours");
        let stranger = process::effective_uid() + 1;
        let given =
            || folder.give_to(stranger, stranger, &["spent-1"]).map_err(|why| why.to_string());
        let path = place.0.join("spent-1");
        // Not by a program: until it is another one, a child has the locks of all other tests.
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe can be made");
        let refused = "it is not a plain file".to_owned();
        assert_eq!(given(), Err(refused.clone()));
        assert_eq!(folder.read("spent-1").map_err(|why| why.to_string()), Err(refused));
        folder.remove("spent-1").expect("ours");
        let elsewhere = place.0.join("elsewhere");
        fs::write(&elsewhere, "another's").expect("ours");
        fs::hard_link(&elsewhere, &path).expect("one disk");
        let owner = process::effective_uid();
        assert_eq!(given(), Err(format!("spent-1 belongs to user {owner} and has 2 names")));
    }

    #[test]
    fn files_are_replaced_and_closed_to_others() {
        let place = Place::new();
        let path = place.0.join("a/b");
        let folder = Folder::take(&path).expect("it can be made");
        folder.check_writable().expect("it is ours");
        assert_eq!(folder.read("x").expect("readable"), None);
        for text in ["one", "another"] {
            folder.replace("x", text.as_bytes()).expect("there is room");
            assert_eq!(folder.read("x").expect("readable"), Some(text.as_bytes().to_vec()));
        }
        assert_eq!((mode(&path), mode(&path.join("x"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&path).expect("readable").count(), 1, "no draft is left");
        // A crash in the middle of a write leaves a draft.
        fs::write(path.join(".x.new"), "half").expect("ours");
        folder.replace("x", b"whole").expect("there is room");
        assert_eq!(folder.read("x").expect("readable"), Some(b"whole".to_vec()));
    }

    #[test]
    fn one_gateway_has_it_at_a_time() {
        let place = Place::new();
        let folder = Folder::take(&place.0).expect("it can be made");
        let why = Folder::take(&place.0).expect_err("it is taken");
        assert!(why.contains("another process"), "{why}");
        drop(folder);
        Folder::take(&place.0).expect("it is free again");
    }

    #[test]
    fn a_folder_that_is_passed_on_stays_taken() {
        let place = Place::new();
        let folder = Folder::take(&place.0).expect("it can be made");
        let passed = folder.descriptor().try_clone_to_owned().expect("descriptors are left");
        let heir = Folder::adopt(&place.0, passed);
        drop(folder);
        assert!(Folder::take(&place.0).is_err());
        heir.replace("x", b"one").expect("there is room");
        drop(heir);
        Folder::take(&place.0).expect("it is free again");
    }

    #[test]
    fn what_is_no_file_of_ours_is_not_read() {
        let place = Place::new();
        let folder = Folder::take(&place.0).expect("it can be made");
        fs::create_dir(place.0.join("folder")).expect("ours");
        symlink("/etc/passwd", place.0.join("link")).expect("ours");
        fs::write(place.0.join("large"), vec![b'x'; FILE_BYTES_MAX as usize + 1]).expect("room");
        for name in ["folder", "link", "large"] {
            assert!(folder.read(name).is_err(), "{name}");
        }
        folder.replace("link", b"text").expect("the link itself is replaced");
        assert_eq!(folder.read("link").expect("readable"), Some(b"text".to_vec()));
    }

    #[test]
    fn a_folder_that_all_may_write_to_or_that_is_none_is_refused() {
        let place = Place::new();
        fs::create_dir(&place.0).expect("temporary folders can be made");
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).expect("ours");
        let why = Folder::take(&place.0).expect_err("open to all");
        assert!(why.contains("chmod"), "{why}");
        fs::write(place.0.join("file"), "").expect("ours");
        assert!(Folder::take(&place.0.join("file")).is_err());
        assert!(Folder::take(&place.0.join("file/below")).is_err());
    }
}
