//! The code of the `fit` kernels. All barriers are in [`body`], whose loops all threads of a block
//! take equally often.
use super::*;
use crate::math::{Float, LogProduct64, ROOT_HALF_LOG2_E, float64, smaller, warp_sum};
use crate::simt::*;

/// What a pass over the samples is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// One of Lloyd's iterations: the mean of the samples that are nearest to each centre.
    Lloyd,
    /// The first mixture, of the samples that are nearest to each centre.
    Assign,
    /// An iteration of EM.
    Em,
}

/// Of a sum of squares around the old mean so much may be left around the new one: 2⁻²⁰, as the
/// host's `CentredSums::cancel`.
const LOST: f64 = 1048576.0;
/// The least pivot over its variance: 2⁻⁴⁰, far more than what rounding leaves of zero.
const LEAST_PIVOT: f64 = 9.094947017729282e-13;
/// A component of less has lost its samples. (The host's floor is ten times the least difference
/// from one.)
const LEAST_COUNT: f64 = 1e-14;
/// 2^LEAST beside one is nothing.
const LEAST: f64 = -1000.0;

/// The value of `x` in lane `lane`; all lanes of the warp take part.
#[inline(always)]
fn from_lane(x: f64, lane: u32) -> f64 {
    let bits = x.to_bits();
    let low = shuffle_u32(bits as u32, lane);
    let high = shuffle_u32((bits >> 32) as u32, lane);
    f64::from_bits((high as u64) << 32 | low as u64)
}

/// The sum of `x` over the lanes of the warp, in all of them; all lanes take part.
#[inline(always)]
fn sum_in_all_lanes(mut x: f64) -> f64 {
    let mut by = WARP / 2;
    while by > 0 {
        x += x.shuffle_xor(by);
        by /= 2;
    }
    x
}

/// A block's fit. What follows from its few numbers is computed anew where it is needed, and others
/// are read again: they would take registers that samples and sums need.
struct Block<'a, const FULL: bool, const FEATURES: usize> {
    args: &'a FitArgs,
    n: u32,
    k: u32,
    /// Of [`Self::sums`]: the first item of the present pass, and how many items it has.
    first_item: u32,
    n_items: u32,
}

