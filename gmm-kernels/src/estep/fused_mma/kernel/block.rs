use super::*;

/// A block's shared memory, and the warp's part. `GAPS`: values may be missing; `P`, `N`: [`FusedShape`]'s tiles.
pub(super) struct FusedBlock<const GAPS: bool, const P: usize, const N: usize> {
    pub(super) shape: FusedShape,
    pub(super) member: Member,
    /// With one tile of components: the coefficients (products, capacity). With more: both parts of them in float16, as
    /// lanes read them: (component parts, feature parts, steps of a warp, pairs of tiles of a warp, 2, lanes, 4).
    pub(super) coefficients: Shared<f32>,
    /// (parts of the components, [`CONSTANTS`], capacity of a warp).
    constants: Shared<f32>,
    /// The lane's place in `coefficients` and `constants`, within the warp's part.
    pub(super) own_coefficients: Shared<Halves>,
    own_constants: Shared<f32>,
    parts: Shared<f32>,
    /// The warp's own part: two places in which all features are transposed.
    pub(super) transposed: Shared<Halves>,
}

impl<const GAPS: bool, const P: usize, const N: usize> FusedBlock<GAPS, P, N> {
    #[inline(always)]
    pub(super) fn new(of_warp: FusedShape, member: Member) -> Self {
        let shape = FusedShape { team: member.team, ..of_warp };
        let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
        let coefficients = Shared::<f32>::at(FINISH_SHARED_BYTES);
        let constants = coefficients.offset(shape.coefficients());
        let parts = constants.offset(CONSTANTS * shape.capacity());
        let of_team = (member.components * member.team.features + member.features) as usize;
        Self {
            shape,
            member,
            coefficients,
            constants,
            own_coefficients: coefficients.offset(of_team * of_warp.coefficients()).cast().offset(4 * lane),
            own_constants: constants.offset(member.components as usize * CONSTANTS * N * TILE + lane / 4),
            parts,
            transposed: parts.offset(warp * shape.part()).cast(),
        }
    }

    #[inline(always)]
    pub(super) fn behind_parts(&self) -> Shared<f32> {
        self.parts.offset((block_dim() / WARP) as usize * self.shape.part())
    }

    /// A warp's place for its parts of a group's exponents.
    #[inline(always)]
    fn exponents(&self, warp: usize, place: usize) -> Shared<f32> {
        let before = self.shape.transposed() + place * self.shape.exchanged_exponents();
        self.parts.offset(warp * self.shape.part() + before)
    }

    /// A warp's place for the likelihoods of its components.
    #[inline(always)]
    fn likelihoods(&self, warp: usize, place: usize) -> Shared<f32> {
        let before = 2 * self.shape.exchanged_exponents() + place * self.shape.exchanged_likelihoods();
        self.parts.offset(warp * self.shape.part() + self.shape.transposed() + before)
    }

