//! The archive of PTX, the text that a CUDA driver compiles for its GPU.
//!
//! The archive holds a text for each kernel, so that the driver compiles only launched kernels; a few neighbours are
//! packed together, so that little else is unpacked. `machine_code` has archives of the assembled texts. Indices are
//! plain text, with a checksum of each kernel's PTX that can be read without unpacking.
mod archive;
pub mod machine_code;
mod packed;
#[cfg(feature = "split")]
mod split;

pub use archive::Archive;
#[cfg(feature = "pack")]
pub use archive::pack;
#[cfg(feature = "split")]
pub use split::{BARRIER_MARK, WARPGROUP_TARGET, split};

/// One kernel's PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name of the kernel.
    pub name: String,
    /// The PTX module with this kernel alone.
    pub text: String,
}

impl Entry {
    /// The CRC-32 of the text, as [`Archive::checksum`] returns it.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32fast::hash(self.text.as_bytes())
    }
}
