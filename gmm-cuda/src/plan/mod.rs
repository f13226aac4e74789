//! The plan of an evaluation: which kernels can make it, in which shapes of launch, and which of
//! these is the fastest.
//!
//! Each family of kernels says what it can do ([`family::Family`]); `gmm devices --kernels` prints
//! that. [`families`](super::families) is the list of them and chooses the candidates for a task,
//! [`timing`] chooses among these by measured time.
pub mod family;
pub mod task;
pub mod timing;
