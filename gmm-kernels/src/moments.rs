//! `moments_diag_kKK_dDD`, `moments_full_kKK_dDD`: the fused E-step: log-likelihood and sufficient statistics in one
//! read of the data, for K up to 8 or 32 and D up to 16; no array of size N·K.
//!
//! A lane of a warp belongs to one component and keeps its sums in registers; neighbouring lanes see the same samples,
//! and a butterfly over them gives the denominator of the responsibilities. All moments are taken of the whitened
//! deviation z = A·x + b (diagonal A: z = s·x + m), which is centred on the component: nothing cancels. The sums of a few
//! hundred samples are kept in float32 and then added in float64 to shared memory, warp by warp, in a fixed order.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory [`shared_bytes`]; then
//!   [`batch_reduce`](crate::batch::batch_reduce) over [`values`] numbers.
//! * Must do, a sample: read 4·D bytes; diagonal K·5·D multiply-adds (z, its square, and three for the moments); full
//!   K·(D² + 4·D). K = 8, D = 13, N = 10⁶ on an H200: 15.6 µs and 53 µs at 33.4·10¹² a second.
use crate::direct::{Columns, QUAD, THRESHOLD};
use crate::simt::*;
use crate::tally::Tally;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MomentsArgs {
    /// The data.
    pub columns: Columns,
    /// Weight of each sample (stride), zeros behind N; or null: every weight is one.
    pub sample_weights: *const f32,
    /// Parameters ([`numbers`]`(D, full)`, lanes): for each number of a component, its value for each lane; zeros for the
    /// lanes behind K. The numbers: A row by row (diagonal: sⱼ; full: the lower triangle), b (D), w, seed.
    pub parameters: *const f32,
    /// ([`values`], gridDim.x).
    pub partials: *mut f64,
}

/// Numbers of A: its diagonal or its lower triangle.
pub const fn matrix(d: usize, full: bool) -> usize {
    if full { d * (d + 1) / 2 } else { d }
}

/// Numbers that describe a component.
pub const fn numbers(d: usize, full: bool) -> usize {
    matrix(d, full) + d + 2
}

/// Sums of a component: Σ r, Σ r·z (D), Σ r·z·zᵀ in the shape of A.
pub const fn sums(d: usize, full: bool) -> usize {
    1 + d + matrix(d, full)
}

/// Numbers that a launch gives: `sums` for each lane, (sums, lanes), and Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
pub const fn values(d: usize, full: bool, lanes: usize) -> usize {
    sums(d, full) * lanes + 1
}

/// Samples of a warp's stage, one quad a lane.
pub const TILE: usize = QUAD * WARP as usize;

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, full: bool, lanes: usize, block_dim: u32) -> usize {
    let warps = (block_dim / WARP) as usize;
    let parameters = if full { (numbers(d, full) * lanes).next_multiple_of(4) } else { 0 };
    warps * values(d, full, lanes).next_multiple_of(2) * size_of::<f64>()
        + (parameters + warps * 2 * d * TILE) * size_of::<f32>()
}

/// Warp tiles after which the float32 sums move to shared memory.
const FLUSH: u32 = 8;

/// The parameters of the lane's component: in registers where they fit, else in shared memory.
#[derive(Clone, Copy)]
struct Place<const LANES: usize> {
    shared: Shared<f32>,
}

impl<const LANES: usize> Place<LANES> {
    #[inline(always)]
    unsafe fn get(self, i: usize) -> f32 {
        // SAFETY: the caller's: number `i` of the component exists.
        unsafe { self.shared.get(i * LANES) }
    }
}

/// Sum of `x` over the lanes that share a sample.
#[inline(always)]
fn over_lanes<const LANES: usize>(mut x: f32) -> f32 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x += f32::from_bits(shuffle_xor_u32(x.to_bits(), by));
        by /= 2;
    }
    x
}

/// Maximum of `x` over the lanes that share a sample.
#[inline(always)]
fn max_over_lanes<const LANES: usize>(mut x: f32) -> f32 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        x = max(x, f32::from_bits(shuffle_xor_u32(x.to_bits(), by)));
        by /= 2;
    }
    x
}

