//! A Rust source file as the rules see it: its path, and its code without comments and literals.

use std::fmt;
use std::path::Path;

/// One source file.
pub(crate) struct Source {
    /// Relative to the workspace, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with every comment and literal blanked out, so that words in them are not taken for
    /// code. Offsets and lines are those of the text.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: blank_out(text, Blanked::CommentsAndLiterals),
        }
    }

    /// All files of one kind below the folders, which are relative to `root`. Folders that do not
    /// exist have none.
    pub(crate) fn read_all(root: &Path, folders: &[&str], kind: &str) -> Vec<Self> {
        let mut sources = Vec::new();
        for folder in folders {
            Self::read_folder(root, folder, kind, &mut sources);
        }
        sources
    }

    fn read_folder(root: &Path, folder: &str, kind: &str, sources: &mut Vec<Self>) {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return };
        for entry in entries {
            let entry = entry.expect("the folder can be listed");
            let name = entry.file_name().into_string().expect("source names are UTF-8");
            let path = format!("{folder}/{name}");
            if entry.file_type().expect("the entry has a type").is_dir() {
                Self::read_folder(root, &path, kind, sources);
            } else if Path::new(&name).extension().is_some_and(|ending| ending == kind) {
                let text = std::fs::read_to_string(entry.path()).expect("sources are UTF-8");
                sources.push(Self::new(&path, &text));
            }
        }
    }

    /// What is wrong at `offset` of the code.
    pub(crate) fn violation(&self, offset: usize, message: impl Into<String>) -> Violation {
        let line = 1 + self.text[..offset].matches('\n').count();
        Violation { place: format!("{}:{line}", self.path), message: message.into() }
    }

    /// The code without its unit tests, which may use what the code may not.
    pub(crate) fn shipped_code(&self) -> String {
        self.without_unit_tests(self.code.clone())
    }

    /// How many lines have code on them, literals included, outside unit tests.
    pub(crate) fn shipped_lines(&self) -> usize {
        let text = self.without_unit_tests(blank_out(&self.text, Blanked::Comments));
        text.lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// Blanks in a text what the source's unit tests are in it.
    fn without_unit_tests(&self, mut text: String) -> String {
        let mut at = 0;
        while let Some(found) = self.code[at..].find("#[cfg(test)]") {
            let start = at + found;
            at = end_of_item(&self.code, start);
            blank(&mut text, start, at);
        }
        text
    }

    /// Whether the whole file is unit tests: `foo/tests.rs`, and what lies below `foo/tests/`.
    pub(crate) fn is_unit_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }
}

/// A rule broken at a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) place: String,
    pub(crate) message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Where the item that begins at `start` ends: after its `;`, or after the brace that closes its
/// body.
fn end_of_item(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 1 => depth -= 1,
            b'}' => return offset + 1,
            b';' if depth == 0 => return offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Replaces everything but line ends by spaces.
fn blank(code: &mut String, start: usize, end: usize) {
    let spaces: String =
        code[start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    code.replace_range(start..end, &spaces);
}

/// What of a text that is no code is blanked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanked {
    Comments,
    CommentsAndLiterals,
}

/// Blanks comments, and strings and characters where that is wanted.
fn blank_out(text: &str, blanked: Blanked) -> String {
    let mut code = text.to_owned();
    let mut at = 0;
    while at < text.len() {
        let Some(end) = literal_or_comment(text, at) else {
            at += 1;
            continue;
        };
        if blanked == Blanked::CommentsAndLiterals || text[at..].starts_with('/') {
            blank(&mut code, at, end);
        }
        at = end;
    }
    code
}

/// Where the comment or literal that begins at `at` ends, if one does.
fn literal_or_comment(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let length = match rest.as_bytes()[0] {
        b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
        b'/' if rest.starts_with("/*") => block_comment(rest),
        b'"' => 1 + quoted(&rest[1..], '"'),
        b'\'' => character(rest)?,
        b'r' if !ends_in_word(&text[..at]) => raw_string(rest)?,
        _ => return None,
    };
    Some(at + length)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest.as_bytes()[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.as_bytes()[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length up to and including the closing quote.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (offset, character) in rest.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return offset + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut inside = rest[1..].chars();
    let first = inside.next()?;
    if first == '\\' || inside.next() == Some('\'') {
        return Some(1 + quoted(&rest[1..], '\''));
    }
    None
}

/// The length of a raw string; `None` for a name that begins with `r`, and for `r#name`.
fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest[1..].bytes().take_while(|&byte| byte == b'#').count();
    let body = rest[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&close).map_or(rest.len(), |end| 2 + hashes + end + close.len()))
}

/// Whether a name would go on here. The `b` and `c` of `br"…"` and `cr"…"` are not part of one.
fn ends_in_word(before: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let tail: Vec<u8> = before.bytes().rev().take_while(word).collect();
    !tail.is_empty() && tail != b"b" && tail != b"c"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank_and_code_is_not() {
        let text = concat!(
            "let a = \"todo!() \\\" crate::x\"; // todo!()\n",
            "let b = br#\"a \" quote todo!()\"#; /* todo!() /* nested */ todo!() */ let r = 1;\n",
            "let c = '\"'; let d: &'static str = '\\''; letter\"todo!()\"; done();\n",
        );
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len());
        assert!(!source.code.contains("todo"), "{}", source.code);
        for kept in ["let a =", "let b = b", "let r = 1;", "&'static str", "letter", "done();"] {
            assert!(source.code.contains(kept), "{kept} is missing in {}", source.code);
        }
    }

    #[test]
    fn unit_tests_are_no_shipped_code() {
        let text = "#[cfg(test)]\nmod tests;\nuse a;\n#[cfg(test)]\nmod tests { fn x() { b } }\nc";
        let code = Source::new("a.rs", text).shipped_code();
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["use", "a;", "c"]);
    }

    #[test]
    fn lines_with_code_or_literals_are_counted_and_no_others() {
        let text = "//! Why.\n\nuse a; // b\nlet a = \"\n//\n\";\n/* c\n*/\n#[cfg(test)]\nmod t {\n\"d\"\n}";
        assert_eq!(Source::new("a.rs", text).shipped_lines(), 4);
    }

    #[test]
    fn a_violation_names_its_line() {
        let source = Source::new("a/b.rs", "one\ntwo\nthree\n");
        assert_eq!(source.violation(5, "no").to_string(), "a/b.rs:2: no");
    }
}
