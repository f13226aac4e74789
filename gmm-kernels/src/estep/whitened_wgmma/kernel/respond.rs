//! `warpgroup_respond_d…`: responsibilities, and their sums, alone and times features.
use super::*;
use crate::estep::whitened_mma::RESPONSIBILITY_SCALE;

/// Pairs of neighbouring samples of a tile.
const PAIRS: usize = TILE / 2;
/// `APART` threads share a pair of samples; each takes every `APART`-th component.
const APART: usize = RESPOND_BLOCK as usize / PAIRS;
/// Components of a thread.
const OWN: usize = RESPOND_GROUP / APART;
/// Components of a tile of the tensor cores.
const ROWS: usize = RESPOND_ROWS;
const WARPS: usize = (RESPOND_BLOCK / WARP) as usize;

/// A thread's sums, for up to TASKS tiles of 16 components by eight features.
struct RespondSums<const TASKS: usize> {
    /// For each task the numbers of [`mma`].
    features: [[f32; 4]; TASKS],
    /// For each of the thread's components, responsibilities and rounded ones.
    counts: [[f32; 2]; OWN],
}

impl<const TASKS: usize> RespondSums<TASKS> {
    const ZERO: Self = Self { features: [[0.0; 4]; TASKS], counts: [[0.0; 2]; OWN] };
}

/// The state that the threads of a block share, for samples of OCTETS octets of features.
struct RespondBlock<'a, const OCTETS: usize> {
    args: &'a RespondArgs,
    shape: Shape,
    /// First component of the block.
    first: usize,
    /// The block's components.
    rows: usize,
    /// The exponents of a tile, (stages, `rows`, [`STAGE`]), then maxima and factors, (2, [`TILE`]).
    exponents: Shared<f32>,
    /// The responsibilities of a tile, a row for each component, then rows of zeros to complete the tensor cores' tile.
    responsibilities: Shared<Halves>,
    features: Shared<Halves>,
}

impl<'a, const OCTETS: usize> RespondBlock<'a, OCTETS> {
    #[inline(always)]
    fn new(args: &'a RespondArgs) -> Self {
        let shape = args.shape;
        let first = block_idx() as usize * RESPOND_GROUP;
        let exponents: Shared<f32> = Shared::at(HEAD);
        // The same places in all blocks, although the last may have fewer components.
        let responsibilities = exponents.offset(TILE * (shape.respond_group_rows() + 2));
        let features = responsibilities.offset(shape.respond_group_rows() * RESPOND_PITCH).cast();
        let responsibilities = responsibilities.cast();
        Self {
            args,
            shape,
            first,
            rows: smaller(RESPOND_GROUP, shape.rows() - first),
            exponents,
            responsibilities,
            features,
        }
    }

    #[inline(always)]
    fn exponents_arrived(&self) -> Mbarrier {
        Mbarrier::at(0)
    }

    #[inline(always)]
    fn features_arrived(&self) -> Mbarrier {
        Mbarrier::at(8)
    }

    /// Starts to copy the exponents of a tile, its maxima and factors.
    /// Safety: one thread calls it; the tile exists, and no thread reads the previous tile's.
    #[inline(always)]
    unsafe fn fetch_exponents(&self, tile: usize) {
        const STAGES: usize = TILE / STAGE;
        let (exponents, arrived) = (&self.args.exponents, self.exponents_arrived());
        let of_stage = self.rows * STAGE;
        let bytes = |numbers: usize| (numbers * size_of::<f32>()) as u32;
        arrived.expect(bytes(STAGES * of_stage + 2 * TILE));
        counted!(for stage in 0..STAGES {
            let from = exponents
                .q
                .cast_const()
                .wrapping_add(((tile * STAGES + stage) * self.shape.rows() + self.first) * STAGE);
            self.exponents.offset(stage * of_stage).cast::<Halves>().copy_bulk(from.cast(), bytes(of_stage), arrived);
        });
        counted!(for kind in 0..2 {
            let from = exponents.normalisers.cast_const().wrapping_add(kind * exponents.stride as usize + tile * TILE);
            self.normalisers().offset(kind * TILE).cast::<Halves>().copy_bulk(from.cast(), bytes(TILE), arrived);
        });
    }

    /// Maxima and factors of a tile.
    #[inline(always)]
    fn normalisers(&self) -> Shared<f32> {
        self.exponents.offset(TILE * self.rows)
    }

