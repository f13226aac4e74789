mod sums;

use super::*;
use crate::math::{LogProduct, LogSumExp, smaller};
use crate::simt::*;
use sums::Sums;

/// A launch's data, as a thread sees it.
struct Tiles<'a, const T: usize, const FULL: bool, const EXPANDED: bool, const NUMBERS: usize> {
    args: &'a TiledArgs,
    /// Quads of a block's samples, a power of two.
    quads: u32,
    /// The two stages, and the size of each.
    stages: Shared<f32>,
    stage_size: usize,
    /// The features whose products are formed, and the number one.
    factors: Shared<f32>,
    /// The number of this warp's tile among the block's tiles side by side.
    part: u32,
    /// The thread's first sample, counted from the block's first.
    sample: usize,
}

/// A step of the work on a block's samples.
#[derive(Clone, Copy)]
struct Step {
    /// Tile, or component of `full`.
    tile: u32,
    /// Tile of rows within the component.
    row: u32,
    /// First feature, or product.
    start: u32,
    /// The later feature of the first product.
    later: u32,
}

impl<const T: usize, const FULL: bool, const EXPANDED: bool, const NUMBERS: usize>
    Tiles<'_, T, FULL, EXPANDED, NUMBERS>
{
    /// Numbers of a feature in a tile.
    const WIDTH: usize = NUMBERS * T;

    /// Tiles of rows of a component.
    #[inline(always)]
    fn rows(&self) -> u32 {
        if FULL { self.args.d.div_ceil(T as u32) } else { 1 }
    }

    /// Features that a tile of rows reaches.
    #[inline(always)]
    fn features(&self, row: u32) -> u32 {
        let reach = (row + 1) * T as u32;
        if FULL && reach < self.args.d { reach } else { self.args.features }
    }

    /// Parameters of a tile of rows.
    #[inline(always)]
    fn parameters(&self, tile: u32, row: u32) -> *const f32 {
        // The triangle's tiles have another line: b.
        let lines = self.args.features as usize + FULL as usize;
        self.args
            .scales_and_shifts
            .wrapping_add((tile as usize * self.rows() as usize + row as usize) * lines * Self::WIDTH)
    }

    /// The next step.
    #[inline(always)]
    fn next(&self, at: Step) -> Step {
        let Step { tile, row, start, mut later } = at;
        let next = start + STEP as u32;
        if next < self.features(row) {
            while EXPANDED && (later + 1) * (later + 2) / 2 <= next {
                later += 1;
            }
            Step { start: next, later, ..at }
        } else if row + 1 < self.rows() {
            Step { tile, row: row + 1, start: 0, later: 0 }
        } else {
            Step { tile: tile + self.args.component_warps, row: 0, start: 0, later: 0 }
        }
    }

    /// Starts to copy a step, for the quads from `first` on, to stage 0 or 1.
    /// Safety: all threads of the block call it, and none computes on the stage.
    #[inline(always)]
    unsafe fn fetch(&self, stage: usize, first: u32, step: Step) {
        let args = self.args;
        let policy = policy_keep();
        let Step { tile, row, start, .. } = step;
        let left = self.features(row) - start;
        let features = smaller(left, STEP as u32);
        let stage = self.stages.offset(stage * self.stage_size);
        let (to, from, columns) = match EXPANDED {
            false => (stage, start, features),
            // Once for all products.
            true => (self.factors, 0, if tile == 0 && start == 0 { args.d } else { 0 }),
        };
        let last = args.columns.quads() - 1;
        // A power of two.
        let shift = self.quads.trailing_zeros();
        counted!(for c in (thread_idx()..columns << shift).step_by(block_dim()) {
            let (feature, q) = (c >> shift, c & (self.quads - 1));
            // Past the end the last quad is read again, and not counted.
            let quad = if first + q < last { first + q } else { last };
            // SAFETY: the feature and the quad exist; the stage has room for a step.
            to.copy4(QUAD * c as usize, args.columns.quad(quad, (from + feature) as usize), policy);
        });
        let to = stage.offset(self.of_samples());
        // A whole step of each part; the last step may have fewer features.
        let chunk = (STEP * Self::WIDTH / 4) as u32;
        counted!(for c in (thread_idx()..args.component_warps * chunk).step_by(block_dim()) {
            let (part, i) = (c / chunk, c % chunk);
            if tile + part < args.tiles && i < features * (Self::WIDTH / 4) as u32 {
                let from =
                    self.parameters(tile + part, row).wrapping_add(start as usize * Self::WIDTH + 4 * i as usize);
                // SAFETY: within the tile's parameters; the stage has room for a step of each part.
                to.copy4(part as usize * STEP * Self::WIDTH + 4 * i as usize, from, policy);
            }
        });
        copies_commit();
    }

    /// The initial values of a tile's sums: its `seeds`, or b.
    /// Safety: the tile exists.
    #[inline(always)]
    unsafe fn first_values(&self, tile: u32, row: u32, seeds: *const f32) -> [[f32; SAMPLES]; T] {
        let start = if FULL { self.parameters(tile, row).wrapping_add(self.args.d as usize * T) } else { seeds };
        let mut values = [[0.0f32; SAMPLES]; T];
        counted!(for k in 0..T {
            values[k] = [load(start.add(k)); SAMPLES];
        });
        values
    }

    /// Numbers of a stage before its parameters.
    #[inline(always)]
    fn of_samples(&self) -> usize {
        if EXPANDED { 0 } else { STEP * QUAD * self.quads as usize }
    }

    /// Reads a feature of the thread's samples.
    /// Safety: the features have arrived for all threads.
    #[inline(always)]
    unsafe fn sample(&self, features: Shared<f32>, feature: u32) -> [f32; SAMPLES] {
        let x = features.offset(feature as usize * QUAD * self.quads as usize + self.sample);
        let (a, b) = (x.get4(0), x.get4(WARP_SAMPLES / 2));
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    }

    /// Adds the features of a step to the sums of the thread's samples.
    /// Safety: the step has arrived in the stage for all threads.
    #[inline(always)]
    unsafe fn add_step(&self, values: &mut [[f32; SAMPLES]; T], stage: usize, step: Step) {
        let samples = self.stages.offset(stage * self.stage_size);
        let parameters = samples.offset(self.of_samples() + self.part as usize * STEP * Self::WIDTH);
        let left = self.features(step.row) - step.start;
        let features = if left < STEP as u32 { left as usize } else { STEP };
        let mut later = step.later;
        let mut earlier = step.start - if EXPANDED { later * (later + 1) / 2 } else { 0 };
        counted!(for f in 0..features {
            let mut x =
                self.sample(if EXPANDED { self.factors } else { samples }, if EXPANDED { later } else { f as u32 });
            if EXPANDED {
                let other = self.sample(self.factors, earlier);
                counted!(for p in 0..SAMPLES {
                    x[p] *= other[p];
                });
                (later, earlier) = if earlier == later { (later + 1, 0) } else { (later, earlier + 1) };
            }
            let parameters = parameters.offset(f * Self::WIDTH);
            match NUMBERS {
                1 => multiply(values, &x, parameters),
                2 => subtract_distances(values, &x, parameters),
                _ => subtract_observed(values, &x, parameters),
            }
        });
    }

    /// The address of a component's exponents for the thread's samples. `first`: the block's first quad.
    #[inline(always)]
    fn exponents(&self, first: u32, component: usize) -> *mut f32 {
        let Exponents { q, stride, .. } = self.args.exponents;
        q.wrapping_add(component * stride as usize + (QUAD * first as usize + self.sample))
    }

    /// Writes the exponents of a tile's components to memory, if wanted.
    /// Safety: there is a row for each of the tile's components, with a place for each sample.
    #[inline(always)]
    unsafe fn store_exponents(&self, first: u32, tile: u32, q: &[[f32; SAMPLES]; T]) {
        if !self.args.exponents.q.is_null() {
            let stride = opaque(self.args.exponents.stride) as usize;
            let mut to = self.exponents(first, tile as usize * T);
            counted!(for k in 0..T {
                store_samples(to, q[k]);
                to = to.wrapping_add(stride);
            });
        }
    }
}

