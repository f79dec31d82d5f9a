//! What threads leave for readers: now and then, and at once where a reader asks all of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

/// How often something is published that is to be published every so many nanoseconds. Builds for
/// tests may have all of it so many times rarer: what takes an old page for the latest one fails
/// then, and not by chance.
pub fn period_ns(every_ns: u64) -> u64 {
    static SLOWER: LazyLock<u64> = LazyLock::new(|| {
        let asked = std::env::var(SLOWER_BY).ok();
        asked.and_then(|text| text.parse().ok()).unwrap_or(1)
    });
    if cfg!(debug_assertions) { every_ns.saturating_mul(*SLOWER) } else { every_ns }
}

const SLOWER_BY: &str = "RINGGATE_PAGES_SLOWER";

/// The publishers that were asked to publish once, and have not said so yet.
#[derive(Debug)]
pub struct Roll {
    silent: BTreeMap<usize, String>,
    answers: Receiver<usize>,
    sender: Sender<usize>,
}

/// All that were asked.
#[derive(Debug)]
pub struct Asked {
    silent: BTreeMap<usize, String>,
    answers: Receiver<usize>,
}

impl Asked {
    /// Whether nothing is to be waited for: all have answered, or are gone.
    pub fn is_over(&mut self) -> bool {
        loop {
            match self.answers.try_recv() {
                Ok(number) => drop(self.silent.remove(&number)),
                Err(TryRecvError::Empty) => return self.silent.is_empty(),
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// The names of those that have not answered.
    pub fn silent(self) -> Vec<String> {
        self.silent.into_values().collect()
    }
}

/// What a publisher is given, and answers when it has published.
#[derive(Clone, Debug)]
pub struct Request {
    number: usize,
    sender: Sender<usize>,
}

impl Roll {
    /// Of no publisher yet.
    pub fn new() -> Self {
        let (sender, answers) = mpsc::channel();
        Self { silent: BTreeMap::new(), answers, sender }
    }

    /// The request for the publisher of this name.
    pub fn request(&mut self, name: String) -> Request {
        let number = self.silent.len();
        self.silent.insert(number, name);
        Request { number, sender: self.sender.clone() }
    }

    /// All that are asked have their requests.
    pub fn close(self) -> Asked {
        let Self { silent, answers, .. } = self;
        Asked { silent, answers }
    }
}

impl Default for Roll {
    fn default() -> Self {
        Self::new()
    }
}

impl Request {
    /// It has published.
    pub fn answer(self) {
        // The reader may have given up.
        let _ = self.sender.send(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_did_not_answer_are_named() {
        let mut roll = Roll::new();
        let [first, gone, silent] = ["first", "gone", "silent"].map(|it| roll.request(it.into()));
        let mut asked = roll.close();
        first.answer();
        drop(gone);
        assert!(!asked.is_over(), "one may answer yet");
        drop(silent);
        assert!(asked.is_over(), "nobody is left that could");
        assert_eq!(asked.silent(), ["gone", "silent"]);
    }

    #[test]
    fn it_is_over_when_all_have_answered() {
        let mut roll = Roll::new();
        let kept = roll.request("answers".into());
        let mut asked = roll.close();
        kept.clone().answer();
        assert!(asked.is_over() && asked.silent().is_empty());
        assert!(Roll::new().close().is_over());
    }
}
