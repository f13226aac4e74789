//! The code of the kernels for matrices on the matrix units.
//!
//! A warp's sums stay in registers only if the compiler knows every index into them: the loops over
//! them are `while` loops with constant bounds, which it unrolls.
mod outer;
mod whiten;

use super::*;
use crate::estep::tensor_cores::FEATURE_SCALE;
use crate::simt::*;
pub use outer::*;
pub use whiten::*;

/// Adds A·B for two tiles of A, and both tiles of eight columns of B.
#[inline(always)]
fn multiply_tiles(sums: &mut [[[f32; 4]; 2]; 2], a: &[[Halves; 4]; 2], b: [Halves; 4]) {
    counted!(for t in 0..2 {
        sums[t][0] = mma(sums[t][0], a[t], [b[0], b[1]]);
        sums[t][1] = mma(sums[t][1], a[t], [b[2], b[3]]);
    });
}

/// Adds sums of the units to those of the warp, for a pair of tiles of eight columns.
#[inline(always)]
fn add(sums: &mut [[[f32; 4]; COLUMNS / 8]; 2], n: usize, products: &[[[f32; 4]; 2]; 2]) {
    counted!(for t in 0..2 {
        counted!(for i in 0..4 {
            sums[t][n][i] += products[t][0][i];
            sums[t][n + 1][i] += products[t][1][i];
        });
    });
}

/// A feature of a quad of samples, times [`FEATURE_SCALE`], as two float16 numbers each: the high
/// parts, then the low ones.
#[inline(always)]
fn split_feature(x: [f32; QUAD]) -> [[Halves; 2]; 2] {
    let s = FEATURE_SCALE;
    let (first, second) = (split_halves(s * x[0], s * x[1]), split_halves(s * x[2], s * x[3]));
    [[first[0], second[0]], [first[1], second[1]]]
}

kernel! {
    /// Splits the triangles into two float16 numbers each, and puts them where `whiten` reads them.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given.
    pub unsafe fn split_matrices(args: SplitMatricesArgs) {
        let shape = args.shape;
        let d = shape.d as usize;
        let of_component = shape.fragments();
        // Both parts of two numbers at a time.
        counted!(for e in ((block_idx() * block_dim() + thread_idx()) as usize..shape.k as usize * of_component / 2).step_by((grid_dim() * block_dim()) as usize) {
            let (component, pair) = (2 * e / of_component, 2 * e % of_component / FRAGMENTS);
            let mut band = 0;
            while (band + 1) * (band + 2) <= pair {
                band += 1;
            }
            let tile = pair - band * (band + 1);
            let (half, lane, number) = (e / (FRAGMENTS / 4) % 2, e / 4 % WARP as usize, e % 4);
            let row = BAND * band + TILE * half + lane / 4 + 8 * (number % 2);
            let column = TILE * tile + 2 * (lane % 4) + 8 * (number / 2);
            let from = args.matrices.wrapping_add(component * (d * (d + 1) / 2) + row * (row + 1) / 2 + column);
            // SAFETY: the caller guarantees it; only this thread writes these places.
            unsafe {
                let first = if row < d && column <= row { load(from) } else { 0.0 };
                let second = if row < d && column < row { load(from.add(1)) } else { 0.0 };
                let [high, low] = split_halves(first, second);
                let to = args.fragments.wrapping_add(component * of_component + pair * FRAGMENTS + half * (FRAGMENTS / 2) + 4 * lane + number);
                store(to, high);
                store(to.add(FRAGMENTS / 4), low);
            }
        });
    }
}