/// Combines the sums of a block's rows of warps for each sample: its log-likelihood goes to `product`, and, if wanted,
/// to memory, as do its maximum and factor. `ADD`: plus the number that is there. The block's threads divide the samples
/// again, side by side.
///
/// `first`: the block's first quad; `rows`, `samples`: shape of `maxima` and `totals`.
///
/// # Safety
/// All threads of the block call it; maxima and totals are from all warps; the outputs have a place for each sample.
#[inline(always)]
pub unsafe fn finish_samples<const ADD: bool>(
    product: &mut LogProduct,
    columns: &Columns,
    outputs: (*const f32, *mut f32, Exponents),
    first: u32,
    (rows, samples): (usize, usize),
    (maxima, totals): (Shared<f32>, Shared<f32>),
) {
    counted!(for at in (thread_idx() as usize..samples).step_by(block_dim() as usize) {
        let sample = QUAD as u64 * first as u64 + at as u64;
        let mut sum = LogSumExp::new();
        let mut other = if sample < columns.n { at } else { rows * samples };
        while other < rows * samples {
            sum.merge(LogSumExp { max: maxima.get(other), sum: totals.get(other) });
            other += samples;
        }
        if ADD && !outputs.1.is_null() && sample < columns.n {
            // SAFETY: sample < N.
            sum.max += load(outputs.1.add(sample as usize));
        }
        finish_sample(product, columns, outputs, sample, sum);
    });
}

