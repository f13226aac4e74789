//! The code of the `fused` kernels.
//!
//! The arrays of a lane stay in registers only if the compiler knows every index into them. So the loops over them are
//! `while` loops with constant bounds, which it unrolls fully (the LLVM 7 of rust-cuda does not unroll `for` loops), and no
//! element is chosen at run time.
use super::*;
use crate::likelihood::small_k::THRESHOLD;
use crate::math::LogProduct;
use crate::simt::*;

/// Stages of a warp after which its float32 sums are added to the float64 sums in shared memory.
const FLUSH: u32 = 32;

/// What the moments of an instance are taken of.
trait Moments {
    /// Whether they are taken of x itself instead of z.
    const RAW: bool;
    /// Whether A is a triangle, and the second moments are those of all pairs of features.
    const FULL: bool;
}
/// Moments of x around the centre of the data; A is diagonal.
struct Raw;
/// Moments of z = A·x + b around the component's own centre; A is diagonal.
struct Diagonal;
/// Moments of z = A·x + b around the component's own centre; A is a lower triangle.
struct Full;
impl Moments for Raw {
    const RAW: bool = true;
    const FULL: bool = false;
}
impl Moments for Diagonal {
    const RAW: bool = false;
    const FULL: bool = false;
}
impl Moments for Full {
    const RAW: bool = false;
    const FULL: bool = true;
}

/// Sum of `x` over the lanes that share a sample.
#[inline(always)]
fn sum_over_components<const LANES: usize>(mut x: f32) -> f32 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x += f32::from_bits(shuffle_xor_u32(x.to_bits(), by));
        by /= 2;
    }
    x
}

/// Maximum of `x` over the lanes that share a sample.
#[inline(always)]
fn max_over_components<const LANES: usize>(mut x: f32) -> f32 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x = max(x, f32::from_bits(shuffle_xor_u32(x.to_bits(), by)));
        by /= 2;
    }
    x
}

/// A warp's samples on their way through its two stages in shared memory.
struct Stages<'a, const D: usize> {
    columns: &'a Columns,
    /// (2, D, [`TILE`]).
    ring: Shared<f32>,
    lane: usize,
    cached: CachePolicy,
    streamed: CachePolicy,
}

impl<const D: usize> Stages<'_, D> {
    /// Starts to copy the quads from `base` on, one a lane, to a stage; past the end there is nothing to copy.
    ///
    /// # Safety
    /// No lane reads that stage.
    #[inline(always)]
    unsafe fn fetch(&self, base: u32, stage: usize) {
        let columns = self.columns;
        if base < columns.quads() {
            let last = columns.quads() - 1;
            // Past the end the last quad stands in, with likelihoods of zero.
            let quad = if base + (self.lane as u32) < last { base + self.lane as u32 } else { last };
            let policy = if quad < columns.cached_quads { self.cached } else { self.streamed };
            // From column to column; all the columns' addresses at once would take registers.
            let quads = opaque((columns.stride / QUAD as u64) as u32) as usize;
            let mut from = columns.quad(quad, 0);
            let mut j = 0;
            while j < D {
                // SAFETY: the quad exists, and the ring has a place for each lane, feature and stage.
                unsafe { self.ring.copy4((stage * D + j) * TILE + QUAD * self.lane, from, policy) };
                from = from.wrapping_add(QUAD * quads);
                j += 1;
            }
        }
        copies_commit();
    }

    /// The samples of a stage, (D, [`TILE`]).
    #[inline(always)]
    fn stage(&self, stage: usize) -> Shared<f32> {
        self.ring.offset(stage * D * TILE)
    }
}

/// The parameters of a lane's components: component c·LANES + l of lane l among those that share a sample.
///
/// A diagonal A and its b are in registers; a triangle has too many numbers for them.
struct Components<const LANES: usize, const COMPONENTS: usize, const D: usize, const MATRIX: usize> {
    diagonal: [[f32; MATRIX]; COMPONENTS],
    shifts: [[f32; D]; COMPONENTS],
    weights: [f32; COMPONENTS],
    seeds: [f32; COMPONENTS],
    /// The numbers of the lane's component, `LANES` apart, where A is a triangle.
    triangle: Shared<f32>,
}

