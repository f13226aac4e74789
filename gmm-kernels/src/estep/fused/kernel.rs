//! The code of the `fused` kernels.
use super::*;
use crate::likelihood::small_k::THRESHOLD;
use crate::math::LogProduct;
use crate::simt::*;

/// Warp tiles after which the float32 sums move to shared memory.
const FLUSH: u32 = 32;

/// The parameters of the lane's component in shared memory.
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

/// P samples at a time by LANES lanes with C components each (component c·LANES + lane); D, M = [`matrix`]
/// and SUMS = [`sums`] numbers. OF:
/// what the moments are taken of, `p`lain x, or z by a `d`iagonal or `f`ull A (then with one component a lane).
#[inline(always)]
unsafe fn body<
    const LANES: usize,
    const C: usize,
    const D: usize,
    const M: usize,
    const SUMS: usize,
    const OF: char,
    const P: usize,
>(
    args: &FusedArgs,
) {
    let (plain, full) = (OF == 'p', OF == 'f');
    let k = LANES * C;
    let columns = &args.columns;
    let (keep, stream) = (policy_keep(), policy_stream());
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (component, group) = (lane % LANES, lane / LANES);
    // Groups of lanes that each take P samples at a time.
    let groups = WARP as usize / LANES;
    let per_warp = values(D, full, k).next_multiple_of(2);
    let kept = Shared::<f64>::at(warp as usize * per_warp * size_of::<f64>());
    let after = Shared::<f32>::at(warps as usize * per_warp * size_of::<f64>());
    let parameters = if full { (numbers(D, full) * k).next_multiple_of(4) } else { 0 };
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
            // From column to column; all the columns' addresses at once would take registers.
            let quads = opaque((columns.stride / QUAD as u64) as u32) as usize;
            let mut from = columns.quad(i, 0);
            let mut j = 0;
            while j < D {
                // SAFETY: the quad exists, and the ring has a place for each lane, feature and stage.
                unsafe { ring.copy4((stage * D + j) * TILE + QUAD * lane, from, policy) };
                from = from.wrapping_add(QUAD * quads);
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
    // Registers of the diagonal kernels; the full one has too many parameters for them.
    let mut a = [[0.0f32; M]; C];
    let mut b = [[0.0f32; D]; C];
    let (mut w, mut seed) = ([0.0f32; C], [0.0f32; C]);
    if full {
        let mut i = thread_idx() as usize;
        while i < numbers(D, full) * k {
            // SAFETY: within the parameters, and their place in shared memory.
            unsafe { after.set(i, *args.parameters.add(i)) };
            i += block_dim() as usize;
        }
    }
    let mut c = 0;
    while c < C {
        let own = args.parameters.wrapping_add(c * LANES + component);
        let mut j = 0;
        while !full && j < D {
            // SAFETY: numbers of a component.
            unsafe {
                a[c][j] = *own.add(j * k);
                b[c][j] = *own.add((M + j) * k);
            }
            j += 1;
        }
        // SAFETY: as above.
        unsafe {
            w[c] = *own.add((M + D) * k);
            seed[c] = *own.add((M + D + 1) * k);
        }
        c += 1;
    }
    barrier!();
    let mut count = [0.0f32; C];
    let mut first = [[0.0f32; D]; C];
    let mut second = [[0.0f32; M]; C];
    let mut product = LogProduct::new();
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
            let mut xs = [[0.0f32; P]; D];
            let mut j = 0;
            while j < D {
                // SAFETY: samples of the stage, which has arrived.
                xs[j] = unsafe { x.get_some(j * TILE + at) };
                j += 1;
            }
            let mut z = [[[0.0f32; P]; D]; C];
            let mut q = [[0.0f32; P]; C];
            let mut c = 0;
            while c < C {
                q[c] = [seed[c]; P];
                let mut i = 0;
                while i < D {
                    if full {
                        // SAFETY: numbers of the component.
                        z[c][i] = [unsafe { place.get(M + i) }; P];
                        let mut j = 0;
                        while j <= i {
                            // SAFETY: as above.
                            let aij = unsafe { place.get(i * (i + 1) / 2 + j) };
                            let mut p = 0;
                            while p < P {
                                z[c][i][p] = fma(aij, xs[j][p], z[c][i][p]);
                                p += 1;
                            }
                            j += 1;
                        }
                    } else {
                        let mut p = 0;
                        while p < P {
                            z[c][i][p] = fma(a[c][i], xs[i][p], b[c][i]);
                            p += 1;
                        }
                    }
                    i += 1;
                }
                let mut j = 0;
                while j < D {
                    let mut p = 0;
                    while p < P {
                        q[c][p] = fma(-z[c][j][p], z[c][j][p], q[c][p]);
                        p += 1;
                    }
                    j += 1;
                }
                c += 1;
            }
            let mut likelihood = [[0.0f32; P]; C];
            let mut sum = [0.0f32; P];
            let mut power = [0.0f32; P];
            let mut low = f32::MAX;
            let mut p = 0;
            while p < P {
                let mut own = 0.0;
                let mut c = 0;
                while c < C {
                    likelihood[c][p] = w[c] * exp2(q[c][p]);
                    own += likelihood[c][p];
                    c += 1;
                }
                sum[p] = over_lanes::<LANES>(own);
                low = min(low, sum[p]);
                p += 1;
            }
            let far = warp_any(low < THRESHOLD);
            if far {
                // A far sample: once more, with the maximum over the components taken out.
                let mut p = 0;
                while p < P {
                    let mut top = f32::MIN;
                    let mut c = 0;
                    while c < C {
                        top = if w[c] > 0.0 { max(top, q[c][p]) } else { top };
                        c += 1;
                    }
                    power[p] = max_over_lanes::<LANES>(top);
                    let mut own = 0.0;
                    let mut c = 0;
                    while c < C {
                        // A component without weight is not below the maximum: 0·2^0, not 0·∞.
                        likelihood[c][p] = w[c] * exp2(min(q[c][p] - power[p], 0.0));
                        own += likelihood[c][p];
                        c += 1;
                    }
                    sum[p] = over_lanes::<LANES>(own);
                    p += 1;
                }
            }
            if sample + P as u64 > columns.n {
                // Samples past the end: likelihood zero of one.
                let mut p = 0;
                while p < P {
                    if sample + p as u64 >= columns.n {
                        (sum[p], power[p]) = (1.0, 0.0);
                        let mut c = 0;
                        while c < C {
                            likelihood[c][p] = 0.0;
                            c += 1;
                        }
                    }
                    p += 1;
                }
            }
            let mut factor = [0.0f32; P];
            let mut p = 0;
            while p < P {
                factor[p] = reciprocal(sum[p]);
                p += 1;
            }
            if !args.sample_weights.is_null() {
                let mut p = 0;
                while p < P {
                    // SAFETY: the weights are padded with zeros like the samples.
                    let weight = unsafe { *args.sample_weights.add(sample as usize + p) };
                    factor[p] *= weight;
                    product.multiply_scaled(weight * (power[p] + log2(sum[p])), 1.0);
                    p += 1;
                }
            } else if far {
                let mut p = 0;
                while p < P {
                    product.multiply_scaled(power[p], sum[p]);
                    p += 1;
                }
            } else {
                // Two sums above the threshold still make a normal product.
                let mut p = 0;
                while p < P {
                    product.multiply(if p + 1 < P { sum[p] * sum[p + 1] } else { sum[p] });
                    p += 2;
                }
            }
            let mut p = 0;
            while p < P {
                let mut r = [0.0f32; C];
                let mut c = 0;
                while c < C {
                    r[c] = likelihood[c][p] * factor[p];
                    count[c] += r[c];
                    c += 1;
                }
                let mut i = 0;
                while i < D {
                    if plain {
                        let square = xs[i][p] * xs[i][p];
                        let mut c = 0;
                        while c < C {
                            first[c][i] = fma(r[c], xs[i][p], first[c][i]);
                            second[c][i] = fma(r[c], square, second[c][i]);
                            c += 1;
                        }
                    } else {
                        let mut c = 0;
                        while c < C {
                            let rz = r[c] * z[c][i][p];
                            first[c][i] += rz;
                            // Elements of A's row: of a diagonal, one.
                            let (start, row) = if full { (i * (i + 1) / 2, 0) } else { (0, i) };
                            let mut j = row;
                            while j <= i {
                                second[c][start + j] = fma(rz, z[c][j][p], second[c][start + j]);
                                j += 1;
                            }
                            c += 1;
                        }
                    }
                    i += 1;
                }
                p += 1;
            }
            round += groups * P;
        }
        base += step;
        stage ^= 1;
        tiles += 1;
        if tiles == FLUSH || base >= columns.quads() {
            tiles = 0;
            let mut c = 0;
            while c < C {
                let mut sums = [0.0f32; SUMS];
                (sums[0], count[c]) = (count[c], 0.0);
                let mut j = 0;
                while j < D {
                    (sums[1 + j], first[c][j]) = (first[c][j], 0.0);
                    j += 1;
                }
                let mut j = 0;
                while j < M {
                    (sums[1 + D + j], second[c][j]) = (second[c][j], 0.0);
                    j += 1;
                }
                // SAFETY: the warp's own sums; all of its lanes have read the stage, which is free until the next copy.
                unsafe { flush::<LANES, SUMS>(kept.offset(c * LANES), k, &sums, x, D * TILE) };
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
        unsafe { kept.set(values(D, full, k) - 1, total) };
    }
    barrier!();
    let mut v = thread_idx() as usize;
    while v < values(D, full, k) {
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

/// Adds sums, over the groups of lanes, to their places: sum v of the lane with component c to `kept[v·step + c]`. They
/// change lanes through `room` numbers of shared memory. All lanes take part.
///
/// # Safety
/// `kept` has these places, which only this warp uses, and no lane needs what is in `room`.
#[inline(always)]
unsafe fn flush<const LANES: usize, const SUMS: usize>(
    kept: Shared<f64>,
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
            unsafe { kept.set(at, kept.get(at) + sum) };
            o += warp;
        }
        start = end;
    }
}

/// Samples of a lane at a time where A is a triangle: as many as the registers hold.
const fn full_samples(d: usize) -> usize {
    if d > 14 { 1 } else { 2 }
}

macro_rules! instances {
    ($($d:literal $plain8:ident $plain32:ident $diag8:ident $diag32:ident $full8:ident $full32:ident),*) => { $(
        instance!($plain8, 4, 2, $d, 'p', 2);
        instance!($plain32, 16, 2, $d, 'p', 2);
        instance!($diag8, 8, 1, $d, 'd', 4);
        instance!($diag32, 32, 1, $d, 'd', 4);
        instance!($full8, 8, 1, $d, 'f', { full_samples($d) });
        instance!($full32, 32, 1, $d, 'f', { full_samples($d) });
    )* };
}
macro_rules! instance {
    ($name:ident, $lanes:literal, $components:literal, $d:literal, $of:literal, $samples:expr) => {
        kernel! {
            /// Each block's log-likelihood and sufficient statistics.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: FusedArgs) {
                // SAFETY: the caller's.
                unsafe {
                    body::<$lanes, $components, $d, { matrix($d, $of == 'f') }, { sums($d, $of == 'f') }, $of, $samples>(
                        &args,
                    )
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