/// As [`finish_samples`], for one sample with a known sum; it may be behind N.
///
/// # Safety
/// The outputs have a place for the sample, which belongs to this thread.
#[inline(always)]
pub unsafe fn finish_sample(
    product: &mut LogProduct,
    columns: &Columns,
    (sample_weights, scores, exponents): (*const f32, *mut f32, Exponents),
    sample: u64,
    sum: LogSumExp,
) {
    // For samples behind N.
    let (mut top, mut factor) = (0.0, 0.0);
    if sample < columns.n {
        let mut weight = 1.0;
        if sample_weights.is_null() {
            product.multiply_scaled(sum.max, sum.sum);
        } else {
            // SAFETY: sample < N.
            weight = load(sample_weights.add(sample as usize));
            product.multiply_scaled(weight * sum.log2(), 1.0);
        }
        (top, factor) = (sum.max, weight * reciprocal(sum.sum));
        if !scores.is_null() {
            store(scores.add(sample as usize), sum.log2());
        }
    }
    if !exponents.q.is_null() {
        let to = exponents.normalisers.wrapping_add(sample as usize);
        // SAFETY: both rows have a place for the sample.
        store(to, top);
        store(to.add(exponents.stride as usize), factor);
    }
}

/// As [`subtract_distances`], with q −= (s·x + m)² + c for observed features. `parameters`: all s, all m, all c.
/// Safety: `parameters` has 3·T elements, aligned to 16 bytes.
#[inline(always)]
unsafe fn subtract_observed<const T: usize>(q: &mut [[f32; SAMPLES]; T], x: &[f32; SAMPLES], parameters: Shared<f32>) {
    let (mut x, mut less) = (*x, [-1.0; SAMPLES]);
    counted!(for p in 0..SAMPLES {
        (x[p], less[p]) = if x[p].is_nan() { (0.0, 0.0) } else { (x[p], -1.0) };
    });
    counted!(for k in (0..T).step_by(4) {
        let (s, m, c) = (parameters.get4(k), parameters.get4(T + k), parameters.get4(2 * T + k));
        counted!(for l in 0..4 {
            counted!(for p in 0..SAMPLES {
                let t = fma(s[l], x[p], m[l]);
                q[k + l][p] = fma(less[p], fma(t, t, c[l]), q[k + l][p]);
            });
        });
    });
}

