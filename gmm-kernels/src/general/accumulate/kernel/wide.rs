//! The sums of triangles in float64, by products of the tensor cores: a tile is the sum over the samples of the rows'
//! r·u times the columns' u.
use super::*;

/// Samples of a lane (four lanes have the same feature), and of a step.
const PAIR: usize = 2;
const STEP: u32 = 4 * PAIR as u32;

/// The features of the rows or of the columns of a warp's tiles; a lane takes number `lane / 4` of each tile.
struct Features<'a> {
    args: &'a AccumulateArgs<f64>,
    /// The first tile, and the number of tiles.
    tile: usize,
    tiles: usize,
    /// This lane's feature of the first tile.
    feature: usize,
    /// The centres of the lane's features; −1 behind the last, then zeros.
    centres: [f64; BLOCK],
}

impl<'a> Features<'a> {
    /// Safety: the component and the block of tiles exist.
    #[inline(always)]
    unsafe fn new(args: &'a AccumulateArgs<f64>, component: usize, block: usize) -> Self {
        let d = args.d as usize;
        let tile = block * BLOCK;
        let feature = tile * FEATURES + (thread_idx() % WARP / 4) as usize;
        let mut centres = [0.0; BLOCK];
        counted!(for t in 0..BLOCK {
            let feature = feature + t * FEATURES;
            if feature < d {
                // SAFETY: a feature of the component.
                centres[t] = unsafe { f64::load(args.centres.add(component * d + feature)) };
            } else if feature == d {
                centres[t] = -1.0;
            }
        });
        Self { args, tile, tiles: smaller((d + 1).div_ceil(FEATURES) - tile, BLOCK), feature, centres }
    }

    /// The lane's features of the samples from `i` on.
    /// Safety: the samples exist, or are padding behind the last.
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> [[f64; PAIR]; BLOCK] {
        let mut x = [[0.0; PAIR]; BLOCK];
        counted!(for t in 0..BLOCK {
            let feature = self.feature + t * FEATURES;
            if feature < self.args.d as usize {
                // SAFETY: the caller guarantees it; pairs are aligned.
                x[t] = unsafe { load_f64x2(self.args.x.add(feature * self.args.stride as usize + i)) };
            }
        });
        x
    }
}

/// A lane's numbers for a step.
#[derive(Clone, Copy)]
struct Step {
    /// Responsibilities, zero behind the slice's last sample.
    r: [f64; PAIR],
    rows: [[f64; PAIR]; BLOCK],
    columns: [[f64; PAIR]; BLOCK],
}

impl Step {
    const NOTHING: Self = Self { r: [0.0; PAIR], rows: [[0.0; PAIR]; BLOCK], columns: [[0.0; PAIR]; BLOCK] };
}

/// Computes the sums of all components' triangles.
///
/// # Safety
/// As for the kernel.
#[inline(always)]
pub unsafe fn triangles(args: &AccumulateArgs<f64>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let d = args.d as usize;
    let tiles = tiles(d, true);
    let tasks = tasks(args.k as usize, d, true, true) as u32;
    let (Some(tasks), Some(of_component)) = (NonZeroU32::new(tasks), NonZeroU32::new(tasks / args.k)) else { return };
    counted!(for at in (block_idx() * warps + warp..tasks.get() * args.slices).step_by(grid_dim() * warps) {
        let task = at % tasks;
        let (component, (row, column)) = ((task / of_component) as usize, place_in_triangle(task % of_component));
        // SAFETY: slice, component and tiles exist.
        let (slice, rows, columns) = unsafe {
            (Slice::of(args, at / tasks), Features::new(args, component, row), Features::new(args, component, column))
        };
        let r = args.r.wrapping_add(component * args.r_stride as usize);
        let mut sums = [[[0.0f64; 2]; BLOCK]; BLOCK];
        let read = |first: u32| {
            let i = first as usize + lane % 4 * PAIR;
            let mut weights = [0.0; PAIR];
            counted!(for p in 0..PAIR {
                if i + p < slice.end as usize {
                    // SAFETY: the sample exists.
                    weights[p] = unsafe { f64::load(r.add(i + p)) };
                }
            });
            // SAFETY: samples of the slice, or padding behind the last.
            unsafe { Step { r: weights, rows: rows.load(i), columns: columns.load(i) } }
        };
        let mut first = slice.first;
        // A slice behind the last sample reads nothing.
        let mut step = if first < slice.end { read(first) } else { Step::NOTHING };
        // The bounds are the same for all lanes, so that all take part in the products.
        while first < slice.end {
            let ahead = read(if first + STEP < slice.end { first + STEP } else { first });
            counted!(for p in 0..PAIR {
                let mut right = [0.0; BLOCK];
                counted!(for s in 0..BLOCK {
                    right[s] = step.columns[s][p] - columns.centres[s];
                });
                counted!(for t in 0..BLOCK {
                    let left = step.r[p] * (step.rows[t][p] - rows.centres[t]);
                    counted!(for s in 0..BLOCK {
                        if t < rows.tiles && s < columns.tiles && columns.tile + s <= rows.tile + t {
                            sums[t][s] = mma64(sums[t][s], left, right[s]);
                        }
                    });
                });
            });
            step = ahead;
            first += STEP;
        }
        counted!(for t in 0..BLOCK {
            counted!(for s in 0..BLOCK {
                let (row, column) = (rows.tile + t, columns.tile + s);
                if t < rows.tiles && s < columns.tiles && column <= row {
                    let unit = component * tiles + row * (row + 1) / 2 + column;
                    counted!(for p in 0..2 {
                        // SAFETY: a number of the tile that this lane holds.
                        unsafe { slice.store(args, unit * NUMBERS + 2 * lane + p, sums[t][s][p]) };
                    });
                }
            });
        });
    });
}
