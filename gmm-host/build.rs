//! Tells the linker where the stand-in for the CUDA driver library is
//! (src/backends/cuda/device/driver.rs explains it), and to export what it can from the tests, for
//! tests/library/driver_symbols.rs.
use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo sets both.
    if env::var_os("CARGO_FEATURE_CUDA").is_some()
        && let Some(package) = env::var_os("CARGO_MANIFEST_DIR")
    {
        println!("cargo::rustc-link-search=native={}", PathBuf::from(package).join("driver-stub/lib64").display());
        if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
            println!("cargo::rustc-link-arg-tests=-rdynamic");
        }
    }
}
