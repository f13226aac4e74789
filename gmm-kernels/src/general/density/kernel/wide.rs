//! The exponents of triangles in float64 on the tensor cores: A·x + b of sixteen rows and eight samples at a time.
use super::*;
use crate::math::{ROWS_OF_TILE, divided_sums, multiply64};

/// Rows that are multiplied together, of two panels; and such pairs of panels of a warp.
const TALL_ROWS: usize = 2 * ROWS;
const PAIRS: usize = 2;
/// Samples that a warp multiplies: four for each lane with a column of A.
const SAMPLES: usize = 8 * QUAD;
/// Columns of a step: two for each lane with a row of A.
const STEP: usize = 8;

/// Numbers of `count` whole panels from row `first` on: those of a panel's columns, ROWS each.
#[inline(always)]
fn panels(first: usize, count: usize) -> usize {
    ROWS * (count * first + ROWS * (count * (count + 1) / 2))
}

/// A lane's numbers: two samples of each of QUAD tiles. Column n of tile s has the sample [`sample`].
type Samples = [f64; 2 * QUAD];

/// The sample of a tile's column: a lane reads pairs of neighbours, half of all samples apart.
#[inline(always)]
fn sample(s: usize, column: usize) -> usize {
    s / 2 * (SAMPLES / 2) + 2 * column + s % 2
}

/// Adds the squares of a lane's numbers, of two rows and two samples in each of QUAD tiles.
#[inline(always)]
fn add_squares(squares: &mut Samples, z: [[f64; 4]; QUAD]) {
    counted!(for s in 0..QUAD {
        counted!(for c in 0..4 {
            squares[2 * s + c % 2] = fma64(z[s][c], z[s][c], squares[2 * s + c % 2]);
        });
    });
}

/// A warp's samples, and the lane's place in the operands of a product.
#[derive(Clone, Copy)]
struct Tile<'a> {
    args: &'a DensityArgs<f64>,
    first: usize,
    lane: usize,
}

