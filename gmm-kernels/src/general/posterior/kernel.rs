//! The code of the `posterior` kernels.
use super::*;
use crate::math::{Float, float64, warp_sum};
use crate::reduce::Output;
use crate::simt::*;

#[inline(always)]
unsafe fn body<T: Float>(args: &PosteriorArgs<T>) {
    let mut total = 0.0;
    let mut i = block_idx() * block_dim() + thread_idx();
    while i < args.n {
        let q = |c: u32| args.q.wrapping_add(c as usize * args.stride as usize + i as usize);
        let mut top = T::LOWEST;
        let mut c = 0;
        while c < args.k {
            // SAFETY: sample i and component c exist.
            let (w, q) = unsafe { (T::load(args.weights.add(c as usize)), load(q(c))) };
            if w > T::ZERO && q > top {
                top = q;
            }
            c += 1;
        }
        let mut sum = T::ZERO;
        let (mut best, mut label) = (T::ZERO, 0);
        let mut c = 0;
        while c < args.k {
            // SAFETY: as above.
            unsafe {
                let w = T::load(args.weights.add(c as usize));
                // A component without weight is not below the maximum: it counts 0, not 0·∞.
                let p = if w > T::ZERO { w * (load(q(c)) - top).exp2() } else { T::ZERO };
                if args.responsibilities != 0 {
                    store(q(c), p);
                }
                sum = sum + p;
                if p > best {
                    (best, label) = (p, c);
                }
            }
            c += 1;
        }
        let score = top.wide() + float64::log2(sum.wide());
        let weight = if args.sample_weights.is_null() {
            T::ONE
        } else {
            // SAFETY: a weight for each sample.
            unsafe { T::load(args.sample_weights.add(i as usize)) }
        };
        total += weight.wide() * score;
        // SAFETY: a place for each sample.
        unsafe {
            if !args.scores.is_null() {
                store(args.scores.add(i as usize), score);
            }
            if !args.labels.is_null() {
                store(args.labels.add(i as usize), label);
            }
        }
        if args.responsibilities != 0 {
            let factor = weight / sum;
            let mut c = 0;
            while c < args.k {
                // SAFETY: as above.
                unsafe { store(q(c), load(q(c)) * factor) };
                c += 1;
            }
        }
        i += grid_dim() * block_dim();
    }
    // SAFETY: all threads end here, and the shared memory is not in use.
    let sum = unsafe { Output::block_total(warp_sum(total)) };
    if thread_idx() == 0 {
        // `load_fresh` reads under the condition only. A compiler may move `load` ahead of it, to where nobody has written yet.
        // SAFETY: a place for each block.
        unsafe {
            let to = args.partials.add(block_idx() as usize);
            store(to, if args.add != 0 { load_fresh(to) + sum } else { sum });
        }
    }
}

macro_rules! instance {
    ($name:ident $t:ty) => {
        kernel! {
            /// Scores, labels, responsibilities, and each block's total.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: PosteriorArgs<$t>) {
                // SAFETY: the caller's.
                unsafe { body(&args) }
            }
        }
    };
}
instance!(posterior_f32 f32);
instance!(posterior_f64 f64);
