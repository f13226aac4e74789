use super::*;

/// Sum of `x` over the lanes that share a sample.
#[inline(always)]
pub(crate) fn sum_over_components<T: Float, const LANES: usize>(mut x: T) -> T {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x = x + x.shuffle_xor(by);
        by /= 2;
    }
    x
}

/// Maximum of `x` over the lanes that share a sample.
#[inline(always)]
pub(crate) fn max_over_components<const LANES: usize>(mut x: f32) -> f32 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x = max(x, x.shuffle_xor(by));
        by /= 2;
    }
    x
}

/// Likelihoods of a lane's component and samples, and their sums over all components. Both are times 2^−`power`, which
/// is 1 unless a sample of the warp is far from all components.
pub(crate) struct Likelihoods<const SAMPLES: usize> {
    pub(crate) each: [f32; SAMPLES],
    pub(crate) sum: [f32; SAMPLES],
    pub(crate) power: [f32; SAMPLES],
    /// Whether a sample of the warp was far, so that the maximum was subtracted.
    pub(crate) far: bool,
}

impl<const SAMPLES: usize> Likelihoods<SAMPLES> {
    /// Computes the likelihoods of exponents `q`. All lanes of the warp take part.
    #[inline(always)]
    pub(crate) fn new<const LANES: usize>(weight: f32, q: &[f32; SAMPLES]) -> Self {
        let mut likelihoods = Self { each: [0.0; SAMPLES], sum: [0.0; SAMPLES], power: [0.0; SAMPLES], far: false };
        let mut low = f32::MAX;
        counted!(for p in 0..SAMPLES {
            likelihoods.each[p] = weight * exp2(q[p]);
            likelihoods.sum[p] = sum_over_components::<f32, LANES>(likelihoods.each[p]);
            low = min(low, likelihoods.sum[p]);
        });
        likelihoods.far = warp_any(low < THRESHOLD);
        if likelihoods.far {
            likelihoods.take_out_the_maximum::<LANES>(weight, q);
        }
        likelihoods
    }

    /// Computes them again with the maximum over the components subtracted. All lanes of the warp take part.
    #[inline(always)]
    pub(crate) fn take_out_the_maximum<const LANES: usize>(&mut self, weight: f32, q: &[f32; SAMPLES]) {
        counted!(for p in 0..SAMPLES {
            let own = if weight > 0.0 { max(f32::MIN, q[p]) } else { f32::MIN };
            self.power[p] = max_over_components::<LANES>(own);
            // A component without weight may have a q above the maximum: it counts as 0·2^0, not as 0·∞.
            self.each[p] = weight * exp2(min(q[p] - self.power[p], 0.0));
            self.sum[p] = sum_over_components::<f32, LANES>(self.each[p]);
        });
    }

    /// Makes samples past the last count as nothing (likelihoods of zero with sum one). `first`: the first one's
    /// number.
    #[inline(always)]
    pub(crate) fn leave_out_past_the_end(&mut self, first: u64, n: u64) {
        counted!(for p in 0..SAMPLES {
            if first + p as u64 >= n {
                (self.each[p], self.sum[p], self.power[p]) = (0.0, 1.0, 0.0);
            }
        });
    }

    /// Adds the log-likelihoods to `product`. Returns the factor from likelihoods to responsibilities times weights.
    /// Safety: `sample_weights` is readable for all samples.
    #[inline(always)]
    pub(crate) unsafe fn normalise(
        &self,
        product: &mut LogProduct,
        sample_weights: *const f32,
        first: usize,
    ) -> [f32; SAMPLES] {
        let mut factor = [0.0f32; SAMPLES];
        counted!(for p in 0..SAMPLES {
            factor[p] = reciprocal(self.sum[p]);
        });
        if !sample_weights.is_null() {
            counted!(for p in 0..SAMPLES {
                let weight = load(sample_weights.add(first + p));
                factor[p] *= weight;
                product.multiply_scaled(weight * (self.power[p] + log2(self.sum[p])), 1.0);
            });
        } else if self.far {
            counted!(for p in 0..SAMPLES {
                product.multiply_scaled(self.power[p], self.sum[p]);
            });
        } else {
            // The product of two sums above the threshold is still a normal number.
            counted!(for p in (0..SAMPLES).step_by(2) {
                product.multiply(if p + 1 < SAMPLES { self.sum[p] * self.sum[p + 1] } else { self.sum[p] });
            });
        }
        factor
    }
}
