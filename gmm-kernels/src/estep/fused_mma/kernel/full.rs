//! Matrices, with at most 8 components per warp and 15 features.
//!
//! An exponent is a constant minus |A·x + b|². A product of the tensor cores computes one element of A·x + b for all
//! components: high parts of the coefficients are eight of its rows, low parts the other eight. Each lane adds up the
//! squares, so that no sum crosses lanes. b is the coefficient of the number one, the last of the 16 features.
//!
//! The statistics need products of two features: each feature j is multiplied by the one r places behind it, for r from
//! 0 to half of D; the first feature follows the last. So each lane multiplies its own features by those that it reads
//! from shared memory.
use super::*;
use crate::estep::products_mma::ONE;

/// Multiplies the features `x` of the lane's quad by `others`: high parts, then low parts.
#[inline(always)]
pub(super) fn multiply(x: Split, others: [[Halves; 4]; 2]) -> Split {
    let mut split = x;
    counted!(for i in 0..4 {
        let (high, low) = (others[i % 2][i / 2], others[i % 2][2 + i / 2]);
        let product = multiply_halves(x.high[i], high);
        let rest = fma_minus_halves(x.high[i], high, product);
        (split.high[i], split.low[i]) = (product, fma_halves(x.low[i], high, fma_halves(x.high[i], low, rest)));
    });
    split
}

/// The features of a warp's groups of samples, in rows.
struct Rows {
    rows: Shared<Halves>,
}

impl Rows {
    /// The address of a row of a group.
    #[inline(always)]
    fn row(&self, group: usize, row: usize) -> Shared<Halves> {
        self.rows.offset(group * ROTATED + row * SAMPLES + 4 * (thread_idx() % 4) as usize)
    }

    /// Writes zeros everywhere: some rows are never written.
    /// Safety: only this warp uses them.
    #[inline(always)]
    unsafe fn clear(&self) {
        counted!(for i in (4 * (thread_idx() % WARP) as usize..2 * ROTATED).step_by(4 * WARP as usize) {
            // SAFETY: inside.
            self.rows.set4(i, [0; 4]);
        });
    }

    /// Writes the lane's features of a group, as far as they are below D.
    /// Safety: no lane reads the group's rows.
    #[inline(always)]
    unsafe fn set(&self, group: usize, x: &Split, d: usize) {
        counted!(for f in 0..2 {
            let feature = (thread_idx() % WARP / 4) as usize + f * TILE;
            let both = [x.high[f], x.high[2 + f], x.low[f], x.low[2 + f]];
            if feature < d {
                // SAFETY: inside.
                self.row(group, feature).set4(0, both);
                if d + feature < ROTATED_ROWS {
                    self.row(group, d + feature).set4(0, both);
                }
            }
        });
    }

    /// Reads the features r places behind the lane's.
    /// Safety: they have been written.
    #[inline(always)]
    unsafe fn behind(&self, group: usize, r: usize) -> [[Halves; 4]; 2] {
        let row = self.row(group, (thread_idx() % WARP / 4) as usize);
        // SAFETY: the row is at most 15 + 8.
        [row.get4(r * SAMPLES), row.get4((r + TILE) * SAMPLES)]
    }
}

