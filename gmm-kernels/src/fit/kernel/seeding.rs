//! The seeds: greedy k-means++.
use super::*;
use crate::math::{Float, smaller, warp_sum};

impl<const FULL: bool, const FEATURES: usize> Block<'_, FULL, FEATURES> {
    /// Draws K seeds, each a sample drawn in proportion to its squared distance to the nearest previous seed, the best
    /// of several draws. Returns whether there are that many. All threads of the block call it.
    /// Safety: the shared memory has been cleared.
    #[inline(always)]
    pub(super) unsafe fn seed(&self, n: usize) -> bool {
        let (k, mut own) = (self.k as usize, 0.0);
        // SAFETY: samples below N.
        counted!(for i in (thread_idx() as usize..self.n()).step_by(block_dim() as usize) {
            own += self.weight(i);
            store(self.nearest(i), f64::MAX);
        });
        let (mut used, mut distinct, mut c) = (0, true, 0);
        while c < k && distinct {
            let draws = if opaque(c as u32) == 0 { 1 } else { trials(k) };
            // SAFETY: all threads of the block take part, and meet between writes and reads.
            distinct = self.draw(n, own, c, (used, draws));
            barrier!();
            // `opaque` keeps the compiler from making two copies of this branch, each with its own barriers.
            if opaque(distinct as u32) != 0 {
                self.measure(draws);
            }
            barrier!();
            if opaque(distinct as u32) != 0 {
                own = self.choose(c, draws);
            }
            used += draws;
            c += 1;
        }
        barrier!();
        distinct
    }

    /// Returns whether any sample is at a distance; if so, draws `draws` candidates for centre `c` with the uniform
    /// numbers behind the first `used`. `own`: the thread's part of the sum of the weighted distances.
    /// Safety: all threads of the block call it, after they have read the numbers that warps exchange.
    #[inline(always)]
    unsafe fn draw(&self, n: usize, own: f64, c: usize, (used, draws): (usize, usize)) -> bool {
        let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
        let (warp, lane, warps) = (thread / WARP as usize, thread_idx() % WARP, threads / WARP as usize);
        // SAFETY: samples below N; a place for each warp and candidate.
        // Running sums over the threads.
        let mut running = own;
        let mut by = 1;
        while by < WARP {
            let before = from_lane(running, (lane + WARP - by) % WARP);
            running += if lane >= by { before } else { 0.0 };
            by *= 2;
        }
        if lane == WARP - 1 {
            self.of_warps().set(warp, running);
        }
        let before = from_lane(running, (lane + WARP - 1) % WARP);
        barrier!();
        let (mut base, mut total) = (0.0, 0.0);
        counted!(for w in 0..opaque(warps as u32) as usize {
            base = if w == warp { total } else { base };
            total += self.of_warps().get(w);
        });
        let (from, to) = (if lane > 0 { base + before } else { base }, base + running);
        counted!(for trial in 0..opaque(draws as u32) as usize {
            let u = f64::load(self.args.uniforms.wrapping_add(self.word(word::UNIFORMS) as usize + used + trial));
            // Below the total even if the product is rounded up.
            let target = smaller(u * total, total * (1.0 - f64::EPSILON));
            if from <= target && target < to {
                let (mut at, mut sum, mut chosen) = (thread, from, thread);
                while at < n && sum <= target {
                    let share = self.weight(at) * if opaque(c as u32) == 0 { 1.0 } else { load(self.nearest(at)) };
                    sum += share;
                    chosen = if share > 0.0 { at } else { chosen };
                    at += threads;
                }
                self.candidates().set(trial, chosen as f64);
            }
        });
        total > 0.0
    }

    /// Computes each warp's part of the sum of the distances that each candidate would leave.
    /// Safety: all threads of the block call it; the candidates are in shared memory.
    #[inline(always)]
    unsafe fn measure(&self, draws: usize) {
        let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
        let (warp, lane) = (thread / WARP as usize, thread_idx() % WARP);
        // SAFETY: samples below N; a place for each warp and trial.
        counted!(for trial in 0..opaque(draws as u32) as usize {
            let centre = self.sample(self.candidates().get(trial) as usize);
            let mut sum = 0.0;
            counted!(for i in (thread..self.n()).step_by(threads) {
                let distance = distance(&self.sample(i), &centre);
                sum += self.weight(i) * smaller(distance, load(self.nearest(i)));
            });
            let sum = warp_sum(sum);
            if lane == 0 {
                self.of_trials(trial).set(warp, sum);
            }
        });
    }

    /// Makes the best candidate centre `c`. Returns the thread's part of the new sum of the weighted distances.
    /// Safety: all threads of the block call it; the results of [`Self::measure`] are in shared memory.
    #[inline(always)]
    unsafe fn choose(&self, c: usize, draws: usize) -> f64 {
        let (thread, threads) = (thread_idx() as usize, block_dim() as usize);
        let warps = threads / WARP as usize;
        // SAFETY: samples below N and features below D.
        let (mut least, mut best) = (f64::MAX, 0);
        counted!(for trial in 0..opaque(draws as u32) as usize {
            let mut sum = 0.0;
            counted!(for w in 0..opaque(warps as u32) as usize {
                sum += self.of_trials(trial).get(w);
            });
            if sum < least {
                (least, best) = (sum, trial);
            }
        });
        let chosen = self.candidates().get(best) as usize;
        let centre = self.sample(chosen);
        let mut own = 0.0;
        counted!(for i in (thread..self.n()).step_by(threads) {
            let nearest = smaller(distance(&self.sample(i), &centre), load(self.nearest(i)));
            own += self.weight(i) * nearest;
            store(self.nearest(i), nearest);
        });
        if thread < self.args.d as usize {
            let at = self.word(word::X) as usize + thread * self.word(word::STRIDE) as usize + chosen;
            self.mean(c).set(thread, f64::load(self.args.x.wrapping_add(at)));
        }
        own
    }
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
