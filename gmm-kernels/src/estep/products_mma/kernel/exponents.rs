//! `exponents`: coefficients times products, then each sample's log-sum-exp.
use super::*;
use crate::likelihood::tiled::kernel::finish_samples;
use crate::math::{LogProduct, LogSumExp};

struct ExponentsBlock<'a, const T: usize, const FULL: bool> {
    args: &'a ExponentsArgs,
    shape: ExponentsShape,
    /// The samples' maxima over the components of each row of warps, and behind them their sums.
    maxima: Shared<f32>,
    /// The features of the samples, in rows; four elements are a quad's.
    x: Shared<Halves>,
    /// The two stages of products.
    products: Shared<Halves>,
    /// The two stages of coefficients.
    coefficients: Shared<Halves>,
    /// The features of the products of two steps.
    factors: Shared<Halves>,
}

impl<'a, const T: usize, const FULL: bool> ExponentsBlock<'a, T, FULL> {
    #[inline(always)]
    fn new(args: &'a ExponentsArgs, shape: ExponentsShape) -> Self {
        let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let x = maxima.offset(2 * shape.component_warps as usize * shape.samples()).cast();
        let products = Shared::<Halves>::at(FINISH_SHARED_BYTES + shape.numbers() * size_of::<f32>());
        let coefficients = products.offset(2 * shape.products_stage());
        let factors = coefficients.offset(2 * shape.coefficients_stage());
        Self { args, shape, maxima, x, products, coefficients, factors }
    }

    /// Reads the features of the samples from quad `first` on, and empties their sums.
    /// Safety: all threads of the block call it; the shared memory is not in use.
    #[inline(always)]
    unsafe fn begin(&self, first: u32) {
        let (columns, policy) = (&self.args.columns, policy_keep());
        let quads = self.quads();
        let shift = quads.trailing_zeros();
        let last = columns.quads() - 1;
        counted!(for c in (thread()..(self.shape.feature_rows() as u32) << shift).step_by(block_dim()) {
            let (feature, q) = (c >> shift, c & (quads - 1));
            // Past the end the last quad is read again, and not counted.
            let quad = if first + q < last { first + q } else { last };
            let mut v = [if FULL { ONE } else { 0.0 }; QUAD];
            if feature < self.shape.d {
                // SAFETY: the feature and the quad exist.
                v = load4(columns.quad(quad, feature as usize), policy);
            }
            // SAFETY: a row for each feature.
            self.x.set4(QUAD * c as usize, split_feature(v));
        });
        let sums = self.shape.component_warps as usize * self.shape.samples();
        let empty = LogSumExp::new();
        counted!(for c in (thread() as usize..sums).step_by(block_dim() as usize) {
            // SAFETY: inside.
            self.maxima.set(c, empty.max);
            self.maxima.set(sums + c, empty.sum);
        });
    }

    /// Starts to copy a step's coefficients for a group to a stage (0 or 1), and the next step's features to the other.
    /// Safety: all threads of the block call it; none computes on the stage, or uses the other one's features.
    #[inline(always)]
    unsafe fn fetch(&self, stage: usize, group: u32, step: u32) {
        let (shape, policy) = (self.shape, policy_keep());
        if FULL {
            self.fetch_pairs(stage ^ 1, self.next(step));
        }
        let count = shape.coefficients_stage();
        let mut c = 4 * thread() as usize;
        let to = self.coefficients.offset(stage * count + c).in_thread_register();
        let from = self.args.coefficients.wrapping_add((group * shape.steps + step) as usize * count + c);
        let (mut copied, step) = (0, 4 * block_dim() as usize);
        while c < count {
            // SAFETY: the step's coefficients of all rows; the stage has room for them.
            to.copy4(copied, from.wrapping_add(copied), policy);
            copied += step;
            c += step;
        }
        copies_commit();
    }

    /// Starts to copy the features of a step's products.
    /// Safety: the step exists; no thread forms products with the stage's features.
    #[inline(always)]
    unsafe fn fetch_pairs(&self, stage: usize, step: u32) {
        let c = 4 * thread() as usize;
        let to = self.factors.offset(stage * STEP + c).in_thread_register();
        if c < STEP {
            // SAFETY: a pair for each product of the step.
            to.copy4(0, self.args.factors.add(step as usize * STEP + c), policy_keep());
        }
    }

    /// The next step; after the last, the first of the next group.
    #[inline(always)]
    fn next(&self, step: u32) -> u32 {
        if step + 1 < self.shape.steps { step + 1 } else { 0 }
    }

    /// The warp's row (along the components) and column (along the samples).
    #[inline(always)]
    fn warp(&self) -> (usize, usize) {
        let warp = thread() / WARP;
        // A power of two.
        let shift = self.shape.sample_warps.trailing_zeros();
        ((warp >> shift) as usize, (warp & (self.shape.sample_warps - 1)) as usize)
    }

    /// Quads of a block's samples.
    #[inline(always)]
    fn quads(&self) -> u32 {
        (self.shape.samples() / QUAD) as u32
    }

