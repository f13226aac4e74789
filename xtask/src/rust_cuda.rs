//! Checks the second home of the kernels, as far as a machine without rust-cuda's compiler can.
use std::path::Path;

use anyhow::Result;

use crate::ptx::{cargo, run};

/// Type-checks and lints the kernels against `cuda_std`, whose functions have bodies for the host too.
pub fn check(root: &Path) -> Result<()> {
    run(cargo(root).args(["clippy", "--quiet", "--package=gmm-kernels", "--features=rust-cuda", "--", "-Dwarnings"]))?;
    println!("the kernels type-check against cuda_std");
    Ok(())
}
