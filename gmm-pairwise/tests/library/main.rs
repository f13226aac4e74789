//! Tests of what the library offers, without a GPU. They are one test program, which links the
//! library once; a test's name begins with that of its module.
#![allow(missing_docs)]
#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod interrupt;
mod memory;
