use super::*;
use crate::data::QUAD;
use crate::simt::*;

/// Columns that are read together, so that enough bytes are being read.
const TOGETHER: u32 = 4;

/// Adds the squared differences of COUNT columns, from column `j` on.
/// Safety: the quad and the columns exist.
#[inline(always)]
unsafe fn add_columns<const COUNT: usize>(
    sums: &mut [f32; QUAD],
    args: &PairsArgs,
    quad: u32,
    j: u32,
    policy: CachePolicy,
) {
    let mut x = [[[0.0f32; QUAD]; 2]; COUNT];
    counted!(for c in 0..COUNT {
        let j = j as usize + c;
        x[c] = [load4(args.a.quad(quad, j), policy), load4(args.b.quad(quad, j), policy)];
    });
    counted!(for c in 0..COUNT {
        counted!(for p in 0..QUAD {
            let t = x[c][0][p] - x[c][1][p];
            sums[p] = fma(t, t, sums[p]);
        });
    });
}

kernel! {
    /// Computes the Gaussian kernel of pairs of rows.
    pub unsafe fn gaussian_pairs(args: PairsArgs) {
        let policy = policy_stream();
        counted!(for quad in (block_idx() * block_dim() + thread_idx()..args.a.quads()).step_by(grid_dim() * block_dim()) {
            let mut sums = [0.0f32; QUAD];
            let mut j = 0;
            // SAFETY: the quad and the columns exist, and the values have room for whole quads.
            while j + TOGETHER <= args.d {
                add_columns::<{ TOGETHER as usize }>(&mut sums, &args, quad, j, policy);
                j += TOGETHER;
            }
            while j < args.d {
                add_columns::<1>(&mut sums, &args, quad, j, policy);
                j += 1;
            }
            counted!(for p in 0..QUAD {
                sums[p] = exp2(sums[p] * args.factor);
            });
            store4(args.values.add(QUAD * quad as usize), sums);
        });
    }
}