impl<const FULL: bool, const FEATURES: usize> Block<'_, FULL, FEATURES> {
    /// N, as a bound of loops that are not unrolled; so the next two.
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

    /// The factor that component `c` has, or all of them share.
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

    /// A sum of each warp.
    #[inline(always)]
    fn of_warps(&self) -> Shared<f64> {
        self.place(self.layout().exchange)
    }

    /// Another sum of each warp, for each trial.
    #[inline(always)]
    fn of_trials(&self, trial: usize) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + trial * WARPS)
    }

    /// The numbers of the samples that the trials have drawn.
    #[inline(always)]
    fn candidates(&self) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + MAX_TRIALS * WARPS)
    }

    /// 1 for each component whose parameters could not be found, else 0.
    #[inline(always)]
    fn failures(&self) -> Shared<f64> {
        self.place(self.layout().exchange + WARPS + MAX_TRIALS * WARPS + MAX_TRIALS + 1)
    }

    #[inline(always)]
    fn sums(&self) -> Shared<f64> {
        self.place(self.layout().sums)
    }

    /// Sample `i`; zeros for the features that the data does not have.
    ///
    /// # Safety
    /// The sample exists.
    #[inline(always)]
    unsafe fn sample(&self, i: usize) -> [f64; FEATURES] {
        let mut x = [0.0; FEATURES];
        let (stride, d) = (self.word(word::STRIDE) as usize, self.args.d as usize);
        let mut from = self.args.x.wrapping_add(self.word(word::X) as usize + i);
        counted!(for j in 0..FEATURES {
            if j < d {
                // SAFETY: the caller guarantees it.
                x[j] = unsafe { f64::load(from) };
                from = from.wrapping_add(stride);
            }
        });
        x
    }

    /// The weight of sample `i`.
    ///
    /// # Safety
    /// The sample exists.
    #[inline(always)]
    unsafe fn weight(&self, i: usize) -> f64 {
        if self.args.sample_weights.is_null() {
            return 1.0;
        }
        // SAFETY: the caller guarantees it.
        unsafe { f64::load(self.args.sample_weights.wrapping_add(self.word(word::WEIGHTS) as usize + i)) }
    }

    /// Where the distance of sample `i` to its nearest centre is kept.
    #[inline(always)]
    fn nearest(&self, i: usize) -> *mut f64 {
        self.args.nearest.wrapping_add(self.word(word::NEAREST) as usize + i)
    }

    /// The difference of a sample from a mean.
    ///
    /// # Safety
    /// The means have been written.
    #[inline(always)]
    unsafe fn deviation(x: &[f64; FEATURES], mean: Shared<f64>) -> [f64; FEATURES] {
        let mut t = [0.0; FEATURES];
        counted!(for j in 0..FEATURES {
            // SAFETY: the caller guarantees it.
            t[j] = x[j] - unsafe { mean.get(j) };
        });
        t
    }

    /// The exponent of a sample under a component: log₂ of its weighted density, without the constant
    /// of D.
    ///
    /// # Safety
    /// The parameters have been written.
    #[inline(always)]
    unsafe fn exponent(x: &[f64; FEATURES], mean: Shared<f64>, factor: Shared<f64>, seed: f64) -> f64 {
        // SAFETY: the caller guarantees it, here and below.
        let (t, mut q) = (unsafe { Self::deviation(x, mean) }, seed);
        if FULL {
            counted!(for i in 0..FEATURES {
                let mut z = 0.0;
                counted!(for pair in 0..i / 2 + 1 {
                    let j = 2 * pair;
                    // SAFETY: as above; rows have even lengths.
                    let [a, b] = unsafe { factor.get_pair(row_start(i) + j) };
                    z = fma64(a, t[j], z);
                    if j < i {
                        z = fma64(b, t[j + 1], z);
                    }
                });
                q = fma64(-z, z, q);
            });
        } else {
            counted!(for j in 0..FEATURES {
                // SAFETY: as above.
                let z = t[j] * unsafe { factor.get(j) };
                q = fma64(-z, z, q);
            });
        }
        q
    }

    /// Writes a sample's share in each component: all of its weight in the nearest.
    ///
    /// # Safety
    /// The means have been written, and no other thread uses `shares` (K,).
    #[inline(always)]
    unsafe fn assign(&self, x: &[f64; FEATURES], weight: f64, shares: Shared<f64>) {
        let (mut least, mut label) = (f64::MAX, 0);
        let (mut mean, stride) = (self.mean(0), self.layout().mean_stride);
        counted!(for c in 0..opaque(self.k) {
            let mut distance = 0.0;
            // SAFETY: the caller guarantees it, here and below.
            let t = unsafe { Self::deviation(x, mean) };
            counted!(for j in 0..FEATURES {
                distance = fma64(t[j], t[j], distance);
            });
            if distance < least {
                (least, label) = (distance, c);
            }
            mean = mean.offset(stride);
        });
        let mut share = shares;
        counted!(for c in 0..opaque(self.k) {
            // SAFETY: as above.
            unsafe { share.set(0, if c == label { weight } else { 0.0 }) };
            share = share.offset(1);
        });
    }

    /// Writes a sample's responsibilities, times its weight, and multiplies its likelihood into
    /// `product`.
    ///
    /// # Safety
    /// The parameters have been written, and no other thread uses `shares` (K,).
    #[inline(always)]
    unsafe fn respond(&self, x: &[f64; FEATURES], weight: f64, shares: Shared<f64>, product: &mut LogProduct64) {
        let mut top = f64::MIN;
        let layout = self.layout();
        let next_factor = if FULL && self.args.pooled { 0 } else { layout.factor_stride };
        let (mut mean, mut factor, mut seed, mut share) = (self.mean(0), self.factor(0), self.seeds(), shares);
        counted!(for _c in 0..opaque(self.k) {
            // SAFETY: the caller guarantees it, here and below.
            let q = unsafe { Self::exponent(x, mean, factor, seed.get(0)) };
            top = if q > top { q } else { top };
            // SAFETY: as above.
            unsafe { share.set(0, q) };
            (mean, factor) = (mean.offset(layout.mean_stride), factor.offset(next_factor));
            (seed, share) = (seed.offset(1), share.offset(1));
        });
        let (mut sum, mut share) = (0.0, shares);
        counted!(for _c in 0..opaque(self.k) {
            // SAFETY: as above.
            let power = unsafe { share.get(0) } - top;
            let e = float64::exp2_normal(if power > LEAST { power } else { LEAST });
            sum += e;
            // SAFETY: as above.
            unsafe { share.set(0, e) };
            share = share.offset(1);
        });
        if self.args.sample_weights.is_null() {
            product.multiply(top, sum);
        } else {
            product.add(weight * (top + float64::log2(sum)));
        }
        let (factor, mut share) = (weight * float64::reciprocal(sum), shares);
        counted!(for _c in 0..opaque(self.k) {
            // SAFETY: as above.
            unsafe { share.set(0, share.get(0) * factor) };
            share = share.offset(1);
        });
    }

    /// Writes a sample to its place in the tile, with a one behind its features.
    ///
    /// # Safety
    /// No other thread uses the place.
    #[inline(always)]
    unsafe fn put(&self, x: &[f64; FEATURES], place: Shared<f64>) {
        let d = self.args.d as usize;
        counted!(for j in 0..FEATURES {
            // SAFETY: the caller guarantees it, here and below.
            unsafe { place.set(j, if j == d { 1.0 } else { x[j] }) };
        });
        // The rest of the last chunk.
        let end = if FULL { FEATURES / CHUNK * CHUNK + CHUNK } else { FEATURES + 1 };
        counted!(for j in FEATURES..end {
            // SAFETY: as above.
            unsafe { place.set(j, if j == d { 1.0 } else { 0.0 }) };
        });
    }

    /// Mean `j` of component `c`; zero for the one behind the features.
    ///
    /// # Safety
    /// The means have been written.
    #[inline(always)]
    unsafe fn mean_or_zero(&self, c: usize, j: usize) -> f64 {
        // SAFETY: the caller guarantees it.
        if j < self.d() { unsafe { self.mean(c).get(j) } } else { 0.0 }
    }

    /// Adds the samples `first`, `first + step`, … of the tile, which has so many, to an item of
    /// component `c`, whose sums are at `to`.
    ///
    /// # Safety
    /// The tile and the means have been written, and no other thread uses the sums.
    #[inline(always)]
    unsafe fn add(&self, c: usize, item: usize, to: Shared<f64>, (first, step, end): (usize, usize, usize)) {
        let layout = self.layout();
        let (sample_stride, share_stride) = (layout.sample_stride, layout.share_stride);
        let mut share_at = self.place(layout.shares + c + first * share_stride);
        let mut sample = self.place(layout.samples + first * sample_stride);
        let (next_share, next_sample) = (step * share_stride, step * sample_stride);
        // SAFETY: the caller guarantees it, here and below.
        unsafe {
            if FULL {
                // The item's row and chunk: rows come in groups that have equally many chunks.
                let mut group = 0;
                while item >= row_items(CHUNK * (group + 1)) {
                    group += 1;
                }
                let (row, chunk) = divide((item - row_items(CHUNK * group)) as u32, group as u32 + 1);
                let (i, j) = (CHUNK * group + row as usize, CHUNK * chunk as usize);
                let mean = self.mean_or_zero(c, i);
                let (mut means, mut sums) = ([0.0; CHUNK], [0.0; CHUNK]);
                counted!(for v in 0..CHUNK {
                    means[v] = self.mean_or_zero(c, j + v);
                    sums[v] = to.get(v);
                });
                counted!(for _s in (first as u32..end as u32).step_by(step as u32) {
                    let share = share_at.get(0) * (sample.get(i) - mean);
                    let ([x0, x1], [x2, x3]) = (sample.get_pair(j), sample.get_pair(j + 2));
                    sums[0] = fma64(share, x0 - means[0], sums[0]);
                    sums[1] = fma64(share, x1 - means[1], sums[1]);
                    sums[2] = fma64(share, x2 - means[2], sums[2]);
                    sums[3] = fma64(share, x3 - means[3], sums[3]);
                    (share_at, sample) = (share_at.offset(next_share), sample.offset(next_sample));
                });
                counted!(for v in 0..CHUNK {
                    to.set(v, sums[v]);
                });
            } else {
                let mean = self.mean_or_zero(c, item);
                let (mut first_moment, mut second) = (to.get(0), to.get(1));
                counted!(for _s in (first as u32..end as u32).step_by(step as u32) {
                    let t = sample.get(item) - mean;
                    let share = share_at.get(0) * t;
                    first_moment += share;
                    second = fma64(share, t, second);
                    (share_at, sample) = (share_at.offset(next_share), sample.offset(next_sample));
                });
                to.set(0, first_moment);
                to.set(1, second);
            }
        }
    }

    /// A sum of component `c`, once those of all samples are together: number `v` of an item.
    ///
    /// # Safety
    /// The sums have been written, and the item is one of the pass.
    #[inline(always)]
    unsafe fn sum(&self, c: usize, item: usize, v: usize) -> f64 {
        let at = c * self.n_items as usize + item - self.first_item as usize;
        // SAFETY: the caller guarantees it.
        unsafe { self.sums().get(at * self.layout().of_item + v) }
    }

    /// Σ r of component `c`.
    ///
    /// # Safety
    /// As for [`Self::sum`].
    #[inline(always)]
    unsafe fn count(&self, c: usize) -> f64 {
        // SAFETY: the caller guarantees it.
        unsafe { self.first_moment(c, self.d()) }
    }

    /// Σ r·(xⱼ − μⱼ) of component `c`; Σ r for j = D.
    ///
    /// # Safety
    /// As for [`Self::sum`].
    #[inline(always)]
    unsafe fn first_moment(&self, c: usize, j: usize) -> f64 {
        // SAFETY: the caller guarantees it.
        unsafe { if FULL { self.second_moment(c, self.d(), j) } else { self.sum(c, j, 0) } }
    }

    /// Σ r·(xᵢ − μᵢ)·(xⱼ − μⱼ) of component `c`, for i ≥ j; of `fit_diag` for i = j.
    ///
    /// # Safety
    /// As for [`Self::sum`].
    #[inline(always)]
    unsafe fn second_moment(&self, c: usize, i: usize, j: usize) -> f64 {
        // SAFETY: the caller guarantees it.
        unsafe { if FULL { self.sum(c, row_items(i) + j / CHUNK, j % CHUNK) } else { self.sum(c, i, 1) } }
    }

    /// Σ r·(xᵢ − x̄ᵢ)·(xⱼ − x̄ⱼ) around the new means, of component `c` or of all of them; and whether
    /// it is a difference of numbers that cancel.
    ///
    /// # Safety
    /// As for [`Self::sum`].
    #[inline(always)]
    unsafe fn scatter(&self, c: usize, all: bool, i: usize, j: usize) -> (f64, bool) {
        let (mut around_mean, mut moved) = (0.0, 0.0);
        let (from, to) = if all { (0, self.k) } else { (c as u32, c as u32 + 1) };
        counted!(for e in from..opaque(to) {
            let e = e as usize;
            // SAFETY: the caller guarantees it.
            unsafe {
                let n = self.count(e);
                let mean = if n > LEAST_COUNT { self.first_moment(e, i) * float64::reciprocal(n) } else { 0.0 };
                let of_mean = mean * self.first_moment(e, j);
                around_mean += self.second_moment(e, i, j) - of_mean;
                moved += of_mean;
            }
        });
        (around_mean, i == j && moved > LOST * around_mean)
    }

    /// Computes a factor, that of component `c` or of all of them, from the sums. A warp's work, in
    /// which all lanes take part.
    ///
    /// # Safety
    /// The sums are those of all samples, and no other warp uses the factor.
    #[inline(always)]
    unsafe fn factorise(&self, c: usize) {
        let lane = thread_idx() % WARP;
        let row = lane as usize;
        let (d, factor, pooled) = (self.d(), self.factor(c), self.args.pooled);
        // SAFETY: the caller guarantees it; lanes write rows of their own, or columns.
        unsafe {
            let count = if FULL && pooled { self.total_weight() } else { self.count(c) };
            let has_samples = count > LEAST_COUNT;
            let mut failed = !has_samples;
            let share = float64::reciprocal(if has_samples { count } else { 1.0 });
            let determinant;
            if FULL {
                // The covariance.
                if row < d {
                    counted!(for j in 0..opaque(lane + 1) as usize {
                        let (scatter, cancels) = self.scatter(c, pooled, row, j);
                        failed |= cancels;
                        let diagonal = if j == row { self.args.reg_covar } else { 0.0 };
                        factor.set(row_start(row) + j, fma64(scatter, share, diagonal));
                    });
                }
                warp_sync();
                // Its Cholesky factor L, column by column.
                counted!(for j in 0..self.d() {
                    let (mut variance, mut rest) = (1.0, 1.0);
                    if row >= j && row < d {
                        variance = factor.get(row_start(row) + j);
                        rest = variance;
                        counted!(for m in 0..opaque(j as u32) as usize {
                            rest = fma64(-factor.get(row_start(row) + m), factor.get(row_start(j) + m), rest);
                        });
                    }
                    let (variance, pivot) = (from_lane(variance, j as u32), from_lane(rest, j as u32));
                    let usable = pivot > LEAST_PIVOT * variance && pivot > f64::MIN_POSITIVE && pivot < f64::MAX;
                    failed |= !usable;
                    let root = float64::sqrt(if usable { pivot } else { 1.0 });
                    if row >= j && row < d {
                        factor.set(row_start(row) + j, if row == j { root } else { rest * float64::reciprocal(root) });
                    }
                    warp_sync();
                });
                // Behind the features a unit matrix.
                if row >= d && row < FEATURES {
                    counted!(for j in 0..opaque(lane + 1) as usize {
                        factor.set(row_start(row) + j, if j == row { 1.0 } else { 0.0 });
                    });
                }
                warp_sync();
                let inverse = if row < FEATURES { float64::reciprocal(factor.get(row_start(row) + row)) } else { 1.0 };
                determinant = float64::log2(inverse);
                // A lane's column of L⁻¹, in the place of samples that nobody needs any more.
                let layout = self.layout();
                let warp = (thread_idx() / WARP) as usize;
                let scratch = self.place(layout.samples + warp * WARP as usize * layout.sample_stride + row);
                counted!(for i in 0..self.d() {
                    let mut rest = if row == i { 1.0 } else { 0.0 };
                    counted!(for m in 0..opaque(i as u32) as usize {
                        if row < d {
                            rest = fma64(-factor.get(row_start(i) + m), scratch.get(m * FEATURES), rest);
                        }
                    });
                    let inverse = from_lane(inverse, i as u32);
                    if row < d {
                        scratch.set(i * FEATURES, rest * inverse);
                    }
                });
                warp_sync();
                counted!(for i in 0..self.d() {
                    if row <= i {
                        factor.set(row_start(i) + row, scratch.get(i * FEATURES) * ROOT_HALF_LOG2_E);
                    }
                });
            } else {
                let (mut scatter, mut cancels) = (0.0, false);
                if row < d {
                    (scatter, cancels) = self.scatter(c, false, row, row);
                }
                if pooled {
                    scatter = sum_in_all_lanes(scatter) * float64::reciprocal(d as f64);
                }
                let variance = fma64(scatter, share, self.args.reg_covar);
                let usable = row >= d || variance > f64::MIN_POSITIVE && variance < f64::MAX;
                failed |= cancels || !usable;
                let root = float64::sqrt(if row < d && usable { variance } else { 1.0 });
                determinant = -float64::log2(root);
                if row < d {
                    factor.set(row, ROOT_HALF_LOG2_E * float64::reciprocal(root));
                }
            }
            let determinant = warp_sum(determinant);
            let failed = warp_any(failed);
            if lane == 0 {
                self.determinants().set(c, determinant);
                self.failures().set(c, if failed { 1.0 } else { 0.0 });
            }
        }
    }

    /// Writes the results.
    ///
    /// # Safety
    /// The sums are those of all samples, unless the fit is given up.
    #[inline(always)]
    unsafe fn finish(&self, end: End, iterations: u32) {
        let results = self.args.results.wrapping_add(self.word(word::RESULTS) as usize);
        let d = self.d();
        let of_component = d + sums(FULL, d);
        // SAFETY: the place has these numbers, and the caller guarantees the others.
        unsafe {
            if thread_idx() == 0 {
                store(results, end as u32 as f64);
                store(results.add(1), iterations as f64);
            }
            if end == End::GivenUp {
                return;
            }
            counted!(for v in (thread_idx() as usize..self.k() * of_component).step_by(block_dim() as usize) {
                let (c, at) = (v / of_component, v % of_component);
                let number = if at < d {
                    self.mean(c).get(at)
                } else if at == d {
                    self.count(c)
                } else if at <= 2 * d {
                    self.first_moment(c, at - d - 1)
                } else if FULL {
                    let mut i = 0;
                    let place = at - 2 * d - 1;
                    while (i + 1) * (i + 2) / 2 <= place {
                        i += 1;
                    }
                    self.second_moment(c, i, place - i * (i + 1) / 2)
                } else {
                    self.second_moment(c, at - 2 * d - 1, at - 2 * d - 1)
                };
                store(results.add(2 + v), number);
            });
        }
    }
}