impl<const LANES: usize, const COMPONENTS: usize, const D: usize, const MATRIX: usize>
    Components<LANES, COMPONENTS, D, MATRIX>
{
    /// Reads what is in registers. `first`: the lane's first component.
    ///
    /// # Safety
    /// The parameters have the documented size.
    #[inline(always)]
    unsafe fn load<M: Moments>(args: &FusedArgs, first: usize, triangle: Shared<f32>) -> Self {
        let capacity = LANES * COMPONENTS;
        let mut components = Self {
            diagonal: [[0.0; MATRIX]; COMPONENTS],
            shifts: [[0.0; D]; COMPONENTS],
            weights: [0.0; COMPONENTS],
            seeds: [0.0; COMPONENTS],
            triangle,
        };
        let mut c = 0;
        while c < COMPONENTS {
            let numbers = args.parameters.wrapping_add(c * LANES + first);
            let mut j = 0;
            while !M::FULL && j < D {
                // SAFETY: numbers of a component.
                unsafe {
                    components.diagonal[c][j] = load(numbers.add(j * capacity));
                    components.shifts[c][j] = load(numbers.add((MATRIX + j) * capacity));
                }
                j += 1;
            }
            // SAFETY: as above.
            unsafe {
                components.weights[c] = load(numbers.add((MATRIX + D) * capacity));
                components.seeds[c] = load(numbers.add((MATRIX + D + 1) * capacity));
            }
            c += 1;
        }
        components
    }

    /// z and q of samples `x`.
    ///
    /// # Safety
    /// A triangle is in shared memory.
    #[inline(always)]
    unsafe fn exponents<M: Moments, const SAMPLES: usize>(
        &self,
        x: &[[f32; SAMPLES]; D],
    ) -> Exponents<COMPONENTS, D, SAMPLES> {
        let mut e = Exponents { z: [[[0.0; SAMPLES]; D]; COMPONENTS], q: [[0.0; SAMPLES]; COMPONENTS] };
        let mut c = 0;
        while c < COMPONENTS {
            e.q[c] = [self.seeds[c]; SAMPLES];
            let mut i = 0;
            while i < D {
                if M::FULL {
                    // SAFETY: numbers of the component.
                    e.z[c][i] = [unsafe { self.triangle.get((MATRIX + i) * LANES) }; SAMPLES];
                    let mut j = 0;
                    while j <= i {
                        // SAFETY: as above.
                        let a = unsafe { self.triangle.get((i * (i + 1) / 2 + j) * LANES) };
                        let mut p = 0;
                        while p < SAMPLES {
                            e.z[c][i][p] = fma(a, x[j][p], e.z[c][i][p]);
                            p += 1;
                        }
                        j += 1;
                    }
                } else {
                    let mut p = 0;
                    while p < SAMPLES {
                        e.z[c][i][p] = fma(self.diagonal[c][i], x[i][p], self.shifts[c][i]);
                        p += 1;
                    }
                }
                i += 1;
            }
            let mut j = 0;
            while j < D {
                let mut p = 0;
                while p < SAMPLES {
                    e.q[c][p] = fma(-e.z[c][j][p], e.z[c][j][p], e.q[c][p]);
                    p += 1;
                }
                j += 1;
            }
            c += 1;
        }
        e
    }
}

/// Of a lane's components and samples: z = A·x + b, and q = seed − |z|².
struct Exponents<const COMPONENTS: usize, const D: usize, const SAMPLES: usize> {
    z: [[[f32; SAMPLES]; D]; COMPONENTS],
    q: [[f32; SAMPLES]; COMPONENTS],
}

