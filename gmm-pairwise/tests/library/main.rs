//! Tests of the library without a GPU, linked as one program. A test's name begins with its module's.
#![allow(missing_docs)]
#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod interrupt;
mod memory;