    /// Fills the shared memory with the parameters. All threads of the block call it.
    /// Safety: the shared memory is not in use; the arguments point to the parameters.
    #[inline(always)]
    pub(super) unsafe fn begin(&self, args: &FusedMmaArgs) {
        // An instance that takes parameters by value is not for teams: the compiler knows all of this.
        let of_warp = self.shape.of_warp();
        if of_warp.by_value() {
            let numbers = of_warp.numbers();
            // The first lanes of up to eight warps share the copy. The places are constants: an index computed at run
            // time would move the arguments to local memory.
            const SHARES: usize = 8;
            written_out!(for share in 0..SHARES {
                let taker = if (share as u32) < block_dim() / WARP { share as u32 } else { 0 };
                if taker * WARP == thread_idx() {
                    counted!(for i in numbers * share / SHARES..numbers * (share + 1) / SHARES {
                        // SAFETY: inside.
                        self.coefficients.set(i, args.by_value[i]);
                    });
                }
            });
            return;
        }
        self.load_constants(args);
        if N == 1 {
            counted!(for i in (thread_idx() as usize..self.shape.coefficients()).step_by(block_dim() as usize) {
                self.coefficients.set(i, load(args.parameters.add(i)));
            });
            return;
        }
        let (steps, pairs, capacity) = (of_warp.steps() as u32, (N / 2) as u32, self.shape.capacity());
        let parts = self.member.team.warps();
        counted!(for i in (thread_idx()..parts * steps * pairs * WARP).step_by(block_dim()) {
            let (lane, pair, step) = (i % WARP, i / WARP % pairs, i / (WARP * pairs));
            let (part, step) = (step / steps, step % steps);
            let (components, features) = (part / self.member.team.features, part % self.member.team.features);
            let row = STEP * (features * steps + step) as usize + 2 * (lane % 4) as usize;
            let component = TILE * (components * N as u32 + 2 * pair) as usize + (lane / 4) as usize;
            let from = args.parameters.wrapping_add(row * capacity + component);
            // Two neighbouring products of a component, split.
            let both = |products: usize, components: usize| {
                let from = from.wrapping_add(products * capacity + components);
                // SAFETY: coefficients of all products and components.
                split_halves(load(from), load(from.add(capacity)))
            };
            let parts = [both(0, 0), both(0, TILE), both(TILE, 0), both(TILE, TILE)];
            let to = self.coefficients.cast::<Halves>().offset(2 * 4 * (i - lane) as usize + 4 * lane as usize);
            // SAFETY: inside; only this thread uses the places.
            to.set4(0, [parts[0][0], parts[1][0], parts[2][0], parts[3][0]]);
            to.set4(4 * WARP as usize, [parts[0][1], parts[1][1], parts[2][1], parts[3][1]]);
        });
    }

    /// Fills the constants. All threads of the block call it.
    /// Safety: as [`Self::begin`].
    #[inline(always)]
    pub(super) unsafe fn load_constants(&self, args: &FusedMmaArgs) {
        let (capacity, of_warp) = (self.shape.capacity() as u32, (N * TILE) as u32);
        counted!(for i in (thread_idx()..CONSTANTS as u32 * capacity).step_by(block_dim()) {
            let (part, constant, component) =
                (i / of_warp / CONSTANTS as u32, i / of_warp % CONSTANTS as u32, i % of_warp);
            let from = self.shape.coefficients() + (constant * capacity + part * of_warp + component) as usize;
            // SAFETY: inside.
            self.constants.set(i as usize, load(args.parameters.add(from)));
        });
    }

    /// The lane's coefficients of a step if there is one tile of components: the high parts are the first eight rows.
    /// Safety: they are in shared memory.
    #[inline(always)]
    pub(super) unsafe fn packed(&self, step: usize) -> [Halves; 4] {
        let step = self.member.features as usize * self.shape.of_warp().steps() + step;
        let lane = (thread_idx() % WARP) as usize;
        let from = self.coefficients.offset((STEP * step + 2 * (lane % 4)) * TILE + lane / 4);
        let (first, second) = (
            split_halves(from.get(0), from.get(TILE)),
            split_halves(from.get(TILE * TILE), from.get(TILE * TILE + TILE)),
        );
        [first[0], first[1], second[0], second[1]]
    }

    /// Transposes the features of a group of samples from the first operand of [`mma`] (features by samples) to the
    /// second (two numbers each for the first and the last eight samples). All lanes call it, alternately with `place`
    /// 0 and 1.
    /// Safety: no lane reads the place.
    #[inline(always)]
    pub(super) unsafe fn transpose(&self, place: usize, x: &[Split; P]) -> [Split; P] {
        let lane = (thread_idx() % WARP) as usize;
        let matrices = self.transposed.offset(place * P * TRANSPOSED);
        counted!(for p in 0..P {
            counted!(for m in 0..4 {
                let to = matrices.offset(p * TRANSPOSED + m * WARP as usize + lane);
                // SAFETY: a place for each lane.
                to.set(0, x[p].high[m]);
                to.set(TRANSPOSED / 2, x[p].low[m]);
            });
        });
        warp_sync();
        let mut transposed = [Split::ZERO; P];
        counted!(for p in 0..P {
            let from = matrices.offset(p * TRANSPOSED + 4 * lane);
            // SAFETY: rows of eight numbers that all lanes have written.
            (transposed[p].high, transposed[p].low) =
                (from.matrices_transposed(0), from.matrices_transposed(TRANSPOSED / 2));
        });
        transposed
    }

