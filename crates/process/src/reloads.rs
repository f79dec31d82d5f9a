//! How reading a file again has gone.

use ringgate_os::clock;

/// What came of it: what has changed, or why nothing did, a sentence each.
pub type Outcome = Result<Vec<String>, Vec<String>>;

/// What pages show of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// How often the file was taken.
    pub done: u64,
    /// How often it was not.
    pub refused: u64,
    /// Whether that was so the last time.
    pub last_refused: bool,
    /// When the running config was read.
    pub config_unix_s: u64,
}

impl Reloads {
    /// Counts this, and tells the log of it.
    pub fn note(&mut self, outcome: &Outcome) {
        self.last_refused = outcome.is_err();
        match outcome {
            Ok(changes) => {
                self.done += 1;
                self.config_unix_s = clock::unix_seconds();
                let changes = changes.join("; ");
                tracing::info!(event = "reload", changes, "the config was read again");
            }
            Err(mistakes) => {
                self.refused += 1;
                for mistake in mistakes {
                    tracing::error!(
                        event = "reload_refused",
                        mistake,
                        "the config was not changed: {mistake}"
                    );
                }
            }
        }
    }

    /// The same where the file was not even read, for a reason that is none of its own.
    pub fn put_off(&mut self, refused: &Outcome) {
        let last_refused = self.last_refused;
        self.note(refused);
        self.last_refused = last_refused;
    }
}

/// What is wrong with a file, a sentence each.
pub fn sentences(error: &impl std::fmt::Display) -> Vec<String> {
    error.to_string().lines().map(str::to_owned).collect()
}
