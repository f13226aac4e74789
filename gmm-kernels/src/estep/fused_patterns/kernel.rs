use super::*;
use crate::data::QUAD;
use crate::estep::fused::kernel::component::Component;
use crate::estep::fused::kernel::lane::Lane;
use crate::estep::fused::kernel::stages::Stages;
use crate::estep::fused::kernel::sums::add_lanes;
use crate::estep::fused::{matrix, numbers, sums};
use crate::patterns::SLICE;
use crate::simt::*;

/// The kernel. A group of LANES lanes, with one component each, shares SAMPLES samples at a time.
#[inline(always)]
unsafe fn body<
    const LANES: usize,
    const SAMPLES: usize,
    const D: usize,
    const NUMBERS: usize,
    const MATRIX: usize,
    const SUMS: usize,
>(
    args: &FusedPatternsArgs,
) {
    let (cached, streamed) = (policy_keep(), policy_stream());
    let (slice, lane) = (block_idx() as usize, thread_idx() as usize);
    // Shared memory: the parameters, the stages.
    let parameters = Shared::<f32>::at(0);
    let ring = parameters.offset(NUMBERS);
    // SAFETY: the slice exists.
    let (first, end, pattern) = {
        let slice = args.slices.add(slice * SLICE);
        (load_u32(slice), load_u32(slice.add(1)), load_u32(slice.add(2)))
    };
    let before = first / QUAD as u32;
    let columns = &Columns {
        x: args.columns.x.wrapping_add(first as usize),
        stride: args.columns.stride,
        n: (end - first) as u64,
        cached_quads: args.columns.cached_quads.saturating_sub(before),
    };
    let sample_weights = if args.sample_weights.is_null() {
        args.sample_weights
    } else {
        args.sample_weights.wrapping_add(first as usize)
    };
    let stages = Stages::<D> { columns, ring, lane, cached, streamed };
    let mut base = 0;
    // SAFETY: at the start no thread reads the shared memory; the pattern has parameters.
    stages.fetch_by::<true>(base, 0);
    let from =
        args.parameters.wrapping_add((pattern - args.of_patterns.first) as usize * args.of_patterns.stride as usize);
    counted!(for i in (lane..NUMBERS).step_by(WARP as usize) {
        parameters.set(i, load(from.add(i)));
    });
    warp_sync();
    // SAFETY: the parameters have arrived, and lane l's component is number l.
    let component = Component::<LANES, D, MATRIX>::load::<true>(parameters.offset(lane % LANES));
    let mut of_lane = Lane::new(component);
    let mut stage = 0;
    while base < columns.quads() {
        // SAFETY: all lanes have read the stage at the end of this loop.
        stages.fetch_by::<true>(base + WARP, stage ^ 1);
        copies_wait_but_one();
        warp_sync();
        let samples = stages.stage(stage);
        // SAFETY: the stage has arrived; the parameters are in shared memory; there are weights for the stage's
        // samples, or for the padding behind the last.
        of_lane.add_stage::<true, SAMPLES>(samples, columns, base, sample_weights);
        base += WARP;
        stage ^= 1;
        // The next copy into this stage starts after all lanes have read it.
        warp_sync();
    }
    let to = args.sums.wrapping_add(slice * SUMS * LANES);
    // SAFETY: all lanes have read the stages, and no copy is under way; a place for each number of the slice.
    add_lanes::<LANES, SUMS>(&of_lane.sums.take::<SUMS>(), stages.stage(0), D * TILE, |at, sum| store(to.add(at), sum));
    let total = of_lane.total();
    if lane == 0 {
        // SAFETY: a place for each slice.
        store(args.totals.add(slice), total);
    }
}

/// Samples that a group of lanes takes at a time: as many as the registers hold.
const fn samples(d: usize) -> usize {
    if d > 14 { 2 } else { 4 }
}

macro_rules! instances {
    ($($d:literal $k8:ident $k32:ident),*) => { $(
        instance!($k8, 8, $d);
        instance!($k32, 32, $d);
    )* };
}
macro_rules! instance {
    ($name:ident, $lanes:literal, $d:literal) => {
        kernels! {
            /// Computes each slice's log-likelihood and sufficient statistics.
            $name: FusedPatternsArgs = body::<
                $lanes,
                { samples($d) },
                $d,
                { numbers($d, true) * $lanes },
                { matrix($d, true) },
                { sums($d, true) },
            >;
        }
    };
}
instances!(
    1 fused_patterns_k08_d01 fused_patterns_k32_d01,
    2 fused_patterns_k08_d02 fused_patterns_k32_d02,
    3 fused_patterns_k08_d03 fused_patterns_k32_d03,
    4 fused_patterns_k08_d04 fused_patterns_k32_d04,
    5 fused_patterns_k08_d05 fused_patterns_k32_d05,
    6 fused_patterns_k08_d06 fused_patterns_k32_d06,
    7 fused_patterns_k08_d07 fused_patterns_k32_d07,
    8 fused_patterns_k08_d08 fused_patterns_k32_d08,
    9 fused_patterns_k08_d09 fused_patterns_k32_d09,
    10 fused_patterns_k08_d10 fused_patterns_k32_d10,
    11 fused_patterns_k08_d11 fused_patterns_k32_d11,
    12 fused_patterns_k08_d12 fused_patterns_k32_d12,
    13 fused_patterns_k08_d13 fused_patterns_k32_d13
);
