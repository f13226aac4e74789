//! `outer`: features times responsibilities, times features, summed over the samples.
use super::*;

/// Two float16 numbers one.
const ONES: Halves = 0x3c00_3c00;

/// A lane's sums for a pair of components.
struct OuterSums {
    /// Products of features: for each component and tile of eight columns, the numbers of [`mma`].
    products: [[[f32; 4]; 2 * PAIRS]; 2],
    /// Features: for each component, row `lane / 4` and the row 8 further on.
    features: [[f32; 2]; 2],
}

impl OuterSums {
    const ZERO: Self = Self { products: [[[0.0; 4]; 2 * PAIRS]; 2], features: [[0.0; 2]; 2] };
}

#[derive(Clone, Copy)]
struct OuterTask {
    /// Its number in the slice.
    number: usize,
    /// The pair of components, within the block.
    pair: usize,
    /// Row of tiles, and part of its columns.
    row: usize,
    part: usize,
    /// Pairs of tiles of eight columns up to the diagonal; 0 if the warp has no task.
    count: usize,
}

struct OuterBlock<'a> {
    args: &'a OuterArgs,
    shape: OuterShape,
    /// Exponents, maxima and factors of each thread's quad, if it has one.
    raw: Shared<f32>,
    /// The two stages as the tensor cores read them.
    stages: Shared<Halves>,
}

impl<'a> OuterBlock<'a> {
    #[inline(always)]
    fn new(args: &'a OuterArgs) -> Self {
        let raw = Shared::<f32>::at(0);
        Self { args, shape: args.shape, raw, stages: raw.offset(args.shape.raw_stage()).cast() }
    }

    #[inline(always)]
    fn first_pair(&self) -> usize {
        self.tasks().0 / self.shape.groups()
    }

    #[inline(always)]
    fn task(&self) -> OuterTask {
        let shape = self.shape;
        let warp = thread() / WARP;
        // Four neighbouring warps have different schedulers; each four take tasks, which differ in length, in another
        // order.
        let turned = (warp & !3) + (warp + warp / 4) % 4;
        let own = if shape.warps.is_multiple_of(4) { turned } else { warp };
        let number = (block_idx() * shape.warps + own) as usize;
        if number >= shape.tasks() {
            return OuterTask { number, pair: 0, row: 0, part: 0, count: 0 };
        }
        let (pair, mut part, mut row) = (number / shape.groups(), number % shape.groups(), 0);
        while part > row / PAIRS {
            part -= row / PAIRS + 1;
            row += 1;
        }
        let left = row + 1 - PAIRS * part;
        let count = if left < PAIRS { left } else { PAIRS };
        OuterTask { number, pair: pair - self.first_pair(), row, part, count }
    }

    /// The block's first task, and the one behind its last.
    #[inline(always)]
    fn tasks(&self) -> (usize, usize) {
        let (block, warps) = (block_idx() as usize, self.shape.warps as usize);
        (block * warps, (block + 1) * warps)
    }

    /// The component and the quad whose responsibilities this thread computes, if any.
    #[inline(always)]
    fn own(&self) -> Option<(usize, usize)> {
        let thread = thread() as usize;
        let (local, quad) = (thread / QUADS, thread % QUADS);
        let component = 2 * self.first_pair() + local;
        let end = self.tasks().1;
        if local < self.shape.block_components()
            && component < self.shape.components()
            && component / 2 * self.shape.groups() < end
        {
            Some((component, quad))
        } else {
            None
        }
    }

    /// Fills the rows behind D of both stages with zeros.
    /// Safety: all threads of the block call it; the stages are not in use.
    #[inline(always)]
    unsafe fn begin(&self) {
        let shape = self.shape;
        let first = shape.d as usize * STAGE_PITCH;
        let behind = shape.features() - first;
        counted!(for e in (thread() as usize..4 * behind).step_by(block_dim() as usize) {
            let (stage, low, at) = (e / behind / 2, e / behind % 2, e % behind);
            // SAFETY: inside.
            self.stages.set(stage * shape.stage() + low * shape.features() + first + at, 0);
        });
    }

