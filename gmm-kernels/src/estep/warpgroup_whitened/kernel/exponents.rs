//! `warpgroup_whiten_d…`: features times triangles; `warpgroup_normalise`: each sample's log-sum-exp.
use super::*;
use crate::estep::whitened::exchange;
use crate::likelihood::tiled::finish_sample;
use crate::math::{LogProduct, LogSumExp};

/// The triangles of the block's group, then their shifts.
#[inline(always)]
fn triangles() -> Shared<Halves> {
    Shared::at(HEAD)
}

/// Brings the triangles and the shifts of the group to shared memory.
///
/// # Safety
/// All threads of the block call it; the arrays are valid for their sizes.
#[inline(always)]
unsafe fn begin(args: &WhitenArgs, first: usize, units: usize) {
    let shape = args.shape;
    let of_unit = 2 * shape.unit_part();
    let arrived = Mbarrier::at(0);
    if thread_idx() == 0 {
        // SAFETY: nobody uses it yet; the group's triangles are there, and there is a place for them.
        unsafe {
            arrived.init(1);
            mbarriers_ready();
            arrived.expect((units * of_unit) as u32);
            let mut unit = 0;
            while unit < units {
                not_unrolled();
                let from = args.triangles.wrapping_add((first + unit) * of_unit / size_of::<u32>());
                triangles().offset(unit * of_unit / size_of::<u32>()).copy_bulk(from, of_unit as u32, arrived);
                unit += 1;
            }
        }
    }
    let to: Shared<f32> = triangles().offset(units * of_unit / size_of::<u32>()).cast();
    let mut i = thread_idx() as usize;
    while i < units * shape.unit_rows() {
        let (of_unit, feature) = shape.of_row(i % shape.unit_rows());
        let component = shape.of_unit() * (first + i / shape.unit_rows()) + of_unit;
        let from = args.shifts.wrapping_add(component * shape.width() + feature);
        // SAFETY: the shifts of all components, and a place for each of the group.
        unsafe { to.set(i, if component < shape.k as usize { load(from) } else { 0.0 }) };
        i += block_dim() as usize;
    }
    barrier!();
    // SAFETY: the barrier is ready.
    unsafe { arrived.wait(0) };
}

/// The features of the warp's sixteen samples, of sixteen features the high part, then the low one.
///
/// # Safety
/// The features of the tile are there.
#[inline(always)]
unsafe fn features<const S: usize>(args: &WhitenArgs, tile: usize) -> [[Halves; 8]; S] {
    let shape = args.shape;
    let (warp, lane) = ((thread() / WARP % 4) as usize, (thread() % WARP) as usize);
    let bytes = (2 * tile + warp / 2) * 2 * shape.stage_part() + warp % 2 * 2 * shape.pitch();
    let from = args.features.wrapping_add(bytes / size_of::<u32>() + lane);
    let mut x = [[0; 8]; S];
    let mut step = 0;
    while step < S {
        let mut i = 0;
        while i < 8 {
            let matrix = i / 4 * shape.stage_part() + i % 2 * shape.pitch() + (2 * step + i / 2 % 2) * MATRIX;
            // SAFETY: the caller guarantees it.
            x[step][i] = unsafe { load_u32(from.wrapping_add(matrix / size_of::<u32>())) };
            i += 1;
        }
        step += 1;
    }
    x
}

/// |A·x + b|² of the lane's samples, `lane / 4` and eight further on, and of the components of a unit, from its sums.
///
/// # Safety
/// Constants of all components and the unit's shifts are there.
#[inline(always)]
unsafe fn distances<const UNIT: usize, const N: usize>(
    args: &WhitenArgs,
    sums: &[f32; N],
    component: usize,
    shifts: Shared<f32>,
) -> [[f32; 2]; UNIT] {
    let mut scales = [0.0; UNIT];
    let mut c = 0;
    while c < UNIT {
        if component + c < args.shape.k as usize {
            // SAFETY: the caller guarantees it.
            scales[c] = unsafe { load(args.constants.wrapping_add(component + c)) };
        }
        c += 1;
    }
    let mut squares = [[0.0f32; 2]; UNIT];
    let shifts = shifts.offset(2 * (thread() % 4) as usize);
    let mut j = 0;
    while j < N / 4 {
        // SAFETY: the caller guarantees it.
        let shift: [f32; 2] = unsafe { shifts.get_some(8 * j) };
        let c = j / 2 % UNIT;
        let mut i = 0;
        while i < 4 {
            let t = fma(sums[4 * j + i], scales[c], shift[i % 2]);
            squares[c][i / 2] = fma(t, t, squares[c][i / 2]);
            i += 1;
        }
        j += 1;
    }
    squares
}

