//! Tests of the library. They are one test program, which links the library once; a test's name begins with that of its
//! module: `cargo test -p gmm-mcmc --test library sbc::`.
#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod conjugate;
mod density;
mod diagnostics;
mod resume;
mod sbc;
mod target;
