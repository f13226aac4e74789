mod proposal;

use super::*;
use crate::likelihood::small_k::kernel::{far_likelihoods, likelihoods, multiply_quad};
use crate::math::{LogProduct, smaller, warp_sum};
use crate::reduce::Output;
use crate::simt::{
    CachePolicy, Shared, block_dim, block_idx, copies_commit, copies_wait, fma64, grid_dim, load, load_fresh, pause,
    policy_keep, policy_stream, reciprocal, store, store_fresh, thread_idx, warp_any,
};
use core::f64::consts::{LN_2, LOG2_E};
use proposal::propose;

/// Places of the record: the next proposal's log prior and constants after a rejection and after an acceptance (−∞ for
/// one without density), and whether the last proposal was accepted.
mod record {
    pub const AFTER_REJECTION: usize = 0;
    pub const AFTER_ACCEPTANCE: usize = 1;
    pub const ACCEPTED: usize = 2;
}

/// Step `t`, counted from 1, in shared memory.
#[inline(always)]
fn step(layout: SharedLayout, width: usize, t: u32) -> Shared<f64> {
    Shared::<f64>::at(layout.steps).offset(t as usize % STEPS * width)
}

/// Leaves this block's `sum` (of the first thread) for step `t`, waits for the other blocks' sums, and adds them up in
/// the order of the blocks; the first lane gets the total.
///
/// The two lowest bits of a number (a rounding of 10⁻¹⁶) identify its step. No block is more than a step ahead of
/// another, and even and odd steps have separate places, so that no number is overwritten unread.
/// Safety: each block's whole first warp calls it once for each t; `exchange` is as [`MetropolisArgs`] says.
#[inline(always)]
unsafe fn gather(exchange: *mut f64, t: u32, sum: f64) -> f64 {
    /// Numbers that a lane reads at once: enough for 160 blocks.
    const ROUND: usize = 5;
    const TAG: u64 = 3;
    let tag = t as u64 & TAG;
    let places = exchange.wrapping_add((t & 1) as usize * grid_dim() as usize);
    let lane = thread_idx();
    if lane == 0 {
        let tagged = f64::from_bits(sum.to_bits() & !TAG | tag);
        // SAFETY: a place for each block.
        store_fresh(places.wrapping_add(block_idx() as usize), tagged);
    }
    let mut total = 0.0;
    counted!(for start in (lane..grid_dim()).step_by(ROUND as u32 * WARP) {
        let mut v = [0.0; ROUND];
        let mut missing = true;
        while missing {
            missing = false;
            counted!(for r in 0..ROUND {
                let b = start + r as u32 * WARP;
                if b < grid_dim() {
                    v[r] = load_fresh(places.wrapping_add(b as usize));
                    missing |= v[r].to_bits() & TAG != tag;
                }
            });
            if missing {
                pause();
            }
        }
        counted!(for r in 0..ROUND {
            // Without the step's bits: a step's total must not depend on its position in a launch.
            total += f64::from_bits(v[r].to_bits() & !TAG);
        });
    });
    warp_sum(total)
}

/// A block's share of the samples, and this thread's places in shared memory: one for each of its rounds.
struct BlockSamples<'a, const D: usize> {
    columns: &'a Columns,
    /// The quad of the first round, and the number of rounds.
    first: u32,
    rounds: u32,
    /// Rounds that stay in shared memory. The others pass through the next place.
    resident: u32,
    /// Whether more than one round passes through that place. A single one stays there.
    passing: bool,
    ring: Shared<f32>,
    cached: CachePolicy,
    streamed: CachePolicy,
}

impl<const D: usize> BlockSamples<'_, D> {
    /// Numbers of a feature in a warp's place of a round.
    const FEATURE: usize = QUAD * WARP as usize;

    #[inline(always)]
    fn place(&self, round: u32) -> usize {
        smaller(round, self.resident) as usize * D * Self::FEATURE
    }

    /// Starts to copy a round.
    /// Safety: the round is one of this thread's, and its place is free.
    #[inline(always)]
    unsafe fn fetch(&self, round: u32) {
        let columns = self.columns;
        let cached = round * block_dim() + thread_idx() < columns.cached_quads;
        let policy = if cached { self.cached } else { self.streamed };
        let place = self.place(round);
        counted!(for j in 0..D {
            self.ring.copy4(place + j * Self::FEATURE, columns.quad(self.first + round * block_dim(), j), policy);
        });
    }

    /// Σ log₂-likelihoods of the thread's samples under `components`. Waits for copies, and starts the next step's
    /// first.
    /// Safety: the components are in shared memory, and the resident rounds have arrived.
    #[inline(always)]
    unsafe fn log_likelihoods<const ROW4: usize>(&self, components: Shared<f32>, k: u32) -> LogProduct {
        let mut product = LogProduct::new();
        counted!(for round in 0..self.rounds {
            let passes = self.passing && round >= self.resident;
            let place = self.place(round);
            if passes {
                copies_wait();
            }
            let mut x = [[[0.0; QUAD]; D]; 1];
            counted!(for j in 0..D {
                // SAFETY: this thread's copies, which have arrived.
                x[0][j] = self.ring.get4(place + j * Self::FEATURE);
            });
            if passes {
                // The samples are in registers; the last round is followed by the first of the next step. SAFETY: a
                // round of this thread's, whose place has been read.
                self.fetch(if round + 1 < self.rounds { round + 1 } else { self.resident });
                copies_commit();
            }
            // SAFETY: the components are the caller's; the quad exists.
            let quad = self.first + round * block_dim();
            let sums = likelihoods::<false, D, ROW4, 1>(&x, &x, components, k);
            let scaled = || far_likelihoods::<false, D, ROW4>(&x[0], &x[0], components, k);
            multiply_quad(&mut product, sums[0], (quad, self.columns.n), None, scaled);
        });
        product
    }
}

