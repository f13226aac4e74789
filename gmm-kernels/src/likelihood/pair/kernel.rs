//! The code of `pair`.
use super::*;
use crate::data::QUAD;
use crate::math::{LogProduct, LogSumExp, smaller};
use crate::simt::*;

/// A step of a block: [`STEP`] features of a tile of samples, and of the components that the block
/// has warps for. The tile, and the first component and feature.
#[derive(Clone, Copy)]
struct Step {
    tile: u32,
    component: u32,
    feature: u32,
}

impl Step {
    /// The step behind it: the next features, else the next components, else the block's next tile.
    #[inline(always)]
    fn next(self, rows: u32, k: u32, d: u32) -> Self {
        if self.feature + (STEP as u32) < d {
            Self { feature: self.feature + STEP as u32, ..self }
        } else if self.component + rows < k {
            Self { component: self.component + rows, feature: 0, ..self }
        } else {
            Self { tile: self.tile + grid_dim(), component: 0, feature: 0 }
        }
    }

    /// Whether it is the first of a tile.
    #[inline(always)]
    fn begins_tile(self) -> bool {
        self.component == 0 && self.feature == 0
    }
}

kernel! {
    /// Total log₂-likelihood, and each sample's where asked for.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn pair(args: PairArgs) {
        let (rows, k, d) = (block_dim() / WARP, args.k, args.d);
        // A warp for each component, a lane for each two neighbouring samples.
        let (row, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
        let tiles = args.n.div_ceil(TILE as u64) as u32;
        // The quad of a tile that this thread copies, of every so many features the first.
        let quads = (TILE / QUAD) as u32;
        let (copied_feature, copied_quad) = (thread_idx() / quads, thread_idx() % quads);
        let (last_quad, column) = ((args.n.div_ceil(QUAD as u64) - 1) as u32, (args.stride / QUAD as u64) as u32);
        // Shared memory: of two tiles (rows, TILE) maxima and (rows, TILE) sums, of two steps
        // (rows, STEP, 2) parameters and (STEP, TILE) samples.
        let (block, places) = (block_dim() as usize, rows as usize * TILE);
        let (parameters_size, x_size) = (2 * STEP * rows as usize, STEP * TILE);
        let sums = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let parameters = sums.offset(4 * places + 2 * STEP * row as usize);
        let x = sums.offset(4 * places + 2 * parameters_size);
        let copied = x.offset(QUAD * thread_idx() as usize).in_thread_register();
        let policy = policy_keep();

        // Starts to copy the samples of a step.
        let copy = |step: Step, stage: usize| {
            let mut f = copied_feature;
            let mut to = copied.offset(stage * x_size);
            while f < STEP as u32 && step.tile < tiles {
                // In the place of a feature or quad that does not exist comes the last one, and is
                // not counted.
                let feature = if step.feature + f < d { step.feature + f } else { d - 1 };
                let quad = step.tile * quads + copied_quad;
                let quad = smaller(quad, last_quad);
                let from = args.x.wrapping_add(QUAD * (feature as usize * column as usize + quad as usize));
                // SAFETY: the feature and the quad exist; all threads are done with what was there.
                unsafe { to.copy4(0, from, policy) };
                to = to.offset(QUAD * block);
                f += block_dim() / quads;
            }
            copies_commit();
        };
        // Number `at` of this warp's component, zero where there is none.
        let number = |step: Step, at: usize| {
            let component = (step.component + row) as usize;
            if component < k as usize {
                // SAFETY: the component exists, and has so many numbers.
                unsafe { load(args.parameters.add(component * (2 * d as usize + 2) + at)) }
            } else {
                0.0
            }
        };
        let constants = |step: Step| (number(step, 2 * d as usize), number(step, 2 * d as usize + 1));
        // The parameter of a step that this lane brings to shared memory, zero behind the last
        // feature.
        let parameter = |step: Step| {
            let exists = lane < 2 * (d - step.feature) as usize;
            if exists { number(step, 2 * step.feature as usize + lane) } else { 0.0 }
        };
        // Puts together the components of a tile, which all warps have left in shared memory from
        // `place` on.
        let finish = |product: &mut LogProduct, turn: u32, place: usize, tile: u32| {
            if row == turn {
                let mut sum = [LogSumExp::new(); PAIR];
                let mut at = place + PAIR * lane;
                counted!(for component in 0..rows {
                    // SAFETY: a barrier separates the writes from the reads.
                    let (max, terms): ([f32; PAIR], [f32; PAIR]) =
                        unsafe { (sums.get_some(at), sums.get_some(at + places)) };
                    counted!(for p in 0..PAIR {
                        sum[p].merge(LogSumExp { max: max[p], sum: terms[p] });
                    });
                    at += TILE;
                });
                counted!(for p in 0..PAIR {
                    let i = tile as u64 * TILE as u64 + (PAIR * lane + p) as u64;
                    if i < args.n {
                        product.multiply_scaled(sum[p].max, sum[p].sum);
                        if !args.samples.is_null() {
                            // SAFETY: a place for each sample.
                            unsafe { store(args.samples.add(i as usize), sum[p].log2()) };
                        }
                    }
                });
            }
        };

        // Whether one copy of the parameters serves for all samples.
        let constant = k <= rows && d <= STEP as u32;
        let mut step = Step { tile: block_idx(), component: 0, feature: 0 };
        let mut stage = 0;
        // The warp that finishes the next tile, and where that tile's sums are left.
        let (mut turn, mut place) = (0, 0);
        copy(step, stage);
        let (mut w, mut seed) = constants(step);
        // SAFETY: a place that only this thread uses before the barrier.
        unsafe { parameters.set(lane, parameter(step)) };
        let mut product = LogProduct::new();
        let (mut q, mut sum) = ([0.0; PAIR], [LogSumExp::new(); PAIR]);
        // The bound is the same for all threads of a block, so that all of them meet at the
        // barrier.
        while step.tile < tiles {
            copies_wait();
            // Now the samples and parameters of this step are there, and all threads are done with
            // the step before.
            barrier!();
            let next = step.next(rows, k, d);
            copy(next, stage ^ 1);
            let next_parameter = if constant { 0.0 } else { parameter(next) };
            if step.begins_tile() && step.tile >= grid_dim() {
                finish(&mut product, turn, place, step.tile - grid_dim());
                turn = if turn + 1 < rows { turn + 1 } else { 0 };
                place ^= 2 * places;
            }
            let mut p = parameters;
            if !constant {
                (w, seed) = constants(step);
                p = parameters.offset(stage * parameters_size);
            }
            let x = x.offset(stage * x_size + PAIR * lane);
            counted!(for f in (0..STEP).step_by(2) {
                // SAFETY: within the step.
                let ([s0, m0, s1, m1], x0, x1): (_, [f32; PAIR], [f32; PAIR]) =
                    unsafe { (p.get4(2 * f), x.get_some(f * TILE), x.get_some((f + 1) * TILE)) };
                counted!(for p in 0..PAIR {
                    let (t0, t1) = (fma(s0, x0[p], m0), fma(s1, x1[p], m1));
                    q[p] = fma(-t1, t1, fma(-t0, t0, q[p]));
                });
            });
            if next.feature == 0 {
                counted!(for p in 0..PAIR {
                    sum[p].add(w, seed + q[p]);
                    q[p] = 0.0;
                });
            }
            if next.begins_tile() {
                let at = place + PAIR * thread_idx() as usize;
                counted!(for p in 0..PAIR {
                    // SAFETY: places of this thread; the tile whose sums were there was finished
                    // before the barrier.
                    unsafe {
                        sums.set(at + p, sum[p].max);
                        sums.set(at + places + p, sum[p].sum);
                    }
                    sum[p] = LogSumExp::new();
                });
            }
            if !constant {
                // SAFETY: as above; the step before, which read there, is done.
                unsafe { parameters.set((stage ^ 1) * parameters_size + lane, next_parameter) };
            }
            step = next;
            stage ^= 1;
        }
        barrier!();
        if step.tile >= grid_dim() {
            finish(&mut product, turn, place, step.tile - grid_dim());
        }
        // SAFETY: all threads end here, with the start of the shared memory unused.
        unsafe { args.output.finish(product) };
    }
}
