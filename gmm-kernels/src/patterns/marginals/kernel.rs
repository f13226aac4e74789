use super::super::*;
use super::*;
use crate::estep::fused;
use crate::general::density::{self, ROWS};
use crate::math::{Float, REACH, ROOT_HALF_LOG2_E, float64, warp_sum, weight_and_seed};
use crate::simt::*;

/// A pivot below this fraction of its variance is rounding noise: the matrix is singular in float64.
const SINGULAR: f64 = f64::EPSILON;

/// A component of a pattern; all lanes of the warp have the same.
#[derive(Clone, Copy)]
struct Component<'a, T> {
    args: &'a MarginalsArgs<T>,
    observed: Observed,
    pattern: usize,
    c: usize,
    lane: usize,
    /// First Σ, then L, W and C, then the map and C.
    map: Matrix,
    /// L⁻¹, then A, in the observed rows; B in the missing rows.
    inverse: Matrix,
}

impl<'a, T: Float> Component<'a, T> {
    /// Safety: pattern and component exist.
    #[inline(always)]
    unsafe fn new(args: &'a MarginalsArgs<T>, observed: Observed, pattern: usize, c: usize) -> Self {
        let (k, d) = (args.layout.k as usize, args.layout.d as usize);
        let at = args.matrices.wrapping_add((pattern * k + c) * MATRICES * d * d);
        let lane = (thread_idx() % WARP) as usize;
        let (map, inverse) = (Matrix::new(at, d), Matrix::new(at.wrapping_add(d * d), d));
        Self { args, observed, pattern, c, lane, map, inverse }
    }

    #[inline(always)]
    fn d(self) -> usize {
        self.args.layout.d as usize
    }

    /// μ of column `j`.
    #[inline(always)]
    unsafe fn mean(self, j: usize) -> f64 {
        // SAFETY: the column exists.
        load(self.args.means.add(self.c * self.d() + j))
    }

    /// The place of e.
    #[inline(always)]
    fn e(self, j: usize) -> *mut f64 {
        let component = self.pattern * self.args.layout.k as usize + self.c;
        self.args.vectors.wrapping_add(component * VECTORS * self.d() + j)
    }

    #[inline(always)]
    fn parameter(self, at: usize) -> *mut T {
        self.args.parameters.wrapping_add(self.pattern * self.args.stride as usize + at)
    }

    /// Whether row `i` remains to be eliminated when column `j` is the pivot.
    #[inline(always)]
    fn left(self, i: usize, j: usize) -> bool {
        i > j || !self.observed.has(i)
    }

    /// Computes L, W and C in `map`. Returns the column, if any, at which the matrix is not positive definite.
    #[inline(always)]
    unsafe fn factorise(self) -> Option<usize> {
        let (d, map) = (self.d(), self.map);
        let covariance = Matrix::new(self.args.covariances.wrapping_add(self.c * d * d).cast_mut(), d);
        // SAFETY: elements of the component's matrices; all lanes meet between a lane's write and another's read.
        let mut cell = Cells::of(self.lane, d);
        while cell.i < d {
            map.set(cell.i, cell.j, covariance.get(cell.i, cell.j));
            cell = cell.next();
        }
        counted!(for j in 0..d {
            if self.observed.has(j) {
                warp_sync();
                let pivot = map.get(j, j);
                // `!(… > …)` also holds for NaN.
                if !(pivot > SINGULAR * covariance.get(j, j) && (f64::MIN_POSITIVE..f64::MAX).contains(&pivot)) {
                    return Some(j);
                }
                let root = float64::sqrt(pivot);
                let factor = 1.0 / root;
                warp_sync();
                let mut i = self.lane;
                while i < d {
                    if i == j {
                        map.set(j, j, root);
                    } else if self.left(i, j) {
                        map.set(i, j, map.get(i, j) * factor);
                    }
                    i += WARP as usize;
                }
                warp_sync();
                let mut cell = Cells::of(self.lane, d);
                while cell.i < d {
                    let Cells { i, j: l, .. } = cell;
                    if i != j && l != j && self.left(i, j) && self.left(l, j) {
                        map.set(i, l, fma64(-map.get(i, j), map.get(l, j), map.get(i, l)));
                    }
                    cell = cell.next();
                }
            }
        });
        warp_sync();
        None
    }

