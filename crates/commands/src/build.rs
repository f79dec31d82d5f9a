//! What this program was built from. `--version` tells it, because builds of one version differ.

use std::sync::LazyLock;

/// Version, commit and kind of build.
pub static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    let kind = if cfg!(debug_assertions) { "debug" } else { "release" };
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    format!("{version}\ncommit {COMMIT}\nbuild {kind}, {arch}, {os}")
});

/// Who builds a package says which commit it is of; reading it from a repository would build the
/// daemon anew after each commit.
const COMMIT: &str = match option_env!("RINGGATE_COMMIT") {
    Some(commit) => commit,
    None => "unknown (set RINGGATE_COMMIT when building)",
};
