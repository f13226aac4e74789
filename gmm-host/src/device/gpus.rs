//! The machine's GPUs as the CUDA backend finds them; a build without it finds none.
pub(crate) use backend::*;

#[cfg(feature = "cuda")]
mod backend {
    use gmm_core::error::Result;
    use gmm_cuda::{cuda_devices, cuda_kernel_names};

    /// Returns the kernels of a device, none if it cannot be used.
    pub fn kernel_names(ordinal: usize) -> Vec<String> {
        let usable = cuda_devices().is_ok_and(|gpus| gpus.get(ordinal).is_some_and(|gpu| gpu.usable().is_ok()));
        if usable { cuda_kernel_names() } else { Vec::new() }
    }

    /// Returns the bytes of a device's memory that samples can take now.
    pub fn free_memory(ordinal: usize) -> Result<u64> {
        Ok(gmm_cuda::free_memory(ordinal)? as u64)
    }

    /// Returns the numbers of the usable devices, at least one.
    pub fn usable() -> Result<Vec<usize>> {
        let gpus = cuda_devices()?;
        let usable: Vec<usize> = (0..gpus.len()).filter(|n| gpus[*n].usable().is_ok()).collect();
        match gpus.first() {
            Some(first) if usable.is_empty() => first.usable().map(|()| usable),
            _ => Ok(usable),
        }
    }

    /// Returns a description of each device, or the reason that it cannot be used.
    pub fn devices() -> Result<Vec<Result<String>>> {
        Ok(cuda_devices()?.into_iter().map(|gpu| gpu.usable().map(|()| gpu.to_string())).collect())
    }
}

#[cfg(not(feature = "cuda"))]
mod backend {
    use gmm_core::error::{Error, Result};

    /// Returns the error of everything that needs a GPU.
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
