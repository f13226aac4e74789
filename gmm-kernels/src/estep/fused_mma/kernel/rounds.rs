use super::*;
use crate::estep::products_mma::RESPONSIBILITY_SCALE;
use crate::math::LogProduct;

/// The state of a warp from round to round.
pub(super) struct Rounds<'a> {
    args: &'a FusedMmaArgs,
    member: Member,
    /// Quads from one round of the team to the next, and quads of a round.
    pub(super) step: u32,
    round: u32,
    /// First quad of the block's round.
    pub(super) first: u32,
    /// The number of whole quads, and of samples behind them.
    whole: u32,
    rest: u32,
    policies: [CachePolicy; 2],
    product: LogProduct,
}

impl<'a> Rounds<'a> {
    #[inline(always)]
    pub(super) fn new(args: &'a FusedMmaArgs, member: Member, groups: usize) -> Self {
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
    pub(super) fn group(&self, h: usize) -> u32 {
        self.first + self.member.number * self.round + h as u32 * GROUP
    }

    /// Whether there are no more samples for any thread of the block.
    #[inline(always)]
    pub(super) fn done(&self) -> bool {
        self.first >= self.args.columns.quads()
    }

    /// The cache policy, the same for all threads of a block.
    #[inline(always)]
    fn policy(&self) -> CachePolicy {
        if self.first < self.args.columns.cached_quads { self.policies[0] } else { self.policies[1] }
    }

    /// The number of a group's samples that exist.
    #[inline(always)]
    pub(super) fn left(&self, group: u32) -> u32 {
        if group + GROUP <= self.whole {
            SAMPLES as u32
        } else if group <= self.whole {
            QUAD as u32 * (self.whole - group) + self.rest
        } else {
            0
        }
    }

    /// Returns responsibilities times sample weights and [`RESPONSIBILITY_SCALE`] from exponents of G groups, from
    /// group `h` of the round on; adds up the log-likelihoods. All threads of the team call it, alternately with
    /// `place` 0 and 1.
    /// Safety: the pointers of the arguments are valid.
    #[inline(always)]
    pub(super) unsafe fn respond<const GAPS: bool, const P: usize, const N: usize, const G: usize>(
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
            factor = block.add_likelihoods(place, &mut likelihoods);
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
                    weight = load(self.args.sample_weights.add(sample));
                }
                factor[g] *= weight;
                self.product.multiply_scaled(weight * (power[g] + log2(sum[g])), 1.0);
            });
        } else if far {
            counted!(for g in 0..G {
                self.product.multiply_scaled(power[g], sum[g]);
            });
        } else {
            // The product of two sums above the threshold is still a normal number.
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

    /// Ends the launch: each block leaves its log-likelihood, and the last writes all sums. All threads call it.
    /// Safety: the start of the shared memory is free; `count` sums have their places.
    #[inline(always)]
    pub(super) unsafe fn finish(self, count: usize) {
        // Two lanes of each warp of a team hold each sample.
        let product = if thread_idx() & 4 == 0 && self.member.is_first() { self.product } else { LogProduct::new() };
        let args = self.args;
        let write = || {
            counted!(for v in (thread_idx() as usize..count).step_by(block_dim() as usize) {
                let from = args.integers.wrapping_add(v);
                // SAFETY: all blocks have added theirs.
                let sum = load_fresh(from.cast_const().cast()).to_bits() as i64;
                store(from, 0);
                publish(args.sums.add(v), sum as f64 / args.unit);
            });
        };
        args.output.finish_with(product, write);
    }
}

/// Quads of a group.
pub(super) const GROUP: u32 = (SAMPLES / QUAD) as u32;

/// A warp's samples while they are read: for each group, a quad of each feature of the lane.
pub(super) struct RoundSamples<const P: usize, const H: usize> {
    pub(super) x: [[[[f32; QUAD]; 2]; P]; H],
}

impl<const P: usize, const H: usize> RoundSamples<P, H> {
    /// Starts to read a group whose first quad is `first`.
    /// Safety: the pointers of `args` are valid for the sizes given.
    #[inline(always)]
    pub(super) unsafe fn fetch(&mut self, group: usize, rounds: &Rounds<'_>, first: u32) {
        self.fetch_from(rounds.member.features * (P * STEP) as u32, group, rounds, first);
    }

    /// As [`Self::fetch`], of the features from `of_warp` on.
    /// Safety: as [`Self::fetch`].
    #[inline(always)]
    pub(super) unsafe fn fetch_from(&mut self, of_warp: u32, group: usize, rounds: &Rounds<'_>, first: u32) {
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
            self.x[group][f / 2][f % 2] = load4(from, rounds.policy());
            if rounds.member.fetches_ahead {
                // Samples read behind a barrier are needed soon: this brings them into the cache by then.
                let ahead = if quad + rounds.step < last { rounds.step } else { 0 };
                prefetch(from.wrapping_add(QUAD * ahead as usize));
            }
        });
    }

    /// Returns the features of a group that has arrived; `left` of its samples exist.
    #[inline(always)]
    pub(super) fn take(&mut self, group: usize, left: u32) -> [Split; P] {
        self.clear_behind(group, left);
        let mut features = [Split::ZERO; P];
        counted!(for p in 0..P {
            features[p] = Split::new(self.x[group][p]);
        });
        features
    }

    /// Replaces samples that do not exist by zeros: the memory behind the last may hold anything.
    #[inline(always)]
    pub(super) fn clear_behind(&mut self, group: usize, left: u32) {
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
