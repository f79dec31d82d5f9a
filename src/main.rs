//! arguments -> command; nothing else.
fn main() {}
