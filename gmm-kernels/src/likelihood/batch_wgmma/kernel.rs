//! The code of `batch_wgmma`.
use super::*;
use crate::data::Columns;
use crate::likelihood::batch_mma::{BatchMmaArgs, FEATURE_SCALE, FEATURES, ONE, SQUARE_SCALE, sum_of_eight};
use crate::likelihood::small_k::THRESHOLD;
use crate::math::{Float, LogProduct, LogSumExp, ROWS_OF_TILE, smaller, sum_over};
use crate::simt::*;

/// Samples of a thread: two rows of the products.
const ROWS: usize = 2;
/// Bytes of a matrix of (8, 8) float16 numbers.
const MATRIX: usize = 128;
/// Its elements of two numbers.
const WORDS: usize = MATRIX / size_of::<Halves>();

/// A thread's features of its samples: of each step, those of both halves of it.
type Features<const S: usize> = [[[f32; ROWS]; 2]; S];
/// The reference's exponents of a thread's samples, two components behind each other in each
/// bundle.
type Reference = [[f32; 4]; COMPONENTS / 2];

/// A warp's samples as the products take them.
struct Samples<const S: usize> {
    high: [[Halves; 4]; S],
    low: [[Halves; 4]; S],
}

impl<const S: usize> Samples<S> {
    #[inline(always)]
    fn new(x: &Features<S>) -> Self {
        let mut samples = Self { high: [[0; 4]; S], low: [[0; 4]; S] };
        counted!(for s in 0..S {
            counted!(for i in 0..4 {
                let v = x[s][i / 2][i % 2];
                let [high, low] = split_halves(FEATURE_SCALE * v, SQUARE_SCALE * (v * v));
                samples.high[s][i] = high;
                samples.low[s][i] = low;
            });
        });
        samples
    }
}

/// A block's parameters and sums in shared memory, as a thread sees them.
#[derive(Clone, Copy)]
struct SetsBlock<const S: usize> {
    /// Of octets, then bundles, then pairs of components.
    coefficients: Shared<Halves>,
    /// Bundles for which there is room between one octet and the next.
    room: usize,
    octets: usize,
    /// Weights of the thread's sets.
    weights: Shared<f32>,
    /// The scale of the thread's set of the first bundle.
    scales: Shared<f32>,
    /// The reference's exponents of the thread's samples.
    exponents: Shared<f32>,
}

impl<const S: usize> SetsBlock<S> {
    /// The coefficients of an octet of components and the bundles from one on.
    #[inline(always)]
    fn coefficients(&self, octet: usize, bundle: usize) -> Shared<Halves> {
        self.coefficients.offset((octet * self.room + bundle) * S * STEP_SIZE)
    }

    /// Numbers from one bundle's weights to the next.
    #[inline(always)]
    fn pitch(&self) -> usize {
        weights_size(self.octets)
    }

    /// The reference's exponents of the thread's samples for an octet of components.
    ///
    /// # Safety
    /// They are in shared memory.
    #[inline(always)]
    unsafe fn reference(&self, octet: usize) -> Reference {
        let mut q = [[0.0; 4]; COMPONENTS / 2];
        counted!(for i in 0..COMPONENTS / 2 {
            // SAFETY: the caller guarantees it.
            q[i] = unsafe { self.exponents.get4((octet * (COMPONENTS / 2) + i) * 4 * (SAMPLES / ROWS)) };
        });
        q
    }

    /// The scale of the thread's set of a bundle.
    ///
    /// # Safety
    /// The parameters are in shared memory.
    #[inline(always)]
    unsafe fn scale(&self, bundle: usize) -> f32 {
        // SAFETY: the caller guarantees it.
        unsafe { self.scales.get(bundle * self.pitch()) }
    }

