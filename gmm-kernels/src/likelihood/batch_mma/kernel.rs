use super::*;
use crate::data::QUAD;
use crate::likelihood::small_k::THRESHOLD;
use crate::math::{Float, LogProduct, LogSumExp, ROWS_OF_TILE, butterfly, smaller};
use crate::simt::*;

/// A warp's samples, for each of two tiles and each step as [`mma`] takes them: high halves, low halves.
struct Samples<const S: usize> {
    high: [[[Halves; 4]; S]; 2],
    low: [[[Halves; 4]; S]; 2],
}

impl<const S: usize> Samples<S> {
    /// Splits a thread's features: a quad of samples for each half step, its first two samples in the first tile.
    #[inline(always)]
    fn new(x: &[[[f32; QUAD]; 2]; S]) -> Self {
        let mut samples = Self { high: [[[0; 4]; S]; 2], low: [[[0; 4]; S]; 2] };
        counted!(for s in 0..S {
            counted!(for h in 0..2 {
                counted!(for p in 0..QUAD {
                    let v = x[s][h][p];
                    let [high, low] = split_halves(FEATURE_SCALE * v, SQUARE_SCALE * (v * v));
                    samples.high[p / 2][s][2 * h + p % 2] = high;
                    samples.low[p / 2][s][2 * h + p % 2] = low;
                });
            });
        });
        samples
    }

    /// The sums of products for components 2i and 2i + 1 of the lane's set: in each tile first those of the quad's
    /// first or third sample, then the next one's. `coefficients`: the lane's, of tile i in step 0. All lanes call it.
    /// Safety: the coefficients of all steps are there.
    #[inline(always)]
    unsafe fn sums(&self, coefficients: Shared<Halves>) -> [[f32; 4]; 2] {
        let mut b = [[0; 4]; S];
        counted!(for s in 0..S {
            b[s] = coefficients.get4(s * STEP_SIZE);
        });
        let mut sums = [[0.0f32; 4]; 2];
        // Small products first: the truncation of their sums is negligible.
        counted!(for s in 0..S {
            let (high, low) = ([b[s][0], b[s][1]], [b[s][2], b[s][3]]);
            sums[0] = mma(sums[0], self.low[0][s], high);
            sums[1] = mma(sums[1], self.low[1][s], high);
            sums[0] = mma(sums[0], self.high[0][s], low);
            sums[1] = mma(sums[1], self.high[1][s], low);
        });
        counted!(for s in 0..S {
            let high = [b[s][0], b[s][1]];
            sums[0] = mma(sums[0], self.high[0][s], high);
            sums[1] = mma(sums[1], self.high[1][s], high);
        });
        sums
    }
}

/// Four sets in shared memory, as a lane sees them.
#[derive(Clone, Copy)]
struct Bundle {
    /// The lane's coefficients of tile 0.
    coefficients: Shared<Halves>,
    /// The weights of the lane's set.
    weights: Shared<f32>,
    /// The reference's exponents of the lane's quad, [`SAMPLES`] apart from component to component.
    exponents: Shared<f32>,
    octets: u32,
    /// The factor of the sums of the lane's set.
    scale: f32,
}

impl Bundle {
    /// Σₖ wₖ·2^qₖ of a quad for the lane's set. All lanes of the warp call it.
    /// Safety: the bundle's parameters are in shared memory.
    #[inline(always)]
    unsafe fn likelihoods<const S: usize>(&self, samples: &Samples<S>) -> [f32; QUAD] {
        let mut likelihoods = [0.0f32; QUAD];
        counted!(for octet in 0..self.octets as usize {
            let coefficients = self.coefficients.offset(octet * S * STEP_SIZE);
            let weights = self.weights.offset(octet * SETS * COMPONENTS);
            let exponents = self.exponents.offset(octet * COMPONENTS * SAMPLES);
            counted!(for i in 0..COMPONENTS / 2 {
                let (sums, w) = (samples.sums(coefficients.offset(128 * i)), weights.get_some::<2>(2 * i));
                counted!(for c in 0..2 {
                    let reference = exponents.get4((2 * i + c) * SAMPLES);
                    counted!(for p in 0..QUAD {
                        let q = fma(sums[p / 2][2 * (p % 2) + c], self.scale, reference[p]);
                        likelihoods[p] = fma(w[c], exp2(q), likelihoods[p]);
                    });
                });
            });
        });
        likelihoods
    }

