//! `warpgroup_exponents`: coefficients times products, then each sample's log-sum-exp.
use super::*;
use crate::likelihood::tiled::kernel::finish_sample;
use crate::math::{Float, LogProduct, LogSumExp};

/// A thread's numbers: two samples by a quarter of the components.
type GroupExponents = [f32; GROUP / 2];

/// Two samples' exponents of two components, which this thread alone reads and writes.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Four([f32; 4]);

/// The barriers for the steps of a tile's products.
const PRODUCTS: Places<MOST_STEPS> = Places { bytes: FINISH_SHARED_BYTES, of_warp: 1 };
/// The barriers for the steps of coefficients.
const STEPS: Places<STEPS_AHEAD> = Places { bytes: FINISH_SHARED_BYTES + 2 * 8 * MOST_STEPS, of_warp: 1 };

#[inline(always)]
fn products() -> Shared<Halves> {
    Shared::at(HEAD)
}

#[inline(always)]
fn coefficients(shape: Shape, place: u32) -> Shared<Halves> {
    Shared::at(HEAD + 2 * shape.part() + place as usize * COEFFICIENTS)
}

/// Copies all that the block multiplies, in order of use.
/// Safety: one whole warp of the block calls it; the barriers are ready; the arrays are valid for their sizes.
#[inline(always)]
unsafe fn copy(args: &ExponentsArgs, tiles: u32) {
    /// Bytes of eight samples' products of a step, in one part.
    const OCTET_BYTES: usize = STEP / 8 * MATRIX;
    /// Octets of samples, one per lane.
    const OCTETS: usize = 2 * SAMPLES / 8;
    const _: () = assert!(OCTETS == WARP as usize);
    let shape = args.shape;
    let lane = (thread() % WARP) as usize;
    let (groups, steps) = (shape.groups() as u32, shape.steps() as u32);
    let (mut tile, mut round, mut number) = (block_idx(), 0, 0);
    while tile < tiles {
        counted!(for group in 0..groups {
            counted!(for step in 0..steps {
                // SAFETY: the places were read, or are empty; the arrays have the tile's products and the coefficients.
                if group == 0 {
                    let place = PRODUCTS.claim(MOST_STEPS as u32 * round + step, OCTETS * OCTET_BYTES);
                    let at = (lane * shape.pitch() + step as usize * OCTET_BYTES) / size_of::<u32>();
                    let from = args.products.wrapping_add(tile as usize * 2 * shape.part() / size_of::<u32>() + at);
                    products().offset(at).copy_bulk(from, OCTET_BYTES as u32, PRODUCTS.full(place));
                }
                let place = STEPS.claim(number, COEFFICIENTS);
                if lane == 0 {
                    let at = (group * steps + step) as usize * COEFFICIENTS / size_of::<u32>();
                    let from = args.coefficients.wrapping_add(at);
                    coefficients(shape, place).copy_bulk(from, COEFFICIENTS as u32, STEPS.full(place));
                }
                number += 1;
            });
        });
        tile += grid_dim();
        round += 1;
    }
}

/// Multiplies a step's products of 64 samples by the coefficients of a group. The whole warpgroup calls it.
/// Safety: both have arrived for this thread.
#[inline(always)]
unsafe fn multiply(shape: Shape, half: usize, step: u32, place: u32) -> GroupExponents {
    let of_half = half * (SAMPLES / 16) * shape.pitch() + step as usize * (STEP / 8) * MATRIX;
    let high = Operand::new(products().offset(of_half / size_of::<u32>()), shape.pitch(), MATRIX);
    let low = high.offset(shape.part());
    let of_high = Operand::new(coefficients(shape, place), STEP / 8 * MATRIX, MATRIX);
    let of_low = of_high.offset(COEFFICIENTS / 2);
    warpgroup_multiply([high, low], [of_high, of_low])
}

