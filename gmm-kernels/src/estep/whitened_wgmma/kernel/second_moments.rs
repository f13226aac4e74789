//! `warpgroup_outer_d…`: features times responsibilities, times features, summed over the samples.
use super::*;

/// The barriers for the stages. All threads read features.
const STAGES: Places<STAGES_AHEAD> = Places { bytes: FINISH_SHARED_BYTES, of_warp: WARP };

/// A stage: both parts of its features, then the block's responsibilities.
#[inline(always)]
fn stage(shape: Shape, place: u32) -> Shared<Halves> {
    let sums = shape.pairs() * shape.pair_sums() * MULTIPLYING as usize * size_of::<f32>();
    Shared::at(HEAD + sums + place as usize * shape.stage())
}

/// The number of stages of the block's slice.
#[inline(always)]
fn count(args: &OuterArgs) -> u32 {
    let all = args.n.div_ceil(STAGE as u64) as u32;
    let slice = block_idx_y();
    (all + args.slices - 1 - slice).checked_div(args.slices).unwrap_or(0)
}

/// Copies the slice's stage `number`.
/// Safety: one whole warp of the block calls it; the barriers are ready; the stage exists.
#[inline(always)]
unsafe fn copy(args: &OuterArgs, number: u32) {
    let shape = args.shape;
    let all = (block_idx_y() + number * args.slices) as usize;
    let features = 2 * shape.stage_part() / size_of::<u32>();
    // SAFETY: the place was read, or is empty; the arrays have the stage.
    let place = STAGES.claim(number, shape.stage());
    let (to, full) = (stage(shape, place), STAGES.full(place));
    if thread().is_multiple_of(WARP) {
        to.copy_bulk(args.features.wrapping_add(all * features), 2 * shape.stage_part() as u32, full);
    } else if thread() % WARP == 1 {
        let first = block_idx() as usize * shape.block_rows();
        let from = args.responsibilities.wrapping_add((all * shape.rows() + first) * (STAGE / 2));
        to.offset(features).copy_bulk(from, (shape.block_rows() * STAGE * 2) as u32, full);
    }
}

/// Adds a stage to the sums of the warpgroup's pairs. The whole warpgroup calls it.
/// Safety: the stage has arrived.
#[inline(always)]
unsafe fn add_stage<const BANDS: usize, const OCTETS_OF_FEATURES: usize, const A: usize, const CALLS: usize>(
    shape: Shape,
    stage: Shared<Halves>,
    sums: &mut [[f32; A]; CALLS],
    mut add: u32,
    multiply: &impl Fn(&mut [f32; A], &[[Halves; 8]; OCTETS_OF_FEATURES], [Operand; 2], u32),
) {
    let (warp, lane) = ((thread() / WARP) as usize, (thread() % WARP) as usize);
    // Of sixteen samples the first eight, then the last eight; likewise of sixteen features.
    let of_lane = lane / 16 * shape.pitch() + (lane / 8 % 2 + warp % 2 * 2) * MATRIX + lane % 8 * (MATRIX / 8);
    // The warpgroup's pairs; two warps share each component.
    let first = 2 * shape.pairs() * (warp / 4) + warp / 2 % 2;
    let responsibilities: Shared<f32> =
        stage.offset(2 * shape.stage_part() / size_of::<u32>() + first * (STAGE / 2) + 2 * (lane % 4)).cast();
    written_out!(for sixteen in 0..(STAGE / 16) {
        let of_sixteen = stage.offset(sixteen * 2 * shape.pitch() / size_of::<u32>());
        let mut x = [[[0; 4]; 2]; BANDS];
        written_out!(for call in 0..CALLS {
            let mut a = [[0; 8]; OCTETS_OF_FEATURES];
            counted!(for eight in 0..OCTETS_OF_FEATURES {
                let (pair, band) = (call * (OCTETS_OF_FEATURES / BANDS) + eight / BANDS, eight % BANDS);
                if pair == 0 {
                    let from = of_sixteen.offset((of_lane + band * (BAND / 8) * MATRIX) / size_of::<u32>());
                    x[band] =
                        [from.matrices_transposed(0), from.matrices_transposed(shape.stage_part() / size_of::<u32>())];
                }
                let r: [f32; 2] = responsibilities.get_some(pair * 2 * (STAGE / 2) + 8 * sixteen);
                counted!(for i in 0..4 {
                    let r = r[i / 2].to_bits();
                    let [high, low] = x[band];
                    // The rounding error of the high part is itself a float16 number.
                    a[eight][i] = multiply_halves(r, high[i]);
                    a[eight][4 + i] = fma_halves(r, low[i], fma_minus_halves(r, high[i], a[eight][i]));
                });
            });
            let high = Operand::new(of_sixteen, MATRIX, shape.pitch());
            multiply(&mut sums[call], &a, [high, high.offset(shape.stage_part())], add);
        });
        add = 1;
    });
}

