//! What a process that serves gives up on the way there: files before it has threads, its user and
//! most system calls once what takes more is done. The words for it (`user`, `confine`) are the
//! same in every file.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use ringgate_os::landlock::{self, Reach};
use ringgate_os::{clock, host, process};

use crate::confine::{self, Calls, User};

/// What the config wants given up.
#[derive(Debug)]
pub struct Privileges {
    /// Whom to become.
    user: Option<User>,
    confine: bool,
    calls: Calls,
}

impl Privileges {
    /// Checks that it can be done, before anything is.
    pub fn of(user: Option<&str>, confine: bool, calls: Calls) -> Result<Self, String> {
        let user = confine::becomes(user)?;
        if confine {
            confine::check_system_calls(calls).map_err(|why| cannot_give_up_calls(&why))?;
        }
        Ok(Self { user, confine, calls })
    }

    /// Whom this process becomes, if somebody else.
    pub const fn user(&self) -> Option<User> {
        self.user
    }

    /// Whether anything is given up but the user.
    pub const fn is_confined(&self) -> bool {
        self.confine
    }

    /// Gives up all files but those below these folders, which have to be there.
    pub fn give_up_files(&self, read: &[PathBuf], write: &[PathBuf]) -> Result<(), String> {
        if !self.confine {
            return Ok(());
        }
        // They are read once, and cannot be read behind the next line.
        let _ = (host::name(), clock::boot_id());
        let reach = landlock::confine(read, write)
            .map_err(|why| format!("cannot give up the file system (`confine`): {why}"))?;
        match reach {
            Reach::Full => tracing::debug!("files outside the daemon's folders are given up"),
            Reach::Partial | Reach::None => {
                tracing::warn!(%reach, "this kernel's Landlock cannot hide all other files");
            }
        }
        Ok(())
    }

    /// Gives a folder to whom this process becomes.
    pub fn hand_over(&self, folder: &Path) -> Result<(), String> {
        let Some(user) = self.user else { return Ok(()) };
        hand_over(folder, user)
            .map_err(|why| format!("cannot hand {} over: {why}", folder.display()))
    }

    /// Becomes the user.
    pub fn become_user(&self) -> Result<(), String> {
        let Some(user) = self.user else { return Ok(()) };
        confine::become_user(user)
            .map_err(|why| format!("cannot become user {}: {why}", user.uid))?;
        // The kernel allows dumps anew, or by its own setting, whenever the user changes.
        if let Err(why) = process::forbid_dumps() {
            tracing::warn!("a core dump of this process would hold keys: {why}");
        }
        Ok(())
    }

    /// Gives up the system calls that a process which serves does not make.
    pub fn give_up_system_calls(&self) -> Result<(), String> {
        if !self.confine {
            return Ok(());
        }
        confine::system_calls(self.calls).map_err(|why| cannot_give_up_calls(&why))
    }
}

fn cannot_give_up_calls(why: &io::Error) -> String {
    format!("cannot give up system calls (`confine`): {why}")
}

/// The folders of a config file and of the service's credentials: what the file names is read there
/// while the process serves.
pub fn of_config(file: &Path) -> Vec<PathBuf> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    of_file(file).chain(credentials).collect()
}

/// What names of hosts are looked up in. Whoever writes such a file anew makes another one of it,
/// so its folder is open as a whole.
pub fn of_resolver(files: &[&str]) -> Vec<PathBuf> {
    files.iter().flat_map(|file| of_file(Path::new(file))).collect()
}

/// The folder that a file lies in, and the one that a link in its place leads to.
pub fn of_file(file: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let target = std::fs::canonicalize(file).ok();
    [Some(file.to_owned()), target].into_iter().flatten().map(|file| match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    })
}

/// Gives a folder to a user. The folder itself, and none that a link in its place leads to: where
/// others may write to what it lies in (`/tmp`), they could have us give away any folder of the
/// host.
fn hand_over(dir: &Path, user: User) -> io::Result<()> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    let owner = folder.metadata()?.uid();
    if owner != user.uid && owner != process::effective_uid() {
        return Err(io::Error::other(format!("it belongs to user {owner}")));
    }
    fchown(&folder, Some(user.uid), Some(user.gid))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_folders_place_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("ringgate-hand-{}", std::process::id()));
        fs::create_dir(&folder).expect("temporary folders can be made");
        let (real, link) = (folder.join("real"), folder.join("link"));
        fs::create_dir(&real).expect("made");
        symlink(&real, &link).expect("made");
        let meta = fs::metadata(&real).expect("there");
        let own = User { uid: meta.uid(), gid: meta.gid() };
        assert!(hand_over(&link, own).is_err());
        assert!(hand_over(&real, own).is_ok());
        if process::effective_uid() == 0 {
            let [one, other] = [User { uid: 65_534, ..own }, User { uid: 65_533, ..own }];
            hand_over(&real, one).expect("root may");
            hand_over(&real, one).expect("and again, at the next start");
            let why = hand_over(&real, other).expect_err("it is somebody else's");
            assert!(why.to_string().contains("65534"), "{why}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn the_hosts_name_is_known_when_its_file_is_given_up() {
        // Landlock binds one thread.
        let confined = std::thread::spawn(|| {
            let privileges = Privileges { user: None, confine: true, calls: Calls::Agent };
            privileges.give_up_files(&[], &[]).expect("a sane rule set");
            host::name()
        });
        assert_ne!(confined.join().expect("it has not panicked"), "unknown host");
    }

    #[test]
    fn what_is_read_again_may_be_another_file_where_a_link_leads_too() {
        let folder = std::env::temp_dir().join(format!("ringgate-names-{}", std::process::id()));
        let (kept, link) = (folder.join("kept"), folder.join("resolv.conf"));
        fs::create_dir_all(&kept).expect("temporary folders can be made");
        fs::write(kept.join("stub.conf"), "").expect("made");
        symlink(kept.join("stub.conf"), &link).expect("made");
        let kept = fs::canonicalize(&kept).expect("it is there");
        let link_text = link.to_str().expect("our own name");
        let of_both = of_resolver(&[link_text, "/no/such/file"]);
        assert_eq!(of_both, [folder.clone(), kept.clone(), "/no/such".into()]);
        assert!(of_config(&link).starts_with(&[folder.clone(), kept]));
        assert_eq!(of_config(Path::new("gate.toml"))[0], Path::new("."));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
