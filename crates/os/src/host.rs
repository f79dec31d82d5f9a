//! The name of this host, for files that are read elsewhere.

use std::sync::OnceLock;

/// What the kernel calls this host. Read once, because a confined daemon cannot read it later.
pub fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        word(name.trim()).unwrap_or("unknown host").to_owned()
    })
}

/// A name that fits in one line of any file.
fn word(name: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        assert_eq!(word("gate-1.example"), Some("gate-1.example"));
        assert_eq!((word(""), word("a b"), word("a\nb")), (None, None, None));
        assert!(!name().is_empty());
    }
}