    /// Adds wₖ·2^qₖ of a bundle's eight components, whose differences are `c` times `scale`.
    ///
    /// # Safety
    /// The parameters are in shared memory.
    #[inline(always)]
    unsafe fn add(
        &self,
        e: &mut [f32; ROWS],
        c: &[f32; 2 * COMPONENTS],
        scale: f32,
        reference: &Reference,
        (octet, bundle): (usize, usize),
    ) {
        let weights = self.weights.offset(bundle * self.pitch() + octet * SETS * COMPONENTS);
        // All of them first: none waits for a sum.
        let mut powers = [0.0; 2 * COMPONENTS];
        counted!(for i in 0..2 * COMPONENTS {
            powers[i] = exp2(fma(c[i], scale, reference[i / 4][i % 4]));
        });
        counted!(for i in 0..COMPONENTS / 2 {
            // SAFETY: the caller guarantees it.
            let w = unsafe { weights.get_some::<2>(2 * i) };
            counted!(for p in 0..4 {
                e[p / 2] = fma(w[p % 2], powers[4 * i + p], e[p / 2]);
            });
        });
    }

    /// Both samples' likelihoods under the thread's set of a bundle, with the maximum taken out.
    ///
    /// # Safety
    /// The parameters are in shared memory; all lanes of the warp call it.
    #[inline(always)]
    unsafe fn far(&self, samples: &Samples<S>, bundle: usize) -> [LogSumExp; ROWS] {
        let lane = (thread_idx() % WARP) as usize;
        let mut likelihoods = [LogSumExp::new(); ROWS];
        // SAFETY: the caller guarantees it.
        let scale = unsafe { self.scale(bundle) };
        // Not unrolled: it is rarely used.
        counted!(for pair in 0..opaque((self.octets * (COMPONENTS / 2)) as u32) as usize {
            not_unrolled();
            let (octet, i) = (pair / (COMPONENTS / 2), pair % (COMPONENTS / 2));
            let coefficients = self.coefficients(octet, bundle).offset(i * 4 * S * WORDS + lane);
            let weights = self.weights.offset(bundle * self.pitch() + octet * SETS * COMPONENTS);
            let mut sums = [0.0f32; 4];
            counted!(for product in 0..3 * S {
                // The small products first, as in the others.
                let (s, kind) = if product < 2 * S { (product / 2, product % 2) } else { (product - 2 * S, 2) };
                let a = if kind == 0 { samples.low[s] } else { samples.high[s] };
                let b = coefficients.offset((4 * s + 2 * (kind % 2)) * WORDS);
                // SAFETY: the caller guarantees it.
                sums = unsafe { mma(sums, a, [b.get(0), b.get(WORDS)]) };
            });
            // SAFETY: the caller guarantees it.
            let (w, reference) =
                unsafe { (weights.get_some::<2>(2 * i), self.exponents.get4(pair * 4 * (SAMPLES / ROWS))) };
            counted!(for p in 0..4 {
                likelihoods[p / 2].add(w[p % 2], fma(sums[p], scale, reference[p]));
            });
        });
        likelihoods
    }

    /// Takes the samples that are far from all components of some sets, of which `is_far` has two
    /// bits for each of the `bundles`, to those sets' sums.
    ///
    /// # Safety
    /// As [`Self::multiply_far`].
    #[inline(always)]
    unsafe fn multiply_all_far(
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
                // SAFETY: the caller guarantees it.
                unsafe { self.multiply_far(samples, f as usize, mine, products, far) };
            }
            f += 1;
        }
    }

    /// Multiplies a bundle's products by the likelihoods of the thread's samples that are `mine`,
    /// the powers of 2 of all lanes added to what is far.
    ///
    /// # Safety
    /// As for [`Self::far`]; only this warp uses its places of products and of what is far.
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
        // SAFETY: the caller guarantees it.
        let scaled = unsafe { self.far(samples, bundle) };
        let place = bundle * block_dim() as usize + thread_idx() as usize;
        // SAFETY: a place that only this thread uses.
        let mut product = unsafe { product_at(products, place) };
        let mut powers = 0.0;
        counted!(for r in 0..ROWS {
            if mine[r] {
                powers += scaled[r].max as f64;
                product.multiply(scaled[r].sum);
            }
        });
        // SAFETY: a place that only this thread uses.
        unsafe { keep_product(products, place, product) };
        let powers = sum_over(powers, ROWS_OF_TILE);
        if lane < SETS {
            let place = (bundle * warps + warp) * SETS + lane;
            // SAFETY: a place that only this thread uses.
            unsafe { far.set(place, far.get(place) + powers) };
        }
    }
}

