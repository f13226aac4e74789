//! The code of the kernels of warpgroups for matrices.
//!
//! A thread's sums stay in registers only if the compiler knows every index into them: the loops
//! over them are `while` loops with constant bounds, which it unrolls.
mod exponents;
mod operands;
mod respond;
mod second_moments;

use super::*;
use crate::estep::warpgroup::{Places, give};
use crate::simt::*;
pub use exponents::*;
pub use operands::*;
pub use respond::*;
pub use second_moments::*;

/// The smaller of two numbers.
#[inline(always)]
fn min_usize(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
