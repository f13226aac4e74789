//! The code of `pair`.
use super::*;
use crate::data::QUAD;
use crate::math::{LogProduct, LogSumExp};
use crate::simt::*;

kernel! {
    /// Total log₂-likelihood, and each sample's where asked for.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn pair(args: PairArgs) {
        const SAMPLES: usize = WARP as usize;
        let (rows, k, d) = (block_dim() / WARP, args.k, args.d);
        // A warp for each component, a lane for each sample.
        let (row, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
        // The quad that this thread copies, of every so many features the first. The last warps begin, because the first is still
        // putting the samples before together.
        let (quads, copier) = ((SAMPLES / QUAD) as u32, block_dim() - 1 - thread_idx());
        let (copied_feature, copied_quad) = (copier / quads, QUAD as u64 * (copier % quads) as u64);
        // Shared memory: (rows, SAMPLES) maxima and sums, (rows, STEP, 2) parameters, (STEP, SAMPLES) samples.
        let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES).offset(lane);
        let sums = maxima.offset(block_dim() as usize);
        let parameters = Shared::<f32>::at(FINISH_SHARED_BYTES).offset((2 * block_dim() + 2 * STEP as u32 * row) as usize);
        let x = Shared::<f32>::at(FINISH_SHARED_BYTES).offset((2 * block_dim() + 2 * STEP as u32 * rows) as usize);
        // Whether one copy of the parameters serves for all samples.
        let constant = k <= rows && d <= STEP as u32;
        let mut copied = false;
        let (mut w, mut seed) = (0.0, 0.0);
        let mut product = LogProduct::new();
        let mut first = block_idx() as u64 * SAMPLES as u64;
        // The bounds of the loops with barriers are the same for all threads of a block, so that all of them meet.
        while first < args.n {
            let mut sum = LogSumExp::new();
            let mut component = row;
            while component - row < k {
                let mut q = 0.0;
                let mut start = 0;
                while start < d {
                    // All threads are done with the samples before; with the step before they may not be.
                    if start > 0 || component > row {
                        barrier!();
                    }
                    if !(constant && copied) {
                        let p = args.parameters.wrapping_add(component as usize * (2 * d as usize + 2));
                        // Behind the last feature and the last component there are zeros.
                        let left = if component < k { 2 * (d - start) as usize } else { 0 };
                        // SAFETY: the component exists where anything is left; all threads are done with what was there.
                        unsafe {
                            parameters.set(lane, if lane < left { load(p.add(2 * start as usize + lane)) } else { 0.0 });
                            w = if left > 0 { load(p.add(2 * d as usize)) } else { 0.0 };
                            seed = if left > 0 { load(p.add(2 * d as usize + 1)) } else { 0.0 };
                        }
                        copied = true;
                    }
                    let mut f = copied_feature;
                    while f < STEP as u32 {
                        // In the place of a feature or quad that does not exist comes the last one, and is not counted.
                        let feature = if start + f < d { start + f } else { d - 1 };
                        let quad = if first + copied_quad < args.n { first + copied_quad } else { (args.n - 1) & !(QUAD as u64 - 1) };
                        let from = args.x.wrapping_add(feature as usize * args.stride as usize + quad as usize);
                        // SAFETY: the feature exists, and the quad begins before N; all threads are done with what was there.
                        unsafe { x.set4(f as usize * SAMPLES + copied_quad as usize, load_f32x4(from)) };
                        f += QUAD as u32 * rows;
                    }
                    barrier!();
                    let mut f = 0;
                    while f < STEP {
                        // SAFETY: within the step.
                        let ([s0, m0, s1, m1], x0, x1) = unsafe {
                            (parameters.get4(2 * f), x.get(f * SAMPLES + lane), x.get((f + 1) * SAMPLES + lane))
                        };
                        let (t0, t1) = (fma(s0, x0, m0), fma(s1, x1, m1));
                        q = fma(-t1, t1, fma(-t0, t0, q));
                        f += 2;
                    }
                    start += STEP as u32;
                }
                sum.add(w, seed + q);
                component += rows;
            }
            // SAFETY: a place for each thread; the barriers separate the writes from the reads.
            unsafe {
                maxima.set(row as usize * SAMPLES, sum.max);
                sums.set(row as usize * SAMPLES, sum.sum);
                barrier!();
                let i = first + lane as u64;
                if row == 0 && i < args.n {
                    let mut other = SAMPLES;
                    while other < block_dim() as usize {
                        sum.merge(LogSumExp { max: maxima.get(other), sum: sums.get(other) });
                        other += SAMPLES;
                    }
                    product.multiply_scaled(sum.max, sum.sum);
                    if !args.samples.is_null() {
                        store(args.samples.add(i as usize), sum.log2());
                    }
                }
            }
            first += grid_dim() as u64 * SAMPLES as u64;
        }
        // SAFETY: all threads end here, with the start of the shared memory unused.
        unsafe { args.output.finish(product) };
    }
}
