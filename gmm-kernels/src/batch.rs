//! `batch_dDD`: many parameter sets over one read of the data, for any K and D up to 16.
//!
//! As [`direct`](crate::direct), a thread holds four samples in registers; the parameters of a group of sets lie in
//! shared memory, from where 16-byte broadcasts feed the arithmetic. Each set's sum is reduced over the warp at once and
//! kept per warp and set in shared memory.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warps; shared memory [`shared_bytes`]. [`batch_reduce`] then
//!   adds the blocks' sums: grid = number of sets, one warp.
//! * Must do, a sample and set: K·(2·D + 1) fused multiply-adds and K exponentials; the data is read once a group.
//!   K = 8, D = 13, N = 10⁶ on an H200: 6.6 µs a set at 33.5·10¹² fused multiply-adds a second.
use crate::direct::{Columns, QUAD, tally_quad};
use crate::pair::component;
use crate::simt::*;
use crate::tally::{LogSumExp, Tally, shuffle_down_f64};

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchArgs {
    /// The data.
    pub columns: Columns,
    /// Parameters (sets, K, [`row`]`(D)`): for each component s₀, m₀, s₁, m₁, …, w, seed, and padding.
    pub parameters: *const f32,
    /// Number of sets.
    pub sets: u32,
    /// Sets of a group (gridDim.y groups).
    pub group: u32,
    /// K.
    pub k: u32,
    /// D once more: the rare slow path loops over it, so that it is not unrolled.
    pub d: u32,
    /// A number for each set and block, (sets, gridDim.x).
    pub partials: *mut f64,
}

/// Numbers of one component: 2·D + 2, rounded up to whole 16-byte reads.
pub const fn row(d: usize) -> usize {
    (2 * d + 2).next_multiple_of(4)
}

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, k: usize, group: usize, block_dim: usize) -> usize {
    group * k * row(d) * size_of::<f32>() + group * block_dim / WARP as usize * size_of::<f64>()
}

#[inline(always)]
unsafe fn body<const D: usize, const ROW4: usize>(args: &BatchArgs) {
    let columns = &args.columns;
    let (keep, stream) = (policy_keep(), policy_stream());
    let first_set = block_idx_y() * args.group;
    let sets = if args.sets - first_set < args.group { args.sets - first_set } else { args.group };
    let set_size = args.k as usize * 4 * ROW4;
    let parameters = shared::<f32>();
    let warps = block_dim() / WARP;
    let (warp, lane) = (thread_idx() / WARP, thread_idx() % WARP);
    // SAFETY: behind the parameters of a whole group, whose size is a multiple of 16 bytes.
    let sums = unsafe { parameters.add(args.group as usize * set_size).cast::<f64>() };
    let mut f = thread_idx() as usize;
    while f < sets as usize * set_size {
        // SAFETY: the group's sets are within the array, and the shared memory holds a group.
        unsafe { *parameters.add(f) = *args.parameters.add(first_set as usize * set_size + f) };
        f += block_dim() as usize;
    }
    let mut f = thread_idx();
    while f < sets * warps {
        // SAFETY: a place for each warp and set.
        unsafe { *sums.add(f as usize) = 0.0 };
        f += block_dim();
    }
    barrier!();
    let step = grid_dim() * block_dim();
    let mut base = block_idx() * block_dim();
    // The bound is the same for all threads of a warp, so that all lanes take part in the shuffles.
    while base < columns.quads() {
        let i = base + thread_idx();
        let inside = i < columns.quads();
        // SAFETY: clamped to the last quad; what lies past the end is not counted.
        let x = unsafe { columns.load::<D>(if inside { i } else { columns.quads() - 1 }, keep, stream) };
        let mut set = 0;
        while set < sets {
            let mut e = [0.0f32; QUAD];
            let mut k = 0;
            while k < args.k {
                let at = (set * args.k + k) as usize * 4 * ROW4;
                let mut c = [[0.0f32; 4]; ROW4];
                let mut r = 0;
                while r < ROW4 {
                    // SAFETY: within the group's parameters, aligned to 16 bytes.
                    c[r] = unsafe { shared4(parameters.add(at + 4 * r)) };
                    r += 1;
                }
                let mut q = [c[(2 * D + 1) / 4][(2 * D + 1) % 4]; QUAD];
                let mut j = 0;
                while j < D {
                    let mut p = 0;
                    while p < QUAD {
                        let t = fma(c[2 * j / 4][2 * j % 4], x[j][p], c[(2 * j + 1) / 4][(2 * j + 1) % 4]);
                        q[p] = fma(-t, t, q[p]);
                        p += 1;
                    }
                    j += 1;
                }
                let w = c[2 * D / 4][2 * D % 4];
                let mut p = 0;
                while p < QUAD {
                    e[p] = fma(w, exp2(q[p]), e[p]);
                    p += 1;
                }
                k += 1;
            }
            let mut tally = Tally::new();
            if inside {
                tally_quad(&mut tally, e, i, columns.n, |sample| {
                    let mut sum = LogSumExp::new();
                    let mut k = 0;
                    while k < args.k {
                        // SAFETY: the sample exists, and the component is within the group's parameters.
                        let (w, q) = unsafe {
                            component(columns.x.add(sample), columns.stride, args.d, parameters.add((set * args.k + k) as usize * 4 * ROW4))
                        };
                        sum.add(w, q);
                        k += 1;
                    }
                    sum
                });
            }
            let sum = tally.warp_sum();
            if lane == 0 {
                // SAFETY: the warp's own place.
                unsafe { *sums.add((set * warps + warp) as usize) += sum };
            }
            set += 1;
        }
        base += step;
    }
    barrier!();
    let mut set = thread_idx();
    while set < sets {
        let mut sum = 0.0;
        let mut w = 0;
        while w < warps {
            // SAFETY: written by the warps before the barrier.
            sum += unsafe { *sums.add((set * warps + w) as usize) };
            w += 1;
        }
        // SAFETY: a place for each set and block.
        unsafe { *args.partials.add((first_set + set) as usize * grid_dim() as usize + block_idx() as usize) = sum };
        set += block_dim();
    }
}

macro_rules! instances {
    ($($name:ident $d:literal),*) => { $(
        kernel! {
            /// Each block's sum for each set.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: BatchArgs) {
                // SAFETY: the caller's.
                unsafe { body::<$d, { row($d) / 4 }>(&args) }
            }
        }
    )* };
}
instances!(batch_d01 1, batch_d02 2, batch_d03 3, batch_d04 4, batch_d05 5, batch_d06 6, batch_d07 7, batch_d08 8,
    batch_d09 9, batch_d10 10, batch_d11 11, batch_d12 12, batch_d13 13, batch_d14 14, batch_d15 15, batch_d16 16);

kernel! {
    /// `totals[set]` = Σ over `count` blocks of `partials[set, block]`, in a fixed order. Launch: a block of one warp for
    /// each set.
    ///
    /// # Safety
    /// The arrays have gridDim.x sets.
    pub unsafe fn batch_reduce(partials: *const f64, count: u32, totals: *mut f64) {
        let set = block_idx() as usize;
        let mut sum = 0.0;
        let mut b = thread_idx();
        while b < count {
            // SAFETY: b < count.
            sum += unsafe { *partials.add(set * count as usize + b as usize) };
            b += WARP;
        }
        let mut by = WARP / 2;
        while by > 0 {
            sum += shuffle_down_f64(sum, by);
            by /= 2;
        }
        if thread_idx() == 0 {
            // SAFETY: a place for each set.
            unsafe { *totals.add(set) = sum };
        }
    }
}
