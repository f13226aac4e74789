//! The code of the `fused_mma` kernels.
mod expanded;
mod full;

use super::*;
use crate::data::QUAD;
use crate::estep::products_mma::{FEATURE_SCALE, RESPONSIBILITY_SCALE};
use crate::likelihood::small_k::THRESHOLD;
use crate::math::{Float, LogProduct};
use crate::simt::*;
pub use expanded::*;
pub use full::*;

/// Numbers of a lane for its four of a group's samples: the first two of its quad, then the others.
type Quad = [[f32; 2]; 2];

/// Two float16 numbers one.
const ONES: Halves = 0x3c00_3c00;
/// [`FEATURE_SCALE`] twice.
const FEATURE_SCALES: Halves = 0x4c00_4c00;
const _: () = assert!(FEATURE_SCALE == 16.0);
/// [`OBSERVED`] twice.
const OBSERVED_TWICE: Halves = 0x5c00_5c00;
const _: () = assert!(OBSERVED == 256.0);

/// The products of a step for a group of samples as an operand of [`mma`], each in two float16
/// numbers. The first and the third are of the step's first eight products; the first two are of
/// the first two samples of the lane's quad.
#[derive(Clone, Copy)]
struct Split {
    high: [Halves; 4],
    low: [Halves; 4],
}

impl Split {
    const ZERO: Self = Self { high: [0; 4], low: [0; 4] };

    /// From two features of the lane's quad.
    #[inline(always)]
    fn new(x: [[f32; QUAD]; 2]) -> Self {
        let mut split = Self::ZERO;
        counted!(for i in 0..4 {
            let (feature, first) = (i % 2, i / 2 * 2);
            let (a, b) = (x[feature][first], x[feature][first + 1]);
            // Scaled after the rounding, and what is left of the scaled number: as exact as the
            // other way round, and shorter.
            let high = multiply_halves(round_halves(a, b), FEATURE_SCALES);
            let [high_a, high_b] = widen_halves(high);
            split.high[i] = high;
            split.low[i] = round_halves(fma_minus(FEATURE_SCALE, a, high_a), fma_minus(FEATURE_SCALE, b, high_b));
        });
        split
    }

    /// The squares. The rounding error of the high part is a float16 number itself; the square of
    /// the low part is left out.
    #[inline(always)]
    fn square(self) -> Self {
        let mut split = self;
        counted!(for i in 0..4 {
            let (high, low) = (self.high[i], self.low[i]);
            let square = multiply_halves(high, high);
            let rest = fma_minus_halves(high, high, square);
            (split.high[i], split.low[i]) = (square, fma_halves(low, high, fma_halves(high, low, rest)));
        });
        split
    }
}

/// The features of a group of samples, of all pairs of tiles. `GAPS`: values may be missing.
#[derive(Clone, Copy)]
struct Features<const GAPS: bool, const P: usize> {
    x: [Split; P],
    /// [`OBSERVED`], or 0 where a value is missing; in the order of `x`.
    observed: [[Halves; 4]; P],
}

impl<const GAPS: bool, const P: usize> Features<GAPS, P> {
    const ZERO: Self = Self { x: [Split::ZERO; P], observed: [[0; 4]; P] };

    /// From features of which the missing ones are NaN in both parts.
    #[inline(always)]
    fn new(mut x: [Split; P]) -> Self {
        let mut observed = [[0; 4]; P];
        let mut i = 0;
        while GAPS && i < 4 * P {
            let (high, low) = (&mut x[i / 4].high[i % 4], &mut x[i / 4].low[i % 4]);
            // Without its sign NaN is above infinity, 0x7c00: the sum is 0x8000 or more.
            let nan = ((*high & 0x7fff_7fff) + 0x03ff_03ff) & 0x8000_8000;
            let missing = nan | (nan - (nan >> 15));
            (*high, *low) = (*high & !missing, *low & !missing);
            observed[i / 4][i % 4] = OBSERVED_TWICE & !missing;
            i += 1;
        }
        Self { x, observed }
    }

    /// Step `s` of products: features, then squares, then what is observed.
    #[inline(always)]
    fn step(&self, s: usize) -> Split {
        let kinds = if GAPS { 3 } else { 2 };
        match s % kinds {
            0 => self.x[s / kinds],
            1 => self.x[s / kinds].square(),
            _ => Split { high: self.observed[s / kinds], low: [0; 4] },
        }
    }

    /// Whether the low parts of a step are zeros.
    #[inline(always)]
    const fn is_short(s: usize) -> bool {
        GAPS && s % 3 == 2
    }
}

/// The place of a warp in its team, and of that in the block.
#[derive(Clone, Copy)]
struct Member {
    team: Team,
    /// Whether the kernel is one for teams, and for teams that share features: constants of it.
    of_team: bool,
    adds_exponents: bool,
    /// Whether samples are fetched into the cache a round before they are read: where a round takes
    /// so long that this does not hold up its own samples.
    fetches_ahead: bool,
    /// Teams of the block, and which one it is.
    teams: u32,
    number: u32,
    /// Which part of the features it has, and which part of the components.
    features: u32,
    components: u32,
}

impl Member {
    /// A warp that works alone.
    #[inline(always)]
    fn alone(_: Team) -> Self {
        let (teams, number) = (block_dim() / WARP, thread_idx() / WARP);
        Self {
            team: Team::ONE,
            of_team: false,
            adds_exponents: false,
            fetches_ahead: false,
            teams,
            number,
            features: 0,
            components: 0,
        }
    }

