//! Which log lines are told: a level for the whole program, and levels of their own for parts of
//! it. A reload changes them, unless `RINGGATE_LOG` has said so at the start, which goes first.

use std::sync::OnceLock;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::reload;

/// Reads levels. A word that is no level is a mistake and not a part's name: a level that is
/// misspelt would silence every line. The error is that word.
pub fn read(text: &str) -> Result<Targets, &str> {
    let usual = Targets::new().with_default(LevelFilter::INFO);
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).try_fold(
        usual,
        |targets, word| {
            let (part, level) = match word.split_once('=') {
                Some((part, level)) => (Some(part), level),
                None => (None, word),
            };
            let is_named = level.parse::<usize>().is_err() && part != Some("");
            let level: LevelFilter = level.parse().ok().filter(|_| is_named).ok_or(word)?;
            Ok(match part {
                Some(part) => targets.with_target(part, level),
                None => targets.with_default(level),
            })
        },
    )
}

/// What a process logs by from now on, until that is [changed](change).
pub fn changeable<S: Subscriber>(first: Targets) -> reload::Layer<Targets, S> {
    let (layer, handle) = reload::Layer::new(first);
    // A process has one logger.
    let _ = CHANGE.set(Box::new(move |targets| drop(handle.reload(targets))));
    layer
}

/// Logs by other levels, where `RINGGATE_LOG` has not said by which.
pub fn change(text: &str) {
    if let (Some(change), None, Ok(targets)) =
        (CHANGE.get(), std::env::var_os(VARIABLE), read(text))
    {
        change(targets);
    }
}

type Change = Box<dyn Fn(Targets) + Send + Sync>;

static CHANGE: OnceLock<Change> = OnceLock::new();

/// The variable that goes before a config's word.
pub const VARIABLE: &str = "RINGGATE_LOG";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_named() {
        for (text, word) in [
            ("ringgate=loud", "ringgate=loud"),
            ("trce", "trce"),
            ("info,ringgate", "ringgate"),
            ("=info", "=info"),
            ("5", "5"),
            ("info, debg", "debg"),
        ] {
            assert_eq!(read(text).expect_err("no such level"), word);
        }
    }

    #[test]
    fn parts_have_levels_of_their_own() {
        let targets = read("warn, ringgate::control=debug,hyper=off").expect("valid");
        assert!(targets.would_enable("ringgate::control::http", &tracing::Level::DEBUG));
        assert!(!targets.would_enable("ringgate::worker", &tracing::Level::INFO));
        assert!(targets.would_enable("ringgate::worker", &tracing::Level::WARN));
        assert!(!targets.would_enable("hyper", &tracing::Level::ERROR));
        assert!(read("").expect("valid").would_enable("any", &tracing::Level::INFO));
    }
}