    /// Writes column `c` of the inverse of a lower triangle of the observed columns to `to`, with zeros above it.
    #[inline(always)]
    unsafe fn invert_column(self, lower: Matrix, to: Matrix, c: usize) {
        counted!(for i in 0..self.d() {
            if self.observed.has(i) {
                let mut v = if i == c { 1.0 } else { 0.0 };
                let mut l = c;
                // SAFETY: elements of the matrices; only this lane has the column.
                while l < i {
                    if self.observed.has(l) {
                        v = fma64(-lower.get(i, l), to.get(l, c), v);
                    }
                    l += 1;
                }
                to.set(i, c, if i < c { 0.0 } else { v / lower.get(i, i) });
            }
        });
    }

    /// Writes column `c` of `rows`·`lower` to `to`; `rows` are the missing ones, `lower` an observed lower triangle.
    #[inline(always)]
    unsafe fn multiply_column(self, rows: Matrix, lower: Matrix, to: Matrix, c: usize) {
        counted!(for m in 0..self.d() {
            if !self.observed.has(m) {
                let mut v = 0.0;
                let mut l = c;
                while l < self.d() {
                    if self.observed.has(l) {
                        v = fma64(rows.get(m, l), lower.get(l, c), v);
                    }
                    l += 1;
                }
                to.set(m, c, v);
            }
        });
    }

    /// The place of element (i, j) of A among the parameters.
    #[inline(always)]
    fn place(self, i: usize, j: usize) -> usize {
        let Layout { d, capacity, .. } = self.args.layout;
        if capacity > 0 {
            return (fused::matrix(i, true) + j) * capacity as usize + self.c;
        }
        // The panels above are full: 8·8, 8·16, … numbers.
        let panel = i / ROWS;
        let above = ROWS * ROWS * panel * (panel + 1) / 2;
        self.c * density::triangle(d as usize) + above + j * ROWS + i % ROWS
    }

    /// The place of element i of b.
    #[inline(always)]
    fn shift_place(self, i: usize) -> usize {
        let Layout { d, capacity, .. } = self.args.layout;
        if capacity > 0 {
            (fused::matrix(d as usize, true) + i) * capacity as usize + self.c
        } else {
            self.args.places[0] as usize + self.c * (d as usize).next_multiple_of(ROWS) + i
        }
    }

    /// Writes A, rounded, and zeros around it; `alive`: whether A exists. Leaves the rounded numbers in `inverse`.
    #[inline(always)]
    unsafe fn write_triangle(self, alive: bool) {
        let (d, general) = (self.d(), self.args.layout.capacity == 0);
        let rows = if general { d.next_multiple_of(ROWS) } else { d };
        let mut cell = Cells::of(self.lane, d);
        while cell.i < rows {
            let Cells { i, j, .. } = cell;
            if j < if general { density::columns(i / ROWS * ROWS, d) } else { i + 1 } {
                let mut a = T::ZERO;
                // SAFETY: elements of the matrices, and a place for each number.
                if alive && j <= i && i < d && self.observed.has(i) && self.observed.has(j) {
                    a = T::narrow(ROOT_HALF_LOG2_E * self.inverse.get(i, j));
                    self.inverse.set(i, j, a.wide());
                }
                store(self.parameter(self.place(i, j)), a);
            }
            cell = cell.next();
        }
    }

