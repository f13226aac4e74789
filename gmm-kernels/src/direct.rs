//! `direct_dDD`: the fast path for at most [`COMPONENTS`] components and D up to [`MAX_FEATURES`].
//!
//! A thread takes four neighbouring samples, holds their D features in registers, and walks the components, whose
//! parameters are the launch's own argument: operands in the constant bank, no load and no upload. Everything is
//! unrolled. The likelihood is summed as Σₖ wₖ·2^qₖ with no maximum taken out: wₖ ≤ 1 and qₖ ≤ 0 (but for the seed's
//! rounding), so nothing overflows; a sample whose sum falls below [`THRESHOLD`] is done again with the maximum.
//!
//! * Launch: any one-dimensional grid and block of whole warps; shared memory
//!   [`FINISH_SHARED_BYTES`](crate::output::FINISH_SHARED_BYTES).
//! * Must do, a sample: read 4·D bytes; K·(2·D + 1) fused multiply-adds, K exponentials. K = 8, D = 13, N = 10⁶ on an
//!   H200: 52 MB, 12.3 µs at the measured 4.24 TB/s; arithmetic 6.6 µs.
use crate::output::Output;
use crate::simt::*;
use crate::tally::{LogSumExp, Tally};

/// Components of a launch; fewer are filled up with weight zero.
pub const COMPONENTS: usize = 8;
/// Largest D that has an instance.
pub const MAX_FEATURES: usize = 16;
/// Samples of a thread.
pub const QUAD: usize = 4;
/// 2^-60: two such likelihoods still make a normal product, and what underflowed (below 2^-126) is nothing beside it.
pub const THRESHOLD: f32 = 8.673_617e-19;

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

    /// Reads the D features of quad `i`.
    ///
    /// # Safety
    /// `i` is below [`Self::quads`] and the pointers are valid.
    #[inline(always)]
    pub unsafe fn load<const D: usize>(&self, i: u32, keep: CachePolicy, stream: CachePolicy) -> [[f32; QUAD]; D] {
        let policy = if i < self.keep { keep } else { stream };
        let mut x = [[0.0; QUAD]; D];
        let mut j = 0;
        while j < D {
            // SAFETY: the caller's.
            x[j] = unsafe { load4(self.x.add(j * self.stride as usize + QUAD * i as usize), policy) };
            j += 1;
        }
        x
    }
}

/// Parameters of one component, in the order in which they are used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Component<const D: usize> {
    /// (sⱼ, mⱼ) of each feature.
    pub sm: [[f32; 2]; D],
    /// w.
    pub weight: f32,
    /// seed.
    pub seed: f32,
}

/// Arguments of the kernel: the mixture travels by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DirectArgs<const D: usize> {
    /// The mixture.
    pub components: [Component<D>; COMPONENTS],
    /// The data.
    pub columns: Columns,
    /// Where the total goes.
    pub output: Output,
}

/// Adds a quad's four sums to the tally; samples past the end count as 1, and a sum below the threshold is replaced
/// by `slow(sample)`.
#[inline(always)]
pub fn tally_quad(tally: &mut Tally, mut e: [f32; QUAD], quad: u32, n: u64, slow: impl Fn(usize) -> LogSumExp) {
    let first = quad as u64 * QUAD as u64;
    let low = min(min(e[0], e[1]), min(e[2], e[3]));
    if low < THRESHOLD || first + QUAD as u64 > n {
        // Which samples are to be done again; their sums are replaced by 1 here.
        let mut far = 0u32;
        let mut q = 0;
        while q < QUAD {
            let inside = first + (q as u64) < n;
            let low = e[q] < THRESHOLD;
            far |= ((inside && low) as u32) << q;
            e[q] = if inside && !low { e[q] } else { 1.0 };
            q += 1;
        }
        while far != 0 {
            let sum = slow((first + far.trailing_zeros() as u64) as usize);
            tally.add_scaled(sum.max, sum.sum);
            far &= far - 1;
        }
    }
    tally.add(e[0] * e[1]);
    tally.add(e[2] * e[3]);
}

#[inline(always)]
unsafe fn body<const D: usize>(args: &DirectArgs<D>) {
    let columns = &args.columns;
    let (keep, stream) = (policy_keep(), policy_stream());
    let step = grid_dim() * block_dim();
    let mut i = block_idx() * block_dim() + thread_idx();
    let mut tally = Tally::new();
    while i < columns.quads() {
        // SAFETY: i is below the number of quads.
        let x = unsafe { columns.load::<D>(i, keep, stream) };
        let mut e = [0.0f32; QUAD];
        let mut k = 0;
        while k < COMPONENTS {
            let c = &args.components[k];
            let mut q = [c.seed; QUAD];
            let mut j = 0;
            while j < D {
                let mut p = 0;
                while p < QUAD {
                    let t = fma(c.sm[j][0], x[j][p], c.sm[j][1]);
                    q[p] = fma(-t, t, q[p]);
                    p += 1;
                }
                j += 1;
            }
            let mut p = 0;
            while p < QUAD {
                e[p] = fma(c.weight, exp2(q[p]), e[p]);
                p += 1;
            }
            k += 1;
        }
        tally_quad(&mut tally, e, i, columns.n, |sample| {
            // The components are unrolled here too: a parameter at a computed place would leave the constant bank.
            let mut sum = LogSumExp::new();
            let mut k = 0;
            while k < COMPONENTS {
                let c = &args.components[k];
                let mut q = c.seed;
                let mut j = 0;
                while j < D {
                    // SAFETY: the sample exists.
                    let t = fma(c.sm[j][0], unsafe { *columns.x.add(j * columns.stride as usize + sample) }, c.sm[j][1]);
                    q = fma(-t, t, q);
                    j += 1;
                }
                sum.add(c.weight, q);
                k += 1;
            }
            sum
        });
        i += step;
    }
    // SAFETY: all threads end here.
    unsafe { args.output.finish(tally) };
}

macro_rules! instances {
    ($($name:ident $d:literal),*) => { $(
        kernel! {
            /// Total log₂-likelihood of at most [`COMPONENTS`] components.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: DirectArgs<$d>) {
                // SAFETY: the caller's.
                unsafe { body::<$d>(&args) }
            }
        }
    )* };
}
instances!(direct_d01 1, direct_d02 2, direct_d03 3, direct_d04 4, direct_d05 5, direct_d06 6, direct_d07 7, direct_d08 8,
    direct_d09 9, direct_d10 10, direct_d11 11, direct_d12 12, direct_d13 13, direct_d14 14, direct_d15 15, direct_d16 16);
