//! The code of `pair`.
use super::*;
use crate::math::{LogProduct, LogSumExp};
use crate::simt::*;

/// q = seed − Σⱼ (sⱼ·xⱼ + mⱼ)² of one sample and one component, and the component's weight.
///
/// # Safety
/// `x` has a readable element every `stride`, `d` times; `p` has 2·d + 2 readable elements.
#[inline(always)]
pub unsafe fn component(x: *const f32, stride: u64, d: u32, p: *const f32) -> (f32, f32) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let d = d as usize;
        let mut q = load(p.add(2 * d + 1));
        let mut j = 0;
        while j < d {
            let t = fma(load(p.add(2 * j)), load(x.add(j * stride as usize)), load(p.add(2 * j + 1)));
            q = fma(-t, t, q);
            j += 1;
        }
        (load(p.add(2 * d)), q)
    }
}

kernel! {
    /// Total log₂-likelihood, and each sample's where asked for.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn pair(args: PairArgs) {
        let (thread, sample) = (thread_idx() % args.threads_per_sample, thread_idx() / args.threads_per_sample);
        let per_block = (block_dim() / args.threads_per_sample) as u64;
        // The maximum of each thread, and behind them the sum of each thread.
        let (maxima, sums) = (Shared::<f32>::at(0), Shared::<f32>::at(block_dim() as usize * size_of::<f32>()));
        let mine = thread_idx() as usize;
        let mut product = LogProduct::new();
        let mut first = block_idx() as u64 * per_block;
        // The loop's bound is the same for all threads of a block, so that all of them meet at the barriers.
        while first < args.n {
            let i = first + sample as u64;
            let mut sum = LogSumExp::new();
            if i < args.n {
                let mut k = thread;
                while k < args.k {
                    // SAFETY: i < N, k < K, and the arrays have the documented shapes.
                    let (w, q) = unsafe {
                        component(args.x.add(i as usize), args.stride, args.d, args.parameters.add(k as usize * (2 * args.d as usize + 2)))
                    };
                    sum.add(w, q);
                    k += args.threads_per_sample;
                }
            }
            // SAFETY: a place for each thread; the barriers separate the writes from the reads.
            unsafe {
                maxima.set(mine, sum.max);
                sums.set(mine, sum.sum);
                barrier!();
                if thread == 0 && i < args.n {
                    let mut l = mine + 1;
                    while l < mine + args.threads_per_sample as usize {
                        sum.merge(LogSumExp { max: maxima.get(l), sum: sums.get(l) });
                        l += 1;
                    }
                    product.multiply_scaled(sum.max, sum.sum);
                    if !args.samples.is_null() {
                        store(args.samples.add(i as usize), sum.log2());
                    }
                }
                barrier!();
            }
            first += grid_dim() as u64 * per_block;
        }
        // SAFETY: all threads end here; the loop's last barrier freed the shared memory.
        unsafe { args.output.finish(product) };
    }
}
