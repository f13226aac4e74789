//! `warpgroup_weigh`: responsibilities times products, summed over the samples.
use super::*;
use crate::estep::products_mma::RESPONSIBILITY_SCALE;
use crate::math::Float;

/// A thread's numbers: two components by a quarter of the products.
type ThreadSums = [f32; THREAD_SUMS];

/// Pairs of neighbouring samples of a stage in one thread.
const PAIRS: usize = STAGE / 8;

/// The barriers for the stages of products. All threads read normalisers.
const STAGES: Places<STAGES_AHEAD> = Places { bytes: FINISH_SHARED_BYTES, of_warp: WARP };

/// A stage: both parts of its products, then its samples' maxima and factors.
#[inline(always)]
fn stage(shape: Shape, place: u32) -> Shared<Halves> {
    let sums = THREAD_SUMS * MULTIPLYING as usize * size_of::<f32>();
    Shared::at(HEAD + sums + place as usize * shape.stage())
}

/// The maxima of a stage's samples, and behind them the factors.
#[inline(always)]
fn normalisers(shape: Shape, place: u32) -> Shared<f32> {
    stage(shape, place).offset(2 * shape.stage_part() / size_of::<Halves>()).cast()
}

/// The stages of a slice: all stages of each of its tiles.
#[derive(Clone, Copy)]
struct SliceStages {
    tiles: u32,
    slices: u32,
}

impl SliceStages {
    const OF_TILE: u32 = (SAMPLES / STAGE) as u32;

    #[inline(always)]
    fn new(args: &WeighArgs) -> Self {
        Self { tiles: args.n.div_ceil(SAMPLES as u64) as u32, slices: args.slices }
    }

    /// The number of stages.
    #[inline(always)]
    fn count(self) -> u32 {
        let slice = block_idx_y();
        let tiles = (self.tiles + self.slices - 1 - slice).checked_div(self.slices);
        tiles.unwrap_or(0) * Self::OF_TILE
    }

    #[inline(always)]
    fn tile(self, number: u32) -> usize {
        (block_idx_y() + number / Self::OF_TILE * self.slices) as usize
    }
}

/// Copies a stage.
/// Safety: one whole warp of the block calls it; the barriers are ready; the stage exists.
#[inline(always)]
unsafe fn copy(args: &WeighArgs, stages: SliceStages, number: u32) {
    let shape = args.shape;
    let lane = (thread() % WARP) as usize;
    // SAFETY: the place was read, or is empty; the array has the products of the tile.
    let place = STAGES.claim(number, shape.stage());
    let of_tile = (number % SliceStages::OF_TILE) as usize;
    if lane < 2 {
        let bytes = (2 * stages.tile(number) + lane) * shape.part() + of_tile * shape.stage_part();
        let from = args.products.wrapping_add(bytes / size_of::<u32>());
        let to = stage(shape, place).offset(lane * shape.stage_part() / size_of::<u32>());
        to.copy_bulk(from, shape.stage_part() as u32, STAGES.full(place));
    } else if lane < 4 {
        let kind = lane - 2;
        let sample = stages.tile(number) * SAMPLES + of_tile * STAGE;
        let from = args.exponents.normalisers.wrapping_add(kind * args.exponents.stride as usize + sample);
        let to = normalisers(shape, place).offset(kind * STAGE).cast();
        to.copy_bulk(from.cast(), (STAGE * size_of::<f32>()) as u32, STAGES.full(place));
    }
}

/// Numbers for each pair of samples of a stage.
type Pairs = [[f32; 2]; PAIRS];

/// This thread's first sample of a stage, counted from the first of all.
#[inline(always)]
fn first_sample(stages: SliceStages, number: u32) -> usize {
    stages.tile(number) * SAMPLES + (number % SliceStages::OF_TILE) as usize * STAGE + 2 * (thread() % 4) as usize
}

/// Reads the exponents of two components, from `component` on.
/// Safety: the exponents have places for the components and the samples.
#[inline(always)]
unsafe fn load_exponents(args: &WeighArgs, component: usize, stages: SliceStages, number: u32) -> [Pairs; 2] {
    let from = args.exponents.q.wrapping_add(args.shape.exponent(component, first_sample(stages, number)));
    let mut q = [[[0.0; 2]; PAIRS]; 2];
    counted!(for i in 0..PAIRS {
        let four = load_f32x4(from.wrapping_add(i / 2 * 32 + i % 2 * 4));
        counted!(for n in 0..4 {
            q[n % 2][i / 2 * 2 + n / 2][i % 2] = four[n];
        });
    });
    q
}

/// Sums of the responsibilities of both components, and of the rounded ones.
type Counts = [[f32; 2]; 2];

/// Computes responsibilities, as the tensor cores read them, and counts them.
/// Safety: the normalisers of the stage have arrived.
#[inline(always)]
unsafe fn respond(
    q: &[Pairs; 2],
    normalisers: Shared<f32>,
    weights: [f32; 2],
    counts: &mut Counts,
) -> [[Halves; 4]; 2] {
    let first = normalisers.offset(2 * (thread() % 4) as usize);
    let mut r = [[0; 4]; 2];
    counted!(for pair in 0..PAIRS {
        let (top, factor): ([f32; 2], [f32; 2]) = (first.get_some(8 * pair), first.get_some(STAGE + 8 * pair));
        counted!(for c in 0..2 {
            let mut v = [0.0f32; 2];
            counted!(for p in 0..2 {
                // Behind N exponents may be large, but factors are zero.
                let power = exp2(min(q[c][pair][p] - top[p], 1.0));
                v[p] = weights[c] * (power * (RESPONSIBILITY_SCALE * factor[p]));
            });
            let halves = round_halves(v[0], v[1]);
            let rounded = widen_halves(halves);
            counts[0][c] += v[0] + v[1];
            counts[1][c] += rounded[0] + rounded[1];
            r[pair / 2][c + 2 * (pair % 2)] = halves;
        });
    });
    r
}

