//! Exponents expanded into products of two features, and of features and the number one.
//!
//! A warp writes the features of its samples as rows to shared memory, and forms each product from two rows. The
//! products wait there, transposed for the exponents, until the responsibilities are known.
use super::full::multiply;
use super::*;
use crate::estep::products_mma::ONE;

/// The part of a warp's shared memory with features and products of its samples.
struct Products<const P: usize, const S: usize> {
    /// The lane's samples of the first row.
    rows: Shared<Halves>,
    /// The lane's elements of the first step.
    steps: Shared<Halves>,
    /// The rows of the lane's products, from the first on.
    pairs: Shared<u32>,
}

impl<const P: usize, const S: usize> Products<P, S> {
    /// Finds the places in the warp's part of the shared memory; `pairs`: the rows of all products.
    #[inline(always)]
    fn new<const N: usize>(block: &FusedBlock<false, P, N>, pairs: Shared<u32>) -> Self {
        let lane = (thread_idx() % WARP) as usize;
        let first = STEP * S * block.member.features as usize + lane / 4;
        Self {
            rows: block.transposed.offset(4 * (lane % 4)),
            steps: block.transposed.offset(block.shape.rows() * ROW + lane),
            pairs: pairs.offset(first),
        }
    }

    /// Writes the number one for all samples to the row behind D features.
    /// Safety: no lane reads the row.
    #[inline(always)]
    unsafe fn set_one(&self, d: u32) {
        if thread_idx() % WARP < 4 {
            let Split { high, low } = Split::new([[ONE; QUAD]; 2]);
            // SAFETY: the row behind the last feature.
            self.rows.offset(d as usize * ROW).set4(0, [high[0], high[2], low[0], low[2]]);
        }
    }

    /// Writes the lane's features of a pair of tiles, as far as they are below D.
    /// Safety: no lane reads the rows.
    #[inline(always)]
    unsafe fn set(&self, pair: usize, x: &Split, d: u32) {
        counted!(for f in 0..2 {
            let feature = (thread_idx() % WARP / 4) as usize + pair * STEP + f * TILE;
            if (feature as u32) < d {
                let both = [x.high[f], x.high[2 + f], x.low[f], x.low[2 + f]];
                // SAFETY: inside.
                self.rows.offset(feature * ROW).set4(0, both);
            }
        });
    }

    /// Forms the products of a step, and writes them to their place for the transposition.
    /// Safety: the rows have been written, and no lane reads the step's place.
    #[inline(always)]
    unsafe fn form(&self, step: usize) -> Split {
        let mut factors = [[[0; 4]; 2]; 2];
        counted!(for f in 0..2 {
            let pair = self.pairs.get(step * STEP + f * TILE) as usize;
            factors[0][f] = self.rows.offset(pair % 0x10000).get4(0);
            factors[1][f] = self.rows.offset(pair / 0x10000).get4(0);
        });
        let mut x = Split::ZERO;
        counted!(for i in 0..4 {
            (x.high[i], x.low[i]) = (factors[0][i % 2][i / 2], factors[0][i % 2][2 + i / 2]);
        });
        let products = multiply(x, factors[1]);
        let to = self.steps.offset(step * TRANSPOSED);
        counted!(for m in 0..4 {
            // SAFETY: a place for each lane.
            to.set(m * WARP as usize, products.high[m]);
            to.set(m * WARP as usize + TRANSPOSED / 2, products.low[m]);
        });
        products
    }

    /// Reads the lane's products of a step that [`form`](Self::form) has written.
    /// Safety: they have been formed.
    #[inline(always)]
    unsafe fn formed(&self, step: usize) -> Split {
        let from = self.steps.offset(step * TRANSPOSED);
        let mut products = Split::ZERO;
        counted!(for m in 0..4 {
            // SAFETY: the lane's own place.
            products.high[m] = from.get(m * WARP as usize);
            products.low[m] = from.get(m * WARP as usize + TRANSPOSED / 2);
        });
        products
    }

