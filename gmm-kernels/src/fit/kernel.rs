//! Barriers are in loops that all threads of a block repeat equally often.
mod expectation;
mod maximisation;
mod seeding;

use super::*;
use crate::math::Float;
use crate::simt::*;

/// The purpose of a pass over the samples.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// An iteration of Lloyd's: the mean of the samples nearest to each centre.
    Lloyd,
    /// The first mixture, from the samples nearest to each centre.
    Assign,
    Em,
}

/// The value of `x` in lane `lane`; all lanes of the warp take part.
#[inline(always)]
fn from_lane(x: f64, lane: u32) -> f64 {
    let bits = x.to_bits();
    let low = shuffle_u32(bits as u32, lane);
    let high = shuffle_u32((bits >> 32) as u32, lane);
    f64::from_bits((high as u64) << 32 | low as u64)
}

/// Quotient and remainder of 32-bit numbers: 64-bit division takes the device many times as long.
#[inline(always)]
fn divide(a: u32, b: u32) -> (u32, u32) {
    (a / b, a % b)
}

/// A block's fit. Everything that follows from its few numbers is computed again where needed, and the rest is read
/// again, to save registers for samples and sums.
struct Block<'a, const FULL: bool, const FEATURES: usize> {
    args: &'a FitArgs,
    n: u32,
    k: u32,
    /// In [`Self::sums`], the current pass's first item, and its number of items.
    first_item: u32,
    n_items: u32,
}

impl<const FULL: bool, const FEATURES: usize> Block<'_, FULL, FEATURES> {
    /// N, as a bound of loops that are not unrolled; likewise K and D below.
    #[inline(always)]
    fn n(&self) -> usize {
        opaque(self.n) as usize
    }

    #[inline(always)]
    fn k(&self) -> usize {
        opaque(self.k) as usize
    }

    #[inline(always)]
    fn d(&self) -> usize {
        opaque(self.args.d) as usize
    }

    #[inline(always)]
    fn layout(&self) -> Layout {
        Layout::new(FULL, FEATURES, self.d(), self.k(), block_dim() as usize)
    }

    /// A word of the fit.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        let fit = opaque(block_idx()) as usize * FIT_WORDS;
        // SAFETY: each block has a fit.
        unsafe { load_u64(self.args.fits.cast::<u64>().wrapping_add(fit + at)) }
    }

    #[inline(always)]
    fn total_weight(&self) -> f64 {
        f64::from_bits(self.word(word::TOTAL_WEIGHT))
    }

    #[inline(always)]
    fn place(&self, at: usize) -> Shared<f64> {
        Shared::at(at * size_of::<f64>())
    }

    #[inline(always)]
    fn mean(&self, c: usize) -> Shared<f64> {
        let layout = self.layout();
        self.place(layout.means + c * layout.mean_stride)
    }

    /// The factor of component `c`, or the one that all share.
    #[inline(always)]
    fn factor(&self, c: usize) -> Shared<f64> {
        let (layout, own) = (self.layout(), if FULL && self.args.pooled { 0 } else { c });
        self.place(layout.factors + own * layout.factor_stride)
    }

    #[inline(always)]
    fn seeds(&self) -> Shared<f64> {
        self.place(self.layout().seeds)
    }

    /// log₂ of the factors' determinants.
    #[inline(always)]
    fn determinants(&self) -> Shared<f64> {
        self.place(self.layout().seeds + self.k())
    }

    /// A sum for each warp.
    #[inline(always)]
    fn of_warps(&self) -> Shared<f64> {
        self.place(self.layout().exchange)
    }

    /// Another sum for each warp and trial.
    #[inline(always)]
    fn of_trials(&self, trial: usize) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + trial * WARPS)
    }

    /// The numbers of the samples that the trials have drawn.
    #[inline(always)]
    fn candidates(&self) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + MAX_TRIALS * WARPS)
    }

    /// 1 for each component without valid parameters, otherwise 0.
    #[inline(always)]
    fn failures(&self) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + MAX_TRIALS * WARPS + MAX_TRIALS + 1)
    }

    #[inline(always)]
    fn sums(&self) -> Shared<f64> {
        self.place(self.layout().sums)
    }

    /// Reads sample `i`, with zeros for features that the data lacks.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn sample(&self, i: usize) -> [f64; FEATURES] {
        let mut x = [0.0; FEATURES];
        let (stride, d) = (self.word(word::STRIDE) as usize, self.args.d as usize);
        let mut from = self.args.x.wrapping_add(self.word(word::X) as usize + i);
        counted!(for j in 0..FEATURES {
            if j < d {
                x[j] = f64::load(from);
                from = from.wrapping_add(stride);
            }
        });
        x
    }

    /// The weight of sample `i`.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn weight(&self, i: usize) -> f64 {
        if self.args.sample_weights.is_null() {
            return 1.0;
        }
        f64::load(self.args.sample_weights.wrapping_add(self.word(word::WEIGHTS) as usize + i))
    }

    /// The place of sample `i`'s distance to its nearest centre.
    #[inline(always)]
    fn nearest(&self, i: usize) -> *mut f64 {
        self.args.nearest.wrapping_add(self.word(word::NEAREST) as usize + i)
    }
}

