//! A block's sets, and their contributions to samples' likelihoods.
use super::*;
use crate::math::{LogSumExp, ROWS_OF_TILE, sum_over};

/// A block's parameters and sums in shared memory, as a thread sees them.
#[derive(Clone, Copy)]
pub(super) struct SetsBlock<const S: usize> {
    /// By octet, then bundle, then pair of components.
    coefficients: Shared<Halves>,
    /// Bundles that fit between one octet and the next.
    room: usize,
    octets: usize,
    /// Weights of the thread's sets.
    weights: Shared<f32>,
    /// The scale of the thread's set of the first bundle.
    scales: Shared<f32>,
    /// The reference's exponents of the thread's samples.
    pub(super) exponents: Shared<f32>,
}

impl<const S: usize> SetsBlock<S> {
    #[inline(always)]
    pub(super) fn new(layout: &Layout, octets: usize) -> Self {
        let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
        let weights = Shared::<f32>::at(layout.weights);
        Self {
            coefficients: Shared::at(layout.coefficients),
            room: layout.room,
            octets,
            weights: weights.offset(lane % 4 * COMPONENTS),
            scales: weights.offset(octets * SETS * COMPONENTS + lane % 4),
            exponents: Shared::at(layout.exponents).offset(warp * octets * COMPONENTS * SAMPLES + lane / 4 * 4),
        }
    }

    /// The coefficients of an octet of components, from a bundle on.
    #[inline(always)]
    pub(super) fn coefficients(&self, octet: usize, bundle: usize) -> Shared<Halves> {
        self.coefficients.offset((octet * self.room + bundle) * S * STEP_SIZE)
    }

    /// Numbers from one bundle's weights to the next.
    #[inline(always)]
    fn pitch(&self) -> usize {
        weights_size(self.octets)
    }

    /// The reference's exponents of the thread's samples for an octet of components.
    /// Safety: they are in shared memory.
    #[inline(always)]
    pub(super) unsafe fn reference(&self, octet: usize) -> Reference {
        let mut q = [[0.0; 4]; COMPONENTS / 2];
        counted!(for i in 0..COMPONENTS / 2 {
            q[i] = self.exponents.get4((octet * (COMPONENTS / 2) + i) * 4 * (SAMPLES / ROWS));
        });
        q
    }

    /// The scale of the thread's set of a bundle.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(super) unsafe fn scale(&self, bundle: usize) -> f32 {
        self.scales.get(bundle * self.pitch())
    }

    /// Adds wₖ·2^qₖ of a bundle's eight components, whose differences are `c` times `scale`.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(super) unsafe fn add(
        &self,
        e: &mut [f32; ROWS],
        c: &[f32; 2 * COMPONENTS],
        scale: f32,
        reference: &Reference,
        (octet, bundle): (usize, usize),
    ) {
        let weights = self.weights.offset(bundle * self.pitch() + octet * SETS * COMPONENTS);
        // All powers first: none waits for a sum.
        let mut powers = [0.0; 2 * COMPONENTS];
        counted!(for i in 0..2 * COMPONENTS {
            powers[i] = exp2(fma(c[i], scale, reference[i / 4][i % 4]));
        });
        counted!(for i in 0..COMPONENTS / 2 {
            let w = weights.get_some::<2>(2 * i);
            counted!(for p in 0..4 {
                e[p / 2] = fma(w[p % 2], powers[4 * i + p], e[p / 2]);
            });
        });
    }

    /// Both samples' likelihoods under the thread's set of a bundle, with the maximum subtracted. All lanes call it.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    unsafe fn far(&self, samples: &Samples<S>, bundle: usize) -> [LogSumExp; ROWS] {
        let lane = (thread_idx() % WARP) as usize;
        let mut likelihoods = [LogSumExp::new(); ROWS];
        let scale = self.scale(bundle);
        // Not unrolled, because rarely used.
        counted!(for pair in 0..opaque((self.octets * (COMPONENTS / 2)) as u32) as usize {
            not_unrolled();
            let (octet, i) = (pair / (COMPONENTS / 2), pair % (COMPONENTS / 2));
            let coefficients = self.coefficients(octet, bundle).offset(i * 4 * S * WORDS + lane);
            let weights = self.weights.offset(bundle * self.pitch() + octet * SETS * COMPONENTS);
            let mut sums = [0.0f32; 4];
            counted!(for product in 0..3 * S {
                // Small products first, as elsewhere.
                let (s, kind) = if product < 2 * S { (product / 2, product % 2) } else { (product - 2 * S, 2) };
                let a = if kind == 0 { samples.low[s] } else { samples.high[s] };
                let b = coefficients.offset((4 * s + 2 * (kind % 2)) * WORDS);
                sums = mma(sums, a, [b.get(0), b.get(WORDS)]);
            });
            let (w, reference) = (weights.get_some::<2>(2 * i), self.exponents.get4(pair * 4 * (SAMPLES / ROWS)));
            counted!(for p in 0..4 {
                likelihoods[p / 2].add(w[p % 2], fma(sums[p], scale, reference[p]));
            });
        });
        likelihoods
    }

    /// Adds far samples to the sums of the sets from whose components they are far; `is_far`: two bits for each bundle.
    /// Safety: as for [`Self::multiply_far`].
    #[inline(always)]
    pub(super) unsafe fn multiply_all_far(
        &self,
        samples: &Samples<S>,
        mut is_far: u32,
        exists: [bool; ROWS],
        bundles: u32,
        (products, far): (Shared<f32>, Shared<f64>),
    ) {
        let mut f = 0;
        while warp_any(is_far != 0) && f < bundles {
            not_unrolled();
            let mine = [is_far & 1 != 0 && exists[0], is_far & 2 != 0 && exists[1]];
            is_far >>= 2;
            if warp_any(mine[0] || mine[1]) {
                self.multiply_far(samples, f as usize, mine, products, far);
            }
            f += 1;
        }
    }

    /// Multiplies the likelihoods of the samples that are `mine` into a bundle's products; all lanes' powers go to
    /// `far`.
    /// Safety: as for [`Self::far`]; only this warp uses its places of `products` and `far`.
    #[inline(always)]
    unsafe fn multiply_far(
        &self,
        samples: &Samples<S>,
        bundle: usize,
        mine: [bool; ROWS],
        products: Shared<f32>,
        far: Shared<f64>,
    ) {
        let (warps, warp) = ((block_dim() / WARP) as usize, (thread_idx() / WARP) as usize);
        let lane = (thread_idx() % WARP) as usize;
        let scaled = self.far(samples, bundle);
        let place = bundle * block_dim() as usize + thread_idx() as usize;
        // SAFETY: only this thread uses the place.
        let mut product = product_at(products, place);
        let mut powers = 0.0;
        counted!(for r in 0..ROWS {
            if mine[r] {
                powers += scaled[r].max as f64;
                product.multiply(scaled[r].sum);
            }
        });
        keep_product(products, place, product);
        let powers = sum_over(powers, ROWS_OF_TILE);
        if lane < SETS {
            let place = (bundle * warps + warp) * SETS + lane;
            far.set(place, far.get(place) + powers);
        }
    }
}
