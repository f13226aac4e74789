//! The code of `small_k`, shared in part by `batch` and `metropolis`.
use super::*;
use crate::math::{LogProduct, LogSumExp};
use crate::simt::*;

/// q less a feature's contribution. `numbers`: s, m and, with missing values (`GAPS`), c; `observed`: 1, or 0 if the
/// value is missing (`x` is then any finite number). Without `GAPS`, `observed` is not read.
#[inline(always)]
fn less_feature<const GAPS: bool>(q: f32, x: f32, observed: f32, [s, m, c]: [f32; 3]) -> f32 {
    let t = fma(s, x, m);
    if GAPS { fma(-observed, fma(t, t, c), q) } else { fma(-t, t, q) }
}

/// Replaces the missing values of a quad by zeros, and returns 0 for these and 1 for the others, for [`likelihoods`].
#[inline(always)]
pub fn observe<const D: usize>(x: &mut [[f32; QUAD]; D]) -> [[f32; QUAD]; D] {
    let mut observed = [[1.0; QUAD]; D];
    counted!(for j in 0..D {
        counted!(for p in 0..QUAD {
            (x[j][p], observed[j][p]) = if x[j][p].is_nan() { (0.0, 0.0) } else { (x[j][p], 1.0) };
        });
    });
    observed
}

/// The numbers of feature `j` from a component's numbers `c`.
#[inline(always)]
fn of_feature<const GAPS: bool, const ROW4: usize>(c: &[[f32; 4]; ROW4], j: usize) -> [f32; 3] {
    let at = numbers(GAPS) * j;
    [c[at / 4][at % 4], c[(at + 1) / 4][(at + 1) % 4], if GAPS { c[(at + 2) / 4][(at + 2) % 4] } else { 0.0 }]
}

/// Σₖ wₖ·2^qₖ of R quads, `x` (R, D), over `k` components (a multiple of [`SIDE_BY_SIDE`]) in shared memory, `ROW4`
/// 16-byte reads each. `observed`: from [`observe`]; not read without missing values.
///
/// # Safety
/// `components` has this many elements, aligned to 16 bytes.
#[inline(always)]
pub unsafe fn likelihoods<const GAPS: bool, const D: usize, const ROW4: usize, const R: usize>(
    x: &[[[f32; QUAD]; D]; R],
    observed: &[[[f32; QUAD]; D]; R],
    components: Shared<f32>,
    k: u32,
) -> [[f32; QUAD]; R] {
    let mut sums = [[0.0f32; QUAD]; R];
    let mut at = components;
    let mut left = k;
    while left > 0 {
        let mut c = [[[0.0f32; 4]; ROW4]; SIDE_BY_SIDE];
        let mut q = [[[0.0f32; QUAD]; R]; SIDE_BY_SIDE];
        counted!(for u in 0..SIDE_BY_SIDE {
            counted!(for i in 0..ROW4 {
                c[u][i] = at.get4(4 * (u * ROW4 + i));
            });
            let seed = numbers(GAPS) * D + 1;
            q[u] = [[c[u][seed / 4][seed % 4]; QUAD]; R];
        });
        counted!(for j in 0..D {
            counted!(for u in 0..SIDE_BY_SIDE {
                let feature = of_feature::<GAPS, ROW4>(&c[u], j);
                counted!(for r in 0..R {
                    counted!(for p in 0..QUAD {
                        q[u][r][p] = less_feature::<GAPS>(q[u][r][p], x[r][j][p], observed[r][j][p], feature);
                    });
                });
            });
        });
        counted!(for u in 0..SIDE_BY_SIDE {
            let weight = numbers(GAPS) * D;
            let w = c[u][weight / 4][weight % 4];
            counted!(for r in 0..R {
                counted!(for p in 0..QUAD {
                    sums[r][p] = fma(w, exp2(q[u][r][p]), sums[r][p]);
                });
            });
        });
        at = at.offset(4 * ROW4 * SIDE_BY_SIDE);
        left -= SIDE_BY_SIDE as u32;
    }
    sums
}

