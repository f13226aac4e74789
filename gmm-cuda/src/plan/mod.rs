//! The plan of an evaluation: the kernels that can make it, their shapes of launch, and the fastest of these.
//!
//! Each family of kernels declares its abilities ([`family::Family`]); `gmm devices --kernels` prints them.
//! [`families`](super::families) lists the families and chooses the candidates for a task, among which [`timing`]
//! chooses.
pub mod family;
pub mod task;
pub mod timing;