    /// Starts to copy the features of a tile.
    /// Safety: one thread calls it; the tile exists, and no thread reads the previous tile's.
    #[inline(always)]
    unsafe fn fetch_features(&self, tile: usize) {
        const LEN: usize = 2 * TILE / 8 * MATRIX / size_of::<u32>();
        let (len, arrived) = (OCTETS * LEN, self.features_arrived());
        let bytes = (len * size_of::<u32>()) as u32;
        arrived.expect(bytes);
        self.features.copy_bulk(self.args.features.wrapping_add(tile * len), bytes, arrived);
    }

    /// Computes the responsibilities of a tile, and counts them.
    /// Safety: all threads of the block call it; the exponents have arrived; no thread reads the responsibilities.
    #[inline(always)]
    unsafe fn respond(&self, tile: usize, counts: &mut [[f32; 2]; OWN]) {
        let (args, shape) = (self.args, self.shape);
        let (pair, apart) = (thread_idx() as usize % PAIRS, thread_idx() as usize / PAIRS);
        let (stage, of_stage) = (2 * pair / STAGE, 2 * pair % STAGE);
        // SAFETY: both are there.
        let (top, factor): ([f32; 2], [f32; 2]) =
            (self.normalisers().get_some(2 * pair), self.normalisers().get_some(TILE + 2 * pair));
        // The order of the pairs of sixteen samples: 0, 4, 1, 5, 2, 6, 3, 7.
        let place = pair % 16 / 8 * 8 + pair % 4 * 2 + pair / 4 % 2;
        counted!(for i in 0..OWN {
            let local = apart + APART * i;
            let component = self.first + local;
            let mut halves = 0;
            if local < self.rows {
                let at = (tile * (TILE / STAGE) + stage) * shape.rows() + component;
                // SAFETY: exponents and weights of all rows; only this thread accesses the place.
                let q: [f32; 2] = self.exponents.get_some((stage * self.rows + local) * STAGE + of_stage);
                let weight = load(args.weights.add(component));
                let mut r = [0.0f32; 2];
                counted!(for p in 0..2 {
                    // Behind K exponents may be anything (the minimum ignores NaN), and weights are zero.
                    let power = exp2(min(q[p] - top[p], 1.0));
                    r[p] = RESPONSIBILITY_SCALE * weight * (power * factor[p]);
                });
                halves = round_halves(r[0], r[1]);
                let rounded = widen_halves(halves);
                counts[i][0] += r[0] + r[1];
                counts[i][1] += rounded[0] + rounded[1];
                store(args.responsibilities.wrapping_add(at * (STAGE / 2) + place), halves);
            }
            if local < shape.respond_group_rows() {
                // SAFETY: only this thread accesses the place.
                self.responsibilities.set(local * RESPOND_PITCH + pair, halves);
            }
        });
    }

    /// The first component and feature of the warp's `i`-th tile of sums (every sixteenth is its own), if it exists.
    #[inline(always)]
    fn task(&self, i: usize) -> Option<(usize, usize)> {
        let task = (thread() / WARP) as usize + WARPS * i;
        (task < self.rows.div_ceil(ROWS) * OCTETS).then_some((task / OCTETS * ROWS, task % OCTETS * 8))
    }

    /// Adds a tile's features times responsibilities. All lanes of the warp call it.
    /// Safety: both are in shared memory.
    #[inline(always)]
    unsafe fn multiply<const TASKS: usize>(&self, sums: &mut [[f32; 4]; TASKS]) {
        const PITCH: usize = MATRIX / size_of::<u32>();
        let of_part = STAGE / 8 * OCTETS * PITCH;
        let lane = (thread() % WARP) as usize;
        // Of sixteen samples, the high parts of the first eight and of the last eight, then the low parts.
        let of_lane = lane / 16 * of_part + lane / 8 % 2 * OCTETS * PITCH + lane % 8 * (PITCH / 8);
        let features = self.features.offset(of_lane);
        let responsibilities = self.responsibilities.offset(lane % 16 * RESPOND_PITCH + 4 * (lane / 16));
        counted!(for stage in 0..opaque((TILE / STAGE) as u32) as usize {
            not_unrolled();
            counted!(for i in 0..TASKS {
                if let Some((component, feature)) = self.task(i) {
                    counted!(for sixteen in 0..STAGE / 16 {
                        let r = responsibilities.matrices(component * RESPOND_PITCH + 8 * (2 * stage + sixteen));
                        let x = features
                            .matrices_transposed(stage * 2 * of_part + (sixteen * 2 * OCTETS + feature / 8) * PITCH);
                        let added = mma(mma([0.0; 4], r, [x[2], x[3]]), r, [x[0], x[1]]);
                        counted!(for n in 0..4 {
                            sums[i][n] += added[n];
                        });
                    });
                }
            });
        });
    }

