//! What the tests of these packets have in common.

pub(super) mod vectors;