/// Likelihoods of a lane's components and samples, and their sums over all components: both times 2^−`power`, which is
/// 1 unless a sample of the warp is far from all components.
struct Likelihoods<const COMPONENTS: usize, const SAMPLES: usize> {
    each: [[f32; SAMPLES]; COMPONENTS],
    sum: [f32; SAMPLES],
    power: [f32; SAMPLES],
    /// Whether a sample of the warp was far, so that the maximum was taken out.
    far: bool,
}

impl<const COMPONENTS: usize, const SAMPLES: usize> Likelihoods<COMPONENTS, SAMPLES> {
    /// From the exponents. All lanes of the warp take part.
    #[inline(always)]
    fn new<const LANES: usize>(weights: &[f32; COMPONENTS], q: &[[f32; SAMPLES]; COMPONENTS]) -> Self {
        let mut likelihoods =
            Self { each: [[0.0; SAMPLES]; COMPONENTS], sum: [0.0; SAMPLES], power: [0.0; SAMPLES], far: false };
        let mut low = f32::MAX;
        let mut p = 0;
        while p < SAMPLES {
            let mut lanes_sum = 0.0;
            let mut c = 0;
            while c < COMPONENTS {
                likelihoods.each[c][p] = weights[c] * exp2(q[c][p]);
                lanes_sum += likelihoods.each[c][p];
                c += 1;
            }
            likelihoods.sum[p] = sum_over_components::<LANES>(lanes_sum);
            low = min(low, likelihoods.sum[p]);
            p += 1;
        }
        likelihoods.far = warp_any(low < THRESHOLD);
        if likelihoods.far {
            likelihoods.take_out_the_maximum::<LANES>(weights, q);
        }
        likelihoods
    }

    /// Computes them once more with the maximum over the components taken out. All lanes of the warp take part.
    #[inline(always)]
    fn take_out_the_maximum<const LANES: usize>(&mut self, weights: &[f32; COMPONENTS], q: &[[f32; SAMPLES]; COMPONENTS]) {
        let mut p = 0;
        while p < SAMPLES {
            let mut top = f32::MIN;
            let mut c = 0;
            while c < COMPONENTS {
                top = if weights[c] > 0.0 { max(top, q[c][p]) } else { top };
                c += 1;
            }
            self.power[p] = max_over_components::<LANES>(top);
            let mut lanes_sum = 0.0;
            let mut c = 0;
            while c < COMPONENTS {
                // A component without weight may be above the maximum: it counts 0·2^0, not 0·∞.
                self.each[c][p] = weights[c] * exp2(min(q[c][p] - self.power[p], 0.0));
                lanes_sum += self.each[c][p];
                c += 1;
            }
            self.sum[p] = sum_over_components::<LANES>(lanes_sum);
            p += 1;
        }
    }

    /// Gives the samples behind the last, of which `first` is the first here, likelihoods of zero that sum to one: nothing is
    /// counted for them.
    #[inline(always)]
    fn leave_out_past_the_end(&mut self, first: u64, n: u64) {
        let mut p = 0;
        while p < SAMPLES {
            if first + p as u64 >= n {
                (self.sum[p], self.power[p]) = (1.0, 0.0);
                let mut c = 0;
                while c < COMPONENTS {
                    self.each[c][p] = 0.0;
                    c += 1;
                }
            }
            p += 1;
        }
    }

    /// Adds the samples' log-likelihoods to `product`, and returns the factor that makes responsibilities, times the
    /// samples' weights, of the likelihoods.
    ///
    /// # Safety
    /// `sample_weights` are readable for all of the samples.
    #[inline(always)]
    unsafe fn normalise(&self, product: &mut LogProduct, sample_weights: *const f32, first: usize) -> [f32; SAMPLES] {
        let mut factor = [0.0f32; SAMPLES];
        let mut p = 0;
        while p < SAMPLES {
            factor[p] = reciprocal(self.sum[p]);
            p += 1;
        }
        if !sample_weights.is_null() {
            let mut p = 0;
            while p < SAMPLES {
                // SAFETY: the caller's.
                let weight = unsafe { load(sample_weights.add(first + p)) };
                factor[p] *= weight;
                product.multiply_scaled(weight * (self.power[p] + log2(self.sum[p])), 1.0);
                p += 1;
            }
        } else if self.far {
            let mut p = 0;
            while p < SAMPLES {
                product.multiply_scaled(self.power[p], self.sum[p]);
                p += 1;
            }
        } else {
            // Two sums above the threshold still make a normal product.
            let mut p = 0;
            while p < SAMPLES {
                product.multiply(if p + 1 < SAMPLES { self.sum[p] * self.sum[p + 1] } else { self.sum[p] });
                p += 2;
            }
        }
        factor
    }
}

