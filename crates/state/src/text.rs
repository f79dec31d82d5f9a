//! The file that the list of who is denied is kept in: a line for each rule, for people to read.
//!
//! ```text
//! ringgate denied 1
//! saved 2026-01-31T20:00:00Z
//! deny 198.51.100.7/32 until 2026-02-01T08:00:00Z
//! deny 203.0.113.0/24
//! allow 203.0.113.128/25
//! deny client 42
//! end 4
//! ```
//!
//! Times are in UTC, because the process that reads them is another one. The last line counts the
//! rules, so a file that was cut off is found out. Whatever is wrong makes the whole file
//! unreadable: half a list would let in whom an operator has put out.

use std::fmt;
use std::iter::once;

use crate::denylist::{DenyList, RULES_MAX, Rule, Whom};
use ringgate_os::utc;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Moments are seconds of the Unix epoch.
    pub list: DenyList,
    /// When it was written, by the clock of then.
    pub saved_unix_s: u64,
}

/// The first thing in a file that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// From 1.
    pub line: usize,
    found: String,
    expected: &'static str,
}

/// Writes a list whose moments are seconds of the Unix epoch.
pub fn write(kept: &Kept) -> String {
    let head = format!("{FIRST_LINE}\n{NOTE}\nsaved {}\n", iso(kept.saved_unix_s));
    let lines = kept.list.rules().map(|(whom, rule)| {
        let word = if rule.is_denied { "deny" } else { "allow" };
        let until = rule.until.map_or(String::new(), |until| format!(" until {}", iso(until)));
        format!("{word} {whom}{until}\n")
    });
    let end = format!("end {}\n", kept.list.len());
    once(head).chain(lines).chain(once(end)).collect()
}

/// Reads what [`write()`] has written, or a person.
pub fn read(bytes: &[u8]) -> Result<Kept, Mistake> {
    let text = str::from_utf8(bytes).map_err(|why| {
        let line = bytes[..why.valid_up_to()].split(|it| *it == b'\n').count();
        Mistake { line, found: "bytes that are no text".to_owned(), expected: "UTF-8" }
    })?;
    let mut lines = text.lines().enumerate();
    let first = lines.next().map_or("", |(_, line)| line);
    if first != FIRST_LINE {
        return Err(mistake(0, first, FIRST_LINE));
    }
    let mut saved_unix_s = 0;
    let mut rules = Vec::new();
    let mut is_whole = false;
    let mut last = 0;
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        last = at;
        match line.split_once(' ') {
            _ if is_whole => return Err(mistake(at, line, "nothing behind the line \"end\"")),
            Some(("saved", time)) => {
                saved_unix_s = utc::parse(time).ok_or_else(|| mistake(at, line, SAVED))?;
            }
            Some(("end", count)) if count.parse() == Ok(rules.len()) => is_whole = true,
            Some(("end", _)) => return Err(mistake(at, line, "\"end\" and the number of rules")),
            _ => rules.push(rule(line).ok_or_else(|| mistake(at, line, RULE))?),
        }
    }
    if !is_whole {
        return Err(mistake(
            last,
            "the end of the file",
            "a last line \"end\" with the number of rules",
        ));
    }
    let list = DenyList::of_rules(rules);
    if list.len() > RULES_MAX {
        return Err(mistake(last, "more rules", "100000 at most"));
    }
    Ok(Kept { list, saved_unix_s })
}

fn rule(line: &str) -> Option<(Whom, Rule)> {
    let (word, rest) = line.split_once(' ')?;
    let (whom, until) = match rest.split_once(" until ") {
        Some((whom, until)) => (whom, Some(utc::parse(until)?)),
        None => (rest, None),
    };
    let whom: Whom = whom.parse().ok()?;
    let is_denied = match (word, whom) {
        ("deny", _) => true,
        ("allow", Whom::Prefix(_)) => false,
        _ => return None,
    };
    Some((whom, Rule { is_denied, until }))
}

fn mistake(at: usize, found: &str, expected: &'static str) -> Mistake {
    let is_long = found.chars().nth(FOUND_CHARS_MAX).is_some();
    let shown: String = found.chars().take(FOUND_CHARS_MAX).collect();
    let found = format!("{shown:?}{}", if is_long { " and more" } else { "" });
    Mistake { line: at + 1, found, expected }
}