    /// As [`Self::likelihoods`], with the maximum subtracted.
    /// Safety: as for [`Self::likelihoods`].
    #[inline(always)]
    unsafe fn far_likelihoods<const S: usize>(&self, samples: &Samples<S>) -> [LogSumExp; QUAD] {
        let mut likelihoods = [LogSumExp::new(); QUAD];
        // Not unrolled, because rarely used.
        counted!(for pair in 0..opaque(self.octets * (COMPONENTS / 2) as u32) as usize {
            not_unrolled();
            let (octet, i) = (pair / (COMPONENTS / 2), pair % (COMPONENTS / 2));
            let coefficients = self.coefficients.offset(octet * S * STEP_SIZE + 128 * i);
            let weights = self.weights.offset(octet * SETS * COMPONENTS + 2 * i);
            let exponents = self.exponents.offset((octet * COMPONENTS + 2 * i) * SAMPLES);
            let (sums, w) = (samples.sums(coefficients), weights.get_some::<2>(0));
            counted!(for c in 0..2 {
                let reference = exponents.get4(c * SAMPLES);
                counted!(for p in 0..QUAD {
                    likelihoods[p].add(w[c], fma(sums[p / 2][2 * (p % 2) + c], self.scale, reference[p]));
                });
            });
        });
        likelihoods
    }
}

/// Writes the reference's exponents of the lane's quad for a quarter of the components; the other lanes with the same
/// quad write the rest. All lanes of the warp call it.
/// Safety: `components` components of the reference are in shared memory, and each exponent has a place.
#[inline(always)]
unsafe fn write_exponents<const S: usize>(
    x: &[[[f32; QUAD]; 2]; S],
    reference: Shared<f32>,
    components: usize,
    exponents: Shared<f32>,
) {
    let lane = (thread_idx() % WARP) as usize;
    let row = reference_row(FEATURES * S);
    counted!(for first in (0..components).step_by(COMPONENTS) {
        // The lane's two components of eight.
        let mine = [first + lane % 4, first + 4 + lane % 4];
        let mut q = [[0.0f32; QUAD]; 2];
        counted!(for u in 0..2 {
            q[u] = [reference.get(mine[u] * row + 16 * S); QUAD];
        });
        written_out!(for s in 0..S {
            counted!(for half_and_distance in 0..8 {
                let (h, distance) = (half_and_distance / 4, half_and_distance % 4);
                // The lane at this distance has this place of the half step.
                let place = 8 * s + 4 * h + ((lane % 4) ^ distance);
                let mut v = x[s][h];
                let mut p = 0;
                while distance > 0 && p < QUAD {
                    v[p] = v[p].shuffle_xor(distance as u32);
                    p += 1;
                }
                counted!(for u in 0..2 {
                    let [scale, shift] = reference.get_some::<2>(mine[u] * row + 2 * place);
                    counted!(for p in 0..QUAD {
                        let t = fma(scale, v[p], shift);
                        q[u][p] = fma(-t, t, q[u][p]);
                    });
                });
            });
        });
        counted!(for u in 0..2 {
            exponents.set4(mine[u] * SAMPLES, q[u]);
        });
    });
}

/// The sum of the logarithms of the products of the lanes with the same `lane % 4`, in each. All lanes take part.
#[inline(always)]
pub(crate) fn sum_of_eight((power, mantissa): (f64, f32)) -> f64 {
    let (power, mantissa) = butterfly((power, mantissa), ROWS_OF_TILE, |(power, mantissa), distance| {
        // Eight factors below 2 stay below 2^8.
        let mantissa = mantissa * mantissa.shuffle_xor(distance);
        (power + power.shuffle_xor(distance), mantissa)
    });
    power + log2(mantissa) as f64
}

