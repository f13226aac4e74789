//! The code of `metropolis`.
use super::*;
use crate::likelihood::small_k::{likelihoods, multiply_quad};
use crate::math::float64::{exp2, log2};
use crate::math::{LogProduct, warp_sum};
use crate::reduce::Output;
use crate::simt::{
    Shared, block_dim, block_idx, copies_commit, copies_wait, fma64, grid_dim, load, load_fresh, pause, policy_keep,
    policy_stream, reciprocal, shuffle_xor_u32, store, store_fresh, thread_idx, warp_any,
};
use core::f64::consts::{LN_2, LOG2_E};

/// Places of the record: the next proposal's log prior and constants after a rejection and after an acceptance (−∞ for one
/// that has no density), and whether the last proposal was accepted.
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

/// Where x rounded to float32 and its reach stay finite, as the host checks it.
#[inline(always)]
fn in_range(s: f32, m: f64) -> bool {
    const MAX_DEVIATION: f64 = (1u64 << 56) as f64;
    let m = if m < 0.0 { -m } else { m };
    16.0 * s as f64 + m <= MAX_DEVIATION && s >= f32::MIN_POSITIVE
}

/// log₂(rounded / exact), of a number and what it was rounded to.
#[inline(always)]
fn log2_of_rounding(exact: f64, rounded: f32) -> f64 {
    // The difference is exact; so small a fraction needs no more than a float's inverse, and two terms of the series.
    let e = (rounded as f64 - exact) * reciprocal(rounded) as f64;
    (e + 0.5 * e * e) * LOG2_E
}

/// The sum of `x` over the lanes that differ in the bits of `masks`.
#[inline(always)]
fn sum_over(mut x: f64, mut masks: u32) -> f64 {
    while masks != 0 {
        x += exchange_f64(x, masks & masks.wrapping_neg());
        masks &= masks - 1;
    }
    x
}

/// The value of `x` in the lane whose number differs in the bits `mask`.
#[inline(always)]
fn exchange_f64(x: f64, mask: u32) -> f64 {
    let bits = x.to_bits();
    let low = shuffle_xor_u32(bits as u32, mask);
    let high = shuffle_xor_u32((bits >> 32) as u32, mask);
    f64::from_bits((high as u64) << 32 | low as u64)
}

/// Lanes of a component; a warp holds [`COMPONENTS`] times so many.
const LANES: u32 = WARP / COMPONENTS as u32;
/// The bits of a lane's number within its component, and of the component.
const WITHIN: u32 = LANES - 1;
const ACROSS: u32 = WARP - LANES;

