//! Operations over the lanes of a warp.
use super::Float;

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
