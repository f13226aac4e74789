//! The kernels as PTX: they are part of `gmm-kernels`.
pub(crate) use gmm_kernels::ptx::{checksum, entry as ptx_for};