/// A warp computes the parameters of proposal t + 1, as the likelihood takes them, and its record, if proposal t turns out
/// to be `accepted`. The formulae are those of the host's `packed.rs`.
///
/// # Safety
/// All lanes of a warp call it. Point and steps t (if `accepted`) and t + 1 are in shared memory; nobody else uses the
/// components and the record of this case.
#[inline(always)]
unsafe fn propose<const D: usize, const ROW: usize>(args: &MetropolisArgs, layout: SharedLayout, t: u32, accepted: bool) {
    let k = args.k as usize;
    let dim = dim(k, D, args.spherical);
    let (point, width) = (Shared::<f64>::at(layout.point), step_width(dim));
    let (present, next) = (step(layout, width, t), step(layout, width, t + 1));
    // SAFETY: `i` is a coordinate; see above.
    let at = |i: usize| unsafe {
        let x = point.get(i);
        (if accepted { x + present.get(i) } else { x }) + next.get(i)
    };
    // SAFETY: the terms have the documented size.
    let term = |i: usize| unsafe { load(args.terms.add(i)) };
    let (column_terms, component_terms) = (k * D * FEATURE_TERMS, k * D * FEATURE_TERMS + D * COLUMN_TERMS);
    let lane = thread_idx() % WARP;
    let (c, q) = ((lane / LANES) as usize, (lane % LANES) as usize);
    let alive = c < k;

    // log₂ πₖ = log₂ zₖ + Σ_{i<k} log₂ (1 − zᵢ) with zᵢ = 1 / (1 + e^−tᵢ).
    let mut log2_weight = 0.0;
    let mut i = q;
    while i + 1 < k {
        let x = LOG2_E * (at(i) - term(component_terms + i * COMPONENT_TERMS + 1));
        let size = if x < 0.0 { -x } else { x };
        let rest = log2(1.0 + exp2(-size));
        log2_weight -= if i < c {
            if x > 0.0 { x + rest } else { rest }
        } else if i == c {
            if x < 0.0 { rest - x } else { rest }
        } else {
            0.0
        };
        i += LANES as usize;
    }
    let log2_weight = sum_over(log2_weight, WITHIN);

    let components = Shared::<f32>::at(layout.components).offset(accepted as usize * COMPONENTS * ROW + c * ROW);
    let (mut log2_scales, mut log_prior, mut good) = (0.0, 0.0, true);
    let mut f = 0;
    while f < D.div_ceil(LANES as usize) {
        let j = f * LANES as usize + q;
        if alive && j < D {
            let feature = c * D + j;
            let mean = at(k - 1 + feature);
            let log_scale = at(k - 1 + k * D + if args.spherical { c } else { feature });
            let column = column_terms + j * COLUMN_TERMS;
            let unit = term(column);
            // s = unit / σ, and log₂ of s as rounded. (Where the power is out of bounds, so is s.)
            let power = -LOG2_E * log_scale;
            let over_scale = exp2(if power > 1000.0 { 1000.0 } else { power });
            let exact = unit * over_scale;
            let s = exact as f32;
            log2_scales += power + term(column + 1) + log2_of_rounding(exact, s);
            let m = (term(column + 2) - mean) * term(column + 3) * s as f64;
            good &= in_range(s, m);
            // SAFETY: the component's own place.
            unsafe {
                components.set(2 * j, s);
                components.set(2 * j + 1, m as f32);
            }
            let prior = feature * FEATURE_TERMS;
            let deviation = mean - term(prior);
            let over_variance = over_scale * over_scale;
            let precision = fma64(term(prior + 2), over_variance, term(prior + 1));
            log_prior -= 0.5 * deviation * deviation * precision;
            if j == 0 || !args.spherical {
                log_prior += term(prior + 3) * log_scale - term(prior + 4) / over_variance;
                log_prior -= term(prior + 5) * over_variance;
            }
        }
        f += 1;
    }
    let log2_scales = sum_over(log2_scales, WITHIN);
    if alive && q == 0 {
        log_prior += term(component_terms + c * COMPONENT_TERMS) * LN_2 * log2_weight;
    }
    let log_prior = sum_over(log_prior, WITHIN | ACROSS);

    // The constants, split into what all have in common, the factors and the seeds.
    let constant = if alive { log2_weight + log2_scales } else { f64::MIN };
    let mut most = constant;
    let mut mask = LANES;
    while mask < WARP {
        let other = exchange_f64(most, mask);
        most = if other > most { other } else { most };
        mask *= 2;
    }
    let relative = constant - most;
    const LEAST: f64 = -60.0;
    let factored = if relative > LEAST { relative } else { LEAST };
    let exact = exp2(factored);
    let weight = exact as f32;
    let rest = relative - factored - log2_of_rounding(exact, weight);
    if alive && q == 0 {
        // SAFETY: the component's own place.
        unsafe {
            components.set(2 * D, weight);
            components.set(2 * D + 1, rest as f32);
        }
    }
    let base = fma64(args.n_ln_2, most, log_prior + args.constant);
    let good = !warp_any(!good) && base > f64::MIN && base < f64::MAX;
    if lane == 0 {
        let place = if accepted { record::AFTER_ACCEPTANCE } else { record::AFTER_REJECTION };
        // SAFETY: nobody else uses this place of the record.
        unsafe { Shared::<f64>::at(layout.record).set(place, if good { base } else { f64::NEG_INFINITY }) };
    }
}

