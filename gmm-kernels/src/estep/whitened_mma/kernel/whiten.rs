//! `whiten`: triangles times features, then each sample's log-sum-exp.
use super::*;
use crate::likelihood::tiled::kernel::finish_samples;
use crate::math::{LogProduct, LogSumExp};

struct WhitenBlock<'a> {
    args: &'a WhitenArgs,
    shape: WhitenShape,
    /// The samples' maxima over the components of each row of warps, and behind them their sums.
    maxima: Shared<f32>,
    /// The features of the samples, in rows; the low parts follow the high parts.
    x: Shared<Halves>,
}

impl<'a> WhitenBlock<'a> {
    #[inline(always)]
    fn new(args: &'a WhitenArgs) -> Self {
        let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES);
        Self { args, shape: args.shape, maxima, x: maxima.offset(args.shape.numbers()).cast() }
    }

    /// Quads of a block's samples.
    #[inline(always)]
    fn quads(&self) -> u32 {
        (self.shape.samples() / QUAD) as u32
    }

    /// The warp's row (along the components) and column (along the samples).
    #[inline(always)]
    fn warp(&self) -> (u32, usize) {
        let warp = thread() / WARP;
        // A power of two.
        let shift = self.shape.sample_warps.trailing_zeros();
        (warp >> shift, (warp & (self.shape.sample_warps - 1)) as usize)
    }

    /// Reads the features of the samples from quad `first` on.
    /// Safety: all threads of the block call it; the shared memory is not in use.
    #[inline(always)]
    unsafe fn begin(&self, first: u32) {
        let (columns, policy) = (&self.args.columns, policy_keep());
        let quads = self.quads();
        let shift = quads.trailing_zeros();
        let last = columns.quads() - 1;
        counted!(for c in (thread()..((self.shape.tiles() * TILE) as u32) << shift).step_by(block_dim()) {
            let (feature, q) = (c >> shift, c & (quads - 1));
            // Past the end the last quad is read again, and not counted.
            let quad = if first + q < last { first + q } else { last };
            let mut v = [0.0; QUAD];
            if feature < self.shape.d {
                // SAFETY: the feature and the quad exist.
                v = load4(columns.quad(quad, feature as usize), policy);
            }
            // Behind N the memory may hold anything.
            let before = (QUAD as u32 * (first + q)) as u64;
            if before + QUAD as u64 > columns.n {
                counted!(for p in 0..QUAD {
                    v[p] = if before + (p as u64) < columns.n { v[p] } else { 0.0 };
                });
            }
            let [first_high, second_high, first_low, second_low] = split_feature(v);
            let (high, low) = ([first_high, second_high], [first_low, second_low]);
            if feature < self.shape.d {
                let row = self.args.exponents.stride as usize / 2;
                let to = self.args.halves.wrapping_add(feature as usize * row + 2 * (first + q) as usize).cast();
                // SAFETY: a place for each feature and sample of a block.
                store2(to, high.map(f32::from_bits));
                store2(to.wrapping_add(self.shape.d as usize * row), low.map(f32::from_bits));
            }
            let to = self.x.offset(feature as usize * self.shape.pitch() + 2 * q as usize);
            // SAFETY: a row for each feature.
            to.set2(0, high);
            to.set2(self.shape.features(), low);
        });
    }

    /// |A·x + b|² of a component for the lane's two samples, the warp's 2·lane and 2·lane + 1. All lanes call it.
    /// Safety: the features and the component's parameters are there.
    #[inline(always)]
    unsafe fn distance(&self, component: usize) -> [f32; 2] {
        let (args, shape) = (self.args, self.shape);
        let lane = (thread() % WARP) as usize;
        let x = self.x.offset(self.warp().1 * COLUMNS / 2 + lane % 16 * shape.pitch() + 4 * (lane / 16));
        let mut a = args.fragments.wrapping_add(component * shape.fragments() + 4 * lane).cast::<f32>();
        let mut shifts = args.shifts.wrapping_add(component * shape.shifts() + lane / 4);
        let scale = load(args.constants.add(component));
        let mut squares = [[0.0f32; 2]; COLUMNS / 8];
        counted!(for band in 0..shape.bands() {
            let mut sums = [[[0.0f32; 4]; COLUMNS / 8]; 2];
            let tiles = if 2 * band + 2 < shape.tiles() { 2 * band + 2 } else { shape.tiles() };
            let mut x = x;
            counted!(for tile in 0..tiles {
                not_unrolled();
                let (high, low) = (
                    [operand(a), operand(a.add(FRAGMENTS / 2))],
                    [operand(a.add(FRAGMENTS / 4)), operand(a.add(3 * FRAGMENTS / 4))],
                );
                counted!(for n in (0..COLUMNS / 8).step_by(2) {
                    let (h, l) = (x.matrices_transposed(4 * n), x.matrices_transposed(shape.features() + 4 * n));
                    // Small products first; the product of both low parts is left out.
                    let mut products = [[[0.0f32; 4]; 2]; 2];
                    multiply_tiles(&mut products, &low, h);
                    multiply_tiles(&mut products, &high, l);
                    multiply_tiles(&mut products, &high, h);
                    add(&mut sums, n, &products);
                });
                a = a.wrapping_add(FRAGMENTS);
                x = x.offset(TILE * shape.pitch());
            });
            counted!(for h in 0..4 {
                let shift = load(shifts.add(8 * h));
                counted!(for n in 0..COLUMNS / 8 {
                    counted!(for p in 0..2 {
                        let t = fma(sums[h / 2][n][2 * (h % 2) + p], scale, shift);
                        squares[n][p] = fma(t, t, squares[n][p]);
                    });
                });
            });
            shifts = shifts.wrapping_add(BAND);
        });
        over_rows(squares)
    }
}