/// q −= (s·x + m)² for the tile's components and one feature. `parameters`: s of each component, then m of each.
/// Safety: `parameters` has 2·T elements, aligned to 16 bytes.
#[inline(always)]
unsafe fn subtract_distances<const T: usize>(q: &mut [[f32; SAMPLES]; T], x: &[f32; SAMPLES], parameters: Shared<f32>) {
    counted!(for k in (0..T).step_by(4) {
        let (s, m) = (parameters.get4(k), parameters.get4(T + k));
        counted!(for l in 0..4 {
            counted!(for p in 0..SAMPLES {
                let t = fma(s[l], x[p], m[l]);
                q[k + l][p] = fma(-t, t, q[k + l][p]);
            });
        });
    });
}

/// z += a·x for the tile's rows, or components, and one feature.
/// Safety: `a` has T elements, aligned to 16 bytes.
#[inline(always)]
unsafe fn multiply<const T: usize>(z: &mut [[f32; SAMPLES]; T], x: &[f32; SAMPLES], a: Shared<f32>) {
    counted!(for k in (0..T).step_by(4) {
        let a = a.get4(k);
        counted!(for l in 0..4 {
            counted!(for p in 0..SAMPLES {
                z[k + l][p] = fma(a[l], x[p], z[k + l][p]);
            });
        });
    });
}

/// q −= |z|² for the tile's rows.
#[inline(always)]
fn subtract_squares<const T: usize>(q: &mut [f32; SAMPLES], z: &[[f32; SAMPLES]; T]) {
    counted!(for k in 0..T {
        counted!(for p in 0..SAMPLES {
            q[p] = fma(-z[k][p], z[k][p], q[p]);
        });
    });
}

/// Writes both quads of a thread's samples to a row of an array.
/// Safety: `to` is the place of the first sample, aligned to 16 bytes, and writable for the samples of a warp.
#[inline(always)]
unsafe fn store_samples(to: *mut f32, v: [f32; SAMPLES]) {
    store4(to, [v[0], v[1], v[2], v[3]]);
    store4(to.add(WARP_SAMPLES / 2), [v[4], v[5], v[6], v[7]]);
}