    /// One of a team that shares features.
    #[inline(always)]
    fn of_features(team: Team) -> Self {
        Self { fetches_ahead: false, ..Self::of(Team { components: 1, ..team }, true) }
    }

    /// One of a team that shares components.
    #[inline(always)]
    fn of_components(team: Team) -> Self {
        Self::of(Team { features: 1, ..team }, false)
    }

    /// One of a team that shares both.
    #[inline(always)]
    fn of_both(team: Team) -> Self {
        Self::of(team, true)
    }

    #[inline(always)]
    fn of(team: Team, adds_exponents: bool) -> Self {
        // No part is none, which spares the checks of the divisions.
        let team = Team { features: team.features.max(1), components: team.components.max(1) };
        let (warps, warp) = (team.warps().max(1), thread_idx() / WARP);
        let rank = warp % warps;
        Self {
            team,
            of_team: true,
            adds_exponents,
            fetches_ahead: true,
            teams: block_dim() / WARP / warps,
            number: warp / warps,
            features: rank % team.features,
            components: rank / team.features,
        }
    }

    /// The warp of the block that has these parts of this warp's samples.
    #[inline(always)]
    fn other(&self, features: u32, components: u32) -> usize {
        (self.number * self.team.warps() + components * self.team.features + features) as usize
    }

    /// The barrier of its team, and how many threads that has.
    #[inline(always)]
    fn barrier(&self) -> u32 {
        1 + self.number
    }

    #[inline(always)]
    fn threads(&self) -> u32 {
        self.team.warps() * WARP
    }

    /// Whether it is the first of its team.
    #[inline(always)]
    fn is_first(&self) -> bool {
        self.features == 0 && self.components == 0
    }
}

/// A block's shared memory, and the warp's part in it. `GAPS`: values may be missing; `P`: pairs of
/// tiles of features; `N`: tiles of components.
struct FusedBlock<const GAPS: bool, const P: usize, const N: usize> {
    shape: FusedShape,
    member: Member,
    /// One tile of components: the coefficients (products, capacity). More: both parts of them in
    /// float16, as lanes take them: (parts of the components, parts of the features, steps of a
    /// warp, pairs of tiles of a warp, 2, lanes, 4).
    coefficients: Shared<f32>,
    /// (parts of the components, [`CONSTANTS`], capacity of a warp).
    constants: Shared<f32>,
    /// The lane's in both, of the warp's part.
    own_coefficients: Shared<Halves>,
    own_constants: Shared<f32>,
    /// The parts of the warps.
    parts: Shared<f32>,
    /// The warp's own: two places to transpose all features in.
    transposed: Shared<Halves>,
}

