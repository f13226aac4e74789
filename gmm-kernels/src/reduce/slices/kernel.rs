use super::*;
use crate::simt::*;

kernel! {
    /// `totals[i]` = Σ over `slices` of `sums[slice, i]`, in an order that only depends on the block. Launch: a block
    /// of whole warps for each [`REDUCE_NUMBERS`] of `count` numbers.
    pub unsafe fn reduce_slices(args: ReduceSlicesArgs) {
        let ReduceSlicesArgs { sums, slices, count, totals } = args;
        const UNROLL: usize = 4;
        let rows = block_dim() / REDUCE_NUMBERS;
        let (row, lane) = (thread_idx() / WARP, thread_idx() % WARP);
        let i = block_idx() * WARP + lane;
        let parts = Shared::<f64>::at(0);
        let mut sum = 0.0;
        let mut slice = row;
        while slice < slices && i < count {
            // The reads are independent, so that they overlap.
            let mut v = [0.0f64; UNROLL];
            counted!(for u in 0..UNROLL {
                let slice = slice + u as u32 * rows;
                if slice < slices {
                    // SAFETY: inside.
                    v[u] = load(sums.add(slice as usize * count as usize + i as usize));
                }
            });
            sum += (v[0] + v[1]) + (v[2] + v[3]);
            slice += UNROLL as u32 * rows;
        }
        // SAFETY: a place for each thread.
        parts.set(thread_idx() as usize, sum);
        barrier!();
        if row == 0 && i < count {
            let mut sum = 0.0;
            counted!(for row in 0..rows {
                // SAFETY: written before the barrier.
                sum += parts.get((row * WARP + lane) as usize);
            });
            store(totals.add(i as usize), sum);
        }
    }
}
