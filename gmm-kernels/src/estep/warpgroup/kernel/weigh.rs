//! `warpgroup_weigh`: responsibilities times products, summed over the samples.
use super::*;
use crate::estep::tensor_cores::RESPONSIBILITY_SCALE;

/// Numbers of a thread: of two components and a quarter of the products.
type Sums = [f32; THREAD_SUMS];

/// Pairs of neighbouring samples that a thread has of a stage.
const PAIRS: usize = STAGE / 8;

/// The barriers of the stages of products.
const STAGES: Places<STAGES_AHEAD> = Places { bytes: FINISH_SHARED_BYTES };

/// The stages of products.
#[inline(always)]
fn products(shape: Shape, place: u32) -> Shared<Halves> {
    let sums = THREAD_SUMS * BLOCK as usize * size_of::<f32>();
    Shared::at(HEAD + sums + place as usize * 2 * shape.stage_part())
}

/// The stages of a slice: all of each of its tiles.
#[derive(Clone, Copy)]
struct Stages {
    tiles: u32,
    slices: u32,
}

impl Stages {
    const OF_TILE: u32 = (SAMPLES / STAGE) as u32;

    #[inline(always)]
    fn new(args: &WeighArgs) -> Self {
        Self { tiles: args.n.div_ceil(SAMPLES as u64) as u32, slices: args.slices }
    }

    /// How many there are.
    #[inline(always)]
    fn count(self) -> u32 {
        let slice = block_idx_y();
        let tiles = (self.tiles + self.slices - 1 - slice).checked_div(self.slices);
        tiles.unwrap_or(0) * Self::OF_TILE
    }

    /// Tile of stage `number`.
    #[inline(always)]
    fn tile(self, number: u32) -> usize {
        (block_idx_y() + number / Self::OF_TILE * self.slices) as usize
    }
}

/// Starts the copies of a stage, if it exists.
///
/// # Safety
/// One whole warp of the block calls it; the barriers are ready.
#[inline(always)]
unsafe fn copy(args: &WeighArgs, stages: Stages, number: u32) {
    if number >= stages.count() {
        return;
    }
    let shape = args.shape;
    let lane = (thread() % WARP) as usize;
    // SAFETY: the place was read, or is empty; the array has the products of the tile.
    unsafe {
        let place = STAGES.claim(number, 2 * shape.stage_part());
        if lane < 2 {
            let of_tile = 2 * stages.tile(number) + lane;
            let bytes = of_tile * shape.part() + (number % Stages::OF_TILE) as usize * shape.stage_part();
            let from = args.products.wrapping_add(bytes / size_of::<u32>());
            let to = products(shape, place).offset(lane * shape.stage_part() / size_of::<u32>());
            to.copy_bulk(from, shape.stage_part() as u32, STAGES.full(place));
        }
    }
}

/// Of each pair of samples of a stage.
type Pairs = [[f32; 2]; PAIRS];

/// This thread's first sample of a stage, from the first of all.
#[inline(always)]
fn first_sample(stages: Stages, number: u32) -> usize {
    stages.tile(number) * SAMPLES + (number % Stages::OF_TILE) as usize * STAGE + 2 * (thread() % 4) as usize
}

/// Reads numbers of a stage's samples, of which `from` is this thread's first.
///
/// # Safety
/// There are places for all samples of the stage.
#[inline(always)]
unsafe fn load_pairs(from: *const f32) -> Pairs {
    let mut pairs = [[0.0; 2]; PAIRS];
    let mut pair = 0;
    while pair < PAIRS {
        // SAFETY: the caller guarantees it.
        pairs[pair] = unsafe { load2(from.wrapping_add(8 * pair)) };
        pair += 1;
    }
    pairs
}

/// Reads the exponents of both components, from `row` on.
///
/// # Safety
/// The exponents have places for the rows and the samples.
#[inline(always)]
unsafe fn load_exponents(args: &WeighArgs, row: usize, stages: Stages, number: u32) -> [Pairs; 2] {
    let stride = args.exponents.stride as usize;
    let from = args.exponents.q.wrapping_add(row * stride + first_sample(stages, number));
    // SAFETY: the caller guarantees it.
    unsafe { [load_pairs(from), load_pairs(from.wrapping_add(8 * stride))] }
}