impl<const GAPS: bool, const P: usize, const N: usize> FusedBlock<GAPS, P, N> {
    /// `of_warp`: the shape of a warp.
    #[inline(always)]
    fn new(of_warp: FusedShape, member: Member) -> Self {
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

    /// The memory behind the parts of all warps.
    #[inline(always)]
    fn behind_parts(&self) -> Shared<f32> {
        self.parts.offset((block_dim() / WARP) as usize * self.shape.part())
    }

    /// A place of a warp's for its parts of a group's exponents.
    #[inline(always)]
    fn exponents(&self, warp: usize, place: usize) -> Shared<f32> {
        let before = self.shape.transposed() + place * self.shape.exchanged_exponents();
        self.parts.offset(warp * self.shape.part() + before)
    }

    /// A place of a warp's for the likelihoods of its components.
    #[inline(always)]
    fn likelihoods(&self, warp: usize, place: usize) -> Shared<f32> {
        let before = 2 * self.shape.exchanged_exponents() + place * self.shape.exchanged_likelihoods();
        self.parts.offset(warp * self.shape.part() + self.shape.transposed() + before)
    }

    /// Fills the shared memory with the parameters. All threads of the block call it.
    ///
    /// # Safety
    /// The shared memory is not in use; the parameters are where the arguments say.
    #[inline(always)]
    unsafe fn begin(&self, args: &FusedMmaArgs) {
        // An instance that takes them by value is not for teams: all of this is constant.
        let of_warp = self.shape.of_warp();
        if of_warp.by_value() {
            let numbers = of_warp.numbers();
            // The first lanes of eight warps, or of fewer, share them. The places are constants: an
            // index computed at run time would put the arguments into local memory.
            const SHARES: usize = 8;
            counted!(for share in 0..SHARES {
                let taker = if (share as u32) < block_dim() / WARP { share as u32 } else { 0 };
                if taker * WARP == thread_idx() {
                    counted!(for i in numbers * share / SHARES..numbers * (share + 1) / SHARES {
                        // SAFETY: inside.
                        unsafe { self.coefficients.set(i, args.by_value[i]) };
                    });
                }
            });
            return;
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.load_constants(args) };
        if N == 1 {
            counted!(for i in (thread_idx() as usize..self.shape.coefficients()).step_by(block_dim() as usize) {
                // SAFETY: inside.
                unsafe { self.coefficients.set(i, load(args.parameters.add(i))) };
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
                unsafe { split_halves(load(from), load(from.add(capacity))) }
            };
            let parts = [both(0, 0), both(0, TILE), both(TILE, 0), both(TILE, TILE)];
            let to = self.coefficients.cast::<Halves>().offset(2 * 4 * (i - lane) as usize + 4 * lane as usize);
            // SAFETY: inside; places that only this thread uses.
            unsafe {
                to.set4(0, [parts[0][0], parts[1][0], parts[2][0], parts[3][0]]);
                to.set4(4 * WARP as usize, [parts[0][1], parts[1][1], parts[2][1], parts[3][1]]);
            }
        });
    }

    /// Fills the constants. All threads of the block call it.
    ///
    /// # Safety
    /// As [`Self::begin`].
    #[inline(always)]
    unsafe fn load_constants(&self, args: &FusedMmaArgs) {
        let (capacity, of_warp) = (self.shape.capacity() as u32, (N * TILE) as u32);
        counted!(for i in (thread_idx()..CONSTANTS as u32 * capacity).step_by(block_dim()) {
            let (part, constant, component) =
                (i / of_warp / CONSTANTS as u32, i / of_warp % CONSTANTS as u32, i % of_warp);
            let from = self.shape.coefficients() + (constant * capacity + part * of_warp + component) as usize;
            // SAFETY: inside.
            unsafe { self.constants.set(i as usize, load(args.parameters.add(from))) };
        });
    }

    /// The lane's coefficients of a step where there is one tile of components: the high parts are
    /// the first eight rows.
    ///
    /// # Safety
    /// They are in shared memory.
    #[inline(always)]
    unsafe fn packed(&self, step: usize) -> [Halves; 4] {
        let step = self.member.features as usize * self.shape.of_warp().steps() + step;
        let lane = (thread_idx() % WARP) as usize;
        let from = self.coefficients.offset((STEP * step + 2 * (lane % 4)) * TILE + lane / 4);
        // SAFETY: the caller guarantees it.
        let (first, second) = unsafe {
            (
                split_halves(from.get(0), from.get(TILE)),
                split_halves(from.get(TILE * TILE), from.get(TILE * TILE + TILE)),
            )
        };
        [first[0], first[1], second[0], second[1]]
    }

    /// Features of a group of samples, transposed: from the first operand of [`mma`] (features by
    /// samples) to the second (the first two numbers for the first eight samples, the others for
    /// the others). All lanes of the warp call it, in turn with `place` 0 and 1.
    ///
    /// # Safety
    /// No lane reads that place.
    #[inline(always)]
    unsafe fn transpose(&self, place: usize, x: &[Split; P]) -> [Split; P] {
        let lane = (thread_idx() % WARP) as usize;
        let matrices = self.transposed.offset(place * P * TRANSPOSED);
        counted!(for p in 0..P {
            counted!(for m in 0..4 {
                let to = matrices.offset(p * TRANSPOSED + m * WARP as usize + lane);
                // SAFETY: a place for each lane.
                unsafe {
                    to.set(0, x[p].high[m]);
                    to.set(TRANSPOSED / 2, x[p].low[m]);
                }
            });
        });
        warp_sync();
        let mut transposed = [Split::ZERO; P];
        counted!(for p in 0..P {
            let from = matrices.offset(p * TRANSPOSED + 4 * lane);
            // SAFETY: rows of eight numbers, which all lanes have written.
            unsafe {
                (transposed[p].high, transposed[p].low) =
                    (from.matrices_transposed(0), from.matrices_transposed(TRANSPOSED / 2))
            };
        });
        transposed
    }

    /// The lane's coefficients of a step and a pair of tiles of components, high parts and low ones.
    ///
    /// # Safety
    /// They are in shared memory.
    #[inline(always)]
    unsafe fn of_pair(&self, step: usize, pair: usize) -> [[Halves; 4]; 2] {
        let from = self.own_coefficients.offset(2 * (step * (N / 2) + pair) * 4 * WARP as usize);
        // SAFETY: the caller guarantees it.
        unsafe { [from.get4(0), from.get4(4 * WARP as usize)] }
    }

    /// Constant `i` of the components `lane / 4` of each tile.
    ///
    /// # Safety
    /// They are in shared memory.
    #[inline(always)]
    unsafe fn constant(&self, i: usize, tile: usize) -> f32 {
        // SAFETY: the caller guarantees it.
        unsafe { self.own_constants.get((i * N + tile) * TILE) }
    }

    /// Adds the parts of a group's exponents that the warps of the team have, in the order of their
    /// features: each warp has the same sums then. All threads of the team call it, in turn with
    /// `place` 0 and 1; each of them has read a place before it comes to the next barrier.
    ///
    /// # Safety
    /// The block has the shared memory of its shape.
    #[inline(always)]
    unsafe fn add_exponents(&self, place: usize, q: &mut Components<N>) {
        let of = |warp: usize| self.exponents(warp, place).offset(QUAD * (thread_idx() % WARP) as usize);
        let own = of((thread_idx() / WARP) as usize);
        counted!(for n in 0..N {
            // SAFETY: a place for each lane.
            unsafe { own.set4(n * QUAD * WARP as usize, [q[n][0][0], q[n][0][1], q[n][1][0], q[n][1][1]]) };
        });
        barrier!(self.member.barrier(), self.member.threads());
        let mut from = of(self.member.other(0, self.member.components));
        let mut parts = self.member.team.features;
        *q = [[[0.0; 2]; 2]; N];
        while parts > 0 {
            counted!(for n in 0..N {
                // SAFETY: the barrier made them visible.
                let [a, b, c, d] = unsafe { from.get4(n * QUAD * WARP as usize) };
                q[n] = [[q[n][0][0] + a, q[n][0][1] + b], [q[n][1][0] + c, q[n][1][1] + d]];
            });
            from = from.offset(self.shape.part());
            parts -= 1;
        }
    }

    /// Makes the sums of a warp's likelihoods those of its team, over all components; returns what
    /// the warp's own likelihoods are to be multiplied by to be those to the same power. Called as
    /// [`Self::add_exponents`].
    ///
    /// # Safety
    /// The block has the shared memory of its shape.
    #[inline(always)]
    unsafe fn add_likelihoods<const G: usize>(&self, place: usize, likelihoods: &mut Likelihoods<N, G>) -> [f32; G] {
        let of = |warp: usize| self.likelihoods(warp, place).offset(2 * own_sample() as usize);
        let own = of((thread_idx() / WARP) as usize);
        counted!(for g in 0..G {
            // SAFETY: a place for each sample; two lanes write the same numbers.
            unsafe {
                own.set(2 * SAMPLES * g, likelihoods.power[g]);
                own.set(2 * SAMPLES * g + 1, likelihoods.sum[g]);
            }
        });
        barrier!(self.member.barrier(), self.member.threads());
        let mut factors = [1.0; G];
        counted!(for g in 0..G {
            let mut power = likelihoods.power[g];
            counted!(for part in 0..self.member.team.components {
                // SAFETY: the barrier made them visible.
                power = max(power, unsafe { of(self.member.other(self.member.features, part)).get(2 * SAMPLES * g) });
            });
            let mut sum = 0.0;
            counted!(for part in 0..self.member.team.components {
                let from = of(self.member.other(self.member.features, part));
                // SAFETY: as above.
                let other = unsafe { [from.get(2 * SAMPLES * g), from.get(2 * SAMPLES * g + 1)] };
                sum += other[1] * exp2(other[0] - power);
            });
            factors[g] = exp2(likelihoods.power[g] - power);
            (likelihoods.sum[g], likelihoods.power[g]) = (sum, power);
        });
        likelihoods.far = true;
        factors
    }

    /// Adds up the sums of all teams of the block in float64, and adds them to those of all blocks.
    ///
    /// # Safety
    /// All threads of the block call it; the sums are visible and have their places.
    #[inline(always)]
    unsafe fn add_teams(&self, args: &FusedMmaArgs) {
        let (shape, of_warp) = (self.shape, self.shape.of_warp());
        let (products, capacity) = (of_warp.products() as u32, of_warp.capacity() as u32);
        let all_products = self.member.team.features * products;
        let all_components = (self.member.team.components * capacity).max(1);
        counted!(for v in (thread_idx()..shape.sums() as u32).step_by(block_dim()) {
            let (row, component) = (v / all_components, v % all_components);
            // The warp of the team that has them; of counts, which all of them have, the first.
            let (features, row) =
                if row < all_products { (row / products, row % products) } else { (0, row - all_products + products) };
            let rank = component / capacity * self.member.team.features + features;
            let place = (row * capacity + component % capacity) as usize;
            let mut sum = 0.0;
            counted!(for team in 0..self.member.teams {
                let warp = (team * self.member.team.warps() + rank) as usize;
                // SAFETY: the caller guarantees it.
                sum += f64::from(unsafe { self.parts.get(warp * shape.part() + place) });
            });
            // SAFETY: as above.
            unsafe { add_u64(args.integers.add(v as usize), to_integer(sum * args.unit) as u64) };
        });
    }
}

/// Combines a lane's four numbers with those of the seven lanes that have the same samples, and
/// leaves in each lane the result for one sample, [`own_sample`].
#[inline(always)]
fn scatter(v: Quad, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let lane = thread_idx();
    let upper = lane & 16 != 0;
    let (keep, give) = if upper { (v[1], v[0]) } else { (v[0], v[1]) };
    let v = [combine(keep[0], give[0].shuffle_xor(16)), combine(keep[1], give[1].shuffle_xor(16))];
    let upper = lane & 8 != 0;
    let (keep, give) = if upper { (v[1], v[0]) } else { (v[0], v[1]) };
    let v = combine(keep, give.shuffle_xor(8));
    combine(v, v.shuffle_xor(4))
}

/// The inverse: numbers of each lane's one sample, for all lanes that have it.
#[inline(always)]
fn gather(v: f32) -> Quad {
    let lane = thread_idx();
    let other = v.shuffle_xor(8);
    let v = if lane & 8 != 0 { [other, v] } else { [v, other] };
    let other = [v[0].shuffle_xor(16), v[1].shuffle_xor(16)];
    if lane & 16 != 0 { [other, v] } else { [v, other] }
}

/// The sample of a group whose likelihood this lane has: two lanes have each.
#[inline(always)]
fn own_sample() -> u32 {
    let lane = thread_idx() % WARP;
    4 * (lane % 4) + 2 * (lane / 16) + lane / 8 % 2
}

/// What a lane has of a group's exponents and likelihoods: of the component `lane / 4` of each
/// tile.
type Components<const N: usize> = [Quad; N];

/// The sums of a lane.
struct RoundSums<const S: usize, const N: usize> {
    /// Of each step and tile of components, as [`mma`] gives them: products by components.
    products: [[[f32; 4]; N]; S],
    /// Of the component `lane / 4` of each tile, over the lane's samples.
    counts: [f32; N],
    /// Of the rounded responsibilities of two components of each tile, in all rows of lanes.
    rounded: [[f32; 2]; N],
}

impl<const S: usize, const N: usize> RoundSums<S, N> {
    #[inline(always)]
    fn new() -> Self {
        Self { products: [[[0.0; 4]; N]; S], counts: [0.0; N], rounded: [[0.0; 2]; N] }
    }

