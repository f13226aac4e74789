//! `warpgroup_whiten_d…`: features times triangles; `warpgroup_normalise`: each sample's log-sum-exp.
use super::*;
use crate::estep::whitened_mma::kernel::exchange;
use crate::likelihood::tiled::kernel::finish_sample;
use crate::math::{LogProduct, LogSumExp};

/// The triangles of the block's group, then their shifts, then for each component the factor of its sums, and its seed.
#[inline(always)]
fn triangles() -> Shared<Halves> {
    Shared::at(HEAD)
}

/// Copies the group's triangles, shifts and constants to shared memory.
/// Safety: all threads of the block call it; the arrays are valid for their sizes.
#[inline(always)]
unsafe fn begin(args: &WhitenArgs, first: usize, units: usize) {
    let shape = args.shape;
    let of_unit = 2 * shape.unit_part();
    let arrived = Mbarrier::at(0);
    if thread_idx() == 0 {
        // SAFETY: no thread uses it yet; the group's triangles exist, and have a place.
        arrived.init(1);
        mbarriers_ready();
        arrived.expect((units * of_unit) as u32);
        counted!(for unit in 0..units {
            not_unrolled();
            let from = args.triangles.wrapping_add((first + unit) * of_unit / size_of::<u32>());
            triangles().offset(unit * of_unit / size_of::<u32>()).copy_bulk(from, of_unit as u32, arrived);
        });
    }
    let to: Shared<f32> = triangles().offset(units * of_unit / size_of::<u32>()).cast();
    counted!(for i in (thread_idx() as usize..units * shape.unit_rows()).step_by(block_dim() as usize) {
        let (of_unit, feature) = shape.of_row(i % shape.unit_rows());
        let component = shape.of_unit() * (first + i / shape.unit_rows()) + of_unit;
        let from = args.shifts.wrapping_add(component * shape.width() + feature);
        // SAFETY: the shifts of all components, and a place for each of the group.
        to.set(i, if component < shape.k as usize { load(from) } else { 0.0 });
    });
    let to = to.offset(units * shape.unit_rows());
    counted!(for i in (thread_idx() as usize..2 * units * shape.of_unit()).step_by(block_dim() as usize) {
        let component = shape.of_unit() * first + i / 2;
        let from = args.constants.wrapping_add(i % 2 * shape.k as usize + component);
        // SAFETY: the constants of all components, and a place for each of the group.
        to.set(i, if component < shape.k as usize { load(from) } else { 0.0 });
    });
    barrier!();
    // SAFETY: the barrier is ready.
    arrived.wait(0);
}

/// Reads the features of the warp's sixteen samples: for each sixteen features, high parts, then low parts.
/// Safety: the tile has features.
#[inline(always)]
unsafe fn features<const S: usize>(args: &WhitenArgs, tile: usize) -> [[Halves; 8]; S] {
    let shape = args.shape;
    let (warp, lane) = ((thread() / WARP % 4) as usize, (thread() % WARP) as usize);
    let bytes = (2 * tile + warp / 2) * 2 * shape.stage_part() + warp % 2 * 2 * shape.pitch();
    let from = args.features.wrapping_add(bytes / size_of::<u32>() + lane);
    let mut x = [[0; 8]; S];
    counted!(for step in 0..S {
        counted!(for i in 0..8 {
            let matrix = i / 4 * shape.stage_part() + i % 2 * shape.pitch() + (2 * step + i / 2 % 2) * MATRIX;
            x[step][i] = load_u32(from.wrapping_add(matrix / size_of::<u32>()));
        });
    });
    x
}

/// Adds the sums of some bands to |A·x + b|² of the lane's samples, `lane / 4` and eight further, for a unit's
/// components.
/// Safety: the constants of the unit are there, and the shifts of the bands.
#[inline(always)]
unsafe fn add_squares<const UNIT: usize, const N: usize>(
    sums: &[f32; N],
    constants: Shared<f32>,
    shifts: Shared<f32>,
    squares: &mut [[f32; 2]; UNIT],
) {
    let shifts = shifts.offset(2 * (thread() % 4) as usize);
    let mut scales = [0.0; UNIT];
    counted!(for c in 0..UNIT {
        scales[c] = constants.get(2 * c);
    });
    counted!(for j in 0..N / 4 {
        let shift: [f32; 2] = shifts.get_some(8 * j);
        // The component of rows j of the band, eight for each j.
        let c = j % (UNIT_BAND / 8) * UNIT / (UNIT_BAND / 8);
        counted!(for i in 0..4 {
            let t = fma(sums[4 * j + i], scales[c], shift[i % 2]);
            squares[c][i / 2] = fma(t, t, squares[c][i / 2]);
        });
    });
}

/// Adds up the distances over four neighbouring lanes; writes the exponents of two components. All lanes call it.
/// Safety: the constants of both are there; each exponent has a place, which no other thread accesses.
#[inline(always)]
unsafe fn finish(args: &WhitenArgs, squares: [[f32; 2]; 2], constants: Shared<f32>, component: usize, sample: usize) {
    let shape = args.shape;
    let (odd, half) = (thread() % 2, thread() / 2 % 2);
    // One component for each of two neighbours, then one sample for each pair of lanes.
    let [first, second] = squares;
    let both = [exchange(odd == 1, first[0], second[0], 1), exchange(odd == 1, first[1], second[1], 1)];
    let distance = exchange(half == 1, both[0], both[1], 2);
    let (component, sample) = (component + odd as usize, sample + 8 * half as usize);
    if component < shape.k as usize {
        let to = args.q.wrapping_add((sample / STAGE * shape.rows() + component) * STAGE + sample % STAGE);
        store(to, constants.get(2 * odd as usize + 1) - distance);
    }
}

