//! Sums over warps, blocks and slices, in an order that only depends on the launch: the same bits every time.
mod output;
pub mod sets;
pub mod slices;

pub use output::{FINISH_SHARED_BYTES, Output, UNWRITTEN};
