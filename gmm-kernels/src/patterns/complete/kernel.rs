use super::super::*;
use super::*;
use crate::general::accumulate::{self, FEATURES};
use crate::simt::*;

/// A component of a pattern; all lanes of the warp have the same.
#[derive(Clone, Copy)]
struct Component<'a> {
    args: &'a CompleteArgs,
    observed: Observed,
    pattern: usize,
    c: usize,
    lane: usize,
    /// M and C.
    map: Matrix,
    /// S.
    second: Matrix,
    /// M·S.
    product: Matrix,
    /// The places of e, s and f.
    e: *mut f64,
    first: *mut f64,
    mapped: *mut f64,
}

impl<'a> Component<'a> {
    /// Safety: pattern and component exist.
    #[inline(always)]
    unsafe fn new(args: &'a CompleteArgs, pattern: usize, c: usize) -> Self {
        let (k, d) = (args.layout.k as usize, args.layout.d as usize);
        let component = pattern * k + c;
        let matrix = |i: usize| Matrix::new(args.matrices.wrapping_add((component * MATRICES + i) * d * d), d);
        let vector = |i: usize| args.vectors.wrapping_add((component * VECTORS + i) * d);
        // SAFETY: the pattern exists.
        let observed = Observed::of(&args.masks, pattern);
        let lane = (thread_idx() % WARP) as usize;
        let (map, second, product) = (matrix(0), matrix(1), matrix(2));
        Self {
            args,
            observed,
            pattern,
            c,
            lane,
            map,
            second,
            product,
            e: vector(0),
            first: vector(1),
            mapped: vector(2),
        }
    }

    #[inline(always)]
    fn d(self) -> usize {
        self.args.layout.d as usize
    }

    /// Σ r·vᵢ·vⱼ over the pattern's rows, i ≥ j, where v_D is one.
    #[inline(always)]
    unsafe fn sum(self, i: usize, j: usize) -> f64 {
        let Layout { d, capacity, .. } = self.args.layout;
        let (d, capacity) = (d as usize, capacity as usize);
        let value = if capacity > 0 {
            let number = if i < d {
                1 + d + i * (i + 1) / 2 + j
            } else if j < d {
                1 + j
            } else {
                0
            };
            number * capacity + self.c
        } else {
            let (row, column) = (i / FEATURES, j / FEATURES);
            let tile = self.c * accumulate::tiles(d, true) + row * (row + 1) / 2 + column;
            tile * accumulate::NUMBERS + i % FEATURES * FEATURES + j % FEATURES
        };
        let from = self.args.sums.wrapping_add(value * self.args.value_stride as usize);
        // SAFETY: slices of the pattern.
        self.over_slices(from, self.args.slice_stride as usize)
    }

    /// Σ over the pattern's slices of numbers `stride` apart.
    #[inline(always)]
    unsafe fn over_slices(self, from: *const f64, stride: usize) -> f64 {
        let mut sum = 0.0;
        let mut slice = load_u32(self.args.slices.add(self.pattern)) - self.args.first_slice;
        let end = load_u32(self.args.slices.add(self.pattern + 1)) - self.args.first_slice;
        while slice < end {
            sum += load(from.add(slice as usize * stride));
            slice += 1;
        }
        sum
    }

    /// The place of a number of the pattern's results.
    #[inline(always)]
    fn value(self, number: usize) -> *mut f64 {
        self.args.values.wrapping_add(number * self.args.masks.count as usize + self.pattern)
    }

    #[inline(always)]
    unsafe fn complete(self) {
        let (d, observed) = (self.d(), self.observed);
        // SAFETY: the component's matrices, vectors and results; all lanes meet between a write and another's read.
        let count = self.sum(d, d);
        let mut cell = Cells::of(self.lane, d);
        while cell.i < d {
            let Cells { i, j, .. } = cell;
            if j <= i && observed.has(i) && observed.has(j) {
                let v = self.sum(i, j);
                self.second.set(i, j, v);
                if i != j {
                    self.second.set(j, i, v);
                }
            }
            cell = cell.next();
        }
        let mut j = self.lane;
        while j < d {
            if observed.has(j) {
                store(self.first.add(j), self.sum(d, j));
            }
            j += WARP as usize;
        }
        warp_sync();
        let mut cell = Cells::of(self.lane, d);
        while cell.i < d {
            let Cells { i, j, .. } = cell;
            if observed.has(j) {
                let mut v = 0.0;
                counted!(for l in 0..d {
                    if observed.has(l) {
                        v = fma64(self.map.get(i, l), self.second.get(l, j), v);
                    }
                });
                self.product.set(i, j, v);
            }
            cell = cell.next();
        }
        let mut i = self.lane;
        while i < d {
            let mut v = 0.0;
            counted!(for l in 0..d {
                if observed.has(l) {
                    v = fma64(self.map.get(i, l), load(self.first.add(l)), v);
                }
            });
            store(self.mapped.add(i), v);
            i += WARP as usize;
        }
        warp_sync();
        let start = self.c * sums(d);
        if self.lane == 0 {
            store(self.value(start), count);
        }
        let mut cell = Cells::of(self.lane, d);
        while cell.i < d {
            let Cells { i, j, .. } = cell;
            if j <= i {
                let (f, e) = (load(self.mapped.add(i)), load(self.e.add(i)));
                let (g, h) = (load(self.mapped.add(j)), load(self.e.add(j)));
                let mut v = f * h + e * g + count * e * h;
                if !observed.has(i) && !observed.has(j) {
                    v = fma64(count, self.map.get(i, j), v);
                }
                counted!(for l in 0..d {
                    if observed.has(l) {
                        v = fma64(self.product.get(i, l), self.map.get(j, l), v);
                    }
                });
                store(self.value(start + 1 + d + i * (i + 1) / 2 + j), v);
                if i == j {
                    store(self.value(start + 1 + i), f + count * e);
                }
            }
            cell = cell.next();
        }
    }
}

kernel! {
    /// Computes the sums of all columns of each pattern and component.
    pub unsafe fn complete_patterns(args: CompleteArgs) {
        let pattern = block_idx() as usize;
        let warps = block_dim() / WARP;
        let mut c = thread_idx() / WARP;
        // SAFETY: a block for each pattern.
        if thread_idx() == 0 {
            let component = Component::new(&args, pattern, 0);
            let total = if args.totals.is_null() { 0.0 } else { component.over_slices(args.totals, 1) };
            store(component.value(args.layout.k as usize * sums(args.layout.d as usize) + 2), total);
        }
        while args.statistics != 0 && c < args.layout.k {
            Component::new(&args, pattern, c as usize).complete();
            c += warps;
        }
    }
}