    /// Counts responsibilities of G groups, and rounds them for [`Self::add`].
    #[inline(always)]
    fn count<const G: usize>(&mut self, r: &[Components<N>; G]) -> [[[Halves; 2]; N]; G] {
        let mut rounded = [[[0; 2]; N]; G];
        counted!(for n in 0..N {
            let mut sum = [0.0; 4];
            counted!(for g in 0..G {
                let r = r[g][n];
                self.counts[n] += (r[0][0] + r[0][1]) + (r[1][0] + r[1][1]);
                rounded[g][n] = [round_halves(r[0][0], r[0][1]), round_halves(r[1][0], r[1][1])];
                sum = mma(sum, [ONES; 4], rounded[g][n]);
            });
            self.rounded[n] = [self.rounded[n][0] + sum[0], self.rounded[n][1] + sum[1]];
        });
        rounded
    }

    /// Adds the responsibilities of G groups times their products of step `s`; `short`: whose low
    /// parts are zeros.
    #[inline(always)]
    fn add<const G: usize>(&mut self, s: usize, short: bool, products: &[Split; G], r: &[[[Halves; 2]; N]; G]) {
        counted!(for n in 0..N {
            let mut sum = [0.0; 4];
            let mut g = 0;
            while !short && g < G {
                sum = mma(sum, products[g].low, r[g][n]);
                g += 1;
            }
            counted!(for g in 0..G {
                sum = mma(sum, products[g].high, r[g][n]);
            });
            counted!(for i in 0..4 {
                self.products[s][n][i] += sum[i];
            });
        });
    }

