//! Operations over the lanes of a warp.
use super::Float;
use crate::simt::{WARP, mma64, tall_mma64, thread_idx};

/// The bits in which the numbers of lanes with the same columns of a tile of [`mma`]'s third operand differ.
///
/// [`mma`]: crate::simt::mma
pub const ROWS_OF_TILE: u32 = 0b11100;

/// Combines `x` by `step` with the value at each distance between lanes that differ in the bits of `masks`, the
/// shortest first. All lanes of the warp take part.
#[inline(always)]
pub fn butterfly<T>(mut x: T, mut masks: u32, step: impl Fn(T, u32) -> T) -> T {
    while masks != 0 {
        x = step(x, masks & masks.wrapping_neg());
        masks &= masks - 1;
    }
    x
}

/// Joins the values of the lanes that differ in the bits of `masks`, in each of them. All lanes of the warp take part.
#[inline(always)]
pub fn join_over<T: Float>(x: T, masks: u32, join: impl Fn(T, T) -> T) -> T {
    butterfly(x, masks, |x, distance| join(x, x.shuffle_xor(distance)))
}

/// The sum of `x` over the lanes that differ in the bits of `masks`, in each of them. All lanes of the warp take part.
#[inline(always)]
pub fn sum_over<T: Float>(x: T, masks: u32) -> T {
    join_over(x, masks, |a, b| a + b)
}

/// Sums each number over the lanes that differ in the bits of `masks`, the highest bits of a lane's number, which share
/// the sums: each has as many, at the beginning, in the order of these bits. All lanes of the warp take part.
#[inline(always)]
pub fn divided_sums<T: Float, const N: usize>(mut v: [T; N], masks: u32) -> [T; N] {
    let (lane, mut by, mut half) = (thread_idx() % WARP, WARP / 2, N / 2);
    while masks & by != 0 {
        let upper = lane & by != 0;
        counted!(for i in 0..half {
            // Both are read before one is chosen: a choice between places would keep the array in memory.
            let (low, high) = (v[i], v[half + i]);
            let (keep, give) = if upper { (high, low) } else { (low, high) };
            v[i] = keep + give.shuffle_xor(by);
        });
        by /= 2;
        half /= 2;
    }
    v
}

/// [`tall_mma64`] if `TALL`, else the same products by [`mma64`].
#[inline(always)]
pub fn multiply64<const TALL: bool>(c: [f64; 4], a: [f64; 4], b: [f64; 2]) -> [f64; 4] {
    if TALL {
        return tall_mma64(c, a, b);
    }
    let [c0, c1] = mma64(mma64([c[0], c[1]], a[0], b[0]), a[2], b[1]);
    let [c2, c3] = mma64(mma64([c[2], c[3]], a[1], b[0]), a[3], b[1]);
    [c0, c1, c2, c3]
}