/// Sums the distances of four neighbouring lanes, and writes the exponents.
///
/// # Safety
/// A place for each exponent, which no other thread accesses; all lanes of the warp call it.
#[inline(always)]
unsafe fn finish<const UNIT: usize>(args: &WhitenArgs, squares: [[f32; 2]; UNIT], component: usize, sample: usize) {
    let shape = args.shape;
    let lane = thread();
    let (mut mine, mut half) = (component, lane % 2);
    let distance = if UNIT == 2 {
        // A component to each of two neighbours, then a sample to each pair of them.
        let upper = !lane.is_multiple_of(2);
        let both = [
            exchange(upper, squares[0][0], squares[UNIT - 1][0], 1),
            exchange(upper, squares[0][1], squares[UNIT - 1][1], 1),
        ];
        mine += half as usize;
        half = lane / 2 % 2;
        exchange(half == 1, both[0], both[1], 2)
    } else {
        let one = exchange(half == 1, squares[0][0], squares[0][1], 1);
        one + f32::from_bits(shuffle_xor_u32(one.to_bits(), 2))
    };
    if mine < shape.k as usize && (UNIT == 2 || lane % 4 < 2) {
        let sample = sample + 8 * half as usize;
        let to = args.q.wrapping_add((sample / STAGE * shape.rows() + mine) * STAGE + sample % STAGE);
        // SAFETY: the caller guarantees it; constants of all components.
        unsafe { store(to, load(args.constants.wrapping_add(shape.k as usize + mine)) - distance) };
    }
}

#[inline(always)]
unsafe fn body<const S: usize, const UNIT: usize, const N: usize>(
    args: &WhitenArgs,
    multiply: impl Fn(&[[Halves; 8]; S], [Operand; 2]) -> [f32; N],
) {
    let shape = args.shape;
    let first = (block_idx_y() * args.group_units) as usize;
    let units = min_usize(args.group_units as usize, shape.units() - first);
    // SAFETY: the caller guarantees it.
    unsafe { begin(args, first, units) };
    let shifts: Shared<f32> = triangles().offset(2 * units * shape.unit_part() / size_of::<u32>()).cast();
    let tiles = args.n.div_ceil(SAMPLES as u64) as usize;
    let mut tile = (block_idx() * (WHITEN_BLOCK / WARPGROUP) + thread_idx() / WARPGROUP) as usize;
    while tile < tiles {
        not_unrolled();
        // SAFETY: the features of whole tiles.
        let x = unsafe { features::<S>(args, tile) };
        let sample = tile * SAMPLES + (thread() % WARPGROUP / WARP * 16 + thread() % WARP / 4) as usize;
        let mut unit = 0;
        while unit < units {
            not_unrolled();
            let component = UNIT * (first + unit);
            let high = Operand::new(triangles().offset(2 * unit * shape.unit_part() / size_of::<u32>()), 2 * MATRIX, MATRIX);
            let sums = multiply(&x, [high, high.offset(shape.unit_part())]);
            // SAFETY: constants and shifts are there, and a place for each exponent.
            unsafe {
                let squares = distances::<UNIT, N>(args, &sums, component, shifts.offset(unit * shape.unit_rows()));
                finish(args, squares, component, sample);
            }
            unit += 1;
        }
        tile += (grid_dim() * (WHITEN_BLOCK / WARPGROUP)) as usize;
    }
}

macro_rules! instances {
    ($($name:ident $width:literal $unit:literal $multiply:ident)*) => { $(
        kernel! {
            #[doc = concat!("Exponents of matrices of at most ", $width, " features.")]
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: WhitenArgs) {
                // SAFETY: the caller guarantees it; the triangles have arrived.
                unsafe { body::<{ $width / STEP }, $unit, { $unit * $width / 2 }>(&args, |x, b| $multiply(x, b)) };
            }
        }
    )* };
}
instances! {
    warpgroup_whiten_d32 32 2 warpgroup_triangles_32
    warpgroup_whiten_d64 64 1 warpgroup_triangles_64
    warpgroup_whiten_d96 96 1 warpgroup_triangles_96
    warpgroup_whiten_d128 128 1 warpgroup_triangles_128
}

kernel! {
    /// Maxima, factors and the total.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given.
    pub unsafe fn warpgroup_normalise(args: NormaliseArgs) {
        /// Components of which the exponents are read at once.
        const AT_ONCE: usize = 8;
        let shape = args.shape;
        let k = shape.k as usize;
        let mut product = LogProduct::new();
        let mut sample = (block_idx() * block_dim() + thread_idx()) as usize;
        while sample < (args.columns.n as usize).next_multiple_of(TILE) {
            let from = args.exponents.q.wrapping_add(sample / STAGE * shape.rows() * STAGE + sample % STAGE);
            let mut all = LogSumExp::new();
            let mut first = 0;
            while first < k {
                let (mut q, mut weights) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
                let mut some = LogSumExp::new();
                let mut i = 0;
                while i < AT_ONCE {
                    if first + i < k {
                        // SAFETY: exponents and weights of all components.
                        unsafe {
                            q[i] = load(from.wrapping_add((first + i) * STAGE));
                            weights[i] = load(args.weights.wrapping_add(first + i));
                        }
                    }
                    some.max = if weights[i] > 0.0 { max(some.max, q[i]) } else { some.max };
                    i += 1;
                }
                let mut i = 0;
                while i < AT_ONCE {
                    // A component without a weight may be above the maximum.
                    some.sum = fma(weights[i], exp2(min(q[i] - some.max, 1.0)), some.sum);
                    i += 1;
                }
                all.merge(some);
                first += AT_ONCE;
            }
            let outputs = (args.sample_weights, core::ptr::null_mut(), args.exponents);
            // SAFETY: as documented for the arguments.
            unsafe { finish_sample(&mut product, &args.columns, outputs, sample as u64, all) };
            sample += (grid_dim() * block_dim()) as usize;
        }
        // SAFETY: all threads end here, with the start of the shared memory unused.
        unsafe { args.output.finish(product) };
    }
}
