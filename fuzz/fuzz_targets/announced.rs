//! Game processes that announce themselves, in any sequence of events: see `turmoil` in the tests
//! of `src/membership/announced.rs` for what must hold.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the gateway's, of which only the book is used here")]

#[path = "../../src/membership"]
mod membership {
    pub(crate) mod announced;
}
#[path = "../../src/membership/announced/tests"]
mod tests {
    pub(crate) mod turmoil;
}

/// What the rules are made of.
mod config {
    pub(crate) struct Fleet {
        pub(crate) allowed: Allowed,
        pub(crate) max_backends: usize,
        pub(crate) backends_per_process: usize,
        pub(crate) backends_per_user: usize,
        pub(crate) grace: std::time::Duration,
    }

    impl Fleet {
        pub(crate) fn allowed(&self) -> Allowed {
            self.allowed.clone()
        }

        pub(crate) const fn backends_per_user(&self) -> usize {
            self.backends_per_user
        }
    }

    #[derive(Clone)]
    pub(crate) struct Allowed {
        pub(crate) uids: Vec<u32>,
        pub(crate) gids: Vec<u32>,
    }
}

use libfuzzer_sys::fuzz_target;
use membership::announced::{Book, Counted, Handed, OwnedName, Refusal, Rules};

fuzz_target!(|data: &[u8]| {
    tests::turmoil::play(data);
});