    /// Moves the thread's sums to memory in float64, and leaves zeros. All threads of the block take part.
    /// Safety: `to` has the sums of a slice, and no other block has these components.
    #[inline(always)]
    unsafe fn move_sums<const TASKS: usize>(&self, sums: &mut RespondSums<TASKS>, to: *mut f64, add: bool) {
        let shape = self.shape;
        let lane = (thread() % WARP) as usize;
        counted!(for i in 0..TASKS {
            if let Some((component, feature)) = self.task(i) {
                counted!(for n in 0..4 {
                    let component = self.first + component + lane / 4 + 8 * (n / 2);
                    let feature = feature + 2 * (lane % 4) + n % 2;
                    if component < shape.rows() {
                        store_sum(
                            to.wrapping_add(component * shape.width() + feature),
                            f64::from(sums.features[i][n]),
                            add,
                        );
                    }
                });
            }
        });
        // The lanes of a warp hold 32 pairs of the same components.
        let half = thread_idx() as usize % PAIRS / WARP as usize;
        counted!(for i in 0..OWN {
            let component = self.first + thread_idx() as usize / PAIRS + APART * i;
            counted!(for kind in 0..2 {
                let sum = sum_over(sums.counts[i][kind], WARP - 1);
                if lane == 0 && component < shape.rows() {
                    let place = shape.rows() * (shape.width() + 2 * kind + half) + component;
                    store_sum(to.wrapping_add(place), f64::from(sum), add);
                }
            });
        });
        *sums = RespondSums::ZERO;
    }
}

/// Whether this thread starts the copies: the block's first. `opaque` hides it from the compiler, which would otherwise
/// give the thread a loop of its own, with barriers and products in which all threads have to take part.
#[inline(always)]
fn starts_copies() -> bool {
    opaque(thread_idx()) == 0
}

#[inline(always)]
unsafe fn body<const OCTETS: usize, const TASKS: usize>(args: &RespondArgs) {
    let block = RespondBlock::<OCTETS>::new(args);
    let tiles = args.n.div_ceil(TILE as u64) as usize;
    let mut tile = block_idx_y() as usize;
    if thread_idx() == 0 {
        // SAFETY: no thread uses them yet; the memory is free.
        block.exponents_arrived().init(1);
        block.features_arrived().init(1);
        mbarriers_ready();
        if tile < tiles {
            block.fetch_exponents(tile);
            block.fetch_features(tile);
        }
    }
    barrier!();
    let to = args.sums.wrapping_add(block_idx_y() as usize * args.shape.respond_sums());
    let mut add = args.add != 0;
    let mut sums = RespondSums::<TASKS>::ZERO;
    let (mut phase, mut since_move) = (0, 0);
    while tile < tiles {
        let next = tile + args.slices as usize;
        // SAFETY: the exponents have arrived at the barrier; no thread reads the previous responsibilities.
        block.exponents_arrived().wait(phase);
        block.respond(tile, &mut sums.counts);
        barrier!();
        // Copied while this tile is multiplied.
        if starts_copies() && next < tiles {
            // SAFETY: all threads have read the exponents.
            block.fetch_exponents(next);
        }
        // SAFETY: the barrier made the responsibilities visible; the next one says that the features have arrived.
        block.features_arrived().wait(phase);
        block.multiply(&mut sums.features);
        barrier!();
        if starts_copies() && next < tiles {
            // SAFETY: all threads have read the features.
            block.fetch_features(next);
        }
        tile = next;
        phase ^= 1;
        since_move += 1;
        if since_move == FLUSH_TILES || tile >= tiles {
            since_move = 0;
            // SAFETY: a place for each sum.
            block.move_sums(&mut sums, to, add);
            add = true;
        }
    }
}

macro_rules! instances {
    ($($name:ident $width:literal)*) => {
        kernels! {
            /// Computes responsibilities of matrices of at most 32, 64, 96 or 128 features, and their sums.
            $($name: RespondArgs = body::<{ $width / 8 }, { RESPOND_GROUP / ROWS * ($width / 8) / WARPS }>;)*
        }
    };
}
instances! {
    warpgroup_respond_d32 32
    warpgroup_respond_d64 64
    warpgroup_respond_d96 96
    warpgroup_respond_d128 128
}