#[inline(always)]
unsafe fn body<const T: usize, const FULL: bool, const EXPANDED: bool, const NUMBERS: usize>(args: &TiledArgs) {
    let columns = &args.columns;
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    // This warp's part of the components, and its part of the block's samples.
    let (part, group) = (warp % args.component_warps, (warp / args.component_warps) as usize);
    let quads = warps / args.component_warps * (WARP_SAMPLES / QUAD) as u32;
    let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES);
    let totals = maxima.offset(warps as usize * WARP_SAMPLES);
    let stages = totals.offset(warps as usize * WARP_SAMPLES);
    let of_stage = if EXPANDED { 0 } else { QUAD * quads as usize };
    let stage_size = stage(NUMBERS * T, of_stage, args.component_warps as usize);
    let tiles = Tiles::<T, FULL, EXPANDED, NUMBERS> {
        args,
        quads,
        stages,
        stage_size,
        factors: stages.offset(2 * stage_size),
        part,
        sample: group * WARP_SAMPLES + QUAD * lane,
    };
    let sums = Sums {
        maxima: maxima.offset(part as usize * QUAD * quads as usize + tiles.sample),
        sums: warps as usize * WARP_SAMPLES,
    };
    if EXPANDED {
        counted!(for quad in (thread_idx()..quads).step_by(block_dim()) {
            // SAFETY: the row behind the features; a barrier follows before it is read.
            tiles.factors.set4(QUAD * (args.d * quads + quad) as usize, [1.0; QUAD]);
        });
    }
    let mut product = LogProduct::new();
    // The bounds are the same for all threads of a block, so that all meet at the barriers.
    counted!(for first in (block_idx() * quads..columns.quads()).step_by(grid_dim() * quads) {
        let empty = LogSumExp::new();
        // SAFETY: this thread's places; all threads have read them before the barrier that ends this loop.
        sums.set(0, [empty.max; QUAD], [empty.sum; QUAD]);
        sums.set(1, [empty.max; QUAD], [empty.sum; QUAD]);
        let mut stage = 0;
        let mut at = Step { tile: 0, row: 0, start: 0, later: 0 };
        // SAFETY: the stages are free, at the start and after the barrier that ends this loop.
        tiles.fetch(0, first, at);
        while at.tile < args.tiles {
            let tile = at.tile;
            let present = tile + part < args.tiles;
            // A warp without a tile computes the last one again, without effect.
            let mine = if present { tile + part } else { args.tiles - 1 };
            // SAFETY: the tile exists.
            let weights = args.weights_and_seeds.add(mine as usize * if FULL { 2 } else { 2 * T });
            let mut exponent = [if FULL { load(weights.add(1)) } else { 0.0 }; SAMPLES];
            while at.tile == tile {
                let row = at.row;
                let mut values = tiles.first_values(mine, row, weights.wrapping_add(T));
                while at.tile == tile && at.row == row {
                    copies_wait();
                    barrier!();
                    let next = tiles.next(at);
                    if next.tile < args.tiles {
                        // SAFETY: all threads have passed the barrier, so none computes on the other stage.
                        tiles.fetch(stage ^ 1, first, next);
                    }
                    if present {
                        // SAFETY: the step has arrived, and the barrier made the other threads' copies visible.
                        tiles.add_step(&mut values, stage, at);
                    }
                    stage ^= 1;
                    at = tiles.next(at);
                }
                if FULL {
                    subtract_squares(&mut exponent, &values);
                } else if present {
                    // SAFETY: the tile's weights; rows for its components, with a place for each sample.
                    tiles.store_exponents(first, mine, &values);
                    sums.add(&values, weights);
                }
            }
            if FULL && present {
                sums.add(&[exponent], weights);
                if !args.exponents.q.is_null() {
                    store_samples(tiles.exponents(first, mine as usize), exponent);
                }
            }
        }
        barrier!();
        let outputs = (args.sample_weights, args.samples, args.exponents);
        let shape = (args.component_warps as usize, QUAD * quads as usize);
        // SAFETY: the barrier made all warps' sums visible.
        match (FULL || EXPANDED, NUMBERS) {
            (false, 1) => finish_samples::<true>(&mut product, columns, outputs, first, shape, (maxima, totals)),
            _ => finish_samples::<false>(&mut product, columns, outputs, first, shape, (maxima, totals)),
        };
        barrier!();
    });
    // SAFETY: all threads end here, and the start of the shared memory is unused.
    args.output.finish(product);
}

kernels! {
    /// Computes total, scores and exponents, in tiles of components or of rows of triangles.
    tiled8: TiledArgs = body::<8, false, false, 2>;
    tiled16: TiledArgs = body::<16, false, false, 2>;
    tiled_observed8: TiledArgs = body::<8, false, false, 3>;
    tiled_linear8: TiledArgs = body::<8, false, false, 1>;
    tiled_linear16: TiledArgs = body::<16, false, false, 1>;
    tiled_full8: TiledArgs = body::<8, true, false, 1>;
    tiled_full16: TiledArgs = body::<16, true, false, 1>;
    tiled_expanded8: TiledArgs = body::<8, false, true, 1>;
    tiled_expanded16: TiledArgs = body::<16, false, true, 1>;
}