/// A block's numbers in shared memory, except the reference's exponents.
struct Filled {
    reference: Shared<f32>,
    coefficients: Shared<Halves>,
    weights: Shared<f32>,
    /// For each bundle and thread a product of likelihoods: its power of 2, and its mantissa.
    powers: Shared<f64>,
    mantissas: Shared<f32>,
}

impl Filled {
    /// Copies the parameters of the reference and of a group's bundles, and sets all products to 1. All threads call
    /// it.
    /// Safety: the bundles exist, and the shared memory has room for them.
    #[inline(always)]
    unsafe fn fill<const S: usize>(&self, args: &BatchMmaArgs, first_bundle: usize, bundles: usize) {
        let (threads, octets) = (block_dim() as usize, args.octets as usize);
        let (coefficients_size, weights_size) = (octets * S * STEP_SIZE, weights_size(octets));
        let reference_size = octets * COMPONENTS * reference_row(FEATURES * S);
        counted!(for c in (thread_idx() as usize..reference_size).step_by(threads) {
            // SAFETY: all components of the reference.
            self.reference.set(c, load(args.reference.add(c)));
        });
        counted!(for c in (4 * thread_idx() as usize..bundles * coefficients_size).step_by(4 * threads) {
            let v = load4(args.coefficients.add(first_bundle * coefficients_size + c), policy_keep());
            let ([a, b], [c0, c1]) = (split_halves(v[0], v[1]), split_halves(v[2], v[3]));
            self.coefficients.set4(c, [a, c0, b, c1]);
        });
        counted!(for c in (thread_idx() as usize..bundles * weights_size).step_by(threads) {
            self.weights.set(c, load(args.weights.add(first_bundle * weights_size + c)));
        });
        counted!(for c in (thread_idx() as usize..bundles * threads).step_by(threads) {
            // SAFETY: a place for each thread and four sets.
            self.powers.set(c, 0.0);
            self.mantissas.set(c, 1.0);
        });
    }
}

/// Writes the block's sum of each set: each warp takes other sets, over all threads. All threads of the block call it.
/// Safety: the products of all threads are in shared memory.
#[inline(always)]
unsafe fn write_totals(
    args: &BatchMmaArgs,
    powers: Shared<f64>,
    mantissas: Shared<f32>,
    first_bundle: usize,
    bundles: usize,
) {
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    counted!(for f in ((thread_idx() / WARP) as usize..bundles).step_by(threads / WARP as usize) {
        let mut sum = 0.0;
        counted!(for t in (lane..threads).step_by(WARP as usize) {
            let at = f * threads + t;
            // SAFETY: written before the barrier.
            sum += sum_of_eight((powers.get(at), mantissas.get(at)));
        });
        if lane < SETS {
            let set = SETS * (first_bundle + f) + lane;
            // SAFETY: a place for each set and block.
            store(args.partials.add(set * grid_dim() as usize + block_idx() as usize), sum);
        }
    });
}

