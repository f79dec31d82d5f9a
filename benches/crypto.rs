//! The batch cipher: our kernels against each other, at every batch size.
//!
//! The comparison with `ring` and `aws-lc-rs` has the same contest and more contenders; it is a
//! package of its own, in `benches/peers`, because these crates are mostly C: one minute of
//! compiling that `cargo test` has no use for.

#[path = "crypto/contest.rs"]
mod contest;
#[path = "support.rs"]
mod support;

fn main() {
    contest::run("crypto", &|_| Vec::new());
}