    /// Forms the products of a step in stage 0 or 1. Each thread takes a quad of samples, and two products at a time.
    /// Safety: all threads of the block call it; none computes on the stage; the features are there.
    #[inline(always)]
    unsafe fn form(&self, stage: usize, step: u32) {
        let shape = self.shape;
        let across = 2 * shape.component_warps as usize;
        // A power of two.
        let shift = self.quads().trailing_zeros();
        let (mut row, quad) = ((thread() >> shift) as usize, (thread() & (self.quads() - 1)) as usize);
        let to = self.products.offset(stage * shape.products_stage() + 2 * quad);
        let x = self.x.offset(QUAD * quad);
        let low = STEP * shape.pitch();
        // A multiple of two for each thread.
        while row < STEP / 2 {
            // SAFETY: two features of each sample; the stage has room for the products of a step.
            let to = to.offset(2 * row * shape.pitch());
            let (first, second) = if FULL {
                let factors = self.factors.offset(stage * STEP + 2 * row);
                let (a, b) = (factors.get(0), factors.get(1));
                let first = product(x.get4((a & 0xffff) as usize), x.get4((a >> 16) as usize));
                (first, product(x.get4((b & 0xffff) as usize), x.get4((b >> 16) as usize)))
            } else {
                let x = x.get4((step as usize * (STEP / 2) + row) * shape.samples());
                (product(x, one()), product(x, x))
            };
            set_product(to, low, first);
            set_product(to.offset(shape.pitch()), low, second);
            row += across;
        }
    }

    /// Adds a step's coefficients times its products to the warp's sums. All lanes of the warp call it.
    /// Safety: both are in the stage, for all threads.
    #[inline(always)]
    unsafe fn multiply(&self, sums: &mut TileSums<T>, stage: usize) {
        let shape = self.shape;
        let (row_of_warps, column_of_warps) = self.warp();
        let lane = (thread() % WARP) as usize;
        let coefficients =
            self.coefficients.offset(stage * shape.coefficients_stage() + row_of_warps * T * TILE * COEFFICIENT_ROW);
        let products = self
            .products
            .offset(stage * shape.products_stage() + column_of_warps * COLUMNS / 2)
            .offset(lane % 16 * shape.pitch() + 4 * (lane / 16));
        // Not unrolled: the registers hold only one.
        counted!(for half in 0..opaque(STEP as u32 / 16) as usize {
            not_unrolled();
            let (mut high, mut low) = ([[0; 4]; T], [[0; 4]; T]);
            let a = coefficients.offset(coefficient_place(lane % 16, 2 * half + lane / 16));
            let products = products.offset(16 * half * shape.pitch());
            counted!(for t in 0..T {
                high[t] = a.matrices(t * TILE * COEFFICIENT_ROW);
                low[t] = a.matrices((shape.components() + t * TILE) * COEFFICIENT_ROW);
            });
            counted!(for n in (0..COLUMN_TILES).step_by(2) {
                let (h, l) =
                    (products.matrices_transposed(4 * n), products.matrices_transposed(STEP * shape.pitch() + 4 * n));
                // Small products first; low times low is left out. In this order, neighbouring instructions do not wait
                // for each other.
                let mut products = [[[0.0f32; 4]; 2]; T];
                multiply_tiles(&mut products, &low, h);
                multiply_tiles(&mut products, &high, l);
                multiply_tiles(&mut products, &high, h);
                counted!(for t in 0..T {
                    counted!(for i in 0..4 {
                        sums[t][n][i] += products[t][0][i];
                        sums[t][n + 1][i] += products[t][1][i];
                    });
                });
            });
        });
    }

