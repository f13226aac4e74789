//! Sums over warps, blocks and slices, in an order that depends on the launch alone: the same bits
//! every time.
mod output;
pub mod sets;
pub mod slices;

pub use output::{FINISH_SHARED_BYTES, Output, UNWRITTEN};
