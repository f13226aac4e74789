mod wide;

use super::*;
use crate::math::{Float, divided_sums, smaller};
use crate::patterns::SLICE;
use crate::simt::*;
use core::num::NonZeroU32;

#[derive(Clone, Copy)]
struct Slice {
    number: u32,
    first: u32,
    /// The sample behind the last.
    end: u32,
}

impl Slice {
    /// Safety: the slice exists.
    #[inline(always)]
    unsafe fn of<T>(args: &AccumulateArgs<T>, number: u32) -> Self {
        if args.table.is_null() {
            let first = number * args.slice;
            return Self { number, first, end: smaller(first + args.slice, args.n) };
        }
        let range = args.table.add(number as usize * SLICE);
        Self { number, first: load_u32(range) - args.first, end: load_u32(range.add(1)) - args.first }
    }

    /// Writes a number's sum over the slice, or adds it to the number there.
    /// Safety: the number exists, and no other thread has it.
    #[inline(always)]
    unsafe fn store<T>(self, args: &AccumulateArgs<T>, number: usize, sum: f64) {
        // `load_fresh` reads only under the condition. A compiler may move `load` in front of it, where no sum has been
        // written yet. SAFETY: a place for each number and slice.
        let to = args.partials.add(number * args.partials_stride as usize + self.number as usize);
        store(to, if args.add != 0 { load_fresh(to) + sum } else { sum });
    }
}

/// The row and the column of an element of a lower triangle stored row by row.
#[inline(always)]
fn place_in_triangle(element: u32) -> (usize, usize) {
    let mut row = 0;
    while (row + 1) * (row + 2) / 2 <= element {
        row += 1;
    }
    (row as usize, (element - row * (row + 1) / 2) as usize)
}

/// A warp's task: a tile of sums, and a slice of the samples.
#[derive(Clone, Copy)]
struct Task<'a, T> {
    args: &'a AccumulateArgs<T>,
    /// The component, or the first of a group.
    component: usize,
    /// First features of the tile's rows and columns; diagonal sums have only rows.
    rows: usize,
    columns: usize,
    /// The sample behind the last of the slice.
    end: u32,
}

impl<'a, T: Float> Task<'a, T> {
    #[inline(always)]
    fn new<const FULL: bool>(args: &'a AccumulateArgs<T>, component: usize, tile: u32, end: u32) -> Self {
        if !FULL {
            return Self { args, component: component * SIDE, rows: tile as usize * SIDE, columns: 0, end };
        }
        let (row, column) = place_in_triangle(tile);
        Self { args, component, rows: row * FEATURES, columns: column * FEATURES, end }
    }

    /// c of a component's features from `first` on; `behind` for the one behind the last, then zeros.
    #[inline(always)]
    unsafe fn centres<const N: usize>(self, component: usize, first: usize, behind: T) -> [T; N] {
        let d = self.args.d as usize;
        let mut centres = [T::ZERO; N];
        counted!(for f in 0..N {
            if first + f < d && component < self.args.k as usize {
                // SAFETY: a feature of the component.
                centres[f] = T::load(self.args.centres.add(component * d + first + f));
            } else if first + f == d {
                centres[f] = behind;
            }
        });
        centres
    }

    /// Sample `i`'s features from `first` on, with zeros behind the last; behind the slice's last, that one's.
    #[inline(always)]
    unsafe fn features<const N: usize>(self, i: usize, first: usize) -> [T; N] {
        let (mut x, i) = ([T::ZERO; N], smaller(i, self.end as usize - 1));
        counted!(for f in 0..N {
            if first + f < self.args.d as usize {
                // SAFETY: a feature of a sample.
                x[f] = T::load(self.args.x.add((first + f) * self.args.stride as usize + i));
            }
        });
        x
    }