    /// Starts to copy the samples' stage `number` to stage 0 or 1.
    /// Safety: no thread reads the stage's features; this thread has read the exponents that it copied before.
    #[inline(always)]
    unsafe fn fetch(&self, stage: usize, number: u32) {
        /// Copies of a row of a stage.
        const COPIES: usize = STAGE / 8;
        let (args, shape, policy) = (self.args, self.shape, policy_keep());
        let stride = args.exponents.stride as usize;
        let (mut row, column) = (thread() as usize / COPIES, 4 * (thread() as usize % COPIES));
        let to = self.stages.offset(stage * shape.stage() + column).in_thread_register();
        let step = block_dim() as usize / COPIES;
        let mut from = args.halves.wrapping_add(row * (stride / 2) + number as usize * (STAGE / 2) + column);
        // The low parts follow the high parts; the rows between them, behind D, stay zero.
        let behind = shape.features() - shape.d as usize * STAGE_PITCH;
        while row < 2 * shape.d as usize {
            let low = if row < shape.d as usize { 0 } else { behind };
            // SAFETY: features extend to whole stages; a place for each.
            to.copy4(row * STAGE_PITCH + low, from, policy);
            row += step;
            from = from.wrapping_add(step * (stride / 2));
        }
        let own = self.raw.offset(3 * QUAD * thread() as usize).in_thread_register();
        if let Some((component, quad)) = self.own() {
            let sample = number as usize * STAGE + QUAD * quad;
            let normalisers = args.exponents.normalisers.cast_const().wrapping_add(sample);
            // SAFETY: exponents extend to whole stages; three places for each quad.
            own.copy4(0, args.exponents.q.cast_const().wrapping_add(component * stride + sample), policy);
            own.copy4(QUAD, normalisers, policy);
            own.copy4(2 * QUAD, normalisers.wrapping_add(stride), policy);
        }
        copies_commit();
    }

    /// Computes responsibilities from the thread's copies, and counts them. `weight`: wₖ of its component.
    /// Safety: this thread's copies have arrived; no other thread reads the stage's responsibilities.
    #[inline(always)]
    unsafe fn respond(&self, stage: usize, weight: f32, counts: &mut [f32; 2]) {
        let shape = self.shape;
        if let Some((_, quad)) = self.own() {
            let own = self.raw.offset(3 * QUAD * thread() as usize);
            let to = self.stages.offset(stage * shape.stage() + 2 * shape.features());
            let to = to.offset(thread() as usize / QUADS * STAGE_PITCH + 2 * quad);
            // SAFETY: places that only this thread uses now.
            let (q, top, factor) = (own.get4(0), own.get4(QUAD), own.get4(2 * QUAD));
            let (halves, sum, rounded) = responsibilities(weight, &q, &top, &factor);
            to.set2(0, halves);
            counts[0] += sum;
            counts[1] += rounded;
        }
    }

    /// Adds a stage to the warp's sums. All lanes of the warp call it.
    /// Safety: the stage has arrived for all threads.
    #[inline(always)]
    unsafe fn multiply(&self, sums: &mut OuterSums, task: OuterTask, stage: usize) {
        let shape = self.shape;
        let lane = (thread() % WARP) as usize;
        let x = self.stages.offset(stage * shape.stage());
        let rows = x.offset((TILE * task.row + lane % 16) * STAGE_PITCH + 4 * (lane / 16));
        let columns =
            x.offset((PAIRS * TILE * task.part + lane % 8 + 8 * (lane / 16)) * STAGE_PITCH + 4 * (lane / 8 % 2));
        let responsibilities = x.offset(2 * shape.features() + 2 * task.pair * STAGE_PITCH + lane % 4);
        // Not unrolled: the registers hold only one.
        counted!(for half in (0..8 * opaque(STAGE as u32 / 16) as usize).step_by(8) {
            not_unrolled();
            let (mut high, mut low) = ([[0; 4]; 2], [[0; 4]; 2]);
            let (x_high, x_low) = (rows.matrices(half), rows.matrices(shape.features() + half));
            counted!(for t in 0..2 {
                let from = responsibilities.offset(t * STAGE_PITCH + half);
                let r = [from.get(0), from.get(4)];
                counted!(for i in 0..4 {
                    let r = r[i / 2];
                    // The rounding error of the high part is itself a float16 number.
                    high[t][i] = multiply_halves(r, x_high[i]);
                    low[t][i] = fma_halves(r, x_low[i], fma_minus_halves(r, x_high[i], high[t][i]));
                });
            });
            if task.part == 0 {
                counted!(for t in 0..2 {
                    let sum = mma(mma([0.0; 4], low[t], [ONES; 2]), high[t], [ONES; 2]);
                    sums.features[t][0] += sum[0];
                    sums.features[t][1] += sum[2];
                });
            }
            counted!(for n in 0..PAIRS {
                if n < task.count {
                    let (h, l) = {
                        let columns = columns.offset(n * TILE * STAGE_PITCH + half);
                        (columns.matrices(0), columns.matrices(shape.features()))
                    };
                    // Small products first; the product of both low parts is left out.
                    let mut products = [[[0.0f32; 4]; 2]; 2];
                    multiply_tiles(&mut products, &low, h);
                    multiply_tiles(&mut products, &high, l);
                    multiply_tiles(&mut products, &high, h);
                    add(&mut sums.products, 2 * n, &products);
                }
            });
        });
    }