/// Turns a group's sums into exponents, writes them, and adds them to the thread's samples from `sample` on.
/// Safety: the constants of all rows are there, and places for the exponents.
#[inline(always)]
unsafe fn finish_group(
    args: &ExponentsArgs,
    mut q: GroupExponents,
    group: u32,
    sample: usize,
    sums: &mut [LogSumExp; 2],
) {
    let rows = args.shape.rows();
    let first = group as usize * GROUP + 2 * (thread() % 4) as usize;
    let constants = args.constants.wrapping_add(first);
    let to = args.exponents.q.wrapping_add(args.shape.exponent(first, sample));
    let mut of_group = [LogSumExp::new(); 2];
    if args.later == 0 {
        counted!(for j in 0..GROUP / 8 {
            let (scale, seed) = (load_f32x2(constants.add(8 * j)), load_f32x2(constants.add(rows + 8 * j)));
            counted!(for i in 0..4 {
                q[4 * j + i] = fma(q[4 * j + i], scale[i % 2], seed[i % 2]);
            });
        });
    } else {
        counted!(for j in 0..GROUP / 8 {
            // SAFETY: this thread writes the exponents of the parts before, later.
            let (scale, before) =
                (load_f32x2(constants.add(8 * j)), load(to.wrapping_add(8 * j * SAMPLES).cast::<Four>()).0);
            counted!(for i in 0..4 {
                q[4 * j + i] = fma(q[4 * j + i], scale[i % 2], before[i]);
            });
        });
    }
    counted!(for j in 0..GROUP / 8 {
        counted!(for i in 0..4 {
            let sum = &mut of_group[i / 2];
            sum.max = max(sum.max, q[4 * j + i]);
        });
        let four = [q[4 * j], q[4 * j + 1], q[4 * j + 2], q[4 * j + 3]];
        store4(to.wrapping_add(8 * j * SAMPLES), four);
    });
    counted!(for j in 0..GROUP / 8 {
        let weight = load_f32x2(constants.add(2 * rows + 8 * j));
        counted!(for i in 0..4 {
            let sum = &mut of_group[i / 2];
            sum.sum = fma(weight[i % 2], exp2(q[4 * j + i] - sum.max), sum.sum);
        });
    });
    sums[0].merge(of_group[0]);
    sums[1].merge(of_group[1]);
}

/// Computes the exponents of the block's tiles.
/// Safety: two whole warpgroups call it; the barriers are ready.
#[inline(always)]
unsafe fn work(args: &ExponentsArgs, tiles: u32, product: &mut LogProduct) {
    let shape = args.shape;
    let warp = thread() / WARP;
    let (groups, steps) = (shape.groups() as u32, shape.steps() as u32);
    let (mut tile, mut round, mut number) = (block_idx(), 0, 0);
    while tile < tiles {
        let lane = thread() % WARP;
        let sample = tile as usize * SAMPLES + (16 * warp + lane / 4) as usize;
        let mut of_samples = [LogSumExp::new(); 2];
        counted!(for group in 0..groups {
            let mut sums = [0.0; GROUP / 2];
            counted!(for step in 0..steps {
                not_unrolled();
                // SAFETY: the barriers say that both operands have arrived; the arrays are valid for their sizes.
                if group == 0 {
                    PRODUCTS.arrived(MOST_STEPS as u32 * round + step);
                }
                let place = STEPS.arrived(number);
                let added = multiply(shape, warp as usize / 4, step, place);
                STEPS.release(place);
                if group + 1 == groups {
                    PRODUCTS.release(step);
                }
                counted!(for i in 0..GROUP / 2 {
                    sums[i] += added[i];
                });
                number += 1;
            });
            // SAFETY: as documented for the arguments.
            finish_group(args, sums, group, sample, &mut of_samples);
        });
        counted!(for h in 0..2 {
            let mut distance = 1;
            while distance < 4 {
                let LogSumExp { max, sum } = of_samples[h];
                of_samples[h].merge(LogSumExp { max: max.shuffle_xor(distance), sum: sum.shuffle_xor(distance) });
                distance *= 2;
            }
            if lane.is_multiple_of(4) && args.partial == 0 {
                let outputs = (args.sample_weights, core::ptr::null_mut(), args.exponents);
                finish_sample(product, &args.columns, outputs, (sample + 8 * h) as u64, of_samples[h]);
            }
        });
        tile += grid_dim();
        round += 1;
    }
}

kernel! {
    /// Computes exponents of diagonal covariances by warpgroups.
    pub unsafe fn warpgroup_exponents(args: ExponentsArgs) {
        let tiles = args.columns.n.div_ceil(SAMPLES as u64) as u32;
        if thread_idx() == 0 {
            // SAFETY: no thread uses them yet.
            PRODUCTS.init();
            STEPS.init();
            mbarriers_ready();
        }
        barrier!();
        let mut product = LogProduct::new();
        // SAFETY: the barriers are ready.
        if thread_idx() < MULTIPLYING {
            more_registers::<{ REGISTERS_OF_KINDS.0 }>();
            work(&args, tiles, &mut product);
        } else {
            fewer_registers::<{ REGISTERS_OF_KINDS.1 }>();
            if thread_idx() < MULTIPLYING + WARP {
                copy(&args, tiles);
            }
        }
        barrier!();
        if args.partial == 0 {
            // SAFETY: all threads end here, and the start of the shared memory is unused.
            args.output.finish(product);
        }
    }
}