/// Computes the sums of the block's components over its slice.
/// Safety: two whole warpgroups call it; the barriers are ready.
#[inline(always)]
unsafe fn work(args: &WeighArgs, stages: SliceStages) {
    let shape = args.shape;
    let (warp, lane) = (thread() / WARP, thread() % WARP);
    // Rows r and r + 8 of the warp's operand are neighbouring components.
    let component = block_idx() as usize * GROUP + (16 * warp + lane / 4 * 2) as usize;
    // SAFETY: weights of all components.
    let weights = load_f32x2(args.weights.add(component));
    // This thread's places only.
    let kept = Shared::<f32>::at(HEAD).offset(thread() as usize);
    const NEXT: usize = MULTIPLYING as usize;
    let count = stages.count();
    let mut sums: ThreadSums = [0.0; THREAD_SUMS];
    let (mut totals, mut counts) = ([[0.0f64; 2]; 2], [[0.0f32; 2]; 2]);
    let (mut number, mut flushed) = (0, false);
    // The exponents come from far: those of the next two stages are read ahead.
    let mut q = [[[[0.0; 2]; PAIRS]; 2]; 2];
    if count > 0 {
        // SAFETY: the exponents of all rows and whole tiles, which have an even number of stages.
        q = [load_exponents(args, component, stages, 0), load_exponents(args, component, stages, 1)];
    }
    while number < count {
        not_unrolled();
        let until = smaller(number + FLUSH, count);
        let mut since = 0;
        while number < until {
            not_unrolled();
            counted!(for turn in 0..2 {
                // SAFETY: the barrier says that the stage has arrived.
                let place = STAGES.arrived(number);
                let r = respond(&q[turn], normalisers(shape, place), weights, &mut counts);
                q[turn] = load_exponents(args, component, stages, smaller(number + 2, count - 1));
                let high = Operand::new(stage(shape, place), MATRIX, shape.pitch());
                let low = high.offset(shape.stage_part());
                // Sixteen samples at a time.
                let next = 2 * shape.pitch();
                warpgroup_add(&mut sums, r, [low, low.offset(next), high, high.offset(next)], since);
                STAGES.release(place);
                number += 1;
                since += 1;
            });
        }
        counted!(for i in 0..THREAD_SUMS {
            // SAFETY: this thread's places, which it has written before it reads them.
            let before = if flushed { kept.get(i * NEXT) } else { 0.0 };
            kept.set(i * NEXT, before + sums[i]);
        });
        flushed = true;
        counted!(for i in 0..4 {
            totals[i / 2][i % 2] += f64::from(counts[i / 2][i % 2]);
            counts[i / 2][i % 2] = 0.0;
        });
    }
    let to = args.sums.wrapping_add(block_idx_y() as usize * args.stride as usize);
    let mut i = 0;
    while i < 4 {
        let (kind, c) = (i / 2, i % 2);
        let mut total = totals[kind][c];
        total += total.shuffle_xor(1);
        total += total.shuffle_xor(2);
        if lane.is_multiple_of(4) {
            let to = to.wrapping_add(shape.rows() * (shape.products() + kind) + component + c);
            // SAFETY: a place for each row; no other thread has it.
            store_sum(to, total, args.add != 0);
        }
        i += 1;
    }
    // In batches: all of a batch are read before one is written.
    const AT_ONCE: usize = 16;
    counted!(for first in (0..opaque(THREAD_SUMS as u32) as usize).step_by(AT_ONCE) {
        not_unrolled();
        let place = |i: usize| {
            let product = (first + i) / 4 * 8 + 2 * (lane % 4) as usize + i % 2;
            to.wrapping_add((component + i / 2 % 2) * shape.products() + product)
        };
        let mut values = [0.0f64; AT_ONCE];
        counted!(for i in 0..AT_ONCE {
            // SAFETY: a place for each row and product, and this thread's own.
            let before = if args.add == 0 { 0.0 } else { load(place(i)) };
            values[i] = before + if flushed { f64::from(kept.get((first + i) * NEXT)) } else { 0.0 };
        });
        counted!(for i in 0..AT_ONCE {
            // SAFETY: no other thread has the place.
            store(place(i), values[i]);
        });
    });
}

kernel! {
    /// Sums features and squares by warpgroups.
    pub unsafe fn warpgroup_weigh(args: WeighArgs) {
        if thread_idx() == 0 {
            // SAFETY: no thread uses them yet.
            STAGES.init();
            mbarriers_ready();
        }
        barrier!();
        let stages = SliceStages::new(&args);
        // SAFETY: the barriers are ready.
        if thread_idx() < MULTIPLYING {
            more_registers::<{ REGISTERS_OF_KINDS.0 }>();
            work(&args, stages);
        } else {
            fewer_registers::<{ REGISTERS_OF_KINDS.1 }>();
            let mut number = 0;
            while thread_idx() < MULTIPLYING + WARP && number < stages.count() {
                copy(&args, stages, number);
                number += 1;
            }
        }
    }
}