    /// Writes b, rounded. Returns log₂ of A's determinant in lane 0 and, in all lanes, the first row out of range.
    #[inline(always)]
    unsafe fn write_shifts(self, alive: bool) -> (f64, u32) {
        let (d, general) = (self.d(), self.args.layout.capacity == 0);
        let rows = if general { d.next_multiple_of(ROWS) } else { d };
        let (mut log2, mut bad) = (0.0, u32::MAX);
        counted!(for i in (self.lane..rows).step_by(WARP as usize) {
            let mut b = T::ZERO;
            // SAFETY: elements of the matrices, and a place for each number.
            if alive && i < d && self.observed.has(i) {
                let (mut sum, mut reach) = (0.0, 0.0);
                counted!(for j in 0..=i {
                    if self.observed.has(j) {
                        let a = self.inverse.get(i, j);
                        sum = fma64(-a, self.mean(j), sum);
                        reach += REACH * if a < 0.0 { -a } else { a };
                    }
                });
                let pivot = self.inverse.get(i, i);
                let size = reach + if sum < 0.0 { -sum } else { sum };
                if !(size <= self.args.max_deviation && pivot >= self.args.min_positive) {
                    bad = if (i as u32) < bad { i as u32 } else { bad };
                } else {
                    log2 += float64::log2(pivot);
                    b = T::narrow(sum);
                }
            }
            store(self.parameter(self.shift_place(i)), b);
        });
        let mut by = WARP / 2;
        while by > 0 {
            let other = shuffle_xor_u32(bad, by);
            bad = if other < bad { other } else { bad };
            by /= 2;
        }
        (warp_sum(log2), bad)
    }

    /// Writes e, from the map of the observed columns.
    #[inline(always)]
    unsafe fn write_e(self) {
        let d = self.d();
        // SAFETY: the component's matrices and vectors; all lanes meet between a write and another's read.
        counted!(for i in (self.lane..d).step_by(WARP as usize) {
            if self.observed.has(i) {
                let mut x = 0.0;
                if self.args.layout.capacity > 0 {
                    counted!(for l in 0..=i {
                        if self.observed.has(l) {
                            let b = load(self.parameter(self.shift_place(l)));
                            x = fma64(-self.map.get(i, l), b.wide(), x);
                        }
                    });
                } else {
                    x = T::narrow(self.mean(i)).wide();
                }
                store(self.e(i), x - self.mean(i));
            }
        });
        warp_sync();
        counted!(for m in (self.lane..d).step_by(WARP as usize) {
            if !self.observed.has(m) {
                let mut x = 0.0;
                counted!(for l in 0..d {
                    if self.observed.has(l) {
                        x = fma64(self.inverse.get(m, l), load(self.e(l)), x);
                    }
                });
                store(self.e(m), x);
            }
        });
    }

    /// Writes zeros for a component without weight, or without valid parameters.
    #[inline(always)]
    unsafe fn clear(self) {
        let d = self.d();
        let mut cell = Cells::of(self.lane, d);
        while cell.i < d {
            self.map.set(cell.i, cell.j, 0.0);
            cell = cell.next();
        }
        counted!(for j in (self.lane..d).step_by(WARP as usize) {
            store(self.e(j), 0.0);
        });
    }

    /// Writes the map of the sums' vectors to deviations from μ: A⁻¹ or the identity, and B times it.
    #[inline(always)]
    unsafe fn write_map(self) {
        let d = self.d();
        counted!(for c in (self.lane..d).step_by(WARP as usize) {
            if self.observed.has(c) {
                // SAFETY: only this lane has the column.
                if self.args.layout.capacity > 0 {
                    self.invert_column(self.inverse, self.map, c);
                } else {
                    counted!(for i in 0..d {
                        if self.observed.has(i) {
                            self.map.set(i, c, if i == c { 1.0 } else { 0.0 });
                        }
                    });
                }
                self.multiply_column(self.inverse, self.map, self.map, c);
            }
        });
    }

