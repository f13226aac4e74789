use super::*;
use crate::math::{LogProduct, LogSumExp, smaller};
use crate::simt::*;

kernel! {
    /// Computes the total log₂-likelihood, and each sample's if wanted.
    pub unsafe fn pair(args: PairArgs) {
        // The block has one warp per component, with one lane per sample.
        let (warps, warp, lane) = (block_dim() / WARP, thread_idx() / WARP, thread_idx() % WARP);
        let (n, k, d, stride) = (args.n as usize, args.k, args.d as usize, args.stride as usize);
        let step = (grid_dim() * WARP) as usize;

        // Shared memory: the features of 32 samples and each thread's log density, twice: one is read, the other
        // filled.
        let mut samples = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let mut next_samples = samples.offset(d * WARP as usize);
        let mut densities = next_samples.offset(d * WARP as usize);
        let mut next_densities = densities.offset(block_dim() as usize);
        let mut product = LogProduct::new();

        let policy = policy_stream();
        let fetch = |first: usize, place: Shared<f32>| {
            // Four samples at a time: each of the D columns has eight such quads.
            counted!(for quad in (thread_idx() as usize..8 * d).step_by(block_dim() as usize) {
                let sample = first + 4 * (quad % 8);
                if sample < n {
                    // SAFETY: columns extend to whole quads; nothing reads the place now.
                    place.copy4(4 * quad, args.x.add(quad / 8 * stride + sample), policy);
                }
            });
            copies_commit();
        };

        // A block takes 32 samples at a time, and one component per warp.
        let mut first_sample = (block_idx() * WARP) as usize;
        fetch(first_sample, samples);
        while first_sample < n {
            let i = first_sample + lane as usize;
            fetch(first_sample + step, next_samples);
            copies_wait_but_one();
            barrier!();
            let mut sum = LogSumExp::new();
            let mut first_component = 0;
            while first_component < k {
                // 1. Each thread: the log density of its pair, seed − Σⱼ (sⱼ·xⱼ + mⱼ)².
                if i < n && first_component + warp < k {
                    let p = component(args.parameters, first_component + warp, d);
                    let mut q = 0.0;
                    counted!(for j in 0..d {
                        // SAFETY: copied before the barrier; two numbers for each feature.
                        let (x, [s, m]) = (samples.get(j * 32 + lane as usize), load_f32x2(p.add(2 * j)));
                        let t = fma(s, x, m);
                        q = fma(-t, t, q);
                    });
                    // SAFETY: the seed is last; the first warp read this place before the last barrier.
                    densities.set(thread_idx() as usize, load(p.add(2 * d + 1)) + q);
                }
                barrier!();
                // 2. The first warp: log₂ Σₖ wₖ·2^qₖ of each sample, over the components so far.
                if warp == 0 && i < n {
                    counted!(for c in 0..smaller(warps, k - first_component) {
                        // SAFETY: the component exists, and its warp wrote before the barrier.
                        let (w, q) = {
                            let p = component(args.parameters, first_component + c, d);
                            (load(p.add(2 * d)), densities.get((c * WARP + lane) as usize))
                        };
                        sum.add(w, q);
                    });
                }
                (densities, next_densities) = (next_densities, densities);
                first_component += warps;
            }
            if warp == 0 && i < n {
                product.multiply_scaled(sum.max, sum.sum);
                if !args.samples.is_null() {
                    // SAFETY: a place for each sample.
                    store(args.samples.add(i), sum.log2());
                }
            }
            (samples, next_samples) = (next_samples, samples);
            first_sample += step;
        }
        // 3. The block: the sum over its samples, and the total of all blocks' sums.
        // SAFETY: all threads end here, and the start of the shared memory is unused.
        args.output.finish(product);
    }
}

/// The parameters of a component: two numbers for each feature, then weight and seed.
#[inline(always)]
fn component(parameters: *const f32, component: u32, d: usize) -> *const f32 {
    parameters.wrapping_add(component as usize * (2 * d + 2))
}
