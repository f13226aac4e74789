//! `direct_dDD`: the fast path for at most [`COMPONENTS`] components and D up to [`MAX_FEATURES`].
//!
//! A thread takes four neighbouring samples (a quad), holds their D features in registers, and walks the components.
//! The mixture is the launch's own argument: no upload; each block puts it into shared memory, from where 16-byte
//! broadcasts feed the arithmetic. The next quad is copied to shared memory while the present one is computed; every
//! thread copies and reads its own part, so that no barrier is needed.
//!
//! The likelihood is summed as Σₖ wₖ·2^qₖ with no maximum taken out: wₖ ≤ 1 and qₖ ≤ 0 (but for the seed's rounding), so
//! nothing overflows; a sample whose sum falls below [`THRESHOLD`] is done again with the maximum.
//!
//! * Launch: any one-dimensional grid and block of whole warps; shared memory [`shared_bytes`].
//! * Must do, a sample: read 4·D bytes; K·(2·D + 1) fused multiply-adds, K exponentials. K = 8, D = 13, N = 10⁶ on an
//!   H200: 52 MB, 12.3 µs at the measured 4.24 TB/s; arithmetic 6.6 µs.
use crate::output::{FINISH_SHARED_BYTES, Output};
use crate::simt::*;
use crate::tally::{LogSumExp, Tally};

/// Components of a launch.
pub const COMPONENTS: usize = 8;
/// Largest D that has an instance.
pub const MAX_FEATURES: usize = 16;
/// Samples of a thread.
pub const QUAD: usize = 4;
/// 2^-60: two such likelihoods still make a normal product, and what underflowed (below 2^-126) is nothing beside it.
pub const THRESHOLD: f32 = 8.673_617e-19;
/// Quads of a thread in shared memory: one is computed, one is on its way.
pub const STAGES: usize = 2;

/// The resident samples.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Columns {
    /// Samples (D, stride): column j of sample i at `j * stride + i`; aligned to 16 bytes, and so is the stride.
    pub x: *const f32,
    /// Elements from one column to the next: at least N rounded up to a multiple of 4, all of them finite.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// Quads of samples before this one are kept in the L2 cache for the next launch; later ones stream through.
    pub keep: u32,
}

impl Columns {
    /// Number of quads, the last one possibly partial.
    #[inline(always)]
    pub fn quads(&self) -> u32 {
        self.n.div_ceil(QUAD as u64) as u32
    }

    /// Feature `j` of quad `i`.
    #[inline(always)]
    pub fn quad(&self, i: u32, j: usize) -> *const f32 {
        self.x.wrapping_add(j * self.stride as usize + QUAD * i as usize)
    }
}

/// Numbers of one component: (sⱼ, mⱼ) of each feature, w, seed, and padding to whole 16-byte reads.
pub const fn row(d: usize) -> usize {
    (2 * d + 2).next_multiple_of(4)
}

/// Arguments of the kernel: the mixture travels by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DirectArgs<const ROW: usize> {
    /// The components, each of [`row`]`(D)` numbers; those behind K are zeros.
    pub components: [[f32; ROW]; COMPONENTS],
    /// K, rounded up to a multiple of [`SIDE_BY_SIDE`].
    pub k: u32,
    /// The data.
    pub columns: Columns,
    /// Where the total goes.
    pub output: Output,
}

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, block_dim: u32) -> usize {
    FINISH_SHARED_BYTES + (COMPONENTS * row(d) + STAGES * d * block_dim as usize * QUAD) * size_of::<f32>()
}

/// Components that are computed side by side: the reads of one hide behind the arithmetic of the other. K is rounded
/// up to it; a component of weight zero adds nothing.
pub const SIDE_BY_SIDE: usize = 2;

