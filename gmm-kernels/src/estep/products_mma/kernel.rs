mod exponents;
mod weigh;

use super::*;
use crate::math::{Float, ROWS_OF_TILE, butterfly};
use crate::simt::*;

/// Tiles of 8 columns of a warp.
const COLUMN_TILES: usize = COLUMNS / 8;

/// The sums of a lane: (tiles of components, tiles of columns, numbers of [`mma`]).
type TileSums<const T: usize> = [[[f32; 4]; COLUMN_TILES]; T];

/// The offset at which a lane reads A of [`mma`], (16, 16) with rows `pitch` elements apart.
#[inline(always)]
fn row_of_a(pitch: usize) -> usize {
    let lane = (thread() % WARP) as usize;
    lane % 16 * pitch + 4 * (lane / 16)
}

/// Adds A·B for T tiles of A, and both tiles of eight columns of B.
#[inline(always)]
pub(crate) fn multiply_tiles<const T: usize>(sums: &mut [[[f32; 4]; 2]; T], a: &[[Halves; 4]; T], b: [Halves; 4]) {
    counted!(for t in 0..T {
        sums[t][0] = mma(sums[t][0], a[t], [b[0], b[1]]);
        sums[t][1] = mma(sums[t][1], a[t], [b[2], b[3]]);
    });
}

/// A feature of a quad of samples, split into two float16 numbers each: high parts, then low parts.
pub(crate) type Feature = [Halves; QUAD];

/// Splits a feature, times [`FEATURE_SCALE`].
#[inline(always)]
pub(crate) fn split_feature(x: [f32; QUAD]) -> Feature {
    let s = FEATURE_SCALE;
    let (first, second) = (split_halves(s * x[0], s * x[1]), split_halves(s * x[2], s * x[3]));
    [first[0], second[0], first[1], second[1]]
}

/// The product of two features. The high part's rounding error is itself a float16 number; low times low is left out.
#[inline(always)]
pub(crate) fn product(a: Feature, b: Feature) -> Feature {
    /// The signs of both numbers.
    const SIGNS: Halves = 0x8000_8000;
    let mut product = [0; QUAD];
    counted!(for p in 0..2 {
        let high = multiply_halves(a[p], b[p]);
        let low = fma_halves(a[p], b[p], high ^ SIGNS);
        let low = fma_halves(a[p], b[2 + p], low);
        (product[p], product[2 + p]) = (high, fma_halves(a[2 + p], b[p], low));
    });
    product
}

/// Sums of both numbers over QUADS neighbouring lanes (a power of two), which hold the quads of a component.
#[inline(always)]
pub(crate) fn sums_of_quads<const QUADS: usize>(sums: [f32; 2]) -> [f32; 2] {
    butterfly(sums, QUADS as u32 - 1, |[a, b], distance| [a + a.shuffle_xor(distance), b + b.shuffle_xor(distance)])
}

/// Writes a sum to memory, or adds it to the number there.
/// Safety: the place is valid, and no other thread accesses it.
#[inline(always)]
pub(crate) unsafe fn store_sum(to: *mut f64, sum: impl Into<f64>, add: bool) {
    let before = if add { load(to) } else { 0.0 };
    store(to, before + sum.into());
}

#[inline(always)]
pub(crate) fn one() -> Feature {
    split_feature([ONE; QUAD])
}

/// Writes a product of a quad of samples to shared memory, the low part `low` elements behind the high part.
/// Safety: both places exist, and only this thread accesses them.
#[inline(always)]
unsafe fn set_product(to: Shared<Halves>, low: usize, product: Feature) {
    to.set2(0, [product[0], product[1]]);
    to.set2(low, [product[2], product[3]]);
}

kernel! {
    /// Splits the coefficients into two float16 numbers each, in the order in which `exponents` reads them.
    pub unsafe fn split_coefficients(args: SplitArgs) {
        let shape = args.shape;
        let (products, components) = (shape.products(), shape.components());
        counted!(for i in ((block_idx() * block_dim() + thread_idx()) as usize..shape.rows() * products / 2).step_by((grid_dim() * block_dim()) as usize) {
            let (row, product) = (2 * i / products, 2 * i % products);
            let from = args.coefficients.wrapping_add(2 * i);
            let stage = row / components * shape.steps as usize + product / STEP;
            let (component, product) = (row % components, product % STEP);
            let place = coefficient_place(component, product / 8) + product % 8 / 2;
            let to = args.halves.wrapping_add(stage * shape.coefficients_stage() + place);
            // SAFETY: only this thread writes these places.
            let [high, low] = split_halves(load(from), load(from.add(1)));
            store(to, high);
            store(to.add(components * COEFFICIENT_ROW), low);
        });
    }
}

/// Returns the responsibilities of a component, of weight `w`, for a quad of samples from its exponents, as float16, their
/// sum, and the sum of the rounded ones. `top`, `factor`: each sample's greatest exponent, and its normaliser.
#[inline(always)]
pub(crate) fn responsibilities(
    w: f32,
    q: &[f32; QUAD],
    top: &[f32; QUAD],
    factor: &[f32; QUAD],
) -> ([u32; 2], f32, f32) {
    let mut r = [0.0f32; QUAD];
    counted!(for p in 0..QUAD {
        // Behind N exponents may be NaN, which the minimum ignores, and factors are zero.
        r[p] = w * (exp2(min(q[p] - top[p], 1.0)) * factor[p]);
    });
    let halves = [round_halves(r[0], r[1]), round_halves(r[2], r[3])];
    let (a, b) = (widen_halves(halves[0]), widen_halves(halves[1]));
    (halves, r[0] + r[1] + (r[2] + r[3]), a[0] + a[1] + (b[0] + b[1]))
}
