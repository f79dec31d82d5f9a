//! The load generator as a process of its own: this test binary, started again, as a test that does
//! nothing as long as the environment does not tell it to be the generator.

use std::ffi::OsString;
use std::process::Command;

use ringgate_loadgen::report::record::Record;

use crate::command::Ending;
use crate::control_rig::{Daemon, KEY_HEX, PROTOCOL_ID};

/// A generator that plays against a daemon until it is interrupted, and ends with its owner. Its
/// files lie in the daemon's folder.
pub(crate) struct Load(Ending);

impl Load {
    /// `ringgate-loadgen run`, with more arguments.
    pub(crate) fn start(daemon: &Daemon, more: &[&str]) -> Self {
        let key = daemon.folder.file("key", KEY_HEX, 0o600);
        let (server, admin) = (daemon.listener.to_string(), daemon.control().display().to_string());
        let (key, out) =
            (key.display().to_string(), daemon.folder.join("out").display().to_string());
        let protocol_id = PROTOCOL_ID.to_string();
        let mut words = vec!["run", "--server", &server, "--key", &key];
        words.extend(["--protocol-id", &protocol_id, "--admin", &admin, "--out", &out]);
        words.extend(["--arrivals", "ticks", "--hold", "600s", "--timeout", "60"]);
        words.extend(more);
        let own = std::env::current_exe().expect("this binary");
        let mut command = Command::new(own);
        command.args(["--exact", "load_rig::the_load_generator_itself", "--nocapture"]);
        command.env(ARGUMENTS, words.join(SEPARATOR));
        let log = std::fs::File::create(daemon.folder.join("load.log")).expect("a log");
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        Self(Ending(command.spawn().expect("it starts")))
    }

    /// Fails where it has ended by itself.
    pub(crate) fn must_be_running(&mut self, daemon: &Daemon) {
        let ended = self.0.try_wait().expect("our child");
        let log = || std::fs::read_to_string(daemon.folder.join("load.log")).unwrap_or_default();
        assert_eq!(ended, None, "{}", log());
    }

    /// Has it end as its plan would have, and close its books.
    pub(crate) fn interrupt(mut self, daemon: &Daemon) -> Record {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &id]).status().expect("kill is there");
        assert!(sent.success());
        self.0.wait().expect("our child");
        let json = std::fs::read_to_string(daemon.folder.join("out/run.json"));
        serde_json::from_str(&json.expect("it has written its record")).expect("a record")
    }
}

/// No test: what the load generator's process runs.
#[test]
fn the_load_generator_itself() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let words = std::iter::once("ringgate-loadgen").chain(arguments.split(SEPARATOR));
    let _ = ringgate_loadgen::cli::run(words.map(OsString::from));
}

const ARGUMENTS: &str = "RINGGATE_TEST_LOAD";

const SEPARATOR: &str = "\u{1f}";
