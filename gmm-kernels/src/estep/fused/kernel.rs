pub(crate) mod component;
pub(crate) mod lane;
pub(crate) mod likelihoods;
pub(crate) mod stages;
pub(crate) mod sums;

use super::*;
use crate::likelihood::small_k::THRESHOLD;
use crate::math::{Float, LogProduct, smaller};
use crate::simt::*;
use component::Component;
use lane::Lane;
use likelihoods::Likelihoods;
use stages::Stages;
use sums::{ComponentSums, add_lanes};

/// Stages of a warp between additions of its float32 sums to the float64 sums in shared memory.
const FLUSH: u32 = 32;

/// Copies all components' parameters to shared memory. All threads of the block take part.
/// Safety: `args` has COUNT parameters, and `to` has room for them.
#[inline(always)]
unsafe fn copy_parameters<const BY_VALUE: bool, const COUNT: usize>(to: Shared<f32>, args: &FusedArgs) {
    if !BY_VALUE {
        counted!(for i in (thread_idx() as usize..COUNT).step_by(block_dim() as usize) {
            to.set(i, load(args.parameters.add(i)));
        });
    } else if thread_idx().is_multiple_of(WARP) {
        // The first lanes of up to four warps share it. The places are constants, which keeps the arguments out of
        // local memory.
        const SHARES: usize = 4;
        written_out!(for share in 0..SHARES {
            let taker = if (share as u32) < block_dim() / WARP { share as u32 } else { 0 };
            if taker == thread_idx() / WARP {
                counted!(for i in COUNT * share / SHARES..COUNT * (share + 1) / SHARES {
                    to.set(i, args.by_value[i]);
                });
            }
        });
    }
}

/// The kernel. `FULL`: A is a triangle, and the second moments are of all pairs of features. A group of LANES lanes, with
/// one component each, takes four samples at a time. NUMBERS = [`numbers`]·LANES; MATRIX and SUMS are for D features.
#[inline(always)]
unsafe fn body<
    const FULL: bool,
    const LANES: usize,
    const D: usize,
    const NUMBERS: usize,
    const MATRIX: usize,
    const SUMS: usize,
>(
    args: &FusedArgs,
) {
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    // Shared memory: the sums of each warp, the parameters, the stages of each warp.
    let values = values(D, FULL, LANES);
    let per_warp = values.next_multiple_of(2);
    let warp_sums = Shared::<f64>::at(warp as usize * per_warp * size_of::<f64>());
    let parameters = Shared::<f32>::at(warps as usize * per_warp * size_of::<f64>());
    let ring = parameters.offset(NUMBERS + warp as usize * 2 * D * TILE);
    let stages = Stages::<D> { columns, ring, lane, cached, streamed };
    let step = grid_dim() * warps * WARP;
    let mut base = (block_idx() * warps + warp) * WARP;
    // SAFETY: at the start no thread reads the shared memory.
    stages.fetch(base, 0);
    counted!(for v in (lane..per_warp).step_by(WARP as usize) {
        // SAFETY: sums that only this warp uses.
        warp_sums.set(v, 0.0);
    });
    // SAFETY: the parameters and their place have these sizes; lane l's component is number l.
    let component = {
        if by_value(D, FULL, LANES) {
            copy_parameters::<true, NUMBERS>(parameters, args);
        } else {
            copy_parameters::<false, NUMBERS>(parameters, args);
        }
        barrier!();
        Component::<LANES, D, MATRIX>::load::<FULL>(parameters.offset(lane % LANES))
    };
    let mut of_lane = Lane::new(component);
    let mut stage = 0;
    let mut since_flush = 0;
    while base < columns.quads() {
        // SAFETY: all lanes have read the stage at the end of this loop.
        stages.fetch(base + step, stage ^ 1);
        copies_wait_but_one();
        warp_sync();
        let samples = stages.stage(stage);
        // SAFETY: stage and parameters have arrived; the weights are padded with zeros like the samples.
        of_lane.add_stage::<FULL, 4>(samples, columns, base, args.sample_weights);
        base += step;
        stage ^= 1;
        since_flush += 1;
        if since_flush == FLUSH || base >= columns.quads() {
            since_flush = 0;
            let sums = of_lane.sums.take::<SUMS>();
            // SAFETY: only this warp uses the sums; all lanes have read the stage, which is free until the next copy.
            add_lanes::<LANES, SUMS>(&sums, samples, D * TILE, |at, sum| warp_sums.set(at, warp_sums.get(at) + sum));
        }
        // The next copy into this stage starts only when all lanes have read it.
        warp_sync();
    }
    let total = of_lane.total();
    if lane == 0 {
        // SAFETY: a place that only this warp uses.
        warp_sums.set(values - 1, total);
    }
    barrier!();
    // SAFETY: the barrier made the sums of all warps visible.
    write_block_sums(args.partials, values, per_warp, warps as usize);
}

