use super::*;
use crate::math::Float;

/// Two float16 numbers one.
const ONES: Halves = 0x3c00_3c00;
pub(super) struct RoundSums<const S: usize, const N: usize> {
    /// For each step and tile of components, as [`mma`] returns them: products by components.
    products: [[[f32; 4]; N]; S],
    /// For component `lane / 4` of each tile, over the lane's samples.
    counts: [f32; N],
    /// Rounded responsibilities of two components of each tile, in all rows of lanes.
    rounded: [[f32; 2]; N],
}

impl<const S: usize, const N: usize> RoundSums<S, N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { products: [[[0.0; 4]; N]; S], counts: [0.0; N], rounded: [[0.0; 2]; N] }
    }

    /// Counts responsibilities of G groups, and rounds them for [`Self::add`].
    #[inline(always)]
    pub(super) fn count<const G: usize>(&mut self, r: &[Components<N>; G]) -> [[[Halves; 2]; N]; G] {
        let mut rounded = [[[0; 2]; N]; G];
        counted!(for n in 0..N {
            let mut sum = [0.0; 4];
            counted!(for g in 0..G {
                let r = r[g][n];
                self.counts[n] += (r[0][0] + r[0][1]) + (r[1][0] + r[1][1]);
                rounded[g][n] = [round_halves(r[0][0], r[0][1]), round_halves(r[1][0], r[1][1])];
                sum = mma(sum, [ONES; 4], rounded[g][n]);
            });
            self.rounded[n] = [self.rounded[n][0] + sum[0], self.rounded[n][1] + sum[1]];
        });
        rounded
    }

    /// Adds the responsibilities of G groups times their products of step `s`; `short`: without low parts.
    #[inline(always)]
    pub(super) fn add<const G: usize>(
        &mut self,
        s: usize,
        short: bool,
        products: &[Split; G],
        r: &[[[Halves; 2]; N]; G],
    ) {
        counted!(for n in 0..N {
            let mut sum = [0.0; 4];
            let mut g = 0;
            while !short && g < G {
                sum = mma(sum, products[g].low, r[g][n]);
                g += 1;
            }
            counted!(for g in 0..G {
                sum = mma(sum, products[g].high, r[g][n]);
            });
            counted!(for i in 0..4 {
                self.products[s][n][i] += sum[i];
            });
        });
    }

    /// Moves the warp's sums to shared memory, (products + 2, capacity), and leaves zeros. All lanes call it.
    /// Safety: the places exist, and no other thread uses them.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, to: Shared<f32>) {
        let lane = (thread_idx() % WARP) as usize;
        let capacity = N * TILE;
        written_out!(for n in 0..N {
            let of_tile = to.offset(n * TILE);
            let two = of_tile.offset(2 * (lane % 4));
            counted!(for s in 0..S {
                counted!(for i in 0..4 {
                    let row = STEP * s + lane / 4 + TILE * (i / 2);
                    two.set(row * capacity + i % 2, self.products[s][n][i]);
                });
            });
            let mut count = self.counts[n];
            count += count.shuffle_xor(1);
            count += count.shuffle_xor(2);
            let row = S * STEP * capacity;
            if lane.is_multiple_of(4) {
                of_tile.set(row + lane / 4, count);
            }
            if lane < 4 {
                two.set(row + capacity, self.rounded[n][0]);
                two.set(row + capacity + 1, self.rounded[n][1]);
            }
        });
        *self = Self::new();
    }
}