    /// Moves the sums of the warp to shared memory, (products + 2, capacity), and leaves zeros. All
    /// lanes of the warp call it.
    ///
    /// # Safety
    /// The places exist, and no other thread uses them.
    #[inline(always)]
    unsafe fn take(&mut self, to: Shared<f32>) {
        let lane = (thread_idx() % WARP) as usize;
        let capacity = N * TILE;
        counted!(for n in 0..N {
            let of_tile = to.offset(n * TILE);
            let two = of_tile.offset(2 * (lane % 4));
            counted!(for s in 0..S {
                counted!(for i in 0..4 {
                    let row = STEP * s + lane / 4 + TILE * (i / 2);
                    // SAFETY: the caller guarantees it.
                    unsafe { two.set(row * capacity + i % 2, self.products[s][n][i]) };
                });
            });
            let mut count = self.counts[n];
            count += count.shuffle_xor(1);
            count += count.shuffle_xor(2);
            let row = S * STEP * capacity;
            // SAFETY: the caller guarantees it.
            unsafe {
                if lane.is_multiple_of(4) {
                    of_tile.set(row + lane / 4, count);
                }
                if lane < 4 {
                    two.set(row + capacity, self.rounded[n][0]);
                    two.set(row + capacity + 1, self.rounded[n][1]);
                }
            }
        });
        *self = Self::new();
    }
}

/// A warp's samples on their way to it: of each group a quad of each feature of the lane's.
struct RoundSamples<const P: usize, const H: usize> {
    x: [[[[f32; QUAD]; 2]; P]; H],
}

impl<const P: usize, const H: usize> RoundSamples<P, H> {
    /// Starts to read a group: its first quad is `first`.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given.
    #[inline(always)]
    unsafe fn fetch(&mut self, group: usize, rounds: &Rounds<'_>, first: u32) {
        // SAFETY: the caller guarantees it.
        unsafe { self.fetch_from(rounds.member.features * (P * STEP) as u32, group, rounds, first) };
    }

    /// The same of the features from `of_warp` on.
    ///
    /// # Safety
    /// As [`Self::fetch`].
    #[inline(always)]
    unsafe fn fetch_from(&mut self, of_warp: u32, group: usize, rounds: &Rounds<'_>, first: u32) {
        let (args, columns, lane) = (rounds.args, &rounds.args.columns, thread_idx() % WARP);
        let last = columns.quads() - 1;
        let quad = first + lane % 4;
        // Past the end the last quad is read again, and not counted.
        let quad = if quad < last { quad } else { last };
        counted!(for f in 0..2 * P {
            let feature = of_warp + lane / 4 + (TILE * f) as u32;
            // Behind D the last feature is read again, and has coefficients of zero.
            let feature = if feature < args.d { feature } else { args.d - 1 };
            let from = columns.quad(quad, feature as usize);
            // SAFETY: the feature and the quad exist.
            self.x[group][f / 2][f % 2] = unsafe { load4(from, rounds.policy()) };
            if rounds.member.fetches_ahead {
                // What is read behind a barrier is needed soon: it is to be in the cache by then.
                let ahead = if quad + rounds.step < last { rounds.step } else { 0 };
                // SAFETY: as above.
                unsafe { prefetch(from.wrapping_add(QUAD * ahead as usize)) };
            }
        });
    }
}

impl<const P: usize, const H: usize> RoundSamples<P, H> {
    /// The features of a group that has arrived, of which `left` samples exist.
    #[inline(always)]
    fn take(&mut self, group: usize, left: u32) -> [Split; P] {
        self.clear_behind(group, left);
        let mut features = [Split::ZERO; P];
        counted!(for p in 0..P {
            features[p] = Split::new(self.x[group][p]);
        });
        features
    }

