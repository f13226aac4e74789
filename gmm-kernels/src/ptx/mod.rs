//! The kernels as PTX, the text that a CUDA driver compiles for its GPU.
//!
//! `ptx.zip` holds one text for each kernel, compressed separately, so that a program unpacks, and
//! the driver compiles, only the kernels that are launched. A zip file, because every tool can list
//! and unpack it, and because it keeps a checksum of each text that can be read without unpacking.
//!
//! The feature `ptx` embeds the archive; the feature `ptx-build` has what makes one: [`split`] and
//! [`pack`].
mod archive;
#[cfg(feature = "ptx")]
mod embedded;
#[cfg(feature = "ptx-build")]
mod split;

pub use archive::Archive;
#[cfg(feature = "ptx-build")]
pub use archive::pack;
#[cfg(feature = "ptx")]
pub use embedded::{checksum, entry, names, replace};
#[cfg(feature = "ptx-build")]
pub use split::{BARRIER_MARK, Entry, WARPGROUP_TARGET, split};
