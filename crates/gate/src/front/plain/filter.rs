//! What a plain listener's socket filter lets pass: datagrams of a length that is passed on, which
//! begin as the operator says. Everything that passes is checked again.

use crate::setup::Plain;
use ringgate_batch::filter::{Filter, Rule};
use ringgate_core::limits::PLAIN_BYTES_MAX;

/// The filter of a listener with these rules.
pub(crate) fn filter(rules: &Plain) -> Filter {
    let bytes_min = rules.begins_with.len().max(1);
    let bytes = bytes_min as u16..=PLAIN_BYTES_MAX as u16;
    let rule = match rules.begins_with.as_slice() {
        [] => Rule::new(0..=u8::MAX, bytes),
        [first] => Rule::new(*first..=*first, bytes),
        [first, rest @ ..] => Rule::new(*first..=*first, bytes).with(1, rest),
    };
    Filter::new().allow(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_otherwise_or_is_too_long_does_not_pass() {
        let filter = |begins_with: &[u8]| {
            filter(&Plain { begins_with: begins_with.to_vec(), ..Plain::default() })
        };
        assert!(filter(b"").accepts(b"x") && !filter(b"").accepts(b""));
        assert!(filter(b"").accepts(&[0; PLAIN_BYTES_MAX]));
        assert!(!filter(b"").accepts(&[0; PLAIN_BYTES_MAX + 1]));
        assert!(filter(b"T").accepts(b"TW") && !filter(b"T").accepts(b"W"));
        let three = filter(b"TW0");
        assert!(three.accepts(b"TW0") && !three.accepts(b"TW") && !three.accepts(b"TW1x"));
    }
}
