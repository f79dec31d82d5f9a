//! How long a document's sentences are: who reads at night reads short ones.

/// How many words nine of ten sentences have at most: of prose, of lists and of a table's cells.
/// Code is none.
pub(crate) fn words_at_p90(text: &str) -> usize {
    let mut lengths: Vec<_> = sentences(text).collect();
    lengths.sort_unstable();
    let at = (lengths.len() * 9 / 10).min(lengths.len().saturating_sub(1));
    lengths.get(at).copied().unwrap_or(0)
}

/// The length of each that has more than a word.
fn sentences(text: &str) -> impl Iterator<Item = usize> {
    parts(text).into_iter().flat_map(|part| {
        let mut lengths = vec![0];
        for word in part.split_whitespace() {
            *lengths.last_mut().expect("one is there") += 1;
            if word.ends_with(['.', '!', '?']) {
                lengths.push(0);
            }
        }
        lengths.into_iter().filter(|length| *length > 1)
    })
}

/// Paragraphs, items of lists and cells of tables.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let words = line.trim();
        let is_fence = words.starts_with("```");
        is_code ^= is_fence;
        let goes_on = !parts.last().is_some_and(String::is_empty);
        let is_indented = line.starts_with("    ") && !goes_on;
        if is_code || is_fence || is_indented || words.is_empty() || words.starts_with(['#', '<']) {
            parts.push(String::new());
        } else if words.starts_with('|') {
            parts.extend(words.split('|').map(str::to_owned));
            parts.push(String::new());
        } else {
            if is_item(words) {
                parts.push(String::new());
            }
            let part = parts.last_mut().expect("one is there");
            part.push_str(words);
            part.push(' ');
        }
    }
    parts
}

fn is_item(words: &str) -> bool {
    let number = words.trim_start_matches(|letter: char| letter.is_ascii_digit());
    words.starts_with("- ")
        || words.starts_with("* ")
        || number.len() < words.len() && number.starts_with(". ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_prose_lists_and_cells_are_counted_and_code_is_not() {
        let text = "# A heading of many words that is no sentence\n\nOne two.\nThree four five! Word.\n\n\
                    - an item of\n  five words\n1. and one\n\n    code --that is --none at all\n```\nor this one\n```\n\
                    | a cell. of three words | word |\n";
        assert_eq!(sentences(text).collect::<Vec<_>>(), [2, 3, 6, 2, 2, 3]);
    }

    #[test]
    fn one_of_ten_may_be_long() {
        let long = "word ".repeat(40);
        let short = "Two words. ".repeat(9);
        assert_eq!(words_at_p90(&format!("{short}{long}")), 40);
        assert_eq!(words_at_p90(&format!("{short}Two words. {long}")), 2);
        assert_eq!(words_at_p90(""), 0);
    }
}