/// Writes the reference's exponents of the thread's samples for a quarter of the components: the
/// others are those of the lanes with the same samples. A sample past the end is far from all.
///
/// # Safety
/// `components` components of the reference are in shared memory, and there is a place for each
/// exponent; all lanes of the warp call it.
#[inline(always)]
unsafe fn write_exponents<const S: usize>(
    x: &Features<S>,
    (reference, components): (Shared<f32>, usize),
    exists: [bool; ROWS],
    exponents: Shared<f32>,
) {
    /// Below [`THRESHOLD`] with any difference.
    const NOWHERE: f32 = -1e30;
    let lane = (thread_idx() % WARP) as usize;
    let row = reference_row(FEATURES * S);
    counted!(for first in (0..components).step_by(COMPONENTS) {
        let mine = reference.offset((first + 2 * (lane % 4)) * row);
        let mut q = [0.0f32; 4];
        counted!(for p in 0..4 {
            // SAFETY: the caller guarantees it.
            q[p] = if exists[p / 2] { unsafe { mine.get(p % 2 * row + 16 * S) } } else { NOWHERE };
        });
        counted!(for s in 0..S {
            counted!(for half_and_distance in 0..8 {
                let (h, distance) = (half_and_distance / 4, half_and_distance % 4);
                // The lane at this distance has this place of the half step.
                let place = 8 * s + 4 * h + ((lane % 4) ^ distance);
                let mut v = x[s][h];
                let mut r = 0;
                while distance > 0 && r < ROWS {
                    v[r] = v[r].shuffle_xor(distance as u32);
                    r += 1;
                }
                counted!(for u in 0..2 {
                    // SAFETY: the caller guarantees it.
                    let [scale, shift] = unsafe { mine.get_some::<2>(u * row + 2 * place) };
                    counted!(for r in 0..ROWS {
                        let t = fma(scale, v[r], shift);
                        q[2 * r + u] = fma(-t, t, q[2 * r + u]);
                    });
                });
            });
        });
        // SAFETY: the caller guarantees it.
        unsafe { exponents.set4((first / 2 + lane % 4) * 4 * (SAMPLES / ROWS), q) };
    });
}

/// Starts to read the features that this thread needs of its two samples, of which the first has
/// this number. No number depends on a condition: a thread would wait for it there, and not where
/// it is [taken](take).
///
/// # Safety
/// The columns are valid.
#[inline(always)]
unsafe fn fetch<const S: usize>(columns: &Columns, d: usize, sample: u64) -> Features<S> {
    let lane = (thread_idx() % WARP) as usize;
    // Past the end the first samples are read again, and not counted.
    let sample = if sample < columns.n { sample as usize } else { 0 };
    let mut x = [[[0.0f32; ROWS]; 2]; S];
    counted!(for s in 0..S {
        counted!(for h in 0..2 {
            let feature = FEATURES * s + 4 * h + lane % 4;
            // Behind D the last feature is read again, and has coefficients of zero.
            let feature = if feature < d { feature } else { d - 1 };
            // SAFETY: the feature and the samples' quad exist.
            x[s][h] = unsafe { load_f32x2(columns.x.wrapping_add(feature * columns.stride as usize + sample)) };
        });
    });
    x
}

/// The features that have arrived, where the second sample exists or not.
#[inline(always)]
fn take<const S: usize>(mut x: Features<S>, second_exists: bool) -> Features<S> {
    let is_one = thread_idx() % 4 == FEATURES as u32 % 4;
    counted!(for s in 0..S {
        counted!(for h in 0..2 {
            // Behind the end there may be any number.
            x[s][h][1] = if second_exists { x[s][h][1] } else { 0.0 };
        });
        counted!(for r in 0..ROWS {
            x[s][1][r] = if is_one { ONE } else { x[s][1][r] };
        });
    });
    x
}

