//! What the log was told of an agent, which may repeat itself as fast as it can send: each kind
//! once a second, however many trunks it has one after the other. Of one trunk each name once, and
//! not more names than a reader looks at.

use ringgate_os::sparing::OnceASecond;

/// Of one agent.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) up: OnceASecond,
    pub(crate) down: OnceASecond,
    pub(crate) name_refused: OnceASecond,
    pub(crate) link_failed: OnceASecond,
}

/// Names that were told.
#[derive(Debug, Default)]
pub(crate) struct ToldNames(Vec<String>);

impl ToldNames {
    /// Whether a name is to be told now. One that must wait may come again.
    pub(crate) fn is_news(&mut self, name: &str, told: &OnceASecond) -> bool {
        let is_new = self.0.len() < NAMES_MAX && !self.0.iter().any(|told| told == name);
        let is_news = is_new && told.is_told();
        if is_news {
            self.0.push(name.to_owned());
        }
        is_news
    }
}

const NAMES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_told_once_and_there_is_an_end() {
        let (mut told, mut other) = (ToldNames::default(), ToldNames::default());
        let each = OnceASecond::default;
        assert!(told.is_news("arena-1", &each()) && !told.is_news("arena-1", &each()));
        let news = (0..1000).filter(|number| told.is_news(&format!("b{number}"), &each())).count();
        assert_eq!(news, NAMES_MAX - 1);
        let told = Told::default();
        assert!(told.name_refused.is_told(), "by another trunk of the agent");
        let once = &told.name_refused;
        assert!((0..NAMES_MAX).all(|number| !other.is_news(&format!("b{number}"), once)));
        assert!(other.is_news("b0", &each()), "it was not told");
    }
}