/// `2026-01-31T20:00:00Z`.
fn iso(unix_s: u64) -> String {
    utc::date(unix_s.min(LAST_SECOND)).replacen(' ', "T", 1).replace(" UTC", "Z")
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: found {}, expected {}", self.line, self.found, self.expected)
    }
}

const FIRST_LINE: &str = "ringgate denied 1";
const NOTE: &str =
    "# Written anew by the gateway at each change. To edit it, stop the gateway first.";
const SAVED: &str = "a time such as 2026-01-31T20:00:00Z";
const RULE: &str =
    "\"deny PREFIX\", \"allow PREFIX\" or \"deny client ID\", perhaps with \"until TIME\"";

/// The last one that has four digits for the year.
const LAST_SECOND: u64 = 253_402_300_799;

const FOUND_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "ringgate denied 1\nsaved 2026-01-31T20:00:00Z\n\
        deny 198.51.100.7/32 until 2026-02-01T08:00:00Z\ndeny 203.0.113.0/24\n\
        allow 203.0.113.128/25\ndeny 2001:db8::/32\ndeny client 42\nend 5\n";

    #[test]
    fn what_is_written_is_read() {
        let kept = read(GOOD.as_bytes()).expect("good");
        assert_eq!((kept.list.len(), kept.saved_unix_s), (5, 1_769_889_600));
        let written = write(&kept);
        assert_eq!(read(written.as_bytes()), Ok(kept));
        let plain: String = written
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|it| [it, "\n"])
            .collect();
        assert_eq!(plain, GOOD);
        let empty = write(&Kept::default());
        assert_eq!(read(empty.as_bytes()), Ok(Kept::default()));
    }

    /// Cut anywhere, it is not taken for a shorter list.
    #[test]
    fn no_part_of_a_file_is_a_file() {
        for len in 0..GOOD.len() - 1 {
            assert!(read(&GOOD.as_bytes()[..len]).is_err(), "{}", &GOOD[..len]);
        }
        assert_eq!(read(&GOOD.as_bytes()[..GOOD.len() - 1]), read(GOOD.as_bytes()));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (bad, said) in [
            ("", "line 1: found \"\", expected ringgate denied 1"),
            (
                "ringgate denied 2\nend 0\n",
                "line 1: found \"ringgate denied 2\", expected ringgate",
            ),
            ("ringgate denied 1\n", "line 1: found \"the end of the file\", expected a last line"),
            ("ringgate denied 1\nend 1\n", "line 2: found \"end 1\", expected \"end\" and the"),
            ("ringgate denied 1\nend 0\nend 0\n", "line 3: found \"end 0\", expected nothing"),
            ("ringgate denied 1\ndeny x\nend 1\n", "line 2: found \"deny x\", expected \"deny PRE"),
            ("ringgate denied 1\nallow client 1\nend 1\n", "line 2: found \"allow client 1\""),
            (
                "ringgate denied 1\n\n# a\nsaved now\nend 0\n",
                "line 4: found \"saved now\", expected a",
            ),
            ("ringgate denied 1\ndeny ::/0 until then\nend 1\n", "line 2: found \"deny ::/0 until"),
        ] {
            let why = read(bad.as_bytes()).expect_err(bad).to_string();
            assert!(why.starts_with(said), "{why}");
        }
        let why = read(b"ringgate denied 1\n\xff\n").expect_err("no text").to_string();
        assert!(why.starts_with("line 2: found bytes"), "{why}");
        let long = format!("ringgate denied 1\n{}\nend 1\n", "x".repeat(1000));
        let why = read(long.as_bytes()).expect_err("no rule").to_string();
        assert!(why.contains("and more") && why.len() < 200, "{why}");
    }

    #[test]
    fn a_person_may_write_it() {
        let text = "ringgate denied 1\n# the office\n\nallow 10.1.2.3\ndeny 10.0.0.1/8\n\
            deny ::ffff:192.0.2.0/120\ndeny client 0x2a until 2030-01-01\nend 4";
        let kept = read(text.as_bytes()).expect("good");
        let again = write(&kept);
        for line in ["deny 10.0.0.0/8\n", "allow 10.1.2.3/32\n", "deny 192.0.2.0/24\n"] {
            assert!(again.contains(line), "{again}");
        }
        assert!(again.contains("deny client 42 until 2030-01-01T00:00:00Z\n"), "{again}");
    }
}