/// The sums of a lane's components: Σ r, and the first and second moments.
struct Sums<const COMPONENTS: usize, const D: usize, const MATRIX: usize> {
    count: [f32; COMPONENTS],
    first: [[f32; D]; COMPONENTS],
    second: [[f32; MATRIX]; COMPONENTS],
}

impl<const COMPONENTS: usize, const D: usize, const MATRIX: usize> Sums<COMPONENTS, D, MATRIX> {
    #[inline(always)]
    fn new() -> Self {
        Self { count: [0.0; COMPONENTS], first: [[0.0; D]; COMPONENTS], second: [[0.0; MATRIX]; COMPONENTS] }
    }

    /// Adds samples, each with the responsibilities likelihood · factor.
    #[inline(always)]
    fn accumulate<M: Moments, const SAMPLES: usize>(
        &mut self,
        x: &[[f32; SAMPLES]; D],
        z: &[[[f32; SAMPLES]; D]; COMPONENTS],
        likelihoods: &[[f32; SAMPLES]; COMPONENTS],
        factor: &[f32; SAMPLES],
    ) {
        let mut p = 0;
        while p < SAMPLES {
            let mut r = [0.0f32; COMPONENTS];
            let mut c = 0;
            while c < COMPONENTS {
                r[c] = likelihoods[c][p] * factor[p];
                self.count[c] += r[c];
                c += 1;
            }
            let mut i = 0;
            while i < D {
                if M::RAW {
                    let square = x[i][p] * x[i][p];
                    let mut c = 0;
                    while c < COMPONENTS {
                        self.first[c][i] = fma(r[c], x[i][p], self.first[c][i]);
                        self.second[c][i] = fma(r[c], square, self.second[c][i]);
                        c += 1;
                    }
                } else {
                    let mut c = 0;
                    while c < COMPONENTS {
                        let rz = r[c] * z[c][i][p];
                        self.first[c][i] += rz;
                        // The elements of row i of A: of a diagonal, one.
                        let (start, row) = if M::FULL { (i * (i + 1) / 2, 0) } else { (0, i) };
                        let mut j = row;
                        while j <= i {
                            self.second[c][start + j] = fma(rz, z[c][j][p], self.second[c][start + j]);
                            j += 1;
                        }
                        c += 1;
                    }
                }
                i += 1;
            }
            p += 1;
        }
    }

    /// Moves the sums of component `c` to one array, and leaves zeros.
    #[inline(always)]
    fn take<const SUMS: usize>(&mut self, c: usize) -> [f32; SUMS] {
        let mut sums = [0.0f32; SUMS];
        (sums[0], self.count[c]) = (self.count[c], 0.0);
        let mut j = 0;
        while j < D {
            (sums[1 + j], self.first[c][j]) = (self.first[c][j], 0.0);
            j += 1;
        }
        let mut j = 0;
        while j < MATRIX {
            (sums[1 + D + j], self.second[c][j]) = (self.second[c][j], 0.0);
            j += 1;
        }
        sums
    }
}

/// Copies all components' parameters to shared memory. All threads of the block take part.
///
/// # Safety
/// There are `numbers` of them at both places.
#[inline(always)]
unsafe fn copy_parameters(to: Shared<f32>, from: *const f32, numbers: usize) {
    let mut i = thread_idx() as usize;
    while i < numbers {
        // SAFETY: the caller's.
        unsafe { to.set(i, load(from.add(i))) };
        i += block_dim() as usize;
    }
}

