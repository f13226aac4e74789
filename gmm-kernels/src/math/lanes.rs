//! What lanes of a warp have together.
use super::Float;

/// What `join` makes of the values of the lanes that differ in the bits of `masks`, in each of
/// them. All lanes of the warp take part.
#[inline(always)]
pub fn join_over(mut x: f64, mut masks: u32, join: impl Fn(f64, f64) -> f64) -> f64 {
    while masks != 0 {
        x = join(x, x.shuffle_xor(masks & masks.wrapping_neg()));
        masks &= masks - 1;
    }
    x
}

/// The sum of `x` over the lanes that differ in the bits of `masks`, in each of them. All lanes of
/// the warp take part.
#[inline(always)]
pub fn sum_over(x: f64, masks: u32) -> f64 {
    join_over(x, masks, |a, b| a + b)
}
