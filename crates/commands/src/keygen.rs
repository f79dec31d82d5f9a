//! `ringgate keygen`.

use std::path::PathBuf;

use zeroize::Zeroizing;

use super::Failure;
use super::exit::print;
use super::files::{Existing, write_private};
use ringgate_core::secret::Key;

/// Make a 32-byte key, as 64 hex digits
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the key to this new file, readable by its owner only, instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let key = Key::generate().map_err(Failure::no_random_numbers)?;
    let digits = Zeroizing::new(key.to_hex());
    // A string that grows leaves its old bytes behind, so this one is made with room for the
    // newline.
    let mut text = Zeroizing::new(String::with_capacity(digits.len() + 1));
    text.push_str(&digits);
    text.push('\n');
    let Some(out) = &args.out else { return print(&text) };
    let keep = Existing::Keep(" (--force replaces it)");
    let existing = if args.force { Existing::Replace } else { keep };
    write_private(out, text.as_bytes(), existing)
}