/// This thread's places for its sums. Their addresses are computed again where needed, to save registers.
#[inline(always)]
fn kept() -> Shared<f32> {
    Shared::at(HEAD).offset(thread() as usize)
}

/// Computes the sums of the warpgroup's pairs over the block's slice.
/// Safety: two whole warpgroups call it; the barriers are ready.
#[inline(always)]
unsafe fn work<const BANDS: usize, const OCTETS_OF_FEATURES: usize, const A: usize, const CALLS: usize>(
    args: &OuterArgs,
    multiply: impl Fn(&mut [f32; A], &[[Halves; 8]; OCTETS_OF_FEATURES], [Operand; 2], u32),
) {
    let shape = args.shape;
    const NEXT: usize = MULTIPLYING as usize;
    let count = count(args);
    let mut sums = [[0.0f32; A]; CALLS];
    let (mut number, mut flushed) = (0, false);
    while number < count {
        not_unrolled();
        let until = if count - number < FLUSH { count } else { number + FLUSH };
        let mut since = 0;
        while number < until {
            not_unrolled();
            // SAFETY: the barrier says that the stage has arrived.
            let place = STAGES.arrived(number);
            add_stage::<BANDS, OCTETS_OF_FEATURES, A, CALLS>(shape, stage(shape, place), &mut sums, since, &multiply);
            STAGES.release(place);
            number += 1;
            since += 1;
        }
        let kept = kept();
        counted!(for call in 0..CALLS {
            counted!(for i in 0..A {
                let place = (call * A + i) * NEXT;
                // SAFETY: this thread's places, which it has written before it reads them.
                let before = if flushed { kept.get(place) } else { 0.0 };
                kept.set(place, before + sums[call][i]);
            });
        });
        flushed = true;
    }
    // A pair's numbers of all threads of the warpgroup are contiguous.
    let all = A * CALLS;
    let warpgroups = block_idx() * (MULTIPLYING / WARPGROUP) + thread() / WARPGROUP;
    let to = args.sums.wrapping_add(
        block_idx_y() as usize * shape.outer_sums()
            + warpgroups as usize * all * WARPGROUP as usize
            + (thread() % WARPGROUP) as usize,
    );
    let kept = kept();
    counted!(for i in 0..opaque(all as u32) as usize {
        not_unrolled();
        // SAFETY: no other thread has the place in memory.
        let sum = if flushed { kept.get(i * NEXT) } else { 0.0 };
        store_sum(to.wrapping_add(i * WARPGROUP as usize), f64::from(sum), args.add != 0);
    });
}

#[inline(always)]
unsafe fn body<const BANDS: usize, const OCTETS_OF_FEATURES: usize, const A: usize, const CALLS: usize>(
    args: &OuterArgs,
    multiply: impl Fn(&mut [f32; A], &[[Halves; 8]; OCTETS_OF_FEATURES], [Operand; 2], u32),
) {
    if thread_idx() == 0 {
        // SAFETY: no thread uses them yet.
        STAGES.init();
        mbarriers_ready();
    }
    barrier!();
    // SAFETY: the barriers are ready.
    if thread_idx() < MULTIPLYING {
        more_registers::<{ REGISTERS_OF_KINDS.0 }>();
        work::<BANDS, OCTETS_OF_FEATURES, A, CALLS>(args, multiply);
    } else {
        fewer_registers::<{ REGISTERS_OF_KINDS.1 }>();
        let count = count(args);
        let mut number = 0;
        while thread_idx() < MULTIPLYING + WARP && number < count {
            copy(args, number);
            number += 1;
        }
    }
}

macro_rules! instances {
    ($($name:ident $width:literal $eights:literal $sums:literal $calls:literal $multiply:ident)*) => { $(
        kernel! {
            #[doc = concat!("Sums over products of two features, of at most ", $width, " of them.")]
            pub unsafe fn $name(args: OuterArgs) {
                // SAFETY: the operands have arrived.
                body::<{ $width / BAND }, $eights, $sums, $calls>(&args, |sums, a, b, add| $multiply(sums, a, b, add));
            }
        }
    )* };
}
instances! {
    warpgroup_outer_d32 32 4 64 2 warpgroup_bands_32
    warpgroup_outer_d64 64 4 96 1 warpgroup_bands_64
    warpgroup_outer_d96 96 3 96 1 warpgroup_bands_96
    warpgroup_outer_d128 128 4 160 1 warpgroup_bands_128
}
