//! What the control thread runs on: tokio-uring where the kernel allows io_uring, plain tokio where
//! it does not.
//!
//! Sockets, timers and signals are tokio's in both cases, because tokio-uring runs them on the same
//! thread. What differs is how files are written: through the ring, or by a thread that may block.

use std::fs::OpenOptions;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ringgate_os::hand::Hand;
use ringgate_os::{hold_point, wiping};
use ringgate_process::signals;

/// The control thread's runtime.
pub(super) enum Runtime {
    Plain(tokio::runtime::Runtime),
    Uring(tokio_uring::Runtime),
}

impl Runtime {
    /// On io_uring if it is wanted and there.
    pub(super) fn start(wants_uring: bool) -> io::Result<Self> {
        signals::check_room()?;
        // Requests hold the admin token.
        wiping::wipe_from_now_on();
        if wants_uring {
            match tokio_uring::Runtime::new(tokio_uring::builder().entries(RING_ENTRIES)) {
                Ok(runtime) => return Ok(Self::Uring(runtime)),
                Err(why) => tracing::debug!("the control thread does without io_uring: {why}"),
            }
        }
        let plain = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self::Plain(plain))
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Plain(runtime) => runtime.block_on(future),
            Self::Uring(runtime) => runtime.block_on(future),
        }
    }

    /// How files are made here.
    pub(super) const fn files(&self) -> Files {
        match self {
            Self::Plain(_) => Files::Plain,
            Self::Uring(_) => Files::Uring,
        }
    }
}

/// How files are made that a runtime writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    Plain,
    Uring,
}

impl Files {
    /// Makes a file that must not be there yet.
    pub(super) fn create(self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        Ok(match self {
            Self::Plain => File::Plain(Arc::new(file)),
            Self::Uring => {
                let same = file.try_clone()?;
                File::Uring(tokio_uring::fs::File::from_std(file), same)
            }
        })
    }
}

/// A file that is written without holding up the control thread. To be used in the runtime that
/// made it.
pub(super) enum File {
    Plain(Arc<std::fs::File>),
    /// With a second descriptor, for what the first has no call for.
    Uring(tokio_uring::fs::File, std::fs::File),
}

impl File {
    /// Writes all bytes at an offset.
    pub(super) async fn write_all_at(&self, bytes: Vec<u8>, offset: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => {
                let file = Arc::clone(file);
                let write = move || {
                    hold_point!("histograms Write");
                    file.write_all_at(&bytes, offset)
                };
                Hand::ready("ringgate-hlog")?.ask(write).await
            }
            Self::Uring(file, _) => file.write_all_at(bytes, offset).await.0,
        }
    }

    /// Cuts everything off behind an offset. Touches the last page only, so it is done at once.
    pub(super) fn cut(&self, offset: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.set_len(offset),
            Self::Uring(_, file) => file.set_len(offset),
        }
    }
}

/// The control thread has a file write in flight, hardly ever two.
const RING_ENTRIES: u32 = 8;

/// For the operator's group to read.
const FILE_MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_the_same_way_on_both() {
        for wants_uring in [false, true] {
            let runtime = Runtime::start(wants_uring).expect("a runtime");
            let name = format!("ringgate-runtime-{}-{wants_uring}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let create = || runtime.block_on(async { runtime.files().create(&path) });
            let file = create().expect("a new file");
            assert!(create().is_err(), "it is there already");
            let written = runtime.block_on(async {
                file.write_all_at(b"hello".to_vec(), 0).await?;
                file.write_all_at(b"world".to_vec(), 5).await
            });
            written.expect("written");
            file.cut(7).expect("our file");
            drop(file);
            assert_eq!(std::fs::read(&path).expect("readable"), b"hellowo");
            std::fs::remove_file(&path).expect("removed");
        }
    }
}
