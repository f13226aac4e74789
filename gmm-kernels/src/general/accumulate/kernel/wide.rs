//! The sums of triangles in float64, by products of the tensor cores: a tile is the sum over the samples of the rows'
//! r·u times the columns' u.
use super::*;
use crate::math::{multiply64, sum_over};

/// Samples of a lane (four lanes have the same feature), and of a step.
const PAIR: usize = 2;
const STEP: u32 = 4 * PAIR as u32;
/// The lanes with the same feature.
const SAMPLES: u32 = 0b11;

/// The features of the rows or of the columns of a warp's tiles; a lane takes number `lane / 4` of each OCTETS.
#[derive(Clone, Copy)]
struct Features<'a, const OCTETS: usize> {
    args: &'a AccumulateArgs<f64>,
    /// This lane's feature of the first octet.
    feature: usize,
}

impl<const OCTETS: usize> Features<'_, OCTETS> {
    /// The centres of a component; zero behind K and D.
    /// Safety: the parameters are readable.
    #[inline(always)]
    unsafe fn centres(self, component: usize) -> [f64; OCTETS] {
        let d = self.args.d as usize;
        let mut centres = [0.0; OCTETS];
        counted!(for o in 0..OCTETS {
            let feature = self.feature + o * FEATURES;
            if feature < d && component < self.args.k as usize {
                // SAFETY: a feature of the component.
                centres[o] = f64::load(self.args.centres.add(component * d + feature));
            }
        });
        centres
    }

    /// The lane's features of the samples from `i` on. Behind D it has any feature, whose sums nothing reads: without
    /// branches all reads of a step are on their way together.
    /// Safety: the samples exist, or are padding behind the last.
    #[inline(always)]
    unsafe fn load(self, i: usize) -> [[f64; PAIR]; OCTETS] {
        let mut x = [[0.0; PAIR]; OCTETS];
        counted!(for o in 0..OCTETS {
            let feature = smaller(self.feature + o * FEATURES, self.args.d as usize - 1);
            // SAFETY: pairs are aligned.
            x[o] = load_f64x2(self.args.x.add(feature * self.args.stride as usize + i));
        });
        x
    }
}

/// A lane's numbers for a step.
#[derive(Clone, Copy)]
struct Step<const OCTETS: usize, const COMPONENTS: usize> {
    /// Responsibilities; numbers behind the slice's last sample do not count.
    r: [[f64; PAIR]; COMPONENTS],
    rows: [[f64; PAIR]; OCTETS],
    columns: [[f64; PAIR]; OCTETS],
}

