/// Uses the kernels compiled by rust-cuda instead of the committed ones, for the rest of the process. Call it before a
/// CUDA device is used; the program `gmm` does so when it starts.
///
/// # Errors
/// If a kernel was used before.
pub fn use_rust_cuda_kernels() -> std::io::Result<()> {
    gmm_kernels::ptx::replace(include_bytes!(concat!(env!("OUT_DIR"), "/kernels.packed")))
}
