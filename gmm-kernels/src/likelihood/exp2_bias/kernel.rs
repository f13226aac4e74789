use super::*;
use crate::math::{float64, warp_sum};
use crate::reduce::Output;
use crate::simt::*;

/// Argument `i`, rounded to float32 as for the approximate function.
#[inline(always)]
fn argument(i: u32) -> f32 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let multiple = i as f64 * GOLDEN;
    let fraction = multiple - (multiple as u32) as f64;
    (-(1.0 + fraction) - (i % EXPONENTS) as f64) as f32
}

kernel! {
    /// Computes each block's sum of relative errors.
    pub unsafe fn exp2_bias(args: Exp2BiasArgs) {
        let threads = grid_dim() * block_dim();
        let mut i = block_idx() * block_dim() + thread_idx();
        let mut sum = 0.0;
        counted!(for done in 0..args.per_thread {
            let x = argument(i);
            sum += exp2(x) as f64 / float64::exp2(x as f64) - 1.0;
            i += threads;
        });
        // SAFETY: all threads end here, and the shared memory is not in use.
        let sum = Output::block_total(warp_sum(sum));
        if thread_idx() == 0 {
            // SAFETY: a place for each block.
            store(args.partials.add(block_idx() as usize), sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::FINISH_SHARED_BYTES;
    use crate::reduce::sets::ReduceSetsArgs;
    use crate::reduce::sets::kernel::reduce_sets;
    use crate::simt::emulator::{Memory, launch};
    use std::vec;

    /// Each 64th of the fractions gets its share of 2¹⁶ arguments, give or take 3, and every integer part occurs.
    #[test]
    fn arguments_are_spread_evenly() {
        let (mut fractions, mut exponents) = ([0i32; 64], [0; EXPONENTS as usize]);
        for i in 0..1 << 16 {
            let x = f64::from(-argument(i));
            exponents[x as usize - 1] += 1;
            fractions[(x.fract() * 64.0) as usize] += 1;
        }
        assert!(fractions.iter().all(|count| (count - 1024).abs() <= 3), "{fractions:?}");
        assert!(exponents.iter().all(|count| *count > 3000), "{exponents:?}");
    }

    /// The host's 2^x is rounded to nearest: errors up to 2⁻²⁴ = 6·10⁻⁸ of both signs, with a mean of about 10⁻¹⁰.
    #[test]
    fn the_host_has_no_bias() {
        let (grid, block, per_thread) = (8, 64, 128);
        let (mut partials, mut total) = (vec![f64::NAN; grid as usize], vec![f64::NAN]);
        let mut memory = Memory::new();
        let partials = memory.write("partials", &mut partials);
        let totals = memory.write("totals", &mut total);
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((grid, 1), block, FINISH_SHARED_BYTES, &memory, exp2_bias, Exp2BiasArgs { partials, per_thread });
            let args = ReduceSetsArgs { partials, count: grid, totals };
            launch((1, 1), WARP, 0, &memory, reduce_sets, args);
        }
        let mean = total[0] / f64::from(grid * block * per_thread);
        assert!(mean != 0.0 && mean.abs() < 1e-8, "{mean:e}");
    }
}