/// Adds up the warps' sums into the block's.
/// Safety: all threads of the block call it; the warps' sums are `per_warp` apart; each value has a place in
/// `partials`.
#[inline(always)]
unsafe fn write_block_sums(partials: *mut f64, values: usize, per_warp: usize, warps: usize) {
    counted!(for v in (thread_idx() as usize..values).step_by(block_dim() as usize) {
        let mut sum = 0.0;
        counted!(for warp in 0..warps {
            sum += Shared::<f64>::at(warp * per_warp * size_of::<f64>()).get(v);
        });
        store(partials.add(v * grid_dim() as usize + block_idx() as usize), sum);
    });
}

macro_rules! instances {
    ($($d:literal $diag8:ident $diag32:ident $($full8:ident $($full32:ident)?)?),*) => { $(
        instance!($diag8, false, 8, $d);
        instance!($diag32, false, 32, $d);
        $(
            instance!($full8, true, 8, $d);
            $(instance!($full32, true, 32, $d);)?
        )?
    )* };
}
macro_rules! instance {
    ($name:ident, $full:literal, $lanes:literal, $d:literal) => {
        kernels! {
            /// Computes each block's log-likelihood and sufficient statistics.
            $name: FusedArgs = body::<
                $full,
                $lanes,
                $d,
                { numbers($d, $full) * $lanes },
                { matrix($d, $full) },
                { sums($d, $full) },
            >;
        }
    };
}
instances!(
    1 fused_diag_k08_d01 fused_diag_k32_d01 fused_full_k08_d01 fused_full_k32_d01,
    2 fused_diag_k08_d02 fused_diag_k32_d02 fused_full_k08_d02 fused_full_k32_d02,
    3 fused_diag_k08_d03 fused_diag_k32_d03 fused_full_k08_d03 fused_full_k32_d03,
    4 fused_diag_k08_d04 fused_diag_k32_d04 fused_full_k08_d04 fused_full_k32_d04,
    5 fused_diag_k08_d05 fused_diag_k32_d05 fused_full_k08_d05,
    6 fused_diag_k08_d06 fused_diag_k32_d06 fused_full_k08_d06,
    7 fused_diag_k08_d07 fused_diag_k32_d07 fused_full_k08_d07,
    8 fused_diag_k08_d08 fused_diag_k32_d08 fused_full_k08_d08,
    9 fused_diag_k08_d09 fused_diag_k32_d09 fused_full_k08_d09,
    10 fused_diag_k08_d10 fused_diag_k32_d10 fused_full_k08_d10,
    11 fused_diag_k08_d11 fused_diag_k32_d11 fused_full_k08_d11,
    12 fused_diag_k08_d12 fused_diag_k32_d12 fused_full_k08_d12,
    13 fused_diag_k08_d13 fused_diag_k32_d13 fused_full_k08_d13,
    14 fused_diag_k08_d14 fused_diag_k32_d14,
    15 fused_diag_k08_d15 fused_diag_k32_d15,
    16 fused_diag_k08_d16 fused_diag_k32_d16
);
