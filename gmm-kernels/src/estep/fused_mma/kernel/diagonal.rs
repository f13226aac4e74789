//! Diagonal covariances: features and their squares.
use super::*;

/// The kernel of features and squares. `P`: pairs of tiles of features; `S`: steps of products; `N`: tiles of
/// components; `H`: groups of a round, of which a warp computes `G` side by side.
#[inline(always)]
unsafe fn diagonal<const GAPS: bool, const P: usize, const S: usize, const N: usize, const H: usize, const G: usize>(
    args: &FusedMmaArgs,
    member: Member,
) {
    let mut rounds = Rounds::new(args, member, H);
    let mut samples = RoundSamples::<P, H> { x: [[[[0.0; QUAD]; 2]; P]; H] };
    counted!(for h in 0..H {
        samples.fetch(h, &rounds, rounds.group(h));
    });
    let block = FusedBlock::<GAPS, P, N>::new(FusedShape::diagonal(P, N, GAPS), member);
    // SAFETY: at the start the shared memory is free.
    block.begin(args);
    barrier!();
    let mut packed = [[0; 4]; S];
    let (mut scales, mut constants, mut weights) = ([0.0; N], [0.0; N], [0.0; N]);
    if N == 1 {
        counted!(for s in 0..S {
            // SAFETY: the barrier made them visible.
            packed[s] = block.packed(s);
        });
        (scales[0], constants[0], weights[0]) = (block.constant(0, 0), block.constant(1, 0), block.constant(2, 0));
    }
    let mut sums = RoundSums::<S, N>::new();
    let mut since = 0;
    // The bounds are the same for all threads of a block, so that all meet at the barriers.
    loop {
        written_out!(for turn in 0..(H / G) {
            let h = turn * G;
            // If a round has one turn, the places alternate from round to round.
            let place = if H > G { h % 2 } else { since as usize % 2 };
            let mut features = [Features::<GAPS, P>::ZERO; G];
            let mut q = [[[[0.0f32; 2]; 2]; N]; G];
            counted!(for g in 0..G {
                let group = rounds.group(h + g);
                let x = samples.take(h + g, rounds.left(group));
                let of_group = if H > 1 { (h + g) % 2 } else { place };
                if !member.of_team {
                    samples.fetch(h + g, &rounds, group + rounds.step);
                }
                // SAFETY: all lanes have met since the place was read.
                let transposed = block.transpose(of_group, &x);
                features[g] = Features::new(x);
                // SAFETY: the coefficients are in shared memory since the barrier.
                q[g] = exponents(&block, &packed, &Features::new(transposed));
                if member.adds_exponents {
                    // SAFETY: these teams have one group side by side.
                    block.add_exponents(place, &mut q[g]);
                }
            });
            counted!(for n in 0..N {
                if N > 1 {
                    (scales[n], constants[n]) = (block.constant(0, n), block.constant(1, n));
                    weights[n] = block.constant(2, n);
                }
                counted!(for g in 0..G {
                    finish_exponents(&mut q[g][n], scales[n], constants[n]);
                });
            });
            let r = rounds.respond(&block, place, &q, &weights, h);
            counted!(for g in 0..G {
                if member.of_team {
                    // Behind the barriers: in front of them, the compiler would make the warp wait for the fetched
                    // samples where the paths with and without a team meet.
                    samples.fetch(h + g, &rounds, rounds.group(h + g) + rounds.step);
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
        // Repeated in the other kernels: a shared function would spill registers.
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
    rounds.finish(block.shape.sums());
}

macro_rules! instances {
    ($($name:ident $gaps:literal $pairs:literal $components:literal $groups:literal $member:expr;)*) => { $(
        kernel! {
            /// Computes each block's log-likelihood and sufficient statistics.
            pub unsafe fn $name(args: FusedMmaArgs) {
                const SHAPE: FusedShape = FusedShape::diagonal($pairs, $components, $gaps);
                let member: Member = $member(args.team);
                diagonal::<$gaps, $pairs, { SHAPE.steps() }, $components, $groups, { SHAPE.side_by_side() }>(
                    &args, member,
                )
            }
        }
    )* };
}
// Whether values may be missing, pairs of tiles of features, tiles of components, groups of a round, and whether the
// warps of a team share features, components or both.
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
