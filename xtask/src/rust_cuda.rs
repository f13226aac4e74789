//! Checks of the feature `rust-cuda` that need no rust-cuda compiler.
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::ptx::{cargo, run};

/// Type-checks and lints the kernels against `cuda_std`, whose functions have bodies for the host
/// too; and runs the build script, and compiles what embeds its archive, with a stand-in for
/// `cuda_builder`.
///
/// `cuda_builder` itself cannot be compiled here: the release on crates.io needs a compiler of
/// 2021, and the pinned revision needs a nightly.
pub fn check(root: &Path) -> Result<()> {
    run(cargo(root).args(["clippy", "--quiet", "--package=gmm-kernels", "--features=rust-cuda", "--", "-Dwarnings"]))?;

    // A package with the build script and the source file that embeds its archive, and the files
    // that the build script reads.
    let package = root.join("target/xtask/rust-cuda");
    let write = |file: &str, content: String| {
        let path = package.join(file);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content));
        made.with_context(|| format!("cannot write {}", path.display()))
    };
    let copy = |from: &str, to: &str| {
        let content = fs::read_to_string(root.join(from)).with_context(|| format!("cannot read {from}"))?;
        write(to, content)
    };
    copy("build.rs", "build.rs")?;
    copy("src/rust_cuda.rs", "src/lib.rs")?;
    copy("rust-cuda.toml", "rust-cuda.toml")?;
    copy("gmm-kernels/Cargo.toml", "gmm-kernels/Cargo.toml")?;
    fs::create_dir_all(package.join("gmm-kernels/src"))?;
    // The same versions of all crates as in the workspace.
    copy("Cargo.lock", "Cargo.lock")?;
    write("cuda_builder/Cargo.toml", CUDA_BUILDER.replace("ROOT", &toml(root)))?;
    write("Cargo.toml", PACKAGE.replace("ROOT", &toml(root)))?;
    run(cargo(&package).args(["check", "--quiet", "--features=rust-cuda", "--target-dir"]).arg(root.join("target")))?;
    println!(
        "the kernels type-check against cuda_std; build.rs splits and packs what a stand-in for cuda_builder gives"
    );
    Ok(())
}

/// A path within a string of a manifest, where a backslash would begin an escape.
fn toml(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

const PACKAGE: &str = r#"[package]
name = "rust-cuda-check"
version = "0.0.0"
edition = "2024"

[workspace]

[lints.rust]
warnings = "deny"
missing_docs = "deny"

[features]
rust-cuda = []

[dependencies]
gmm-kernels = { path = "ROOT/gmm-kernels", features = ["ptx"] }

[build-dependencies]
cuda_builder = { path = "cuda_builder" }
gmm-kernels = { path = "ROOT/gmm-kernels", features = ["ptx-build"] }
"#;

const CUDA_BUILDER: &str = r#"[package]
name = "cuda_builder"
version = "0.0.0"
edition = "2024"

[lib]
path = "ROOT/xtask/cuda_builder/lib.rs"
"#;
