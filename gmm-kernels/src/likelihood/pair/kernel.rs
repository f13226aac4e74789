//! The code of `pair`.
use super::*;
use crate::math::{LogProduct, LogSumExp, smaller};
use crate::simt::*;

/// Features of a sample that a thread reads at once.
const AT_ONCE: usize = 8;

/// The log₂ density of a sample under a component, seed − Σⱼ (sⱼ·xⱼ + mⱼ)².
///
/// # Safety
/// The sample has d features, each `stride` numbers behind the one before; `p` are the component's
/// parameters.
#[inline(always)]
unsafe fn log_density(x: *const f32, stride: usize, d: usize, p: *const f32) -> f32 {
    let mut q = 0.0;
    counted!(for j in (0..d).step_by(AT_ONCE) {
        // Several features are asked for before the first is waited for.
        let mut features = [0.0; AT_ONCE];
        counted!(for f in 0..AT_ONCE {
            // SAFETY: the feature exists.
            features[f] = unsafe { load(x.add(smaller(j + f, d - 1) * stride)) };
        });
        counted!(for f in 0..AT_ONCE {
            if j + f < d {
                // SAFETY: two numbers for each feature.
                let [s, m] = unsafe { load_f32x2(p.add(2 * (j + f))) };
                let t = fma(s, features[f], m);
                q = fma(-t, t, q);
            }
        });
    });
    // SAFETY: behind the features' numbers are the weight and the seed.
    unsafe { load(p.add(2 * d + 1)) + q }
}

kernel! {
    /// Total log₂-likelihood, and each sample's where asked for.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn pair(args: PairArgs) {
        // The block has a warp for each of some components, and a lane of it for each sample.
        let (warps, warp, lane) = (block_dim() / WARP, thread_idx() / WARP, thread_idx() % WARP);
        let (n, k, d, stride) = (args.n as usize, args.k, args.d as usize, args.stride as usize);
        let parameters = |component: u32| args.parameters.wrapping_add(component as usize * (2 * d + 2));

        // Shared memory: the log density of each thread's pair. There are two such places: while
        // the first warp still reads one, the other warps write the other.
        let mut densities = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let mut next_densities = densities.offset(block_dim() as usize);
        let mut product = LogProduct::new();

        // A block takes 32 samples at a time, and with them a component for each warp at a time.
        let mut first_sample = (block_idx() * WARP) as usize;
        while first_sample < n {
            let i = first_sample + lane as usize;
            // A lane behind the last sample computes with the last one, and is not counted.
            let x = args.x.wrapping_add(if i < n { i } else { n - 1 });
            let mut sum = LogSumExp::new();
            let mut first_component = 0;
            while first_component < k {
                // 1. Each thread: the log density of its pair.
                let component = first_component + warp;
                if component < k {
                    // SAFETY: the sample and the component exist; a place of this thread, which the
                    // first warp read before the last barrier.
                    unsafe {
                        let q = log_density(x, stride, d, parameters(component));
                        densities.set(thread_idx() as usize, q);
                    }
                }
                barrier!();
                // 2. The first warp: log₂ Σₖ wₖ·2^qₖ of each sample, over the components so far.
                if warp == 0 {
                    counted!(for c in 0..smaller(warps, k - first_component) {
                        // SAFETY: the component exists, and its warp wrote before the barrier.
                        let (w, q) = unsafe {
                            let p = parameters(first_component + c);
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
                    unsafe { store(args.samples.add(i), sum.log2()) };
                }
            }
            first_sample += (grid_dim() * WARP) as usize;
        }
        // 3. The block: the sum over its samples, and of all blocks' sums the total.
        // SAFETY: all threads end here, with the start of the shared memory unused.
        unsafe { args.output.finish(product) };
    }
}
