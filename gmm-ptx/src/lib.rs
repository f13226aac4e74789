//! The archive of PTX, the text that a CUDA driver compiles for its GPU.
//!
//! The archive holds one text for each kernel, compressed separately, so that a program unpacks,
//! and the driver compiles, only the kernels that are launched. It is a zip file, because every
//! tool can list and unpack it, and because it keeps a checksum of each text that can be read
//! without unpacking. Beside it `machine_code` has archives of what an assembler made of the texts.
mod archive;
#[cfg(feature = "machine-code")]
pub mod machine_code;
#[cfg(feature = "split")]
mod split;

pub use archive::{Archive, pack};
#[cfg(feature = "split")]
pub use split::{BARRIER_MARK, WARPGROUP_TARGET, split};

/// One kernel's PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the kernel.
    pub name: String,
    /// The PTX module that holds this kernel alone.
    pub text: String,
}
