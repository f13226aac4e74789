//! The build script of `gmm-host` (kept at the top level by design). Without the feature `rust-cuda` it does nothing:
//! the PTX in `gmm-kernels/ptx` is embedded. With it, rust-cuda compiles the kernels, and that PTX is embedded instead.

#[cfg(not(feature = "rust-cuda"))]
fn main() {
    println!("cargo:rerun-if-changed=../build.rs");
}

#[cfg(feature = "rust-cuda")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::path::{Path, PathBuf};

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("gmm-host has no parent folder")?;
    let config = root.join("rust-cuda.toml");
    for file in ["build.rs", "rust-cuda.toml", "gmm-kernels/Cargo.toml", "gmm-kernels/src"] {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
    let output = PathBuf::from(std::env::var("OUT_DIR")?).join("gmm_kernels.ptx");
    // The cargo that the builder starts inherits neither features nor `--config`, so both are handed on. Line tables,
    // which the workspace's release profile asks for, are for the host only.
    let config = config.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let arguments = ["--features", "rust-cuda", "--config", config, "--config", "profile.release.debug=0"];
    cuda_builder::CudaBuilder::new(root.join("gmm-kernels"))
        .arch(cuda_builder::NvvmArch::Compute80)
        .build_args(&arguments)
        .copy_to(&output)
        .build()
        .map_err(|error| format!("rust-cuda could not compile the kernels: {error}; see docs/rust-cuda.md"))?;
    Ok(())
}