    /// Reads the products of a step, transposed.
    /// Safety: all lanes have formed theirs.
    #[inline(always)]
    unsafe fn transposed(&self, step: usize) -> Split {
        let lane = (thread_idx() % WARP) as usize;
        let from = self.steps.offset(step * TRANSPOSED + 3 * lane);
        // SAFETY: rows of eight numbers that all lanes have written.
        Split { high: from.matrices_transposed(0), low: from.matrices_transposed(TRANSPOSED / 2) }
    }
}

/// A lane keeps its products in registers for at most this number of steps.
const KEPT: usize = 1;

/// The kernel. `P`: pairs of tiles of features; `S`: steps of products; `N`: tiles of components.
#[inline(always)]
unsafe fn expanded<const P: usize, const S: usize, const N: usize>(args: &FusedMmaArgs) {
    let member = Member { fetches_ahead: S > 1, ..Member::of_both(args.team) };
    let mut rounds = Rounds::new(args, member, 1);
    let mut samples = RoundSamples::<P, 1> { x: [[[[0.0; QUAD]; 2]; P]; 1] };
    samples.fetch_from(0, 0, &rounds, rounds.group(0));
    let block = FusedBlock::<false, P, N>::new(FusedShape::products_of_two(S, N), member);
    let pairs: Shared<u32> = block.behind_parts().cast();
    let products = Products::<P, S>::new(&block, pairs);
    // SAFETY: at the start the shared memory is free; pairs of all products.
    block.begin(args);
    counted!(for i in (thread_idx() as usize..block.shape.products()).step_by(block_dim() as usize) {
        pairs.set(i, load(args.pairs.add(i)));
    });
    products.set_one(args.d);
    barrier!();
    let mut sums = RoundSums::<S, N>::new();
    let mut since = 0;
    // As in `diagonal`.
    loop {
        let place = since as usize % 2;
        samples.clear_behind(0, rounds.left(rounds.group(0)));
        counted!(for p in 0..P {
            if ((p * STEP) as u32) < args.d {
                // SAFETY: all lanes have met since the rows were read.
                products.set(p, &Split::new(samples.x[0][p]), args.d);
            }
        });
        warp_sync();
        let mut kept = [Split::ZERO; S];
        counted!(for s in 0..S {
            // SAFETY: all lanes have written the rows, and have read the places of the previous steps.
            kept[s] = products.form(s);
        });
        warp_sync();
        let mut q = [[[0.0f32; 2]; 2]; N];
        counted!(for s in 0..S {
            // SAFETY: all lanes have formed theirs; the coefficients are in shared memory since the barrier.
            add_step(&block, s, false, products.transposed(s), &mut q);
        });
        if member.team.features > 1 {
            // SAFETY: all threads of the team call it, or none.
            block.add_exponents(place, &mut q);
        }
        let mut weights = [0.0; N];
        counted!(for n in 0..N {
            // SAFETY: the barrier made them visible.
            finish_exponents(&mut q[n], block.constant(0, n), block.constant(1, n));
            weights[n] = block.constant(2, n);
        });
        let r = rounds.respond(&block, place, &[q], &weights, 0);
        // (Behind the barriers, as in `diagonal`.)
        samples.fetch_from(0, 0, &rounds, rounds.group(0) + rounds.step);
        let r = sums.count(&r);
        counted!(for s in 0..S {
            // SAFETY: they have been formed.
            let of_step = if S > KEPT { products.formed(s) } else { kept[s] };
            sums.add(s, false, &[of_step], &r);
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
            // SAFETY: all threads have read the sums.
            products.set_one(args.d);
        }
    }
    rounds.finish(block.shape.sums());
}

macro_rules! instances {
    ($($name:ident $steps:literal $components:literal;)*) => {
        kernels! {
            /// Computes each block's log-likelihood and sufficient statistics.
            $($name: FusedMmaArgs =
                expanded::<{ FusedShape::products_of_two($steps, $components).pairs }, $steps, $components>;)*
        }
    };
}
instances! {
    fused_mma_expanded_p016_k32 1 4;
    fused_mma_expanded_p016_k64 1 8;
    fused_mma_expanded_p048_k16 3 2;
    fused_mma_expanded_p048_k32 3 4;
    fused_mma_expanded_p080_k16 5 2;
    fused_mma_expanded_p080_k32 5 4;
    fused_mma_expanded_p112_k16 7 2;
    fused_mma_expanded_p112_k32 7 4;
}
