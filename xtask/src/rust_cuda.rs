//! Checks the feature `rust-cuda`, as far as a machine without rust-cuda's compiler can.
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::ptx::{cargo, run};

/// Type-checks and lints the kernels against `cuda_std`, whose functions have bodies for the host too, and type-checks
/// the build script.
///
/// `cuda_builder` itself cannot be compiled here (the release on crates.io is made of a compiler of 2021, the pinned
/// revision needs a nightly), so declarations of what the build script uses stand in for it.
pub fn check(root: &Path) -> Result<()> {
    run(cargo(root).args(["clippy", "--quiet", "--package=gmm-kernels", "--features=rust-cuda", "--", "-Dwarnings"]))?;
    let output = root.join("target/xtask");
    fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    let rustc = || {
        let mut rustc = Command::new("rustc");
        rustc.current_dir(root).args(["--edition=2024", "--emit=metadata", "-Dwarnings", "--out-dir"]).arg(&output);
        rustc
    };
    run(rustc().args(["--crate-type=lib", "--crate-name=cuda_builder", "xtask/cuda_builder/lib.rs"]))?;
    run(rustc()
        .args(["--cfg", "feature=\"rust-cuda\"", "--crate-name=build_script", "build.rs", "-L"])
        .arg(&output)
        .args(["--extern", "cuda_builder"])
        // Cargo sets it for the real build.
        .env("CARGO_MANIFEST_DIR", root.join("gmm-host")))?;
    println!("the kernels type-check against cuda_std, and build.rs against the declarations of cuda_builder");
    Ok(())
}