    /// Computes all of a component's numbers except its weight and its seed.
    #[inline(always)]
    unsafe fn prepare(self) {
        let place = self.pattern * self.args.layout.k as usize + self.c;
        // SAFETY: the component exists; all lanes meet between a lane's write and another's read.
        let log2_weight = load(self.args.log2_weights.add(self.c));
        let mut alive = log2_weight > f64::MIN;
        let mut problem = 0;
        if alive && let Some(column) = self.factorise() {
            (alive, problem) = (false, column as i32 + 1);
        }
        if alive {
            counted!(for c in (self.lane..self.d()).step_by(WARP as usize) {
                if self.observed.has(c) {
                    self.invert_column(self.map, self.inverse, c);
                    self.multiply_column(self.map, self.inverse, self.inverse, c);
                }
            });
            warp_sync();
        }
        self.write_triangle(alive);
        warp_sync();
        let (log2, bad) = self.write_shifts(alive);
        if bad != u32::MAX {
            (alive, problem) = (false, -(bad as i32) - 1);
        }
        warp_sync();
        if alive {
            self.write_map();
            warp_sync();
            self.write_e();
        } else {
            self.clear();
        }
        let mut j = self.lane;
        while self.args.layout.capacity == 0 && j < self.d() {
            let centre = if alive { T::narrow(self.mean(j)) } else { T::ZERO };
            store(self.parameter(self.args.places[3] as usize + self.c * self.d() + j), centre);
            j += WARP as usize;
        }
        if self.lane == 0 {
            store(self.args.constants.add(place), if alive { log2_weight + log2 } else { f64::NEG_INFINITY });
            store(self.args.problems.add(place), problem);
        }
    }
}

/// Splits the components' constants into a common offset, weights and seeds. All threads of the block take part.
/// Safety: the constants of the pattern have been written.
#[inline(always)]
unsafe fn write_weights<T: Float>(args: &MarginalsArgs<T>, pattern: usize) {
    let Layout { k, d, capacity } = args.layout;
    let (k, d, capacity) = (k as usize, d as usize, capacity as usize);
    let (weights, seeds) = if capacity > 0 {
        let row = fused::matrix(d, true) + d;
        (row * capacity, (row + 1) * capacity)
    } else {
        (args.places[2] as usize, args.places[1] as usize)
    };
    let to = args.parameters.wrapping_add(pattern * args.stride as usize);
    // SAFETY: numbers of the pattern, and a place for each.
    let (mut offset, mut problems) = (f64::MIN, 0.0);
    counted!(for c in 0..k {
        let constant = load(args.constants.add(pattern * k + c));
        offset = if constant > offset { constant } else { offset };
        problems += if load(args.problems.add(pattern * k + c)) != 0 { 1.0 } else { 0.0 };
    });
    let mut c = thread_idx() as usize;
    while c < if capacity > 0 { capacity } else { k } {
        let (mut w, mut seed) = (T::ZERO, T::ZERO);
        if c < k {
            (w, seed) = weight_and_seed(load(args.constants.add(pattern * k + c)) - offset);
        }
        store(to.wrapping_add(weights + c), w);
        store(to.wrapping_add(seeds + c), seed);
        c += block_dim() as usize;
    }
    if thread_idx() == 0 {
        store(args.offsets.add(pattern), offset);
        let row = |row: usize| args.values.wrapping_add((k * sums(d) + row) * args.masks.count as usize + pattern);
        store(row(0), load(args.weights.add(pattern)) * offset);
        store(row(1), problems);
    }
}

#[inline(always)]
unsafe fn body<T: Float>(args: &MarginalsArgs<T>) {
    let pattern = block_idx() as usize;
    let (warp, warps) = (thread_idx() / WARP, block_dim() / WARP);
    // SAFETY: a block for each pattern.
    let observed = Observed::of(&args.masks, pattern);
    let mut c = warp;
    while c < args.layout.k {
        Component::new(args, observed, pattern, c as usize).prepare();
        c += warps;
    }
    // Places behind the last component: zeros.
    while c < args.layout.capacity {
        let component = Component::new(args, observed, pattern, c as usize);
        component.write_triangle(false);
        component.write_shifts(false);
        c += warps;
    }
    barrier!();
    write_weights(args, pattern);
}

kernels! {
    /// Computes the parameters of each pattern.
    marginals_f32: MarginalsArgs<f32> = body;
    marginals_f64: MarginalsArgs<f64> = body;
}
