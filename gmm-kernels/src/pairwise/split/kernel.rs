use super::*;
use crate::simt::*;

/// The power of two not above a magnitude, within 2^-126 to 2^126, and its inverse.
#[inline(always)]
pub(crate) fn power_of_two(magnitude: u32) -> [f32; 2] {
    let exponent = (magnitude >> 23).clamp(1, 253);
    [f32::from_bits(exponent << 23), f32::from_bits((254 - exponent) << 23)]
}

/// Two powers of two, of about the same size, whose product is 2^e. A number times the product of the first powers of
/// 2^e and 2^f, then of the second, overflows or loses digits only if 2^(e + f) times it does.
#[inline(always)]
pub(crate) fn square_roots(power: f32) -> [f32; 2] {
    // Biased.
    let exponent = power.to_bits() >> 23;
    let half = (exponent + 127) / 2;
    [f32::from_bits(half << 23), f32::from_bits((exponent + 127 - half) << 23)]
}

/// Reads numbers 2·element and 2·element + 1 of [`TOGETHER`] segments, `step` apart from `first` on; zeros past the
/// end.
/// Safety: `x` has `d` numbers, at least one.
#[inline(always)]
unsafe fn pairs(x: *const f32, d: u32, [first, step]: [u32; 2], element: u32) -> [[f32; 2]; TOGETHER] {
    let mut pairs = [[0.0f32; 2]; TOGETHER];
    counted!(for t in 0..2 * TOGETHER {
        let j = (first + (t / 2) as u32 * step) * SEGMENT as u32 + 2 * element + (t % 2) as u32;
        // Without condition, so that no read waits for another.
        // SAFETY: below D.
        let number = load(x.add(j.min(d - 1) as usize));
        pairs[t / 2][t % 2] = if j < d { number } else { 0.0 };
    });
    pairs
}

/// The larger of `largest` and the magnitude of a number, as bits, which have the order of magnitudes.
#[inline(always)]
pub(crate) fn max_magnitude(largest: u32, number: f32) -> u32 {
    largest.max(number.to_bits() & 0x7fff_ffff)
}

/// The larger of `largest` and the magnitudes of the numbers.
#[inline(always)]
fn max_of_pairs(mut largest: u32, pairs: &[[f32; 2]; TOGETHER]) -> u32 {
    counted!(for t in 0..2 * TOGETHER {
        largest = max_magnitude(largest, pairs[t / 2][t % 2]);
    });
    largest
}

/// Two numbers times [`LARGEST`] and the inverse of their scale, split into the numbers h and l.
#[inline(always)]
pub(crate) fn split_pair([a, b]: [f32; 2], inverse: f32) -> [Halves; 2] {
    split_halves(a * inverse * LARGEST, b * inverse * LARGEST)
}

/// The largest of the numbers of a warp's lanes.
#[inline(always)]
fn warp_max(mut v: u32) -> u32 {
    let mut mask = WARP / 2;
    while mask > 0 {
        v = v.max(shuffle_xor_u32(v, mask));
        mask /= 2;
    }
    v
}

/// The largest of the numbers of a block's threads.
#[inline(always)]
fn block_max(v: u32) -> u32 {
    let of_warps = Shared::<Halves>::at(0);
    let (warp, lane) = (thread_idx() / WARP, thread_idx() % WARP);
    let v = warp_max(v);
    // The previous row's numbers have been read.
    barrier!();
    if lane == 0 {
        // SAFETY: a place for each warp.
        unsafe { of_warps.set(warp as usize, v) };
    }
    barrier!();
    // SAFETY: a warp of the block.
    warp_max(unsafe { of_warps.get(lane.min(block_dim() / WARP - 1) as usize) })
}

/// Splits the numbers that [`pairs`] has read.
/// Safety: `to` is a row of `segments` segments.
#[inline(always)]
unsafe fn write(
    pairs: &[[f32; 2]; TOGETHER],
    inverse: f32,
    to: *mut u32,
    segments: u32,
    [first, step]: [u32; 2],
    element: u32,
) {
    counted!(for t in 0..TOGETHER {
        let segment = first + t as u32 * step;
        if segment < segments {
            let [high, low] = split_pair(pairs[t], inverse);
            let to = to.wrapping_add((segment * SEGMENT_ELEMENTS as u32 + element) as usize);
            // SAFETY: the row's segment has 16 elements of either kind.
            store(to, high);
            store(to.add(SEGMENT_ELEMENTS / 2), low);
        }
    });
}

kernel! {
    /// Splits rows into float16 numbers.
    pub unsafe fn split_rows(args: SplitArgs) {
        let segments = args.d.div_ceil(SEGMENT as u32);
        // Half a warp takes a segment, a thread two neighbouring numbers.
        let (first, element) = (thread_idx() / (WARP / 2), thread_idx() % (WARP / 2));
        let step = block_dim() / (WARP / 2);
        let next = first + step * TOGETHER as u32;
        counted!(for row in (block_idx() as u64..args.rows).step_by(grid_dim() as u64) {
            let x = args.x.wrapping_add(row as usize * args.d as usize);
            let to = args.halves.wrapping_add(row as usize * segments as usize * SEGMENT_ELEMENTS);
            // SAFETY: the row exists, here and below.
            let kept = pairs(x, args.d, [first, step], element);
            let mut largest = max_of_pairs(0, &kept);
            counted!(for segment in (next..segments).step_by(step * TOGETHER as u32) {
                largest = max_of_pairs(largest, &pairs(x, args.d, [segment, step], element));
            });
            let [scale, inverse] = power_of_two(block_max(largest));
            write(&kept, inverse, to, segments, [first, step], element);
            counted!(for segment in (next..segments).step_by(step * TOGETHER as u32) {
                let pairs = pairs(x, args.d, [segment, step], element);
                write(&pairs, inverse, to, segments, [segment, step], element);
            });
            if thread_idx() == 0 {
                // SAFETY: below the number of rows.
                store(args.scales.add(row as usize), scale);
            }
        });
    }
}
