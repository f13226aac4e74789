//! The kernels as rust-cuda compiled them.

/// Uses the kernels that rust-cuda compiled instead of the committed ones, for the rest of the
/// process. To be called before a CUDA device is used; the program `gmm` calls it when it starts.
///
/// # Errors
/// A kernel was used before.
pub fn use_rust_cuda_kernels() -> std::io::Result<()> {
    gmm_kernels::ptx::replace(include_bytes!(concat!(env!("OUT_DIR"), "/kernels.packed")))
}