/// Reads four elements of an operand of the tensor cores.
/// Safety: `p` is aligned to 16 bytes and readable for 16 bytes; no thread writes there during the launch.
#[inline(always)]
unsafe fn operand(p: *const f32) -> [Halves; 4] {
    let v = load_f32x4(p);
    [v[0].to_bits(), v[1].to_bits(), v[2].to_bits(), v[3].to_bits()]
}

/// Adds up the numbers of the eight lanes of the same samples, for the tile of columns `lane / 4`. All lanes call it.
#[inline(always)]
fn over_rows(v: [[f32; 2]; COLUMNS / 8]) -> [f32; 2] {
    let lane = thread();
    let mut four = [[0.0; 2]; 4];
    counted!(for i in 0..8 {
        let (n, p) = (i / 2, i % 2);
        four[n][p] = exchange(lane & 16 != 0, v[n][p], v[4 + n][p], 16);
    });
    let mut two = [[0.0; 2]; 2];
    counted!(for i in 0..4 {
        let (n, p) = (i / 2, i % 2);
        two[n][p] = exchange(lane & 8 != 0, four[n][p], four[2 + n][p], 8);
    });
    let upper = lane & 4 != 0;
    [exchange(upper, two[0][0], two[1][0], 4), exchange(upper, two[0][1], two[1][1], 4)]
}

/// Returns the second number in an upper lane, otherwise the first, plus the same of the lane `mask` away.
#[inline(always)]
pub(crate) fn exchange(upper: bool, first: f32, second: f32, mask: u32) -> f32 {
    let (keep, give) = if upper { (second, first) } else { (first, second) };
    keep + give.shuffle_xor(mask)
}

kernel! {
    /// Computes exponents of matrices.
    pub unsafe fn whiten(args: WhitenArgs) {
        let shape = args.shape;
        let block = WhitenBlock::new(&args);
        let quads = block.quads();
        let mut product = LogProduct::new();
        // The bounds are the same for all threads of a block, so that all meet at the barriers.
        counted!(for first in (block_idx() * quads..args.columns.quads()).step_by(grid_dim() * quads) {
            // SAFETY: at the start, or after the barrier that ends this loop, the shared memory is free.
            block.begin(first);
            barrier!();
            let (row_of_warps, column_of_warps) = block.warp();
            let sample = column_of_warps * COLUMNS + 2 * (thread() % WARP) as usize;
            let to = args.exponents.q.wrapping_add(QUAD * first as usize + sample);
            let empty = LogSumExp::new();
            let (mut top, mut sum) = ([empty.max; 2], [empty.sum; 2]);
            counted!(for component in (row_of_warps..shape.k).step_by(shape.component_warps) {
                let c = component as usize;
                // SAFETY: the barrier made the features visible; all components have parameters and places.
                let distance = block.distance(c);
                let constants = args.constants.add(c);
                let (seed, weight) = (load(constants.add(shape.k as usize)), load(constants.add(2 * shape.k as usize)));
                let q = [seed - distance[0], seed - distance[1]];
                store2(to.wrapping_add(c * args.exponents.stride as usize), q);
                counted!(for p in 0..2 {
                    let before = top[p];
                    top[p] = max(before, q[p]);
                    sum[p] = fma(sum[p], exp2(before - top[p]), weight * exp2(q[p] - top[p]));
                });
            });
            let samples = shape.samples();
            let maxima = block.maxima.offset(row_of_warps as usize * samples + sample);
            let totals = shape.component_warps as usize * samples;
            counted!(for p in 0..2 {
                // SAFETY: the lane's own places.
                maxima.set(p, top[p]);
                maxima.set(totals + p, sum[p]);
            });
            barrier!();
            let outputs = (args.sample_weights, core::ptr::null_mut(), args.exponents);
            let places = (block.maxima, block.maxima.offset(totals));
            // SAFETY: the barrier made all warps' sums visible.
            finish_samples::<false>(&mut product, &args.columns, outputs, first, (shape.component_warps as usize, samples), places);
            barrier!();
        });
        // SAFETY: all threads end here, and the start of the shared memory is unused.
        args.output.finish(product);
    }
}
