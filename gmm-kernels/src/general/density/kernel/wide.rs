//! The exponents of triangles in float64 on the tensor cores: A·x + b of eight rows and eight samples at a time.
use super::*;
use crate::math::smaller;

/// Panels of rows that a warp multiplies together.
const PANELS: usize = 4;
/// Samples that it multiplies: a quad for each eight lanes with a column of A.
const SAMPLES: usize = 8 * QUAD;
/// Columns of a step.
const STEP: usize = 4;

/// Numbers of `count` whole panels from row `first` on: those of a panel's columns, ROWS each.
#[inline(always)]
fn panels(first: usize, count: usize) -> usize {
    ROWS * (count * first + ROWS * (count * (count + 1) / 2))
}

/// A lane's numbers: two samples of each of QUAD tiles. Tile s has the s-th samples of eight quads.
type Samples = [[f64; 2]; QUAD];

struct Triangle<'a> {
    args: &'a DensityArgs<f64>,
    matrix: *const f64,
    shifts: *const f64,
}

impl Triangle<'_> {
    /// The sum over all panels of the squares of rows `lane / 4` of A·x + b, for the samples from `x` on, of which the
    /// lane has a quad. All lanes of the warp call it.
    /// Safety: the samples exist, or are padding.
    #[inline(always)]
    unsafe fn squares(&self, x: *const f64) -> Samples {
        let (d, lane) = (self.args.d as usize, (thread_idx() % WARP) as usize);
        let (row, of_step) = (lane / 4, lane % 4);
        let mut squares: Samples = [[0.0; 2]; QUAD];
        // This lane's element of the first step of the panels.
        let mut from = self.matrix.wrapping_add(of_step * ROWS + row);
        counted!(for first in (0..d).step_by(PANELS * ROWS) {
            let mut z = [[[0.0; 2]; QUAD]; PANELS];
            counted!(for p in 0..PANELS {
                if first + p * ROWS < d {
                    // SAFETY: the shifts are padded to whole panels.
                    z[p] = [[unsafe { f64::load(self.shifts.add(first + p * ROWS + row)) }; 2]; QUAD];
                }
            });
            let end = smaller(first + PANELS * ROWS, d);
            let read = |j: usize| {
                let column = j + of_step;
                let (mut a, mut xs) = ([0.0; PANELS], [0.0; QUAD]);
                if column < d {
                    // SAFETY: the caller guarantees it; a quad is aligned.
                    xs = unsafe { f64::load4(x.add(column * self.args.stride as usize)) };
                }
                counted!(for p in 0..PANELS {
                    if first + p * ROWS < d && column < columns(first + p * ROWS, d) {
                        let panel = from.wrapping_add(panels(first, p) + j * ROWS);
                        // SAFETY: an element of the panel.
                        a[p] = unsafe { f64::load(panel) };
                    }
                });
                (a, xs)
            };
            let (mut a, mut xs) = read(0);
            counted!(for j in (0..end).step_by(STEP) {
                let ahead = read(if j + STEP < end { j + STEP } else { j });
                counted!(for p in 0..PANELS {
                    if first + p * ROWS < d && j < columns(first + p * ROWS, d) {
                        counted!(for s in 0..QUAD {
                            z[p][s] = mma64(z[p][s], a[p], xs[s]);
                        });
                    }
                });
                (a, xs) = ahead;
            });
            from = from.wrapping_add(panels(first, PANELS));
            counted!(for p in 0..PANELS {
                counted!(for s in 0..QUAD {
                    counted!(for c in 0..2 {
                        squares[s][c] = fma64(z[p][s][c], z[p][s][c], squares[s][c]);
                    });
                });
            });
        });
        squares
    }
}

/// Computes q of every sample and component.
///
/// # Safety
/// As for the kernel.
#[inline(always)]
pub unsafe fn triangles(args: &DensityArgs<f64>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let Some(units) = NonZeroU32::new(args.k) else { return };
    let tasks = args.n.div_ceil(TILE as u32) * units.get();
    counted!(for task in (block_idx() * warps + warp..tasks).step_by(grid_dim() * warps) {
        let (tile, component) = ((task / units) as usize, (task % units) as usize);
        // SAFETY: the component exists, and the samples or their padding.
        unsafe {
            let triangle = Triangle {
                args,
                matrix: args.matrices.wrapping_add(component * args.matrix_stride as usize),
                shifts: args.shifts.add(component * (args.d as usize).next_multiple_of(ROWS)),
            };
            let seed = f64::load(args.seeds.add(component));
            let end = smaller((tile + 1) * TILE, args.n as usize);
            counted!(for first in (tile * TILE..end).step_by(SAMPLES) {
                not_unrolled();
                let mut q = triangle.squares(args.x.wrapping_add(first + lane / 4 * QUAD));
                counted!(for s in 0..QUAD {
                    counted!(for c in 0..2 {
                        // Over the rows, which are in eight lanes.
                        let mut sum = q[s][c];
                        sum += sum.shuffle_xor(4);
                        sum += sum.shuffle_xor(8);
                        sum += sum.shuffle_xor(16);
                        q[s][c] = seed - sum;
                    });
                });
                // Column n of the tile of the quads' s-th samples belongs to quad n.
                if lane < 4 {
                    let to = args.q.wrapping_add(component * args.q_stride as usize + first + lane * 2 * QUAD);
                    f64::store4(to, [q[0][0], q[1][0], q[2][0], q[3][0]]);
                    f64::store4(to.wrapping_add(QUAD), [q[0][1], q[1][1], q[2][1], q[3][1]]);
                }
            });
        }
    });
}