/// Σₖ wₖ·2^qₖ of R quads, `x` (R, D), over `k` components (a multiple of [`SIDE_BY_SIDE`]) in shared memory, `ROW4`
/// 16-byte reads each.
///
/// # Safety
/// `components` has that many elements, aligned to 16 bytes.
#[inline(always)]
pub unsafe fn likelihoods<const D: usize, const ROW4: usize, const R: usize>(
    x: &[[[f32; QUAD]; D]; R],
    components: Shared<f32>,
    k: u32,
) -> [[f32; QUAD]; R] {
    let mut sums = [[0.0f32; QUAD]; R];
    let mut at = components;
    let mut left = k;
    while left > 0 {
        let mut c = [[[0.0f32; 4]; ROW4]; SIDE_BY_SIDE];
        let mut q = [[[0.0f32; QUAD]; R]; SIDE_BY_SIDE];
        let mut u = 0;
        while u < SIDE_BY_SIDE {
            let mut i = 0;
            while i < ROW4 {
                // SAFETY: the caller's.
                c[u][i] = unsafe { at.get4(4 * (u * ROW4 + i)) };
                i += 1;
            }
            q[u] = [[c[u][(2 * D + 1) / 4][(2 * D + 1) % 4]; QUAD]; R];
            u += 1;
        }
        let mut j = 0;
        while j < D {
            let mut u = 0;
            while u < SIDE_BY_SIDE {
                let (s, m) = (c[u][2 * j / 4][2 * j % 4], c[u][(2 * j + 1) / 4][(2 * j + 1) % 4]);
                let mut r = 0;
                while r < R {
                    let mut p = 0;
                    while p < QUAD {
                        let t = fma(s, x[r][j][p], m);
                        q[u][r][p] = fma(-t, t, q[u][r][p]);
                        p += 1;
                    }
                    r += 1;
                }
                u += 1;
            }
            j += 1;
        }
        let mut u = 0;
        while u < SIDE_BY_SIDE {
            let w = c[u][2 * D / 4][2 * D % 4];
            let mut r = 0;
            while r < R {
                let mut p = 0;
                while p < QUAD {
                    sums[r][p] = fma(w, exp2(q[u][r][p]), sums[r][p]);
                    p += 1;
                }
                r += 1;
            }
            u += 1;
        }
        at = at.offset(4 * ROW4 * SIDE_BY_SIDE);
        left -= SIDE_BY_SIDE as u32;
    }
    sums
}

/// Adds a quad's four sums to the tally. Samples past the end count as 1; a sum below the threshold is replaced by one
/// with the maximum taken out.
///
/// # Safety
/// The quad exists, and `components` are as for [`likelihoods`].
#[inline(always)]
pub unsafe fn tally_quad(
    tally: &mut Tally,
    mut sums: [f32; QUAD],
    quad: u32,
    columns: &Columns,
    components: Shared<f32>,
    (d, k): (u32, u32),
) {
    let first = quad as u64 * QUAD as u64;
    let low = min(min(sums[0], sums[1]), min(sums[2], sums[3]));
    if low < THRESHOLD || first + QUAD as u64 > columns.n {
        // Which samples are to be done again; their sums are replaced by 1 here.
        let mut far = 0u32;
        let mut p = 0;
        while p < QUAD {
            let inside = first + (p as u64) < columns.n;
            let low = sums[p] < THRESHOLD;
            far |= ((inside && low) as u32) << p;
            sums[p] = if inside && !low { sums[p] } else { 1.0 };
            p += 1;
        }
        while far != 0 {
            let sample = (first + far.trailing_zeros() as u64) as usize;
            // SAFETY: the sample exists; the components are the caller's.
            let sum = unsafe { far_sample(columns, sample, components, d as usize, k as usize) };
            tally.add_scaled(sum.max, sum.sum);
            far &= far - 1;
        }
    }
    tally.add(sums[0] * sums[1]);
    tally.add(sums[2] * sums[3]);
}