/// The product at a place of shared memory: its mantissa, then its exponent's bits.
///
/// # Safety
/// [`keep_product`] has written it.
#[inline(always)]
unsafe fn product_at(products: Shared<f32>, place: usize) -> LogProduct {
    // SAFETY: the caller guarantees it.
    let [mantissa, exponent] = unsafe { products.get_some::<2>(2 * place) };
    LogProduct::from_near(exponent.to_bits() as i32, mantissa)
}

/// Writes a product without far samples to a place of shared memory.
///
/// # Safety
/// Only this thread uses the place.
#[inline(always)]
unsafe fn keep_product(products: Shared<f32>, place: usize, product: LogProduct) {
    let (exponent, mantissa) = product.near();
    // SAFETY: the caller guarantees it.
    unsafe { products.cast::<Halves>().set2(2 * place, [mantissa.to_bits(), exponent as u32]) };
}

/// Splits the coefficients of a group's bundles into shared memory. Of each tile of a step, a lane
/// has a row's two numbers of both halves of the step.
///
/// # Safety
/// The bundles exist, and there is room for `room` of them; all threads of the block call it.
#[inline(always)]
unsafe fn write_coefficients<const S: usize>(
    from: *const f32,
    coefficients: Shared<Halves>,
    octets: usize,
    room: usize,
    (first_bundle, bundles): (usize, usize),
) {
    let (warps, warp) = ((block_dim() / WARP) as usize, (thread_idx() / WARP) as usize);
    let lane = (thread_idx() % WARP) as usize;
    let mut octet = 0;
    while octet < octets {
        // Four of a pair of components' columns at a time, so that one does not wait for another.
        const AT_ONCE: usize = 4;
        let mut tile = warp;
        while tile < room * SETS * S {
            let mut v = [[0.0; 4]; AT_ONCE];
            counted!(for u in 0..AT_ONCE {
                let tile = tile + u * warps;
                let (bundle, i, s) = (tile / (4 * S), tile / S % 4, tile % S);
                if bundle < bundles {
                    let of_bundle = (first_bundle + bundle) * octets + octet;
                    let place = of_bundle * S * STEP_SIZE + s * STEP_SIZE + 128 * i + 4 * lane;
                    // SAFETY: the group's sets are within the array.
                    v[u] = unsafe { load4(from.add(place), policy_keep()) };
                }
            });
            counted!(for u in 0..AT_ONCE {
                let ([a, a_low], [b, b_low]) = (split_halves(v[u][0], v[u][1]), split_halves(v[u][2], v[u][3]));
                let tile = tile + u * warps;
                let to = coefficients.offset((octet * room * SETS * S + tile) * 4 * WORDS + lane);
                if tile < room * SETS * S {
                    // SAFETY: the shared memory has room for a group.
                    unsafe {
                        to.set(0, a);
                        to.set(WORDS, b);
                        to.set(2 * WORDS, a_low);
                        to.set(3 * WORDS, b_low);
                    }
                }
            });
            tile += AT_ONCE * warps;
        }
        octet += 1;
    }
}

/// Copies the weights and scales of a group's bundles, of `size` numbers each, to shared memory;
/// zeros behind the last.
///
/// # Safety
/// The bundles exist, and there is room for `room` of them; all threads of the block call it.
#[inline(always)]
unsafe fn write_weights(
    from: *const f32,
    weights: Shared<f32>,
    size: usize,
    room: usize,
    (first_bundle, bundles): (usize, usize),
) {
    counted!(for c in (thread_idx() as usize..room * size).step_by(block_dim() as usize) {
        // SAFETY: the caller guarantees it.
        unsafe { weights.set(c, if c < bundles * size { load(from.add(first_bundle * size + c)) } else { 0.0 }) };
    });
}