/// Computes the sums of all components' triangles. A warp takes a square of OCTETS² tiles of [`FEATURES`]², PAIRS pairs
/// of rows of them, of COMPONENTS neighbours, which have one square each if they are more than one.
///
/// # Safety
/// As for the kernel.
#[inline(always)]
pub unsafe fn triangles<const TALL: bool, const OCTETS: usize, const PAIRS: usize, const COMPONENTS: usize>(
    args: &AccumulateArgs<f64>,
) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (k, d) = (args.k as usize, args.d as usize);
    let tiles = tiles(d, true);
    let of_component = squares(d, OCTETS) as u32;
    let tasks = NonZeroU32::new(args.k.div_ceil(COMPONENTS as u32) * of_component);
    let (Some(tasks), Some(of_component)) = (tasks, NonZeroU32::new(of_component)) else { return };
    counted!(for at in (block_idx() * warps + warp..tasks.get() * args.slices).step_by(grid_dim() * warps) {
        let task = at % tasks;
        let component = (task / of_component) as usize * COMPONENTS;
        let (row, column) = if COMPONENTS > 1 { (0, 0) } else { place_in_triangle(task % of_component) };
        // SAFETY: the slice exists.
        let slice = Slice::of(args, at / tasks);
        let (row, column) = (row * OCTETS, column * OCTETS);
        let octet = |first: usize| Features::<OCTETS> { args, feature: first * FEATURES + lane / 4 };
        let (rows, columns) = (octet(row), octet(column));
        let mut of_rows = [[0.0; OCTETS]; COMPONENTS];
        let mut of_columns = [[0.0; OCTETS]; COMPONENTS];
        counted!(for c in 0..COMPONENTS {
            // SAFETY: the parameters are readable.
            (of_rows[c], of_columns[c]) = (rows.centres(component + c), columns.centres(component + c));
        });
        let read = |first: u32| {
            let i = first as usize + lane % 4 * PAIR;
            let mut r = [[0.0; PAIR]; COMPONENTS];
            counted!(for c in 0..COMPONENTS {
                let component = smaller(component + c, k - 1);
                // SAFETY: samples of the slice, or padding behind the last; pairs are aligned.
                r[c] = load_f64x2(args.r.add(component * args.r_stride as usize + i));
            });
            Step { r, rows: rows.load(i), columns: columns.load(i) }
        };
        let mut sums = [[[[0.0; 4]; OCTETS]; PAIRS]; COMPONENTS];
        let mut first_moments = [[0.0; OCTETS]; COMPONENTS];
        let mut counts = [0.0; COMPONENTS];
        let mut first = slice.first;
        // A slice behind the last sample reads nothing.
        let nothing =
            Step { r: [[0.0; PAIR]; COMPONENTS], rows: [[0.0; PAIR]; OCTETS], columns: [[0.0; PAIR]; OCTETS] };
        let mut step = if first < slice.end { read(first) } else { nothing };
        // The bounds are the same for all lanes, so that all take part in the products.
        while first < slice.end {
            let ahead = read(if first + STEP < slice.end { first + STEP } else { first });
            let left_over = (slice.end - first) as usize;
            written_out!(for c in 0..COMPONENTS {
                let (mut left, mut right) = ([[0.0; PAIR]; OCTETS], [[0.0; PAIR]; OCTETS]);
                counted!(for p in 0..PAIR {
                    let r = if lane % 4 * PAIR + p < left_over { step.r[c][p] } else { 0.0 };
                    counts[c] += r;
                    counted!(for o in 0..OCTETS {
                        right[o][p] = step.columns[o][p] - of_columns[c][o];
                        let u = if COMPONENTS > 1 { right[o][p] } else { step.rows[o][p] - of_rows[c][o] };
                        left[o][p] = r * u;
                        first_moments[c][o] += left[o][p];
                    });
                });
                counted!(for t in 0..PAIRS {
                    counted!(for s in 0..OCTETS {
                        let (row, column) = (row + 2 * t, column + s);
                        if row * FEATURES < d && column * FEATURES < d && column <= row + 1 {
                            let a = [left[2 * t][0], left[2 * t + 1][0], left[2 * t][1], left[2 * t + 1][1]];
                            sums[c][t][s] = multiply64::<TALL>(sums[c][t][s], a, right[s]);
                        }
                    });
                });
            });
            step = ahead;
            first += STEP;
        }
        written_out!(for c in 0..COMPONENTS {
            if component + c < k {
                // SAFETY: the numbers of a lane's places, which no other has.
                let store = |row: usize, column: usize, at: usize, sum: f64| {
                    let unit = (component + c) * tiles + row * (row + 1) / 2 + column;
                    slice.store(args, unit * NUMBERS + at, sum);
                };
                // The row of the number one, behind the last feature's.
                let (one, of_one) = (d / FEATURES, d % FEATURES);
                counted!(for t in 0..PAIRS {
                    counted!(for s in 0..OCTETS {
                        counted!(for half in 0..2 {
                            let (row, column) = (row + 2 * t + half, column + s);
                            let is_one = row == one && lane / 4 == of_one;
                            if row * FEATURES < d && column <= row && !is_one {
                                counted!(for p in 0..2 {
                                    store(row, column, 2 * lane + p, sums[c][t][s][2 * half + p]);
                                });
                            }
                        });
                    });
                });
                if row == column {
                    counted!(for o in 0..OCTETS {
                        let sum = sum_over(first_moments[c][o], SAMPLES);
                        if lane % 4 == 0 && rows.feature + o * FEATURES < d {
                            store(one, row + o, of_one * FEATURES + lane / 4, sum);
                        }
                    });
                    let count = sum_over(counts[c], SAMPLES);
                    if lane == 0 && row == 0 {
                        store(one, one, of_one * FEATURES + of_one, count);
                    }
                }
            }
        });
    });
}