    /// Writes zeros in the place of samples that do not exist: behind the last there may be anything.
    #[inline(always)]
    fn clear_behind(&mut self, group: usize, left: u32) {
        let x = &mut self.x[group];
        if left < SAMPLES as u32 {
            counted!(for i in 0..2 * P * QUAD {
                let sample = QUAD as u32 * (thread_idx() % 4) + (i % QUAD) as u32;
                let x = &mut x[i / QUAD / 2][i / QUAD % 2][i % QUAD];
                *x = if sample < left { *x } else { 0.0 };
            });
        }
    }
}

/// Likelihoods of the samples of G groups.
struct Likelihoods<const N: usize, const G: usize> {
    /// Of each of the lane's components.
    each: [Components<N>; G],
    /// Of the lane's own sample, over all components; times 2^−`power`, like the others.
    sum: [f32; G],
    power: [f32; G],
    /// Whether the maximum was taken out.
    far: bool,
}

impl<const N: usize, const G: usize> Likelihoods<N, G> {
    /// From exponents and weights. All lanes of the warp call it.
    #[inline(always)]
    fn new(q: &[Components<N>; G], weights: &[f32; N]) -> Self {
        let mut likelihoods = Self { each: *q, sum: [0.0; G], power: [0.0; G], far: N > 1 };
        if N == 1 {
            let mut low = f32::MAX;
            counted!(for g in 0..G {
                likelihoods.sum[g] = sum(&mut likelihoods.each[g], weights, [[0.0; 2]; 2]);
                low = min(low, likelihoods.sum[g]);
            });
            likelihoods.far = warp_any(low < THRESHOLD);
        }
        if likelihoods.far {
            counted!(for g in 0..G {
                let mut top = q[g][0];
                counted!(for i in QUAD..N * QUAD {
                    let top = &mut top[i / 2 % 2][i % 2];
                    *top = max(*top, q[g][i / QUAD][i / 2 % 2][i % 2]);
                });
                likelihoods.power[g] = scatter(top, max);
                likelihoods.each[g] = q[g];
                likelihoods.sum[g] = sum(&mut likelihoods.each[g], weights, gather(likelihoods.power[g]));
            });
        }
        likelihoods
    }
}

/// Makes likelihoods of a group's exponents less `power`, and adds them up.
#[inline(always)]
fn sum<const N: usize>(q: &mut Components<N>, weights: &[f32; N], power: Quad) -> f32 {
    let mut sums = [[0.0; 2]; 2];
    counted!(for n in 0..N {
        counted!(for p in 0..QUAD {
            let (a, b) = (p / 2, p % 2);
            q[n][a][b] = weights[n] * exp2(q[n][a][b] - power[a][b]);
            sums[a][b] = if n == 0 { q[n][a][b] } else { sums[a][b] + q[n][a][b] };
        });
    });
    scatter(sums, |a, b| a + b)
}

/// What the rounds of a warp share.
struct Rounds<'a> {
    args: &'a FusedMmaArgs,
    member: Member,
    /// Quads from one round of the team to the next, and of one.
    step: u32,
    round: u32,
    /// First quad of the block's round.
    first: u32,
    /// Quads of which all samples exist, and samples behind them.
    whole: u32,
    rest: u32,
    policies: [CachePolicy; 2],
    product: LogProduct,
}

impl<'a> Rounds<'a> {
    #[inline(always)]
    fn new(args: &'a FusedMmaArgs, member: Member, groups: usize) -> Self {
        let round = (groups * SAMPLES / QUAD) as u32;
        let of_block = member.teams * round;
        Self {
            args,
            member,
            step: grid_dim() * of_block,
            round,
            first: block_idx() * of_block,
            whole: (args.columns.n / QUAD as u64) as u32,
            rest: (args.columns.n % QUAD as u64) as u32,
            policies: [policy_keep(), policy_stream()],
            product: LogProduct::new(),
        }
    }

    /// First quad of the team's group `h` in this round.
    #[inline(always)]
    fn group(&self, h: usize) -> u32 {
        self.first + self.member.number * self.round + h as u32 * GROUP
    }

    /// Whether there are no more samples for any thread of the block.
    #[inline(always)]
    fn done(&self) -> bool {
        self.first >= self.args.columns.quads()
    }

    /// The same for all threads of a block.
    #[inline(always)]
    fn policy(&self) -> CachePolicy {
        if self.first < self.args.columns.cached_quads { self.policies[0] } else { self.policies[1] }
    }

    /// How many samples of a group exist.
    #[inline(always)]
    fn left(&self, group: u32) -> u32 {
        if group + GROUP <= self.whole {
            SAMPLES as u32
        } else if group <= self.whole {
            QUAD as u32 * (self.whole - group) + self.rest
        } else {
            0
        }
    }

    /// Responsibilities, times the samples' weights and [`RESPONSIBILITY_SCALE`], from exponents of
    /// G groups, the first of which is group `h` of the round; adds up the logarithms of the
    /// likelihoods. All threads of the team call it, in turn with `place` 0 and 1.
    ///
    /// # Safety
    /// The pointers of the arguments are valid.
    #[inline(always)]
    unsafe fn respond<const GAPS: bool, const P: usize, const N: usize, const G: usize>(
        &mut self,
        block: &FusedBlock<GAPS, P, N>,
        place: usize,
        q: &[Components<N>; G],
        weights: &[f32; N],
        h: usize,
    ) -> [Components<N>; G] {
        let mut likelihoods = Likelihoods::new(q, weights);
        let mut factor = [1.0; G];
        if self.member.team.components > 1 {
            // SAFETY: the caller guarantees it.
            factor = unsafe { block.add_likelihoods(place, &mut likelihoods) };
        }
        let Likelihoods { mut each, mut sum, mut power, far } = likelihoods;
        counted!(for g in 0..G {
            factor[g] *= RESPONSIBILITY_SCALE * reciprocal(sum[g]);
            let left = self.left(self.group(h + g));
            if left < SAMPLES as u32 && own_sample() >= left {
                (sum[g], power[g], factor[g]) = (1.0, 0.0, 0.0);
            }
        });
        if !self.args.sample_weights.is_null() {
            counted!(for g in 0..G {
                let group = self.group(h + g);
                let mut weight = 0.0;
                if own_sample() < self.left(group) {
                    let sample = QUAD * group as usize + own_sample() as usize;
                    // SAFETY: weights of all samples.
                    weight = unsafe { load(self.args.sample_weights.add(sample)) };
                }
                factor[g] *= weight;
                self.product.multiply_scaled(weight * (power[g] + log2(sum[g])), 1.0);
            });
        } else if far {
            counted!(for g in 0..G {
                self.product.multiply_scaled(power[g], sum[g]);
            });
        } else {
            // Two sums above the threshold still make a normal product.
            self.product.multiply(if G == 2 { sum[0] * sum[G - 1] } else { sum[0] });
        }
        counted!(for g in 0..G {
            let factors = gather(factor[g]);
            counted!(for n in 0..N {
                counted!(for p in 0..QUAD {
                    each[g][n][p / 2][p % 2] *= factors[p / 2][p % 2];
                });
            });
        });
        each
    }