/// The kernel. LANES lanes share a sample, and each has COMPONENTS components; each such group of lanes takes SAMPLES
/// samples at a time. MATRIX = [`matrix`] and SUMS = [`sums`] of D features. One component a lane where A is a triangle.
#[inline(always)]
unsafe fn body<
    M: Moments,
    const LANES: usize,
    const COMPONENTS: usize,
    const SAMPLES: usize,
    const D: usize,
    const MATRIX: usize,
    const SUMS: usize,
>(
    args: &FusedArgs,
) {
    let capacity = LANES * COMPONENTS;
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (component, group) = (lane % LANES, lane / LANES);
    let groups = WARP as usize / LANES;
    // Shared memory: the sums of each warp, the parameters of a triangle, the stages of each warp.
    let values = values(D, M::FULL, capacity);
    let per_warp = values.next_multiple_of(2);
    let warp_sums = Shared::<f64>::at(warp as usize * per_warp * size_of::<f64>());
    let parameters = Shared::<f32>::at(warps as usize * per_warp * size_of::<f64>());
    let numbers = if M::FULL { numbers(D, true) * capacity } else { 0 };
    let ring = parameters.offset(numbers.next_multiple_of(4) + warp as usize * 2 * D * TILE);
    let stages = Stages::<D> { columns, ring, lane, cached, streamed };
    let step = grid_dim() * warps * WARP;
    let mut base = (block_idx() * warps + warp) * WARP;
    // SAFETY: the start: nobody reads.
    unsafe { stages.fetch(base, 0) };
    let mut v = lane;
    while v < per_warp {
        // SAFETY: the warp's own sums.
        unsafe { warp_sums.set(v, 0.0) };
        v += WARP as usize;
    }
    // SAFETY: the parameters and their place have these sizes.
    let components = unsafe {
        copy_parameters(parameters, args.parameters, numbers);
        Components::<LANES, COMPONENTS, D, MATRIX>::load::<M>(args, component, parameters.offset(component))
    };
    barrier!();
    let mut sums = Sums::<COMPONENTS, D, MATRIX>::new();
    let mut product = LogProduct::new();
    let mut stage = 0;
    let mut since_flush = 0;
    while base < columns.quads() {
        // SAFETY: all lanes have read that stage: the end of this loop.
        unsafe { stages.fetch(base + step, stage ^ 1) };
        copies_wait_but_one();
        warp_sync();
        let samples = stages.stage(stage);
        // The bound is known at run time only: this loop must not be unrolled.
        let left = columns.quads() - base;
        let end = QUAD * if left < WARP { left } else { WARP } as usize;
        let mut round = 0;
        while round < end {
            let at = round + group * SAMPLES;
            let sample = base as u64 * QUAD as u64 + at as u64;
            let mut x = [[0.0f32; SAMPLES]; D];
            let mut j = 0;
            while j < D {
                // SAFETY: samples of the stage, which has arrived.
                x[j] = unsafe { samples.get_some(j * TILE + at) };
                j += 1;
            }
            // SAFETY: a triangle is in shared memory since the barrier.
            let exponents = unsafe { components.exponents::<M, SAMPLES>(&x) };
            let mut likelihoods = Likelihoods::new::<LANES>(&components.weights, &exponents.q);
            if sample + SAMPLES as u64 > columns.n {
                likelihoods.leave_out_past_the_end(sample, columns.n);
            }
            // SAFETY: the weights are padded with zeros like the samples.
            let factor = unsafe { likelihoods.normalise(&mut product, args.sample_weights, sample as usize) };
            sums.accumulate::<M, SAMPLES>(&x, &exponents.z, &likelihoods.each, &factor);
            round += groups * SAMPLES;
        }
        base += step;
        stage ^= 1;
        since_flush += 1;
        if since_flush == FLUSH || base >= columns.quads() {
            since_flush = 0;
            let mut c = 0;
            while c < COMPONENTS {
                let sums = sums.take::<SUMS>(c);
                // SAFETY: the warp's own sums; all of its lanes have read the stage, which is free until the next copy.
                unsafe { flush::<LANES, SUMS>(warp_sums.offset(c * LANES), capacity, &sums, samples, D * TILE) };
                c += 1;
            }
        }
        // The next copy into this stage starts only when all lanes have read it.
        warp_sync();
    }
    // One lane of each group speaks for the samples that its lanes share.
    let total = if component == 0 { product } else { LogProduct::new() }.warp_sum();
    if lane == 0 {
        // SAFETY: the warp's own place.
        unsafe { warp_sums.set(values - 1, total) };
    }
    barrier!();
    // SAFETY: the barrier made the sums of all warps visible.
    unsafe { write_block_sums(args.partials, values, per_warp, warps as usize) };
}