/// P samples of a lane: D, M = [`matrix`] numbers.
#[inline(always)]
unsafe fn body<const LANES: usize, const D: usize, const M: usize, const FULL: bool, const P: usize>(
    args: &MomentsArgs,
) {
    let columns = &args.columns;
    let (keep, stream) = (policy_keep(), policy_stream());
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (component, group) = (lane % LANES, lane / LANES);
    // Groups of lanes that each take a sample at a time.
    let groups = WARP as usize / LANES;
    let per_warp = values(D, FULL, LANES).next_multiple_of(2);
    let kept = Shared::<f64>::at(warp as usize * per_warp * size_of::<f64>());
    let after = Shared::<f32>::at(warps as usize * per_warp * size_of::<f64>());
    let parameters = if FULL { (numbers(D, FULL) * LANES).next_multiple_of(4) } else { 0 };
    let place = Place::<LANES> { shared: after.offset(component) };
    let ring = after.offset(parameters + warp as usize * 2 * D * TILE);
    let step = grid_dim() * warps * WARP;
    let mut base = (block_idx() * warps + warp) * WARP;
    let fetch = |base: u32, stage: usize| {
        if base < columns.quads() {
            let last = columns.quads() - 1;
            // Past the end the last quad stands in, with weight zero.
            let i = if base + (lane as u32) < last { base + lane as u32 } else { last };
            let policy = if i < columns.keep { keep } else { stream };
            let mut j = 0;
            while j < D {
                // SAFETY: the quad exists, and the ring has a place for each lane, feature and stage.
                unsafe { ring.copy4((stage * D + j) * TILE + QUAD * lane, columns.quad(i, j), policy) };
                j += 1;
            }
        }
        copies_commit();
    };
    fetch(base, 0);
    let mut v = lane;
    while v < per_warp {
        // SAFETY: the warp's own sums.
        unsafe { kept.set(v, 0.0) };
        v += WARP as usize;
    }
    // Registers of the diagonal kernel; the full one has too many parameters for them.
    let mut a = [0.0f32; M];
    let mut b = [0.0f32; D];
    if FULL {
        let mut i = thread_idx() as usize;
        while i < numbers(D, FULL) * LANES {
            // SAFETY: within the parameters, and their place in shared memory.
            unsafe { after.set(i, *args.parameters.add(i)) };
            i += block_dim() as usize;
        }
    } else {
        let mut j = 0;
        while j < D {
            // SAFETY: numbers of a component.
            unsafe {
                a[j] = *args.parameters.add(j * LANES + component);
                b[j] = *args.parameters.add((M + j) * LANES + component);
            }
            j += 1;
        }
    }
    // SAFETY: as above.
    let (w, seed) = unsafe {
        (*args.parameters.add((M + D) * LANES + component), *args.parameters.add((M + D + 1) * LANES + component))
    };
    barrier!();
    let mut count = 0.0f32;
    let mut first = [0.0f32; D];
    let mut second = [0.0f32; M];
    let mut tally = Tally::new();
    let mut stage = 0;
    let mut tiles = 0;
    while base < columns.quads() {
        fetch(base + step, stage ^ 1);
        copies_wait_but_one();
        warp_sync();
        let x = ring.offset(stage * D * TILE);
        // The bound is known at run time only: this loop must not be unrolled.
        let left = columns.quads() - base;
        let end = QUAD * if left < WARP { left } else { WARP } as usize;
        let mut round = 0;
        while round < end {
            let at = round + group * P;
            let sample = base as u64 * QUAD as u64 + at as u64;
            let mut z = [[0.0f32; P]; D];
            let mut q = [seed; P];
            if FULL {
                let mut xs = [[0.0f32; P]; D];
                let mut j = 0;
                while j < D {
                    // SAFETY: samples of the stage, which has arrived.
                    xs[j] = unsafe { x.get_some(j * TILE + at) };
                    j += 1;
                }
                let mut i = 0;
                while i < D {
                    // SAFETY: numbers of the component.
                    z[i] = [unsafe { place.get(M + i) }; P];
                    let mut j = 0;
                    while j <= i {
                        // SAFETY: as above.
                        let aij = unsafe { place.get(i * (i + 1) / 2 + j) };
                        let mut p = 0;
                        while p < P {
                            z[i][p] = fma(aij, xs[j][p], z[i][p]);
                            p += 1;
                        }
                        j += 1;
                    }
                    i += 1;
                }
            } else {
                let mut j = 0;
                while j < D {
                    // SAFETY: samples of the stage, which has arrived.
                    let xs: [f32; P] = unsafe { x.get_some(j * TILE + at) };
                    let mut p = 0;
                    while p < P {
                        z[j][p] = fma(a[j], xs[p], b[j]);
                        p += 1;
                    }
                    j += 1;
                }
            }
            let mut j = 0;
            while j < D {
                let mut p = 0;
                while p < P {
                    q[p] = fma(-z[j][p], z[j][p], q[p]);
                    p += 1;
                }
                j += 1;
            }
            let mut likelihood = [0.0f32; P];
            let mut sum = [0.0f32; P];
            let mut power = [0.0f32; P];
            let mut low = f32::MAX;
            let mut p = 0;
            while p < P {
                likelihood[p] = w * exp2(q[p]);
                sum[p] = over_lanes::<LANES>(likelihood[p]);
                low = min(low, sum[p]);
                p += 1;
            }
            let far = warp_any(low < THRESHOLD);
            if far {
                // A far sample: once more, with the maximum over the components taken out.
                let mut p = 0;
                while p < P {
                    power[p] = max_over_lanes::<LANES>(if w > 0.0 { q[p] } else { f32::MIN });
                    // A lane without a component is not below the maximum: 0·2^0, not 0·∞.
                    likelihood[p] = w * exp2(min(q[p] - power[p], 0.0));
                    sum[p] = over_lanes::<LANES>(likelihood[p]);
                    p += 1;
                }
            }
            if sample + P as u64 > columns.n {
                // Samples past the end: likelihood zero of one.
                let mut p = 0;
                while p < P {
                    if sample + p as u64 >= columns.n {
                        (likelihood[p], sum[p], power[p]) = (0.0, 1.0, 0.0);
                    }
                    p += 1;
                }
            }
            let mut r = [0.0f32; P];
            let mut p = 0;
            while p < P {
                r[p] = likelihood[p] * reciprocal(sum[p]);
                p += 1;
            }
            if !args.sample_weights.is_null() {
                let mut p = 0;
                while p < P {
                    // SAFETY: the weights are padded with zeros like the samples.
                    let weight = unsafe { *args.sample_weights.add(sample as usize + p) };
                    r[p] *= weight;
                    tally.add_scaled(weight * (power[p] + log2(sum[p])), 1.0);
                    p += 1;
                }
            } else if far {
                let mut p = 0;
                while p < P {
                    tally.add_scaled(power[p], sum[p]);
                    p += 1;
                }
            } else {
                // Two sums above the threshold still make a normal product.
                let mut p = 0;
                while p < P {
                    tally.add(if p + 1 < P { sum[p] * sum[p + 1] } else { sum[p] });
                    p += 2;
                }
            }
            let mut p = 0;
            while p < P {
                count += r[p];
                let mut rz = [0.0f32; D];
                let mut i = 0;
                while i < D {
                    rz[i] = r[p] * z[i][p];
                    first[i] += rz[i];
                    if FULL {
                        let mut j = 0;
                        while j <= i {
                            let at = i * (i + 1) / 2 + j;
                            second[at] = fma(rz[i], z[j][p], second[at]);
                            j += 1;
                        }
                    } else {
                        second[i] = fma(rz[i], z[i][p], second[i]);
                    }
                    i += 1;
                }
                p += 1;
            }
            round += groups * P;
        }
        // The next copy into this stage starts only when all lanes have read it.
        warp_sync();
        base += step;
        stage ^= 1;
        tiles += 1;
        if tiles == FLUSH || base >= columns.quads() {
            tiles = 0;
            // SAFETY: the warp's own sums; one group of lanes writes them.
            unsafe {
                flush::<LANES>(kept, 0, &mut count, component, group);
                let mut j = 0;
                while j < D {
                    flush::<LANES>(kept, 1 + j, &mut first[j], component, group);
                    j += 1;
                }
                let mut j = 0;
                while j < M {
                    flush::<LANES>(kept, 1 + D + j, &mut second[j], component, group);
                    j += 1;
                }
            }
        }
    }
    // One lane of each group speaks for the samples that its lanes share.
    let total = if component == 0 { tally } else { Tally::new() }.warp_sum();
    if lane == 0 {
        // SAFETY: the warp's own place.
        unsafe { kept.set(values(D, FULL, LANES) - 1, total) };
    }
    barrier!();
    let mut v = thread_idx() as usize;
    while v < values(D, FULL, LANES) {
        let mut sum = 0.0;
        let mut other = 0;
        while other < warps as usize {
            // SAFETY: written before the barrier.
            sum += unsafe { Shared::<f64>::at(other * per_warp * size_of::<f64>()).get(v) };
            other += 1;
        }
        // SAFETY: a place for each value and block.
        unsafe { *args.partials.add(v * grid_dim() as usize + block_idx() as usize) = sum };
        v += block_dim() as usize;
    }
}

