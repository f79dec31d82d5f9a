//! Reads what the kernel says of itself below a folder, which tests choose.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The files of a host.
#[derive(Debug)]
pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    /// The host whose root is this folder.
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A file's text without the white space around it; `None` where it is not there or may not be
    /// read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// A file that holds one value.
    pub(super) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The last name of what a symbolic link leads to.
    pub(super) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Network cards that are up: those with a device behind them, so neither loopback nor bridges.
    pub(super) fn cards(&self) -> Vec<String> {
        let is_card = |name: &String| {
            let folder = format!("sys/class/net/{name}");
            self.root.join(&folder).join("device").exists()
                && self.text(&format!("{folder}/operstate")).as_deref() != Some("down")
        };
        self.names("sys/class/net").into_iter().filter(is_card).collect()
    }

    /// Processors that this process may run on.
    pub(super) fn processors(&self) -> usize {
        let status = self.text("proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.map_or(1, |list| count_list(list.trim()))
    }

    /// The number in the row and column of a table like `/proc/net/snmp`, in which a row of names
    /// stands before each row of numbers.
    pub(super) fn named(&self, path: &str, row: &str, column: &str) -> Option<u64> {
        let text = self.text(path)?;
        let mut rows = text.lines().filter_map(|line| line.strip_prefix(row));
        let (names, numbers) = (rows.next()?, rows.next()?);
        let at = names.split_whitespace().position(|name| name == column)?;
        numbers.split_whitespace().nth(at)?.parse().ok()
    }
}

/// How many a kernel list like `0-3,8` names.
pub(super) fn count_list(list: &str) -> usize {
    let ends = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').filter_map(ends).sum()
}