/// Adds up the warps' sums, and leaves them as the block's.
///
/// # Safety
/// All threads of the block call it; the warps' sums are in shared memory, `per_warp` apart; `partials` has a place for each
/// value and block.
#[inline(always)]
unsafe fn write_block_sums(partials: *mut f64, values: usize, per_warp: usize, warps: usize) {
    let mut v = thread_idx() as usize;
    while v < values {
        let mut sum = 0.0;
        let mut warp = 0;
        while warp < warps {
            // SAFETY: the caller's.
            sum += unsafe { Shared::<f64>::at(warp * per_warp * size_of::<f64>()).get(v) };
            warp += 1;
        }
        // SAFETY: the caller's.
        unsafe { store(partials.add(v * grid_dim() as usize + block_idx() as usize), sum) };
        v += block_dim() as usize;
    }
}

/// Adds the lanes' float32 sums of a component each to the warp's float64 sums: Σ over the groups of lanes of sum v of
/// component c goes to `warp_sums[v·step + c]`. The lanes exchange them through `room`, `size` numbers of shared memory. All
/// lanes take part.
///
/// # Safety
/// `warp_sums` has these places, which only this warp uses, and no lane needs what is in `room`.
#[inline(always)]
unsafe fn flush<const LANES: usize, const SUMS: usize>(
    warp_sums: Shared<f64>,
    step: usize,
    sums: &[f32; SUMS],
    room: Shared<f32>,
    size: usize,
) {
    let (warp, lane) = (WARP as usize, (thread_idx() % WARP) as usize);
    // As many at once as there is room for.
    let most = size / warp;
    let mut start = 0;
    while start < SUMS {
        let end = if SUMS - start < most { SUMS } else { start + most };
        warp_sync();
        let mut v = 0;
        while v < SUMS {
            if v >= start && v < end {
                // SAFETY: inside; the lane's own places.
                unsafe { room.set((v - start) * warp + lane, sums[v]) };
            }
            v += 1;
        }
        warp_sync();
        let mut o = lane;
        while o < (end - start) * LANES {
            let (v, component) = (o / LANES, o % LANES);
            let mut sum = 0.0f64;
            let mut group = 0;
            while group < warp / LANES {
                // SAFETY: written before all lanes met.
                sum += unsafe { room.get(v * warp + group * LANES + component) } as f64;
                group += 1;
            }
            let at = (start + v) * step + component;
            // SAFETY: the caller's; a place for each lane's turn.
            unsafe { warp_sums.set(at, warp_sums.get(at) + sum) };
            o += warp;
        }
        start = end;
    }
}

/// Samples at a time of a group of lanes where A is a triangle: as many as the registers hold.
const fn full_samples(d: usize) -> usize {
    if d > 14 { 1 } else { 2 }
}

