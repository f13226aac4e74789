//! The CUDA backend. It looks for the driver at run time, so a program with this backend also starts without one.
//!
//! | folder | for | kernels |
//! |---|---|---|
//! | `device/` | driver, memory, streams, launches, the samples on the device | |
//! | `arrays/` | arrays that another library has put into the device's memory | `gmm_kernels::arrays` |
//! | `families.rs`, `plan/` | the choice of kernel and shape for an operation | |
//! | `likelihood/` | totals, totals of many parameter sets, scores | `gmm_kernels::likelihood` |
//! | `estep/` | the E-step in float32, and for some shapes in float64 | `gmm_kernels::estep` |
//! | `general/` | all operations for any shape, in float32 and float64 | `gmm_kernels::general` |
//! | `fit.rs` | whole fits of small mixtures, many in one launch | `gmm_kernels::fit` |
//! | `metropolis/` | random-walk Metropolis without the host | `gmm_kernels::metropolis` |
//! | `missing/` | samples with missing values | `gmm_kernels::patterns`, and the kernels of `likelihood`, `estep` and `general` named `observed` |
//! | `noisy/` | samples that each have their own noise | `gmm_kernels::noisy`, and `posterior` of `general` |
//!
//! Other modules use `evaluator.rs`, which evaluates by `float32/` or `float64.rs`, depending on the samples' type.
mod arrays;
mod device;
#[cfg(test)]
mod emulator;
mod engine;
mod estep;
mod evaluator;
mod families;
pub mod fit;
mod float32;
mod float64;
mod general;
mod likelihood;
mod metropolis;
mod missing;
mod noisy;
mod options;
mod plan;
mod source;

pub use arrays::{DeviceArray, HostArray};
pub use device::driver::use_driver;
pub use device::gpu::Limits;
pub use device::gpu::{GpuInfo, cuda_devices};
pub use device::kernel::{Grid, Kernel, Launch};
pub use device::layout::{stride, transposed};
pub use device::memory::Numbers;
pub use device::queue::{Memory, Queue, Work};
pub use device::require;
pub use device::samples::free_memory;
pub use evaluator::CudaEvaluator;
pub use options::{CudaKernel, CudaOptions, cuda_kernel_names, cuda_kernels};