/// Multiplies the likelihoods of a quad into the product, each to the power of its weight if there are `weights`.
/// Samples past the end count as 1; `sums` below the threshold are replaced by those of `scaled`, with the maximum
/// subtracted. Returns whether any is far below the threshold.
#[inline(always)]
pub fn multiply_quad(
    product: &mut LogProduct,
    mut sums: [f32; QUAD],
    (quad, n): (u32, u64),
    weights: Option<[f32; QUAD]>,
    scaled: impl FnOnce() -> [LogSumExp; QUAD],
) -> bool {
    let first = quad as u64 * QUAD as u64;
    if first + QUAD as u64 > n {
        counted!(for p in 0..QUAD {
            sums[p] = if first + (p as u64) < n { sums[p] } else { 1.0 };
        });
    }
    let mut far = false;
    if min(min(sums[0], sums[1]), min(sums[2], sums[3])) < THRESHOLD {
        let scaled = scaled();
        counted!(for p in 0..QUAD {
            if sums[p] < THRESHOLD {
                match weights {
                    Some(weights) => product.add(weights[p] * scaled[p].log2()),
                    None => product.multiply_scaled(scaled[p].max, scaled[p].sum),
                }
                far |= scaled[p].max < LOG2_THRESHOLD;
                sums[p] = 1.0;
            }
        });
    }
    match weights {
        Some(weights) => {
            counted!(for p in 0..QUAD {
                product.add(weights[p] * log2(sums[p]));
            });
        }
        None => {
            product.multiply(sums[0] * sums[1]);
            product.multiply(sums[2] * sums[3]);
        }
    }
    far
}

/// As [`likelihoods`] of one quad, with the maximum subtracted.
///
/// # Safety
/// As for [`likelihoods`].
#[inline(always)]
pub unsafe fn far_likelihoods<const GAPS: bool, const D: usize, const ROW4: usize>(
    x: &[[f32; QUAD]; D],
    observed: &[[f32; QUAD]; D],
    components: Shared<f32>,
    k: u32,
) -> [LogSumExp; QUAD] {
    let mut sums = [LogSumExp::new(); QUAD];
    let mut at = components;
    let mut left = k;
    while left > 0 {
        let mut c = [[0.0f32; 4]; ROW4];
        counted!(for i in 0..ROW4 {
            c[i] = at.get4(4 * i);
        });
        let weight = numbers(GAPS) * D;
        let (w, mut q) = (c[weight / 4][weight % 4], [c[(weight + 1) / 4][(weight + 1) % 4]; QUAD]);
        counted!(for j in 0..D {
            let feature = of_feature::<GAPS, ROW4>(&c, j);
            counted!(for p in 0..QUAD {
                q[p] = less_feature::<GAPS>(q[p], x[j][p], observed[j][p], feature);
            });
        });
        counted!(for p in 0..QUAD {
            sums[p].add(w, q[p]);
        });
        at = at.offset(4 * ROW4);
        left -= 1;
    }
    sums
}

/// Replaces x by A·x. `a`: A row by row.
/// Safety: `a` has [`triangle`]`(D)` elements and padding to a multiple of 4, aligned to 16 bytes.
#[inline(always)]
unsafe fn multiply_triangle<const D: usize>(x: &mut [[f32; QUAD]; D], a: Shared<f32>) {
    // From the last row to the first, so that the features that each row needs are still there.
    let mut at = triangle(D);
    let mut four = [0.0f32; 4];
    written_out!(for i in (0..D).rev() {
        let mut y = [0.0f32; QUAD];
        let mut j = i + 1;
        while j > 0 {
            j -= 1;
            at -= 1;
            if at % 4 == 3 || at == triangle(D) - 1 {
                four = a.get4(at / 4 * 4);
            }
            counted!(for p in 0..QUAD {
                y[p] = fma(four[at % 4], x[j][p], y[p]);
            });
        }
        x[i] = y;
    });
}

/// Calls `add` with the weight and the exponents of each of `k` components with their own triangles. `components`: b, w
/// and seed of each, `ROW4` 16-byte reads; `triangles`: A of each.
/// Safety: `k` components and triangles ([`padded_triangle`]`(D)` numbers) are there, aligned to 16 bytes.
#[inline(always)]
unsafe fn for_each_full<const D: usize, const ROW4: usize>(
    x: &[[f32; QUAD]; D],
    mut components: Shared<f32>,
    mut triangles: Shared<f32>,
    k: u32,
    mut add: impl FnMut(f32, [f32; QUAD]),
) {
    let mut left = k;
    while left > 0 {
        let mut c = [[0.0f32; 4]; ROW4];
        counted!(for i in 0..ROW4 {
            c[i] = components.get4(4 * i);
        });
        let (weight, seed) = (c[D / 4][D % 4], c[(D + 1) / 4][(D + 1) % 4]);
        let mut q = [seed; QUAD];
        let (mut at, mut four) = (0, [0.0f32; 4]);
        written_out!(for i in 0..D {
            let mut t = [c[i / 4][i % 4]; QUAD];
            counted!(for j in 0..=i {
                if at % 4 == 0 {
                    four = triangles.get4(at);
                }
                counted!(for p in 0..QUAD {
                    t[p] = fma(four[at % 4], x[j][p], t[p]);
                });
                at += 1;
            });
            counted!(for p in 0..QUAD {
                q[p] = fma(-t[p], t[p], q[p]);
            });
        });
        add(weight, q);
        components = components.offset(4 * ROW4);
        triangles = triangles.offset(padded_triangle(D));
        left -= 1;
    }
}

