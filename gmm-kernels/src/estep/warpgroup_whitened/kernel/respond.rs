//! `warpgroup_respond`: responsibilities, and their sums, alone and times features.
use super::*;
use crate::estep::whitened::RESPONSIBILITY_SCALE;

/// Pairs of neighbouring samples of a tile.
const PAIRS: usize = TILE / 2;
/// Threads that have the same pair; each has every such component.
const APART: usize = RESPOND_BLOCK as usize / PAIRS;
/// Components of a thread.
const OWN: usize = CHUNK / APART;
/// Components of a tile of the units.
const ROWS: usize = 16;
/// Warps of a block.
const WARPS: usize = (RESPOND_BLOCK / WARP) as usize;
/// Most tiles of sums of a warp: of so many components by eight features.
const TASKS: usize = CHUNK / ROWS * (MAX_FEATURES / 8) / WARPS;

/// What a thread sums up.
struct Sums {
    /// Of each task the numbers of [`mma`].
    features: [[f32; 4]; TASKS],
    /// Of each component of the thread, responsibilities and rounded ones.
    counts: [[f32; 2]; OWN],
}

impl Sums {
    const ZERO: Self = Self { features: [[0.0; 4]; TASKS], counts: [[0.0; 2]; OWN] };
}

/// The state that the threads of a block share.
struct Block<'a> {
    args: &'a RespondArgs,
    shape: Shape,
    /// First component of the block.
    first: usize,
    /// The responsibilities of a tile, a row for each component.
    responsibilities: Shared<Halves>,
    /// The features of two tiles.
    features: Shared<Halves>,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn new(args: &'a RespondArgs) -> Self {
        let responsibilities = Shared::at(HEAD);
        let features = responsibilities.offset(CHUNK * RESPOND_PITCH);
        Self { args, shape: args.shape, first: block_idx() as usize * CHUNK, responsibilities, features }
    }

    /// The barrier at which the features of every other tile arrive.
    #[inline(always)]
    fn arrived(&self, turn: u32) -> Mbarrier {
        Mbarrier::at(8 * (turn % 2) as usize)
    }

    /// Elements of a tile's features.
    #[inline(always)]
    fn tile_len(&self) -> usize {
        TILE / STAGE * 2 * self.shape.stage_part() / size_of::<u32>()
    }

    /// Starts to copy the features of a tile.
    ///
    /// # Safety
    /// One thread calls it; the tile exists, and nobody reads what was copied two turns before.
    #[inline(always)]
    unsafe fn fetch(&self, tile: usize, turn: u32) {
        let (len, arrived) = (self.tile_len(), self.arrived(turn));
        let bytes = (len * size_of::<u32>()) as u32;
        // SAFETY: the caller guarantees it.
        unsafe {
            arrived.expect(bytes);
            let to = self.features.offset((turn % 2) as usize * len);
            to.copy_bulk(self.args.features.wrapping_add(tile * len), bytes, arrived);
        }
    }

    /// Makes the responsibilities of a tile, and counts them.
    ///
    /// # Safety
    /// All threads of the block call it; nobody reads the responsibilities in shared memory.
    #[inline(always)]
    unsafe fn respond(&self, tile: usize, counts: &mut [[f32; 2]; OWN]) {
        let (args, shape) = (self.args, self.shape);
        let (pair, apart) = (thread_idx() as usize % PAIRS, thread_idx() as usize / PAIRS);
        let sample = tile * TILE + 2 * pair;
        let (stage, of_stage) = (sample / STAGE, sample % STAGE);
        let normalisers = args.exponents.normalisers.cast_const().wrapping_add(sample);
        // SAFETY: normalisers of whole tiles.
        let (top, factor) = unsafe { (load2(normalisers), load2(normalisers.wrapping_add(args.exponents.stride as usize))) };
        // Of sixteen samples pairs 0, 4, 1, 5, 2, 6, 3, 7.
        let place = pair % 16 / 8 * 8 + pair % 4 * 2 + pair / 4 % 2;
        let mut i = 0;
        while i < OWN {
            let local = apart + APART * i;
            let component = self.first + local;
            let mut halves = 0;
            if component < shape.rows() {
                let at = stage * shape.rows() + component;
                // SAFETY: exponents and weights of all rows; a place that only this thread accesses.
                unsafe {
                    let (weight, q) = (load(args.weights.add(component)), load2(args.exponents.q.cast_const().wrapping_add(at * STAGE + of_stage)));
                    let mut r = [0.0f32; 2];
                    let mut p = 0;
                    while p < 2 {
                        // Behind K exponents may be anything, of which the minimum takes no notice if it is NaN, and weights are zero.
                        let power = exp2(min(q[p] - top[p], 1.0));
                        r[p] = RESPONSIBILITY_SCALE * weight * (power * factor[p]);
                        p += 1;
                    }
                    halves = round_halves(r[0], r[1]);
                    let rounded = widen_halves(halves);
                    counts[i][0] += r[0] + r[1];
                    counts[i][1] += rounded[0] + rounded[1];
                    store(args.responsibilities.wrapping_add(at * (STAGE / 2) + place), halves);
                }
            }
            // SAFETY: a place that only this thread accesses.
            unsafe { self.responsibilities.set(local * RESPOND_PITCH + pair, halves) };
            i += 1;
        }
    }

    /// Tiles of sums, of which warp w has every eighth one from w on.
    #[inline(always)]
    fn tasks(&self) -> usize {
        let rows = min_usize(CHUNK, self.shape.rows() - self.first);
        rows.div_ceil(ROWS) * self.shape.octets()
    }

    /// Adds a tile's features times responsibilities.
    ///
    /// # Safety
    /// Both are in shared memory; all lanes of the warp call it.
    #[inline(always)]
    unsafe fn multiply(&self, turn: u32, sums: &mut [[f32; 4]; TASKS]) {
        let shape = self.shape;
        let (warp, lane) = ((thread() / WARP) as usize, (thread() % WARP) as usize);
        let tasks = self.tasks();
        // Of sixteen samples, the high parts of the first and of the other eight, then the low ones.
        let of_lane = lane / 16 * shape.stage_part() + lane / 8 % 2 * shape.pitch() + lane % 8 * (MATRIX / 8);
        let features = self.features.offset((turn % 2) as usize * self.tile_len() + of_lane / size_of::<u32>());
        let responsibilities = self.responsibilities.offset(lane % 16 * RESPOND_PITCH + 4 * (lane / 16));
        let mut sixteen = 0;
        while sixteen < opaque((TILE / 16) as u32) as usize {
            not_unrolled();
            let bytes = sixteen / 2 * 2 * shape.stage_part() + sixteen % 2 * 2 * shape.pitch();
            let mut i = 0;
            while i < TASKS {
                let task = warp + WARPS * i;
                if task < tasks {
                    let (tile, octet) = (task / shape.octets(), task % shape.octets());
                    // SAFETY: the caller guarantees it.
                    unsafe {
                        let r = responsibilities.offset(tile * ROWS * RESPOND_PITCH).matrices(8 * sixteen);
                        let x = features.matrices_transposed((bytes + octet * MATRIX) / size_of::<u32>());
                        let added = mma(mma([0.0; 4], r, [x[2], x[3]]), r, [x[0], x[1]]);
                        let mut n = 0;
                        while n < 4 {
                            sums[i][n] += added[n];
                            n += 1;
                        }
                    }
                }
                i += 1;
            }
            sixteen += 1;
        }
    }

    /// Moves the thread's sums to memory in float64, and leaves zeros.
    ///
    /// # Safety
    /// `to` has the sums of a slice, and no other block has these components; all threads of the block take part.
    #[inline(always)]
    unsafe fn move_sums(&self, sums: &mut Sums, to: *mut f64, add: bool) {
        let shape = self.shape;
        let (warp, lane) = ((thread() / WARP) as usize, (thread() % WARP) as usize);
        let tasks = self.tasks();
        let mut i = 0;
        while i < TASKS {
            let task = warp + WARPS * i;
            if task < tasks {
                let (tile, octet) = (task / shape.octets(), task % shape.octets());
                let mut n = 0;
                while n < 4 {
                    let component = self.first + tile * ROWS + lane / 4 + 8 * (n / 2);
                    let feature = 8 * octet + 2 * (lane % 4) + n % 2;
                    if component < shape.rows() {
                        // SAFETY: the caller guarantees it.
                        unsafe { give(to.wrapping_add(component * shape.width() + feature), sums.features[i][n].into(), add) };
                    }
                    n += 1;
                }
            }
            i += 1;
        }
        // A warp's lanes have 32 pairs of the same components.
        let half = thread_idx() as usize % PAIRS / WARP as usize;
        let mut i = 0;
        while i < OWN {
            let component = self.first + thread_idx() as usize / PAIRS + APART * i;
            let mut kind = 0;
            while kind < 2 {
                let mut distance = 1;
                let mut sum = sums.counts[i][kind];
                while distance < WARP {
                    sum += f32::from_bits(shuffle_xor_u32(sum.to_bits(), distance));
                    distance *= 2;
                }
                if lane == 0 && component < shape.rows() {
                    let place = shape.rows() * (shape.width() + 2 * kind + half) + component;
                    // SAFETY: the caller guarantees it.
                    unsafe { give(to.wrapping_add(place), sum.into(), add) };
                }
                kind += 1;
            }
            i += 1;
        }
        *sums = Sums::ZERO;
    }
}

