//! What the log was told of one trunk: each name once, and not more names than a reader looks at.
//! An agent may repeat itself as fast as it can send.

/// Names that were told.
#[derive(Debug, Default)]
pub(crate) struct ToldNames(Vec<String>);

impl ToldNames {
    /// Whether a name is to be told now.
    pub(crate) fn is_news(&mut self, name: &str) -> bool {
        let is_news = self.0.len() < NAMES_MAX && !self.0.iter().any(|told| told == name);
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
        let mut told = ToldNames::default();
        assert!(told.is_news("arena-1") && !told.is_news("arena-1"));
        let news = (0..1000).filter(|number| told.is_news(&format!("b{number}"))).count();
        assert_eq!(news, NAMES_MAX - 1);
    }
}