/// Adds a sum, over the groups of lanes, to its place for each component, and empties it. All lanes take part.
///
/// # Safety
/// `kept` has the place `index`, which only this warp uses.
#[inline(always)]
unsafe fn flush<const LANES: usize>(kept: Shared<f64>, index: usize, sum: &mut f32, component: usize, group: usize) {
    let mut by = WARP / 2;
    let mut s = *sum;
    while by >= LANES as u32 {
        s += f32::from_bits(shuffle_xor_u32(s.to_bits(), by));
        by /= 2;
    }
    if group == 0 {
        let at = index * LANES + component;
        // SAFETY: the caller's.
        unsafe { kept.set(at, kept.get(at) + s as f64) };
    }
    *sum = 0.0;
}

/// Samples of a lane at a time where A is a triangle: as many as the registers hold.
const fn full_samples(d: usize) -> usize {
    if d > 14 { 1 } else { 2 }
}

macro_rules! instances {
    ($($d:literal $diag8:ident $diag32:ident $full8:ident $full32:ident),*) => { $(
        instance!($diag8, 8, $d, false, 4);
        instance!($diag32, 32, $d, false, 4);
        instance!($full8, 8, $d, true, { full_samples($d) });
        instance!($full32, 32, $d, true, { full_samples($d) });
    )* };
}
macro_rules! instance {
    ($name:ident, $lanes:literal, $d:literal, $full:literal, $samples:expr) => {
        kernel! {
            /// Each block's log-likelihood and sufficient statistics.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: MomentsArgs) {
                // SAFETY: the caller's.
                unsafe { body::<$lanes, $d, { matrix($d, $full) }, $full, $samples>(&args) }
            }
        }
    };
}
instances!(
    1 moments_diag_k08_d01 moments_diag_k32_d01 moments_full_k08_d01 moments_full_k32_d01,
    2 moments_diag_k08_d02 moments_diag_k32_d02 moments_full_k08_d02 moments_full_k32_d02,
    3 moments_diag_k08_d03 moments_diag_k32_d03 moments_full_k08_d03 moments_full_k32_d03,
    4 moments_diag_k08_d04 moments_diag_k32_d04 moments_full_k08_d04 moments_full_k32_d04,
    5 moments_diag_k08_d05 moments_diag_k32_d05 moments_full_k08_d05 moments_full_k32_d05,
    6 moments_diag_k08_d06 moments_diag_k32_d06 moments_full_k08_d06 moments_full_k32_d06,
    7 moments_diag_k08_d07 moments_diag_k32_d07 moments_full_k08_d07 moments_full_k32_d07,
    8 moments_diag_k08_d08 moments_diag_k32_d08 moments_full_k08_d08 moments_full_k32_d08,
    9 moments_diag_k08_d09 moments_diag_k32_d09 moments_full_k08_d09 moments_full_k32_d09,
    10 moments_diag_k08_d10 moments_diag_k32_d10 moments_full_k08_d10 moments_full_k32_d10,
    11 moments_diag_k08_d11 moments_diag_k32_d11 moments_full_k08_d11 moments_full_k32_d11,
    12 moments_diag_k08_d12 moments_diag_k32_d12 moments_full_k08_d12 moments_full_k32_d12,
    13 moments_diag_k08_d13 moments_diag_k32_d13 moments_full_k08_d13 moments_full_k32_d13,
    14 moments_diag_k08_d14 moments_diag_k32_d14 moments_full_k08_d14 moments_full_k32_d14,
    15 moments_diag_k08_d15 moments_diag_k32_d15 moments_full_k08_d15 moments_full_k32_d15,
    16 moments_diag_k08_d16 moments_diag_k32_d16 moments_full_k08_d16 moments_full_k32_d16
);
