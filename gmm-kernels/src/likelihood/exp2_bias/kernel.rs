//! The code of `exp2_bias`.
use super::*;
use crate::math::{float64, warp_sum};
use crate::reduce::Output;
use crate::simt::*;

/// Argument number `i`, rounded to float32 as the arguments of the approximate function are.
#[inline(always)]
fn argument(i: u32) -> f32 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let multiple = i as f64 * GOLDEN;
    let fraction = multiple - (multiple as u32) as f64;
    (-(1.0 + fraction) - (i % EXPONENTS) as f64) as f32
}

kernel! {
    /// Each block's sum of relative errors.
    ///
    /// # Safety
    /// `args.partials` has gridDim.x places; launched as the module says.
    pub unsafe fn exp2_bias(args: Exp2BiasArgs) {
        let threads = grid_dim() * block_dim();
        let mut i = block_idx() * block_dim() + thread_idx();
        let mut sum = 0.0;
        let mut done = 0;
        while done < args.per_thread {
            let x = argument(i);
            sum += exp2(x) as f64 / float64::exp2(x as f64) - 1.0;
            i += threads;
            done += 1;
        }
        // SAFETY: all threads end here, and the shared memory is not in use.
        let sum = unsafe { Output::block_total(warp_sum(sum)) };
        if thread_idx() == 0 {
            // SAFETY: a place for each block.
            unsafe { store(args.partials.add(block_idx() as usize), sum) };
        }
    }
}