/// Reads maxima and factors.
///
/// # Safety
/// There are places for all samples of the stage.
#[inline(always)]
unsafe fn load_normalisers(args: &WeighArgs, stages: Stages, number: u32) -> [Pairs; 2] {
    let from = args.exponents.normalisers.wrapping_add(first_sample(stages, number));
    // SAFETY: the caller guarantees it.
    unsafe { [load_pairs(from), load_pairs(from.wrapping_add(args.exponents.stride as usize))] }
}

/// Sums of the responsibilities of both components, and of the rounded ones.
type Counts = [[f32; 2]; 2];

/// Makes responsibilities, as the units read them, and counts them.
#[inline(always)]
fn respond(q: &[Pairs; 2], [top, factor]: &[Pairs; 2], weights: [f32; 2], counts: &mut Counts) -> [[Halves; 4]; 2] {
    let mut r = [[0; 4]; 2];
    let mut pair = 0;
    while pair < PAIRS {
        let mut c = 0;
        while c < 2 {
            let mut v = [0.0f32; 2];
            let mut p = 0;
            while p < 2 {
                // Behind N exponents may be large, and factors are zero.
                let power = exp2(min(q[c][pair][p] - top[pair][p], 1.0));
                v[p] = weights[c] * (power * (RESPONSIBILITY_SCALE * factor[pair][p]));
                p += 1;
            }
            let halves = round_halves(v[0], v[1]);
            let rounded = widen_halves(halves);
            counts[0][c] += v[0] + v[1];
            counts[1][c] += rounded[0] + rounded[1];
            r[pair / 2][c + 2 * (pair % 2)] = halves;
            c += 1;
        }
        pair += 1;
    }
    r
}

/// The value of `x` in another lane of the warp.
#[inline(always)]
fn shuffle_xor64(x: f64, mask: u32) -> f64 {
    let bits = x.to_bits();
    let (low, high) = (shuffle_xor_u32(bits as u32, mask), shuffle_xor_u32((bits >> 32) as u32, mask));
    f64::from_bits(u64::from(low) | u64::from(high) << 32)
}

/// Writes a sum to memory, or adds it to what is there.
///
/// # Safety
/// The place is valid, and no other thread accesses it.
#[inline(always)]
unsafe fn give(to: *mut f64, sum: f64, add: u32) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let before = if add == 0 { 0.0 } else { load(to) };
        store(to, before + sum);
    }
}