/// The log-sum-exp of one sample, with the maximum taken out.
///
/// # Safety
/// The sample exists, and `components` are as for [`likelihoods`].
#[inline(always)]
unsafe fn far_sample(columns: &Columns, sample: usize, components: Shared<f32>, d: usize, k: usize) -> LogSumExp {
    let mut sum = LogSumExp::new();
    let mut c = 0;
    while c < k {
        let at = components.offset(c * row(d));
        // SAFETY: the caller's.
        unsafe {
            let mut q = at.get(2 * d + 1);
            let mut j = 0;
            while j < d {
                let t = fma(at.get(2 * j), *columns.x.add(j * columns.stride as usize + sample), at.get(2 * j + 1));
                q = fma(-t, t, q);
                j += 1;
            }
            sum.add(at.get(2 * d), q);
        }
        c += 1;
    }
    sum
}

#[inline(always)]
unsafe fn body<const D: usize, const ROW: usize, const ROW4: usize>(args: &DirectArgs<ROW>) {
    let columns = &args.columns;
    let (keep, stream) = (policy_keep(), policy_stream());
    let step = grid_dim() * block_dim();
    let mut i = block_idx() * block_dim() + thread_idx();
    let components = Shared::<f32>::at(FINISH_SHARED_BYTES);
    // A warp's stages lie together, so that the places of features and stages are constants.
    let feature = QUAD * WARP as usize;
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
    let ring = components.offset(COMPONENTS * ROW + warp * STAGES * D * feature + QUAD * lane).in_thread_register();
    let fetch = |i: u32, stage: usize| {
        if i < columns.quads() {
            let policy = if i < columns.keep { keep } else { stream };
            let mut j = 0;
            while j < D {
                // SAFETY: quad i exists; the ring has a place of this thread's for each stage and feature.
                unsafe { ring.copy4((stage * D + j) * feature, columns.quad(i, j), policy) };
                j += 1;
            }
        }
        copies_commit();
    };
    fetch(i, 0);
    // While the first samples are on their way, the launch's arguments go to shared memory. Their places are constants:
    // an index computed at run time would put the arguments into local memory.
    if thread_idx() == 0 {
        let mut c = 0;
        while c < COMPONENTS {
            let mut r = 0;
            while r < ROW {
                // SAFETY: shared memory has room for all components.
                unsafe { components.set(c * ROW + r, args.components[c][r]) };
                r += 1;
            }
            c += 1;
        }
    }
    barrier!();
    let mut tally = Tally::new();
    let mut stage = 0;
    while i < columns.quads() {
        fetch(i + step, stage ^ 1);
        copies_wait_but_one();
        let mut x = [[[0.0; QUAD]; D]; 1];
        let mut j = 0;
        while j < D {
            // SAFETY: this thread's own copies, which have arrived.
            x[0][j] = unsafe { ring.get4((stage * D + j) * feature) };
            j += 1;
        }
        // SAFETY: the components are in shared memory since the barrier; quad i exists.
        unsafe {
            let sums = likelihoods::<D, ROW4, 1>(&x, components, args.k);
            tally_quad(&mut tally, sums[0], i, columns, components, (D as u32, args.k));
        }
        i += step;
        stage ^= 1;
    }
    // SAFETY: all threads end here, with the start of the shared memory unused.
    unsafe { args.output.finish(tally) };
}

macro_rules! instances {
    ($($name:ident $d:literal),*) => { $(
        kernel! {
            /// Total log₂-likelihood of at most [`COMPONENTS`] components.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: DirectArgs<{ row($d) }>) {
                // SAFETY: the caller's.
                unsafe { body::<$d, { row($d) }, { row($d) / 4 }>(&args) }
            }
        }
    )* };
}
instances!(direct_d01 1, direct_d02 2, direct_d03 3, direct_d04 4, direct_d05 5, direct_d06 6, direct_d07 7, direct_d08 8,
    direct_d09 9, direct_d10 10, direct_d11 11, direct_d12 12, direct_d13 13, direct_d14 14, direct_d15 15, direct_d16 16);
