//! The part of rust-cuda's `cuda_builder` that `build.rs` uses, as declared in the revision that `rust-cuda.toml` pins.
//! Only for type-checking `build.rs` where the real one cannot be compiled; nothing is ever built with it.
use std::path::{Path, PathBuf};

pub enum NvvmArch {
    Compute80,
}

pub struct CudaBuilder;

pub type CudaBuilderError = std::fmt::Error;

impl CudaBuilder {
    pub fn new(_path_to_crate_root: impl AsRef<Path>) -> Self {
        Self
    }
    pub fn arch(self, _arch: NvvmArch) -> Self {
        self
    }
    pub fn build_args(self, _args: &[impl AsRef<str>]) -> Self {
        self
    }
    pub fn copy_to(self, _path: impl AsRef<Path>) -> Self {
        self
    }
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        Err(std::fmt::Error)
    }
}
