//! With the feature `rust-cuda`, compiles the kernels with rust-cuda and packs them, one by one, into an archive that
//! replaces the committed one (src/rust_cuda.rs embeds it). Without the feature it does nothing.

#[cfg(not(feature = "rust-cuda"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "rust-cuda")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use cuda_builder::{CudaBuilder, NvvmArch};
    use gmm_ptx::{pack, split};
    use std::path::PathBuf;
    use std::{env, fs};

    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    for file in ["build.rs", "rust-cuda.toml", "gmm-kernels/Cargo.toml", "gmm-kernels/src"] {
        println!("cargo::rerun-if-changed={file}");
        if !root.join(file).exists() {
            return Err(
                format!("the feature `rust-cuda` compiles {file}, which only a clone of the repository has").into()
            );
        }
    }
    let config = root.join("rust-cuda.toml");
    let config = config.to_str().ok_or("the path of the repository is not UTF-8")?;
    // The cargo that the builder starts inherits neither features nor `--config`, so both are passed on.
    let arguments = [
        "--features",
        "rust-cuda",
        "--config",
        config,
        // At higher levels rustc unrolls inner loops itself, and then LLVM 7 leaves the outer ones
        // rolled, with their arrays in memory. For the kernels alone: rust-cuda's libm needs the
        // higher levels.
        "--config",
        "profile.release.package.gmm-kernels.opt-level=1",
    ];
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let module = out.join("gmm_kernels.ptx");
    CudaBuilder::new(root.join("gmm-kernels"))
        .arch(NvvmArch::Compute80)
        .build_args(&arguments)
        .copy_to(&module)
        .build()
        .map_err(|error| format!("rust-cuda could not compile the kernels: {error}; see docs/rust-cuda.md"))?;
    let kernels = split(&fs::read_to_string(&module)?, "rust-cuda")?;
    let archive = out.join("kernels.packed");
    fs::write(&archive, pack(&kernels)?)?;
    // Named, so that the tests of gmm-host can use it too.
    println!("cargo::warning={} kernels by rust-cuda in {}", kernels.len(), archive.display());
    Ok(())
}