    /// The lane's coefficients of a step and a pair of tiles of components: high parts, then low parts.
    /// Safety: they are in shared memory.
    #[inline(always)]
    unsafe fn of_pair(&self, step: usize, pair: usize) -> [[Halves; 4]; 2] {
        let from = self.own_coefficients.offset(2 * (step * (N / 2) + pair) * 4 * WARP as usize);
        [from.get4(0), from.get4(4 * WARP as usize)]
    }

    /// Constant `i` of the components `lane / 4` of each tile.
    /// Safety: they are in shared memory.
    #[inline(always)]
    pub(super) unsafe fn constant(&self, i: usize, tile: usize) -> f32 {
        self.own_constants.get((i * N + tile) * TILE)
    }

    /// Adds up the parts of a group's exponents over the warps of the team, in the order of their features, so that all
    /// get the same sums. All threads of the team call it, alternately with `place` 0 and 1, each read before the next
    /// barrier.
    /// Safety: the block has the shared memory of its shape.
    #[inline(always)]
    pub(super) unsafe fn add_exponents(&self, place: usize, q: &mut Components<N>) {
        let of = |warp: usize| self.exponents(warp, place).offset(QUAD * (thread_idx() % WARP) as usize);
        let own = of((thread_idx() / WARP) as usize);
        counted!(for n in 0..N {
            // SAFETY: a place for each lane.
            own.set4(n * QUAD * WARP as usize, [q[n][0][0], q[n][0][1], q[n][1][0], q[n][1][1]]);
        });
        barrier!(self.member.barrier(), self.member.threads());
        let mut from = of(self.member.other(0, self.member.components));
        let mut parts = self.member.team.features;
        *q = [[[0.0; 2]; 2]; N];
        while parts > 0 {
            counted!(for n in 0..N {
                // SAFETY: the barrier made them visible.
                let [a, b, c, d] = from.get4(n * QUAD * WARP as usize);
                q[n] = [[q[n][0][0] + a, q[n][0][1] + b], [q[n][1][0] + c, q[n][1][1] + d]];
            });
            from = from.offset(self.shape.part());
            parts -= 1;
        }
    }

    /// Turns the sums of a warp's likelihoods into those of its team, over all components. Returns the factor that
    /// brings the warp's own likelihoods to the same power. Called like [`Self::add_exponents`].
    /// Safety: the block has the shared memory of its shape.
    #[inline(always)]
    pub(super) unsafe fn add_likelihoods<const G: usize>(
        &self,
        place: usize,
        likelihoods: &mut Likelihoods<N, G>,
    ) -> [f32; G] {
        let of = |warp: usize| self.likelihoods(warp, place).offset(2 * own_sample() as usize);
        let own = of((thread_idx() / WARP) as usize);
        counted!(for g in 0..G {
            // SAFETY: a place for each sample; two lanes write the same numbers.
            own.set(2 * SAMPLES * g, likelihoods.power[g]);
            own.set(2 * SAMPLES * g + 1, likelihoods.sum[g]);
        });
        barrier!(self.member.barrier(), self.member.threads());
        let mut factors = [1.0; G];
        counted!(for g in 0..G {
            let mut power = likelihoods.power[g];
            counted!(for part in 0..self.member.team.components {
                // SAFETY: the barrier made them visible.
                power = max(power, of(self.member.other(self.member.features, part)).get(2 * SAMPLES * g));
            });
            let mut sum = 0.0;
            counted!(for part in 0..self.member.team.components {
                let from = of(self.member.other(self.member.features, part));
                let other = [from.get(2 * SAMPLES * g), from.get(2 * SAMPLES * g + 1)];
                sum += other[1] * exp2(other[0] - power);
            });
            factors[g] = exp2(likelihoods.power[g] - power);
            (likelihoods.sum[g], likelihoods.power[g]) = (sum, power);
        });
        likelihoods.far = true;
        factors
    }