kernel! {
    /// Responsibilities of matrices, and their sums.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn warpgroup_respond(args: RespondArgs) {
        let block = Block::new(&args);
        let tiles = args.n.div_ceil(TILE as u64) as usize;
        let mut tile = block_idx_y() as usize;
        if thread_idx() == 0 {
            // SAFETY: nobody uses them yet; the memory is free.
            unsafe {
                block.arrived(0).init(1);
                block.arrived(1).init(1);
                mbarriers_ready();
                if tile < tiles {
                    block.fetch(tile, 0);
                }
            }
        }
        let to = args.sums.wrapping_add(block_idx_y() as usize * args.shape.respond_sums());
        let mut add = args.add != 0;
        let mut sums = Sums::ZERO;
        let (mut turn, mut since_move) = (0, 0);
        while tile < tiles {
            // SAFETY: the barrier at the end of this loop: nobody reads the tile before any more.
            unsafe { block.respond(tile, &mut sums.counts) };
            barrier!();
            let next = tile + args.slices as usize;
            if thread_idx() == 0 && next < tiles {
                // SAFETY: the tile before was multiplied before the barrier.
                unsafe { block.fetch(next, turn + 1) };
            }
            // SAFETY: the barrier made the responsibilities visible, and this one says that the features are there.
            unsafe {
                block.arrived(turn).wait(turn / 2 % 2);
                block.multiply(turn, &mut sums.features);
            }
            barrier!();
            tile = next;
            turn += 1;
            since_move += 1;
            if since_move == FLUSH_TILES || tile >= tiles {
                since_move = 0;
                // SAFETY: a place for each sum.
                unsafe { block.move_sums(&mut sums, to, add) };
                add = true;
            }
        }
    }
}
