//! The M-step, and access to the sums of a pass.
use super::*;
use crate::math::{ROOT_HALF_LOG2_E, float64, warp_sum};

/// The least fraction to which a sum of squares may shrink around the new mean: 2⁻²⁰, as in `CentredSums::cancel`.
const LOST: f64 = 1048576.0;
/// The least pivot over its variance: 2⁻⁴⁰, far above a zero's rounding error.
const LEAST_PIVOT: f64 = 9.094947017729282e-13;
/// A component with a smaller count has lost its samples. (The host's floor is ten times the float64 epsilon.)
const LEAST_COUNT: f64 = 1e-14;

/// The sum of `x` over the lanes of the warp, in all lanes; all take part.
#[inline(always)]
fn sum_in_all_lanes(mut x: f64) -> f64 {
    let mut by = WARP / 2;
    while by > 0 {
        x += x.shuffle_xor(by);
        by /= 2;
    }
    x
}

impl<const FULL: bool, const FEATURES: usize> Block<'_, FULL, FEATURES> {
    /// A sum of component `c` over all samples: number `v` of an item.
    /// Safety: the sums have been written, and the pass has the item.
    #[inline(always)]
    unsafe fn sum(&self, c: usize, item: usize, v: usize) -> f64 {
        let at = c * self.n_items as usize + item - self.first_item as usize;
        self.sums().get(at * self.layout().of_item + v)
    }

    /// Σ r of component `c`.
    /// Safety: as for [`Self::sum`].
    #[inline(always)]
    unsafe fn count(&self, c: usize) -> f64 {
        self.first_moment(c, self.d())
    }

    /// Σ r·(xⱼ − μⱼ) of component `c`; Σ r for j = D.
    /// Safety: as for [`Self::sum`].
    #[inline(always)]
    unsafe fn first_moment(&self, c: usize, j: usize) -> f64 {
        if FULL { self.second_moment(c, self.d(), j) } else { self.sum(c, j, 0) }
    }

    /// Σ r·(xᵢ − μᵢ)·(xⱼ − μⱼ) of component `c`, for i ≥ j; in `fit_diag` for i = j.
    /// Safety: as for [`Self::sum`].
    #[inline(always)]
    unsafe fn second_moment(&self, c: usize, i: usize, j: usize) -> f64 {
        if FULL { self.sum(c, row_items(i) + j / CHUNK, j % CHUNK) } else { self.sum(c, i, 1) }
    }

    /// Σ r·(xᵢ − x̄ᵢ)·(xⱼ − x̄ⱼ) around the new means, of component `c` or all; and whether it cancels.
    /// Safety: as for [`Self::sum`].
    #[inline(always)]
    unsafe fn scatter(&self, c: usize, all: bool, i: usize, j: usize) -> (f64, bool) {
        let (mut around_mean, mut moved) = (0.0, 0.0);
        let (from, to) = if all { (0, self.k) } else { (c as u32, c as u32 + 1) };
        counted!(for e in from..opaque(to) {
            let e = e as usize;
            let n = self.count(e);
            let mean = if n > LEAST_COUNT { self.first_moment(e, i) * float64::reciprocal(n) } else { 0.0 };
            let of_mean = mean * self.first_moment(e, j);
            around_mean += self.second_moment(e, i, j) - of_mean;
            moved += of_mean;
        });
        (around_mean, i == j && moved > LOST * around_mean)
    }

    /// Computes a factor from the sums, of component `c` or of all. One warp does it, with all lanes.
    /// Safety: the sums are over all samples, and no other warp uses the factor.
    #[inline(always)]
    unsafe fn factorise(&self, c: usize) {
        let lane = thread_idx() % WARP;
        let row = lane as usize;
        let (d, factor, pooled) = (self.d(), self.factor(c), self.args.pooled);
        // SAFETY: lanes write their own rows or columns.
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
            // A unit matrix behind the features.
            if row >= d && row < FEATURES {
                counted!(for j in 0..opaque(lane + 1) as usize {
                    factor.set(row_start(row) + j, if j == row { 1.0 } else { 0.0 });
                });
            }
            warp_sync();
            let inverse = if row < FEATURES { float64::reciprocal(factor.get(row_start(row) + row)) } else { 1.0 };
            determinant = float64::log2(inverse);
            // A lane's column of L⁻¹, which overwrites samples that are no longer needed.
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

    /// Takes the step that ends a pass, and sets the next. Returns whether the fit goes on. `rounds`: Lloyd's
    /// iterations.
    /// Safety: all threads of the block call it; the sums are over all samples.
    #[inline(always)]
    pub(super) unsafe fn maximise(&self, pass: &mut Pass, rounds: &mut u32) -> bool {
        let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
        let (warp, lane, warps) = (thread / WARP as usize, thread_idx() % WARP, threads / WARP as usize);
        let (k, d) = (self.k as usize, self.args.d as usize);
        // SAFETY: places that only this thread or warp uses, or that a barrier separates.
        // First the factors, which need only the sums.
        if *pass != Pass::Lloyd {
            let matrices = if FULL && self.args.pooled { 1 } else { k };
            let mut c = warp;
            while c < matrices {
                self.factorise(c);
                c += warps;
            }
        }
        let mut moved = 0.0;
        counted!(for v in (thread..k * d).step_by(threads) {
            let (c, j) = divide(v as u32, d as u32);
            let (c, j) = (c as usize, j as usize);
            let count = self.count(c);
            if count > LEAST_COUNT {
                let by = self.first_moment(c, j) * float64::reciprocal(count);
                let mean = self.mean(c);
                mean.set(j, mean.get(j) + by);
                moved = fma64(by, by, moved);
            }
        });
        let moved = warp_sum(moved);
        if lane == 0 {
            self.of_trials(0).set(warp, moved);
        }
        barrier!();
        let mut usable = true;
        if *pass == Pass::Lloyd {
            let mut moved = 0.0;
            counted!(for w in 0..opaque(warps as u32) as usize {
                moved += self.of_trials(0).get(w);
            });
            *rounds += 1;
            if moved <= f64::from_bits(self.word(word::LLOYD_TOL)) || *rounds == self.args.lloyd {
                *pass = Pass::Assign;
            }
        } else {
            counted!(for c in 0..self.k() {
                let own = if FULL && self.args.pooled { 0 } else { c };
                usable &= self.failures().get(own) == 0.0 && self.count(c) > LEAST_COUNT;
            });
            if usable {
                counted!(for c in (thread..k).step_by(threads) {
                    let own = if FULL && self.args.pooled { 0 } else { c };
                    let weight = float64::log2(self.count(c) / self.total_weight());
                    self.seeds().set(c, weight + self.determinants().get(own));
                });
                *pass = Pass::Em;
            }
        }
        barrier!();
        usable
    }

    /// Writes the results.
    /// Safety: the sums are over all samples, unless the fit is given up.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, end: End, iterations: u32) {
        let results = self.args.results.wrapping_add(self.word(word::RESULTS) as usize);
        let d = self.d();
        let of_component = d + sums(FULL, d);
        // SAFETY: the place has these numbers, and the caller guarantees the rest.
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