/// Writes the block's sum of each set: each warp takes other sets, and sums them over the block's
/// threads.
///
/// # Safety
/// All products and what is far are in shared memory; all threads of the block call it.
#[inline(always)]
unsafe fn write_totals(
    args: &BatchMmaArgs,
    products: Shared<f32>,
    far: Shared<f64>,
    (first_bundle, bundles): (usize, usize),
) {
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    let (warps, warp) = (threads / WARP as usize, (thread_idx() / WARP) as usize);
    counted!(for f in (warp..bundles).step_by(warps) {
        let mut sum = 0.0;
        counted!(for t in (lane..threads).step_by(WARP as usize) {
            // SAFETY: written before the barrier.
            let (exponent, mantissa) = unsafe { product_at(products, f * threads + t) }.near();
            // SAFETY: as above; of each warp's eight lanes with the same sets, one adds what is
            // far.
            let far = if lane < SETS { unsafe { far.get((f * warps + t / WARP as usize) * SETS + lane) } } else { 0.0 };
            sum += sum_of_eight((far + exponent as f64, mantissa));
        });
        if lane < SETS {
            let set = SETS * (first_bundle + f) + lane;
            // SAFETY: a place for each set and block.
            unsafe { store(args.partials.add(set * grid_dim() as usize + block_idx() as usize), sum) };
        }
    });
}