macro_rules! instances {
    ($($d:literal $raw8:ident $raw32:ident $diag8:ident $diag32:ident $full8:ident $full32:ident),*) => { $(
        // Lanes that share a sample, components of a lane, samples at a time.
        instance!($raw8, Raw, 4, 2, 2, $d);
        instance!($raw32, Raw, 16, 2, 2, $d);
        instance!($diag8, Diagonal, 8, 1, 4, $d);
        instance!($diag32, Diagonal, 32, 1, 4, $d);
        instance!($full8, Full, 8, 1, { full_samples($d) }, $d);
        instance!($full32, Full, 32, 1, { full_samples($d) }, $d);
    )* };
}
macro_rules! instance {
    ($name:ident, $moments:ident, $lanes:literal, $components:literal, $samples:expr, $d:literal) => {
        kernel! {
            /// Each block's log-likelihood and sufficient statistics.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: FusedArgs) {
                const FULL: bool = $moments::FULL;
                // SAFETY: the caller's.
                unsafe {
                    body::<$moments, $lanes, $components, $samples, $d, { matrix($d, FULL) }, { sums($d, FULL) }>(&args)
                }
            }
        }
    };
}
instances!(
    1 fused_raw_k08_d01 fused_raw_k32_d01 fused_diag_k08_d01 fused_diag_k32_d01 fused_full_k08_d01 fused_full_k32_d01,
    2 fused_raw_k08_d02 fused_raw_k32_d02 fused_diag_k08_d02 fused_diag_k32_d02 fused_full_k08_d02 fused_full_k32_d02,
    3 fused_raw_k08_d03 fused_raw_k32_d03 fused_diag_k08_d03 fused_diag_k32_d03 fused_full_k08_d03 fused_full_k32_d03,
    4 fused_raw_k08_d04 fused_raw_k32_d04 fused_diag_k08_d04 fused_diag_k32_d04 fused_full_k08_d04 fused_full_k32_d04,
    5 fused_raw_k08_d05 fused_raw_k32_d05 fused_diag_k08_d05 fused_diag_k32_d05 fused_full_k08_d05 fused_full_k32_d05,
    6 fused_raw_k08_d06 fused_raw_k32_d06 fused_diag_k08_d06 fused_diag_k32_d06 fused_full_k08_d06 fused_full_k32_d06,
    7 fused_raw_k08_d07 fused_raw_k32_d07 fused_diag_k08_d07 fused_diag_k32_d07 fused_full_k08_d07 fused_full_k32_d07,
    8 fused_raw_k08_d08 fused_raw_k32_d08 fused_diag_k08_d08 fused_diag_k32_d08 fused_full_k08_d08 fused_full_k32_d08,
    9 fused_raw_k08_d09 fused_raw_k32_d09 fused_diag_k08_d09 fused_diag_k32_d09 fused_full_k08_d09 fused_full_k32_d09,
    10 fused_raw_k08_d10 fused_raw_k32_d10 fused_diag_k08_d10 fused_diag_k32_d10 fused_full_k08_d10 fused_full_k32_d10,
    11 fused_raw_k08_d11 fused_raw_k32_d11 fused_diag_k08_d11 fused_diag_k32_d11 fused_full_k08_d11 fused_full_k32_d11,
    12 fused_raw_k08_d12 fused_raw_k32_d12 fused_diag_k08_d12 fused_diag_k32_d12 fused_full_k08_d12 fused_full_k32_d12,
    13 fused_raw_k08_d13 fused_raw_k32_d13 fused_diag_k08_d13 fused_diag_k32_d13 fused_full_k08_d13 fused_full_k32_d13,
    14 fused_raw_k08_d14 fused_raw_k32_d14 fused_diag_k08_d14 fused_diag_k32_d14 fused_full_k08_d14 fused_full_k32_d14,
    15 fused_raw_k08_d15 fused_raw_k32_d15 fused_diag_k08_d15 fused_diag_k32_d15 fused_full_k08_d15 fused_full_k32_d15,
    16 fused_raw_k08_d16 fused_raw_k32_d16 fused_diag_k08_d16 fused_diag_k32_d16 fused_full_k08_d16 fused_full_k32_d16
);
