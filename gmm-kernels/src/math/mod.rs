//! Sums of likelihoods, and the arithmetic that float32 and float64 share.
mod float;
pub mod float64;
mod lanes;
mod log_product;
mod log_sum_exp;
mod weights;

pub use float::Float;
pub use lanes::{ROWS_OF_TILE, butterfly, divided_sums, join_over, multiply64, sum_over};
pub use log_product::{LogProduct, LogProduct64, warp_sum};
pub use log_sum_exp::LogSumExp;
pub use weights::{REACH, ROOT_HALF_LOG2_E, weight_and_seed};

/// The smaller of two numbers; the second if they cannot be compared.
#[inline(always)]
pub(crate) fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { a } else { b }
}