    /// Ends the launch: each block leaves its log-likelihood, and the last one to do so writes all
    /// sums. All threads of all blocks call it.
    ///
    /// # Safety
    /// The start of the shared memory is free; `count` sums have their places.
    #[inline(always)]
    unsafe fn finish(self, count: usize) {
        // Two lanes of each warp of a team have each sample.
        let product = if thread_idx() & 4 == 0 && self.member.is_first() { self.product } else { LogProduct::new() };
        let args = self.args;
        let write = || {
            counted!(for v in (thread_idx() as usize..count).step_by(block_dim() as usize) {
                let from = args.integers.wrapping_add(v);
                // SAFETY: the caller guarantees it; all blocks have added theirs.
                unsafe {
                    let sum = load_fresh(from.cast_const().cast()).to_bits() as i64;
                    store(from, 0);
                    publish(args.sums.add(v), sum as f64 / args.unit);
                }
            });
        };
        // SAFETY: the caller guarantees it.
        unsafe { args.output.finish_with(product, write) };
    }
}

/// Quads of a group.
const GROUP: u32 = (SAMPLES / QUAD) as u32;

/// Features and squares. `P`: pairs of tiles of features; `S`: steps of products; `N`: tiles of
/// components; `H`: groups of a round, of which a warp computes `G` side by side.
#[inline(always)]
unsafe fn diagonal<const GAPS: bool, const P: usize, const S: usize, const N: usize, const H: usize, const G: usize>(
    args: &FusedMmaArgs,
    member: Member,
) {
    let mut rounds = Rounds::new(args, member, H);
    let mut samples = RoundSamples::<P, H> { x: [[[[0.0; QUAD]; 2]; P]; H] };
    counted!(for h in 0..H {
        // SAFETY: the caller guarantees it.
        unsafe { samples.fetch(h, &rounds, rounds.group(h)) };
    });
    let block = FusedBlock::<GAPS, P, N>::new(FusedShape::diagonal(P, N, GAPS), member);
    // SAFETY: the start: the shared memory is free.
    unsafe { block.begin(args) };
    barrier!();
    let mut packed = [[0; 4]; S];
    let (mut scales, mut constants, mut weights) = ([0.0; N], [0.0; N], [0.0; N]);
    if N == 1 {
        counted!(for s in 0..S {
            // SAFETY: the barrier made them visible.
            packed[s] = unsafe { block.packed(s) };
        });
        // SAFETY: as above.
        (scales[0], constants[0], weights[0]) =
            unsafe { (block.constant(0, 0), block.constant(1, 0), block.constant(2, 0)) };
    }
    let mut sums = RoundSums::<S, N>::new();
    let mut since = 0;
    // The bounds are the same for all threads of a block, so that all of them meet at the barriers.
    // A block without samples leaves zeros.
    loop {
        counted!(for h in (0..H).step_by(G) {
            // Where a round has one turn, rounds take turns.
            let place = if H > G { h % 2 } else { since as usize % 2 };
            let mut features = [Features::<GAPS, P>::ZERO; G];
            let mut q = [[[[0.0f32; 2]; 2]; N]; G];
            counted!(for g in 0..G {
                let group = rounds.group(h + g);
                let x = samples.take(h + g, rounds.left(group));
                let of_group = if H > 1 { (h + g) % 2 } else { place };
                if !member.of_team {
                    // SAFETY: the caller guarantees it.
                    unsafe { samples.fetch(h + g, &rounds, group + rounds.step) };
                }
                // SAFETY: all lanes have met since that place was read.
                let transposed = unsafe { block.transpose(of_group, &x) };
                features[g] = Features::new(x);
                // SAFETY: the coefficients are in shared memory since the barrier.
                q[g] = unsafe { exponents(&block, &packed, &Features::new(transposed)) };
                if member.adds_exponents {
                    // SAFETY: as above; these teams have one group side by side.
                    unsafe { block.add_exponents(place, &mut q[g]) };
                }
            });
            counted!(for n in 0..N {
                if N > 1 {
                    // SAFETY: as above.
                    unsafe {
                        (scales[n], constants[n]) = (block.constant(0, n), block.constant(1, n));
                        weights[n] = block.constant(2, n);
                    }
                }
                counted!(for g in 0..G {
                    finish_exponents(&mut q[g][n], scales[n], constants[n]);
                });
            });
            // SAFETY: the caller guarantees it.
            let r = unsafe { rounds.respond(&block, place, &q, &weights, h) };
            counted!(for g in 0..G {
                if member.of_team {
                    // Behind the barriers: before, the compiler would have the warp wait for what it
                    // fetches where the paths with and without a team meet.
                    // SAFETY: the caller guarantees it.
                    unsafe { samples.fetch(h + g, &rounds, rounds.group(h + g) + rounds.step) };
                }
            });
            let r = sums.count(&r);
            counted!(for s in 0..S {
                let mut products = [Split::ZERO; G];
                counted!(for g in 0..G {
                    products[g] = features[g].step(s);
                });
                sums.add(s, Features::<GAPS, P>::is_short(s), &products, &r);
            });
        });
        rounds.first += rounds.step;
        since += 1;
        if since == FLUSH || rounds.done() {
            since = 0;
            // All warps have read what others left for them.
            barrier!();
            // SAFETY: the warp's part has room for its sums.
            unsafe { sums.take(block.transposed.cast()) };
            barrier!();
            // SAFETY: the barrier made them visible.
            unsafe { block.add_teams(args) };
            if rounds.done() {
                break;
            }
            barrier!();
        }
    }
    // SAFETY: the caller guarantees it.
    unsafe { rounds.finish(block.shape.sums()) };
}

