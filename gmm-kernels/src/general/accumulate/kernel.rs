//! The code of the `accumulate` kernels.
use super::*;
use crate::math::Float;
use crate::patterns::SLICE;
use crate::simt::*;
use core::num::NonZeroU32;

/// Sums each of N numbers (32 or 64) over the lanes: lane l gets the l-th N/32 of the sums, in the
/// first places. All lanes take part.
#[inline(always)]
fn sum_over_lanes<T: Float, const N: usize>(mut v: [T; N]) -> [T; N] {
    let lane = thread_idx() % WARP;
    let mut by = WARP / 2;
    let mut half = N / 2;
    while by > 0 {
        let upper = lane & by != 0;
        counted!(for i in 0..half {
            // Both are read before one is chosen: a choice between places would keep the array in
            // memory.
            let (low, high) = (v[i], v[half + i]);
            let (keep, give) = if upper { (high, low) } else { (low, high) };
            v[i] = keep + give.shuffle_xor(by);
        });
        by /= 2;
        half /= 2;
    }
    v
}

/// A warp's task: sums of one component. `FULL`: those of a tile of the triangle, else of a group
/// of features; `GAPS`: over the samples that have the feature.
#[derive(Clone, Copy)]
struct Task<'a, T, const FULL: bool, const GAPS: bool> {
    args: &'a AccumulateArgs<T>,
    component: usize,
    /// First features of the tile's rows and columns; of a group of features, the rows alone.
    rows: usize,
    columns: usize,
    /// The sample behind the last of the slice.
    end: u32,
}

impl<'a, T: Float, const FULL: bool, const GAPS: bool> Task<'a, T, FULL, GAPS> {
    #[inline(always)]
    fn new(args: &'a AccumulateArgs<T>, component: usize, tile: u32, end: u32) -> Self {
        // row · (row + 1) / 2 + column = tile, in units of tiles.
        let mut row = 0;
        while FULL && (row + 1) * (row + 2) / 2 <= tile {
            row += 1;
        }
        let (rows, columns) = if FULL {
            (row as usize * FEATURES, (tile - row * (row + 1) / 2) as usize * FEATURES)
        } else {
            (tile as usize * FEATURES, 0)
        };
        Self { args, component, rows, columns, end }
    }

    /// c of the features from `first` on; −1 behind the last, and then zeros, so that u = x − c
    /// with x = 0 there.
    #[inline(always)]
    unsafe fn centres(self, first: usize) -> [T; FEATURES] {
        let d = self.args.d as usize;
        let mut centres = [T::ZERO; FEATURES];
        counted!(for f in 0..FEATURES {
            if first + f < d {
                // SAFETY: a feature of the component.
                centres[f] = unsafe { T::load(self.args.centres.add(self.component * d + first + f)) };
            } else if first + f == d {
                centres[f] = -T::ONE;
            }
        });
        centres
    }

    /// u of sample `i` for the features from `first` on.
    #[inline(always)]
    unsafe fn deviations(self, i: usize, first: usize, centres: &[T; FEATURES]) -> [T; FEATURES] {
        let mut u = [T::ZERO; FEATURES];
        counted!(for f in 0..FEATURES {
            let mut x = T::ZERO;
            if first + f < self.args.d as usize {
                // SAFETY: the sample, or its padding.
                x = unsafe { T::load(self.args.x.add((first + f) * self.args.stride as usize + i)) };
            }
            u[f] = x - centres[f];
        });
        u
    }

    /// The responsibility for sample `i`; zero behind the slice's last.
    #[inline(always)]
    unsafe fn responsibility(self, i: usize) -> T {
        if i < self.end as usize {
            // SAFETY: the sample exists.
            unsafe { T::load(self.args.r.add(self.component * self.args.r_stride as usize + i)) }
        } else {
            T::ZERO
        }
    }

