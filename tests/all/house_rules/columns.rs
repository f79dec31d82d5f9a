//! Lines of documents: prose keeps to its columns, so that a diff shows what has changed in it.

use super::source::{Source, Violation};

/// Every line of prose that is too wide and could be broken. Tables, headings and code cannot.
pub(crate) fn wide_prose(source: &Source, columns: usize) -> Vec<Violation> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in source.text.split_inclusive('\n') {
        let words = line.trim();
        is_code ^= words.starts_with("```");
        let is_prose = !is_code && !line.starts_with("    ") && !words.starts_with(['|', '#']);
        if is_prose && line.trim_end().chars().count() > columns && can_be_broken(words) {
            let offset = line.as_ptr() as usize - source.text.as_ptr() as usize;
            found
                .push(source.violation(offset, format!("prose is at most {columns} columns wide")));
        }
    }
    found
}

/// Whether there is a space behind the first word that stands in no code.
fn can_be_broken(words: &str) -> bool {
    let words = words.trim_start_matches(['-', '*', ' ']);
    words.split('`').step_by(2).any(|prose| prose.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> usize {
        wide_prose(&Source::new("docs/X.md", text), 20).len()
    }

    #[test]
    fn only_prose_that_could_be_broken_is_too_wide() {
        assert_eq!(wide("Twenty columns of it\n"), 0);
        assert_eq!(wide("Not one more than twenty\n"), 1);
        assert_eq!(wide("- Not one more than twenty\n  of them, in a list either\n"), 2);
        assert_eq!(wide("umlauts: ääääääääääää\n"), 1);
        assert_eq!(wide("umlauts: äääääääääää\n"), 0);
        assert_eq!(wide("| a table | is as wide as it is |\n# So is a heading that is long\n"), 0);
        assert_eq!(wide("    indented code --is --as --it --is\n"), 0);
        assert_eq!(
            wide("```sh\nfenced code --is --as --it --is\n```\nand prose goes on after it\n"),
            1
        );
        assert_eq!(wide("`one piece of code that is long`\n"), 0);
    }
}
