//! The archive of PTX, the text that a CUDA driver compiles for its GPU.
//!
//! The archive holds one text for each kernel, so that the driver compiles only the kernels that
//! are launched; a few neighbours are packed together, so that a program unpacks little besides.
//! Beside it `machine_code` has archives of what an assembler made of the texts. Their indices are
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
    /// Name of the kernel.
    pub name: String,
    /// The PTX module that holds this kernel alone.
    pub text: String,
}

impl Entry {
    /// The CRC-32 of the text, as [`Archive::checksum`] returns it.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32fast::hash(self.text.as_bytes())
    }
}
