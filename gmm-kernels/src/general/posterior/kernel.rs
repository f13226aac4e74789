//! The code of the `posterior` kernels.
use super::*;
use crate::data::QUAD;
use crate::math::{Float, float64, warp_sum};
use crate::reduce::Output;
use crate::simt::*;

/// One sample.
#[derive(Clone, Copy)]
struct Sample<'a, T> {
    args: &'a PosteriorArgs<T>,
    i: usize,
    /// wₖ.
    weights: *const T,
}

/// Σₖ wₖ·2^(qₖ − maximum), and the component of the largest term.
struct Terms<T> {
    sum: T,
    label: u32,
}

impl<T: Float> Sample<'_, T> {
    /// The place of qₖ.
    #[inline(always)]
    fn q(self, k: u32) -> *mut T {
        self.args.q.wrapping_add(k as usize * self.args.stride as usize + self.i)
    }

    /// The largest qₖ of the components that have a weight.
    ///
    /// # Safety
    /// The sample exists.
    #[inline(always)]
    unsafe fn maximum(self) -> T {
        let mut top = T::LOWEST;
        counted!(for k in 0..self.args.k {
            // SAFETY: sample and component exist.
            let (w, q) = unsafe { (T::load(self.weights.add(k as usize)), load(self.q(k))) };
            if w > T::ZERO && q > top {
                top = q;
            }
        });
        top
    }

    /// The terms' sum and largest; they replace qₖ if responsibilities are asked for.
    ///
    /// # Safety
    /// The sample exists.
    #[inline(always)]
    unsafe fn terms(self, maximum: T) -> Terms<T> {
        let mut terms = Terms { sum: T::ZERO, label: 0 };
        let mut best = T::ZERO;
        counted!(for k in 0..self.args.k {
            // SAFETY: sample and component exist.
            unsafe {
                let w = T::load(self.weights.add(k as usize));
                // The q of a component without weight may be above the maximum: it counts as 0, not
                // as 0·∞.
                let p = if w > T::ZERO { w * (load(self.q(k)) - maximum).exp2() } else { T::ZERO };
                if self.args.responsibilities != 0 {
                    store(self.q(k), p);
                }
                terms.sum = terms.sum + p;
                if p > best {
                    (best, terms.label) = (p, k);
                }
            }
        });
        terms
    }

    /// Makes responsibilities of the terms.
    ///
    /// # Safety
    /// The sample exists, and its terms have replaced its qₖ.
    #[inline(always)]
    unsafe fn scale(self, factor: T) {
        counted!(for k in 0..self.args.k {
            // SAFETY: sample and component exist.
            unsafe { store(self.q(k), load(self.q(k)) * factor) };
        });
    }
}

#[inline(always)]
unsafe fn body<T: Float>(args: &PosteriorArgs<T>) {
    let mut total = 0.0;
    counted!(for i in (block_idx() * block_dim() + thread_idx()..args.n).step_by(grid_dim() * block_dim()) {
        // SAFETY: the sample exists, and each array that is there has a place for it.
        unsafe {
            let weights = args.weights.add(args.of_quads.offset(i as usize / QUAD));
            let sample = Sample { args, i: i as usize, weights };
            let maximum = sample.maximum();
            let Terms { sum, label } = sample.terms(maximum);
            // All exponents are −∞ where the sample is infinitely far from every component.
            let unreachable = maximum == T::LOWEST;
            let score = if unreachable { f64::NEG_INFINITY } else { maximum.wide() + float64::log2(sum.wide()) };
            let weights = args.sample_weights;
            let weight = if weights.is_null() { T::ONE } else { T::load(weights.add(i as usize)) };
            if weight > T::ZERO {
                total += weight.wide() * score;
            }
            if !args.scores.is_null() {
                store(args.scores.add(i as usize), score);
            }
            if !args.labels.is_null() {
                store(args.labels.add(i as usize), label);
            }
            if args.responsibilities != 0 {
                // The sum of a sample that is infinitely far is zero. Without weight it takes no
                // part.
                sample.scale(if weight > T::ZERO { weight / sum } else { T::ZERO });
            }
        }
    });
    // SAFETY: all threads end here, and the shared memory is not in use.
    let sum = unsafe { Output::block_total(warp_sum(total)) };
    if thread_idx() == 0 {
        // `load_fresh` reads under the condition only. A compiler may move `load` ahead of it,
        // where no sum has been written yet. SAFETY: a place for each block.
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
                // SAFETY: the caller guarantees it.
                unsafe { body(&args) }
            }
        }
    };
}
instance!(posterior_f32 f32);
instance!(posterior_f64 f64);
