//! The sums over components for the samples of a thread.
use super::*;

/// The log-sum-exps of a thread's samples, in shared memory: the work between two tiles needs the registers.
#[derive(Clone, Copy)]
pub struct Sums {
    /// Maxima of the thread's first quad of samples.
    pub maxima: Shared<f32>,
    /// The distance from the maxima to the sums.
    pub sums: usize,
}

impl Sums {
    /// Reads the samples of a quad.
    /// Safety: the places exist; only this thread uses them.
    #[inline(always)]
    unsafe fn get(self, quad: usize) -> [[f32; QUAD]; 2] {
        let at = quad * (WARP_SAMPLES / 2);
        [self.maxima.get4(at), self.maxima.get4(self.sums + at)]
    }

    /// Safety: as for [`Self::get`].
    #[inline(always)]
    pub unsafe fn set(self, quad: usize, max: [f32; QUAD], sum: [f32; QUAD]) {
        let at = quad * (WARP_SAMPLES / 2);
        self.maxima.set4(at, max);
        self.maxima.set4(self.sums + at, sum);
    }

    /// Adds R components with exponents `q`.
    /// Safety: as for [`Self::get`]; there are R weights.
    #[inline(always)]
    pub unsafe fn add<const R: usize>(self, q: &[[f32; SAMPLES]; R], weights: *const f32) {
        counted!(for quad in 0..SAMPLES / QUAD {
            let [mut max_, mut sum] = self.get(quad);
            counted!(for p in 0..QUAD {
                let mut top = max_[p];
                counted!(for k in 0..R {
                    top = max(top, q[k][quad * QUAD + p]);
                });
                sum[p] *= exp2(max_[p] - top);
                counted!(for k in 0..R {
                    sum[p] = fma(load(weights.add(k)), exp2(q[k][quad * QUAD + p] - top), sum[p]);
                });
                max_[p] = top;
            });
            self.set(quad, max_, sum);
        });
    }
}
