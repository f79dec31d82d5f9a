//! Links from one document to another: the file must be there, and the chapter too.

use std::path::{Component, Path, PathBuf};

use super::source::{Source, Violation};

/// Every link of a document that leads nowhere. `read` gives another document's text.
pub(crate) fn dead_links(
    source: &Source,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<Violation> {
    let folder = Path::new(&source.path).parent().expect("a document has a path");
    let is_dead = |(_, link): &(usize, &str)| {
        let (path, chapter) = link.split_once('#').unwrap_or((link, ""));
        let text = match path {
            "" => Some(source.text.clone()),
            path => read(&joined(folder, path)),
        };
        !text.is_some_and(|text| chapter.is_empty() || has_chapter(&text, chapter))
    };
    let violation =
        |(offset, link): (usize, &str)| source.violation(offset, format!("`{link}` leads nowhere"));
    links(&source.text).filter(is_dead).map(violation).collect()
}

/// What stands in the brackets behind a link's text, as far as it is no address of the internet.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("](").filter_map(|(at, opening)| {
        let start = at + opening.len();
        let link = text[start..].split_once(')')?.0;
        let is_ours = !link.contains("://") && !link.contains(char::is_whitespace);
        is_ours.then_some((start, link))
    })
}

fn joined(folder: &Path, path: &str) -> PathBuf {
    let mut all = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => _ = all.pop(),
            part => all.push(part),
        }
    }
    all
}

/// Whether a document has a heading of this name, as pages for Markdown name them.
fn has_chapter(text: &str, chapter: &str) -> bool {
    let mut is_code = false;
    text.lines().any(|line| {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#').strip_prefix(' ');
        let heading = heading.filter(|_| line.starts_with('#') && !is_code);
        heading.is_some_and(|heading| name_of(heading) == chapter)
    })
}

fn name_of(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let name = heading.trim().chars().filter(is_kept).flat_map(char::to_lowercase);
    name.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(text: &str) -> Vec<String> {
        let read = |path: &Path| {
            let path = path.to_str().expect("a name");
            let is_there = ["docs/HERE.md", "README.md"].contains(&path);
            is_there.then(|| "# Here\n```\n# a comment\n```\n## Its `limits`, too".to_owned())
        };
        let source = Source::new("docs/a.md", text);
        dead_links(&source, read).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_or_a_chapter_that_is_gone_is_found_with_its_line() {
        let text = "[a](GONE.md)\n[b](HERE.md#a-comment), [c](#nothing)";
        assert_eq!(
            dead(text),
            [
                "docs/a.md:1: `GONE.md` leads nowhere",
                "docs/a.md:2: `HERE.md#a-comment` leads nowhere",
                "docs/a.md:2: `#nothing` leads nowhere"
            ]
        );
    }

    #[test]
    fn what_leads_somewhere_is_left_alone() {
        let text = "# Own words\n[a](HERE.md#its-limits-too) [b](../README.md) [c](#own-words) \
                    [d](https://a.b/c#d)";
        assert_eq!(dead(text), Vec::<String>::new());
    }
}
