//! Which log lines are told: a level for the whole program, and levels of their own for parts of
//! it. A reload changes them, unless `RINGGATE_LOG` has said so at the start, which goes first.

use std::sync::OnceLock;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
pub use tracing_subscriber::filter::Targets;
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

/// By which levels is logged first: what [the variable](VARIABLE) says goes before a config's word.
/// The error is one sentence.
pub fn first(variable: Option<String>, config: &str) -> Result<Targets, String> {
    let Some(text) = variable.filter(|it| !it.is_empty()) else {
        return Ok(read(config).unwrap_or_default());
    };
    read(&text).map_err(|word| {
        format!(
            "RINGGATE_LOG={text:?}: found {word:?}, expected off, error, warn, info, debug or trace, \
             or PART=LEVEL such as ringgate::control=debug"
        )
    })
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
    let said = std::env::var_os(VARIABLE).filter(|it| !it.is_empty());
    if let (Some(change), None, Ok(targets)) = (CHANGE.get(), said, read(text)) {
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

    #[test]
    fn a_bad_level_is_a_sentence_and_the_variable_goes_first() {
        let sentence = first(Some("ringgate=loud".into()), "").expect_err("no such level");
        assert!(sentence.starts_with("RINGGATE_LOG=\"ringgate=loud\": "), "{sentence}");
        assert!(!sentence.contains('\n'));
        let tells = |targets: Targets| targets.would_enable("ringgate", &tracing::Level::DEBUG);
        assert!(!tells(first(Some("warn".into()), "debug").expect("valid")));
        assert!(tells(first(None, "debug").expect("valid")));
        assert!(tells(first(Some(String::new()), "debug").expect("valid")), "it is not set");
    }
}
