//! The plan of an evaluation: the kernels that can make it, their shapes of launch, and the fastest of these.
//!
//! Each family of kernels declares its abilities ([`family::Family`]), which `gmm devices --kernels` prints.
//! [`families`](super::families) lists the families and the candidates for a task, among which [`timing`] chooses.
pub mod family;
pub mod task;
pub mod timing;