/// Starts to copy step `t`, if it exists, to shared memory. All threads of the block take part.
/// Safety: no thread uses the place of step t − [`STEPS`] any more.
#[inline(always)]
unsafe fn fetch_step(args: &MetropolisArgs, layout: SharedLayout, width: usize, t: u32, policy: CachePolicy) {
    // Float pairs: a copy is 16 bytes.
    let to = Shared::<f32>::at(layout.steps).offset(t as usize % STEPS * 2 * width);
    let mut i = thread_idx() as usize;
    while t <= args.count && 2 * i < width {
        let from = args.steps.wrapping_add((t as usize - 1) * width + 2 * i);
        // SAFETY: within the step, which exists.
        to.copy4(4 * i, from.cast(), policy);
        i += block_dim() as usize;
    }
}

/// Initialises the shared memory: zeros for the components, and θ. All threads of the block take part.
/// Safety: the places are not in use.
#[inline(always)]
unsafe fn prepare<const ROW: usize>(args: &MetropolisArgs, layout: SharedLayout, dim: usize) {
    // Components behind K remain zeros.
    counted!(for i in (thread_idx() as usize..2 * COMPONENTS * ROW).step_by(block_dim() as usize) {
        // SAFETY: within the components.
        Shared::<f32>::at(layout.components).set(i, 0.0);
    });
    counted!(for i in (thread_idx() as usize..dim).step_by(block_dim() as usize) {
        // SAFETY: coordinate i.
        Shared::<f64>::at(layout.point).set(i, load(args.state.add(i)));
    });
}

/// The first warp decides on proposal t (> 0), and updates the log density; the first lane has both. `log_likelihood`:
/// this block's part of it, in log₂ units. `base`: the rest of the proposal's log density.
/// Safety: all lanes of the first warp call it, once for each step; step t is in shared memory.
#[inline(always)]
unsafe fn decide(
    args: &MetropolisArgs,
    log_uniform: impl Fn() -> f64,
    t: u32,
    log_likelihood: f64,
    base: f64,
    density: &mut f64,
) -> bool {
    let mut accepted = false;
    let total = if grid_dim() > 1 {
        // SAFETY: once for each step, in all blocks.
        gather(args.exchange, args.before.wrapping_add(t), log_likelihood)
    } else {
        log_likelihood
    };
    if thread_idx() == 0 {
        let value = if base > f64::MIN { fma64(LN_2, total, base) } else { f64::NEG_INFINITY };
        // NaN as a density is a rejection too.
        let value = if value > f64::MIN { value } else { f64::NEG_INFINITY };
        accepted = log_uniform() < value - *density;
        *density = if accepted { value } else { *density };
        if block_idx() == 0 {
            // SAFETY: a place for each step.
            store(args.densities.add(t as usize - 1), value);
        }
    }
    accepted
}

