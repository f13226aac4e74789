//! The build script of `gmm-host` (kept at the top level by design).
fn main() {
    println!("cargo:rerun-if-changed=../build.rs");
}
