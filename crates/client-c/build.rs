//! Gives the shared library the name that programs look for, without which they would look for the
//! path that it was linked at.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if matches!(system.as_str(), "linux" | "freebsd" | "android") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libringgate_client.so.0");
    }
}