impl Tile<'_> {
    /// The lane's samples of the feature that it has in the columns from `j` on; of any feature behind D, where A is
    /// zero.
    /// Safety: the samples exist, or are padding.
    #[inline(always)]
    unsafe fn samples(self, j: usize) -> [f64; QUAD] {
        let column = smaller(j + self.lane % 4, self.args.d as usize - 1);
        let at = column * self.args.stride as usize + self.first + sample(0, self.lane / 4);
        // SAFETY: pairs are aligned.
        f64::load_apart(self.args.x.wrapping_add(at), SAMPLES / 2)
    }

    /// The lane's element of a component's first step.
    #[inline(always)]
    fn matrix(self, component: usize) -> *const f64 {
        let at = component * self.args.matrix_stride as usize + self.lane % 4 * ROWS + self.lane / 4;
        self.args.matrices.wrapping_add(at)
    }

    /// b of the lane's rows in the pair of panels from row `first` on, zero behind the last panel.
    /// Safety: the component exists.
    #[inline(always)]
    unsafe fn shifts(self, component: usize, first: usize) -> [[f64; 4]; QUAD] {
        let d = self.args.d as usize;
        let at = component * d.next_multiple_of(ROWS) + first + self.lane / 4;
        let mut b = [0.0; 2];
        counted!(for half in 0..2 {
            if first + half * ROWS < d {
                // SAFETY: the shifts are padded to whole panels.
                b[half] = f64::load(self.args.shifts.add(at + half * ROWS));
            }
        });
        [[b[0], b[0], b[1], b[1]]; QUAD]
    }

    /// Writes q of the samples from the squares of the lane's rows. All lanes of the warp call it.
    /// Safety: the component exists.
    #[inline(always)]
    unsafe fn write(self, component: usize, squares: Samples) {
        // Over the rows, which are in eight lanes; each gets one sample of the tiles' columns.
        let [sum, ..] = divided_sums(squares, ROWS_OF_TILE);
        let (column, s) = (self.lane % 4 * 2 + self.lane / 4 % 2, self.lane / 8);
        let at = component * self.args.q_stride as usize + self.first + sample(s, column);
        // SAFETY: the samples or their padding have a place.
        store(self.args.q.add(at), f64::load(self.args.seeds.add(component)) - sum);
    }

    /// The squares of the lane's rows of A·x + b.
    /// Safety: the component exists; all lanes of the warp call it.
    #[inline(always)]
    unsafe fn squares<const TALL: bool>(self, component: usize) -> Samples {
        let d = self.args.d as usize;
        let mut squares = [0.0; 2 * QUAD];
        let mut from = self.matrix(component);
        counted!(for first in (0..d).step_by(PAIRS * TALL_ROWS) {
            let mut z = [[[0.0; 4]; QUAD]; PAIRS];
            counted!(for p in 0..PAIRS {
                z[p] = self.shifts(component, first + p * TALL_ROWS);
            });
            let end = smaller(first + PAIRS * TALL_ROWS, d);
            let read = |j: usize| {
                let mut a = [[0.0; 4]; PAIRS];
                counted!(for panel in 0..2 * PAIRS {
                    let top = first + panel * ROWS;
                    if top < d && j < top + ROWS {
                        let step = from.wrapping_add(panels(first, panel) + j * ROWS);
                        counted!(for h in 0..2 {
                            // SAFETY: an element of the panel, which is padded to whole steps.
                            a[panel / 2][2 * h + panel % 2] = f64::load(step.wrapping_add(4 * h * ROWS));
                        });
                    }
                });
                (a, [self.samples(j), self.samples(j + 4)])
            };
            let (mut a, mut xs) = read(0);
            counted!(for j in (0..end).step_by(STEP) {
                let ahead = read(if j + STEP < end { j + STEP } else { j });
                counted!(for p in 0..PAIRS {
                    if j < first + (p + 1) * TALL_ROWS {
                        counted!(for s in 0..QUAD {
                            z[p][s] = multiply64::<TALL>(z[p][s], a[p], [xs[0][s], xs[1][s]]);
                        });
                    }
                });
                (a, xs) = ahead;
            });
            from = from.wrapping_add(panels(first, 2 * PAIRS));
            counted!(for p in 0..PAIRS {
                add_squares(&mut squares, z[p]);
            });
        });
        squares
    }

    /// Writes q of the components from `first` up to `end`, of up to TALL_ROWS rows. The samples stay in registers.
    /// Safety: the components exist; all lanes of the warp call it.
    #[inline(always)]
    unsafe fn narrow(self, first: usize, end: usize) {
        let two = self.args.d as usize > ROWS;
        let mut xs = [[0.0; QUAD]; 4];
        counted!(for h in 0..4 {
            xs[h] = self.samples(4 * h);
        });
        let read = |component: usize| {
            let from = self.matrix(component);
            // SAFETY: elements of the panels, which are padded to whole steps.
            let load = |at: usize| f64::load(from.wrapping_add(at));
            let (mut a, below) = ([[0.0; 4]; 2], panels(0, 1));
            counted!(for h in 0..2 {
                a[0][2 * h] = load(4 * h * ROWS);
                if two {
                    a[0][2 * h + 1] = load(below + 4 * h * ROWS);
                    a[1][2 * h + 1] = load(below + (STEP + 4 * h) * ROWS);
                }
            });
            // SAFETY: the component exists.
            (a, self.shifts(component, 0))
        };
        let (mut a, mut z) = read(first);
        counted!(for component in first..end {
            let ahead = read(if component + 1 < end { component + 1 } else { component });
            counted!(for s in 0..QUAD {
                z[s] = multiply64::<true>(z[s], a[0], [xs[0][s], xs[1][s]]);
            });
            if two {
                counted!(for s in 0..QUAD {
                    z[s] = multiply64::<true>(z[s], a[1], [xs[2][s], xs[3][s]]);
                });
            }
            let mut squares = [0.0; 2 * QUAD];
            add_squares(&mut squares, z);
            self.write(component, squares);
            (a, z) = ahead;
        });
    }
}

/// Computes q of every sample and component. A block takes neighbouring components of a tile of samples, so that these
/// stay in the first-level cache. `NARROW`: the triangles have up to TALL_ROWS rows.
///
/// # Safety
/// As for the kernel.
#[inline(always)]
pub unsafe fn triangles<const TALL: bool, const NARROW: bool>(args: &DensityArgs<f64>) {
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
    let warps = (block_dim() / WARP) as usize;
    let Some(k) = NonZeroU32::new(args.k) else { return };
    let tasks = args.n.div_ceil(TILE as u32) * k.get();
    let of_block = tasks.div_ceil(grid_dim());
    let (mut task, end) = (block_idx() * of_block, smaller((block_idx() + 1) * of_block, tasks));
    while task < end {
        let (tile, component) = ((task / k) as usize, task % k);
        let components = smaller(k.get() - component, end - task);
        task += components;
        let last = smaller((tile + 1) * TILE, args.n as usize);
        counted!(for first in (tile * TILE + warp * SAMPLES..last).step_by(warps * SAMPLES) {
            not_unrolled();
            let (tile, component) = (Tile { args, first, lane }, component as usize);
            let end = component + components as usize;
            // SAFETY: the components exist, and the samples or their padding.
            if NARROW {
                tile.narrow(component, end);
            } else {
                counted!(for c in component..end {
                    tile.write(c, tile.squares::<TALL>(c));
                });
            }
        });
    }
}