/// Leaves this block's `sum` (of the first thread) for step `t`, waits for those of the others, and adds them up in the
/// order of the blocks; the first lane gets the total.
///
/// A number says by its two lowest bits (a rounding of 10⁻¹⁶) of which step it is. No block is more than a step ahead of
/// another, and there is a place for even and one for odd steps, so that none is overwritten unread.
///
/// # Safety
/// The first warp of each block calls it once for each t, with all its lanes; `exchange` is as [`MetropolisArgs`] says.
#[inline(always)]
unsafe fn gather(exchange: *mut f64, t: u32, sum: f64) -> f64 {
    /// Numbers that a lane reads at once: of 160 blocks.
    const ROUND: usize = 5;
    const TAG: u64 = 3;
    let tag = t as u64 & TAG;
    let places = exchange.wrapping_add((t & 1) as usize * grid_dim() as usize);
    let lane = thread_idx();
    if lane == 0 {
        let tagged = f64::from_bits(sum.to_bits() & !TAG | tag);
        // SAFETY: a place for each block.
        unsafe { store_fresh(places.wrapping_add(block_idx() as usize), tagged) };
    }
    let mut total = 0.0;
    let mut start = lane;
    while start < grid_dim() {
        let mut v = [0.0; ROUND];
        let mut missing = true;
        while missing {
            missing = false;
            let mut r = 0;
            while r < ROUND {
                let b = start + r as u32 * WARP;
                if b < grid_dim() {
                    // SAFETY: a place for each block.
                    v[r] = unsafe { load_fresh(places.wrapping_add(b as usize)) };
                    missing |= v[r].to_bits() & TAG != tag;
                }
                r += 1;
            }
            if missing {
                pause();
            }
        }
        let mut r = 0;
        while r < ROUND {
            // Without the step's number: a step's total must not depend on where in a launch it comes.
            total += f64::from_bits(v[r].to_bits() & !TAG);
            r += 1;
        }
        start += ROUND as u32 * WARP;
    }
    warp_sum(total)
}

