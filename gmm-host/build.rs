//! Exports what it can from the tests, for tests/library/driver_symbols.rs.
use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo sets both.
    if env::var_os("CARGO_FEATURE_CUDA").is_some()
        && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux")
    {
        println!("cargo::rustc-link-arg-tests=-rdynamic");
    }
}