    /// Adds up the sums of all teams of the block in float64, and adds the result to the sums of all blocks.
    /// Safety: all threads of the block call it; the sums are visible and have their places.
    #[inline(always)]
    pub(super) unsafe fn add_teams(&self, args: &FusedMmaArgs) {
        let (shape, of_warp) = (self.shape, self.shape.of_warp());
        let (products, capacity) = (of_warp.products() as u32, of_warp.capacity() as u32);
        let all_products = self.member.team.features * products;
        let all_components = (self.member.team.components * capacity).max(1);
        counted!(for v in (thread_idx()..shape.sums() as u32).step_by(block_dim()) {
            let (row, component) = (v / all_components, v % all_components);
            // The warp of the team that holds the row. All warps hold the counts: the block takes those of the first.
            let (features, row) =
                if row < all_products { (row / products, row % products) } else { (0, row - all_products + products) };
            let rank = component / capacity * self.member.team.features + features;
            let place = (row * capacity + component % capacity) as usize;
            let mut sum = 0.0;
            counted!(for team in 0..self.member.teams {
                let warp = (team * self.member.team.warps() + rank) as usize;
                sum += f64::from(self.parts.get(warp * shape.part() + place));
            });
            add_u64(args.integers.add(v as usize), to_integer(sum * args.unit) as u64);
        });
    }
}

/// Returns the exponents of a group, unscaled and without constants. All lanes of the warp call it.
/// Safety: the coefficients are in shared memory.
#[inline(always)]
pub(super) unsafe fn exponents<const GAPS: bool, const P: usize, const S: usize, const N: usize>(
    block: &FusedBlock<GAPS, P, N>,
    packed: &[[Halves; 4]; S],
    transposed: &Features<GAPS, P>,
) -> Components<N> {
    let mut q = [[[0.0f32; 2]; 2]; N];
    counted!(for f in 0..S {
        let Split { high, low } = transposed.step(f);
        let short = Features::<GAPS, P>::is_short(f);
        if N == 1 {
            counted!(for s in 0..2 {
                let (high, low) = ([high[2 * s], high[2 * s + 1]], [low[2 * s], low[2 * s + 1]]);
                let of_low = if short { [0.0; 4] } else { mma([0.0; 4], packed[f], low) };
                let sum = mma(of_low, packed[f], high);
                counted!(for i in 0..2 {
                    let sum = sum[i] + sum[2 + i];
                    q[0][s][i] = if f == 0 { sum } else { q[0][s][i] + sum };
                });
            });
        } else {
            add_step(block, f, short, Split { high, low }, &mut q);
        }
    });
    q
}

/// Adds the products of step `f` times their coefficients to the exponents of a group, if there are pairs of tiles of
/// components. `short`: the low parts are zeros.
/// Safety: the coefficients are in shared memory.
#[inline(always)]
pub(super) unsafe fn add_step<const GAPS: bool, const P: usize, const N: usize>(
    block: &FusedBlock<GAPS, P, N>,
    f: usize,
    short: bool,
    transposed: Split,
    q: &mut Components<N>,
) {
    let Split { high, low } = transposed;
    counted!(for pair in 0..N / 2 {
        let [a, a_low] = block.of_pair(f, pair);
        counted!(for s in 0..2 {
            let (high, low) = ([high[2 * s], high[2 * s + 1]], [low[2 * s], low[2 * s + 1]]);
            // Small products first; the product of both low parts is left out.
            let sum = mma([0.0; 4], a_low, high);
            let sum = if short { sum } else { mma(sum, a, low) };
            let sum = mma(sum, a, high);
            counted!(for i in 0..4 {
                let q = &mut q[2 * pair + i / 2][s][i % 2];
                *q = if f == 0 { sum[i] } else { *q + sum[i] };
            });
        });
    });
}

/// The integer part of a number below 2^62.
#[inline(always)]
fn to_integer(x: f64) -> i64 {
    // SAFETY: in range. (A checked conversion needs another comparison.)
    unsafe { x.to_int_unchecked() }
}