    /// Moves the sums and counts to memory in float64, replacing or adding, and leaves zeros. All threads take part.
    /// Safety: `to` has the sums of a slice, and no other block has these tasks.
    #[inline(always)]
    unsafe fn move_sums(&self, sums: &mut OuterSums, counts: &mut [f32; 2], task: OuterTask, to: *mut f64, add: bool) {
        let shape = self.shape;
        let lane = (thread() % WARP) as usize;
        if task.count > 0 {
            let to = to.wrapping_add(task.number * LANE_SUMS * WARP as usize + lane);
            written_out!(for tile in 0..(4 * PAIRS) {
                counted!(for i in 0..4 {
                    let sum = &mut sums.products[tile / (2 * PAIRS)][tile % (2 * PAIRS)][i];
                    move_sum(sum, to.wrapping_add((4 * tile + i) * WARP as usize), add);
                });
            });
            counted!(for i in 0..4 {
                let sum = &mut sums.features[i / 2][i % 2];
                move_sum(sum, to.wrapping_add((LANE_SUMS - 4 + i) * WARP as usize), add);
            });
        }
        *counts = sums_of_quads::<QUADS>(*counts);
        // If two blocks share a pair, the one with its first task counts.
        if let Some((component, 0)) = self.own()
            && component / 2 * shape.groups() >= self.tasks().0
        {
            let to = to.wrapping_add(shape.counts() + component);
            store_sum(to, counts[0], add);
            store_sum(to.wrapping_add(shape.components()), counts[1], add);
        }
        *counts = [0.0; 2];
    }
}

/// Moves a sum to memory, replacing or adding, and leaves zero.
/// Safety: as for [`store_sum`].
#[inline(always)]
unsafe fn move_sum(sum: &mut f32, to: *mut f64, add: bool) {
    store_sum(to, *sum, add);
    *sum = 0.0;
}

kernel! {
    /// Sums features and their products, weighted by the responsibilities of each component.
    pub unsafe fn outer(args: OuterArgs) {
        let block = OuterBlock::new(&args);
        let task = block.task();
        // The stages of all slices, and this block's current one.
        let all = args.n.div_ceil(STAGE as u64) as u32;
        let mut number = block_idx_y();
        // SAFETY: at the start the shared memory is free.
        if number < all {
            block.fetch(0, number);
        }
        block.begin();
        let mut weight = 0.0;
        if let Some((component, _)) = block.own() {
            // SAFETY: weights of all components.
            weight = load(args.weights.add(component)) * RESPONSIBILITY_SCALE;
        }
        let to = args.sums.wrapping_add(block_idx_y() as usize * args.shape.sums());
        let mut add = args.add != 0;
        let mut sums = OuterSums::ZERO;
        let mut counts = [0.0; 2];
        let (mut stage, mut since_move) = (0, 0);
        while number < all {
            copies_wait();
            // SAFETY: this thread's copies have arrived. The stage before the last was multiplied before the barrier.
            block.respond(stage, weight, &mut counts);
            barrier!();
            number += args.slices;
            if number < all {
                // SAFETY: the other stage was multiplied before the barrier; this thread has used its copied exponents.
                block.fetch(stage ^ 1, number);
            }
            if task.count > 0 {
                // SAFETY: the barrier made the stage visible.
                block.multiply(&mut sums, task, stage);
            }
            stage ^= 1;
            since_move += 1;
            if since_move == FLUSH || number >= all {
                since_move = 0;
                // SAFETY: a place for each sum.
                block.move_sums(&mut sums, &mut counts, task, to, add);
                add = true;
            }
        }
    }
}
