mod outer;
mod whiten;

use super::*;
use crate::estep::products_mma::kernel::{multiply_tiles, responsibilities, split_feature, store_sum, sums_of_quads};
use crate::math::Float;
use crate::simt::*;
pub use whiten::*;

/// Adds sums of the tensor cores to the warp's, for a pair of tiles of eight columns.
#[inline(always)]
fn add(sums: &mut [[[f32; 4]; COLUMNS / 8]; 2], n: usize, products: &[[[f32; 4]; 2]; 2]) {
    counted!(for t in 0..2 {
        counted!(for i in 0..4 {
            sums[t][n][i] += products[t][0][i];
            sums[t][n + 1][i] += products[t][1][i];
        });
    });
}

kernel! {
    /// Splits the triangles into two float16 numbers each, in the order in which `whiten` reads them.
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
            // SAFETY: only this thread writes the places.
            let first = if row < d && column <= row { load(from) } else { 0.0 };
            let second = if row < d && column < row { load(from.add(1)) } else { 0.0 };
            let [high, low] = split_halves(first, second);
            let to = args.fragments.wrapping_add(component * of_component + pair * FRAGMENTS + half * (FRAGMENTS / 2) + 4 * lane + number);
            store(to, high);
            store(to.add(FRAGMENTS / 4), low);
        });
    }
}