    /// A component's responsibility for sample `i`; zero behind the slice's last, and behind K.
    #[inline(always)]
    unsafe fn responsibility(self, component: usize, i: usize) -> T {
        if i < self.end as usize && component < self.args.k as usize {
            // SAFETY: the sample exists.
            T::load(self.args.r.add(component * self.args.r_stride as usize + i))
        } else {
            T::ZERO
        }
    }
}

/// Adds samples to a tile of sums.
trait Tile<T: Float> {
    /// A lane's numbers of a sample.
    type Sample: Copy;
    /// The numbers of no sample.
    const NOTHING: Self::Sample;

    /// Reads the centres of the task's features.
    /// Safety: the task's component exists.
    unsafe fn new(task: Task<'_, T>) -> Self;

    /// Reads sample `i`; behind the slice's last, numbers that do not count.
    /// Safety: the slice has a sample.
    unsafe fn read(task: Task<'_, T>, i: usize) -> Self::Sample;

    /// Adds a sample.
    fn add(&self, sample: Self::Sample, sums: &mut [T; NUMBERS]);
}

/// A tile of one component's triangle: the centres of the rows' and of the columns' features.
struct Triangle<T> {
    rows: [T; FEATURES],
    columns: [T; FEATURES],
}

impl<T: Float> Tile<T> for Triangle<T> {
    type Sample = (T, [T; FEATURES], [T; FEATURES]);
    const NOTHING: Self::Sample = (T::ZERO, [T::ZERO; FEATURES], [T::ZERO; FEATURES]);

    #[inline(always)]
    unsafe fn new(task: Task<'_, T>) -> Self {
        // With −1 as the centre behind the last feature, u = x − c is one there. SAFETY: the caller guarantees it.
        Self {
            rows: task.centres(task.component, task.rows, -T::ONE),
            columns: task.centres(task.component, task.columns, -T::ONE),
        }
    }

    #[inline(always)]
    unsafe fn read(task: Task<'_, T>, i: usize) -> Self::Sample {
        (task.responsibility(task.component, i), task.features(i, task.rows), task.features(i, task.columns))
    }

    #[inline(always)]
    fn add(&self, (r, mut u, mut w): Self::Sample, sums: &mut [T; NUMBERS]) {
        counted!(for f in 0..FEATURES {
            u[f] = r * (u[f] - self.rows[f]);
            w[f] = w[f] - self.columns[f];
        });
        counted!(for f in 0..FEATURES {
            counted!(for g in 0..FEATURES {
                sums[f * FEATURES + g] = u[f].fma(w[g], sums[f * FEATURES + g]);
            });
        });
    }
}

/// A tile of the diagonals of a group of components: their centres. `GAPS`: over the samples with the feature.
struct Diagonals<T, const GAPS: bool> {
    centres: [[T; SIDE]; SIDE],
}

impl<T: Float, const GAPS: bool> Tile<T> for Diagonals<T, GAPS> {
    /// Features, and the components' responsibilities.
    type Sample = ([T; SIDE], [T; SIDE]);
    const NOTHING: Self::Sample = ([T::ZERO; SIDE], [T::ZERO; SIDE]);

    #[inline(always)]
    unsafe fn new(task: Task<'_, T>) -> Self {
        let mut centres = [[T::ZERO; SIDE]; SIDE];
        counted!(for c in 0..SIDE {
            // SAFETY: behind K there are zeros.
            centres[c] = task.centres(task.component + c, task.rows, T::ZERO);
        });
        Self { centres }
    }

    #[inline(always)]
    unsafe fn read(task: Task<'_, T>, i: usize) -> Self::Sample {
        let mut r = [T::ZERO; SIDE];
        counted!(for c in 0..SIDE {
            r[c] = task.responsibility(task.component + c, i);
        });
        (task.features(i, task.rows), r)
    }

    #[inline(always)]
    fn add(&self, (mut x, r): Self::Sample, sums: &mut [T; NUMBERS]) {
        let mut observed = [true; SIDE];
        if GAPS {
            counted!(for f in 0..SIDE {
                (x[f], observed[f]) = if x[f].is_nan() { (T::ZERO, false) } else { (x[f], true) };
            });
        }
        counted!(for c in 0..SIDE {
            let (r, at) = (r[c], c * COMPONENT);
            counted!(for f in 0..SIDE {
                let u = x[f] - self.centres[c][f];
                let mut r = r;
                if GAPS {
                    r = if observed[f] { r } else { T::ZERO };
                    sums[at + OBSERVED + f] = sums[at + OBSERVED + f] + r;
                }
                let ru = r * u;
                sums[at + f] = sums[at + f] + ru;
                sums[at + SIDE + f] = ru.fma(u, sums[at + SIDE + f]);
            });
            sums[at + COUNT] = sums[at + COUNT] + r;
        });
    }
}

#[inline(always)]
unsafe fn body<T: Float, S: Tile<T>, const FULL: bool, const AT_ONCE: usize>(args: &AccumulateArgs<T>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (k, d) = (args.k as usize, args.d as usize);
    let (tiles, units) = (tiles(d, FULL) as u32, units(k, d, FULL) as u32);
    let (Some(tiles), Some(units)) = (NonZeroU32::new(tiles), NonZeroU32::new(units)) else { return };
    counted!(for at in (block_idx() * warps + warp..units.get() * args.slices).step_by(grid_dim() * warps) {
        let unit = at % units;
        // SAFETY: the slice exists.
        let slice = Slice::of(args, at / units);
        let (mut i, end) = (slice.first, slice.end);
        let task = Task::new::<FULL>(args, (unit / tiles) as usize, unit % tiles, end);
        // SAFETY: the component exists.
        let tile = S::new(task);
        let mut totals = [0.0f64; 2];
        // The bounds are the same for all lanes, so that all take part in the shuffles.
        while i < end {
            let mut sums = [T::ZERO; NUMBERS];
            let stop = if end - i < FLUSH * WARP { end } else { i + FLUSH * WARP };
            while i < stop {
                let mut samples = [S::NOTHING; AT_ONCE];
                counted!(for s in 0..AT_ONCE {
                    samples[s] = S::read(task, (i + s as u32 * WARP) as usize + lane);
                });
                counted!(for s in 0..AT_ONCE {
                    tile.add(samples[s], &mut sums);
                });
                i += AT_ONCE as u32 * WARP;
            }
            let sums = divided_sums(sums, WARP - 1);
            counted!(for s in 0..2 {
                totals[s] += sums[s].wide();
            });
        }
        counted!(for s in 0..2 {
            // SAFETY: a number of the tile that this lane holds.
            slice.store(args, unit as usize * NUMBERS + lane * 2 + s, totals[s]);
        });
    });
}

const _: () = assert!(NUMBERS == 2 * WARP as usize);

kernels! {
    /// Computes each slice's sums.
    accumulate_diag_f32: AccumulateArgs<f32> = body::<f32, Diagonals<f32, false>, false, 4>;
    accumulate_observed_f32: AccumulateArgs<f32> = body::<f32, Diagonals<f32, true>, false, 2>;
    accumulate_full_f32: AccumulateArgs<f32> = body::<f32, Triangle<f32>, true, 1>;
    accumulate_diag_f64: AccumulateArgs<f64> = body::<f64, Diagonals<f64, false>, false, 4>;
    accumulate_observed_f64: AccumulateArgs<f64> = body::<f64, Diagonals<f64, true>, false, 2>;
    accumulate_full_f64: AccumulateArgs<f64> = body::<f64, Triangle<f64>, true, 1>;
    accumulate_wide_f64: AccumulateArgs<f64> = wide::triangles::<false, BLOCK, 2, 1>;
    accumulate_tall_f64: AccumulateArgs<f64> = wide::triangles::<true, BLOCK, 2, 1>;
    accumulate_tall_d16_f64: AccumulateArgs<f64> = wide::triangles::<true, 2, 1, NEIGHBOURS>;
}
