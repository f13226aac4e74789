use super::*;

pub(crate) struct Lane<const LANES: usize, const D: usize, const MATRIX: usize> {
    component: Component<LANES, D, MATRIX>,
    pub(crate) sums: ComponentSums<D, MATRIX>,
    product: LogProduct,
}

impl<const LANES: usize, const D: usize, const MATRIX: usize> Lane<LANES, D, MATRIX> {
    #[inline(always)]
    pub(crate) fn new(component: Component<LANES, D, MATRIX>) -> Self {
        Self { component, sums: ComponentSums::new(), product: LogProduct::new() }
    }

    /// Adds the samples of a stage from quad `base` of `columns` on, SAMPLES at a time per group. All lanes take part.
    /// Safety: the samples have arrived; the parameters are in shared memory; `sample_weights` is null, or readable for
    /// the samples and the padding behind the last.
    #[inline(always)]
    pub(crate) unsafe fn add_stage<const FULL: bool, const SAMPLES: usize>(
        &mut self,
        samples: Shared<f32>,
        columns: &Columns,
        base: u32,
        sample_weights: *const f32,
    ) {
        let (group, groups) = ((thread_idx() % WARP) as usize / LANES, WARP as usize / LANES);
        // The bound is only known at run time, so that this loop is not unrolled.
        let left = columns.quads() - base;
        let end = QUAD * smaller(left, WARP) as usize;
        counted!(for round in (0..end).step_by(groups * SAMPLES) {
            let at = round + group * SAMPLES;
            let sample = base as u64 * QUAD as u64 + at as u64;
            let mut x = [[0.0f32; SAMPLES]; D];
            counted!(for j in 0..D {
                // SAFETY: samples of the stage.
                x[j] = samples.get_some(j * TILE + at);
            });
            let exponents = self.component.exponents::<FULL, SAMPLES>(&x);
            let mut likelihoods = Likelihoods::new::<LANES>(self.component.weight, &exponents.q);
            if sample + SAMPLES as u64 > columns.n {
                likelihoods.leave_out_past_the_end(sample, columns.n);
            }
            let factor = likelihoods.normalise(&mut self.product, sample_weights, sample as usize);
            self.sums.accumulate::<FULL, SAMPLES>(&exponents.z, &likelihoods.each, &factor);
        });
    }

    /// Returns the warp's log₂-likelihood; the first lane of each group counts it. All lanes of the warp take part.
    #[inline(always)]
    pub(crate) fn total(self) -> f64 {
        let first = ((thread_idx() % WARP) as usize).is_multiple_of(LANES);
        let product = if first { self.product } else { LogProduct::new() };
        product.warp_sum()
    }
}
