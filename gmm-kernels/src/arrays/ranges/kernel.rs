use super::*;
use crate::arrays::COLUMNS;
use crate::math::Float;
use crate::simt::*;

/// The smaller of two 64-bit numbers.
#[inline(always)]
fn lesser(a: u64, b: u64) -> u64 {
    if b < a { b } else { a }
}

#[inline(always)]
unsafe fn body<T: Float>(args: &RangesArgs<T>) {
    let array = args.array;
    let first = block_idx_y() as u64 * COLUMNS as u64;
    let (mut least, mut greatest) = ([-T::LOWEST; COLUMNS], [T::LOWEST; COLUMNS]);
    let mut not_finite = u64::MAX;
    counted!(for i in (block_idx() as u64 * block_dim() as u64 + thread_idx() as u64..array.n)
        .step_by(grid_dim() as u64 * block_dim() as u64)
    {
        counted!(for c in 0..COLUMNS {
            let j = first + c as u64;
            if j < array.d {
                // SAFETY: an element of the array.
                let v = T::load(array.at(i, j));
                if v < least[c] {
                    least[c] = v;
                }
                if v > greatest[c] {
                    greatest[c] = v;
                }
                let finite = v >= T::LOWEST && v <= -T::LOWEST;
                if !finite {
                    not_finite = lesser(not_finite, i * array.d + j);
                }
            }
        });
    });
    let mut mask = WARP / 2;
    while mask > 0 {
        counted!(for c in 0..COLUMNS {
            let (a, b) = (least[c].shuffle_xor(mask), greatest[c].shuffle_xor(mask));
            if a < least[c] {
                least[c] = a;
            }
            if b > greatest[c] {
                greatest[c] = b;
            }
        });
        let low = shuffle_xor_u32(not_finite as u32, mask);
        let high = shuffle_xor_u32((not_finite >> 32) as u32, mask);
        not_finite = lesser(not_finite, (high as u64) << 32 | low as u64);
        mask /= 2;
    }
    if thread_idx().is_multiple_of(WARP) {
        let warps = (block_dim() / WARP) as u64;
        let warp = block_idx() as u64 * warps + (thread_idx() / WARP) as u64;
        // SAFETY: a place for each warp along x, and each column or block along y.
        counted!(for c in 0..COLUMNS {
            let j = first + c as u64;
            if j < array.d {
                store(args.least.wrapping_add((warp * array.d + j) as usize), least[c]);
                store(args.greatest.wrapping_add((warp * array.d + j) as usize), greatest[c]);
            }
        });
        let place = block_idx_y() as u64 * grid_dim() as u64 * warps + warp;
        store(args.not_finite.wrapping_add(place as usize), not_finite);
    }
}

kernels! {
    /// Finds the range of each column, and the first element that is not finite.
    array_ranges_f32: RangesArgs<f32> = body;
    array_ranges_f64: RangesArgs<f64> = body;
}