/// Scales sums of products, and adds the constant of the component.
#[inline(always)]
fn finish_exponents(q: &mut Quad, scale: f32, constant: f32) {
    counted!(for p in 0..QUAD {
        q[p / 2][p % 2] = fma(q[p / 2][p % 2], scale, constant);
    });
}

/// Exponents of a group, less the constants and not scaled. All lanes of the warp call it.
///
/// # Safety
/// The coefficients are in shared memory.
#[inline(always)]
unsafe fn exponents<const GAPS: bool, const P: usize, const S: usize, const N: usize>(
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
            // SAFETY: the caller guarantees it.
            unsafe { add_step(block, f, short, Split { high, low }, &mut q) };
        }
    });
    q
}

/// Adds the products of step `f` times their coefficients to the exponents of a group, where there
/// are pairs of tiles of components; `short`: whose low parts are zeros.
///
/// # Safety
/// The coefficients are in shared memory.
#[inline(always)]
unsafe fn add_step<const GAPS: bool, const P: usize, const N: usize>(
    block: &FusedBlock<GAPS, P, N>,
    f: usize,
    short: bool,
    transposed: Split,
    q: &mut Components<N>,
) {
    let Split { high, low } = transposed;
    counted!(for pair in 0..N / 2 {
        // SAFETY: the caller guarantees it.
        let [a, a_low] = unsafe { block.of_pair(f, pair) };
        counted!(for s in 0..2 {
            let (high, low) = ([high[2 * s], high[2 * s + 1]], [low[2 * s], low[2 * s + 1]]);
            // The small products come first; the product of both low parts is left out.
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
    // SAFETY: in range. (A checked conversion takes a comparison more.)
    unsafe { x.to_int_unchecked() }
}

macro_rules! instances {
    ($($name:ident $gaps:literal $pairs:literal $components:literal $groups:literal $member:expr;)*) => { $(
        kernel! {
            /// Each block's log-likelihood and sufficient statistics.
            pub unsafe fn $name(args: FusedMmaArgs) {
                const SHAPE: FusedShape = FusedShape::diagonal($pairs, $components, $gaps);
                let member: Member = $member(args.team);
                // SAFETY: the caller guarantees it.
                unsafe {
                    diagonal::<$gaps, $pairs, { SHAPE.steps() }, $components, $groups, { SHAPE.side_by_side() }>(
                        &args, member,
                    )
                }
            }
        }
    )* };
}
// Whether values may be missing, pairs of tiles of features, tiles of components, groups of a round, and
// what the warps of a team may share.
instances! {
    fused_mma_d16_k08 false 1 1 2 Member::alone;
    fused_mma_observed_d16_k08 true 1 1 2 Member::alone;
    fused_mma_d32_k08 false 2 1 1 Member::alone;
    fused_mma_observed_d32_k08 true 2 1 1 Member::alone;
    fused_mma_d16_k16 false 1 2 2 Member::alone;
    fused_mma_observed_d16_k16 true 1 2 2 Member::alone;
    fused_mma_d32_k16 false 2 2 1 Member::alone;
    fused_mma_observed_d32_k16 true 2 2 1 Member::alone;
    fused_mma_d16_k32 false 1 4 2 Member::alone;
    fused_mma_observed_d16_k32 true 1 4 2 Member::alone;
    fused_mma_d32_k32 false 2 4 1 Member::alone;
    fused_mma_observed_d32_k32 true 2 4 1 Member::alone;
    fused_mma_d16_k64 false 1 8 2 Member::alone;
    fused_mma_d32_k64 false 2 8 1 Member::alone;
    fused_mma_team_d32_k08 false 2 1 1 Member::of_features;
    fused_mma_team_d32_k16 false 2 2 1 Member::of_features;
    fused_mma_team_d32_k32 false 2 4 1 Member::of_both;
    fused_mma_team_d16_k64 false 1 8 1 Member::of_components;
    fused_mma_team_d32_k64 false 2 8 1 Member::of_components;
    fused_mma_observed_team_d32_k08 true 2 1 1 Member::of_features;
    fused_mma_observed_team_d32_k16 true 2 2 1 Member::of_features;
    fused_mma_observed_team_d16_k32 true 1 4 1 Member::of_components;
    fused_mma_observed_team_d32_k32 true 2 4 1 Member::of_both;
}