/// The sums of the block's components over its slice.
///
/// # Safety
/// Two whole warpgroups call it; the barriers are ready.
#[inline(always)]
unsafe fn work(args: &WeighArgs, stages: Stages) {
    let shape = args.shape;
    let (warp, lane) = (thread() / WARP, thread() % WARP);
    let row = block_idx() as usize * GROUP + (16 * warp + lane / 4) as usize;
    // SAFETY: weights of all rows.
    let weights = unsafe { [load(args.weights.add(row)), load(args.weights.add(row + 8))] };
    // This thread's places only.
    let kept = Shared::<f32>::at(HEAD).offset(thread() as usize);
    const NEXT: usize = BLOCK as usize;
    let count = stages.count();
    let mut sums: Sums = [0.0; THREAD_SUMS];
    let (mut totals, mut counts) = ([[0.0f64; 2]; 2], [[0.0f32; 2]; 2]);
    let (mut number, mut since, mut flushed) = (0, 0, false);
    // The first warp starts the copies: so many ahead that each takes the place that was read before the present one.
    const AHEAD: u32 = STAGES_AHEAD as u32 - 1;
    let mut ahead = 0;
    while warp == 0 && ahead < AHEAD {
        // SAFETY: the whole warp comes here; the barriers are ready.
        unsafe { copy(args, stages, ahead) };
        ahead += 1;
    }
    // The exponents of the next two stages are on their way, which come from far, and the normalisers of the next one.
    let (mut q, mut normalisers) = ([[[[0.0; 2]; PAIRS]; 2]; 2], [[[0.0; 2]; PAIRS]; 2]);
    if count > 0 {
        // SAFETY: the exponents of all rows and whole tiles, which have an even number of stages.
        unsafe {
            q = [load_exponents(args, row, stages, 0), load_exponents(args, row, stages, 1)];
            normalisers = load_normalisers(args, stages, 0);
        }
    }
    while number < count {
        not_unrolled();
        let mut turn = 0;
        while turn < 2 {
            let r = respond(&q[turn], &normalisers, weights, &mut counts);
            let last = count - 1;
            let (next, after) = (min_u32(number + 1, last), min_u32(number + 2, last));
            // SAFETY: as above; the barrier says that the products are there.
            unsafe {
                q[turn] = load_exponents(args, row, stages, after);
                normalisers = load_normalisers(args, stages, next);
                let place = STAGES.arrived(number);
                let high = Operand::new(products(shape, place), MATRIX, shape.pitch());
                let low = high.offset(shape.stage_part());
                // Sixteen samples at a time.
                let next = 2 * shape.pitch();
                warpgroup_add(&mut sums, r, [low, low.offset(next), high, high.offset(next)], since);
                STAGES.release(place);
                if warp == 0 {
                    copy(args, stages, number + AHEAD);
                }
            }
            number += 1;
            since += 1;
            turn += 1;
        }
        if since == FLUSH || number == count {
            since = 0;
            let mut i = 0;
            while i < THREAD_SUMS {
                // SAFETY: this thread's places, which it has written where it reads them.
                unsafe {
                    let before = if flushed { kept.get(i * NEXT) } else { 0.0 };
                    kept.set(i * NEXT, before + sums[i]);
                }
                i += 1;
            }
            flushed = true;
            let mut i = 0;
            while i < 4 {
                totals[i / 2][i % 2] += f64::from(counts[i / 2][i % 2]);
                counts[i / 2][i % 2] = 0.0;
                i += 1;
            }
        }
    }
    let to = args.sums.wrapping_add(block_idx_y() as usize * shape.sums());
    let mut i = 0;
    while i < 4 {
        let (kind, c) = (i / 2, i % 2);
        let mut total = totals[kind][c];
        total += shuffle_xor64(total, 1);
        total += shuffle_xor64(total, 2);
        if lane.is_multiple_of(4) {
            let to = to.wrapping_add(shape.rows() * (shape.products() + kind) + row + 8 * c);
            // SAFETY: a place for each row; no other thread has it.
            unsafe { give(to, total, args.add) };
        }
        i += 1;
    }
    // Some at a time: each is read before any of them is written.
    const AT_ONCE: usize = 16;
    let mut first = 0;
    while first < opaque(THREAD_SUMS as u32) as usize {
        not_unrolled();
        let place = |i: usize| {
            let (of_row, product) = (row + 8 * (i / 2 % 2), (first + i) / 4 * 8 + 2 * (lane % 4) as usize + i % 2);
            to.wrapping_add(of_row * shape.products() + product)
        };
        let mut values = [0.0f64; AT_ONCE];
        let mut i = 0;
        while i < AT_ONCE {
            // SAFETY: a place for each row and product, and this thread's own.
            unsafe {
                let before = if args.add == 0 { 0.0 } else { load(place(i)) };
                values[i] = before + if flushed { f64::from(kept.get((first + i) * NEXT)) } else { 0.0 };
            }
            i += 1;
        }
        let mut i = 0;
        while i < AT_ONCE {
            // SAFETY: no other thread has the place.
            unsafe { store(place(i), values[i]) };
            i += 1;
        }
        first += AT_ONCE;
    }
}

kernel! {
    /// Sums of features and squares by warpgroups.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn warpgroup_weigh(args: WeighArgs) {
        if thread_idx() == 0 {
            // SAFETY: nobody uses them yet.
            unsafe { STAGES.init() };
            mbarriers_ready();
        }
        barrier!();
        // SAFETY: the barriers are ready.
        unsafe { work(&args, Stages::new(&args)) };
    }
}
