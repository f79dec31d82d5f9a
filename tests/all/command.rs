//! Runs the built binary and looks at what it says.

use std::env;
use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a run left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process of ours that ends with the test, whatever happened.
pub(crate) struct Ending(pub(crate) Child);

impl Deref for Ending {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ending {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends a thread beside a test, however the test ends: a scope of threads waits for all of them, in
/// a panic too.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A command line, ready to run: of the program that was built with the tests, or of the one that
/// `RINGGATE_PROGRAM` names, so that what ships can be held to them too.
pub(crate) fn ringgate<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let built = env!("CARGO_BIN_EXE_ringgate");
    let mut command = Command::new(env::var_os("RINGGATE_PROGRAM").unwrap_or_else(|| built.into()));
    command.args(args).env_remove("RINGGATE_LOG").env_remove("CREDENTIALS_DIRECTORY");
    command
}

/// Runs to the end.
pub(crate) fn run(mut command: Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().expect("the binary was built");
    let text = |bytes| String::from_utf8(bytes).expect("we print text");
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// `ringgate upgrade`, again while the process that runs goes on because a deadline of players was
/// over: a machine with much else to do lets it pass, and whoever upgrades asks once more.
pub(crate) fn upgrade_at(control: &Path) -> Ran {
    let over = ["the successor does not answer in time", "a worker does not turn"];
    let upgrade = || run(ringgate(["upgrade".as_ref(), "--control".as_ref(), control.as_os_str()]));
    let mut ran = upgrade();
    for _ in 1..10 {
        if !over.iter().any(|why| ran.stderr.contains(why)) {
            break;
        }
        ran = upgrade();
    }
    ran
}

impl Ran {
    /// Exit code 0 and a silent stderr; the output.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// Exit code 2 and exactly one line on stderr; that line, without our name.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "{}", self.stderr);
        let line = self.stderr.strip_suffix('\n').expect("a line ends");
        assert!(!line.contains('\n'), "more than a line: {line}");
        line.strip_prefix("ringgate: ").expect("our name comes first").to_owned()
    }
}