/// The kernel.
#[inline(always)]
unsafe fn body<const FULL: bool, const FEATURES: usize>(args: &FitArgs) {
    let mut block = Block::<FULL, FEATURES> { args, n: 0, k: 0, first_item: 0, n_items: 0 };
    (block.n, block.k) = (block.word(word::N) as u32, block.word(word::K) as u32);
    let n = block.n();
    // SAFETY: the layout has a place for each number. Between a thread's write to shared memory and another's read, and
    // between that and the next write, is a barrier.
    counted!(for v in (thread_idx() as usize..block.layout().seeds).step_by(block_dim() as usize) {
        block.place(v).set(0, 0.0);
    });
    let distinct = block.seed(n);
    let mut pass = if args.lloyd > 0 { Pass::Lloyd } else { Pass::Assign };
    let (mut rounds, mut iterations, mut last) = (0, 0, f64::MIN);
    let mut end = if opaque(distinct as u32) != 0 { None } else { Some(End::GivenUp) };
    while end.is_none() {
        // Lloyd's iterations need only counts and first moments.
        block.first_item = if FULL && pass == Pass::Lloyd { row_items(args.d as usize) as u32 } else { 0 };
        block.n_items = block.layout().items as u32 - block.first_item;
        block.add_samples(pass, n);
        if pass == Pass::Em {
            let total = block.total();
            if thread_idx() == 0 {
                let at = iterations as usize * grid_dim() as usize + block_idx() as usize;
                store(args.totals.wrapping_add(at), total);
            }
            iterations += 1;
            let change = (total - last) / block.total_weight() * core::f64::consts::LN_2;
            last = total;
            if iterations > 1 && change < args.tol && -change < args.tol {
                end = Some(End::Converged);
            } else if iterations == args.max_iter {
                end = Some(End::MaxIter);
            }
        }
        if end.is_none() && !block.maximise(&mut pass, &mut rounds) {
            end = Some(End::GivenUp);
        }
    }
    block.finish(end.unwrap_or(End::GivenUp), iterations);
}

kernels! {
    /// Each block does a whole fit.
    fit_diag_d01: FitArgs = body::<false, 1>;
    fit_diag_d02: FitArgs = body::<false, 2>;
    fit_diag_d04: FitArgs = body::<false, 4>;
    fit_diag_d08: FitArgs = body::<false, 8>;
    fit_diag_d12: FitArgs = body::<false, 12>;
    fit_diag_d16: FitArgs = body::<false, 16>;
    fit_full_d02: FitArgs = body::<true, 2>;
    fit_full_d04: FitArgs = body::<true, 4>;
    fit_full_d08: FitArgs = body::<true, 8>;
    fit_full_d12: FitArgs = body::<true, 12>;
    fit_full_d16: FitArgs = body::<true, 16>;
}
