//! When a process writes its own key anew.

/// What a process says of itself besides what it holds back.
pub trait Facts: Clone {
    /// Whether others have to know this where that was written so long ago.
    fn is_news(&self, written: &Self, age_ms: u64) -> bool;
}

/// For those that have nothing to say but that they are there.
impl Facts for () {
    fn is_news(&self, (): &Self, _age_ms: u64) -> bool {
        false
    }
}

/// What a process holds back until an operator confirms it, as others are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubted {
    /// Its number; 0 for nothing.
    pub number: u64,
    /// What it is about, in a word or two for each kind.
    pub held: Vec<String>,
}

/// What was written of a process at its own key, and when.
#[derive(Clone, Debug)]
pub struct Own<F> {
    written: Option<(F, Doubted, u64)>,
}

/// Nothing yet.
impl<F> Default for Own<F> {
    fn default() -> Self {
        Self { written: None }
    }
}

impl<F: Facts> Own<F> {
    /// Whether what would be written now is another thing, or what is written an old one.
    pub fn is_due(&self, facts: &F, doubted: &Doubted, now_ms: u64) -> bool {
        let Some((written, before, at_ms)) = &self.written else { return true };
        let age_ms = now_ms.saturating_sub(*at_ms);
        doubted != before || age_ms >= AGE_MS_MAX || facts.is_news(written, age_ms)
    }

    /// This is written now.
    pub fn wrote(&mut self, facts: F, doubted: Doubted, now_ms: u64) {
        self.written = Some((facts, doubted, now_ms));
    }

    /// What is written, and since when.
    pub fn written(&self) -> Option<(&F, u64)> {
        self.written.as_ref().map(|(facts, _, at_ms)| (facts, *at_ms))
    }
}

/// So that others see that the process is not stuck, and how far its clock is from theirs.
const AGE_MS_MAX: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_written_at_once_and_the_clock_each_minute() {
        let mut own = Own::default();
        let (nothing, doubted) = (Doubted::default(), |number, held: &[&str]| Doubted {
            number,
            held: held.iter().map(|&it| it.to_owned()).collect(),
        });
        assert!(own.is_due(&(), &nothing, 0) && own.written().is_none());
        own.wrote((), nothing.clone(), 5);
        assert_eq!(own.written(), Some((&(), 5)));
        assert!(!own.is_due(&(), &nothing, 60_004) && own.is_due(&(), &nothing, 60_005));
        assert!(own.is_due(&(), &doubted(1, &["bans"]), 6));
        own.wrote((), doubted(1, &["bans"]), 6);
        assert!(!own.is_due(&(), &doubted(1, &["bans"]), 7));
        assert!(own.is_due(&(), &doubted(1, &["bans", "keys"]), 7), "more of it");
        assert!(own.is_due(&(), &nothing, 7), "it is believed");
    }
}
