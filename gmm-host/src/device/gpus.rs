//! The GPUs of the machine, as the CUDA backend finds them; in a build without it there are none.
pub(crate) use backend::*;

#[cfg(feature = "cuda")]
mod backend {
    use gmm_core::error::Result;
    use gmm_cuda::{cuda_devices, cuda_kernel_names};

    /// The kernels of a device; none for one that cannot be used.
    pub fn kernel_names(ordinal: usize) -> Vec<String> {
        let usable = cuda_devices().is_ok_and(|gpus| gpus.get(ordinal).is_some_and(|gpu| gpu.usable().is_ok()));
        if usable { cuda_kernel_names() } else { Vec::new() }
    }

    /// The bytes of a device's memory that samples can take now.
    pub fn free_memory(ordinal: usize) -> Result<u64> {
        Ok(gmm_cuda::free_memory(ordinal)? as u64)
    }

    /// The numbers of the devices that can be used, of which there is at least one.
    pub fn usable() -> Result<Vec<usize>> {
        let gpus = cuda_devices()?;
        let usable: Vec<usize> = (0..gpus.len()).filter(|n| gpus[*n].usable().is_ok()).collect();
        match gpus.first() {
            Some(first) if usable.is_empty() => first.usable().map(|()| usable),
            _ => Ok(usable),
        }
    }

    /// A description of each device, or why it cannot be used.
    pub fn devices() -> Result<Vec<Result<String>>> {
        Ok(cuda_devices()?.into_iter().map(|gpu| gpu.usable().map(|()| gpu.to_string())).collect())
    }
}

#[cfg(not(feature = "cuda"))]
mod backend {
    use gmm_core::error::{Error, Result};

    /// The error of everything that needs a GPU.
    pub fn absent() -> Error {
        Error::NoCudaDevice { reason: "this build has no CUDA backend".into() }
    }

    pub fn kernel_names(_: usize) -> Vec<String> {
        Vec::new()
    }

    pub fn free_memory(_: usize) -> Result<u64> {
        Err(absent())
    }

    pub fn usable() -> Result<Vec<usize>> {
        Err(absent())
    }

    pub fn devices() -> Result<Vec<Result<String>>> {
        Err(absent())
    }
}