/// The kernel, of an instance.
#[inline(always)]
unsafe fn body<const FULL: bool, const FEATURES: usize>(args: &FitArgs) {
    let mut block = Block::<FULL, FEATURES> { args, n: 0, k: 0, first_item: 0, n_items: 0 };
    (block.n, block.k) = (block.word(word::N) as u32, block.word(word::K) as u32);
    let (n, k, d) = (block.n(), block.k as usize, args.d as usize);
    let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
    let (warp, lane, warps) = (thread / WARP as usize, thread_idx() % WARP, threads / WARP as usize);
    // SAFETY: in all that follows samples are below N, and the layout has a place for each number.
    // What threads write in shared memory others read behind a barrier, and write behind another.
    unsafe {
        counted!(for v in (thread..block.layout().seeds).step_by(threads) {
            block.place(v).set(0, 0.0);
        });

        // 1. Seeds: each is a sample, drawn in proportion to its squared distance to the nearest
        // before, the best of some draws.
        let mut own = 0.0;
        counted!(for i in (thread..block.n()).step_by(threads) {
            own += block.weight(i);
            store(block.nearest(i), f64::MAX);
        });
        let (mut used, mut distinct, mut c) = (0, true, 0);
        while c < k && distinct {
            let draws = if opaque(c as u32) == 0 { 1 } else { trials(k) };
            // Running sums over the threads.
            let mut running = own;
            let mut by = 1;
            while by < WARP {
                let before = from_lane(running, (lane + WARP - by) % WARP);
                running += if lane >= by { before } else { 0.0 };
                by *= 2;
            }
            if lane == WARP - 1 {
                block.of_warps().set(warp, running);
            }
            let before = from_lane(running, (lane + WARP - 1) % WARP);
            barrier!();
            let (mut base, mut total) = (0.0, 0.0);
            counted!(for w in 0..opaque(warps as u32) as usize {
                base = if w == warp { total } else { base };
                total += block.of_warps().get(w);
            });
            let (from, to) = (if lane > 0 { base + before } else { base }, base + running);
            // Hidden from the compiler where it is asked for, which would make two ways of it, with barriers
            // of their own.
            distinct = total > 0.0;
            counted!(for trial in 0..opaque(draws as u32) as usize {
                let u = f64::load(args.uniforms.wrapping_add(block.word(word::UNIFORMS) as usize + used + trial));
                // Below the total, also where the product is rounded up.
                let target = smaller(u * total, total * (1.0 - f64::EPSILON));
                if from <= target && target < to {
                    let (mut at, mut sum, mut chosen) = (thread, from, thread);
                    while at < n && sum <= target {
                        let share =
                            block.weight(at) * if opaque(c as u32) == 0 { 1.0 } else { load(block.nearest(at)) };
                        sum += share;
                        chosen = if share > 0.0 { at } else { chosen };
                        at += threads;
                    }
                    block.candidates().set(trial, chosen as f64);
                }
            });
            barrier!();
            if opaque(distinct as u32) != 0 {
                counted!(for trial in 0..opaque(draws as u32) as usize {
                    let centre = block.sample(block.candidates().get(trial) as usize);
                    let mut sum = 0.0;
                    counted!(for i in (thread..block.n()).step_by(threads) {
                        let distance = distance(&block.sample(i), &centre);
                        sum += block.weight(i) * smaller(distance, load(block.nearest(i)));
                    });
                    let sum = warp_sum(sum);
                    if lane == 0 {
                        block.of_trials(trial).set(warp, sum);
                    }
                });
            }
            barrier!();
            if opaque(distinct as u32) != 0 {
                let (mut least, mut best) = (f64::MAX, 0);
                counted!(for trial in 0..opaque(draws as u32) as usize {
                    let mut sum = 0.0;
                    counted!(for w in 0..opaque(warps as u32) as usize {
                        sum += block.of_trials(trial).get(w);
                    });
                    if sum < least {
                        (least, best) = (sum, trial);
                    }
                });
                let chosen = block.candidates().get(best) as usize;
                let centre = block.sample(chosen);
                own = 0.0;
                counted!(for i in (thread..block.n()).step_by(threads) {
                    let nearest = smaller(distance(&block.sample(i), &centre), load(block.nearest(i)));
                    own += block.weight(i) * nearest;
                    store(block.nearest(i), nearest);
                });
                if thread < d {
                    let at = block.word(word::X) as usize + thread * block.word(word::STRIDE) as usize + chosen;
                    block.mean(c).set(thread, f64::load(args.x.wrapping_add(at)));
                }
            }
            used += draws;
            c += 1;
        }
        barrier!();

        // 2. Lloyd's iterations, the first mixture, EM.
        let mut pass = if args.lloyd > 0 { Pass::Lloyd } else { Pass::Assign };
        let (mut rounds, mut iterations, mut last) = (0, 0, f64::MIN);
        let mut end = if opaque(distinct as u32) != 0 { None } else { Some(End::GivenUp) };
        while end.is_none() {
            // Lloyd's iterations need counts and first moments alone.
            block.first_item = if FULL && pass == Pass::Lloyd { row_items(d) as u32 } else { 0 };
            block.n_items = block.layout().items as u32 - block.first_item;
            let items = k * block.n_items as usize;
            let parts = if items < threads { divide(threads as u32, items as u32).0 as usize } else { 1 };
            let of_item = block.layout().of_item;
            counted!(for v in (thread..parts * items * of_item).step_by(threads) {
                block.sums().set(v, 0.0);
            });
            // The part of a tile's samples, the component and the item of a slot.
            let place = |slot: usize| {
                let (part, rest) = divide(slot as u32, items as u32);
                let (c, item) = divide(rest, block.n_items);
                (part as usize, c as usize, item as usize)
            };
            let own = place(thread);
            let mut product = LogProduct64::new();
            let mut first = 0;
            while first < n {
                let rows = smaller(threads, n - first);
                if thread < rows {
                    let (x, weight) = (block.sample(first + thread), block.weight(first + thread));
                    let layout = block.layout();
                    block.put(&x, block.place(layout.samples + thread * layout.sample_stride));
                    let shares = block.place(layout.shares + thread * layout.share_stride);
                    if pass == Pass::Em {
                        block.respond(&x, weight, shares, &mut product);
                    } else {
                        block.assign(&x, weight, shares);
                    }
                }
                barrier!();
                let (mut slot, (mut part, mut c, mut item)) = (thread, own);
                while slot < parts * items {
                    let to = block.sums().offset(slot * of_item);
                    block.add(c, block.first_item as usize + item, to, (part, parts, rows));
                    slot += threads;
                    if slot < parts * items {
                        (part, c, item) = place(slot);
                    }
                }
                barrier!();
                first += threads;
            }
            // The sums of all parts and warps.
            counted!(for v in (thread..items * of_item).step_by(threads) {
                let mut sum = block.sums().get(v);
                counted!(for part in 1..opaque(parts as u32) as usize {
                    sum += block.sums().get(part * items * of_item + v);
                });
                block.sums().set(v, sum);
            });
            let total = warp_sum(product.sum());
            if lane == 0 {
                block.of_warps().set(warp, total);
            }
            barrier!();
            if pass == Pass::Em {
                let mut total = 0.0;
                counted!(for w in 0..opaque(warps as u32) as usize {
                    total += block.of_warps().get(w);
                });
                if thread == 0 {
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
            if end.is_none() {
                // The M-step, first the factors, which only the sums are read for.
                if pass != Pass::Lloyd {
                    let matrices = if FULL && args.pooled { 1 } else { k };
                    let mut c = warp;
                    while c < matrices {
                        block.factorise(c);
                        c += warps;
                    }
                }
                let mut moved = 0.0;
                counted!(for v in (thread..k * d).step_by(threads) {
                    let (c, j) = divide(v as u32, d as u32);
                    let (c, j) = (c as usize, j as usize);
                    let count = block.count(c);
                    if count > LEAST_COUNT {
                        let by = block.first_moment(c, j) * float64::reciprocal(count);
                        let mean = block.mean(c);
                        mean.set(j, mean.get(j) + by);
                        moved = fma64(by, by, moved);
                    }
                });
                let moved = warp_sum(moved);
                if lane == 0 {
                    block.of_trials(0).set(warp, moved);
                }
                barrier!();
                if pass == Pass::Lloyd {
                    let mut moved = 0.0;
                    counted!(for w in 0..opaque(warps as u32) as usize {
                        moved += block.of_trials(0).get(w);
                    });
                    rounds += 1;
                    if moved <= f64::from_bits(block.word(word::LLOYD_TOL)) || rounds == args.lloyd {
                        pass = Pass::Assign;
                    }
                } else {
                    let mut usable = true;
                    counted!(for c in 0..block.k() {
                        let own = if FULL && args.pooled { 0 } else { c };
                        usable &= block.failures().get(own) == 0.0 && block.count(c) > LEAST_COUNT;
                    });
                    if usable {
                        counted!(for c in (thread..k).step_by(threads) {
                            let own = if FULL && args.pooled { 0 } else { c };
                            let weight = float64::log2(block.count(c) / block.total_weight());
                            block.seeds().set(c, weight + block.determinants().get(own));
                        });
                        pass = Pass::Em;
                    } else {
                        end = Some(End::GivenUp);
                    }
                }
                barrier!();
            }
        }
        block.finish(end.unwrap_or(End::GivenUp), iterations);
    }
}

/// Quotient and remainder, of numbers of 32 bits: those of 64 take the device many times as long.
#[inline(always)]
fn divide(a: u32, b: u32) -> (u32, u32) {
    (a / b, a % b)
}

/// The squared distance of a sample to a centre.
#[inline(always)]
fn distance<const FEATURES: usize>(x: &[f64; FEATURES], centre: &[f64; FEATURES]) -> f64 {
    let mut sum = 0.0;
    counted!(for j in 0..FEATURES {
        let t = x[j] - centre[j];
        sum = fma64(t, t, sum);
    });
    sum
}

macro_rules! instances {
    ($($name:ident $full:literal $features:literal),*) => { $(
        kernel! {
            /// A fit for each block.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: FitArgs) {
                // SAFETY: the caller guarantees it.
                unsafe { body::<$full, $features>(&args) }
            }
        }
    )* };
}
instances!(
    fit_diag_d01 false 1,
    fit_diag_d02 false 2,
    fit_diag_d04 false 4,
    fit_diag_d08 false 8,
    fit_diag_d12 false 12,
    fit_diag_d16 false 16,
    fit_full_d02 true 2,
    fit_full_d04 true 4,
    fit_full_d08 true 8,
    fit_full_d12 true 12,
    fit_full_d16 true 16
);
