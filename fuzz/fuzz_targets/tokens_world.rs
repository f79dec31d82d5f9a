//! Services that share a fleet's slots, in any sequence of events, and journals of any bytes: see
//! `World` in the token service's tests for what must hold.
#![no_main]
#![allow(dead_code, reason = "the service's, without what serves it, and its tests'")]

#[path = "../../crates/tokens/src/book.rs"]
mod book;
#[path = "../../crates/tokens/src/choose.rs"]
mod choose;
#[path = "../../crates/tokens/src/claims.rs"]
mod claims;
#[path = "../../crates/tokens/src/desk.rs"]
mod desk;
#[path = "../../crates/tokens/src/journal.rs"]
mod journal;
#[path = "../../crates/tokens/src/known.rs"]
mod known;
#[path = "../../crates/tokens/src/ledger.rs"]
mod ledger;
#[path = "../../crates/tokens/src/limits.rs"]
mod limits;
#[path = "../../crates/tokens/src/promise.rs"]
mod promise;
#[path = "../../crates/tokens/src/random.rs"]
mod random;
#[path = "../../crates/tokens/src/refusal.rs"]
mod refusal;
#[allow(unused_imports, reason = "what only the tests beside need")]
#[path = "../../crates/tokens/src/tests"]
mod tests {
    pub(crate) mod fleet;
    pub(crate) mod joins;
    pub(crate) mod journal;
    pub(crate) mod slots;
}
#[path = "../../crates/tokens/src/wanted.rs"]
mod wanted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind == b'j' {
        return read(rest);
    }
    tests::slots::play(data);
});

/// A journal of any bytes: what was read of it is written so that the same is read, whole and cut
/// anywhere.
fn read(bytes: &[u8]) {
    let mut promised = Vec::new();
    let whole = journal::take_records(bytes, &mut promised);
    assert!(whole.is_err() || whole.is_ok_and(|whole| whole <= bytes.len()));
    let written: Vec<_> = promised.iter().flat_map(|it| it.record()).collect();
    for cut in [written.len(), written.len().saturating_sub(1), usize::from(bytes.len() as u8)] {
        let cut = &written[..cut.min(written.len())];
        let mut again = Vec::new();
        let whole = journal::take_records(cut, &mut again).expect("records that may be torn");
        assert!(whole <= cut.len() && promised.starts_with(&again));
        assert!(whole < written.len() || again == promised);
    }
}