/// `ONE_OCTET`: K ≤ 8; the reference's exponents of a thread's samples are then in registers.
#[inline(always)]
unsafe fn body<const S: usize, const ONE_OCTET: bool>(args: &BatchMmaArgs) {
    let columns = &args.columns;
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    let (warps, warp) = (threads / WARP as usize, (thread_idx() / WARP) as usize);
    let (first_bundle, group) = ((block_idx_y() * args.group) as usize, args.group as usize);
    let left = args.bundles - first_bundle as u32;
    let bundles = smaller(left, args.group);
    let octets = if ONE_OCTET { 1 } else { args.octets as usize };
    let layout = Layout::new(S, octets, group, threads);
    let (room, components) = (layout.room, octets * COMPONENTS);
    let coefficients = Shared::<Halves>::at(layout.coefficients);
    let weights = Shared::<f32>::at(layout.weights);
    let reference = Shared::<f32>::at(layout.reference);
    // Those of each bundle and thread: see `product_at`.
    let products = Shared::<f32>::at(layout.products);
    let far = Shared::<f64>::at(layout.far);
    counted!(for c in (thread_idx() as usize..components * reference_row(FEATURES * S)).step_by(threads) {
        // SAFETY: all components of the reference.
        unsafe { reference.set(c, load(args.reference.add(c))) };
    });
    // SAFETY: the shared memory has room for a group.
    unsafe { write_coefficients::<S>(args.coefficients, coefficients, octets, room, (first_bundle, bundles as usize)) };
    // SAFETY: as above.
    unsafe { write_weights(args.weights, weights, weights_size(octets), room, (first_bundle, bundles as usize)) };
    counted!(for c in (thread_idx() as usize..room * threads).step_by(threads) {
        // SAFETY: a place for each thread and four sets.
        unsafe { keep_product(products, c, LogProduct::new()) };
    });
    counted!(for c in (thread_idx() as usize..bundles as usize * warps * SETS).step_by(threads) {
        // SAFETY: a place for each warp and set.
        unsafe { far.set(c, 0.0) };
    });
    operands_ready();
    barrier!();
    let exponents = Shared::<f32>::at(layout.exponents).offset(warp * components * SAMPLES + lane / 4 * 4);
    let block = SetsBlock::<S> {
        coefficients,
        room,
        octets,
        weights: weights.offset(lane % 4 * COMPONENTS),
        scales: weights.offset(octets * SETS * COMPONENTS + lane % 4),
        exponents,
    };
    let operand = Operand::new(coefficients, 4 * S * MATRIX, MATRIX);
    let start = |samples: &Samples<S>, octet: u32, bundle: u32| {
        let place = (octet * room as u32 + bundle) as usize * S * STEP_SIZE * size_of::<Halves>();
        // SAFETY: the coefficients of a group are in shared memory since the barrier; all threads
        // of the warpgroup are here.
        unsafe { warpgroup_start(&samples.high, &samples.low, operand.offset(place)) }
    };
    // Samples of a warpgroup's four warps.
    const ROUND: u64 = 4 * SAMPLES as u64;
    let groups = u64::from(block_dim() / WARPGROUP);
    let step = u64::from(grid_dim()) * groups * ROUND;
    // The bound is the same for all of the block, so that all warps of a warpgroup take part in the
    // products, and that what all threads have in common is in the registers that they have in
    // common.
    let mut first = u64::from(block_idx()) * groups * ROUND;
    let mine = (warp * SAMPLES + lane / 4 * ROWS) as u64;
    // SAFETY: the columns are valid.
    let mut next = unsafe { fetch::<S>(columns, args.d as usize, first + mine) };
    while first < columns.n {
        let sample = first + mine;
        let exists = [sample < columns.n, sample + 1 < columns.n];
        let features = take(next, exists[1]);
        warp_sync();
        // SAFETY: no lane reads the exponents of the round before any more.
        unsafe { write_exponents(&features, (reference, components), exists, exponents) };
        warp_sync();
        let samples = Samples::<S>::new(&features);
        // Arrives while this round is computed.
        // SAFETY: the columns are valid.
        next = unsafe { fetch(columns, args.d as usize, first + step + mine) };
        // SAFETY: in shared memory since the meeting of the warp.
        let reference = unsafe { block.reference(0) };
        // Of each bundle two bits: which of the thread's samples are far.
        let mut is_far = 0u32;
        let mut multiply = |[mut a, mut b]: [f32; ROWS], f: u32| {
            let place = f as usize * threads + thread_idx() as usize;
            // SAFETY: a place that only this thread uses.
            let mut product = unsafe { product_at(products, place) };
            if warp_any(min(a, b) < THRESHOLD) {
                let bit = 1 << (2 * f);
                is_far |= if a < THRESHOLD { bit } else { 0 } | if b < THRESHOLD { 2 * bit } else { 0 };
                a = if a < THRESHOLD { 1.0 } else { a };
                b = if b < THRESHOLD { 1.0 } else { b };
            }
            product.multiply(a * b);
            // SAFETY: a place that only this thread uses.
            unsafe { keep_product(products, place, product) };
        };
        counted!(for f in (0..bundles).step_by(BUNDLES_AT_ONCE as u32) {
            let mut e = [[0.0; ROWS]; BUNDLES_AT_ONCE];
            counted!(for octet in 0..octets as u32 {
                // The second bundle is multiplied while the first one's exponentials are computed.
                let mut first = start(&samples, octet, f);
                let mut second = start(&samples, octet, f + 1);
                // SAFETY: in shared memory.
                let reference = if ONE_OCTET { reference } else { unsafe { block.reference(octet as usize) } };
                // While the tensor cores multiply.
                // SAFETY: in shared memory.
                let scales = unsafe { [block.scale(f as usize), block.scale(f as usize + 1)] };
                warpgroup_finish::<1>(&mut first);
                // SAFETY: in shared memory.
                unsafe { block.add(&mut e[0], &first, scales[0], &reference, (octet as usize, f as usize)) };
                warpgroup_finish::<0>(&mut second);
                // SAFETY: in shared memory.
                unsafe { block.add(&mut e[1], &second, scales[1], &reference, (octet as usize, f as usize + 1)) };
            });
            multiply(e[0], f);
            multiply(e[1], f + 1);
        });
        // What does not exist is far.
        is_far &= u32::MAX >> (32 - 2 * bundles);
        // SAFETY: all lanes of the warp are here; places that only this warp uses.
        unsafe { block.multiply_all_far(&samples, is_far, exists, bundles, (products, far)) };
        first += step;
    }
    barrier!();
    // SAFETY: written before the barrier.
    unsafe { write_totals(args, products, far, (first_bundle, bundles as usize)) };
}

kernels! {
    /// Each block's sum for each set.
    batch_wgmma_k08_s1: BatchMmaArgs = body::<1, true>;
    batch_wgmma_k08_s2: BatchMmaArgs = body::<2, true>;
    batch_wgmma_k08_s3: BatchMmaArgs = body::<3, true>;
    batch_wgmma_k08_s4: BatchMmaArgs = body::<4, true>;
    batch_wgmma_s1: BatchMmaArgs = body::<1, false>;
    batch_wgmma_s2: BatchMmaArgs = body::<2, false>;
    batch_wgmma_s3: BatchMmaArgs = body::<3, false>;
    batch_wgmma_s4: BatchMmaArgs = body::<4, false>;
}
