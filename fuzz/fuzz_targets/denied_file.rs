//! The file of who is denied: any bytes are read or refused with a line's number, and what was read
//! is the same after it was written. Cut off anywhere, what was written is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_state::text;

fuzz_target!(|data: &[u8]| {
    let kept = match text::read(data) {
        Ok(kept) => kept,
        Err(mistake) => {
            assert!(mistake.line >= 1 && mistake.to_string().len() < 600);
            return;
        }
    };
    let written = text::write(&kept);
    assert_eq!(text::read(written.as_bytes()).as_ref(), Ok(&kept));
    let cut = data.len() % written.len();
    assert!(cut == written.len() - 1 || text::read(&written.as_bytes()[..cut]).is_err());
    let mut list = kept.list.clone();
    let before = list.len();
    assert_eq!(list.expire(kept.saved_unix_s), before - list.len());
    assert!(list.next_end().is_none_or(|end| end > kept.saved_unix_s));
    assert_eq!(list.to_denied().is_empty(), list.is_empty());
});
