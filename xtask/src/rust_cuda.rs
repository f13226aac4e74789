//! Checks of the feature `rust-cuda` that need no rust-cuda compiler.
mod source;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::ptx::{cargo, run};

/// Refuses kernels whose source shows that rust-cuda's compiler would keep registers in local memory. Then type-checks
/// and lints the kernels, in the emulator, against `cuda_std`, whose functions also have bodies for the host, and the
/// test and the benchmark of `pair` against `cust`, whose build script requires a folder of CUDA's libraries, but no
/// file in it. Then builds a package with the build script, its dependencies and the code that embeds its archive, with a
/// stand-in for `cuda_builder`: without the feature and then with it, as a user may.
///
/// The package is built, not only checked, in an empty folder: cargo builds a `cdylib` without a hash in its file name,
/// but checks it with one, so that only a build can fail because a crate is needed with two sets of features.
///
/// `cuda_builder` itself cannot be compiled here: the release on crates.io needs a compiler of 2021, and the pinned
/// revision needs a nightly.
pub fn check(root: &Path) -> Result<()> {
    let problems = source::problems_of(&root.join("gmm-kernels/src"))?;
    if !problems.is_empty() {
        bail!(
            "rust-cuda's compiler would keep registers in local memory (docs/rust-cuda.md):\n  {}",
            problems.join("\n  ")
        );
    }
    let lints = ["--", "-Dwarnings"];
    let of_kernels = ["--package=gmm-kernels", "--features=rust-cuda,emulator"];
    run(cargo(root).args(["clippy", "--quiet"]).args(of_kernels).args(lints))?;

    let cuda = root.join("target/xtask/cuda");
    let libraries = cuda.join("lib64");
    fs::create_dir_all(&libraries).with_context(|| format!("cannot make {}", libraries.display()))?;
    let of_cust = ["--package=gaussmix", "--features=cust", "--test=pair", "--bench=pair"];
    run(cargo(root).args(["clippy", "--quiet"]).args(of_cust).args(lints).env("CUDA_LIBRARY_PATH", cuda))?;

    // A package with the build script, the files that it reads, and the source file that embeds its archive.
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
    copy("src/rust_cuda.rs", "src/rust_cuda.rs")?;
    write("src/lib.rs", LIBRARY.into())?;
    copy("rust-cuda.toml", "rust-cuda.toml")?;
    copy("gmm-kernels/Cargo.toml", "gmm-kernels/Cargo.toml")?;
    fs::create_dir_all(package.join("gmm-kernels/src"))?;
    // The same versions of all crates as in the workspace.
    copy("Cargo.lock", "Cargo.lock")?;
    write("cuda_builder/Cargo.toml", CUDA_BUILDER.replace("ROOT", &toml(root)))?;
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let (_, build_dependencies) =
        manifest.split_once("[build-dependencies]\n").context("Cargo.toml has no [build-dependencies]")?;
    let build_dependencies = build_dependencies.split("\n[").next().unwrap_or_default();
    write("Cargo.toml", PACKAGE.replace("ROOT", &toml(root)) + build_dependencies)?;
    let target = tempfile::tempdir_in(&package)?;
    for features in ["", "rust-cuda"] {
        run(cargo(&package).args(["build", "--quiet", "--features", features, "--target-dir"]).arg(target.path()))?;
    }
    println!(
        "the kernels type-check against cuda_std, what launches `pair` against cust; build.rs, built from \
         nothing, splits and packs what a stand-in for cuda_builder gives"
    );
    Ok(())
}

/// A path for a string in a manifest, where a backslash would begin an escape.
fn toml(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

/// The part of the library that embeds the archive.
const LIBRARY: &str = "//! A stand-in for the top-level crate.
#[cfg(feature = \"rust-cuda\")]
mod rust_cuda;
#[cfg(feature = \"rust-cuda\")]
pub use rust_cuda::use_rust_cuda_kernels;
";

/// Ends with the top-level crate's own build dependencies.
const PACKAGE: &str = r#"[package]
name = "rust-cuda-check"
version = "0.0.0"
edition = "2024"

[workspace]

[workspace.dependencies]
gmm-kernels = { path = "ROOT/gmm-kernels" }
gmm-ptx = { path = "ROOT/gmm-ptx" }

[patch.crates-io]
cuda_builder = { path = "cuda_builder" }

[lints.rust]
warnings = "deny"
missing_docs = "deny"

[profile.dev]
debug = false

[features]
rust-cuda = ["dep:cuda_builder", "dep:gmm-ptx"]

[dependencies]
gmm-kernels = { workspace = true, features = ["ptx"] }

[build-dependencies]
"#;

const CUDA_BUILDER: &str = r#"[package]
name = "cuda_builder"
version = "0.3.0"
edition = "2024"

[lib]
path = "ROOT/xtask/cuda_builder/lib.rs"
"#;