#[inline(always)]
unsafe fn body<const D: usize, const ROW: usize, const ROW4: usize>(args: &MetropolisArgs) {
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let dim = dim(args.k as usize, D, args.spherical);
    let (layout, width) = (SharedLayout::new(D, dim), step_width(dim));
    let (point, records) = (Shared::<f64>::at(layout.point), Shared::<f64>::at(layout.record));
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);

    let share = columns.quads().div_ceil(grid_dim());
    let first = block_idx() * share + thread_idx();
    let end = smaller(block_idx() * share + share, columns.quads());
    let rounds = if first < end { (end - first).div_ceil(block_dim()) } else { 0 };
    let places = args.resident as usize + 1;
    let ring = Shared::<f32>::at(layout.samples);
    let samples = BlockSamples::<D> {
        columns,
        first,
        rounds,
        resident: args.resident,
        passing: rounds > args.resident + 1,
        ring: ring.offset(warp * places * D * QUAD * WARP as usize + QUAD * lane).in_thread_register(),
        cached,
        streamed,
    };
    counted!(for round in 0..smaller(rounds, args.resident + 1) {
        // SAFETY: a round of this thread's; at the start all places are free.
        samples.fetch(round);
    });
    // SAFETY: at the start no shared memory is in use. The log density is behind the coordinates.
    let mut density = {
        fetch_step(args, layout, width, 1, streamed);
        copies_commit();
        prepare::<ROW>(args, layout, dim);
        load(args.state.add(dim))
    };
    copies_wait();
    barrier!();

    // The log density of proposal t without its likelihood, and this block's part of the likelihood (thread 0).
    let (mut base, mut sum) = (0.0, 0.0);
    let mut t = 0;
    loop {
        // Proposal t has been evaluated, but not decided on; number 0 does not exist.
        if warp == 0 {
            let mut accepted = false;
            if t > 0 {
                // SAFETY: step t is in shared memory; the first warp.
                accepted = decide(args, || step(layout, width, t).get(dim), t, sum, base, &mut density);
            }
            if lane == 0 {
                // SAFETY: read behind the barrier.
                records.set(record::ACCEPTED, if accepted { 1.0 } else { 0.0 });
            }
        } else if warp <= 2 && t < args.count && (t > 0 || warp == 1) {
            // SAFETY: whole warps; the steps have arrived, and the likelihood of proposal t is computed.
            propose::<D, ROW>(args, layout, t, warp == 2);
        }
        barrier!();
        // SAFETY: written before the barrier.
        let accepted = records.get(record::ACCEPTED) != 0.0;
        if accepted {
            counted!(for i in (thread_idx() as usize..dim).step_by(block_dim() as usize) {
                // SAFETY: this thread's coordinates; other threads read them behind the next barrier.
                point.set(i, point.get(i) + step(layout, width, t).get(i));
            });
        }
        if t == args.count {
            break;
        }
        let after = if accepted { record::AFTER_ACCEPTANCE } else { record::AFTER_REJECTION };
        // SAFETY: written before the barrier.
        base = records.get(after);
        let components = Shared::<f32>::at(layout.components).offset(accepted as usize * COMPONENTS * ROW);
        t += 1;
        // SAFETY: all threads have passed the barrier behind the decision on the step that used the place. The
        // components are in shared memory since the barrier; the resident rounds arrived at the start.
        let product = {
            fetch_step(args, layout, width, t + 1, streamed);
            copies_commit();
            samples.log_likelihoods::<ROW4>(components, args.k.next_multiple_of(2))
        };
        if !samples.passing {
            copies_wait();
        }
        // SAFETY: all threads of the block call it, and the start of the shared memory is unused.
        sum = Output::block_sum(product);
    }
    copies_wait();
    if block_idx() == 0 {
        counted!(for i in (thread_idx() as usize..dim).step_by(block_dim() as usize) {
            // SAFETY: coordinate i; all blocks have read the state since they sent their first number.
            store(args.state.add(i), point.get(i));
        });
        if thread_idx() == 0 {
            store(args.state.add(dim), density);
        }
    }
}

kernels! {
    /// Takes steps of random-walk Metropolis.
    metropolis_d01: MetropolisArgs = body::<1, { row(1, false) }, { row(1, false) / 4 }>;
    metropolis_d02: MetropolisArgs = body::<2, { row(2, false) }, { row(2, false) / 4 }>;
    metropolis_d03: MetropolisArgs = body::<3, { row(3, false) }, { row(3, false) / 4 }>;
    metropolis_d04: MetropolisArgs = body::<4, { row(4, false) }, { row(4, false) / 4 }>;
    metropolis_d05: MetropolisArgs = body::<5, { row(5, false) }, { row(5, false) / 4 }>;
    metropolis_d06: MetropolisArgs = body::<6, { row(6, false) }, { row(6, false) / 4 }>;
    metropolis_d07: MetropolisArgs = body::<7, { row(7, false) }, { row(7, false) / 4 }>;
    metropolis_d08: MetropolisArgs = body::<8, { row(8, false) }, { row(8, false) / 4 }>;
    metropolis_d09: MetropolisArgs = body::<9, { row(9, false) }, { row(9, false) / 4 }>;
    metropolis_d10: MetropolisArgs = body::<10, { row(10, false) }, { row(10, false) / 4 }>;
    metropolis_d11: MetropolisArgs = body::<11, { row(11, false) }, { row(11, false) / 4 }>;
    metropolis_d12: MetropolisArgs = body::<12, { row(12, false) }, { row(12, false) / 4 }>;
    metropolis_d13: MetropolisArgs = body::<13, { row(13, false) }, { row(13, false) / 4 }>;
    metropolis_d14: MetropolisArgs = body::<14, { row(14, false) }, { row(14, false) / 4 }>;
    metropolis_d15: MetropolisArgs = body::<15, { row(15, false) }, { row(15, false) / 4 }>;
    metropolis_d16: MetropolisArgs = body::<16, { row(16, false) }, { row(16, false) / 4 }>;
}
