//! A pass over the samples: each sample's share in each component, and the sums of these.
use super::*;
use crate::math::{LogProduct64, float64, smaller, warp_sum};

/// 2^LEAST is negligible beside one.
const LEAST: f64 = -1000.0;

impl<const FULL: bool, const FEATURES: usize> Block<'_, FULL, FEATURES> {
    /// The difference of a sample from a mean.
    /// Safety: the means have been written.
    #[inline(always)]
    unsafe fn deviation(x: &[f64; FEATURES], mean: Shared<f64>) -> [f64; FEATURES] {
        let mut t = [0.0; FEATURES];
        counted!(for j in 0..FEATURES {
            t[j] = x[j] - mean.get(j);
        });
        t
    }

    /// A sample's exponent under a component: log₂ of its weighted density, without the constant that depends on D.
    /// Safety: the parameters have been written.
    #[inline(always)]
    unsafe fn exponent(x: &[f64; FEATURES], mean: Shared<f64>, factor: Shared<f64>, seed: f64) -> f64 {
        let (t, mut q) = (Self::deviation(x, mean), seed);
        if FULL {
            written_out!(for i in 0..FEATURES {
                let mut z = 0.0;
                counted!(for pair in 0..i / 2 + 1 {
                    let j = 2 * pair;
                    // SAFETY: rows have even lengths.
                    let [a, b] = factor.get_pair(row_start(i) + j);
                    z = fma64(a, t[j], z);
                    if j < i {
                        z = fma64(b, t[j + 1], z);
                    }
                });
                q = fma64(-z, z, q);
            });
        } else {
            counted!(for j in 0..FEATURES {
                let z = t[j] * factor.get(j);
                q = fma64(-z, z, q);
            });
        }
        q
    }

    /// Writes a sample's share in each component: its whole weight in the nearest.
    /// Safety: the means have been written, and no other thread uses `shares` (K,).
    #[inline(always)]
    unsafe fn assign(&self, x: &[f64; FEATURES], weight: f64, shares: Shared<f64>) {
        let (mut least, mut label) = (f64::MAX, 0);
        let (mut mean, stride) = (self.mean(0), self.layout().mean_stride);
        counted!(for c in 0..opaque(self.k) {
            let mut distance = 0.0;
            let t = Self::deviation(x, mean);
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
            share.set(0, if c == label { weight } else { 0.0 });
            share = share.offset(1);
        });
    }

    /// Writes a sample's responsibilities, times its weight, and multiplies its likelihood into `product`.
    /// Safety: the parameters have been written, and no other thread uses `shares` (K,).
    #[inline(always)]
    unsafe fn respond(&self, x: &[f64; FEATURES], weight: f64, shares: Shared<f64>, product: &mut LogProduct64) {
        let mut top = f64::MIN;
        let layout = self.layout();
        let next_factor = if FULL && self.args.pooled { 0 } else { layout.factor_stride };
        let (mut mean, mut factor, mut seed, mut share) = (self.mean(0), self.factor(0), self.seeds(), shares);
        counted!(for _c in 0..opaque(self.k) {
            let q = Self::exponent(x, mean, factor, seed.get(0));
            top = if q > top { q } else { top };
            share.set(0, q);
            (mean, factor) = (mean.offset(layout.mean_stride), factor.offset(next_factor));
            (seed, share) = (seed.offset(1), share.offset(1));
        });
        let (mut sum, mut share) = (0.0, shares);
        counted!(for _c in 0..opaque(self.k) {
            let power = share.get(0) - top;
            let e = float64::exp2_normal(if power > LEAST { power } else { LEAST });
            sum += e;
            share.set(0, e);
            share = share.offset(1);
        });
        if self.args.sample_weights.is_null() {
            product.multiply(top, sum);
        } else {
            product.add(weight * (top + float64::log2(sum)));
        }
        let (factor, mut share) = (weight * float64::reciprocal(sum), shares);
        counted!(for _c in 0..opaque(self.k) {
            share.set(0, share.get(0) * factor);
            share = share.offset(1);
        });
    }

    /// Writes a sample to its place in the tile, followed by the number one.
    /// Safety: no other thread uses the place.
    #[inline(always)]
    unsafe fn put(&self, x: &[f64; FEATURES], place: Shared<f64>) {
        let d = self.args.d as usize;
        counted!(for j in 0..FEATURES {
            place.set(j, if j == d { 1.0 } else { x[j] });
        });
        // The rest of the last chunk.
        let end = if FULL { FEATURES / CHUNK * CHUNK + CHUNK } else { FEATURES + 1 };
        counted!(for j in FEATURES..end {
            place.set(j, if j == d { 1.0 } else { 0.0 });
        });
    }

    /// Mean `j` of component `c`; zero behind the features.
    /// Safety: the means have been written.
    #[inline(always)]
    unsafe fn mean_or_zero(&self, c: usize, j: usize) -> f64 {
        if j < self.d() { self.mean(c).get(j) } else { 0.0 }
    }

    /// Adds the tile's samples `first`, `first + step`, … below `end` to an item of component `c`, with sums at `to`.
    /// Safety: the tile and the means have been written, and no other thread uses the sums.
    #[inline(always)]
    unsafe fn add(&self, c: usize, item: usize, to: Shared<f64>, (first, step, end): (usize, usize, usize)) {
        let layout = self.layout();
        let (sample_stride, share_stride) = (layout.sample_stride, layout.share_stride);
        let mut share_at = self.place(layout.shares + c + first * share_stride);
        let mut sample = self.place(layout.samples + first * sample_stride);
        let (next_share, next_sample) = (step * share_stride, step * sample_stride);
        if FULL {
            // The item's row and chunk: rows with equally many chunks form groups.
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

    /// Computes the sums of a pass over all samples, and each warp's part of the log-likelihood.
    /// Safety: all threads of the block call it; the parameters that the pass reads have been written.
    #[inline(always)]
    pub(super) unsafe fn add_samples(&self, pass: Pass, n: usize) {
        let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
        let (warp, lane) = (thread / WARP as usize, thread_idx() % WARP);
        let items = self.k as usize * self.n_items as usize;
        let parts = if items < threads { divide(threads as u32, items as u32).0 as usize } else { 1 };
        let of_item = self.layout().of_item;
        // Returns the part of a tile's samples, the component and the item of a slot.
        let place = |slot: usize| {
            let (part, rest) = divide(slot as u32, items as u32);
            let (c, item) = divide(rest, self.n_items);
            (part as usize, c as usize, item as usize)
        };
        // SAFETY: samples below N; places that only this thread uses, or that a barrier separates.
        counted!(for v in (thread..parts * items * of_item).step_by(threads) {
            self.sums().set(v, 0.0);
        });
        let own = place(thread);
        let mut product = LogProduct64::new();
        let mut first = 0;
        while first < n {
            let rows = smaller(threads, n - first);
            if thread < rows {
                let (x, weight) = (self.sample(first + thread), self.weight(first + thread));
                let layout = self.layout();
                self.put(&x, self.place(layout.samples + thread * layout.sample_stride));
                let shares = self.place(layout.shares + thread * layout.share_stride);
                if pass == Pass::Em {
                    self.respond(&x, weight, shares, &mut product);
                } else {
                    self.assign(&x, weight, shares);
                }
            }
            barrier!();
            let (mut slot, (mut part, mut c, mut item)) = (thread, own);
            while slot < parts * items {
                let to = self.sums().offset(slot * of_item);
                self.add(c, self.first_item as usize + item, to, (part, parts, rows));
                slot += threads;
                if slot < parts * items {
                    (part, c, item) = place(slot);
                }
            }
            barrier!();
            first += threads;
        }
        // Adds up the sums of all parts and warps.
        counted!(for v in (thread..items * of_item).step_by(threads) {
            let mut sum = self.sums().get(v);
            counted!(for part in 1..opaque(parts as u32) as usize {
                sum += self.sums().get(part * items * of_item + v);
            });
            self.sums().set(v, sum);
        });
        let total = warp_sum(product.sum());
        if lane == 0 {
            self.of_warps().set(warp, total);
        }
        barrier!();
    }

    /// The log-likelihood of the samples in the pass.
    /// Safety: [`Self::add_samples`] has computed it.
    #[inline(always)]
    pub(super) unsafe fn total(&self) -> f64 {
        let mut total = 0.0;
        counted!(for w in 0..opaque(block_dim() / WARP) as usize {
            total += self.of_warps().get(w);
        });
        total
    }
}
