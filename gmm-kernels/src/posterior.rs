//! `posterior_f32`, `posterior_f64`: from the qₖ of [`density`](crate::density) to each sample's log₂ Σₖ wₖ·2^qₖ, the sum of
//! these over the samples, the most probable component, and the responsibilities.
//!
//! A thread takes a sample and walks the components, with the largest qₖ taken out; the logarithm is float64's, so that no
//! rounding of it adds up over the samples.
//!
//! * Launch: any one-dimensional grid; block of whole warps; shared memory
//!   [`FINISH_SHARED_BYTES`](crate::output::FINISH_SHARED_BYTES). Then [`batch_reduce`](crate::batch::batch_reduce) over one set.
//! * Must do, a sample and component: an exponential; read q twice, write and read it once more for the responsibilities.
use crate::double;
use crate::output::Output;
use crate::real::Real;
use crate::simt::*;
use crate::tally::warp_sum;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PosteriorArgs<T> {
    /// qₖ (K, stride).
    pub q: *mut T,
    /// Elements from one component to the next.
    pub stride: u64,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// wₖ (K,); at least one is positive.
    pub weights: *const T,
    /// Weight of each sample (N,), or null: all are one.
    pub sample_weights: *const T,
    /// Whether the responsibilities, each times its sample's weight, replace qₖ: 0 or 1.
    pub responsibilities: u32,
    /// Whether `partials` are added to: 0 or 1.
    pub add: u32,
    /// log₂ of each sample's likelihood (N,), or null.
    pub scores: *mut f64,
    /// The component of the largest wₖ·2^qₖ of each sample (N,), the first of equals; or null.
    pub labels: *mut u32,
    /// Σ weight·log₂ of the samples of each block, (gridDim.x,).
    pub partials: *mut f64,
}

#[inline(always)]
unsafe fn body<T: Real>(args: &PosteriorArgs<T>) {
    let mut total = 0.0;
    let mut i = block_idx() * block_dim() + thread_idx();
    while i < args.n {
        let q = |c: u32| args.q.wrapping_add(c as usize * args.stride as usize + i as usize);
        let mut top = T::LOWEST;
        let mut c = 0;
        while c < args.k {
            // SAFETY: sample i and component c exist.
            let (w, q) = unsafe { (T::load(args.weights.add(c as usize)), *q(c)) };
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
                let p = if w > T::ZERO { w * (*q(c) - top).exp2() } else { T::ZERO };
                if args.responsibilities != 0 {
                    *q(c) = p;
                }
                sum = sum + p;
                if p > best {
                    (best, label) = (p, c);
                }
            }
            c += 1;
        }
        let score = top.wide() + double::log2(sum.wide());
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
                *args.scores.add(i as usize) = score;
            }
            if !args.labels.is_null() {
                *args.labels.add(i as usize) = label;
            }
        }
        if args.responsibilities != 0 {
            let factor = weight / sum;
            let mut c = 0;
            while c < args.k {
                // SAFETY: as above.
                unsafe { *q(c) = *q(c) * factor };
                c += 1;
            }
        }
        i += grid_dim() * block_dim();
    }
    // SAFETY: all threads end here, and the shared memory is not in use.
    let sum = unsafe { Output::block_total(warp_sum(total)) };
    if thread_idx() == 0 {
        // Not `*to`: a compiler may read that before it asks whether to, and at first nobody has written there.
        // SAFETY: a place for each block.
        unsafe {
            let to = args.partials.add(block_idx() as usize);
            *to = if args.add != 0 { load_fresh(to) + sum } else { sum };
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
