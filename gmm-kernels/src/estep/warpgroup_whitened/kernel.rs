//! The code of the kernels of warpgroups for matrices.
//!
//! A thread's sums stay in registers only if the compiler knows every index into them: the loops over them are `while` loops
//! with constant bounds, which it unrolls.
mod exponents;
mod operands;
mod respond;
mod second_moments;

use super::*;
use crate::estep::warpgroup::{Places, load2};
use crate::simt::*;
pub use exponents::*;
pub use operands::*;
pub use respond::*;
pub use second_moments::*;

/// Index of the thread. What follows from it is computed anew where it is needed: it would take registers that the sums need.
#[inline(always)]
fn thread() -> u32 {
    opaque(thread_idx())
}

/// The smaller of two numbers.
#[inline(always)]
fn min_usize(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// Writes a sum to memory, or adds it to what is there.
///
/// # Safety
/// The place is valid, and no other thread accesses it.
#[inline(always)]
unsafe fn give(to: *mut f64, sum: f64, add: bool) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let before = if add { load(to) } else { 0.0 };
        store(to, before + sum);
    }
}
