//! The CUDA backend: found at run time, absent without harm.
mod backend;
mod double;
mod driver;
#[cfg(test)]
mod emulator;
mod estep;
mod evaluator;
mod general;
mod gpu;
mod launch;
mod layout;
mod memory;
mod moments;
mod parameters;
mod ptx;
mod resident;
mod scattered;
mod tuning;
mod variant;
mod walk;
mod whitened;

pub use backend::{CudaEvaluator, CudaOptions, cuda_kernel_names};
pub use gpu::{GpuInfo, cuda_devices};