/// Multiplies the likelihoods of a quad under diagonal covariances into the product, directly with the maximum
/// subtracted if the latest samples were `far`. Returns whether any is far.
/// Safety: as for [`likelihoods`].
#[inline(always)]
unsafe fn add_quad<const GAPS: bool, const D: usize, const ROW4: usize>(
    product: &mut LogProduct,
    x: &[[[f32; QUAD]; D]; 1],
    far: bool,
    (place, weights): ((u32, u64), Option<[f32; QUAD]>),
    components: Shared<f32>,
    k: u32,
) -> bool {
    let mut x = *x;
    let observed = if GAPS { [observe(&mut x[0])] } else { x };
    let sums = if far { [0.0; QUAD] } else { likelihoods::<GAPS, D, ROW4, 1>(&x, &observed, components, k)[0] };
    let scaled = || far_likelihoods::<GAPS, D, ROW4>(&x[0], &observed[0], components, k);
    multiply_quad(product, sums, place, weights, scaled)
}

/// As [`add_quad`] under full covariances.
/// Safety: as for [`for_each_full`].
#[inline(always)]
unsafe fn add_quad_full<const D: usize, const ROW4: usize>(
    product: &mut LogProduct,
    x: &[[f32; QUAD]; D],
    far: bool,
    (place, weights): ((u32, u64), Option<[f32; QUAD]>),
    (components, triangles, k): (Shared<f32>, Shared<f32>, u32),
) -> bool {
    let mut sums = [0.0; QUAD];
    if !far {
        let add = |w: f32, q: [f32; QUAD]| {
            counted!(for p in 0..QUAD {
                sums[p] = fma(w, exp2(q[p]), sums[p]);
            });
        };
        for_each_full::<D, ROW4>(x, components, triangles, k, add);
    }
    multiply_quad(product, sums, place, weights, || {
        let mut sums = [LogSumExp::new(); QUAD];
        let add = |w: f32, q: [f32; QUAD]| {
            counted!(for p in 0..QUAD {
                sums[p].add(w, q[p]);
            });
        };
        for_each_full::<D, ROW4>(x, components, triangles, k, add);
        sums
    })
}