    /// Turns a group's sums into exponents, adds them to the samples' log-sum-exps, and writes them to memory if
    /// wanted. `first`: the block's first quad. All lanes of the warp call it.
    /// Safety: the constants of all rows are there, and places for the exponents.
    #[inline(always)]
    unsafe fn finish_group(&self, sums: &TileSums<T>, group: u32, first: u32) {
        let (args, shape) = (self.args, self.shape);
        let (row_of_warps, column_of_warps) = self.warp();
        let lane = (thread() % WARP) as usize;
        let row = group as usize * shape.components() + row_of_warps * T * TILE + lane / 4;
        let (mut scales, mut constants, mut weights) = ([[0.0f32; 2]; T], [[0.0f32; 2]; T], [[0.0f32; 2]; T]);
        counted!(for t in 0..T {
            counted!(for h in 0..2 {
                let from = args.constants.wrapping_add(row + t * TILE + 8 * h);
                scales[t][h] = load(from);
                constants[t][h] = load(from.add(shape.rows()));
                weights[t][h] = load(from.add(2 * shape.rows()));
            });
        });
        let sample = column_of_warps * COLUMNS + 2 * (lane % 4);
        let maxima = self.maxima.offset(row_of_warps * shape.samples() + sample);
        let totals = shape.component_warps as usize * shape.samples();
        let Exponents { q: to, stride, .. } = args.exponents;
        let to =
            if to.is_null() { to } else { to.wrapping_add(row * stride as usize + QUAD * first as usize + sample) };
        written_out!(for n in 0..COLUMN_TILES {
            // SAFETY: the warp's own places.
            let before = [maxima.get(8 * n), maxima.get(8 * n + 1)];
            let mut q = [[[0.0f32; 2]; 2]; T];
            let mut top = before;
            counted!(for t in 0..T {
                counted!(for h in 0..2 {
                    let s = [sums[t][n][2 * h], sums[t][n][2 * h + 1]];
                    q[t][h] = [fma(s[0], scales[t][h], constants[t][h]), fma(s[1], scales[t][h], constants[t][h])];
                    top = [max(top[0], q[t][h][0]), max(top[1], q[t][h][1])];
                    if !to.is_null() {
                        let to = to.wrapping_add((t * TILE + 8 * h) * stride as usize + 8 * n);
                        store2(to, q[t][h]);
                    }
                });
            });
            let top = butterfly(top, ROWS_OF_TILE, |[a, b], distance| {
                [max(a, a.shuffle_xor(distance)), max(b, b.shuffle_xor(distance))]
            });
            let mut sum = [0.0f32; 2];
            counted!(for t in 0..T {
                counted!(for h in 0..2 {
                    sum[0] = fma(weights[t][h], exp2(q[t][h][0] - top[0]), sum[0]);
                    sum[1] = fma(weights[t][h], exp2(q[t][h][1] - top[1]), sum[1]);
                });
            });
            let sum = butterfly(sum, ROWS_OF_TILE, |[a, b], distance| {
                [a + a.shuffle_xor(distance), b + b.shuffle_xor(distance)]
            });
            // All lanes have read the maxima.
            warp_sync();
            if lane < 4 {
                counted!(for p in 0..2 {
                    let place = 8 * n + p;
                    // SAFETY: the lane's own places; the other lanes have read the maxima before the exchanges.
                    let total = totals + place;
                    maxima.set(total, fma(maxima.get(total), exp2(before[p] - top[p]), sum[p]));
                    maxima.set(place, top[p]);
                });
            }
        });
        warp_sync();
    }
}

#[inline(always)]
unsafe fn body<const T: usize, const FULL: bool>(args: &ExponentsArgs) {
    let shape = ExponentsShape { full: FULL, tiles: T as u32, ..args.shape };
    let block = ExponentsBlock::<T, FULL>::new(args, shape);
    // Of two warps that share a scheduler, one forms products while the other multiplies.
    let turn = opaque(thread_idx() / (4 * WARP) % 2);
    let quads = block.quads();
    let mut product = LogProduct::new();
    // The bounds are the same for all threads of a block, so that all meet at the barriers.
    counted!(for first in (block_idx() * quads..args.columns.quads()).step_by(grid_dim() * quads) {
        // SAFETY: at the start, or after the barrier that ends this loop, the shared memory is free.
        if FULL {
            block.fetch_pairs(0, 0);
        }
        block.fetch(0, 0, 0);
        block.begin(first);
        copies_wait();
        barrier!();
        // SAFETY: the barrier made features and factors visible.
        block.form(0, 0);
        let mut stage = 0;
        counted!(for group in 0..shape.groups {
            let mut sums = [[[0.0f32; 4]; COLUMN_TILES]; T];
            counted!(for step in 0..shape.steps {
                copies_wait();
                barrier!();
                let next = block.next(step);
                let next_group = if next == 0 { group + 1 } else { group };
                counted!(for phase in 0..opaque(2) {
                    if phase == turn {
                        if next_group < shape.groups {
                            // SAFETY: all threads have passed the barrier, so none computes on the other stage.
                            block.fetch(stage ^ 1, next_group, next);
                            block.form(stage ^ 1, next);
                        }
                    } else {
                        // SAFETY: the step has arrived, and the barrier made the other threads' work visible.
                        block.multiply(&mut sums, stage);
                    }
                });
                stage ^= 1;
            });
            // SAFETY: as documented for the arguments.
            block.finish_group(&sums, group, first);
        });
        barrier!();
        let totals = block.maxima.offset(shape.component_warps as usize * shape.samples());
        let outputs = (args.sample_weights, args.samples, args.exponents);
        // SAFETY: the barrier made all warps' sums visible.
        finish_samples::<false>(
            &mut product,
            &args.columns,
            outputs,
            first,
            (shape.component_warps as usize, shape.samples()),
            (block.maxima, totals),
        );
        barrier!();
    });
    // SAFETY: all threads end here, and the start of the shared memory is unused.
    args.output.finish(product);
}

kernels! {
    /// Computes exponents, with 16 (`m1`) or 32 (`m2`) components per warp.
    exponents_diag_m1: ExponentsArgs = body::<1, false>;
    exponents_diag_m2: ExponentsArgs = body::<2, false>;
    exponents_full_m1: ExponentsArgs = body::<1, true>;
    exponents_full_m2: ExponentsArgs = body::<2, true>;
}
