//! The backends: each makes an [`Evaluator`](crate::Evaluator) of samples.
pub(crate) mod auto;
pub(crate) mod chunked;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod device_parameters;
pub(crate) mod enough_digits;
pub(crate) mod labelled;
pub(crate) mod lazy;
pub(crate) mod missing;
pub(crate) mod parts;
pub(crate) mod reference;
pub(crate) mod sharded;