/// The kernel. `KIND` is the [`Kind`] as a number, a constant at compile time.
#[inline(always)]
unsafe fn body<const KIND: usize, const D: usize, const ROW: usize, const ROW4: usize>(args: &SmallKArgs<ROW>) {
    let kind = const { Kind::ALL[KIND] };
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let step = grid_dim() * block_dim();
    let mut i = block_idx() * block_dim() + thread_idx();
    let components = Shared::<f32>::at(FINISH_SHARED_BYTES);
    // A warp's stages are contiguous, so that the places of features and stages are constants.
    let feature = QUAD * WARP as usize;
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
    let triangles = components.offset(COMPONENTS * ROW);
    let of_triangles = kind.triangles(D, args.k as usize);
    let stages = triangles.offset(of_triangles);
    let ring = stages.offset(warp * STAGES * D * feature + QUAD * lane).in_thread_register();
    let fetch = |i: u32, stage: usize| {
        if i < columns.quads() {
            let policy = if i < columns.cached_quads { cached } else { streamed };
            counted!(for j in 0..D {
                // SAFETY: quad i exists; the ring has a place of this thread's for each stage and feature.
                ring.copy4((stage * D + j) * feature, columns.quad(i, j), policy);
            });
        }
        copies_commit();
    };
    let first = 4 * thread_idx() as usize;
    // All lanes take part here, but not in each round of the copies.
    let has_triangles = matches!(kind, Kind::Tied | Kind::Full);
    let mine = if has_triangles { triangles.offset(first).in_thread_register() } else { triangles };
    let mut v = 0;
    while first + v < of_triangles {
        // SAFETY: numbers of the triangles, which have a place in shared memory.
        mine.copy4(v, args.triangles.add(first + v), cached);
        v += 4 * block_dim() as usize;
    }
    copies_commit();
    fetch(i, 0);
    // While the first samples are being copied, the launch's arguments go to shared memory. Their places are constants:
    // an index computed at run time would move the arguments to local memory.
    if thread_idx() == 0 {
        counted!(for c in 0..COMPONENTS {
            counted!(for r in 0..ROW {
                // SAFETY: shared memory has room for all components.
                components.set(c * ROW + r, args.components[c][r]);
            });
        });
    }
    // Waits for the triangles.
    copies_wait_but_one();
    barrier!();
    let mut product = LogProduct::new();
    let mut stage = 0;
    // Whether the warp's latest samples were far; the next ones are then computed with the maximum subtracted at once.
    let mut far = false;
    // The bound is the same for all lanes of a warp, so that all take part in the vote.
    while i - (lane as u32) < columns.quads() {
        fetch(i + step, stage ^ 1);
        // Past the end nothing is counted.
        let weighted = !args.sample_weights.is_null() && i < columns.quads();
        // SAFETY: the quad exists. The weights arrive while its likelihoods are computed.
        let weights = weighted.then(|| load4(args.sample_weights.wrapping_add(QUAD * i as usize), streamed));
        copies_wait_but_one();
        let mut x = [[[0.0; QUAD]; D]; 1];
        counted!(for j in 0..D {
            // SAFETY: this thread's copies, which have arrived. Past the end there are none, and nothing is counted.
            x[0][j] = ring.get4((stage * D + j) * feature);
        });
        let place = ((i, columns.n), weights);
        // SAFETY: the components and triangles are in shared memory since the barrier.
        far = match kind {
            Kind::Diagonal => add_quad::<false, D, ROW4>(&mut product, &x, far, place, components, args.k),
            Kind::Observed => add_quad::<true, D, ROW4>(&mut product, &x, far, place, components, args.k),
            Kind::Tied => {
                multiply_triangle(&mut x[0], triangles);
                add_quad::<false, D, ROW4>(&mut product, &x, far, place, components, args.k)
            }
            Kind::Full => add_quad_full::<D, ROW4>(&mut product, &x[0], far, place, (components, triangles, args.k)),
        };
        far = warp_any(far);
        i += step;
        stage ^= 1;
    }
    // SAFETY: all threads end here, and the start of the shared memory is unused.
    args.output.finish(product);
}

macro_rules! instances {
    ($($d:literal $diagonal:ident $observed:ident $tied:ident $full:ident),*) => { $(
        instance!($diagonal, Kind::Diagonal, $d);
        instance!($observed, Kind::Observed, $d);
        instance!($tied, Kind::Tied, $d);
        instance!($full, Kind::Full, $d);
    )* };
}
macro_rules! instance {
    ($name:ident, $kind:expr, $d:literal) => {
        kernels! {
            /// Computes the total log₂-likelihood of at most [`COMPONENTS`] components.
            $name: SmallKArgs<{ $kind.row($d) }> =
                body::<{ $kind as usize }, $d, { $kind.row($d) }, { $kind.row($d) / 4 }>;
        }
    };
}
instances!(
    1 small_k_d01 small_k_observed_d01 small_k_tied_d01 small_k_full_d01,
    2 small_k_d02 small_k_observed_d02 small_k_tied_d02 small_k_full_d02,
    3 small_k_d03 small_k_observed_d03 small_k_tied_d03 small_k_full_d03,
    4 small_k_d04 small_k_observed_d04 small_k_tied_d04 small_k_full_d04,
    5 small_k_d05 small_k_observed_d05 small_k_tied_d05 small_k_full_d05,
    6 small_k_d06 small_k_observed_d06 small_k_tied_d06 small_k_full_d06,
    7 small_k_d07 small_k_observed_d07 small_k_tied_d07 small_k_full_d07,
    8 small_k_d08 small_k_observed_d08 small_k_tied_d08 small_k_full_d08,
    9 small_k_d09 small_k_observed_d09 small_k_tied_d09 small_k_full_d09,
    10 small_k_d10 small_k_observed_d10 small_k_tied_d10 small_k_full_d10,
    11 small_k_d11 small_k_observed_d11 small_k_tied_d11 small_k_full_d11,
    12 small_k_d12 small_k_observed_d12 small_k_tied_d12 small_k_full_d12,
    13 small_k_d13 small_k_observed_d13 small_k_tied_d13 small_k_full_d13,
    14 small_k_d14 small_k_observed_d14 small_k_tied_d14 small_k_full_d14,
    15 small_k_d15 small_k_observed_d15 small_k_tied_d15 small_k_full_d15,
    16 small_k_d16 small_k_observed_d16 small_k_tied_d16 small_k_full_d16
);