    /// Adds one sample to the sums `v`. `c` and `c_columns`: the centres of the rows' and the
    /// columns' features.
    ///
    /// # Safety
    /// `i` is the index of a sample, or of padding behind the last.
    #[inline(always)]
    unsafe fn add_sample<const NUMBERS: usize>(
        self,
        v: &mut [T; NUMBERS],
        sample: usize,
        c: &[T; FEATURES],
        c_columns: &[T; FEATURES],
    ) {
        // SAFETY: the caller guarantees it.
        let (r, u) = unsafe { (self.responsibility(sample), self.deviations(sample, self.rows, c)) };
        if FULL {
            // SAFETY: the caller guarantees it.
            let w = unsafe { self.deviations(sample, self.columns, c_columns) };
            counted!(for f in 0..FEATURES {
                let ru = r * u[f];
                counted!(for g in 0..FEATURES {
                    v[f * FEATURES + g] = ru.fma(w[g], v[f * FEATURES + g]);
                });
            });
        } else {
            counted!(for f in 0..FEATURES {
                let (mut u, mut r) = (u[f], r);
                if GAPS {
                    (u, r) = if u.is_nan() { (T::ZERO, T::ZERO) } else { (u, r) };
                    v[OBSERVED + f] = v[OBSERVED + f] + r;
                }
                let ru = r * u;
                v[f] = v[f] + ru;
                v[FEATURES + f] = ru.fma(u, v[FEATURES + f]);
            });
            v[COUNT] = v[COUNT] + r;
        }
    }
}

#[inline(always)]
unsafe fn body<T: Float, const FULL: bool, const GAPS: bool, const NUMBERS: usize>(args: &AccumulateArgs<T>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let tiles = tiles(args.d as usize, FULL) as u32;
    let (Some(tiles), Some(units)) = (NonZeroU32::new(tiles), NonZeroU32::new(tiles * args.k)) else { return };
    counted!(for at in (block_idx() * warps + warp..units.get() * args.slices).step_by(grid_dim() * warps) {
        let (slice, unit) = (at / units, at % units);
        let (mut i, end) = if args.table.is_null() {
            let first = slice * args.slice;
            (first, if first + args.slice < args.n { first + args.slice } else { args.n })
        } else {
            // SAFETY: the slice exists.
            unsafe {
                let range = args.table.add(slice as usize * SLICE);
                (load_u32(range) - args.first, load_u32(range.add(1)) - args.first)
            }
        };
        let task = Task::<T, FULL, GAPS>::new(args, (unit / tiles) as usize, unit % tiles, end);
        // SAFETY: the component exists.
        let (c, c_columns) =
            unsafe { (task.centres(task.rows), if FULL { task.centres(task.columns) } else { [T::ZERO; FEATURES] }) };
        let mut totals = [0.0f64; 2];
        // The bounds are the same for all lanes, so that all take part in the shuffles.
        while i < end {
            let mut v = [T::ZERO; NUMBERS];
            let stop = if end - i < FLUSH * WARP { end } else { i + FLUSH * WARP };
            while i < stop {
                // SAFETY: a sample of the slice, or padding behind the last.
                unsafe { task.add_sample(&mut v, i as usize + lane, &c, &c_columns) };
                i += WARP;
            }
            let sums = sum_over_lanes(v);
            counted!(for s in 0..NUMBERS / WARP as usize {
                totals[s] += sums[s].wide();
            });
        }
        counted!(for s in 0..NUMBERS / WARP as usize {
            let value = unit as usize * NUMBERS + lane * (NUMBERS / WARP as usize) + s;
            // `load_fresh` reads under the condition only. A compiler may move `load` ahead of it,
            // where no sum has been written yet. SAFETY: a place for each value and slice.
            unsafe {
                let to = args.partials.add(value * args.partials_stride as usize + slice as usize);
                store(to, if args.add != 0 { load_fresh(to) + totals[s] } else { totals[s] });
            }
        });
    });
}

macro_rules! instance {
    ($name:ident $t:ty, $full:literal, $gaps:literal) => {
        kernel! {
            /// Each slice's sums.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: AccumulateArgs<$t>) {
                // SAFETY: the caller guarantees it.
                unsafe { body::<$t, $full, $gaps, { numbers($full) }>(&args) }
            }
        }
    };
}
instance!(accumulate_diag_f32 f32, false, false);
instance!(accumulate_observed_f32 f32, false, true);
instance!(accumulate_full_f32 f32, true, false);
instance!(accumulate_diag_f64 f64, false, false);
instance!(accumulate_observed_f64 f64, false, true);
instance!(accumulate_full_f64 f64, true, false);