#[inline(always)]
unsafe fn body<const D: usize, const ROW: usize, const ROW4: usize>(args: &MetropolisArgs) {
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let dim = dim(args.k as usize, D, args.spherical);
    let (layout, width) = (SharedLayout::new(D, dim), step_width(dim));
    let (point, records) = (Shared::<f64>::at(layout.point), Shared::<f64>::at(layout.record));

    // This block's share of the samples, and this thread's quads of it: one in each of its rounds.
    let share = columns.quads().div_ceil(grid_dim());
    let first = block_idx() * share + thread_idx();
    let end = min_u32(block_idx() * share + share, columns.quads());
    let rounds = if first < end { (end - first).div_ceil(block_dim()) } else { 0 };
    // A round that is not resident comes through the place behind the resident ones. A single such round stays there.
    let streams = rounds > args.resident + 1;
    let feature = QUAD * WARP as usize;
    let (warp, lane) = ((thread_idx() / WARP) as usize, (thread_idx() % WARP) as usize);
    let stages = args.resident as usize + 1;
    let ring = Shared::<f32>::at(layout.samples).offset(warp * stages * D * feature + QUAD * lane).in_thread_register();
    let fetch = |round: u32| {
        let policy = if round * block_dim() + thread_idx() < columns.cached_quads { cached } else { streamed };
        let place = min_u32(round, args.resident) as usize * D * feature;
        let mut j = 0;
        while j < D {
            // SAFETY: the round is one of this thread's; the ring has a place of its own for it.
            unsafe { ring.copy4(place + j * feature, columns.quad(first + round * block_dim(), j), policy) };
            j += 1;
        }
    };
    let fetch_step = |t: u32| {
        // Float pairs: a copy is 16 bytes.
        let to = Shared::<f32>::at(layout.steps).offset(t as usize % STEPS * 2 * width);
        let mut i = thread_idx() as usize;
        while t <= args.count && 2 * i < width {
            let from = args.steps.wrapping_add((t as usize - 1) * width + 2 * i);
            // SAFETY: within the step, which exists.
            unsafe { to.copy4(4 * i, from.cast(), streamed) };
            i += block_dim() as usize;
        }
    };
    let mut round = 0;
    while round < min_u32(rounds, args.resident + 1) {
        fetch(round);
        round += 1;
    }
    fetch_step(1);
    copies_commit();
    // Components behind K stay zeros.
    let mut i = thread_idx() as usize;
    while i < 2 * COMPONENTS * ROW {
        // SAFETY: within the components.
        unsafe { Shared::<f32>::at(layout.components).set(i, 0.0) };
        i += block_dim() as usize;
    }
    let mut i = thread_idx() as usize;
    while i < dim {
        // SAFETY: coordinate i.
        unsafe { point.set(i, load(args.state.add(i))) };
        i += block_dim() as usize;
    }
    // SAFETY: the log density lies behind the coordinates.
    let mut density = unsafe { load(args.state.add(dim)) };
    copies_wait();
    barrier!();

    // What the log density of proposal t has besides its likelihood, and this block's part of that (thread 0).
    let (mut base, mut sum) = (0.0, 0.0);
    let mut t = 0;
    loop {
        // Proposal t is evaluated, and not decided on yet; there is none with number 0.
        if warp == 0 {
            let mut accepted = false;
            if t > 0 {
                let total = if grid_dim() > 1 {
                    // SAFETY: once for each step, as all blocks.
                    unsafe { gather(args.exchange, args.before.wrapping_add(t), sum) }
                } else {
                    sum
                };
                if lane == 0 {
                    let value = if base > f64::MIN { fma64(LN_2, total, base) } else { f64::NEG_INFINITY };
                    // A NaN has no density either.
                    let value = if value > f64::MIN { value } else { f64::NEG_INFINITY };
                    // SAFETY: step t is in shared memory.
                    accepted = unsafe { step(layout, width, t).get(dim) } < value - density;
                    density = if accepted { value } else { density };
                    if block_idx() == 0 {
                        // SAFETY: a place for each step.
                        unsafe { store(args.densities.add(t as usize - 1), value) };
                    }
                }
            }
            if lane == 0 {
                // SAFETY: read behind the barrier.
                unsafe { records.set(record::ACCEPTED, if accepted { 1.0 } else { 0.0 }) };
            }
        } else if warp <= 2 && t < args.count && (t > 0 || warp == 1) {
            // SAFETY: whole warps; the steps have arrived, and the likelihood of proposal t is done.
            unsafe { propose::<D, ROW>(args, layout, t, warp == 2) };
        }
        barrier!();
        // SAFETY: written before the barrier.
        let accepted = unsafe { records.get(record::ACCEPTED) } != 0.0;
        if accepted {
            let mut i = thread_idx() as usize;
            while i < dim {
                // SAFETY: this thread's coordinates; the others read them behind the next barrier.
                unsafe { point.set(i, point.get(i) + step(layout, width, t).get(i)) };
                i += block_dim() as usize;
            }
        }
        if t == args.count {
            break;
        }
        let after = if accepted { record::AFTER_ACCEPTANCE } else { record::AFTER_REJECTION };
        // SAFETY: written before the barrier.
        base = unsafe { records.get(after) };
        let components = Shared::<f32>::at(layout.components).offset(accepted as usize * COMPONENTS * ROW);
        t += 1;
        fetch_step(t + 1);
        copies_commit();
        let mut product = LogProduct::new();
        let mut round = 0;
        while round < rounds {
            let place = min_u32(round, args.resident) as usize * D * feature;
            if streams && round >= args.resident {
                copies_wait();
            }
            let mut x = [[[0.0; QUAD]; D]; 1];
            let mut j = 0;
            while j < D {
                // SAFETY: this thread's own copies, which have arrived.
                x[0][j] = unsafe { ring.get4(place + j * feature) };
                j += 1;
            }
            if streams && round >= args.resident {
                // The samples are in registers; after the last round comes the first of the next step.
                fetch(if round + 1 < rounds { round + 1 } else { args.resident });
                copies_commit();
            }
            // SAFETY: the components are in shared memory since the barrier; the quad exists.
            unsafe {
                let quad = first + round * block_dim();
                let sums = likelihoods::<D, ROW4, 1>(&x, components, args.k.next_multiple_of(2));
                multiply_quad(&mut product, sums[0], quad, columns, components, (args.d, args.k));
            }
            round += 1;
        }
        if !streams {
            copies_wait();
        }
        // SAFETY: all threads of the block, with the start of the shared memory unused.
        sum = unsafe { Output::block_sum(product) };
    }
    copies_wait();
    if block_idx() == 0 {
        let mut i = thread_idx() as usize;
        while i < dim {
            // SAFETY: coordinate i; all blocks have read the state since they sent their first number.
            unsafe { store(args.state.add(i), point.get(i)) };
            i += block_dim() as usize;
        }
        if thread_idx() == 0 {
            // SAFETY: as above.
            unsafe { store(args.state.add(dim), density) };
        }
    }
}

#[inline(always)]
fn min_u32(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

macro_rules! instances {
    ($($name:ident $d:literal),*) => { $(
        kernel! {
            /// Steps of random-walk Metropolis.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: MetropolisArgs) {
                // SAFETY: the caller's.
                unsafe { body::<$d, { row($d) }, { row($d) / 4 }>(&args) }
            }
        }
    )* };
}
instances!(metropolis_d01 1, metropolis_d02 2, metropolis_d03 3, metropolis_d04 4, metropolis_d05 5, metropolis_d06 6, metropolis_d07 7, metropolis_d08 8,
    metropolis_d09 9, metropolis_d10 10, metropolis_d11 11, metropolis_d12 12, metropolis_d13 13, metropolis_d14 14, metropolis_d15 15, metropolis_d16 16);
