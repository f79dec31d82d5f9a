//! Writes what is kept, without holding up the control thread: the latest of what is wanted, one
//! write at a time, and again after a while where it could not be.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use ringgate_os::hand::Hand;
use ringgate_state::{Folder, Kept, text};

/// The file in `state_dir`.
pub const DENIED_FILE: &str = "denied";

/// The task that writes.
pub(super) struct Keeper {
    folder: Arc<Folder>,
    wanted: watch::Receiver<Wanted>,
    done: watch::Sender<Done>,
}

/// What shall be in the file.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    /// Counts what was wanted so far.
    pub(super) number: u64,
    pub(super) kept: Arc<Kept>,
    /// The file is about to be another process's: nothing is written.
    pub(super) rests: bool,
}

/// What has been tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) failure: Option<Arc<str>>,
    /// Something is on its way to the file.
    pub(super) is_trying: bool,
}

/// A change that waits for its file.
pub(super) struct Ticket {
    number: u64,
    done: watch::Receiver<Done>,
}

impl Keeper {
    pub(super) fn new(
        folder: Folder,
        wanted: watch::Receiver<Wanted>,
        done: watch::Sender<Done>,
    ) -> Self {
        Self { folder: Arc::new(folder), wanted, done }
    }

    /// Writes until nothing can be wanted any more.
    pub(super) async fn run(mut self) {
        let mut is_failing = false;
        loop {
            let again = async {
                if is_failing { tokio::time::sleep(AGAIN_AFTER).await } else { pending().await }
            };
            tokio::select! {
                wanted = self.wanted.changed() => if wanted.is_err() { return },
                () = again => {}
            }
            let Wanted { number, kept, rests } = self.wanted.borrow_and_update().clone();
            if rests {
                continue;
            }
            self.done.send_modify(|done| done.is_trying = true);
            let failure = self.write(kept).await.err();
            self.tell(failure.as_ref(), is_failing);
            is_failing = failure.is_some();
            let failure = failure.map(|why| format!("{}: {why}", self.place()).into());
            self.done.send_replace(Done { number, failure, is_trying: false });
        }
    }

    async fn write(&self, kept: Arc<Kept>) -> io::Result<()> {
        let folder = Arc::clone(&self.folder);
        let write = move || folder.replace(DENIED_FILE, text::write(&kept).as_bytes());
        Hand::ready("ringgate-denied")?.ask(write).await
    }

    fn place(&self) -> String {
        format!("cannot write {}", self.folder.path().join(DENIED_FILE).display())
    }

    /// Once when it begins, once when it is over.
    fn tell(&self, failure: Option<&io::Error>, was_failing: bool) {
        match failure {
            Some(why) if !was_failing => {
                let place = self.place();
                tracing::error!(
                    event = "state_not_written",
                    why = %why,
                    "{place}: {why}; a restart would forget what is denied since"
                );
            }
            None if was_failing => {
                tracing::info!(event = "state_written", "what is denied is written down again");
            }
            _ => {}
        }
    }
}

impl Ticket {
    pub(super) const fn new(number: u64, done: watch::Receiver<Done>) -> Self {
        Self { number, done }
    }

    /// Waits for the write, or long enough.
    pub(super) async fn wait(mut self) -> Result<(), Arc<str>> {
        let number = self.number;
        let is_tried = self.done.wait_for(|done| done.number >= number);
        match tokio::time::timeout(WRITE_TIMEOUT, is_tried).await {
            Ok(Ok(done)) => done.failure.clone().map_or(Ok(()), Err),
            Ok(Err(_)) => Err("the gateway stops".into()),
            Err(_) => Err("the disk has not answered so far".into()),
        }
    }
}

/// How long after a failure the same is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The command line waits for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::super::runtime::Runtime;
    use super::*;
    use std::path::PathBuf;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ringgate-keeper-{}-{name}", std::process::id()))
    }

    fn start(folder: Folder) -> (Keeper, watch::Sender<Wanted>, watch::Receiver<Done>) {
        let (wanted, wishes) = watch::channel(Wanted::default());
        let (tell, done) = watch::channel(Done::default());
        (Keeper::new(folder, wishes, tell), wanted, done)
    }

    fn kept(saved_unix_s: u64) -> Arc<Kept> {
        Arc::new(Kept { saved_unix_s, ..Kept::default() })
    }

    #[test]
    fn the_latest_is_written_before_the_keeper_ends() {
        for wants_uring in [false, true] {
            let path = place(&format!("{wants_uring}"));
            let folder = Folder::take(&path).expect("it can be made");
            let runtime = Runtime::start(wants_uring).expect("a runtime");
            let (keeper, wanted, done) = start(folder);
            for number in 1..=5 {
                wanted.send_replace(Wanted { number, kept: kept(number), rests: false });
            }
            let ticket = Ticket::new(5, done);
            drop(wanted);
            runtime.block_on(async {
                let task = tokio::spawn(keeper.run());
                assert_eq!(ticket.wait().await, Ok(()));
                task.await.expect("it ends");
            });
            let bytes = std::fs::read(path.join(DENIED_FILE)).expect("written");
            assert_eq!(text::read(&bytes).expect("ours").saved_unix_s, 5);
            std::fs::remove_dir_all(&path).expect("ours");
        }
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let path = place("gone");
        let folder = Folder::take(&path).expect("it can be made");
        std::fs::remove_dir_all(&path).expect("ours");
        let runtime = Runtime::start(false).expect("a runtime");
        let (keeper, wanted, done) = start(folder);
        wanted.send_replace(Wanted { number: 1, kept: kept(1), rests: false });
        let why = runtime.block_on(async {
            let task = tokio::spawn(keeper.run());
            let why = Ticket::new(1, done).wait().await.expect_err("there is no folder");
            drop(wanted);
            task.await.expect("it ends");
            why
        });
        assert!(why.starts_with("cannot write ") && why.contains("denied"), "{why}");
    }
}
