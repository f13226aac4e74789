//! The code of `small_k`, and what `batch` and `metropolis` share of it.
use super::*;
use crate::math::{LogProduct, LogSumExp};
use crate::simt::*;

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
                // SAFETY: the caller guarantees it.
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

/// Adds a quad's four sums to the product. Samples past the end count as 1; a sum below the threshold is replaced by one
/// with the maximum taken out.
///
/// # Safety
/// The quad exists, and `components` are as for [`likelihoods`].
#[inline(always)]
pub unsafe fn multiply_quad(
    product: &mut LogProduct,
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
            product.multiply_scaled(sum.max, sum.sum);
            far &= far - 1;
        }
    }
    product.multiply(sums[0] * sums[1]);
    product.multiply(sums[2] * sums[3]);
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
        // SAFETY: the caller guarantees it.
        unsafe {
            let mut q = at.get(2 * d + 1);
            let mut j = 0;
            while j < d {
                let t = fma(at.get(2 * j), load(columns.x.add(j * columns.stride as usize + sample)), at.get(2 * j + 1));
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
unsafe fn body<const D: usize, const ROW: usize, const ROW4: usize>(args: &SmallKArgs<ROW>) {
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let step = grid_dim() * block_dim();
    let mut i = block_idx() * block_dim() + thread_idx();
    let components = Shared::<f32>::at(FINISH_SHARED_BYTES);
    // A warp's stages lie together, so that the places of features and stages are constants.
    let feature = QUAD * WARP as usize;
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
    let ring = components.offset(COMPONENTS * ROW + warp * STAGES * D * feature + QUAD * lane).in_thread_register();
    let fetch = |i: u32, stage: usize| {
        if i < columns.quads() {
            let policy = if i < columns.cached_quads { cached } else { streamed };
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
    let mut product = LogProduct::new();
    let mut stage = 0;
    while i < columns.quads() {
        fetch(i + step, stage ^ 1);
        copies_wait_but_one();
        let mut x = [[[0.0; QUAD]; D]; 1];
        let mut j = 0;
        while j < D {
            // SAFETY: copies that this thread made, and that have arrived.
            x[0][j] = unsafe { ring.get4((stage * D + j) * feature) };
            j += 1;
        }
        // SAFETY: the components are in shared memory since the barrier; quad i exists.
        unsafe {
            let sums = likelihoods::<D, ROW4, 1>(&x, components, args.k);
            multiply_quad(&mut product, sums[0], i, columns, components, (D as u32, args.k));
        }
        i += step;
        stage ^= 1;
    }
    // SAFETY: all threads end here, with the start of the shared memory unused.
    unsafe { args.output.finish(product) };
}

macro_rules! instances {
    ($($name:ident $d:literal),*) => { $(
        kernel! {
            /// Total log₂-likelihood of at most [`COMPONENTS`] components.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: SmallKArgs<{ row($d) }>) {
                // SAFETY: the caller guarantees it.
                unsafe { body::<$d, { row($d) }, { row($d) / 4 }>(&args) }
            }
        }
    )* };
}
instances!(small_k_d01 1, small_k_d02 2, small_k_d03 3, small_k_d04 4, small_k_d05 5, small_k_d06 6, small_k_d07 7, small_k_d08 8,
    small_k_d09 9, small_k_d10 10, small_k_d11 11, small_k_d12 12, small_k_d13 13, small_k_d14 14, small_k_d15 15, small_k_d16 16);