/// The kernel. `D`: most features; `S`: steps; `H`: groups of a round.
#[inline(always)]
unsafe fn full<const D: usize, const S: usize, const H: usize>(args: &FusedMmaArgs) {
    let member = Member { fetches_ahead: false, ..Member::of_components(args.team) };
    let mut rounds = Rounds::new(args, member, H);
    let mut samples = RoundSamples::<1, H> { x: [[[[0.0; QUAD]; 2]; 1]; H] };
    counted!(for h in 0..H {
        samples.fetch(h, &rounds, rounds.group(h));
    });
    let block = FusedBlock::<false, 1, 1>::new(FusedShape::matrices(S - 1), member);
    let (shape, capacity) = (block.shape, block.shape.capacity());
    let rows = block.behind_parts().offset((thread_idx() / WARP) as usize * 2 * ROTATED);
    let rows = Rows { rows: rows.cast() };
    let lane = (thread_idx() % WARP) as usize;
    // SAFETY: at the start the shared memory is free.
    rows.clear();
    block.load_constants(args);
    // The coefficients as lanes read them: (parts of the components, features, lanes, 4).
    counted!(for i in (thread_idx()..member.team.components * D as u32 * WARP).step_by(block_dim()) {
        let (row, lane) = (i / WARP, (i % WARP) as usize);
        let (components, row) = ((row / D as u32) as usize, (row % D as u32) as usize);
        let from = args.parameters.add((row * STEP + 2 * (lane % 4)) * capacity + components * TILE + lane / 4);
        let first = split_halves(load(from), load(from.add(capacity)));
        let second = split_halves(load(from.add(TILE * capacity)), load(from.add((TILE + 1) * capacity)));
        block.coefficients.cast::<Halves>().set4(4 * i as usize, [first[0], first[1], second[0], second[1]]);
    });
    barrier!();
    // SAFETY: the barrier made them visible.
    let (scale, constant, weight) = (block.constant(0, 0), block.constant(1, 0), block.constant(2, 0));
    let mut sums = RoundSums::<S, 1>::new();
    let mut since = 0;
    // As in `diagonal`.
    loop {
        let mut features = [Split::ZERO; H];
        let mut transposed = features;
        // All lanes have read the rows.
        warp_sync();
        written_out!(for h in 0..H {
            let group = rounds.group(h);
            if lane / 4 == TILE - 1 {
                samples.x[h][0][1] = [ONE; QUAD];
            }
            [features[h]] = samples.take(h, rounds.left(group));
            // SAFETY: no lane reads the rows.
            rows.set(h, &features[h], args.d as usize);
            [transposed[h]] = block.transpose(h % 2, &[features[h]]);
        });
        let mut q = [[[0.0f32; 2]; 2]; H];
        counted!(for i in 0..D {
            // SAFETY: the coefficients are in shared memory since the barrier.
            let a = block.own_coefficients.get4(i * WARP as usize * 4);
            counted!(for p in 0..2 * H {
                let (Split { high, low }, s) = (transposed[p / 2], p % 2);
                let low = mma([0.0; 4], a, [low[2 * s], low[2 * s + 1]]);
                let t = mma(low, a, [high[2 * s], high[2 * s + 1]]);
                let t = [t[0] + t[2], t[1] + t[3]];
                q[p / 2][s] = [fma(t[0], t[0], q[p / 2][s][0]), fma(t[1], t[1], q[p / 2][s][1])];
            });
        });
        let mut each = [[[[0.0; 2]; 2]; 1]; H];
        counted!(for h in 0..H {
            finish_exponents(&mut q[h], scale, constant);
            each[h][0] = q[h];
        });
        let r = rounds.respond(&block, since as usize % 2, &each, &[weight], 0);
        counted!(for h in 0..H {
            // (As in `diagonal`.)
            samples.fetch(h, &rounds, rounds.group(h) + rounds.step);
        });
        let r = sums.count(&r);
        counted!(for s in 0..S {
            let mut products = features;
            counted!(for h in 0..H {
                if s == 1 {
                    products[h] = features[h].square();
                } else if s > 1 {
                    // SAFETY: all lanes have met since the rows were written.
                    products[h] = multiply(features[h], rows.behind(h, s - 1));
                }
            });
            sums.add(s, false, &products, &r);
        });
        rounds.first += rounds.step;
        since += 1;
        if since == FLUSH || rounds.done() {
            since = 0;
            // All warps have read what they exchanged.
            barrier!();
            // SAFETY: the warp's part has room for its sums.
            sums.take(block.transposed.cast());
            barrier!();
            // SAFETY: the barrier made them visible.
            block.add_teams(args);
            if rounds.done() {
                break;
            }
            barrier!();
        }
    }
    rounds.finish(shape.sums());
}

macro_rules! instances {
    ($($name:ident $shape:expr;)*) => {
        kernels! {
            /// Computes each block's log-likelihood and sufficient statistics.
            $($name: FusedMmaArgs = full::<{ $shape.features() }, { $shape.steps() }, { $shape.groups() }>;)*
        }
    };
}
instances! {
    fused_mma_full_d09_k08 FusedShape::matrices(5);
    fused_mma_full_d13_k08 FusedShape::matrices(7);
    fused_mma_full_d15_k08 FusedShape::matrices(8);
}