#[inline(always)]
unsafe fn body<const S: usize>(args: &BatchMmaArgs) {
    let columns = &args.columns;
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    let first_bundle = (block_idx_y() * args.group) as usize;
    let bundles = if args.bundles as usize - first_bundle < args.group as usize {
        args.bundles as usize - first_bundle
    } else {
        args.group as usize
    };
    let octets = args.octets as usize;
    let (coefficients_size, weights_size) = (octets * S * STEP_SIZE, weights_size(octets));
    let components = octets * COMPONENTS;
    let reference = Shared::<f32>::at(0);
    let exponents = reference.offset(components * reference_row(FEATURES * S));
    let mut bytes = components * (reference_row(FEATURES * S) + threads) * size_of::<f32>();
    let coefficients = Shared::<Halves>::at(bytes);
    bytes += args.group as usize * coefficients_size * size_of::<Halves>();
    let weights = Shared::<f32>::at(bytes);
    let products = bytes + args.group as usize * weights_size * size_of::<f32>();
    let powers = Shared::<f64>::at(products);
    let mantissas = Shared::<f32>::at(products + args.group as usize * threads * size_of::<f64>());
    let filled = Filled { reference, coefficients, weights, powers, mantissas };
    // SAFETY: the shared memory holds a group.
    filled.fill::<S>(args, first_bundle, bundles);
    barrier!();
    let (cached, streamed) = (policy_keep(), policy_stream());
    let last = columns.quads() - 1;
    // The warp's exponents, from those of the lane's quad on.
    let exponents = exponents.offset((thread_idx() / WARP) as usize * components * SAMPLES + lane / 4 * QUAD);
    // Starts to read this thread's features, for each half step, of the lane's quad in round `first`. No number depends
    // on a condition, at which a thread would wait for it.
    let read = |first: u32| {
        let mut x = [[[0.0f32; QUAD]; 2]; S];
        let quad = first + lane as u32 / 4;
        // Past the end the last quad is read again, and not counted.
        let quad = smaller(quad, last);
        counted!(for s in 0..S {
            counted!(for h in 0..2 {
                let feature = FEATURES * s + 4 * h + lane % 4;
                // Behind D the last feature is read again, and has coefficients of zero.
                let feature = if feature < args.d as usize { feature } else { args.d as usize - 1 };
                // SAFETY: the feature and the quad exist.
                x[s][h] =
                    load4(columns.quad(quad, feature), if quad < columns.cached_quads { cached } else { streamed });
            });
        });
        x
    };
    const ROUND: u32 = (SAMPLES / QUAD) as u32;
    let step = grid_dim() * (block_dim() / WARP) * ROUND;
    let mut first = (block_idx() * (block_dim() / WARP) + thread_idx() / WARP) * ROUND;
    // The bound is the same for all lanes of a warp, so that all take part in the products.
    let mut next = read(first);
    while first < columns.quads() {
        let mut features = next;
        counted!(for s in 0..S {
            features[s][1] = if lane % 4 == FEATURES % 4 { [ONE; QUAD] } else { features[s][1] };
        });
        warp_sync();
        // SAFETY: no lane reads the previous round's exponents any more.
        write_exponents(&features, reference, components, exponents);
        warp_sync();
        let samples = Samples::<S>::new(&features);
        // Arrives while this round is computed.
        next = read(first + step);
        let sample = (first as u64 + lane as u64 / 4) * QUAD as u64;
        counted!(for f in 0..bundles {
            let weights = weights.offset(f * weights_size);
            let bundle = Bundle {
                coefficients: coefficients.offset(f * coefficients_size + 4 * lane),
                weights: weights.offset(lane % 4 * COMPONENTS),
                exponents,
                octets: args.octets,
                // SAFETY: the group's parameters are in shared memory since the barrier.
                scale: weights.get(octets * SETS * COMPONENTS + lane % 4),
            };
            // SAFETY: all lanes of the warp take part.
            let mut e = bundle.likelihoods(&samples);
            counted!(for p in 0..QUAD {
                e[p] = if sample + (p as u64) < columns.n { e[p] } else { 1.0 };
            });
            let mine = f * threads + thread_idx() as usize;
            // SAFETY: only this thread uses the place.
            let mut product = LogProduct::from_parts(powers.get(mine), mantissas.get(mine));
            if warp_any(min(min(e[0], e[1]), min(e[2], e[3])) < THRESHOLD) {
                let scaled = bundle.far_likelihoods(&samples);
                counted!(for p in 0..QUAD {
                    if e[p] < THRESHOLD {
                        product.multiply_scaled(scaled[p].max, scaled[p].sum);
                        e[p] = 1.0;
                    }
                });
            }
            product.multiply(e[0] * e[1]);
            product.multiply(e[2] * e[3]);
            let (power, mantissa) = product.parts();
            powers.set(mine, power);
            mantissas.set(mine, mantissa);
        });
        first += step;
    }
    barrier!();
    // SAFETY: written before the barrier.
    write_totals(args, powers, mantissas, first_bundle, bundles);
}

kernels! {
    /// Computes each block's sum for each set.
    batch_mma_s1: BatchMmaArgs = body::<1>;
    batch_mma_s2: BatchMmaArgs = body::<2>;
    batch_mma_s3: BatchMmaArgs = body::<3>;
    batch_mma_s4: BatchMmaArgs = body::<4>;
}
