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
        let (threads, rows, k, d) = (block_dim(), args.rows, args.k, args.d);
        // Samples of the block, and the row and sample of this thread.
        let samples = threads / rows;
        let (row, sample) = (thread_idx() / samples, thread_idx() % samples);
        // The quad that this thread copies, of every so many features the first.
        let quads = samples / QUAD as u32;
        let (copied_feature, copied_quad) = (thread_idx() / quads, thread_idx() % quads);
        // Shared memory: (rows, samples) maxima and sums, (rows, STEP, 2) parameters, (STEP, samples) samples.
        let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let sums = maxima.offset(threads as usize);
        let parameters = sums.offset(threads as usize).offset(2 * STEP * row as usize);
        let x = sums.offset((threads + 2 * STEP as u32 * rows) as usize);
        let mut product = LogProduct::new();
        let mut first = block_idx() as u64 * samples as u64;
        // The bounds of the loops with barriers are the same for all threads of a block, so that all of them meet.
        while first < args.n {
            let i = first + sample as u64;
            let copied = first + QUAD as u64 * copied_quad as u64;
            let mut sum = LogSumExp::new();
            let mut component = row;
            while component < k + row {
                let p = args.parameters.wrapping_add(component as usize * (2 * d as usize + 2));
                // SAFETY: the component exists. Behind the last there is a weight of zero.
                let (w, mut q) = unsafe {
                    if component < k { (load(p.add(2 * d as usize)), load(p.add(2 * d as usize + 1))) } else { (0.0, 0.0) }
                };
                let mut start = 0;
                while start < d {
                    let features = if d - start < STEP as u32 { d - start } else { STEP as u32 };
                    barrier!();
                    let mut v = sample;
                    while component < k && v < 2 * features {
                        // SAFETY: the component exists; all threads are done with what was there.
                        unsafe { parameters.set(v as usize, load(p.add((2 * start + v) as usize))) };
                        v += samples;
                    }
                    let mut f = copied_feature;
                    while copied < args.n && f < features {
                        // SAFETY: the quad begins before N, so that it exists; all threads are done with what was there.
                        unsafe {
                            let from = args.x.wrapping_add((start + f) as usize * args.stride as usize + copied as usize);
                            x.set4((f * samples) as usize + QUAD * copied_quad as usize, load_f32x4(from));
                        }
                        f += QUAD as u32 * rows;
                    }
                    barrier!();
                    let mut f = 0;
                    while f < features {
                        // SAFETY: within the step. What was not copied belongs to no component or sample, and is not counted.
                        unsafe {
                            let [s, m] = parameters.get_some::<2>(2 * f as usize);
                            let t = fma(s, x.get((f * samples + sample) as usize), m);
                            q = fma(-t, t, q);
                        }
                        f += 1;
                    }
                    start += STEP as u32;
                }
                sum.add(w, q);
                component += rows;
            }
            // SAFETY: a place for each thread; the barriers separate the writes from the reads.
            unsafe {
                maxima.set(thread_idx() as usize, sum.max);
                sums.set(thread_idx() as usize, sum.sum);
                barrier!();
                if row == 0 && i < args.n {
                    let mut other = sample + samples;
                    while other < threads {
                        sum.merge(LogSumExp { max: maxima.get(other as usize), sum: sums.get(other as usize) });
                        other += samples;
                    }
                    product.multiply_scaled(sum.max, sum.sum);
                    if !args.samples.is_null() {
                        store(args.samples.add(i as usize), sum.log2());
                    }
                }
            }
            first += grid_dim() as u64 * samples as u64;
        }
        // SAFETY: all threads end here, with the start of the shared memory unused.
        unsafe { args.output.finish(product) };
    }
}
