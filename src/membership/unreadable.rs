//! Keys in etcd that cannot be read, and how often the log hears of them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use ringgate_fleet::keyspace::KEY_BYTES_MAX;
use ringgate_os::sparing::OnceASecond;

/// Keys in etcd that are left out, because they cannot be read. Who may write there needs nothing
/// else to write as often as it likes: one that is written again is no news, and of many at a time
/// the log has one. `ringgate fleet doctor` names all.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    keys: BTreeSet<Bytes>,
    told: OnceASecond,
}

impl Unreadable {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// What came of reading a key. Whether the log has it.
    pub(crate) fn note(&mut self, key: &Bytes, read: Result<(), String>) -> bool {
        let Err(why) = read else {
            self.keys.remove(key);
            return false;
        };
        let is_told = self.keys.insert(key.clone()) && self.told.is_told();
        if is_told {
            let key = shown(key);
            tracing::warn!(
                event = "fleet_value_refused",
                key = %key.escape_debug(),
                why,
                "a key in etcd is left out: {why}"
            );
        }
        is_told
    }
}

/// As much of a key as one of the fleet has.
fn shown(key: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_written_again_and_again_is_told_once() {
        let mut unreadable = Unreadable::default();
        let long = Bytes::from(vec![b'k'; 1 << 20]);
        let bad = || Err("no key of a fleet".to_owned());
        let told = (0..1000).filter(|_| unreadable.note(&long, bad())).count();
        assert_eq!((told, unreadable.len()), (1, 1));
        assert_eq!(shown(&long).len(), KEY_BYTES_MAX);
        // Another one is known, and told if a second has passed by now.
        unreadable.note(&Bytes::from_static(b"other"), bad());
        assert_eq!(unreadable.len(), 2);
        assert!(!unreadable.note(&long, Ok(())));
        assert_eq!(unreadable.len(), 1);
    }
}