#[inline(always)]
unsafe fn body<const S: usize, const UNIT: usize>(
    args: &WhitenArgs,
    distances: impl Fn(&[[Halves; 8]; S], [Operand; 2], Shared<f32>, Shared<f32>) -> [[f32; 2]; UNIT],
) {
    let shape = args.shape;
    let first = (block_idx_y() * args.group_units) as usize;
    let units = smaller(args.group_units as usize, shape.units() - first);
    begin(args, first, units);
    let shifts: Shared<f32> = triangles().offset(2 * units * shape.unit_part() / size_of::<u32>()).cast();
    let constants = shifts.offset(units * shape.unit_rows());
    let tiles = args.n.div_ceil(SAMPLES as u64) as usize;
    counted!(for tile in ((block_idx() * (block_dim() / WARPGROUP) + thread_idx() / WARPGROUP) as usize..tiles)
        .step_by((grid_dim() * (block_dim() / WARPGROUP)) as usize)
    {
        not_unrolled();
        // SAFETY: the features of whole tiles.
        let x = features::<S>(args, tile);
        let sample = tile * SAMPLES + (thread() % WARPGROUP / WARP * 16 + thread() % WARP / 4) as usize;
        counted!(for unit in 0..units {
            not_unrolled();
            let component = UNIT * (first + unit);
            let high =
                Operand::new(triangles().offset(2 * unit * shape.unit_part() / size_of::<u32>()), 2 * MATRIX, MATRIX);
            let operands = [high, high.offset(shape.unit_part())];
            let constants = constants.offset(unit * 2 * UNIT);
            let squares = distances(&x, operands, constants, shifts.offset(unit * shape.unit_rows()));
            counted!(for c in (0..UNIT).step_by(2) {
                // SAFETY: the constants are there, and a place for each exponent.
                finish(args, [squares[c], squares[c + 1]], constants.offset(2 * c), component + c, sample);
            });
        });
    });
}

macro_rules! instances {
    ($($name:ident $width:literal $unit:literal [$($multiply:ident $band:literal)*])*) => { $(
        kernel! {
            #[doc = concat!("Exponents of matrices of at most ", $width, " features.")]
            pub unsafe fn $name(args: WhitenArgs) {
                // SAFETY: the triangles have arrived, and shifts and constants are there.
                body::<{ $width / STEP }, $unit>(&args, |x, triangles, constants, shifts| {
                    let mut squares = [[0.0; 2]; $unit];
                    $( add_squares(&$multiply(x, triangles), constants, shifts.offset($band * UNIT_BAND), &mut squares); )*
                    squares
                });
            }
        }
    )* };
}
// Each function, and the first band that it multiplies.
instances! {
    warpgroup_whiten_d32 32 4 [warpgroup_triangles_32 0]
    warpgroup_whiten_d64 64 2 [warpgroup_triangles_64 0]
    warpgroup_whiten_d96 96 2 [warpgroup_triangles_64 0 warpgroup_triangles_96_last 2]
    warpgroup_whiten_d128 128 2 [warpgroup_triangles_64 0 warpgroup_triangles_128_last 2]
}

kernel! {
    /// Computes maxima, factors and the total.
    pub unsafe fn warpgroup_normalise(args: NormaliseArgs) {
        /// Components whose exponents are read at once.
        const AT_ONCE: usize = 8;
        let shape = args.shape;
        let k = shape.k as usize;
        let mut product = LogProduct::new();
        counted!(for sample in ((block_idx() * block_dim() + thread_idx()) as usize..(args.columns.n as usize).next_multiple_of(TILE)).step_by((grid_dim() * block_dim()) as usize) {
            let from = args.exponents.q.wrapping_add(sample / STAGE * shape.rows() * STAGE + sample % STAGE);
            let mut all = LogSumExp::new();
            counted!(for first in (0..k).step_by(AT_ONCE) {
                let (mut q, mut weights) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
                let mut some = LogSumExp::new();
                counted!(for i in 0..AT_ONCE {
                    if first + i < k {
                        // SAFETY: exponents and weights of all components.
                        q[i] = load(from.wrapping_add((first + i) * STAGE));
                        weights[i] = load(args.weights.wrapping_add(first + i));
                    }
                    some.max = if weights[i] > 0.0 { max(some.max, q[i]) } else { some.max };
                });
                counted!(for i in 0..AT_ONCE {
                    // A component without weight may be above the maximum.
                    some.sum = fma(weights[i], exp2(min(q[i] - some.max, 1.0)), some.sum);
                });
                all.merge(some);
            });
            let outputs = (args.sample_weights, core::ptr::null_mut(), args.exponents);
            // SAFETY: as documented for the arguments.
            finish_sample(&mut product, &args.columns, outputs, sample as u64, all);
        });
        // SAFETY: all threads end here, and the start of the shared memory is unused.
        args.output.finish(product);
    }
}
