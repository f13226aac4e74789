//! Tests of the library without a GPU, in one program, which links the library once. A test's name begins with its
//! module's.
#![allow(missing_docs)]
#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod interrupt;
mod memory;
